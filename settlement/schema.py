"""The machinery by which one frozen dataclass defines a record everywhere.

From the annotated fields of a dataclass follow its Solidity/EIP-712 type string, its struct hash,
its leaf hash, its wire form and its JSON form. Nothing about a record is written down twice.

Sources: EIP-712 (`encodeType`, `encodeData`, `hashStruct`); the Solidity ABI for static types.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Self, get_args, get_type_hints

from settlement.hashing import keccak256

LEAF_PREFIX: Final = b"\x00"
MAX_ARRAY: Final = 256  # elements in a dynamic array; a record is small, whoever sends it


class RecordError(ValueError):
    """A record's field is missing, of the wrong type or out of range."""

    def __init__(self, record: str, field: str, reason: str, value: object = None) -> None:
        shown = value if not isinstance(value, bytes) else "0x" + value.hex()
        super().__init__(f"{record}.{field}: {reason} (got {shown!r})")
        self.record, self.field, self.reason, self.value = record, field, reason, value


@dataclass(frozen=True)
class Solidity:
    """Marks a field with its Solidity type: `uintN`, `intN`, `bytes32`, `address`, `bool`, or an
    array `T[n]` / `T[]` of those."""

    name: str


_ELEMENT = re.compile(r"^(u?int)(\d+)$|^(bytes32|address|bool)$")
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_ARRAY = re.compile(r"^(.*)\[(\d*)\]$")


@dataclass(frozen=True)
class _Element:
    """One static Solidity type: how it is checked, encoded and packed."""

    name: str
    size: int  # bytes on the wire
    kind: type  # of its values in Python
    low: int = 0
    high: int = 0

    @classmethod
    def parse(cls, name: str) -> _Element:
        match = _ELEMENT.match(name)
        if match is None:
            raise TypeError(f"no such Solidity type here: {name}")
        if match[3] is not None:
            size = {"bytes32": 32, "address": 20, "bool": 1}[name]
            return cls(name, size, bool if name == "bool" else bytes)
        bits = int(match[2])
        if match[1] == "uint":
            return cls(name, bits // 8, int, 0, (1 << bits) - 1)
        return cls(name, bits // 8, int, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    def fits(self, value: Any) -> bool:
        """Whether `value` is of this type, quickly; where not, `fault` says why."""
        kind: Any = self.kind
        if type(value) is not kind:
            return False
        if kind is bytes:
            return len(value) == self.size
        return kind is bool or self.low <= value <= self.high

    def fault(self, value: Any) -> str | None:
        """Why `value` is not of this type, or None."""
        if self.name == "bool":
            return None if isinstance(value, bool) else "not a bool"
        if self.name in ("bytes32", "address"):
            if not isinstance(value, bytes):
                return "not bytes"
            return None if len(value) == self.size else f"{len(value)} bytes, not {self.size}"
        if not isinstance(value, int) or isinstance(value, bool):
            return "not an int"
        if self.low <= value <= self.high:
            return None
        return f"outside {self.name}"

    def word(self, value: Any) -> bytes:
        """The 32-byte ABI word."""
        if self.name == "bytes32":
            return bytes(value)
        if self.name == "address":
            return bytes(12) + bytes(value)
        return int(value).to_bytes(32, "big", signed=self.low < 0)

    def pack(self, value: Any) -> bytes:
        if self.kind is bytes:
            return bytes(value)
        return int(value).to_bytes(self.size, "big", signed=self.low < 0)

    def unpack(self, raw: bytes) -> Any:
        if self.kind is bytes:
            return raw
        value = int.from_bytes(raw, "big", signed=self.low < 0)
        if self.name == "bool":
            if value > 1:
                raise ValueError(f"a bool is 0 or 1, not {value}")
            return bool(value)
        return value

    def to_json(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return "0x" + value.hex()
        # JSON numbers lose bits past 2**53 in most readers; wide integers travel as strings.
        if isinstance(value, bool) or self.size <= 4:
            return value
        return str(value)

    def from_json(self, value: Any) -> Any:
        if self.name in ("bytes32", "address"):
            # Stricter than bytes.fromhex, which skips white space: a value has one spelling.
            if not isinstance(value, str) or not _HEX.fullmatch(value):
                raise ValueError("not a 0x… string")
            return bytes.fromhex(value[2:])
        if self.name == "bool":
            return value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,78}", value):
            return int(value)
        return value


@dataclass(frozen=True)
class FieldSpec:
    """One field of a record: its Python name, its Solidity name and type."""

    name: str
    solidity_name: str
    type_name: str
    element: _Element
    length: int | None  # None: scalar; -1: dynamic array; n: fixed array

    def check(self, record: str, value: Any) -> None:
        if self.length is None:
            if self.element.fits(value):
                return
            fault = self.element.fault(value)
            if fault is not None:
                raise RecordError(record, self.name, fault, value)
            return
        if not isinstance(value, tuple):
            raise RecordError(record, self.name, "not a tuple", value)
        if self.length >= 0 and len(value) != self.length:
            raise RecordError(record, self.name, f"{len(value)} items, not {self.length}", value)
        if len(value) > MAX_ARRAY:
            raise RecordError(record, self.name, f"over {MAX_ARRAY} items", len(value))
        for item in value:
            if self.element.fits(item):
                continue
            fault = self.element.fault(item)
            if fault is not None:
                raise RecordError(record, self.name, fault, item)

    def eip712_word(self, value: Any) -> bytes:
        if self.length is None:
            return self.element.word(value)
        return keccak256(b"".join(self.element.word(item) for item in value))

    def abi_words(self, value: Any) -> bytes:
        if self.length is None:
            return self.element.word(value)
        if self.length < 0:
            raise TypeError(f"{self.name}: a leaf has static fields only")
        return b"".join(self.element.word(item) for item in value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _read_specs(cls: type[Record]) -> tuple[FieldSpec, ...]:
    hints = get_type_hints(cls, include_extras=True)
    specs = []
    for field in dataclasses.fields(cls):
        marks = [mark for mark in get_args(hints[field.name])[1:] if isinstance(mark, Solidity)]
        if len(marks) != 1:
            raise TypeError(f"{cls.__name__}.{field.name} needs one Solidity type")
        type_name = marks[0].name
        array = _ARRAY.match(type_name)
        length = None if array is None else (int(array[2]) if array[2] else -1)
        element = _Element.parse(type_name if array is None else array[1])
        specs.append(FieldSpec(field.name, _camel(field.name), type_name, element, length))
    return tuple(specs)


#: Of the widths that `struct` has: bytes to its letter, unsigned and signed.
_LETTERS: Final = {1: "Bb", 2: "Hh", 4: "Ii", 8: "Qq"}


class _Quick:
    """The forms of a record of scalars alone, each in one call: what a party checks, hashes and
    keeps in every round. What does not fit is left to the fields' own methods, which say why."""

    def __init__(self, specs: tuple[FieldSpec, ...]) -> None:
        self._bounds: tuple[tuple[Any, int, int], ...] = tuple(
            (e.kind, e.size, e.size) if e.kind is bytes else (e.kind, e.low, e.high or 1)
            for e in (spec.element for spec in specs)
        )
        self.values = attrgetter(*(spec.name for spec in specs))
        self._bools = tuple(n for n, spec in enumerate(specs) if spec.element.kind is bool)
        self._signed = tuple(n for n, spec in enumerate(specs) if spec.element.low < 0)
        wire, words = ">", ">"
        for element in (spec.element for spec in specs):
            own = f"{element.size}s"
            if element.kind is not bytes:
                own = _LETTERS[element.size][element.low < 0]
            wire += own
            # A word's upper bytes: zeros, or a number's sign.
            words += f"{32 - element.size}{'s' if element.low < 0 else 'x'}{own}"
        self.wire, self._words = struct.Struct(wire), struct.Struct(words)

    def fits(self, record: Any) -> bool:
        """Whether every field is of its type."""
        for value, (kind, low, high) in zip(self.values(record), self._bounds, strict=True):
            if type(value) is not kind:
                return False
            if not low <= (len(value) if kind is bytes else value) <= high:
                return False
        return True

    def words(self, record: Any) -> bytes:
        """The fields' ABI words; for scalars those of EIP-712 too."""
        if not self._signed:
            return self._words.pack(*self.values(record))
        values = list(self.values(record))
        for place in reversed(self._signed):
            fill = b"\xff" if values[place] < 0 else b"\0"
            values.insert(place, fill * 32)
        return self._words.pack(*values)

    def read(self, raw: bytes) -> list[Any] | None:
        """The fields behind the tag; None where `raw` is too short or a bool neither 0 nor 1."""
        if type(raw) is not bytes or len(raw) <= self.wire.size:
            return None
        values = list(self.wire.unpack_from(raw, 1))
        for place in self._bools:
            if values[place] > 1:
                return None
            values[place] = values[place] == 1
        return values


@dataclass(frozen=True)
class _Shape:
    """What follows from a record class alone, worked out once per class. `quick`: None for a record
    with arrays, or with numbers of other widths."""

    specs: tuple[FieldSpec, ...]
    type_string: str
    type_hash: bytes
    quick: _Quick | None


_SHAPES: Final[dict[type, _Shape]] = {}


def _shape(cls: type[Record]) -> _Shape:
    shape = _SHAPES.get(cls)
    if shape is None:
        specs = _read_specs(cls)
        inner = ",".join(f"{spec.type_name} {spec.solidity_name}" for spec in specs)
        text = f"{cls.__name__}({inner})"
        plain = all(
            spec.length is None and (spec.element.kind is bytes or spec.element.size in _LETTERS)
            for spec in specs
        )
        quick = _Quick(specs) if plain and len(specs) > 1 else None
        shape = _SHAPES[cls] = _Shape(specs, text, keccak256(text.encode()), quick)
    return shape


@dataclass(frozen=True)
class Record:
    """Base of every committed, signed or paid record: a frozen dataclass of annotated fields.

    Construction checks every field and raises RecordError. Equal records have equal bytes in every
    form; `from_wire(to_wire())` and `from_json(to_json())` give the record back or raise.
    """

    WIRE_TAG: ClassVar[int]

    def __post_init__(self) -> None:
        shape = _shape(type(self))
        if shape.quick is not None and shape.quick.fits(self):
            return
        name = type(self).__name__
        for spec in shape.specs:
            spec.check(name, getattr(self, spec.name))

    @classmethod
    def specs(cls) -> tuple[FieldSpec, ...]:
        return _shape(cls).specs

    @classmethod
    def type_string(cls) -> str:
        """EIP-712 `encodeType`, e.g. `Verdict(bytes32 startHash,uint32 round,…)`."""
        return _shape(cls).type_string

    @classmethod
    def type_hash(cls) -> bytes:
        return _shape(cls).type_hash

    @cached_property
    def struct_hash(self) -> bytes:
        """EIP-712 `hashStruct`: keccak256(typeHash ‖ encodeData), 32 bytes."""
        shape = _shape(type(self))
        if shape.quick is not None:
            return keccak256(shape.type_hash, shape.quick.words(self))
        words = [spec.eip712_word(getattr(self, spec.name)) for spec in shape.specs]
        return keccak256(shape.type_hash, *words)

    @cached_property
    def leaf_hash(self) -> bytes:
        """keccak256(0x00 ‖ typeHash ‖ abi.encode(fields)), for records with static fields."""
        shape = _shape(type(self))
        if shape.quick is not None:
            return keccak256(LEAF_PREFIX, shape.type_hash, shape.quick.words(self))
        words = [spec.abi_words(getattr(self, spec.name)) for spec in shape.specs]
        return keccak256(LEAF_PREFIX, shape.type_hash, *words)

    def to_wire(self) -> bytes:
        """Tag byte, then each field at its own width, big-endian; dynamic arrays after a uint16
        count. One record has exactly one wire form."""
        shape = _shape(type(self))
        out = [bytes([self.WIRE_TAG])]
        if shape.quick is not None:
            return out[0] + shape.quick.wire.pack(*shape.quick.values(self))
        for spec in shape.specs:
            value = getattr(self, spec.name)
            if spec.length is None:
                out.append(spec.element.pack(value))
                continue
            if spec.length < 0:
                out.append(struct.pack(">H", len(value)))
            out.extend(spec.element.pack(item) for item in value)
        return b"".join(out)

    @classmethod
    def from_wire(cls, raw: bytes) -> Self:
        """The inverse of `to_wire`; RecordError on a wrong tag, length or value."""
        record, rest = cls.read_wire(raw)
        if rest:
            raise RecordError(cls.__name__, "(end)", f"{len(rest)} bytes too many", rest[:8])
        return record

    @classmethod
    def read_wire(cls, raw: bytes) -> tuple[Self, bytes]:
        """One record from the front of `raw`, and what follows it."""
        if not raw or raw[0] != cls.WIRE_TAG:
            raise RecordError(cls.__name__, "(tag)", f"expected tag {cls.WIRE_TAG}", raw[:1])
        quick = _shape(cls).quick
        if quick is not None and (found := quick.read(raw)) is not None:
            return cls(*found), raw[1 + quick.wire.size :]
        at = 1
        values: dict[str, Any] = {}

        def take(spec: FieldSpec, size: int) -> bytes:
            nonlocal at
            if at + size > len(raw):
                raise RecordError(cls.__name__, spec.name, "truncated", len(raw))
            at += size
            return raw[at - size : at]

        for spec in _shape(cls).specs:
            count = spec.length
            if count is not None and count < 0:
                (count,) = struct.unpack(">H", take(spec, 2))
                if count > MAX_ARRAY:
                    raise RecordError(cls.__name__, spec.name, f"over {MAX_ARRAY} items", count)
            try:
                if count is None:
                    values[spec.name] = spec.element.unpack(take(spec, spec.element.size))
                else:
                    values[spec.name] = tuple(
                        spec.element.unpack(take(spec, spec.element.size)) for _ in range(count)
                    )
            except RecordError:
                raise
            except ValueError as error:
                raise RecordError(cls.__name__, spec.name, str(error)) from error
        return cls(**values), raw[at:]

    def to_json(self) -> dict[str, Any]:
        """A JSON object under the Solidity names; bytes as 0x…, integers over 32 bits as
        strings."""
        out: dict[str, Any] = {}
        for spec in _shape(type(self)).specs:
            value = getattr(self, spec.name)
            if spec.length is None:
                out[spec.solidity_name] = spec.element.to_json(value)
            else:
                out[spec.solidity_name] = [spec.element.to_json(item) for item in value]
        return out

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The inverse of `to_json`; RecordError on a missing, unknown or wrong field."""
        if not isinstance(data, dict):
            raise RecordError(cls.__name__, "(all)", "not an object", data)
        known = {spec.solidity_name for spec in _shape(cls).specs}
        unknown = set(data) - known
        if unknown:
            raise RecordError(cls.__name__, sorted(unknown)[0], "no such field")
        values: dict[str, Any] = {}
        for spec in _shape(cls).specs:
            if spec.solidity_name not in data:
                raise RecordError(cls.__name__, spec.name, "missing")
            value = data[spec.solidity_name]
            try:
                if spec.length is None:
                    values[spec.name] = spec.element.from_json(value)
                else:
                    if not isinstance(value, list):
                        raise ValueError("not a list")
                    values[spec.name] = tuple(spec.element.from_json(item) for item in value)
            except ValueError as error:
                raise RecordError(cls.__name__, spec.name, str(error), value) from error
        return cls(**values)

    def to_abi(self) -> tuple[Any, ...]:
        """The fields in order, as a contract call through web3 takes them."""
        return tuple(
            list(value) if isinstance(value, tuple) else value
            for value in (getattr(self, spec.name) for spec in _shape(type(self)).specs)
        )


Bytes32 = Annotated[bytes, Solidity("bytes32")]
Address = Annotated[bytes, Solidity("address")]
Bool = Annotated[bool, Solidity("bool")]
U8 = Annotated[int, Solidity("uint8")]
U16 = Annotated[int, Solidity("uint16")]
U32 = Annotated[int, Solidity("uint32")]
U64 = Annotated[int, Solidity("uint64")]
U128 = Annotated[int, Solidity("uint128")]
I32 = Annotated[int, Solidity("int32")]
I64 = Annotated[int, Solidity("int64")]
U32s = Annotated[tuple[int, ...], Solidity("uint32[]")]
Bytes32s = Annotated[tuple[bytes, ...], Solidity("bytes32[]")]
Percent16 = Annotated[tuple[int, ...], Solidity("uint8[16]")]
Words8 = Annotated[tuple[int, ...], Solidity("uint256[8]")]
