"""A node's other threads keep off the cores of inference, and inference finds them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from node.inference.cores import available, beside_inference, running_on
from node.inference.worker import InferenceWorker


@given(st.frozensets(st.integers(0, 500), min_size=1), st.integers(1, 64))
def test_others_keep_off_as_many_cores_as_inference_uses(
    cores: frozenset[int], threads: int
) -> None:
    others = beside_inference(cores, threads)
    assert others <= cores
    assert len(others) == max(len(cores) - threads, 1)
    # Nodes of one machine leave the same cores alone, whichever order the system names them in.
    assert max(others) == sorted(cores)[len(others) - 1]


several = pytest.mark.skipif(len(available()) < 2, reason="needs two cores")

LEAVES = """
import os, threading
from node.inference.cores import available, leave_to_inference, running_on
whole = available()
began, leave = threading.Event(), threading.Event()
seen = []
def early():
    began.set()
    leave.wait()
    seen.append(available())
thread = threading.Thread(target=early)
thread.start()
began.wait()
others = leave_to_inference(1)
leave.set()
thread.join()
late = threading.Thread(target=lambda: seen.append(available()))
late.start()
late.join()
assert others == available() == whole - {max(whole)}, (others, available())
assert seen == [others, others], seen
with running_on(whole):
    assert available() == whole
assert available() == others
if len(others) > 1:
    assert leave_to_inference(len(whole)) == available() == {min(whole)}
"""


@several
def test_threads_that_run_and_threads_that_come_keep_off() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@several
def test_a_worker_runs_on_all_cores_and_gives_its_thread_back_as_it_was() -> None:
    whole = available()
    one = frozenset(sorted(whole)[:1])

    async def main() -> None:
        worker = InferenceWorker(cores=whole)
        # The thread that was idle last is taken first: one and the same here.
        await trio.to_thread.run_sync(os.sched_setaffinity, 0, one)
        try:
            assert await worker.call(available) == whole

            def fails() -> None:
                raise ArithmeticError

            with pytest.raises(ArithmeticError):
                await worker.call(fails)
            assert await trio.to_thread.run_sync(available) == one
        finally:
            await trio.to_thread.run_sync(os.sched_setaffinity, 0, whole)

    trio.run(main)


def test_cores_that_are_gone_do_not_stop_inference() -> None:
    with running_on(frozenset({1 << 12})):
        assert available()
    with running_on(frozenset()):
        assert available()
