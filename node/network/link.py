"""One link: the actor that owns a byte stream to one peer and is its only writer and reader.

Cancelling a write in the middle poisons a libp2p connection: the rest of the frame never comes
and every other stream on it hangs. So nothing but the link's own writer task touches the pipe;
callers put whole frames into a bounded queue and wait for an event, and their cancellation ends
there. Reading never waits for a role: what a role does not take in time is bounded (windows,
request limits) and answered with a refusal, so a peer's slow reader or slow handler stalls nobody.

The same code runs over libp2p and over the in-memory network; a `Pipe` is all it needs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from node.network import framing
from node.network.channel import MESSAGE_COST, LinkChannel
from node.network.errors import (
    Busy,
    DeadlineExceeded,
    FrameTooLarge,
    MalformedFrame,
    PeerClosed,
    Refused,
)
from node.network.framing import Frame, FrameDecoder, FrameType, Reason, Status
from node.network.outqueue import OutQueue

if TYPE_CHECKING:
    from node.network.switchboard import Switchboard
    from node.network.transport import RequestHandler


# Seconds that a write under way, and then the last words, may take once the link is over.
_LAST_WRITE = 0.5


class Pipe(Protocol):
    """A byte stream to an authenticated peer. Used by exactly one reader and one writer task."""

    async def send(self, frames: Sequence[bytes]) -> None:
        """Writes whole frames. Raises any Exception when the stream is gone."""

    async def receive(self) -> bytes:
        """Some bytes; empty at the end, however the stream ended. Cancelling it is safe."""

    async def abort(self) -> None:
        """Ends the stream at once. Never raises and never waits for the peer."""


@dataclass
class _Pending:
    """A caller waiting for a RESPONSE or OPENED."""

    done: trio.Event = field(default_factory=trio.Event)
    result: bytes | Exception | None = None

    def settle(self, result: bytes | Exception) -> None:
        if self.result is None:
            self.result = result
            self.done.set()


class PeerLink:
    """A handshake, then requests, responses and channels over one pipe until it ends.

    Args:
        board: the node's switchboard, which owns handlers, limits and counters.
        remote: the peer's authenticated operator address.
        initiator: whether this side dialled; its channels have odd numbers.
        host: what counts as one host of the peer's; empty: not counted.
    """

    def __init__(
        self, board: Switchboard, pipe: Pipe, remote: bytes, *, initiator: bool, host: str = ""
    ) -> None:
        self.board = board
        self.limits = board.limits
        self.remote = remote
        self.initiator = initiator
        self.host = host
        self.channels: dict[int, LinkChannel] = {}
        self.boot: bytes | None = None
        self.rtt: float | None = None
        self.closing: str | None = None
        self._pipe = pipe
        self._out = OutQueue(self.limits.outbound_queue, self.limits.control_queue)
        self._requests: dict[int, _Pending] = {}
        self._opening: dict[int, _Pending] = {}
        self._next_request = 1
        self._next_channel = 1 if initiator else 2
        self._running_requests = 0
        self._running_bytes = 0
        self._pings: dict[int, float] = {}
        self._last_heard = trio.current_time()
        self._last_used = self._last_heard
        self.since = self._last_heard
        self._scope = trio.CancelScope()
        self._pong_queued = False
        self._mid_write = False
        self._over = False
        self._failure = ""
        self._writing = trio.CancelScope(shield=True)
        self._goodbye: Frame | None = None
        self._last_opened = 0

    # Life.

    async def run(self, ready: Callable[[PeerLink], None]) -> None:
        """Runs until the link ends; `ready` is called once after the handshake.

        Never raises but for cancellation: what went wrong is in `closing` and the counters.
        """
        decoder = FrameDecoder(self.board.payload_cap)
        try:
            with self._scope:
                backlog = await self._shake_hands(decoder)
                if backlog is not None and self.closing is None:
                    ready(self)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._write)
                        nursery.start_soon(self._ping)
                        await self._read(decoder, backlog)
                        nursery.cancel_scope.cancel()
        finally:
            self._finish()
            with trio.CancelScope(shield=True):
                await self._farewell()
                await self._pipe.abort()

    @property
    def alive(self) -> bool:
        """Whether requests have a chance on it."""
        return self.closing is None and not self._failure

    def idle_for(self, now: float) -> float:
        """Seconds since it was of use; 0 while a channel or request is open on it."""
        if self.channels or self._requests or self._running_requests:
            self._last_used = now
        return now - self._last_used

    def stop(self, reason: str, status: int = Status.CLOSED) -> None:
        """Ends the link; the peer is told `reason` if it still reads."""
        if self.closing is None:
            self.closing = reason
            self._goodbye = Frame(
                FrameType.GOODBYE,
                status=status,
                payload=framing.encode_reason(Reason(reason)),
            )
        self._scope.cancel()

    async def _farewell(self) -> None:
        """What is still queued and the reason, unless a write was cut short: then the peer could
        make no sense of more bytes."""
        if self._goodbye is None or self._mid_write:
            return
        with trio.move_on_after(_LAST_WRITE):
            try:
                while self._goodbye.status == Status.CLOSED and not self._out.empty:
                    await self._pipe.send(await self._out.take())
                await self._pipe.send([framing.encode(self._goodbye)])
            except Exception:
                self.board.count("farewell_unsent")

    def _finish(self) -> None:
        reason = self.closing or self._failure or "the link was cancelled"
        self.closing = reason
        self._out.shut()
        error = PeerClosed(self.remote, reason)
        for pending in (*self._requests.values(), *self._opening.values()):
            pending.settle(error)
        for channel in list(self.channels.values()):
            channel.end(reason)

    async def _shake_hands(self, decoder: FrameDecoder) -> list[Frame] | None:
        """Both HELLOs within the deadline; returns frames that came right behind the peer's."""
        mine = Frame(FrameType.HELLO, payload=framing.encode_hello(self.board.hello))
        frames: list[Frame] = []
        with trio.move_on_after(self.limits.handshake_timeout) as scope:
            try:
                await self._pipe.send([framing.encode(mine)])
                while not frames:
                    data = await self._pipe.receive()
                    if not data:
                        self.closing = "ended during the handshake"
                        return None
                    frames.extend(decoder.feed(data))
                if frames[0].type is not FrameType.HELLO:
                    if frames[0].type is FrameType.GOODBYE:
                        self.closing = framing.decode_reason(frames[0].payload).text
                        return None
                    raise MalformedFrame("HELLO comes first", frames[0].type.name)
                theirs = framing.decode_hello(frames[0].payload)
            except MalformedFrame as error:
                self.malformed(error)
                return None
            except Exception as error:
                self.closing = f"handshake failed: {type(error).__name__}: {error}"
                return None
        if scope.cancelled_caught:
            self.board.count("silent")
            self.stop(f"no HELLO within {self.limits.handshake_timeout} s", Status.DEADLINE)
            return None
        if theirs.deployment != self.board.hello.deployment:
            self.board.count("wrong_deployment")
            self.stop(
                f"this is deployment 0x{self.board.hello.deployment.hex()}", Status.WRONG_DEPLOYMENT
            )
            return None
        self.boot = theirs.boot
        return frames[1:]

    # The three tasks.

    async def _read(self, decoder: FrameDecoder, backlog: list[Frame]) -> None:
        try:
            for frame in backlog:
                self._dispatch(frame)
            while True:
                data = await self._pipe.receive()
                self._last_heard = trio.current_time()
                if not data:
                    # A killed peer ends anywhere; half a frame is no offence.
                    if decoder.buffered:
                        self.board.count("cut_short")
                    self.closing = self.closing or "the peer ended the link"
                    return
                for frame in decoder.feed(data):
                    self._dispatch(frame)
        except MalformedFrame as error:
            self.malformed(error)
        except Exception as error:
            self.closing = self.closing or f"read failed: {type(error).__name__}: {error}"
        finally:
            self._over = True
            self._writing.deadline = min(self._writing.deadline, trio.current_time() + _LAST_WRITE)

    async def _write(self) -> None:
        try:
            while True:
                batch = await self._out.take()
                self._pong_queued = False
                # A write is never cut short by the end of the link, only by its own time limit,
                # which the end of the reader shortens: else no last word could follow it.
                self._mid_write = True
                limit = _LAST_WRITE if self._over else self.limits.write_timeout
                self._writing.deadline = trio.current_time() + limit
                with self._writing:
                    await self._pipe.send(batch)
                if self._writing.cancelled_caught:
                    self._unread()
                    break
                self._mid_write = False
                self._writing = trio.CancelScope(shield=True)
                await trio.lowlevel.checkpoint_if_cancelled()
        except Exception as error:
            # The peer's reason for hanging up may still be there to be read.
            self._failure = f"write failed: {type(error).__name__}: {error}"
            self._scope.deadline = trio.current_time() + _LAST_WRITE
            return
        self._scope.cancel()

    async def _ping(self) -> None:
        nonce = 0
        while True:
            now = trio.current_time()
            if now - self._last_heard > self.limits.dead_after:
                self.board.count("dead_peers")
                self.closing = self.closing or f"nothing heard for {self.limits.dead_after} s"
                self._scope.cancel()
                return
            if self.idle_for(now) > self.limits.idle_after:
                self.stop("idle")
                return
            nonce += 1
            self._pings = {nonce: now}
            self.control(Frame(FrameType.PING, mark=nonce))
            await trio.sleep(self.limits.ping_interval)

    def malformed(self, error: MalformedFrame) -> None:
        self.board.count("oversize" if isinstance(error, FrameTooLarge) else "malformed")
        self.board.log("malformed", peer=self.remote, reason=error.reason)
        status = Status.TOO_LARGE if isinstance(error, FrameTooLarge) else Status.MALFORMED
        self.stop(error.reason, status)

    # Sending.

    def encode(self, frame: Frame) -> bytes:
        return framing.encode(frame, self.board.payload_cap)

    async def enqueue(self, data: bytes) -> None:
        self._last_used = trio.current_time()
        if not await self._out.put(data):
            raise PeerClosed(self.remote, self.closing or self._failure)

    def control(self, frame: Frame) -> None:
        """Queues a small frame without waiting."""
        if not self._out.put_control(self.encode(frame)):
            self._unread()
            self._scope.cancel()

    def _unread(self) -> None:
        if self.closing is None:
            self.closing = "the peer does not read what it is sent"
            self.board.count("unread_peers")

    def last(self, frame: Frame) -> None:
        """Queues a small frame behind the messages already queued, without waiting."""
        self._out.put_last(self.encode(frame))

    async def request(self, kind: int, payload: bytes, deadline: float) -> bytes:
        id_ = self._next_request
        budget = max(1, min(math.ceil(deadline * 1000), 0xFFFFFFFF))
        data = self.encode(Frame(FrameType.REQUEST, id_, kind, budget_ms=budget, payload=payload))
        self._next_request += 1
        return await self._await(self._requests, id_, data, deadline, f"kind {kind}")

    async def open(self, kind: int, deadline: float) -> LinkChannel:
        if len(self.channels) >= self.limits.channels_per_peer:
            raise Busy(f"{len(self.channels)} channels with this peer already", None, self.remote)
        id_ = self._next_channel
        self._next_channel += 2
        # Made before the peer's answer: its first message may ride right behind OPENED.
        channel = LinkChannel(self, id_, kind)
        self.channels[id_] = channel
        budget = max(1, min(math.ceil(deadline * 1000), 0xFFFFFFFF))
        data = self.encode(Frame(FrameType.OPEN, id_, kind, budget_ms=budget))
        opened = False
        try:
            await self._await(self._opening, id_, data, deadline, f"open of kind {kind}")
            opened = True
        finally:
            if not opened:
                channel.close("never opened")
        return channel

    async def _await(
        self, table: dict[int, _Pending], id_: int, data: bytes, deadline: float, what: str
    ) -> bytes:
        if self.closing is not None:
            raise PeerClosed(self.remote, self.closing)
        pending = _Pending()
        table[id_] = pending
        try:
            with trio.move_on_after(deadline):
                await self.enqueue(data)
                await pending.done.wait()
        finally:
            table.pop(id_, None)
        if pending.result is None:
            self.board.count("deadlines")
            raise DeadlineExceeded(self.remote, what, deadline)
        if isinstance(pending.result, Exception):
            raise pending.result
        return pending.result

    # Receiving. Nothing here waits.

    def _dispatch(self, frame: Frame) -> None:
        match frame.type:
            case FrameType.REQUEST:
                self._on_request(frame)
            case FrameType.RESPONSE:
                self._on_response(frame)
            case FrameType.OPEN:
                self._on_open(frame)
            case FrameType.OPENED:
                if (pending := self._opening.get(frame.id)) is not None:
                    pending.settle(b"")
            case FrameType.DATA:
                self._on_data(frame)
            case FrameType.CREDIT:
                if (channel := self.channels.get(frame.id)) is not None:
                    channel.credit(frame.mark)
            case FrameType.CLOSE:
                self._on_close(frame)
            case FrameType.PING:
                # One answer covers all pings that came before it was written.
                if not self._pong_queued:
                    self._pong_queued = True
                    self.control(Frame(FrameType.PONG, mark=frame.mark))
            case FrameType.PONG:
                self._on_pong(frame)
            case FrameType.GOODBYE:
                reason = framing.decode_reason(frame.payload)
                self.closing = self.closing or f"peer: {reason.text}"
                self._scope.cancel()
            case FrameType.HELLO:
                raise MalformedFrame("a second HELLO")

    def _on_pong(self, frame: Frame) -> None:
        sent = self._pings.pop(frame.mark, None)
        if sent is None:
            return
        sample = trio.current_time() - sent
        self.rtt = sample if self.rtt is None else 0.75 * self.rtt + 0.25 * sample

    def _refuse(self, frame: Frame, status: int, reason: Reason) -> None:
        self.board.count("refused")
        self.control(
            Frame(
                FrameType.RESPONSE,
                frame.id,
                frame.kind,
                status=status,
                payload=framing.encode_reason(reason),
            )
        )

    def _on_request(self, frame: Frame) -> None:
        handler = self.board.request_handler(frame.kind)
        if handler is None:
            self._refuse(frame, Status.UNKNOWN_KIND, Reason(f"kind {frame.kind} is not served"))
            return
        cost = len(frame.payload) + MESSAGE_COST
        if (
            self._running_requests >= self.limits.requests_per_peer
            or self._running_bytes + cost > self.limits.inbound_per_peer
            or not self.board.reserve_inbound(cost)
        ):
            self._refuse(frame, Status.BUSY, Reason("too many requests at once", 100))
            return
        self._running_requests += 1
        self._running_bytes += cost
        self.board.spawn(self._answer, frame, cost, handler)

    async def _answer(self, frame: Frame, cost: int, handler: RequestHandler) -> None:
        try:
            status, payload = await self.board.call_handler(
                handler, self, frame.payload, frame.budget_ms
            )
            if self.closing is not None:
                return
            answer = Frame(FrameType.RESPONSE, frame.id, frame.kind, status=status, payload=payload)
            try:
                data = self.encode(answer)
            except FrameTooLarge as error:
                self.board.log("response_too_large", peer=self.remote, reason=error.reason)
                self._refuse(frame, Status.FAILED, Reason("the response is too large"))
                return
            with contextlib.suppress(PeerClosed):
                await self.enqueue(data)
        finally:
            self._running_requests -= 1
            self._running_bytes -= cost
            self.board.release_inbound(cost)

    def _on_response(self, frame: Frame) -> None:
        pending = self._requests.get(frame.id)
        if pending is None:  # Its caller gave up, or the network repeated it.
            self.board.count("late_responses")
            return
        if frame.status == Status.OK:
            pending.settle(frame.payload)
            return
        pending.settle(self._refusal(frame))

    def _refusal(self, frame: Frame) -> Refused:
        reason = framing.decode_reason(frame.payload)
        after = None if reason.retry_after_ms is None else reason.retry_after_ms / 1000
        if frame.status == Status.BUSY:
            return Busy(reason.text, after, self.remote)
        return Refused(frame.status, reason.text, after, self.remote)

    def _on_open(self, frame: Frame) -> None:
        if frame.id % 2 == (1 if self.initiator else 0):
            raise MalformedFrame("a channel number of the wrong side", frame.id)
        if frame.id <= self._last_opened:
            raise MalformedFrame("a channel number used before", frame.id)
        self._last_opened = frame.id
        status, reason = Status.OK, ""
        handler = self.board.channel_handler(frame.kind)
        if handler is None:
            status, reason = Status.UNKNOWN_KIND, f"channels of kind {frame.kind} are not served"
        elif len(self.channels) >= self.limits.channels_per_peer:
            status, reason = Status.BUSY, "too many channels"
        if status is not Status.OK:
            self.board.count("refused")
            body = framing.encode_reason(Reason(reason))
            self.control(Frame(FrameType.CLOSE, frame.id, status=status, payload=body))
            return
        channel = LinkChannel(self, frame.id, frame.kind)
        self.channels[frame.id] = channel
        self.control(Frame(FrameType.OPENED, frame.id))
        self.board.spawn(self.board.run_channel_handler, handler, channel)

    def _on_data(self, frame: Frame) -> None:
        channel = self.channels.get(frame.id)
        if channel is None:  # Closed here while it was on its way.
            self.board.count("late_messages")
            return
        if frame.kind != channel.kind:
            raise MalformedFrame("a message of another kind than its channel", frame.kind)
        channel.deliver(frame)

    def _on_close(self, frame: Frame) -> None:
        reason = framing.decode_reason(frame.payload)
        if (pending := self._opening.get(frame.id)) is not None:
            pending.settle(self._refusal(frame))
        if (channel := self.channels.get(frame.id)) is not None:
            channel.end(reason.text or "closed by the peer")
