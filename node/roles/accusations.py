"""Signed frames that break a rule, kept for a proof. What an honest node refuses it does not act
on, but the guilty's signature stands under it: with its session's terms it is all that FaultCourt
asks.

Whether a contract can judge it is not decided here: the watcher looks for the fault, and finds none
in what only a panel could judge.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from node.roles.frames import DraftFrame, Round, VerdictFrame, read, take
from node.roles.ports import Node
from node.roles.session import Terms
from node.roles.stored import stored_round
from settlement.draws import RoundEvidence
from settlement.hashing import ZERO32
from settlement.records import Domain, DraftCommit, Order, RoundRecord, SessionStart, Verdict
from settlement.signing import BadSignature

# Of one session: an authenticated party must not fill the disk with faults of its own.
MOST_A_SESSION: Final = 8


@dataclass(frozen=True)
class Accusation:
    """One frame, or a window and the verdict on it, with what it is judged by.

    Attributes:
        before: the round before, as it was accepted; None in round 0.
        draft: the accused window, or the window that the accused verdict is about.
        verdict: the accused verdict; None where only the window is accused.
    """

    order: Order
    start: SessionStart
    before: Round | None
    draft: DraftFrame | None
    verdict: VerdictFrame | None

    @property
    def round(self) -> int:
        frame = self.verdict.verdict if self.verdict else self.draft.commit if self.draft else None
        return 0 if frame is None else frame.round

    def to_wire(self) -> bytes:
        parts = [
            self.before.to_wire() if self.before else b"",
            self.draft.to_wire() if self.draft else b"",
            self.verdict.to_wire() if self.verdict else b"",
        ]
        body = b"".join(struct.pack(">I", len(part)) + part for part in parts)
        return self.order.to_wire() + self.start.to_wire() + body

    @classmethod
    def from_wire(cls, raw: bytes) -> Accusation:
        """The inverse of `to_wire`; FrameError otherwise."""
        order, raw = read(Order, raw)
        start, raw = read(SessionStart, raw)
        parts = []
        for what in ("round before", "draft", "verdict"):
            head, raw = take(raw, 4, what)
            part, raw = take(raw, struct.unpack(">I", head)[0], what)
            parts.append(part)
        before, draft, verdict = parts
        return cls(
            order,
            start,
            Round.from_wire(before) if before else None,
            DraftFrame.from_wire(draft) if draft else None,
            VerdictFrame.from_wire(verdict) if verdict else None,
        )

    def evidence(self) -> tuple[RoundEvidence, RoundEvidence | None]:
        """The round in question and the one before, as `settlement.faults` takes them."""
        here = evidence_of(self.order, self.start, self.draft, self.verdict)
        if self.before is None:
            return here, None
        return here, evidence_of(self.order, self.start, self.before.draft, self.before.verdict)


def evidence_of(
    order: Order,
    start: SessionStart,
    draft: DraftFrame | None,
    verdict: VerdictFrame | None,
    record: RoundRecord | None = None,
) -> RoundEvidence:
    """A round's frames as evidence. Without a verdict one of zeros, which nobody has signed, stands
    in its place; without a record one that accuses nobody."""
    commit = draft.commit if draft else None
    said = _nobodys(commit) if verdict is None else verdict.verdict
    return RoundEvidence(
        order=order,
        start=start,
        commit=commit,
        commit_signature=draft.signature if draft else b"",
        draft_leaves=draft.leaves if draft else (),
        kept=draft.kept if draft else (),
        verdict=said,
        verdict_signature=verdict.signature if verdict else b"",
        verdict_leaves=verdict.leaves if verdict else (),
        record=record
        or RoundRecord(said.start_hash, said.round, ZERO32, ZERO32, ZERO32, ZERO32, 0, 0, (0,) * 8),
    )


def _nobodys(commit: DraftCommit | None) -> Verdict:
    start_hash, number = (commit.start_hash, commit.round) if commit else (ZERO32, 0)
    return Verdict(start_hash, number, 0, ZERO32, 0, ZERO32, 0, 0, ZERO32, ZERO32, ZERO32, 0)


def accuse(
    node: Node, terms: Terms, draft: DraftFrame | None, verdict: VerdictFrame | None
) -> bool:
    """Journals the frames against whoever signed them, with the round before as this node has it.
    False where the accused has not signed, or the session's measure is full."""
    order, before = terms.order, _round_before(node, terms, draft, verdict)
    return keep(node, Accusation(order, terms.start, before, draft, verdict))


def keep(node: Node, accusation: Accusation) -> bool:
    """Journals an accusation; False where there is nothing signed in it, or too many are held."""
    accusation = _signed_part(node.domain, accusation)
    if accusation.draft is None and accusation.verdict is None:
        return False
    prefix = f"accusation:{accusation.start.struct_hash.hex()}"
    mark = accusation.evidence()[0]
    signed = mark.commit.struct_hash if mark.commit else ZERO32
    name = f"{prefix}:{signed.hex()[:16]}:{mark.verdict.struct_hash.hex()[:16]}"
    held = node.journal.secrets_under(prefix)
    if len(held) >= MOST_A_SESSION or any(name == known for known, _ in held):
        return False
    node.journal.secret_once(name, accusation.to_wire)
    node.metrics.count("accusations")
    node.log.warning(
        "kept for a proof", session=accusation.order.session_id.hex()[:12], round=accusation.round
    )
    return True


def accuse_twice(node: Node, terms: Terms, draft: DraftFrame | None, verdict: bytes) -> None:
    """Looks at frames about a round that is over: another window or verdict than the one that
    counted, signed, is F1 or F2. `verdict` is a frame's wire form, empty for none."""
    number = draft.commit.round if draft else -1
    frame = None
    if verdict:
        frame = VerdictFrame.from_wire(verdict)
        number = frame.verdict.round
    row = node.journal.round(terms.start_hash, number) if number >= 0 else None
    if row is None:
        return
    held = stored_round(row.draft, row.verdict)
    if frame is not None and frame.verdict != held.verdict.verdict:
        accuse(node, terms, None, frame)
    if draft is not None and held.draft is not None and is_second(held.draft, draft):
        accuse(node, terms, draft, None)


def is_second(one: DraftFrame, other: DraftFrame) -> bool:
    """Whether two windows for one place have different roots (F1, where both are signed)."""
    ours, theirs = one.commit, other.commit
    place = (ours.start_hash, ours.round, ours.context_hash)
    same = (theirs.start_hash, theirs.round, theirs.context_hash) == place
    return same and theirs.draft_root != ours.draft_root


def _round_before(
    node: Node, terms: Terms, draft: DraftFrame | None, verdict: VerdictFrame | None
) -> Round | None:
    number = verdict.verdict.round if verdict else draft.commit.round if draft else 0
    row = node.journal.round(terms.start_hash, number - 1) if number > 0 else None
    return None if row is None else stored_round(row.draft, row.verdict)


def _signed_part(domain: Domain, accusation: Accusation) -> Accusation:
    """Without frames of other sessions, and without those that nobody answers for: a window counts
    by D's signature, or as what V's verdict names."""
    order, start_hash = accusation.order, accusation.start.struct_hash
    draft, verdict = accusation.draft, accusation.verdict
    if verdict is not None and (
        verdict.verdict.start_hash != start_hash or not _is_by(domain, order.verifier, verdict)
    ):
        verdict = None
    if draft is not None:
        named = verdict is not None and (
            verdict.verdict.draft_commit_hash == draft.commit.struct_hash
        )
        signed = draft.commit.start_hash == start_hash and _is_by(domain, order.drafter, draft)
        draft = draft if named or signed else None
    return replace(accusation, draft=draft, verdict=verdict)


def _is_by(domain: Domain, party: bytes, frame: DraftFrame | VerdictFrame) -> bool:
    record = frame.commit if isinstance(frame, DraftFrame) else frame.verdict
    try:
        return domain.signer(record, frame.signature) == party
    except BadSignature:
        return False
