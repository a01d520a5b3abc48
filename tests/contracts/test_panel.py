"""The panel and the audits on a real chain, through the wrappers: what a token that is not the
target's costs V, and how a drawn token and its auditors find each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment import VERIFIER
from panel_world import (
    AUDITS,
    BOND,
    MARGIN,
    PANEL,
    PRINT,
    SALT,
    STAKE,
    TARGET,
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
from watched_node import Watched, keep_session, keep_voucher

from settlement import panels, trees
from settlement.chain.contracts import Contracts, Role
from settlement.chain.panel import AuditStage, CaseStage, JuryStage, TicketKind
from settlement.chain.panel_events import CaseFiled, TicketEntered
from settlement.draws import lane_seed, target_of
from settlement.panels import Answer, Result

__all__ = ["anvil", "chain", "folder", "opened", "world"]  # fixtures
pytestmark = pytest.mark.slow


def test_a_token_that_is_not_the_targets_costs_v_half(world: World, chain: Contracts) -> None:
    session = played(chain)
    world.settle(session)
    first = session.rounds[0]
    place = panels.place_words(session.batch(), first.record.start_hash, 0, 0)
    question = chain.place_rule.verdict_question(place, world.source())
    subject = chain.place_rule.verdict_subject(place, world.source())
    assert subject[15] == panels.verdict_figures(first.verdict_leaves[0])
    accuser = world.parties.client
    bond = chain.panel.bond_for(chain.panel.place_of(9, subject), 9, V, 0)
    assert bond == BOND > PANEL.bond
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
    world.send(world.parties.client, chain.token.approve(chain.panel.address, BOND))
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
    assert chain.panel.bond_of(V) == BOND // 2
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
