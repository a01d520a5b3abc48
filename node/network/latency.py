"""A slower line: what arrives is handed on later. For devnets, to try windows on a far network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import trio

from node.network.link import Pipe

MAX_WAITING: Final = 8 * 1024 * 1024  # bytes held back; beyond, the reader pauses


class DelayedPipe:
    """A pipe whose bytes come `seconds` after they arrived, in order. One task reads ahead, so
    that a stream of messages is late once and not once each."""

    def __init__(
        self, pipe: Pipe, seconds: float, spawn: Callable[..., None], most: int = MAX_WAITING
    ) -> None:
        self._pipe = pipe
        self._seconds = seconds
        self._most = most
        self._held: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        spawn(self._read_ahead)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _read_ahead(self) -> None:
        with self._scope:
            data = b"-"
            while data:
                while self._bytes > self._most:
                    await self._changed.wait()
                data = await self._pipe.receive()
                self._held.append((trio.current_time() + self._seconds, data))
                self._bytes += len(data)
                self._wake()

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._pipe.send(frames)

    async def receive(self) -> bytes:
        while not self._held:
            await self._changed.wait()
        due, _ = self._held[0]
        await trio.sleep_until(due)
        _, data = self._held.popleft()
        self._bytes -= len(data)
        self._wake()
        return data

    async def abort(self) -> None:
        self._scope.cancel()
        if not self._held or self._held[-1][1]:
            self._held.append((trio.current_time(), b""))
            self._wake()
        await self._pipe.abort()
