"""Two leaves judged by their own figures: the honest pass, each lie has its name."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import orders, records, words

from settlement.accept_rule import (
    LeafFault,
    NotThisLeaf,
    check_chain_drafter,
    check_chain_verifier,
    check_draft_leaf,
    check_draft_list,
    check_leaf_pair,
)
from settlement.acceptance import Draft, ScoreRow, Terms, decide_round
from settlement.coins import Purpose, chain, coin, draw_coin, round_value
from settlement.hashing import TAG_KEPT, keccak256
from settlement.masses import interval, kept_list, masses_from_probabilities
from settlement.records import (
    MASS_TOTAL,
    NO_TOKEN,
    DraftLeaf,
    Mode,
    Order,
    VerdictLeaf,
    kept_hash,
    top_hash,
)

V, BASE, CONTEXT = 8, 5, b"\x33" * 32


def order_for(mode: Mode, tau: int = 0, **more: object) -> Order:
    """One fixed order a mode: its other fields play no part in the rule."""
    rejection = mode == Mode.REJECTION
    values: dict[str, object] = {
        spec.name: () if spec.length else (bytes(20) if spec.type_name == "address" else 0)
        for spec in Order.specs()
    }
    values |= {spec.name: bytes(32) for spec in Order.specs() if spec.type_name == "bytes32"}
    values |= {
        "mode": int(mode),
        "temperature": 0 if mode == Mode.GREEDY else 65536,
        "top_p": 65536,
        "repetition_penalty": 65536,
        "relax_tau": tau,
        "max_tokens": 1000,
        "noise_version": 1,
        "key_target_surprisal": 1 << 18,
        "key_draft_surprisal": 1 << 18,
        "key_overlap": 30000,
        "anchor_verifier": b"\x01" * 32 if rejection else bytes(32),
        "anchor_drafter": b"\x02" * 32 if rejection else bytes(32),
    }
    return Order(**(values | more))


def play_round(
    order: Order, rng: Random, seed: bytes, value: bytes
) -> tuple[list[DraftLeaf], list[VerdictLeaf]]:
    """An honest round of four drafts: the leaves both parties commit."""
    terms = Terms.of(order)
    drafts, leaves, rows = [], [], []
    for index in range(5):
        scores = np.array([rng.randrange(-3, 4) << 23 for _ in range(V)], dtype=np.int64)
        surprisals = np.array([rng.randrange(1 << 19) for _ in range(V)])
        mass = masses_from_probabilities(np.array([rng.random() + 0.01 for _ in range(V)]))
        rows.append(
            ScoreRow(scores, top_prob=rng.getrandbits(16), mass=mass, surprisals=surprisals)
        )
        if index == 4:
            break
        q = masses_from_probabilities(np.array([rng.random() + 0.01 for _ in range(V)]))
        kept = kept_list(np.arange(V), q)
        if order.mode == Mode.REJECTION:
            drawn = draw_coin(value, seed, CONTEXT, BASE + index)
            token = int(np.searchsorted(np.cumsum(q), np.uint64(drawn), side="right"))
            mass_q, below = interval(kept, token)
            listed = kept_hash(kept)
        else:
            token, mass_q, below, listed = rng.randrange(V), 0, 0, bytes(32)
            if rng.random() < 0.5:
                token = rows[index].choose(terms.mode, seed, BASE + index)[0]
        top = tuple(rng.sample(range(V), 3))
        surprisal = rng.randrange(1 << 19) if order.relax_tau else 0
        drafts.append(Draft(token, q, surprisal, top))
        leaves.append(
            DraftLeaf(BASE + index, token, mass_q, below, listed, surprisal, top_hash(top))
        )
    rejection = order.mode == Mode.REJECTION
    decision = decide_round(terms, BASE, drafts, rows, seed, value if rejection else None)
    return leaves, [outcome.leaf(rng.randbytes(32)) for outcome in decision.outcomes]


MODES = [
    (Mode.GREEDY, 0),
    (Mode.COUPLED, 0),
    (Mode.REJECTION, 0),
    (Mode.GREEDY, 1 << 23),
    (Mode.COUPLED, 3 << 23),
]


@pytest.mark.parametrize(("mode", "tau"), MODES)
@settings(max_examples=15)
@given(st.integers(0, 2**64))
def test_honest_rounds_have_no_fault(mode: Mode, tau: int, number: int) -> None:
    rng, seed, value = Random(number), number.to_bytes(32, "big"), keccak256(bytes([number % 256]))
    order = order_for(mode, tau)
    drafts, verdicts = play_round(order, rng, seed, value)
    for index, verdict in enumerate(verdicts):
        draft = drafts[index] if index < len(drafts) else None
        position = BASE + index
        assert check_leaf_pair(order, seed, position, draft, verdict, value) is None
        if draft is not None:
            assert check_draft_leaf(order, seed, CONTEXT, position, draft, value) is None


@pytest.mark.parametrize(("mode", "tau"), MODES)
@settings(max_examples=15)
@given(st.integers(0, 2**64))
def test_a_flipped_accept_bit_is_a_fault_in_every_mode(mode: Mode, tau: int, number: int) -> None:
    rng, seed, value = Random(number), number.to_bytes(32, "big"), keccak256(bytes([number % 256]))
    order = order_for(mode, tau)
    drafts, verdicts = play_round(order, rng, seed, value)
    for index, verdict in enumerate(verdicts):
        draft = drafts[index] if index < len(drafts) else None
        flipped = replace(verdict, accepted=not verdict.accepted)
        fault = check_leaf_pair(order, seed, BASE + index, draft, flipped, value)
        assert fault is not None
        assert fault.fault == "F4"
        assert not fault.by_drafter


@pytest.mark.parametrize(("mode", "tau"), MODES)
@settings(max_examples=15)
@given(st.integers(0, 2**64))
def test_a_verdict_on_another_draft_or_place_is_named(mode: Mode, tau: int, number: int) -> None:
    rng, seed, value = Random(number), number.to_bytes(32, "big"), keccak256(bytes([number % 256]))
    order = order_for(mode, tau)
    drafts, verdicts = play_round(order, rng, seed, value)
    draft, verdict = drafts[0], verdicts[0]

    def fault(position: int, draft: DraftLeaf | None, verdict: VerdictLeaf) -> LeafFault | None:
        return check_leaf_pair(order, seed, position, draft, verdict, value)

    other = replace(verdict, draft_token=verdict.draft_token + 1)
    assert fault(BASE, draft, other) == LeafFault.OTHER_DRAFT
    assert fault(BASE, None, verdict) == LeafFault.OTHER_DRAFT
    assert fault(BASE, draft, replace(verdict, draft_token=NO_TOKEN)) == LeafFault.OTHER_DRAFT
    assert fault(BASE + 1, draft, verdict) == LeafFault.WRONG_POSITION
    assert fault(1000, draft, replace(verdict, position=1000)) == LeafFault.OUTSIDE_SESSION
    nothing = replace(verdict, draft_token=NO_TOKEN, accepted=True)
    assert fault(BASE, None, nothing) == LeafFault.ACCEPTED_NOTHING
    assert fault(BASE, None, replace(nothing, accepted=False)) is None


def test_a_position_before_the_sessions_start_is_outside() -> None:
    order = order_for(
        Mode.GREEDY,
        parent_session=b"\x01" * 32,
        context_hash=b"\x02" * 32,
        start_position=9,
    )
    leaf = VerdictLeaf(8, NO_TOKEN, 1, False, 0, 0, 0, 0, 0, 0, False, bytes(32))
    fault = check_leaf_pair(order, bytes(32), 8, None, leaf)
    assert fault == LeafFault.OUTSIDE_SESSION
    assert fault.fault == "F5"
    assert check_leaf_pair(order, bytes(32), 9, None, replace(leaf, position=9)) is None


def verdict_leaf(**figures: object) -> VerdictLeaf:
    values: dict[str, object] = {
        "position": BASE,
        "draft_token": 3,
        "token": 3,
        "accepted": True,
        "p": 0,
        "top_prob": 0,
        "cutoff": 0,
        "score_draft": 0,
        "score_top": 0,
        "surprisal": 0,
        "key": False,
        "fingerprint": bytes(32),
    }
    return VerdictLeaf(**(values | figures))


def draft_leaf(**figures: object) -> DraftLeaf:
    values: dict[str, object] = {
        "position": BASE,
        "token": 3,
        "q": 0,
        "q_below": 0,
        "kept_hash": bytes(32),
        "surprisal": 0,
        "top_hash": bytes(32),
    }
    return DraftLeaf(**(values | figures))


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"score_draft": 90, "score_top": 100}, None),
        ({"score_draft": 89, "score_top": 100}, LeafFault.RELAXED_ACCEPT),
        ({"score_draft": 90, "score_top": 100, "key": True}, LeafFault.RELAXED_ACCEPT),
        ({"score_draft": 100, "score_top": 100, "key": True}, None),
        ({"score_draft": 101, "score_top": 100}, LeafFault.SCORES_CROSSED),
        ({"score_draft": -(2**63), "score_top": -(2**63)}, None),
        ({"score_draft": -(2**63), "score_top": 2**63 - 1}, LeafFault.RELAXED_ACCEPT),
        ({"surprisal": 101}, LeafFault.KEY_BIT),
        ({"surprisal": 101, "key": True}, None),
        ({"surprisal": 100}, None),
        ({"accepted": False}, LeafFault.REJECTED_OWN_TOKEN),
        ({"accepted": False, "token": 4}, LeafFault.RELAXED_REJECT),
        (
            {"accepted": False, "token": 4, "score_draft": 90, "score_top": 100},
            LeafFault.RELAXED_REJECT,
        ),
        ({"accepted": False, "token": 4, "score_draft": 89, "score_top": 100}, None),
        (
            {"accepted": False, "token": 4, "score_draft": 90, "score_top": 100, "key": True},
            None,
        ),
        # Ties go to the lowest id, so a tied draft is only rejected for a lower one.
        ({"accepted": False, "token": 4, "key": True}, LeafFault.RELAXED_REJECT),
        ({"accepted": False, "token": 2, "key": True}, None),
        ({"token": 4}, LeafFault.ACCEPTED_OTHER),
    ],
)
def test_the_relaxed_rule_on_the_leafs_own_figures(
    figures: dict[str, object], expected: LeafFault | None
) -> None:
    order = order_for(Mode.GREEDY, 10, key_target_surprisal=100)
    leaf = verdict_leaf(**figures)
    assert check_leaf_pair(order, bytes(32), BASE, draft_leaf(), leaf) == expected


def test_ds_surprisal_makes_a_position_key_too() -> None:
    order = order_for(Mode.COUPLED, 10, key_draft_surprisal=7)
    for surprisal, key, expected in (
        (7, False, None),
        (8, False, LeafFault.KEY_BIT),
        (8, True, None),
    ):
        draft = draft_leaf(surprisal=surprisal)
        assert check_leaf_pair(order, bytes(32), BASE, draft, verdict_leaf(key=key)) == expected


@given(words, words, st.integers(1, MASS_TOTAL))
def test_rejection_follows_the_coin_to_the_unit(seed: bytes, value: bytes, q: int) -> None:
    order = order_for(Mode.REJECTION)
    u = coin(value, seed, BASE, Purpose.ACCEPT)
    least = u * q // 2**64 + 1  # the smallest p with u · q < p · 2**64
    for p, accepted in ((min(least, MASS_TOTAL), True), (least - 1, False)):
        draft = draft_leaf(q=q)
        right = verdict_leaf(p=p, accepted=accepted, token=3 if accepted else 4)
        wrong = verdict_leaf(p=p, accepted=not accepted, token=4 if accepted else 3)
        assert check_leaf_pair(order, seed, BASE, draft, right, value) is None
        assert (
            check_leaf_pair(order, seed, BASE, draft, wrong, value) == LeafFault.COIN_SAYS_OTHERWISE
        )
    rejected = verdict_leaf(p=least - 1, accepted=False)
    assert (
        check_leaf_pair(order, seed, BASE, draft_leaf(q=q), rejected, value)
        == LeafFault.REJECTED_OWN_TOKEN
    )
    # Without mass under q nothing is ever accepted.
    none = draft_leaf(q=0)
    assert (
        check_leaf_pair(order, seed, BASE, none, verdict_leaf(p=MASS_TOTAL), value)
        == LeafFault.COIN_SAYS_OTHERWISE
    )


# ---------------------------------------------------------------- D's leaves


@given(words, words, st.integers(1, 2**63))
def test_a_draw_lies_in_its_interval_to_the_unit(seed: bytes, value: bytes, q: int) -> None:
    order = order_for(Mode.REJECTION)
    drawn = draw_coin(value, seed, CONTEXT, BASE)

    def fault(below: int, mass: int) -> LeafFault | None:
        if not (0 <= below <= MASS_TOTAL):
            return LeafFault.DRAW
        leaf = draft_leaf(q=mass, q_below=below)
        return check_draft_leaf(order, seed, CONTEXT, BASE, leaf, value)

    assert fault(drawn, 1) is None
    assert fault(drawn, 0) == LeafFault.DRAW
    assert fault(drawn + 1, q) == LeafFault.DRAW
    assert fault(drawn - q, q) == LeafFault.DRAW
    if drawn - q + 1 >= 0:
        assert fault(drawn - q + 1, q) is None
    # An interval past the whole would win coins that belong to others.
    assert fault(drawn, MASS_TOTAL) == (None if drawn == 0 else LeafFault.DRAW)
    assert fault(0, MASS_TOTAL) is None


def test_other_drafts_faults() -> None:
    for mode in Mode:
        order = order_for(mode)
        leaf = draft_leaf(q=MASS_TOTAL)

        def fault(position: int, leaf: DraftLeaf, order: Order = order) -> LeafFault | None:
            return check_draft_leaf(order, bytes(32), CONTEXT, position, leaf)

        assert fault(BASE, leaf) is None
        assert fault(BASE + 1, leaf) == LeafFault.DRAFT_WRONG_POSITION
        nothing = replace(leaf, token=NO_TOKEN)
        assert fault(BASE, nothing) == LeafFault.DRAFT_NO_TOKEN
    assert all(f.by_drafter == (f >= 32) and f.fault in ("F3", "F4", "F5") for f in LeafFault)


def raw_kept_hash(kept: list[tuple[int, int]]) -> bytes:
    return keccak256(TAG_KEPT, *(t.to_bytes(4, "big") + m.to_bytes(8, "big") for t, m in kept))


GOOD = [(2, 10), (3, 20), (9, MASS_TOTAL - 30)]


@pytest.mark.parametrize(
    ("kept", "figures", "expected"),
    [
        (GOOD, {"q": 20, "q_below": 10}, None),
        (GOOD, {"q": 21, "q_below": 10}, LeafFault.LIST_NOT_LEAF),
        (GOOD, {"q": 20, "q_below": 11}, LeafFault.LIST_NOT_LEAF),
        (GOOD, {"token": 4, "q": 0, "q_below": 30}, None),
        (GOOD, {"token": 4, "q": 5, "q_below": 30}, LeafFault.LIST_NOT_LEAF),
        ([GOOD[1], GOOD[0], GOOD[2]], {"q": 20, "q_below": 10}, LeafFault.LIST_MALFORMED),
        ([GOOD[0], GOOD[0], *GOOD[1:]], {"q": 20, "q_below": 10}, LeafFault.LIST_MALFORMED),
        ([(0, 0), *GOOD], {"q": 20, "q_below": 10}, LeafFault.LIST_MALFORMED),
        (GOOD[:2], {"q": 20, "q_below": 10}, LeafFault.LIST_MALFORMED),
        ([(3, 20), (NO_TOKEN, MASS_TOTAL - 20)], {"q": 20}, LeafFault.LIST_MALFORMED),
        ([], {}, LeafFault.LIST_MALFORMED),
        (
            [(i, 1) for i in range(64)] + [(64, MASS_TOTAL - 64)],
            {"q": 1, "q_below": 3},
            LeafFault.LIST_MALFORMED,
        ),
        (
            [(i, 1) for i in range(63)] + [(64, MASS_TOTAL - 63)],
            {"q": 1, "q_below": 3},
            None,
        ),
    ],
)
def test_the_kept_list_behind_a_leaf(
    kept: list[tuple[int, int]], figures: dict[str, int], expected: LeafFault | None
) -> None:
    leaf = draft_leaf(kept_hash=raw_kept_hash(kept), **figures)
    assert check_draft_list(leaf, kept) == expected
    with pytest.raises(NotThisLeaf):
        check_draft_list(replace(leaf, kept_hash=bytes(32)), kept)


@given(words, words)
def test_chain_values_lead_to_their_anchors(secret: bytes, other: bytes) -> None:
    mine, theirs = chain(secret, 3), chain(other, 3)
    order = order_for(Mode.REJECTION, anchor_verifier=mine[0], anchor_drafter=theirs[0])
    for index in range(3):
        assert check_chain_verifier(order, index, round_value(mine, index)) is None
        assert check_chain_drafter(order, index, round_value(theirs, index)) is None
        early = mine[index]  # one link too early: known to all from the round before
        assert check_chain_verifier(order, index, early) == LeafFault.CHAIN_VERIFIER
        early = theirs[index]
        assert check_chain_drafter(order, index, early) == LeafFault.CHAIN_DRAFTER


@given(orders(), records(DraftLeaf), records(VerdictLeaf), words, st.integers(0, 2**32 - 1))
def test_any_leaves_whatever_are_judged_without_an_exception(
    order: Order, draft: DraftLeaf, verdict: VerdictLeaf, word: bytes, position: int
) -> None:
    for given_draft in (draft, None):
        check_leaf_pair(order, word, position, given_draft, verdict, word)
        check_leaf_pair(order, word, verdict.position, given_draft, verdict, word)
    check_draft_leaf(order, word, word, draft.position, draft, word)
