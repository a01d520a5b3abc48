"""A payee's till: which committed rounds are paid for, and the vouchers it has signed.

Drafter and verifier each keep one over all their lanes. A voucher is signed only if this party,
from its own rounds, arrives at the same bytes; its signature is journalled first, with the runs of
rounds it covers, so that a restart knows what is paid without asking anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.journal import SlotTaken, StoredVoucher
from node.network.errors import Refused
from node.network.messages import VoucherRequest, VoucherSignature
from node.roles.frames import FrameError, Round
from node.roles.lanes import (
    LaneBook,
    LaneFault,
    LaneRound,
    LeafRun,
    RoundKey,
    expected_voucher,
    lane_round,
)
from node.roles.ports import ChainUnavailable, LaneView, Node
from node.roles.refusals import NO_SIGNATURE, No
from node.roles.session import PARTIES, SessionFault, Terms, check_signature, round_record
from node.roles.stored import pack_runs, unpack_runs
from settlement.payments import exposure_bound
from settlement.records import Lane, Order, Voucher
from settlement.schema import RecordError


class Till:
    """Rounds, books and vouchers of every lane in which this party is `role`."""

    def __init__(self, node: Node, role: str, signed: Callable[[Lane], None]) -> None:
        """`signed` is called after each voucher: work that waited for payment may go on."""
        self.node = node
        self.index = PARTIES.index(role)
        self.rounds: dict[bytes, dict[RoundKey, LaneRound]] = {}  # by lane id
        self.books: dict[bytes, LaneBook] = {}  # by lane id: what vouchers cover so far
        self._unsigned: dict[bytes, dict[RoundKey, int]] = {}  # by lane id: output tokens
        self._signed = signed

    # ------------------------------------------------------------ work done and not yet signed

    def count_round(self, terms: Terms, done: Round) -> None:
        """A committed round enters its lane."""
        order = terms.order
        item = lane_round(round_record(done), order.price_accepted, order.price_output)
        lane = order.lane.id
        if item.key not in self.rounds.setdefault(lane, {}):
            self.rounds[lane][item.key] = item
            self._unsigned.setdefault(lane, {})[item.key] = item.record.output

    def cover(self, book: LaneBook) -> None:
        """The book's rounds are signed for."""
        self.books[book.lane.id] = book
        waiting = self._unsigned.get(book.lane.id, {})
        for leaf in book.leaves:
            waiting.pop(leaf.key, None)

    def unsigned_tokens(self, lane: Lane) -> int:
        """Output tokens of committed rounds that no voucher signed by the client covers."""
        return sum(self._unsigned.get(lane.id, {}).values())

    def exposure(self, order: Order) -> int:
        """What may be owed without a signature, fee included: unsigned bound and one window."""
        limits = self.node.limits
        return exposure_bound(
            order.price_accepted, order.price_output, limits.unsigned_tokens, order.max_window
        )

    async def view(self, lane: Lane) -> LaneView:
        """The lane on chain now. Raises Refused when the chain does not answer."""
        try:
            return await self.node.chain.refresh(lane)
        except ChainUnavailable as error:
            raise Refused(No.CHAIN, str(error), 2.0) from error

    def room(self, lane: Lane, view: LaneView) -> int:
        """Reserve that no signature has claimed yet, the thawing part not counted."""
        rows = [row for row in self.node.journal.vouchers(lane.id) if row.epoch == view.epoch]
        vouchers = [Voucher.from_wire(row.voucher) for row in rows]
        drafter = max((v.due_drafter for v in vouchers), default=0) - view.paid_drafter
        verifier = max((v.due_verifier for v in vouchers), default=0) - view.paid_verifier
        return view.reserve - view.thawing - max(0, drafter) - max(0, verifier)

    async def require_reserve(self, order: Order) -> None:
        """Raises Refused unless the lane's reserve covers the exposure bound."""
        room = self.room(order.lane, await self.view(order.lane))
        need = self.exposure(order)
        if room < need:
            raise Refused(
                No.RESERVE,
                f"the lane's reserve has {room} token units free, {need} are needed before work "
                "starts; reserve more with `verdraft deposit`",
            )

    # ------------------------------------------------------------ vouchers

    async def on_voucher(self, lane: Lane, ask: VoucherRequest) -> VoucherSignature:
        """Signs a voucher of `lane` that says exactly what this party's rounds are worth."""
        try:
            voucher = Voucher.from_wire(ask.voucher)
        except RecordError as error:
            raise Refused(No.ORDER, str(error)) from error
        signatures = self._check_signatures(lane, voucher, ask.signatures)
        runs = tuple(LeafRun(run.start_hash, run.first, run.count) for run in ask.runs)
        if sum(run.count for run in runs) != voucher.leaf_count:
            raise Refused(No.ORDER, "the runs do not count leafCount rounds")
        book = await self._base(lane, voucher)
        try:
            fresh, expected = expected_voucher(book, runs, self.rounds.get(lane.id, {}))
        except LaneFault as fault:
            raise Refused(No.BEHIND, str(fault), 0.05) from fault
        if expected != voucher:
            raise Refused(No.ORDER, "the voucher does not say what these rounds are worth")
        slot = (
            f"voucher:{lane.id.hex()}:{voucher.epoch}:{voucher.base_root.hex()}:"
            f"{voucher.leaf_count}"
        )
        try:
            mine = self.node.journal.sign_once(slot, voucher, self.node.domain, self.node.key)
        except SlotTaken as error:
            raise Refused(No.CONFLICT, str(error)) from error
        signatures[self.index] = mine
        # The other payee's signature may still be missing; the row gains it when it comes.
        client, drafter, verifier = (b"" if s == NO_SIGNATURE else s for s in signatures)
        self.node.journal.put_voucher(
            StoredVoucher(
                lane.id,
                voucher.epoch,
                voucher.leaf_count,
                voucher.base_root,
                voucher.to_wire(),
                client,
                verifier,
                drafter,
                pack_runs(runs),
            )
        )
        held = self.books.get(lane.id)
        same_base = held is not None and (held.base_root, held.epoch) == (
            fresh.base_root,
            fresh.epoch,
        )
        if held is None or not same_base or len(fresh.leaves) > len(held.leaves):
            self.cover(fresh)
        self._signed(lane)
        return VoucherSignature(voucher.struct_hash, mine)

    def _check_signatures(
        self, lane: Lane, voucher: Voucher, given: Sequence[bytes]
    ) -> list[bytes]:
        """The three signatures; Refused unless each one given is by its party, the client's
        first of all."""
        if len(given) != 3:
            raise Refused(No.ORDER, f"three signatures (zeros where missing), not {len(given)}")
        parties = (lane.client, lane.drafter, lane.verifier)
        for name, party, signature in zip(PARTIES, parties, given, strict=True):
            if signature == NO_SIGNATURE and name != "client":
                continue
            try:
                check_signature(self.node.domain, name, party, voucher, signature)
            except SessionFault as fault:
                raise Refused(No.ORDER, str(fault)) from fault
        return list(given)

    async def _base(self, lane: Lane, voucher: Voucher) -> LaneBook:
        """The book with the voucher's base: the one of the last voucher, or the root that the
        chain has settled in the lane's open epoch."""
        view = await self.view(lane)
        if voucher.epoch != view.epoch:
            raise Refused(No.ORDER, f"the lane's epoch is {view.epoch}, not {voucher.epoch}")
        book = self.books.get(lane.id)
        if book is None or book.epoch != voucher.epoch:
            book = LaneBook(lane, epoch=voucher.epoch)
        if voucher.base_root == book.base_root:
            return book
        if voucher.base_root != view.head_root:
            raise Refused(No.ORDER, "baseRoot is neither the last base nor the settled root")
        try:
            self.books[lane.id] = self.moved(book, voucher.base_root)
        except LaneFault as fault:
            raise Refused(No.UNKNOWN, str(fault)) from fault
        return self.books[lane.id]

    def moved(self, book: LaneBook, root: bytes) -> LaneBook:
        """The book after the voucher with that root has settled; LaneFault if it is not known."""
        for row in reversed(self.node.journal.vouchers(book.lane.id)):
            settled = Voucher.from_wire(row.voucher)
            if settled.root != root:
                continue
            # The settled voucher's own runs say which leaves it covers.
            known = self.rounds.get(book.lane.id, {})
            covered, _ = expected_voucher(book, unpack_runs(row.leaves), known)
            after = covered.rebase(settled)
            rest = tuple(leaf for leaf in book.leaves if leaf.key not in after.covered)
            return after.over(rest)
        raise LaneFault(f"no voucher with root 0x{root.hex()} is known here")

    # ------------------------------------------------------------ restart

    def restore_lane(self, lane: Lane) -> None:
        """The lane's book from its vouchers, in the order they were signed. A voucher whose rounds
        are pruned (past the evidence lifetime) has settled and is left out."""
        book = LaneBook(lane)
        for row in self.node.journal.vouchers(lane.id):
            try:
                voucher = Voucher.from_wire(row.voucher)
                if voucher.epoch != book.epoch:
                    book = LaneBook(lane, epoch=voucher.epoch)
                if voucher.base_root != book.base_root:
                    book = self.moved(book, voucher.base_root)
                known = self.rounds.get(lane.id, {})
                fresh, _ = expected_voucher(book, unpack_runs(row.leaves), known)
            except (LaneFault, FrameError) as error:
                self.node.log.warning("voucher left out on restart", reason=str(error))
                continue
            if len(fresh.leaves) > len(book.leaves):
                book = fresh
                self.cover(book)
        self.books[lane.id] = book
