"""The panel with people in it: a devnet of real processes in the exact tier, with a block a second.

A verifier that runs another checkpoint is found by an auditor's second run, accused by its watcher,
judged by a jury of five daemons that each run the promised model, and slashed after its appeal. A
verifier that is accused falsely loses nothing, and its accuser the bonds. One juror is killed with
SIGKILL between its commitment and its reveal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live import Live, eventually
from watched_node import frames_of

from node.config import NodeConfig, PanelConfig
from node.devnet.books import ChainReader
from node.devnet.options import DevnetOptions, Operator
from node.devnet.processes import Fleet
from node.devnet.run import await_seated
from node.devnet.world import STAKE, build
from node.evidence import EvidenceRoom
from node.journal import Journal
from node.network.messages import DrawnAnswer
from node.roles.records import path_of, preimage_of
from node.roles.suspicions import SUSPECT, Suspicion
from settlement.chain.contracts import Role
from settlement.chain.events import StakeSlashed, Vested
from settlement.chain.panel import CaseStage
from settlement.chain.panel_events import AnswerCommitted, AnswerRevealed, JurorPaid
from settlement.chain.panel_standing import PanelCase, PanelStanding, fold_panel
from settlement.chain.parameters import DEVNET_PANEL
from settlement.chain.standing import fold
from settlement.panels import Result

pytestmark = pytest.mark.slow
LIAR, HONEST, ACCUSER, KILLED = "verifier-1", "verifier-2", "auditor-6", "auditor-2"
BOND = DEVNET_PANEL.panel.bond


class Court(Fleet):
    """The first verifier runs another checkpoint."""

    def program(self, operator: Operator) -> list[str]:
        if operator.name == LIAR:
            return [sys.executable, str(Path(__file__).parent / "lying_verifier.py")]
        return super().program(operator)

    def _config(self, operator: Operator) -> NodeConfig:
        # Bonds of tickets under way would be missing where tokens are counted.
        return replace(super()._config(operator), panel=PanelConfig(tickets=0))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    options = DevnetOptions(tiny=True, tier="exact", panel=True)
    world = build(options, tmp_path_factory.mktemp("panel"), lambda line: None)
    fleet = Court(world, options)
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


def case_of(net: Live, verifier: str) -> PanelCase | None:
    address = net.operator(verifier).address
    found = [case for case in standing(net).cases.values() if case.accused == address]
    assert len(found) <= 1
    return found[0] if found else None


def closed(net: Live, verifier: str) -> PanelCase | None:
    case = case_of(net, verifier)
    return case if case is not None and case.stage == CaseStage.CLOSED else None


def serve(net: Live, verifier: str) -> dict[str, Any]:
    drafter = "0x" + net.operator("drafter-1").address.hex()
    return net.ask(drafter=drafter, verifier="0x" + net.operator(verifier).address.hex())


def stake(net: Live, name: str, role: Role) -> int:
    return net.world.contracts.vault.slashable(net.operator(name).address, role)


def tokens(net: Live, name: str) -> int:
    """In the key's hands, and in its beneficiary's."""
    operator, token = net.operator(name), net.world.contracts.token
    return sum(token.balance_of(who) for who in (operator.address, operator.beneficiary))


def auditors(net: Live) -> list[Operator]:
    return net.world.of_role("auditor")


def pulled(net: Live) -> bool:
    """Whether nobody has anything left to pull from the panel."""
    panel = net.world.contracts.panel
    return not any(panel.bond_of(operator.address) for operator in net.world.operators)


def honest_stakes(net: Live) -> None:
    for operator in auditors(net):
        assert stake(net, operator.name, Role.AUDITOR) == STAKE, operator.name
    for name in ("drafter-1", "drafter-2"):
        assert stake(net, name, Role.DRAFTER) == STAKE
    assert stake(net, HONEST, Role.VERIFIER) == STAKE


def test_another_checkpoint_is_accused_judged_and_slashed(net: Live) -> None:
    before = {operator.name: tokens(net, operator.name) for operator in net.world.operators}
    serve(net, LIAR)
    case = eventually("an auditor has accused", lambda: case_of(net, LIAR))
    accuser = next(o for o in auditors(net) if o.address == case.accuser)
    killed = next(o for o in auditors(net) if o is not accuser)
    eventually(
        "the juror to be killed has committed",
        lambda: any(e.event.member == killed.address for e in net.chain.of(AnswerCommitted)),
    )
    net.running(killed.name).kill()
    net.fleet.restart(killed)
    case = eventually("the case is closed", lambda: closed(net, LIAR))
    assert case.result == Result.GUILTY
    assert case.appellant == net.operator(LIAR).address, "the accused has appealed"
    for _, jury in standing(net).sat(case):
        others = {o.address for o in auditors(net)} - {accuser.address}
        assert set(jury.members) == others == jury.revealed, "all five, whoever was killed"
    # One exact hash: all five have said the same, twice.
    assert len({e.event.print for e in net.chain.of(AnswerRevealed)}) == 1
    # Half of the guilty's stake; the client has its money for the round; the accuser its share.
    assert stake(net, LIAR, Role.VERIFIER) == STAKE // 2
    (slash,) = (e.event for e in net.chain.of(StakeSlashed))
    total, burned, victims, reward = slash.slashed
    assert (total, reward) == (STAKE // 2, STAKE // 8)
    assert burned >= total // 2
    loss = int(case.subject.words[22])
    assert victims >= loss > 0
    client = net.operator("client-1").address
    vested = {e.event.who: e.event.amount for e in net.chain.of(Vested)}
    assert vested[client] == loss, "what the client paid for that round"
    assert vested[accuser.address] == reward
    honest_stakes(net)
    eventually("everybody has pulled what is due", lambda: pulled(net))
    eventually("the jurors are paid", lambda: len(net.chain.of(JurorPaid)) == 10)
    eventually("everybody has pulled what is due", lambda: pulled(net))
    assert tokens(net, LIAR) == before[LIAR] - 2 * BOND
    assert tokens(net, accuser.name) == before[accuser.name] + BOND, "half of the appeal's bond"
    share = BOND // 10
    for operator in auditors(net):
        if operator is not accuser:
            assert tokens(net, operator.name) == before[operator.name] + 2 * share


def keep_suspicion(net: Live) -> None:
    """What a dishonest auditor says it has found: an honest token of an honest verifier's."""
    address = net.operator(HONEST).address

    def settled() -> bytes | None:
        for _batch, _index, entry, lane in fold(net.chain.read()).settlements():
            if lane.verifier == address:
                return entry.root
        return None

    root = eventually("the honest verifier's session is settled", settled)
    path = net.operator("client-1").folder / "data" / "journal.sqlite"
    journal = Journal(path, durability="normal")
    batch = EvidenceRoom(journal, net.world.contracts.domain).batch(root)
    journal.close()
    assert batch is not None
    tree, top = batch.settled()
    evidence = batch.rounds[0]
    hung = DrawnAnswer(
        preimage_of(top),
        None if batch.base is None else preimage_of(batch.base),
        evidence.record.to_wire(),
        path_of(tree.proof(0)),
        evidence.order.to_wire(),
        evidence.start.to_wire(),
    )
    kept = Journal(net.operator(ACCUSER).folder / "data" / "journal.sqlite", durability="normal")
    name = f"{SUSPECT}:{evidence.record.start_hash.hex()}:0:0"
    kept.secret_once(name, Suspicion(hung, frames_of(evidence), 0).to_wire)
    kept.close()


def test_a_false_accuser_loses_its_bonds_and_nobody_else_anything(net: Live) -> None:
    serve(net, HONEST)
    before = {operator.name: tokens(net, operator.name) for operator in net.world.operators}
    net.running(ACCUSER).kill()
    keep_suspicion(net)
    net.fleet.restart(net.operator(ACCUSER))
    case = eventually("the case is closed", lambda: closed(net, HONEST))
    assert case.accuser == net.operator(ACCUSER).address
    assert case.result == Result.CLEARED
    assert case.appellant == case.accuser, "it has appealed, and lost that bond too"
    honest_stakes(net)
    eventually("everybody has pulled what is due", lambda: pulled(net))
    assert tokens(net, ACCUSER) == before[ACCUSER] - 3 * BOND
    eventually(
        "the accused has half of both bonds",
        lambda: tokens(net, HONEST) == before[HONEST] + 3 * BOND // 2,
    )
    share = (3 * BOND // 2) // 10
    for operator in auditors(net):
        if operator.name != ACCUSER:
            eventually(
                f"{operator.name} is paid for both juries",
                lambda o=operator: tokens(net, o.name) == before[o.name] + 2 * share,
            )
