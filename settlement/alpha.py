"""Acceptance rates: buckets, the integer sequential test against a claim, and its checkpoints.

A claim promises sixteen conditional acceptance rates. Under any true rate ≥ a₀ the process
exp(LLR / 2**20) of the likelihood ratio of a₁ against a₀ is a supermartingale, because the weights
are floors: a₀·e^wa + (1 − a₀)·e^wr ≤ 1. By Ville's inequality it ever exceeds e^T with probability
≤ e^−T from any one start. The thresholds spend δ over everything that may be tested: one half each
for the claim as a whole and for its verifiers (ln 2), 6/(π² k²) for the k-th start, 1/16 for each
bucket, and 6/(π² j²) for the j-th verifier. So the chance that an honest drafter is ever flagged,
at any interval, is ≤ δ.

SequentialTest.sol mirrors `weights`, `llr`, `threshold`; AlphaLedger.sol keeps `Ledger`.

Sources: Wald (1945); Ville (1939); the spending over starts is a union bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import cache
from typing import Final

from settlement.logarithm import ln_up_q20
from settlement.records import BUCKETS, NO_TOKEN, Sums, VerdictLeaf

WEIGHT_BITS: Final = 20
LOWEST_RATE: Final = 6
HIGHEST_RATE: Final = 99
TOLERANCE_PERCENT: Final = 10
CHECKPOINT_PROPOSALS: Final = 512  # W: see scripts/alpha_power.py for what it costs in delay
INVERSE_DELTA: Final = 10**6
POSITION_EDGES: Final = (16, 64, 256)
# ≥ 0.9, ≥ 0.6, ≥ 0.3 of 65536, rounded up.
TOP_PROB_EDGES: Final = (58983, 39322, 19661)
LN_PI2_6_UP_Q20: Final = 521_877  # ⌈2**20 ln(π²/6)⌉


class AlphaError(ValueError):
    """A rate, bucket, count or interval that the test is not defined for."""


def bucket(output_position: int, top_prob: int) -> int:
    """4 · positionBucket + probBucket: position < 16, < 64, < 256, else; top probability (uint16)
    ≥ 58983, ≥ 39322, ≥ 19661, else."""
    if output_position < 0 or not 0 <= top_prob < 1 << 16:
        raise AlphaError(f"position {output_position} or top probability {top_prob} out of range")
    by_position = sum(output_position >= edge for edge in POSITION_EDGES)
    return 4 * by_position + sum(top_prob < edge for edge in TOP_PROB_EDGES)


def round_sums(leaves: Iterable[VerdictLeaf]) -> Sums:
    """What a round adds to its lane: every leaf is an output token; a leaf with a draft counts as
    proposed in its bucket, and as accepted by its accept bit."""
    output, proposed, accepted = 0, [0] * BUCKETS, [0] * BUCKETS
    for leaf in leaves:
        output += 1
        if leaf.draft_token == NO_TOKEN:
            continue
        index = bucket(leaf.position, leaf.top_prob)
        proposed[index] += 1
        accepted[index] += leaf.accepted
    return Sums(output, sum(accepted), tuple(proposed), tuple(accepted))


# ---------------------------------------------------------------- the test


@dataclass(frozen=True)
class Weights:
    """What one outcome adds to the score, at 2**20: `accept` < 0 < `reject`."""

    accept: int
    reject: int


@cache
def weights(rate: int) -> Weights:
    """The weights for a claimed rate in percent, 6 to 99.

    In 200ths a₀ = 2·rate and a₁ = max(2·rate − 20, rate); accept = ⌊2**20 ln(a₁/a₀)⌋, reject =
    ⌊2**20 ln((200 − a₁)/(200 − a₀))⌋, worked out to 50 digits (no value is near an integer).
    """
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise AlphaError(f"a claimed rate is {LOWEST_RATE} to {HIGHEST_RATE} percent, not {rate}")
    claimed = 2 * rate
    shortfall = max(claimed - 2 * TOLERANCE_PERCENT, rate)

    def floor_ln(numerator: int, denominator: int) -> int:
        with localcontext() as context:
            context.prec = 50
            scaled = (Decimal(numerator) / Decimal(denominator)).ln() * (1 << WEIGHT_BITS)
            return int(scaled.to_integral_value(rounding="ROUND_FLOOR"))

    return Weights(floor_ln(shortfall, claimed), floor_ln(200 - shortfall, 200 - claimed))


def packed_weights() -> bytes:
    """The table as SequentialTest.sol holds it: for rates 6 … 99, uint24 −accept then uint24
    reject, big-endian; 564 bytes."""
    return b"".join(
        (-weights(rate).accept).to_bytes(3, "big") + weights(rate).reject.to_bytes(3, "big")
        for rate in range(LOWEST_RATE, HIGHEST_RATE + 1)
    )


def llr(rate: int, proposed: int, accepted: int) -> int:
    """accepted · accept + (proposed − accepted) · reject, at 2**20. AlphaError when more were
    accepted than proposed."""
    if not 0 <= accepted <= proposed:
        raise AlphaError(f"{accepted} accepted of {proposed} proposed")
    w = weights(rate)
    return accepted * w.accept + (proposed - accepted) * w.reject


def threshold(start: int, inverse_delta: int = INVERSE_DELTA, verifier_order: int = 0) -> int:
    """What a score must exceed, at 2**20, rounded up:

    up(1/δ) + up(32) + LN_PI2_6_UP + 2·up(start), and LN_PI2_6_UP + 2·up(verifierOrder) on top for
    a verifier's own test, where up = `ln_up_q20` and 32 = 2 · 16.

    Args:
        start: k ≥ 1; an interval that begins at checkpoint c has k = c + 1.
        inverse_delta: 1/δ, an integer ≥ 2.
        verifier_order: j ≥ 1, or 0 for the claim as a whole.
    """
    if start < 1 or inverse_delta < 2 or verifier_order < 0:
        raise AlphaError(f"start {start}, 1/δ {inverse_delta} or order {verifier_order} too small")
    total = ln_up_q20(inverse_delta) + ln_up_q20(2 * BUCKETS)
    total += LN_PI2_6_UP_Q20 + 2 * ln_up_q20(start)
    if verifier_order:
        total += LN_PI2_6_UP_Q20 + 2 * ln_up_q20(verifier_order)
    return total


# ---------------------------------------------------------------- the ledger


@dataclass(frozen=True)
class Counts:
    """Proposed and accepted so far, per bucket."""

    proposed: tuple[int, ...] = (0,) * BUCKETS
    accepted: tuple[int, ...] = (0,) * BUCKETS

    def __post_init__(self) -> None:
        if len(self.proposed) != BUCKETS or len(self.accepted) != BUCKETS:
            raise AlphaError(f"counts have {BUCKETS} buckets")
        for proposed, accepted in zip(self.proposed, self.accepted, strict=True):
            if not 0 <= accepted <= proposed:
                raise AlphaError(f"{accepted} accepted of {proposed} proposed")

    @classmethod
    def of(cls, sums: Sums) -> Counts:
        return cls(sums.proposed_by_bucket, sums.accepted_by_bucket)

    @property
    def total(self) -> int:
        return sum(self.proposed)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            tuple(a + b for a, b in zip(self.proposed, other.proposed, strict=True)),
            tuple(a + b for a, b in zip(self.accepted, other.accepted, strict=True)),
        )


@dataclass(frozen=True)
class Evaluation:
    """One interval's score against its threshold, both at 2**20."""

    score: int
    threshold: int

    @property
    def flagged(self) -> bool:
        return self.score > self.threshold


@dataclass(frozen=True)
class Ledger:
    """The counts under a claim (or of one verifier under it), with checkpoints.

    Checkpoint 0 is the empty beginning. `add` moves the newest state and fixes it as a checkpoint
    when at least `every` proposals came since the last one; until then the newest state has the
    next number, so that an interval may end there too. An interval that starts at checkpoint
    `from` is start number k = from + 1.
    """

    every: int = CHECKPOINT_PROPOSALS
    fixed: tuple[Counts, ...] = field(default=(Counts(),))
    newest: Counts = field(default=Counts())

    def add(self, delta: Counts) -> Ledger:
        """The ledger after one settlement's counts."""
        newest = self.newest + delta
        fixed = self.fixed
        if newest.total - fixed[-1].total >= self.every:
            fixed = (*fixed, newest)
        return Ledger(self.every, fixed, newest)

    @property
    def newest_number(self) -> int:
        """The number of the newest state."""
        return len(self.fixed) - 1 if self.newest == self.fixed[-1] else len(self.fixed)

    def checkpoint(self, number: int) -> Counts:
        """Checkpoint `number`, from 0 to `newest_number`. AlphaError for one not there."""
        if not 0 <= number <= self.newest_number:
            raise AlphaError(f"checkpoints run from 0 to {self.newest_number}, no {number}")
        return self.fixed[number] if number < len(self.fixed) else self.newest


def evaluate(
    ledger: Ledger,
    rates: Sequence[int],
    bucket_number: int,
    start: int,
    end: int,
    inverse_delta: int = INVERSE_DELTA,
    verifier_order: int = 0,
) -> Evaluation:
    """The test of one bucket over one interval of a ledger: score = `llr` of the difference of
    counts, against `threshold(start + 1, …)`.

    Args:
        rates: the claim's sixteen rates, percent.
        bucket_number: 0 to 15.
        start: number of the checkpoint before the interval, from 0.
        end: number of a later checkpoint; `ledger.newest_number` for the newest state.
        verifier_order: 0 when `ledger` is the claim's; j when it is that verifier's own.

    Raises:
        AlphaError: no such bucket or checkpoint, or the end does not come after the start.
    """
    if not 0 <= bucket_number < BUCKETS:
        raise AlphaError(f"bucket {bucket_number} is not in 0..{BUCKETS - 1}")
    if start >= end:
        raise AlphaError(f"an interval runs forward, not from {start} to {end}")
    before, after = ledger.checkpoint(start), ledger.checkpoint(end)
    score = llr(
        rates[bucket_number],
        after.proposed[bucket_number] - before.proposed[bucket_number],
        after.accepted[bucket_number] - before.accepted[bucket_number],
    )
    return Evaluation(score, threshold(start + 1, inverse_delta, verifier_order))


def find_flag(
    ledger: Ledger,
    rates: Sequence[int],
    inverse_delta: int = INVERSE_DELTA,
    verifier_order: int = 0,
) -> tuple[int, int, Evaluation] | None:
    """The (bucket, start, evaluation) that flags the claim on the newest state by the widest
    margin, or None. What a watcher asks after each settlement: an earlier end was asked then."""
    end = ledger.newest_number
    found: list[tuple[int, int, Evaluation]] = []
    for number in range(BUCKETS):
        for start in range(end):
            evaluation = evaluate(ledger, rates, number, start, end, inverse_delta, verifier_order)
            if evaluation.flagged:
                found.append((number, start, evaluation))
    return max(found, key=lambda item: item[2].score - item[2].threshold, default=None)
