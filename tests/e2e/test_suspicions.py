"""What an auditor keeps for the panel: one false token of a settled root, shown as the panel asks
for it; and nothing that a jury would not find false."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from arena import DRAFT, TARGET, Arena, InThread
from audit_scene import Scene, close_draft, loaded, staged
from engine_models import TableModel
from test_auditor import OneLie, OtherHidden

from node.inference.fingerprint import distance
from node.inference.model_drafter import ModelDrafter
from node.roles.proving import REPLAYS, FloatProver, false_positions, worst
from node.roles.rerun import Difference, LoadedDraft, Tolerance, WorkerRerun
from node.roles.suspicions import SUSPECT, Suspicion
from settlement.chain.panel import WRONG_DRAFT
from settlement.draws import root_words
from settlement.records import Mode

UNIT = Tolerance()


def kept(
    seed: int,
    model: Any = None,
    registered: tuple[int, int] | None = (UNIT.score, UNIT.fingerprint),
    records: tuple[str, ...] = ("client", "drafter", "verifier"),
    act: Callable[[Scene], Any] | None = None,
    draft: Any = None,
    **changes: Any,
) -> list[Suspicion]:
    """What the first auditor has in its journal after its audit. `draft`: what the auditors have of
    the order's draft model."""
    arena = Arena(seed=seed)

    async def play(scene: Scene) -> list[Suspicion]:
        async def tolerance(model: bytes) -> tuple[int, int] | None:
            assert model in (TARGET, DRAFT)
            return registered

        load = None if draft is None else (lambda: LoadedDraft(DRAFT, draft))
        for role in scene.auditors:
            engine = role.engine = WorkerRerun(InThread(), loaded, load)  # type: ignore[arg-type]
            role.prove = FloatProver(role.node, engine, tolerance, distance)
        await scene.audited()
        if act is not None:
            await act(scene)
        found = scene.auditors[0].node.journal.secrets_under(SUSPECT)
        return [Suspicion.from_wire(raw) for _, raw in found]

    terms = {"mode": Mode.GREEDY, "temperature": 0, "max_tokens": 24, "stop_ids": ()}
    plan = arena.plan(**{**terms, **changes})
    return staged(seed, arena, plan, play, model=model, records=records)


def test_one_false_token_is_kept_with_its_place_under_the_root() -> None:
    (found,) = kept(6, OneLie(3 + 10))
    settled, proof, evidence = found.evidence()
    leaf = evidence.verdict_leaves[found.within]
    assert leaf.position == 10
    settled.verify_round(evidence.record, proof)
    suspect = found.suspect()
    assert suspect.guilty == Arena().seat("verifier").address
    assert (suspect.start_hash, suspect.round) == evidence.key
    assert suspect.lane == evidence.order.lane.id
    assert suspect.root == settled.root
    assert suspect.place[0] == root_words(settled)
    assert suspect.place[8] == leaf.to_abi()
    assert Suspicion.from_wire(found.to_wire()) == found


def test_another_hidden_state_is_kept_by_one_of_its_tokens() -> None:
    (found,) = kept(6, OtherHidden())
    assert found.fault == 9


def test_a_verifier_within_the_registered_tolerance_is_run_again_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every token of another model lies beyond an auditor's own tolerance, and none beyond what is
    registered: an auditor that looked at each would run the session as often as it has tokens."""
    answered: Counter[int] = Counter()
    answer = WorkerRerun.answer

    async def counted(self: WorkerRerun, *where: Any) -> Any:
        answered[id(self)] += 1
        return await answer(self, *where)

    monkeypatch.setattr(WorkerRerun, "answer", counted)
    assert kept(6, TableModel(12, 9), (1 << 60, 1 << 30)) == []
    assert set(answered.values()) == {REPLAYS}


def test_the_worst_of_each_kind_is_run_again_first() -> None:
    tokens = [Difference(position, "token", float(position), 1, 2) for position in range(40)]
    few = [
        Difference(50, "p", 0.5, 1, 2),
        Difference(51, "p", 0.75, 1, 2),
        Difference(39, "topProb", 9.0, 1, 2),
        Difference(60, "stops without a stop", 1.0, 1, 2),
    ]
    assert worst([*tokens, *few]) == [39, 51, 38, 50, 37, 36, 35, 34]
    assert worst([]) == []


def test_without_v_s_salts_a_false_token_is_kept_all_the_same() -> None:
    (found,) = kept(6, OneLie(3 + 10), records=("client", "drafter"))
    assert found.evidence()[2].verdict_leaves[found.within].position == 10


@pytest.mark.parametrize(
    ("model", "registered"),
    [
        (None, (UNIT.score, UNIT.fingerprint)),
        (OneLie(3 + 10), None),  # nobody can be accused over a model without a tolerance
        (OneLie(3 + 10), (1 << 60, UNIT.fingerprint)),
        (OtherHidden(), (UNIT.score, 1 << 30)),
    ],
)
def test_what_a_jury_would_clear_is_not_kept(
    model: TableModel | None, registered: tuple[int, int] | None
) -> None:
    assert kept(6, model, registered) == []


def test_a_session_is_accused_of_once() -> None:
    assert len(kept(6, TableModel(12, 9))) == 1


def of_rejection(draft: Any, registered: tuple[int, int] | None) -> list[Suspicion]:
    return kept(4, None, registered, draft=draft, mode=Mode.REJECTION, temperature=1 << 16)


def test_a_draft_that_is_not_the_registered_models_is_kept_against_the_drafter() -> None:
    (found,) = of_rejection(ModelDrafter(TableModel(12, 7)), (UNIT.score, UNIT.fingerprint))
    suspect = found.suspect()
    assert suspect.fault == found.fault == WRONG_DRAFT
    assert suspect.guilty == Arena().seat("drafter").address
    _settled, _proof, evidence = found.evidence()
    assert evidence.commit is not None
    assert suspect.place[10] == evidence.commit.to_abi()
    assert suspect.place[12] == evidence.draft_leaves[found.within].to_abi()
    assert Suspicion.from_wire(found.to_wire()) == found


@pytest.mark.parametrize(
    ("draft", "registered"),
    [
        (close_draft(), (UNIT.score, UNIT.fingerprint)),
        (None, (UNIT.score, UNIT.fingerprint)),
        (ModelDrafter(TableModel(12, 7)), None),
        (ModelDrafter(TableModel(12, 7)), (1 << 60, UNIT.fingerprint)),
    ],
)
def test_an_honest_draft_or_one_that_a_jury_would_clear_is_not_kept(
    draft: Any, registered: tuple[int, int] | None
) -> None:
    assert of_rejection(draft, registered) == []


def test_where_a_text_goes_on_after_its_stop_the_next_token_is_the_false_one() -> None:
    found = [
        Difference(7, "goes on after a stop", 1.0, 3, 0),
        Difference(9, "stops without a stop", 1.0, 3, 0),
        Difference(11, "token", 5.0, 3, 4),
    ]
    assert false_positions(found) == [8, 11]
