"""Audits on chain with people in them: a devnet of real processes in the float tier, where juries
answer by margins and distances and not by one hash (`test_panel_processes.py` is the exact tier's).

Auditors enter what falls to them, give it out, answer, open and are paid, one of them killed with
SIGKILL while its ticket is sealed. All but one plant canaries too, and that one calls everything
right: it passes one, a jury of daemons finds the canary false, and it alone loses stake. Then a
verifier with another checkpoint is found, accused and slashed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live import Live, eventually

from node.config import NodeConfig, PanelConfig
from node.devnet import books
from node.devnet.books import ChainReader
from node.devnet.options import DevnetOptions, Operator
from node.devnet.processes import Fleet
from node.devnet.run import await_seated
from node.devnet.world import STAKE, build
from settlement.chain.contracts import Role
from settlement.chain.events import Vested
from settlement.chain.panel import WRONG_TARGET, AuditStage, CaseStage
from settlement.chain.panel_events import (
    AuditorPaid,
    CanaryOpened,
    CanaryPassed,
    JurorPaid,
    TicketEntered,
)
from settlement.chain.panel_standing import (
    PanelCase,
    PanelStanding,
    TicketView,
    fold_panel,
)
from settlement.panels import Result

pytestmark = pytest.mark.slow
STAMPER, LIAR, HONEST = "auditor-6", "verifier-1", "verifier-2"
COURSE = 400.0  # seconds for a canary, a panel and the time for an appeal


class Planters(Fleet):
    """The last auditor stamps; the others plant a canary of every session that they audit. The
    first verifier runs another checkpoint."""

    def program(self, operator: Operator) -> list[str]:
        crooked = {STAMPER: "stamping_auditor.py", LIAR: "lying_verifier.py"}
        if operator.name in crooked:
            return [sys.executable, str(Path(__file__).parent / crooked[operator.name])]
        return super().program(operator)

    def _config(self, operator: Operator) -> NodeConfig:
        config = super()._config(operator)
        canaries = 0.0 if operator.name == STAMPER else 1.0
        return replace(config, panel=PanelConfig(tickets=1, canaries=canaries))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    options = DevnetOptions(tiny=True, tier="float", panel=True)
    world = build(options, tmp_path_factory.mktemp("tickets"), lambda line: None)
    fleet = Planters(world, options)
    try:
        fleet.start_all(lambda line: None)
        world.anvil.every_second(True)
        assert await_seated(fleet) == 6
        yield Live(world, fleet, ChainReader(world))
        assert fleet.stop_all() == []
    finally:
        os.kill(world.anvil.pid, signal.SIGCONT)
        fleet.stop_all()
        world.anvil.stop()


def standing(net: Live) -> PanelStanding:
    return fold_panel(net.chain.read())


def tickets(net: Live) -> list[TicketView]:
    return list(standing(net).tickets.values())


def serve(net: Live, verifier: str) -> None:
    drafter = "0x" + net.operator("drafter-1").address.hex()
    net.ask(drafter=drafter, verifier="0x" + net.operator(verifier).address.hex())


def stake(net: Live, name: str, role: Role) -> int:
    return net.world.contracts.vault.slashable(net.operator(name).address, role)


def test_auditors_are_paid_and_who_looks_at_nothing_is_slashed(net: Live) -> None:
    stamper = net.operator(STAMPER).address
    serve(net, HONEST)
    eventually("a ticket is entered", lambda: net.chain.of(TicketEntered))
    holder = next(o for o in net.world.operators if o.address == tickets(net)[0].by)
    left = tickets(net)[0].id
    net.running(holder.name).kill()
    net.fleet.restart(holder)
    serve(net, HONEST)
    asked = 2
    while not net.chain.of(CanaryPassed):
        # Whether the stamper sits on a canary's jury is drawn: three of the five others.
        passed = eventually(
            "a canary was passed and punished, or all audits are over",
            lambda: net.chain.of(CanaryPassed) or all(t.ended for t in tickets(net)),
            seconds=COURSE,
        )
        if not net.chain.of(CanaryPassed) and passed:
            assert asked < 5, "the stamper was drawn for no canary of five sessions"
            serve(net, HONEST)
            asked += 1
            eventually("it is audited", lambda: not all(t.ended for t in tickets(net)))
    eventually("all audits are over", lambda: all(t.ended for t in tickets(net)), seconds=COURSE)
    eventually("every auditor is paid", lambda: not net.chain.tickets_open())
    eventually("no bond is left", lambda: bonds_left(net) == 0)

    found = standing(net)
    drawn = [ticket for ticket in found.tickets.values() if ticket.named]
    canaries = [ticket for ticket in found.tickets.values() if ticket.canary]
    assert len(drawn) == asked, "one token of every drawn lane, whoever was killed"
    assert len(canaries) == len(net.chain.of(CanaryOpened)) >= 1
    # What is right is found right, even by who looks at nothing; what is false by all others.
    # Of a ticket whose holder was away for longer than they may wait, auditors say so in time.
    assert {t.result for t in drawn if t.id == left} <= {Result.CLEARED, Result.WITHHELD}
    assert {t.result for t in drawn if t.id != left} == {Result.CLEARED}
    wrong = [ticket for ticket in canaries if ticket.stage == AuditStage.WRONG]
    assert {ticket.result for ticket in canaries if ticket not in wrong} <= {Result.GUILTY}
    for ticket in canaries:
        sat = stamper in found.juries[ticket.jury].members
        assert sat == (ticket in wrong), "nobody else has passed any"
        assert ticket.punished == ({stamper} if sat else set())
        if sat:
            assert found.cases[ticket.case].result == Result.GUILTY
    lost = STAKE
    for _ in wrong:
        lost -= lost * 500 // 10_000
    assert stake(net, STAMPER, Role.AUDITOR) == lost < STAKE
    for operator in net.world.operators:
        if operator.role in books.CHAIN_ROLE and operator.name != STAMPER:
            role = books.CHAIN_ROLE[operator.role]
            assert stake(net, operator.name, role) == STAKE, operator.name
    # Half of what it cost is the planter's, after the unbonding period.
    planters = {ticket.by for ticket in wrong}
    assert planters <= {e.event.who for e in net.chain.of(Vested)}
    fees: Counter[bytes] = Counter()
    for item in net.chain.of(AuditorPaid):
        fees[item.event.auditor] += item.event.fee
    assert fees.total() > 0
    for item in net.chain.of(JurorPaid):
        fees[item.event.juror] += item.event.fee
    escrow, token = net.world.contracts.escrow, net.world.contracts.token.address
    for auditor in net.world.of_role("auditor"):
        assert escrow.payable_to(auditor.address, token) == fees[auditor.address]
    assert books.conservation(net.world)["ok"]


def bonds_left(net: Live) -> int:
    """What anybody has not pulled of bonds that came back."""
    contracts = net.world.contracts
    return sum(
        court.bond_of(operator.address)
        for court in (contracts.audits, contracts.panel)
        for operator in net.world.operators
    )


def test_another_checkpoint_is_found_accused_and_slashed(net: Live) -> None:
    """In float32, by daemons that have only their own runs and the registered tolerance."""
    before = {name: stake(net, name, Role.AUDITOR) for name in auditors(net)}
    serve(net, LIAR)
    liar = net.operator(LIAR).address

    def closed() -> PanelCase | None:
        cases = standing(net).cases.values()
        found = [case for case in cases if case.accused == liar]
        return next((case for case in found if case.stage == CaseStage.CLOSED), None)

    case = eventually("the case is closed", closed, seconds=COURSE)
    assert case.fault == WRONG_TARGET
    assert case.result == Result.GUILTY
    assert not case.exact, "a lower median of margins or of distances"
    assert case.appellant == liar, "it has appealed"
    assert stake(net, LIAR, Role.VERIFIER) == STAKE // 2
    assert stake(net, HONEST, Role.VERIFIER) == STAKE
    assert {name: stake(net, name, Role.AUDITOR) for name in auditors(net)} == before
    eventually("all audits are over", lambda: all(t.ended for t in tickets(net)), seconds=COURSE)
    drawn = [t for t in tickets(net) if t.named and t.named.verifier == liar]
    assert {ticket.result for ticket in drawn} == {Result.GUILTY}, "who was drawn says the same"


def auditors(net: Live) -> list[str]:
    return [operator.name for operator in net.world.of_role("auditor")]
