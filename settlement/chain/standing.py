"""How everything that may be drawn, demanded, proven or answered stands after confirmed events.

`fold` takes the events in chain order and remembers nothing between calls: after a restart or a
reorganisation it is called again, and what is still to do is what the chain says is not done.
Views keep what a later transaction has to hand back (batches, draws, demands) as the tuples that
the events carried, in the ABI's order. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from settlement.chain.events import (
    AccountOpened,
    AnswerFaulty,
    BatchReanchored,
    BatchRegistered,
    BondForfeited,
    BondPulled,
    CaseAnswered,
    CaseMoved,
    CaseOpened,
    ClaimRegistered,
    Demanded,
    DemandMoved,
    DrawMoved,
    FaultProven,
    FaultShown,
    Filed,
    KeyRotated,
    LaneDrawn,
    LaneOpened,
    LaneSettled,
    OtherEvent,
    PositionOpened,
    RandomnessCaptured,
    SessionAnswered,
    SessionDemanded,
    StakeSlashed,
)
from settlement.chain.indexer import ChainEvent
from settlement.draws import DrawTerms, Entry
from settlement.fault_proofs import fault_name, number_of
from settlement.records import Lane

# Places in IDrawBeacon.Batch, IDrawBeacon.Terms, IAlphaLedger.Case and in the two demands.
_SETTLED_AT, _TARGET, _RANDOMNESS, _TERMS = 5, 7, 8, 9
_EVIDENCE, _LATE_BPS, _SILENT_BPS, _REWARD_BPS = 0, 4, 5, 7
_CASE_FLAGGER, _CASE_FIRST, _CASE_SECOND, _CASE_TERMS = 2, 9, 10, 13


class Stage(IntEnum):
    """IDrawBeacon.Stage."""

    NONE = 0
    OPEN = 1
    LATE = 2
    SHOWN = 3
    FAULTY = 4
    SILENT = 5


class DemandStage(IntEnum):
    """IDemands.Stage."""

    NONE = 0
    OPEN = 1
    LATE = 2
    ANSWERED = 3
    SHOWN = 4
    FAULTY = 5
    SILENT = 6


class ClaimCaseStage(IntEnum):
    """IAlphaLedger.Stage."""

    NONE = 0
    OPEN = 1
    LATE = 2
    ANSWERED = 3
    STOOD = 4
    DISMISSED = 5
    REFUTED = 6
    UNANSWERED = 7


@dataclass
class BatchView:
    """A registered batch: the ABI's tuple as the beacon has it now, and its lanes."""

    batch: tuple[Any, ...]
    entries: tuple[Entry, ...]
    block: int = 0

    @property
    def id(self) -> int:
        return int(self.batch[0])

    @property
    def randomness(self) -> bytes:
        return bytes(self.batch[_RANDOMNESS])

    @property
    def captured(self) -> bool:
        return any(self.randomness)

    @property
    def target(self) -> int:
        return int(self.batch[_TARGET])

    @property
    def settled_at(self) -> int:
        """Unix seconds."""
        return int(self.batch[_SETTLED_AT])

    @property
    def evidence_until(self) -> int:
        """Unix seconds until which evidence is owed: draws and demands begin by then or never."""
        return self.settled_at + int(self.batch[_TERMS][_EVIDENCE])

    @property
    def draw_terms(self) -> DrawTerms:
        return DrawTerms.of(self.batch[_TERMS])

    def packed(self) -> bytes:
        return b"".join(entry.packed() for entry in self.entries)


@dataclass
class DrawView:
    """A drawn lane. `since` is the hash of the block that drew it: after a reorganisation the same
    draw is another one."""

    draw: tuple[Any, ...]
    verifier: bytes
    first_until: int
    second_until: int
    since: bytes = b""
    stage: Stage = Stage.OPEN
    opened: set[int] = field(default_factory=set)

    @property
    def key(self) -> tuple[int, int]:
        return (int(self.draw[0]), int(self.draw[1]))

    @property
    def seed(self) -> bytes:
        return bytes(self.draw[2])

    @property
    def root(self) -> bytes:
        return bytes(self.draw[3][1])

    @property
    def lane(self) -> Lane:
        return Lane(*self.draw[4])

    @property
    def samples(self) -> int:
        return DrawTerms.of(self.draw[5]).samples

    @property
    def running(self) -> bool:
        return self.stage in (Stage.OPEN, Stage.LATE)

    @property
    def until(self) -> int:
        """The deadline that runs; after it the next price may be taken."""
        return self.first_until if self.stage == Stage.OPEN else self.second_until

    @property
    def price_bps(self) -> tuple[int, int]:
        """(share of V's stake at the deadline that runs, share of that to who calls)."""
        terms = self.draw[5]
        place = _LATE_BPS if self.stage == Stage.OPEN else _SILENT_BPS
        return int(terms[place]), int(terms[_REWARD_BPS])


@dataclass
class DemandView:
    """A demand of either contract; `contract` names it.

    Attributes:
        demand: the tuple that the contract takes back.
        answer: of a session demand: (key x, key y, sealed bytes, contest until).
    """

    id: bytes
    contract: str
    demand: tuple[Any, ...]
    verifier: bytes
    first_until: int
    second_until: int
    since: bytes = b""
    stage: DemandStage = DemandStage.OPEN
    answer: tuple[int, int, bytes, int] | None = None

    @property
    def of_session(self) -> bool:
        return self.contract == "SessionDemands"

    @property
    def by(self) -> bytes:
        return bytes(self.demand[1])

    @property
    def root(self) -> bytes:
        """Of a leaf demand."""
        return bytes(self.demand[2])

    @property
    def lane(self) -> Lane:
        """Of a leaf demand."""
        return Lane(*self.demand[3])

    @property
    def seed(self) -> bytes:
        """Of a leaf demand."""
        return bytes(self.demand[4])

    @property
    def session(self) -> tuple[bytes, int, bytes, bytes, int, tuple[int, int]]:
        """Of a session demand: start hash, round, c_0, c after the last token, output tokens, and
        the demander's key."""
        start, number, prompt, context, tokens, x, y = self.demand[3:10]
        return bytes(start), int(number), bytes(prompt), bytes(context), int(tokens), (x, y)

    @property
    def bond(self) -> int:
        return int(self.demand[-1][0])

    @property
    def running(self) -> bool:
        return self.stage in (DemandStage.OPEN, DemandStage.LATE)

    @property
    def until(self) -> int:
        """The deadline that runs."""
        if self.stage == DemandStage.ANSWERED and self.answer is not None:
            return self.answer[3]
        return self.first_until if self.stage == DemandStage.OPEN else self.second_until

    @property
    def price_bps(self) -> tuple[int, int]:
        """(share of V's stake at the deadline that runs, share of that to the demander)."""
        _bond, _first, _second, late, silent, _fault, reward = self.demand[-1]
        return int(late if self.stage == DemandStage.OPEN else silent), int(reward)


@dataclass
class CaseView:
    """A case against a claim (F8)."""

    id: int
    claim_id: bytes
    drafter: bytes
    opened: tuple[Any, ...]
    since: bytes = b""
    stage: ClaimCaseStage = ClaimCaseStage.OPEN
    answered_by: bytes = bytes(20)
    refutable_until: int = 0

    @property
    def flagger(self) -> bytes:
        return bytes(self.opened[_CASE_FLAGGER])

    @property
    def bond(self) -> int:
        """What an assertion takes."""
        return int(self.opened[_CASE_TERMS][4])

    @property
    def second_until(self) -> int:
        return int(self.opened[_CASE_SECOND])

    @property
    def running(self) -> bool:
        return self.stage in (ClaimCaseStage.OPEN, ClaimCaseStage.LATE)

    @property
    def until(self) -> int:
        if self.stage == ClaimCaseStage.ANSWERED:
            return self.refutable_until
        place = _CASE_FIRST if self.stage == ClaimCaseStage.OPEN else _CASE_SECOND
        return int(self.opened[place])

    @property
    def price_bps(self) -> tuple[int, int]:
        """(share of D's stake at the deadline that runs, share of that to the flagger)."""
        late, silent, _refuted, reward, *_ = self.opened[_CASE_TERMS]
        return int(late if self.stage == ClaimCaseStage.OPEN else silent), int(reward)


@dataclass
class FilingView:
    """A commitment before FaultCourt. The chain does not say which of them a proof has used: who
    filed it knows, and `FaultCourt.filing_of` answers with a bond of zero."""

    challenger: bytes
    commitment: bytes
    bond: int
    open_from: int  # blocks
    open_until: int
    since: bytes = b""
    forfeited: bool = False


@dataclass(frozen=True)
class JudgedFault:
    """A fault that a contract has found. `where` is "proof", "opening" or "answer"."""

    where: str
    number: int
    code: int
    guilty: bytes
    by: bytes  # challenger or demander; zero for an opening
    start_hash: bytes
    round: int
    slashed: int
    block: int

    @property
    def name(self) -> bytes:
        return fault_name(self.number, self.guilty, self.start_hash, self.round)


@dataclass
class Standing:
    """What the events leave: lanes by id, batches by id, draws by (batch id, index), demands by id,
    cases by id, drafters by claim id, filings in order, what was judged, names that were punished
    (`StakeVault` punishes a name once), bonds pulled by contract and account, and every account's
    keys."""

    lanes: dict[bytes, Lane] = field(default_factory=dict)
    batches: dict[int, BatchView] = field(default_factory=dict)
    draws: dict[tuple[int, int], DrawView] = field(default_factory=dict)
    demands: dict[bytes, DemandView] = field(default_factory=dict)
    cases: dict[int, CaseView] = field(default_factory=dict)
    claims: dict[bytes, bytes] = field(default_factory=dict)
    filings: dict[tuple[bytes, bytes], FilingView] = field(default_factory=dict)
    judged: list[JudgedFault] = field(default_factory=list)
    punished: set[bytes] = field(default_factory=set)
    pulled: dict[tuple[str, bytes], int] = field(default_factory=dict)
    accounts: dict[bytes, set[bytes]] = field(default_factory=dict)

    def keys_of(self, key: bytes) -> frozenset[bytes]:
        """All keys so far of the account that `key` is or was one of: what any of them signed, the
        account answers for."""
        for keys in self.accounts.values():
            if key in keys:
                return frozenset(keys)
        return frozenset([key])

    def settlements(self) -> Iterable[tuple[BatchView, int, Entry, Lane]]:
        """Every settled root with its batch, its place in it, and its lane, oldest first."""
        for batch in self.batches.values():
            for index, entry in enumerate(batch.entries):
                lane = self.lanes.get(entry.lane)
                if lane is not None:
                    yield batch, index, entry, lane


def fold(events: Iterable[ChainEvent]) -> Standing:
    """How things stand after `events`, in chain order."""
    standing = Standing()
    batches, draws, demands = standing.batches, standing.draws, standing.demands
    # One transaction may settle several times: a registration takes what has come since the last.
    entries: list[Entry] = []
    for found in events:
        event = found.event
        if isinstance(event, LaneOpened):
            standing.lanes[event.lane] = event.parties
        elif isinstance(event, LaneSettled):
            if event.drawable:
                entry = Entry(event.lane, event.root, event.figures)
                entries.append(entry)
        elif isinstance(event, BatchRegistered):
            batch = BatchView(tuple(event.batch), tuple(entries), found.block_number)
            batches[event.batch_id] = batch
            entries.clear()
        elif isinstance(event, BatchReanchored):
            view = batches[event.batch_id]
            view.batch = _with(view.batch, _TARGET, event.target_block)
        elif isinstance(event, RandomnessCaptured):
            view = batches[event.batch_id]
            view.batch = _with(view.batch, _RANDOMNESS, event.randomness)
        elif isinstance(event, LaneDrawn):
            drawn = DrawView(
                event.draw,
                event.verifier,
                event.first_until,
                event.second_until,
                found.block_hash,
            )
            draws[drawn.key] = drawn
        elif isinstance(event, PositionOpened):
            draws[event.batch_id, event.index].opened.add(event.sample)
        elif isinstance(event, DrawMoved):
            draws[event.batch_id, event.index].stage = Stage(event.stage)
        elif isinstance(event, Demanded | SessionDemanded):
            demands[event.id] = DemandView(
                event.id,
                found.contract,
                event.demand,
                event.verifier,
                event.first_until,
                event.second_until,
                found.block_hash,
            )
        elif isinstance(event, DemandMoved):
            demands[event.id].stage = DemandStage(event.stage)
        elif isinstance(event, SessionAnswered):
            demands[event.id].answer = (
                event.key_x,
                event.key_y,
                event.sealed_text,
                event.contest_until,
            )
        else:
            _judge(standing, found)
    return standing


def _judge(standing: Standing, found: ChainEvent) -> None:
    """Keys, cases, filings, faults and punishments."""
    event, cases = found.event, standing.cases
    if isinstance(event, AccountOpened):
        standing.accounts[event.account] = {event.account}
    elif isinstance(event, KeyRotated):
        standing.accounts[event.account].add(event.key)
    elif isinstance(event, ClaimRegistered):
        standing.claims[event.claim_id] = event.drafter
    elif isinstance(event, CaseOpened):
        case = CaseView(event.case_id, event.claim_id, event.drafter, event.opened)
        case.since = found.block_hash
        cases[event.case_id] = case
    elif isinstance(event, CaseAnswered):
        case = cases[event.case_id]
        case.stage, case.answered_by = ClaimCaseStage.ANSWERED, event.by
        case.refutable_until = event.refutable_until
    elif isinstance(event, CaseMoved):
        cases[event.case_id].stage = ClaimCaseStage(event.stage)
    elif isinstance(event, Filed):
        standing.filings[event.challenger, event.commitment] = FilingView(
            event.challenger,
            event.commitment,
            event.bond,
            event.open_from,
            event.open_until,
            found.block_hash,
        )
    elif isinstance(event, BondForfeited):
        standing.filings[event.challenger, event.commitment].forfeited = True
    elif isinstance(event, BondPulled):
        _pulled(standing, found.contract, event.challenger)
    elif isinstance(event, OtherEvent) and event.name in ("BondPulled", "BondPaid"):
        _pulled(standing, found.contract, bytes(event.arguments["account"]))
    elif isinstance(event, StakeSlashed):
        standing.punished.add(event.fault)
    else:
        judged = _judged(standing, found)
        if judged is not None:
            standing.judged.append(judged)


def _pulled(standing: Standing, contract: str, account: bytes) -> None:
    key = (contract, account)
    standing.pulled[key] = standing.pulled.get(key, 0) + 1


def _judged(standing: Standing, found: ChainEvent) -> JudgedFault | None:
    event = found.event
    if isinstance(event, FaultProven):
        place = (event.start_hash, event.round, event.slashed[0], found.block_number)
        return JudgedFault("proof", event.fault, event.code, event.guilty, event.challenger, *place)
    if not isinstance(event, FaultShown | AnswerFaulty):
        return None
    by, where = bytes(20), "opening"
    if isinstance(event, AnswerFaulty):
        by, where = standing.demands[event.id].by, "answer"
    place = (event.start_hash, event.round, 0, found.block_number)
    return JudgedFault(where, number_of(event.code), event.code, event.guilty, by, *place)


def _with(batch: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*batch[:place], value, *batch[place + 1 :])
