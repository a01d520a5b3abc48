"""Discovery between in-memory nodes: join, leave, expiry, restarts, loss of the bootstrap."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock

from node.network import exchange
from node.network.discovery import sign_announcement
from node.network.errors import PeerClosed, Refused
from node.network.gossip import Discovery, GossipPace
from node.network.memory import LinkConditions, MemoryNetwork, MemoryTransport
from node.network.messages import (
    BOUNDS,
    Announcement,
    GossipDigest,
    GossipNews,
    Kind,
    Offer,
    Role,
    SignedAnnouncement,
)
from settlement.signing import address_of_key

EPOCH_MS = 1_800_000_000_000
MODEL = b"m" * 32


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def who(number: int) -> bytes:
    return address_of_key(key(number))


def drafting() -> Offer:
    return Offer(Role.DRAFTER, MODEL, 7, bytes(20), bytes(32))


@dataclass
class Node:
    transport: MemoryTransport
    discovery: Discovery

    def sees(self) -> set[bytes]:
        return {e.operator for e in self.discovery.peers()}


@asynccontextmanager
async def node(
    network: MemoryNetwork,
    number: int,
    bootstrap: int | None = 1,
    *,
    clock_ahead_ms: int = 0,
    orderly: bool = True,
) -> AsyncIterator[Node]:
    boot = []
    if bootstrap is not None and bootstrap != number:
        boot = [(who(bootstrap), [f"memory:0x{who(bootstrap).hex()}"])]
    async with network.join(who(number), BOUNDS) as transport:
        discovery = Discovery(
            transport,
            key(number),
            bootstrap=boot,
            now_ms=lambda: EPOCH_MS + clock_ahead_ms + round(trio.current_time() * 1000),
            rng=random.Random(number),
            pace=GossipPace(),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discovery.run)
            discovery.announce([drafting()])
            yield Node(transport, discovery)
            if orderly:
                await discovery.leave()
            nursery.cancel_scope.cancel()


def quiet() -> MemoryNetwork:
    return MemoryNetwork(line=LinkConditions(latency=0.02), know_all=False)


async def test_one_address_is_enough(autojump_clock: MockClock) -> None:
    network = quiet()
    async with (
        node(network, 1) as a,
        node(network, 2) as b,
        node(network, 3) as c,
        node(network, 4) as d,
    ):
        with trio.fail_after(5):
            for each in (a, b, c, d):
                assert len(await each.discovery.wait_for(Role.DRAFTER, 3, MODEL)) == 3
        assert b.sees() == {who(1), who(3), who(4)}
        # Found, and reachable: c never heard d's address from the test.
        await c.transport.request(who(4), Kind.GOSSIP, GossipDigest(()).encode(), deadline=1)
        entry = c.discovery.table.find(who(4), EPOCH_MS)
        assert entry is not None
        assert entry.offers(Role.DRAFTER, MODEL)[0].price == 7


async def test_news_is_pushed_before_the_next_round(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1) as a, node(network, 2) as b:
        await b.discovery.wait_for(Role.DRAFTER)
        await a.discovery.wait_for(Role.DRAFTER)
        await trio.sleep(5.0)
        start = trio.current_time()
        a.discovery.announce([drafting(), Offer(Role.AUDITOR, MODEL, 0, bytes(20), bytes(32))])
        await b.discovery.wait_for(Role.AUDITOR)
        assert trio.current_time() - start < 0.2


async def test_exchanges_that_find_nothing_grow_rare(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    answer = Discovery._answer

    async def counted(self: Discovery, peer: bytes, digest: GossipDigest) -> GossipNews:
        if digest.held:
            asked.append(trio.current_time())
        return await answer(self, peer, digest)

    monkeypatch.setattr(Discovery, "_answer", counted)
    network = quiet()
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(node(network, n)) for n in range(1, 6)]
        await trio.sleep(40)
        busy = [at for at in asked if at < 5]
        rare = [at for at in asked if at >= 30]
        assert len(busy) > 5 * 3 * 2  # five nodes ask three each
        assert len(rare) < 10 * 5 * 3 / 4  # each every eight seconds or so: a second apart before
        # What no push brings is found all the same, and looked for more often at once.
        monkeypatch.setattr(Discovery, "_push", lambda self: trio.sleep_forever())
        late = await stack.enter_async_context(node(network, 6, bootstrap=2))
        with trio.fail_after(30):
            for one in (*nodes, late):
                await one.discovery.wait_for(Role.DRAFTER, 5)


async def test_leaving_is_seen_at_once_and_by_all(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1) as a, node(network, 2) as b:
        async with node(network, 3):
            await a.discovery.wait_for(Role.DRAFTER, 2)
            await b.discovery.wait_for(Role.DRAFTER, 2)
        await trio.sleep(0.5)
        assert a.sees() == {who(2)}
        assert b.sees() == {who(1)}


async def test_a_killed_node_expires(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1) as a, node(network, 2) as b:
        with trio.CancelScope() as kill:
            async with node(network, 3):
                await a.discovery.wait_for(Role.DRAFTER, 2)
                await b.discovery.wait_for(Role.DRAFTER, 2)
                kill.cancel()
                await trio.sleep(0)
        assert who(3) in a.sees()
        await trio.sleep(61)
        assert a.sees() == {who(2)}
        assert b.sees() == {who(1)}
        # And those who live are still there, long after their first announcement expired.
        await trio.sleep(600)
        assert a.sees() == {who(2)}


async def test_five_restarts_leave_one_entry(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1) as a, node(network, 2) as b:
        for life in range(5):
            with trio.CancelScope() as kill:
                async with node(network, 3, orderly=life % 2 == 0):
                    await trio.sleep(1.0)
                    kill.cancel()
                    await trio.sleep(0)
            await trio.sleep(1.0)
        async with node(network, 3):
            await trio.sleep(1.0)
            for each in (a, b):
                entries = [e for e in each.discovery.peers() if e.operator == who(3)]
                assert len(entries) == 1
                assert len(each.discovery.peers()) == 2


async def test_a_restart_with_an_older_clock_is_heard(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1) as a:
        with trio.CancelScope() as kill:
            async with node(network, 2, clock_ahead_ms=30_000):
                await a.discovery.wait_for(Role.DRAFTER)
                kill.cancel()
                await trio.sleep(0)
        before = a.discovery.table.sequence_of(who(2))
        assert before is not None
        async with node(network, 2):
            await trio.sleep(3)
            after = a.discovery.table.sequence_of(who(2))
            assert after is not None
            assert after > before


async def test_the_bootstrap_may_die(autojump_clock: MockClock) -> None:
    network = quiet()
    async with trio.open_nursery() as nursery:
        boot = trio.CancelScope()

        async def bootstrap() -> None:
            with boot:
                async with node(network, 1):
                    await trio.sleep_forever()

        nursery.start_soon(bootstrap)
        async with node(network, 2) as b, node(network, 3) as c:
            await b.discovery.wait_for(Role.DRAFTER, 2)
            await c.discovery.wait_for(Role.DRAFTER, 2)
            boot.cancel()
            await trio.sleep(70)
            assert b.sees() == {who(3)}
            assert c.sees() == {who(2)}
            # A newcomer needs any node that lives.
            async with node(network, 4, bootstrap=3) as d:
                with trio.fail_after(5):
                    await d.discovery.wait_for(Role.DRAFTER, 2)
                    await b.discovery.wait_for(Role.DRAFTER, 2)
                assert d.sees() == {who(2), who(3)}
        nursery.cancel_scope.cancel()


async def test_it_works_under_heavy_loss(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(
        9, LinkConditions(latency=0.05, loss=0.4, duplicate=0.2, reorder=0.2), know_all=False
    )
    async with node(network, 1) as a, node(network, 2) as b, node(network, 3) as c:
        with trio.fail_after(120):
            for each in (a, b, c):
                await each.discovery.wait_for(Role.DRAFTER, 2)


async def test_twenty_nodes_know_each_other_soon(autojump_clock: MockClock) -> None:
    network = quiet()
    async with trio.open_nursery() as nursery:
        nodes: list[Node] = []

        async def live(number: int) -> None:
            async with node(network, number) as one:
                nodes.append(one)
                await trio.sleep_forever()

        for number in range(1, 21):
            nursery.start_soon(live, number)
        start = trio.current_time()
        while len(nodes) < 20 or any(len(n.discovery.peers()) < 19 for n in nodes):
            await trio.sleep(0.1)
            assert trio.current_time() - start < 10
        nursery.cancel_scope.cancel()


async def test_a_forged_announcement_costs_the_link(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1) as a, network.join(who(9), BOUNDS) as liar:
        liar.learn(who(1), [f"memory:0x{who(1).hex()}"])
        victim = Announcement(who(5), 1, EPOCH_MS + 60_000, False, ("memory:evil",), ())
        signed = sign_announcement(victim, key(9), bytes(32))
        with pytest.raises(PeerClosed, match="did not sign"):
            await exchange.ask(liar, who(1), Kind.GOSSIP, GossipDigest((), (signed,)), deadline=1)
        assert a.sees() == set()
        assert a.transport.counters()["malformed"] == 1

        async def feed(peer: bytes, digest: GossipDigest) -> GossipNews:
            return GossipNews((SignedAnnouncement(victim.encode(), bytes(65)),))

        exchange.serve(liar, Kind.GOSSIP, feed)
        await exchange.ask(liar, who(1), Kind.GOSSIP, GossipDigest(()), deadline=1)
        await trio.sleep(3)  # a asks everybody it is linked with
        assert a.sees() == set()
        assert liar.connected() == ()


async def test_a_peer_that_asks_all_the_time_is_refused(autojump_clock: MockClock) -> None:
    network = quiet()
    async with node(network, 1), network.join(who(9), BOUNDS) as eager:
        eager.learn(who(1), [f"memory:0x{who(1).hex()}"])
        network.set_all(LinkConditions())

        async def served_of(count: int) -> int:
            served = 0
            for _ in range(count):
                try:
                    await exchange.ask(eager, who(1), Kind.GOSSIP, GossipDigest(()), deadline=1)
                    served += 1
                except Refused:
                    continue
            return served

        assert 15 <= await served_of(100) <= 21
        await trio.sleep(0.5)
        assert 8 <= await served_of(100) <= 12


def test_a_pace_that_lets_live_nodes_expire_is_refused() -> None:
    with pytest.raises(ValueError, match="half"):
        GossipPace(lifetime=6.0)
    with pytest.raises(ValueError, match="bound"):
        GossipPace(lifetime=601.0)
    with pytest.raises(ValueError, match="no more than"):
        GossipPace(interval=9.0)
