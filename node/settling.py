"""The payee's side of settlement: this node's signed vouchers, brought to the chain when it pays.

The rules are `settlement.settler`'s; here the journal's vouchers meet the chain's lanes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Final

import structlog
import trio

from node.config import ChainConfig
from node.journal import Journal, StoredVoucher
from node.roles.ports import ChainUnavailable
from node.roles.session import Terms, round_record
from node.roles.stored import stored_round, unpack_runs
from settlement import trees
from settlement.chain.abi import AbiMismatch
from settlement.chain.calls import calls_to
from settlement.chain.contracts import Contracts, LaneState
from settlement.chain.errors import ChainError
from settlement.chain.indexer import ChainEvent
from settlement.chain.lanes import Link, Position, SignedVoucher, VoucherUnknown, vouchers_in
from settlement.chain.positions import LaneHistory
from settlement.chain.sender import Sender
from settlement.records import Domain, Lane, RoundRecord, Voucher
from settlement.settler import OpenLane, SettleFailed, SettlePolicy, Settler

TOPS_KEPT: Final = 1024


@lru_cache(maxsize=4096)
def _read(wire: bytes) -> Voucher:
    """A journalled voucher; every look at a lane reads them all."""
    return Voucher.from_wire(wire)


class VoucherShelf:
    """The journal's vouchers as the chain takes them: with their lanes and trees."""

    def __init__(self, journal: Journal, domain: Domain) -> None:
        self._journal = journal
        self._domain = domain
        self._tops: OrderedDict[bytes, bytes] = OrderedDict()  # by root
        self._learnt: dict[bytes, list[Voucher]] = {}  # by lane: others', off the chain

    def lanes(self) -> dict[bytes, Lane]:
        """Every lane that this node has worked on, by id."""
        return {
            lane: Terms.from_wire(terms, self._domain).order.lane
            for lane, terms in self._journal.lanes()
        }

    def records(self, row: StoredVoucher) -> list[RoundRecord]:
        """The rounds under a voucher, in the order of its tree."""
        out = []
        for run in unpack_runs(row.leaves):
            stored = self._journal.rounds(run.start_hash, run.first)[: run.count]
            out.extend(round_record(stored_round(item.draft, item.verdict)) for item in stored)
        return out

    def signed(self, lane: Lane, row: StoredVoucher) -> SignedVoucher | None:
        """The voucher with the top of its tree and its signatures; None when its rounds are not
        all in the journal any more."""
        voucher = _read(row.voucher)
        top = self._tops.get(voucher.root)
        if top is None:
            top = self._top(row, voucher)
            if top is None:
                return None
            self._tops[voucher.root] = top
            while len(self._tops) > TOPS_KEPT:
                self._tops.popitem(last=False)
        return SignedVoucher(
            lane, voucher, top, client=row.client, verifier=row.verifier, drafter=row.drafter
        )

    def _top(self, row: StoredVoucher, voucher: Voucher) -> bytes | None:
        top = row.top
        if not top:
            records = self.records(row)
            if len(records) != voucher.leaf_count:
                return None
            top = trees.SumTree(records).top().hash
        root = trees.settled_root(top, voucher.sums, voucher.leaf_count, voucher.base_root)
        return top if root == voucher.root else None

    def vouchers(self, lane: bytes) -> list[Voucher]:
        """This node's, and those that it learnt of when others settled them."""
        own = [_read(row.voucher) for row in self._journal.vouchers(lane)]
        return own + self._learnt.get(lane, [])

    def learn(self, voucher: Voucher) -> None:
        """A voucher that somebody settled without this node's signature."""
        self._learnt.setdefault(voucher.lane, []).append(voucher)


class SettlingDesk:
    """Settles this node's lanes until cancelled. `role` is "verifier" or "drafter"."""

    def __init__(
        self,
        contracts: Contracts,
        sender: Sender,
        lanes: LaneHistory,
        shelf: VoucherShelf,
        journal: Journal,
        config: ChainConfig,
        role: str,
        clock: Callable[[], float],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._lanes = lanes
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
            value_factor=config.settle_gas_multiple,
            idle_seconds=idle,
            token_per_wei=Fraction(config.token_per_wei).limit_denominator(10**12),
        )
        self._idle = config.settle_idle_seconds
        self._settler = Settler(contracts, sender, policy)
        self._poll = config.poll_seconds
        self._asked = float("-inf")
        self._wanted = trio.Event()

    def ask(self) -> None:
        """Settles at the next looks what was signed until now, without waiting for more."""
        self._asked = self._clock()
        self._wanted.set()

    async def run(self) -> None:
        """Looks for lanes to settle every polling interval; an error ends no more than that
        round."""
        while True:
            with trio.move_on_after(self._poll):
                await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                await self.settle_due()
                await trio.to_thread.run_sync(self._sender.tend)
            except (ChainError, ChainUnavailable) as error:
                self._log.warning("not settled", reason=str(error))
            except Exception:
                # What came from others, or a fault of ours: the node goes on, and says it.
                self._log.exception("not settled")

    async def settle_due(self) -> None:
        """One look at every lane."""
        open_lanes = []
        for lane in self._shelf.lanes().values():
            try:
                found = await self._open_lane(lane)
            except ChainError as error:
                # Of this lane alone, it may be: the others are looked at all the same.
                self._log.warning("lane not looked at", lane=lane.id.hex(), reason=str(error))
                continue
            except Exception:
                self._log.exception("lane not looked at", lane=lane.id.hex())
                continue
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
        """The newest voucher that the escrow takes and that is due more than was paid, of the
        oldest epoch that has one: a party that opens a new epoch takes nothing from the old."""
        rows = [r for r in self._journal.vouchers(lane.id) if r.client and r.verifier]
        if not rows:
            return None
        escrow = self._contracts.escrow
        state = await trio.to_thread.run_sync(escrow.lane_state, lane.id)
        alone = self._role == "verifier" and 0 < state.solo_from <= self._clock()
        epochs: list[tuple[Position, list[StoredVoucher]]] = []
        for epoch in sorted({row.epoch for row in rows}):
            mark = state.position
            if epoch != state.epoch:
                mark = await trio.to_thread.run_sync(escrow.past_position, lane.id, epoch)
            position = await self._position(lane, epoch)
            if position is None or position.digest != mark:
                continue  # blocks are on their way: the next look sees them
            here = [row for row in rows if row.epoch == epoch]
            here.sort(key=lambda row: -_read(row.voucher).output)
            epochs.append((position, here))
        if self._role == "verifier":
            await self._notice(lane, epochs, state)
        for position, here in epochs:
            found = self._candidate(lane, here, position, state, alone=alone)
            if found is not None:
                return found
        return None

    async def _position(self, lane: Lane, epoch: int) -> Position | None:
        """Where the epoch stands, with the help of settlements by vouchers that this node has not
        signed; None when one of them cannot be read."""
        try:
            return self._lanes.position(lane.id, epoch, self._shelf.vouchers(lane.id))
        except VoucherUnknown:
            pass
        known = {voucher.root for voucher in self._shelf.vouchers(lane.id)}
        for found in self._lanes.facts(lane.id).settled:
            if found.event.root in known:
                continue
            for where, voucher in await trio.to_thread.run_sync(self._settled_in, found):
                if where.id == lane.id and voucher.root not in known:
                    known.add(voucher.root)
                    self._shelf.learn(voucher)
        try:
            return self._lanes.position(lane.id, epoch, self._shelf.vouchers(lane.id))
        except VoucherUnknown as unknown:
            self._log.warning("cannot follow a lane", reason=str(unknown))
            return None

    def _settled_in(self, found: ChainEvent) -> list[tuple[Lane, Voucher]]:
        """The vouchers of the transaction behind a settlement, whoever called the escrow there."""
        escrow = self._contracts.escrow
        vouchers: list[tuple[Lane, Voucher]] = []
        for data in calls_to(self._contracts.rpc, found.transaction, escrow.address):
            with suppress(AbiMismatch):  # a contract may ask the escrow for other things as well
                vouchers += vouchers_in(escrow.interface, data)
        return vouchers

    def _candidate(
        self,
        lane: Lane,
        rows: list[StoredVoucher],
        position: Position,
        state: LaneState,
        *,
        alone: bool,
    ) -> OpenLane | None:
        """The newest of the epoch's vouchers that can settle. Without D's signature one can only
        after a notice, and never behind the head; an older one of all three pays meanwhile."""
        mine = 1 if self._role == "verifier" else 0
        for row in rows:
            voucher = _read(row.voucher)
            if not position.owed(voucher)[mine]:
                return None
            if not row.drafter and not (alone and position.link(voucher) is not Link.BEHIND):
                continue
            signed = self._shelf.signed(lane, row)
            if signed is None:
                self._log.warning("rounds under a voucher are gone", root=voucher.root.hex())
                continue
            share = (lane.drafter, lane.verifier)[mine]
            asked = row.made <= self._asked
            return OpenLane(signed, position, state, row.made, share, asked=asked)
        return None

    async def _notice(
        self,
        lane: Lane,
        epochs: list[tuple[Position, list[StoredVoucher]]],
        state: LaneState,
    ) -> None:
        """Gives notice, when D's signature under what V is owed has not come for long, that the
        lane will settle without it; takes it back when nothing is owed that way."""
        lacking = [
            rows[0]
            for position, rows in epochs
            if not rows[0].drafter and position.owed(_read(rows[0].voucher))[1]
        ]
        escrow = self._contracts.escrow
        if lacking and not state.solo_from:
            made = lacking[0].made
            if self._clock() - made < self._idle:
                return
            call, intent = escrow.notice_solo(lane), f"notice:{lane.id.hex()}:{made}"
        elif state.solo_from and not lacking:
            call, intent = escrow.end_solo(lane), f"end-solo:{lane.id.hex()}:{state.solo_from}"
        else:
            return
        try:
            await trio.to_thread.run_sync(self._sender.send, intent, call)
        except ChainError as error:
            self._log.warning("no notice sent", reason=str(error))
            return
        self._log.info("lane may settle without its drafter", lane=lane.id.hex(), may=bool(lacking))
