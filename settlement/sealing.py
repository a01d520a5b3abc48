"""A session's text, sealed to the one reader who demanded it: what V answers a SessionDemand with.

Diffie–Hellman on secp256k1 between a key made for the demand and one made for the answer, and a
keystream of hashes. Mirrors Sealing.sol: a reader to whom something else was sent gives the
demand's secret away, and the contract opens the answer itself. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coincurve import PrivateKey, PublicKey

from settlement.hashing import TAG_SEAL, keccak256, uint
from settlement.records import extend_context, prompt_hash

Point = tuple[int, int]


class OtherText(ValueError):
    """The bytes are not the text that was demanded: contest the answer."""


@dataclass(frozen=True)
class Text:
    """Prompt and output of a session, up to a round's end. `salt` is the prompt's, 32 bytes."""

    salt: bytes
    prompt: tuple[int, ...]
    output: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """salt ‖ uint32 prompt ids ‖ uint32 output ids."""
        return self.salt + b"".join(uint(token, 4) for token in self.prompt + self.output)

    @classmethod
    def from_bytes(cls, plain: bytes, tokens: int, prompt: bytes, context: bytes) -> Text:
        """The inverse, held against what was signed: `prompt` is c_0, `context` c after `tokens`
        output tokens. OtherText where it is another text."""
        if len(plain) % 4 or len(plain) < 32 + 4 * tokens:
            raise OtherText(f"{len(plain)} bytes hold no text of {tokens} output tokens")
        ids = [int.from_bytes(plain[at : at + 4], "big") for at in range(32, len(plain), 4)]
        split = len(ids) - tokens
        text = cls(plain[:32], tuple(ids[:split]), tuple(ids[split:]))
        if prompt_hash(text.salt, text.prompt) != prompt:
            raise OtherText("salt and prompt are not those of the order")
        if extend_context(prompt, text.output) != context:
            raise OtherText("the output does not lead to the context that was signed")
        return text


def point_of(secret: bytes) -> Point:
    """The public key of a 32-byte secret, made for one demand or one answer."""
    return _point(PrivateKey(secret).public_key)


def seal(text: Text, demand_id: bytes, reader: Point, secret: bytes) -> bytes:
    """`text` under the reader's key and the answer's `secret`; send `point_of(secret)` along."""
    return _stream(_shared(secret, reader), demand_id, text.to_bytes())


def unseal(sealed: bytes, demand_id: bytes, sender: Point, secret: bytes) -> bytes:
    """The bytes behind `sealed`, by the demand's secret; check them with `Text.from_bytes`."""
    return _stream(_shared(secret, sender), demand_id, sealed)


def _shared(secret: bytes, other: Point) -> bytes:
    """The 20-byte address of the point that both sides come to."""
    x, y = other
    key = PublicKey(b"\x04" + uint(x, 32) + uint(y, 32)).multiply(secret)
    return keccak256(key.format(compressed=False)[1:])[12:]


def _stream(key: bytes, demand_id: bytes, data: bytes) -> bytes:
    words: Sequence[bytes] = [
        keccak256(TAG_SEAL, key, demand_id, uint(index, 4)) for index in range(-(-len(data) // 32))
    ]
    return bytes(a ^ b for a, b in zip(data, b"".join(words), strict=False))


def _point(key: PublicKey) -> Point:
    x, y = key.point()
    return int(x), int(y)
