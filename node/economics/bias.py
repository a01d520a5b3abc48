"""The drafter that steers ambiguous positions: its average passes, its buckets do not.

It drafts as its model does where the target is sure, and puts its own choice in the place of a
share of its drafts where the target is not and the text is young: acceptance is low there anyway.
What its average loses is within what a claim of one average rate tolerates; the ledger's claim has
sixteen. Both are tested alike, with `settlement.alpha`: every settlement, every interval.

In coupled mode none of this reaches the text: a draft passes only where the target says the same.
What is measured is how long the record stays clean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from node.economics.ledger import first_flag
from node.economics.market import Acceptance, Floats, Ints, place_classes
from settlement.alpha import BUCKETS, INVERSE_DELTA, Counts, Ledger, find_flag

# The target gives no token 0.6, among the first sixty-four of an answer.
AMBIGUOUS: Final = (2, 3, 6, 7)


@dataclass(frozen=True)
class Bias:
    """What a bias of one strength did over several seeds.

    Attributes:
        share: of the drafts at ambiguous positions that are the drafter's own choice.
        where: the steered buckets.
        steered: share of all drafts.
        average: conditional acceptance over everything; `honest` without the bias.
        fall: points by which the steered buckets lie below their claim (weighted by occurrence).
        proposals: until the first flag, by seed; None where the horizon passed without one.
        by_average: the same for the claim of one rate.
        caught_in: the bucket of the first flag, by seed.
    """

    share: float
    where: tuple[int, ...]
    steered: float
    average: float
    honest: float
    claimed: float
    fall: float
    proposals: tuple[int | None, ...]
    by_average: tuple[int | None, ...]
    caught_in: tuple[int | None, ...]
    horizon: int

    @property
    def median(self) -> float | None:
        return _median(self.proposals)

    @property
    def median_by_average(self) -> float | None:
        return _median(self.by_average)


def _median(values: Iterable[int | None]) -> float | None:
    """Of numbers and 'later than the horizon', which comes last."""
    ordered = sorted(float("inf") if value is None else float(value) for value in values)
    found = median(ordered)
    return None if found == float("inf") else found


def spread(pair: Acceptance, length: int) -> Floats:
    """(16,) how often each bucket occurs in a text of so many tokens."""
    weight = np.bincount(place_classes(length), minlength=4) / length
    return (weight[:, None] * pair.shares).ravel()


def run(
    pair: Acceptance,
    length: int,
    share: float,
    where: tuple[int, ...],
    claim: tuple[int, ...],
    seeds: Iterable[int],
    *,
    horizon: int = 100_000,
    settlement: int = 128,
    inverse_delta: int = INVERSE_DELTA,
) -> Bias:
    """Settlements of so many proposals until both claims are flagged or the horizon passes.

    `claim`: sixteen rates in percent; the claim of one rate is their average, weighted by how often
    each bucket occurs, rounded down.
    """
    often = spread(pair, length)
    hit = np.isin(np.arange(BUCKETS), where)
    rates = np.where(hit, pair.rates * (1 - share), pair.rates)
    claimed = float((often * np.array(claim)).sum())
    single = (int(claimed),) * BUCKETS
    counts, steps = [], horizon // settlement
    for seed in seeds:
        rng = np.random.default_rng([seed, 8])
        proposed = rng.multinomial(settlement, often, size=steps).astype(np.int64)
        accepted = rng.binomial(proposed, rates).astype(np.int64)
        flagged = first_flag(proposed, accepted, claim, inverse_delta=inverse_delta)
        pooled = first_flag(_pool(proposed), _pool(accepted), single, inverse_delta=inverse_delta)
        counts.append((flagged, pooled))
    fall = (often * (np.array(claim) / 100 - rates))[hit].sum() / often[hit].sum()
    return Bias(
        share=share,
        where=where,
        steered=float(share * often[hit].sum()),
        average=float((often * rates).sum()),
        honest=float((often * pair.rates).sum()),
        claimed=claimed / 100,
        fall=float(100 * fall),
        proposals=tuple(_after(flagged, settlement) for flagged, _ in counts),
        by_average=tuple(_after(pooled, settlement) for _, pooled in counts),
        caught_in=tuple(flagged[1] if flagged else None for flagged, _ in counts),
        horizon=steps * settlement,
    )


def _pool(counts: Ints) -> Ints:
    """All buckets' counts in the first: one rate for everything."""
    pooled = np.zeros_like(counts)
    pooled[:, 0] = counts.sum(axis=1)
    return pooled


def _after(flag: tuple[int, int] | None, settlement: int) -> int | None:
    return None if flag is None else (flag[0] + 1) * settlement


def confirm(
    pair: Acceptance,
    length: int,
    share: float,
    where: tuple[int, ...],
    claim: tuple[int, ...],
    seed: int,
    settlements: int,
    settlement: int = 128,
) -> int | None:
    """The same history through `alpha.Ledger` and `alpha.find_flag`, which nodes and the contract
    use: proposals until the first flag, or None. Slow; `run` must agree with it."""
    often = spread(pair, length)
    hit = np.isin(np.arange(BUCKETS), where)
    rates = np.where(hit, pair.rates * (1 - share), pair.rates)
    rng = np.random.default_rng([seed, 8])
    proposed = rng.multinomial(settlement, often, size=settlements)
    accepted = rng.binomial(proposed, rates)
    ledger = Ledger()
    for step in range(settlements):
        ledger = ledger.add(
            Counts(tuple(map(int, proposed[step])), tuple(map(int, accepted[step])))
        )
        if find_flag(ledger, claim) is not None:
            return (step + 1) * settlement
    return None
