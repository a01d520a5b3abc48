"""Answers to "are you there?" and "can you reach me?": what a node asks before it announces."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import trio

from node.network import exchange, identity
from node.network.errors import Busy
from node.network.libp2p_transport import Libp2pTransport
from node.network.messages import Kind, Ping, Pong, Reached, ReachRequest

PROBE_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 2.0  # between two probes for one peer: this node is no port scanner
REMEMBERED: Final = 1024


def serve_reach(transport: Libp2pTransport, clock: Callable[[], float] = time.monotonic) -> None:
    """Answers PING, and dials a peer back at its own endpoints (REACH)."""
    probed: dict[bytes, float] = {}

    async def ping(_: bytes, message: Ping) -> Pong:
        return Pong(message.nonce, int(time.time() * 1000))

    async def reach(peer: bytes, message: ReachRequest) -> Reached:
        now = clock()
        if now - probed.get(peer, -PAUSE_SECONDS) < PAUSE_SECONDS:
            raise Busy("one probe at a time", PAUSE_SECONDS, transport.address)
        if len(probed) >= REMEMBERED:
            probed.clear()
        probed[peer] = now
        return Reached(tuple([await _probe(transport, peer, text) for text in message.endpoints]))

    exchange.serve(transport, Kind.PING, ping)
    exchange.serve(transport, Kind.REACH, reach)


async def _probe(transport: Libp2pTransport, peer: bytes, text: str) -> str:
    """Why `text` cannot be reached, or nothing."""
    try:
        if identity.address_of_endpoint(text) != peer:
            return "names another peer"
        with trio.fail_after(PROBE_SECONDS):
            await transport.probe(text)
    except trio.TooSlowError:
        return f"no answer within {PROBE_SECONDS:.0f} s"
    except (OSError, ValueError) as error:
        return str(error)[:100]
    return ""
