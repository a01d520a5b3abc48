"""Honest sessions give no fault; each lie gives its own and no other."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from altered_sessions import LIES, D, V, with_leaf, with_leaves, with_verdict
from hypothesis import given, settings
from hypothesis import strategies as st
from played_sessions import DRAFTER, STOP, VERIFIER, Play, play, sealed

from settlement import trees
from settlement.draws import BatchEvidence
from settlement.fault_proofs import Code, Fault, Kind
from settlement.faults import draft_twice, equivocations, find_faults
from settlement.hashing import ZERO32
from settlement.records import Domain, Mode, Sums, extend_context
from settlement.round_faults import round_faults
from settlement.tree_faults import false_sums

DOMAIN = Domain(31337, b"\x0e" * 20)
seeds = st.integers(0, 2**32 - 1)


def _play(seed: int) -> Play:
    mode = Mode(seed % 3)
    relaxed = mode != Mode.REJECTION and seed % 2 == 0
    return play(DOMAIN, Random(seed), mode, relaxed=relaxed)


def _find(session: Play) -> tuple[Fault, ...]:
    return find_faults(DOMAIN, session.rounds[0].order.lane, session.batch())


def _told(faults: tuple[Fault, ...]) -> frozenset[tuple[int, bytes]]:
    return frozenset((fault.number, fault.guilty) for fault in faults)


@given(seeds)
def test_honest_sessions_give_no_fault(seed: int) -> None:
    session = _play(seed)
    assert _find(session) == ()
    # Nor where only a part of the rounds is at hand.
    for evidence in session.rounds:
        assert list(round_faults(DOMAIN, evidence)) == []


@pytest.mark.parametrize("name", sorted(LIES))
@settings(max_examples=20 if settings().max_examples <= 50 else settings().max_examples)
@given(seed=seeds)
def test_a_lie_gives_its_fault_and_no_other(name: str, seed: int) -> None:
    told = LIES[name](DOMAIN, _play(seed), Random(seed))
    if told is None:
        return
    altered, expected = told
    assert _told(_find(altered)) == expected


def test_every_lie_finds_its_place() -> None:
    for name, lie in LIES.items():
        assert any(lie(DOMAIN, _play(seed), Random(seed)) for seed in range(30)), name


@given(seeds)
def test_figures_that_need_a_model_are_nobodys_fault_here(seed: int) -> None:
    """Fingerprint, top probability and cut-off fall under F9."""
    session, rng = _play(seed), Random(seed)
    index = rng.randrange(len(session.rounds))
    at = rng.randrange(len(session.rounds[index].verdict_leaves))
    altered = with_leaf(
        session,
        index,
        at,
        fingerprint=rng.randbytes(32),
        top_prob=rng.randrange(1 << 16),
        cutoff=rng.randrange(1 << 40),
    )
    assert _find(altered) == ()


@given(seeds)
def test_what_the_accused_has_not_signed_accuses_nobody(seed: int) -> None:
    """Every lie again, but signed by somebody else."""
    rng = Random(seed)
    told = LIES[rng.choice(sorted(LIES))](DOMAIN, _play(seed), rng)
    if told is None:
        return
    altered, _expected = told
    stranger = b"\x05" * 32
    for evidence in altered.rounds:
        forged = replace(
            evidence,
            commit_signature=DOMAIN.sign(evidence.commit, stranger) if evidence.commit else b"",
            verdict_signature=DOMAIN.sign(evidence.verdict, stranger),
        )
        assert list(round_faults(DOMAIN, forged)) == []
        garbage = replace(forged, verdict_signature=b"", commit_signature=b"\0" * 65)
        assert list(round_faults(DOMAIN, garbage)) == []


def test_two_windows_on_one_place() -> None:
    session = next(s for s in map(_play, range(50)) if s.rounds[0].commit is not None)
    first = session.rounds[0]
    assert first.commit is not None
    other = replace(first.commit, draft_root=b"\x09" * 32, version=1)
    signature = DOMAIN.sign(other, DRAFTER)
    (fault,) = draft_twice(DOMAIN, first.commit, first.commit_signature, other, signature)
    assert (fault.number, fault.guilty, fault.by_drafter) == (1, D, True)
    assert fault.key == (1, D, first.commit.start_hash, 0)
    for change in ({"round": 1}, {"context_hash": b"\x01" * 32}, {"start_hash": b"\x01" * 32}):
        elsewhere = replace(other, **change)
        signed = DOMAIN.sign(elsewhere, DRAFTER)
        assert not list(
            draft_twice(DOMAIN, first.commit, first.commit_signature, elsewhere, signed)
        )
    again = replace(first.commit, version=1)  # the same drafts under a higher version
    signed = DOMAIN.sign(again, DRAFTER)
    assert not list(draft_twice(DOMAIN, first.commit, first.commit_signature, again, signed))
    forged = DOMAIN.sign(other, VERIFIER)
    assert not list(draft_twice(DOMAIN, first.commit, first.commit_signature, other, forged))
    assert not list(draft_twice(DOMAIN, first.commit, b"", other, signature))


def test_two_verdicts_on_one_round() -> None:
    session = _play(4)
    one = session.rounds[1]
    other = with_verdict(session, 1, version=one.verdict.version + 1, next_k=99).rounds[1]
    (fault,) = (f for f in equivocations(DOMAIN, one, other) if f.number == 2)
    assert (fault.guilty, fault.kind, fault.round) == (V, Kind.VERDICT_TWICE, 1)
    assert not list(equivocations(DOMAIN, one, one))
    assert not list(equivocations(DOMAIN, one, replace(other, verdict_signature=b"")))
    # Found as well where both accounts stand in what is looked at.
    earlier = {other.key: other}
    batch = BatchEvidence(session.rounds, None, earlier)
    found = find_faults(DOMAIN, one.order.lane, batch)
    assert (2, V) in _told(found)


def test_a_stop_ends_the_output() -> None:
    session = play(DOMAIN, Random(7), Mode.COUPLED)
    # The stop is a round's last token, and a round follows.
    leaves = session.rounds[0].verdict_leaves
    stopped = (*leaves[:-1], replace(leaves[-1], token=STOP))
    tokens = [leaf.token for leaf in stopped]
    if leaves[-1].accepted:
        pytest.fail("choose a seed whose first round ends in V's own token")
    context = extend_context(session.rounds[0].verdict.context_hash, tokens)
    altered = with_verdict(with_leaves(session, 0, stopped), 0, next_context_hash=context)
    first, second = altered.rounds[0], altered.rounds[1]
    (fault,) = round_faults(DOMAIN, first, None, second)
    assert (fault.number, fault.code, fault.kind) == (5, Code.STOP_PASSED, Kind.LEAF_PLACE)
    assert list(round_faults(DOMAIN, first)) == []


def test_windows_that_were_not_announced() -> None:
    session = next(
        s
        for s in (play(DOMAIN, Random(seed), Mode.REJECTION) for seed in range(200))
        if len(s.rounds) > 1 and s.rounds[1].commit and s.rounds[1].order.max_tokens == 40
    )
    # V had announced another number than D then drafted: D knew, and signed for it.
    first = with_verdict(session, 0, next_k=session.rounds[1].commit.k % 5 + 1).rounds[0]
    second = session.rounds[1]
    commit = replace(second.commit, prev_verdict_hash=first.verdict.struct_hash)
    verdict = replace(second.verdict, draft_commit_hash=commit.struct_hash)
    second = sealed(DOMAIN, replace(second, commit=commit, verdict=verdict))
    (fault,) = round_faults(DOMAIN, second, first)
    assert (fault.number, fault.code, fault.guilty) == (4, Code.WINDOW_DRAFTER, D)
    # V leaves D out.
    leaf = replace(second.verdict_leaves[-1], draft_token=2**32 - 1, accepted=False, p=0)
    leaf = replace(leaf, position=second.verdict.base)
    alone = replace(
        second,
        commit=None,
        draft_leaves=(),
        kept=(),
        verdict_leaves=(leaf,),
        verdict=replace(
            second.verdict,
            draft_commit_hash=ZERO32,
            k=0,
            emitted=1,
            verdict_root=leaf.leaf_hash,
            next_context_hash=extend_context(second.verdict.context_hash, [leaf.token]),
        ),
    )
    (fault,) = round_faults(DOMAIN, sealed(DOMAIN, alone), session.rounds[0])
    assert (fault.number, fault.code, fault.guilty) == (4, Code.WINDOW_VERIFIER, V)
    # Without the verdict before nothing is known.
    assert list(round_faults(DOMAIN, sealed(DOMAIN, alone))) == []


def test_sums_of_the_root() -> None:
    session = _play(11)
    lane, batch = session.rounds[0].order.lane, session.batch()
    _tree, settled = batch.settled()
    false = replace(settled, sums=settled.sums + Sums(output=5))
    (fault,) = find_faults(DOMAIN, lane, batch, roots=[false])
    assert (fault.number, fault.code, fault.kind) == (5, Code.SUMS, Kind.SUMS)
    assert (fault.start_hash, fault.root, fault.lane) == (false.root, false.root, lane.id)
    assert find_faults(DOMAIN, lane, batch, roots=[settled]) == ()


def test_sums_beside_a_node_are_shown_by_both_halves() -> None:
    session = _play(11)
    _tree, settled = session.batch().settled()
    halves = tuple(trees.round_leaf(evidence.record) for evidence in session.rounds[:2])
    fault = false_sums(
        session.rounds[0].order.lane, settled, None, (1, 0), halves, Sums(output=9), ()
    )
    assert fault.evidence[3:5] == (1, 0)
    assert fault.evidence[6][0] == halves[0].hash


def test_a_round_twice_over_several_batches() -> None:
    session = _play(5)
    lane = session.rounds[0].order.lane
    first = BatchEvidence(session.rounds[:1], None, {})
    second = BatchEvidence(session.rounds[1:2], first.settled()[1], {})
    third = BatchEvidence((*session.rounds[2:], session.rounds[0]), second.settled()[1], {})
    (fault,) = find_faults(DOMAIN, lane, first, second, third)
    assert (fault.code, fault.round, fault.root) == (
        Code.ROUND_TWICE,
        0,
        third.settled()[1].root,
    )
    # A tree that takes another's place on the same base holds the same rounds by right.
    larger = BatchEvidence(session.rounds, None, {})
    assert find_faults(DOMAIN, lane, first, larger) == ()


def test_a_round_of_another_lane() -> None:
    session = _play(5)
    lane = replace(session.rounds[0].order.lane, claim_id=b"\x01" * 32)
    found = find_faults(DOMAIN, lane, session.batch())
    assert {(f.number, f.code, f.guilty, f.lane) for f in found} == {(5, Code.RECORD, V, lane.id)}
    assert len(found) == len(session.rounds)


def test_one_fault_for_each_thing_punishable() -> None:
    session = _play(8)
    altered = with_leaf(session, 0, 0, position=900)
    altered = with_verdict(altered, 0, next_context_hash=b"\x01" * 32)
    found = _find(altered)
    keys = [fault.key for fault in found]
    assert len(keys) == len(set(keys))
