"""The accept rule names the same fault on the same leaves in Python and in Solidity."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from random_records import kept_of, pack_kept, record_of, value_of

from settlement.accept_rule import (
    LeafFault,
    check_chain_drafter,
    check_chain_verifier,
    check_draft_leaf,
    check_draft_list,
    check_leaf_pair,
)
from settlement.coins import Purpose, anchor_of, coin, draw_coin
from settlement.hashing import TAG_KEPT, ZERO32, keccak256, uint
from settlement.masses import interval
from settlement.records import (
    MASS_TOTAL,
    NO_TOKEN,
    DraftLeaf,
    Mode,
    Order,
    VerdictLeaf,
)

RUNS = [300, pytest.param(10_000, marks=pytest.mark.slow)]


def _terms(order: Order) -> tuple[Any, ...]:
    return (
        order.start_position,
        order.max_tokens,
        order.mode,
        order.relax_tau,
        order.key_target_surprisal,
        order.key_draft_surprisal,
        order.anchor_verifier,
        order.anchor_drafter,
    )


def _order(rng: Random, mode: Mode, tau: int = 0) -> Order:
    """Thresholds in reach of small figures, so that either side of each occurs."""
    base = record_of(rng, Order)
    rejection = mode == Mode.REJECTION
    return replace(
        base,
        mode=int(mode),
        temperature=0 if mode == Mode.GREEDY else 65536,
        relax_tau=tau,
        key_target_surprisal=rng.choice((0, 3, 2**32 - 1)),
        key_draft_surprisal=rng.choice((0, 3, 2**32 - 1)),
        seed_policy=0,
        parent_session=ZERO32,
        context_hash=ZERO32,
        start_position=0,
        max_tokens=rng.choice((4, 100, 100, 100)),
        anchor_verifier=rng.randbytes(32) if rejection else ZERO32,
        anchor_drafter=rng.randbytes(32) if rejection else ZERO32,
    )


def _score(rng: Random) -> int:
    return rng.choice((-(2**63), -(2**63) + 1, -5, 0, 3, 5, 2**63 - 1))


def _pair_case(rng: Random) -> tuple[Any, ...]:
    """(order, S, position, draft leaf or None, verdict leaf, v_r): mostly right, often with one or
    two things wrong."""
    mode = rng.choice(list(Mode))
    tau = 0 if mode == Mode.REJECTION else rng.choice((0, 5, 2**32 - 1))
    order, seed, v = _order(rng, mode, tau), rng.randbytes(32), rng.randbytes(32)
    position = rng.choice((0, 1, 2, 3, 3, 3, 4, 50, 2**64 + 3))
    x = rng.choice((0, 7, NO_TOKEN - 1))
    q = rng.choice((0, 1, MASS_TOTAL, rng.getrandbits(64)))
    draft = DraftLeaf(position % 2**32, x, q, 0, ZERO32, rng.choice((0, 3, 4)), ZERO32)
    p = rng.choice((0, q, rng.getrandbits(64)))
    accepted = rng.random() < 0.5
    if mode == Mode.REJECTION and rng.random() < 0.8:
        u = coin(v, seed, position % 2**64, Purpose.ACCEPT)
        accepted = q > 0 and u * q < p << 64
        if rng.random() < 0.3:  # on the edge of the coin
            p = min(MASS_TOTAL, (u * q >> 64) + accepted)
    drafted = rng.random() < 0.85
    y = x if accepted or rng.random() < 0.2 else rng.choice((1, 9, NO_TOKEN - 2))
    verdict = VerdictLeaf(
        position=position % 2**32 if rng.random() < 0.95 else 1,
        draft_token=(x if drafted else NO_TOKEN) if rng.random() < 0.95 else 8,
        token=y if rng.random() < 0.9 else 9,
        accepted=accepted if drafted or rng.random() < 0.2 else False,
        p=p,
        top_prob=value_of(rng, "uint16"),
        cutoff=value_of(rng, "int64"),
        score_draft=_score(rng),
        score_top=_score(rng),
        surprisal=rng.choice((0, 3, 4)),
        key=rng.random() < 0.5,
        fingerprint=ZERO32,
    )
    return order, seed, position, draft if drafted else None, verdict, v


@pytest.mark.parametrize("runs", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_leaf_pairs_are_judged_alike(harness, runs: int) -> None:
    h, rng = harness("AcceptRuleHarness"), Random(runs)
    cases = [_pair_case(rng) for _ in range(runs)]
    nothing = DraftLeaf(0, 0, 0, 0, ZERO32, 0, ZERO32).to_abi()
    calls = [
        h.calldata(
            "checkLeafPair",
            _terms(order),
            seed,
            position,
            draft is not None,
            nothing if draft is None else draft.to_abi(),
            verdict.to_abi(),
            v,
        )
        for order, seed, position, draft, verdict, v in cases
    ]
    seen: dict[int, int] = {}
    for case, answer in zip(cases, h.batch(calls), strict=True):
        code = int(check_leaf_pair(*case) or 0)
        assert answer.number == code, case
        seen[code] = seen.get(code, 0) + 1
    # Every code of V's that a pair of leaves can show was really reached.
    assert set(seen) == {0, *range(1, 12)}, seen
    assert seen[0] > runs // 20


@pytest.mark.parametrize("runs", RUNS)
def test_draft_leaves_are_judged_alike(harness, runs: int) -> None:
    h, rng = harness("AcceptRuleHarness"), Random(runs)
    cases, calls = [], []
    for _ in range(runs):
        order, seed, context = _order(rng, rng.choice(list(Mode))), rng.randbytes(32), b"c" * 32
        d, position = rng.randbytes(32), rng.choice((0, 3, 2**32 - 1, 2**32))
        w = draw_coin(d, seed, context, position)
        below = max(0, min(MASS_TOTAL, w - rng.choice((-1, 0, 1, w, rng.getrandbits(62)))))
        q = rng.choice((0, w - below, w - below + 1, MASS_TOTAL - below, MASS_TOTAL - below + 1))
        leaf = DraftLeaf(
            position=position % 2**32,
            token=rng.choice((5, 5, 5, NO_TOKEN)),
            q=max(0, min(q, MASS_TOTAL)),
            q_below=below,
            kept_hash=ZERO32,
            surprisal=0,
            top_hash=ZERO32,
        )
        cases.append((order, seed, context, position, leaf, d))
        calls.append(
            h.calldata("checkDraftLeaf", _terms(order), seed, context, position, leaf.to_abi(), d)
        )
    seen = set()
    for case, answer in zip(cases, h.batch(calls), strict=True):
        code = int(check_draft_leaf(*case) or 0)
        assert answer.number == code, case
        seen.add((code, Mode(case[0].mode) == Mode.REJECTION))
    assert {code for code, _ in seen} == {0, 32, 33, 34}
    assert (0, True) in seen


@pytest.mark.parametrize("runs", RUNS)
def test_kept_lists_are_held_against_their_leaves_alike(harness, runs: int) -> None:
    h, rng = harness("AcceptRuleHarness"), Random(runs)
    cases, calls = [], []
    for _ in range(runs):
        kept = list(kept_of(rng))
        token = rng.choice([token for token, _ in kept])
        q, below = interval(tuple(kept), token)
        if rng.random() < 0.3:  # a list that is no distribution, yet hashed by its maker
            at = rng.randrange(len(kept))
            kept[at] = (kept[at][0], rng.choice((0, MASS_TOTAL)))
        packed = pack_kept(tuple(kept))
        leaf = DraftLeaf(
            position=0,
            token=token,
            q=q if rng.random() < 0.8 else q ^ 1,
            q_below=below if rng.random() < 0.8 else below ^ 1,
            kept_hash=keccak256(TAG_KEPT, packed),
            surprisal=0,
            top_hash=ZERO32,
        )
        cases.append((leaf, kept))
        calls.append(h.calldata("checkDraftList", leaf.to_abi(), packed))
    seen = set()
    for (leaf, kept), answer in zip(cases, h.batch(calls), strict=True):
        code = int(check_draft_list(leaf, kept) or 0)
        assert answer.number == code, (leaf, kept)
        seen.add(code)
    assert seen == {0, 35, 36}


def test_another_list_than_the_leafs_accuses_nobody(harness) -> None:
    h = harness("AcceptRuleHarness")
    leaf = DraftLeaf(0, 5, MASS_TOTAL, 0, keccak256(TAG_KEPT), 0, ZERO32)
    name, (shown, named) = h.failure("checkDraftList", leaf.to_abi(), uint(5, 4) + uint(1, 8))
    assert (name, named) == ("NotThisLeaf", leaf.kept_hash)
    assert shown == keccak256(TAG_KEPT, uint(5, 4), uint(1, 8))


@pytest.mark.parametrize("runs", RUNS)
def test_chain_values_are_judged_alike(harness, runs: int) -> None:
    h, rng = harness("AcceptRuleHarness"), Random(runs)
    order = _order(rng, Mode.REJECTION)
    for name, check, field in (
        ("checkChainVerifier", check_chain_verifier, "anchor_verifier"),
        ("checkChainDrafter", check_chain_drafter, "anchor_drafter"),
    ):
        cases = []
        for _ in range(runs):
            value, index = rng.randbytes(32), rng.randrange(4)
            shown = index + rng.choice((0, 0, 1))
            cases.append((replace(order, **{field: anchor_of(value, index)}), shown, value))
        calls = [h.calldata(name, _terms(o), index, value) for o, index, value in cases]
        codes = set()
        for case, answer in zip(cases, h.batch(calls), strict=True):
            code = int(check(*case) or 0)
            assert answer.number == code
            codes.add(code)
        assert len(codes) == 2


def test_codes_name_the_same_faults_and_the_same_guilty(harness) -> None:
    h = harness("AcceptRuleHarness")
    for code in LeafFault:
        assert f"F{h.call('faultOf', int(code))[0]}" == code.fault
        assert h.call("byDrafter", int(code)) == (code.by_drafter,)
