"""The panel and the audits on a real chain, through the wrappers: what a token that is not the
target's costs V, and how a drawn token and its auditors find each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deployment import (
    CLIENT,
    DRAFTER,
    OWNER,
    TOKEN,
    VERIFIER,
    Parties,
    deploy_devnet,
    make_sender,
    open_lane,
)
from played_sessions import Play, play, record_of, sealed
from watched_node import Watched, keep_session, keep_voucher, voucher_over

from settlement import panels, trees
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.events import CaseFiled, TicketEntered
from settlement.chain.indexer import Batch, ChainEvent, Indexer, IndexStore
from settlement.chain.lanes import Position, SignedVoucher, groups_of
from settlement.chain.panel import AuditStage, CaseStage, JuryStage, TicketKind
from settlement.chain.parameters import DEVNET, JurySpans
from settlement.chain.sender import Sender
from settlement.chain.standing import fold
from settlement.draws import RoundEvidence, lane_seed, target_of
from settlement.hashing import keccak256
from settlement.panels import Answer, Result
from settlement.records import Manifest, Mode, Tier, salted_fingerprint
from settlement.signing import address_of_key

pytestmark = pytest.mark.slow

STAKE = 10**6 * TOKEN
AUDITOR_STAKE = 10**4 * TOKEN
KEYS = (CLIENT, DRAFTER, VERIFIER)
V = address_of_key(VERIFIER)
AUDITORS = tuple(keccak256(b"auditor", bytes([number])) for number in range(4))
TARGET = Manifest("target", Tier.FLOAT32, b"\x01" * 32, b"\x02" * 32, 512, (2,), 1024)
MARGIN, DISTANCE = 1 << 14, 64
# Phases that no slow machine misses.
PARAMETERS = replace(
    DEVNET,
    times=replace(DEVNET.times, panel=2_000, appeal=4_000, unbonding=6_300),
    panel=replace(DEVNET.panel, spans=JurySpans(400, 400, 400, 400), appeal_window=400),
    audits=replace(DEVNET.audits, spans=JurySpans(400, 400, 400, 400)),
)
PANEL, AUDITS = PARAMETERS.panel, PARAMETERS.audits
SALT, PRINT = b"\x05" * 32, bytes(range(32))


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def opened(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Contracts:
    folder = tmp_path_factory.mktemp("panel")
    contracts = open_lane(deploy_devnet(anvil, folder, PARAMETERS), folder, stake=STAKE).contracts
    owner = make_sender(contracts.rpc, OWNER, folder / "governor.sqlite", contracts)
    owner.send("register", contracts.registry.register(TARGET))
    tolerance = contracts.registry.set_tolerance(TARGET.model_id, MARGIN, DISTANCE, 0)
    owner.send("tolerance", tolerance)
    for key in AUDITORS:
        auditor = address_of_key(key)
        anvil.set_balance(auditor, 10**20)
        owner.send(f"mint:{auditor.hex()}", contracts.token.mint(auditor, AUDITOR_STAKE))
        sender = make_sender(contracts.rpc, key, folder / auditor.hex(), contracts)
        sender.send("approve", contracts.token.approve(contracts.vault.address, AUDITOR_STAKE))
        stake = contracts.vault.stake(
            auditor, keccak256(auditor)[:20], Role.AUDITOR, AUDITOR_STAKE, [TARGET.model_id]
        )
        sender.send("stake", stake)
        sender.send("sync", contracts.pool.sync(auditor, TARGET.model_id))
    return contracts


@pytest.fixture
def chain(anvil: Anvil, opened: Contracts) -> Iterator[Contracts]:
    with anvil.rolled_back():
        yield opened


class World:
    """Everybody's hands on the chain, and its events."""

    def __init__(self, chain: Contracts, anvil: Anvil, folder: Path) -> None:
        self.chain, self.anvil = chain, anvil
        senders = {key: make_sender(chain.rpc, key, folder / key.hex(), chain) for key in KEYS}
        self.parties = Parties(chain, *senders.values())
        self.auditors = {
            address_of_key(key): make_sender(chain.rpc, key, folder / key.hex(), chain)
            for key in AUDITORS
        }
        followed = (*chain.followed(), chain.pool, chain.juries, chain.panel, chain.audits)
        self._indexer = Indexer(chain.rpc, followed, IndexStore(folder / "index.sqlite"))
        self._events: list[ChainEvent] = []
        self._sent = 0

    def events(self) -> list[ChainEvent]:
        def apply(batch: Batch) -> None:
            self._events.extend(batch.events)

        self._indexer.catch_up(apply)
        return self._events

    def last(self, kind: type[Any]) -> Any:
        return [e.event for e in self.events() if isinstance(e.event, kind)][-1]

    def send(self, sender: Sender, call: Any) -> None:
        self._sent += 1
        sender.send(f"step:{self._sent}", call)

    def settle(self, session: Play) -> SignedVoucher:
        signed = voucher_over(self.chain.domain, session.rounds, KEYS, due=10**20)
        position = Position(signed.voucher.epoch, self.chain.escrow.parameters().fee_bps)
        groups = groups_of([(signed, position)])
        self.send(self.parties.verifier, self.chain.escrow.settle(self.chain.token.address, groups))
        self.anvil.mine(4)
        return signed

    def source(self) -> tuple[Any, ...]:
        """IPlaceRule.Source of the only settlement."""
        ((batch, index, _entry, _lane),) = fold(self.events()).settlements()
        return (batch.batch, batch.packed(), index)

    def seat(self, jury: int) -> tuple[bytes, ...]:
        self.anvil.mine(2)
        self.send(self.parties.client, self.chain.juries.seat(jury))
        return self.chain.juries.members_of(jury)

    def commit(self, jury: int, answers: dict[bytes, Answer]) -> None:
        juries = self.chain.juries
        for member, answer in answers.items():
            sealed_word = panels.commitment(
                self.chain.chain_id, juries.address, jury, member, answer, keccak256(member)
            )
            self.send(self.auditors[member], juries.commit(jury, sealed_word))

    def reveal(self, jury: int, answers: dict[bytes, Answer]) -> None:
        for member, answer in answers.items():
            words = (answer.withheld, answer.margin, answer.print, keccak256(member))
            self.send(self.auditors[member], self.chain.juries.reveal(jury, member, *words))


@pytest.fixture
def world(chain: Contracts, anvil: Anvil, tmp_path: Path) -> World:
    return World(chain, anvil, tmp_path)


def played(chain: Contracts) -> Play:
    """A session whose fingerprints are all sealed by one salt."""
    session = play(
        chain.domain,
        Random(4),
        Mode.COUPLED,
        token=chain.token.address,
        keys=KEYS,
        target_model=TARGET.model_id,
    )
    rounds: list[RoundEvidence] = []
    for evidence in session.rounds:
        leaves = tuple(
            replace(leaf, fingerprint=salted_fingerprint(SALT, PRINT))
            for leaf in evidence.verdict_leaves
        )
        root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
        verdict = replace(evidence.verdict, verdict_root=root)
        commit = evidence.commit
        if commit and rounds:
            before = rounds[-1].verdict.struct_hash
            commit = replace(commit, prev_verdict_hash=before)
            verdict = replace(verdict, draft_commit_hash=commit.struct_hash)
        changed = replace(
            evidence,
            commit=commit,
            verdict=verdict,
            verdict_leaves=leaves,
            record=record_of(verdict, commit, leaves),
        )
        rounds.append(sealed(chain.domain, changed, (DRAFTER, VERIFIER)))
    return replace(session, rounds=tuple(rounds))


def test_a_token_that_is_not_the_targets_costs_v_half(world: World, chain: Contracts) -> None:
    session = played(chain)
    world.settle(session)
    first = session.rounds[0]
    place = panels.place_words(session.batch(), first.record.start_hash, 0, 0)
    question = chain.place_rule.verdict_question(place, world.source())
    subject = chain.place_rule.verdict_subject(place, world.source())
    assert subject[15] == panels.verdict_figures(first.verdict_leaves[0])
    accuser = world.parties.client
    bond = chain.panel.bond_for(chain.panel.place_of(9, subject), 0)
    assert bond == PANEL.bond
    world.send(accuser, chain.token.approve(chain.panel.address, bond))
    world.send(accuser, chain.panel.accuse(9, question))
    filed = world.last(CaseFiled)
    assert filed.accused == V
    assert chain.panel.charge_hash(filed.case_id) != bytes(32)
    jury = chain.panel.case_of(filed.case_id).jury
    members = world.seat(jury)
    assert len(set(members)) == PANEL.panel_size
    assert set(members) <= set(world.auditors)

    answers = {member: Answer(print=PRINT, margin=MARGIN + 1) for member in members}
    world.commit(jury, answers)
    assert chain.juries.is_closed(jury)
    world.send(world.parties.verifier, chain.panel.open_print(filed.charge, SALT, PRINT))
    world.reveal(jury, answers)
    assert [a.margin for a in chain.juries.answers_of(jury)] == [MARGIN + 1] * 3
    world.send(accuser, chain.panel.decide(filed.charge))
    state = chain.panel.case_of(filed.case_id)
    assert (state.stage, state.result) == (CaseStage.DECIDED, Result.GUILTY)
    world.anvil.warp(PANEL.appeal_window + 1)
    world.send(accuser, chain.panel.conclude(filed.charge))
    assert chain.panel.case_of(filed.case_id).stage == CaseStage.CLOSED
    assert chain.vault.slashable(V, Role.VERIFIER) == STAKE // 2
    assert chain.panel.bond_of(accuser.address) == bond
    held = chain.escrow.payable_to(members[0], chain.token.address)
    world.send(accuser, chain.panel.pay_juror(filed.charge, False, members[0]))
    paid = chain.escrow.payable_to(members[0], chain.token.address) - held
    assert paid == PANEL.fee


def test_a_drawn_token_is_audited_and_its_auditors_paid(world: World, chain: Contracts) -> None:
    session = played(chain)
    world.settle(session)
    batch, entries, index = world.source()
    world.send(world.parties.client, chain.beacon.capture([batch]))
    batch, entries, index = world.source()
    call = chain.beacon.draw(batch, entries, index, session.rounds[0].order.lane)
    world.send(world.parties.client, call)
    seed = lane_seed(bytes(batch[8]), index)

    sample = 2
    content = panels.drawn_content(batch[0], index, sample)
    ticket = panels.ticket(TicketKind.DRAWN, content, SALT)
    verifier = world.parties.verifier
    bond = chain.audit_terms.bond()
    world.send(verifier, chain.token.approve(chain.audits.address, bond))
    world.send(verifier, chain.audits.enter(ticket, TARGET.model_id))
    entered = world.last(TicketEntered)
    members = world.seat(entered.jury_id)
    answers = {member: Answer(print=PRINT) for member in members}
    # One has made its fingerprint up.
    answers[members[0]] = Answer(print=bytes(32))
    world.commit(entered.jury_id, answers)

    tree, _settled = session.batch().settled()
    target = target_of(seed, sample, tree.top().sums.output)
    at = tree.descend(target)
    round_ = session.rounds[at].record
    within = tree.proof(at).offset_of(trees.round_leaf(round_), target)
    place = panels.place_words(session.batch(), round_.start_hash, round_.round, within)
    question = chain.place_rule.verdict_question(place, world.source())
    world.send(verifier, chain.audits.name(entered.audit_id, SALT, sample, question))
    assert chain.audits.stage_of(entered.audit_id) == AuditStage.NAMED
    assert chain.audits.audit_of_token(content) == entered.audit_id
    world.send(verifier, chain.audits.open_print(entered.audit_id, SALT, PRINT))
    assert chain.juries.jury_of(entered.jury_id).stage == JuryStage.OPENED
    world.reveal(entered.jury_id, answers)
    world.send(verifier, chain.audits.finish(entered.audit_id))
    assert chain.audits.stage_of(entered.audit_id) == AuditStage.DONE
    assert chain.audits.bond_of(V) == bond
    world.send(verifier, chain.audits.pay(entered.audit_id, members[1]))
    assert chain.escrow.payable_to(members[1], chain.token.address) == AUDITS.fee
    assert chain.escrow.payable_to(members[0], chain.token.address) == 0
    assert chain.vault.slashable(V, Role.VERIFIER) == STAKE


def accused(world: World, chain: Contracts, session: Play) -> CaseFiled:
    """The session's first token, accused by the client."""
    place = panels.place_words(session.batch(), session.rounds[0].record.start_hash, 0, 0)
    question = chain.place_rule.verdict_question(place, world.source())
    bond = chain.panel_terms.bond()
    world.send(world.parties.client, chain.token.approve(chain.panel.address, bond))
    world.send(world.parties.client, chain.panel.accuse(9, question))
    return world.last(CaseFiled)


def test_an_accused_verifier_defends_itself(world: World, chain: Contracts, tmp_path: Path) -> None:
    """Its watcher seats the jury, opens its fingerprint once all have committed, has the case
    decided and closed, and keeps half of the accuser's bond."""
    session = played(chain)
    signed = world.settle(session)
    filed = accused(world, chain, session)
    node = Watched(chain, VERIFIER, tmp_path / "watch")
    keep_session(node.journal, session, "verifier", (SALT, PRINT))
    keep_voucher(node.journal, session, signed)
    jury = chain.panel.case_of(filed.case_id).jury
    world.anvil.mine(2)
    node.look()
    members = chain.juries.members_of(jury)
    assert len(members) == PANEL.panel_size
    node.look()
    assert not chain.panel.case_of(filed.case_id).printed, "while answers could be copied"
    answers = {member: Answer(print=PRINT) for member in members}
    world.commit(jury, answers)
    node.look()
    assert chain.panel.case_of(filed.case_id).printed
    world.reveal(jury, answers)
    node.look()
    state = chain.panel.case_of(filed.case_id)
    assert (state.stage, state.result) == (CaseStage.DECIDED, Result.CLEARED)
    world.anvil.warp(PANEL.appeal_window + 1)
    node.look()
    assert chain.panel.case_of(filed.case_id).stage == CaseStage.CLOSED
    assert chain.panel.bond_of(V) == PANEL.bond // 2
    assert chain.vault.slashable(V, Role.VERIFIER) == STAKE
    counted = [node.counted(f"watch_{what}") for what in ("seat", "unseal", "decide", "conclude")]
    assert counted == [1, 1, 1, 1]


def test_a_verifier_that_has_lost_its_salts_says_so(
    world: World, chain: Contracts, tmp_path: Path
) -> None:
    session = played(chain)
    signed = world.settle(session)
    filed = accused(world, chain, session)
    node = Watched(chain, VERIFIER, tmp_path / "watch")
    keep_session(node.journal, session, "verifier")
    keep_voucher(node.journal, session, signed)
    members = world.seat(chain.panel.case_of(filed.case_id).jury)
    world.commit(chain.panel.case_of(filed.case_id).jury, {m: Answer() for m in members})
    node.look()
    lacking = {entry["action"]: entry["reason"] for entry in node.desk.view()["lacking"]}
    assert "salt" in lacking["unseal"]
    spans = PANEL.spans
    world.anvil.warp(spans.seat + spans.commit + spans.open + 10)
    node.look()
    assert chain.panel.case_of(filed.case_id).result == Result.WITHHELD
    node.look()
    lacking = {entry["action"]: entry["reason"] for entry in node.desk.view()["lacking"]}
    assert "withheld" in lacking["appeal"]
