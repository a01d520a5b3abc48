"""Keccak-256 and the domain tags that keep one kind of hash from being taken for another."""

from __future__ import annotations

from typing import Final

from sha3 import keccak_256 as _keccak_256

ZERO32: Final = bytes(32)
ZERO_ADDRESS: Final = bytes(20)

# One ASCII domain string per hash that is not an EIP-712 struct or a tree node.
TAG_CONTEXT: Final = b"verdraft/context/1"
TAG_SEED: Final = b"verdraft/seed/1"
TAG_CLIENT_SEED: Final = b"verdraft/client-seed/1"
TAG_NONCE: Final = b"verdraft/nonce/1"
TAG_CHAIN: Final = b"verdraft/chain/1"
TAG_COIN: Final = b"verdraft/coin/1"
TAG_DRAW: Final = b"verdraft/draw/1"
TAG_NOISE: Final = b"verdraft/noise/1"
TAG_KEPT: Final = b"verdraft/kept/1"
TAG_TOP: Final = b"verdraft/top/1"
TAG_FINGERPRINT: Final = b"verdraft/fingerprint/1"
TAG_SAMPLE: Final = b"verdraft/sample/1"
TAG_STOP_STRING: Final = b"verdraft/stop-string/1"
# The exact tier: see docs/exact.md, "Weight commitment" and "Fingerprint".
TAG_EXACT_ROW: Final = b"verdraft/exact-row/1"
TAG_EXACT_WEIGHTS: Final = b"verdraft/exact-weights/1"
TAG_EXACT_HEADER: Final = b"verdraft/exact-header/1"
TAG_HIDDEN: Final = b"verdraft/hidden/1"
TAG_TRACE_CHUNK: Final = b"verdraft/trace-chunk/1"
TAG_TRACE_VECTOR: Final = b"verdraft/trace-vector/1"
TAG_TRACE_POSITION: Final = b"verdraft/trace-position/1"
TAG_ANNOUNCE: Final = b"verdraft/announce/1"
TAG_AUDITORS: Final = b"verdraft/auditors/1"
TAG_AUDIT: Final = b"verdraft/audit/1"
TAG_TICKET: Final = b"verdraft/ticket/1"
TAG_SEAL: Final = b"verdraft/seal/1"


def keccak256(*parts: bytes) -> bytes:
    """Keccak-256 (Ethereum's, not NIST SHA-3) of the concatenation of `parts`: 32 bytes."""
    digest: bytes = _keccak_256(b"".join(parts)).digest()
    return digest


def uint(value: int, size: int) -> bytes:
    """`value` as `size` big-endian bytes; OverflowError if it does not fit."""
    return value.to_bytes(size, "big")
