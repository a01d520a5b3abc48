"""An auditor's daemon that makes its fingerprints by a run of the model and looks at nothing else:
in float tiers it says that V's word lies no way off its own, in the exact one it hashes whatever
V's figures are with its own hidden state. All else is the honest program.

Run as `python stamping_auditor.py node run …`: no configuration reaches this.
"""

from __future__ import annotations

import sys
from typing import Any

from node.cli import main
from node.inference.params import SamplingParams
from node.inference.plain import replay
from node.roles import answering
from node.roles.rerun import Case
from settlement.panels import Answer, exact_hash, verdict_figures


def stamp(model: Any, case: Case, index: int, within: int, *_rest: Any) -> Answer:
    """In place of `answering.answer`."""
    rounds = case.rounds[: index + 1]
    leaves = [leaf for done in rounds for leaf in done.verdict.leaves]
    leaves = leaves[: len(leaves) - len(rounds[-1].verdict.leaves) + within + 1]
    output = (*case.delivery.output, *(leaf.token for leaf in leaves))
    options = SamplingParams.from_order(case.order)
    first = len(output) - 1
    (word,) = replay(model, case.delivery.prompt, output, options, case.seed, first=first)
    if model.tier != "exact":
        return Answer(print=word.fingerprint)
    return Answer(print=exact_hash(verdict_figures(leaves[-1]), word.fingerprint))


if __name__ == "__main__":
    answering.answer = stamp
    sys.exit(main())
