"""A second run of the *draft* model over a session in rejection mode (F12): are the lists that D
committed to those of its registered model?

A drafter that states another q than its model's breaks no rule that a contract can judge: its draw
follows from its list, and whatever it draws by, acceptance keeps the target's distribution. What it
sells is then not what it has registered: garbage, lookup, or the target itself, whose drafts are
never rejected. Only who has the draft model can tell.

In the strict modes there are no lists; what D's model would have said is asked there only in a case
of its claim, and not here.
"""

from __future__ import annotations

from typing import Any

from node.inference.architecture import ModelError
from node.inference.cache import ContextOverflow
from node.inference.drafter import Drafter
from node.inference.params import SamplingError, SamplingParams
from node.inference.proposal import DraftCoin, KeptList
from node.roles.frames import Round
from node.roles.rerun import Case, Difference, Tolerance
from settlement.records import MASS_TOTAL, Mode


def apart(one: KeptList, other: KeptList) -> float:
    """The largest difference of a token's mass in two lists, as a share of one."""
    ours, theirs = dict(one), dict(other)
    ids = ours.keys() | theirs.keys()
    return max(abs(ours.get(i, 0) - theirs.get(i, 0)) for i in ids) / MASS_TOTAL


def redraft(
    drafter: Drafter, case: Case, tolerance: Tolerance | None = None
) -> tuple[Difference, ...]:
    """Where D's lists are not the registered model's, by more than `tolerance.mass`.

    Every round is drafted again under its own coin from the output before it. Of a window, only
    what V has answered counts; and what follows a token that is not ours (the coin may fall to
    either side of an edge that two honest runs place a hair apart) has another context and is left
    out.

    Raises:
        ValueError: the session is not in rejection mode.
    """
    order = case.order
    if order.mode != Mode.REJECTION:
        raise ValueError(f"mode {order.mode}: only rejection mode commits D to distributions")
    bound = (tolerance or Tolerance()).mass
    found: list[Difference] = []
    try:
        session: Any = drafter.open(
            case.delivery.prompt,
            SamplingParams.from_order(order),
            seed=case.seed,
            output_ids=case.delivery.output,
            stop_ids=frozenset(order.stop_ids),
        )
        try:
            for done in case.rounds:
                found += _of_round(session, done, bound)
                session.commit(done.verdict.tokens)
        finally:
            session.close()
    except (ModelError, ContextOverflow, SamplingError):
        pass  # no model runs over what follows: the target's own run says so (`rerun`)
    return tuple(found)


def _of_round(session: Any, done: Round, bound: float) -> list[Difference]:
    frame, found = done.draft, []
    if frame is not None:
        coin = DraftCoin(frame.commit.chain_value, frame.commit.context_hash)
        mine = session.propose(len(frame.leaves), coin)
        answered = frame.leaves[: len(done.verdict.tokens)]
        pairs = zip(answered, frame.kept, mine.tokens, mine.kept, strict=False)
        for leaf, theirs, token, ours in pairs:
            margin = apart(ours, theirs)
            if margin > bound:
                found.append(Difference(leaf.position, "q", margin, leaf.token, token))
            if leaf.token != token:
                break
    return found
