"""Probabilities in the exact tier, as integers (docs/exact.md, "Probabilities").

A weight is 2**32 · exp(score − largest score), from an integer table with interpolation, so top-p,
masses, surprisals and topProb are the same on every machine. Kept in float64, in which sums of them
over any vocabulary up to 2**21 are exact whatever their order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Final

import numpy as np
import torch

from settlement.logarithm import LN2_Q40, ln_q31

WEIGHT_BITS: Final = 32
#: 2**24 · log2(e), to the nearest.
OCTAVES_Q24: Final = 24_204_406
#: Scores further below the largest than 2**30 (64 nats) weigh nothing.
_FAR: Final = 1 << 30


@functools.cache
def nodes() -> torch.Tensor:
    """2**40 · 2**(−k/1024), k = 0 … 1024, each to the nearest: int64[1025]."""
    with localcontext() as context:
        context.prec = 60
        ln2 = Decimal(2).ln()
        values = [
            int(((1 << 40) * (-ln2 * k / 1024).exp()).to_integral_value()) for k in range(1025)
        ]
    return torch.from_numpy(np.array(values, dtype=np.int64))


def weights(scores: torch.Tensor, cutoff: torch.Tensor) -> torch.Tensor:
    """Weight of each score: float64[n, V] of integers in [0, 2**32], 0 below the cut-off.

    Args:
        scores: int64[n, V], Q24; cutoff: int64[n], as in `sampling.cutoffs`.
    """
    below = (scores.amax(1, keepdim=True) - scores).clamp_(max=_FAR)
    octaves = (below * OCTAVES_Q24) >> 24
    whole, k, r = octaves >> 24, (octaves >> 14) & 1023, octaves & 16383
    table = nodes().to(scores.device)
    value = table[k] + (((table[k + 1] - table[k]) * r) >> 14)
    weight = value >> (whole + (40 - WEIGHT_BITS)).clamp_(max=62)
    return torch.where(scores >= cutoff[:, None], weight, 0).double()


def surprisals(logits: torch.Tensor, tokens: Sequence[int]) -> list[int]:
    """−ln of each token's probability at temperature 1 in Q16, from float64[n, V] logits."""
    scores = (logits * 2.0**24).long()
    everything = torch.full((len(scores),), -(2**63), dtype=torch.int64, device=scores.device)
    totals = weights(scores, everything).sum(1).long().tolist()
    at = torch.as_tensor(tokens, device=scores.device)[:, None]
    apart = (scores.amax(1) - scores.gather(1, at)[:, 0]).tolist()
    least = (WEIGHT_BITS * LN2_Q40) >> 9  # ln of one top weight, Q31
    out = []
    for below, total in zip(apart, totals, strict=True):
        nats_q31 = (below << 7) + ln_q31(total) - least
        out.append(min(max((nats_q31 + (1 << 14)) >> 15, 0), (1 << 32) - 1))
    return out
