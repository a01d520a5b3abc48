"""Canonical bytes of the messages between nodes: one encoding per value, every field bounded.

A message is a frozen dataclass whose fields are annotated with the types below; its wire form is
its tag byte and then each field in order, integers big-endian at their own width, variable parts
behind a u32 count. There are no field names, no optional order and no unknown fields: what is left
over is an error, so equal messages have equal bytes and nothing rides along unread. Bounds are
checked when a message is built and again, before anything is allocated, when one is read.

Settlement records travel inside messages as opaque bytes and check themselves.
"""

from __future__ import annotations

import abc
import struct
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

from node.network.errors import MalformedFrame

M = TypeVar("M", bound="Message")


class FieldError(MalformedFrame, ValueError):
    """A field of a message is of another type, size or range than its kind allows."""

    def __init__(self, where: str, reason: str, value: object = None) -> None:
        self.where = where
        super().__init__(f"{where}: {reason}", value)


class _Reader:
    """Takes bytes off the front, never past the end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, size: int, where: str) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise FieldError(where, f"{size} bytes needed, {len(self._raw) - self._at} left")
        data = self._raw[self._at : end]
        self._at = end
        return data

    @property
    def left(self) -> int:
        return len(self._raw) - self._at


class Codec(abc.ABC):
    """How one field is checked, written and read; `most` is its largest size in bytes."""

    most: int

    @abc.abstractmethod
    def check(self, value: Any, where: str) -> None: ...

    @abc.abstractmethod
    def write(self, value: Any) -> bytes: ...

    @abc.abstractmethod
    def read(self, reader: _Reader, where: str) -> Any: ...


@dataclass(frozen=True)
class Unsigned(Codec):
    """An unsigned integer of `size` bytes."""

    size: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.size

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise FieldError(where, "not an integer", value)
        if not 0 <= value < 1 << (8 * self.size):
            raise FieldError(where, f"outside uint{8 * self.size}", value)

    def write(self, value: Any) -> bytes:
        return int(value).to_bytes(self.size, "big")

    def read(self, reader: _Reader, where: str) -> int:
        return int.from_bytes(reader.take(self.size, where), "big")


@dataclass(frozen=True)
class Boolean(Codec):
    """One byte, 0 or 1."""

    most = 1

    def check(self, value: Any, where: str) -> None:
        if type(value) is not bool:
            raise FieldError(where, "not a bool", value)

    def write(self, value: Any) -> bytes:
        return b"\1" if value else b"\0"

    def read(self, reader: _Reader, where: str) -> bool:
        byte = reader.take(1, where)
        if byte not in (b"\0", b"\1"):
            raise FieldError(where, "a bool is 0 or 1", byte)
        return byte == b"\1"


@dataclass(frozen=True)
class Fixed(Codec):
    """Exactly `size` bytes."""

    size: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.size

    def check(self, value: Any, where: str) -> None:
        if type(value) is not bytes or len(value) != self.size:
            raise FieldError(where, f"not {self.size} bytes", value)

    def write(self, value: Any) -> bytes:
        return value

    def read(self, reader: _Reader, where: str) -> bytes:
        return reader.take(self.size, where)


def _counted(reader: _Reader, limit: int, where: str) -> int:
    count = int.from_bytes(reader.take(4, where), "big")
    if count > limit:
        raise FieldError(where, f"more than {limit}", count)
    return count


@dataclass(frozen=True)
class Variable(Codec):
    """At most `limit` bytes."""

    limit: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return 4 + self.limit

    def check(self, value: Any, where: str) -> None:
        if type(value) is not bytes:
            raise FieldError(where, "not bytes", value)
        if len(value) > self.limit:
            raise FieldError(where, f"more than {self.limit} bytes", len(value))

    def write(self, value: Any) -> bytes:
        return struct.pack(">I", len(value)) + value

    def read(self, reader: _Reader, where: str) -> bytes:
        return reader.take(_counted(reader, self.limit, where), where)


@dataclass(frozen=True)
class Utf8(Codec):
    """Text of at most `limit` bytes in UTF-8, without control characters."""

    limit: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return 4 + self.limit

    def check(self, value: Any, where: str) -> None:
        if type(value) is not str:
            raise FieldError(where, "not text", value)
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise FieldError(where, "not encodable", error.reason) from None
        if size > self.limit:
            raise FieldError(where, f"more than {self.limit} bytes", size)
        if any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise FieldError(where, "control characters in text", value)

    def write(self, value: Any) -> bytes:
        data = value.encode()
        return struct.pack(">I", len(data)) + data

    def read(self, reader: _Reader, where: str) -> str:
        data = reader.take(_counted(reader, self.limit, where), where)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FieldError(where, "not UTF-8", error.reason) from None


@dataclass(frozen=True)
class TokenIds(Codec):
    """A tuple of at most `limit` token ids, uint32 each."""

    limit: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return 4 + 4 * self.limit

    def check(self, value: Any, where: str) -> None:
        if type(value) is not tuple:
            raise FieldError(where, "not a tuple", type(value).__name__)
        if len(value) > self.limit:
            raise FieldError(where, f"more than {self.limit} ids", len(value))
        try:
            struct.pack(f">{len(value)}I", *value)
        except struct.error as error:
            raise FieldError(where, f"not all uint32: {error}") from None

    def write(self, value: Any) -> bytes:
        return struct.pack(f">I{len(value)}I", len(value), *value)

    def read(self, reader: _Reader, where: str) -> tuple[int, ...]:
        count = _counted(reader, self.limit, where)
        return struct.unpack(f">{count}I", reader.take(4 * count, where))


@dataclass(frozen=True)
class Many(Codec):
    """A tuple of at most `limit` values of one codec."""

    inner: Codec
    limit: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return 4 + self.limit * self.inner.most

    def check(self, value: Any, where: str) -> None:
        if type(value) is not tuple:
            raise FieldError(where, "not a tuple", type(value).__name__)
        if len(value) > self.limit:
            raise FieldError(where, f"more than {self.limit}", len(value))
        for index, item in enumerate(value):
            self.inner.check(item, f"{where}[{index}]")

    def write(self, value: Any) -> bytes:
        return struct.pack(">I", len(value)) + b"".join(map(self.inner.write, value))

    def read(self, reader: _Reader, where: str) -> tuple[Any, ...]:
        count = _counted(reader, self.limit, where)
        return tuple(self.inner.read(reader, f"{where}[{i}]") for i in range(count))


@dataclass(frozen=True)
class Maybe(Codec):
    """A value or None."""

    inner: Codec

    @property
    def most(self) -> int:  # type: ignore[override]
        return 1 + self.inner.most

    def check(self, value: Any, where: str) -> None:
        if value is not None:
            self.inner.check(value, where)

    def write(self, value: Any) -> bytes:
        return b"\0" if value is None else b"\1" + self.inner.write(value)

    def read(self, reader: _Reader, where: str) -> Any:
        return self.inner.read(reader, where) if Boolean().read(reader, where) else None


@dataclass(frozen=True)
class Nested(Codec):
    """Another message, without its tag."""

    kind: type[Message]

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.kind.bound() - 1

    def check(self, value: Any, where: str) -> None:
        if type(value) is not self.kind:
            raise FieldError(where, f"not a {self.kind.__name__}", type(value).__name__)

    def write(self, value: Any) -> bytes:
        return value.write_body()

    def read(self, reader: _Reader, where: str) -> Any:
        return self.kind.read_body(reader)


U8 = Annotated[int, Unsigned(1)]
U16 = Annotated[int, Unsigned(2)]
U32 = Annotated[int, Unsigned(4)]
U64 = Annotated[int, Unsigned(8)]
U128 = Annotated[int, Unsigned(16)]
Flag = Annotated[bool, Boolean()]
Address = Annotated[bytes, Fixed(20)]
Hash = Annotated[bytes, Fixed(32)]
Signature = Annotated[bytes, Fixed(65)]

_CODECS: dict[type, tuple[tuple[str, Codec], ...]] = {}


def _codecs(cls: type[Message]) -> tuple[tuple[str, Codec], ...]:
    known = _CODECS.get(cls)
    if known is None:
        hints = get_type_hints(cls, include_extras=True)
        known = tuple(
            (f.name, next(a for a in get_args(hints[f.name]) if isinstance(a, Codec)))
            for f in dataclass_fields(cls)
        )
        _CODECS[cls] = known
    return known


@dataclass(frozen=True)
class Message:
    """Base of every message. Building one checks every field and raises FieldError."""

    TAG: ClassVar[int] = 0

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field_name, codec in _codecs(type(self)):
            codec.check(getattr(self, field_name), f"{name}.{field_name}")

    @classmethod
    def bound(cls) -> int:
        """Size of the largest encoding in bytes, tag included."""
        return 1 + sum(codec.most for _, codec in _codecs(cls))

    def write_body(self) -> bytes:
        """The fields without the tag."""
        return b"".join(c.write(getattr(self, name)) for name, c in _codecs(type(self)))

    def encode(self) -> bytes:
        """The one encoding of this message."""
        return bytes([self.TAG]) + self.write_body()

    @classmethod
    def read_body(cls: type[M], reader: _Reader) -> M:
        name = cls.__name__
        return cls(**{f: codec.read(reader, f"{name}.{f}") for f, codec in _codecs(cls)})


def decode(raw: bytes, *kinds: type[M]) -> M:
    """The message that `raw` is, which must be one of `kinds`.

    Raises:
        FieldError: another tag, a field out of its bounds, bytes missing or left over.
    """
    expected = {kind.TAG: kind for kind in kinds}
    kind = expected.get(raw[0]) if raw else None
    if kind is None:
        names = ", ".join(k.__name__ for k in kinds)
        raise FieldError("message", f"expected {names}", raw[:1])
    reader = _Reader(raw)
    reader.take(1, "tag")
    message = kind.read_body(reader)
    if reader.left:
        raise FieldError(kind.__name__, "bytes left over", reader.left)
    return message


def registry(*kinds: type[Message]) -> dict[int, type[Message]]:
    """Messages by tag. Raises ValueError where two share one."""
    found: dict[int, type[Message]] = {}
    for kind in kinds:
        if kind.TAG in found or not 0 < kind.TAG < 256:
            raise ValueError(f"tag {kind.TAG} of {kind.__name__} is taken or outside 1 to 255")
        found[kind.TAG] = kind
    return found
