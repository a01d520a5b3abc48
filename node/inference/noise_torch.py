"""The coupled mode's noise where the logits are, with the bits of `settlement.noise`.

Only int64 operations, each exact on every backend: products that pass 2**63 wrap, which leaves the
low 64 bits right, and a logical shift is an arithmetic one with the sign bits masked off. The
steps and their bounds are written in `settlement/noise.py` and `settlement/logarithm.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from settlement.logarithm import ARTANH_Q31, LN2_Q40
from settlement.noise import H_Q31, PositionKey

_M0: Final = 0xD2511F53
_M1: Final = 0xCD9E8D57
_W0: Final = 0x9E3779B9
_W1: Final = 0xBB67AE85
_MASK: Final = 0xFFFFFFFF


def noise_rows(
    seed: bytes,
    positions: Sequence[int],
    vocab_size: int,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """G of every token at each position: int64[n, vocab_size] on `device`, Q24.

    Args:
        seed: S, 32 bytes.
        positions: n output positions, uint64 each.

    Raises:
        NoiseError: a seed or position of the wrong size (from `PositionKey`).
    """
    keys = [PositionKey.of(seed, position) for position in positions]
    # uint32 words as int64[n, 1] each: key, then the counter words that a position's tokens share.
    words = torch.tensor(
        [[*at.key, *at.counter] for at in keys], dtype=torch.int64, device=device
    ).reshape(len(keys), 5, 1)
    blocks = torch.arange((vocab_size + 1) // 2, dtype=torch.int64, device=device)
    x0, x1, x2, x3 = _philox(blocks[None, :], *words.unbind(dim=1))
    # Even tokens take the first two words of their block, odd ones the last two.
    high = torch.stack((x0, x2), dim=2).flatten(1)[:, :vocab_size]
    low = torch.stack((x1, x3), dim=2).flatten(1)[:, :vocab_size]
    return _gumbel_q24(high, low)


def _philox(c0: Any, k0: Any, k1: Any, c1: Any, c2: Any, c3: Any) -> tuple[torch.Tensor, ...]:
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK
        c2, c3 = ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def _gumbel_q24(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """G(r) for r = high · 2**32 + low, both int64 holding 32 bits."""
    upper = high >= 1 << 31
    w = torch.where(upper, high ^ _MASK, high)  # a >> 32: 2v in Q31 where v < ½
    a = (w << 32) | torch.where(upper, low ^ _MASK, low)
    length = _bit_lengths(a) + 1
    shift = length - 33
    m = torch.where(shift >= 0, a >> shift.clamp(min=0), (2 * a + 1) << (32 - length).clamp(0, 31))
    e = (((66 - length) * LN2_Q40) >> 9) - _ln_mantissa(m)
    acc: Any = H_Q31[-1]
    for coefficient in H_Q31[-2::-1]:
        acc = ((acc * w) >> 31) + coefficient
    g_high = e - ((acc * w) >> 31)

    length = _bit_lengths(e)
    shift = length - 32
    m = (e >> shift.clamp(min=0)) << (-shift).clamp(min=0)
    g_low = ((31 * LN2_Q40) >> 9) - (_ln_mantissa(m) + (((length - 1) * LN2_Q40) >> 9))
    return (torch.where(upper, g_high, g_low) + 64) >> 7


def _ln_mantissa(m: torch.Tensor) -> torch.Tensor:
    s = torch.div((m - (1 << 31)) << 31, m + (1 << 31), rounding_mode="floor")
    t = (s * s) >> 31
    acc: Any = ARTANH_Q31[-1]
    for coefficient in ARTANH_Q31[-2::-1]:
        acc = ((acc * t) >> 31) + coefficient
    return (acc * s) >> 31


def _bit_lengths(x: torch.Tensor) -> torch.Tensor:
    """Bit length of non-negative int64, by halving: no float, so any device will do."""
    length = torch.zeros_like(x)
    for step in (32, 16, 8, 4, 2, 1):
        part = x >> step
        more = part > 0
        length += more * step
        x = torch.where(more, part, x)
    return length + (x > 0)
