"""From an auditor's second run to what the exact court judges, or to what is left to the panel.

Only the exact tier, where one differing bit is a fault. V's hidden state either is the auditor's
own, by its hash: then a token that is not its argmax is proven by arithmetic, by one challenger and
without a vote. Or it is another: then V ran another model, other weights or other widths, and that
goes to the panel, which answers with one exact hash. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.roles.accusations import evidence_of
from node.roles.rerun import Case, Findings
from node.roles.stored import Private
from settlement.exact import Target
from settlement.exact_faults import Disclosed, ForPanel, OtherEvidence, find_token_fault
from settlement.fault_proofs import Fault
from settlement.records import Domain, SessionStart


@dataclass(frozen=True)
class Panel:
    """A position that arithmetic over two rows does not decide, and why."""

    position: int
    why: str


@dataclass(frozen=True)
class Disputes:
    """What a session's second run leads to: proofs for ExactDispute, one a round; and what is left
    to the panel."""

    faults: tuple[Fault, ...]
    panel: tuple[Panel, ...]


def disputes_of(
    domain: Domain,
    case: Case,
    start: SessionStart,
    findings: Findings,
    salts: Sequence[Private],
    target: Target,
) -> Disputes:
    """What the differences of a session of the exact tier prove.

    Args:
        start: the session's, signed by all three.
        findings: of a run of `target`, with its hidden states.
        salts: V's opening of every round.
    """
    faults: dict[tuple[int, bytes, bytes, int], Fault] = {}
    panel: list[Panel] = []
    place = 0
    for done, private in zip(case.rounds, salts, strict=True):
        evidence = evidence_of(case.order, start, done.draft, done.verdict)
        for index, leaf in enumerate(evidence.verdict_leaves):
            ours, theirs = findings.fingerprints[place], private.fingerprints[index]
            place += 1
            position = evidence.verdict.base + index
            if ours != theirs:
                panel.append(Panel(position, "another hidden state"))
                continue
            hidden = findings.hidden.get(position)
            if hidden is None:
                continue  # nothing differs here
            try:
                disclosed = Disclosed(private.salts[index], hidden)
                fault = find_token_fault(domain, evidence, index, disclosed, target)
            except (ForPanel, OtherEvidence) as error:
                panel.append(Panel(position, str(error)))
                continue
            if fault is None:
                panel.append(Panel(position, f"a figure of leaf {leaf.position} but its token"))
            else:
                faults.setdefault(fault.key, fault)
    return Disputes(tuple(faults.values()), tuple(panel))
