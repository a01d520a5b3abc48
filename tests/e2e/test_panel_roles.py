"""From a lying verifier's session to everybody's money, with every part of the daemon that has to
do with it: audits, accusation, delivery to jurors, their runs, commitments, appeal, pay. The
network is the in-memory one and all nodes share a process; chain, contracts, models and records are
real.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import arena
import pytest
import trio
from arena import Arena, InThread, ignore
from deployment import KEYS, OWNER, TOKEN, deploy_devnet, make_sender
from panel_world import PANEL, PARAMETERS
from test_exact_dispute import PAIR, PROMPT, _other_weights, opened, target
from watched_node import Followed, frames_of

from node.config import ChainConfig, PanelConfig
from node.evidence import EvidenceRoom
from node.inference.loading import load_model
from node.inference.model_drafter import ModelDrafter
from node.network.messages import DrawnAnswer
from node.roles.auditing import DrawBoard
from node.roles.auditor import AuditorRole, Patience
from node.roles.juror import JurorRole, JuryBoard
from node.roles.ports import Node
from node.roles.proving import ExactProver
from node.roles.records import RecordsService, path_of, preimage_of
from node.roles.rerun import Loaded, Tolerance, WorkerRerun
from node.roles.suspicions import SUSPECT, Suspicion
from node.watching import WatchDesk, keep_found
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.events import StakeSlashed, Vested
from settlement.chain.lanes import Position, SignedVoucher, groups_of
from settlement.chain.panel import CaseStage
from settlement.chain.panel_events import AnswerRevealed, JurorPaid
from settlement.chain.panel_standing import PanelStanding, fold_panel
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import SqliteSendJournal
from settlement.chain.sender import Sender
from settlement.chain.standing import fold
from settlement.hashing import keccak256
from settlement.panels import Result
from settlement.records import Mode, Tier

pytestmark = pytest.mark.slow
# So small a stake is accused of for the least bond.
STAKE, SPARE = 2_000 * TOKEN, 1_000 * TOKEN
AUDITORS = tuple(f"auditor-{number}" for number in range(1, 5))
ROLES = {
    "drafter": Role.DRAFTER,
    "verifier": Role.VERIFIER,
    **dict.fromkeys(AUDITORS, Role.AUDITOR),
}
QUICK = Patience(grace=2.0, deliver=20.0, open=5.0, pause=0.1)
LOOKS = 60


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


def beneficiary(address: bytes) -> bytes:
    return keccak256(address)[:20]


@pytest.fixture(scope="module")
def contracts(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Contracts:
    folder = tmp_path_factory.mktemp("panel")
    contracts = deploy_devnet(anvil, folder, PARAMETERS)
    rich = make_sender(contracts.rpc, KEYS[0], folder / "rich.sqlite", contracts)
    owner = make_sender(contracts.rpc, OWNER, folder / "governor.sqlite", contracts)
    owner.send("register", contracts.registry.register(opened().manifest))
    for name in ("client", *ROLES):
        seat = Arena().seat(name)
        anvil.set_balance(seat.address, 10**20)
        rich.send(f"fund:{name}", contracts.token.transfer(seat.address, STAKE + SPARE))
        own = make_sender(contracts.rpc, seat.key, folder / f"{name}.sqlite", contracts)
        if name in ROLES:
            own.send("approve", contracts.token.approve(contracts.vault.address, STAKE))
            place = (seat.address, beneficiary(seat.address), ROLES[name], STAKE)
            own.send("stake", contracts.vault.stake(*place, [opened().manifest.model_id]))
    return contracts


@pytest.fixture
def chain(
    anvil: Anvil, contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Contracts]:
    """The arena's parties sign for this chain, its token and the real target."""
    monkeypatch.setattr(arena, "DOMAIN", contracts.domain)
    monkeypatch.setattr(arena, "TOKEN", contracts.token.address)
    monkeypatch.setattr(arena, "TARGET", opened().manifest.model_id)
    with anvil.rolled_back():
        yield contracts


class Daemon:
    """What a node's process ties together, without its transport and its own loop over blocks."""

    def __init__(self, contracts: Contracts, node: Node, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.contracts, self.node = contracts, node
        self.chain = Followed(contracts, folder / "index.sqlite")
        self.draws = DrawBoard(lambda: self.chain.events)
        self.board = JuryBoard(lambda: self.chain.events)
        self.auditor: AuditorRole | None = None
        self.juror: JurorRole | None = None
        self.sender = Sender(
            Rpc.connect(contracts.rpc.url),
            node.key,
            SqliteSendJournal(folder / "sends.sqlite"),
            errors=contracts.errors,
            poll_seconds=0.01,
        )
        config = ChainConfig(
            "http://unused", folder / "unused", draw_patience_seconds=0.0, token_per_wei=1e-9
        )
        desk = WatchDesk(
            contracts,
            self.sender,
            self.chain,  # type: ignore[arg-type]
            node,
            config,
            draws=True,
            panel=PanelConfig(),
        )
        desk._policy, desk._panel_policy = desk.policy_of(18), desk.panel_policy_of(18)
        self.desk = desk

    def serve(self, salts: bool) -> None:
        """As a party of sessions."""
        service = RecordsService(self.node, self.draws, judges=self.board, commit_seconds=2.0)
        service.serve(salts=salts)

    async def audit(self, nursery: trio.Nursery) -> None:
        """As an auditor, who also sits on juries."""

        async def chain_time() -> int:
            return (await trio.to_thread.run_sync(self.contracts.rpc.head)).timestamp

        loaded = Loaded(opened().manifest.model_id, target(), None)
        engine = WorkerRerun(InThread(), lambda: loaded)  # type: ignore[arg-type]
        prove = ExactProver(self.node, opened, partial(keep_found, self.node, self.contracts))
        self.auditor = AuditorRole(
            self.node,
            self.draws,
            engine,
            tolerance=Tolerance.of(Tier.EXACT),
            patience=QUICK,
            prove=prove,
        )
        await nursery.start(self.auditor.run)
        self.juror = JurorRole(self.node, self.board, engine, chain_time, pause=0.1)
        await nursery.start(self.juror.run)

    async def look(self) -> None:
        await trio.to_thread.run_sync(self.chain.read)
        for role in (self.auditor, self.juror):
            if role is not None:
                role.look()
        await trio.to_thread.run_sync(self.desk.look, tuple(self.chain.events))


class Town:
    """All daemons, over one served and settled session."""

    def __init__(self, anvil: Anvil, contracts: Contracts) -> None:
        self.anvil, self.contracts = anvil, contracts
        self.of: dict[str, Daemon] = {}

    def standing(self) -> PanelStanding:
        return fold_panel(self.of["client"].chain.read())

    def events(self, kind: type) -> list[Any]:
        found = self.of["client"].chain.read()
        return [event.event for event in found if isinstance(event.event, kind)]

    def tokens(self, name: str) -> int:
        address = self.of[name].node.address
        balance = self.contracts.token.balance_of
        return balance(address) + balance(beneficiary(address))

    def stake(self, name: str) -> int:
        return self.contracts.vault.slashable(self.of[name].node.address, ROLES[name])

    async def until(self, good: Any) -> None:
        """Everybody looks, block after block."""
        for _ in range(LOOKS):
            for daemon in self.of.values():
                await daemon.look()
            if good():
                return
            self.anvil.mine()
            await trio.sleep(0.05)
        raise AssertionError(f"not after {LOOKS} looks: {self.standing().cases}")

    def is_closed(self) -> bool:
        cases = self.standing().cases.values()
        return bool(cases) and all(case.stage == CaseStage.CLOSED for case in cases)

    def is_quiet(self) -> bool:
        """Nobody has anything to do, but for draws and openings."""
        panel = ("collect", "dismiss", "commit", "reveal", "decide", "conclude", "seat", "join")
        return not any(
            due["action"] in panel
            for daemon in self.of.values()
            for due in daemon.desk.view()["due"]
        )


@asynccontextmanager
async def town(anvil: Anvil, contracts: Contracts, folder: Path, model: Any) -> AsyncIterator[Town]:
    stage, found = Arena(seed=3), Town(anvil, contracts)
    stage.clock = time.time() - trio.current_time()
    seats = {name: stage.seat(name) for name in ("client", *ROLES)}
    stage.list_drafter(seats["drafter"])
    stage.list_verifier(seats["verifier"])
    plan = stage.plan(
        prompt=PROMPT,
        stop_ids=(),
        max_tokens=12,
        mode=Mode.GREEDY,
        temperature=0,
        deadline=int(time.time()) + 3_000,
    )
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        verifier = await nursery.start(stage.verifier, seats["verifier"], model)
        draft = ModelDrafter(load_model(PAIR / "draft", "exact", "cpu"))
        drafter = await nursery.start(stage.drafter, seats["drafter"], draft)
        client = await stack.enter_async_context(stage.client(seats["client"]))
        nodes = {"client": client.node, "drafter": drafter.node, "verifier": verifier.node}
        for name in AUDITORS:
            nodes[name] = await stack.enter_async_context(stage.node(seats[name]))
        for name, node in nodes.items():
            daemon = found.of[name] = Daemon(contracts, node, folder / name)
            if name in AUDITORS:
                await daemon.audit(nursery)
            else:
                daemon.serve(salts=name == "verifier")
        await found.until(lambda: len(found.standing().seats) == len(AUDITORS))
        outcome = await client.generate(plan, ignore)
        (served,) = outcome.sessions
        settle(found, served)
        yield found
        nursery.cancel_scope.cancel()


def settle(found: Town, served: Any) -> None:
    contracts, paid = found.contracts, served.payment
    assert paid.complete
    lane, escrow = served.terms.order.lane, contracts.escrow
    client, verifier = found.of["client"].sender, found.of["verifier"].sender
    client.send("approve", contracts.token.approve(escrow.address, STAKE))
    client.send("reserve", escrow.reserve(lane, STAKE))
    node = found.of["client"].node
    batch = EvidenceRoom(node.journal, node.domain).batch(paid.voucher.root)
    assert batch is not None
    signed = SignedVoucher(
        lane,
        paid.voucher,
        batch.settled()[1].top,
        client=paid.client,
        verifier=paid.verifier,
        drafter=paid.drafter,
    )
    groups = groups_of([(signed, Position(0, escrow.parameters().fee_bps))])
    verifier.send("settle", escrow.settle(contracts.token.address, groups))


def test_another_checkpoint_costs_v_half_and_everybody_else_nothing(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    async def play() -> None:
        async with town(anvil, chain, tmp_path, _other_weights()) as found:
            await found.until(found.is_closed)
            (case,) = found.standing().cases.values()
            assert case.result == Result.GUILTY
            verifier = found.of["verifier"].node.address
            assert (case.accused, case.appellant) == (verifier, verifier)
            accuser = next(n for n in AUDITORS if found.of[n].node.address == case.accuser)
            jurors = [name for name in AUDITORS if name != accuser]
            for _, jury in found.standing().sat(case):
                assert set(jury.members) == {found.of[name].node.address for name in jurors}
                assert jury.revealed == set(jury.members)
            assert len({event.print for event in found.events(AnswerRevealed)}) == 1
            assert found.stake("verifier") == STAKE // 2
            for name in ("drafter", *AUDITORS):
                assert found.stake(name) == STAKE, name
            (slash,) = found.events(StakeSlashed)
            total, burned, victims, reward = slash.slashed
            assert (total, reward) == (STAKE // 2, STAKE // 8)
            assert burned >= total // 2
            # What the round cost the client and the drafter is theirs again.
            vested = {event.who: event.amount for event in found.events(Vested)}
            assert vested[found.of["client"].node.address] == int(case.subject.words[22]) > 0
            assert victims == int(case.subject.words[22]) + int(case.subject.words[23])
            await found.until(found.is_quiet)
            await found.until(lambda: len(found.events(JurorPaid)) == 6)
            await found.until(found.is_quiet)
            assert found.tokens("verifier") == SPARE - 2 * PANEL.bond
            assert found.tokens(accuser) == SPARE + PANEL.bond
            for name in jurors:
                assert found.tokens(name) == SPARE + 2 * (PANEL.bond // 6), name

    trio.run(play)


def slander(found: Town, name: str) -> None:
    """That auditor says of an honest token that its own run contradicts it."""
    node = found.of["client"].node
    ((_, _, entry, _),) = fold(found.of["client"].chain.read()).settlements()
    batch = EvidenceRoom(node.journal, node.domain).batch(entry.root)
    assert batch is not None
    (tree, top), evidence = batch.settled(), batch.rounds[1]
    order, start, record = evidence.order, evidence.start, evidence.record
    path, words = path_of(tree.proof(1)), (record.to_wire(), order.to_wire(), start.to_wire())
    hung = DrawnAnswer(preimage_of(top), None, words[0], path, words[1], words[2])
    wire = Suspicion(hung, frames_of(evidence), 0).to_wire
    journal = found.of[name].node.journal
    journal.secret_once(f"{SUSPECT}:{record.start_hash.hex()}:1:0", wire)


def test_a_false_accuser_loses_its_bonds_and_everybody_else_nothing(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    async def play() -> None:
        async with town(anvil, chain, tmp_path, target()) as found:
            liar, *honest = AUDITORS
            await found.of["client"].look()
            slander(found, liar)
            await found.until(found.is_closed)
            (case,) = found.standing().cases.values()
            assert case.result == Result.CLEARED
            assert case.accuser == case.appellant == found.of[liar].node.address
            for name in ROLES:
                assert found.stake(name) == STAKE, name
            await found.until(found.is_quiet)
            await found.until(lambda: len(found.events(JurorPaid)) == 6)
            await found.until(found.is_quiet)
            lost = 3 * PANEL.bond
            assert found.tokens(liar) == SPARE - lost
            assert found.tokens("verifier") == SPARE + lost // 2
            for name in honest:
                assert found.tokens(name) == SPARE + 2 * (lost // 2 // 6), name

    trio.run(play)


def test_an_honest_verifier_is_accused_by_nobody(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    async def play() -> None:
        async with town(anvil, chain, tmp_path, target()) as found:
            audited = [found.of[name].auditor for name in AUDITORS]

            def done() -> bool:
                audits = [a for role in audited if role for a in role.audits.values()]
                return len(audits) == 3 and all(audit.done for audit in audits)

            await found.until(done)
            reports = [r for role in audited if role for a in role.view() for r in a["sessions"]]
            assert [report["verdict"] for report in reports] == ["clean"] * 3
            for _ in range(3):
                for daemon in found.of.values():
                    await daemon.look()
            assert not found.standing().cases
            assert found.stake("verifier") == STAKE

    trio.run(play)
