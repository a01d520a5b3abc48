"""What a juror says of one draft (F12): the registered draft model's own word there, in rejection
mode, where D is committed to distributions.

Exact tier: the hash of the leaf that the model makes; any honest juror has the same one. Float
tiers: the largest difference of a token's mass, as `answering` counts margins.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from node.inference.architecture import ModelError
from node.inference.cache import ContextOverflow
from node.inference.params import SamplingError, SamplingParams
from node.inference.proposal import DraftCoin
from node.roles.answering import NotThere
from node.roles.convert import leaves_of
from node.roles.redraft import apart
from node.roles.rerun import Case, Tolerance
from settlement.hashing import ZERO32
from settlement.panels import MAX_MARGIN, Answer
from settlement.records import Mode, Tier


def draft_answer(drafter: Any, case: Case, index: int, within: int, tier: Tier) -> Answer:
    """Drafts one round again, from the output before it and under its own coin.

    Args:
        drafter: an `inference.drafter.Drafter` of the registered model.
        index: of the round in the session; within: of the draft in its window.

    Raises:
        NotThere: the session has no such draft, its mode commits D to no distribution, or the model
            cannot be run over what comes before.
    """
    order, delivery = case.order, case.delivery
    if order.mode != Mode.REJECTION:
        raise NotThere(f"mode {order.mode} commits the drafter to no distribution")
    frame = case.rounds[index].draft if 0 <= index < len(case.rounds) else None
    if frame is None or not 0 <= within < len(frame.leaves):
        raise NotThere(f"round {index} of the session has no draft {within}")
    coin = DraftCoin(frame.commit.chain_value, frame.commit.context_hash)
    try:
        session = drafter.open(
            delivery.prompt,
            SamplingParams.from_order(order),
            seed=case.seed,
            output_ids=delivery.output,
            stop_ids=frozenset(order.stop_ids),
        )
        try:
            for done in case.rounds[:index]:
                session.commit(done.verdict.tokens)
            mine = session.propose(len(frame.leaves), coin)
        finally:
            session.close()
    except (ModelError, ContextOverflow, SamplingError) as error:
        raise NotThere(f"no draft model drafts there: {error}") from error
    own = leaves_of(order, mine)
    if tier == Tier.EXACT:
        return Answer(print=own[within].leaf_hash if within < len(own) else ZERO32)
    before = zip(own[:within], frame.leaves[:within], strict=False)
    if any(ours.token != theirs.token for ours, theirs in before):
        # After another token everything is another text: of this draft nothing can be said.
        return Answer()
    if within >= len(own):
        return Answer(margin=MAX_MARGIN)
    unit = Tolerance.of(tier)
    margin = ceil(apart(mine.kept[within], frame.kept[within]) / unit.mass * unit.score)
    return Answer(margin=min(margin, MAX_MARGIN))
