"""Messages: every one has one encoding, strict reading and a bound that holds."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.network import codec
from node.network.codec import FieldError, Message, decode
from node.network.framing import MAX_PAYLOAD
from node.network.messages import (
    BOUNDS,
    EXCHANGES,
    LINES,
    MESSAGES,
    GossipDigest,
    Held,
    Kind,
    Notice,
    Ping,
    Pong,
    PromptDelivery,
    RecordsRequest,
)

# Characters that Utf8 fields take.
TEXT = st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=("Cs",))


def values(c: codec.Codec) -> st.SearchStrategy[Any]:
    """Values that `c` accepts."""
    match c:
        case codec.Unsigned(size):
            return st.integers(0, 2 ** (8 * size) - 1)
        case codec.Boolean():
            return st.booleans()
        case codec.Fixed(size):
            return st.binary(min_size=size, max_size=size)
        case codec.Variable(limit):
            return st.binary(max_size=min(limit, 40))
        case codec.Utf8(limit):
            return st.text(TEXT, max_size=limit // 4)
        case codec.TokenIds():
            return st.lists(st.integers(0, 2**32 - 1), max_size=20).map(tuple)
        case codec.Many(inner, limit):
            return st.lists(values(inner), max_size=min(limit, 3)).map(tuple)
        case codec.Maybe(inner):
            return st.none() | values(inner)
        case codec.Nested(kind):
            return messages(kind)
    raise AssertionError(c)


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    hints = get_type_hints(kind, include_extras=True)
    parts = {
        f.name: values(next(a for a in get_args(hints[f.name]) if isinstance(a, codec.Codec)))
        for f in fields(kind)
    }
    return st.builds(kind, **parts)


ANY = st.one_of([messages(kind) for kind in MESSAGES.values()])


@given(ANY)
@settings(max_examples=200)
def test_a_message_survives_its_encoding(message: Message) -> None:
    raw = message.encode()
    assert decode(raw, *MESSAGES.values()) == message
    assert len(raw) <= type(message).bound()


@given(ANY, st.data())
@settings(max_examples=200)
def test_there_is_no_second_encoding(message: Message, data: st.DataObject) -> None:
    raw = bytearray(message.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        other = decode(bytes(raw), *MESSAGES.values())
    except FieldError:
        return
    assert other != message
    assert other.encode() == bytes(raw)


@given(ANY, st.data())
def test_cut_and_lengthened_messages_are_refused(message: Message, data: st.DataObject) -> None:
    raw = message.encode()
    with pytest.raises(FieldError):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))], type(message))
    with pytest.raises(FieldError, match="left over"):
        decode(raw + b"\0", type(message))


@given(st.binary(max_size=300))
def test_garbage_raises_only_field_errors(raw: bytes) -> None:
    try:
        message = decode(raw, *MESSAGES.values())
    except FieldError:
        return
    assert message.encode() == raw


def test_a_message_of_another_kind_is_refused() -> None:
    with pytest.raises(FieldError, match="expected Pong"):
        decode(Ping(1).encode(), Pong)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Ping(-1), "nonce"),
        (lambda: Ping(1 << 64), "nonce"),
        (lambda: Ping(True), "nonce"),
        (lambda: Ping("1"), "nonce"),
        (lambda: RecordsRequest(bytes(31), 0, 1, False), "session_id"),
        (lambda: RecordsRequest(bytearray(32), 0, 1, False), "session_id"),
        (lambda: RecordsRequest(bytes(32), 0, 1, 1), "opening"),
        (lambda: Notice(bytes(32), 1, "é" * 201), "reason"),
        (lambda: Notice(bytes(32), 1, "a\nb"), "reason"),
        (lambda: PromptDelivery(bytes(32), bytes(32), (1 << 32,)), "prompt"),
        (lambda: PromptDelivery(bytes(32), bytes(32), [1]), "prompt"),
        (lambda: GossipDigest((Ping(1),)), "held"),
        (lambda: GossipDigest((Held(bytes(20), 1),) * 1025), "held"),
    ],
)
def test_fields_are_checked_when_a_message_is_built(build: Any, field: str) -> None:
    with pytest.raises(FieldError, match=field):
        build()


def test_a_count_is_refused_before_anything_is_read() -> None:
    raw = bytes([GossipDigest.TAG]) + (1025).to_bytes(4, "big")
    with pytest.raises(FieldError, match="more than 1024"):
        decode(raw, GossipDigest)


def test_booleans_options_and_text_have_one_form() -> None:
    asked = RecordsRequest(bytes(32), 0, 1, False).encode()
    with pytest.raises(FieldError, match="0 or 1"):
        decode(asked[:-33] + b"\2" + asked[-32:], RecordsRequest)
    notice = Notice(bytes(32), 1, "é").encode()
    assert notice.endswith(b"\xc3\xa9\0")
    with pytest.raises(FieldError, match="0 or 1"):
        decode(notice[:-1] + b"\2" + bytes(4), Notice)
    with pytest.raises(FieldError, match="UTF-8"):
        decode(notice[:-2] + b"\xff\0", Notice)


def test_every_kind_fits_a_frame() -> None:
    assert set(BOUNDS) == set(Kind) == set(EXCHANGES) | set(LINES)
    for kind, bounds in BOUNDS.items():
        assert 0 < bounds.message <= MAX_PAYLOAD, kind
        assert bounds.response <= MAX_PAYLOAD, kind


def test_two_messages_with_one_tag_are_refused() -> None:
    with pytest.raises(ValueError, match="tag"):
        codec.registry(Ping, Pong, Ping)
