"""What Python seals, the contract opens; what is another text, both refuse."""

from __future__ import annotations

from random import Random

import pytest

from settlement.hashing import keccak256
from settlement.records import extend_context, prompt_hash
from settlement.sealing import OtherText, Text, point_of, seal, unseal


def _case(rng: Random) -> tuple[Text, bytes, bytes]:
    text = Text(
        rng.randbytes(32),
        tuple(rng.getrandbits(32) for _ in range(rng.randrange(0, 20))),
        tuple(rng.getrandbits(32) for _ in range(rng.randrange(0, 20))),
    )
    prompt = prompt_hash(text.salt, text.prompt)
    return text, prompt, extend_context(prompt, text.output)


@pytest.mark.parametrize("runs", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_both_open_what_was_sealed(harness, runs: int) -> None:
    h, rng = harness("SealingHarness"), Random(runs)
    for _ in range(runs):
        text, prompt, context = _case(rng)
        reader, sender, demand = rng.randbytes(32), rng.randbytes(32), rng.randbytes(32)
        sealed = seal(text, demand, point_of(reader), sender)
        plain = unseal(sealed, demand, point_of(sender), reader)
        assert Text.from_bytes(plain, len(text.output), prompt, context) == text
        assert h.call("isPoint", *point_of(reader)) == (True,)
        (key,) = h.call("times", int.from_bytes(reader, "big"), *point_of(sender))
        assert h.call("stream", key, demand, sealed) == (plain,)
        assert h.call("isText", plain, len(text.output), prompt, context) == (True,)
        # Any bit of it is held against what was signed.
        at = rng.randrange(len(plain))
        wrong = plain[:at] + bytes([plain[at] ^ 1 << rng.randrange(8)]) + plain[at + 1 :]
        assert h.call("isText", wrong, len(text.output), prompt, context) == (False,)
        with pytest.raises(OtherText):
            Text.from_bytes(wrong, len(text.output), prompt, context)


def test_who_has_no_key_reads_nothing(harness) -> None:
    text, prompt, context = _case(Random(5))
    reader, sender, demand = (keccak256(name) for name in (b"r", b"s", b"d"))
    sealed = seal(text, demand, point_of(reader), sender)
    for secret, answered in ((keccak256(b"x"), demand), (reader, keccak256(b"other demand"))):
        plain = unseal(sealed, answered, point_of(sender), secret)
        with pytest.raises(OtherText):
            Text.from_bytes(plain, len(text.output), prompt, context)
    for length in (0, 31, 33, 4 * len(text.output) + 28):
        with pytest.raises(OtherText):
            Text.from_bytes(bytes(length), len(text.output), prompt, context)


def test_only_points_are_points(harness) -> None:
    h = harness("SealingHarness")
    x, y = point_of(keccak256(b"r"))
    field = 2**256 - 2**32 - 977
    for point in ((x, y + 1), (x + 1, y), (0, 0), (x, field - y + field), (0, y), (field, y)):
        if point[1] < 2**256:
            assert h.call("isPoint", *point) == (False,), point
    assert h.call("isPoint", x, field - y) == (True,)
