"""Trees: position-indexed, odd nodes promoted, sums committed; proofs from hostile hands."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import nonzero_words

from settlement.hashing import keccak256
from settlement.records import BUCKETS, MAX_LANE_COUNT, RoundRecord, Sums
from settlement.trees import (
    MAX_LEAVES,
    MerkleProof,
    MerkleTree,
    Settled,
    SumNode,
    SumProof,
    SumTree,
    TreeError,
    merkle_root,
    node_hash,
    round_leaf,
    settled_root,
    sum_node,
)


def level_by_level(nodes: list, join) -> object:
    """The definition: pair from the left, promote the odd one."""
    while len(nodes) > 1:
        paired = [join(a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=False)]
        nodes = paired + nodes[len(nodes) - len(nodes) % 2 :]
    return nodes[0]


leaves = st.lists(nonzero_words, min_size=1, max_size=20, unique=True)


def made_round(seed: int) -> RoundRecord:
    """A round whose every field follows from `seed`; drawing each lane would be slow."""
    rng = Random(seed)
    proposed = tuple(rng.randrange(9) for _ in range(BUCKETS))
    accepted = tuple(rng.randint(0, count) for count in proposed)
    lanes = Sums(rng.randint(1, 20), sum(accepted), proposed, accepted)
    hashes = [rng.randbytes(32) for _ in range(5)]
    return RoundRecord(
        hashes[0],
        rng.getrandbits(32),
        *hashes[1:],
        output=lanes.output,
        accepted=lanes.accepted,
        buckets=lanes.buckets,
    )


seeds = st.lists(st.integers(0, 2**32), min_size=1, max_size=12, unique=True)
sum_trees = seeds.map(lambda some: [made_round(seed) for seed in some]).map(
    lambda rounds: (SumTree(rounds), rounds)
)


@given(leaves)
def test_the_root_is_the_definitions_at_every_size(nodes: list[bytes]) -> None:
    tree = MerkleTree(nodes)
    for count in range(1, len(nodes) + 1):
        assert tree.top(count) == level_by_level(nodes[:count], node_hash)
    assert merkle_root(nodes) == tree.top()


@given(leaves)
def test_every_leaf_is_proven_at_every_size(nodes: list[bytes]) -> None:
    tree = MerkleTree(nodes)
    for count in range(1, len(nodes) + 1):
        for index in range(count):
            tree.proof(index, count).verify(tree.top(count), nodes[index])


@given(leaves, st.data())
def test_a_proof_proves_nothing_else(nodes: list[bytes], data: st.DataObject) -> None:
    tree = MerkleTree(nodes)
    index = data.draw(st.integers(0, len(nodes) - 1))
    other = data.draw(st.integers(0, len(nodes) - 1))
    proof, root = tree.proof(index), tree.top()
    if other != index:
        with pytest.raises(TreeError):
            proof.verify(root, nodes[other])
        with pytest.raises(TreeError):
            replace(proof, index=other).verify(root, nodes[index])
    for siblings in (
        (*proof.siblings, b"\x01" * 32),
        proof.siblings[:-1] if proof.siblings else (b"\x01" * 32,),
        proof.siblings[::-1] if len(set(proof.siblings)) > 1 else (b"\x01" * 32,) * 33,
    ):
        with pytest.raises(TreeError):
            replace(proof, siblings=siblings).verify(root, nodes[index])


def test_another_count_is_another_tree() -> None:
    nodes = [bytes([i + 1]) * 32 for i in range(6)]
    tree = MerkleTree(nodes)
    # Leaf 5 of 6 has its sibling at the lowest level; of 7, too: the count must be held against
    # the committed one. Where the paths differ, the proof itself fails.
    with pytest.raises(TreeError):
        replace(tree.proof(4), count=5).verify(tree.top(), nodes[4])
    with pytest.raises(TreeError):
        replace(tree.proof(0), count=9).verify(tree.top(), nodes[0])


def test_an_inner_node_is_no_leaf() -> None:
    left, right = b"\x01" * 32, b"\x02" * 32
    inner = node_hash(left, right)
    tree = MerkleTree([left, right, b"\x03" * 32])
    # Inner nodes carry prefix 1 and leaves prefix 0, and the count fixes the depth.
    with pytest.raises(TreeError):
        MerkleProof(0, 3, tree.siblings(0)[1:]).verify(tree.top(), inner)
    assert node_hash(left, right) == keccak256(b"\x01" + left + right)


def test_an_odd_leaf_is_promoted_not_doubled() -> None:
    a, b, c = (bytes([i]) * 32 for i in (1, 2, 3))
    assert merkle_root([a, b, c]) == node_hash(node_hash(a, b), c)
    assert merkle_root([a, b, c]) != merkle_root([a, b, c, c])
    assert merkle_root([a]) == a


@pytest.mark.parametrize(
    ("index", "count"), [(0, 0), (-1, 1), (1, 1), (0, -1), (0, MAX_LEAVES + 1), (5, 5)]
)
def test_places_outside_the_tree_are_refused(index: int, count: int) -> None:
    with pytest.raises(TreeError):
        MerkleProof(index, count, ()).root_of(b"\x01" * 32)
    with pytest.raises(TreeError):
        SumProof(index, count, ()).top_of(SumNode(b"\x01" * 32, Sums()))


def test_empty_trees_and_zero_hashes_are_refused() -> None:
    with pytest.raises(TreeError):
        MerkleTree().top()
    with pytest.raises(TreeError):
        SumTree().top()
    with pytest.raises(TreeError):
        MerkleTree([bytes(32)])
    with pytest.raises(TreeError):
        MerkleTree([b"\x01" * 31])
    with pytest.raises(TreeError):
        MerkleProof(0, 1, ()).verify(bytes(32), bytes(32))
    with pytest.raises(TreeError):
        MerkleProof(0, 2, (bytes(32),)).root_of(b"\x01" * 32)
    with pytest.raises(TreeError):
        MerkleTree([b"\x01" * 32]).top(2)


def test_a_long_proof_is_cut_off_before_any_hashing() -> None:
    with pytest.raises(TreeError, match="at most 32"):
        MerkleProof(0, MAX_LEAVES, (b"\x01" * 32,) * 33).root_of(b"\x01" * 32)
    # The deepest tree that a uint32 count allows is still walked.
    MerkleProof(0, MAX_LEAVES, (b"\x01" * 32,) * 32).root_of(b"\x01" * 32)


# ---------------------------------------------------------------- sums


@given(sum_trees)
def test_the_sum_tree_adds_up_and_proves_every_round(
    made: tuple[SumTree, list[RoundRecord]],
) -> None:
    tree, rounds = made
    nodes = [round_leaf(record) for record in rounds]
    assert tree.top() == level_by_level(nodes, sum_node)
    total = Sums()
    for record in rounds:
        total = total + record.sums
    assert tree.top().sums == total
    settled = tree.settled()
    for index, record in enumerate(rounds):
        settled.verify_round(record, tree.proof(index))


@given(sum_trees, st.data())
def test_a_changed_sum_anywhere_breaks_the_proof(
    made: tuple[SumTree, list[RoundRecord]], data: st.DataObject
) -> None:
    tree, rounds = made
    index = data.draw(st.integers(0, len(rounds) - 1))
    proof, settled, record = tree.proof(index), tree.settled(), rounds[index]
    with pytest.raises(TreeError):
        settled.verify_round(replace(record, output=record.output + 1), proof)
    if proof.siblings:
        at = data.draw(st.integers(0, len(proof.siblings) - 1))
        node = proof.siblings[at]
        forged = SumNode(node.hash, node.sums + Sums(output=1))
        siblings = (*proof.siblings[:at], forged, *proof.siblings[at + 1 :])
        with pytest.raises(TreeError):
            settled.verify_round(record, replace(proof, siblings=siblings))
    with pytest.raises(TreeError, match="not the base's plus"):
        replace(settled, sums=settled.sums + Sums(accepted=1)).verify_round(record, proof)
    with pytest.raises(TreeError, match="rounds"):
        replace(settled, leaf_count=settled.leaf_count + 1).verify_round(record, proof)


@given(sum_trees, st.data())
def test_a_draw_finds_the_round_by_output_tokens(
    made: tuple[SumTree, list[RoundRecord]], data: st.DataObject
) -> None:
    tree, rounds = made
    count = data.draw(st.integers(1, len(rounds)))
    total = sum(record.output for record in rounds[:count])
    position = data.draw(st.integers(0, total - 1))
    index = tree.descend(position, count)
    before = sum(record.output for record in rounds[:index])
    assert before <= position < before + rounds[index].output
    proof = tree.proof(index, count)
    assert proof.output_before() == before
    assert proof.offset_of(round_leaf(rounds[index]), position) == position - before
    for other in range(count):
        if other != index:
            with pytest.raises(TreeError):
                tree.proof(other, count).offset_of(round_leaf(rounds[other]), position)
    for outside in (-1, total):
        with pytest.raises(TreeError):
            tree.descend(outside, count)


def test_a_leaf_covers_its_first_token_to_its_last_and_no_more() -> None:
    rounds = [_round(3), _round(1), _round(5)]
    tree = SumTree(rounds)
    for index, (first, last) in enumerate(((0, 2), (3, 3), (4, 8))):
        proof, leaf = tree.proof(index), round_leaf(rounds[index])
        assert proof.offset_of(leaf, first) == 0
        assert proof.offset_of(leaf, last) == last - first
        for outside in (first - 1, last + 1):
            with pytest.raises(TreeError):
                proof.offset_of(leaf, outside)


def _round(output: int) -> RoundRecord:
    word = b"\x07" * 32
    return RoundRecord(word, 0, word, word, word, word, output, 0, (0,) * 8)


def test_sums_that_would_overflow_are_refused_and_leave_the_tree_whole() -> None:
    tree = SumTree([_round(MAX_LANE_COUNT)])
    top = tree.top()
    with pytest.raises(TreeError, match="overflow"):
        tree.append_round(_round(1))
    assert (len(tree), tree.top()) == (1, top)
    with pytest.raises(TreeError, match="overflow"):
        SumProof(0, 2, (round_leaf(_round(1)),)).top_of(round_leaf(_round(MAX_LANE_COUNT)))
    with pytest.raises(TreeError, match="overflow"):
        SumTree([_round(1)]).settled(SumTree([_round(MAX_LANE_COUNT)]).settled())


def test_a_round_without_output_has_no_place() -> None:
    with pytest.raises(TreeError, match="no output"):
        SumTree([_round(0)])


@given(sum_trees, sum_trees)
def test_settled_roots_carry_the_epochs_sums(
    first: tuple[SumTree, list[RoundRecord]], second: tuple[SumTree, list[RoundRecord]]
) -> None:
    base = first[0].settled()
    assert base.base_root == bytes(32)
    settled = second[0].settled(base)
    assert settled.base_root == base.root
    assert settled.sums == first[0].top().sums + second[0].top().sums
    expected = keccak256(
        b"\x03",
        settled.top,
        settled.sums.packed,
        settled.leaf_count.to_bytes(4, "big"),
        base.root,
    )
    assert settled.root == expected
    proof, record = second[0].proof(0), second[1][0]
    settled.verify_round(record, proof, base)
    with pytest.raises(TreeError, match="preimage"):
        settled.verify_round(record, proof)
    with pytest.raises(TreeError, match="preimage"):
        settled.verify_round(record, proof, replace(base, sums=base.sums + Sums(output=1)))


@pytest.mark.parametrize("field", ["top", "sums", "leaf_count", "base_root"])
def test_every_part_of_a_settled_root_counts(field: str) -> None:
    settled = Settled(b"\x01" * 32, Sums(5, 2), 3, bytes(32))
    other = {
        "top": b"\x02" * 32,
        "sums": Sums(5, 3),
        "leaf_count": 4,
        "base_root": b"\x09" * 32,
    }[field]
    assert replace(settled, **{field: other}).root != settled.root


def test_settled_batches_are_checked() -> None:
    assert (
        settled_root(b"\x01" * 32, Sums(), 1, bytes(32))
        == Settled(b"\x01" * 32, Sums(), 1, bytes(32)).root
    )
    for bad in (
        {"top": bytes(32)},
        {"leaf_count": 0},
        {"leaf_count": 2**32},
        {"base_root": b""},
    ):
        with pytest.raises(TreeError):
            replace(Settled(b"\x01" * 32, Sums(), 1, bytes(32)), **bad)
