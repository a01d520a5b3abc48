"""The part of a transport that is the same over any bytes: links, handlers, limits, counters.

A switchboard keeps at most one link per peer and dialling side, dials when a caller needs a peer
that has none, spaces failed dials by a growing pause, runs handlers where no exception of theirs
reaches anybody else, and counts. A concrete transport adds how to dial (`_dial`), which endpoints
it can dial (`_endpoint_fits`) and hands inbound streams to `accept`.
"""

from __future__ import annotations

import abc
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
import trio

from node.network import framing
from node.network.channel import LinkChannel
from node.network.crowding import Held, NoRoom, Standing, make_way
from node.network.errors import MalformedFrame, NetworkError, PeerUnreachable, Refused
from node.network.framing import FrameType, Hello, Reason, Status
from node.network.link import PeerLink, Pipe
from node.network.transport import ChannelHandler, Limits, RequestHandler, SizeBounds


@dataclass
class _Dial:
    """One dial in progress, which any number of callers wait for."""

    done: trio.Event = field(default_factory=trio.Event)
    link: PeerLink | None = None
    failure: str = ""


@dataclass
class _Pause:
    """How long a peer that could not be reached is left alone."""

    until: float
    length: float


class Switchboard(abc.ABC):
    """See module. Implements `transport.Transport` except `peer_id` and `endpoints`.

    Args:
        address: this node's 20-byte operator address.
        bounds: size bounds per message kind; a kind that is not listed can hold nothing, so its
            messages are refused by size before they are buffered.
        deployment: 32 bytes naming chain and contracts; peers of another are refused.
        rng: source of the boot number and of jitter.

    `standing` may be set to what says who a peer is to this node, for when links run short.
    """

    def __init__(
        self,
        address: bytes,
        *,
        bounds: Mapping[int, SizeBounds],
        deployment: bytes = bytes(32),
        limits: Limits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if len(address) != 20:
            raise ValueError(f"an operator address is 20 bytes, got {len(address)}")
        self._address = address
        self.limits = limits or Limits()
        self._bounds = dict(bounds)
        self._rng = rng or random.SystemRandom()
        self.hello = Hello(self._rng.randbytes(16), deployment)
        self._requests: dict[int, RequestHandler] = {}
        self._channels: dict[int, ChannelHandler] = {}
        self._links: dict[tuple[bytes, bool], PeerLink] = {}
        self._dials: dict[bytes, _Dial] = {}
        self._pauses: OrderedDict[bytes, _Pause] = OrderedDict()
        self._known: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()
        self._round_trips: OrderedDict[bytes, float] = OrderedDict()
        self._pending_inbound: Counter[str] = Counter()  # by host
        self.standing: Callable[[bytes], Standing] = lambda peer: Standing.KNOWN
        self._inbound_bytes = 0
        self._counters: Counter[str] = Counter()
        self._logger = structlog.get_logger("network")
        self._nursery: trio.Nursery | None = None

    # What a concrete transport adds.

    @abc.abstractmethod
    async def _dial(self, peer: bytes) -> Pipe:
        """A pipe to `peer`, authenticated. Raises any Exception when there is none."""

    @abc.abstractmethod
    def _endpoint_fits(self, peer: bytes, endpoint: str) -> bool: ...

    # transport.Transport

    @property
    def address(self) -> bytes:
        return self._address

    def learn(self, peer: bytes, endpoints: Sequence[str]) -> None:
        if peer == self._address:
            return
        fit = [e for e in endpoints if self._endpoint_fits(peer, e)]
        if len(fit) < len(endpoints):
            self.count("foreign_endpoints", len(endpoints) - len(fit))
        if not fit:
            return
        kept = tuple(fit[: self.limits.endpoints_per_peer])
        if self._known.get(peer) != kept:
            self._pauses.pop(peer, None)  # A peer that moved deserves a fresh try.
        self._known[peer] = kept
        _trim(self._known, peer, self.limits.known_peers)

    def known_endpoints(self, peer: bytes) -> tuple[str, ...]:
        """Where `peer` is dialled; empty if unknown."""
        return self._known.get(peer, ())

    def connected(self) -> tuple[bytes, ...]:
        return tuple({peer: None for peer, _ in self._links})

    def round_trip(self, peer: bytes) -> float | None:
        link = self._live(peer)
        if link is not None and link.rtt is not None:
            return link.rtt
        return self._round_trips.get(peer)

    def serve(self, kind: int, handler: RequestHandler) -> None:
        if kind in self._requests:
            raise ValueError(f"requests of kind {kind} are served already")
        self._requests[kind] = handler

    def serve_channel(self, kind: int, handler: ChannelHandler) -> None:
        if kind in self._channels:
            raise ValueError(f"channels of kind {kind} are served already")
        self._channels[kind] = handler

    async def request(self, peer: bytes, kind: int, payload: bytes, *, deadline: float) -> bytes:
        give_up = trio.current_time() + deadline
        link = await self._reach(peer, deadline)
        return await link.request(kind, payload, max(0.0, give_up - trio.current_time()))

    async def open(self, peer: bytes, kind: int, *, deadline: float) -> LinkChannel:
        give_up = trio.current_time() + deadline
        link = await self._reach(peer, deadline)
        return await link.open(kind, max(0.0, give_up - trio.current_time()))

    def disconnect(self, peer: bytes, reason: str) -> None:
        for initiator in (True, False):
            if (link := self._links.get((peer, initiator))) is not None:
                link.stop(reason)

    def counters(self) -> Mapping[str, int]:
        return {
            **self._counters,
            "links": len(self._links),
            "pending_inbound": self._pending_inbound.total(),
            "inbound_bytes": self._inbound_bytes,
            "channels": sum(len(link.channels) for link in self._links.values()),
        }

    # Links.

    def start(self, nursery: trio.Nursery) -> None:
        """Links and handlers run in `nursery` from here on; cancelling it ends them all."""
        self._nursery = nursery

    def stop_links(self, reason: str) -> None:
        """Says goodbye on every link."""
        for link in list(self._links.values()):
            link.stop(reason)

    async def wait_links_gone(self, timeout: float) -> None:
        """Waits, at most `timeout` seconds, until the goodbyes are written."""
        with trio.move_on_after(timeout):
            while self._links:
                await trio.sleep(0.01)

    async def accept(self, pipe: Pipe, remote: bytes, host: str = "") -> None:
        """Runs an inbound link until it ends. The caller has authenticated `remote`; `host` is what
        counts as one host, empty if nothing does."""
        pending = self._pending_inbound.total() >= self.limits.pending_links
        if host:
            pending = pending or self._pending_inbound[host] >= self.limits.pending_per_host
        if pending or not self._has_room(remote, host):
            self.count("links_refused")
            await pipe.abort()
            return
        link = PeerLink(self, pipe, remote, initiator=False, host=host)
        self._pending_inbound[host] += 1
        pending = True

        def no_longer_pending() -> None:
            nonlocal pending
            if pending:
                pending = False
                self._pending_inbound[host] -= 1
                if not self._pending_inbound[host]:
                    del self._pending_inbound[host]

        def ready(link: PeerLink) -> None:
            no_longer_pending()
            self._admit(link)

        try:
            await link.run(ready)
        finally:
            no_longer_pending()
            self._dismiss(link)

    def _has_room(self, remote: bytes, host: str) -> bool:
        """Makes room for one more inbound link, if somebody has to make way for it."""
        if self._live(remote) is not None:  # it takes the place of the one before
            return True
        now = trio.current_time()
        links = [link for link in self._links.values() if link.closing is None]
        held = [
            Held(
                link.remote,
                link.host,
                self.standing(link.remote),
                now - link.since,
                link.idle_for(now),
            )
            for link in links
        ]
        try:
            going = make_way(held, host, self.standing(remote), self.limits)
        except NoRoom:
            return False
        if going is not None:
            self.count("links_evicted")
            at = next(place for place, one in enumerate(held) if one is going)
            links[at].stop("room is needed for others")
        return True

    def _live(self, peer: bytes) -> PeerLink | None:
        for initiator in (True, False):
            link = self._links.get((peer, initiator))
            if link is not None and link.alive:
                return link
        return None

    def _admit(self, link: PeerLink) -> None:
        self.count("links_made")
        for initiator in (True, False):
            other = self._links.get((link.remote, initiator))
            if other is None:
                continue
            if initiator == link.initiator:
                other.stop("replaced by a newer link")
            elif other.boot != link.boot:
                # INVARIANT: no request waits on a link to a process that is gone.
                other.stop("the peer restarted")
        self._links[link.remote, link.initiator] = link
        self._pauses.pop(link.remote, None)
        dial = self._dials.get(link.remote)
        if dial is not None and dial.link is None:
            dial.link = link
            dial.done.set()

    def _dismiss(self, link: PeerLink) -> None:
        key = (link.remote, link.initiator)
        if self._links.get(key) is link:
            del self._links[key]
        if link.rtt is not None:
            self._round_trips[link.remote] = link.rtt
            _trim(self._round_trips, link.remote, self.limits.known_peers)
        self.log("link_ended", peer=link.remote, reason=link.closing)

    async def _reach(self, peer: bytes, deadline: float) -> PeerLink:
        """A live link, dialled if need be. The dial outlives a cancelled caller."""
        if peer == self._address:
            raise PeerUnreachable(peer, "it is this node itself")
        if (link := self._live(peer)) is not None:
            return link
        if self._nursery is None:
            raise RuntimeError("the transport is not running")
        failure = ""
        with trio.move_on_after(deadline):
            # A dial found under way may have begun on a line that has healed since: try once more.
            for _ in range(2):
                joined = peer in self._dials
                dial = self._dials.get(peer) or self._start_dial(peer)
                await dial.done.wait()
                if dial.link is not None:
                    return dial.link
                failure = dial.failure
                if not joined:
                    break
        raise PeerUnreachable(peer, failure or f"no link within {deadline:.3f} s")

    def _start_dial(self, peer: bytes) -> _Dial:
        assert self._nursery is not None
        dial = self._dials[peer] = _Dial()
        self._nursery.start_soon(self._make_link, peer, dial)
        return dial

    async def _make_link(self, peer: bytes, dial: _Dial) -> None:
        link: PeerLink | None = None
        try:
            pause = self._pauses.get(peer)
            if pause is not None:
                # An inbound link from the peer ends the wait early.
                with trio.move_on_at(pause.until):
                    await dial.done.wait()
                if dial.link is not None:
                    return
            if not self._known.get(peer):
                dial.failure = "no address of it is known"
                return
            with trio.move_on_after(self.limits.dial_timeout):
                pipe = await self._dial(peer)
                link = PeerLink(self, pipe, peer, initiator=True)
            if link is None:
                dial.failure = f"no connection within {self.limits.dial_timeout} s"
                return
        except Exception as error:
            dial.failure = f"{type(error).__name__}: {error}"
        finally:
            if link is None:
                self._dial_ended(peer, dial)
        if link is None:
            return

        def ready(link: PeerLink) -> None:
            self._admit(link)
            self._dial_ended(peer, dial)

        try:
            await link.run(ready)
        finally:
            if self._dials.get(peer) is dial:
                dial.failure = link.closing or "the link ended"
                self._dial_ended(peer, dial)
            self._dismiss(link)

    def _dial_ended(self, peer: bytes, dial: _Dial) -> None:
        if self._dials.get(peer) is dial:
            del self._dials[peer]
        if dial.link is None:
            self.count("dials_failed")
            before = self._pauses.get(peer)
            length = self.limits.backoff_first
            if before is not None:
                length = min(before.length * 2, self.limits.backoff_most)
            # Jitter keeps nodes that lost the same peer from returning in step.
            wait = length * (0.5 + self._rng.random())
            self._pauses[peer] = _Pause(trio.current_time() + wait, length)
            _trim(self._pauses, peer, self.limits.known_peers)
        dial.done.set()

    # What links ask of their board.

    def payload_cap(self, frame_type: FrameType, kind: int) -> int:
        if frame_type not in framing.CARRIERS:
            return framing.MAX_PAYLOAD
        bounds = self._bounds.get(kind)
        if frame_type is FrameType.RESPONSE:
            # A refusal must fit whatever the kind, known or not.
            floor = framing.MAX_REASON + 4
            return max(floor, bounds.response if bounds else 0)
        return bounds.message if bounds else 0

    def request_handler(self, kind: int) -> RequestHandler | None:
        return self._requests.get(kind)

    def channel_handler(self, kind: int) -> ChannelHandler | None:
        return self._channels.get(kind)

    def reserve_inbound(self, size: int) -> bool:
        if self._inbound_bytes + size > self.limits.max_inbound:
            return False
        self._inbound_bytes += size
        return True

    def release_inbound(self, size: int) -> None:
        self._inbound_bytes -= size

    def count(self, what: str, by: int = 1) -> None:
        self._counters[what] += by

    def log(self, event: str, **fields: Any) -> None:
        shown = {k: f"0x{v.hex()}" if isinstance(v, bytes) else v for k, v in fields.items()}
        self._logger.debug(event, **shown)

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        # Not in the link's own nursery: the end of a link must not cut a handler in the middle.
        assert self._nursery is not None, "links run only while the board does"
        self._nursery.start_soon(task, *args)

    async def call_handler(
        self, handler: RequestHandler, link: PeerLink, payload: bytes, budget_ms: int
    ) -> tuple[int, bytes]:
        """Runs a request handler; its status and payload for the RESPONSE. Never raises."""
        try:
            with trio.move_on_after(budget_ms / 1000):
                return Status.OK, await handler(link.remote, payload)
            self.count("handlers_late")
            return Status.DEADLINE, framing.encode_reason(Reason("out of time"))
        except Refused as refusal:
            self.count("refused")
            after = refusal.retry_after
            wait = None if after is None else round(after * 1000)
            return refusal.code or Status.FAILED, framing.encode_reason(
                Reason(refusal.reason, wait)
            )
        except MalformedFrame as error:
            link.malformed(error)
            return Status.MALFORMED, framing.encode_reason(Reason(error.reason))
        except Exception as error:
            self._report_crash("request", link.remote, error)
            return Status.FAILED, framing.encode_reason(Reason("the handler failed"))

    async def run_channel_handler(self, handler: ChannelHandler, channel: LinkChannel) -> None:
        """Runs a channel handler and closes its channel after it. Never raises."""
        reason = "done"
        try:
            await handler(channel)
        except MalformedFrame as error:
            channel.fail(error.reason)
        except NetworkError as error:
            reason = str(error)
        except Exception as error:
            self._report_crash("channel", channel.peer, error)
            reason = "the handler failed"
        finally:
            channel.close(reason)

    def _report_crash(self, what: str, peer: bytes, error: Exception) -> None:
        self.count("handlers_crashed")
        self._logger.error("handler_crashed", what=what, peer=f"0x{peer.hex()}", exc_info=error)


def _trim(table: OrderedDict[bytes, Any], used: bytes, limit: int) -> None:
    """Keeps the most recently used `limit` entries."""
    table.move_to_end(used)
    while len(table) > limit:
        table.popitem(last=False)
