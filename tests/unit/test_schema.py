"""One dataclass gives wire, JSON and hashes; what comes from outside is checked or refused."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass
from typing import Annotated, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import ALL_RECORDS, any_record, records

from settlement.hashing import keccak256
from settlement.records import DraftLeaf, Order, SessionStart, Verdict, Voucher
from settlement.schema import (
    LEAF_PREFIX,
    MAX_ARRAY,
    U8,
    U32,
    Record,
    RecordError,
    Solidity,
    U32s,
)

START = SessionStart(bytes(32), b"\x11" * 32, 5)


@given(any_record)
def test_wire_gives_the_record_back(record: Record) -> None:
    assert type(record).from_wire(record.to_wire()) == record


@given(any_record)
def test_every_form_is_the_fields_own_one_after_another(record: Record) -> None:
    """Records of scalars are packed in one call."""
    words, wire = b"", bytes([record.WIRE_TAG])
    for spec in record.specs():
        value = getattr(record, spec.name)
        words += spec.eip712_word(value)
        items = (value,) if spec.length is None else value
        if spec.length == -1:
            wire += len(value).to_bytes(2, "big")
        wire += b"".join(spec.element.pack(item) for item in items)
    assert record.to_wire() == wire
    assert record.struct_hash == keccak256(record.type_hash(), words)
    if all(spec.length is None for spec in record.specs()):
        assert record.leaf_hash == keccak256(LEAF_PREFIX, record.type_hash(), words)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_ends_of_every_signed_width_are_packed_as_solidity_does(size: int) -> None:
    bits = 8 * size
    kind = Annotated[int, Solidity(f"int{bits}")]

    @dataclass(frozen=True)
    class Signed(Record):
        WIRE_TAG: ClassVar[int] = 250
        flag: Annotated[bool, Solidity("bool")]
        number: kind  # type: ignore[valid-type]

    Signed.__annotations__["number"] = kind
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    for number in (low, -1, 0, 1, high):
        record = Signed(True, number)
        word = number.to_bytes(32, "big", signed=True)
        assert record.struct_hash == keccak256(record.type_hash(), (1).to_bytes(32, "big"), word)
        assert Signed.from_wire(record.to_wire()) == record
    for number in (low - 1, high + 1, True, 0.0):
        with pytest.raises(RecordError):
            Signed(True, number)
    with pytest.raises(RecordError):
        Signed(1, 0)
    with pytest.raises(RecordError, match="a bool is 0 or 1"):
        Signed.from_wire(b"\xfa\x02" + bytes(size))


@given(any_record)
def test_json_gives_the_record_back_through_text(record: Record) -> None:
    assert type(record).from_json(json.loads(json.dumps(record.to_json()))) == record


@given(any_record, st.data())
def test_a_truncated_or_longer_wire_form_is_refused(record: Record, data: st.DataObject) -> None:
    raw = record.to_wire()
    for cut in (len(raw) - 1, data.draw(st.integers(0, len(raw) - 1))):
        with pytest.raises(RecordError):
            type(record).from_wire(raw[:cut])
    with pytest.raises(RecordError):
        type(record).from_wire(raw + b"\x00")


@given(st.sampled_from(ALL_RECORDS), st.binary(max_size=700), st.booleans())
def test_hostile_bytes_give_a_record_with_those_very_bytes_or_a_record_error(
    kind: type[Record], raw: bytes, tagged: bool
) -> None:
    raw = bytes([kind.WIRE_TAG]) + raw if tagged else raw
    try:
        record = kind.from_wire(raw)
    except RecordError:
        return
    assert record.to_wire() == raw


@given(any_record, st.data())
def test_one_flipped_bit_changes_the_record_or_is_refused(
    record: Record, data: st.DataObject
) -> None:
    raw = bytearray(record.to_wire())
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    try:
        other = type(record).from_wire(bytes(raw))
    except RecordError:
        return
    assert other != record
    assert other.struct_hash != record.struct_hash


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@given(any_record, st.data())
def test_a_hostile_json_field_is_a_record_error(record: Record, data: st.DataObject) -> None:
    fields = record.to_json()
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    try:
        other = type(record).from_json(fields)
    except RecordError:
        return
    assert type(record).from_wire(other.to_wire()) == other


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "0x" + "11" * 31},
        {"seed": "11" * 32},
        {"seed": "0x" + " 11" * 32},
        {"seed": None},
        {"firstK": 65536},
        {"firstK": -1},
        {"firstK": 5.0},
        {"firstK": True},
        {"firstK": "٥"},
        {"first_k": 5},
    ],
)
def test_json_that_is_not_exactly_the_record_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        SessionStart.from_json(START.to_json() | change)


def test_a_missing_field_and_a_list_are_refused() -> None:
    fields = START.to_json()
    del fields["seed"]
    with pytest.raises(RecordError, match="seed: missing"):
        SessionStart.from_json(fields)
    with pytest.raises(RecordError, match="not an object"):
        SessionStart.from_json([fields])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_id", bytes(31)),
        ("session_id", bytearray(32)),
        ("session_id", "0x" + "00" * 32),
        ("first_k", 65536),
        ("first_k", -1),
        ("first_k", True),
        ("first_k", 1.0),
    ],
)
def test_construction_checks_every_field_and_says_which(field: str, value: object) -> None:
    good: dict[str, object] = {"session_id": bytes(32), "seed": bytes(32), "first_k": 0}
    with pytest.raises(RecordError) as error:
        SessionStart(**(good | {field: value}))
    assert (error.value.record, error.value.field) == ("SessionStart", field)


def test_a_bool_on_the_wire_is_zero_or_one() -> None:
    @dataclass(frozen=True)
    class Flag(Record):
        WIRE_TAG: ClassVar[int] = 200
        flag: Annotated[bool, Solidity("bool")]

    assert Flag.from_wire(bytes([200, 1])).flag is True
    with pytest.raises(RecordError, match="0 or 1"):
        Flag.from_wire(bytes([200, 2]))


def test_arrays_are_bounded_before_they_are_read() -> None:
    @dataclass(frozen=True)
    class Many(Record):
        WIRE_TAG: ClassVar[int] = 201
        items: U32s

    full = Many(tuple(range(MAX_ARRAY)))
    assert Many.from_wire(full.to_wire()) == full
    with pytest.raises(RecordError, match="over 256"):
        Many(tuple(range(MAX_ARRAY + 1)))
    with pytest.raises(RecordError, match="over 256"):
        Many.from_wire(bytes([201]) + (60000).to_bytes(2, "big") + bytes(240_000))
    with pytest.raises(RecordError, match="not a tuple"):
        Many([1, 2])  # type: ignore[arg-type]


def test_type_strings_name_solidity_types_in_order() -> None:
    assert (
        SessionStart.type_string() == "SessionStart(bytes32 sessionId,bytes32 seed,uint16 firstK)"
    )
    assert Voucher.type_string().endswith("uint32 leafCount,uint256[8] buckets)")
    assert "uint32[] stopIds,bytes32[] stopStringHashes," in Order.type_string()


def test_a_field_needs_exactly_one_solidity_type() -> None:
    @dataclass(frozen=True)
    class Untyped(Record):
        WIRE_TAG: ClassVar[int] = 202
        number: int

    with pytest.raises(TypeError, match="needs one Solidity type"):
        Untyped(1)


def test_a_leaf_has_static_fields_only() -> None:
    @dataclass(frozen=True)
    class Dynamic(Record):
        WIRE_TAG: ClassVar[int] = 203
        items: U32s

    with pytest.raises(TypeError, match="static"):
        _ = Dynamic((1,)).leaf_hash


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        START.first_k = 6  # type: ignore[misc]


def test_wire_tags_differ() -> None:
    tags = [kind.WIRE_TAG for kind in ALL_RECORDS]
    assert len(set(tags)) == len(tags)


@given(records(DraftLeaf), records(Verdict))
def test_read_wire_leaves_what_follows(leaf: DraftLeaf, verdict: Verdict) -> None:
    raw = leaf.to_wire() + verdict.to_wire()
    first, rest = DraftLeaf.read_wire(raw)
    second, end = Verdict.read_wire(rest)
    assert (first, second, end) == (leaf, verdict, b"")


def test_same_fields_in_another_record_hash_otherwise() -> None:
    @dataclass(frozen=True)
    class One(Record):
        WIRE_TAG: ClassVar[int] = 204
        small: U8
        large: U32

    @dataclass(frozen=True)
    class Other(Record):
        WIRE_TAG: ClassVar[int] = 205
        small: U8
        large: U32

    assert One(1, 2).struct_hash != Other(1, 2).struct_hash
    assert One(1, 2).leaf_hash != Other(1, 2).leaf_hash
    assert One(1, 2).leaf_hash != One(1, 2).struct_hash
