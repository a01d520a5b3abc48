"""Follow lanes' positions by the escrow's events, back and forth over reorganisations. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from settlement.chain.events import EpochOpened, LaneOpened, LaneSettled
from settlement.chain.indexer import Batch, ChainEvent
from settlement.chain.lanes import Position, VoucherUnknown
from settlement.records import Lane, Voucher

VoucherOf = Callable[[ChainEvent, bytes], Voucher | None]


@dataclass
class _LaneHistory:
    lane: Lane
    opened: int
    # (block, epoch, position), in chain order; None: settled by a voucher not at hand.
    steps: list[tuple[int, int, Position | None]] = field(default_factory=list)


class PositionBook:
    """Positions of all lanes, as of the last applied batch.

    `voucher_of(event, root)` finds the voucher that a settlement was made by: from this party's
    own journal, or from the transaction's data (`lanes.vouchers_in`); None if it cannot.
    """

    def __init__(self, voucher_of: VoucherOf) -> None:
        self._voucher_of = voucher_of
        self._lanes: dict[bytes, _LaneHistory] = {}

    def apply(self, batch: Batch) -> None:
        """Take an indexer's batch: first its rollback, then its events."""
        if batch.rolled_back_to is not None:
            self._roll_back(batch.rolled_back_to)
        for event in batch.events:
            self._take(event)

    def lanes(self) -> list[Lane]:
        """Every lane that was opened."""
        return [history.lane for history in self._lanes.values()]

    def epoch(self, lane: bytes) -> int:
        """The lane's current epoch; KeyError for a lane never opened."""
        return max(epoch for _block, epoch, _position in self._lanes[lane].steps)

    def position(self, lane: bytes, epoch: int) -> Position:
        """Where an epoch stands. KeyError for one never opened; VoucherUnknown when it was
        settled by a voucher that was not found."""
        for _block, opened, position in reversed(self._lanes[lane].steps):
            if opened != epoch:
                continue
            if position is None:
                raise VoucherUnknown(
                    f"epoch {epoch} of lane 0x{lane.hex()} was settled by a voucher not at hand"
                )
            return position
        raise KeyError(f"epoch {epoch} of lane 0x{lane.hex()} was never opened")

    def _roll_back(self, to: int) -> None:
        for lane, history in list(self._lanes.items()):
            if history.opened > to:
                del self._lanes[lane]
                continue
            history.steps = [step for step in history.steps if step[0] <= to]

    def _take(self, event: ChainEvent) -> None:
        block, what = event.block_number, event.event
        if isinstance(what, LaneOpened):
            start = Position(0, what.fee_bps)
            self._lanes[what.lane] = _LaneHistory(what.parties, block, [(block, 0, start)])
        elif isinstance(what, EpochOpened):
            start = Position(what.epoch, what.fee_bps)
            self._lanes[what.lane].steps.append((block, what.epoch, start))
        elif isinstance(what, LaneSettled):
            position = self._after(event, what)
            self._lanes[what.lane].steps.append((block, what.epoch, position))

    def _after(self, event: ChainEvent, settled: LaneSettled) -> Position | None:
        voucher = self._voucher_of(event, settled.root)
        if voucher is None:
            return None
        try:
            return self.position(settled.lane, settled.epoch).after(settled, voucher)
        except VoucherUnknown:
            return None
