"""What an auditor does with what it found in the exact tier: proofs, by way of the watcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from node.roles.exact_disputes import disputes_of
from node.roles.ports import Node
from node.roles.rerun import Case, Findings
from node.roles.stored import Private
from settlement.exact import Target
from settlement.fault_proofs import Fault
from settlement.records import SessionStart


class ExactProver:
    """An `auditor.Prover` of the exact tier: what ExactDispute can judge goes to `keep`, the rest
    is named for a panel. `load` hashes the target's rows, at the first dispute, in a thread."""

    def __init__(
        self, node: Node, load: Callable[[], Target], keep: Callable[[Sequence[Fault]], None]
    ) -> None:
        self._node, self._load, self._keep = node, load, keep
        self._target: Target | None = None
        self._loading = trio.Lock()

    async def __call__(
        self, case: Case, start: SessionStart, findings: Findings, salts: Sequence[Private]
    ) -> None:
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
