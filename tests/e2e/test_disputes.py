"""Faults put into the records of a real run, and what the chain makes of them.

A devnet of real processes serves a request in each mode. Its nodes find nothing to prove in it; a
node that is given a signed lie proves it by itself, killed on the way. Then every fault that
contracts judge is put into the run's own records, signed by the guilty's key, settled where it lies
in a settled tree, and proven by one challenger who was no party.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from judged_runs import CRIMES, honest_proofs
from live import Live, eventually, live
from played_sessions import Play
from watched_node import Followed, Watched, frames_of, voucher_over

from node.evidence import EvidenceRoom
from node.journal import Journal
from node.roles.accusations import Accusation
from settlement.accept_rule import LeafFault
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import Reverted
from settlement.chain.events import LaneSettled, StakeSlashed, Vested
from settlement.chain.lanes import Position, groups_of
from settlement.chain.sender import Sender
from settlement.chain.standing import DemandStage, fold
from settlement.draws import BatchEvidence
from settlement.fault_proofs import Code, Fault, Kind
from settlement.faults import find_faults
from settlement.records import Mode

pytestmark = pytest.mark.slow
COURT = frozenset(kind for kind in Kind if not kind.name.startswith("EXACT"))
DAEMONS = ("drafter-1", "drafter-2", "verifier-1", "verifier-2", "client-1", "auditor-1")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("disputes")) as found:
        for mode in ("rejection", "coupled", "greedy"):
            found.ask(
                mode=mode,
                max_tokens=48,
                top_k=50 if mode == "rejection" else 0,
                drafter="0x" + found.operator("drafter-1").address.hex(),
                verifier="0x" + found.operator("verifier-1").address.hex(),
            )
        found.await_paid()
        yield found


# ---------------------------------------------------------------- the daemons


def test_honest_nodes_find_nothing_and_demand_nothing(net: Live) -> None:
    for name in DAEMONS:
        view = net.running(name).get("/v1/disputes")
        assert (view["challenges"], view["lacking"]) == ([], []), name
    standing = fold(net.chain.read())
    assert not standing.filings
    assert not standing.demands
    assert not standing.judged
    assert standing.batches


def test_a_verifier_answers_a_strangers_demand(net: Live) -> None:
    contracts, stranger = net.world.contracts, net.operator("auditor-1")
    sender = net.world.sender(stranger)
    eventually(
        "a settled batch has its randomness",
        lambda: any(batch.captured for batch in fold(net.chain.read()).batches.values()),
    )
    batch, index, _entry, lane = next(
        found for found in fold(net.chain.read()).settlements() if found[0].captured
    )
    court = contracts.demands
    sender.send("test:allow", contracts.token.approve(court.address, court.bond()))
    call = court.demand_leaf(batch.batch, batch.packed(), index, lane, b"\x07" * 32)
    sender.send("test:demand", call)

    def answered() -> bool:
        demands = fold(net.chain.read()).demands.values()
        return [demand.stage for demand in demands] == [DemandStage.SHOWN]

    eventually("the verifier has answered", answered)
    verifier = net.operator("verifier-1")
    # The bond is its own, and it has pulled it to its beneficiary.
    eventually("the bond is pulled", lambda: court.bond_of(verifier.address) == 0)
    assert contracts.token.balance_of(verifier.beneficiary) >= court.bond()


def test_a_client_given_a_lie_proves_it_though_it_is_killed(net: Live) -> None:
    contracts, client = net.world.contracts, net.operator("client-1")
    verifier = net.operator("verifier-1")
    stake = contracts.vault.slashable(verifier.address, Role.VERIFIER)
    net.running("client-1").kill()
    journal = Journal(client.folder / "data" / "journal.sqlite", durability="normal")
    session = next(s for s in sessions_of(net, journal).values() if s.rounds[0].commit)
    honest = session.rounds[0]
    leaf = honest.verdict_leaves[0]
    lying = CRIMES["another_draft_named"]({Mode.COUPLED: session})
    altered = next(e for e, right in zip(lying.rounds, session.rounds, strict=True) if e != right)
    assert leaf.draft_token != altered.verdict_leaves[0].draft_token
    frames = frames_of(altered)
    accusation = Accusation(altered.order, altered.start, None, frames.draft, frames.verdict)
    journal.secret_once(f"accusation:{'00' * 32}:1:1", accusation.to_wire)
    journal.close()
    net.revive()
    eventually("it has filed", lambda: fold(net.chain.read()).filings)
    net.running("client-1").kill()
    net.revive()
    # The lie, and that another verdict on this round had been signed.
    eventually("it has proven both", lambda: len(fold(net.chain.read()).judged) == 2)
    standing = fold(net.chain.read())
    assert {j.number for j in standing.judged} == {2, 3}
    assert {(j.guilty, j.by) for j in standing.judged} == {(verifier.address, client.address)}
    assert len(standing.filings) == 2
    left = stake - stake // 2
    left -= left // 2
    assert contracts.vault.slashable(verifier.address, Role.VERIFIER) == left
    eventually("the bond is pulled", lambda: contracts.court.bond_of(client.address) == 0)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "node", "disputes", "--json"),
            *("--rpc-url", net.world.anvil.url, "--address-book", str(net.world.book)),
            *("--keystore", str(client.keystore), "--api", net.running("client-1").api),
        ],
        capture_output=True,
        env=dict(os.environ),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    told = json.loads(ran.stdout)
    faults = [entry for entry in told["disputes"] if entry["kind"] == "fault"]
    assert {(f["by"], f["part"]) for f in faults} == {("0x" + client.address.hex(), "by")}
    assert [c["step"] for c in told["node"]["challenges"]] == ["proven", "proven"]
    metrics = net.running("client-1").operator.log_file.read_text()
    assert "fault found" in metrics


# ---------------------------------------------------------------- the run's own records


@dataclass
class Run:
    """What the devnet left: its chain, its records, and everybody's keys."""

    net: Live
    folder: Path
    sessions: dict[Mode, Play]
    batches: list[BatchEvidence]
    followed: Followed

    @property
    def contracts(self) -> Contracts:
        return self.net.world.contracts

    @property
    def keys(self) -> tuple[bytes, bytes, bytes]:
        names = ("client-1", "drafter-1", "verifier-1")
        client, drafter, verifier = (self.net.operator(name).key for name in names)
        return client, drafter, verifier

    def challenger(self, name: str, folder: Path) -> Watched:
        key = self.net.operator(name).key
        return Watched(self.contracts, key, folder / name, chain=self.followed)

    def sender(self, name: str, folder: Path) -> Sender:
        """Of a key whose node is off, with a journal of the test's own."""
        from settlement.chain.send_journal import SqliteSendJournal

        return Sender(
            self.contracts.rpc,
            self.net.operator(name).key,
            SqliteSendJournal(folder / f"{name}.sqlite"),
            errors=self.contracts.errors,
            poll_seconds=0.01,
        )

    def slashable(self, fault: Fault) -> int:
        role = Role.DRAFTER if fault.by_drafter else Role.VERIFIER
        return self.contracts.vault.slashable(fault.guilty, role)


def sessions_of(net: Live, journal: Journal) -> dict[Mode, Play]:
    """The longest session of each mode, as that journal holds it."""
    domain = net.world.contracts.domain
    room = EvidenceRoom(journal, domain)
    keys = (net.operator("drafter-1").key, net.operator("verifier-1").key)
    found: dict[Mode, Play] = {}
    for row in journal.sessions():
        stored = journal.rounds(row.start_hash)
        rounds = tuple(room.round(row.start_hash, item.round) for item in stored)
        whole = tuple(evidence for evidence in rounds if evidence is not None)
        mode = Mode(whole[0].order.mode)
        if mode not in found or len(found[mode].rounds) < len(whole):
            found[mode] = Play(domain, whole, keys)
    return found


@pytest.fixture(scope="module")
def run(net: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("run")
    assert net.fleet.stop_all() == []
    journal = Journal(
        net.operator("verifier-1").folder / "data" / "journal.sqlite", durability="normal"
    )
    room = EvidenceRoom(journal, net.world.contracts.domain)
    followed = Followed(net.world.contracts, folder / "index.sqlite")
    followed.read()
    roots = [entry.root for _b, _i, entry, _l in fold(followed.events).settlements()]
    batches = [room.batch(root) for root in roots]
    yield Run(
        net,
        folder,
        sessions_of(net, journal),
        [batch for batch in batches if batch is not None],
        followed,
    )
    journal.close()


@pytest.fixture
def apart(run: Run) -> Iterator[Run]:
    with run.net.world.anvil.rolled_back():
        yield run


def settle(run: Run, crime: Any, folder: Path) -> None:
    """The crime's rounds as batches of a new epoch of their lane, signed by all three."""
    contracts, (client_key, *_rest) = run.contracts, run.keys
    lane = crime.rounds[0].order.lane
    client, verifier = run.sender("client-1", folder), run.sender("verifier-1", folder)
    assert client_key == run.net.operator("client-1").key
    client.send("epoch", contracts.escrow.open_epoch(lane))
    epoch = contracts.escrow.lane_state(lane.id).epoch
    position = Position(epoch, contracts.escrow.parameters().fee_bps)
    base, due = None, 10**12
    parts = [(crime.older, None)] * bool(crime.older) + [(crime.rounds, crime.settled)]
    for rounds, settled in parts:
        signed = voucher_over(
            contracts.domain, rounds, run.keys, epoch=epoch, base=base, settled=settled, due=due
        )
        call = contracts.escrow.settle(contracts.token.address, groups_of([(signed, position)]))
        verifier.send(f"settle:{signed.voucher.root.hex()}", call)
        run.followed.read()
        (event,) = (
            found.event
            for found in run.followed.events
            if isinstance(found.event, LaneSettled) and found.event.root == signed.voucher.root
        )
        position = position.after(event, signed.voucher)
        base, due = BatchEvidence(rounds, base, {}).settled()[1], 2 * due


def test_the_run_holds_what_is_to_be_altered(run: Run) -> None:
    assert set(run.sessions) == {Mode.GREEDY, Mode.COUPLED, Mode.REJECTION}
    assert all(len(session.rounds) >= 4 for session in run.sessions.values())
    assert len(run.batches) >= 1


def test_every_code_that_contracts_judge_has_its_crime(run: Run) -> None:
    codes = {(c.number, int(c.code)) for c in (make(run.sessions) for make in CRIMES.values())}
    judged = {int(code) for code in (*LeafFault, *Code)}
    assert {code for _number, code in codes} == judged
    kinds = {make(run.sessions).find(session_for(run, name)).kind for name, make in CRIMES.items()}
    assert kinds == COURT


def session_for(run: Run, name: str) -> Play:
    """The session that a crime was made of; all are on one lane and under one domain."""
    return next(iter(run.sessions.values()))


@pytest.mark.parametrize("name", sorted(CRIMES))
def test_one_challengers_proof_slashes_the_guilty(apart: Run, tmp_path: Path, name: str) -> None:
    run, anvil = apart, apart.net.world.anvil
    crime = CRIMES[name](run.sessions)
    fault = crime.find(session_for(run, name))
    if fault.kind.of_tree:
        settle(run, crime, tmp_path)
    node = run.challenger("auditor-1", tmp_path)
    before, held = run.slashable(fault), run.contracts.token.balance_of(node.address)
    assert before > 0
    node.accuse(fault)
    for _ in range(4):
        node.look()
        anvil.mine()
    assert node.steps() == ["proven"]
    assert run.slashable(fault) == before - before // 2
    assert run.contracts.court.bond_of(node.address) == 0
    # The operator's bond comes back to its beneficiary.
    operator = run.net.operator("auditor-1")
    assert run.contracts.token.balance_of(node.address) == held - run.contracts.court.bond()
    assert run.contracts.token.balance_of(operator.beneficiary) >= run.contracts.court.bond()
    (slash,) = (
        found.event
        for found in run.followed.events
        if isinstance(found.event, StakeSlashed) and found.event.challenger == node.address
    )
    total, burned, victims, reward = slash.slashed
    assert total == before // 2
    assert burned + victims + reward == total
    assert burned >= total // 2
    assert reward == total // 4


def test_every_proof_is_refused_for_every_honest_record(run: Run) -> None:
    contracts, domain = run.contracts, run.contracts.domain
    refused: dict[Kind, int] = {}
    for session in run.sessions.values():
        lane = session.rounds[0].order.lane
        whole = BatchEvidence(session.rounds, None, {})
        assert find_faults(domain, lane, whole) == ()
        start_hash = session.rounds[0].start.struct_hash
        batch = max(
            run.batches,
            key=lambda b: sum(e.record.start_hash == start_hash for e in b.rounds),
        )
        for fault in honest_proofs(session, batch, batch.settled()[1]):
            with pytest.raises(Reverted):
                contracts.rule_of(fault).ruling(fault, domain.separator)
            refused[fault.kind] = refused.get(fault.kind, 0) + 1
    assert set(refused) == COURT
    assert sum(refused.values()) > 200, refused
    for batch in run.batches:
        assert find_faults(domain, batch.rounds[0].order.lane, batch) == ()


def test_a_copied_proof_pays_its_author_and_a_refused_one_uses_up_no_fault(
    apart: Run, tmp_path: Path
) -> None:
    run, anvil, contracts = apart, apart.net.world.anvil, apart.contracts
    court, token, domain = contracts.court, contracts.token, contracts.domain
    crime = CRIMES["another_draft_named"](run.sessions)
    fault = crime.find(session_for(run, ""))
    honest = next(
        f
        for f in honest_proofs(
            run.sessions[Mode.COUPLED], run.batches[0], run.batches[0].settled()[1]
        )
        if f.kind == Kind.OTHER_DRAFT
    )
    author, copier = (run.sender(f"auditor-{n}", tmp_path) for n in (1, 2))
    before = run.slashable(fault)
    salt = b"\x05" * 32

    def commitment(of: Fault, by: Sender) -> bytes:
        question = contracts.rule_of(of).question(of, domain.separator)
        return court.commitment(question, by.address, salt)

    for sender in (author, copier):
        sender.send("allow", token.approve(court.address, 2 * court.bond()))
    # The author accuses an honest round first: refused, whoever asks, and nothing is used up.
    author.send("file honest", court.file(commitment(honest, author)))
    author.send("file", court.file(commitment(fault, author)))
    # The copier files what it saw filed, under its own name.
    copier.send("copy filing", court.file(commitment(fault, author)))
    anvil.mine(2)
    with pytest.raises(Reverted, match="NoFault"):
        author.send("accuse", court.prove(honest, salt))
    assert court.filing_of(author.address, commitment(honest, author)).bond
    # It sees the author's reveal in the pool and is mined before it.
    with pytest.raises(Reverted, match="NotFiled"):
        copier.send("front-run", court.prove(fault, salt))
    # It files the evidence that it has seen now, too late to come first.
    copier.send("file seen", court.file(commitment(fault, copier)))
    author.send("prove", court.prove(fault, salt))
    anvil.mine(2)
    copier.send("prove seen", court.prove(fault, salt))
    assert run.slashable(fault) == before - before // 2  # punished once
    run.followed.read()
    slashes = [
        found.event for found in run.followed.events if isinstance(found.event, StakeSlashed)
    ]
    assert [s.challenger for s in slashes if s.challenger in (author.address, copier.address)] == [
        author.address
    ]
    # A false accusation costs its bond once its window has passed.
    terms = court.terms()
    filing = court.filing_of(author.address, commitment(honest, author))
    assert filing.open_until - filing.open_from == terms[2]
    with pytest.raises(Reverted, match="StillOpen"):
        copier.send("early", court.forfeit(author.address, commitment(honest, author)))


def test_evidence_reaches_the_stake_that_is_leaving(apart: Run, tmp_path: Path) -> None:
    """The verifier asks its whole stake out as soon as it sees a filing, and even waits for it."""
    run, anvil, contracts = apart, apart.net.world.anvil, apart.contracts
    crime = CRIMES["two_verdicts"](run.sessions)
    fault = crime.find(session_for(run, ""))
    node, verifier = run.challenger("auditor-1", tmp_path), run.sender("verifier-1", tmp_path)
    node.accuse(fault)
    node.look()
    stake = contracts.vault.stake_of(verifier.address, Role.VERIFIER)
    verifier.send("leave", contracts.vault.unstake(verifier.address, Role.VERIFIER, stake.active))
    before = run.slashable(fault)
    anvil.mine()
    node.look()
    assert node.steps()[0] in ("prove", "proven")
    assert run.slashable(fault) == before - before // 2
    with pytest.raises(Reverted):
        verifier.send("withdraw", contracts.vault.withdraw(verifier.address, Role.VERIFIER))


def test_slashing_oneself_is_no_way_out(apart: Run, tmp_path: Path) -> None:
    """A verifier who proves its own fault through a friend: what comes back to both is less than
    half of the slash, and it vests for as long as unbonding takes."""
    run, anvil, contracts = apart, apart.net.world.anvil, apart.contracts
    crime = CRIMES["two_verdicts"](run.sessions)
    fault = crime.find(session_for(run, ""))
    friend = run.challenger("auditor-2", tmp_path)
    before = run.slashable(fault)
    friend.accuse(fault)
    for _ in range(3):
        friend.look()
        anvil.mine()
    assert friend.steps() == ["proven"]
    (slash,) = (
        found.event
        for found in run.followed.events
        if isinstance(found.event, StakeSlashed) and found.event.challenger == friend.address
    )
    total, burned, victims, reward = slash.slashed
    assert total == before // 2
    assert victims + reward <= total // 2
    assert burned >= total - total // 2
    # Nothing of it is there yet.
    (vested,) = (
        found.event
        for found in run.followed.events
        if isinstance(found.event, Vested) and found.event.who == friend.address
    )
    assert vested.amount == reward
    claim = contracts.vault.transact("claimVested", friend.address, [vested.slice])
    with pytest.raises(Reverted):
        run.sender("auditor-2", tmp_path).send("vested", claim)
