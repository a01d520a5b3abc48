"""Frames: the unit of bytes between two nodes. Pure functions, no input or output.

Layout, big-endian, after the `Frame` fields of the same names:

    length  u32   bytes that follow, padding included
    version u8    1
    type    u8    FrameType
    status  u8    Status; zero except in RESPONSE, CLOSE and GOODBYE
    zero    u8
    kind    u16   message kind; zero except in REQUEST, RESPONSE, OPEN and DATA
    budget  u32   milliseconds the requester still waits; zero except in REQUEST and OPEN
    id      u64   request or channel number; zero for HELLO, PING, PONG, GOODBYE
    mark    u64   DATA: cost sent so far on the channel; CREDIT: cost consumed; PING, PONG: nonce
    size    u32   payload bytes
    payload, then zeros up to the frame's size class

Frames that carry messages are padded to powers of two from 512 bytes: how many tokens a round
accepted would otherwise show in the length of the encrypted answer, and a sequence of such counts
identifies a prompt. There is exactly one encoding of a frame: a non-zero byte in the padding, a
padding of another length or a value in a field that its type does not use is malformed.

The library's own length framing fails near 8 MB and trusts the length it reads; this one refuses
a length as soon as the header is in, before the body is buffered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from node.network.errors import FrameTooLarge, MalformedFrame

VERSION = 1
MAX_FRAME = 4 * 1024 * 1024
MIN_CLASS = 512
MAX_REASON = 400
_LENGTH = struct.Struct(">I")
_HEADER = struct.Struct(">BBBBHIQQI")
OVERHEAD = _LENGTH.size + _HEADER.size
MAX_PAYLOAD = MAX_FRAME - OVERHEAD
_U64 = 2**64 - 1


class FrameType(IntEnum):
    HELLO = 1
    REQUEST = 2
    RESPONSE = 3
    OPEN = 4
    OPENED = 5
    DATA = 6
    CREDIT = 7
    CLOSE = 8
    PING = 9
    PONG = 10
    GOODBYE = 11


class Status(IntEnum):
    """Why a peer said no. Codes from 64 on belong to roles and pass through untouched."""

    OK = 0
    UNKNOWN_KIND = 1
    BUSY = 2
    FAILED = 3
    MALFORMED = 4
    TOO_LARGE = 5
    DEADLINE = 6
    CLOSED = 7
    FLOW = 8
    WRONG_DEPLOYMENT = 9
    RATE = 10


@dataclass(frozen=True, slots=True)
class _Uses:
    """Which fields a frame type may fill, and whether it is padded."""

    status: bool = False
    kind: bool = False
    budget: bool = False
    id: bool = False
    mark: bool = False
    payload: int = 0
    padded: bool = False


_USES: dict[FrameType, _Uses] = {
    FrameType.HELLO: _Uses(payload=256),
    FrameType.REQUEST: _Uses(kind=True, budget=True, id=True, payload=MAX_PAYLOAD, padded=True),
    FrameType.RESPONSE: _Uses(status=True, kind=True, id=True, payload=MAX_PAYLOAD, padded=True),
    FrameType.OPEN: _Uses(kind=True, budget=True, id=True),
    FrameType.OPENED: _Uses(id=True),
    FrameType.DATA: _Uses(kind=True, id=True, mark=True, payload=MAX_PAYLOAD, padded=True),
    FrameType.CREDIT: _Uses(id=True, mark=True),
    FrameType.CLOSE: _Uses(status=True, id=True, payload=512),
    FrameType.PING: _Uses(mark=True),
    FrameType.PONG: _Uses(mark=True),
    FrameType.GOODBYE: _Uses(status=True, payload=512),
}

# Frames that carry a message of a role; the rest are the transport's own.
CARRIERS = frozenset(t for t, uses in _USES.items() if uses.padded)

PayloadCap = Callable[[FrameType, int], int]
"""Bound on the payload, in bytes, for a frame type and a message kind."""


def widest_cap(frame_type: FrameType, kind: int) -> int:
    """The bound that holds for every kind."""
    return _USES[frame_type].payload


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `payload` is what the peer's role sent, without padding."""

    type: FrameType
    id: int = 0
    kind: int = 0
    status: int = 0
    budget_ms: int = 0
    mark: int = 0
    payload: bytes = b""


def frame_size(payload_size: int, *, padded: bool = True) -> int:
    """Bytes on the wire, length prefix included, for a payload of `payload_size` bytes."""
    size = OVERHEAD + payload_size
    if not padded:
        return size
    return max(MIN_CLASS, 1 << (size - 1).bit_length())


def encode(frame: Frame, cap: PayloadCap = widest_cap) -> bytes:
    """The one encoding of `frame`.

    Raises:
        FrameTooLarge: the payload is over the bound of its type and kind.
        MalformedFrame: a field is out of range or not used by this type.
    """
    uses = _USES[frame.type]
    _check_size(frame.type, frame.kind, len(frame.payload), cap)
    _check_fields(frame, uses)
    size = frame_size(len(frame.payload), padded=uses.padded)
    header = _HEADER.pack(
        VERSION,
        frame.type,
        frame.status,
        0,
        frame.kind,
        frame.budget_ms,
        frame.id,
        frame.mark,
        len(frame.payload),
    )
    head = _LENGTH.pack(size - _LENGTH.size) + header + frame.payload
    return head.ljust(size, b"\0")


class FrameDecoder:
    """Turns a byte stream into frames and holds at most one frame's bytes meanwhile.

    After it raised it stays broken: the position in the stream is lost, so the stream must go.
    """

    def __init__(self, cap: PayloadCap = widest_cap) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._broken: MalformedFrame | None = None

    @property
    def buffered(self) -> int:
        """Bytes waiting for the rest of their frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields each frame that `data` completes.

        Raises:
            MalformedFrame: the stream holds bytes that are no frame of this version.
            FrameTooLarge: a header announces more than the bound of its type and kind.
        """
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        try:
            while (frame := self._next()) is not None:
                yield frame
        except MalformedFrame as error:
            self._broken = error
            self._buffer.clear()
            raise

    def _next(self) -> Frame | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length + _LENGTH.size > MAX_FRAME:
            raise FrameTooLarge(length + _LENGTH.size, MAX_FRAME)
        if length < _HEADER.size:
            raise MalformedFrame("length is smaller than a header", length)
        if len(self._buffer) < OVERHEAD:
            return None
        version, type_, status, zero, kind, budget, id_, mark, size = _HEADER.unpack_from(
            self._buffer, _LENGTH.size
        )
        if version != VERSION:
            raise MalformedFrame(f"version {VERSION} is spoken here", version)
        if zero:
            raise MalformedFrame("the reserved byte must be zero", zero)
        try:
            frame_type = FrameType(type_)
        except ValueError:
            raise MalformedFrame("unknown frame type", type_) from None
        uses = _USES[frame_type]
        _check_size(frame_type, kind, size, self._cap)
        total = frame_size(size, padded=uses.padded)
        if total != length + _LENGTH.size:
            raise MalformedFrame("length does not match the size class of the payload", length)
        if len(self._buffer) < total:
            return None
        end = OVERHEAD + size
        if any(self._buffer[end:total]):
            raise MalformedFrame("padding must be zeros")
        frame = Frame(
            frame_type, id_, kind, status, budget, mark, bytes(self._buffer[OVERHEAD:end])
        )
        _check_fields(frame, uses)
        del self._buffer[:total]
        return frame


def decode(data: bytes, cap: PayloadCap = widest_cap) -> Frame:
    """The frame that `data` is, and nothing besides.

    Raises:
        MalformedFrame: as `FrameDecoder.feed`, or bytes are missing or left over.
    """
    decoder = FrameDecoder(cap)
    frames = list(decoder.feed(data))
    if len(frames) != 1 or decoder.buffered:
        raise MalformedFrame("expected exactly one frame", len(frames))
    return frames[0]


def _check_size(frame_type: FrameType, kind: int, size: int, cap: PayloadCap) -> None:
    limit = min(_USES[frame_type].payload, cap(frame_type, kind))
    if size > limit:
        raise FrameTooLarge(size, limit, f"{frame_type.name} payload of kind {kind}")


def _check_fields(frame: Frame, uses: _Uses) -> None:
    fields = (
        ("status", frame.status, uses.status, 0xFF),
        ("kind", frame.kind, uses.kind, 0xFFFF),
        ("budget", frame.budget_ms, uses.budget, 0xFFFFFFFF),
        ("id", frame.id, uses.id, _U64),
        ("mark", frame.mark, uses.mark, _U64),
    )
    for name, value, used, limit in fields:
        if not 0 <= value <= limit:
            raise MalformedFrame(f"{name} is out of range", value)
        if value and not used:
            raise MalformedFrame(f"{frame.type.name} does not use {name}", value)


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of both sides of a link.

    boot: 16 random bytes, new for every start of a process: a changed one says that the peer
        restarted and that older links to it are dead.
    deployment: 32 bytes that name it (chain and contracts); peers of another are refused.
    """

    boot: bytes
    deployment: bytes


def encode_hello(hello: Hello) -> bytes:
    """48 bytes."""
    if len(hello.boot) != 16 or len(hello.deployment) != 32:
        raise ValueError(f"boot is 16 and deployment 32 bytes, got {hello!r}")
    return hello.boot + hello.deployment


def decode_hello(payload: bytes) -> Hello:
    """Raises MalformedFrame unless `payload` is 48 bytes."""
    if len(payload) != 48:
        raise MalformedFrame("HELLO is 48 bytes", len(payload))
    return Hello(payload[:16], payload[16:])


@dataclass(frozen=True, slots=True)
class Reason:
    """Body of a refusal, CLOSE or GOODBYE: text for a log, and when to come again."""

    text: str
    retry_after_ms: int | None = None


_NO_RETRY = 0xFFFFFFFF


def encode_reason(reason: Reason) -> bytes:
    """u32 milliseconds (all ones: no advice), then UTF-8 text cut to `MAX_REASON` bytes."""
    text = reason.text.encode("utf-8", "replace")[:MAX_REASON].decode("utf-8", "ignore")
    after = reason.retry_after_ms
    wait = _NO_RETRY if after is None else max(0, min(after, _NO_RETRY - 1))
    return _LENGTH.pack(wait) + text.encode()


def decode_reason(payload: bytes) -> Reason:
    """Raises MalformedFrame unless `payload` is of the form that `encode_reason` writes."""
    if not _LENGTH.size <= len(payload) <= _LENGTH.size + MAX_REASON:
        raise MalformedFrame("a reason has 4 to 404 bytes", len(payload))
    (wait,) = _LENGTH.unpack_from(payload)
    try:
        text = payload[_LENGTH.size :].decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFrame("a reason is UTF-8 text", error.reason) from None
    return Reason(text, None if wait == _NO_RETRY else wait)
