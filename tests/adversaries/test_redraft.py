"""F12: the draft model run again over a session in rejection mode."""

from __future__ import annotations

from dataclasses import replace

import cast_drafters
import pytest
import trio
from arena import DRAFT, InThread
from audit_scene import loaded
from stage import Scene

from node.roles.redraft import apart, redraft
from node.roles.rerun import LoadedDraft, Tolerance, WorkerRerun
from settlement.records import MASS_TOTAL, Mode

HALF = MASS_TOTAL // 2


def played(drafter=None):
    run = Scene("honest", "nobody", Mode.REJECTION, drafter=drafter, wishes={"max_tokens": 24})
    return run.play(5).reruns[0]


def test_an_honest_drafters_lists_are_its_models() -> None:
    run = played()
    drafts = sum(len(done.draft.leaves) for done in run.case.rounds if done.draft)
    assert drafts > 15
    assert redraft(cast_drafters.honest(), run.case, Tolerance(mass=0.0)) == ()


def test_every_list_of_another_model_is_named_up_to_where_its_draft_leaves_ours() -> None:
    run = played(cast_drafters.lying_q)
    assert redraft(cast_drafters.lying_q(), run.case) == ()
    found = redraft(cast_drafters.honest(), run.case)
    by_round = [
        sum(done.draft.leaves[0].position == item.position for item in found)
        for done in run.case.rounds
        if done.draft
    ]
    assert set(by_round) == {1}, "the first draft of every round is one of them"
    assert all(item.what == "q" and 0 < item.margin <= 1 for item in found)


def test_one_altered_mass_is_found_and_nothing_else() -> None:
    run = played()
    at = next(n for n, done in enumerate(run.case.rounds) if done.draft and done.draft.kept)
    done = run.case.rounds[at]
    (first, a), (second, b), *rest = done.draft.kept[0]
    kept = ((first, a + b // 2), (second, b - b // 2), *rest)
    frame = replace(done.draft, kept=(kept, *done.draft.kept[1:]))
    rounds = (*run.case.rounds[:at], replace(done, draft=frame), *run.case.rounds[at + 1 :])
    (found,) = redraft(cast_drafters.honest(), replace(run.case, rounds=rounds))
    assert found.position == done.draft.leaves[0].position
    assert found.margin == pytest.approx(b // 2 / MASS_TOTAL)


@pytest.mark.parametrize(
    ("drafter", "model", "found"),
    [
        (None, DRAFT, 0),
        (cast_drafters.copycat_q, DRAFT, 10),
        (cast_drafters.copycat_q, b"\x66" * 32, None),
    ],
)
def test_an_auditor_runs_the_draft_model_that_it_has(drafter, model, found) -> None:
    case = played(drafter).case
    loads = []

    def load() -> LoadedDraft:
        loads.append(1)
        return LoadedDraft(model, cast_drafters.honest())

    engine = WorkerRerun(InThread(), loaded, load)
    for _ in range(2):
        findings = trio.run(engine.rerun, case, Tolerance())
        assert findings.mismatches == ()
        assert (findings.drafts is None) == (found is None)
        assert len(findings.drafts or ()) >= (found or 0)
        assert found != 0 or findings.drafts == ()
    assert len(loads) == 1
    alone = trio.run(WorkerRerun(InThread(), loaded).rerun, case, Tolerance())
    assert alone.drafts is None, "without a draft model there is nothing to say"


def test_a_session_without_lists_is_refused() -> None:
    run = Scene("honest", "nobody", wishes={"max_tokens": 8}).play(5).reruns[0]
    with pytest.raises(ValueError, match="rejection"):
        redraft(cast_drafters.honest(), run.case)


def test_lists_lie_as_far_apart_as_their_farthest_token() -> None:
    assert apart(((1, HALF), (2, HALF)), ((1, HALF), (2, HALF))) == 0
    assert apart(((1, MASS_TOTAL),), ((2, MASS_TOTAL),)) == 1
    assert apart(((1, HALF), (2, HALF)), ((1, MASS_TOTAL),)) == pytest.approx(0.5)
