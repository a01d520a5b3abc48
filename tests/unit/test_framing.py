"""Frames: one encoding each, strict reading, bounds before buffering, size classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.network import framing
from node.network.errors import FrameTooLarge, MalformedFrame
from node.network.framing import Frame, FrameDecoder, FrameType, Hello, Reason

# Hypothesis prefers short byte strings; sizes around the classes matter here.
PAYLOADS = st.binary(max_size=600) | st.integers(0, 3000).map(lambda n: b"\xa5" * n)
CARRIER = st.builds(
    Frame,
    type=st.just(FrameType.DATA),
    id=st.integers(0, 2**64 - 1),
    kind=st.integers(0, 2**16 - 1),
    mark=st.integers(0, 2**64 - 1),
    payload=PAYLOADS,
)
REQUEST = st.builds(
    Frame,
    type=st.just(FrameType.REQUEST),
    id=st.integers(0, 2**64 - 1),
    kind=st.integers(0, 2**16 - 1),
    budget_ms=st.integers(0, 2**32 - 1),
    payload=PAYLOADS,
)
RESPONSE = st.builds(
    Frame,
    type=st.just(FrameType.RESPONSE),
    id=st.integers(0, 2**64 - 1),
    kind=st.integers(0, 2**16 - 1),
    status=st.integers(0, 255),
    payload=PAYLOADS,
)
CONTROL = st.one_of(
    st.builds(Frame, type=st.just(FrameType.PING), mark=st.integers(0, 2**64 - 1)),
    st.builds(Frame, type=st.just(FrameType.OPENED), id=st.integers(0, 2**64 - 1)),
    st.builds(
        Frame,
        type=st.just(FrameType.CLOSE),
        id=st.integers(0, 2**64 - 1),
        status=st.integers(0, 255),
        payload=st.binary(max_size=512),
    ),
)
FRAMES = st.one_of(CARRIER, REQUEST, RESPONSE, CONTROL)


@given(FRAMES)
def test_a_frame_survives_its_encoding(frame: Frame) -> None:
    assert framing.decode(framing.encode(frame)) == frame


@given(st.lists(FRAMES, max_size=6), st.integers(1, 700))
def test_frames_survive_any_split_of_the_stream(frames: list[Frame], step: int) -> None:
    data = b"".join(framing.encode(f) for f in frames)
    decoder = FrameDecoder()
    seen = [f for at in range(0, len(data), step) for f in decoder.feed(data[at : at + step])]
    assert seen == frames
    assert decoder.buffered == 0


@given(st.one_of(CARRIER, REQUEST, RESPONSE))
def test_messages_fill_a_power_of_two_from_512(frame: Frame) -> None:
    size = len(framing.encode(frame))
    assert size >= 512
    assert size & (size - 1) == 0
    assert size < 2 * max(512, framing.OVERHEAD + len(frame.payload))


def test_rounds_of_different_length_look_alike() -> None:
    sizes = {len(framing.encode(Frame(FrameType.DATA, 1, 2, payload=bytes(n)))) for n in range(470)}
    assert sizes == {512}


@given(FRAMES, st.data())
def test_a_changed_byte_is_refused_or_is_another_frame(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(framing.encode(frame))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        other = framing.decode(bytes(raw))
    except MalformedFrame:
        return
    # There is no second encoding of the same frame.
    assert other != frame
    assert framing.encode(other) == bytes(raw)


@given(st.binary(max_size=2000))
def test_garbage_raises_nothing_else_and_is_not_hoarded(data: bytes) -> None:
    decoder = FrameDecoder()
    try:
        frames = list(decoder.feed(data))
    except MalformedFrame:
        assert decoder.buffered == 0
        with pytest.raises(MalformedFrame):
            list(decoder.feed(b"more"))
        return
    assert b"".join(framing.encode(f) for f in frames) == data[: len(data) - decoder.buffered]


@given(FRAMES, st.data())
def test_a_cut_frame_yields_nothing(frame: Frame, data: st.DataObject) -> None:
    raw = framing.encode(frame)
    decoder = FrameDecoder()
    assert list(decoder.feed(raw[: data.draw(st.integers(0, len(raw) - 1))])) == []


def test_an_oversized_length_is_refused_by_its_four_bytes() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameTooLarge) as refusal:
        list(decoder.feed((framing.MAX_FRAME).to_bytes(4, "big")))
    assert refusal.value.size == framing.MAX_FRAME + 4


def test_a_kind_above_its_bound_is_refused_by_its_header() -> None:
    def cap(frame_type: FrameType, kind: int) -> int:
        return 1000 if kind == 7 else framing.MAX_PAYLOAD

    fine = framing.encode(Frame(FrameType.REQUEST, 1, 7, payload=bytes(1000)))
    assert framing.decode(fine, cap).kind == 7
    header = framing.encode(Frame(FrameType.REQUEST, 1, 7, payload=bytes(1001)))[: framing.OVERHEAD]
    with pytest.raises(FrameTooLarge) as refusal:
        list(FrameDecoder(cap).feed(header))
    assert (refusal.value.size, refusal.value.limit) == (1001, 1000)
    with pytest.raises(FrameTooLarge):
        framing.encode(Frame(FrameType.REQUEST, 1, 7, payload=bytes(1001)), cap)


def test_the_largest_payload_fills_four_megabytes() -> None:
    raw = framing.encode(Frame(FrameType.DATA, 1, 1, payload=bytes(framing.MAX_PAYLOAD)))
    assert len(raw) == 4 * 1024 * 1024
    with pytest.raises(FrameTooLarge):
        framing.encode(Frame(FrameType.DATA, 1, 1, payload=bytes(framing.MAX_PAYLOAD + 1)))


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (4, 2, "version"),
        (5, 99, "type"),
        (7, 1, "reserved"),
        (22, 1, "does not use mark"),
        (11, 1, "does not use budget"),
    ],
)
def test_header_rules(at: int, value: int, reason: str) -> None:
    raw = bytearray(framing.encode(Frame(FrameType.OPENED, 5)))
    raw[at] = value
    with pytest.raises(MalformedFrame, match=reason):
        framing.decode(bytes(raw))


def test_padding_must_be_zero_and_of_the_right_length() -> None:
    raw = bytearray(framing.encode(Frame(FrameType.REQUEST, 1, 1, payload=b"x")))
    raw[-1] = 1
    with pytest.raises(MalformedFrame, match="zeros"):
        framing.decode(bytes(raw))
    raw[-1] = 0
    raw += bytes(512)
    raw[:4] = (len(raw) - 4).to_bytes(4, "big")
    with pytest.raises(MalformedFrame, match="size class"):
        framing.decode(bytes(raw))


def test_hello() -> None:
    hello = Hello(b"b" * 16, b"n" * 32)
    assert framing.decode_hello(framing.encode_hello(hello)) == hello
    with pytest.raises(MalformedFrame):
        framing.decode_hello(bytes(47))
    with pytest.raises(ValueError, match="16"):
        framing.encode_hello(Hello(b"", bytes(32)))


@given(st.text(max_size=600), st.none() | st.integers(0, 2**32 - 2))
def test_reasons_are_cut_to_their_bound(text: str, after: int | None) -> None:
    raw = framing.encode_reason(Reason(text, after))
    assert len(raw) <= 404
    back = framing.decode_reason(raw)
    assert back.retry_after_ms == after
    assert text.encode("utf-8", "replace").decode().startswith(back.text)


@pytest.mark.parametrize("raw", [b"", b"abc", bytes(405), b"\0\0\0\0\xff"])
def test_reasons_are_strict(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        framing.decode_reason(raw)
