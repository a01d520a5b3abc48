"""A core that nodes leave to inference.

A pass keeps a core busy for milliseconds. An event loop or a look at the chain that wakes on that
core interrupts it for as long, though another may be idle: the kernel moves threads only later. So
all other threads of a node keep off the last core that it may run on. Nodes of one machine so keep
off the same one, whichever of them computes. Inference may use every core, and begins on that one.

Nothing is done with one core, with more than one thread a pass (torch's helpers do not come along),
or where the system does not let threads be placed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cores:
    """Where a node's threads run.

    Attributes:
        every: all cores that it may use.
        beside: those of what is not inference: all but the last.
    """

    every: frozenset[int]
    beside: frozenset[int]

    def leave(self) -> None:
        """Takes all threads of this process, and those that they start, off the last core. Once a
        node is ready: starting takes all cores there are."""
        with suppress(OSError):  # no /proc
            for task in Path("/proc/self/task").iterdir():
                _place(int(task.name), self.beside)

    def keep_off(self) -> None:
        """Takes this thread off the last core."""
        _place(0, self.beside)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """This thread on any core, beginning on the last."""
        _place(0, self.every - self.beside)  # a wider choice alone does not move what runs
        _place(0, self.every)
        try:
            yield
        finally:
            self.keep_off()


def cores(available: frozenset[int], threads: int) -> Cores | None:
    """How a node that may run on `available` places its threads; None: it does not matter."""
    if len(available) < 2 or threads > 1:
        return None
    return Cores(available, available - {max(available)})


def cores_here(threads: int) -> Cores | None:
    """`cores` of this thread."""
    try:
        return cores(frozenset(os.sched_getaffinity(0)), threads)
    except (AttributeError, OSError):  # another system than Linux, or a sandbox
        return None


def _place(thread: int, where: frozenset[int]) -> None:
    # A thread may have ended, and a container may lose cores or not let threads be placed.
    with suppress(OSError):
        os.sched_setaffinity(thread, where)
