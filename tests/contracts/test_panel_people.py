"""Nodes before the panel on a real chain: they accuse, sit, commit, reveal, appeal and collect by
themselves; killed anywhere they go on, and nothing is done twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deployment import DRAFTER, OWNER, VERIFIER, make_sender
from panel_world import (
    AUDITOR_STAKE,
    AUDITORS,
    BOND,
    MARGIN,
    PANEL,
    PRINT,
    SALT,
    SPARE,
    STAKE,
    TARGET,
    TOKEN,
    V,
    World,
    anvil,
    chain,
    folder,
    opened,
    played,
    world,
)
from played_sessions import Play
from watched_node import Watched, frames_of, keep_session, keep_voucher

from node.cli import main
from node.config import PanelConfig
from node.network.messages import DrawnAnswer
from node.roles.records import path_of, preimage_of
from node.roles.suspicions import SUSPECT, Suspicion, answer_name, wire_of
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import Reverted
from settlement.chain.panel import CaseStage
from settlement.chain.panel_events import AnswerCommitted, JurorPaid, TicketEntered
from settlement.chain.panel_standing import PanelStanding, fold_panel
from settlement.hashing import keccak256
from settlement.panel_watch import Sealed
from settlement.panels import Answer, Result
from settlement.records import Manifest, Mode, Tier
from settlement.signing import address_of_key

__all__ = ["anvil", "chain", "folder", "opened", "world"]  # fixtures
pytestmark = pytest.mark.slow
BOTH = PanelConfig(seat=True, accuse_tokens=BOND / TOKEN, appeal_tokens=2 * BOND / TOKEN)
FALSE = Answer(print=PRINT, margin=MARGIN + 1)
TRUE = Answer(print=PRINT)


def suspicion(session: Play, at: int = 0, within: int = 0) -> Suspicion:
    tree, settled = session.batch().settled()
    evidence = session.rounds[at]
    hung = DrawnAnswer(
        preimage_of(settled),
        None,
        evidence.record.to_wire(),
        path_of(tree.proof(at)),
        evidence.order.to_wire(),
        evidence.start.to_wire(),
    )
    return Suspicion(hung, frames_of(evidence), within)


class People:
    """Four auditors and V as nodes over one settled session; the first auditor suspects a token."""

    def __init__(
        self, world: World, folder: Path, suspects: bool = True, session: Play | None = None
    ) -> None:
        self.world, self.chain, self.folder = world, world.chain, folder
        self.session = session or played(world.chain)
        self.signed = world.settle(self.session)
        self.auditors = [self.auditor(number) for number in range(4)]
        self.verifier = self.node("verifier", VERIFIER)
        keep_session(self.verifier.journal, self.session, "verifier", (SALT, PRINT))
        keep_voucher(self.verifier.journal, self.session, self.signed)
        if suspects:
            found = suspicion(self.session)
            start = self.session.rounds[0].record.start_hash.hex()
            self.accuser.journal.secret_once(f"{SUSPECT}:{start}:0:0", found.to_wire)

    def node(self, name: str, key: bytes, panel: PanelConfig = BOTH) -> Watched:
        return Watched(self.chain, key, self.folder / name, panel=panel)

    def auditor(self, number: int) -> Watched:
        return self.node(f"auditor-{number}", AUDITORS[number])

    @property
    def accuser(self) -> Watched:
        return self.auditors[0]

    @property
    def everybody(self) -> list[Watched]:
        return [*self.auditors, self.verifier]

    @property
    def jurors(self) -> list[Watched]:
        return self.auditors[1:]

    def standing(self) -> PanelStanding:
        return fold_panel(self.accuser.chain.read())

    def look(self) -> None:
        """Everybody looks once, each at all that is mined by then."""
        for node in self.everybody:
            node.look()

    def case(self) -> Any:
        (case,) = self.standing().cases.values()
        return case

    def drawn(self) -> Any:
        """The case accused, its jury summoned and seated."""
        self.accuser.look()
        self.world.anvil.mine(2)
        self.accuser.look()
        case = self.case()
        jury = self.standing().jury_of(case)
        assert len(jury.members) == PANEL.panel_size
        assert self.accuser.address not in jury.members
        return case

    def tokens(self, node: Watched) -> int:
        """In the key's hands, and in its beneficiary's."""
        token, payout = self.chain.token, self.chain.vault.payout_to(node.address)
        return sum(token.balance_of(who) for who in (node.address, payout))

    def paid(self) -> list[Any]:
        return [e for e in self.accuser.chain.read() if isinstance(e.event, JurorPaid)]

    def now(self) -> int:
        return self.world.anvil.timestamp

    def judged(self, answer: Answer) -> None:
        """As each juror's role does once it has run the model."""
        case = self.case()
        for node in self.jurors:
            sealed = Sealed(answer, keccak256(node.address))
            name = answer_name(case.question(case.jury))
            node.journal.secret_once(name, lambda sealed=sealed: wire_of(sealed))


@pytest.fixture
def people(world: World, tmp_path: Path) -> People:
    return People(world, tmp_path / "people")


def counts(nodes: list[Watched], what: str) -> list[int]:
    return [node.counted(f"watch_{what}") for node in nodes]


def test_an_accused_token_is_judged_and_paid_for_by_nodes_alone(
    people: People, chain: Contracts
) -> None:
    people.drawn()
    people.look()  # nobody has an answer yet, so nobody commits
    assert not people.standing().jury_of(people.case()).committed
    people.judged(FALSE)
    people.look()
    people.look()  # V opens its fingerprint once all have committed, …
    assert people.case().printed
    people.look()  # … the jurors reveal, and a party has it decided
    people.look()
    case = people.case()
    assert (case.stage, case.result) == (CaseStage.APPEAL, Result.GUILTY), "V has appealed"
    assert case.appellant == V
    people.world.anvil.mine(2)
    people.look()
    people.judged(FALSE)  # the same three: there are no others
    for _ in range(4):
        people.look()
    case = people.case()
    assert (case.stage, case.result) == (CaseStage.CLOSED, Result.GUILTY)
    assert chain.vault.slashable(V, Role.VERIFIER) == STAKE // 2
    for _ in range(2):
        people.look()
        people.world.anvil.mine()
    # The accuser has its bond and half of V's; the jurors share the rest, and are paid twice.
    accuser = people.accuser.address
    assert chain.panel.bond_of(accuser) == 0
    assert people.tokens(people.accuser) == SPARE + BOND
    for juror in people.jurors:
        assert chain.panel.bond_of(juror.address) == 0
        paid = [e.event for e in people.paid() if e.event.juror == juror.address]
        assert [event.share for event in paid] == [BOND // 6] * 2, "half of V's bond"
        assert chain.vault.slashable(juror.address, Role.AUDITOR) == AUDITOR_STAKE
    assert counts(people.jurors, "commit") == counts(people.jurors, "reveal") == [2, 2, 2]
    assert counts([people.accuser], "accuse") == [1]
    assert counts([people.verifier], "appeal") == [1]
    for node in people.everybody:
        assert node.look() == 0, "nothing is left to do"
        assert node.desk.view()["lacking"] == []


def test_a_false_accusation_costs_its_bond_and_nothing_of_v(
    people: People, chain: Contracts
) -> None:
    people.drawn()
    people.judged(TRUE)
    for _ in range(4):
        people.look()
    case = people.case()
    # The accuser believes its own run, and appeals.
    assert (case.stage, case.result) == (CaseStage.APPEAL, Result.CLEARED)
    people.world.anvil.mine(2)
    people.look()
    people.judged(TRUE)
    for _ in range(5):
        people.look()
    case = people.case()
    assert (case.stage, case.result) == (CaseStage.CLOSED, Result.CLEARED)
    assert chain.vault.slashable(V, Role.VERIFIER) == STAKE
    lost = 3 * BOND
    assert people.tokens(people.accuser) == SPARE - lost
    # It does not accuse that place again, whatever its journal says.
    for _ in range(2):
        people.look()
    assert len(people.standing().cases) == 1


def test_a_juror_killed_between_commit_and_reveal_reveals_what_it_committed_to(
    people: People, chain: Contracts
) -> None:
    case = people.drawn()
    people.judged(FALSE)
    for node in people.jurors:
        node.look()
        node.close()
    committed = dict(people.standing().jury_of(case).committed)
    assert len(committed) == 3
    people.auditors[1:] = [people.auditor(number) for number in (1, 2, 3)]
    # The run is made again after the crash, and another answer comes out: it is too late for it.
    people.judged(Answer(print=bytes(32), margin=7))
    people.verifier.look()
    for node in people.jurors:
        for _ in range(3):
            node.look()
    assert counts(people.jurors, "reveal") == [1, 1, 1]
    jury = people.standing().jury_of(case)
    assert jury.committed == committed
    assert [a.margin for a in chain.juries.answers_of(jury.id)] == [MARGIN + 1] * 3
    assert chain.juries.is_over(jury.id)


def test_what_a_reorganisation_undoes_is_sent_again_once(people: People, chain: Contracts) -> None:
    case = people.drawn()
    people.judged(FALSE)
    first = people.jurors[0]
    first.look()
    assert list(people.standing().jury_of(case).committed) == [first.address]
    people.world.anvil.reorg(1)
    people.world.anvil.mine()
    for node in (*people.jurors, first, first):
        node.look()
    jury = people.standing().jury_of(case)
    assert len(jury.committed) == 3
    said = [e for e in first.chain.read() if isinstance(e.event, AnswerCommitted)]
    assert len(said) == 3


def test_a_second_accuser_finds_the_case_open_and_keeps_its_bond(
    people: People, chain: Contracts
) -> None:
    other = people.auditors[1]
    found = suspicion(people.session)
    start = people.session.rounds[0].record.start_hash.hex()
    other.journal.secret_once(f"{SUSPECT}:{start}:0:0", found.to_wire)
    people.accuser.look()
    held = chain.token.balance_of(other.address)
    other.look()
    assert len(people.standing().cases) == 1
    assert chain.token.balance_of(other.address) == held


def test_silence_costs_a_juror_and_who_has_dismissed_it_is_paid(
    people: People, chain: Contracts
) -> None:
    case = people.drawn()
    people.judged(FALSE)
    silent = people.jurors[2]
    for node in people.jurors[:2]:
        node.look()
    people.world.anvil.warp(chain.juries.jury_of(case.jury).commit_until + 1 - people.now())
    active = [node for node in people.everybody if node is not silent]
    for _ in range(4):
        for node in active:
            node.look()
    assert people.case().result == Result.GUILTY  # two of three are a majority
    people.world.anvil.warp(PANEL.appeal_window + 1)
    for _ in range(4):
        for node in active:
            node.look()
        people.world.anvil.mine(1)
    assert chain.vault.slashable(silent.address, Role.AUDITOR) < AUDITOR_STAKE
    assert sum(counts(active, "dismiss")) >= 1


def test_a_strangers_ticket_costs_no_juror_its_stake(people: People, chain: Contracts) -> None:
    """Entered for a small bond, delivered to nobody, never opened."""
    world, stranger = people.world, people.world.parties.client
    world.send(stranger, chain.token.approve(chain.audits.address, chain.audit_terms.bond()))
    world.send(stranger, chain.audits.enter(b"\x77" * 32, TARGET.model_id))
    entered = world.last(TicketEntered)
    members = world.seat(entered.jury_id)
    people.look()
    assert not people.standing().juries[entered.jury_id].committed, "it may still come"
    until = chain.juries.jury_of(entered.jury_id).commit_until
    world.anvil.warp(until - 2 - people.now())
    for _ in range(2):
        people.look()
    jury = people.standing().juries[entered.jury_id]
    assert set(jury.committed) == set(members), "all have said that nothing came"
    assert counts(people.auditors, "commit").count(1) == len(members)
    world.anvil.warp(4_000)
    world.send(stranger, chain.audits.lapse(entered.audit_id))
    for member in members:
        with pytest.raises(Reverted, match=r"StillSitting|NotSilent"):
            world.send(stranger, chain.juries.dismiss(entered.jury_id, member))
        assert chain.vault.slashable(member, Role.AUDITOR) == AUDITOR_STAKE


def test_no_bond_is_put_down_beyond_what_the_operator_allows(
    world: World, chain: Contracts, tmp_path: Path
) -> None:
    people = People(world, tmp_path / "people")
    people.accuser.close()
    people.auditors[0] = people.node(
        "auditor-0", AUDITORS[0], PanelConfig(accuse_tokens=BOND / TOKEN - 1, appeal_tokens=0.0)
    )
    people.accuser.look()
    assert not people.standing().cases
    (lack,) = people.accuser.desk.view()["lacking"]
    assert lack["action"] == "accuse"
    assert "panel.accuse_tokens" in lack["reason"]


def test_a_seat_follows_the_stake(world: World, chain: Contracts, tmp_path: Path) -> None:
    people = People(world, tmp_path / "people", suspects=False)
    node = people.auditors[2]
    while node.look():
        pass  # what a settled batch asks of anybody
    assert node.counted("watch_join") == 0, "its seat weighs what its stake does"
    vault = chain.vault
    world.send(node.sender, vault.unstake(node.address, Role.AUDITOR, AUDITOR_STAKE // 2))
    node.look()
    payout = vault.payout_to(node.address)
    assert chain.pool.seat_of(payout, TARGET.model_id)[2] == AUDITOR_STAKE // 2
    world.send(node.sender, vault.set_model(node.address, Role.AUDITOR, TARGET.model_id, False))
    node.look()
    assert chain.pool.seat_of(payout, TARGET.model_id)[0] is False
    world.send(node.sender, vault.set_model(node.address, Role.AUDITOR, TARGET.model_id, True))
    node.look()
    assert chain.pool.seat_of(payout, TARGET.model_id)[2] == AUDITOR_STAKE // 2
    assert node.look() == 0


def test_a_false_draft_costs_d_half_and_v_nothing(
    world: World, chain: Contracts, tmp_path: Path
) -> None:
    """F12: by auditors who serve the draft model too. V opens nothing; there is no fingerprint."""
    model = Manifest("draft", Tier.FLOAT32, b"\x03" * 32, b"\x02" * 32, 512, (2,), 1024)
    owner = make_sender(chain.rpc, OWNER, tmp_path / "owner.sqlite", chain)
    owner.send("register", chain.registry.register(model))
    owner.send("tolerance", chain.registry.set_tolerance(model.model_id, MARGIN, 64, 0))
    session = played(chain, Mode.REJECTION, draft_model=model.model_id)
    people = People(world, tmp_path / "people", suspects=False, session=session)
    for node in people.auditors:
        call = chain.vault.set_model(node.address, Role.AUDITOR, model.model_id, True)
        world.send(node.sender, call)
        node.look()
        payout = chain.vault.payout_to(node.address)
        assert chain.pool.seat_of(payout, model.model_id)[2] == AUDITOR_STAKE
    at = next(i for i, round_ in enumerate(session.rounds) if round_.draft_leaves)
    found = replace(suspicion(session, at), fault=12)
    people.accuser.journal.secret_once(f"{SUSPECT}:12:0", found.to_wire)
    case = people.drawn()
    assert case.accused == address_of_key(DRAFTER)
    people.judged(Answer(margin=MARGIN + 1))
    for _ in range(3):
        people.look()
    assert people.case().result == Result.GUILTY
    world.anvil.warp(PANEL.appeal_window + 1)
    people.look()
    assert people.case().stage == CaseStage.CLOSED
    assert chain.vault.slashable(address_of_key(DRAFTER), Role.DRAFTER) == STAKE // 2
    assert chain.vault.slashable(V, Role.VERIFIER) == STAKE


def test_disputes_shows_a_case_to_its_accused_its_accuser_and_its_jurors(
    people: People, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(node: Watched, *words: str) -> Any:
        where = [
            "--rpc-url",
            people.chain.rpc.url,
            "--address-book",
            str(folder / "addresses.json"),
        ]
        address = "0x" + node.address.hex()
        capsys.readouterr()
        arguments = ["disputes", *where, "--address", address, "--mine", *words]
        assert main([*arguments, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["disputes"]
        assert main(arguments) == 0
        found = [row for row in rows if row["kind"] == "panel case"]
        return found[0] if found else None, capsys.readouterr().out

    case = people.drawn()
    people.world.anvil.mine()  # the command waits for a block on top
    (row, text), juror = shown(people.verifier), people.jurors[0]
    assert (row["part"], row["state"], row["open"]) == ("accused", "panel: committing", True)
    assert row["until"] == people.standing().jury_of(case).summoned.commit_until
    assert row["by"] == "0x" + people.accuser.address.hex()
    assert "against this address" in text
    assert shown(people.accuser)[0]["part"] == "by"
    row, text = shown(juror)
    assert row["part"] == "juror"
    assert row["next"].startswith("this node commits to its answer, or loses stake; 3 of 3 jurors")
    assert "this address sits on its jury" in text
    people.judged(FALSE)
    juror.look()
    people.world.anvil.mine()
    assert shown(juror)[0]["next"] == "2 of 3 jurors have to commit"
