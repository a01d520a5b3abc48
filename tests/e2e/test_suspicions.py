"""What an auditor keeps for the panel: one false token of a settled root, shown as the panel asks
for it; and nothing that a jury would not find false."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arena import TARGET, Arena, InThread
from audit_scene import Scene, greedy, loaded, staged
from engine_models import TableModel
from test_auditor import OneLie, OtherHidden

from node.inference.fingerprint import distance
from node.roles.proving import FloatProver, false_positions
from node.roles.rerun import Difference, Tolerance, WorkerRerun
from node.roles.suspicions import SUSPECT, Suspicion
from settlement.draws import root_words

UNIT = Tolerance()


def kept(
    seed: int,
    model: Any = None,
    registered: tuple[int, int] | None = (UNIT.score, UNIT.fingerprint),
    records: tuple[str, ...] = ("client", "drafter", "verifier"),
    act: Callable[[Scene], Any] | None = None,
) -> list[Suspicion]:
    """What the first auditor has in its journal after its audit."""
    arena = Arena(seed=seed)

    async def play(scene: Scene) -> list[Suspicion]:
        async def tolerance(model: bytes) -> tuple[int, int] | None:
            assert model == TARGET
            return registered

        for role in scene.auditors:
            engine = WorkerRerun(InThread(), loaded)  # type: ignore[arg-type]
            role.prove = FloatProver(role.node, engine, tolerance, distance)
        await scene.audited()
        if act is not None:
            await act(scene)
        found = scene.auditors[0].node.journal.secrets_under(SUSPECT)
        return [Suspicion.from_wire(raw) for _, raw in found]

    return staged(seed, arena, greedy(arena), play, model=model, records=records)


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


def test_another_hidden_state_is_kept_by_its_first_token() -> None:
    (found,) = kept(6, OtherHidden())
    assert found.evidence()[2].verdict_leaves[found.within].position == 0


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


def test_where_a_text_goes_on_after_its_stop_the_next_token_is_the_false_one() -> None:
    found = [
        Difference(7, "goes on after a stop", 1.0, 3, 0),
        Difference(9, "stops without a stop", 1.0, 3, 0),
        Difference(11, "token", 5.0, 3, 4),
    ]
    assert false_positions(found) == [8, 11]
