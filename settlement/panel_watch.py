"""A node's own part in cases and audits: V opens its fingerprints in time, and who is a party takes
the steps that are due. Beside `watcher`, which calls this at every look.

Not here: answering juries, accusing, planting. A verdict that is not liked is shown as a lack: an
appeal costs twice the bond, and whether it is worth it an operator must say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from settlement.chain.contracts import Contracts
from settlement.chain.events import (
    AuditMoved,
    CaseClosed,
    CaseFiled,
    FingerprintOpened,
    PrintOpened,
    TokenNamed,
)
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import CaseStage, Jury, JuryStage
from settlement.chain.standing import Standing
from settlement.draws import BatchEvidence, lane_seed, target_of
from settlement.panels import Result
from settlement.trees import round_leaf
from settlement.watcher import Action, Duty, Lack, Now, Plan

_WRONG_TARGET = 9
_RANDOMNESS = 8  # place in IDrawBeacon.Batch
_START, _ROUND, _WITHIN = 8, 9, 10  # places in IPlaceRule.Subject


class Prints(Protocol):
    """What V holds of its own rounds."""

    def batch(self, root: bytes) -> BatchEvidence | None: ...

    def print(self, start_hash: bytes, round_: int, within: int) -> tuple[bytes, bytes] | None:
        """Salt and fingerprint of one output token; None where it is not held."""
        ...


@dataclass(frozen=True)
class OpenCases:
    """Cases that are not closed and audits that wait for a fingerprint, from events alone."""

    cases: dict[int, CaseFiled]
    printed: frozenset[int]
    named: dict[int, TokenNamed]


def open_cases(events: Iterable[ChainEvent]) -> OpenCases:
    cases: dict[int, CaseFiled] = {}
    printed: set[int] = set()
    named: dict[int, TokenNamed] = {}
    for found in events:
        event = found.event
        if isinstance(event, CaseFiled):
            cases[event.case_id] = event
        elif isinstance(event, PrintOpened):
            printed.add(event.case_id)
        elif isinstance(event, CaseClosed):
            cases.pop(event.case_id, None)
        elif isinstance(event, TokenNamed):
            named[event.audit_id] = event
        elif isinstance(event, FingerprintOpened | AuditMoved):
            named.pop(event.audit_id, None)
    return OpenCases(cases, frozenset(printed), named)


class PanelWatch:
    """One key's part, under all keys its account has had."""

    def __init__(self, contracts: Contracts, mine: frozenset[bytes], prints: Prints) -> None:
        self._contracts, self._mine, self._prints = contracts, mine, prints

    def plan(self, events: Iterable[ChainEvent], standing: Standing, now: Now) -> Plan:
        """One's own defence first, then what moves one's own cases on."""
        plan = Plan()
        found = open_cases(events)
        for named in found.named.values():
            if named.verifier in self._mine:
                self._show(plan, named, standing, now)
        for case in found.cases.values():
            if self._mine & {case.accused, case.accuser}:
                self._case(plan, case, case.case_id in found.printed, now)
        return plan

    # ------------------------------------------------------------ cases

    def _case(self, plan: Plan, case: CaseFiled, printed: bool, now: Now) -> None:
        panel, juries = self._contracts.panel, self._contracts.juries
        state = panel.case_of(case.case_id)
        about = f"case {case.case_id}"
        step = f"{case.case_id}:{state.jury}"
        if state.stage == CaseStage.DECIDED:
            if now.time > state.appeal_until:
                call = panel.conclude(case.charge)
                plan.duties.append(Duty(Action.CONCLUDE, about, f"case-conclude:{step}", call))
            elif case.accused in self._mine and state.result in (Result.GUILTY, Result.WITHHELD):
                reason = f"a panel found {state.result.name.lower()}: appeal, or lose the slash"
                plan.lacks.append(Lack(Action.APPEAL, about, state.appeal_until, reason))
            return
        if state.stage not in (CaseStage.PANEL, CaseStage.APPEAL):
            return
        jury = juries.jury_of(state.jury)
        if jury.stage == JuryStage.SUMMONED and now.time <= jury.seat_until:
            if now.block > jury.target:
                call = juries.seat(state.jury)
                # Its draw moves to a later block where nobody came in time: another transaction.
                intent = f"jury-seat:{state.jury}:{jury.target}"
                plan.duties.append(Duty(Action.SEAT, about, intent, call, jury.seat_until))
            return
        unopened = jury.waits and not printed and jury.stage == JuryStage.SEATED
        if unopened and now.time <= state.open_until:
            if case.accused in self._mine and juries.is_closed(state.jury):
                self._print(plan, case, jury, state.open_until, step)
            return
        if unopened or juries.is_over(state.jury):
            call = panel.decide(case.charge)
            plan.duties.append(Duty(Action.DECIDE, about, f"case-decide:{step}", call))

    def _print(self, plan: Plan, case: CaseFiled, jury: Jury, until: int, step: str) -> None:
        subject: tuple[Any, ...] = tuple(case.charge[4])
        about = f"case {case.case_id}"
        held = self._prints.print(bytes(subject[_START]), subject[_ROUND], subject[_WITHIN])
        if case.charge[1] != _WRONG_TARGET or held is None:
            reason = "the salt of that token's fingerprint is not in this journal"
            plan.lacks.append(Lack(Action.UNSEAL, about, until, reason))
            return
        call = self._contracts.panel.open_print(case.charge, *held)
        plan.duties.append(Duty(Action.UNSEAL, about, f"case-print:{step}", call, until))

    # ------------------------------------------------------------ audits

    def _show(self, plan: Plan, named: TokenNamed, standing: Standing, now: Now) -> None:
        """V's fingerprint of a drawn token that an audit has named."""
        about = f"audit {named.audit_id}"
        if now.time > named.second_until:
            return
        held = self._drawn_print(named, standing)
        if held is None:
            reason = "the salt of that token's fingerprint is not in this journal"
            plan.lacks.append(Lack(Action.UNSEAL, about, named.second_until, reason))
            return
        call = self._contracts.audits.open_print(named.audit_id, *held)
        intent = f"audit-print:{named.audit_id}"
        plan.duties.append(Duty(Action.UNSEAL, about, intent, call, named.second_until))

    def _drawn_print(self, named: TokenNamed, standing: Standing) -> tuple[bytes, bytes] | None:
        view = standing.batches.get(named.batch_id)
        if view is None or named.index >= len(view.entries):
            return None
        evidence = self._prints.batch(view.entries[named.index].root)
        if evidence is None:
            return None
        tree, _settled = evidence.settled()
        seed = lane_seed(bytes(view.batch[_RANDOMNESS]), named.index)
        target = target_of(seed, named.sample, tree.top().sums.output)
        place = tree.descend(target)
        record = evidence.rounds[place].record
        within = tree.proof(place).offset_of(round_leaf(record), target)
        return self._prints.print(record.start_hash, record.round, within)
