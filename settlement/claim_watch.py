"""Which promised acceptance rates have failed their test, and who should say so. Pure.

`AlphaLedger` counts every settlement and tests nothing by itself: somebody has to call `flag` with
the interval that fails. Here the events of the ledger are folded into the series it holds, and
after each count every interval that ends at the newest state is tested, as a caller could. The test
is the contract's (`settlement.alpha`); an earlier end was asked when it was the newest.

A flag takes no bond and costs gas alone, and it cannot succeed unless the test fails, so those whom
a bad draft costs something (the verifier and the clients of the claim's lanes) call at once; others
who keep the network honest wait for a moment of their own, and need not pay if it is done by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from settlement.alpha import INVERSE_DELTA, Counts, Evaluation, llr, threshold
from settlement.chain.contracts import Contracts
from settlement.chain.events import (
    CaseMoved,
    CaseOpened,
    ClaimRegistered,
    Counted,
    RatesReplaced,
    VerifierJoined,
)
from settlement.chain.indexer import ChainEvent
from settlement.chain.standing import ClaimCaseStage, Standing
from settlement.duties import Action, Duty, Now, Plan, Policy
from settlement.hashing import keccak256
from settlement.records import BUCKETS

KEPT: Final = 512  # BucketHistory.KEPT: checkpoints whose counts the chain still holds
WHOLE: Final = bytes(20)  # the series of the claim as a whole
_CASE_VERIFIER: Final = 1  # place in IAlphaLedger.Case


@dataclass
class Series:
    """Counts under a claim, or of one verifier under it, at the checkpoints that the ledger names.

    Attributes:
        order: of the verifier's first settlement, from 1; 0 for the whole claim.
        era: of the rates that the newest counts stand under.
        floor: tests start no earlier.
        at: cumulative counts by checkpoint; 0 is the empty beginning.
        block, block_hash: of the newest count.
    """

    order: int
    era: int
    floor: int = 0
    at: dict[int, Counts] = field(default_factory=lambda: {0: Counts()})
    block: int = 0
    block_hash: bytes = b""

    @property
    def newest(self) -> int:
        return next(reversed(self.at))  # checkpoints come in order

    def restart(self) -> None:
        """The newest state becomes a checkpoint before which no test starts."""
        self.floor = self.newest

    def starts(self) -> list[int]:
        """Checkpoints that an interval up to the newest state may begin at."""
        newest = self.newest
        oldest = max(1, newest - KEPT + 1)
        return [k for k in self.at if self.floor <= k < newest and (k == 0 or k >= oldest)]


@dataclass
class ClaimView:
    """A claim as its events leave it. `rates`: sixteen percents that hold now."""

    drafter: bytes
    rates: tuple[int, ...]
    era: int = 0
    case: int | None = None  # the one that is open
    void: bool = False
    series: dict[bytes, Series] = field(default_factory=dict)


@dataclass(frozen=True)
class Shortfall:
    """A test that fails: what `flag` takes, and by how much."""

    claim_id: bytes
    verifier: bytes
    bucket: int
    start: int
    end: int
    evaluation: Evaluation


def claims_of(events: Iterable[ChainEvent]) -> dict[bytes, ClaimView]:
    """Claims by id after `events`, in chain order."""
    claims: dict[bytes, ClaimView] = {}
    cases: dict[int, tuple[bytes, bytes]] = {}  # (claim, series) that a case is about
    for found in events:
        event = found.event
        if isinstance(event, ClaimRegistered):
            claims[event.claim_id] = ClaimView(event.drafter, tuple(event.claim.rates))
        elif isinstance(event, VerifierJoined):
            claim = claims[event.claim_id]
            claim.series[event.verifier] = Series(event.order, claim.era)
        elif isinstance(event, Counted):
            claim = claims[event.claim_id]
            whole = claim.series.setdefault(WHOLE, Series(0, 0))
            _count(claim, claim.series[event.verifier], event, event.checkpoint, found)
            _count(claim, whole, event, event.claim_checkpoint, found)
        elif isinstance(event, RatesReplaced):
            claim = claims[event.claim_id]
            claim.era = event.era
            claim.rates = tuple(event.rates >> 8 * bucket & 0xFF for bucket in range(BUCKETS))
        elif isinstance(event, CaseOpened):
            claims[event.claim_id].case = event.case_id
            cases[event.case_id] = (event.claim_id, bytes(event.opened[_CASE_VERIFIER]))
        elif isinstance(event, CaseMoved):
            _move(claims[event.claim_id], ClaimCaseStage(event.stage), cases[event.case_id][1])
    return claims


def _count(
    claim: ClaimView, series: Series, event: Counted, number: int, found: ChainEvent
) -> None:
    if series.era != claim.era:
        series.restart()
        series.era = claim.era
    if number:  # nothing was proposed yet, else
        series.at[number] = series.at[series.newest] + _counts(event.delta)
    series.block, series.block_hash = found.block_number, found.block_hash


def _counts(delta: tuple[int, ...]) -> Counts:
    """Of nine words, the first passed over; the escrow has seen that no more was accepted than
    proposed in any bucket."""
    lanes = tuple(word >> 64 * lane & (1 << 64) - 1 for word in delta[1:] for lane in range(4))
    return Counts(lanes[:BUCKETS], lanes[BUCKETS:])


def _move(claim: ClaimView, stage: ClaimCaseStage, verifier: bytes) -> None:
    if stage in (ClaimCaseStage.OPEN, ClaimCaseStage.LATE, ClaimCaseStage.ANSWERED):
        return
    claim.case = None
    claim.void = stage in (ClaimCaseStage.UNANSWERED, ClaimCaseStage.REFUTED)
    if stage == ClaimCaseStage.DISMISSED:  # the excluded rounds are still in the checkpoints
        claim.series[verifier].restart()
        claim.series[WHOLE].restart()


def shortfall(claim_id: bytes, claim: ClaimView, verifier: bytes) -> Shortfall | None:
    """The bucket and interval of a series, up to its newest state, that fail by the widest margin;
    None where the promise holds, or may not be tested now."""
    series = claim.series[verifier]
    if claim.case is not None or claim.void or series.era != claim.era:
        return None
    end = series.newest
    after = series.at[end]
    worst: Shortfall | None = None
    for start in series.starts():
        before, limit = series.at[start], threshold(start + 1, INVERSE_DELTA, series.order)
        for bucket, rate in enumerate(claim.rates):
            proposed = after.proposed[bucket] - before.proposed[bucket]
            accepted = after.accepted[bucket] - before.accepted[bucket]
            found = Evaluation(llr(rate, proposed, accepted), limit)
            if found.flagged and (worst is None or _margin(found) > _margin(worst.evaluation)):
                worst = Shortfall(claim_id, verifier, bucket, start, end, found)
    return worst


def _margin(found: Evaluation) -> int:
    return found.score - found.threshold


class ClaimWatch:
    """Tests what is new at every look. What passed is remembered by its counts alone, to spare the
    work: a forgotten test is made again."""

    def __init__(self) -> None:
        self._tested: dict[tuple[bytes, bytes], tuple[object, Shortfall | None]] = {}

    def plan(
        self,
        contracts: Contracts,
        key: bytes,
        events: Iterable[ChainEvent],
        standing: Standing,
        now: Now,
        policy: Policy,
    ) -> Plan:
        """A `flag` for every claim that has failed, one a claim: it suspends the claim."""
        plan, mine = Plan(), standing.keys_of(key)
        times = {batch.block: batch.settled_at for batch in standing.batches.values()}
        for claim_id, claim in claims_of(events).items():
            if claim.drafter in mine:
                continue
            failed = [found for v in claim.series if (found := self._test(claim_id, claim, v))]
            if not failed:
                continue
            # A verifier's own series first: a case about it, if dismissed, clears the whole claim's
            # as well, and not the other way round.
            worst = max(failed, key=lambda f: (f.verifier != WHOLE, _margin(f.evaluation)))
            series = claim.series[worst.verifier]
            at = times.get(series.block, now.time)
            if not self._concerns(claim_id, mine, standing):
                wait = int.from_bytes(keccak256(key, claim_id)[:4], "big") / 2**32
                if not policy.draws or now.time - at < policy.patience * wait:
                    continue
            arguments = (worst.verifier, worst.bucket, worst.start, worst.end)
            call = contracts.ledger.flag(claim_id, *arguments)
            name = ":".join((claim_id.hex(), worst.verifier.hex(), *map(str, arguments[1:])))
            intent = f"{Action.FLAG}:{name}:{series.block_hash[:6].hex()}"
            about = f"claim 0x{claim_id.hex()[:12]}, bucket {worst.bucket}"
            plan.duties.append(Duty(Action.FLAG, about, intent, call))
        return plan

    def _test(self, claim_id: bytes, claim: ClaimView, verifier: bytes) -> Shortfall | None:
        series = claim.series[verifier]
        newest = series.newest
        state = (claim.era, claim.case, claim.void, series.era, series.floor, newest)
        mark = (*state, series.at[newest], series.block_hash)
        known = self._tested.get((claim_id, verifier))
        if known is None or known[0] != mark:
            known = (mark, shortfall(claim_id, claim, verifier))
            self._tested[claim_id, verifier] = known
        return known[1]

    def _concerns(self, claim_id: bytes, mine: frozenset[bytes], standing: Standing) -> bool:
        """Whether a bad draft under this claim costs this key something."""
        return any(
            lane.claim_id == claim_id and {lane.client, lane.verifier} & mine
            for lane in standing.lanes.values()
        )
