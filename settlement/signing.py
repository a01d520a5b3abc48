"""secp256k1 signatures as Ethereum uses them: 65 bytes r ‖ s ‖ v, v ∈ {27, 28}, low s only."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from coincurve import PrivateKey, PublicKey

from settlement.hashing import keccak256

ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_HALF_ORDER: Final = ORDER // 2


class BadSignature(ValueError):
    """A signature that is malformed, malleable (high s) or not by the expected signer."""


def address_of(public_key: bytes) -> bytes:
    """The 20-byte Ethereum address of a secp256k1 public key (compressed or not)."""
    point = PublicKey(public_key).format(compressed=False)
    return keccak256(point[1:])[12:]


def address_of_key(private_key: bytes) -> bytes:
    """The 20-byte Ethereum address that `private_key` (32 bytes) signs for."""
    return address_of(_key(private_key).public_key.format(compressed=False))


@lru_cache(maxsize=16)
def _key(private_key: bytes) -> PrivateKey:
    """Made once: a key computes its public one as it is made, which takes longer than to sign."""
    return PrivateKey(private_key)


def sign(digest: bytes, private_key: bytes) -> bytes:
    """Sign a 32-byte digest with RFC 6979 nonces; 65 bytes that Solidity's ecrecover accepts."""
    if len(digest) != 32:
        raise ValueError(f"a digest has 32 bytes, not {len(digest)}")
    raw = _key(private_key).sign_recoverable(digest, hasher=None)
    return raw[:64] + bytes([raw[64] + 27])


def recover(digest: bytes, signature: bytes) -> bytes:
    """The 20-byte address that signed `digest`.

    Raises BadSignature where OpenZeppelin's ECDSA would: wrong length, v outside {27, 28},
    high s, or a point off the curve. So what Python accepts, the contracts accept.
    """
    if len(digest) != 32:
        raise ValueError(f"a digest has 32 bytes, not {len(digest)}")
    if len(signature) != 65:
        raise BadSignature(f"a signature has 65 bytes, not {len(signature)}")
    if signature[64] not in (27, 28):
        raise BadSignature(f"v is 27 or 28, not {signature[64]}")
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise BadSignature("s lies in the upper half: a malleable signature")
    try:
        key = PublicKey.from_signature_and_message(
            signature[:64] + bytes([signature[64] - 27]), digest, hasher=None
        )
    except Exception as error:  # coincurve raises bare Exceptions and ValueErrors alike
        raise BadSignature(f"not a signature over this digest: {error}") from error
    return keccak256(key.format(compressed=False)[1:])[12:]


def require_signer(digest: bytes, signature: bytes, expected: bytes, what: str) -> None:
    """Raise BadSignature unless `expected` (20 bytes) signed `digest`; `what` names the record."""
    signer = recover(digest, signature)
    if signer != expected:
        raise BadSignature(f"{what}: signed by 0x{signer.hex()}, expected 0x{expected.hex()}")
