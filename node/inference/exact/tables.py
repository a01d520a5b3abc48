"""Integer tables of the exact tier: rotation, attention weights, sigmoid (docs/exact.md, "Tables").

Each entry is the exact real number rounded to the nearest integer, worked out in decimals with far
more digits than any entry has, so no platform's libm has a say. What the forward pass looks up is
interpolated between these entries in integers; the whole interpolated function is tabulated here
once, since its domain is small.
"""

from __future__ import annotations

import functools
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from node.inference.architecture import ModelError, UnsupportedModel
from settlement.hashing import keccak256

Int64s = NDArray[np.int64]

_DIGITS: Final = 60
PI: Final = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
WAVE_STEPS: Final = 1024
EXP_STEPS: Final = 64
SIGMOID_HALF: Final = 512
#: From here on an attention weight is 0: 20 octaves below the largest, in 1/1024 octaves.
EXP_LIMIT: Final = 20 * 1024


def rounding_shift(value: Any, bits: Any) -> Any:
    """(value + 2**(bits − 1)) >> bits for bits ≥ 1: to the nearest, halves upwards."""
    return (value + (1 << (bits - 1))) >> bits


def _nearest(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_EVEN))


def _cosine(x: Decimal) -> Decimal:
    """cos x for |x| ≤ 7 by its power series, within the context's precision."""
    term = total = Decimal(1)
    k = 0
    while abs(term) > Decimal(10) ** -50:
        k += 2
        term = -term * x * x / (k * (k - 1))
        total += term
    return total


@functools.cache
def wave_nodes() -> Int64s:
    """COS: 2**30 · cos(2πk/1024), k = 0 … 1024."""
    with localcontext() as context:
        context.prec = _DIGITS
        quarter = [
            _nearest((1 << 30) * _cosine(2 * PI * k / WAVE_STEPS))
            for k in range(WAVE_STEPS // 4 + 1)
        ]
    # The quarter wave is exact; the rest follows by symmetry, which rounding respects.
    half = quarter + [-v for v in quarter[-2::-1]]
    return np.array(half + half[-2::-1], dtype=np.int64)


@functools.cache
def exp_nodes() -> Int64s:
    """EXP: 2**30 · 2**(−k/64), k = 0 … 64."""
    with localcontext() as context:
        context.prec = _DIGITS
        ln2 = Decimal(2).ln()
        values = [_nearest((1 << 30) * (-ln2 * k / EXP_STEPS).exp()) for k in range(65)]
    return np.array(values, dtype=np.int64)


@functools.cache
def sigmoid_nodes() -> Int64s:
    """SIG: 2**30 / (1 + exp(−(k − 512)/32)), k = 0 … 1024."""
    with localcontext() as context:
        context.prec = _DIGITS
        one = Decimal(1 << 30)
        values = [
            _nearest(one / (1 + (-Decimal(k - SIGMOID_HALF) / 32).exp())) for k in range(1025)
        ]
    return np.array(values, dtype=np.int64)


@functools.cache
def tables_hash() -> bytes:
    """keccak256 of COS, EXP, SIG as big-endian int32: part of a model's header."""
    nodes = np.concatenate([wave_nodes(), exp_nodes(), sigmoid_nodes()])
    return keccak256(nodes.astype(">i4").tobytes())


@functools.cache
def exp_table() -> Int64s:
    """p(δ) in Q19 for δ = 0 … EXP_LIMIT in 1/1024 octaves; the last entry is 0."""
    delta = np.arange(EXP_LIMIT, dtype=np.int64)
    nodes, octave, k, r = exp_nodes(), delta >> 10, (delta >> 4) & 63, delta & 15
    value = nodes[k] + ((nodes[k + 1] - nodes[k]) * r >> 4)
    return np.append(rounding_shift(value, 11 + octave), 0)


@functools.cache
def sigmoid_table() -> Int64s:
    """σ in Q14 for z + 32768 = 0 … 65535, z in units of 2**−11."""
    z = np.arange(-(1 << 15), 1 << 15, dtype=np.int64)
    nodes, k, r = sigmoid_nodes(), (z >> 6) + SIGMOID_HALF, z & 63
    return rounding_shift(nodes[k] + ((nodes[k + 1] - nodes[k]) * r >> 6), 16)


def wave(u: NDArray[np.uint64]) -> Int64s:
    """cos(2π u / 2**64) in Q15."""
    nodes = wave_nodes()
    k = (u >> np.uint64(54)).astype(np.int64)
    r = (u >> np.uint64(38)).astype(np.int64) & 0xFFFF
    return rounding_shift(nodes[k] + ((nodes[k + 1] - nodes[k]) * r >> 16), 15)


def rotation_tables(phases: tuple[int, ...], positions: int) -> tuple[Int64s, Int64s]:
    """cos and sin in Q15 of every position and pair: int64[positions, pairs] each."""
    steps = np.array(phases, dtype=np.uint64)
    u = np.arange(positions, dtype=np.uint64)[:, None] * steps  # wraps mod 2**64, as it should
    return wave(u), wave(u - np.uint64(1 << 62))


def rotary_phases(config: dict[str, Any], head_dim: int) -> tuple[int, ...]:
    """φ of each rotary pair: turns per position times 2**64, rounded down.

    Args:
        config: the model's config.json.

    Raises:
        UnsupportedModel: a rope type other than default, linear, llama3.
        ModelError: a rope parameter is missing or not a number.
    """
    # transformers 5 writes rope_parameters, earlier versions rope_theta and rope_scaling.
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = rope.get("rope_type", rope.get("type", "default")) or "default"
    if kind not in ("default", "linear", "llama3"):
        raise UnsupportedModel(f"rope type {kind!r}: the exact tier covers default, linear, llama3")

    def number(name: str, default: Any = None) -> Decimal:
        value = rope.get(name, config.get(name, default))
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise ModelError(f"rope parameter {name} = {value!r} is not a positive number")
        return Decimal(value)

    with localcontext() as context:
        context.prec = _DIGITS
        theta = number("rope_theta", 10_000.0).ln()
        freq = [(-theta * (2 * i) / head_dim).exp() for i in range(head_dim // 2)]
        if kind == "linear":
            freq = [f / number("factor") for f in freq]
        if kind == "llama3":
            freq = [_llama3(f, number) for f in freq]
        return tuple(int((1 << 64) * f / (2 * PI)) % (1 << 64) for f in freq)


def _llama3(freq: Decimal, number: Any) -> Decimal:
    """Llama 3.1's blend by wavelength."""
    factor, low, high, old = (
        number(name)
        for name in (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
    )
    wavelength = 2 * PI / freq
    if wavelength > old / low:
        return freq / factor
    if wavelength < old / high:
        return freq
    blend = (old / wavelength - low) / (high - low)
    return (1 - blend) * freq / factor + blend * freq
