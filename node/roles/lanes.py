"""A lane as its three parties keep it: which rounds are covered by which voucher.

Pure. A lane's tree grows over the sessions that share it; the client decides the order of its
leaves and names them as runs of consecutive rounds. Verifier and drafter recompute the voucher
from their own rounds and sign only if every byte agrees, so nobody signs a figure it was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from settlement import payments, trees
from settlement.hashing import ZERO32
from settlement.records import Lane, RoundRecord, Sums, Voucher

RoundKey = tuple[bytes, int]  # (start hash, round)


class LaneFault(ValueError):
    """A voucher that this party will not sign; the message says why."""


@dataclass(frozen=True)
class LeafRun:
    """Rounds first … first + count − 1 of one session, in the order of the lane's tree."""

    start_hash: bytes
    first: int
    count: int

    def members(self) -> Iterable[RoundKey]:
        return ((self.start_hash, self.first + index) for index in range(self.count))


@dataclass(frozen=True)
class LaneRound:
    """A committed round with what it is worth under its own order's prices (token units)."""

    record: RoundRecord
    due_drafter: int
    due_verifier: int

    @property
    def key(self) -> RoundKey:
        return (self.record.start_hash, self.record.round)


@dataclass(frozen=True)
class LaneBook:
    """The state of one lane in one epoch.

    Attributes:
        base_root: the settled root (zero: the epoch's start) under which `leaves` hang.
        base_sums, base_drafter, base_verifier: cumulative figures at that root.
        covered: rounds that earlier bases cover; they may never come again (F5).
        leaves: rounds since the base, in tree order.
        tree: append-only, and its first len(leaves) leaves are these: books that go on from one
            another share it, so that a voucher over a long batch costs what was added to it.
    """

    lane: Lane
    epoch: int = 0
    base_root: bytes = ZERO32
    base_sums: Sums = field(default_factory=Sums)
    base_drafter: int = 0
    base_verifier: int = 0
    covered: frozenset[RoundKey] = frozenset()
    leaves: tuple[LaneRound, ...] = ()
    tree: trees.SumTree = field(default_factory=trees.SumTree, repr=False, compare=False)

    def append(self, rounds: Iterable[LaneRound]) -> LaneBook:
        """The book with more leaves. LaneFault for a round that is there already."""
        return self.over((*self.leaves, *rounds))

    def over(self, leaves: Iterable[LaneRound]) -> LaneBook:
        """The book on the same base over other leaves. LaneFault for a round that is counted
        twice, or under an earlier base."""
        leaves = tuple(leaves)
        seen: set[RoundKey] = set()
        for item in leaves:
            if item.key in self.covered or item.key in seen:
                raise LaneFault(f"round {item.key[1]} of 0x{item.key[0].hex()} is counted already")
            seen.add(item.key)
        return replace(self, leaves=leaves, tree=self._tree_over(leaves))

    def _tree_over(self, leaves: tuple[LaneRound, ...]) -> trees.SumTree:
        known = len(self.leaves)
        if leaves[:known] == self.leaves[: len(leaves)]:
            if len(leaves) <= known:
                return self.tree
            if len(self.tree) == known:  # else another book went on from here
                for item in leaves[known:]:
                    self.tree.append_round(item.record)
                return self.tree
        return trees.SumTree(item.record for item in leaves)

    @property
    def top(self) -> bytes:
        """The hash of the top over all leaves; TreeError if there are none."""
        return self.tree.top(len(self.leaves)).hash

    def voucher(self) -> Voucher:
        """The voucher over all leaves. LaneFault if there are none."""
        if not self.leaves:
            raise LaneFault("nothing to pay for yet")
        top = self.tree.top(len(self.leaves))
        sums = self.base_sums + top.sums
        return Voucher(
            lane=self.lane.id,
            epoch=self.epoch,
            output=sums.output,
            accepted=sums.accepted,
            due_drafter=self.base_drafter + sum(leaf.due_drafter for leaf in self.leaves),
            due_verifier=self.base_verifier + sum(leaf.due_verifier for leaf in self.leaves),
            base_root=self.base_root,
            root=trees.settled_root(top.hash, sums, len(self.leaves), self.base_root),
            leaf_count=len(self.leaves),
            buckets=sums.buckets,
        )

    def rebase(self, voucher: Voucher) -> LaneBook:
        """The book after `voucher` (one of this book's own, over its first leaves) has settled:
        its root becomes the base and its leaves are covered for good."""
        if voucher.base_root != self.base_root or voucher.leaf_count > len(self.leaves):
            raise LaneFault("that voucher is not a prefix of this lane's leaves")
        head = self.leaves[: voucher.leaf_count]
        if self.over(head).voucher() != voucher:
            raise LaneFault("that voucher is not a prefix of this lane's leaves")
        settled = LaneBook(
            self.lane,
            self.epoch,
            base_root=voucher.root,
            base_sums=voucher.sums,
            base_drafter=voucher.due_drafter,
            base_verifier=voucher.due_verifier,
            covered=self.covered | {leaf.key for leaf in head},
        )
        return settled.over(self.leaves[voucher.leaf_count :])

    def runs(self) -> tuple[LeafRun, ...]:
        """The leaves as runs of consecutive rounds."""
        out: list[LeafRun] = []
        session, first, count = b"", 0, 0
        for start_hash, number in (leaf.key for leaf in self.leaves):
            if start_hash == session and number == first + count:
                count += 1
                continue
            if count:
                out.append(LeafRun(session, first, count))
            session, first, count = start_hash, number, 1
        if count:
            out.append(LeafRun(session, first, count))
        return tuple(out)


def lane_round(record: RoundRecord, price_accepted: int, price_output: int) -> LaneRound:
    """A round with its dues: the drafter per accepted token, the verifier per output token."""
    dues = payments.dues(record.output, record.accepted, price_accepted, price_output)
    return LaneRound(record, dues.drafter, dues.verifier)


def expected_voucher(
    book: LaneBook, runs: Iterable[LeafRun], known: Mapping[RoundKey, LaneRound]
) -> tuple[LaneBook, Voucher]:
    """What a voucher over `runs` on the book's base must say, from this party's own rounds.

    Returns the book with those leaves, and the voucher. Raises LaneFault for a round this party
    does not know (its frames may still be on the way: ask again), or one counted twice.
    """
    leaves: list[LaneRound] = []
    for run in runs:
        for key in run.members():
            leaf = known.get(key)
            if leaf is None:
                raise LaneFault(f"round {key[1]} of session 0x{key[0].hex()} is not known here")
            leaves.append(leaf)
    fresh = book.over(leaves)
    return fresh, fresh.voucher()
