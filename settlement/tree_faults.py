"""F5 in what a settled root commits: records that contradict what they name, sums that do not add
up, rounds counted twice. Pure.

Mirrors TreeFaults.sol, check for check. The guilty is the verifier of the lane; that the root is
its own is shown beside the proof (IFaultCourt.Source).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from settlement import alpha, trees
from settlement.draws import BatchEvidence, RoundEvidence, blank, root_words, sum_words
from settlement.fault_proofs import Code, Fault, Kind, root_of, session_of, step_words, window_of
from settlement.hashing import ZERO32
from settlement.records import DraftCommit, Lane, RoundRecord, Sums


def record_faults(lane: Lane, batch: BatchEvidence, settled: trees.Settled) -> Iterator[Fault]:
    """F5: round records that say otherwise than what they name. None where the rounds do not make
    up the settled tree."""
    tree = trees.SumTree(evidence.record for evidence in batch.rounds)
    if tree.top().hash != settled.top or len(tree) != settled.leaf_count:
        return
    for index, evidence in enumerate(batch.rounds):
        record, commit = evidence.record, evidence.commit
        named = ZERO32 if commit is None else commit.struct_hash
        if (
            evidence.start.struct_hash != record.start_hash
            or evidence.start.session_id != evidence.order.session_id
            or evidence.verdict.struct_hash != record.verdict_hash
            or named != record.draft_commit_hash
        ):
            continue  # what the record names is not at hand
        code = _record_fault(lane, evidence)
        if code is None:
            continue
        leaves = evidence.verdict_leaves
        shown = leaves if root_of(leaves) == record.verdict_root else ()
        proof = (
            lane.to_abi(),
            root_words(settled),
            record.to_abi(),
            index,
            step_words(tree.siblings(index)),
            *session_of(evidence),
            blank(DraftCommit) if commit is None else commit.to_abi(),
            evidence.verdict.to_abi(),
            [leaf.to_abi() for leaf in shown],
        )
        place = (record.start_hash, record.round)
        yield Fault(
            5, code, lane.verifier, False, *place, Kind.RECORD, proof, lane.id, settled.root
        )


def _record_fault(lane: Lane, evidence: RoundEvidence) -> int | None:
    record, verdict, commit = evidence.record, evidence.verdict, evidence.commit
    if evidence.order.lane != lane:
        return Code.RECORD
    said = (
        record.start_hash,
        record.round,
        record.verdict_root,
        record.draft_commit_hash,
        record.output,
        record.accepted,
    )
    if said != (
        verdict.start_hash,
        verdict.round,
        verdict.verdict_root,
        verdict.draft_commit_hash,
        verdict.emitted,
        verdict.k,
    ):
        return Code.RECORD
    if record.draft_root != (ZERO32 if commit is None else commit.draft_root):
        return Code.RECORD
    k, window = verdict.k, window_of(evidence)
    # A window that is not used up and ends in V's own token ends in a reject.
    reached = k + 1 if k < window and verdict.emitted == k + 1 else k
    sums = record.sums
    if (sum(sums.proposed_by_bucket), sum(sums.accepted_by_bucket)) != (reached, k):
        return Code.COUNTS
    leaves = evidence.verdict_leaves
    whole = root_of(leaves) == record.verdict_root
    if whole and alpha.round_sums(leaves).buckets != record.buckets:
        return Code.COUNTS
    return None


def sum_faults(lane: Lane, batch: BatchEvidence, settled: trees.Settled) -> Iterator[Fault]:
    """F5: the settled sums are not the base's and the tree's together."""
    tree, right = batch.settled()
    same = (right.top, right.leaf_count, right.base_root)
    if same != (settled.top, settled.leaf_count, settled.base_root) or right.sums == settled.sums:
        return
    yield false_sums(
        lane,
        settled,
        batch.base,
        (0, 0),
        batch.rounds[0].record,
        batch.rounds[0].record.sums,
        tree.siblings(0),
    )


def false_sums(
    lane: Lane,
    settled: trees.Settled,
    base: trees.Settled | None,
    place: tuple[int, int],
    below: RoundRecord | tuple[trees.SumNode, trees.SumNode],
    claimed: Sums,
    siblings: Sequence[trees.SumNode],
) -> Fault:
    """F5 as a tree step: at `place` (level, index) the verifier's own path claims sums that are not
    those of `below`: the record there, or both halves of the node. With right sums there, the
    root's are accused."""
    nothing = (ZERO32, [0] * 9)
    level, index = place
    left, right, record = nothing, nothing, blank(RoundRecord)
    if isinstance(below, RoundRecord):
        record = below.to_abi()
    else:
        left, right = ((node.hash, sum_words(node.sums)) for node in below)
    proof = (
        lane.to_abi(),
        root_words(settled),
        root_words(base),
        level,
        index,
        record,
        left,
        right,
        sum_words(claimed),
        step_words(siblings),
    )
    root = settled.root
    return Fault(5, Code.SUMS, lane.verifier, False, root, 0, Kind.SUMS, proof, lane.id, root)


def duplicates(
    lane: Lane, batches: Sequence[BatchEvidence], settled: Sequence[trees.Settled]
) -> Iterator[Fault]:
    """F5: a round at two places of one tree, or of two trees of which the newer goes on, over any
    number of bases, from the older. Other pairs count nothing twice."""
    known = {preimage.root: at for at, preimage in enumerate(settled)}
    for at, preimage in enumerate(settled):
        chain, bases = [at], []
        while (older := known.get(settled[chain[-1]].base_root)) is not None:
            chain.append(older)
            bases.append(settled[older])
        first: dict[tuple[bytes, int], int] = {}
        for index, evidence in enumerate(batches[at].rounds):
            earlier = first.setdefault(evidence.key, index)
            if earlier != index:
                one, other = _leaf_in(batches[at], index), _leaf_in(batches[at], earlier)
                yield _twice(lane, preimage, (), evidence.record, one, other)
        for depth, older in enumerate(chain[1:], start=1):
            for index, evidence in enumerate(batches[older].rounds):
                here = first.get(evidence.key)
                if here is not None:
                    one, other = _leaf_in(batches[at], here), _leaf_in(batches[older], index)
                    bases_here = tuple(bases[:depth])
                    yield _twice(lane, preimage, bases_here, evidence.record, one, other)


def _twice(
    lane: Lane,
    settled: trees.Settled,
    older: tuple[trees.Settled, ...],
    record: RoundRecord,
    one: tuple[Any, ...],
    other: tuple[Any, ...],
) -> Fault:
    proof = (lane.to_abi(), root_words(settled), *one, [root_words(r) for r in older], *other)
    place = (record.start_hash, record.round)
    return Fault(
        5,
        Code.ROUND_TWICE,
        lane.verifier,
        False,
        *place,
        Kind.ROUND_TWICE,
        proof,
        lane.id,
        settled.root,
    )


def _leaf_in(batch: BatchEvidence, index: int) -> tuple[Any, ...]:
    tree = trees.SumTree(evidence.record for evidence in batch.rounds)
    return (batch.rounds[index].record.to_abi(), index, step_words(tree.siblings(index)))
