"""Frames keep the bytes that they were read from, which must be the only ones they have."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from node.roles.frames import DraftFrame, FrameError, VerdictFrame
from settlement.records import DraftCommit, DraftLeaf, Verdict, VerdictLeaf

H = bytes(range(32))
SIGNATURE = bytes(range(65))


def draft_frame(kept: bool, tops: bool) -> DraftFrame:
    commit = DraftCommit(H, 3, 0, 7, H, H, H, 2, H)
    leaves = tuple(DraftLeaf(7 + i, 40 + i, 5, 0, H, 9, H) for i in range(2))
    lists = (((40, 5), (44, 2**64 - 6)), ()) if kept else ()
    return DraftFrame(commit, SIGNATURE, leaves, lists, ((1, 2, 3), (4,)) if tops else ())


def verdict_frame() -> VerdictFrame:
    verdict = Verdict(H, 3, 0, H, 7, H, 1, 2, H, H, H, 4)
    leaves = tuple(
        VerdictLeaf(7 + i, 40, 40 + i, i == 0, 0, 9, -5, 0, 1, 2, False, H) for i in range(2)
    )
    return VerdictFrame(verdict, SIGNATURE, leaves)


FRAMES = [draft_frame(False, False), draft_frame(True, False), draft_frame(False, True)]


@pytest.mark.parametrize("frame", [*FRAMES, verdict_frame()])
def test_whatever_is_read_is_written_the_same_from_its_fields(
    frame: DraftFrame | VerdictFrame,
) -> None:
    """`replace` gives the fields without the bytes that were kept."""
    rng = random.Random(1)
    wire = frame.to_wire()
    assert replace(type(frame).from_wire(wire)) == frame
    read = 0
    for _ in range(400):
        at = rng.randrange(len(wire))
        changed = wire[:at] + bytes([wire[at] ^ (1 << rng.randrange(8))]) + wire[at + 1 :]
        try:
            found = type(frame).from_wire(changed)
        except FrameError:
            continue
        read += 1
        assert found.to_wire() == changed
        assert replace(found).to_wire() == changed
    assert 200 < read < 400  # and some are no frames


def test_a_frame_with_other_fields_has_other_bytes() -> None:
    frame = verdict_frame()
    wire = frame.to_wire()
    other = replace(frame, signature=bytes(65))
    assert other.to_wire() != wire
    assert VerdictFrame.from_wire(other.to_wire()) == other
