"""A node's part in cases and audits, and what is due of it by now. Beside `watcher`: its plan joins
that one at every look. Pure but for what it asks the contracts.

The accused opens its fingerprint in time, both sides move their case on and appeal a verdict that
goes against them, a juror commits to the answer that is in its journal and reveals it, who has
found a fault that only a panel can judge files it, an auditor keeps its seat at what its stake
weighs, and everybody pulls what is due. Nothing is remembered: what is still to do is what the
chain says is not done. What depends on a block that may be undone carries its hash in its intent.

Tickets of `SampleAudits` are entered and seen through by `ticket_watch`; here their auditors commit
and reveal. Who has no answer says that nothing was delivered, for silence would cost stake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from settlement import panels
from settlement.audit_watch import Prints, show_named
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import Reverted
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import WRONG_TARGET, CaseStage, JuryStage
from settlement.chain.panel_standing import (
    JuryView,
    PanelCase,
    PanelStanding,
    TicketView,
    fold_panel,
    place_name,
)
from settlement.chain.standing import Standing
from settlement.duties import Action, Bond, Duty, Lack, Now, Plan, Price
from settlement.fault_proofs import fault_name
from settlement.hashing import keccak256, uint
from settlement.panel_dues import dues
from settlement.panels import Answer

_TOKEN, _SETTLED_AT, _UNTIL = 5, 20, 21  # places in IPlaceRule.Subject
_ACCUSE_GAS: Final = 1_500_000
# Of the stake accused, what its owner puts down to appeal: a twentieth is asked under the terms
# that are deployed, twice that where the place had been cleared once.
APPEAL_SHARE: Final = 8


@dataclass(frozen=True)
class Sealed:
    """A juror's answer with the salt that hides it, as its journal has them."""

    answer: Answer
    salt: bytes


@dataclass(frozen=True)
class Suspect:
    """A token or a draft of a settled root, found false by this node where no contract can judge.

    Attributes:
        guilty: V's key that signed it, or D's.
        place: `panels.place_of`.
        fault: 9, of V's token, or 12, of D's draft.
    """

    guilty: bytes
    start_hash: bytes
    round: int
    within: int
    lane: bytes
    root: bytes
    place: tuple[Any, ...]
    fault: int = WRONG_TARGET

    @property
    def name(self) -> bytes:
        return place_name(self.fault, self.start_hash, self.round, self.within)


class Held(Prints, Protocol):
    """What a node's journal holds."""

    def sealed(self, question: str) -> Sealed | None:
        """The answer to a jury's question; None while there is none."""
        ...

    def suspects(self) -> Sequence[Suspect]: ...

    def secret(self, name: str) -> bytes:
        """32 random bytes by name, journalled at the first call."""
        ...


@dataclass(frozen=True)
class PanelPolicy:
    """What a key does beyond what it must.

    Attributes:
        seats: it holds a seat among the auditors for each model that its account serves.
        bond: stake tokens that it puts down at most to accuse, 0: it accuses nobody.
        appeal: stake tokens that it puts down at most to appeal a verdict against it, or an eighth
            of the stake accused where that is more; 0: it appeals nothing.
        patience: seconds over which jurors spread the calls that any of them may make.
    """

    seats: bool = False
    bond: int = 0
    appeal: int = 0
    patience: float = 120.0


class PanelWatch:
    """One key's part, under all keys its account has had."""

    def __init__(
        self,
        contracts: Contracts,
        key: bytes,
        mine: frozenset[bytes],
        held: Held,
        policy: PanelPolicy | None = None,
    ) -> None:
        self._contracts, self._key, self._mine, self._held = contracts, key, mine, held
        self._policy = policy or PanelPolicy()
        self._suspected: frozenset[bytes] = frozenset()  # places, as of the last plan

    def plan(self, events: Iterable[ChainEvent], standing: Standing, now: Now) -> Plan:
        """One's own defence first, then what silence would cost, then what moves one's own cases
        on, and last what only pays."""
        events = tuple(events)
        plan, found = Plan(), fold_panel(events)
        suspects = self._held.suspects()
        self._suspected = frozenset(suspect.name for suspect in suspects)
        show_named(plan, self._contracts, self._mine, self._held, events, standing, now)
        for case in found.cases.values():
            if case.accused in self._mine and case.running:
                jury = found.jury_of(case)
                with plan.apart(Action.UNSEAL, _name(case), case.open_until(jury)):
                    self._defend(plan, case, jury, now)
        for case, jury, member in found.sitting(self._mine):
            with plan.apart(Action.COMMIT, _name(case), jury.reveal_until):
                self._answer(plan, case, jury, member, now)
        for ticket, jury, member in found.auditing(self._mine):
            with plan.apart(Action.COMMIT, f"audit {ticket.id}", jury.reveal_until):
                self._answer_ticket(plan, ticket, jury, member, now)
        for case in found.cases.values():
            with plan.apart(Action.DECIDE, _name(case), found.jury_of(case).reveal_until):
                self._move(plan, case, found, now)
        for suspect in suspects:
            with plan.apart(Action.ACCUSE, _about(suspect), 0):
                self._accuse(plan, suspect, found, standing, now)
        with plan.apart(Action.JOIN, "seats", 0):
            self._keep_seats(plan, found)
        concerned = [case for case in found.cases.values() if self._role_in(case, found)]
        with plan.apart(Action.COLLECT, "what closed cases leave", 0):
            plan.duties += dues(self._contracts, self._mine, found, concerned, standing)
        return plan

    def _role_in(self, case: PanelCase, found: PanelStanding) -> str:
        """ "party", "juror" or "" for others. Who suspects the same token sees the case through as
        a party does: its accuser may be a friend of the accused, and let it lapse."""
        if self._mine & {case.accused, case.accuser, case.appellant}:
            return "party"
        if case.place in self._suspected:
            return "party"
        sat = any(self._mine & set(jury.members) for _, jury in found.sat(case))
        return "juror" if sat else ""

    # ------------------------------------------------------------ the accused

    def _defend(self, plan: Plan, case: PanelCase, jury: JuryView, now: Now) -> None:
        """Opens the fingerprint, once all have committed: nobody can copy it any more."""
        panel, juries = self._contracts.panel, self._contracts.juries
        if not jury.waits or case.printed or not jury.is_closed(now.time):
            return
        until = case.open_until(jury)
        if now.time > until or not juries.is_closed(jury.id):
            return
        about, subject = _name(case), case.subject
        held = self._held.print(subject.start_hash, subject.round, subject.within)
        if not case.of_target or held is None:
            reason = "the salt of that token's fingerprint is not in this journal"
            plan.lacks.append(Lack(Action.UNSEAL, about, until, reason))
            return
        call = panel.open_print(case.charge, *held)
        intent = f"case-print:{case.id}:{jury.id}:{jury.since[:6].hex()}"
        plan.duties.append(Duty(Action.UNSEAL, about, intent, call, until))

    # ------------------------------------------------------------ jurors

    def _answer(self, plan: Plan, case: PanelCase, jury: JuryView, member: bytes, now: Now) -> None:
        """Says what is journalled of a case; where nothing is and time runs out, that is shown."""
        about = f"jury {jury.id} of panel case {case.id}"
        sealed, until = self._held.sealed(case.question(jury.id)), jury.summoned.commit_until
        if sealed is None and member not in jury.committed:
            if until - case.commit_span // 4 < now.time <= until and not jury.opened:
                reason = "the session has not been run again yet"
                plan.lacks.append(Lack(Action.COMMIT, about, until, reason))
            return
        self._say(plan, about, jury, member, sealed, now)

    def _answer_ticket(
        self, plan: Plan, ticket: TicketView, jury: JuryView, member: bytes, now: Now
    ) -> None:
        """Says what is journalled of a ticket; where nothing is and time runs out, that nothing was
        delivered: silence would cost stake, and anybody can enter tickets."""
        salt = self._held.secret(f"audit-jury:{ticket.question}")
        nothing = Sealed(Answer(withheld=True), salt)
        sealed, kept = self._held.sealed(ticket.question), jury.committed.get(member)
        if sealed is None and kept is None:
            if now.time <= jury.summoned.commit_until - ticket.commit_span // 5:
                return
            sealed = nothing
        elif kept is not None and kept == self._seal(jury.id, member, nothing):
            sealed = nothing  # the answer came after that
        self._say(plan, f"jury {jury.id} of audit {ticket.id}", jury, member, sealed, now)

    def _say(
        self,
        plan: Plan,
        about: str,
        jury: JuryView,
        member: bytes,
        sealed: Sealed | None,
        now: Now,
    ) -> None:
        """Commits to an answer, and reveals it once nobody can commit any more."""
        juries = self._contracts.juries
        mark = f"{jury.id}:{jury.since[:6].hex()}"
        kept = jury.committed.get(member)
        if kept is None:
            if sealed is None or now.time > jury.summoned.commit_until or jury.opened:
                return
            call = juries.commit(jury.id, self._seal(jury.id, member, sealed))
            intent, until = f"jury-commit:{mark}", jury.summoned.commit_until
            plan.duties.append(Duty(Action.COMMIT, about, intent, call, until))
            return
        if member in jury.revealed or jury.waits or not jury.is_closed(now.time):
            return
        if now.time > jury.reveal_until:
            return
        if sealed is None or self._seal(jury.id, member, sealed) != kept:
            reason = "what was committed with this key is not what is in this journal"
            plan.lacks.append(Lack(Action.REVEAL, about, jury.reveal_until, reason))
            return
        answer = sealed.answer
        words = (answer.withheld, answer.margin, answer.print, sealed.salt)
        call = juries.reveal(jury.id, member, *words)
        plan.duties.append(
            Duty(Action.REVEAL, about, f"jury-reveal:{mark}", call, jury.reveal_until)
        )

    def _seal(self, jury: int, member: bytes, sealed: Sealed) -> bytes:
        contracts = self._contracts
        return panels.commitment(
            contracts.chain_id, contracts.juries.address, jury, member, sealed.answer, sealed.salt
        )

    # ------------------------------------------------------------ the course of a case

    def _move(self, plan: Plan, case: PanelCase, found: PanelStanding, now: Now) -> None:
        """What anybody may do: parties at once, jurors each at a moment of its own."""
        role, jury = self._role_in(case, found), found.jury_of(case)
        if not role or case.stage == CaseStage.CLOSED:
            return
        if self._contracts.panel.case_of(case.id).stage != case.stage:
            return  # somebody's step is mined, and not confirmed yet
        step = f"{case.id}:{jury.id}:{case.since[:6].hex()}"
        about, panel = _name(case), self._contracts.panel
        if case.stage == CaseStage.DECIDED:
            if now.time <= case.appeal_until:
                self._appeal(plan, case)
            elif role == "party" or self._turn(case, case.appeal_until, now.time):
                call = panel.conclude(case.charge)
                plan.duties.append(Duty(Action.CONCLUDE, about, f"case-conclude:{step}", call))
            return
        if not jury.seated:
            self._seat(plan, about, jury, now)
            if now.time <= jury.summoned.seat_until:
                return
        if jury.waits and jury.seated and jury.committed:
            # Over only by V's silence, which the case's clock knows.
            over = now.time > case.open_until(jury) and jury.is_closed(now.time)
        else:
            over = jury.is_over(now.time)
        if not over:
            return
        since = min(now.time, jury.reveal_until)
        if role == "party" or self._turn(case, since, now.time):
            call = panel.decide(case.charge)
            plan.duties.append(Duty(Action.DECIDE, about, f"case-decide:{step}", call))

    def _seat(self, plan: Plan, about: str, jury: JuryView, now: Now) -> None:
        if now.time > jury.summoned.seat_until or now.block <= jury.target:
            return
        if self._contracts.juries.jury_of(jury.id).stage != JuryStage.SUMMONED:
            return
        call = self._contracts.juries.seat(jury.id)
        # Its draw moves to a later block where nobody came in time: another transaction.
        intent = f"jury-seat:{jury.id}:{jury.target}"
        plan.duties.append(Duty(Action.SEAT, about, intent, call, jury.summoned.seat_until))

    def _appeal(self, plan: Plan, case: PanelCase) -> None:
        """Against a verdict that goes against this node, at twice the bond."""
        against = case.accused if case.guilty else case.accuser
        if against not in self._mine:
            return
        about, bond = _name(case), 2 * case.bond
        word, allowed = case.result.name.lower(), self._policy.appeal
        if case.guilty and allowed:
            # The bond follows the stake, and an accusation deters only while it can be appealed.
            role = Role.VERIFIER if case.of_target else Role.DRAFTER
            stake = self._contracts.vault.slashable(case.accused, role)
            allowed = max(allowed, stake // APPEAL_SHARE)
        if bond > allowed:
            reason = f"a panel found {word}; an appeal takes {bond} token units as a bond, and "
            reason += f"panel.appeal_tokens allows {allowed}"
            plan.lacks.append(Lack(Action.APPEAL, about, case.appeal_until, reason))
            return
        call = self._contracts.panel.appeal(case.charge)
        intent = f"case-appeal:{case.id}:{case.since[:6].hex()}"
        taken = Bond(self._contracts.panel.address, bond)
        plan.duties.append(Duty(Action.APPEAL, about, intent, call, case.appeal_until, taken))

    def _turn(self, case: PanelCase, since: float, now: int) -> bool:
        """Whether this juror's moment has come to do what a party has not."""
        draw = int.from_bytes(keccak256(self._key, uint(case.id, 8))[:4], "big")
        return now - since >= self._policy.patience * (0.25 + 0.75 * draw / 2**32)

    # ------------------------------------------------------------ accusing

    def _accuse(
        self,
        plan: Plan,
        suspect: Suspect,
        found: PanelStanding,
        standing: Standing,
        now: Now,
    ) -> None:
        """Files a case, unless one runs. A jury that has spoken of the place is not asked again by
        this node, whose means are the appeal; where none has, the case was void, and is filed anew.
        """
        if suspect.guilty in self._mine:
            return
        before = [case for case in found.cases.values() if case.place == suspect.name]
        if not all(case.is_void for case in before):
            return
        fault = fault_name(suspect.fault, suspect.guilty, suspect.start_hash, suspect.round)
        if fault in standing.punished:
            return
        contracts = self._contracts
        source = _source_of(suspect, standing)
        if source is None:
            return  # not settled, or not any more
        about = _about(suspect)
        rule, of_target = contracts.place_rule, suspect.fault == WRONG_TARGET
        try:
            subject_of = rule.verdict_subject if of_target else rule.draft_subject
            subject = subject_of(suspect.place, source)
        except Reverted as error:
            plan.lacks.append(Lack(Action.ACCUSE, about, 0, f"it may not be asked about: {error}"))
            return
        until = int(subject[_UNTIL])
        if now.time > until:
            return
        place = contracts.panel.place_of(suspect.fault, subject)
        bond = contracts.panel.bond_for(
            place, suspect.fault, suspect.guilty, int(subject[_SETTLED_AT])
        )
        if bond > self._policy.bond:
            reason = f"accusing takes {bond} token units as a bond, and panel.accuse_tokens allows "
            plan.lacks.append(Lack(Action.ACCUSE, about, until, reason + str(self._policy.bond)))
            return
        _bond, fault_bps, reward_bps, _victims = contracts.panel_terms.terms()
        encode = rule.verdict_question if of_target else rule.draft_question
        call = contracts.panel.accuse(suspect.fault, encode(suspect.place, source))
        role = Role.VERIFIER if of_target else Role.DRAFTER
        plan.duties.append(
            Duty(
                Action.ACCUSE,
                about,
                f"accuse:{suspect.name.hex()}:{len(before)}:{keccak256(call.data)[:6].hex()}",
                call,
                until,
                Bond(contracts.panel.address, bond),
                Price(
                    suspect.guilty, role, fault_bps, reward_bps, self._pay(suspect, role, subject)
                ),
                _ACCUSE_GAS,
            )
        )

    def _pay(self, suspect: Suspect, role: Role, subject: Sequence[Any]) -> int:
        """Stake tokens of the bond that go to the jurors, at most: nothing, but where the stake is
        too small for its conviction to settle the fault. Else somebody with little stake could
        have auditors spend more on convicting it, round after round, than they get."""
        contracts, token = self._contracts, bytes(subject[_TOKEN])
        if contracts.vault.slashable(suspect.guilty, role) >= contracts.vault.least_stake():
            return 0
        fees = contracts.panel_terms.fee_of(token) * contracts.panel_terms.seats()
        return fees * contracts.escrow.stake_price_q32(token) >> 32

    # ------------------------------------------------------------ seats

    def _keep_seats(self, plan: Plan, found: PanelStanding) -> None:
        """Keeps each seat at what the stake weighs now: takes it, follows it, leaves it."""
        for account in sorted(self._mine & {*found.serves, *(a for _, a in found.seats)}):
            self._keep_seats_of(plan, account, found)

    def _keep_seats_of(self, plan: Plan, account: bytes, found: PanelStanding) -> None:
        pool = self._contracts.pool
        models = found.serves.get(account, set()) | {m for m, a in found.seats if a == account}
        for model in sorted(models):
            weighs, changes = found.seats.get((model, account), (0, 0))
            eligible = pool.eligible(account, model)
            # Without the policy a seat that is held is followed, and left, but none is taken.
            if eligible == weighs or not (weighs or self._policy.seats):
                continue
            call = pool.sync(account, model)
            intent = f"seat:{model.hex()}:{changes}:{eligible}"
            about = f"seat for model 0x{model.hex()[:12]}"
            plan.duties.append(Duty(Action.JOIN, about, intent, call))


def _name(case: PanelCase) -> str:
    return f"panel case {case.id}"


def _about(suspect: Suspect) -> str:
    return f"round {suspect.round} of session 0x{suspect.start_hash.hex()[:12]}"


def _source_of(suspect: Suspect, standing: Standing) -> tuple[Any, ...] | None:
    """IPlaceRule.Source of the settlement in which the suspect's root stands."""
    for batch, index, entry, _lane in standing.settlements():
        if (entry.lane, entry.root) == (suspect.lane, suspect.root):
            return (batch.batch, batch.packed(), index)
    return None
