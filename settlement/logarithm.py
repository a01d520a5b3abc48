"""One integer natural logarithm, shared by the Gumbel noise and the α test's thresholds.

Every step is on non-negative integers below 2**63, so NumPy int64, torch int64 and Solidity give
the same bits. All truncations go down: the result never exceeds the true logarithm.

The steps, for an integer x in [1, 2**64):

1. L = bit length of x; m = the top 32 bits of x, so m in [2**31, 2**32): x >> (L − 32), or
   x << (32 − L) when L < 32.
2. s = ((m − 2**31) << 31) // (m + 2**31)                       Q31, below 2**31 / 3
3. t = (s · s) >> 31                                            Q31, below 2**31 / 9
4. acc = C[9]; for k = 8 … 0: acc = C[k] + ((acc · t) >> 31)     C[k] = ⌊2**32 / (2k + 1)⌋
5. ln(m / 2**31) ≈ (acc · s) >> 31                              Q31
6. ln(x) ≈ that + (((L − 1) · LN2_Q40) >> 9)                    Q31, LN2_Q40 = ⌊2**40 ln 2⌋

Source: ln(y) = 2 artanh((y − 1)/(y + 1)) = 2 Σ s**(2k+1)/(2k+1).

Bounds. Sizes: step 2's numerator is below 2**62, step 4's acc below 2**32 · 1.05 and acc · t below
2**60.1, step 5's product below 2**62. Error: dropping terms from k = 10 costs below 2**-36; the
floor in s costs at most 2/(1 − s²) ≤ 2.25 units of 2**-31, the floors in t and acc together below
0.7 · s · 2 units, the last one 1 unit, the floor of LN2 below 64/512 + 1 units, and cutting x to 32
bits at most 2 units: under 8 units of 2**-31 = 2**-28 in all.

Monotone by construction: each floor is of a non-decreasing function of non-negative values (s of m,
t of s, acc of t), and across a power of two because step 5 never exceeds ln 2 truncated to Q31,
which is at most what step 6 adds per bit.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
# The same expressions serve one Python int and a vector of int64.
Integer = TypeVar("Integer", int, NDArray[np.int64])

LN2_Q40: Final = 762_123_384_785
ARTANH_Q31: Final[tuple[int, ...]] = tuple((1 << 32) // (2 * k + 1) for k in range(10))
# ln_q31(x) is at most this much (in units of 2**-31) below 2**31 · ln(x).
LN_ERROR_Q31: Final = 8


def ln_mantissa_q31(m: Integer) -> Integer:
    """Steps 2–5: a lower bound in Q31 on ln(m / 2**31), for m (int or int64 array of any shape) in
    [2**31, 2**32). The caller checks the range."""
    s = ((m - (1 << 31)) << 31) // (m + (1 << 31))
    t = (s * s) >> 31
    acc: Any = ARTANH_Q31[-1]
    for coefficient in ARTANH_Q31[-2::-1]:
        acc = ((acc * t) >> 31) + coefficient
    result: Integer = (acc * s) >> 31
    return result


def ln_q31(x: int) -> int:
    """⌊2**31 ln x⌋ or up to LN_ERROR_Q31 less, for an integer 1 ≤ x < 2**64; ValueError else."""
    if not 1 <= x < 1 << 64:
        raise ValueError(f"ln_q31 takes an integer in [1, 2**64), got {x}")
    length = x.bit_length()
    m = x >> (length - 32) if length >= 32 else x << (32 - length)
    return ln_mantissa_q31(m) + (((length - 1) * LN2_Q40) >> 9)


def ln_up_q20(x: int) -> int:
    """An upper bound on 2**20 ln x, less than 1.01 units above it: (ln_q31(x) + 8 + 2047) >> 11.
    For an integer 1 ≤ x < 2**64; ValueError else."""
    return (ln_q31(x) + LN_ERROR_Q31 + 2047) >> 11


def bit_lengths(x: Int64s) -> Int64s:
    """Bit length of each non-negative int64 (0 for 0): int64 of the same shape."""
    high = x >> 32
    # Both halves are below 2**32 and so exact in float64, whose exponent is the bit length.
    part = np.where(high > 0, high, x & 0xFFFFFFFF).astype(np.float64)
    exponent: Int64s = np.frexp(part)[1].astype(np.int64)
    return exponent + np.where(high > 0, 32, 0)


def ln_vector_q31(x: Int64s) -> Int64s:
    """`ln_q31` of each element of an int64 array of any shape; elements in [1, 2**63), which the
    caller guarantees. int64 of the same shape."""
    length = bit_lengths(x)
    shift = length - 32
    m = (x >> np.maximum(shift, 0)) << np.maximum(-shift, 0)
    return ln_mantissa_q31(m) + (((length - 1) * LN2_Q40) >> 9)
