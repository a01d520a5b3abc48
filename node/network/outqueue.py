"""The queue in front of a link's writer: bounded, control frames first, messages in order."""

from __future__ import annotations

from collections import deque

import trio

# Frames up to this many bytes are written together.
WRITE_BATCH = 64 * 1024


class OutQueue:
    """Frames on their way to the writer: control frames first, then messages in order."""

    def __init__(self, max_bytes: int, max_control: int) -> None:
        self._max_bytes = max_bytes
        self._max_control = max_control
        self._control: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._shut = False
        self._changed = trio.Event()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def put_control(self, data: bytes) -> bool:
        """False when a peer that makes us answer does not read the answers."""
        if len(self._control) >= self._max_control:
            return False
        self._control.append(data)
        self._wake()
        return True

    async def put(self, data: bytes) -> bool:
        """Waits for room; False once the queue is shut."""
        while self._bytes and self._bytes + len(data) > self._max_bytes and not self._shut:
            await self._changed.wait()
        if self._shut:
            return False
        self._messages.append(data)
        self._bytes += len(data)
        self._wake()
        return True

    def shut(self) -> None:
        """Nobody writes any more: whoever waits for room is sent away."""
        self._shut = True
        self._wake()

    def put_last(self, data: bytes) -> None:
        """Behind all messages, over the bound if need be: for the one CLOSE of each channel."""
        self._messages.append(data)
        self._bytes += len(data)
        self._wake()

    @property
    def empty(self) -> bool:
        return not self._control and not self._messages

    async def take(self) -> list[bytes]:
        while not self._control and not self._messages:
            await self._changed.wait()
        batch: list[bytes] = list(self._control)
        self._control.clear()
        size = sum(map(len, batch))
        while self._messages and (not batch or size + len(self._messages[0]) <= WRITE_BATCH):
            data = self._messages.popleft()
            size += len(data)
            self._bytes -= len(data)
            batch.append(data)
        self._wake()
        return batch
