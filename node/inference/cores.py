"""Cores that a node leaves to inference.

A pass keeps a core busy for milliseconds. An event loop or a look at the chain that wakes on that
core interrupts it for as long, though another may be idle: the kernel moves threads only later. So
a node's other threads keep off as many cores as its model uses, the last of those that it may run
on; several nodes of one machine keep off the same ones. With one core, or where the system has no
such call (other than Linux), nothing is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def available() -> frozenset[int]:
    """The cores that this thread may run on; empty where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def beside_inference(cores: frozenset[int], threads: int) -> frozenset[int]:
    """Those of a node's cores for what is not inference in `threads` threads: all but the last
    `threads`, at least one."""
    return frozenset(sorted(cores)[: max(len(cores) - threads, 1)])


def leave_to_inference(threads: int) -> frozenset[int]:
    """Takes all threads of this process, and those that they start, off the cores that inference
    in `threads` threads has alone. Once a node is ready: starting takes all cores there are.

    Returns:
        The cores that are left to them; empty where nothing was changed.
    """
    cores = available()
    others = beside_inference(cores, threads)
    if others == cores:
        return frozenset()
    for task in Path("/proc/self/task").iterdir():
        # A thread may have ended, or a container may not let it.
        with suppress(OSError):
            os.sched_setaffinity(int(task.name), others)
    return others


@contextmanager
def running_on(cores: frozenset[int]) -> Iterator[None]:
    """This thread on these cores for a while, and then where it was. Empty: where it is."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):  # the cores of a container may change while it runs
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
