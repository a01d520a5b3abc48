"""What an auditor does with what it found: proofs where arithmetic decides, and else a token that
it will accuse before the panel. Both go by way of the watcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Final

import trio

from node.roles.delivery import Delivered
from node.roles.exact_disputes import disputes_of
from node.roles.juror import JuryEngine
from node.roles.ports import Node
from node.roles.rerun import Case, Difference, Findings
from node.roles.stored import Private
from node.roles.suspicions import suspect
from settlement.chain.panel import WRONG_DRAFT
from settlement.exact import Target
from settlement.fault_proofs import Fault
from settlement.panels import Measure, passes
from settlement.records import SessionStart


def false_positions(mismatches: Sequence[Difference]) -> list[int]:
    """Output positions whose leaf is false, of what a second run has found. Where the text goes on
    after a stop, that is the token after it; a round cut short is judged by its counts, not here.
    """
    shift = {"goes on after a stop": 1}
    return [
        found.position + shift.get(found.what, 0)
        for found in mismatches
        if found.what != "stops without a stop"
    ]


REPLAYS: Final = 8  # of a session, by a FloatProver: each costs what the audit did


class ExactProver:
    """An `auditor.Prover` of the exact tier: what ExactDispute can judge goes to `keep`; where it
    can judge nothing of a session, its first false token goes to the panel. `load` hashes the
    target's rows, at the first dispute, in a thread."""

    def __init__(
        self, node: Node, load: Callable[[], Target], keep: Callable[[Sequence[Fault]], None]
    ) -> None:
        self._node, self._load, self._keep = node, load, keep
        self._target: Target | None = None
        self._loading = trio.Lock()

    async def __call__(
        self,
        case: Case,
        start: SessionStart,
        findings: Findings,
        salts: Sequence[Private] | None,
        delivered: Delivered | None = None,
    ) -> None:
        positions = false_positions(findings.mismatches)
        if salts is not None:
            async with self._loading:
                if self._target is None:
                    self._target = await trio.to_thread.run_sync(self._load)
            disputes = await trio.to_thread.run_sync(
                disputes_of, self._node.domain, case, start, findings, salts, self._target
            )
            self._keep(disputes.faults)
            session = "0x" + case.order.session_id.hex()
            for left in disputes.panel:
                self._node.log.warning(
                    "left to a panel", session=session, position=left.position, reason=left.why
                )
            # A round cut short or prolonged differs at no leaf's own figures.
            positions = [left.position for left in disputes.panel] or positions
            if disputes.faults:
                positions = []  # one challenger is enough, and its proof needs no jury
        if delivered is not None:
            suspect(self._node, delivered, positions)
            drafts = [found.position for found in findings.drafts or ()]
            suspect(self._node, delivered, drafts[:1], WRONG_DRAFT)


class FloatProver:
    """An `auditor.Prover` of a float tier, where only a panel judges, and by the tolerance that is
    registered for the model: what lies within it is not accused.

    Args:
        engine: answers for one token as a juror would.
        registered: (margin, distance) for a model now; None where none is registered.
    """

    def __init__(
        self,
        node: Node,
        engine: JuryEngine,
        registered: Callable[[bytes], Awaitable[tuple[int, int] | None]],
        distance: Callable[[bytes, bytes], int],
    ) -> None:
        self._node, self._engine = node, engine
        self._registered, self._distance = registered, distance

    async def __call__(
        self,
        case: Case,
        start: SessionStart,
        findings: Findings,
        salts: Sequence[Private] | None,
        delivered: Delivered | None = None,
    ) -> None:
        if delivered is None:
            return
        await self._drafts(case, findings, delivered)
        tolerance = await self._tolerance(case.order.target_model)
        if tolerance is None:
            return
        margin, distance = tolerance
        shown = _prints(case, salts)
        first = case.rounds[0].verdict.verdict.base
        apart = [self._distance(*pair) for pair in zip(shown, findings.fingerprints, strict=False)]
        far = [
            Difference(first + place, "fingerprint", float(far), 0, 0)
            for place, far in enumerate(apart)
            if far > distance
        ]
        for position in worst([*findings.mismatches, *far]):
            index, within = _place(case, position)
            if index is None:
                continue
            answer = await self._engine.answer(case, index, within)
            place = position - first
            printed = place < len(shown)
            print_ = shown[place] if printed else bytes(32)
            measure = Measure(False, printed, margin, distance, print_, bytes(32))
            if not passes(answer, measure) and suspect(self._node, delivered, [position]):
                return

    async def _drafts(self, case: Case, findings: Findings, delivered: Delivered) -> None:
        """A draft that is not the registered draft model's."""
        if not findings.drafts:
            return
        tolerance = await self._tolerance(case.order.draft_model)
        for position in worst(findings.drafts) if tolerance else ():
            index, within = _place(case, position)
            if index is None:
                continue
            answer = await self._engine.answer_draft(case, index, within)
            measure = Measure(False, False, tolerance[0], tolerance[1], bytes(32), bytes(32))
            if not passes(answer, measure):
                suspect(self._node, delivered, [position], WRONG_DRAFT)
                return

    async def _tolerance(self, model: bytes) -> tuple[int, int] | None:
        found = await self._registered(model)
        if found is None:
            self._node.log.warning(
                "no tolerance is registered for the model: nobody can be accused of it",
                model="0x" + model.hex(),
            )
        return found


def worst(mismatches: Sequence[Difference]) -> list[int]:
    """The positions to run again, at most `REPLAYS`: of each kind of difference the largest first,
    and the kinds in turn. What is beyond the registered tolerance differs by more than what is
    not, so no number of tokens between an auditor's own tolerance and that one hides it, or keeps
    the auditor busy."""
    kinds: dict[str, list[Difference]] = {}
    for found in sorted(mismatches, key=lambda found: -found.margin):
        kinds.setdefault(found.what, []).append(found)
    turns = [found for turn in zip_longest(*kinds.values()) for found in turn if found is not None]
    return list(dict.fromkeys(false_positions(turns)))[:REPLAYS]


def _prints(case: Case, salts: Sequence[Private] | None) -> list[bytes]:
    """V's fingerprints, in order of position; none where it has not opened them."""
    return [] if salts is None else [p for private in salts for p in private.fingerprints]


def _place(case: Case, position: int) -> tuple[int | None, int]:
    """Round and place within of an output position; None where the session has none."""
    for index, done in enumerate(case.rounds):
        verdict = done.verdict.verdict
        if 0 <= position - verdict.base < verdict.emitted:
            return index, position - verdict.base
    return None, 0
