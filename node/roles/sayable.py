"""How far a delivered session can be run again at all.

A session may be signed by all of its parties and be nothing that the target runs over: an order
that no sampler takes, tokens outside the vocabulary, a text beyond the context. No honest verifier
signs a verdict there. Whoever runs it again must say so, and not fail on it: an audit that fails
finds nothing, and a juror that fails is silent and pays for that.
"""

from __future__ import annotations

from typing import Any

from node.inference.params import SamplingError, SamplingParams
from node.inference.stops import StopError
from node.roles.convert import stop_rules
from node.roles.rerun import Case


def sayable(model: Any, case: Case) -> int:
    """Of how many of the session's tokens, from the first on, the target has a word of its own:
    those that only tokens of its vocabulary come before, within its context. The last of them may
    itself be no token."""
    delivery = case.delivery
    try:
        SamplingParams.from_order(case.order)
        stop_rules(case.order, delivery.stops)
    except (SamplingError, StopError):
        return 0
    before, output = (*delivery.prompt, *delivery.output), case.output
    if not delivery.prompt or any(token >= model.vocab_size for token in before):
        return 0
    room = max(0, model.context_length - len(before) + 1)
    known = next((n for n, t in enumerate(output) if t >= model.vocab_size), len(output))
    return min(len(output), known + 1, room)
