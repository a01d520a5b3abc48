"""The in-memory network: its faults happen, follow from the seed, and an idempotent role survives
all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import trio

from node.network.errors import NetworkError
from node.network.memory import LinkConditions, MemoryNetwork, run_deterministically
from node.network.transport import Channel, SizeBounds

A, B = b"a" * 20, b"b" * 20
ADD, LINE = 1, 2
BOUNDS = {ADD: SizeBounds(1000, 1000), LINE: SizeBounds(1000)}
HOSTILE = LinkConditions(
    latency=0.02,
    jitter=0.01,
    loss=0.1,
    duplicate=0.1,
    reorder=0.1,
    truncate=0.05,
    cut=0.01,
)


async def count_to(seed: int, line: LinkConditions, total: int = 400) -> MemoryNetwork:
    """A client adds 1..total, each under its own number, until each is acknowledged; the sum must
    come out exactly, whatever the network does."""
    network = MemoryNetwork(seed, line)
    applied: dict[int, int] = {}
    calls = 0

    async def add(peer: bytes, payload: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if len(payload) != 8:
            return b"bad"
        number = int.from_bytes(payload, "big")
        applied.setdefault(number, 1)
        return payload

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve(ADD, add)
        for number in range(total):
            wanted = number.to_bytes(8, "big")
            while True:
                try:
                    if await a.request(B, ADD, wanted, deadline=0.3) == wanted:
                        break
                except NetworkError:
                    continue
    assert applied == dict.fromkeys(range(total), 1)
    assert calls >= total
    return network


def test_an_idempotent_role_survives_every_fault() -> None:
    network = run_deterministically(1, count_to, 1, HOSTILE)
    fates = Counter(fate for *_, fate in network.trace)
    assert set(fates) >= {"sent", "lost", "sent twice", "sent late", "truncated", "cut"}
    messages = sum(fates.values())
    assert 0.05 < fates["lost"] / messages < 0.15


def test_one_seed_is_one_history() -> None:
    traces = [run_deterministically(s, count_to, s, HOSTILE, 100).trace for s in (7, 7, 8)]
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


@pytest.mark.parametrize(
    ("fault", "fate"),
    [
        ("loss", "lost"),
        ("duplicate", "sent twice"),
        ("reorder", "sent late"),
        ("truncate", "truncated"),
        ("cut", "cut"),
    ],
)
def test_each_fault_alone(fault: str, fate: str) -> None:
    line = replace(LinkConditions(latency=0.01), **{fault: 0.2})
    network = run_deterministically(3, count_to, 3, line, 60)
    assert {f for *_, f in network.trace} == {"sent", fate}


def test_latency_and_bandwidth_take_their_time() -> None:
    async def main() -> float:
        network = MemoryNetwork(0, LinkConditions(latency=0.1, bandwidth=10_240))
        async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:

            async def same(peer: bytes, payload: bytes) -> bytes:
                return payload

            b.serve(ADD, same)
            await a.request(B, ADD, b"", deadline=5)
            await trio.sleep(1)
            start = trio.current_time()
            await a.request(B, ADD, bytes(900), deadline=5)
            return trio.current_time() - start

    # 1,024 padded bytes at 10,240 B/s each way, plus twice the latency.
    assert run_deterministically(0, main) == pytest.approx(0.4, abs=0.01)


def test_messages_keep_their_order_unless_told_otherwise() -> None:
    async def main(reorder: float) -> list[int]:
        line = LinkConditions(latency=0.02, jitter=0.05, reorder=reorder)
        network = MemoryNetwork(5, line)
        got: list[int] = []

        async def collect(channel: Channel) -> None:
            while True:
                got.append(int.from_bytes(await channel.receive(), "big"))

        async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
            b.serve_channel(LINE, collect)
            channel = await a.open(B, LINE, deadline=1)
            for number in range(200):
                await channel.send(number.to_bytes(2, "big"))
                await trio.sleep(0.001)
            await trio.sleep(1)
        return got

    assert run_deterministically(5, main, 0.0) == list(range(200))
    shuffled = run_deterministically(5, main, 0.2)
    assert shuffled != list(range(200))
    assert sorted(shuffled) == list(range(200))
