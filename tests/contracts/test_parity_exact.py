"""The exact tier's arithmetic and its proofs give the same in Python and in Solidity."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from evm import Deployed, Reverted
from exact_sessions import SIZES, ExactPlay, SmallTarget, disturbed, exact_play, traced
from played_sessions import VERIFIER

from settlement import exact, trees
from settlement.chain.compile import compile_sources
from settlement.chain.paths import CONTRACTS, ROOT
from settlement.draws import RoundEvidence
from settlement.exact import HEAD, Row
from settlement.exact_faults import (
    CutoffForPanel,
    ExactCode,
    ForPanel,
    find_token_fault,
    token_code,
    token_fault,
)
from settlement.exact_trace import (
    CHUNK,
    VECTORS,
    Matrix,
    Pass,
    Position,
    Trace,
    Vector,
    element_fault,
    shape_of,
)
from settlement.fault_proofs import Fault
from settlement.records import NO_TOKEN, Domain, Mode, Verdict
from settlement.schema import Record

DOMAIN = Domain(31337, b"\x0e" * 20)
CALLER = b"\x11" * 20
RUNS = [60, pytest.param(3_000, marks=pytest.mark.slow)]
SESSIONS = [3, pytest.param(150, marks=pytest.mark.slow)]
TERMS: list[tuple[Mode, dict[str, Any]]] = [
    (Mode.GREEDY, {}),
    (Mode.COUPLED, {}),
    (Mode.COUPLED, {"top_k": 4}),
    (Mode.COUPLED, {"top_p": 60_000, "relax_tau": 1 << 25}),
    (Mode.GREEDY, {"relax_tau": 1 << 24}),
]


@pytest.fixture(scope="module")
def rule() -> Deployed:
    import pyrevm

    path = CONTRACTS / "ExactRule.sol"
    unit = path.relative_to(ROOT).as_posix()
    artifact = compile_sources({unit: path.read_text()}).require("ExactRule")
    return Deployed(pyrevm.EVM(spec_id="PRAGUE"), artifact, CALLER)


def ruling(rule: Deployed, fault: Fault) -> tuple[Any, ...]:
    return rule.call(fault.kind.rule_function, fault.evidence, DOMAIN.separator)[0]


def agrees(rule: Deployed, fault: Fault) -> None:
    found = ruling(rule, fault)
    assert found[0] == fault.number
    assert found[1] == int(fault.code)
    assert found[2] == fault.by_drafter
    assert bytes.fromhex(found[3][2:]) == fault.guilty
    assert found[4:6] == (fault.start_hash, fault.round)


# ---------------------------------------------------------------- arithmetic


def _words(row: Row) -> tuple[Any, ...]:
    return (0, row.multiplier, row.shift, row.bias, row.weights, [])


@pytest.mark.parametrize("runs", RUNS)
def test_products_agree(harness, runs: int) -> None:
    h, rng = harness("ExactModelHarness"), Random(runs)
    lengths = [rng.choice((1, 15, 16, 17, 31, 32, 33, 64, 70, 576)) for _ in range(runs)]
    pairs = [(rng.randbytes(2 * n), rng.randbytes(n)) for n in lengths]
    ends = ((b"\x80\x00", b"\x80"), (b"\x80\x00", b"\x7f"), (b"\x7f\xff", b"\x80"))
    edges = [(activation * 96, weight * 96) for activation, weight in ends]
    calls = [h.calldata("packed", a, w) for a, w in pairs + edges]
    for (a, w), answer in zip(pairs + edges, h.batch(calls), strict=True):
        assert answer.signed == exact.dot(a, w)


@pytest.mark.parametrize("runs", RUNS)
def test_scores_agree(harness, runs: int) -> None:
    h, rng = harness("ExactModelHarness"), Random(runs)
    for _ in range(runs):
        row = Row(
            HEAD,
            rng.randrange(1 << 32),
            rng.choice((0, rng.randrange(1 << 21, 1 << 22), (1 << 32) - 1)),
            rng.randrange(0, 63),
            rng.choice((0, rng.randrange(-(1 << 40), 1 << 40))),
            rng.randbytes(40),
        )
        acc = rng.randrange(-(1 << 36), (1 << 36) + 1)
        exponent = rng.randrange(0, 39)
        hidden = rng.randbytes(80)
        z = rng.choice((exact.LOGIT_LIMIT, rng.randrange(-exact.LOGIT_LIMIT, exact.LOGIT_LIMIT)))
        t = rng.choice((1, 2, 3, 65_535, 65_536, 131_072, rng.randrange(1, 1 << 32)))
        answers = h.batch(
            [
                h.calldata("scaled", acc, _words(row), exponent),
                h.calldata("logit", hidden, _words(row)),
                h.calldata("score", z, t),
                h.calldata("leaf", HEAD, row.row, _words(row)),
                h.calldata("fingerprint", hidden),
            ]
        )
        assert answers[0].signed == exact.scaled(acc, row, exponent)
        assert answers[1].signed == exact.logit(hidden, row)
        assert answers[2].signed == exact.score(z, t)
        assert answers[3].word == row.leaf
        assert answers[4].word == exact.fingerprint(hidden)


def test_commitments_agree(harness) -> None:
    h, rng = harness("ExactModelHarness"), Random(5)
    target = SmallTarget(rng)
    opening = target.opening(HEAD, 3)
    assert h.call("weightsRoot", opening.weights_words()) == (target.manifest.weights_root,)
    assert opening.weights_root == target.manifest.weights_root
    s = SIZES
    sizes = (s.vocabulary, s.head_rows, s.hidden, s.mlp, s.layers, s.heads, s.key_heads)
    assert h.call("sizes", target.header) == ((*sizes, s.head_size, bytes(32)),)
    assert h.failure("sizes", target.header[:100])[0] == "BadHeader"
    for elements in (1, 63, 64, 65, 128, 200, 1536):
        for width in (2, 4):
            vector = Vector(rng.randbytes(elements * width), width, 7)
            root = vector.chunks.top()
            assert h.call("chunksRoot", vector.data, width) == (root,)
            assert h.call("vectorLeaf", 7, root) == (vector.leaf,)
            assert h.call("chunkLeaf", vector.data[: CHUNK * width])[0] == (
                vector.chunks.top(1) if elements > CHUNK else root
            )
    position = Position([Vector(b"\0\1", 2), Vector(b"\0\2", 2)])
    assert h.call("positionLeaf", position.root) == (position.leaf,)


def test_the_traces_type_string_is_in_the_source() -> None:
    source = (CONTRACTS / "libraries" / "ExactEvidence.sol").read_text()
    assert f'"{Trace.type_string()}"' in source
    assert issubclass(Trace, Record)


# ---------------------------------------------------------------- tokens


def _both(
    rule: Deployed, play: ExactPlay, evidence: RoundEvidence, index: int, at: int, better: int
) -> ExactCode | str | None:
    """What Python and the contract say of one token held against a leaf's; they must agree."""
    target, opened = play.target, play.disclosed[index, at]
    leaf = evidence.verdict_leaves[at]
    known = leaf.token < SIZES.vocabulary
    own = target.opening(HEAD, leaf.token) if known else None
    other = None if better == leaf.token else target.opening(HEAD, better)
    place = evidence.verdict.base + at
    says: ExactCode | str | None
    try:
        says = token_code(
            evidence.order, evidence.start.seed, place, leaf, opened, own, better, other
        )
    except CutoffForPanel as error:
        says = f"{error.token} {error.score} {error.cutoff}"
    code = says if isinstance(says, ExactCode) else ExactCode.TOKEN_BEATEN
    rows = own or target.opening(HEAD, 0)
    fault = token_fault(
        DOMAIN, evidence, at, opened, target.manifest, rows, own, better, other, code
    )
    if isinstance(says, ExactCode):
        agrees(rule, fault)
        return says
    with pytest.raises(Reverted) as refused:
        ruling(rule, fault)
    if says is None:
        assert refused.value.name == "NoFault"
    else:
        assert refused.value.name == "CutoffForPanel"
        assert " ".join(map(str, refused.value.arguments)) == says
    return says


@pytest.mark.parametrize(("mode", "terms"), TERMS)
@pytest.mark.parametrize("runs", SESSIONS)
def test_tokens_are_judged_alike(rule: Deployed, runs: int, mode: Mode, terms: dict) -> None:
    said: set[object] = set()
    for seed in range(runs):
        rng = Random(f"{seed} {mode} {terms}")
        play = exact_play(DOMAIN, rng, mode, **terms)
        for index, at in play.places():
            leaf = play.rounds[index].verdict_leaves[at]
            lies: list[dict[str, Any]] = [
                {},
                {"token": rng.randrange(SIZES.vocabulary)},
                {"cutoff": leaf.cutoff + rng.choice((1, 1 << 24, 1 << 26))},
                {"score_top": leaf.score_top - rng.randrange(2)},
                {"score_draft": rng.choice((leaf.score_draft, 0, -(2**63)))},
                {"key": not leaf.key, "accepted": rng.random() < 0.5},
                {"token": SIZES.vocabulary},
            ]
            changes = rng.choice(lies) | rng.choice(lies)
            evidence = play.changed(index, at, **changes)
            drafted = leaf.draft_token if leaf.draft_token != NO_TOKEN else 0
            for better in {leaf.token, drafted, rng.randrange(SIZES.vocabulary)}:
                said.add(_both(rule, play, evidence, index, at, better))
    assert None in said
    assert said & {ExactCode.TOKEN_BEATEN, ExactCode.TOKEN_CUT}


def test_what_python_finds_the_contract_finds(rule: Deployed) -> None:
    for mode, terms in TERMS:
        play = exact_play(DOMAIN, Random(f"{mode} {terms}"), mode, **terms)
        for index, at in play.places()[:4]:
            opened = play.disclosed[index, at]
            honest = play.rounds[index]
            assert find_token_fault(DOMAIN, honest, at, opened, play.target) is None
            lie = play.changed(index, at, token=Random(at).randrange(SIZES.vocabulary))
            fault = find_token_fault(DOMAIN, lie, at, opened, play.target)
            if fault is not None:
                agrees(rule, fault)


def test_a_drafter_passed_over_is_harmed(rule: Deployed) -> None:
    play = exact_play(DOMAIN, Random(2), Mode.COUPLED)
    index, at = next((i, j) for i, j in play.places() if play.rounds[i].verdict_leaves[j].accepted)
    leaf = play.rounds[index].verdict_leaves[at]
    lie = play.changed(index, at, token=(leaf.token + 1) % SIZES.vocabulary, accepted=False)
    lie = replace(lie, verdict=replace(lie.verdict, k=0))
    lie = replace(lie, verdict_signature=DOMAIN.sign(lie.verdict, VERIFIER))
    fault = find_token_fault(DOMAIN, lie, at, play.disclosed[index, at], play.target)
    assert fault is not None
    found = ruling(rule, fault)
    assert bytes.fromhex(found[11][2:]) == play.play.drafter
    assert found[12] == lie.order.price_accepted * lie.commit.k


def test_the_panels_cases_have_one_name(rule: Deployed) -> None:
    for terms in ({"repetition_penalty": 70_000}, {"presence_penalty": 3}):
        play = exact_play(DOMAIN, Random(1), Mode.COUPLED, **terms)
        with pytest.raises(ForPanel) as python:
            find_token_fault(DOMAIN, play.rounds[0], 0, play.disclosed[0, 0], play.target)
        own = play.target.opening(HEAD, play.rounds[0].verdict_leaves[0].token)
        args = (DOMAIN, play.rounds[0], 0, play.disclosed[0, 0], play.target.manifest, own, own)
        fault = token_fault(*args, own.row.row, None, ExactCode.TOKEN_BEATEN)
        with pytest.raises(Reverted) as solidity:
            ruling(rule, fault)
        assert solidity.value.name == "ForPanel"
        assert solidity.value.arguments == (str(python.value),)


# ---------------------------------------------------------------- elements


def _element(run: Pass, play: ExactPlay, place: tuple[int, int, Matrix, int]) -> Fault | None:
    evidence = play.rounds[0]
    trace = run.trace(evidence.start.struct_hash, evidence.verdict.round, 0)
    signature = DOMAIN.sign(trace, VERIFIER)
    session = (evidence.order, evidence.start)
    return element_fault(DOMAIN, *session, trace, signature, run, play.target, place)


@pytest.mark.parametrize("matrix", Matrix)
def test_elements_are_judged_alike(rule: Deployed, matrix: Matrix) -> None:
    play = exact_play(DOMAIN, Random(5), Mode.COUPLED)
    run = traced(play.target, Random(int(matrix)), positions=2)
    elements, _ = shape_of(SIZES, matrix.ends[1])
    for layer in range(SIZES.layers):
        for element in (0, elements // 2, elements - 1):
            place = (layer, layer, matrix, element)
            vector = VECTORS * layer + matrix.ends[1]
            value = run.positions[layer].vectors[vector].element(element)
            off = disturbed(run, layer, vector, element, -1 if value > 0 else 1)
            fault = _element(off, play, place)
            assert fault is not None
            agrees(rule, fault)
            assert _element(run, play, place) is None
            # The same evidence, with the honest chunk and tree in place of the false ones.
            with pytest.raises(Reverted) as refused:
                ruling(rule, _shown(run, play, place, fault))
            assert refused.value.name == "NoFault"


def _shown(run: Pass, play: ExactPlay, place: tuple[int, int, Matrix, int], fault: Fault) -> Fault:
    """Evidence about an honest element: what Python has no fault to make of."""
    at, layer, matrix, element = place
    position = run.positions[at]
    trace = run.trace(fault.start_hash, fault.round, 0)
    source, output, residual = matrix.ends
    first = VECTORS * layer

    def opened(index: int, whole: bool) -> tuple[Any, ...]:
        vector, path = position.vectors[index], list(position.tree.siblings(index))
        if whole:
            return (vector.exponent, vector.data, [], path)
        chunk, size = element // CHUNK, CHUNK * vector.width
        data = vector.data[chunk * size : (chunk + 1) * size]
        return (vector.exponent, data, list(vector.chunks.siblings(chunk)), path)

    proof = list(fault.evidence)
    proof[3:5] = [trace.to_abi(), DOMAIN.sign(trace, VERIFIER)]
    proof[7:9] = [position.root, list(run.tree.siblings(at))]
    proof[13:15] = [opened(first + source, True), opened(first + output, False)]
    proof[15] = (0, b"", [], []) if residual is None else opened(first + residual, False)
    return replace(fault, evidence=tuple(proof))


def test_shapes_are_judged_alike(rule: Deployed) -> None:
    play = exact_play(DOMAIN, Random(5), Mode.COUPLED)
    run = traced(play.target, Random(1), positions=2)

    def with_vector(index: int, vector: Vector) -> Pass:
        vectors = list(run.positions[0].vectors)
        vectors[index] = vector
        return Pass([Position(vectors), run.positions[1]])

    norm, query = run.positions[0].vectors[1], run.positions[0].vectors[2]
    act = run.positions[0].vectors[12]
    for matrix, off in (
        (Matrix.QUERY, with_vector(1, replace(norm, data=norm.data + b"\0\0"))),
        (Matrix.QUERY, with_vector(1, replace(norm, data=norm.data[:-1]))),
        (Matrix.QUERY, with_vector(1, replace(norm, exponent=1))),
        (Matrix.QUERY, with_vector(2, replace(query, data=query.data[:-2]))),
        (Matrix.DOWN, with_vector(12, replace(act, exponent=39))),
    ):
        elements, _ = shape_of(SIZES, matrix.ends[1])
        fault = _element(off, play, (0, 0, matrix, elements - 1))
        assert fault is not None
        assert fault.code == ExactCode.TRACE_SHAPE
        agrees(rule, fault)


def test_elements_need_what_belongs_to_them(rule: Deployed) -> None:
    play = exact_play(DOMAIN, Random(5), Mode.COUPLED)
    run = traced(play.target, Random(1), positions=2)
    vector = VECTORS + Matrix.OUT.ends[1]
    off = disturbed(run, 1, vector, 3, -1 if run.positions[1].vectors[vector].element(3) > 0 else 1)
    fault = _element(off, play, (1, 1, Matrix.OUT, 3))
    assert fault is not None
    agrees(rule, fault)
    other = SmallTarget(Random(77))
    row = list(fault.evidence[12])
    swaps: list[tuple[int, Any, str]] = [
        (0, ("other", *fault.evidence[0][1:]), "NotNamed"),
        (4, DOMAIN.sign(play.rounds[0].verdict, VERIFIER), "NotSignedBy"),
        (5, other.opening(HEAD, 0).weights_words(), "NotNamed"),
        (6, 0, "NotInTree"),
        (7, b"\x01" * 32, "NotInTree"),
        (9, 0, "NotInTree"),
        (9, SIZES.layers, "NoSuchPlace"),
        (10, 0, "NotInTree"),
        (10, 7, "NoSuchMatrix"),
        (11, 4, "NotInTree"),
        (11, 70, "NoSuchPlace"),
        (12, (row[0], row[1] + 1, *row[2:]), "NotInTree"),
        (13, fault.evidence[14], "NotInTree"),
        (15, fault.evidence[14], "NotInTree"),
    ]
    for at, value, name in swaps:
        evidence = (*fault.evidence[:at], value, *fault.evidence[at + 1 :])
        with pytest.raises(Reverted) as refused:
            ruling(rule, replace(fault, evidence=evidence))
        assert refused.value.name == name, (at, refused.value)


def test_numbers_in_a_vector_fit_it() -> None:
    with pytest.raises(exact.ExactError):
        Vector.of(np.array([40_000]), 2)
    tree = trees.MerkleTree([Vector(b"\0\1", 2).leaf])
    assert len(tree) == 1
    assert Verdict.WIRE_TAG != Trace.WIRE_TAG
