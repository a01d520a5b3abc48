"""A network inside one process, with faults drawn from a seed.

The links over it are the real ones (`link.py`); only the pipe is replaced. Faults of single
messages (loss, repetition, reordering, truncation) strike the frames that carry a role's messages
and leave the transport's own frames alone: they model a relay or a peer that misbehaves, which a
role must survive, while over TCP the stream itself either arrives whole or ends. `cut` is that
end, at any byte, in the middle of a frame.

Everything waits on trio's clock, so `trio.testing.MockClock` makes hours pass in milliseconds.
`run_deterministically` also fixes trio's task order: one seed is then one history, which
`MemoryNetwork.trace` records.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import trio
import trio.testing

from node.network import framing
from node.network.switchboard import Switchboard
from node.network.transport import Limits, SizeBounds

_T = TypeVar("_T")
_TYPE_AT = 5  # offset of the frame type within an encoded frame


@dataclass(frozen=True, slots=True)
class LinkConditions:
    """One direction of one link. Times in seconds, probabilities per message, bandwidth in B/s.

    truncate: the message arrives shorter than it was sent, in an intact frame.
    cut: the stream ends in the middle of this frame, for both sides.
    blackhole: nothing arrives any more and nobody is told.
    """

    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    truncate: float = 0.0
    cut: float = 0.0
    bandwidth: float = math.inf
    blackhole: bool = False


class _Direction:
    """Bytes on their way from one end to the other; the reader waits until they are due."""

    def __init__(self, network: MemoryNetwork, source: bytes, target: bytes) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._rng = network.stream_of(source, target)
        self._heap: list[tuple[float, int, bytes]] = []
        self._order = 0
        self._last_due = 0.0
        self._held = 0
        self._changed = trio.Event()
        self.ended = False

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def send(self, frame: bytes) -> bool:
        """False when this frame's fate is that the stream ends in it."""
        while self._held > self._network.capacity and not self.ended:
            await self._changed.wait()
        if self.ended:
            raise trio.BrokenResourceError("the memory pipe has ended")
        line = self._network.conditions(self._source, self._target)
        if line.blackhole:
            return True
        # The same number of draws for every frame: a fate does not depend on earlier fates.
        loss, twice, late, short, cut, where, wait, extra = (self._rng.random() for _ in range(8))
        now = trio.current_time()
        due = now + line.latency + line.jitter * wait
        fate = "sent"
        copies = 1
        if frame[_TYPE_AT] in framing.CARRIERS:
            if cut < line.cut:
                self._network.note(now, self._source, self._target, len(frame), "cut")
                self._push(max(due, self._last_due), frame[: int(where * len(frame))])
                return False
            if loss < line.loss:
                self._network.note(now, self._source, self._target, len(frame), "lost")
                return True
            if short < line.truncate:
                whole = framing.decode(frame)
                kept = whole.payload[: int(where * len(whole.payload))]
                frame = framing.encode(replace(whole, payload=kept))
                fate = "truncated"
            if twice < line.duplicate:
                copies, fate = 2, f"{fate} twice"
            if late < line.reorder:
                # Late by up to three latencies, and later frames do not wait for it.
                delay = 3 * max(line.latency, 0.001) * extra
                self._push(due + delay, frame)
                copies -= 1
                fate = f"{fate} late"
        self._network.note(now, self._source, self._target, len(frame), fate)
        for _ in range(copies):
            self._last_due = max(due, self._last_due) + len(frame) / line.bandwidth
            self._push(self._last_due, frame)
        return True

    def _push(self, due: float, data: bytes) -> None:
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, data))
        self._held += len(data)
        self._wake()

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            next_due = self._heap[0][0] if self._heap else math.inf
            if next_due <= trio.current_time():
                _, _, data = heapq.heappop(self._heap)
                self._held -= len(data)
                self._wake()
                if data:
                    return data
                continue
            if self.ended and not self._heap:
                return b""
            with trio.move_on_at(next_due):
                await self._changed.wait()

    def end(self, *, at_once: bool) -> None:
        """No more bytes; `at_once` drops those on their way, as a killed process does."""
        self.ended = True
        if at_once:
            self._heap.clear()
            self._held = 0
        self._wake()


class _MemoryPipe:
    """One end of a link: writes one direction, reads the other."""

    def __init__(self, outward: _Direction, inward: _Direction) -> None:
        self.outward = outward
        self.inward = inward

    async def send(self, frames: Sequence[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        for frame in frames:
            if not await self.outward.send(frame):
                self.outward.end(at_once=False)
                self.inward.end(at_once=True)
                raise trio.BrokenResourceError("the memory pipe was cut")

    async def receive(self) -> bytes:
        return await self.inward.receive()

    async def abort(self) -> None:
        self.outward.end(at_once=False)
        self.inward.end(at_once=True)


class MemoryTransport(Switchboard):
    """`transport.Transport` on a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, address: bytes, **options: Any) -> None:
        super().__init__(address, **options)
        self._network = network

    @property
    def peer_id(self) -> str:
        return f"0x{self._address.hex()}"

    def endpoints(self) -> tuple[str, ...]:
        return (f"memory:0x{self._address.hex()}",)

    def _endpoint_fits(self, peer: bytes, endpoint: str) -> bool:
        return endpoint == f"memory:0x{peer.hex()}"

    async def _dial(self, peer: bytes) -> _MemoryPipe:
        return await self._network.connect(self._address, peer)

    def accept_soon(self, pipe: _MemoryPipe, remote: bytes) -> None:
        self.spawn(self.accept, pipe, remote)


class MemoryNetwork:
    """All nodes of one test.

    Args:
        seed: fixes every fault and every random choice of the transports.
        line: conditions of every direction that `set_line` does not name.
        know_all: each node knows the endpoints of all others, as if discovery had run.
        capacity: bytes on their way in one direction before the writer has to wait.
    """

    def __init__(
        self,
        seed: int = 0,
        line: LinkConditions | None = None,
        *,
        know_all: bool = True,
        capacity: int = 256 * 1024,
    ) -> None:
        self.seed = seed
        self.capacity = capacity
        self.trace: list[tuple[float, bytes, bytes, int, str]] = []
        self._line = line or LinkConditions()
        self._lines: dict[tuple[bytes, bytes], LinkConditions] = {}
        self._streams: dict[tuple[bytes, bytes], random.Random] = {}
        self._nodes: dict[bytes, MemoryTransport] = {}
        self._pipes: list[tuple[bytes, bytes, _MemoryPipe]] = []
        self._know_all = know_all
        self._joins = 0

    @asynccontextmanager
    async def join(
        self,
        address: bytes,
        bounds: Mapping[int, SizeBounds],
        *,
        limits: Limits | None = None,
        deployment: bytes = bytes(32),
    ) -> AsyncIterator[MemoryTransport]:
        """A running node; leaving the block says goodbye, cancelling it is `kill -9`."""
        if address in self._nodes:
            raise ValueError(f"0x{address.hex()} is on this network already")
        self._joins += 1
        node = MemoryTransport(
            self,
            address,
            bounds=bounds,
            limits=limits,
            deployment=deployment,
            rng=random.Random(f"{self.seed}/{self._joins}/{address.hex()}"),
        )
        async with trio.open_nursery() as nursery:
            node.start(nursery)
            self._nodes[address] = node
            if self._know_all:
                for other in self._nodes.values():
                    other.learn(address, node.endpoints())
                    node.learn(other.address, other.endpoints())
            killed = True
            try:
                yield node
                node.stop_links("leaving")
                await node.wait_links_gone(1.0)
                killed = False
            finally:
                del self._nodes[address]
                if killed:
                    self.cut(address)
                nursery.cancel_scope.cancel()

    def set_line(self, a: bytes, b: bytes, line: LinkConditions, *, both: bool = True) -> None:
        """Conditions from `a` to `b`, and back if `both`; frames already under way keep theirs."""
        self._lines[a, b] = line
        if both:
            self._lines[b, a] = line

    def set_all(self, line: LinkConditions) -> None:
        """Conditions of every direction, those named before included."""
        self._line = line
        self._lines.clear()

    def conditions(self, source: bytes, target: bytes) -> LinkConditions:
        return self._lines.get((source, target), self._line)

    def cut(self, a: bytes, b: bytes | None = None) -> None:
        """Ends all streams between `a` and `b` (or of `a`), losing what is on its way."""
        for x, y, pipe in list(self._pipes):
            if a in (x, y) and (b is None or b in (x, y)):
                pipe.outward.end(at_once=True)
                pipe.inward.end(at_once=True)
        self._forget_ended()

    def stream_of(self, source: bytes, target: bytes) -> random.Random:
        """The fates of one direction, continued over reconnects."""
        key = (source, target)
        if key not in self._streams:
            name = f"{self.seed}/{source.hex()}/{target.hex()}"
            self._streams[key] = random.Random(name)
        return self._streams[key]

    def note(self, when: float, source: bytes, target: bytes, size: int, fate: str) -> None:
        self.trace.append((when, source, target, size, fate))

    async def connect(self, source: bytes, target: bytes) -> _MemoryPipe:
        """Raises OSError when `target` is not there or the line is a black hole."""
        line = self.conditions(source, target)
        back = self.conditions(target, source)
        await trio.sleep(line.latency + back.latency)
        node = self._nodes.get(target)
        if node is None or source not in self._nodes:
            raise OSError("nobody listens there")
        if line.blackhole or back.blackhole:
            await trio.sleep_forever()
        forth, backward = _Direction(self, source, target), _Direction(self, target, source)
        near, far = _MemoryPipe(forth, backward), _MemoryPipe(backward, forth)
        self._forget_ended()
        self._pipes.append((source, target, near))
        node.accept_soon(far, source)
        return near

    def _forget_ended(self) -> None:
        self._pipes = [p for p in self._pipes if not (p[2].outward.ended and p[2].inward.ended)]


def run_deterministically(
    seed: int, main: Callable[..., Awaitable[_T]], *args: Any, autojump: bool = True
) -> _T:
    """`trio.run` in which the order of tasks and the passing of time follow from `seed`.

    Time is a MockClock that jumps to the next deadline whenever every task waits. Reaches for the
    two private switches of trio that exist for this use (hypothesis-trio sets them too).
    """
    from trio._core import _run

    before = _run._ALLOW_DETERMINISTIC_SCHEDULING
    state = _run._r.getstate()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    _run._r.seed(seed)
    clock = trio.testing.MockClock(autojump_threshold=0 if autojump else math.inf)
    try:
        return trio.run(main, *args, clock=clock)
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = before
        _run._r.setstate(state)
