"""What stands between a drafter's role and its model: told late, told all, drafting on if asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from node.inference.drafter import DraftSession, Step
from node.inference.lookup import LookupDrafter
from node.inference.params import SamplingParams
from node.inference.worker import InferenceWorker
from node.roles.engines import WorkerDrafter
from settlement.records import Mode

pytestmark = pytest.mark.trio
GREEDY = SamplingParams(Mode.GREEDY, temperature=0)


class Counting(DraftSession):
    """Guesses that each token is one more than the last; notes what it is told, and when."""

    def __init__(self) -> None:
        super().__init__([1], GREEDY, seed=bytes(32))
        self.told: list[list[int]] = []

    def _next(self, coin: Any) -> Step:
        return Step.certain((self._ahead[-1].token if self._ahead else self.tokens[-1]) + 1)

    def commit(self, emitted: Sequence[int]) -> None:
        self.told.append(list(emitted))
        super().commit(emitted)


async def proposed(engine: WorkerDrafter, session: Counting, k: int) -> tuple[int, ...]:
    return (await engine.propose(session, k, None)).tokens


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_session_is_told_when_it_drafts_next(ahead: bool) -> None:
    engine, session = WorkerDrafter(InferenceWorker(), None, ahead=ahead), Counting()  # type: ignore[arg-type]
    assert await proposed(engine, session, 2) == (2, 3)
    await engine.draft_ahead(session, 3)
    assert session.surplus == (3 if ahead else 2)
    await engine.commit(session, [2, 3, 4])
    await engine.commit(session, [9])
    assert session.told == []
    # Nothing is drafted on a text that is out of date.
    await engine.draft_ahead(session, 8)
    assert session.surplus == (3 if ahead else 2)
    assert await proposed(engine, session, 2) == (10, 11)
    assert session.told == [[2, 3, 4, 9]]
    assert await proposed(engine, session, 1) == (10,)
    assert session.told == [[2, 3, 4, 9]]


async def test_what_a_cancelled_call_did_not_tell_is_told_by_the_next() -> None:
    worker, session = InferenceWorker(), Counting()
    engine = WorkerDrafter(worker, None)  # type: ignore[arg-type]
    await engine.commit(session, [5])
    somebody = object()
    await worker._device.acquire_on_behalf_of(somebody)
    with trio.move_on_after(0.01) as scope:
        await engine.propose(session, 1, None)
    assert scope.cancelled_caught
    worker._device.release_on_behalf_of(somebody)
    assert session.told == []
    assert await proposed(engine, session, 1) == (6,)
    assert session.told == [[5]]


async def test_a_drafter_without_a_model_needs_no_thread() -> None:
    """It is told and asked where it stands: a thread would take longer than its work."""
    worker = InferenceWorker()
    engine = WorkerDrafter(worker, None)  # type: ignore[arg-type]
    session = LookupDrafter().open([1, 2, 3, 4, 1, 2], GREEDY, seed=bytes(32))
    await worker._device.acquire_on_behalf_of(object())  # nobody gets the worker's thread
    with trio.fail_after(5):
        await engine.commit(session, [3])
        assert (await engine.propose(session, 2, None)).tokens == (4, 1)
        assert (await engine.propose(session, 2, None)).tokens == (4, 1)
    assert session.tokens == [1, 2, 3, 4, 1, 2, 3]
