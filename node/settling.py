"""The payee's side of settlement: this node's signed vouchers, brought to the chain when it pays.

The rules are `settlement.settler`'s; here the journal's vouchers meet the chain's lanes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import structlog
import trio

from node.chainwatch import ChainWatch
from node.config import ChainConfig
from node.journal import Journal, StoredVoucher
from node.roles.ports import ChainUnavailable
from node.roles.session import Terms, round_record
from node.roles.stored import stored_round, unpack_runs
from settlement import trees
from settlement.chain.contracts import Contracts, LaneState
from settlement.chain.errors import ChainError
from settlement.chain.lanes import SignedVoucher, VoucherUnknown
from settlement.chain.sender import Sender
from settlement.records import Domain, Lane, RoundRecord, Voucher
from settlement.settler import OpenLane, SettleFailed, SettlePolicy, Settler


class VoucherShelf:
    """The journal's vouchers as the chain takes them: with their lanes and trees."""

    def __init__(self, journal: Journal, domain: Domain) -> None:
        self._journal = journal
        self._domain = domain

    def lanes(self) -> dict[bytes, Lane]:
        """Every lane that this node has worked on, by id."""
        return {
            row.lane: Terms.from_wire(row.terms, self._domain).order.lane
            for row in self._journal.sessions()
        }

    def records(self, row: StoredVoucher) -> list[RoundRecord]:
        """The rounds under a voucher, in the order of its tree."""
        out = []
        for run in unpack_runs(row.leaves):
            stored = self._journal.rounds(run.start_hash, run.first)[: run.count]
            out.extend(round_record(stored_round(item.draft, item.verdict)) for item in stored)
        return out

    def signed(self, lane: Lane, row: StoredVoucher) -> SignedVoucher:
        """The voucher with the top of its tree and its signatures."""
        top = trees.SumTree(self.records(row)).top()
        return SignedVoucher(
            lane,
            Voucher.from_wire(row.voucher),
            top.hash,
            client=row.client,
            verifier=row.verifier,
            drafter=row.drafter,
        )

    def vouchers(self, lane: bytes) -> list[Voucher]:
        return [Voucher.from_wire(row.voucher) for row in self._journal.vouchers(lane)]


class SettlingDesk:
    """Settles this node's lanes until cancelled. `role` is "verifier" or "drafter"."""

    def __init__(
        self,
        contracts: Contracts,
        sender: Sender,
        watch: ChainWatch,
        shelf: VoucherShelf,
        journal: Journal,
        config: ChainConfig,
        role: str,
        clock: Any,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._watch = watch
        self._shelf = shelf
        self._journal = journal
        self._clock = clock
        self._log = log
        self._role = role
        self._sender = sender
        self._contracts = contracts
        # The verifier settles; the drafter only when the verifier lets it lie for long.
        idle = config.settle_idle_seconds * (1 if role == "verifier" else 5)
        policy = SettlePolicy(
            idle_seconds=idle,
            token_per_wei=Fraction(config.token_per_wei).limit_denominator(10**12),
        )
        self._settler = Settler(contracts, sender, policy)
        self._poll = config.poll_seconds

    async def run(self) -> None:
        """Looks for lanes to settle every polling interval; an error ends no more than that
        round."""
        while True:
            await trio.sleep(self._poll)
            try:
                await self.settle_due()
                await trio.to_thread.run_sync(self._sender.tend)
            except (ChainError, ChainUnavailable) as error:
                self._log.warning("not settled", reason=str(error))

    async def settle_due(self) -> None:
        """One look at every lane."""
        open_lanes = []
        for lane in self._shelf.lanes().values():
            found = await self._open_lane(lane)
            if found is not None:
                open_lanes.append(found)
        if not open_lanes:
            return
        now = self._clock()
        due = await trio.to_thread.run_sync(self._settler.due, open_lanes, now)
        for settlement in due:
            result = await trio.to_thread.run_sync(self._settler.settle, settlement)
            if isinstance(result, SettleFailed):
                # Another settlement came between, most often: the next look plans anew.
                self._log.info("settlement refused", reason=result.reason)
                continue
            self._log.info(
                "settled",
                transaction=result.hash.hex(),
                lanes=len(settlement.lanes),
                gas=result.gas_used,
                why=[str(reason) for _, reason in settlement.lanes],
            )

    async def _open_lane(self, lane: Lane) -> OpenLane | None:
        """The lane's newest payable voucher, if it is due more than was paid."""
        rows = [r for r in self._journal.vouchers(lane.id) if r.client and r.verifier]
        if self._role == "drafter":
            rows = [r for r in rows if r.drafter]
        if not rows:
            return None
        state = await trio.to_thread.run_sync(self._contracts.escrow.lane_state, lane.id)
        rows = [r for r in rows if r.epoch == state.epoch]
        if not rows:
            return None
        try:
            position = self._watch.position(lane.id, state.epoch, self._shelf.vouchers(lane.id))
        except VoucherUnknown as unknown:
            self._log.warning("cannot follow a lane", reason=str(unknown))
            return None
        if position.digest != state.position:
            return None  # blocks are on their way: the next look sees them
        best = max(rows, key=lambda row: Voucher.from_wire(row.voucher).output)
        return self._candidate(lane, best, position, state)

    def _candidate(
        self, lane: Lane, row: StoredVoucher, position: Any, state: LaneState
    ) -> OpenLane | None:
        signed = self._shelf.signed(lane, row)
        if not any(position.owed(signed.voucher)):
            return None
        share = lane.verifier if self._role == "verifier" else lane.drafter
        return OpenLane(signed, position, state, row.made, share)
