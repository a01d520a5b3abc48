"""The α ledger over a long history: when a claim is flagged, and what a case does to its rates.

The same test as `settlement.alpha.find_flag` after every settlement, which a test holds it to; here
the lowest hurdle over all starts is carried along, so that a history of thousands of settlements
takes milliseconds. AlphaLedger's `_stand` gives the rates after a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from node.economics.market import Ints
from settlement import alpha
from settlement.alpha import BUCKETS, CHECKPOINT_PROPOSALS, INVERSE_DELTA

MIN_OBSERVED: Final = 512  # AlphaLedger.MIN_OBSERVED: other buckets' proposals behind a new rate
_NEVER: Final = np.iinfo(np.int64).max


def first_flag(
    proposed: Ints,
    accepted: Ints,
    rates: Sequence[int],
    every: int = CHECKPOINT_PROPOSALS,
    inverse_delta: int = INVERSE_DELTA,
) -> tuple[int, int] | None:
    """(settlement, bucket) of the first flag, or None.

    Args:
        proposed, accepted: int64[T, 16], what each settlement adds.
        rates: the claim's sixteen, percent.
    """
    weights = [alpha.weights(rate) for rate in rates]
    accept = np.array([weight.accept for weight in weights], dtype=np.int64)
    reject = np.array([weight.reject for weight in weights], dtype=np.int64)
    scores = (accepted * accept + (proposed - accepted) * reject).cumsum(axis=0)
    totals = proposed.sum(axis=1).cumsum()
    hurdle = np.full(BUCKETS, alpha.threshold(1, inverse_delta), dtype=np.int64)
    checkpoint, last = 1, 0
    for step, score in enumerate(scores):
        over = score > hurdle
        if over.any():
            return step, int(np.argmax(np.where(over, score - hurdle, -_NEVER)))
        if totals[step] - last >= every:
            last = int(totals[step])
            checkpoint += 1
            np.minimum(hurdle, score + alpha.threshold(checkpoint, inverse_delta), out=hurdle)
    return None


def cases(
    proposed: Ints, accepted: Ints, rates: Sequence[int], stands: bool
) -> Iterator[tuple[int, int]]:
    """(settlement, bucket) of every case over a history, each beginning anew after the one before.

    `stands`: whether assertions stand, which lowers the rates to what was observed; else the claim
    is void and the drafter publishes the same one again.
    """
    at, held = 0, tuple(rates)
    while True:
        found = first_flag(proposed[at:], accepted[at:], held)
        if found is None:
            return
        step, bucket = found
        yield at + step, bucket
        end = at + step + 1
        if stands:
            held = observed_rates(proposed[at:end], accepted[at:end], held, bucket)
        at = end


def observed_rates(
    proposed: Ints, accepted: Ints, rates: Sequence[int], bucket: int
) -> tuple[int, ...]:
    """The rates after an assertion has stood: what was seen, never upwards."""
    n, k = proposed.sum(axis=0), accepted.sum(axis=0)
    held = list(rates)
    for index in range(BUCKETS):
        if n[index] == 0 or (index != bucket and n[index] < MIN_OBSERVED):
            continue
        held[index] = min(held[index], max(int(k[index] * 100 // n[index]), alpha.LOWEST_RATE))
    return tuple(held)
