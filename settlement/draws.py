"""Draws in Python: which lanes of a batch are drawn, and what answers for a drawn position. Pure.

Mirrors `DrawBeacon._lot`, `chanceOf` and `Openings.targetOf`; a test runs both on the same batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from settlement import trees
from settlement.hashing import TAG_SAMPLE, ZERO32, keccak256, uint
from settlement.records import (
    DraftCommit,
    DraftLeaf,
    Order,
    RoundRecord,
    SessionStart,
    Sums,
    Verdict,
    VerdictLeaf,
    packed_kept,
)
from settlement.schema import Record

_MAX_BPS: Final = 10_000
_COVERAGE_ONE: Final = 256
_BASE_RATE, _FAULT_BPS, _SAMPLES = 3, 6, 8  # places in IDrawBeacon.Terms


class CannotOpen(ValueError):
    """The evidence at hand does not answer for a drawn position; the message says what lacks."""


@dataclass(frozen=True)
class DrawTerms:
    """IDrawBeacon.Terms, the part that draws need."""

    base_rate: int
    fault_bps: int
    samples: int

    @classmethod
    def of(cls, terms: Sequence[Any]) -> DrawTerms:
        return cls(int(terms[_BASE_RATE]), int(terms[_FAULT_BPS]), int(terms[_SAMPLES]))


def chance_of(terms: DrawTerms, coverage: int) -> int:
    """The chance, out of 2**64, that a lane with this cover is drawn (DrawBeacon.chanceOf)."""
    if coverage == 0:
        return 1 << 64
    numerator = (8 * _MAX_BPS * _COVERAGE_ONE) << 64
    needed = -(-numerator // (3 * terms.fault_bps * coverage))
    return min(max(needed, terms.base_rate << 32), 1 << 64)


def lane_seed(randomness: bytes, index: int) -> bytes:
    """keccak256(TAG_SAMPLE ‖ randomness ‖ uint32 index): the seed of a batch's entry."""
    return keccak256(TAG_SAMPLE, randomness, uint(index, 4))


def is_drawn(randomness: bytes, index: int, terms: DrawTerms, coverage: int) -> bool:
    """Whether the entry is drawn: its coin, the top 64 bits of its seed, is below its chance."""
    coin = int.from_bytes(lane_seed(randomness, index)[:8], "big")
    return coin < chance_of(terms, coverage)


def target_of(seed: bytes, sample: int, output: int) -> int:
    """Which output token of a tree the sample asks for: keccak256(TAG_SAMPLE ‖ seed ‖ uint8
    sample) mod output."""
    return int.from_bytes(keccak256(TAG_SAMPLE, seed, uint(sample, 1)), "big") % output


@dataclass(frozen=True)
class Entry:
    """One lane of a batch, as Batches.Entry packs it."""

    lane: bytes
    root: bytes
    figures: int

    @property
    def coverage(self) -> int:
        return self.figures >> 224 & 0xFFFFFF

    def packed(self) -> bytes:
        """lane ‖ root ‖ figures, 96 bytes."""
        return self.lane + self.root + uint(self.figures, 32)


# ---------------------------------------------------------------- evidence


@dataclass(frozen=True)
class RoundEvidence:
    """A round with everything that was signed and committed in it. `kept` has one list per draft
    leaf in rejection mode."""

    order: Order
    start: SessionStart
    commit: DraftCommit | None
    commit_signature: bytes
    draft_leaves: tuple[DraftLeaf, ...]
    kept: tuple[tuple[tuple[int, int], ...], ...]
    verdict: Verdict
    verdict_signature: bytes
    verdict_leaves: tuple[VerdictLeaf, ...]
    record: RoundRecord

    @property
    def key(self) -> tuple[bytes, int]:
        return (self.record.start_hash, self.record.round)


@dataclass(frozen=True)
class BatchEvidence:
    """All rounds under a settled root, in tree order; the preimage of its base (None: the epoch's
    start); and earlier rounds of the same sessions, by (start hash, round)."""

    rounds: tuple[RoundEvidence, ...]
    base: trees.Settled | None
    earlier: Mapping[tuple[bytes, int], RoundEvidence]

    def settled(self) -> tuple[trees.SumTree, trees.Settled]:
        """The tree and the preimage of its root."""
        tree = trees.SumTree(evidence.record for evidence in self.rounds)
        return tree, tree.settled(self.base)


def opening_of(batch: BatchEvidence, root: bytes, seed: bytes, sample: int) -> tuple[Any, ...]:
    """Openings.Opening for one sample of a drawn root, in the ABI's order.

    Raises CannotOpen when the rounds do not make up that root, or the round before is not at hand.
    """
    if not batch.rounds:
        raise CannotOpen(f"no rounds under 0x{root.hex()} are at hand")
    tree, settled = batch.settled()
    if settled.root != root:
        raise CannotOpen(f"the rounds lead to root 0x{settled.root.hex()}, not 0x{root.hex()}")
    target = target_of(seed, sample, tree.top().sums.output)
    index = tree.descend(target)
    proof = tree.proof(index)
    evidence = batch.rounds[index]
    within = proof.offset_of(trees.round_leaf(evidence.record), target)
    previous, previous_signature = _previous(batch, evidence)
    verdict_tree = trees.MerkleTree(leaf.leaf_hash for leaf in evidence.verdict_leaves)
    draft, draft_path, kept = _draft_part(evidence, within)
    return (
        root_words(settled),
        root_words(batch.base),
        evidence.record.to_abi(),
        index,
        [(node.hash, sum_words(node.sums)) for node in proof.siblings],
        evidence.order.to_abi(),
        evidence.start.to_abi(),
        evidence.commit.to_abi() if evidence.commit else blank(DraftCommit),
        evidence.commit_signature,
        evidence.verdict.to_abi(),
        evidence.verdict_signature,
        previous,
        previous_signature,
        evidence.verdict_leaves[within].to_abi(),
        list(verdict_tree.siblings(within)),
        draft,
        draft_path,
        kept,
    )


def _previous(batch: BatchEvidence, evidence: RoundEvidence) -> tuple[tuple[Any, ...], bytes]:
    """The verdict of the round before with V's signature; blank in round 0."""
    if evidence.record.round == 0:
        return blank(Verdict), b""
    key = (evidence.record.start_hash, evidence.record.round - 1)
    here = {found.key: found for found in batch.rounds}
    before = here.get(key) or batch.earlier.get(key)
    if before is None:
        raise CannotOpen(f"round {key[1]} of 0x{key[0].hex()} is not at hand")
    return before.verdict.to_abi(), before.verdict_signature


def _draft_part(evidence: RoundEvidence, within: int) -> tuple[tuple[Any, ...], list[bytes], bytes]:
    """The draft leaf at that place with its path and kept list; blank where none was drafted."""
    if within >= len(evidence.draft_leaves):
        return blank(DraftLeaf), [], b""
    tree = trees.MerkleTree(leaf.leaf_hash for leaf in evidence.draft_leaves)
    kept = evidence.kept[within] if evidence.kept else ()
    return evidence.draft_leaves[within].to_abi(), list(tree.siblings(within)), packed_kept(kept)


def root_words(settled: trees.Settled | None) -> tuple[Any, ...]:
    """Openings.Root: the preimage of a settled root, blank for none."""
    if settled is None:
        return (ZERO32, [0] * 9, 0, ZERO32)
    return (settled.top, sum_words(settled.sums), settled.leaf_count, settled.base_root)


def sum_words(sums: Sums) -> list[int]:
    """The nine words of uint256[9]: output | accepted << 64, then the buckets."""
    return list(sums.words)


def blank(kind: type[Record]) -> tuple[Any, ...]:
    """A record of zeros, as Solidity's default."""
    blanks: dict[str, Any] = {"bytes32": ZERO32, "address": bytes(20), "bool": False}
    out: list[Any] = []
    for spec in kind.specs():
        value = blanks.get(spec.element.name, 0)
        if spec.length is not None:
            value = [value] * max(spec.length, 0)
        out.append(value)
    return tuple(out)
