"""The real transport: libp2p's connection stack over TCP, with our link as its only muxer.

A connection is TCP, then multistream-select of `/noise`, the Noise XX handshake that proves both
peer ids, then multistream-select of `LINK_PROTOCOL` in the place where libp2p negotiates a stream
muxer. What libp2p 0.8.1 offers above that (swarm, yamux, host) is left out on purpose:

- multistream-select reads messages of any announced length and yamux only warns when a peer
  exceeds its window, so either lets a stranger fill this node's memory. Here every byte before
  the link counts against `_UPGRADE_BUDGET`, and behind it only `framing` buffers, with bounds.
- yamux connections are poisoned by a cancelled write and block after 256 streams; the link is one
  stream with one writer.
- the swarm remembers failed dials for a minute, counts every inbound connection ever made against
  its cap, offers plaintext and secio by default, and binds its port so that a second daemon can
  bind it too. Here dials back off by seconds, only Noise exists, and the port is exclusive.

Streams that end, reset or break look alike: `receive` returns no bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from coincurve import PrivateKey
from libp2p.abc import ISecureConn
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.protocol_muxer.multiselect import Multiselect
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_PROTOCOL
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.security.security_multistream import SecurityMultistream

from node.network.crowding import is_this_machine, site_of
from node.network.identity import (
    Endpoint,
    address_of_endpoint,
    address_of_peer_id,
    parse_endpoint,
    peer_id_of_key,
)
from node.network.latency import DelayedPipe
from node.network.switchboard import Switchboard
from node.network.transport import Limits, SizeBounds
from settlement.signing import address_of_key

LINK_PROTOCOL = TProtocol("/verdraft/link/1")

# Inbound bytes allowed before the link is up. An honest upgrade takes under 700.
_UPGRADE_BUDGET = 4096
_READ_SIZE = 64 * 1024


class ListenError(Exception):
    """The node cannot listen where it was told to."""


class _BoundedStream(ReadWriteCloser):
    """A TCP stream that counts what it reads until the upgrade is done."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""
        self._budget: int | None = _UPGRADE_BUDGET

    def upgraded(self) -> None:
        self._budget = None

    async def read(self, n: int | None = None) -> bytes:
        if not self._buffer:
            ask = _READ_SIZE if self._budget is None else min(self._budget, _READ_SIZE)
            if ask == 0:
                raise ConnectionClosedError("too many bytes before the handshake was over")
            try:
                self._buffer = await self.stream.receive_some(ask)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionClosedError("the connection broke") from error
            if self._budget is not None:
                self._budget -= len(self._buffer)
        if n is None or n >= len(self._buffer):
            data, self._buffer = self._buffer, b""
        else:
            data, self._buffer = self._buffer[:n], self._buffer[n:]
        return data

    async def write(self, data: bytes) -> None:
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError("the connection broke") from error

    async def close(self) -> None:
        await trio.aclose_forcefully(self.stream)

    def get_remote_address(self) -> tuple[str, int] | None:
        return None


class _SecurePipe:
    """`link.Pipe` over a Noise session."""

    def __init__(self, session: ISecureConn, stream: _BoundedStream) -> None:
        self._session = session
        self._stream = stream

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._session.write(b"".join(frames))

    async def receive(self) -> bytes:
        try:
            return await self._session.read()
        except Exception:
            # End, reset and a Noise message that does not decrypt: the line is gone.
            return b""

    async def abort(self) -> None:
        with trio.CancelScope(shield=True):
            await self._stream.close()


class Libp2pTransport(Switchboard):
    """`transport.Transport` over TCP and Noise. Made by `open_libp2p_transport`."""

    def __init__(self, private_key: bytes, **options: Any) -> None:
        super().__init__(address_of_key(private_key), **options)
        keys = create_new_key_pair(PrivateKey(private_key).secret)
        self._peer_id = peer_id_of_key(private_key)
        # Noise and nothing else: with the library's default set a peer id can be impersonated.
        noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
        self._security = SecurityMultistream({NOISE_PROTOCOL: noise})
        self._select = MultiselectClient()
        self._answer_select = Multiselect({LINK_PROTOCOL: None})
        self._endpoints: tuple[str, ...] = ()
        self._handshakes: Counter[str] = Counter()

    @property
    def peer_id(self) -> str:
        return self._peer_id

    def endpoints(self) -> tuple[str, ...]:
        return self._endpoints

    def _endpoint_fits(self, peer: bytes, endpoint: str) -> bool:
        try:
            return address_of_endpoint(endpoint) == peer
        except ValueError:
            return False

    async def bind(
        self, where: Sequence[str], announce: Sequence[str]
    ) -> list[trio.SocketListener]:
        """Binds every address in `where`, or none. Raises ListenError."""
        listeners: list[trio.SocketListener] = []
        bound: list[str] = []
        for text in where:
            try:
                wanted = parse_endpoint(text)
                opened = await trio.open_tcp_listeners(wanted.port, host=wanted.host)
            except (OSError, ValueError) as error:
                for listener in listeners:
                    await trio.aclose_forcefully(listener)
                raise ListenError(
                    f"cannot listen on {text}: {error}; is another daemon running there?"
                ) from error
            listeners += opened
            for listener in opened:
                port = listener.socket.getsockname()[1]
                bound.append(str(Endpoint(wanted.protocol, wanted.host, port, self._peer_id)))
        self._endpoints = tuple(announce) or tuple(
            e for e in bound if parse_endpoint(e).host not in ("0.0.0.0", "::")
        )
        return listeners

    # Connections.

    async def _dial(self, peer: bytes) -> _SecurePipe | DelayedPipe:
        failures = []
        for text in self.known_endpoints(peer):
            endpoint = parse_endpoint(text)
            try:
                return await self._dial_one(endpoint)
            except Exception as error:
                failures.append(f"{text}: {_first_line(error)}")
        raise OSError("; ".join(failures) or "no endpoint")

    def _slowed(self, pipe: _SecurePipe) -> _SecurePipe | DelayedPipe:
        """The pipe, behind the delay that this node was told to add."""
        return DelayedPipe(pipe, self.delay, self.spawn) if self.delay > 0 else pipe

    async def probe(self, text: str) -> None:
        """Dials an endpoint as far as the Noise handshake and hangs up. Raises OSError or
        ValueError when that fails."""
        try:
            pipe = await self._dial_one(parse_endpoint(text))
        except (OSError, ValueError):
            raise
        except Exception as error:
            # The library's own kinds: for a probe they all say that nobody fitting answers there.
            raise OSError(_first_line(error)) from error
        await pipe.abort()

    async def _dial_one(self, endpoint: Endpoint) -> _SecurePipe | DelayedPipe:
        socket = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        stream = _BoundedStream(socket)
        try:
            with trio.fail_after(self.limits.handshake_timeout):
                expected = ID.from_base58(endpoint.peer_id)
                session = await self._security.secure_outbound(
                    RawConnection(stream, True), expected
                )
                # INVARIANT: the peer behind a dialled link is the one that was asked for.
                if session.get_remote_peer() != expected:
                    raise OSError(f"answered as {session.get_remote_peer()}")
                await self._select.select_one_of(
                    [LINK_PROTOCOL],
                    MultiselectCommunicator(session),
                    _whole_seconds(self.limits.handshake_timeout),
                )
        except BaseException:
            with trio.CancelScope(shield=True):
                await stream.close()
            raise
        stream.upgraded()
        return self._slowed(_SecurePipe(session, stream))

    async def inbound(self, socket: trio.SocketStream) -> None:
        """Runs one accepted connection until it ends."""
        address = _host_of(socket)
        host = site_of(address)
        open_handshakes = self._handshakes.total()
        if (
            open_handshakes >= self.limits.pending_links
            or self._handshakes[host] >= self.limits.pending_per_host
        ):
            self.count("connections_refused")
            await trio.aclose_forcefully(socket)
            return
        stream = _BoundedStream(socket)
        self._handshakes[host] += 1
        try:
            upgraded = await self._upgrade_inbound(stream)
        finally:
            self._handshakes[host] -= 1
            if not self._handshakes[host]:
                del self._handshakes[host]
        if upgraded is not None:
            await self.accept(*upgraded, "" if is_this_machine(address) else host)

    async def _upgrade_inbound(
        self, stream: _BoundedStream
    ) -> tuple[_SecurePipe | DelayedPipe, bytes] | None:
        """Pipe and operator address; None, with the connection closed, for anybody else."""
        limit = self.limits.handshake_timeout
        done = False
        try:
            with trio.move_on_after(limit) as scope:
                session = await self._security.secure_inbound(RawConnection(stream, False))
                remote = address_of_peer_id(session.get_remote_peer().to_bytes())
                await self._answer_select.negotiate(
                    MultiselectCommunicator(session), _whole_seconds(limit)
                )
                done = True
            if scope.cancelled_caught:
                self.count("silent")
        except Exception as error:
            # Port scanners, other protocols, garbage, keys of another kind: all the same here.
            self.count("handshakes_failed")
            self.log("handshake_failed", reason=_first_line(error))
        finally:
            if not done:
                with trio.CancelScope(shield=True):
                    await stream.close()
        if not done:
            return None
        stream.upgraded()
        return self._slowed(_SecurePipe(session, stream)), remote


def _whole_seconds(seconds: float) -> int:
    return max(1, round(seconds))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _host_of(socket: trio.SocketStream) -> str:
    try:
        return str(socket.socket.getpeername()[0])
    except OSError:  # Reset before it was accepted.
        return ""


@asynccontextmanager
async def open_libp2p_transport(
    private_key: bytes,
    listen: Sequence[str],
    bounds: Mapping[int, SizeBounds],
    *,
    announce: Sequence[str] = (),
    deployment: bytes = bytes(32),
    limits: Limits | None = None,
    rng: random.Random | None = None,
    delay: float = 0.0,
) -> AsyncIterator[Libp2pTransport]:
    """A running transport; leaving the block says goodbye to every peer.

    Args:
        private_key: the operator's 32-byte secp256k1 key.
        listen: multiaddrs such as `/ip4/0.0.0.0/tcp/4001`; port 0 takes a free one; empty for a
            node that only dials.
        bounds: size bounds per message kind (`messages.BOUNDS`).
        announce: multiaddrs with /p2p/ under which others reach this node, when they differ from
            the bound ones (wildcard addresses are never announced).
        deployment: 32 bytes naming chain and contracts; peers of another are refused.
        delay: seconds added to every message that arrives, for trials of a far network.

    Raises:
        ListenError: an address is taken or cannot be bound.
        ValueError: an announced endpoint does not name this node.
    """
    transport = Libp2pTransport(
        private_key, bounds=bounds, deployment=deployment, limits=limits, rng=rng
    )
    transport.delay = delay
    for text in announce:
        if address_of_endpoint(text) != transport.address:
            raise ValueError(f"the announced endpoint names another node: {text}")
    # Before the nursery, which would wrap the error in a group.
    listeners = await transport.bind(listen, announce)
    async with trio.open_nursery() as nursery:
        transport.start(nursery)
        if listeners:
            nursery.start_soon(partial(trio.serve_listeners, transport.inbound, listeners))
        try:
            yield transport
            transport.stop_links("leaving")
            await transport.wait_links_gone(1.0)
        finally:
            nursery.cancel_scope.cancel()


async def check_listen(listen: Sequence[str]) -> None:
    """Whether the addresses are free now, for a check before the daemon starts.

    Raises:
        ListenError: one is not; it is named.
    """
    for text in listen:
        try:
            endpoint = parse_endpoint(text)
            for listener in await trio.open_tcp_listeners(endpoint.port, host=endpoint.host):
                await listener.aclose()
        except (OSError, ValueError) as error:
            raise ListenError(f"cannot listen on {text}: {error}") from error
