"""The oracle of the exact tier: docs/exact.md read aloud, in NumPy and Python integers.

Written from the document alone; imports nothing of `node.inference.exact`. Slow on purpose: one
token at a time, no batches, no blocks, whole products in int64, tables looked up by interpolation.
Disagreement with the engine is a bug in one of the three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from Crypto.Hash import keccak


def rshift(value: Any, s: int) -> Any:
    return value if s == 0 else (value + (1 << (s - 1))) >> s


def hashed(*parts: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=b"".join(parts)).digest()


# ---------------------------------------------------------------- tables


def _tables() -> tuple[list[int], list[int], list[int]]:
    def near(x: Decimal) -> int:
        return int(x.to_integral_value())

    with localcontext() as context:
        context.prec = 80
        pi = Decimal(
            "3.1415926535897932384626433832795028841971693993751058209749445923078164062862"
        )

        def cos(x: Decimal) -> Decimal:
            total, term, k = Decimal(1), Decimal(1), 1
            while abs(term) > Decimal(10) ** -70:
                term *= -x * x / (k * (k + 1))
                total += term
                k += 2
            return total

        one = Decimal(1 << 30)
        wave = [near(one * cos(2 * pi * k / 1024)) for k in range(1025)]
        exp = [near(one * Decimal(2) ** (Decimal(-k) / 64)) for k in range(65)]
        sig = [near(one / (1 + (-(Decimal(k) - 512) / 32).exp())) for k in range(1025)]
    return wave, exp, sig


COS, EXP, SIG = _tables()


def wave(u: int) -> int:
    k, r = u >> 54, (u >> 38) & 0xFFFF
    return rshift(COS[k] + ((COS[k + 1] - COS[k]) * r >> 16), 15)


def attention_weight(delta: int) -> int:
    if delta >= 20480:
        return 0
    o, j, r = delta >> 10, (delta >> 4) % 64, delta % 16
    return rshift(EXP[j] + ((EXP[j + 1] - EXP[j]) * r >> 4), 11 + o)


def sigmoid(z: int) -> int:
    z = min(max(z, -32768), 32767)
    k, r = (z >> 6) + 512, z % 64
    return rshift(SIG[k] + ((SIG[k + 1] - SIG[k]) * r >> 6), 16)


# ---------------------------------------------------------------- the checkpoint


@dataclass
class Rows:
    w: np.ndarray  # int64[out, in]
    scale: list[float]
    m: list[int] = field(default_factory=list)
    s: int = 1
    b: list[int] = field(default_factory=list)

    @property
    def l1(self) -> int:
        return int(np.abs(self.w).sum(axis=1).max())

    def linear(self, a: Sequence[int], e: int = 0) -> list[int]:
        acc = self.w @ np.array(a, dtype=np.int64)
        out = []
        for acc_j, m, b in zip(acc.tolist(), self.m, self.b, strict=True):
            t = self.s - e
            out.append((rshift(acc_j * m, t) if t >= 0 else acc_j * m << -t) + b)
        return out

    def leaf(self, tensor: int, row: int) -> bytes:
        return hashed(
            b"\x00verdraft/exact-row/1",
            tensor.to_bytes(4, "big"),
            row.to_bytes(4, "big"),
            self.m[row].to_bytes(4, "big"),
            self.s.to_bytes(1, "big"),
            self.b[row].to_bytes(8, "big", signed=True),
            bytes(int(v) & 0xFF for v in self.w[row]),
        )


@dataclass
class Norm:
    gains: list[int]
    unit: float

    def leaf(self, tensor: int) -> bytes:
        return vector_leaf(tensor, self.gains)


def vector_leaf(tensor: int, values: Sequence[int]) -> bytes:
    return hashed(
        b"\x00verdraft/exact-row/1",
        tensor.to_bytes(4, "big"),
        bytes(4 + 4 + 1 + 8),
        b"".join(v.to_bytes(4, "big", signed=True) for v in values),
    )


def quantised(values: np.ndarray) -> Rows:
    w = np.zeros(values.shape, dtype=np.int64)
    scale = []
    for j, row in enumerate(values.tolist()):
        top = max(abs(v) for v in row)
        scale.append(top / 127.0)
        if top:
            w[j] = [round((127.0 * v) / top) for v in row]  # round() takes halves to even
    return Rows(w, scale)


def finish(group: list[tuple[Rows, list[float], list[float], list[float]]]) -> None:
    """Multipliers of matrices that share s: (rows, u_in / u_out, biases, u_out)."""
    a = max(rows.l1 for rows, *_ in group)
    bits = min(22, 36 - a.bit_length())
    ratios = [[s * p for s, p in zip(rows.scale, rho, strict=True)] for rows, rho, *_ in group]
    r = max(max(ratio) for ratio in ratios)
    s = 1 if r == 0 else min(bits - math.frexp(r)[1], 62)
    assert s >= 1
    for (rows, _, bias, unit), ratio in zip(group, ratios, strict=True):
        rows.s = s
        rows.m = [round(v * 2.0**s) if r else 0 for v in ratio]
        rows.b = [round(v / u) for v, u in zip(bias, unit, strict=True)]


class Oracle:
    """A model and one session's state. `step(token)` gives (h, Z) of the next position."""

    def __init__(
        self, config: dict[str, Any], tensors: dict[str, np.ndarray], head_ids: Any = None
    ) -> None:
        def get(name: str) -> np.ndarray:
            return tensors[name].astype(np.float64)

        self.d = d = config["hidden_size"]
        self.f = f = config["intermediate_size"]
        self.heads = config["num_attention_heads"]
        self.kv = config.get("num_key_value_heads", self.heads)
        self.c = c = config.get("head_dim") or d // self.heads
        self.layers = config["num_hidden_layers"]
        self.context = config["max_position_embeddings"]
        self.config = config
        self.t = ((d - 1).bit_length() + 1) // 2
        self.E = max(1024, round((config["rms_norm_eps"] * d) * 4.0 ** (16 - self.t)))
        self.kappa = 1 + math.sqrt(d / self.E)
        self.phi = self._phases(config.get("rope_theta", 10000.0))

        self.embedding = quantised(get("model.embed_tokens.weight"))
        final = self._norm(get("model.norm.weight"))
        self.final = final
        if "lm_head.weight" in tensors and not config.get("tie_word_embeddings"):
            self.head = quantised(get("lm_head.weight"))
        else:
            self.head = Rows(self.embedding.w, self.embedding.scale)
        self.head_ids = head_ids
        if head_ids is not None and len(self.head.w) == config["vocab_size"]:
            picked = [self.head.scale[i] for i in head_ids]
            self.head = Rows(self.head.w[np.array(head_ids)], picked)
        n = len(self.embedding.scale)
        finish([(self.embedding, [2.0**16] * n, [0.0] * n, [1.0] * n)])
        n = len(self.head.scale)
        finish([(self.head, [final.unit * 2.0**24] * n, [0.0] * n, [1.0] * n)])
        self.blocks = [self._layer(get, tensors, i) for i in range(self.layers)]
        self.cache: list[list[tuple[list[list[int]], list[list[int]]]]] = [
            [] for _ in range(self.layers)
        ]
        assert (d, f, c) == (self.d, self.f, self.c)

    def _phases(self, theta: float) -> list[int]:
        with localcontext() as context:
            context.prec = 80
            pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
            log = Decimal(theta).ln()
            return [
                int((1 << 64) * (-log * 2 * i / self.c).exp() / (2 * pi)) % (1 << 64)
                for i in range(self.c // 2)
            ]

    def _norm(self, g: np.ndarray) -> Norm:
        gains = g.tolist()
        top = max(abs(v) for v in gains)
        if top == 0:
            return Norm([0] * len(gains), 0.0)
        return Norm([round((32600 * v) / top) for v in gains], (math.sqrt(self.d) * top) / 32600)

    def _reach(self, rows: Rows, norm: Norm, bias: list[float]) -> list[float]:
        out = []
        for j, w in enumerate(rows.w.tolist()):
            square = sum(v * v * g * g for v, g in zip(w, norm.gains, strict=True))
            r = sum(abs(v) for v in w)
            acc = (self.kappa * math.sqrt(square) + 0.5 * r) + 1
            out.append(acc * rows.scale[j] * norm.unit + abs(bias[j]))
        return out

    def _layer(
        self, get: Callable[[str], np.ndarray], tensors: dict[str, np.ndarray], number: int
    ) -> dict[str, Any]:
        p = f"model.layers.{number}."
        c, out = self.c, {}

        def bias(name: str, n: int) -> list[float]:
            return get(name).tolist() if name in tensors else [0.0] * n

        before = out["n1"] = self._norm(get(p + "input_layernorm.weight"))
        rows, biases, reach = {}, {}, {}
        for x in "qkv":
            rows[x] = quantised(get(f"{p}self_attn.{x}_proj.weight"))
            biases[x] = bias(f"{p}self_attn.{x}_proj.bias", len(rows[x].scale))
            reach[x] = self._reach(rows[x], before, biases[x])
        u_v = max(reach["v"]) / 32600 or 1.0

        def pair(r: list[float], h: int) -> float:
            a, b = r[h * c : h * c + c // 2], r[h * c + c // 2 : (h + 1) * c]
            return max(math.sqrt(x * x + y * y) for x, y in zip(a, b, strict=True))

        u_k = [pair(reach["k"], h) / 32600 or 1.0 for h in range(self.kv)]
        sigma, u_q = [], []
        for h in range(self.heads):
            big = u_k[h // (self.heads // self.kv)] * (1.4426950408889634 * 1024 / math.sqrt(c))
            reached = pair(reach["q"], h)
            e = math.frexp((reached / 32600) * big)[1] if reached else 0
            sigma.append(-e)
            u_q.append(2.0**e / big)
        out["sigma"] = sigma
        units = {
            "q": [u_q[j // c] for j in range(self.heads * c)],
            "k": [u_k[j // c] for j in range(self.kv * c)],
            "v": [u_v] * (self.kv * c),
        }
        finish([(rows[x], [before.unit / u for u in units[x]], biases[x], units[x]) for x in "qkv"])
        out |= rows
        out["o"] = quantised(get(p + "self_attn.o_proj.weight"))
        b = bias(p + "self_attn.o_proj.bias", self.d)
        finish([(out["o"], [u_v * 2.0**16] * self.d, b, [2.0**-16] * self.d)])

        after = out["n2"] = self._norm(get(p + "post_attention_layernorm.weight"))
        fractions = {}
        for x in ("gate", "up"):
            rows[x] = quantised(get(f"{p}mlp.{x}_proj.weight"))
            biases[x] = bias(f"{p}mlp.{x}_proj.bias", self.f)
            top = max(self._reach(rows[x], after, biases[x]))
            fractions[x] = 19 - math.frexp(top)[1] if top else 0
            units[x] = [2.0 ** -fractions[x]] * self.f
        finish(
            [
                (rows[x], [after.unit / u for u in units[x]], biases[x], units[x])
                for x in ("gate", "up")
            ]
        )
        out["gate"], out["up"] = rows["gate"], rows["up"]
        out["F"] = (fractions["gate"], fractions["up"])
        out["down"] = quantised(get(p + "mlp.down_proj.weight"))
        b = bias(p + "mlp.down_proj.bias", self.d)
        rho = 2.0 ** (16 - (14 + fractions["gate"] + fractions["up"]))
        finish([(out["down"], [rho] * self.d, b, [2.0**-16] * self.d)])
        return out

    # ------------------------------------------------------------ the forward pass

    def norm(self, x: list[int], norm: Norm) -> list[int]:
        y = [v >> self.t for v in x]
        big = sum(v * v for v in y) + self.E
        assert big < 1 << 63
        q = (big.bit_length() + 1) // 2
        v = math.isqrt((1 << (2 * q + 30)) // big)
        assert 1 << 15 <= v <= 1 << 16
        out = [rshift(a * g * v, self.t + q + 15) for a, g in zip(x, norm.gains, strict=True)]
        assert max(abs(a) for a in out) <= 32639
        return out

    def rotated(self, heads: list[int], position: int) -> list[list[int]]:
        half, out = self.c // 2, []
        for start in range(0, len(heads), self.c):
            a, b = heads[start : start + half], heads[start + half : start + self.c]
            first, second = [], []
            for i in range(half):
                u = position * self.phi[i] % (1 << 64)
                cos, sin = wave(u), wave((u - (1 << 62)) % (1 << 64))
                first.append(rshift(a[i] * cos - b[i] * sin, 15))
                second.append(rshift(a[i] * sin + b[i] * cos, 15))
            out.append(first + second)
            assert max(map(abs, out[-1])) < 1 << 15
        return out

    def step(self, token: int) -> tuple[list[int], list[int]]:
        position = len(self.cache[0])
        emb = self.embedding
        x = [sat(rshift(int(w) * emb.m[token], emb.s)) for w in emb.w[token].tolist()]
        for number, layer in enumerate(self.blocks):
            a = self.norm(x, layer["n1"])
            q = self.rotated(layer["q"].linear(a), position)
            k = self.rotated(layer["k"].linear(a), position)
            flat = layer["v"].linear(a)
            v = [flat[i : i + self.c] for i in range(0, len(flat), self.c)]
            self.cache[number].append((k, v))
            mixed = self.attention(q, self.cache[number], layer["sigma"])
            x = [sat(u + w) for u, w in zip(x, layer["o"].linear(mixed), strict=True)]
            x = [
                sat(u + w)
                for u, w in zip(x, self.mlp(self.norm(x, layer["n2"]), layer), strict=True)
            ]
        h = self.norm(x, self.final)
        limit = (1 << 36) - 1
        return h, [min(max(z, -limit), limit) for z in self.head.linear(h)]

    def attention(self, q: Any, cache: Any, sigma: list[int]) -> list[int]:
        out = []
        for h, query in enumerate(q):
            kv = h // (self.heads // self.kv)
            s = [sum(a * b for a, b in zip(query, keys[kv], strict=True)) for keys, _ in cache]
            top, weights = max(s), []
            for value in s:
                apart = top - value
                delta = apart >> sigma[h] if sigma[h] >= 0 else apart << -sigma[h]
                weights.append(attention_weight(delta))
            total = sum(weights)
            for i in range(self.c):
                num = sum(p * values[kv][i] for p, (_, values) in zip(weights, cache, strict=True))
                out.append((2 * num + total) // (2 * total))
        return out

    def mlp(self, a: list[int], layer: dict[str, Any]) -> list[int]:
        f_g = layer["F"][0]
        act = []
        for g, u in zip(layer["gate"].linear(a), layer["up"].linear(a), strict=True):
            assert max(abs(g), abs(u)) <= 1 << 19
            z = g >> (f_g - 11) if f_g >= 11 else g << (11 - f_g)
            act.append(sigmoid(z) * g * u)
        top = max(abs(v) for v in act)
        e = max(0, top.bit_length() - 15)
        if rshift(top, e) > 32639:
            e += 1
        return layer["down"].linear([rshift(v, e) for v in act], e)

    # ------------------------------------------------------------ commitments

    def weights_root(self) -> bytes:
        leaves = [self.embedding.leaf(0, i) for i in range(len(self.embedding.m))]
        leaves += [self.head.leaf(1, i) for i in range(len(self.head.m))]
        leaves.append(self.final.leaf(2))
        for number, layer in enumerate(self.blocks):
            base = 16 * (number + 1)
            for kind, name in enumerate(("q", "k", "v", "o", "gate", "up", "down")):
                rows = layer[name]
                leaves += [rows.leaf(base + kind, i) for i in range(len(rows.m))]
            leaves += [layer["n1"].leaf(base + 8), layer["n2"].leaf(base + 9)]
            leaves.append(vector_leaf(base + 12, [*layer["sigma"], *layer["F"]]))
        level = leaves
        while len(level) > 1:
            pairs = [hashed(b"\x01", level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            level = pairs + (level[-1:] if len(level) % 2 else [])
        tables = b"".join(v.to_bytes(4, "big", signed=True) for v in (*COS, *EXP, *SIG))
        sizes = (
            1, len(self.embedding.m), len(self.head.m), self.d, self.f, self.layers, self.heads,
            self.kv, self.c, self.context,
        )  # fmt: skip
        ids = bytes(32)
        if self.head_ids is not None:
            ids = hashed(b"".join(int(i).to_bytes(4, "big") for i in self.head_ids))
        header = hashed(
            b"verdraft/exact-header/1",
            b"".join(v.to_bytes(4, "big") for v in sizes),
            self.E.to_bytes(8, "big"),
            b"".join(v.to_bytes(8, "big") for v in self.phi),
            hashed(tables),
            ids,
        )
        return hashed(b"verdraft/exact-weights/1", header, len(leaves).to_bytes(4, "big"), level[0])


def sat(v: int) -> int:
    limit = (1 << 31) - 1
    return min(max(v, -limit), limit)


def fingerprint(h: Sequence[int]) -> bytes:
    return hashed(b"verdraft/hidden/1", b"".join(v.to_bytes(2, "big", signed=True) for v in h))
