"""Trees, sums, proofs and settled roots are the same in Python and in Solidity."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from random_records import record_of, sums_of

from settlement.hashing import ZERO32, uint
from settlement.records import MAX_LANE_COUNT, RoundRecord, Sums
from settlement.schema import RecordError
from settlement.trees import (
    MerkleTree,
    SumNode,
    SumProof,
    SumTree,
    TreeError,
    node_hash,
    settled_root,
    sum_node,
)

RUNS = [300, pytest.param(10_000, marks=pytest.mark.slow)]
SMALL = MAX_LANE_COUNT >> 8  # what 200 rounds can be added up of


def words_of(sums: Sums) -> list[int]:
    packed = sums.packed
    return [int.from_bytes(packed[i : i + 32], "big") for i in range(0, 288, 32)]


def words(*values: int | bytes) -> bytes:
    return b"".join(v if isinstance(v, bytes) else uint(v, 32) for v in values)


def _root_call(h: Any, leaf: bytes, index: int, count: int, siblings: list[bytes]) -> bytes:
    head = words(leaf, index, count, 128, len(siblings))
    return h.selector("rootOf") + head + b"".join(siblings)


def _climb_call(h: Any, leaf: SumNode, proof: SumProof) -> bytes:
    head = words(leaf.hash, leaf.sums.packed, proof.index, proof.count, 32 * 13)
    steps = b"".join(step.hash + step.sums.packed for step in proof.siblings)
    return h.selector("climb") + head + words(len(proof.siblings)) + steps


@pytest.fixture(scope="module")
def sum_tree() -> SumTree:
    """200 rounds with every lane in use."""
    rng = Random(7)
    tree = SumTree()
    for _ in range(200):
        sums = sums_of(rng, SMALL)
        record = record_of(rng, RoundRecord)
        values = {spec.name: getattr(record, spec.name) for spec in RoundRecord.specs()}
        output = rng.randint(1, SMALL)
        values.update(output=output, accepted=sums.accepted, buckets=sums.buckets)
        tree.append_round(RoundRecord(**values))
    return tree


@pytest.fixture(scope="module")
def merkle_tree() -> MerkleTree:
    return MerkleTree(Random(8).randbytes(32) for _ in range(300))


@pytest.mark.parametrize("runs", RUNS)
def test_nodes_agree(harness, runs: int) -> None:
    h, rng = harness("TreesHarness"), Random(runs)
    pairs = [(rng.randbytes(32), rng.randbytes(32)) for _ in range(runs)]
    answers = h.batch([h.selector("node") + left + right for left, right in pairs])
    for (left, right), answer in zip(pairs, answers, strict=True):
        assert answer.word == node_hash(left, right)


@pytest.mark.parametrize("runs", RUNS)
def test_merkle_proofs_lead_to_the_same_roots(harness, merkle_tree: MerkleTree, runs: int) -> None:
    h, rng = harness("TreesHarness"), Random(runs)
    calls, roots = [], []
    for _ in range(runs):
        count = rng.randint(1, rng.choice((1, 2, 3, 9, 33, 300)))
        index = rng.choice((0, count - 1, rng.randrange(count)))
        proof = merkle_tree.proof(index, count)
        leaf = merkle_tree._levels[0][index]
        calls.append(_root_call(h, leaf, index, count, list(proof.siblings)))
        roots.append(merkle_tree.top(count))
    for root, answer in zip(roots, h.batch(calls), strict=True):
        assert answer.word == root


def _spoil(rng: Random, index: int, count: int, siblings: list[bytes]) -> tuple[Any, ...]:
    """A proof that differs in one respect."""
    siblings = list(siblings)
    kind = rng.randrange(6)
    if kind == 0:
        index += rng.choice((-1, 1, 2))
    elif kind == 1:
        count += rng.choice((-1, 1, 2, 32))
    elif kind == 2 and siblings:
        siblings.pop(rng.randrange(len(siblings)))
    elif kind == 3:
        siblings.append(rng.randbytes(32))
    elif kind == 4 and siblings:
        siblings[rng.randrange(len(siblings))] = rng.choice((ZERO32, rng.randbytes(32)))
    elif kind == 5 and len(siblings) > 1:
        siblings.reverse()
    return max(index, 0), max(count, 0), siblings


@pytest.mark.parametrize("runs", RUNS)
def test_spoilt_merkle_proofs_are_judged_alike(harness, merkle_tree: MerkleTree, runs: int) -> None:
    """Both refuse, or both compute the same root, which is another one unless nothing changed."""
    h, rng = harness("TreesHarness"), Random(runs)
    calls: list[bytes] = []
    expected: list[bytes | None] = []
    for _ in range(runs):
        count = rng.randint(1, 40)
        index = rng.randrange(count)
        proof = merkle_tree.proof(index, count)
        leaf = merkle_tree._levels[0][index]
        other, size, siblings = _spoil(rng, index, count, list(proof.siblings))
        calls.append(_root_call(h, leaf, other, size, siblings))
        try:
            root = type(proof)(other, size, tuple(siblings)).root_of(leaf)
        except TreeError:
            expected.append(None)
        else:
            expected.append(root)
    refused = 0
    for value, answer in zip(expected, h.batch(calls), strict=True):
        if value is None:
            refused += 1
            assert not answer.ok
        else:
            assert answer.word == value
    assert runs // 5 < refused < runs  # both outcomes were really tried


@pytest.mark.parametrize("runs", RUNS)
def test_sums_add_and_subtract_alike(harness, runs: int) -> None:
    """Equal results, or an overflow or underflow on both sides."""
    h, rng = harness("TreesHarness"), Random(runs)
    pairs = []
    for _ in range(runs):
        limit = rng.choice((MAX_LANE_COUNT, MAX_LANE_COUNT // 2, 1000))
        left, right = sums_of(rng, limit), sums_of(rng, limit)
        # Half of the differences exist: the first summand is at least the second.
        pairs.append((left + right if limit == 1000 else left, right))
    kinds = {"add": Sums.__add__, "sub": Sums.__sub__}
    for name, operation in kinds.items():
        answers = h.batch([h.selector(name) + a.packed + b.packed for a, b in pairs])
        outcomes = set()
        for (a, b), answer in zip(pairs, answers, strict=True):
            try:
                value = operation(a, b)
            except RecordError:
                assert h.error(answer)[0] == {"add": "SumsOverflow", "sub": "SumsUnderflow"}[name]
                outcomes.add(False)
            else:
                assert answer.data == value.packed
                outcomes.add(True)
        assert outcomes == {True, False}


@pytest.mark.parametrize("lane", [0, 1, *range(4, 36)])
def test_each_lane_overflows_and_underflows_by_one(harness, lane: int) -> None:
    """2**63 − 1 plus 1, and 0 minus 1, in every lane; never a carry into the neighbour."""
    h = harness("TreesHarness")
    word, shift = divmod(lane, 4)
    full, one, zero = [0] * 9, [0] * 9, [0] * 9
    full[word], one[word] = MAX_LANE_COUNT << (64 * shift), 1 << (64 * shift)
    assert h.call("add", full, zero)[0] == tuple(full)
    assert h.failure("add", full, one) == ("SumsOverflow", (word, full[word], one[word]))
    assert h.failure("sub", zero, one) == ("SumsUnderflow", (word, 0, one[word]))
    less = list(full)
    less[word] -= one[word]
    assert h.call("sub", full, one)[0] == tuple(less)


@pytest.mark.parametrize("bit", [63, 127, 128, 191, 192, 255])
def test_the_unused_half_of_the_first_word_stays_empty(harness, bit: int) -> None:
    h = harness("TreesHarness")
    dirty, zero = [1 << bit] + [0] * 8, [0] * 9
    for pair in ((dirty, zero), (zero, dirty)):
        assert h.failure("add", *pair)[0] == "SumsOverflow"
        assert h.failure("sub", *pair)[0] == "SumsOverflow"
    assert h.failure("climb", b"\x01" * 32, dirty, 0, 1, [])[0] == "SumsOverflow"


@pytest.mark.parametrize("runs", RUNS)
def test_lanes_are_read_alike(harness, runs: int) -> None:
    h, rng = harness("TreesHarness"), Random(runs)
    cases, selector = [sums_of(rng) for _ in range(runs)], h.selector("lanes")
    for sums, answer in zip(cases, h.batch([selector + s.packed for s in cases]), strict=True):
        lanes = [sums.output, sums.accepted, *sums.proposed_by_bucket, *sums.accepted_by_bucket]
        assert answer.data == words(*lanes)


@pytest.mark.parametrize("runs", RUNS)
def test_sum_nodes_agree(harness, runs: int) -> None:
    h, rng = harness("TreesHarness"), Random(runs)
    pairs = []
    for _ in range(runs):
        left = SumNode(rng.randbytes(32), sums_of(rng, MAX_LANE_COUNT // 2))
        pairs.append((left, SumNode(rng.randbytes(32), sums_of(rng, MAX_LANE_COUNT // 2))))
    selector = h.selector("sumNode")
    calls = [
        selector + left.hash + left.sums.packed + right.hash + right.sums.packed
        for left, right in pairs
    ]
    for (left, right), answer in zip(pairs, h.batch(calls), strict=True):
        assert answer.word == sum_node(left, right).hash


@pytest.mark.parametrize("runs", RUNS)
def test_sum_proofs_lead_to_the_same_tops_totals_and_offsets(
    harness, sum_tree: SumTree, runs: int
) -> None:
    h, rng = harness("TreesHarness"), Random(runs)
    tops = {count: sum_tree.top(count) for count in range(1, len(sum_tree) + 1)}
    calls, expected = [], []
    for _ in range(runs):
        count = rng.randint(1, rng.choice((1, 2, 3, 9, 33, 200)))
        index = rng.choice((0, count - 1, rng.randrange(count)))
        proof = sum_tree.proof(index, count)
        calls.append(_climb_call(h, sum_tree._levels[0][index], proof))
        top = tops[count]
        expected.append(top.hash + top.sums.packed + uint(proof.output_before(), 32))
    for value, answer in zip(expected, h.batch(calls), strict=True):
        assert answer.data == value


def _with_lane(rng: Random, leaf: SumNode, sibling: SumNode) -> SumNode:
    """The sibling with one lane raised until the two just fit together, or just do not."""
    mine, theirs = (words_of(node.sums) for node in (leaf, sibling))
    lane = rng.choice((0, 1, *range(4, 36)))
    word, shift = divmod(lane, 4)
    own = mine[word] >> (64 * shift) & (2**64 - 1)
    raised = MAX_LANE_COUNT - own + rng.choice((0, 1))
    theirs[word] &= ~((2**64 - 1) << (64 * shift))
    theirs[word] |= min(raised, MAX_LANE_COUNT) << (64 * shift)
    output, accepted = theirs[0] & (2**64 - 1), theirs[0] >> 64
    return SumNode(sibling.hash, Sums.from_words(output, accepted, tuple(theirs[1:])))


@pytest.mark.parametrize("runs", RUNS)
def test_spoilt_sum_proofs_are_judged_alike(harness, sum_tree: SumTree, runs: int) -> None:
    """A zero sibling, a lane at its limit or past it, a wrong place, a step too few or too many:
    both refuse, or both compute the same top and total."""
    h, rng = harness("TreesHarness"), Random(runs)
    calls: list[bytes] = []
    expected: list[bytes | None] = []
    for _ in range(runs):
        count = rng.randint(2, 20)
        index = rng.randrange(count)
        leaf, siblings = sum_tree._levels[0][index], list(sum_tree.proof(index, count).siblings)
        kind, at = rng.randrange(5), rng.randrange(len(siblings))
        if kind == 0:
            siblings[at] = SumNode(ZERO32, siblings[at].sums)
        elif kind == 1:
            siblings[0] = _with_lane(rng, leaf, siblings[0])
        elif kind == 2:
            index = rng.randrange(count + 1)
        elif kind == 3:
            siblings.pop(at)
        elif kind == 4:
            siblings.append(siblings[at])
        proof = SumProof(index, count, tuple(siblings))
        calls.append(_climb_call(h, leaf, proof))
        try:
            top = proof.top_of(leaf)
        except TreeError:
            expected.append(None)
        else:
            before = uint(proof.output_before(), 32)
            expected.append(top.hash + top.sums.packed + before)
    errors = set()
    for value, answer in zip(expected, h.batch(calls), strict=True):
        if value is None:
            errors.add(h.error(answer)[0])
        else:
            assert answer.data == value
    assert errors == {"ZeroNode", "SumsOverflow", "WrongProofLength", "IndexOutsideTree"}
    assert runs // 10 < sum(value is not None for value in expected)


@pytest.mark.parametrize("runs", RUNS)
def test_a_drawn_token_lies_in_one_leaf_and_no_other(harness, sum_tree: SumTree, runs: int) -> None:
    """The weighted descent from the top picks the leaf that the contract accepts from below."""
    h, rng = harness("TreesHarness"), Random(runs)
    tops = {count: sum_tree.top(count).sums.output for count in range(1, len(sum_tree) + 1)}
    calls: list[bytes] = []
    expected: list[int | None] = []
    for _ in range(runs):
        count = rng.randint(1, 200)
        # Anywhere, and at the seams: a leaf's first token and the one before it.
        seam = sum_tree.proof(rng.randrange(count), count).output_before()
        target = rng.choice((seam, max(seam - 1, 0), tops[count] - 1, rng.randrange(tops[count])))
        right = sum_tree.descend(target, count)
        for index in {right, max(right - 1, 0), min(right + 1, count - 1)}:
            proof, leaf = sum_tree.proof(index, count), sum_tree._levels[0][index]
            before = proof.output_before()
            calls.append(h.selector("requireCovers") + words(target, before, leaf.sums.output))
            if index == right:
                expected.append(proof.offset_of(leaf, target))
            else:
                with pytest.raises(TreeError):
                    proof.offset_of(leaf, target)
                expected.append(None)
    for value, answer in zip(expected, h.batch(calls), strict=True):
        assert not answer.ok if value is None else answer.number == value


@pytest.mark.parametrize("runs", RUNS)
def test_settled_roots_agree(harness, runs: int) -> None:
    h, rng = harness("TreesHarness"), Random(runs)
    cases = [
        (rng.randbytes(32), sums_of(rng), rng.randint(0, 2**32 - 1), rng.randbytes(32))
        for _ in range(runs)
    ]
    selector = h.selector("settledRoot")
    calls = [selector + words(top, sums.packed, count, base) for top, sums, count, base in cases]
    for case, answer in zip(cases, h.batch(calls), strict=True):
        assert answer.word == settled_root(*case)


def test_a_round_of_a_batch_on_a_base_is_found_and_false_sums_are_not(
    harness, sum_tree: SumTree
) -> None:
    h, rng = harness("TreesHarness"), Random(3)
    base = sum_tree.settled(count=40)
    batch = sum_tree.settled(base, count=33)
    preimage = (batch.top, words_of(batch.sums), batch.leaf_count, batch.base_root)
    h.call("requireSettled", batch.root, preimage)
    proof, leaf = sum_tree.proof(20, 33), sum_tree._levels[0][20]
    steps = [(step.hash, words_of(step.sums)) for step in proof.siblings]
    arguments = [preimage, words_of(base.sums), leaf.hash, words_of(leaf.sums), 20, steps]
    assert h.call("requireRound", *arguments) == (proof.output_before(),)

    for lane in (0, 5, 8):  # settled sums that are not the base's plus the tree's
        false = words_of(batch.sums)
        false[lane] += 1
        spoilt = [(batch.top, false, batch.leaf_count, batch.base_root), *arguments[1:]]
        assert h.failure("requireRound", *spoilt)[0] == "WrongSettledSums"
        assert h.failure("requireSettled", batch.root, spoilt[0])[0] == "NotThisBatch"
    false = words_of(leaf.sums)
    false[0] += 1
    assert h.failure("requireRound", *arguments[:3], false, 20, steps)[0] == "NotInTree"
    assert h.failure("requireSettled", ZERO32, preimage) == ("ZeroRoot", ())
    other = (rng.randbytes(32), *preimage[1:])
    assert h.failure("requireRound", other, *arguments[1:])[0] == "NotInTree"


def test_trees_without_a_shape_are_refused_by_name(harness) -> None:
    h, leaf = harness("TreesHarness"), b"\x11" * 32
    assert h.failure("rootOf", leaf, 0, 0, []) == ("EmptyTree", ())
    assert h.failure("rootOf", leaf, 0, 2**32, [])[0] == "TreeTooLarge"
    assert h.failure("rootOf", leaf, 5, 5, []) == ("IndexOutsideTree", (5, 5))
    assert h.failure("rootOf", leaf, 4, 5, [leaf, leaf]) == ("WrongProofLength", (2, 1))
    assert h.failure("rootOf", ZERO32, 0, 1, []) == ("ZeroNode", ())
    assert h.failure("rootOf", leaf, 0, 2, [ZERO32]) == ("ZeroNode", ())
    assert h.failure("requireLeaf", ZERO32, leaf, 0, 1, []) == ("ZeroRoot", ())
    assert h.failure("requireLeaf", b"\x22" * 32, leaf, 0, 1, [])[0] == "NotInTree"
    assert h.call("requireLeaf", leaf, leaf, 0, 1, []) == ()


def test_an_inner_node_does_not_pass_for_a_leaf(harness, merkle_tree: MerkleTree) -> None:
    """The pair (node, its sibling) is a valid path in a smaller tree only, and counts are fixed."""
    h = harness("TreesHarness")
    root, inner = merkle_tree.top(8), node_hash(*merkle_tree._levels[0][:2])
    siblings = list(merkle_tree.proof(0, 8).siblings)[1:]
    assert h.call("rootOf", inner, 0, 4, siblings) == (root,)  # a tree of 4: another count
    assert h.failure("rootOf", inner, 0, 8, siblings) == ("WrongProofLength", (2, 3))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 2**31, 2**32 - 1])
def test_proof_lengths_are_those_of_the_tree(harness, count: int) -> None:
    h = harness("TreesHarness")
    for index in {0, 1, count // 2, count - 2, count - 1}:
        if not 0 <= index < count:
            continue
        expected, at, width = 0, index, count
        while width > 1:
            expected += (at ^ 1) < width
            at, width = at >> 1, (width + 1) >> 1
        assert h.call("proofLength", index, count) == (expected,)
