"""F9 by arithmetic, as Python finds it: in no honest session, in every token that was changed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from exact_sessions import SIZES, ExactPlay, SmallTarget, disturbed, exact_play, traced
from played_sessions import DRAFTER, VERIFIER

from settlement import exact
from settlement.acceptance import ScoreRow
from settlement.exact import Row, Sizes
from settlement.exact_faults import (
    CutoffForPanel,
    Disclosed,
    ExactCode,
    ForPanel,
    OtherEvidence,
    find_token_fault,
    token_code,
)
from settlement.exact_trace import VECTORS, Matrix, Pass, element_fault, shape_of
from settlement.fault_proofs import Fault, Kind
from settlement.records import Domain, Mode, Tier

DOMAIN = Domain(31337, b"\x0e" * 20)
TERMS = [
    (Mode.GREEDY, {}),
    (Mode.COUPLED, {}),
    (Mode.COUPLED, {"top_k": 5}),
    (Mode.COUPLED, {"relax_tau": 1 << 24, "top_k": 9}),
    (Mode.GREEDY, {"relax_tau": 1 << 26}),
]


def look(play: ExactPlay, index: int, at: int, **changes: object) -> Fault | None:
    evidence = play.changed(index, at, **changes) if changes else play.rounds[index]
    return find_token_fault(DOMAIN, evidence, at, play.disclosed[index, at], play.target)


@pytest.mark.parametrize(("mode", "terms"), TERMS)
def test_honest_sessions_prove_nothing(mode: Mode, terms: dict) -> None:
    for seed in range(4):
        play = exact_play(DOMAIN, Random(seed), mode, **terms)
        for index, at in play.places():
            assert look(play, index, at) is None


@pytest.mark.parametrize(("mode", "terms"), TERMS)
def test_a_changed_token_is_found(mode: Mode, terms: dict) -> None:
    found = 0
    for seed in range(4):
        play = exact_play(DOMAIN, Random(seed), mode, **terms)
        # A draft that was accepted within τ may be another than the best.
        places = [
            (i, j)
            for i, j in play.places()
            if "relax_tau" not in terms or not play.rounds[i].verdict_leaves[j].accepted
        ]
        if not places:
            continue
        index, at = Random(seed).choice(places)
        leaf = play.rounds[index].verdict_leaves[at]
        for token in set(range(SIZES.vocabulary)) - {leaf.token}:
            fault = look(play, index, at, token=token)
            assert fault is not None
            assert fault.code in (ExactCode.TOKEN_BEATEN, ExactCode.TOKEN_CUT)
            assert (fault.number, fault.by_drafter) == (9, False)
            assert fault.guilty == play.play.verifier
            assert fault.kind == Kind.EXACT_TOKEN
            found += 1
    assert found > 40


def test_a_token_outside_the_vocabulary() -> None:
    play = exact_play(DOMAIN, Random(1), Mode.COUPLED)
    fault = look(play, 0, 0, token=SIZES.vocabulary)
    assert fault is not None
    assert fault.code == ExactCode.TOKEN_UNKNOWN


def test_false_figures_of_a_relaxed_leaf() -> None:
    play = exact_play(DOMAIN, Random(8), Mode.COUPLED, relax_tau=1 << 24)
    drafted = [(i, j) for i, j in play.places() if j < len(play.rounds[i].draft_leaves)]
    assert drafted
    for index, at in drafted:
        leaf = play.rounds[index].verdict_leaves[at]
        fault = look(play, index, at, score_draft=leaf.score_draft - 1)
        assert fault is not None
        assert fault.code == ExactCode.SCORE_FIGURES
        assert look(play, index, at, score_top=leaf.score_top - 1) is not None
        higher = look(play, index, at, score_top=leaf.score_top + 1)
        # What V emits of its own has the top score; an accepted draft only bounds it.
        assert (higher is None) == leaf.accepted
    assert not all(play.rounds[i].verdict_leaves[j].accepted for i, j in drafted)


def test_a_cutoff_that_hides_the_best_token_is_for_the_panel() -> None:
    """Two rows do not show that a cut-off is false: they show that the better token is below it."""
    hidden = 0
    for seed in range(8):
        play = exact_play(DOMAIN, Random(seed), Mode.COUPLED, top_k=20)
        for index, at in play.places():
            evidence, opened = play.rounds[index], play.disclosed[index, at]
            leaf, order = evidence.verdict_leaves[at], evidence.order
            scores = exact.scores(play.target.logits(opened.hidden), order.temperature)
            top = int(scores.argmax())
            if top == leaf.token:
                continue
            lie = {"token": top, "cutoff": int(scores[top])}
            assert look(play, index, at, **lie) is None
            with pytest.raises(CutoffForPanel) as refused:
                token_code(
                    order,
                    evidence.start.seed,
                    evidence.verdict.base + at,
                    play.changed(index, at, **lie).verdict_leaves[at],
                    opened,
                    play.target.opening(exact.HEAD, top),
                    leaf.token,
                    play.target.opening(exact.HEAD, leaf.token),
                )
            assert refused.value.score == scores[leaf.token]
            hidden += 1
    assert hidden > 5


def test_what_is_for_the_panel() -> None:
    coupled = exact_play(DOMAIN, Random(1), Mode.COUPLED)
    for terms, why in (
        ({"repetition_penalty": 70_000}, "penalties"),
        ({"presence_penalty": 1}, "penalties"),
        ({"frequency_penalty": -1}, "penalties"),
    ):
        play = exact_play(DOMAIN, Random(1), Mode.COUPLED, **terms)
        with pytest.raises(ForPanel, match=why):
            look(play, 0, 0)
    reduced = SmallTarget(Random(1), head_ids=b"\x01" * 32)
    play = exact_play(DOMAIN, Random(1), Mode.COUPLED, reduced)
    with pytest.raises(ForPanel, match="reduced head"):
        look(play, 0, 0)
    # Another tier under the same name of model is another model.
    other = SmallTarget(Random(2))
    other.manifest = replace(other.manifest, tier=Tier.FLOAT32)  # type: ignore[misc]
    play = exact_play(DOMAIN, Random(2), Mode.COUPLED, other)
    with pytest.raises(ForPanel, match="float tier"):
        look(play, 0, 0)
    assert look(coupled, 0, 0) is None


def test_evidence_that_is_not_the_leafs() -> None:
    play = exact_play(DOMAIN, Random(4), Mode.COUPLED)
    evidence, opened = play.rounds[0], play.disclosed[0, 0]
    for other in (
        Disclosed(b"\x01" * 32, opened.hidden),
        Disclosed(opened.salt, bytes(len(opened.hidden))),
    ):
        with pytest.raises(OtherEvidence):
            find_token_fault(DOMAIN, evidence, 0, other, play.target)
    with pytest.raises(OtherEvidence, match="target"):
        find_token_fault(DOMAIN, evidence, 0, opened, SmallTarget(Random(99)))
    lie = play.changed(0, 0, token=(evidence.verdict_leaves[0].token + 1) % SIZES.vocabulary)
    unsigned = replace(lie, verdict_signature=evidence.verdict_signature)
    with pytest.raises(OtherEvidence, match="signed"):
        find_token_fault(DOMAIN, unsigned, 0, opened, play.target)


# ---------------------------------------------------------------- elements


def _look_at(run: Pass, play: ExactPlay, place: tuple) -> Fault | None:
    evidence = play.rounds[0]
    trace = run.trace(evidence.start.struct_hash, 0, 0)
    signature = DOMAIN.sign(trace, VERIFIER)
    session = (evidence.order, evidence.start)
    return element_fault(DOMAIN, *session, trace, signature, run, play.target, place)


@pytest.mark.parametrize("matrix", Matrix)
def test_one_element_off_by_one_is_found_and_no_other(matrix: Matrix) -> None:
    play = exact_play(DOMAIN, Random(5), Mode.COUPLED)
    run = traced(play.target, Random(6))
    elements, _ = shape_of(SIZES, matrix.ends[1])
    for layer in range(SIZES.layers):
        for element in (0, 1, elements // 2, elements - 1):
            assert _look_at(run, play, (1, layer, matrix, element)) is None
            vector = VECTORS * layer + matrix.ends[1]
            value = run.positions[1].vectors[vector].element(element)
            by = -1 if value > 0 else 1
            off = disturbed(run, 1, vector, element, by)
            fault = _look_at(off, play, (1, layer, matrix, element))
            assert fault is not None
            assert (fault.number, fault.code) == (9, ExactCode.ELEMENT)
            neighbour = element + 1 if element + 1 < elements else element - 1
            assert _look_at(off, play, (1, layer, matrix, neighbour)) is None


def test_a_trace_is_its_verifiers() -> None:
    play = exact_play(DOMAIN, Random(5), Mode.COUPLED)
    run = traced(play.target, Random(6), positions=2)
    evidence, place = play.rounds[0], (0, 0, Matrix.QUERY, 0)
    trace = run.trace(evidence.start.struct_hash, 0, 0)
    args = (evidence.order, evidence.start)
    for other, key, over in (
        (trace, DRAFTER, run),
        (replace(trace, start_hash=b"\x01" * 32), VERIFIER, run),
        (trace, VERIFIER, traced(play.target, Random(7), positions=2)),
    ):
        with pytest.raises(OtherEvidence):
            element_fault(DOMAIN, *args, other, DOMAIN.sign(other, key), over, play.target, place)
    with pytest.raises(OtherEvidence, match="signed"):
        element_fault(DOMAIN, *args, trace, b"", run, play.target, place)


# ---------------------------------------------------------------- arithmetic


def test_rounding_is_as_specified() -> None:
    row = Row(1, 0, 3, 2, 10, b"")
    # 3·acc / 4: halves go up.
    assert [exact.scaled(acc, row) - 10 for acc in (-2, -1, 0, 1, 2, 3)] == [-1, -1, 0, 1, 2, 2]
    assert exact.scaled(5, row, exponent=2) == 25
    assert exact.scaled(5, row, exponent=4) == 70
    # Halves to even.
    assert [exact.score(z, 2 << 16) for z in (-3, -1, 1, 3, 5)] == [-2, 0, 0, 2, 2]
    assert exact.score(7, 1 << 16) == 7


def test_float_rounding_gives_the_integer_scores() -> None:
    rng = Random(1)
    for _ in range(300):
        z = [rng.randrange(-exact.LOGIT_LIMIT, exact.LOGIT_LIMIT + 1) for _ in range(20)]
        t = rng.choice((1, 3, 65_535, 65_536, 131_072, rng.randrange(1, 1 << 20)))
        got = exact.scores(np.array(z, dtype=np.int64), t)
        assert got.tolist() == [exact.score(each, t) for each in z]


def test_a_header_is_read_or_refused() -> None:
    target = SmallTarget(Random(1))
    assert Sizes.of(target.header) == SIZES
    for bad in (b"", target.header[:100], b"x" + target.header[1:]):
        with pytest.raises(exact.ExactError):
            Sizes.of(bad)
    version = bytearray(target.header)
    version[26] = 2
    with pytest.raises(exact.ExactError, match="version 2"):
        Sizes.of(bytes(version))


def test_the_scripted_rule_and_the_proof_share_one_choice() -> None:
    """What `decide_round` calls the target's token is what the proof takes for the best."""
    play = exact_play(DOMAIN, Random(11), Mode.COUPLED)
    evidence, opened = play.rounds[0], play.disclosed[0, 0]
    scores = exact.scores(play.target.logits(opened.hidden), evidence.order.temperature)
    own, _ = ScoreRow(scores).choose(Mode.COUPLED, evidence.start.seed, evidence.verdict.base)
    for token in range(SIZES.vocabulary):
        fault = look(play, 0, 0, token=token)
        assert (fault is None) == (token == own)
        if fault is not None:
            assert fault.evidence[-2] == own
