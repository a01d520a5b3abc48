"""A node's other threads keep off one core, and inference begins on it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inference.cores import cores, cores_here

here = cores_here(1)
several = pytest.mark.skipif(
    here is None, reason="needs two cores and a system that places threads"
)


@given(st.frozensets(st.integers(0, 500)), st.integers(1, 8))
def test_nodes_of_a_machine_leave_the_same_core(available: frozenset[int], threads: int) -> None:
    found = cores(available, threads)
    if len(available) < 2 or threads > 1:
        assert found is None
    else:
        assert found is not None
        assert found.every == available
        assert found.every - found.beside == {max(available)}
        assert found.beside


# In a process of their own: what they change is a process's.
IN_A_PROCESS = {
    "threads that run and threads that come keep off": """
        began, go, seen = threading.Event(), threading.Event(), []
        def early():
            began.set()
            go.wait()
            seen.append(os.sched_getaffinity(0))
        thread = threading.Thread(target=early)
        thread.start()
        began.wait()
        here.leave()
        go.set()
        late = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        late.start()
        thread.join(), late.join()
        assert seen == [here.beside, here.beside], seen
    """,
    "inference begins on the core that is left to it, and may use all": """
        here.leave()
        def core():
            return int(open("/proc/thread-self/stat").read().rsplit(")", 1)[1].split()[36])
        async def main():
            worker = InferenceWorker(cores=here)
            assert await worker.call(core) == max(here.every)
            assert await worker.call(os.sched_getaffinity, 0) == here.every
            def fails():
                raise ArithmeticError
            try:
                await worker.call(fails)
            except ArithmeticError:
                pass
            # Its thread is idle now and taken for whatever comes next.
            assert await trio.to_thread.run_sync(os.sched_getaffinity, 0) == here.beside
        trio.run(main)
    """,
    "a thread begun beside a pass keeps off": """
        here.leave()
        seen = []
        async def main():
            worker, told = InferenceWorker(cores=here), trio.Event()
            token = trio.lowlevel.current_trio_token()
            def told_in():
                told.set()
            def passes():
                trio.lowlevel.start_thread_soon(
                    partial(_tell, here, token, told_in), lambda done: None
                )
            await worker.call(passes)
            await told.wait()
            async with trio.open_nursery() as nursery:
                gate = threading.Barrier(2)
                def look():
                    gate.wait()
                    seen.append(os.sched_getaffinity(0))
                for _ in range(2):
                    nursery.start_soon(trio.to_thread.run_sync, look)
        trio.run(main)
        assert seen == [here.beside, here.beside], seen
    """,
    "where there is no /proc, or threads may not be placed, a node goes on": """
        import node.inference.cores as module
        module.Path = lambda name: pathlib.Path("/nowhere")
        here.leave()
        def denied(*_):
            raise PermissionError
        os.sched_setaffinity = denied
        with here.inference():
            here.keep_off()
        os.sched_getaffinity = denied
        assert cores_here(1) is None
    """,
}
HEAD = """
import os, pathlib, threading
from functools import partial
import trio
from node.inference.cores import cores_here
from node.inference.worker import InferenceWorker, _tell
here = cores_here(1)
"""


@several
@pytest.mark.parametrize("what", IN_A_PROCESS)
def test_threads_are_where_they_should_be(what: str) -> None:
    import textwrap

    code = HEAD + textwrap.dedent(IN_A_PROCESS[what])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
