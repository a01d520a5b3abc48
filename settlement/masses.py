"""Probability distributions as integers, and how a 64-bit coin draws from them.

A distribution over n kept ids, ascending, is uint64[n] masses that sum to exactly 2**64 − 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from settlement.records import MASS_TOTAL

UInt64s = NDArray[np.uint64]
_GRID: Final = 2.0**62


class MassError(ValueError):
    """Probabilities or masses that do not form a distribution, or a coin that is not 64 bits."""


def masses_from_probabilities(
    probabilities: NDArray[np.float64], kept: NDArray[np.integer] | None = None
) -> UInt64s:
    """Integer masses of the kept ids, renormalised over them.

    With S the float64 sum over the kept: f_i = ⌊p_i / S · 2**62⌋, m_i = 4 f_i, and the remainder
    2**64 − 1 − Σ m_i (a few units a token, of either sign) goes to the largest f, the lowest id
    among equals.

    Args:
        probabilities: float64[V], finite and non-negative; they need not sum to 1.
        kept: ids in strictly ascending order, int[n]; None keeps all V.

    Returns:
        uint64[n], summing to exactly 2**64 − 1. A mass is 0 where p_i / S is below 2**-62.

    Raises:
        MassError: not a vector, a negative or non-finite value, no mass at all, kept ids out of
            order or range.
    """
    if probabilities.ndim != 1 or probabilities.dtype != np.float64:
        raise MassError(
            f"probabilities are float64[V], not {probabilities.dtype}{probabilities.shape}"
        )
    if kept is None:
        p = probabilities
    else:
        if kept.ndim != 1 or kept.dtype.kind not in "iu":
            raise MassError(f"kept ids are int[n], not {kept.dtype}{kept.shape}")
        if kept.size and (
            int(kept[0]) < 0
            or int(kept[-1]) >= len(probabilities)
            or bool((kept[1:] <= kept[:-1]).any())
        ):
            raise MassError("kept ids ascend strictly within the vocabulary")
        p = probabilities[kept]
    if not 0 < len(p) <= 1 << 24:
        raise MassError(f"a distribution has 1 to 2**24 ids, not {len(p)}")
    low, total = float(p.min()), float(p.sum())
    if not (low >= 0.0 and 0.0 < total < np.inf):  # written so that a NaN fails too
        raise MassError(f"no distribution: minimum {low}, sum {total}")
    share = np.floor(p / total * _GRID).astype(np.int64)
    masses = share.astype(np.uint64) << np.uint64(2)
    largest = int(share.argmax())
    rest = MASS_TOTAL - 4 * int(share.sum())
    masses[largest] = 4 * int(share[largest]) + rest  # by way of int: a lone id's is 2**64 − 1
    return masses


def point_mass(token: int) -> tuple[tuple[int, int], ...]:
    """The kept list of a drafter without a distribution: all of it on the token proposed."""
    return ((token, MASS_TOTAL),)


def kept_list(kept: NDArray[np.integer], masses: UInt64s) -> tuple[tuple[int, int], ...]:
    """((id, mass), …) ascending, without zero masses: the form `records.kept_hash` takes."""
    return tuple((int(token), int(mass)) for token, mass in zip(kept, masses, strict=True) if mass)


def dense(kept: tuple[tuple[int, int], ...], vocab_size: int) -> UInt64s:
    """A kept list spread over the vocabulary: uint64[vocab_size]. MassError for an id outside."""
    out = np.zeros(vocab_size, dtype=np.uint64)
    for token, mass in kept:
        if not 0 <= token < vocab_size:
            raise MassError(f"token {token} is outside a vocabulary of {vocab_size}")
        out[token] = mass
    return out


def interval(kept: tuple[tuple[int, int], ...], token: int) -> tuple[int, int]:
    """(q, qBelow) of a token in a kept list: its mass and the sum of the masses of lower ids.
    (0, sum of lower) for an id that is not in the list."""
    below = sum(mass for other, mass in kept if other < token)
    return next((mass for other, mass in kept if other == token), 0), below


def sample_masses(masses: UInt64s, coin: int) -> int:
    """The index that a coin in [0, 2**64) draws: with T = Σ m and w′ = (coin · T) >> 64, the i
    with m_0 + … + m_{i−1} ≤ w′ < m_0 + … + m_i.

    T may be any positive total below 2**64 (a residual's is less than 2**64 − 1). MassError when T
    is zero or too large.
    """
    _check_coin(coin)
    below = np.cumsum(masses, dtype=np.uint64)
    # A sum past 2**64 wraps and so falls somewhere.
    if bool((below[1:] < below[:-1]).any()):
        raise MassError("masses sum past 2**64 − 1")
    total = int(below[-1]) if len(below) else 0
    if total == 0:
        raise MassError("nothing to draw from: no mass")
    return int(np.searchsorted(below, np.uint64(coin * total >> 64), side="right"))


def residual_masses(p: UInt64s, q: UInt64s) -> UInt64s:
    """max(p − q, 0) element by element over the vocabulary; p itself when that has no mass."""
    if p.shape != q.shape:
        raise MassError(f"p and q cover the same vocabulary, not {p.shape} and {q.shape}")
    rest: UInt64s = np.where(p > q, p - q, np.uint64(0))
    return rest if bool(rest.any()) else p


def accept_rejection(u: int, q: int, p: int) -> bool:
    """Whether a draft of mass q under D and p under V is accepted by coin u: q > 0 and
    u · q < p · 2**64. A draft that q gives no mass is never accepted.

    Source: Leviathan et al. (2023), accept with probability min(1, p/q).
    """
    _check_coin(u)
    for name, mass in (("q", q), ("p", p)):
        if not 0 <= mass <= MASS_TOTAL:
            raise MassError(f"{name} is a uint64 mass, not {mass}")
    return q > 0 and u * q < p << 64


def residual_token(p: UInt64s, q: UInt64s, coin: int) -> int:
    """The token V emits after a rejection: drawn from `residual_masses(p, q)`, both uint64[V]."""
    return sample_masses(residual_masses(p, q), coin)


def _check_coin(coin: int) -> None:
    if not 0 <= coin <= MASS_TOTAL:
        raise MassError(f"a coin has 64 bits, not {coin}")
