"""Many sessions drafting at once: what each would have drafted alone, in fewer passes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing
from engine_models import TableModel, seed

from node.inference.drafter import Want, draft_together
from node.inference.lookup import LookupDrafter
from node.inference.mixed_drafter import MixedDrafter
from node.inference.model import Rows, Span
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.proposal import Draft, DraftCoin, ProposalError
from node.inference.worker import InferenceWorker
from settlement.records import Mode

GREEDY = SamplingParams.from_floats("greedy")
COUPLED = SamplingParams.from_floats("coupled", 0.7)
REJECTION = SamplingParams.from_floats("rejection")


class Counted(TableModel):
    """Counts its passes, can be held in one, and fails on a token."""

    def __init__(self, *args: Any, poison: int | None = None) -> None:
        super().__init__(*args)
        self.batches: list[int] = []
        self.poison = poison
        self.entered, self.released = threading.Event(), threading.Event()
        self.released.set()

    def forward(self, spans: Sequence[Span]) -> list[Rows]:
        self.batches.append(len(spans))
        self.entered.set()
        assert self.released.wait(10)
        if any(self.poison in span.tokens for span in spans):
            raise ValueError(f"token {self.poison}")
        return super().forward(spans)


def test_sessions_drafted_together_draft_what_each_would_alone() -> None:
    rng = np.random.default_rng(1)
    model = TableModel(12, 3)
    drafters = [ModelDrafter(model), MixedDrafter(model), ModelDrafter(model), LookupDrafter()]
    settings = [COUPLED, COUPLED, REJECTION, GREEDY, GREEDY, COUPLED, REJECTION, COUPLED]

    def opened() -> list[Any]:
        return [
            drafters[i % 4].open([1, i, 5, 1, i], params, seed=seed(i), stop_ids=frozenset({11}))
            for i, params in enumerate(settings)
        ]

    together, alone = opened(), opened()
    for step in range(20):
        counts = [int(rng.integers(0, 6)) for _ in settings]
        coins = [
            DraftCoin(seed(step), seed(i)) if params.mode == Mode.REJECTION else None
            for i, params in enumerate(settings)
        ]
        pairs = list(zip(together, counts, coins, strict=True))
        drafts = draft_together([Want(*pair) for pair in pairs])
        for draft, session, count, coin in zip(drafts, alone, counts, coins, strict=True):
            want = session.propose(count, coin)
            assert isinstance(draft, Draft)
            assert (draft.base, draft.tokens, draft.kept) == (want.base, want.tokens, want.kept)
            assert draft.made == want.made
        surplus = draft_together([Want(s, n + 1, None, ahead=True) for s, n, _ in pairs])
        assert surplus == [s.draft_ahead(n + 1) for s, n in zip(alone, counts, strict=True)]
        for number, draft in enumerate(drafts):
            assert isinstance(draft, Draft)
            keep = int(rng.integers(0, len(draft) + 1))
            emitted = [*draft.tokens[:keep], int(rng.integers(0, 11))]
            together[number].commit(emitted)
            alone[number].commit(emitted)


def test_eight_sessions_share_every_pass() -> None:
    model = Counted(12, 3)
    sessions = [ModelDrafter(model).open([1, i], GREEDY, seed=seed(i)) for i in range(8)]
    draft_together([Want(session, 4) for session in sessions])
    assert model.batches == [8, 8, 8, 8]
    model.batches.clear()
    draft_together([Want(session, 2 + i) for i, session in enumerate(sessions)])
    assert model.batches == [5, 4, 3, 2, 1]  # those who have enough drop out


def test_the_time_of_a_shared_pass_counts_for_each() -> None:
    ticks = iter(range(1000))
    sessions = [
        ModelDrafter(TableModel(12, 3), clock=lambda: 0.0).open([1], GREEDY, seed=seed(i))
        for i in range(2)
    ]
    drafts = draft_together([Want(s, 3) for s in sessions], clock=lambda: float(next(ticks)))
    assert [d.seconds for d in drafts if isinstance(d, Draft)] == [6.0, 6.0]


def test_a_session_that_fails_fails_alone() -> None:
    model = Counted(12, 3, poison=7)
    drafter = ModelDrafter(model)
    sessions = [drafter.open([1, last], COUPLED, seed=seed(9)) for last in (2, 7, 3)]
    coinless = drafter.open([1, 2], REJECTION, seed=seed(9))
    found = draft_together([Want(s, 1) for s in (*sessions, coinless)])
    assert isinstance(found[1], ValueError)
    assert isinstance(found[3], ProposalError)
    for index in (0, 2):
        fresh = drafter.open(sessions[index].tokens, COUPLED, seed=seed(9))
        draft = found[index]
        assert isinstance(draft, Draft)
        assert draft.tokens == fresh.propose(1).tokens


def test_nothing_is_drafted_ahead_for_a_session_in_rejection_mode() -> None:
    session = ModelDrafter(TableModel(12, 3)).open([1], REJECTION, seed=seed(1))
    assert draft_together([Want(session, 4, ahead=True)]) == [0]


async def test_those_who_wait_for_drafts_share_a_workers_passes() -> None:
    model, worker = Counted(12, 3), InferenceWorker(max_batch=8)
    drafter = ModelDrafter(model)
    sessions = [drafter.open([1, i], COUPLED, seed=seed(i)) for i in range(9)]
    drafts: dict[int, Draft] = {}

    async def propose(i: int) -> None:
        drafts[i] = await worker.propose(sessions[i], 3)

    model.released.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(propose, 0)
        with trio.fail_after(10):
            while not model.entered.is_set():
                await trio.sleep(0.001)
        for i in range(1, 9):
            nursery.start_soon(propose, i)
        await trio.testing.wait_all_tasks_blocked(0.05)
        model.released.set()
    assert model.batches == [1, 1, 1, 8, 8, 8]
    assert (worker.draftings, worker.drafting_sessions) == (2, 9)
    for i in range(9):
        alone = drafter.open([1, i], COUPLED, seed=seed(i))
        assert drafts[i].tokens == alone.propose(3).tokens
    assert await worker.draft_ahead(sessions[0], 5) == 5
    assert worker.waiting == 0


async def test_a_worker_raises_what_a_session_raises() -> None:
    worker = InferenceWorker()
    session = ModelDrafter(TableModel(12, 3)).open([1], REJECTION, seed=seed(1))
    with pytest.raises(ProposalError, match="coin"):
        await worker.propose(session, 2)
    assert len(await worker.propose(session, 2, DraftCoin(seed(1), seed(2)))) == 2
