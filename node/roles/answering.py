"""What a juror says of one token: the target's own word there, in the form that verdicts are made
of.

Exact tier: one hash over all that a verdict leaf says there, token and figures, and over the hidden
state; any honest juror has the same one. Float tier: the juror's fingerprint, and how far V's word
lies from the juror's own, as a margin in the units of scores. What differs in another unit counts
by its share of that unit's tolerance, so that one registered margin bounds them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any, Final

from node.network.messages import PromptDelivery
from node.roles.rerun import (
    Case,
    Placed,
    Tolerance,
    align,
    check_stops,
    coin_margin,
    known,
    placed,
    score_margin,
)
from settlement import acceptance, masses
from settlement.acceptance import ScoreRow
from settlement.hashing import ZERO32
from settlement.panels import MAX_MARGIN, Answer, exact_hash, verdict_figures
from settlement.records import NO_CUTOFF, NO_TOKEN, Mode, Order, Tier, VerdictLeaf

# Nothing could have been said there: the text had ended before, or no target runs over it.
ENDED: Final = ZERO32
FARTHEST: Final = Answer(margin=MAX_MARGIN)


class NotThere(ValueError):
    """The session has no such token."""


def answer(
    model: Any,
    case: Case,
    index: int,
    within: int,
    token_bytes: Callable[[int], bytes] | None = None,
) -> Answer:
    """Runs the target over prompt and output up to one token, and answers for it.

    Args:
        index: of the round in the session; within: of the token in the round.

    Raises:
        NotThere: the session has no such token.
    """
    from node.inference.params import SamplingParams
    from node.inference.plain import replay
    from node.roles.sayable import sayable

    if not 0 <= index < len(case.rounds):
        raise NotThere(f"the session has {len(case.rounds)} rounds, none is {index}")
    emitted = len(case.rounds[index].verdict.leaves)
    if not 0 <= within < emitted:
        raise NotThere(f"round {index} has {emitted} tokens, none is {within}")
    case = replace(case, rounds=case.rounds[: index + 1])
    leaves = placed(case.rounds)
    leaves = leaves[: len(leaves) - emitted + within + 1]
    at, order = leaves[-1], case.order
    if len(leaves) > sayable(model, case):
        return Answer(print=exact_hash(ENDED, ZERO32)) if model.tier == "exact" else FARTHEST
    delivery: PromptDelivery = case.delivery
    output = (*delivery.output, *(each.leaf.token for each in leaves))
    (word,) = replay(
        model,
        delivery.prompt,
        known(model, output),
        SamplingParams.from_order(order),
        case.seed,
        first=len(output) - 1,
    )
    ended = at.leaf.position >= order.max_tokens or any(
        found.what == "goes on after a stop" and found.position < at.leaf.position
        for found in check_stops(case, token_bytes)
    )
    if model.tier == "exact":
        # No honest verifier answers a draft from a list of what are no tokens.
        ended = ended or any(token >= model.vocab_size for token, _mass in at.kept)
        figures = ENDED if ended else verdict_figures(own_leaf(order, case.seed, at, word.row))
        return Answer(print=exact_hash(figures, word.fingerprint))
    unit = Tolerance.of(Tier[model.tier.upper()])
    margin = MAX_MARGIN if ended else margin_of(order, case.seed, at, word.row, unit)
    return Answer(print=word.fingerprint, margin=margin)


def own_leaf(order: Order, seed: bytes, at: Placed, row: ScoreRow) -> VerdictLeaf:
    """The leaf that an honest verifier makes of this row, with a fingerprint of zeros. The draft is
    D's committed one."""
    terms = acceptance.Terms.of(order)
    drafts = []
    if at.leaf.draft_token != NO_TOKEN and at.draft is not None:
        q = masses.dense(at.kept, len(row.masses())) if terms.mode == Mode.REJECTION else None
        drafts = [acceptance.Draft(at.draft.token, q, at.draft.surprisal, at.top)]
    decided = acceptance.decide_round(
        terms,
        at.leaf.position,
        drafts,
        [row] * (len(drafts) + 1),
        seed,
        at.chain_value if terms.mode == Mode.REJECTION else None,
    )
    return decided.outcomes[0].leaf(ZERO32)


def margin_of(
    order: Order, seed: bytes, at: Placed, row: ScoreRow, unit: Tolerance | None = None
) -> int:
    """How far V's word at a position lies from the row's, in Q24 score units (float tiers). `unit`:
    the tier's tolerances, float32's by default."""
    leaf, unit = at.leaf, unit or Tolerance()
    if (leaf.cutoff == NO_CUTOFF) != (row.cutoff == NO_CUTOFF):
        return MAX_MARGIN
    cutoff, row = align(order, leaf, row, unit)
    found = max(abs(leaf.top_prob - row.top_prob) / unit.top_prob, cutoff / unit.cutoff)
    if order.mode == Mode.REJECTION:
        apart, _ours, _what = coin_margin(order, seed, at, row)
        found = max(found, apart / unit.mass)
    else:
        apart, _ours = score_margin(order, seed, at, row, unit)
        found = max(found, apart / unit.score)
    if order.relax_tau and leaf.draft_token != NO_TOKEN:
        apart = abs(row.surprisal(leaf.draft_token) - leaf.surprisal)
        found = max(found, apart / unit.surprisal)
    return min(ceil(found * unit.score), MAX_MARGIN)
