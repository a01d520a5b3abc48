"""Lanes by the escrow's events: the fees of their epochs, their settlements, and where each epoch
stands. Back and forth over reorganisations. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from settlement.chain.events import EpochOpened, LaneOpened, LaneSettled
from settlement.chain.indexer import Batch, ChainEvent
from settlement.chain.lanes import Position, VoucherUnknown
from settlement.records import Voucher


@dataclass(frozen=True)
class LaneFacts:
    """What events say of a lane: the fee of each epoch (basis points), and its settlements, in
    chain order."""

    fees: dict[int, int]
    settled: list[ChainEvent]


class LaneHistory:
    """All lanes, as of the last batch that was applied."""

    def __init__(self) -> None:
        self._events: dict[bytes, list[ChainEvent]] = {}  # by lane id

    def apply(self, batch: Batch) -> None:
        """Take an indexer's batch: first its rollback, then its events."""
        if batch.rolled_back_to is not None:
            for lane, found in self._events.items():
                kept = [event for event in found if event.block_number <= batch.rolled_back_to]
                self._events[lane] = kept
        for event in batch.events:
            if isinstance(event.event, LaneOpened | EpochOpened | LaneSettled):
                self._events.setdefault(event.event.lane, []).append(event)

    def facts(self, lane: bytes) -> LaneFacts:
        """Nothing for a lane never opened."""
        fees: dict[int, int] = {}
        settled = []
        for found in self._events.get(lane, ()):
            event = found.event
            if isinstance(event, LaneOpened):
                fees[0] = event.fee_bps
            elif isinstance(event, EpochOpened):
                fees[event.epoch] = event.fee_bps
            else:
                settled.append(found)
        return LaneFacts(fees, settled)

    def position(self, lane: bytes, epoch: int, vouchers: Iterable[Voucher]) -> Position:
        """Where an epoch of the lane stands, folded from its settlements. VoucherUnknown when one
        of them settled a voucher that is not among `vouchers`; the position of an epoch never
        opened has no fee, and so another digest than any that the escrow keeps."""
        facts = self.facts(lane)
        by_root = {voucher.root: voucher for voucher in vouchers}
        position = Position(epoch, facts.fees.get(epoch, 0))
        for found in facts.settled:
            if found.event.epoch != epoch:
                continue
            voucher = by_root.get(found.event.root)
            if voucher is None:
                raise VoucherUnknown(f"lane 0x{lane.hex()} settled root 0x{found.event.root.hex()}")
            position = position.after(found.event, voucher)
        return position
