"""One channel over a link: ordered messages both ways, with a window in each direction.

The receiver grants credit for what its role has consumed, as cumulative counts: a credit frame
that is lost or comes twice is healed by the next one. A sender stops one window ahead of its
reader, so a slow role stalls its own channel only, and the memory it can cost is bounded.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from node.network import framing
from node.network.errors import MalformedFrame, PeerClosed
from node.network.framing import Frame, FrameType, Reason, Status

if TYPE_CHECKING:
    from node.network.link import PeerLink

# What a queued or buffered message costs beyond its bytes, so that empty messages are not free.
MESSAGE_COST = 256


class LinkChannel:
    """`transport.Channel` over one link. `sent` and `consumed` are cumulative costs."""

    def __init__(self, link: PeerLink, id_: int, kind: int) -> None:
        self._link = link
        self.id = id_
        self._kind = kind
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._held = 0
        self._consumed = 0
        self._credited = 0
        self._sent = 0
        self._acknowledged = 0
        self._changed = trio.Event()
        self._closed: PeerClosed | None = None

    @property
    def peer(self) -> bytes:
        return self._link.remote

    @property
    def kind(self) -> int:
        return self._kind

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def send(self, message: bytes) -> None:
        cost = len(message) + MESSAGE_COST
        window = self._link.limits.channel_window
        while self._closed is None:
            behind = self._sent - self._acknowledged
            if behind <= 0 or behind + cost <= window:
                break
            await self._changed.wait()
        if self._closed is not None:
            raise self._closed
        frame = Frame(FrameType.DATA, self.id, self._kind, mark=self._sent + cost, payload=message)
        data = self._link.encode(frame)
        self._sent += cost
        await self._link.enqueue(data)

    async def receive(self) -> bytes:
        while not self._inbox:
            if self._closed is not None:
                raise self._closed
            await self._changed.wait()
        mark, message = self._inbox.popleft()
        self._held -= len(message) + MESSAGE_COST
        self._consumed = max(self._consumed, mark)
        # A quarter window between credits keeps them rare and the sender moving.
        if (
            self._closed is None
            and self._consumed - self._credited >= self._link.limits.channel_window // 4
        ):
            self._credited = self._consumed
            self._link.control(Frame(FrameType.CREDIT, self.id, mark=self._consumed))
        return message

    def close(self, reason: str = "") -> None:
        self._shut(reason or "closed here", Status.CLOSED)

    def fail(self, reason: str) -> None:
        if self._closed is None:
            self._link.board.count("malformed")
        self._shut(reason, Status.MALFORMED)

    def _shut(self, reason: str, status: Status) -> None:
        if self._closed is None:
            body = framing.encode_reason(Reason(reason))
            self._link.last(Frame(FrameType.CLOSE, self.id, status=status, payload=body))
            self.end(reason)

    # Below: called by the link.

    def end(self, reason: str) -> None:
        if self._closed is None:
            self._closed = PeerClosed(self.peer, reason)
            self._link.channels.pop(self.id, None)
            self._wake()

    def deliver(self, frame: Frame) -> None:
        cost = len(frame.payload) + MESSAGE_COST
        # The sender keeps within one window, or one message; twice that allows for messages
        # that a lossy network reordered, and more is a peer that ignores the window.
        allowed = 2 * max(self._link.limits.channel_window, cost)
        if self._held + cost > allowed:
            self._link.board.count("flow_violations")
            self._shut(f"{self._held + cost} bytes sent past the window", Status.FLOW)
            return
        self._held += cost
        self._inbox.append((frame.mark, frame.payload))
        self._wake()

    def credit(self, mark: int) -> None:
        if mark > self._sent:
            raise MalformedFrame("credit for more than was sent", mark)
        self._acknowledged = max(self._acknowledged, mark)
        self._wake()
