"""F3, F4 and F5 that a round's own signed records prove, settled or not. Pure.

Mirrors RoundFaults.sol, check for check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from settlement import accept_rule, coins, trees
from settlement.accept_rule import LeafFault, NotThisLeaf
from settlement.draws import RoundEvidence, blank
from settlement.fault_proofs import (
    Code,
    Fault,
    Kind,
    by_verifier,
    is_by,
    root_of,
    session_of,
    window_of,
    with_signature,
)
from settlement.hashing import ZERO32
from settlement.records import (
    NO_TOKEN,
    Domain,
    DraftCommit,
    DraftLeaf,
    Mode,
    Order,
    Verdict,
    extend_context,
    packed_kept,
)

_POSITIONS: Final = 2**32


def round_faults(
    domain: Domain,
    evidence: RoundEvidence,
    before: RoundEvidence | None = None,
    after: RoundEvidence | None = None,
) -> Iterator[Fault]:
    """F3, F4 and F5 that a round's own signed records prove, beside the rounds before and after."""
    order, verdict = evidence.order, evidence.verdict
    if (
        evidence.start.session_id != order.session_id
        or verdict.start_hash != evidence.start.struct_hash
    ):
        return
    commit = evidence.commit
    if (
        commit is not None
        and commit.start_hash == evidence.start.struct_hash
        and is_by(domain, commit, evidence.commit_signature, order.drafter)
    ):
        yield from _draft_faults(domain, evidence, commit, before)
    if not is_by(domain, verdict, evidence.verdict_signature, order.verifier):
        return
    named = ZERO32 if commit is None else commit.struct_hash
    if verdict.draft_commit_hash != named:
        return  # the draft that V judged is not at hand
    if before is not None and not (
        _is_before(before.verdict, verdict)
        and is_by(domain, before.verdict, before.verdict_signature, order.verifier)
    ):
        before = None
    yield from _window_faults(evidence, before)
    yield from _fit_faults(evidence, before)
    if root_of(evidence.verdict_leaves) == verdict.verdict_root:
        yield from _leaf_faults(domain, evidence, after)


def _draft_faults(
    domain: Domain, evidence: RoundEvidence, commit: DraftCommit, before: RoundEvidence | None
) -> Iterator[Fault]:
    """F4 by D."""
    order, start = evidence.order, evidence.start

    def guilty(code: int, kind: Kind, proof: tuple[Any, ...]) -> Fault:
        place = (commit.start_hash, commit.round)
        return Fault(4, code, order.drafter, True, *place, kind, proof)

    signed = (*session_of(evidence), *with_signature(commit, evidence.commit_signature))
    leaves = evidence.draft_leaves
    if len(leaves) == commit.k and root_of(leaves) == commit.draft_root:
        tree = trees.MerkleTree(leaf.leaf_hash for leaf in leaves)
        for index, leaf in enumerate(leaves):
            kept = evidence.kept[index] if index < len(evidence.kept) else None
            code = accept_rule.check_draft_leaf(
                order,
                start.seed,
                commit.context_hash,
                commit.base + index,
                leaf,
                commit.chain_value,
            )
            if code is None and order.mode == Mode.REJECTION and kept is not None:
                code = _list_fault(leaf, kept)
            if code is not None:
                path = list(tree.siblings(index))
                packed = packed_kept(kept or ())
                yield guilty(code, Kind.DRAFT_LEAF, (*signed, index, leaf.to_abi(), path, packed))
    if order.mode != Mode.REJECTION:
        return
    nothing = (blank(Verdict), b"")
    if commit.round >= coins.MAX_CHAIN:
        return  # no chain is so long, and the contract judges none (RoundPastChain)
    off_chain = accept_rule.check_chain_drafter(order, commit.round, commit.chain_value)
    if off_chain is not None:
        yield guilty(off_chain, Kind.DRAFT_ROUND, (*signed, *nothing))
        return
    if commit.round == 0:
        announced, previous = start.first_k, nothing
    elif before is not None and before.verdict.struct_hash == commit.prev_verdict_hash:
        if not is_by(domain, before.verdict, before.verdict_signature, order.verifier):
            return
        if (before.verdict.start_hash, before.verdict.round + 1) != (
            commit.start_hash,
            commit.round,
        ):
            return
        announced = before.verdict.next_k
        previous = with_signature(before.verdict, before.verdict_signature)
    else:
        return
    if not _as_announced(order, commit.base, commit.k, announced):
        yield guilty(Code.WINDOW_DRAFTER, Kind.DRAFT_ROUND, (*signed, *previous))


def _list_fault(leaf: DraftLeaf, kept: tuple[tuple[int, int], ...]) -> LeafFault | None:
    try:
        return accept_rule.check_draft_list(leaf, kept)
    except NotThisLeaf:
        return None  # another list than the leaf's accuses nobody


def _as_announced(order: Order, base: int, window: int, announced: int) -> bool:
    """As many drafts as announced and the order allows; fewer only where that many and V's own
    token reach the end."""
    due = min(announced, order.max_window)
    return window == due or (window < due and base + window + 1 >= order.max_tokens)


def _window_faults(evidence: RoundEvidence, before: RoundEvidence | None) -> Iterator[Fault]:
    """F4 by V: its coin, and the window it took."""
    order, verdict = evidence.order, evidence.verdict
    tossed = order.mode == Mode.REJECTION
    if tossed and verdict.round >= coins.MAX_CHAIN:
        return  # as with D's: the contract judges no such round
    code: int | None = None
    if tossed:
        code = accept_rule.check_chain_verifier(order, verdict.round, verdict.chain_value)
    if code is None and window_of(evidence) > order.max_window:
        code = Code.WINDOW_VERIFIER
    if code is None and tossed and evidence.commit is None:
        announced = None
        if verdict.round == 0:
            announced = evidence.start.first_k
        elif before is not None:
            announced = before.verdict.next_k
        if announced is not None and not _as_announced(order, verdict.base, 0, announced):
            code = Code.WINDOW_VERIFIER
    if code is not None:
        yield by_verifier(evidence, 4, code, Kind.VERDICT_ROUND, _round_proof(evidence, before))


def _fit_faults(evidence: RoundEvidence, before: RoundEvidence | None) -> Iterator[Fault]:
    """F5: the verdict against its draft, its counts, the verdict before and max tokens."""
    code = _misfit(evidence, before)
    if code is not None:
        yield by_verifier(evidence, 5, code, Kind.ROUND_FIT, _round_proof(evidence, before))


def _misfit(evidence: RoundEvidence, before: RoundEvidence | None) -> int | None:
    order, verdict, commit = evidence.order, evidence.verdict, evidence.commit
    if commit is not None:
        said = (commit.start_hash, commit.round, commit.version, commit.base, commit.context_hash)
        if commit.k == 0 or said != (
            verdict.start_hash,
            verdict.round,
            verdict.version,
            verdict.base,
            verdict.context_hash,
        ):
            return Code.RECORD
    if verdict.k > window_of(evidence) or not max(verdict.k, 1) <= verdict.emitted <= verdict.k + 1:
        return Code.COUNTS
    here = (verdict.base, verdict.context_hash)
    if verdict.round == 0:
        if here != (order.start_position, order.start_context):
            return Code.CONTEXT
    elif before is not None:
        last = before.verdict
        if here != (last.base + last.emitted, last.next_context_hash):
            return Code.CONTEXT
    if verdict.base + verdict.emitted > order.max_tokens:
        return LeafFault.OUTSIDE_SESSION
    return None


def _leaf_faults(
    domain: Domain, evidence: RoundEvidence, after: RoundEvidence | None
) -> Iterator[Fault]:
    """F3, F4 and F5 of a verdict's leaves."""
    verdict, leaves = evidence.verdict, evidence.verdict_leaves
    tree = trees.MerkleTree(leaf.leaf_hash for leaf in leaves)
    signed = (*session_of(evidence), *with_signature(verdict, evidence.verdict_signature))
    if len(leaves) == verdict.emitted:
        drafts = _draft_tree(evidence)
        for index in range(len(leaves)):
            if index >= window_of(evidence) or drafts is not None:
                yield from _pair_faults(evidence, tree, drafts, index)
            yield from _place_faults(domain, evidence, tree, after, index)
    accepted = sum(leaf.accepted for leaf in leaves)
    code = None
    if (len(leaves), accepted) != (verdict.emitted, verdict.k):
        code = Code.COUNTS
    elif (
        extend_context(verdict.context_hash, [leaf.token for leaf in leaves])
        != verdict.next_context_hash
    ):
        code = Code.CONTEXT
    if code is not None:
        proof = (*signed, [leaf.to_abi() for leaf in leaves])
        yield by_verifier(evidence, 5, code, Kind.ALL_LEAVES, proof)


def _draft_tree(evidence: RoundEvidence) -> trees.MerkleTree | None:
    """The tree of the draft that V judged; None where its leaves are not at hand."""
    commit, leaves = evidence.commit, evidence.draft_leaves
    if commit is None or len(leaves) != commit.k or root_of(leaves) != commit.draft_root:
        return None
    return trees.MerkleTree(leaf.leaf_hash for leaf in leaves)


def _pair_faults(
    evidence: RoundEvidence,
    tree: trees.MerkleTree,
    drafts: trees.MerkleTree | None,
    index: int,
) -> Iterator[Fault]:
    """F3 and F4 by V, each by itself: place and draft are put right before the rule is run, so
    that neither hides what it finds."""
    verdict, leaf = evidence.verdict, evidence.verdict_leaves[index]
    draft = None
    draft_part: tuple[Any, list[bytes]] = (blank(DraftLeaf), [])
    if drafts is not None and index < window_of(evidence):
        draft = evidence.draft_leaves[index]
        draft_part = (draft.to_abi(), list(drafts.siblings(index)))
    commit = blank(DraftCommit) if evidence.commit is None else evidence.commit.to_abi()
    proof = (
        *session_of(evidence),
        commit,
        *with_signature(verdict, evidence.verdict_signature),
        index,
        leaf.to_abi(),
        list(tree.siblings(index)),
        *draft_part,
    )
    token = NO_TOKEN if draft is None else draft.token
    if leaf.draft_token != token:
        yield by_verifier(evidence, 3, LeafFault.OTHER_DRAFT, Kind.OTHER_DRAFT, proof)
    position = (verdict.base + index) % _POSITIONS
    if position == _POSITIONS - 1:
        return
    code = accept_rule.check_leaf_pair(
        _without_bounds(evidence.order),
        evidence.start.seed,
        position,
        draft,
        replace(leaf, position=position, draft_token=token),
        verdict.chain_value,
    )
    if code is not None:
        yield by_verifier(evidence, 4, code, Kind.ACCEPT_RULE, proof)


def _without_bounds(order: Order) -> Order:
    """The order with room for every position: bounds are F5."""
    return replace(
        order,
        parent_session=ZERO32,
        context_hash=ZERO32,
        start_position=0,
        max_tokens=_POSITIONS - 1,
    )


def _place_faults(
    domain: Domain,
    evidence: RoundEvidence,
    tree: trees.MerkleTree,
    after: RoundEvidence | None,
    index: int,
) -> Iterator[Fault]:
    """F5: the leaf out of place, against k, or a stop that was passed."""
    order, verdict, leaf = evidence.order, evidence.verdict, evidence.verdict_leaves[index]
    position = verdict.base + index
    later: tuple[Any, ...] = (blank(Verdict), b"")
    code: int | None = None
    if not order.start_position <= position < order.max_tokens:
        code = LeafFault.OUTSIDE_SESSION
    elif leaf.position != position:
        code = LeafFault.WRONG_POSITION
    elif leaf.accepted != (index < verdict.k):
        code = Code.COUNTS
    elif leaf.token in order.stop_ids:
        if index + 1 < verdict.emitted:
            code = Code.STOP_PASSED
        elif (
            after is not None
            and after.verdict.start_hash == verdict.start_hash
            and after.verdict.round > verdict.round
            and is_by(domain, after.verdict, after.verdict_signature, order.verifier)
        ):
            code, later = Code.STOP_PASSED, with_signature(after.verdict, after.verdict_signature)
    if code is not None:
        proof = (
            *session_of(evidence),
            *with_signature(verdict, evidence.verdict_signature),
            index,
            leaf.to_abi(),
            list(tree.siblings(index)),
            *later,
        )
        yield by_verifier(evidence, 5, code, Kind.LEAF_PLACE, proof)


def _round_proof(evidence: RoundEvidence, before: RoundEvidence | None) -> tuple[Any, ...]:
    """Evidence.Round."""
    previous: tuple[Any, ...] = (blank(Verdict), b"")
    if before is not None and evidence.verdict.round != 0:
        previous = with_signature(before.verdict, before.verdict_signature)
    commit = blank(DraftCommit) if evidence.commit is None else evidence.commit.to_abi()
    signed = with_signature(evidence.verdict, evidence.verdict_signature)
    return (*session_of(evidence), commit, *signed, *previous)


def _is_before(previous: Verdict, verdict: Verdict) -> bool:
    return (previous.start_hash, previous.round + 1) == (verdict.start_hash, verdict.round)
