"""The confirmed chain as a node sees it: lanes, settlements and draws, followed by events.

One background task reads confirmed blocks in a worker thread and hands their events to whoever
listens; a reorganisation takes back what it undid. Lane states are read when a role asks.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
import trio

from node.config import ChainConfig
from node.network import messages
from node.roles.ports import ChainUnavailable, LaneView
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import ChainError
from settlement.chain.events import OtherEvent
from settlement.chain.indexer import Batch, ChainEvent, ChainMoved, Indexer, IndexStore
from settlement.chain.positions import LaneHistory
from settlement.hashing import ZERO32
from settlement.records import Lane

SILENT_AFTER: Final = 30.0  # seconds without an answer, after which the node is not ready
# Within the 5 s that a peer waits for an answer: it must be told that the chain is away, and not
# take this node for gone.
ANSWER_SECONDS: Final = 3.0
LANES_KEPT: Final = 4096
T = TypeVar("T")
Listener = Callable[[ChainEvent], None]


class ChainWatch:
    """A `ChainView` over the deployed contracts."""

    def __init__(
        self,
        contracts: Contracts,
        config: ChainConfig,
        folder: Path,
        first_block: int,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.contracts = contracts
        self._config = config
        self._log = log
        # What was read is kept in memory and read again after a restart: the file only has to
        # hold what a running index needs.
        path = folder / "index.sqlite"
        path.unlink(missing_ok=True)
        self._indexer = Indexer(
            contracts.rpc,
            contracts.followed(),
            IndexStore(path),
            start=first_block,
            confirmations=config.confirmations,
        )
        self.events: list[ChainEvent] = []
        self.lanes = LaneHistory()
        self.head = 0
        # As last read, of the lanes that were asked for last: orders name any that they like.
        self._lanes: OrderedDict[bytes, LaneView] = OrderedDict()
        self._listeners: list[Listener] = []
        self._answered = 0.0
        self._error = "not asked yet"
        self.changed = trio.Event()
        # Calls left behind hold their place until they end, and must not take everybody's.
        self._callers = trio.CapacityLimiter(8)

    def listen(self, listener: Listener) -> None:
        """`listener` gets every event from now on, in the event loop's thread."""
        self._listeners.append(listener)

    # ------------------------------------------------------------ following

    async def catch_up(self) -> None:
        """Reads up to the confirmed head. Raises ChainUnavailable."""
        while await self._poll():
            pass

    async def run(self) -> None:
        """Follows the chain until cancelled, through outages and reorganisations."""
        while True:
            try:
                await self.catch_up()
            except ChainUnavailable as error:
                self._log.warning("the chain does not answer", reason=str(error))
            await trio.sleep(self._config.poll_seconds)

    async def _poll(self) -> bool:
        batches: list[Batch] = []
        try:
            found = await trio.to_thread.run_sync(self._indexer.poll, batches.append)
        except ChainMoved as moved:
            # What it is now is read next; endpoints that never agree are not asked without pause.
            self._log.info("the chain moved while it was read", reason=str(moved))
            await trio.sleep(min(self._config.poll_seconds, 1.0))
            return True
        except ChainError as error:
            self._error = str(error)
            raise ChainUnavailable(str(error)) from error
        self._answered, self._error = time.time(), ""
        for batch in batches:
            self._apply(batch)
        return found is not None

    def _apply(self, batch: Batch) -> None:
        if batch.rolled_back_to is not None:
            self._log.warning("the chain was reorganised", back_to=batch.rolled_back_to)
            self.events = [e for e in self.events if e.block_number <= batch.rolled_back_to]
        self.events.extend(batch.events)
        self.lanes.apply(batch)
        self.head = batch.head.number
        for event in batch.events:
            for listener in self._listeners:
                listener(event)
        self.changed.set()
        self.changed = trio.Event()

    # ------------------------------------------------------------ lanes

    def lane(self, lane: Lane) -> LaneView:
        if lane.id in self._lanes:
            self._lanes.move_to_end(lane.id)
        return self._lanes.get(lane.id, LaneView(0))

    async def refresh(self, lane: Lane) -> LaneView:
        # As of the block that the events were read to: a later reserve would be short of what a
        # settlement paid whose event is not read yet.
        settled, block = self.lanes.facts(lane.id).settled, self.head or "latest"
        state = await self._now(self.contracts.escrow.lane_state, lane.id, block)
        head = ZERO32
        paid: dict[int, tuple[int, int]] = {}
        for found in settled:
            event = found.event
            paid[event.epoch] = (event.paid_drafter, event.paid_verifier)
            if event.epoch == state.epoch and event.moves_head:
                head = event.root
        now = paid.pop(state.epoch, (0, 0))
        view = LaneView(
            reserve=state.reserve,
            thawing=state.thawing,
            epoch=state.epoch,
            head_root=head,
            paid_drafter=now[0],
            paid_verifier=now[1],
            past=paid,
            solo_from=state.solo_from,
        )
        self._lanes[lane.id] = view
        self._lanes.move_to_end(lane.id)
        while len(self._lanes) > LANES_KEPT:
            self._lanes.popitem(last=False)
        return view

    async def cover(self, operator: bytes, role: int, token: bytes) -> int:
        on_chain = Role[messages.Role(role).name]
        return await self._now(self._cover, operator, on_chain, token)

    def _cover(self, operator: bytes, role: Role, token: bytes) -> int:
        """LaneEscrow's own arithmetic (`PaymentRule.roomDown`). Asked and not sent, the vault's
        `cover` counts as free what has been locked long enough, whether it was released or not."""
        escrow = self.contracts.escrow
        _account, lockable, _whole = self.contracts.vault.view("cover", operator, int(role))
        rate_q32 = escrow.stake_price_q32(token) * escrow.parameters().lock_factor
        return (int(lockable) << 32) // rate_q32 if rate_q32 else 0

    async def _now(self, call: Callable[..., T], *args: Any) -> T:
        """Asks the chain in a thread, which is left behind if no answer comes in time."""
        with trio.move_on_after(ANSWER_SECONDS) as waited:
            try:
                answer = await trio.to_thread.run_sync(
                    call, *args, abandon_on_cancel=True, limiter=self._callers
                )
            except ChainError as error:
                self._error = str(error)
                raise ChainUnavailable(str(error)) from error
        if waited.cancelled_caught:
            self._error = f"the chain did not answer within {ANSWER_SECONDS:g} s"
            raise ChainUnavailable(self._error)
        self._answered, self._error = time.time(), ""
        return answer

    # ------------------------------------------------------------ views

    def health(self) -> dict[str, Any]:
        silent = time.time() - self._answered
        return {
            "ok": not self._error or silent < SILENT_AFTER,
            "block": self.head,
            "seconds_since_answer": round(silent, 1),
            "error": self._error,
        }

    def summary(self) -> dict[str, Any]:
        counts: defaultdict[str, int] = defaultdict(int)
        for found in self.events:
            event = found.event
            name = event.name if isinstance(event, OtherEvent) else type(event).__name__
            counts[name] += 1
        return {"block": self.head, "events": dict(counts)}
