"""Measures the libp2p transport between two processes over loopback.

    python scripts/bench_transport.py [--json] [--requests N]

Prints echo times by size on one link, requests
per second with many at once, time to connect, one-way throughput, and a small echo's time beside a
bulk transfer. The other process is this script with `--serve`.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

import structlog
import trio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from node.network.framing import MAX_PAYLOAD  # noqa: E402
from node.network.identity import address_of_endpoint  # noqa: E402
from node.network.libp2p_transport import Libp2pTransport, open_libp2p_transport  # noqa: E402
from node.network.transport import Channel, Limits, SizeBounds  # noqa: E402

ECHO, SINK, LINE = 1, 2, 3
BOUNDS = {
    ECHO: SizeBounds(MAX_PAYLOAD, MAX_PAYLOAD),
    SINK: SizeBounds(MAX_PAYLOAD, 16),
    LINE: SizeBounds(100_000),
}
LIMITS = Limits(requests_per_peer=256, inbound_per_peer=64 * 1024 * 1024)
SIZES = (200, 2 * 1024, 10 * 1024, 100 * 1024, 1024 * 1024, MAX_PAYLOAD)


async def serve() -> None:
    async def echo(peer: bytes, payload: bytes) -> bytes:
        return payload

    async def sink(peer: bytes, payload: bytes) -> bytes:
        return b""

    async def line(channel: Channel) -> None:
        while True:
            await channel.send(await channel.receive())

    async with open_libp2p_transport(
        b"\2" * 32, ["/ip4/127.0.0.1/tcp/0"], BOUNDS, limits=LIMITS
    ) as transport:
        transport.serve(ECHO, echo)
        transport.serve(SINK, sink)
        transport.serve_channel(LINE, line)
        print(transport.endpoints()[0], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


async def timed(me: Libp2pTransport, peer: bytes, payload: bytes, count: int) -> list[float]:
    """Milliseconds of each of `count` echoes, one after another."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await me.request(peer, ECHO, payload, deadline=30)
        times.append(1000 * (time.perf_counter() - start))
    return times


def summary(times: list[float]) -> dict[str, float]:
    return {"p50_ms": round(median(times), 3), "p95_ms": round(quantiles(times, n=20)[-1], 3)}


async def measure(endpoint: str, requests: int) -> dict[str, object]:
    peer = address_of_endpoint(endpoint)
    results: dict[str, object] = {}
    async with open_libp2p_transport(b"\1" * 32, [], BOUNDS, limits=LIMITS) as me:
        me.learn(peer, [endpoint])
        start = time.perf_counter()
        await me.request(peer, ECHO, b"", deadline=30)
        results["connect_ms"] = round(1000 * (time.perf_counter() - start), 2)
        await timed(me, peer, bytes(2048), 50)
        for size in SIZES:
            count = requests if size <= 10 * 1024 else max(20, requests // 20)
            results[f"echo_{size}"] = summary(await timed(me, peer, bytes(size), count))

        channel = await me.open(peer, LINE, deadline=5)
        times = []
        for _ in range(requests):
            start = time.perf_counter()
            await channel.send(bytes(2048))
            await channel.receive()
            times.append(1000 * (time.perf_counter() - start))
        results["channel_echo_2048"] = summary(times)

        start = time.perf_counter()

        async def worker() -> None:
            for _ in range(requests // 32):
                await me.request(peer, ECHO, bytes(200), deadline=30)

        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(worker)
        results["requests_per_s_32_at_once"] = round(
            requests // 32 * 32 / (time.perf_counter() - start)
        )

        start = time.perf_counter()
        for _ in range(20):
            await me.request(peer, SINK, bytes(MAX_PAYLOAD), deadline=30)
        rate = 20 * MAX_PAYLOAD / (time.perf_counter() - start)
        results["one_way_MB_per_s"] = round(rate / 1e6, 1)

        async with trio.open_nursery() as nursery:

            async def bulk() -> None:
                while True:
                    await me.request(peer, SINK, bytes(MAX_PAYLOAD), deadline=30)

            nursery.start_soon(bulk)
            await trio.sleep(0.1)
            beside = await timed(me, peer, bytes(2048), max(20, requests // 20))
            results["echo_2048_beside_4MB_transfers"] = summary(beside)
            nursery.cancel_scope.cancel()
    return results


async def bench(requests: int) -> dict[str, object]:
    process = await trio.lowlevel.open_process(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            line += await process.stdout.receive_some(4096)
        return await measure(line.decode().strip(), requests)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--requests", type=int, default=1000, help="echoes per small size")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if options.serve:
        trio.run(serve)
        return
    results = trio.run(bench, options.requests)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        print(f"{name:34} {value}")


if __name__ == "__main__":
    main()
