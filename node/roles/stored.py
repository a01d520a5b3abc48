"""How roles write prompts and rounds into the journal's opaque columns."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from node.network.codec import decode
from node.network.messages import PromptDelivery, RoundRun
from node.roles.frames import DraftFrame, FrameError, Round, VerdictFrame, take
from node.roles.lanes import LeafRun


def pack_prompt(delivery: PromptDelivery) -> bytes:
    return delivery.encode()


def unpack_prompt(raw: bytes) -> PromptDelivery:
    """The inverse of `pack_prompt`."""
    return decode(raw, PromptDelivery)


def pack_runs(runs: tuple[LeafRun, ...]) -> bytes:
    return b"".join(RoundRun(run.start_hash, run.first, run.count).encode() for run in runs)


def unpack_runs(raw: bytes) -> tuple[LeafRun, ...]:
    """The inverse of `pack_runs`."""
    size = RoundRun.bound()
    if len(raw) % size:
        raise FrameError(f"{len(raw)} bytes are not whole runs of {size}")
    runs = [decode(raw[at : at + size], RoundRun) for at in range(0, len(raw), size)]
    return tuple(LeafRun(run.start_hash, run.first, run.count) for run in runs)


def stored_round(draft: bytes | None, verdict: bytes) -> Round:
    """A round from its journalled frames."""
    return Round(
        None if draft is None else DraftFrame.from_wire(draft), VerdictFrame.from_wire(verdict)
    )


@dataclass(frozen=True)
class Private:
    """What only V knows of a round: per leaf the salt and the fingerprint behind it (32 bytes
    each), and the margin of the decision (Q24)."""

    salts: tuple[bytes, ...]
    fingerprints: tuple[bytes, ...]
    margins: tuple[int, ...]

    def to_wire(self) -> bytes:
        return struct.pack(">B", len(self.salts)) + b"".join(
            salt + fingerprint + struct.pack(">q", margin)
            for salt, fingerprint, margin in zip(
                self.salts, self.fingerprints, self.margins, strict=True
            )
        )

    @classmethod
    def from_wire(cls, raw: bytes) -> Private:
        """The inverse of `to_wire`; FrameError otherwise."""
        (count,), raw = take(raw, 1, "count")
        salts, fingerprints, margins = [], [], []
        for _ in range(count):
            salt, raw = take(raw, 32, "salt")
            fingerprint, raw = take(raw, 32, "fingerprint")
            margin, raw = take(raw, 8, "margin")
            salts.append(salt)
            fingerprints.append(fingerprint)
            margins.append(struct.unpack(">q", margin)[0])
        if raw:
            raise FrameError(f"{len(raw)} bytes after the private part")
        return cls(tuple(salts), tuple(fingerprints), tuple(margins))
