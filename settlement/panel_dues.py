"""What closed cases leave to do: jurors are paid, those that were silent pay, bonds are pulled.
Pure but for what it asks the contracts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from settlement.chain.contracts import Contracts, Role
from settlement.chain.panel import CaseStage
from settlement.chain.panel_standing import JuryView, PanelCase, PanelStanding
from settlement.chain.standing import Standing
from settlement.duties import Action, Duty, Price

_DISMISS_GAS: Final = 250_000


def dues(
    contracts: Contracts,
    mine: frozenset[bytes],
    found: PanelStanding,
    concerned: Sequence[PanelCase],
    standing: Standing,
) -> Iterator[Duty]:
    """For the owner of the keys `mine`, who has a part in the cases `concerned`."""
    closed = [case for case in concerned if case.stage == CaseStage.CLOSED]
    for case in closed:
        about = f"panel case {case.id}"
        for of_appeal, jury in found.sat(case):
            yield from _pay(contracts, mine, found, case, of_appeal, jury, about)
            yield from dismissals(contracts, mine, jury, about)
    yield from _pulls(contracts, mine, closed, standing)


def _pay(
    contracts: Contracts,
    mine: frozenset[bytes],
    found: PanelStanding,
    case: PanelCase,
    of_appeal: bool,
    jury: JuryView,
    about: str,
) -> Iterator[Duty]:
    """A juror's share of lost bonds, and its fee where the case was a true one."""
    panel = contracts.panel
    for member in jury.members:
        if member not in mine or not jury.answered(member):
            continue
        # Once for each jury that it has answered; the event does not say which was paid.
        times = sum(sat.answered(member) for _, sat in found.sat(case))
        if case.paid.count(member) >= times:
            continue
        state = panel.case_of(case.id)
        worth = (state.settled and case.fee > 0) or state.share > 0
        if not worth or panel.is_paid(jury.id, member):
            continue
        call = panel.pay_juror(case.charge, of_appeal, member)
        intent = f"jury-pay:{jury.id}:{member.hex()[:12]}:{jury.since[:6].hex()}"
        yield Duty(Action.COLLECT, about, intent, call)


def dismissals(
    contracts: Contracts, mine: frozenset[bytes], jury: JuryView, about: str
) -> Iterator[Duty]:
    """Of a jury that is over."""
    for member in jury.silent():
        if member in jury.dismissed or member in mine:
            continue
        shares = (jury.summoned.silent_bps, jury.summoned.reward_bps)
        yield Duty(
            Action.DISMISS,
            about,
            f"jury-dismiss:{jury.id}:{member.hex()[:12]}:{jury.since[:6].hex()}",
            contracts.juries.dismiss(jury.id, member),
            price=Price(member, Role.AUDITOR, *shares),
            gas=_DISMISS_GAS,
        )


def _pulls(
    contracts: Contracts,
    mine: frozenset[bytes],
    closed: Sequence[PanelCase],
    standing: Standing,
) -> Iterator[Duty]:
    """Bonds that have come back, and shares of those that others have lost."""
    accounts = {
        who
        for case in closed
        for who in (case.accused, case.accuser, case.appellant, *case.paid)
        if who in mine
    }
    for account in sorted(accounts):
        if contracts.panel.bond_of(account):
            count = standing.pulled.get(("AuditPanel", account), 0)
            intent = f"{Action.PULL}:AuditPanel:{account.hex()[:12]}:{count}"
            call = contracts.panel.pull_bond(account)
            yield Duty(Action.COLLECT, "bonds in AuditPanel", intent, call)
