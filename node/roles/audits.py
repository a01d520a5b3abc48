"""What an audit found: one report per session, and the verdict drawn from run and salts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from node.inference.fingerprint import distance
from node.roles.auditing import DrawnLane, Verdict
from node.roles.frames import Round
from node.roles.rerun import Findings, Tolerance
from node.roles.stored import Private
from settlement.records import salted_fingerprint

SHOWN: Final = 8  # differences that a report lists; all are counted


@dataclass(frozen=True)
class Report:
    """One session of a drawn lane, audited; JSON in the journal and at /v1/audits.

    Attributes:
        session_id: hex; None when nobody even showed which session was drawn.
        verdict: name of an `auditing.Verdict` in lower case, or "failed": the audit itself did.
        fingerprint_distance: the largest of all positions; None when V opened no salts.
        seconds: of the re-run. source: who delivered the records.
        outside: delivered rounds that do not hang under the drawn root.
        false_drafts: of D's distributions, in rejection mode; None where the draft model was not
            run. They do not enter the verdict, which is about V.
    """

    batch_id: int
    index: int
    verifier: str
    session_id: str | None
    verdict: str
    reason: str = ""
    tokens: int = 0
    rounds: int = 0
    outside: int = 0
    mismatches: int = 0
    near_ties: int = 0
    fingerprint_distance: int | None = None
    seconds: float = 0.0
    source: str = ""
    differences: tuple[dict[str, Any], ...] = ()
    false_drafts: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "differences": list(self.differences)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        return cls(**{**data, "differences": tuple(data["differences"])})


@dataclass
class Audit:
    """One drawn lane's audit: its reports so far, and whether it is over."""

    drawn: DrawnLane
    reports: list[Report] = field(default_factory=list)
    done: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "batch_id": self.drawn.batch_id,
            "index": self.drawn.index,
            "state": "done" if self.done else "running",
            "sessions": [report.to_json() for report in self.reports],
        }


@dataclass(frozen=True)
class Weighed:
    """A verdict with its reason ("" for a clean one) and the largest fingerprint distance."""

    verdict: Verdict
    reason: str
    distance: int | None


def weigh(
    rounds: Sequence[Round],
    findings: Findings,
    salts: Sequence[Private] | str,
    tolerance: Tolerance,
) -> Weighed:
    """What run and salts say together, the worst first. `salts` is V's opening of every round, or
    why there is none."""
    verdict, reason, apart = Verdict.CLEAN, "", None
    opened = salts if isinstance(salts, str) else _distance(rounds, findings, salts)
    if isinstance(opened, str):
        verdict, reason = Verdict.UNOPENED, opened
    else:
        apart = opened
        if apart > tolerance.fingerprint:
            verdict, reason = Verdict.FINGERPRINT, f"fingerprints lie {apart} apart"
    if findings.mismatches:
        first = findings.mismatches[0]
        verdict = Verdict.MISMATCH
        reason = f"{first.what} at position {first.position}, by {first.margin:g}"
    return Weighed(verdict, reason, apart)


def _distance(rounds: Sequence[Round], findings: Findings, salts: Sequence[Private]) -> int | str:
    """The largest distance between V's fingerprints and the auditor's; or, where the salts do not
    open what V had committed to, which round."""
    largest, position = 0, 0
    for done, private in zip(rounds, salts, strict=True):
        leaves = done.verdict.leaves
        if len(private.salts) != len(leaves) or any(
            salted_fingerprint(salt, theirs) != leaf.fingerprint
            for salt, theirs, leaf in zip(private.salts, private.fingerprints, leaves, strict=True)
        ):
            return f"round {done.verdict.verdict.round}: the salts do not open its leaves"
        for theirs in private.fingerprints:
            largest = max(largest, distance(theirs, findings.fingerprints[position]))
            position += 1
    return largest
