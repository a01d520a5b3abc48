"""What jurors of the exact tier answer over sessions of the tiny pair in integers: one hash, V's
own for every honest token, and another for every token of another model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_exact_dispute import PAIR, OneLie, Served, _other_weights, leaves, serve, target

from node.inference.loading import load_model
from node.inference.model_drafter import ModelDrafter
from node.roles.answering import answer
from node.roles.draft_answers import draft_answer
from node.roles.rerun import Tolerance, rerun
from settlement.panels import Answer, Measure, exact_hash, passes, verdict_figures
from settlement.records import Mode, Tier

pytestmark = pytest.mark.slow


def judged(served: Served, engine: Any) -> list[bool]:
    """For every token of the session, whether a juror on `engine` finds it right."""
    found: list[bool] = []
    for evidence, within, private in leaves(served):
        index = evidence.verdict.round
        print_ = private.fingerprints[within]
        expected = exact_hash(verdict_figures(evidence.verdict_leaves[within]), print_)
        measure = Measure(True, True, 0, 0, print_, expected)
        given: Answer = answer(engine, served.case, index, within)
        assert given.margin == 0
        assert not given.withheld
        found.append(passes(given, measure))
    return found


@pytest.mark.parametrize(
    "plan",
    [
        {"mode": Mode.GREEDY, "temperature": 0},
        {"mode": Mode.COUPLED, "temperature": 52_000, "top_k": 12},
        {"mode": Mode.REJECTION},
    ],
)
def test_every_honest_token_has_the_jurors_hash(plan: dict[str, Any]) -> None:
    found = judged(serve(target(), **plan), target())
    assert len(found) == 24
    assert all(found)


def test_every_token_of_another_checkpoint_has_another() -> None:
    found = judged(serve(_other_weights(), mode=Mode.GREEDY, temperature=0), target())
    assert len(found) == 24
    assert not any(found)


def test_one_changed_token_is_the_only_false_one() -> None:
    found = judged(serve(OneLie(5 + 10), mode=Mode.GREEDY, temperature=0), target())
    assert [at for at, right in enumerate(found) if not right] == [10]


def test_a_token_that_the_vocabulary_does_not_have_stops_neither_jurors_nor_audits() -> None:
    served = serve(target(), mode=Mode.GREEDY, temperature=0)
    done = served.case.rounds[1]
    first, *rest = done.verdict.leaves
    frame = replace(done.verdict, leaves=(replace(first, token=10**6), *rest))
    forged = (served.case.rounds[0], replace(done, verdict=frame), *served.case.rounds[2:])
    case = replace(served.case, rounds=forged)
    position = done.verdict.verdict.base
    found = rerun(target(), case, Tolerance.of(Tier.EXACT))
    assert [item.position for item in found.mismatches] == [position, position + 1]
    assert len(found.fingerprints) == len(case.output)
    assert answer(target(), case, 2, 0) == answer(target(), case, 3, 0)
    assert answer(target(), case, 1, 0).print == answer(target(), served.case, 1, 0).print


def test_all_honest_jurors_say_the_same() -> None:
    served = serve(_other_weights(), mode=Mode.GREEDY, temperature=0)
    one, other = (answer(target(), served.case, 1, 0) for _ in range(2))
    assert one == other


def test_every_honest_draft_has_the_leaf_of_the_registered_model() -> None:
    served = serve(target(), mode=Mode.REJECTION)
    drafter = ModelDrafter(load_model(PAIR / "draft", "exact", "cpu"))
    found = [
        draft_answer(drafter, served.case, index, within, Tier.EXACT).print == leaf.leaf_hash
        for index, done in enumerate(served.case.rounds)
        if done.draft is not None
        for within, leaf in enumerate(done.draft.leaves)
    ]
    assert len(found) > 12
    assert all(found)
    first = next(i for i, done in enumerate(served.case.rounds) if done.draft is not None)
    other = draft_answer(ModelDrafter(target()), served.case, first, 0, Tier.EXACT)
    leaves_there = served.case.rounds[first].draft
    assert leaves_there is not None
    assert other.print != leaves_there.leaves[0].leaf_hash, "the target sold as the draft"
