"""How roles write prompts and rounds into the journal's opaque columns."""

from __future__ import annotations

from dataclasses import dataclass

from node.network.codec import decode
from node.network.messages import PromptDelivery, RoundRun
from node.roles.frames import DraftFrame, FrameError, Round, VerdictFrame
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
    """What only V knows of a round: per leaf the salt and the fingerprint behind it, 32 bytes
    each."""

    salts: tuple[bytes, ...]
    fingerprints: tuple[bytes, ...]

    def to_wire(self) -> bytes:
        pairs = zip(self.salts, self.fingerprints, strict=True)
        return b"".join(salt + fingerprint for salt, fingerprint in pairs)

    @classmethod
    def from_wire(cls, raw: bytes) -> Private:
        """The inverse of `to_wire`; FrameError otherwise."""
        if len(raw) % 64:
            raise FrameError(f"{len(raw)} bytes are not whole pairs of 64")
        halves = [raw[at : at + 32] for at in range(0, len(raw), 32)]
        return cls(tuple(halves[::2]), tuple(halves[1::2]))
