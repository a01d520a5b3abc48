"""Messages over a transport: requests and channels that carry values instead of bytes.

What does not decode is the peer's fault: the channel or link it came on is closed with the
reason, it is counted, and the caller sees `MalformedFrame`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from node.network.codec import Message, decode
from node.network.errors import MalformedFrame
from node.network.messages import EXCHANGES, LINES, Kind
from node.network.transport import Channel, Transport

M = TypeVar("M", bound=Message)


async def ask(
    transport: Transport, peer: bytes, kind: Kind, message: Message, *, deadline: float
) -> Message:
    """Sends the request of `kind` and returns its decoded answer.

    Raises as `Transport.request`, and MalformedFrame for an answer that is none; the link to such
    a peer is closed.
    """
    question, answer = EXCHANGES[kind]
    if type(message) is not question:
        raise TypeError(f"{kind.name} is asked with {question.__name__}, not {message!r:.80}")
    raw = await transport.request(peer, kind, message.encode(), deadline=deadline)
    try:
        return decode(raw, answer)
    except MalformedFrame as error:
        transport.disconnect(peer, error.reason)
        raise


def serve(
    transport: Transport, kind: Kind, handler: Callable[[bytes, M], Awaitable[Message]]
) -> None:
    """Answers `kind` with `async handler(peer, message) -> message`."""
    question, answer = EXCHANGES[kind]

    async def handle(peer: bytes, payload: bytes) -> bytes:
        reply = await handler(peer, decode(payload, question))  # type: ignore[arg-type]
        if type(reply) is not answer:
            raise TypeError(f"{kind.name} is answered with {answer.__name__}, not {reply!r:.80}")
        return reply.encode()

    transport.serve(kind, handle)


class MessageChannel:
    """A `Channel` of one kind's messages."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._kinds = LINES[Kind(channel.kind)]

    @property
    def peer(self) -> bytes:
        return self.channel.peer

    async def send(self, message: Message) -> None:
        """Raises TypeError for a message that this kind of channel does not carry."""
        if type(message) not in self._kinds:
            raise TypeError(f"{type(message).__name__} does not travel on this channel")
        await self.channel.send(message.encode())

    async def receive(self) -> Message:
        """The next message. Raises MalformedFrame, after closing the channel, if it is none."""
        raw = await self.channel.receive()
        try:
            return decode(raw, *self._kinds)
        except MalformedFrame as error:
            self.channel.fail(error.reason)
            raise

    def close(self, reason: str = "") -> None:
        self.channel.close(reason)


async def open_channel(
    transport: Transport, peer: bytes, kind: Kind, *, deadline: float
) -> MessageChannel:
    """Opens a channel of `kind`. Raises as `Transport.open`."""
    return MessageChannel(await transport.open(peer, kind, deadline=deadline))


def serve_channel(
    transport: Transport, kind: Kind, handler: Callable[[MessageChannel], Awaitable[None]]
) -> None:
    """Runs `async handler(channel)` for every channel of `kind` that a peer opens."""

    async def handle(channel: Channel) -> None:
        await handler(MessageChannel(channel))

    transport.serve_channel(kind, handle)
