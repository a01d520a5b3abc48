"""What roles see of the network: peers by operator address, requests, and message channels.

A role is written against `Transport` and `Channel` and never against libp2p. Two transports exist:
`libp2p_transport.Libp2pTransport` and, for tests, `memory.MemoryTransport` with seeded faults.
Both run the same link code (`link.py`, `switchboard.py`); only the bytes' way differs.

    async with open_libp2p_transport(...) as transport:           # or network.join(address)
        transport.serve(Kind.RECORDS, answer_records)             # request in, response out
        transport.serve_channel(Kind.SESSION, draft_session)      # one task per channel
        reply = await transport.request(verifier, Kind.ORDER, payload, deadline=2.0)
        channel = await transport.open(verifier, Kind.SESSION, deadline=2.0)
        await channel.send(b"...")
        message = await channel.receive()
        channel.close("done")

Who is who. A peer is named by its 20-byte operator address. The transport authenticates it: the
libp2p identity *is* the operator's secp256k1 key, so the `peer` that a handler is given is the
account that signs that peer's records. A handler never has to ask who sends.

Delivery. Inside one channel messages arrive in order, or the channel ends; nothing is silently
lost on the real transport. The in-memory one may lose, repeat, reorder or truncate messages when
told to. A role that is correct there needs nothing from the real one: treat every message as
possibly repeated or stale, set a deadline on every wait (`trio.fail_after` around `receive`), and
resume from committed state after `PeerClosed`. A request that failed with `DeadlineExceeded` or
`PeerClosed` may have been carried out: requests must be idempotent, and then simply repeated.

Time. `deadline` is in seconds from now, on trio's clock. It covers dialling, queueing and the
answer, travels with the request, and cancels the peer's handler when it runs out, so handlers must
survive cancellation at any await (as they must survive a kill).

Cancellation. Cancelling any call here is safe: no caller ever writes to a socket itself.

Back-pressure. `Channel.send` waits when the peer's reader is `Limits.channel_window` behind; a
slow reader stalls its own channel and nothing else. Too many requests at once get `Busy`.

Handlers. A request handler returns response bytes, or raises `Refused` (or `Busy`) to say no with
a code, a reason and a time to retry. A `MalformedFrame` out of a handler (say from decoding the
payload) is counted, told to the peer and ends the link. Any other exception is logged and counted,
and the peer learns only that the request failed: one peer's input never ends the process.
When a channel handler returns or raises, its channel is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

RequestHandler = Callable[[bytes, bytes], Awaitable[bytes]]
"""`async (peer, payload) -> response`; `peer` is the authenticated 20-byte operator address."""

ChannelHandler = Callable[["Channel"], Awaitable[None]]
"""`async (channel) -> None`, one task per channel that a peer opened; `channel.peer` is who."""


class Channel(Protocol):
    """A long-lived, bidirectional, ordered line of messages with one peer."""

    @property
    def peer(self) -> bytes:
        """Operator address of the other end (20 bytes, authenticated)."""
        ...

    @property
    def kind(self) -> int:
        """The kind under which it was opened."""
        ...

    async def send(self, message: bytes) -> None:
        """Hands one message to the link; returns when it is queued, not when it is read.

        Waits while the peer's window is full.

        Raises:
            FrameTooLarge: over the bound of the channel's kind; nothing was sent.
            PeerClosed: the channel or its link has ended.
        """
        ...

    async def receive(self) -> bytes:
        """The next message. One task at a time.

        Messages that arrived before the end are still delivered.

        Raises:
            PeerClosed: the channel or its link has ended.
        """
        ...

    def close(self, reason: str = "") -> None:
        """Ends the channel on both sides; never waits, may be repeated."""
        ...

    def fail(self, reason: str) -> None:
        """Ends the channel because the peer sent what the protocol forbids; it is counted."""
        ...


class Transport(Protocol):
    """One node's end of the network."""

    @property
    def address(self) -> bytes:
        """This node's operator address (20 bytes)."""
        ...

    @property
    def peer_id(self) -> str:
        """This node's name in the transport's own notation (libp2p: base58 peer id)."""
        ...

    def endpoints(self) -> tuple[str, ...]:
        """Where this node can be dialled, to be announced (libp2p: multiaddrs with /p2p/)."""
        ...

    def learn(self, peer: bytes, endpoints: Sequence[str]) -> None:
        """Remembers where `peer` can be dialled, replacing what was known; endpoints that name
        another peer are dropped and counted."""
        ...

    def connected(self) -> tuple[bytes, ...]:
        """Addresses of the peers with a live link now."""
        ...

    def round_trip(self, peer: bytes) -> float | None:
        """Smoothed measured round trip in seconds; None while unknown (never guessed)."""
        ...

    def serve(self, kind: int, handler: RequestHandler) -> None:
        """Answers requests of `kind`. Raises ValueError if that kind is served already."""
        ...

    def serve_channel(self, kind: int, handler: ChannelHandler) -> None:
        """Accepts channels of `kind`. Raises ValueError if that kind is served already."""
        ...

    async def request(self, peer: bytes, kind: int, payload: bytes, *, deadline: float) -> bytes:
        """Asks `peer` and returns its response; dials first if no link is up.

        Raises:
            PeerUnreachable: no link could be made.
            DeadlineExceeded: no answer within `deadline` seconds.
            PeerClosed: the link ended before the answer.
            Busy: the peer is at a limit. Refused: it said no for another reason.
            FrameTooLarge: `payload` is over the bound of `kind`; nothing was sent.
        """
        ...

    async def open(self, peer: bytes, kind: int, *, deadline: float) -> Channel:
        """Opens a channel and returns when the peer accepted it. Raises as `request`."""
        ...

    def disconnect(self, peer: bytes, reason: str) -> None:
        """Ends every link with `peer`, telling it why; a later request dials anew."""
        ...

    def counters(self) -> Mapping[str, int]:
        """What happened so far, for metrics: malformed, oversize, refused, dropped, and so on."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one node. Sizes in bytes, times in seconds.

    Memory that peers can make this node hold is at most `max_inbound` for requests, plus for each
    of `max_links` links one frame being read, `channels_per_peer` windows and one outbound queue.
    At `max_links`, and at `links_per_host` of one host (loopback apart), `crowding` says who makes
    room: strangers after `stranger_seconds`, and what nobody has used for `evict_after`.
    """

    max_links: int = 256
    links_per_host: int = 32
    pending_links: int = 64
    pending_per_host: int = 32
    requests_per_peer: int = 64
    channels_per_peer: int = 32
    inbound_per_peer: int = 8 * 1024 * 1024
    max_inbound: int = 64 * 1024 * 1024
    channel_window: int = 256 * 1024
    outbound_queue: int = 1024 * 1024
    control_queue: int = 256
    handshake_timeout: float = 5.0
    write_timeout: float = 20.0
    ping_interval: float = 5.0
    dead_after: float = 15.0
    idle_after: float = 600.0
    evict_after: float = 30.0
    stranger_seconds: float = 60.0
    dial_timeout: float = 5.0
    backoff_first: float = 0.1
    backoff_most: float = 5.0
    endpoints_per_peer: int = 8
    known_peers: int = 4096


@dataclass(frozen=True, slots=True)
class SizeBounds:
    """Bounds on the payload of one kind: a request or channel message, and a response."""

    message: int
    response: int = 0
