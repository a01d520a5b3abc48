"""The worker: one thread at a time, waiting requests in one pass, cancellation keeps state."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import trio
import trio.testing
from engine_models import TableModel, seed

from node.inference.own_lookup import OwnLookup
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import Draft, VerifyRequest
from node.inference.scripted import random_tokens
from node.inference.stops import StopRules
from node.inference.verifier import StaleDraft, Verifier
from node.inference.worker import InferenceWorker, WorkerBusy

COUPLED = SamplingParams.from_floats("coupled")


class Gate:
    """Wraps a verifier: passes are counted and can be held, to let others queue up."""

    def __init__(self, verifier):
        self.verifier, self.batches = verifier, []
        self.entered, self.released = threading.Event(), threading.Event()
        self.released.set()

    def __getattr__(self, name):
        return getattr(self.verifier, name)

    def verify_batch(self, work, *prefill):
        self.batches.append(len(work))
        self.entered.set()
        assert self.released.wait(10)
        return self.verifier.verify_batch(work, *prefill)


async def entered(gate):
    with trio.fail_after(10):
        while not gate.entered.is_set():
            await trio.sleep(0.001)


def opened(gate, count, tokens=12):
    return [
        gate.open(bytes([i]), [1, i], COUPLED, StopRules(tokens), seed=seed(i))
        for i in range(count)
    ]


async def test_many_sessions_get_their_own_text():
    model = TableModel(8, 1)
    gate, worker = Gate(Verifier(model)), InferenceWorker()
    out: dict[int, list[int]] = {}

    async def run(i, session):
        drafting = random_tokens(8, i).open([1, i], COUPLED, seed=seed(i))
        out[i] = []
        while not session.ended:
            draft = await worker.call(drafting.propose, min(i % 4, session.remaining))
            outcome = await worker.verify(gate, session, VerifyRequest(draft))
            drafting.commit(outcome.emitted)
            out[i] += outcome.emitted

    async with trio.open_nursery() as nursery:
        for i, session in enumerate(opened(gate, 7)):
            nursery.start_soon(run, i, session)
    for i in range(7):
        assert out[i] == decode_plain(model, [1, i], COUPLED, StopRules(12), seed=seed(i)).tokens
    assert worker.waiting == 0


async def test_those_who_wait_are_verified_in_one_pass():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker(max_batch=4)
    sessions = opened(gate, 7)
    gate.released.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.verify, gate, sessions[0], VerifyRequest(Draft(0)))
        await entered(gate)
        for session in sessions[1:]:
            nursery.start_soon(worker.verify, gate, session, VerifyRequest(Draft(0)))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert worker.waiting == 6
        gate.released.set()
    assert gate.batches == [1, 4, 2]
    assert all(s.position == 1 for s in sessions)


async def test_two_rounds_of_one_session_run_one_after_the_other():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker()
    first, second = opened(gate, 2)
    gate.released.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.verify, gate, first, VerifyRequest(Draft(0)))
        await entered(gate)
        for base in (0, 1):
            nursery.start_soon(worker.verify, gate, second, VerifyRequest(Draft(base)))
            await trio.testing.wait_all_tasks_blocked(0.02)
        gate.released.set()
    assert gate.batches == [1, 1, 1]
    assert second.position == 2


async def test_one_bad_request_does_not_fail_its_neighbours():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker()
    sessions = opened(gate, 3)
    gate.released.clear()
    outcomes = {}

    async def run(i, base):
        try:
            outcomes[i] = await worker.verify(gate, sessions[i], VerifyRequest(Draft(base)))
        except StaleDraft as error:
            outcomes[i] = error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 0, 0)
        await entered(gate)
        nursery.start_soon(run, 1, 5)
        nursery.start_soon(run, 2, 0)
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.released.set()
    assert isinstance(outcomes[1], StaleDraft)
    assert outcomes[0].emitted
    assert outcomes[2].emitted
    assert sessions[1].position == 0


async def test_cancelled_while_waiting_leaves_the_session_unchanged():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker()
    first, second = opened(gate, 2)
    gate.released.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.verify, gate, first, VerifyRequest(Draft(0)))
        await entered(gate)
        with trio.move_on_after(0.05) as scope:
            await worker.verify(gate, second, VerifyRequest(Draft(0)))
        assert scope.cancelled_caught
        assert worker.waiting == 0
        gate.released.set()
    assert (first.position, second.position) == (1, 0)


async def test_cancelled_in_a_pass_the_outcome_still_arrives():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker()
    sessions = opened(gate, 3)
    gate.released.clear()
    got = {}

    async def run(i, scope):
        with scope:
            got[i] = await worker.verify(gate, sessions[i], VerifyRequest(Draft(0)))

    scopes = [trio.CancelScope() for _ in sessions]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 0, scopes[0])
        await entered(gate)
        gate.entered.clear()
        nursery.start_soon(run, 1, scopes[1])
        nursery.start_soon(run, 2, scopes[2])
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.released.set()
        await entered(gate)  # the second pass took 1 and 2
        for scope in scopes:
            scope.cancel()
    assert sorted(got) == [0, 1, 2]
    assert all(s.position == 1 for s in sessions)


async def test_a_full_queue_is_refused():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker(max_waiting=2)
    sessions = opened(gate, 4)
    gate.released.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.verify, gate, sessions[0], VerifyRequest(Draft(0)))
        await entered(gate)
        nursery.start_soon(worker.verify, gate, sessions[1], VerifyRequest(Draft(0)))
        nursery.start_soon(worker.verify, gate, sessions[2], VerifyRequest(Draft(0)))
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(WorkerBusy, match="2 requests"):
            await worker.verify(gate, sessions[3], VerifyRequest(Draft(0)))
        with pytest.raises(WorkerBusy):
            await worker.call(len, [])
        nursery.start_soon(worker.finish, gate.close, sessions[3])  # closing is never refused
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.released.set()
    assert sessions[3].closed
    assert gate.sessions == 3


async def test_a_failing_pass_is_everybodys_and_the_worker_goes_on():
    class Broken:
        def verify_batch(self, work, *prefill):
            raise MemoryError("out of device memory")

    worker = InferenceWorker()
    verifier = Verifier(TableModel(8, 1))
    session = verifier.open(b"s", [1], COUPLED, StopRules(3), seed=seed(1))
    with pytest.raises(MemoryError):
        await worker.verify(Broken(), session, VerifyRequest(Draft(0)))
    assert (await worker.verify(verifier, session, VerifyRequest(Draft(0)))).emitted


async def test_torch_runs_off_the_event_loop_with_its_own_thread_count():
    worker = InferenceWorker(threads=1)

    def where():
        return threading.current_thread() is threading.main_thread(), torch.get_num_threads()

    assert await worker.call(where) == (False, 1)


async def test_a_prompts_end_may_run_with_the_first_window():
    model, text = TableModel(8, 1), [1, 2, 3, 4, 5, 6]
    worker, verifier = InferenceWorker(prefill_rows=8), Verifier(model)
    session = await worker.open(verifier, b"a", text, COUPLED, StopRules(4), seed=seed(1), last=64)
    assert session.prefilling == len(text) - 1
    first = await worker.verify(verifier, session, VerifyRequest(Draft(0)))
    assert (first.rows, first.prompt_rows) == (1, len(text) - 1)
    out = list(first.emitted)
    while not session.ended:
        outcome = await worker.verify(verifier, session, VerifyRequest(Draft(session.position)))
        assert outcome.prompt_rows == 0
        out += outcome.emitted
    assert out == decode_plain(model, text, COUPLED, StopRules(4), seed=seed(1)).tokens
    # No more of it than others would be held up by.
    long = await worker.open(verifier, b"b", text * 4, COUPLED, StopRules(4), seed=seed(1), last=64)
    assert long.prefilling <= worker.prefill_rows
    for done in (session, long):
        verifier.close(done)
    alone = await worker.open(verifier, b"c", text * 4, COUPLED, StopRules(4), seed=seed(1), last=9)
    assert alone.prefilling <= 9
    verifier.close(alone)
    whole = await worker.open(
        verifier, b"d", text * 4, COUPLED, StopRules(4), seed=seed(1), last=64
    )
    assert whole.prefilling == 4 * len(text) - 1


def plainly(model, i, tokens):
    return decode_plain(model, [1, i], COUPLED, StopRules(tokens), seed=seed(i)).tokens


async def foreseeing(worker, gate, session, depth=1):
    """A session without drafts, each request named while one before it is in its pass."""
    out, turns, named = [], [], 0
    while not session.ended or len(out) < session.stops.max_tokens:
        base = len(out)
        while named < min(base + depth, session.stops.max_tokens - 1):
            named += 1
            worker.foresee(gate, session, VerifyRequest(Draft(named)))
        out += (await worker.verify(gate, session, VerifyRequest(Draft(base)))).emitted
        turns.append(session.position)
    return out, turns


async def test_what_is_foreseen_runs_without_a_turn_of_the_event_loop():
    model = TableModel(8, 1)
    gate, worker = Gate(Verifier(model)), InferenceWorker()
    (session,) = opened(gate, 1)
    gate.released.clear()
    got = []

    async def ask():
        got.append((await worker.verify(gate, session, VerifyRequest(Draft(0)))).emitted)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await entered(gate)
        worker.foresee(gate, session, VerifyRequest(Draft(1)))
        gate.released.set()
        deadline = time.monotonic() + 10
        while session.position < 2:  # the event loop stands still
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert gate.batches == [1, 1]
    second = await worker.verify(gate, session, VerifyRequest(Draft(1)))
    assert [*got[0], *second.emitted] == plainly(model, 0, 12)[:2]
    assert gate.batches == [1, 1]  # it was over already
    assert worker.passes == 2


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("lookup", [False, True])
async def test_texts_are_the_same_foreseen_or_not_and_beside_others(depth, lookup):
    model = TableModel(8, 1)
    own = OwnLookup({1: 1.0, 2: 1.0, 3: 1.0, 5: 1.0, 9: 1.0}) if lookup else None
    gate, worker = Gate(Verifier(model, lookup=own)), InferenceWorker()
    sessions = opened(gate, 3)
    out = {}

    async def run(i):
        out[i], _ = await foreseeing(worker, gate, sessions[i], depth)

    async with trio.open_nursery() as nursery:
        for i in range(3):
            nursery.start_soon(run, i)
    assert out == {i: plainly(model, i, 12) for i in range(3)}
    assert max(gate.batches) > 1  # who waits is not passed by
    assert worker.waiting == 0
    assert not worker._foreseen


async def test_what_is_foreseen_does_not_pass_by_those_who_wait():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker()
    first, second = opened(gate, 2)
    gate.released.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.verify, gate, first, VerifyRequest(Draft(0)))
        await entered(gate)
        worker.foresee(gate, first, VerifyRequest(Draft(1)))
        nursery.start_soon(worker.verify, gate, second, VerifyRequest(Draft(0)))
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.released.set()
        with trio.fail_after(10):
            await worker.verify(gate, first, VerifyRequest(Draft(1)))
    assert gate.batches == [1, 2]  # both in one pass


async def test_what_is_foreseen_of_an_output_that_ends_or_closes_is_not_run():
    gate, worker = Gate(Verifier(TableModel(8, 1))), InferenceWorker()
    ends, closes = (
        opened(gate, 1, tokens=1)[0],
        gate.open(b"z", [1], COUPLED, StopRules(9), seed=seed(9)),
    )
    for session in (ends, closes):
        gate.entered.clear()
        gate.released.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.verify, gate, session, VerifyRequest(Draft(0)))
            await entered(gate)
            worker.foresee(gate, session, VerifyRequest(Draft(1)))
            if session is closes:
                worker.forget(session)
            gate.released.set()
        await worker.finish(gate.close, session)
    assert gate.batches == [1, 1]
    assert not worker._foreseen
    assert worker.waiting == 0


async def test_another_request_than_was_foreseen_stands():
    model = TableModel(8, 1)
    gate, worker = Gate(Verifier(model)), InferenceWorker()
    (session,) = opened(gate, 1)
    out = list((await worker.verify(gate, session, VerifyRequest(Draft(0)))).emitted)
    async with worker._device:  # busy: nothing begins
        worker.foresee(gate, session, VerifyRequest(Draft(1)))
        await trio.testing.wait_all_tasks_blocked(0.02)
        async with trio.open_nursery() as nursery:
            right = plainly(model, 0, 12)[1]

            async def ask():
                request = VerifyRequest(Draft(1, (right,)))
                out.extend((await worker.verify(gate, session, request)).emitted)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.02)
            worker._device.release()
            while len(out) < 3:
                await trio.sleep(0.001)
            await worker._device.acquire()
    assert out == plainly(model, 0, 12)[:3]
    assert not worker._foreseen
