"""Between what the engine speaks (drafts, outcomes) and what is signed (leaves, frames)."""

from __future__ import annotations

import numpy as np

from node.inference.proposal import Draft, Kept, VerifyOutcome
from node.roles.frames import DraftFrame
from node.roles.session import SessionState, Terms
from settlement import trees
from settlement.hashing import ZERO32
from settlement.records import (
    NO_TOKEN,
    DraftCommit,
    DraftLeaf,
    Mode,
    Verdict,
    VerdictLeaf,
    extend_context,
    kept_hash,
    salted_fingerprint,
    top_hash,
)


def draft_leaves(
    terms: Terms, draft: Draft
) -> tuple[tuple[DraftLeaf, ...], tuple[tuple[tuple[int, int], ...], ...]]:
    """The leaves of a draft, and the kept lists behind them."""
    order = terms.order
    rejection, relaxed = order.mode == Mode.REJECTION, order.relax_tau > 0
    leaves, lists = [], []
    for index, token in enumerate(draft.tokens):
        kept: tuple[tuple[int, int], ...] = ()
        if rejection:
            held = draft.kept[index]
            kept = tuple(zip(map(int, held.ids), map(int, held.masses), strict=True))
            lists.append(kept)
        leaves.append(
            DraftLeaf(
                position=draft.base + index,
                token=token,
                q=draft.kept[index].mass(token) if rejection else 0,
                q_below=draft.kept[index].below(token) if rejection else 0,
                kept_hash=kept_hash(kept) if rejection else ZERO32,
                surprisal=draft.surprisals[index] if relaxed else 0,
                top_hash=top_hash(draft.tops[index]) if relaxed else ZERO32,
            )
        )
    return tuple(leaves), tuple(lists)


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
        kept=tuple(
            Kept(
                np.array([token for token, _ in kept], np.uint32),
                np.array([mass for _, mass in kept], np.uint64),
            )
            for kept in frame.kept
        ),
        surprisals=tuple(leaf.surprisal for leaf in frame.leaves) if frame.tops else (),
        tops=frame.tops,
    )


def verdict_leaves(outcome: VerifyOutcome, salts: list[bytes]) -> tuple[VerdictLeaf, ...]:
    """One leaf per emitted position, its fingerprint under its own salt."""
    return tuple(
        VerdictLeaf(
            position=at.position,
            draft_token=at.draft_token,
            token=at.token,
            accepted=at.accepted,
            p=at.p if at.draft_token != NO_TOKEN else 0,
            top_prob=at.top_prob,
            cutoff=at.cutoff,
            score_draft=at.score_draft,
            score_top=at.score_top,
            surprisal=at.surprisal,
            key=at.key,
            fingerprint=salted_fingerprint(salt, at.fingerprint),
        )
        for at, salt in zip(outcome.positions, salts, strict=True)
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
