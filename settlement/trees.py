"""Merkle trees, Merkle sum trees, and the settled root of a lane's batch.

Position-indexed, never sorted pairs: leaf i of n is proven with i and n, and n is committed next to
every root. Levels are paired from the left; an odd node at a level's end moves up unchanged, sums
included, without hashing (the shape of RFC 6962's tree). So the path of leaf i of n is, per level
of width w (starting with w = n), until w = 1:

    if i is even and i + 1 = w: no sibling, nothing is hashed
    if i is even:               parent(node, sibling)
    if i is odd:                parent(sibling, node)
    then i = i >> 1, w = (w + 1) >> 1

and the proof holds exactly those siblings, from the leaf up.

Hashes: leaf = Record.leaf_hash (prefix 0x00); node = keccak256(0x01 ‖ l ‖ r); sum node =
keccak256(0x02 ‖ l ‖ sums_l ‖ r ‖ sums_r) with 288 packed bytes of sums each; settled root =
keccak256(0x03 ‖ top ‖ sums ‖ uint32 leafCount ‖ baseRoot). An empty tree has no root, and the zero
hash is never a root or a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from settlement.hashing import ZERO32, keccak256, uint
from settlement.records import RoundRecord, Sums
from settlement.schema import RecordError

MAX_LEAVES: Final = (1 << 32) - 1
MAX_DEPTH: Final = 32
NODE_PREFIX: Final = b"\x01"
SUM_PREFIX: Final = b"\x02"
SETTLED_PREFIX: Final = b"\x03"

Node = TypeVar("Node")


class TreeError(ValueError):
    """An empty tree, an index outside it, or a proof that is malformed or leads elsewhere."""


@dataclass(frozen=True)
class SumNode:
    """A node of a sum tree: its hash (32 bytes) and what lies under it."""

    hash: bytes
    sums: Sums


def node_hash(left: bytes, right: bytes) -> bytes:
    """keccak256(0x01 ‖ left ‖ right)."""
    return keccak256(NODE_PREFIX, left, right)


def sum_node(left: SumNode, right: SumNode) -> SumNode:
    """The parent: keccak256(0x02 ‖ l ‖ sums_l ‖ r ‖ sums_r), sums added lane by lane. TreeError
    when a lane passes 2**63 − 1."""
    try:
        sums = left.sums + right.sums
    except RecordError as error:
        raise TreeError(f"sums overflow: {error}") from error
    digest = keccak256(SUM_PREFIX, left.hash, left.sums.packed, right.hash, right.sums.packed)
    return SumNode(digest, sums)


def settled_root(top: bytes, sums: Sums, leaf_count: int, base_root: bytes) -> bytes:
    """keccak256(0x03 ‖ top ‖ sums ‖ uint32 leafCount ‖ baseRoot). `sums` are cumulative over the
    lane's epoch: those in baseRoot's preimage plus this tree's. baseRoot is zero at its start."""
    return keccak256(SETTLED_PREFIX, top, sums.packed, uint(leaf_count, 4), base_root)


# ---------------------------------------------------------------- proofs


def _check_place(index: int, count: int) -> None:
    if not 0 < count <= MAX_LEAVES:
        raise TreeError(f"a tree has 1 to 2**32 − 1 leaves, not {count}")
    if not 0 <= index < count:
        raise TreeError(f"leaf {index} is outside a tree of {count}")


def _fold(
    node: Node, index: int, count: int, siblings: Sequence[Node], join: Callable[[Node, Node], Node]
) -> Node:
    """The top that `node`, as leaf `index` of `count`, leads to."""
    _check_place(index, count)
    if len(siblings) > MAX_DEPTH:
        raise TreeError(f"a proof has at most {MAX_DEPTH} siblings, not {len(siblings)}")
    used = 0
    while count > 1:
        if index & 1 or index + 1 < count:
            if used == len(siblings):
                raise TreeError(f"the proof is cut short at {used} siblings")
            other = siblings[used]
            node = join(other, node) if index & 1 else join(node, other)
            used += 1
        index, count = index >> 1, (count + 1) >> 1
    if used != len(siblings):
        raise TreeError(f"the proof has {len(siblings) - used} siblings too many")
    return node


def _check_hash(name: str, value: bytes) -> None:
    if not isinstance(value, bytes) or len(value) != 32 or value == ZERO32:
        raise TreeError(f"{name} is 32 bytes and not zero, got {value!r}")


@dataclass(frozen=True)
class MerkleProof:
    """That a leaf is number `index` of `count` under a root. Siblings from the leaf up."""

    index: int
    count: int
    siblings: tuple[bytes, ...]

    def root_of(self, leaf: bytes) -> bytes:
        """The root this proof leads to from `leaf` (32 bytes). TreeError when malformed."""
        _check_hash("a leaf", leaf)
        for sibling in self.siblings:
            _check_hash("a sibling", sibling)
        return _fold(leaf, self.index, self.count, self.siblings, node_hash)

    def verify(self, root: bytes, leaf: bytes) -> None:
        """TreeError unless the proof leads from `leaf` to `root`. The caller must hold `count`
        against the committed number of leaves."""
        _check_hash("a root", root)
        if self.root_of(leaf) != root:
            raise TreeError(f"leaf {self.index} of {self.count} does not lead to 0x{root.hex()}")


@dataclass(frozen=True)
class SumProof:
    """That a leaf with its sums is number `index` of `count` in a sum tree; siblings from the leaf
    up, each with its sums."""

    index: int
    count: int
    siblings: tuple[SumNode, ...]

    def top_of(self, leaf: SumNode) -> SumNode:
        """Top hash and total sums this proof leads to. TreeError when malformed or overflowing."""
        _check_hash("a leaf", leaf.hash)
        for sibling in self.siblings:
            _check_hash("a sibling", sibling.hash)
        return _fold(leaf, self.index, self.count, self.siblings, sum_node)

    def output_before(self) -> int:
        """Output tokens of all leaves left of this one: of the siblings that are left ones."""
        before, index, count, used = 0, self.index, self.count, 0
        while count > 1:
            if index & 1 or index + 1 < count:
                if used == len(self.siblings):
                    raise TreeError(f"the proof is cut short at {used} siblings")
                if index & 1:
                    before += self.siblings[used].sums.output
                used += 1
            index, count = index >> 1, (count + 1) >> 1
        return before

    def offset_of(self, leaf: SumNode, output_position: int) -> int:
        """Where in this leaf's round the batch's output token `output_position` lies: the index of
        its verdict leaf. TreeError unless outputBefore ≤ position < outputBefore + leaf's output.

        This is the whole check of a weighted descent: the sums are in the hashes, so only one leaf
        of the tree passes for a position."""
        offset = output_position - self.output_before()
        if not 0 <= offset < leaf.sums.output:
            raise TreeError(
                f"output token {output_position} does not lie in leaf {self.index}, which begins "
                f"at {output_position - offset} and has {leaf.sums.output}"
            )
        return offset


@dataclass(frozen=True)
class Settled:
    """The preimage of a settled root. `sums` are cumulative over the lane's epoch."""

    top: bytes
    sums: Sums
    leaf_count: int
    base_root: bytes

    def __post_init__(self) -> None:
        _check_hash("a top", self.top)
        if not 0 < self.leaf_count <= MAX_LEAVES:
            raise TreeError(f"a batch has 1 to 2**32 − 1 rounds, not {self.leaf_count}")
        if len(self.base_root) != 32:
            raise TreeError(f"a base root has 32 bytes, got {self.base_root!r}")

    @property
    def root(self) -> bytes:
        return settled_root(self.top, self.sums, self.leaf_count, self.base_root)

    def verify_round(
        self, record: RoundRecord, proof: SumProof, base: Settled | None = None
    ) -> None:
        """TreeError unless `record` is a round of this batch. `base` opens base_root, and is None
        exactly when that is zero."""
        if proof.count != self.leaf_count:
            raise TreeError(f"the batch has {self.leaf_count} rounds, the proof {proof.count}")
        if (ZERO32 if base is None else base.root) != self.base_root:
            raise TreeError(f"that is not the preimage of base root 0x{self.base_root.hex()}")
        top = proof.top_of(round_leaf(record))
        if top.hash != self.top:
            raise TreeError(f"round {record.round} does not lead to top 0x{self.top.hex()}")
        total = top.sums if base is None else base.sums + top.sums
        if total != self.sums:
            raise TreeError("the settled sums are not the base's plus the tree's")


# ---------------------------------------------------------------- trees


class Tree(Generic[Node]):
    """An append-only tree that keeps every complete subtree, so that an append, a root and a proof
    each cost O(log n) hashes, at the present size or at any size it had before."""

    def __init__(self, join: Callable[[Node, Node], Node]) -> None:
        self._join = join
        # _levels[k][i] covers leaves i·2**k … (i + 1)·2**k − 1, all present.
        self._levels: list[list[Node]] = [[]]

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, leaf: Node) -> None:
        """One more leaf. TreeError when the tree is full, or the join refuses."""
        if len(self) >= MAX_LEAVES:
            raise TreeError("the tree is full: open a new batch")
        # Join before anything is kept, so that an overflow leaves the tree as it was.
        fresh = [leaf]
        level = 0
        while (len(self) >> level) & 1:
            fresh.append(self._join(self._levels[level][-1], fresh[-1]))
            level += 1
        for height, node in enumerate(fresh):
            if height == len(self._levels):
                self._levels.append([])
            self._levels[height].append(node)

    def top(self, count: int | None = None) -> Node:
        """The top node over the first `count` leaves (all by default). TreeError when empty."""
        count = len(self) if count is None else count
        self._check(0, count)
        return self._node(count, (count - 1).bit_length(), 0)

    def siblings(self, index: int, count: int | None = None) -> tuple[Node, ...]:
        """The siblings of leaf `index` among the first `count` leaves, from the leaf up."""
        count = len(self) if count is None else count
        self._check(index, count)
        out = []
        level, width = 0, count
        while width > 1:
            other = index ^ 1
            if other < width:
                out.append(self._node(count, level, other))
            index, width, level = index >> 1, (width + 1) >> 1, level + 1
        return tuple(out)

    def _check(self, index: int, count: int) -> None:
        _check_place(index, count)
        if count > len(self):
            raise TreeError(f"the tree has {len(self)} leaves, not {count}")

    def _node(self, count: int, level: int, at: int) -> Node:
        """Node `at` of `level` in the tree of `count` leaves."""
        if (at + 1) << level <= count:
            return self._levels[level][at]
        # On the right edge: the right child may be missing, and then the left one moves up.
        left = self._node(count, level - 1, 2 * at)
        if (2 * at + 1) << (level - 1) >= count:
            return left
        return self._join(left, self._node(count, level - 1, 2 * at + 1))


class MerkleTree(Tree[bytes]):
    """A Merkle tree over leaf hashes."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        super().__init__(node_hash)
        for leaf in leaves:
            self.append(leaf)

    def append(self, leaf: bytes) -> None:
        _check_hash("a leaf", leaf)
        super().append(leaf)

    def proof(self, index: int, count: int | None = None) -> MerkleProof:
        count = len(self) if count is None else count
        return MerkleProof(index, count, self.siblings(index, count))


class SumTree(Tree[SumNode]):
    """The sum tree of a lane's batch: its leaves are round records."""

    def __init__(self, rounds: Iterable[RoundRecord] = ()) -> None:
        super().__init__(sum_node)
        for record in rounds:
            self.append_round(record)

    def append_round(self, record: RoundRecord) -> None:
        """TreeError for a round without output, which no draw could ever reach."""
        if record.output == 0:
            raise TreeError(f"round {record.round} has no output token")
        self.append(round_leaf(record))

    def proof(self, index: int, count: int | None = None) -> SumProof:
        count = len(self) if count is None else count
        return SumProof(index, count, self.siblings(index, count))

    def descend(self, output_position: int, count: int | None = None) -> int:
        """The index of the leaf in which the batch's output token `output_position` lies, found
        from the top: left if position < left's output, else right with position − left's output.
        TreeError outside [0, total output)."""
        count = len(self) if count is None else count
        total = self.top(count).sums.output
        if not 0 <= output_position < total:
            raise TreeError(f"output token {output_position} is outside a batch of {total}")
        level, at = (count - 1).bit_length(), 0
        while level:
            level -= 1
            left = self._node(count, level, 2 * at).sums.output
            at = 2 * at
            if output_position >= left:
                output_position -= left
                at += 1
        return at

    def settled(self, base: Settled | None = None, count: int | None = None) -> Settled:
        """The settled batch over the first `count` rounds, on top of `base` (None: the epoch's
        start). TreeError when the cumulative sums overflow."""
        count = len(self) if count is None else count
        top = self.top(count)
        try:
            sums = top.sums if base is None else base.sums + top.sums
        except RecordError as error:
            raise TreeError(f"sums overflow: {error}") from error
        return Settled(top.hash, sums, count, ZERO32 if base is None else base.root)


def round_leaf(record: RoundRecord) -> SumNode:
    """The sum tree's leaf of a round: its leaf hash and its own sums."""
    return SumNode(record.leaf_hash, record.sums)


def merkle_root(leaves: Iterable[bytes]) -> bytes:
    """The root over leaf hashes; TreeError for none."""
    return MerkleTree(leaves).top()
