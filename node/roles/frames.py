"""What travels in a round, with its leaves: strict binary forms over the settlement records.

    draft frame    DraftCommit · signature · k × (DraftLeaf · kept list · top list)
    verdict frame  Verdict · signature · emitted × VerdictLeaf

Lists are counted with one byte and bounded by the protocol, so a frame of k drafts has a bound
that follows from k alone. There is one encoding of a frame: what is left over is an error. So a
frame keeps the bytes that it was read from, and every party journals, forwards and counts those.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from settlement.records import (
    MAX_KEPT,
    MAX_TOP,
    DraftCommit,
    DraftLeaf,
    Verdict,
    VerdictLeaf,
)
from settlement.schema import Record, RecordError

MAX_DRAFTS: Final = 64
R = TypeVar("R", bound=Record)
KeptList = tuple[tuple[int, int], ...]


class FrameError(ValueError):
    """A frame that no honest peer sends: truncated, over a bound, or of another form."""


def read(kind: type[R], raw: bytes) -> tuple[R, bytes]:
    """One record off the front of `raw`; FrameError where the record refuses it."""
    try:
        return kind.read_wire(raw)
    except RecordError as error:
        raise FrameError(str(error)) from error


def take(raw: bytes, size: int, what: str) -> tuple[bytes, bytes]:
    """`size` bytes off the front of `raw`."""
    if len(raw) < size:
        raise FrameError(f"truncated in {what}: {len(raw)} bytes left, {size} needed")
    return raw[:size], raw[size:]


@dataclass(frozen=True)
class DraftFrame:
    """D's window: signed commitment, leaves, and the lists that the leaves hash.

    `kept` has one list per leaf in rejection mode, `tops` one per leaf in relaxed mode; else both
    are empty.
    """

    commit: DraftCommit
    signature: bytes
    leaves: tuple[DraftLeaf, ...]
    kept: tuple[KeptList, ...] = ()
    tops: tuple[tuple[int, ...], ...] = ()

    def to_wire(self) -> bytes:
        return self._wire

    @cached_property
    def _wire(self) -> bytes:
        out = [self.commit.to_wire(), self.signature, bytes([len(self.leaves)])]
        for index, leaf in enumerate(self.leaves):
            kept = self.kept[index] if self.kept else ()
            top = self.tops[index] if self.tops else ()
            out.append(leaf.to_wire())
            out.append(bytes([len(kept)]))
            out.extend(struct.pack(">IQ", token, mass) for token, mass in kept)
            out.append(bytes([len(top)]))
            out.extend(struct.pack(">I", token) for token in top)
        return b"".join(out)

    @classmethod
    def from_wire(cls, raw: bytes) -> DraftFrame:
        """The inverse of `to_wire`; FrameError otherwise."""
        whole = raw
        commit, raw = read(DraftCommit, raw)
        signature, raw = take(raw, 65, "signature")
        (count,), raw = take(raw, 1, "leaf count")
        if not 1 <= count <= MAX_DRAFTS:
            raise FrameError(f"{count} drafts: 1 to {MAX_DRAFTS}")
        leaves: list[DraftLeaf] = []
        kept: list[KeptList] = []
        tops: list[tuple[int, ...]] = []
        for _ in range(count):
            leaf, raw = read(DraftLeaf, raw)
            leaves.append(leaf)
            (size,), raw = take(raw, 1, "kept count")
            if size > MAX_KEPT:
                raise FrameError(f"{size} kept ids: at most {MAX_KEPT}")
            body, raw = take(raw, 12 * size, "kept list")
            kept.append(tuple((t, m) for t, m in struct.iter_unpack(">IQ", body)))
            (size,), raw = take(raw, 1, "top count")
            if size > MAX_TOP:
                raise FrameError(f"{size} top ids: at most {MAX_TOP}")
            body, raw = take(raw, 4 * size, "top list")
            tops.append(tuple(t for (t,) in struct.iter_unpack(">I", body)))
        if raw:
            raise FrameError(f"{len(raw)} bytes after the draft frame")
        frame = cls(
            commit,
            signature,
            tuple(leaves),
            tuple(kept) if any(kept) else (),
            tuple(tops) if any(tops) else (),
        )
        frame.__dict__["_wire"] = bytes(whole)
        return frame


@dataclass(frozen=True)
class VerdictFrame:
    """V's word on a round: signed verdict and its leaves."""

    verdict: Verdict
    signature: bytes
    leaves: tuple[VerdictLeaf, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(leaf.token for leaf in self.leaves)

    def to_wire(self) -> bytes:
        return self._wire

    @cached_property
    def _wire(self) -> bytes:
        return b"".join(
            [
                self.verdict.to_wire(),
                self.signature,
                bytes([len(self.leaves)]),
                *(leaf.to_wire() for leaf in self.leaves),
            ]
        )

    @classmethod
    def from_wire(cls, raw: bytes) -> VerdictFrame:
        """The inverse of `to_wire`; FrameError otherwise."""
        whole = raw
        verdict, raw = read(Verdict, raw)
        signature, raw = take(raw, 65, "signature")
        (count,), raw = take(raw, 1, "leaf count")
        if not 1 <= count <= MAX_DRAFTS + 1:
            raise FrameError(f"{count} verdict leaves: 1 to {MAX_DRAFTS + 1}")
        leaves = []
        for _ in range(count):
            leaf, raw = read(VerdictLeaf, raw)
            leaves.append(leaf)
        if raw:
            raise FrameError(f"{len(raw)} bytes after the verdict frame")
        frame = cls(verdict, signature, tuple(leaves))
        frame.__dict__["_wire"] = bytes(whole)
        return frame


@dataclass(frozen=True)
class Round:
    """A committed round: what D proposed (None when nothing was drafted) and what V said."""

    draft: DraftFrame | None
    verdict: VerdictFrame

    def to_wire(self) -> bytes:
        draft = b"" if self.draft is None else self.draft.to_wire()
        return struct.pack(">I", len(draft)) + draft + self.verdict.to_wire()

    @classmethod
    def from_wire(cls, raw: bytes) -> Round:
        """The inverse of `to_wire`; FrameError otherwise."""
        head, raw = take(raw, 4, "draft size")
        (size,) = struct.unpack(">I", head)
        body, raw = take(raw, size, "draft frame")
        return cls(DraftFrame.from_wire(body) if size else None, VerdictFrame.from_wire(raw))
