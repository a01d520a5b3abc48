"""A node in a process of its own, for the tests: serves an echo and says what it sees.

Run as a script with one JSON argument; prints one JSON line when it listens, ends at end of input.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time

import structlog
import trio

from node.network.gossip import Discovery, GossipPace
from node.network.identity import address_of_endpoint
from node.network.libp2p_transport import open_libp2p_transport
from node.network.messages import BOUNDS, Offer, Role
from node.network.transport import Channel, Limits, SizeBounds

ECHO, STATE, LINE, DEAF = 1001, 1002, 1003, 1004
TEST_BOUNDS = {
    **BOUNDS,
    ECHO: SizeBounds(1_100_000, 1_100_000),
    STATE: SizeBounds(0, 100_000),
    LINE: SizeBounds(100_000),
    DEAF: SizeBounds(100_000),
}
# Short times, so that a test of a dead peer takes seconds.
LIMITS = Limits(
    handshake_timeout=1.0, ping_interval=0.5, dead_after=2.0, write_timeout=2.0, dial_timeout=2.0
)
MODEL = b"m" * 32


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


async def echo(peer: bytes, payload: bytes) -> bytes:
    return payload


async def echo_line(channel: Channel) -> None:
    while True:
        await channel.send(await channel.receive())


async def deaf(channel: Channel) -> None:
    await trio.sleep_forever()


async def main(options: dict[str, object]) -> None:
    key = bytes.fromhex(str(options["key"]))
    lifetime = float(str(options.get("lifetime", 60)))
    boot = [str(e) for e in options.get("bootstrap", [])]  # type: ignore[union-attr]
    async with open_libp2p_transport(
        key, [str(options["listen"])], TEST_BOUNDS, limits=LIMITS
    ) as transport:
        transport.serve(ECHO, echo)
        transport.serve_channel(LINE, echo_line)
        transport.serve_channel(DEAF, deaf)
        discovery = Discovery(
            transport,
            key,
            bootstrap=[(address_of_endpoint(e), [e]) for e in boot],
            now_ms=lambda: time.time_ns() // 1_000_000,
            pace=GossipPace(lifetime=lifetime, refresh=lifetime / 4),
        )

        async def state(peer: bytes, payload: bytes) -> bytes:
            seen = {e.operator.hex(): e.announcement.endpoints for e in discovery.peers()}
            return json.dumps(
                {
                    "peers": seen,
                    "counters": dict(transport.counters()),
                    "resident": resident_bytes(),
                }
            ).encode()

        transport.serve(STATE, state)
        async with trio.open_nursery() as nursery:
            if options.get("gossip"):
                nursery.start_soon(discovery.run)
                discovery.announce([Offer(Role.DRAFTER, MODEL, 1, bytes(20), bytes(32))])
            print(json.dumps({"endpoints": transport.endpoints()}), flush=True)
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            await discovery.leave()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    trio.run(main, json.loads(sys.argv[1]))
