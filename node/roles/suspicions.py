"""What a node keeps for the panel: tokens that its own run contradicts, and its answers as a juror.

Both are journalled before anything is sent, and never made a second time: after a crash the same
answer is revealed that was committed to, and the same token is accused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from node.network.codec import decode
from node.network.messages import DrawnAnswer
from node.roles.accusations import evidence_of
from node.roles.delivery import Delivered
from node.roles.frames import FrameError, Round, read, take
from node.roles.ports import Node
from node.roles.records import path_of, preimage_of, proof_of, settled_of
from settlement import trees
from settlement.chain.panel import WRONG_TARGET
from settlement.draws import RoundEvidence
from settlement.panel_watch import Sealed, Suspect
from settlement.panels import Answer, place_of
from settlement.records import Order, RoundRecord, SessionStart

SUSPECT: Final = "suspect"  # the journal's name for tokens to accuse
_ANSWER: Final = 32 + 32 + 8 + 1


# ---------------------------------------------------------------- answers


def answer_name(question: str) -> str:
    """What the journal calls the answer to a jury's question (`PanelCase.question`)."""
    return f"jury:{question}"


def wire_of(sealed: Sealed) -> bytes:
    """Salt, fingerprint, margin and whether nothing was delivered: 73 bytes."""
    answer = sealed.answer
    return sealed.salt + answer.print + struct.pack(">Q?", answer.margin, answer.withheld)


def sealed_of(raw: bytes) -> Sealed:
    """The inverse of `wire_of`; FrameError otherwise."""
    if len(raw) != _ANSWER:
        raise FrameError(f"an answer has {_ANSWER} bytes, not {len(raw)}")
    margin, withheld = struct.unpack(">Q?", raw[64:])
    return Sealed(Answer(print=raw[32:64], margin=margin, withheld=withheld), raw[:32])


# ---------------------------------------------------------------- suspicions


@dataclass(frozen=True)
class Suspicion:
    """One output token of a settled root, or D's draft of it, with all that its place is shown by.

    Attributes:
        hung: the round's record and path under the root, with order and start.
        done: the round's frames. within: the token's number in the round.
        fault: 9, of V's token, or 12, of D's draft.
    """

    hung: DrawnAnswer
    done: Round
    within: int
    fault: int = WRONG_TARGET

    def to_wire(self) -> bytes:
        hung = self.hung.encode()
        head = struct.pack(">BII", self.fault, self.within, len(hung))
        return head + hung + self.done.to_wire()

    @classmethod
    def from_wire(cls, raw: bytes) -> Suspicion:
        """The inverse of `to_wire`; FrameError or MalformedFrame otherwise."""
        head, raw = take(raw, 9, "suspicion")
        fault, within, size = struct.unpack(">BII", head)
        hung, raw = take(raw, size, "place")
        return cls(decode(hung, DrawnAnswer), Round.from_wire(raw), within, fault)

    @classmethod
    def of(
        cls, delivered: Delivered, index: int, within: int, fault: int = WRONG_TARGET
    ) -> Suspicion | None:
        """A token of a delivered session; None where its round does not hang under the root."""
        proof = delivered.proofs[index]
        if proof is None:
            return None
        terms, base = delivered.terms, delivered.base
        hung = DrawnAnswer(
            root=preimage_of(delivered.root),
            base=None if base is None else preimage_of(base),
            record=delivered.records[index].to_wire(),
            path=path_of(proof),
            order=terms.order.to_wire(),
            start=terms.start.to_wire(),
        )
        return cls(hung, delivered.rounds[index], within, fault)

    def evidence(self) -> tuple[trees.Settled, trees.SumProof, RoundEvidence]:
        """Root, proof and round, as the panel's place is made of them."""
        order, _ = read(Order, self.hung.order)
        start, _ = read(SessionStart, self.hung.start)
        record, _ = read(RoundRecord, self.hung.record)
        settled = settled_of(self.hung.root)
        found = evidence_of(order, start, self.done.draft, self.done.verdict, record)
        return settled, proof_of(self.hung.path, settled.leaf_count), found

    def suspect(self) -> Suspect:
        """As the watcher takes it to the panel."""
        settled, proof, evidence = self.evidence()
        record, order = evidence.record, evidence.order
        return Suspect(
            guilty=order.verifier if self.fault == WRONG_TARGET else order.drafter,
            start_hash=record.start_hash,
            round=record.round,
            within=self.within,
            lane=order.lane.id,
            root=settled.root,
            place=place_of(settled, proof, evidence, self.within),
            fault=self.fault,
        )


def suspect(
    node: Node, delivered: Delivered, positions: list[int], fault: int = WRONG_TARGET
) -> bool:
    """Journals the first of these output positions that hangs under the settled root, for the
    node's watcher to accuse at its next look. One a session and fault: a bond is put down for each,
    and one verdict says what the others would. False where there is none, or one is kept already.
    """
    prefix = f"{SUSPECT}:{fault}:{delivered.terms.start_hash.hex()}"
    if node.journal.secrets_under(prefix):
        return False
    wanted = sorted(set(positions))
    for index, done in enumerate(delivered.rounds):
        verdict = done.verdict.verdict
        for position in wanted:
            within = position - verdict.base
            if not 0 <= within < verdict.emitted:
                continue
            found = Suspicion.of(delivered, index, within, fault)
            if found is not None:
                node.journal.secret_once(f"{prefix}:{index}:{within}", found.to_wire)
                node.metrics.count("suspects")
                node.log.warning(
                    "kept for a panel",
                    session="0x" + delivered.terms.order.session_id.hex()[:12],
                    round=index,
                    position=position,
                    fault=f"F{fault}",
                )
                return True
    return False
