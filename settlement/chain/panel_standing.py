"""How the panel's cases, their juries and the auditors' seats stand after confirmed events.

As `standing.fold`: the events in chain order go in, nothing is remembered between calls, so that a
restart needs no memory and a reorganisation leaves none. Charges are kept as the events carried
them, in the ABI's order, for that is what the contracts take back. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from settlement.chain.contracts import Role
from settlement.chain.events import ModelServed
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import (
    WRONG_CANARY,
    WRONG_DRAFT,
    WRONG_TARGET,
    AuditStage,
    CaseStage,
    Jury,
)
from settlement.chain.panel_events import (
    AnswerCommitted,
    AnswerRevealed,
    AuditMoved,
    AuditorPaid,
    CanaryOpened,
    CanaryPassed,
    CanaryReferred,
    CaseAppealed,
    CaseClosed,
    CaseDecided,
    CaseFiled,
    JurorPaid,
    JuryCancelled,
    JuryOpened,
    JuryReanchored,
    JurySeated,
    JurySummoned,
    MemberDismissed,
    PrintOpened,
    SeatChanged,
    TicketEntered,
    TokenNamed,
)
from settlement.hashing import keccak256, uint
from settlement.panels import Result

# Places in IAuditPanel.Charge, in IPlaceRule.Subject and in IPanelTerms.Terms.
_FAULT, _SUBJECT, _EXACT, _BOND, _FEE, _TERMS = 1, 4, 5, 8, 9, 11
_ROOT, _LANE, _CLIENT, _DRAFTER, _VERIFIER, _MODEL = 0, 1, 2, 3, 4, 7
_START, _ROUND, _WITHIN, _RECORD, _SEALED = 8, 9, 10, 13, 14
_SPANS, _COMMIT = 9, 1
_TICKET_SPANS = 8  # in IAuditTerms.Terms


@dataclass(frozen=True)
class Subject:
    """IPlaceRule.Subject by name: what auditors are asked about, in the ABI's order."""

    words: tuple[Any, ...]

    @property
    def root(self) -> bytes:
        return bytes(self.words[_ROOT])

    @property
    def lane(self) -> bytes:
        return bytes(self.words[_LANE])

    @property
    def client(self) -> bytes:
        return bytes(self.words[_CLIENT])

    @property
    def drafter(self) -> bytes:
        return bytes(self.words[_DRAFTER])

    @property
    def verifier(self) -> bytes:
        return bytes(self.words[_VERIFIER])

    @property
    def model(self) -> bytes:
        return bytes(self.words[_MODEL])

    @property
    def start_hash(self) -> bytes:
        return bytes(self.words[_START])

    @property
    def round(self) -> int:
        return int(self.words[_ROUND])

    @property
    def within(self) -> int:
        return int(self.words[_WITHIN])

    @property
    def record(self) -> bytes:
        """Leaf hash of the round record."""
        return bytes(self.words[_RECORD])

    @property
    def sealed_print(self) -> bytes:
        return bytes(self.words[_SEALED])


@dataclass
class JuryView:
    """A jury as its events tell of it. `since` is the hash of the block that seated it: after a
    reorganisation the same number may be another jury."""

    id: int
    court: bytes
    summoned: Jury
    since: bytes = b""
    members: tuple[bytes, ...] = ()
    committed: dict[bytes, bytes] = field(default_factory=dict)  # member → commitment
    revealed: set[bytes] = field(default_factory=set)
    dismissed: set[bytes] = field(default_factory=set)
    reveal_until: int = 0
    target: int = 0
    opened: bool = False
    cancelled: bool = False

    @property
    def seated(self) -> bool:
        return bool(self.since)

    @property
    def waits(self) -> bool:
        """For the accused's fingerprint, before anything may be revealed."""
        return self.summoned.waits and not self.opened

    def is_closed(self, now: int) -> bool:
        """Whether nobody can commit any more."""
        everybody = len(self.committed) == len(self.members)
        return self.seated and (everybody or now > self.summoned.commit_until)

    def is_over(self, now: int) -> bool:
        """Whether the court may judge its answers (`Juries.isOver`)."""
        if self.cancelled:
            return True
        if not self.seated:
            return now > self.summoned.seat_until
        if not self.is_closed(now):
            return False
        if not self.committed:
            return True
        if self.waits:
            return False
        return len(self.revealed) == len(self.committed) or now > self.reveal_until

    def answered(self, member: bytes) -> bool:
        """Whether the member has done what pay is for."""
        return member in (self.committed if self.cancelled else self.revealed)

    def silent(self) -> tuple[bytes, ...]:
        """Who was asked and has not answered, once it is over."""
        return tuple(member for member in self.members if not self.answered(member))


@dataclass
class PanelCase:
    """A case before the panel. `since` is the hash of the block that filed it."""

    id: int
    accused: bytes
    accuser: bytes
    charge: tuple[Any, ...]
    since: bytes
    panel: int  # jury ids; zero: none
    appeal: int = 0
    stage: CaseStage = CaseStage.PANEL
    result: Result = Result.NONE
    appeal_until: int = 0
    appellant: bytes = bytes(20)
    printed: bool = False
    slashed: int = 0
    paid: list[bytes] = field(default_factory=list)  # jurors, once a jury

    @property
    def fault(self) -> int:
        return int(self.charge[_FAULT])

    @property
    def of_target(self) -> bool:
        return self.fault == WRONG_TARGET

    @property
    def of_draft(self) -> bool:
        return self.fault == WRONG_DRAFT

    @property
    def of_canary(self) -> bool:
        return self.fault == WRONG_CANARY

    @property
    def subject(self) -> Subject:
        return Subject(tuple(self.charge[_SUBJECT]))

    @property
    def exact(self) -> bool:
        return bool(self.charge[_EXACT])

    @property
    def bond(self) -> int:
        return int(self.charge[_BOND])

    @property
    def fee(self) -> int:
        return int(self.charge[_FEE])

    @property
    def commit_span(self) -> int:
        """Seconds that a jury has for its answers."""
        return int(self.charge[_TERMS][_SPANS][_COMMIT])

    def open_until(self, jury: JuryView) -> int:
        """Unix seconds until which the accused may open its fingerprint to that jury."""
        _seat, commit, opening, _reveal = self.charge[_TERMS][_SPANS]
        return jury.summoned.seat_until + int(commit) + int(opening)

    @property
    def jury(self) -> int:
        """The one that sits, or sat last."""
        return self.appeal or self.panel

    @property
    def running(self) -> bool:
        return self.stage in (CaseStage.PANEL, CaseStage.APPEAL)

    @property
    def is_void(self) -> bool:
        """Whether it has ended without a verdict."""
        return self.stage == CaseStage.CLOSED and self.result == Result.VOID

    @property
    def guilty(self) -> bool:
        return self.result in (Result.GUILTY, Result.WITHHELD)

    @property
    def place(self) -> bytes:
        """Names what is asked: 32 bytes."""
        return place_name(
            self.fault, self.subject.start_hash, self.subject.round, self.subject.within
        )

    def question(self, jury: int) -> str:
        """Names the question to one jury. A number that a reorganisation gives to another question
        has another name, so that no journalled answer is given to it."""
        subject = self.subject
        about = subject.sealed_print if self.of_canary else subject.root
        mark = keccak256(self.place, about, subject.model, uint(self.id, 8))
        return f"{jury}:{mark.hex()}"


@dataclass
class TicketView:
    """An audit of `SampleAudits`, by its ticket. `transaction` entered it, in the block `since`."""

    id: int
    by: bytes
    model: bytes
    jury: int
    terms: tuple[Any, ...]
    transaction: bytes
    since: bytes
    stage: AuditStage = AuditStage.SEALED
    result: Result = Result.NONE
    named: TokenNamed | None = None
    canary: tuple[Any, ...] | None = None
    case: int = 0  # of the canary, before the panel; zero: none
    paid: set[bytes] = field(default_factory=set)
    punished: set[bytes] = field(default_factory=set)

    @property
    def commit_span(self) -> int:
        """Seconds that auditors have for their answers."""
        return int(self.terms[_TICKET_SPANS][1])

    @property
    def seat_span(self) -> int:
        """Seconds to have the jury seated."""
        return int(self.terms[_TICKET_SPANS][0])

    @property
    def open_span(self) -> int:
        """Seconds that its holder has to open the ticket, once that time is over."""
        return int(self.terms[_TICKET_SPANS][2])

    @property
    def question(self) -> str:
        """As `PanelCase.question`: what the journal calls the answer. A reorganisation that mines
        the same transaction again asks nothing new: what was committed stays good."""
        return f"ticket:{self.id}:{self.transaction.hex()}"

    @property
    def ended(self) -> bool:
        return self.stage in (AuditStage.WRONG, AuditStage.DONE)


def place_name(fault: int, start_hash: bytes, round_: int, within: int) -> bytes:
    """keccak256(uint8 fault ‖ start hash ‖ uint32 round ‖ uint32 within)."""
    return keccak256(uint(fault, 1), start_hash, uint(round_, 4), uint(within, 4))


@dataclass
class PanelStanding:
    """Cases, juries and tickets by id; (weight, changes so far) of seats by (model, account); and
    the models that an account serves as an auditor."""

    cases: dict[int, PanelCase] = field(default_factory=dict)
    juries: dict[int, JuryView] = field(default_factory=dict)
    tickets: dict[int, TicketView] = field(default_factory=dict)
    seats: dict[tuple[bytes, bytes], tuple[int, int]] = field(default_factory=dict)
    serves: dict[bytes, set[bytes]] = field(default_factory=dict)

    def jury_of(self, case: PanelCase) -> JuryView:
        """The one that sits, or sat last."""
        return self.juries[case.jury]

    def sat(self, case: PanelCase) -> Iterator[tuple[bool, JuryView]]:
        """(of the appeal?, jury) of all that a case has had."""
        for of_appeal, number in ((False, case.panel), (True, case.appeal)):
            if number:
                yield of_appeal, self.juries[number]

    def sitting(self, accounts: frozenset[bytes]) -> Iterator[tuple[PanelCase, JuryView, bytes]]:
        """Running cases before a seated jury of which one of the accounts is a member, which is
        given beside them."""
        for case in self.cases.values():
            jury = self.jury_of(case)
            if case.running and jury.seated and not jury.cancelled:
                for member in jury.members:
                    if member in accounts:
                        yield case, jury, member

    def auditing(self, accounts: frozenset[bytes]) -> Iterator[tuple[TicketView, JuryView, bytes]]:
        """The same of tickets that have not ended: ticket, seated jury, member."""
        for ticket in self.tickets.values():
            jury = self.juries[ticket.jury]
            if jury.seated and not jury.cancelled and not ticket.ended:
                for member in jury.members:
                    if member in accounts:
                        yield ticket, jury, member


def fold_panel(events: Iterable[ChainEvent]) -> PanelStanding:
    """How things stand after `events`, in chain order."""
    standing = PanelStanding()
    last = 0  # the jury that was summoned last
    for found in events:
        event = found.event
        if isinstance(event, JurySummoned):
            jury = Jury.of(tuple(event.jury))
            view = JuryView(event.jury_id, bytes(event.court), jury)
            view.reveal_until, view.target = jury.reveal_until, jury.target
            standing.juries[event.jury_id] = view
            last = event.jury_id
        elif isinstance(event, CaseFiled):
            # Filing summons: the jury's own event comes before the case's, in one transaction.
            standing.cases[event.case_id] = PanelCase(
                event.case_id,
                bytes(event.accused),
                bytes(event.accuser),
                tuple(event.charge),
                found.block_hash,
                last,
            )
        elif isinstance(event, TicketEntered):
            standing.tickets[event.audit_id] = TicketView(
                event.audit_id,
                bytes(event.by),
                bytes(event.model),
                event.jury_id,
                tuple(event.terms),
                found.transaction,
                found.block_hash,
            )
        elif isinstance(event, ModelServed):
            if event.role == Role.AUDITOR:
                served = standing.serves.setdefault(bytes(event.account), set())
                (served.add if event.served else served.discard)(bytes(event.model))
        elif isinstance(event, SeatChanged):
            key = (bytes(event.model), bytes(event.account))
            _, changes = standing.seats.get(key, (0, 0))
            standing.seats[key] = (event.weight, changes + 1)
        else:
            _jury_event(standing, found)
            _case_event(standing, event)
            _ticket_event(standing, event)
    return standing


def _ticket_event(standing: PanelStanding, event: object) -> None:
    if isinstance(event, TokenNamed):
        ticket = standing.tickets[event.audit_id]
        ticket.stage, ticket.named = AuditStage.NAMED, event
    elif isinstance(event, CanaryOpened):
        ticket = standing.tickets[event.audit_id]
        ticket.stage, ticket.canary = AuditStage.PLANTED, tuple(event.canary)
    elif isinstance(event, CanaryReferred):
        standing.tickets[event.audit_id].case = event.case_id
    elif isinstance(event, AuditMoved):
        ticket = standing.tickets[event.audit_id]
        ticket.stage, ticket.result = AuditStage(event.stage), Result(event.result)
    elif isinstance(event, CanaryPassed):
        standing.tickets[event.audit_id].punished.add(bytes(event.auditor))
    elif isinstance(event, AuditorPaid):
        standing.tickets[event.audit_id].paid.add(bytes(event.auditor))


def _jury_event(standing: PanelStanding, found: ChainEvent) -> None:
    event, juries = found.event, standing.juries
    if isinstance(event, JurySeated):
        jury = juries[event.jury_id]
        jury.members = tuple(bytes(member) for member in event.members)
        jury.since = found.block_hash
    elif isinstance(event, JuryReanchored):
        juries[event.jury_id].target = event.target
    elif isinstance(event, AnswerCommitted):
        juries[event.jury_id].committed[bytes(event.member)] = bytes(event.commitment)
    elif isinstance(event, AnswerRevealed):
        juries[event.jury_id].revealed.add(bytes(event.member))
    elif isinstance(event, MemberDismissed):
        juries[event.jury_id].dismissed.add(bytes(event.member))
    elif isinstance(event, JuryOpened):
        juries[event.jury_id].opened = True
        juries[event.jury_id].reveal_until = event.reveal_until
    elif isinstance(event, JuryCancelled):
        juries[event.jury_id].cancelled = True


def _case_event(standing: PanelStanding, event: object) -> None:
    if isinstance(event, PrintOpened):
        standing.cases[event.case_id].printed = True
    elif isinstance(event, CaseDecided):
        case = standing.cases[event.case_id]
        # Without a deadline for an appeal the case is over, or goes on by itself.
        if event.appeal_until:
            case.stage, case.result = CaseStage.DECIDED, Result(event.result)
            case.appeal_until = event.appeal_until
    elif isinstance(event, CaseAppealed):
        case = standing.cases[event.case_id]
        case.stage, case.appeal = CaseStage.APPEAL, event.jury_id
        case.appellant = bytes(event.appellant)
    elif isinstance(event, CaseClosed):
        case = standing.cases[event.case_id]
        case.stage, case.result = CaseStage.CLOSED, Result(event.result)
        case.slashed = event.slashed
    elif isinstance(event, JurorPaid):
        standing.cases[event.case_id].paid.append(bytes(event.juror))
