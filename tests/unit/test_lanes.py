"""A lane's book: the same voucher however the book came by its leaves, and at the cost of the new
ones only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.roles.lanes import LaneBook, LaneFault, LaneRound, LeafRun, expected_voucher, lane_round
from settlement import trees
from settlement.records import Lane, RoundRecord

LANE = Lane(b"\x01" * 20, b"\x02" * 20, b"\x03" * 20, b"\x04" * 20, bytes(32))


def leaf(number: int, session: int = 0) -> LaneRound:
    """A round with its own number of tokens, all in one bucket."""
    output = 1 + number % 3
    record = RoundRecord(
        start_hash=bytes([session]) * 32,
        round=number,
        draft_root=bytes(32),
        verdict_root=number.to_bytes(32, "big"),
        draft_commit_hash=bytes(32),
        verdict_hash=number.to_bytes(32, "big"),
        output=output,
        accepted=output - 1,
        buckets=(output - 1, 0, 0, 0, output - 1, 0, 0, 0),
    )
    return lane_round(record, 3, 11)


LEAVES = [leaf(number) for number in range(60)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=12))
def test_books_that_share_a_tree_say_what_fresh_ones_say(steps: list[tuple[int, int]]) -> None:
    books = [LaneBook(LANE)]
    for which, size in steps:
        book = books[which % len(books)]
        # Some books go on, some branch off with other leaves, some fall back to a prefix.
        if which == 3:
            books.append(book.over(book.leaves[:size]))
        else:
            taken = {item.key for item in book.leaves}
            free = [item for item in LEAVES[which * 7 :] if item.key not in taken]
            books.append(book.append(free[:size]))
    for book in books:
        if not book.leaves:
            continue
        again = LaneBook(LANE).append(book.leaves)
        assert book.voucher() == again.voucher()


def test_a_settled_prefix_becomes_the_base() -> None:
    book = LaneBook(LANE).append(LEAVES[:10])
    half = book.over(LEAVES[:4]).voucher()
    moved = book.rebase(half)
    assert moved.leaves == tuple(LEAVES[4:10])
    whole, last = book.voucher(), moved.voucher()
    assert (last.output, last.due_verifier) == (whole.output, whole.due_verifier)
    assert last.base_root == half.root
    with pytest.raises(LaneFault):
        moved.append([LEAVES[0]])
    with pytest.raises(LaneFault):
        moved.rebase(whole)


def test_a_round_counts_once() -> None:
    book = LaneBook(LANE).append(LEAVES[:3])
    with pytest.raises(LaneFault):
        book.append([LEAVES[2]])
    with pytest.raises(LaneFault):
        book.append([LEAVES[5], LEAVES[5]])
    assert (
        book.append([LEAVES[5]]).voucher()
        == LaneBook(LANE).append([*LEAVES[:3], LEAVES[5]]).voucher()
    )


def test_a_long_lane_costs_what_is_added_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []
    leaf_of = trees.round_leaf

    def counted(record: RoundRecord) -> trees.SumNode:
        hashed.append(record.verdict_hash)
        return leaf_of(record)

    monkeypatch.setattr(trees, "round_leaf", counted)
    book, known = LaneBook(LANE), {item.key: item for item in LEAVES}
    for count in range(1, len(LEAVES) + 1):
        runs = [LeafRun(bytes(32), 0, count)]
        for _ in range(2):  # a payee is asked again for what it has signed
            book, voucher = expected_voucher(book, runs, known)
            assert voucher.leaf_count == count
    assert len(hashed) == len(LEAVES)
