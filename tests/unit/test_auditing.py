"""Who is drawn to audit, what is committed to, and how one position is judged. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from node.inference.plain import NEAR_TIE_FLOAT32
from node.inference.rows import ModelRow
from node.network.messages import AuditCommit, AuditReveal
from node.roles.auditing import (
    NO_SIGNATURE,
    Auditor,
    DrawBoard,
    DrawnLane,
    after,
    commitment,
    draw_auditors,
    drawn_lanes,
    fingerprint_digest,
    is_signed,
    opens,
    signed,
)
from node.roles.plan import plan_for
from node.roles.records import path_of, preimage_of, proof_of, settled_of, sums_of
from node.roles.rerun import NEAR_TIE, Placed, Tolerance, judge
from settlement import masses, trees
from settlement.acceptance import Outcome
from settlement.chain.contracts import Role
from settlement.chain.events import (
    AccountOpened,
    BatchRegistered,
    KeyRotated,
    LaneDrawn,
    ModelServed,
    Staked,
    StakeSlashed,
    UnstakeStarted,
    Withdrawn,
)
from settlement.chain.indexer import ChainEvent
from settlement.coins import Purpose, coin
from settlement.records import (
    BUCKETS,
    NO_CUTOFF,
    NO_TOKEN,
    Domain,
    DraftLeaf,
    Lane,
    Mode,
    Order,
    RoundRecord,
    Sums,
    VerdictLeaf,
)
from settlement.signing import address_of_key

MODEL, OTHER = b"\x11" * 32, b"\x12" * 32
SEED = b"\x05" * 32
DOMAIN = Domain(31337, b"\x0e" * 20)
CLIENT, DRAFTER, VERIFIER = (bytes([n]) * 20 for n in (0xC0, 0xD0, 0xE0))
LANE = Lane(CLIENT, DRAFTER, VERIFIER, b"\x70" * 20, bytes(32))


def address(number: int) -> bytes:
    return bytes([number]) * 20


# ---------------------------------------------------------------- the draw


def test_the_draw_is_fixed_by_its_inputs() -> None:
    """A change here is a change of who audits: every node would have to make it at once."""
    stakes = {address(n): 100 * n for n in range(1, 6)}
    assert draw_auditors(SEED, MODEL, stakes, 3) == draw_auditors(
        SEED, MODEL, dict(reversed(stakes.items())), 3
    )
    assert [a[0] for a in draw_auditors(SEED, MODEL, stakes, 3)] == GOLDEN
    assert draw_auditors(SEED, OTHER, stakes, 3) != draw_auditors(SEED, MODEL, stakes, 3)


GOLDEN = [4, 3, 2]


@settings(max_examples=50, deadline=None)
@given(
    st.binary(min_size=32, max_size=32),
    st.dictionaries(st.binary(min_size=20, max_size=20), st.integers(0, 2**96), max_size=8),
    st.integers(0, 9),
)
def test_nobody_is_drawn_twice_or_without_stake(
    seed: bytes, stakes: dict[bytes, int], count: int
) -> None:
    drawn = draw_auditors(seed, MODEL, stakes, count)
    assert len(set(drawn)) == len(drawn) == min(count, sum(s > 0 for s in stakes.values()))
    assert all(stakes[operator] > 0 for operator in drawn)


def test_the_chance_is_the_share_of_the_stake() -> None:
    stakes = {address(1): 1, address(2): 3, address(3): 6}
    first = Counter(draw_auditors(n.to_bytes(32, "big"), MODEL, stakes, 1)[0] for n in range(4000))
    for operator, stake in stakes.items():
        expected, spread = 400 * stake, (4000 * stake / 10 * (1 - stake / 10)) ** 0.5
        assert abs(first[operator] - expected) < 4.5 * spread


def lane(accounts: dict[bytes, Auditor], count: int = 3) -> DrawnLane:
    return DrawnLane(1, 0, LANE, b"\x09" * 32, SEED, 4, 10**10, accounts, count)


def auditor(number: int, stake: int = 10, *models: bytes, keys: tuple[bytes, ...] = ()) -> Auditor:
    key = address(number)
    return Auditor(key, frozenset({key, *keys}), stake, 0, frozenset(models or (MODEL,)))


def test_parties_and_their_former_keys_and_other_models_are_left_out() -> None:
    accounts = {
        address(1): auditor(1),
        address(2): replace(auditor(2), key=VERIFIER, keys=frozenset([address(2), VERIFIER])),
        address(3): auditor(3, 10, MODEL, keys=(CLIENT,)),  # has rotated away from that key
        address(4): auditor(4, 10, OTHER),
        address(5): auditor(5, 0),
    }
    drawn = lane(accounts)
    assert drawn.auditors(MODEL) == (address(1),)
    assert drawn.auditors(OTHER) == (address(4),)
    assert drawn.models_of(address(4)) == {OTHER}
    assert drawn.models_of(address(3)) == frozenset()


# ---------------------------------------------------------------- stakes from events


def test_stakes_follow_the_vaults_events() -> None:
    me, role = address(1), Role.AUDITOR
    accounts: Any = {}
    for event, stake, unbonding in (
        (AccountOpened(me, address(9)), 0, 0),
        (Staked(me, role, 100, me), 100, 0),
        (Staked(me, Role.VERIFIER, 999, me), 100, 0),
        (UnstakeStarted(me, role, 30, 0), 70, 30),
        (StakeSlashed(me, role, b"", (50, 0, 0, 0), me, me), 50, 0),  # exits first
        (UnstakeStarted(me, role, 10, 0), 40, 10),
        (Withdrawn(me, role, 10, me), 40, 0),
    ):
        accounts = after(accounts, event)
        assert (accounts[me].stake, accounts[me].unbonding) == (stake, unbonding)
    accounts = after(accounts, ModelServed(me, role, MODEL, True))
    accounts = after(accounts, ModelServed(me, role, OTHER, True))
    accounts = after(accounts, ModelServed(me, role, MODEL, False))
    assert accounts[me].models == {OTHER}
    accounts = after(accounts, KeyRotated(me, me, address(2)))
    assert (accounts[me].key, accounts[me].keys) == (address(2), {me, address(2)})


def chain(*events: Any) -> list[ChainEvent]:
    return [
        ChainEvent(event, "", number, bytes(32), bytes(32), 0)
        for number, event in enumerate(events)
    ]


def story(*, late: int) -> list[ChainEvent]:
    """Two auditors of the model; the second stakes `late` more after the batch is registered."""
    terms = (120, 60, 60, 0, 0, 0, 0, 0, 4, 1)
    batch = (7, bytes(32), b"\x70" * 20, 1, 0, 5000, 0, 9, bytes(32), terms)
    entry = (bytes(32), b"\x09" * 32, 0, 0, 0, 0, 0)
    lane_ = (CLIENT, DRAFTER, VERIFIER, b"\x70" * 20, bytes(32))
    events: list[Any] = []
    for number, stake in ((1, 100), (2, 1)):
        who = address(number)
        events += [
            AccountOpened(who, who),
            Staked(who, Role.AUDITOR, stake, who),
            ModelServed(who, Role.AUDITOR, MODEL, True),
        ]
    events.append(BatchRegistered(7, batch))
    if late:
        events.append(Staked(address(2), Role.AUDITOR, late, address(2)))
    events.append(LaneDrawn(7, 0, VERIFIER, (7, 0, SEED, entry, lane_, terms), 0, 0))
    return chain(*events)


def test_stake_that_comes_after_the_batch_draws_nothing() -> None:
    (plain,) = drawn_lanes(story(late=0), 1)
    (ground,) = drawn_lanes(story(late=10**30), 1)
    assert plain.accounts == ground.accounts
    assert plain.auditors(MODEL) == ground.auditors(MODEL)
    assert (plain.lane, plain.root, plain.samples) == (LANE, b"\x09" * 32, 4)
    assert plain.until == 5000 + 120


def test_the_board_follows_growth_and_reorganisations() -> None:
    events = story(late=0)
    held = [events[:-1]]
    board = DrawBoard(lambda: held[0])
    assert board.lanes() == ()
    held[0].append(events[-1])
    assert len(board.lanes()) == 1
    # As many events as before, but the second auditor's stake in the batch is another.
    other = list(events)
    other[4] = replace(other[4], event=Staked(address(2), Role.AUDITOR, 77, address(2)))
    held[0] = other
    assert board.lanes()[0].accounts[address(2)].stake == 77
    held[0] = list(events[:-1])
    assert board.lanes() == ()


# ---------------------------------------------------------------- commit and reveal

KEY = b"\x21" * 32
ME = address_of_key(KEY)


def pair() -> tuple[AuditCommit, AuditReveal]:
    digest = fingerprint_digest(b"\x01" * 32, [b"\x02" * 32, b"\x03" * 32])
    made = commitment(ME, b"\x04" * 32, digest)
    commit = AuditCommit(7, 1, b"\x01" * 32, ME, made, NO_SIGNATURE)
    reveal = AuditReveal(
        7, 1, b"\x01" * 32, ME, b"\x04" * 32, digest, 0, 2, 0, 0, None, NO_SIGNATURE
    )
    return signed(DOMAIN, commit, KEY), signed(DOMAIN, reveal, KEY)


def test_a_commitment_opens_for_its_author_alone() -> None:
    commit, reveal = pair()
    assert opens(commit, reveal)
    thief = address(9)
    copied = replace(commit, auditor=thief)
    assert not opens(copied, replace(reveal, auditor=thief))
    for change in (
        {"salt": b"\x05" * 32},
        {"digest": b"\x05" * 32},
        {"batch_id": 8},
        {"index": 0},
        {"session_id": b"\x07" * 32},
    ):
        assert not opens(commit, replace(reveal, **change))


def test_signatures_bind_every_field_and_the_deployment() -> None:
    commit, reveal = pair()
    assert is_signed(DOMAIN, commit)
    assert is_signed(DOMAIN, reveal)
    assert not is_signed(Domain(1, DOMAIN.escrow), commit)
    assert not is_signed(DOMAIN, replace(commit, commitment=bytes(32)))
    assert not is_signed(DOMAIN, replace(commit, auditor=address(9)))
    assert not is_signed(DOMAIN, replace(commit, signature=NO_SIGNATURE))
    for change in ({"verdict": 3}, {"mismatches": 1}, {"distance": 0}, {"near_ties": 5}):
        assert not is_signed(DOMAIN, replace(reveal, **change))


def test_the_digest_covers_session_order_and_number_of_fingerprints() -> None:
    a, b = b"\x02" * 32, b"\x03" * 32
    digests = {
        fingerprint_digest(session, prints)
        for session in (b"\x01" * 32, b"\x09" * 32)
        for prints in ([a, b], [b, a], [a], [])
    }
    assert len(digests) == 8


# ---------------------------------------------------------------- on the wire


def test_proofs_and_preimages_survive_the_wire() -> None:
    word = b"\x07" * 32
    rounds = [
        RoundRecord(word, n, word, word, word, word, n + 1, n, (n << 64,) * 8) for n in range(5)
    ]
    tree = trees.SumTree(rounds)
    settled = tree.settled()
    assert settled_of(preimage_of(settled)) == settled
    for place, record in enumerate(rounds):
        proof = proof_of(path_of(tree.proof(place)), 5)
        assert proof == tree.proof(place)
        settled.verify_round(record, proof)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=34, max_size=34))
@settings(max_examples=30, deadline=None)
def test_sums_survive_the_wire(lanes: list[int]) -> None:
    sums = Sums(lanes[0], lanes[1], tuple(lanes[2 : 2 + BUCKETS]), tuple(lanes[2 + BUCKETS :]))
    assert sums_of(sums.packed) == sums


# ---------------------------------------------------------------- one position

EXACT = Tolerance(0, 0, 0.0, 0, 0, 0)
UNIT = 1 << 24


def order(**changes: Any) -> Order:
    """An order of which mode and relaxation matter here."""
    plan = plan_for(
        request_id=bytes(32),
        salt=bytes(32),
        client=CLIENT,
        token=b"\x70" * 20,
        target_model=MODEL,
        prompt=(1,),
        stops=(),
        stop_ids=(),
        template_hash=bytes(32),
        mode=(mode := changes.pop("mode", Mode.GREEDY)),
        temperature=0 if mode == Mode.GREEDY else 1 << 16,
        top_k=0,
        top_p=1 << 16,
        max_tokens=8,
        max_window=4,
        deadline=1,
    )
    return replace(plan.template, **changes)


def row(*scores: float, cutoff: float | None = None, top_prob: int = 30_000) -> ModelRow:
    """A row with these scores in units of one nat."""
    return ModelRow(
        scores=np.array([round(score * UNIT) for score in scores], dtype=np.int64),
        cutoff=NO_CUTOFF if cutoff is None else round(cutoff * UNIT),
        top_prob=top_prob,
        logits=torch.tensor(scores),
    )


def leaf(token: int, at: ModelRow, **changes: Any) -> VerdictLeaf:
    """V's leaf for that row; `changes` are what V says otherwise."""
    made = Outcome(3, NO_TOKEN, token, False, at.top_prob, at.cutoff)
    return replace(made.leaf(bytes(32)), **changes)


def placed(
    leaf_: VerdictLeaf,
    draft: DraftLeaf | None = None,
    kept: tuple[tuple[int, int], ...] = (),
    top: tuple[int, ...] = (),
) -> Placed:
    return Placed(leaf_, draft, kept, top, b"\x31" * 32)


def what(found: tuple[list[Any], bool]) -> tuple[list[str], bool]:
    return [difference.what for difference in found[0]], found[1]


def test_a_token_is_the_rows_own_or_within_tolerance_or_a_mismatch() -> None:
    at = row(5.0, 4.9995, 4.9)
    for token, expected in ((0, ([], False)), (1, ([], True)), (2, (["token"], False))):
        assert what(judge(order(), SEED, placed(leaf(token, at)), at, Tolerance())) == expected
    # The exact tier knows no near-ties.
    assert what(judge(order(), SEED, placed(leaf(1, at)), at, EXACT)) == (["token"], False)
    (found,), _ = judge(order(), SEED, placed(leaf(2, at)), at, Tolerance())
    assert (found.position, found.theirs, found.ours) == (3, 2, 0)
    assert found.margin == pytest.approx(0.1 * UNIT, abs=2)


def test_coupled_mode_is_judged_under_the_sessions_noise() -> None:
    rng = np.random.default_rng(1)
    at = row(*rng.normal(size=50))
    seed = b"\x07" * 32
    y, _ = at.choose(Mode.COUPLED, seed, 3)
    assert y != int(at.scores.argmax())  # the noise decides
    for token in range(50):
        names, _ = what(
            judge(order(mode=Mode.COUPLED), seed, placed(leaf(token, at)), at, Tolerance())
        )
        assert names == ([] if token == y else ["token"])


def test_figures_beside_the_token_are_compared_too() -> None:
    at = row(5.0, 1.0, cutoff=2.0)
    say = order(mode=Mode.COUPLED)
    for changes, names in (
        ({"top_prob": at.top_prob + 16}, []),
        ({"top_prob": at.top_prob - 17}, ["topProb"]),
        ({"cutoff": at.cutoff + NEAR_TIE}, []),
        ({"cutoff": at.cutoff - NEAR_TIE - 1}, ["cutoff"]),
        ({"cutoff": NO_CUTOFF}, ["cutoff"]),
    ):
        assert what(judge(say, SEED, placed(leaf(0, at, **changes)), at, Tolerance()))[0] == names


def test_a_token_at_the_edge_of_the_filter_may_fall_either_way() -> None:
    say = order(mode=Mode.COUPLED)
    inside = row(0.0, 0.0005)
    seed = next(
        s
        for s in (n.to_bytes(32, "big") for n in range(99))
        if inside.choose(Mode.COUPLED, s, 3)[0] == 0
    )
    # V kept token 0, whose score lies half a tolerance under the auditor's cut-off.
    edge = row(0.0, 0.0005, cutoff=0.0005)
    assert edge.choose(Mode.COUPLED, seed, 3)[0] == 1
    taken = leaf(0, edge, cutoff=0)
    assert what(judge(say, seed, placed(taken), edge, Tolerance())) == ([], True)
    # And V left out token 1 at the auditor's cut-off itself.
    left = row(0.5, 0.0, cutoff=0.0)
    other = next(
        s
        for s in (n.to_bytes(32, "big") for n in range(999))
        if left.choose(Mode.COUPLED, s, 3)[0] == 1
    )
    out = leaf(0, left, cutoff=left.cutoff + 1000)
    assert what(judge(say, other, placed(out), left, Tolerance())) == ([], True)
    # Far below the cut-off there is no excuse.
    far = row(0.0, 3.0, cutoff=3.0)
    assert what(judge(say, seed, placed(leaf(0, far)), far, Tolerance()))[0] == ["token"]


@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.REJECTION])
def test_where_the_mass_comes_to_top_p_by_a_hair_either_cutoff_is_right(mode: Mode) -> None:
    # Three tokens with 0.6, 0.3 and 0.1 of the mass: two come to 0.9, or to a hair less.
    scores = [float(np.log(share)) for share in (0.6, 0.3, 0.1)]
    say = order(mode=mode, top_p=round(0.9 * 65536))
    ours = row(*scores, cutoff=scores[1])
    theirs = row(*scores, cutoff=scores[2])
    coined = coin(b"\x31" * 32, SEED, 3, Purpose.BONUS)
    for one, other in ((ours, theirs), (theirs, ours)):
        token = one.choose(mode, SEED, 3)[0]
        if mode == Mode.REJECTION:
            token = masses.sample_masses(one.masses(), coined)
        said = leaf(token, one, cutoff=one.cutoff)
        assert what(judge(say, SEED, placed(said), other, Tolerance()))[0] == []
        assert "cutoff" in what(judge(say, SEED, placed(said), other, EXACT))[0]
    # Not so where the edge is not there: 0.95 takes all three.
    wide, said = replace(say, top_p=round(0.95 * 65536)), leaf(0, ours)
    assert "cutoff" in what(judge(wide, SEED, placed(said), theirs, Tolerance()))[0]
    # Nor one that keeps more, or less, than the edge explains.
    low = leaf(0, ours, cutoff=theirs.cutoff - NEAR_TIE - 1)
    high = leaf(0, ours, cutoff=ours.cutoff + NEAR_TIE + 1)
    for said in (low, high):
        assert "cutoff" in what(judge(say, SEED, placed(said), ours, Tolerance()))[0]


def test_rejection_mode_is_judged_by_p_and_by_the_coins_place() -> None:
    say, at = order(mode=Mode.REJECTION), row(1.0, 0.5, 0.0, -1.0)
    p = at.masses()
    bonus = masses.sample_masses(p, coin(b"\x31" * 32, SEED, 3, Purpose.BONUS))
    for token in range(5):
        names, near = what(judge(say, SEED, placed(leaf(token, at)), at, Tolerance()))
        assert (names, near) == (([] if token == bonus else ["token"]), False)
    # Accepted: only p is compared, and a coin between both sides' p is a near-tie.
    u = coin(b"\x31" * 32, SEED, 3, Purpose.ACCEPT)
    drafted = {"draft_token": 1, "accepted": True}
    for apart, names in ((0.0, []), (0.5e-4, []), (2e-4, ["p"]), (-2e-4, ["p"])):
        said = leaf(1, at, p=int(p[1]) + round(apart * 2**64), **drafted)
        sure = placed(said, drafted_by(1, 1), masses.point_mass(1))
        assert what(judge(say, SEED, sure, at, Tolerance())) == (names, False)
    # q just above p / u: the auditor's own coin rejects, by a hair.
    q = (int(p[1]) << 64) // u + 2
    assert q < 2**64
    said = leaf(1, at, p=int(p[1]) + 4, **drafted)
    hair = placed(said, drafted_by(1, q), ((1, q), (2, 2**64 - 1 - q)))
    assert what(judge(say, SEED, hair, at, Tolerance())) == ([], True)
    # Rejected: the residual of D's committed list decides.
    kept = masses.point_mass(1)
    rest = masses.residual_masses(p, masses.dense(kept, 4))
    y = masses.sample_masses(rest, coin(b"\x31" * 32, SEED, 3, Purpose.RESIDUAL))
    assert not masses.accept_rejection(u, 2**64 - 1, int(p[1]))
    for token in (0, 2, 3):
        said = leaf(token, at, draft_token=1, p=int(p[1]))
        held = placed(said, drafted_by(1, 2**64 - 1), kept)
        names, _ = what(judge(say, SEED, held, at, Tolerance()))
        assert names == ([] if token == y else ["token"])


def drafted_by(token: int, q: int) -> DraftLeaf:
    return DraftLeaf(3, token, q, 0, bytes(32), 0, bytes(32))


def test_relaxed_acceptance_allows_tau_where_the_position_is_not_key() -> None:
    say = order(
        relax_tau=UNIT,
        key_target_surprisal=3 << 16,
        key_draft_surprisal=3 << 16,
        key_overlap=1 << 16,
    )
    at = row(5.0, 4.5, 3.5)
    top = (0, 1, 2)

    def said(x: int, key: bool = False) -> Placed:
        d = DraftLeaf(3, x, 0, 0, bytes(32), 1000, bytes(32))
        changes = {"draft_token": x, "accepted": True, "key": key, "surprisal": at.surprisal(x)}
        return placed(leaf(x, at, **changes), d, top=top)

    assert what(judge(say, SEED, said(1), at, Tolerance())) == ([], True)
    assert what(judge(say, SEED, said(2), at, Tolerance()))[0] == ["token"]
    assert what(judge(say, SEED, said(1, key=True), at, Tolerance()))[0] == ["token", "key"]
    strict = replace(say, key_target_surprisal=0)  # every position is key
    assert what(judge(strict, SEED, said(1), at, Tolerance()))[0] == ["key"]
    wrong = said(1)
    wrong = replace(wrong, leaf=replace(wrong.leaf, surprisal=wrong.leaf.surprisal + 67))
    assert what(judge(say, SEED, wrong, at, Tolerance()))[0] == ["surprisal"]


def test_the_default_score_tolerance_is_the_engines_near_tie() -> None:
    assert NEAR_TIE == NEAR_TIE_FLOAT32
