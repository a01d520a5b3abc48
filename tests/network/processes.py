"""Starts `peer_process.py` and makes sure that nothing of it is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from node.network.libp2p_transport import Libp2pTransport, open_libp2p_transport
from node.network.transport import Limits
from settlement.signing import address_of_key
from tests.network.peer_process import LIMITS, STATE, TEST_BOUNDS

ROOT = Path(__file__).resolve().parents[2]


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


@dataclass
class Peer:
    process: subprocess.Popen[bytes]
    address: bytes
    endpoint: str

    @property
    def port(self) -> int:
        return int(self.endpoint.split("/")[4])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def state(self, transport: Libp2pTransport) -> dict[str, Any]:
        raw = await transport.request(self.address, STATE, b"", deadline=10)
        return dict(json.loads(raw))


@contextmanager
def peer_process(number: int, *, port: int = 0, **options: object) -> Iterator[Peer]:
    """A node in its own process; it is killed when the block ends. Waits until it listens."""
    told = {"key": key(number).hex(), "listen": f"/ip4/127.0.0.1/tcp/{port}", **options}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.network.peer_process", json.dumps(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the peer process ended before it listened"
        yield Peer(process, address_of_key(key(number)), json.loads(line)["endpoints"][0])
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@asynccontextmanager
async def peer(number: int, *, port: int = 0, **options: object) -> AsyncIterator[Peer]:
    """`peer_process` that does not keep the test's own transports waiting meanwhile."""
    manager = peer_process(number, port=port, **options)
    entered = await trio.to_thread.run_sync(manager.__enter__)
    try:
        yield entered
    finally:
        manager.__exit__(None, None, None)


@asynccontextmanager
async def here(
    number: int = 99, listen: bool = False, limits: Limits = LIMITS
) -> AsyncIterator[Libp2pTransport]:
    """A transport in the test's own process, with the same short limits."""
    where = ["/ip4/127.0.0.1/tcp/0"] if listen else []
    async with open_libp2p_transport(key(number), where, TEST_BOUNDS, limits=limits) as transport:
        yield transport


async def eventually(predicate: Any, seconds: float = 15.0) -> None:
    """Waits until `await predicate()` is true."""
    with trio.fail_after(seconds):
        while not await predicate():
            await trio.sleep(0.05)
