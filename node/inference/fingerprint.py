"""Fingerprints of a hidden state: its hash in the exact tier, sixteen projections in a float tier.

A verifier commits to one per position; an auditor who re-runs the model gets nearly the same one,
a smaller or quantised model does not. The directions come from the session's seed, which is fixed
only after the models are chosen, so nobody can prepare states that agree in them.

Random projections keep distances (Johnson and Lindenstrauss 1984; with signs: Achlioptas 2003).
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from settlement.hashing import TAG_FINGERPRINT, TAG_HIDDEN, keccak256, uint

DIRECTIONS: Final = 16
_UNIT: Final = 1 << 12


class Fingerprints(Protocol):
    """Makes the fingerprints of one session."""

    def fingerprints(self, hidden: np.ndarray) -> list[bytes]:
        """32 bytes for each row of [n, d]."""
        ...


def fingerprints_for(tier: str, seed: bytes, hidden_size: int) -> Fingerprints:
    """How a session of a model of that tier makes its fingerprints; S matters to floats only."""
    return HiddenHashes() if tier == "exact" else Projection(seed, hidden_size)


class HiddenHashes:
    """The exact tier's: every honest machine has the same state, so its hash says it all."""

    def fingerprints(self, hidden: np.ndarray) -> list[bytes]:
        """keccak256(tag ‖ int16 values, big-endian) of each row of int16[n, d]."""
        return [hidden_hash(row) for row in hidden]


def hidden_hash(hidden: np.ndarray) -> bytes:
    """The fingerprint of one final hidden state, int16[d] (docs/exact.md, "Fingerprint")."""
    if hidden.dtype != np.int16 or hidden.ndim != 1:
        raise ValueError(f"a state of the exact tier is int16[d], not {hidden.dtype}{hidden.shape}")
    return keccak256(TAG_HIDDEN, hidden.astype(">i2").tobytes())


class Projection:
    """The directions of one session.

    Args:
        seed: S, 32 bytes.
        hidden_size: width d of the hidden state.
    """

    def __init__(self, seed: bytes, hidden_size: int) -> None:
        bits_needed = hidden_size * DIRECTIONS
        stream = b"".join(
            keccak256(TAG_FINGERPRINT, b"directions", seed, uint(block, 4))
            for block in range(-(-bits_needed // 256))
        )
        bits = np.unpackbits(np.frombuffer(stream, np.uint8))[:bits_needed]
        # Channel by channel: bit 16c + j is the sign of channel c in direction j.
        self._signs = (2.0 * bits - 1.0).reshape(hidden_size, DIRECTIONS)

    def fingerprints(self, hidden: np.ndarray) -> list[bytes]:
        """The fingerprint of each row.

        A projection of the state scaled to length 1 is about normal with variance 1; it is written
        in units of 2**-12, so +-8 standard deviations fit. Scaling makes one tolerance fit models
        whose states differ in size. A state without direction (zero, or not finite) gives zeros.

        Args:
            hidden: float[n, d], what the output head reads.

        Returns:
            n times 32 bytes: sixteen big-endian int16.
        """
        h = hidden.astype(np.float64)
        length = np.sqrt((h * h).sum(axis=1, keepdims=True))
        usable = np.isfinite(length) & (length > 0)
        unit = np.divide(h, length, out=np.zeros_like(h), where=usable)
        values = np.clip(np.rint(unit @ self._signs * _UNIT), -32768, 32767)
        return [row.tobytes() for row in values.astype(">i2")]


def distance(a: bytes, b: bytes) -> int:
    """Sum of absolute differences of two fingerprints, in units of 2**-12 standard deviations."""
    if len(a) != 32 or len(b) != 32:
        raise ValueError(f"a fingerprint has 32 bytes, not {len(a)} and {len(b)}")
    x, y = (np.frombuffer(f, ">i2").astype(np.int64) for f in (a, b))
    return int(np.abs(x - y).sum())
