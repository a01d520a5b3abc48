"""Typed requests and channels over the in-memory network."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from node.network import exchange
from node.network.codec import FieldError
from node.network.errors import PeerClosed, Refused
from node.network.exchange import MessageChannel
from node.network.memory import MemoryNetwork
from node.network.messages import (
    BOUNDS,
    Kind,
    Notice,
    Ping,
    Pong,
    RoundCommitted,
    VerdictRound,
    VoucherRequest,
    VoucherSignature,
)

A, B = b"a" * 20, b"b" * 20


async def test_a_question_and_its_answer(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def pong(peer: bytes, ping: Ping) -> Pong:
        assert peer == A
        return Pong(ping.nonce, 123)

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        exchange.serve(b, Kind.PING, pong)
        assert await exchange.ask(a, B, Kind.PING, Ping(7), deadline=1) == Pong(7, 123)
        with pytest.raises(TypeError, match="Ping"):
            await exchange.ask(a, B, Kind.PING, Pong(7, 1), deadline=1)


async def test_a_question_that_is_none_costs_the_link(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def sign(peer: bytes, ask: VoucherRequest) -> VoucherSignature:
        raise AssertionError("never called")

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        exchange.serve(b, Kind.VOUCHER, sign)
        with pytest.raises(PeerClosed, match="expected VoucherRequest"):
            await a.request(B, Kind.VOUCHER, Ping(1).encode(), deadline=1)
        assert b.counters()["malformed"] == 1


async def test_an_answer_that_is_none_costs_the_link(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def wrong(peer: bytes, payload: bytes) -> bytes:
        return b"\x02short"

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        b.serve(Kind.PING, wrong)
        with pytest.raises(FieldError, match=r"Pong\.nonce"):
            await exchange.ask(a, B, Kind.PING, Ping(7), deadline=1)
        assert a.connected() == () or not a._live(B)


async def test_a_handler_that_answers_with_another_message_fails(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()

    async def confused(peer: bytes, ping: Ping) -> Ping:
        return ping

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        exchange.serve(b, Kind.PING, confused)
        with pytest.raises(Refused, match="handler failed"):
            await exchange.ask(a, B, Kind.PING, Ping(7), deadline=1)


async def test_a_line_of_messages(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def verify(channel: MessageChannel) -> None:
        while True:
            got = await channel.receive()
            assert isinstance(got, VerdictRound)
            await channel.send(VerdictRound(got.frame[::-1]))

    async with network.join(A, BOUNDS) as a, network.join(B, BOUNDS) as b:
        exchange.serve_channel(b, Kind.SESSION, verify)
        line = await exchange.open_channel(a, B, Kind.SESSION, deadline=1)
        await line.send(VerdictRound(b"abc"))
        assert await line.receive() == VerdictRound(b"cba")
        with pytest.raises(TypeError, match="RoundCommitted"):
            await line.send(RoundCommitted(bytes(32), 0, b""))
        # Bytes that are no message of this kind end the channel, and only the channel.
        await line.channel.send(Ping(1).encode())
        with pytest.raises(PeerClosed, match="expected DraftRound"):
            await line.receive()
        assert b.counters()["malformed"] == 1
        again = await exchange.open_channel(a, B, Kind.SESSION, deadline=1)
        await again.send(Notice(bytes(32), 1, "bye"))
        assert a.counters()["links_made"] == 1
