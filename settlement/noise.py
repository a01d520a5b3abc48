"""Noise version 1: the Gumbel variables that couple drafter and target, as integers.

A position's noise is a function of the seed, the position and the token id alone, the same bits in
Python, torch (`node.inference.noise_torch`) and Solidity. The steps, for token t:

1. h = keccak256(TAG_NOISE ‖ S ‖ uint64 position); be32(h, i) = bytes 4i … 4i+3, big-endian.
2. Philox4x32-10 with key (be32(h, 0), be32(h, 1)) and counter, word 0 first,
   (t >> 1, be32(h, 2), be32(h, 3), be32(h, 4)) gives x0 … x3.
3. r = (x0 << 32) | x1 for even t, (x2 << 32) | x3 for odd t: uniform in [0, 2**64).
4. G(r) = −ln(−ln u), u = (r + ½) / 2**64, as an int64 in Q24 (`gumbel_q24`):
   a = min(r, 2**64 − 1 − r), below 2**63;  x = 2a + 1, odd, below 2**64;  L = bit length of x
   E = (((66 − L) · LN2_Q40) >> 9) − ln_mantissa_q31(top 32 bits of x)      −ln(x / 2**65), Q31
   if r < 2**63:   u = x / 2**65, E = −ln u:          g = ((31 · LN2_Q40) >> 9) − ln_q31(E)
   else:           v = 1 − u = x / 2**65:             g = E − h,  G = −ln v − ln(−ln(1 − v)/v)
       w = a >> 32 (2v in Q31);  acc = H[11];  for k = 10 … 0: acc = ((acc · w) >> 31) + H[k];
       h = (acc · w) >> 31
   G = (g + 64) >> 7, arithmetic shift.

Source of the generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

Bounds. E lies in [ln 2, 45.06) · 2**31, below 2**37; acc · w below 2**61. G lies in
[−3.81, 45.06) · 2**24. E is within 2**-28 of −ln(x/2**65) (see `logarithm`), so g is within 2**-27
of the true Gumbel value in the upper half, and within 2**-28/ln 2 + 2**-28 in the lower; the h
polynomial adds 2**-32; the last rounding 2**-25. In all below 2**-24.

Monotone in r by construction: E falls as a grows, ln_q31 never falls, h never falls because all H
are non-negative; so g rises with r within each half. At the middle g(2**63 − 1) ≤ g(2**63), a test
of two values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from settlement.hashing import TAG_NOISE, keccak256, uint
from settlement.logarithm import LN2_Q40, Int64s, bit_lengths, ln_mantissa_q31, ln_vector_q31

UInt64s = NDArray[np.uint64]

# h(v) = ln(−ln(1 − v)/v) on [0, ½] as Σ H[k] w**(k+1), w = 2v: the best uniform fit of degree 12
# with non-negative coefficients (a linear program), error below 2**-32. Q31.
H_Q31: Final[tuple[int, ...]] = (
    536870943,
    111847233,
    33562147,
    11671180,
    4437771,
    1927140,
    285172,
    771485,
    0,
    0,
    0,
    68661,
)
GUMBEL_MIN_Q24: Final = -63_885_530
GUMBEL_MAX_Q24: Final = 755_890_198
MAX_VOCAB: Final = 1 << 24
# Scores stay inside ±2**61 so that score + noise, and differences of scores, never wrap.
SCORE_LIMIT: Final = 1 << 61

_M0: Final = np.uint64(0xD2511F53)
_M1: Final = np.uint64(0xCD9E8D57)
_MASK: Final = np.uint64(0xFFFFFFFF)
_S32: Final = np.uint64(32)
_W0: Final = 0x9E3779B9
_W1: Final = 0xBB67AE85
# Blocks a pass: 64 KiB of uint64 stays in the cache and below malloc's mmap threshold.
_PASS: Final = 8192
# Slack of the float32 bound, in nats: hundreds of times its rounding error near the maximum.
_SLACK: Final = np.float32(0.01)


class NoiseError(ValueError):
    """A seed, position, token id or score that the noise is not defined for."""


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, ...]:
    """Philox4x32-10. Counter words are uint64 scalars or arrays holding 32-bit values (broadcast
    against each other), the key two 32-bit ints; returns four uint64 of 32-bit values."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1 = (p1 >> _S32) ^ (c1 ^ np.uint64(k0)), p1 & _MASK
        c2, c3 = (p0 >> _S32) ^ (c3 ^ np.uint64(k1)), p0 & _MASK
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


@dataclass(frozen=True)
class PositionKey:
    """Philox key and the three counter words that every token of a position shares."""

    key: tuple[int, int]
    counter: tuple[int, int, int]

    @classmethod
    def of(cls, seed: bytes, position: int) -> PositionKey:
        """Steps 1 and 2's key. NoiseError for a seed that is not 32 bytes, or no uint64."""
        if len(seed) != 32:
            raise NoiseError(f"a seed has 32 bytes, not {len(seed)}")
        if not 0 <= position < 1 << 64:
            raise NoiseError(f"a position is a uint64, not {position}")
        digest = keccak256(TAG_NOISE, seed, uint(position, 8))
        words = [int.from_bytes(digest[4 * i : 4 * i + 4], "big") for i in range(5)]
        return cls((words[0], words[1]), (words[2], words[3], words[4]))

    def blocks(self, indices: UInt64s) -> tuple[UInt64s, UInt64s, UInt64s, UInt64s]:
        """x0 … x3 of the blocks `indices` (uint64[n], token id >> 1): four uint64[n]."""
        c1, c2, c3 = (np.uint64(word) for word in self.counter)
        x0, x1, x2, x3 = philox4x32((indices, c1, c2, c3), self.key)
        return x0, x1, x2, x3


def uniform_bits(seed: bytes, position: int, token_ids: ArrayLike) -> UInt64s:
    """r of each token id: uint64[n]. Steps 1–3 of the module's text."""
    ids = _token_ids(token_ids)
    x0, x1, x2, x3 = PositionKey.of(seed, position).blocks((ids >> 1).astype(np.uint64))
    odd = (ids & 1).astype(bool)
    r: UInt64s = np.where(odd, (x2 << _S32) | x3, (x0 << _S32) | x1)
    return r


def gumbel_q24(r: UInt64s) -> Int64s:
    """G(r) of each element of a uint64 array: int64 of the same shape, Q24. Step 4."""
    upper = r >> np.uint64(63) != 0
    a: Int64s = np.where(upper, ~r, r).astype(np.int64)
    length = bit_lengths(a) + 1
    shift = length - 33  # of a, which is x without its last bit
    m = np.where(shift >= 0, a >> np.maximum(shift, 0), (2 * a + 1) << np.clip(32 - length, 0, 31))
    e = (((66 - length) * LN2_Q40) >> 9) - ln_mantissa_q31(m)

    w = a >> 32
    acc: Any = H_Q31[-1]
    for coefficient in H_Q31[-2::-1]:
        acc = ((acc * w) >> 31) + coefficient
    high = e - ((acc * w) >> 31)

    low = ((31 * LN2_Q40) >> 9) - ln_vector_q31(e)
    result: Int64s = (np.where(upper, high, low) + 64) >> 7
    return result


def noise_for(seed: bytes, position: int, token_ids: ArrayLike) -> Int64s:
    """G of the given token ids (any integers below 2**32, any order): int64[n], Q24.

    Raises NoiseError for a seed that is not 32 bytes, a position outside uint64, an id outside
    uint32."""
    return gumbel_q24(uniform_bits(seed, position, token_ids))


def noise_row(seed: bytes, position: int, vocab_size: int) -> Int64s:
    """G of token ids 0 … vocab_size − 1: int64[vocab_size], Q24. Raises NoiseError as
    `noise_for`, and for a vocabulary outside [1, 2**24]."""
    if not 0 < vocab_size <= MAX_VOCAB:
        raise NoiseError(f"a vocabulary has 1 to 2**24 tokens, not {vocab_size}")
    return gumbel_q24(uniform_bits(seed, position, np.arange(vocab_size)))


def coupled_argmax(
    scores: Int64s, seed: bytes, position: int, kept: NDArray[np.bool_] | None = None
) -> tuple[int, int]:
    """argmax over kept tokens of score + G, ties to the lowest id.

    Args:
        scores: int64[V] in Q24, each within ±2**61.
        kept: bool[V], or None when every token is kept.

    Returns:
        (token id, its score + G in Q24), exactly what `scores + noise_row(...)` would give. A
        float32 upper bound G ≤ −ln v (because −ln(1 − v) ≥ v) only chooses for which few tokens
        the integers are worked out.

    Raises:
        NoiseError: wrong shapes, no kept token, a score out of range.
    """
    if scores.ndim != 1 or scores.dtype != np.int64 or not 0 < len(scores) <= MAX_VOCAB:
        raise NoiseError(f"scores are int64[V], not {scores.dtype}{scores.shape}")
    if kept is not None:
        if kept.shape != scores.shape or kept.dtype != np.bool_:
            raise NoiseError(f"kept is bool{scores.shape}, not {kept.dtype}{kept.shape}")
        ids = np.flatnonzero(kept)
        if not len(ids):
            raise NoiseError("no token is kept: nothing to choose from")
        if len(ids) <= len(scores) // 8:
            return _best(scores, seed, position, ids)
    top, bottom = int(scores.max()), int(scores.min())
    if top > SCORE_LIMIT or bottom < -SCORE_LIMIT:
        raise NoiseError(f"scores lie within ±2**61, got {bottom} to {top}")

    bound = _upper_bounds(PositionKey.of(seed, position), len(scores))
    if kept is not None:
        # Relative to the best kept score: float32 is fine near its zero only.
        top = int(scores[ids].max())
    bound += (scores - top).astype(np.float32) * np.float32(2.0**-24)
    if kept is not None:
        bound[~kept] = -np.inf
    # The exact value of the most promising token: whatever cannot reach it is out.
    _, reached = _best(scores, seed, position, np.array([int(bound.argmax())]))
    needed = np.float32((reached - top) * 2.0**-24) - _SLACK
    return _best(scores, seed, position, np.flatnonzero(bound >= needed))


def _best(scores: Int64s, seed: bytes, position: int, ids: NDArray[np.intp]) -> tuple[int, int]:
    """Exact argmax over `ids`, which ascend, so that the first maximum is the lowest id."""
    chosen = scores[ids]
    if int(chosen.max()) > SCORE_LIMIT or int(chosen.min()) < -SCORE_LIMIT:
        raise NoiseError(f"scores lie within ±2**61, got {chosen.min()} to {chosen.max()}")
    perturbed = chosen + noise_for(seed, position, ids)
    at = int(perturbed.argmax())
    return int(ids[at]), int(perturbed[at])


def _upper_bounds(at: PositionKey, vocab_size: int) -> NDArray[np.float32]:
    """−ln v of each token id, float32[vocab_size], with v cut down to its top 32 bits so that the
    bound stays above (infinite where those are zero)."""
    blocks = (vocab_size + 1) // 2
    words = np.empty((blocks, 2), dtype=np.float32)
    for start in range(0, blocks, _PASS):
        stop = min(start + _PASS, blocks)
        x0, _, x2, _ = at.blocks(np.arange(start, stop, dtype=np.uint64))
        words[start:stop, 0] = x0 ^ _MASK
        words[start:stop, 1] = x2 ^ _MASK
    words *= np.float32(2.0**-32)
    with np.errstate(divide="ignore"):
        bound = -np.log(words)
    return bound.reshape(-1)[:vocab_size]


def _token_ids(token_ids: ArrayLike) -> Int64s:
    ids = np.asarray(token_ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise NoiseError(f"token ids are a flat list of integers, not {ids.dtype}{ids.shape}")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= 1 << 32):
        raise NoiseError(f"token ids are uint32, got {ids.min()} to {ids.max()}")
    return ids.astype(np.int64)
