"""From a checkpoint to integers (docs/exact.md, "From a checkpoint to integers").

Every floating-point step is one correctly rounded IEEE-754 operation in a fixed order, and sums are
taken over integers, so any two machines make the same model from the same file. Output units come
from what a row can reach at most (Cauchy–Schwarz on the integer weights), not from sample data: so
nothing saturates and there is nothing to calibrate or to trust.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from node.inference.architecture import (
    Architecture,
    ModelError,
    UnsupportedModel,
    read_architecture,
    read_eos_ids,
    read_json,
)
from node.inference.exact.tables import rotary_phases

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int8s = NDArray[np.int8]

RESIDUAL_BITS: Final = 16
LOGIT_BITS: Final = 24
SIGMOID_BITS: Final = 14
#: Largest magnitude that a norm's gains and the static output units are scaled to.
FULL: Final = 32600
#: Largest 16-bit activation: 256·127 + 127, so that its upper half fits int8.
MAX_ACTIVATION: Final = 32639
MAX_HIDDEN: Final = 1 << 14
MAX_INTERMEDIATE: Final = 1 << 16
MAX_HEAD_DIM: Final = 256
MAX_CONTEXT: Final = 1 << 18
LOG2_E: Final = 1.4426950408889634
_BLOCK: Final = 4096  # rows quantised at once: bounds memory

EMBEDDING, HEAD, FINAL_NORM = 0, 1, 2
QUERY, KEY, VALUE, OUT, GATE, UP, DOWN = range(7)
ATTENTION_NORM, MLP_NORM, CONSTANTS = 8, 9, 12


def tensor_id(layer: int, kind: int) -> int:
    """The number of a layer's tensor in the weight commitment."""
    return 16 * (layer + 1) + kind


@dataclass(frozen=True)
class Matrix:
    """A quantised matrix: output j is rshift(Σ a_i w_ji · m_j, s) + b_j.

    Attributes:
        tensor: its id in the weight commitment.
        weights: int8[out, in] in [−127, 127].
        multipliers: int64[out] in [0, 2**22].
        shift: s in [1, 62].
        bias: int64[out] in output units.
    """

    tensor: int
    weights: Int8s
    multipliers: Int64s
    shift: int
    bias: Int64s


@dataclass(frozen=True)
class Layer:
    """One decoder layer. Gains int64[d]; `score_shifts` σ of each head; F_g and F_u the fraction
    bits of gate and up."""

    attention_gains: Int64s
    query: Matrix
    key: Matrix
    value: Matrix
    out: Matrix
    score_shifts: tuple[int, ...]
    mlp_gains: Int64s
    gate: Matrix
    up: Matrix
    down: Matrix
    gate_bits: int
    up_bits: int


@dataclass(frozen=True)
class IntegerModel:
    """All integers of a model: what the forward pass and the weights root are made from.

    Attributes:
        epsilon: E, added to the sum of squares.
        norm_shift: t.
        phases: φ of each rotary pair.
        head_ids: ids of a reduced head's rows, ascending, or None.
        tied: the head's int8 rows are the embedding's.
    """

    arch: Architecture
    epsilon: int
    norm_shift: int
    phases: tuple[int, ...]
    embedding: Matrix
    layers: tuple[Layer, ...]
    final_gains: Int64s
    head: Matrix
    head_ids: NDArray[np.int64] | None
    eos_ids: frozenset[int]
    tied: bool


@dataclass(frozen=True)
class _Rows:
    """int8 rows with their float64 scales, before output units are known."""

    weights: Int8s
    scales: Floats

    @property
    def reach(self) -> int:
        """max_j Σ_i |w_ji|."""
        blocks = range(0, len(self.weights), _BLOCK)
        return max(
            int(np.abs(self.weights[at : at + _BLOCK].astype(np.int16)).sum(1, np.int64).max())
            for at in blocks
        )


@dataclass(frozen=True)
class _Norm:
    gains: Int64s
    unit: float


def quantise_rows(values: Callable[[int, int], Floats], count: int, width: int) -> _Rows:
    """int8 rows and scales. `values(a, b)` gives rows a … b − 1 as float64."""
    weights = np.empty((count, width), dtype=np.int8)
    scales = np.empty(count)
    for at in range(0, count, _BLOCK):
        block = values(at, min(at + _BLOCK, count))
        top = np.abs(block).max(axis=1)
        if not np.isfinite(top).all():
            raise ModelError("a weight is not finite: this checkpoint is damaged")
        safe = np.where(top == 0, 1.0, top)
        weights[at : at + _BLOCK] = np.rint((127.0 * block) / safe[:, None])
        scales[at : at + _BLOCK] = top / 127.0
    return _Rows(weights, scales)


def multipliers(scales: list[Floats], rhos: list[float], reach: int) -> tuple[list[Int64s], int]:
    """m of each matrix of a group, and their common s.

    Raises:
        UnsupportedModel: the weights are so large that s would be below 1.
    """
    ratios = [scale * rho for scale, rho in zip(scales, rhos, strict=True)]
    largest = max(float(ratio.max()) for ratio in ratios)
    if not math.isfinite(largest):
        raise UnsupportedModel("the weights are too large for the exact tier: a scale overflows")
    if largest == 0:
        return [np.zeros(len(ratio), dtype=np.int64) for ratio in ratios], 1
    bits = min(22, 36 - reach.bit_length())
    shift = min(bits - math.frexp(largest)[1], 62)
    if shift < 1:
        raise UnsupportedModel(f"a weight scale of {largest:.3g} output units: the exact tier ends")
    return [np.rint(ratio * 2.0**shift).astype(np.int64) for ratio in ratios], shift


class _Maker:
    """Builds an `IntegerModel` from named tensors.

    Args:
        take: float32 or narrower values of a tensor, given its name and shape, as float64.
        has: whether a tensor is there.
    """

    def __init__(
        self,
        arch: Architecture,
        take: Callable[..., NDArray[np.float32]],
        has: Callable[[str], bool],
    ) -> None:
        self.arch, self._take, self._has = arch, take, has
        d = arch.hidden_size
        self.norm_shift = ((d - 1).bit_length() + 1) // 2
        exact = (arch.norm_eps * d) * 4.0 ** (16 - self.norm_shift)
        self.epsilon = max(1024, int(np.rint(exact)))
        self.kappa = 1 + math.sqrt(d / self.epsilon)

    def rows(self, name: str, count: int, width: int, pick: Int64s | None = None) -> _Rows:
        values = self._take(name, count, width)
        if pick is not None:
            values = values[pick]
        return quantise_rows(lambda a, b: values[a:b].astype(np.float64), len(values), width)

    def norm(self, name: str) -> _Norm:
        gains = self._take(name, self.arch.hidden_size).astype(np.float64)
        top = float(np.abs(gains).max())
        if not math.isfinite(top):
            raise ModelError(f"{name}: a gain is not finite")
        if top == 0:
            return _Norm(np.zeros(len(gains), dtype=np.int64), 0.0)
        scaled = np.rint((FULL * gains) / top).astype(np.int64)
        return _Norm(scaled, (math.sqrt(self.arch.hidden_size) * top) / FULL)

    def bias(self, name: str, count: int) -> Floats:
        if not self._has(name):
            return np.zeros(count)
        return self._take(name, count).astype(np.float64)

    def reach(self, rows: _Rows, norm: _Norm, bias: Floats) -> Floats:
        """What each output can reach in real terms, float64[out]."""
        wide = rows.weights.astype(np.int64)
        squares = (wide * wide) @ (norm.gains * norm.gains)
        sums = np.abs(wide).sum(axis=1)
        accumulated = (self.kappa * np.sqrt(squares.astype(np.float64)) + 0.5 * sums) + 1.0
        return accumulated * rows.scales * norm.unit + np.abs(bias)

    def layer(self, number: int) -> Layer:
        a, prefix = self.arch, f"model.layers.{number}."
        d, f, c = a.hidden_size, a.intermediate_size, a.head_dim
        names = {
            kind: f"{prefix}self_attn.{letter}_proj"
            for kind, letter in ((QUERY, "q"), (KEY, "k"), (VALUE, "v"), (OUT, "o"))
        }
        sizes = {QUERY: a.heads * c, KEY: a.kv_heads * c, VALUE: a.kv_heads * c}
        norm = self.norm(prefix + "input_layernorm.weight")
        rows = {k: self.rows(names[k] + ".weight", n, d) for k, n in sizes.items()}
        bias = {k: self.bias(names[k] + ".bias", n) for k, n in sizes.items()}
        reach = {k: self.reach(rows[k], norm, bias[k]) for k in sizes}
        value_unit = float(reach[VALUE].max()) / FULL or 1.0
        key_units = [p / FULL or 1.0 for p in _pair_reach(reach[KEY], c)]
        query_units, shifts = [], []
        for head, p in enumerate(_pair_reach(reach[QUERY], c)):
            step = key_units[head // (a.heads // a.kv_heads)] * (LOG2_E * 1024 / math.sqrt(c))
            exponent = math.frexp((p / FULL) * step)[1] if p else 0
            shifts.append(-exponent)
            query_units.append(2.0**exponent / step)
        units = {
            QUERY: np.repeat(query_units, c),
            KEY: np.repeat(key_units, c),
            VALUE: np.full(a.kv_heads * c, value_unit),
        }
        q, k, v = self._group(
            number, rows, {i: norm.unit / u for i, u in units.items()}, bias, units
        )
        out_rows = self.rows(names[OUT] + ".weight", d, a.heads * c)
        (out,) = self._group(
            number,
            {OUT: out_rows},
            {OUT: np.full(d, value_unit * 2.0**RESIDUAL_BITS)},
            {OUT: self.bias(names[OUT] + ".bias", d)},
            {OUT: np.full(d, 2.0**-RESIDUAL_BITS)},
        )
        mlp_norm = self.norm(prefix + "post_attention_layernorm.weight")
        mlp = {k: f"{prefix}mlp.{n}_proj" for k, n in ((GATE, "gate"), (UP, "up"), (DOWN, "down"))}
        rows = {k: self.rows(mlp[k] + ".weight", f, d) for k in (GATE, UP)}
        bias = {k: self.bias(mlp[k] + ".bias", f) for k in (GATE, UP)}
        bits = {
            k: _fraction_bits(float(self.reach(rows[k], mlp_norm, bias[k]).max()))
            for k in (GATE, UP)
        }
        units = {k: np.full(f, 2.0 ** -bits[k]) for k in (GATE, UP)}
        rhos = {k: mlp_norm.unit / units[k] for k in (GATE, UP)}
        gate, up = self._group(number, rows, rhos, bias, units)
        inner = 2.0 ** (RESIDUAL_BITS - (SIGMOID_BITS + bits[GATE] + bits[UP]))
        (down,) = self._group(
            number,
            {DOWN: self.rows(mlp[DOWN] + ".weight", d, f)},
            {DOWN: np.full(d, inner)},
            {DOWN: self.bias(mlp[DOWN] + ".bias", d)},
            {DOWN: np.full(d, 2.0**-RESIDUAL_BITS)},
        )
        return Layer(
            attention_gains=norm.gains,
            query=q,
            key=k,
            value=v,
            out=out,
            score_shifts=tuple(shifts),
            mlp_gains=mlp_norm.gains,
            gate=gate,
            up=up,
            down=down,
            gate_bits=bits[GATE],
            up_bits=bits[UP],
        )

    def _group(
        self,
        number: int,
        rows: dict[int, _Rows],
        rhos: dict[int, Floats],
        bias: dict[int, Floats],
        units: dict[int, Floats],
    ) -> list[Matrix]:
        """Matrices that share A, r and s."""
        kinds = list(rows)
        ratios = [rows[k].scales * rhos[k] for k in kinds]
        values, shift = multipliers(ratios, [1.0] * len(kinds), max(r.reach for r in rows.values()))
        return [
            Matrix(
                tensor_id(number, kind),
                rows[kind].weights,
                m,
                shift,
                _bias_units(bias[kind], units[kind]),
            )
            for kind, m in zip(kinds, values, strict=True)
        ]


def _bias_units(bias: Floats, units: Floats) -> Int64s:
    scaled = np.rint(bias / units)
    if not (np.abs(scaled) < 2.0**50).all():
        raise UnsupportedModel("a bias is too large for the exact tier")
    return scaled.astype(np.int64)


def _pair_reach(reach: Floats, head_dim: int) -> list[float]:
    """Per head, the largest √(reach_i² + reach_(i + c/2)²) of its rotary pairs."""
    halves = reach.reshape(-1, 2, head_dim // 2)
    first, second = halves[:, 0], halves[:, 1]
    return [float(p) for p in np.sqrt(first * first + second * second).max(axis=1)]


def _fraction_bits(reach: float) -> int:
    return 19 - math.frexp(reach)[1] if reach else 0


def single(tensor: int, rows: _Rows, rho: float) -> Matrix:
    """A matrix without bias that is its own group."""
    (m,), shift = multipliers([rows.scales], [rho], rows.reach)
    return Matrix(tensor, rows.weights, m, shift, np.zeros(len(m), dtype=np.int64))


def make_model(
    arch: Architecture,
    config: dict[str, Any],
    take: Callable[..., NDArray[np.float32]],
    has: Callable[[str], bool],
    *,
    head_ids: Int64s | None = None,
    head_rows: int | None = None,
    eos_ids: frozenset[int] = frozenset(),
) -> IntegerModel:
    """The integers of a checkpoint.

    Args:
        arch: its sizes.
        config: its config.json, for the rotary parameters.
        take: `take(name, *shape)` gives a tensor's values, exactly, as float32 or float64.
        has: whether the checkpoint has a tensor of that name.
        head_ids: ids of a reduced head.
        head_rows: rows of `lm_head.weight` where the model is not tied.

    Raises:
        UnsupportedModel: a size or scale beyond the proven bounds, or an operation not covered.
        ModelError: a tensor is missing, misshapen or not finite.
    """
    check_bounds(arch)
    maker = _Maker(arch, take, has)
    embedding = maker.rows("model.embed_tokens.weight", arch.vocab_size, arch.hidden_size)
    final = maker.norm("model.norm.weight")
    tied = arch.tied or not has("lm_head.weight")
    if tied:
        rows = embedding
        if head_ids is not None:
            rows = _Rows(embedding.weights[head_ids], embedding.scales[head_ids])
    else:
        count = arch.vocab_size if head_rows is None else head_rows
        whole = head_ids is not None and count == arch.vocab_size
        rows = maker.rows("lm_head.weight", count, arch.hidden_size, head_ids if whole else None)
    return IntegerModel(
        arch=arch,
        epsilon=maker.epsilon,
        norm_shift=maker.norm_shift,
        phases=rotary_phases(config, arch.head_dim),
        embedding=single(EMBEDDING, embedding, 2.0**RESIDUAL_BITS),
        layers=tuple(maker.layer(number) for number in range(arch.layers)),
        final_gains=final.gains,
        head=single(HEAD, rows, final.unit * 2.0**LOGIT_BITS),
        head_ids=head_ids,
        eos_ids=eos_ids,
        tied=tied,
    )


def check_bounds(arch: Architecture) -> None:
    """UnsupportedModel unless the architecture lies within what docs/exact.md proves."""
    limits = {
        "hidden_size": (arch.hidden_size, MAX_HIDDEN),
        "intermediate_size": (arch.intermediate_size, MAX_INTERMEDIATE),
        "head_dim": (arch.head_dim, MAX_HEAD_DIM),
        "heads × head_dim": (arch.heads * arch.head_dim, MAX_INTERMEDIATE),
        "context length": (arch.context_length, MAX_CONTEXT),
    }
    for name, (value, most) in limits.items():
        if value > most:
            raise UnsupportedModel(f"{name} {value}: the exact tier is proven up to {most}")
    if arch.query_key_norm:
        raise UnsupportedModel(f"{arch.model_type}: the exact tier has no query and key norm yet")


def load_integers(folder: Path) -> IntegerModel:
    """The integers of a Hugging Face folder; errors as `make_model`."""
    import torch

    from node.inference.loading import Weights, read_head_ids

    arch = read_architecture(folder)
    weights = Weights(folder, torch.float32, torch.device("cpu"))
    head_ids = read_head_ids(folder, arch.vocab_size)
    name = "lm_head.weight"
    model = make_model(
        arch,
        read_json(folder / "config.json"),
        lambda tensor, *shape: weights.take(tensor, *shape).numpy(),
        weights.__contains__,
        head_ids=head_ids,
        head_rows=weights.shape(name)[0] if name in weights else None,
        eos_ids=read_eos_ids(folder),
    )
    columns = arch.vocab_size if head_ids is None else len(head_ids)
    if len(model.head.weights) != columns:
        raise ModelError(f"{folder}: head of {len(model.head.weights)} rows for {columns} ids")
    return replace(model)
