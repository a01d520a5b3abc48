"""The link and the switchboard over the in-memory network, on a clock that jumps."""

from __future__ import annotations

import math
import random

import pytest
import trio
from trio.testing import MockClock

from node.network import framing
from node.network.crowding import Standing
from node.network.errors import (
    Busy,
    DeadlineExceeded,
    FrameTooLarge,
    MalformedFrame,
    PeerClosed,
    PeerUnreachable,
    Refused,
)
from node.network.framing import Frame, FrameType, Hello, Status
from node.network.memory import LinkConditions, MemoryNetwork, MemoryTransport
from node.network.transport import Channel, Limits, SizeBounds

A, B, C = b"a" * 20, b"b" * 20, b"c" * 20
ECHO, SLOW, LINE = 1, 2, 3
BOUNDS = {
    ECHO: SizeBounds(100_000, 100_000),
    SLOW: SizeBounds(100_000, 1000),
    LINE: SizeBounds(100_000),
}


async def echo(peer: bytes, payload: bytes) -> bytes:
    return peer + payload


async def echo_line(channel: Channel) -> None:
    while True:
        await channel.send(await channel.receive())


async def never_reads(channel: Channel) -> None:
    await trio.sleep_forever()


def serve(node: MemoryTransport) -> None:
    node.serve(ECHO, echo)
    node.serve_channel(LINE, echo_line)


async def test_a_request_is_answered_and_its_sender_is_known(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.05))
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        assert a.round_trip(B) is None
        assert await a.request(B, ECHO, b"hi", deadline=1.0) == A + b"hi"
        await trio.sleep(10)
        assert a.round_trip(B) == pytest.approx(0.1)
        # The link works both ways: b never dials.
        serve(a)
        assert await b.request(A, ECHO, b"ho", deadline=1.0) == B + b"ho"
        assert a.counters()["links"] == b.counters()["links"] == 1


async def test_a_deadline_is_kept_to_the_millisecond(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    ended: list[float] = []

    async def slow(peer: bytes, payload: bytes) -> bytes:
        try:
            await trio.sleep(100)
        finally:
            ended.append(trio.current_time())
        return b""

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve(SLOW, slow)
        start = trio.current_time()
        with pytest.raises(DeadlineExceeded) as late:
            await a.request(B, SLOW, b"", deadline=2.5)
        assert trio.current_time() - start == pytest.approx(2.5)
        assert late.value.peer == B
        await trio.sleep(0.1)
        # The peer did not go on working for nobody.
        assert ended == [pytest.approx(start + 2.5, abs=0.01)]
        assert b.counters()["inbound_bytes"] == 0


async def test_the_ways_to_say_no(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def refuse(peer: bytes, payload: bytes) -> bytes:
        match payload:
            case b"busy":
                raise Busy("later", 0.25)
            case b"own":
                raise Refused(77, "my reason")
            case _:
                raise RuntimeError("secret")

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve(SLOW, refuse)
        with pytest.raises(Busy) as busy:
            await a.request(B, SLOW, b"busy", deadline=1)
        assert (busy.value.reason, busy.value.retry_after, busy.value.peer) == ("later", 0.25, B)
        with pytest.raises(Refused, match="my reason") as own:
            await a.request(B, SLOW, b"own", deadline=1)
        assert own.value.code == 77
        with pytest.raises(Refused) as failed:
            await a.request(B, SLOW, b"crash", deadline=1)
        assert failed.value.code == Status.FAILED
        assert "secret" not in str(failed.value)
        assert b.counters()["handlers_crashed"] == 1
        with pytest.raises(Refused) as unknown:
            await a.request(B, ECHO, b"", deadline=1)
        assert unknown.value.code == Status.UNKNOWN_KIND
        with pytest.raises(Refused) as unopened:
            await a.open(B, LINE, deadline=1)
        assert unopened.value.code == Status.UNKNOWN_KIND
        assert a.counters()["links_made"] == 1
        assert a.counters()["channels"] == 0


async def test_a_crashing_channel_handler_ends_its_channel_alone(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()

    async def crash(channel: Channel) -> None:
        raise ZeroDivisionError(await channel.receive())

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve_channel(LINE, crash)
        b.serve(ECHO, echo)
        channel = await a.open(B, LINE, deadline=1)
        await channel.send(b"x")
        with pytest.raises(PeerClosed, match="handler failed"):
            await channel.receive()
        assert await a.request(B, ECHO, b"", deadline=1) == A
        assert b.counters()["channels"] == 0


async def test_undecodable_payload_ends_the_link_with_its_reason(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()

    async def strict(peer: bytes, payload: bytes) -> bytes:
        raise MalformedFrame("no such field", payload)

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve(SLOW, strict)
        with pytest.raises(PeerClosed, match="no such field"):
            await a.request(B, SLOW, b"?", deadline=1)
        assert b.counters()["malformed"] == 1
        assert a.connected() == ()


async def test_too_large_is_refused_on_both_sides(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    loose = {**BOUNDS, ECHO: SizeBounds(3_000_000, 3_000_000)}
    async with network.join(A, loose) as a, network.join(B, BOUNDS) as b:
        serve(b)
        with pytest.raises(FrameTooLarge):
            await a.request(B, ECHO, bytes(3_000_001), deadline=1)
        assert a.connected() == (B,)  # Nothing was sent.
        with pytest.raises(PeerClosed, match="exceeds its bound"):
            await a.request(B, ECHO, bytes(100_001), deadline=1)
        assert b.counters()["oversize"] == 1
        assert await a.request(B, ECHO, bytes(100_000 - 20), deadline=1)


async def test_a_response_over_its_bound_fails_that_request_only(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()

    async def big(peer: bytes, payload: bytes) -> bytes:
        return bytes(1001)

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve(SLOW, big)
        serve(b)
        with pytest.raises(Refused, match="too large"):
            await a.request(B, SLOW, b"", deadline=1)
        assert await a.request(B, ECHO, b"", deadline=1) == A


async def test_a_channel_keeps_order_and_delivers_before_the_end(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.02, jitter=0.05))

    async def count(channel: Channel) -> None:
        for number in range(300):
            await channel.send(number.to_bytes(2, "big") * 100)
        channel.close("that was all")

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve_channel(LINE, count)
        channel = await a.open(B, LINE, deadline=1)
        for number in range(300):
            assert await channel.receive() == number.to_bytes(2, "big") * 100
        for _ in range(2):
            with pytest.raises(PeerClosed, match="that was all"):
                await channel.receive()
        with pytest.raises(PeerClosed):
            await channel.send(b"")
        channel.close()
        assert a.counters()["channels"] == b.counters()["channels"] == 0


async def test_a_slow_reader_stalls_its_own_channel_only(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        b.serve_channel(SLOW, never_reads)
        stuck = await a.open(B, SLOW, deadline=1)
        sent = 0
        with trio.move_on_after(1.0):
            while True:
                await stuck.send(bytes(10_000))
                sent += 10_000
        window = a.limits.channel_window
        assert window // 2 < sent <= window
        line = await a.open(B, LINE, deadline=1)
        for _ in range(100):
            await line.send(b"x")
            assert await line.receive() == b"x"
        assert await a.request(B, ECHO, bytes(50_000), deadline=1)


async def test_a_reader_that_wakes_gets_everything(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    got: list[bytes] = []

    async def late(channel: Channel) -> None:
        await trio.sleep(100)
        while True:
            got.append(await channel.receive())

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve_channel(LINE, late)
        channel = await a.open(B, LINE, deadline=1)
        for number in range(1000):
            await channel.send(number.to_bytes(4, "big") * 500)
        await trio.sleep(1)
        assert [int.from_bytes(m[:4], "big") for m in got] == list(range(1000))


async def test_a_peer_that_ignores_the_window_loses_its_channel(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    greedy = Limits(channel_window=1 << 30)
    async with network.join(A, BOUNDS, limits=greedy) as a, network.join(B, BOUNDS) as b:
        serve(b)
        b.serve_channel(SLOW, never_reads)
        channel = await a.open(B, SLOW, deadline=1)

        async def flood() -> None:
            for _ in range(10_000):
                await channel.send(bytes(1000))

        with pytest.raises(PeerClosed, match="past the window"):
            await flood()
        assert b.counters()["flow_violations"] == 1
        assert await a.request(B, ECHO, b"", deadline=1) == A


async def test_requests_at_once_are_bounded(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    limits = Limits(requests_per_peer=4, inbound_per_peer=60_000)

    async def slow(peer: bytes, payload: bytes) -> bytes:
        await trio.sleep(1)
        return b""

    outcomes: list[str] = []

    async def one(a: MemoryTransport, size: int) -> None:
        try:
            await a.request(B, SLOW, bytes(size), deadline=5)
            outcomes.append("ok")
        except Busy as busy:
            outcomes.append("busy" if busy.retry_after else "busy without advice")

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS, limits=limits) as b:
        b.serve(SLOW, slow)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one, a, 10)
        assert sorted(outcomes) == ["busy"] * 6 + ["ok"] * 4
        outcomes.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(one, a, 40_000)
        assert sorted(outcomes) == ["busy", "ok"]
        assert b.counters()["inbound_bytes"] == 0


async def test_memory_for_requests_is_bounded_over_all_peers(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def slow(peer: bytes, payload: bytes) -> bytes:
        await trio.sleep(1)
        return b""

    async with (
        network.join(A, BOUNDS) as a,
        network.join(C, BOUNDS) as c,
        network.join(B, BOUNDS, limits=Limits(max_inbound=100_000)) as b,
    ):
        b.serve(SLOW, slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: a.request(B, SLOW, bytes(60_000), deadline=5))
            await trio.sleep(0.1)
            with pytest.raises(Busy):
                await c.request(B, SLOW, bytes(60_000), deadline=5)


async def test_channels_at_once_are_bounded(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    few = Limits(channels_per_peer=3)
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS, limits=few) as b:
        serve(b)
        channels = [await a.open(B, LINE, deadline=1) for _ in range(3)]
        with pytest.raises(Busy):
            await a.open(B, LINE, deadline=1)
        channels[0].close()
        await trio.sleep(0.1)
        await a.open(B, LINE, deadline=1)
        serve(a)
        with pytest.raises(Busy):
            await b.open(A, LINE, deadline=1)


async def test_channels_opened_and_closed_leave_nothing(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        for _ in range(300):
            channel = await a.open(B, LINE, deadline=1)
            await channel.send(b"x")
            assert await channel.receive() == b"x"
            channel.close()
        await trio.sleep(0.1)
        assert a.counters()["channels"] == b.counters()["channels"] == 0
        assert a.counters()["links_made"] == 1


# ---------------------------------------------------------------- peers that misbehave


async def test_a_silent_stream_is_closed(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS), network.join(B, BOUNDS) as b:
        pipe = await network.connect(A, B)
        await pipe.receive()  # b's HELLO
        start = trio.current_time()
        assert b.counters()["pending_inbound"] == 1
        while await pipe.receive():
            pass
        assert trio.current_time() - start == pytest.approx(5.0, abs=0.1)
        assert b.counters()["silent"] == 1
        assert b.counters()["pending_inbound"] == 0


@pytest.mark.parametrize("greet", [False, True])
async def test_garbage_is_counted_and_the_stream_closed(
    autojump_clock: MockClock, greet: bool
) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS), network.join(B, BOUNDS) as b:
        pipe = await network.connect(A, B)
        hello = framing.encode(
            Frame(
                FrameType.HELLO, payload=framing.encode_hello(Hello(bytes(16), b.hello.deployment))
            )
        )
        await pipe.send([hello] if greet else [])
        await pipe.send([random.Random(1).randbytes(1000)])
        received = b""
        while data := await pipe.receive():
            received += data
        frames = list(framing.FrameDecoder().feed(received))
        assert frames[-1].type is FrameType.GOODBYE
        assert frames[-1].status in (Status.MALFORMED, Status.TOO_LARGE)
        assert framing.decode_reason(frames[-1].payload).text
        assert b.counters().get("malformed", 0) + b.counters().get("oversize", 0) == 1
        assert b.connected() == ()


@pytest.mark.parametrize(
    "frame",
    [
        Frame(FrameType.HELLO, payload=bytes(48)),
        Frame(FrameType.OPEN, 2, LINE),
        Frame(FrameType.CREDIT, 1, mark=1 << 40),
        Frame(FrameType.DATA, 1, ECHO, mark=1, payload=b"wrong kind"),
        Frame(FrameType.OPEN, 1, LINE),
    ],
)
async def test_frames_no_honest_peer_sends(autojump_clock: MockClock, frame: Frame) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS), network.join(B, BOUNDS) as b:
        serve(b)
        pipe = await network.connect(A, B)
        hello = Frame(
            FrameType.HELLO, payload=framing.encode_hello(Hello(bytes(16), b.hello.deployment))
        )
        opening = Frame(FrameType.OPEN, 1, LINE)
        await pipe.send([framing.encode(f) for f in (hello, opening, frame)])
        while await pipe.receive():
            pass
        assert b.counters()["malformed"] == 1
        assert b.counters()["channels"] == 0


async def test_a_peer_that_asks_and_never_reads_is_dropped(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(capacity=20_000)
    async with network.join(A, BOUNDS), network.join(B, BOUNDS) as b:
        serve(b)
        pipe = await network.connect(A, B)
        hello = Frame(
            FrameType.HELLO, payload=framing.encode_hello(Hello(bytes(16), b.hello.deployment))
        )
        await pipe.send([framing.encode(hello)])

        async def flood() -> None:
            for number in range(1, 10**6):
                ask = Frame(FrameType.REQUEST, number, 99, budget_ms=1000)
                await pipe.send([framing.encode(ask)])

        with pytest.raises(trio.BrokenResourceError):
            await flood()
        assert b.counters()["unread_peers"] == 1
        assert b.connected() == ()


async def test_another_deployment_is_refused(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        network.join(A, BOUNDS, deployment=b"1" * 32) as a,
        network.join(B, BOUNDS, deployment=b"2" * 32) as b,
    ):
        serve(b)
        with pytest.raises(PeerUnreachable, match="deployment"):
            await a.request(B, ECHO, b"", deadline=1)
        assert a.connected() == b.connected() == ()


async def test_links_are_bounded(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        network.join(A, BOUNDS) as a,
        network.join(C, BOUNDS) as c,
        network.join(B, BOUNDS, limits=Limits(max_links=1)) as b,
    ):
        serve(b)
        await a.request(B, ECHO, b"", deadline=1)
        with pytest.raises(PeerUnreachable):
            await c.request(B, ECHO, b"", deadline=1)
        assert b.counters()["links_refused"] == 1
        assert await a.request(B, ECHO, b"", deadline=1)
        line = await a.open(B, LINE, deadline=1)
        await trio.sleep(60)
        with pytest.raises(PeerUnreachable):
            await c.request(B, ECHO, b"", deadline=1)
        # A link that is of no use to anybody makes room.
        line.close()
        await trio.sleep(31)
        assert await c.request(B, ECHO, b"", deadline=1)
        assert b.connected() == (C,)


async def test_strangers_make_way_and_partners_do_not(autojump_clock: MockClock) -> None:
    """A channel held open, or a request now and then, buys a stranger a minute and no more."""
    network = MemoryNetwork(line=LinkConditions(latency=0.01))
    async with (
        network.join(A, BOUNDS) as a,
        network.join(C, BOUNDS) as c,
        network.join(B, BOUNDS, limits=Limits(max_links=1)) as b,
    ):
        serve(b)
        standing = {A: Standing.STRANGER, C: Standing.KNOWN}
        b.standing = lambda peer: standing[peer]
        await a.open(B, LINE, deadline=1)
        assert await c.request(B, ECHO, b"", deadline=1)
        assert b.connected() == (C,)
        with pytest.raises(PeerUnreachable):
            await a.request(B, ECHO, b"", deadline=1)
        await trio.sleep(200)  # a stranger does not outlast who is known, however idle
        with pytest.raises(PeerUnreachable):
            await a.request(B, ECHO, b"", deadline=1)
        standing[C] = Standing.STRANGER
        line = await c.open(B, LINE, deadline=1)
        assert await a.request(B, ECHO, b"", deadline=1)
        assert b.connected() == (A,)
        with pytest.raises(PeerClosed):
            await line.receive()
        assert b.counters()["links_evicted"] == 2


# ---------------------------------------------------------------- lines that fail


async def test_a_frozen_peer_is_noticed_and_reached_again(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.01))
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        channel = await a.open(B, LINE, deadline=1)
        network.set_line(A, B, LinkConditions(blackhole=True))
        start = trio.current_time()
        with pytest.raises(PeerClosed, match="nothing heard"):
            await channel.receive()
        assert trio.current_time() - start < a.limits.dead_after + a.limits.ping_interval + 1
        with pytest.raises(PeerUnreachable):
            await a.request(B, ECHO, b"", deadline=1)
        network.set_line(A, B, LinkConditions(latency=0.01))
        assert await a.request(B, ECHO, b"", deadline=15) == A


async def test_a_killed_peer_is_reached_again(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.01))
    async with network.join(A, BOUNDS) as a:
        for life in range(5):
            with trio.CancelScope() as kill:
                async with network.join(B, BOUNDS) as b:
                    serve(b)
                    assert await a.request(B, ECHO, b"", deadline=5) == A
                    channel = await a.open(B, LINE, deadline=1)
                    kill.cancel()
                    await trio.lowlevel.checkpoint()
            with pytest.raises(PeerClosed):
                await channel.receive()
            assert a.counters()["links_made"] == life + 1
        await trio.sleep(1)
        with pytest.raises(PeerUnreachable):
            await a.request(B, ECHO, b"", deadline=1)


async def test_a_restart_unnoticed_by_the_line_is_noticed_by_the_boot_number(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(a)
        serve(b)
        old = await a.open(B, LINE, deadline=1)
        b.hello = Hello(b"another boot num", b.hello.deployment)
        # b dials anew, as its restarted self would; a still holds the old link.
        pipe = await network.connect(B, A)
        await pipe.send(
            [framing.encode(Frame(FrameType.HELLO, payload=framing.encode_hello(b.hello)))]
        )
        with pytest.raises(PeerClosed, match="restarted"):
            await old.receive()


async def test_dials_back_off_and_an_inbound_link_ends_the_wait(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS) as a:
        a.learn(B, [f"memory:0x{B.hex()}"])
        start = trio.current_time()
        for _ in range(8):
            with pytest.raises(PeerUnreachable):
                await a.request(B, ECHO, b"", deadline=60)
        waited = trio.current_time() - start
        assert 3 < waited < 40  # 0.1 + 0.2 + … capped at 5 s each, with jitter
        async with network.join(B, BOUNDS) as b:
            serve(b)
            serve(a)
            async with trio.open_nursery() as nursery:
                start = trio.current_time()
                nursery.start_soon(lambda: a.request(B, ECHO, b"", deadline=60))
                await b.request(A, ECHO, b"", deadline=1)
            assert trio.current_time() - start < 0.5


async def test_an_unknown_or_own_address_is_unreachable_at_once(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork(know_all=False)
    async with network.join(A, BOUNDS) as a:
        with pytest.raises(PeerUnreachable, match="no address"):
            await a.request(B, ECHO, b"", deadline=60)
        with pytest.raises(PeerUnreachable, match="itself"):
            await a.request(A, ECHO, b"", deadline=60)
        a.learn(B, [f"memory:0x{C.hex()}"])
        assert a.known_endpoints(B) == ()
        assert a.counters()["foreign_endpoints"] == 1


async def test_both_dial_at_once(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.05))
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(a)
        serve(b)

        async def many(me: MemoryTransport, other: bytes) -> None:
            for _ in range(20):
                assert await me.request(other, ECHO, b"x", deadline=2) == me.address + b"x"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(many, a, B)
            nursery.start_soon(many, b, A)
        assert 1 <= a.counters()["links"] <= 2


async def test_leaving_says_so_and_flushes(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.05))
    async with network.join(A, BOUNDS) as a:
        async with network.join(B, BOUNDS) as b:

            async def last_words(channel: Channel) -> None:
                await channel.send(b"last words")
                await trio.sleep_forever()

            b.serve_channel(LINE, last_words)
            channel = await a.open(B, LINE, deadline=1)
        assert await channel.receive() == b"last words"
        with pytest.raises(PeerClosed, match="leaving"):
            await channel.receive()


async def test_an_idle_link_is_closed(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        await a.request(B, ECHO, b"", deadline=1)
        await trio.sleep(a.limits.idle_after / 2)
        assert a.connected() == (B,)
        await trio.sleep(a.limits.idle_after)
        assert a.connected() == ()


# ---------------------------------------------------------------- cancellation


async def test_a_thousand_requests_with_cancellations(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.01, jitter=0.02))
    rng = random.Random(4)
    done = cancelled = 0

    async def one(a: MemoryTransport, number: int) -> None:
        nonlocal done, cancelled
        payload = number.to_bytes(4, "big") * rng.randint(1, 2000)
        patience = rng.choice([0.0, 0.01, 0.03, 0.05, math.inf])
        with trio.move_on_after(patience) as scope:
            assert await a.request(B, ECHO, payload, deadline=30) == A + payload
            done += 1
        cancelled += scope.cancelled_caught

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        for start in range(0, 1000, 50):
            async with trio.open_nursery() as nursery:
                for number in range(start, start + 50):
                    nursery.start_soon(one, a, number)
        assert done + cancelled == 1000
        assert done > 200
        assert cancelled > 200
        await trio.sleep(1)
        # Not one of them reached the stream: it is the same link, clean.
        assert a.counters()["links_made"] == 1
        assert b.counters()["inbound_bytes"] == 0
        link = a._links[B, True]
        assert not link._requests
        assert await a.request(B, ECHO, b"end", deadline=1) == A + b"end"


async def test_a_cancelled_open_leaves_no_channel(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(line=LinkConditions(latency=0.1))
    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        serve(b)
        await a.request(B, ECHO, b"", deadline=2)
        with trio.move_on_after(0.15):
            await a.open(B, LINE, deadline=5)
        await trio.sleep(1)
        assert a.counters()["channels"] == b.counters()["channels"] == 0
