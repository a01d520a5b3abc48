"""The exact tier's forward pass, behind the interface of `node.inference.model`.

The values are the integers of docs/exact.md ("The forward pass"), held in float64 where that is the
fastest exact container: every product and sum here is below 2**53 by the bounds proven there, so
nothing rounds, whatever the order of summation or fusing of multiply and add. Where a value needs
more bits (the norm's sum of squares) it is int64. Numbers in brackets are the document's steps.

Few operations a layer matter more than cheap ones: a decode step is dominated by their overhead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from node.inference.architecture import Architecture, ModelError
from node.inference.cache import Run
from node.inference.exact import quantise
from node.inference.exact.memory import Together
from node.inference.exact.products import Int8Linear, choose
from node.inference.exact.quantise import IntegerModel, Matrix
from node.inference.exact.tables import (
    EXP_LIMIT,
    exp_table,
    rotation_tables,
    sigmoid_table,
)
from node.inference.model import Piece, RaggedModel

_RESIDUAL_LIMIT: Final = float((1 << 31) - 1)
_LOGIT_LIMIT: Final = float((1 << 36) - 1)
#: Rows of an MLP worked on at once: its wide intermediate values stay in the cache.
_MLP_ROWS: Final = 128
#: Queries of one span attended at once, over the keys that the last of them may see.
_QUERY_ROWS: Final = 32


class Requantised:
    """One or more matrices side by side: rshift(acc · m, s) + b per output.

    `acc · (m · 2**−s) + (b + ½)` is exact in float64 (see "Multipliers"), so its floor is the
    rounding shift.
    """

    def __init__(
        self, matrices: Sequence[Matrix], order: Sequence[np.ndarray | None], place: _Place
    ):
        def rows(values: Sequence[np.ndarray]) -> torch.Tensor:
            parts = [v if o is None else v[o] for v, o in zip(values, order, strict=True)]
            return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))

        weights = rows([m.weights for m in matrices])
        kept = weights.to(place.device) if place.room is None else place.room.keep(weights)
        self.product = Int8Linear(kept, place.backend)
        scale = rows([m.multipliers * 2.0**-m.shift for m in matrices])
        bias = rows([m.bias.astype(np.float64) for m in matrices])
        # Folding b keeps below 2**53 units of 2**−s only for a modest b.
        shift = max(m.shift for m in matrices)
        fold = float(bias.abs().max()) * 2.0**shift < 2.0**51
        self.scale = scale.to(place.device)
        self.half = (bias + 0.5 if fold else torch.full_like(bias, 0.5)).to(place.device)
        self.bias = None if fold else bias.to(place.device)

    def __call__(self, a: torch.Tensor, exponents: float | torch.Tensor = 1.0) -> torch.Tensor:
        """float64[n, out]; `exponents` is 2**e of each row, where activations were scaled down."""
        acc = self.product(a)
        if isinstance(exponents, torch.Tensor) or exponents != 1.0:
            acc.mul_(exponents)
        y = torch.addcmul(self.half, acc, self.scale).floor_()
        return y if self.bias is None else y.add_(self.bias)


@dataclass(frozen=True)
class _Place:
    device: torch.device
    backend: str
    room: Together | None = None  # None: each matrix where it lies


@dataclass
class Layer:
    attention_gains: torch.Tensor
    qkv: Requantised
    score_scale: torch.Tensor  # 2**−σ, float64[H, 1]
    out: Requantised
    mlp_gains: torch.Tensor
    gate_up: Requantised
    gate_step: float  # 2**(11 − F_g)
    down: Requantised


class ExactModel(RaggedModel):
    """An `IntegerModel` ready to run (see `node.inference.model.LanguageModel`).

    Args:
        integers: from `quantise.load_integers`.
        device: where to.
        backend: of the products; None takes the fastest that is exact here.

    Raises:
        InexactBackend: no backend, or not the one asked for, computes exactly on this machine.
    """

    tier = "exact"

    def __init__(
        self,
        integers: IntegerModel,
        device: torch.device | str = "cpu",
        backend: str | None = None,
        folder: Path | None = None,
    ) -> None:
        arch = integers.arch
        self.device = torch.device(device)
        self.backend = choose(self.device, backend)
        self.arch = arch
        self.folder = folder
        self.vocab_size = arch.vocab_size
        self.hidden_size = arch.hidden_size
        self.context_length = arch.context_length
        self.head_ids = integers.head_ids
        self.eos_ids = integers.eos_ids
        self.dtype = torch.int16
        place = _Place(self.device, self.backend)
        self._integers = integers
        self._head = Requantised([integers.head], [None], place)
        tied = integers.tied and integers.head_ids is None
        table = self._head.product.weight if tied else torch.from_numpy(integers.embedding.weights)
        self._embedding = table.to(self.device)
        scale = integers.embedding.multipliers * 2.0**-integers.embedding.shift
        self._embedding_scale = torch.from_numpy(scale).to(self.device)
        self._final_gains = self._tensor(integers.final_gains)
        adjacent = _adjacent(arch.head_dim)
        if self.device.type == "cpu":
            place = replace(place, room=Together(_sizes(integers)))
        self._layers = [self._layer(layer, adjacent, place) for layer in integers.layers]
        self._check_products()
        self._norm_shift, self._epsilon = integers.norm_shift, integers.epsilon
        self._half = torch.tensor(0.5, dtype=torch.float64, device=self.device)
        self._sigmoid_zero = torch.tensor(32768.0, dtype=torch.float64, device=self.device)
        self._exp = self._tensor(exp_table()).double()
        self._sigmoid = self._tensor(sigmoid_table()).double()
        cosine, sine = rotation_tables(integers.phases, arch.context_length)
        self._rotation = torch.complex(
            torch.from_numpy(cosine.astype(np.float64)), torch.from_numpy(sine.astype(np.float64))
        ).to(self.device)[:, None, :]

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)

    def _layer(self, layer: quantise.Layer, adjacent: np.ndarray, place: _Place) -> Layer:
        a = self.arch

        def pairs(heads: int) -> np.ndarray:
            return (np.arange(heads)[:, None] * a.head_dim + adjacent).reshape(-1)

        scores = np.array([2.0**-s for s in layer.score_shifts])[:, None]
        return Layer(
            attention_gains=self._tensor(layer.attention_gains),
            qkv=Requantised(
                [layer.query, layer.key, layer.value],
                [pairs(a.heads), pairs(a.kv_heads), None],
                place,
            ),
            score_scale=self._tensor(scores),
            out=Requantised([layer.out], [None], place),
            mlp_gains=self._tensor(layer.mlp_gains),
            gate_up=Requantised([layer.gate, layer.up], [None, None], place),
            gate_step=2.0 ** (11 - layer.gate_bits),
            down=Requantised([layer.down], [None], place),
        )

    @torch.inference_mode()
    def _check_products(self) -> None:
        """One product of each shape against int64, on the model's own weights."""
        seen: set[tuple[int, int]] = set()
        for layer in self._layers:
            for part in (layer.qkv, layer.out, layer.gate_up, layer.down, self._head):
                shape = (part.product.out_features, part.product.in_features)
                if shape not in seen:
                    seen.add(shape)
                    part.product.check()

    @property
    def weight_bytes(self) -> int:
        """Of int8 weights, the multipliers and gains left out (below 1 % of them)."""
        products = [self._head.product]
        for layer in self._layers:
            products += [p.product for p in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        shared = self._embedding.data_ptr() == self._head.product.weight.data_ptr()
        return sum(p.bytes for p in products) + (0 if shared else self._embedding.numel())

    def truncated(self, arch: Architecture) -> ExactModel:
        """This model with the first `arch.layers` layers only."""
        return ExactModel(self._first_layers(arch), self.device, None, self.folder)

    def _first_layers(self, arch: Architecture) -> IntegerModel:
        return replace(self._integers, arch=arch, layers=self._integers.layers[: arch.layers])

    def _read(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[8] of float64[n, d]: h as int16[n, d], and Z / 2**24, exactly, as float64[n, V]."""
        hidden = self._norm(x, self._final_gains)
        return hidden.to(torch.int16), clamped_logits(self._head(hidden))

    # ------------------------------------------------------------ layers

    def _decode(self, chunk: Sequence[Piece]) -> torch.Tensor:
        """All layers over the rows of one chunk: float64[n, d], before the final norm."""
        a = self.arch
        x = self._embed(chunk)
        rows = [len(piece.tokens) for piece in chunk]
        past = [piece.cache.length for piece in chunk]
        rotation = torch.cat([self._rotation[m : m + n] for m, n in zip(past, rows, strict=True)])
        rotated = (a.heads + a.kv_heads) * a.head_dim
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv(self._norm(x, layer.attention_gains))  # [2, 3]
            qk = self._rotate(qkv[:, :rotated], rotation)  # [4]
            q, k = qk[:, : a.heads] * layer.score_scale, qk[:, a.heads :]
            v = qkv[:, rotated:].unflatten(1, (a.kv_heads, a.head_dim))
            mixed = [
                self._attend(qp, p.cache.append(number, kp, vp), m)
                for p, qp, kp, vp, m in zip(
                    chunk, q.split(rows), k.split(rows), v.split(rows), past, strict=True
                )
            ]
            x.add_(layer.out(mixed[0] if len(mixed) == 1 else torch.cat(mixed)))  # [6]
            x.clamp_(-_RESIDUAL_LIMIT, _RESIDUAL_LIMIT)
            for part in x.split(_MLP_ROWS) if len(x) > _MLP_ROWS else (x,):
                part.add_(self._mlp(layer, part)).clamp_(-_RESIDUAL_LIMIT, _RESIDUAL_LIMIT)
        return x

    def _embed(self, chunk: Sequence[Piece]) -> torch.Tensor:
        """[1] of the chunk's tokens: float64[n, d]."""
        ids = torch.tensor([t for piece in chunk for t in piece.tokens], device=self.device)
        x = self._embedding[ids].double().mul_(self._embedding_scale[ids][:, None])
        return x.add_(0.5).floor_().clamp_(-_RESIDUAL_LIMIT, _RESIDUAL_LIMIT)

    def _norm(self, x: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
        """[2] of float64[n, d]: int64[n, d], the 16-bit activations."""
        wide = x.long()
        y = wide >> self._norm_shift
        if len(x) == 1:
            v, shift = self._root(int(torch.dot(y[0], y[0])))
            return (wide * gains).mul_(v).add_(1 << (shift - 1)).__irshift__(shift)
        pairs = [self._root(total) for total in (y * y).sum(1).tolist()]
        both = torch.tensor(pairs, device=self.device)
        v, shift = both[:, :1], both[:, 1:]
        return (wide * gains).mul_(v).add_(1 << (shift - 1)).__irshift__(shift)

    def _root(self, squares: int) -> tuple[int, int]:
        """V and the shift t + q + 15 of a row with this Σ y²."""
        total = squares + self._epsilon
        q = (total.bit_length() + 1) >> 1
        return math.isqrt((1 << (2 * q + 30)) // total), self._norm_shift + q + 15

    def _rotate(self, qk: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """[4] of float64[n, heads · c], pairs adjacent: [n, heads, c]."""
        pairs = torch.view_as_complex(qk.unflatten(1, (-1, self.arch.head_dim // 2, 2)))
        turned = torch.view_as_real(pairs * rotation)
        return torch.add(self._half, turned, alpha=2.0**-15).floor_().flatten(2)

    def _attend(self, q: torch.Tensor, runs: Sequence[Run], past: int) -> torch.Tensor:
        """[5] of one span: row i sees the first past + i + 1 tokens.

        Args:
            q: float64[n, H, c], times 2**−σ; runs: keys and values int16[Hk, tokens, c] of
                neighbouring tokens, together all up to the span's last.

        Returns:
            float64[n, H · c].
        """
        wide = [(keys.double().transpose(1, 2), values.double()) for keys, values in runs]
        if len(q) <= _QUERY_ROWS:
            return self._attend_block(q, wide, past)
        blocks, seen = [], past
        for block in q.split(_QUERY_ROWS):
            blocks.append(self._attend_block(block, _first(wide, seen + len(block)), seen))
            seen += len(block)
        return torch.cat(blocks)

    def _attend_block(self, q: torch.Tensor, runs: Sequence[Run], past: int) -> torch.Tensor:
        """As `_attend`; runs: keys float64[Hk, c, tokens], values float64[Hk, tokens, c]."""
        n, heads, dim = q.shape
        kv_heads = len(runs[0][0])
        grouped = q.unflatten(1, (kv_heads, heads // kv_heads)).permute(1, 2, 0, 3).flatten(1, 2)
        parts = [torch.bmm(grouped, keys) for keys, _ in runs]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        if n > 1:
            mask = torch.full((n, n), -torch.inf, dtype=scores.dtype, device=scores.device)
            scores.unflatten(1, (-1, n))[..., past:].add_(mask.triu_(1))
        delta = (scores.amax(2, keepdim=True) - scores).clamp_(max=float(EXP_LIMIT))
        weights = self._exp.index_select(0, delta.to(torch.int32).flatten()).view_as(scores)
        total = weights.sum(2, keepdim=True)
        if len(runs) == 1:
            mixed = torch.bmm(weights, runs[0][1])
        else:
            shares = weights.split([values.shape[1] for _, values in runs], dim=2)
            sums = [torch.bmm(w, v) for w, (_, v) in zip(shares, runs, strict=True)]
            mixed = torch.stack(sums).sum(0)
        out = mixed.add_(total, alpha=0.5).div_(total).floor_()
        return out.unflatten(1, (heads // kv_heads, n)).permute(2, 0, 1, 3).reshape(n, heads * dim)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        """[7] of float64[n, d]: what the MLP adds."""
        both = layer.gate_up(self._norm(x, layer.mlp_gains))
        gate, up = both.split(self.arch.intermediate_size, dim=1)
        z = torch.add(self._sigmoid_zero, gate, alpha=layer.gate_step).clamp_(0.0, 65535.0)
        act = self._sigmoid.index_select(0, z.to(torch.int32).flatten()).view_as(gate)
        act.mul_(gate).mul_(up)
        tops = act.abs().amax(1)
        if len(x) == 1:
            e = _exponent(int(tops))
            scaled = torch.add(self._half, act, alpha=2.0**-e).floor_()
            return layer.down(scaled, 2.0**e)
        exponents = torch.tensor(
            [2.0 ** _exponent(int(top)) for top in tops.tolist()],
            dtype=torch.float64,
            device=self.device,
        )[:, None]
        return layer.down(act.div_(exponents).add_(0.5).floor_(), exponents)


def _sizes(integers: IntegerModel) -> list[int]:
    """Bytes of the layers' matrices as a pass has them, those of queries, keys and values, and of
    gate and up, joined."""
    sizes = []
    for layer in integers.layers:
        joined = ((layer.query, layer.key, layer.value), (layer.out,), (layer.gate, layer.up))
        sizes += [sum(m.weights.size for m in part) for part in (*joined, (layer.down,))]
    return sizes


def clamped_logits(z: torch.Tensor) -> torch.Tensor:
    """Z of [8], clamped, over 2**24; in place."""
    return z.clamp_(-_LOGIT_LIMIT, _LOGIT_LIMIT).mul_(2.0**-quantise.LOGIT_BITS)


def _exponent(top: int) -> int:
    """e of a row whose largest magnitude is `top`."""
    e = max(0, top.bit_length() - 15)
    rounded = (top + (1 << e >> 1)) >> e
    return e + 1 if rounded > quantise.MAX_ACTIVATION else e


def _adjacent(head_dim: int) -> np.ndarray:
    """Channel order that puts the rotary pair (i, i + c/2) side by side."""
    return np.arange(head_dim).reshape(2, head_dim // 2).T.reshape(-1)


def _first(runs: Sequence[Run], tokens: int) -> list[Run]:
    """The first `tokens` of widened runs."""
    out: list[Run] = []
    for keys, values in runs:
        if tokens > 0:
            out.append((keys[:, :, :tokens], values[:, :tokens]))
        tokens -= values.shape[1]
    return out


def load_exact(
    folder: str | Path, device: torch.device | str = "cpu", backend: str | None = None
) -> ExactModel:
    """The model in `folder` in the exact tier, with the native kernel where it can be built.

    `backend` of the result says whether it was; `VERDRAFT_COMPILE=off` goes without.

    Raises:
        UnsupportedModel: its architecture or weights lie outside the proven bounds.
        ModelError: a file is missing, malformed, or does not fit the config.
        InexactBackend: this machine computes no product exactly.
    """
    folder = Path(folder)
    integers = quantise.load_integers(folder)
    if backend is None and torch.device(device).type == "cpu":
        from node.inference.exact import native

        try:
            return native.NativeModel(integers, native.load(), folder)
        except ModelError:
            pass  # no compiler, or not the same bits: torch alone is as exact
    return ExactModel(integers, device, backend, folder)
