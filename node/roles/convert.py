"""Between what the engine speaks (drafts, outcomes) and what is signed (leaves, frames)."""

from __future__ import annotations

from collections.abc import Sequence

from node.inference.proposal import Draft, KeptList, VerifyOutcome
from node.inference.stops import StopRules
from node.roles.frames import DraftFrame
from node.roles.session import SessionState, Terms
from settlement import trees
from settlement.hashing import ZERO32
from settlement.masses import interval
from settlement.records import (
    DraftCommit,
    DraftLeaf,
    Mode,
    Order,
    Verdict,
    VerdictLeaf,
    extend_context,
    kept_hash,
    salted_fingerprint,
    top_hash,
)


def stop_rules(order: Order, stops: Sequence[str]) -> StopRules:
    """The order's stops, with the texts behind its hashes."""
    return StopRules(order.max_tokens, frozenset(order.stop_ids), tuple(stops))


def draft_leaves(terms: Terms, draft: Draft) -> tuple[DraftLeaf, ...]:
    """The leaves of a draft; the lists that they hash travel beside them."""
    return leaves_of(terms.order, draft)


def leaves_of(order: Order, draft: Draft) -> tuple[DraftLeaf, ...]:
    """The same under an order alone."""
    rejection, relaxed = order.mode == Mode.REJECTION, order.relax_tau > 0
    leaves = []
    for index, token in enumerate(draft.tokens):
        kept: KeptList = draft.kept[index] if rejection else ()
        q, below = interval(kept, token) if rejection else (0, 0)
        leaves.append(
            DraftLeaf(
                position=draft.base + index,
                token=token,
                q=q,
                q_below=below,
                kept_hash=kept_hash(kept) if rejection else ZERO32,
                surprisal=draft.surprisals[index] if relaxed else 0,
                top_hash=top_hash(draft.tops[index]) if relaxed else ZERO32,
            )
        )
    return tuple(leaves)


def draft_commit(
    terms: Terms, state: SessionState, leaves: tuple[DraftLeaf, ...], chain_value: bytes
) -> DraftCommit:
    """The commitment to `leaves` as the next round's window."""
    return DraftCommit(
        start_hash=terms.start_hash,
        round=state.round,
        version=0,
        base=state.position,
        context_hash=state.context,
        prev_verdict_hash=state.verdict_hash,
        draft_root=trees.merkle_root([leaf.leaf_hash for leaf in leaves]),
        k=len(leaves),
        chain_value=chain_value,
    )


def engine_draft(frame: DraftFrame | None, base: int) -> Draft:
    """What V's engine verifies: the frame's tokens and lists, or an empty window."""
    if frame is None:
        return Draft(base)
    return Draft(
        base=frame.commit.base,
        tokens=tuple(leaf.token for leaf in frame.leaves),
        kept=frame.kept,
        surprisals=tuple(leaf.surprisal for leaf in frame.leaves) if frame.tops else (),
        tops=frame.tops,
    )


def verdict_leaves(outcome: VerifyOutcome, salts: list[bytes]) -> tuple[VerdictLeaf, ...]:
    """One leaf per emitted position, its fingerprint under its own salt."""
    return tuple(
        at.leaf(salted_fingerprint(salt, fingerprint))
        for at, salt, fingerprint in zip(
            outcome.decision.outcomes, salts, outcome.fingerprints, strict=True
        )
    )


def verdict(
    terms: Terms,
    state: SessionState,
    draft: DraftFrame | None,
    leaves: tuple[VerdictLeaf, ...],
    chain_value: bytes,
    next_k: int,
) -> Verdict:
    """V's record of the round that these leaves decide."""
    tokens = tuple(leaf.token for leaf in leaves)
    return Verdict(
        start_hash=terms.start_hash,
        round=state.round,
        version=0,
        draft_commit_hash=ZERO32 if draft is None else draft.commit.struct_hash,
        base=state.position,
        context_hash=state.context,
        k=sum(leaf.accepted for leaf in leaves),
        emitted=len(leaves),
        next_context_hash=extend_context(state.context, tokens),
        verdict_root=trees.merkle_root([leaf.leaf_hash for leaf in leaves]),
        chain_value=chain_value,
        next_k=next_k,
    )
