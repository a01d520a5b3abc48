"""The accept rule run again on the figures that two leaves carry: what a contract can judge alone.

AcceptRule.sol mirrors this module: same functions, same order of checks, same codes. All arithmetic
is exact on integers wider than the fields (Solidity: uint256, int256), so nothing wraps. Figures
themselves may be lies; those fall under F9 and F12 and need a model.

D and V are judged apart, because each may be guilty where the other is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from settlement.acceptance import relaxed_accepts
from settlement.coins import Purpose, anchor_of, coin, draw_coin
from settlement.hashing import TAG_KEPT, ZERO32, keccak256
from settlement.masses import accept_rejection
from settlement.records import (
    MASS_TOTAL,
    MAX_KEPT,
    NO_TOKEN,
    DraftLeaf,
    Mode,
    Order,
    VerdictLeaf,
    packed_kept,
)


class LeafFault(IntEnum):
    """What is wrong with a leaf. The number is the code that AcceptRule.sol returns (0: nothing).

    Codes below 32 are V's, the others D's.
    """

    OUTSIDE_SESSION = 1  # F5: position below the session's start or at max tokens or past it
    WRONG_POSITION = 2  # F5: the leaf at index i of the tree is not at base + i
    OTHER_DRAFT = 3  # F3: not the draft token that D committed
    ACCEPTED_NOTHING = 4  # F4: accept bit without a draft
    ACCEPTED_OTHER = 5  # F4: accepted, but emitted another token
    REJECTED_OWN_TOKEN = 6  # F4: rejected, yet emitted the same token
    COIN_SAYS_OTHERWISE = 7  # F4: rejection mode's u · q < p · 2**64
    KEY_BIT = 8  # F4: a threshold is exceeded and the position is not called key
    SCORES_CROSSED = 9  # F4: the draft scores above the maximum
    RELAXED_ACCEPT = 10  # F4: accepted further than τ below, or at a key position
    RELAXED_REJECT = 11  # F4: rejected although the relaxed rule accepts
    CHAIN_VERIFIER = 12  # F4: v_r does not lead to the anchor
    DRAFT_WRONG_POSITION = 32  # F4
    DRAFT_NO_TOKEN = 33  # F4: a leaf that proposes nothing
    DRAW = 34  # F4: w′ outside [qBelow, qBelow + q)
    LIST_MALFORMED = 35  # F4: kept ids out of order, too many, a zero mass or a wrong total
    LIST_NOT_LEAF = 36  # F4: the list gives other q or qBelow
    CHAIN_DRAFTER = 37  # F4: d_r does not lead to the anchor

    @property
    def fault(self) -> str:
        """The protocol's id: F3, F4 or F5."""
        return _IDS.get(self, "F4")

    @property
    def by_drafter(self) -> bool:
        return self >= LeafFault.DRAFT_WRONG_POSITION


_IDS: Final = {
    LeafFault.OUTSIDE_SESSION: "F5",
    LeafFault.WRONG_POSITION: "F5",
    LeafFault.OTHER_DRAFT: "F3",
}


class NotThisLeaf(ValueError):
    """Evidence that does not belong to the leaf it accuses. No fault of anyone's but the prover."""


def check_leaf_pair(
    order: Order,
    seed: bytes,
    position: int,
    draft: DraftLeaf | None,
    verdict: VerdictLeaf,
    chain_value: bytes = ZERO32,
) -> LeafFault | None:
    """V's fault in the verdict leaf at `position`, or None.

    Args:
        order: of the session.
        seed: S of the session's start.
        position: base + index of the leaf in the verdict tree, as the Merkle proof shows it.
        draft: the draft leaf at the same index of the draft tree; None at index K, where no draft
            was made.
        verdict: the leaf.
        chain_value: v_r of the verdict; used in rejection mode only.

    The checks, in this order; the first that fails names the fault:

    1. OUTSIDE_SESSION unless startPosition ≤ position < maxTokens.
    2. WRONG_POSITION unless leaf.position = position.
    3. OTHER_DRAFT unless leaf.draftToken = draft.token (NO_TOKEN without a draft).
    4. Without a draft: ACCEPTED_NOTHING if the accept bit is set; else no fault.
    5. ACCEPTED_OTHER if accepted and leaf.token ≠ leaf.draftToken.
    6. Rejection mode: u = coin(v_r, S, position, 0); COIN_SAYS_OTHERWISE unless
       accepted = (q > 0 and u · q < p · 2**64); REJECTED_OWN_TOKEN if q > 0, not accepted and
       leaf.token = leaf.draftToken (a rejected draft has p < q, so the residual never gives it).
    7. Greedy and coupled, τ = 0: REJECTED_OWN_TOKEN if not accepted and the tokens are equal.
    8. Greedy and coupled, τ > 0: KEY_BIT if not key and surprisal > keyTargetSurprisal or
       draft.surprisal > keyDraftSurprisal; SCORES_CROSSED if scoreDraft > scoreTop;
       passes = (not key and scoreDraft ≥ scoreTop − τ);
       if accepted: RELAXED_ACCEPT unless passes or scoreDraft = scoreTop;
       if not: REJECTED_OWN_TOKEN if the tokens are equal; RELAXED_REJECT if passes, or if
       scoreDraft = scoreTop and leaf.token > leaf.draftToken (ties go to the lowest id).
    """
    if not order.start_position <= position < order.max_tokens:
        return LeafFault.OUTSIDE_SESSION
    if verdict.position != position:
        return LeafFault.WRONG_POSITION
    if verdict.draft_token != (NO_TOKEN if draft is None else draft.token):
        return LeafFault.OTHER_DRAFT
    if draft is None:
        return LeafFault.ACCEPTED_NOTHING if verdict.accepted else None
    same = verdict.token == verdict.draft_token
    if verdict.accepted and not same:
        return LeafFault.ACCEPTED_OTHER
    if order.mode == Mode.REJECTION:
        u = coin(chain_value, seed, position, Purpose.ACCEPT)
        if verdict.accepted != accept_rejection(u, draft.q, verdict.p):
            return LeafFault.COIN_SAYS_OTHERWISE
        if draft.q > 0 and not verdict.accepted and same:
            return LeafFault.REJECTED_OWN_TOKEN
        return None
    if order.relax_tau == 0:
        return LeafFault.REJECTED_OWN_TOKEN if same and not verdict.accepted else None
    return _check_relaxed(order, draft, verdict)


def _check_relaxed(order: Order, draft: DraftLeaf, verdict: VerdictLeaf) -> LeafFault | None:
    """Check 8 of `check_leaf_pair`."""
    strict = (
        verdict.surprisal > order.key_target_surprisal
        or draft.surprisal > order.key_draft_surprisal
    )
    if strict and not verdict.key:
        return LeafFault.KEY_BIT
    if verdict.score_draft > verdict.score_top:
        return LeafFault.SCORES_CROSSED
    tied = verdict.score_draft == verdict.score_top
    passes = relaxed_accepts(order.relax_tau, verdict.key, verdict.score_draft, verdict.score_top)
    if verdict.accepted:
        return None if passes or tied else LeafFault.RELAXED_ACCEPT
    if verdict.token == verdict.draft_token:
        return LeafFault.REJECTED_OWN_TOKEN
    if passes or (tied and verdict.token > verdict.draft_token):
        return LeafFault.RELAXED_REJECT
    return None


def check_draft_leaf(
    order: Order,
    seed: bytes,
    context_hash: bytes,
    position: int,
    draft: DraftLeaf,
    chain_value: bytes = ZERO32,
) -> LeafFault | None:
    """D's fault in the draft leaf at `position`, or None. V drops a frame with such a leaf.

    Args:
        context_hash: c at the round's base, as the DraftCommit names it.
        position: base + index of the leaf in the draft tree.
        chain_value: d_r of the DraftCommit; used in rejection mode only.

    In this order: DRAFT_WRONG_POSITION unless leaf.position = position; DRAFT_NO_TOKEN if
    leaf.token = NO_TOKEN; in rejection mode, with w′ = draw_coin(d_r, S, contextHash, position),
    DRAW unless qBelow ≤ w′ < qBelow + q and qBelow + q ≤ 2**64 − 1.
    """
    if draft.position != position:
        return LeafFault.DRAFT_WRONG_POSITION
    if draft.token == NO_TOKEN:
        return LeafFault.DRAFT_NO_TOKEN
    if order.mode != Mode.REJECTION:
        return None
    end = draft.q_below + draft.q
    drawn = draw_coin(chain_value, seed, context_hash, position)
    return None if draft.q_below <= drawn < end <= MASS_TOTAL else LeafFault.DRAW


def check_draft_list(draft: DraftLeaf, kept: Sequence[tuple[int, int]]) -> LeafFault | None:
    """D's fault in the kept list behind a rejection-mode leaf, or None.

    `kept` is the list that D's frame carried, ((id, mass), …). NotThisLeaf unless
    keccak256(TAG_KEPT ‖ (uint32 id ‖ uint64 mass)*) = leaf.keptHash. Then LIST_MALFORMED unless it
    has 1 to 64 ids, strictly ascending, none NO_TOKEN, no zero mass, and the total 2**64 − 1; then
    LIST_NOT_LEAF unless leaf.q is the token's mass in it and leaf.qBelow the sum over lower ids.
    """
    digest = keccak256(TAG_KEPT, packed_kept(kept))
    if digest != draft.kept_hash:
        raise NotThisLeaf(
            f"this list hashes to 0x{digest.hex()}, the leaf names 0x{draft.kept_hash.hex()}"
        )
    last, total, q, below = -1, 0, 0, 0
    for token, mass in kept:
        if not last < token < NO_TOKEN or mass == 0:
            return LeafFault.LIST_MALFORMED
        if token < draft.token:
            below += mass
        elif token == draft.token:
            q = mass
        last, total = token, total + mass
    if len(kept) > MAX_KEPT or total != MASS_TOTAL:
        return LeafFault.LIST_MALFORMED
    return None if (q, below) == (draft.q, draft.q_below) else LeafFault.LIST_NOT_LEAF


def check_chain_verifier(order: Order, round_index: int, chain_value: bytes) -> LeafFault | None:
    """CHAIN_VERIFIER unless round_index + 1 chain steps from v_r give the order's anchor.
    Rejection mode only."""
    return (
        None
        if anchor_of(chain_value, round_index) == order.anchor_verifier
        else LeafFault.CHAIN_VERIFIER
    )


def check_chain_drafter(order: Order, round_index: int, chain_value: bytes) -> LeafFault | None:
    """CHAIN_DRAFTER unless round_index + 1 chain steps from d_r give the order's anchor.
    Rejection mode only."""
    return (
        None
        if anchor_of(chain_value, round_index) == order.anchor_drafter
        else LeafFault.CHAIN_DRAFTER
    )
