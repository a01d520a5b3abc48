"""The real transport over loopback, against nodes in processes of their own."""

from __future__ import annotations

import math
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest
import trio
from libp2p.abc import ISecureConn
from libp2p.crypto.ed25519 import create_new_key_pair as ed25519_pair
from libp2p.crypto.secp256k1 import create_new_key_pair as secp256k1_pair
from libp2p.crypto.x25519 import create_new_key_pair as x25519_pair
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.security.security_multistream import SecurityMultistream

from node.network import libp2p_transport
from node.network.errors import DeadlineExceeded, PeerClosed, PeerUnreachable
from node.network.identity import parse_endpoint, peer_id_of_key
from node.network.libp2p_transport import (
    Libp2pTransport,
    ListenError,
    _BoundedStream,
    check_listen,
    open_libp2p_transport,
)
from node.network.transport import SizeBounds
from tests.network.peer_process import DEAF, ECHO, LIMITS, LINE, TEST_BOUNDS
from tests.network.processes import Peer, eventually, here, key, peer, peer_process


@pytest.fixture(scope="module")
def other() -> Iterator[Peer]:
    """One process for all tests that leave it as it was."""
    with peer_process(1) as started:
        yield started


async def tcp(target: Peer | Libp2pTransport) -> trio.SocketStream:
    endpoint = target.endpoint if isinstance(target, Peer) else target.endpoints()[0]
    return await trio.open_tcp_stream("127.0.0.1", parse_endpoint(endpoint).port)


async def read_to_end(stream: trio.SocketStream) -> bytes:
    received = b""
    try:
        while data := await stream.receive_some(65536):
            received += data
    except trio.BrokenResourceError:
        pass
    return received


async def test_echo_across_processes(other: Peer) -> None:
    async with here() as me:
        me.learn(other.address, [other.endpoint])
        for size in (0, 1, 2048, 100_000, 1_000_000):
            payload = random.Random(size).randbytes(size)
            assert await me.request(other.address, ECHO, payload, deadline=10) == payload
        channel = await me.open(other.address, LINE, deadline=5)
        for number in range(500):
            await channel.send(number.to_bytes(2, "big") * 20)
            assert await channel.receive() == number.to_bytes(2, "big") * 20
        await trio.sleep(0.6)
        assert 0 < (me.round_trip(other.address) or 0) < 0.5


async def test_plaintext_and_foreign_protocols_are_refused() -> None:
    """A node that offers plaintext would believe any peer id; ours answers `na` to it."""
    async with here(1, listen=True) as node:
        thief = secp256k1_pair(key(7))
        socket = await tcp(node)
        raw = RawConnection(_BoundedStream(socket), True)
        plain = SecurityMultistream({PLAINTEXT_PROTOCOL_ID: InsecureTransport(thief)})
        expected = ID.from_base58(node.peer_id)
        with pytest.raises(Exception, match="negotiate"):
            await plain.secure_outbound(raw, expected)
        await socket.aclose()
        await eventually(lambda: _counter(node, "handshakes_failed", 1))
        assert node.connected() == ()


async def _counter(node: Libp2pTransport, name: str, least: int) -> bool:
    return node.counters().get(name, 0) >= least


async def test_an_endpoint_that_answers_with_another_key_is_no_peer() -> None:
    async with here(1, listen=True) as node, here(2) as me:
        port = parse_endpoint(node.endpoints()[0]).port
        false = f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer_id_of_key(key(5))}"
        absent = me_address(5)
        me.learn(absent, [false])
        with pytest.raises(PeerUnreachable):
            await me.request(absent, ECHO, b"", deadline=5)
        # And an address cannot be learned under somebody else's name at all.
        me.learn(absent, node.endpoints())
        assert me.known_endpoints(absent) == (false,)


def me_address(number: int) -> bytes:
    from settlement.signing import address_of_key

    return address_of_key(key(number))


async def _noise(node: Libp2pTransport, socket: trio.SocketStream, keys: object) -> ISecureConn:
    noise = NoiseTransport(keys, noise_privkey=x25519_pair().private_key)  # type: ignore[arg-type]
    return await SecurityMultistream({NOISE: noise}).secure_outbound(
        RawConnection(_BoundedStream(socket), True), ID.from_base58(node.peer_id)
    )


async def test_a_key_without_an_ethereum_account_is_refused() -> None:
    async with here(1, listen=True) as node:
        socket = await tcp(node)
        await _noise(node, socket, ed25519_pair(bytes(32)))
        assert await read_to_end(socket) is not None
        await eventually(lambda: _counter(node, "handshakes_failed", 1))
        assert node.connected() == ()


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + bytes(200),
        b"\xff\xff\xff\xff\x7f" + bytes(100),
        bytes(5000),
    ],
)
async def test_other_protocols_are_turned_away(greeting: bytes) -> None:
    async with here(1, listen=True) as node:
        socket = await tcp(node)
        await socket.send_all(greeting)
        with trio.fail_after(LIMITS.handshake_timeout + 1):
            await read_to_end(socket)
        assert node.counters().get("handshakes_failed", 0) + node.counters().get("silent", 0) == 1


@pytest.mark.slow
async def test_what_a_stranger_can_make_a_node_hold_is_bounded() -> None:
    """A multistream message of announced length 2⁶³, and as many bytes as the node will take."""
    async with peer(1) as other, here() as me:
        me.learn(other.address, [other.endpoint])
        before = (await other.state(me))["resident"]
        taken = 0

        async def flood() -> None:
            nonlocal taken
            socket = await tcp(other)
            try:
                await socket.send_all(b"\x13/multistream/1.0.0\n" + b"\xff" * 8 + b"\x7f")
                for _ in range(400):
                    await socket.send_all(bytes(65536))
                    taken += 65536
            except trio.BrokenResourceError:
                pass
            finally:
                await trio.aclose_forcefully(socket)

        for _ in range(5):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(flood)
        state = await other.state(me)
        assert state["resident"] - before < 20_000_000
        assert taken < 50 * 4_000_000  # socket buffers, not 50 × 26 MB
        assert state["counters"]["handshakes_failed"] == 50
        assert await me.request(other.address, ECHO, b"fine", deadline=5) == b"fine"


async def test_silence_is_ended_before_and_after_noise() -> None:
    async with here(1, listen=True) as node, here(2) as quiet:
        for greet in (b"", b"\x13/multistream/1.0.0\n"):
            socket = await tcp(node)
            await socket.send_all(greet)
            start = trio.current_time()
            await read_to_end(socket)
            assert trio.current_time() - start < LIMITS.handshake_timeout + 0.9
        assert node.counters()["silent"] == 2
        # All of the connection's handshakes, but never a HELLO.
        pipe = await quiet._dial_one(parse_endpoint(node.endpoints()[0]))
        start = trio.current_time()
        while await pipe.receive():
            pass
        assert trio.current_time() - start < LIMITS.handshake_timeout + 0.9
        assert node.counters()["silent"] == 3
        assert node.counters()["pending_inbound"] == 0
        await pipe.abort()


@pytest.mark.slow
async def test_silent_strangers_do_not_lock_out_peers() -> None:
    async with here(1, listen=True) as node, here(2) as me:
        node.serve(ECHO, _echo)
        me.learn(node.address, node.endpoints())
        sockets = [await tcp(node) for _ in range(LIMITS.pending_per_host + 20)]
        await trio.sleep(0.2)
        assert node.counters()["connections_refused"] == 20
        # The strangers' time runs out, and a peer that keeps trying gets in.
        for _ in range(20):
            try:
                assert await me.request(node.address, ECHO, b"x", deadline=3) == b"x"
                break
            except PeerUnreachable:
                await trio.sleep(0.1)
        else:
            pytest.fail("locked out")
        for socket in sockets:
            await trio.aclose_forcefully(socket)


@pytest.mark.slow
async def test_one_host_has_its_share_of_links_and_loopback_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys are free: however many one host makes, it gets so many links. A devnet's nodes are all
    on loopback, and are not counted."""
    limits = replace(LIMITS, links_per_host=2)
    async with here(1, listen=True, limits=limits) as node:
        node.serve(ECHO, _echo)

        async def linked(count: int) -> int:
            got = 0
            async with AsyncExitStack() as stack:
                for number in range(count):
                    peer = await stack.enter_async_context(here(20 + number))
                    peer.learn(node.address, node.endpoints())
                    with suppress(PeerUnreachable):
                        await peer.request(node.address, ECHO, b"x", deadline=2)
                        got += 1
            await trio.sleep(0.2)
            return got

        assert await linked(4) == 4
        monkeypatch.setattr(libp2p_transport, "_host_of", lambda socket: "203.0.113.7")
        assert await linked(4) == 2
        assert node.counters()["links_refused"] >= 2
        monkeypatch.setattr(libp2p_transport, "_host_of", lambda socket: "203.0.113.8")
        assert await linked(1) == 1


async def _echo(peer_address: bytes, payload: bytes) -> bytes:
    return payload


async def test_an_oversized_frame_ends_the_link_with_its_reason(other: Peer) -> None:
    loose = {**TEST_BOUNDS, ECHO: SizeBounds(4_000_000, 4_000_000)}
    async with open_libp2p_transport(key(9), [], loose, limits=LIMITS) as me:
        me.learn(other.address, [other.endpoint])
        with pytest.raises(PeerClosed, match="exceeds its bound of 1100000"):
            await me.request(other.address, ECHO, bytes(1_100_001), deadline=5)
        state = await other.state(me)
        assert state["counters"]["oversize"] == 1


async def test_garbage_inside_noise_is_counted() -> None:
    async with here(1, listen=True) as node, here(2) as liar:
        pipe = await liar._dial_one(parse_endpoint(node.endpoints()[0]))
        await pipe.send([random.Random(3).randbytes(2000)])
        while await pipe.receive():
            pass
        assert node.counters().get("malformed", 0) + node.counters().get("oversize", 0) == 1
        await pipe.abort()
        # A Noise record that does not decrypt is the end of the line and nothing more.
        pipe = await liar._dial_one(parse_endpoint(node.endpoints()[0]))
        await pipe._stream.write(b"\x00\x20" + bytes(32))
        while await pipe.receive():
            pass
        await pipe.abort()
        liar.learn(node.address, node.endpoints())
        node.serve(ECHO, _echo)
        assert await liar.request(node.address, ECHO, b"", deadline=5) == b""


async def test_a_killed_peer_is_back_in_seconds() -> None:
    async with here() as me:
        async with peer(1) as other:
            port = other.port
            me.learn(other.address, [other.endpoint])
            channel = await me.open(other.address, LINE, deadline=5)
            other.signal(signal.SIGKILL)
            with pytest.raises(PeerClosed), trio.fail_after(2):
                await channel.receive()
        with pytest.raises(PeerUnreachable):
            await me.request(other.address, ECHO, b"", deadline=1)
        async with peer(1, port=port) as again:
            start = trio.current_time()

            async def answers() -> bool:
                try:
                    await me.request(again.address, ECHO, b"", deadline=2)
                except (PeerUnreachable, PeerClosed, DeadlineExceeded):
                    return False
                return True

            await eventually(answers, 6)
            assert trio.current_time() - start < 6


@pytest.mark.slow
async def test_a_frozen_peer_is_noticed_and_stalls_nobody() -> None:
    async with peer(1) as frozen, peer(2) as well, here() as me:
        for other in (frozen, well):
            me.learn(other.address, [other.endpoint])
            await me.request(other.address, ECHO, b"", deadline=5)
        stuck = await me.open(frozen.address, DEAF, deadline=5)
        frozen.signal(signal.SIGSTOP)
        start = trio.current_time()
        slowest = 0.0
        async with trio.open_nursery() as nursery:

            async def pour_out() -> None:
                while True:
                    await stuck.send(bytes(50_000))

            async def pour() -> None:
                with pytest.raises(PeerClosed):
                    await pour_out()

            async def burden() -> None:
                with pytest.raises((PeerClosed, DeadlineExceeded)):
                    await me.request(frozen.address, ECHO, bytes(1_000_000), deadline=30)

            nursery.start_soon(pour)
            for _ in range(5):
                nursery.start_soon(burden)
            while me.connected() != (well.address,):
                before = time.perf_counter()
                await me.request(well.address, ECHO, bytes(2000), deadline=5)
                slowest = max(slowest, time.perf_counter() - before)
                await trio.sleep(0.01)
                assert trio.current_time() - start < 30
        frozen.signal(signal.SIGCONT)
        # A stall would last until the frozen peer is given up, two seconds or more.
        assert slowest < 1.5
        assert me.counters().get("dead_peers", 0) + me.counters().get("unread_peers", 0) >= 1


async def test_a_slow_reader_stalls_its_own_channel_only(other: Peer) -> None:
    async with here() as me:
        me.learn(other.address, [other.endpoint])
        deaf = await me.open(other.address, DEAF, deadline=5)
        sent = 0
        with trio.move_on_after(0.5):
            while True:
                await deaf.send(bytes(20_000))
                sent += 20_000
        assert sent <= me.limits.channel_window
        assert await me.request(other.address, ECHO, bytes(500_000), deadline=5)
        line = await me.open(other.address, LINE, deadline=5)
        await line.send(b"x")
        assert await line.receive() == b"x"


async def test_a_thousand_requests_with_cancellations(other: Peer) -> None:
    rng = random.Random(2)
    done = cancelled = 0
    async with here() as me:
        me.learn(other.address, [other.endpoint])
        await me.request(other.address, ECHO, b"", deadline=5)

        async def one(number: int) -> None:
            nonlocal done, cancelled
            payload = number.to_bytes(4, "big") * rng.randint(1, 20_000)
            with trio.move_on_after(rng.choice([0.0, 0.002, 0.01, math.inf])) as scope:
                assert await me.request(other.address, ECHO, payload, deadline=30) == payload
                done += 1
            cancelled += scope.cancelled_caught

        for start in range(0, 1000, 40):
            async with trio.open_nursery() as nursery:
                for number in range(start, start + 40):
                    nursery.start_soon(one, number)
        assert done + cancelled == 1000
        assert min(done, cancelled) > 100
        assert me.counters()["links_made"] == 1
        assert await me.request(other.address, ECHO, b"end", deadline=5) == b"end"
        await trio.sleep(0.5)
        state = await other.state(me)
        assert state["counters"]["inbound_bytes"] <= 1000  # this very request


async def test_a_port_belongs_to_one_daemon() -> None:
    async with here(1, listen=True) as node:
        port = parse_endpoint(node.endpoints()[0]).port
        where = f"/ip4/127.0.0.1/tcp/{port}"
        with pytest.raises(ListenError, match=str(port)):
            await check_listen([where])
        with pytest.raises(ListenError, match="another daemon"):
            async with open_libp2p_transport(key(2), [where], TEST_BOUNDS):
                pytest.fail("bound twice")
    await check_listen([where])


@pytest.mark.slow
async def test_four_hundred_connections_one_after_another() -> None:
    """A cap must count the connections there are, not those there have been."""
    async with here(1, listen=True) as node:
        node.serve(ECHO, _echo)
        for number in range(400):
            async with here(100 + number % 50) as me:
                me.learn(node.address, node.endpoints())
                assert await me.request(node.address, ECHO, b"x", deadline=5) == b"x"
        await trio.sleep(0.2)
        assert node.counters()["links"] == 0
        assert node.counters()["links_made"] == 400


async def test_response_sizes_do_not_tell_how_many_tokens() -> None:
    """Bytes on the wire for answers of 1 to 17 tokens' worth: all alike."""
    async with here(1, listen=True) as node, here(2) as me:
        node.serve(ECHO, _echo)
        me.learn(node.address, node.endpoints())
        await me.request(node.address, ECHO, b"", deadline=5)
        sizes: list[int] = []
        link = me._links[node.address, True]
        receive = link._pipe.receive

        async def counted() -> bytes:
            data = await receive()
            sizes.append(len(data))
            return data

        link._pipe.receive = counted  # type: ignore[method-assign]
        # The read under way still goes through the old method; this answer ends it.
        await me.request(node.address, ECHO, b"", deadline=5)
        for tokens in range(1, 18):
            await me.request(node.address, ECHO, bytes(20 * tokens), deadline=5)
        answers = [s for s in sizes if s >= 512]
        assert len(answers) >= 17
        assert set(answers) == {512}


@pytest.mark.slow
async def test_five_restarts_in_ten_seconds_leave_one_entry() -> None:
    async with (
        peer(1, gossip=True) as boot,
        peer(2, gossip=True, bootstrap=[boot.endpoint]) as second,
        here() as me,
    ):
        for other in (boot, second):
            me.learn(other.address, [other.endpoint])
        # Ten seconds on an idle machine; the same within ten seconds of a mock clock: test_gossip.
        for _ in range(4):
            async with peer(3, gossip=True, bootstrap=[boot.endpoint]):
                pass
        async with peer(3, gossip=True, bootstrap=[boot.endpoint]) as third:

            async def one_entry(other: Peer) -> bool:
                peers = (await other.state(me))["peers"]
                return len(peers) == 2 and peers.get(third.address.hex()) == [third.endpoint]

            for other in (boot, second):
                await eventually(lambda other=other: one_entry(other))


@pytest.mark.slow
async def test_the_bootstrap_is_killed_and_a_newcomer_found() -> None:
    async with (
        here() as me,
        peer(1, gossip=True, lifetime=6) as boot,
        peer(2, gossip=True, lifetime=6, bootstrap=[boot.endpoint]) as second,
        peer(3, gossip=True, lifetime=6, bootstrap=[boot.endpoint]) as third,
    ):
        for other in (second, third):
            me.learn(other.address, [other.endpoint])

        async def sees(who: Peer, *whom: Peer) -> bool:
            peers = (await who.state(me))["peers"]
            return set(peers) == {w.address.hex() for w in whom}

        await eventually(lambda: sees(second, boot, third))
        boot.signal(signal.SIGKILL)
        async with peer(4, gossip=True, lifetime=6, bootstrap=[third.endpoint]) as fourth:
            me.learn(fourth.address, [fourth.endpoint])
            # Found, and the dead one's entry has run out.
            await eventually(lambda: sees(second, third, fourth), 20)
            await eventually(lambda: sees(fourth, second, third), 20)
