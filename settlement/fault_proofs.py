"""What a proven fault is: its number and code, who is guilty, and the evidence that FaultCourt or
ExactDispute takes. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from settlement import trees
from settlement.accept_rule import LeafFault
from settlement.draws import RoundEvidence, sum_words
from settlement.hashing import ZERO32, keccak256, uint
from settlement.records import Domain, DraftCommit, DraftLeaf, Verdict, VerdictLeaf
from settlement.signing import BadSignature

MODEL_FAULT: Final = 9  # the number of what needs the model, or the exact tier's arithmetic, to see


class Code(IntEnum):
    """Codes of Openings.sol and Evidence.sol, beside those of `LeafFault`."""

    SUMS = 16  # F5: the root's or a node's sums are not what lies below
    RECORD = 17  # F5: a record, or a verdict, says otherwise than what it names
    COUNTS = 18  # F5: k, emitted or buckets do not fit each other
    CONTEXT = 19  # F5: base or context does not follow
    STOP_PASSED = 20  # F5: output goes on after a stop id
    WINDOW_VERIFIER = 21  # F4: a window left out, or over the order's limit
    ROUND_TWICE = 22  # F5
    VERDICT_TWICE = 23  # F2
    WINDOW_DRAFTER = 40  # F4: another number of drafts than announced
    DRAFT_TWICE = 41  # F1


class Kind(Enum):
    """A kind of proof: the rule's function, and the court's that takes the same evidence."""

    DRAFT_TWICE = ("draftTwice", "proveDraftTwice")
    VERDICT_TWICE = ("verdictTwice", "proveVerdictTwice")
    OTHER_DRAFT = ("otherDraft", "proveOtherDraft")
    ACCEPT_RULE = ("acceptRule", "proveAcceptRule")
    DRAFT_LEAF = ("draftLeaf", "proveDraftLeaf")
    DRAFT_ROUND = ("draftRound", "proveDraftRound")
    VERDICT_ROUND = ("verdictRound", "proveVerdictRound")
    ROUND_FIT = ("roundFit", "proveRoundFit")
    LEAF_PLACE = ("leafPlace", "proveLeafPlace")
    ALL_LEAVES = ("allLeaves", "proveAllLeaves")
    RECORD = ("recordCase", "proveRecord")
    SUMS = ("treeStep", "proveSums")
    ROUND_TWICE = ("roundTwice", "proveRoundTwice")
    EXACT_TOKEN = ("token", "proveToken")
    EXACT_ELEMENT = ("element", "proveElement")

    @property
    def rule_function(self) -> str:
        return self.value[0]

    @property
    def court_function(self) -> str:
        return self.value[1]

    @property
    def of_tree(self) -> bool:
        """Judged by TreeRule, with the root's source beside it."""
        return self in (Kind.RECORD, Kind.SUMS, Kind.ROUND_TWICE)

    @property
    def of_exact(self) -> bool:
        """Judged by ExactRule and punished by ExactDispute; all others go to FaultCourt."""
        return self in (Kind.EXACT_TOKEN, Kind.EXACT_ELEMENT)


@dataclass(frozen=True)
class Fault:
    """One proven fault.

    Attributes:
        number: the protocol's, 1 to 5, or 9.
        code: `LeafFault`, `Code` or `ExactCode`, as the contract returns it.
        guilty: 20-byte address of the key that signed.
        by_drafter: whose stake answers; else the verifier's.
        start_hash, round: of the round; (settled root, 0) for false sums.
        kind, evidence: which function takes it, and its argument in the ABI's order.
        lane, root: of a fault in a tree; zero elsewhere.
    """

    number: int
    code: int
    guilty: bytes
    by_drafter: bool
    start_hash: bytes
    round: int
    kind: Kind
    evidence: tuple[Any, ...]
    lane: bytes = ZERO32
    root: bytes = ZERO32

    @property
    def key(self) -> tuple[int, bytes, bytes, int]:
        """What is punished once: number, guilty, start hash, round."""
        return (self.number, self.guilty, self.start_hash, self.round)

    @property
    def name(self) -> bytes:
        """What the vault calls it (`fault_name`)."""
        return fault_name(*self.key)


def fault_name(number: int, guilty: bytes, start_hash: bytes, round_: int) -> bytes:
    """What the vault punishes once: keccak256(abi.encode("verdraft/fault/1", number, guilty,
    startHash, round))."""
    text = b"verdraft/fault/1"
    head = uint(160, 32) + uint(number, 32) + bytes(12) + guilty + start_hash + uint(round_, 32)
    return keccak256(head + uint(len(text), 32) + text.ljust(32, b"\0"))


def number_of(code: int) -> int:
    """The protocol's number of a fault by its code (`Openings.faultOf`)."""
    if code in (Code.WINDOW_VERIFIER, Code.WINDOW_DRAFTER):
        return 4
    if code == Code.VERDICT_TWICE:
        return 2
    if code == Code.DRAFT_TWICE:
        return 1
    if Code.SUMS <= code <= Code.ROUND_TWICE:
        return 5
    return int(LeafFault(code).fault[1:])


# ---------------------------------------------------------------- parts of evidence


def by_verifier(
    evidence: RoundEvidence, number: int, code: int, kind: Kind, proof: tuple[Any, ...]
) -> Fault:
    """A fault of the round's verifier, with its proof in the ABI's order."""
    verdict = evidence.verdict
    place = (verdict.start_hash, verdict.round)
    return Fault(number, int(code), evidence.order.verifier, False, *place, kind, proof)


def session_of(evidence: RoundEvidence) -> tuple[Any, Any]:
    """Order and start, as contract calls take them."""
    return evidence.order.to_abi(), evidence.start.to_abi()


def with_signature(record: DraftCommit | Verdict, signature: bytes) -> tuple[Any, bytes]:
    """A signed record, as contract calls take it."""
    return record.to_abi(), signature


def is_by(domain: Domain, record: DraftCommit | Verdict, signature: bytes, expected: bytes) -> bool:
    """Whether `expected` (20 bytes) signed the record; False for what is no signature."""
    try:
        return domain.signer(record, signature) == expected
    except BadSignature:
        return False


def window_of(evidence: RoundEvidence) -> int:
    """Drafts that the round had."""
    return 0 if evidence.commit is None else evidence.commit.k


def root_of(leaves: Sequence[DraftLeaf] | Sequence[VerdictLeaf]) -> bytes | None:
    """The Merkle root over the leaves; None for none."""
    return trees.merkle_root([leaf.leaf_hash for leaf in leaves]) if leaves else None


def step_words(siblings: Sequence[trees.SumNode]) -> list[tuple[bytes, list[int]]]:
    """Siblings of a sum tree's proof, in the ABI's order."""
    return [(node.hash, sum_words(node.sums)) for node in siblings]
