"""The confirmed chain as roles see it: lanes they work on, refreshed in worker threads."""

from __future__ import annotations

import time
from typing import Any

import structlog
import trio

from node.config import ChainConfig
from node.roles.ports import ChainUnavailable, LaneView
from settlement.chain.contracts import Contracts
from settlement.chain.errors import ChainError
from settlement.records import Lane


class LaneWatch:
    """A `ChainView` over the deployed contracts."""

    def __init__(
        self, contracts: Contracts, config: ChainConfig, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._contracts = contracts
        self._config = config
        self._log = log
        self._views: dict[bytes, LaneView] = {}
        self._answered = 0.0
        self._error = "not asked yet"

    def lane(self, lane: Lane) -> LaneView:
        return self._views.get(lane.id, LaneView(0))

    async def refresh(self, lane: Lane) -> LaneView:
        try:
            state = await trio.to_thread.run_sync(self._contracts.escrow.lane_state, lane.id)
        except ChainError as error:
            self._error = str(error)
            raise ChainUnavailable(str(error)) from error
        self._answered, self._error = time.time(), ""
        view = LaneView(state.reserve, state.thawing, state.epoch)
        self._views[lane.id] = view
        return view

    def staked(self, operator: bytes, role: str) -> int:
        return 0

    async def run(self) -> None:
        """Keeps in touch with the chain until cancelled."""
        while True:
            try:
                await trio.to_thread.run_sync(self._contracts.rpc.head)
                self._answered, self._error = time.time(), ""
            except ChainError as error:
                self._error = str(error)
            await trio.sleep(self._config.poll_seconds)

    def health(self) -> dict[str, Any]:
        silent = time.time() - self._answered
        ok = not self._error or silent < 30.0
        return {"ok": ok, "seconds_since_answer": round(silent, 1), "error": self._error}

    def summary(self) -> dict[str, Any]:
        return {"lanes": len(self._views)}
