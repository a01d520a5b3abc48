"""Tickets of `SampleAudits`: what is due of who has sealed one, and of the auditors who answer it.
Beside `panel_watch`, which commits and reveals their answers. Pure but for what it asks the chain.

A ticket names a drawn token of a settled batch, or a canary; until all auditors have committed,
only its holder knows which. The holder enters it with a bond, has its jury seated, opens it, and
sees the audit through; of a canary that somebody has passed, up to the panel and the slash. An
auditor that nobody leads on takes those steps itself, each at a moment of its own, and pulls what
it is paid. Nothing is remembered but what transactions say: what is to do is what is not done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

from settlement import panels
from settlement.chain.contracts import Contracts, Role
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import AuditStage, CaseStage, JuryStage, TicketKind
from settlement.chain.panel_standing import JuryView, PanelStanding, TicketView, fold_panel
from settlement.chain.standing import BatchView, Standing
from settlement.duties import Action, Bond, Duty, Lack, Now, Plan, Price
from settlement.hashing import keccak256, uint
from settlement.panel_dues import dismissals
from settlement.panel_watch import PanelPolicy

# Places in IAuditTerms.Terms and its spans, and in ISampleAudits.Audit.
_BOND, _SIZE, _LATE, _SILENT, _PASSED, _REWARD, _PLANTED = 0, 1, 2, 3, 4, 5, 6
_SPANS, _SEAT, _COMMIT, _OPEN = 8, 0, 1, 2
_FIRST_UNTIL, _IS_LATE, _SHARE, _FEE, _MEASURE = 7, 9, 13, 14, 15
_FEES_HELD = 2  # in LaneEscrow.accounting
_HALF: Final = (1 << 96) - 1  # of an entry's figures: what a payee was paid


@dataclass(frozen=True)
class Ticket:
    """What this node has sealed or will seal, as its journal has it.

    Attributes:
        text: hash of all that is delivered, which names the ticket.
        batch_id, index, sample, place: of a drawn token, with `panels.place_of`.
        canary: ISampleAudits.Canary in the ABI's order.
    """

    kind: TicketKind
    salt: bytes
    model: bytes
    text: bytes
    batch_id: int = 0
    index: int = 0
    sample: int = 0
    place: tuple[Any, ...] = ()
    canary: tuple[Any, ...] = ()

    @cached_property
    def sealed(self) -> bytes:
        """`SampleAudits.ticketOf`: 32 bytes."""
        if self.kind == TicketKind.CANARY:
            content = panels.canary_content(self.canary)
        else:
            content = panels.drawn_content(self.batch_id, self.index, self.sample)
        return panels.ticket(self.kind, content, self.salt)


class Drawer(Protocol):
    """Where a node keeps its tickets."""

    def tickets(self) -> Sequence[Ticket]: ...


class TicketWatch:
    """One key's part in all tickets. Remembers only what never changes, and what it has looked at
    for nothing."""

    def __init__(self) -> None:
        self._texts: dict[bytes, bytes] = {}  # by transaction
        self._punished: set[str] = set()  # canaries all of whose passers have paid
        self._unpaid: set[tuple[str, bytes]] = set()  # ended audits that owe a member nothing

    def plan(
        self,
        contracts: Contracts,
        key: bytes,
        mine: frozenset[bytes],
        drawer: Drawer,
        events: Iterable[ChainEvent],
        standing: Standing,
        now: Now,
        policy: PanelPolicy,
    ) -> Plan:
        """What is due, under all keys `mine` that the account of `key` has had."""
        plan, found = Plan(), fold_panel(events)
        held = {ticket.text: ticket for ticket in drawer.tickets()}
        entered: set[bytes] = set()
        concerned: list[TicketView] = []
        running = 0  # tickets of this key's that fees will have to pay for
        for view in found.tickets.values():
            leads, jury = view.by in mine, found.juries[view.jury]
            if leads or mine & set(jury.members):
                concerned.append(view)
            elif jury.seated or not _has_seat(found, mine, view.model):
                continue
            ticket = None
            if leads:
                text = self._text(contracts, view)
                ticket = None if text is None else held.get(text)
                entered |= {text} if text else set()
            if view.ended:
                continue
            running += ticket is not None and ticket.kind == TicketKind.DRAWN
            step = _Step(contracts, key, view, found, now, policy, leads)
            with plan.apart(Action.NAME, step.about, step.open_until):
                step.take(plan, ticket, standing)
        waiting = [
            ticket
            for ticket in held.values()
            if ticket.text not in entered and _is_open(ticket, standing, now)
        ]
        terms = contracts.audit_terms.terms() if waiting else ()
        for ticket in waiting:
            with plan.apart(Action.ENTER, _name(ticket), 0):
                running += self._enter(
                    *(plan, contracts, terms, ticket, standing, now, policy, running)
                )
        for view in concerned:
            with plan.apart(Action.COLLECT, f"audit {view.id}", 0):
                plan.duties += self._dues(contracts, mine, found, view)
        with plan.apart(Action.COLLECT, "bonds in SampleAudits", 0):
            plan.duties += _pulls(contracts, mine, concerned, standing)
        return plan

    def _text(self, contracts: Contracts, view: TicketView) -> bytes | None:
        found = self._texts.get(view.transaction)
        if found is None:
            found = contracts.audits.text_of(view.transaction)
            if found is not None:
                self._texts[view.transaction] = found
        return found

    # ------------------------------------------------------------ entering

    def _enter(
        self,
        plan: Plan,
        contracts: Contracts,
        terms: tuple[Any, ...],
        ticket: Ticket,
        standing: Standing,
        now: Now,
        policy: PanelPolicy,
        running: int,
    ) -> int:
        """Seals a ticket; 1 where that is due. Not where it might be too late to open it, which
        would cost the bond, and not where no fees are left for its auditors."""
        until = None
        bond = Bond(contracts.audits.address, int(terms[_BOND]))
        if bond.amount > policy.bond:
            reason = f"entering a ticket takes {bond.amount} token units as a bond, "
            reason += f"and panel.accuse_tokens allows {policy.bond}"
            plan.lacks.append(Lack(Action.ENTER, _name(ticket), 0, reason))
            return 0
        if ticket.kind == TicketKind.DRAWN:
            content = panels.drawn_content(ticket.batch_id, ticket.index, ticket.sample)
            # Somebody else has had it audited: a second ticket for a token loses its bond.
            if contracts.audits.audit_of_token(content):
                return 0
            batch = standing.batches[ticket.batch_id]
            spans = terms[_SPANS]
            until = batch.evidence_until - spans[_SEAT] - spans[_COMMIT] - spans[_OPEN] // 4
            if now.time > until or not self._pays(contracts, batch, ticket, terms, running):
                return 0
        call = contracts.audits.enter(ticket.sealed, ticket.model, ticket.text)
        intent = f"ticket-enter:{ticket.sealed.hex()}"
        plan.duties.append(Duty(Action.ENTER, _name(ticket), intent, call, until, bond))
        return 1

    def _pays(
        self,
        contracts: Contracts,
        batch: BatchView,
        ticket: Ticket,
        terms: tuple[Any, ...],
        running: int,
    ) -> bool:
        """Whether the fees held pay the auditors of this token too (`SampleAudits.name`)."""
        token, figures = contracts.token.address, batch.entries[ticket.index].figures
        value = (figures & _HALF) + (figures >> 96 & _HALF)
        most = value * contracts.escrow.parameters().fee_bps // 10_000
        fee = min(contracts.audit_terms.fee_of(token), most // int(terms[_SIZE]))
        held = int(contracts.escrow.view("accounting", token)[_FEES_HELD])
        fee *= int(terms[_SIZE])
        return 0 < fee * (1 + running) <= held

    # ------------------------------------------------------------ what audits leave

    def _dues(
        self, contracts: Contracts, mine: frozenset[bytes], found: PanelStanding, view: TicketView
    ) -> Iterator[Duty]:
        jury, about = found.juries[view.jury], f"audit {view.id}"
        wrong = view.by in mine and view.stage == AuditStage.WRONG
        if wrong and view.question not in self._punished:
            yield from self._punishments(contracts, mine, view, jury, about)
        if not view.ended:
            return
        yield from dismissals(contracts, mine, jury, about)
        for member in sorted(mine & set(jury.members)):
            mark = (view.question, member)
            if member not in jury.committed or member in view.paid or mark in self._unpaid:
                continue
            if not owed(contracts, view, jury, member):
                self._unpaid.add(mark)
                continue
            call = contracts.audits.pay(view.id, member)
            intent = f"audit-pay:{view.id}:{member.hex()[:12]}:{view.since[:6].hex()}"
            yield Duty(Action.COLLECT, about, intent, call)

    def _punishments(
        self,
        contracts: Contracts,
        mine: frozenset[bytes],
        view: TicketView,
        jury: JuryView,
        about: str,
    ) -> Iterator[Duty]:
        """Who has passed a canary that the panel has found wrong pays for it (F10)."""
        measure = _measure(contracts, view)
        answers = contracts.juries.answers_of(jury.id)
        passed = [
            member
            for member, answer in zip(jury.members, answers, strict=True)
            if answer.revealed and not answer.withheld and panels.passes(answer, measure)
        ]
        if view.punished | mine >= set(passed):
            self._punished.add(view.question)
        for member in passed:
            if member in view.punished | mine:
                continue
            call = contracts.audits.punish(view.id, member)
            intent = f"audit-punish:{view.id}:{member.hex()[:12]}:{view.since[:6].hex()}"
            price = Price(member, Role.AUDITOR, view.terms[_PASSED], view.terms[_PLANTED])
            yield Duty(Action.EXPIRE, about, intent, call, price=price)


class _Step:
    """The next step of one audit that has not ended."""

    def __init__(
        self,
        contracts: Contracts,
        key: bytes,
        view: TicketView,
        found: PanelStanding,
        now: Now,
        policy: PanelPolicy,
        leads: bool,
    ) -> None:
        self.contracts, self.view, self.found, self.now = contracts, view, found, now
        self.jury, self._policy, self._leads = found.juries[view.jury], policy, leads
        self.about = f"audit {view.id}"
        self.open_until = self.jury.summoned.commit_until + view.open_span
        draw = int.from_bytes(keccak256(key, b"ticket", uint(view.id, 8))[:4], "big")
        # Who leads acts at once, and each auditor at a moment of its own.
        self._patience = 0.0 if leads else policy.patience * (0.25 + 0.75 * draw / 2**32)

    def take(self, plan: Plan, ticket: Ticket | None, standing: Standing) -> None:
        """Adds the step, if it is due by now."""
        view, jury, now = self.view, self.jury, self.now
        if view.stage == AuditStage.SEALED:
            if not jury.seated and now.time <= jury.summoned.seat_until:
                self._seat(plan)
            elif now.time > self.open_until:
                self._do(plan, "lapse", self.open_until, Action.CONCLUDE)
            elif jury.is_closed(now.time) and self._leads:
                self._open(plan, ticket, standing)
        elif view.stage == AuditStage.NAMED:
            self._expire(plan)
        elif view.stage in (AuditStage.OPENED, AuditStage.PLANTED):
            if jury.is_over(now.time):
                self._do(plan, "finish", min(now.time, jury.reveal_until), Action.DECIDE)
        elif view.stage == AuditStage.PASSED:
            self._passed(plan, ticket)
        elif view.stage == AuditStage.REFERRED:
            case = self.found.cases.get(view.case)
            if case is not None and case.stage == CaseStage.CLOSED:
                self._do(plan, "conclude", now.time - self._patience, Action.CONCLUDE)

    def _seat(self, plan: Plan) -> None:
        """Who has entered it may be away, or wait for a draw that it likes better."""
        juries, jury = self.contracts.juries, self.jury
        since = jury.summoned.seat_until - self.view.seat_span
        if self.now.block <= jury.target or self.now.time < since + self._patience:
            return
        if juries.jury_of(jury.id).stage != JuryStage.SUMMONED:
            return
        intent, until = f"jury-seat:{jury.id}:{jury.target}", jury.summoned.seat_until
        plan.duties.append(Duty(Action.SEAT, self.about, intent, juries.seat(jury.id), until))

    def _open(self, plan: Plan, ticket: Ticket | None, standing: Standing) -> None:
        """Says what was sealed, as nobody can commit any more."""
        contracts, until = self.contracts, self.open_until
        if ticket is None:
            reason = "what this ticket has sealed is not in this journal: its bond is lost"
            plan.lacks.append(Lack(Action.NAME, self.about, until, reason))
            return
        if not contracts.juries.is_closed(self.jury.id):
            return
        audits, number = contracts.audits, self.view.id
        if ticket.kind == TicketKind.CANARY:
            call = audits.plant(number, ticket.salt, ticket.canary)
        else:
            batch = standing.batches.get(ticket.batch_id)
            if batch is None:
                reason = "the batch is not on the chain any more: its bond is lost"
                plan.lacks.append(Lack(Action.NAME, self.about, until, reason))
                return
            until = min(until, batch.evidence_until)
            source = (batch.batch, batch.packed(), ticket.index)
            place = contracts.place_rule.verdict_question(ticket.place, source)
            call = audits.name(number, ticket.salt, ticket.sample, place)
        mark = keccak256(call.data)[:6].hex()
        intent = f"ticket-open:{number}:{self.view.since[:6].hex()}:{mark}"
        plan.duties.append(Duty(Action.NAME, self.about, intent, call, until))

    def _expire(self, plan: Plan) -> None:
        """V has not opened its fingerprint in time."""
        view, named = self.view, self.view.named
        assert named is not None
        late = self.now.time > named.second_until
        until = named.second_until if late else named.first_until
        if self.now.time <= until + self._patience:
            return
        audit = self.contracts.audits.audit_of(view.id)
        if AuditStage(audit[1]) != AuditStage.NAMED or (audit[_IS_LATE] and not late):
            return
        # A second deadline that has passed with the first uncalled takes two calls.
        bps = view.terms[_SILENT if audit[_IS_LATE] else _LATE]
        intent = f"audit-expire:{view.id}:{view.since[:6].hex()}:{int(audit[_IS_LATE])}"
        price = Price(named.verifier, Role.VERIFIER, bps, view.terms[_REWARD])
        call = self.contracts.audits.expire(view.id)
        # The last one ends the audit, which its auditors wait for.
        duty = Duty(Action.EXPIRE, self.about, intent, call, price=None if late else price)
        plan.duties.append(duty)

    def _passed(self, plan: Plan, ticket: Ticket | None) -> None:
        """Some have passed the canary: its planter stands by it before the panel, or loses its
        bond."""
        contracts, view = self.contracts, self.view
        until = int(contracts.audits.audit_of(view.id)[_FIRST_UNTIL])
        if self.now.time > until:
            self._do(plan, "conclude", until, Action.CONCLUDE)
        elif ticket is not None:
            call = contracts.audits.refer(view.id, ticket.canary)
            bond = Bond(contracts.panel.address, contracts.panel_terms.bond())
            if bond.amount > self._policy.bond:
                reason = f"taking a canary to the panel takes {bond.amount} token units as a bond, "
                reason += f"and panel.accuse_tokens allows {self._policy.bond}"
                plan.lacks.append(Lack(Action.ACCUSE, self.about, until, reason))
                return
            intent = f"canary-refer:{view.id}:{view.since[:6].hex()}"
            plan.duties.append(Duty(Action.ACCUSE, self.about, intent, call, until, bond))

    def _do(self, plan: Plan, function: str, since: float, action: Action) -> None:
        """What anybody may have done."""
        if self.now.time < since + self._patience:
            return
        audits, view = self.contracts.audits, self.view
        if audits.stage_of(view.id) != view.stage:
            return  # somebody's step is mined, and not confirmed yet
        call = getattr(audits, function)(view.id)
        intent = f"audit-{function}:{view.id}:{view.since[:6].hex()}:{int(view.stage)}"
        plan.duties.append(Duty(action, self.about, intent, call))


def _name(ticket: Ticket) -> str:
    return f"ticket 0x{ticket.sealed.hex()[:12]}"


def _is_open(ticket: Ticket, standing: Standing, now: Now) -> bool:
    """Whether there is any time left to enter it; a batch may be undone by a reorganisation."""
    if ticket.kind == TicketKind.CANARY:
        return True
    batch = standing.batches.get(ticket.batch_id)
    return batch is not None and now.time <= batch.evidence_until


def _has_seat(found: PanelStanding, mine: frozenset[bytes], model: bytes) -> bool:
    """Whether a key of `mine` may be drawn for the model."""
    return any(found.seats.get((model, who), (0, 0))[0] for who in mine)


def _measure(contracts: Contracts, view: TicketView) -> panels.Measure:
    """What answers are held against."""
    return panels.Measure(*contracts.audits.audit_of(view.id)[_MEASURE])


def owed(contracts: Contracts, view: TicketView, jury: JuryView, member: bytes) -> bool:
    """Whether `SampleAudits.pay` would pay the member anything."""
    audits = contracts.audits
    if audits.is_paid(view.id, member):
        return False
    audit = audits.audit_of(view.id)
    if not audit[_FEE]:
        return bool(audit[_SHARE]) and (member in jury.revealed or not jury.opened)
    answers = contracts.juries.answers_of(jury.id)
    mine = answers[jury.members.index(member)]
    others = [answer for answer in answers if answer is not mine]
    return panels.agrees(mine, others, panels.Measure(*audit[_MEASURE]))


def _pulls(
    contracts: Contracts,
    mine: frozenset[bytes],
    concerned: Sequence[TicketView],
    standing: Standing,
) -> Iterator[Duty]:
    """Bonds that have come back, and shares of those that others have lost."""
    accounts = {who for view in concerned for who in (view.by, *view.paid) if who in mine}
    for account in sorted(accounts):
        if contracts.audits.bond_of(account):
            count = standing.pulled.get(("SampleAudits", account), 0)
            intent = f"{Action.PULL}:SampleAudits:{account.hex()[:12]}:{count}"
            call = contracts.audits.pull_bond(account)
            yield Duty(Action.COLLECT, "bonds in SampleAudits", intent, call)
