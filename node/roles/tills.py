"""A payee's till: which committed rounds are paid for, and the vouchers it has signed.

Drafter and verifier each keep one over all their lanes. A voucher is signed only if this party,
from its own rounds, arrives at the same bytes; its signature is journalled first, with the runs of
rounds it covers, so that a restart knows what is paid without asking anyone.

Three rules keep a payee whole. A voucher on the same base goes on from the one before: only the
last one counts, so one that left rounds out would take them back. The base moves only when the
newest voucher has settled: an older root as base would put rounds into two batches, neither of
which supersedes the other (F5). And a round is paid for only once a voucher over it can settle,
which takes the other payee's signature too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from settlement.hashing import ZERO32
from settlement.payments import (
    Dues,
    LaneBalance,
    Stop,
    cost,
    dues,
    exposure_bound,
    must_stop,
)
from settlement.records import Lane, Order, Voucher
from settlement.schema import RecordError

_SHORT = (
    "what was signed and not yet settled leaves too little of the lane's reserve; reserve more "
    "with `verdraft deposit`"
)
_SOLO = (
    "the lane has notice to settle without the drafter's signature, so its reserve may go to the "
    "verifier alone; the verifier must end that first"
)


@dataclass
class Unpaid:
    """What a lane's rounds are worth for which no voucher can settle yet.

    Attributes:
        rounds: committed ones.
        running: per session (start hash) the most that the round under way can add: output tokens,
            and dues.
    """

    rounds: dict[RoundKey, LaneRound] = field(default_factory=dict)
    running: dict[bytes, tuple[int, Dues]] = field(default_factory=dict)

    def without(self, start_hash: bytes) -> Unpaid:
        """The same but for that session's round under way."""
        others = {key: most for key, most in self.running.items() if key != start_hash}
        return Unpaid(self.rounds, others)

    @property
    def tokens(self) -> int:
        done = sum(item.record.output for item in self.rounds.values())
        return done + sum(tokens for tokens, _ in self.running.values())

    @property
    def dues(self) -> Dues:
        total = Dues(
            sum(item.due_drafter for item in self.rounds.values()),
            sum(item.due_verifier for item in self.rounds.values()),
        )
        for _, most in self.running.values():
            total = total + most
        return total

    def by_session(self) -> dict[bytes, Dues]:
        """The same, by the session's start hash."""
        out: dict[bytes, Dues] = {}
        for (start_hash, _), item in self.rounds.items():
            due = Dues(item.due_drafter, item.due_verifier)
            out[start_hash] = out.get(start_hash, Dues()) + due
        for start_hash, (_, most) in self.running.items():
            out[start_hash] = out.get(start_hash, Dues()) + most
        return out


class Till:
    """Rounds, books and vouchers of every lane in which this party is `role`."""

    def __init__(self, node: Node, role: str, signed: Callable[[Lane], None]) -> None:
        """`signed` is called when a lane may owe more again: work that waited may go on."""
        self.node = node
        self.role = role
        self.index = PARTIES.index(role)
        self.rounds: dict[bytes, dict[RoundKey, LaneRound]] = {}  # by lane id
        self.books: dict[bytes, LaneBook] = {}  # by lane id: what vouchers cover so far
        self._unpaid: dict[bytes, Unpaid] = {}  # by lane id
        # By lane id and start hash: sessions that run, and the most that each may come to owe.
        self._open: dict[bytes, dict[bytes, tuple[bytes, int]]] = {}
        self._due: dict[bytes, dict[int, Dues]] = {}  # by lane id and epoch: most ever signed for
        self._signed = signed

    # ------------------------------------------------------------ work done and not yet signed

    def count_round(self, terms: Terms, done: Round) -> None:
        """A committed round enters its lane."""
        order = terms.order
        item = lane_round(round_record(done), order.price_accepted, order.price_output)
        lane, unpaid = order.lane.id, self._of(order.lane)
        unpaid.running.pop(terms.start_hash, None)
        if item.key not in self.rounds.setdefault(lane, {}):
            self.rounds[lane][item.key] = item
            unpaid.rounds[item.key] = item
        if unpaid.running:
            self._signed(order.lane)  # others on the lane may have waited for this round's end

    def _of(self, lane: Lane) -> Unpaid:
        return self._unpaid.setdefault(lane.id, Unpaid())

    def begin_round(self, terms: Terms) -> None:
        """A round is under way: until it is counted, the lane may owe all that it can add, so that
        sessions which share a lane share one bound."""
        order = terms.order
        most = dues(
            order.max_window + 1, order.max_window, order.price_accepted, order.price_output
        )
        self._of(order.lane).running[terms.start_hash] = (order.max_window + 1, most)

    def open_session(self, terms: Terms) -> None:
        """From here on the lane's reserve stands behind this session too, whether it has begun a
        round or not."""
        order = terms.order
        held = self._open.setdefault(order.lane.id, {})
        held[terms.start_hash] = (order.session_id, self.exposure(order))

    def end_session(self, terms: Terms) -> None:
        """No round of the session is under way any more."""
        self._open.get(terms.order.lane.id, {}).pop(terms.start_hash, None)
        unpaid = self._of(terms.order.lane)
        if unpaid.running.pop(terms.start_hash, None) is not None:
            self._signed(terms.order.lane)

    def cover(self, book: LaneBook) -> None:
        """The book's rounds are paid for: a voucher over them can settle."""
        waiting = self._of(book.lane).rounds
        for leaf in book.leaves:
            waiting.pop(leaf.key, None)

    def unsigned_tokens(self, lane: Lane) -> int:
        """Output tokens, of committed rounds and rounds under way, that no voucher pays for."""
        return self._of(lane).tokens

    def must_stop(self, terms: Terms) -> tuple[No, str] | None:
        """Why no round of the session may begin now, by the chain as it was last read; None to
        serve on."""
        order, lane = terms.order, terms.order.lane
        unpaid = self._of(lane).without(terms.start_hash)
        view = self.node.chain.lane(lane)
        if self.role == "drafter" and view.solo_from:
            return No.RESERVE, _SOLO
        stop = must_stop(
            order.price_accepted,
            order.price_output,
            order.max_window,
            unpaid.tokens,
            unpaid.dues,
            LaneBalance(view.reserve, view.thawing, self.unsettled(lane, view)),
            self.node.limits.unsigned_tokens,
        )
        if stop is Stop.UNSIGNED:
            return No.UNPAID, "sign a voucher: unsigned work is at the bound"
        return None if stop is None else (No.RESERVE, _SHORT)

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

    def unsettled(self, lane: Lane, view: LaneView) -> Dues:
        """What vouchers that can settle are due beyond what was paid, over all epochs: an older
        epoch's stay collectable out of the same reserve."""
        total = Dues()
        for epoch, due in self._due.get(lane.id, {}).items():
            paid = view.paid(epoch)
            total = total + Dues(
                max(due.drafter - paid.drafter, 0), max(due.verifier - paid.verifier, 0)
            )
        return total

    def _owe(self, voucher: Voucher) -> None:
        """A voucher can settle: the most that its epoch is due."""
        epochs = self._due.setdefault(voucher.lane, {})
        held = epochs.get(voucher.epoch, Dues())
        epochs[voucher.epoch] = Dues(
            max(held.drafter, voucher.due_drafter), max(held.verifier, voucher.due_verifier)
        )

    def room(self, lane: Lane, view: LaneView, parent: bytes = ZERO32) -> int:
        """Reserve that no work has a claim on yet, the thawing part not counted: open sessions
        claim what they may come to owe, but for `parent` (a session id), which its successor
        ends."""
        owed, held = self.unsettled(lane, view), 0
        running = self._open.get(lane.id, {})
        # Read and not kept: orders name any lanes that they like.
        worked = self._unpaid.get(lane.id, Unpaid()).by_session()
        for start_hash, due in worked.items():
            if start_hash not in running:
                owed = owed + due
        for start_hash, (session_id, most) in running.items():
            done = cost(worked.get(start_hash, Dues()))
            held += done if session_id == parent else max(done, most)
        return view.reserve - view.thawing - cost(owed) - held

    async def require_reserve(self, order: Order) -> None:
        """Raises Refused unless the lane's reserve, as it is now, covers the exposure bound."""
        self.require_room(order, await self.view(order.lane))

    def require_room(self, order: Order, view: LaneView) -> None:
        """The same, of the lane as it was read last."""
        if self.role == "drafter" and view.solo_from:
            raise Refused(No.RESERVE, _SOLO)
        room, need = self.room(order.lane, view, order.parent_session), self.exposure(order)
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
        view = await self.view(lane)
        book = self._base(lane, voucher, view)
        try:
            fresh, expected = expected_voucher(book, runs, self.rounds.get(lane.id, {}))
        except LaneFault as fault:
            raise Refused(No.BEHIND, str(fault), 0.05) from fault
        both = min(len(fresh.leaves), len(book.leaves))
        if fresh.leaves[:both] != book.leaves[:both]:
            raise Refused(No.CONFLICT, "the voucher leaves out rounds that the one before covers")
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
                top=fresh.top,
            )
        )
        if len(fresh.leaves) >= len(book.leaves):
            self.books[lane.id] = fresh
        if self._settles(signatures, view):
            self._owe(voucher)
            self.cover(fresh)
            self._signed(lane)
        return VoucherSignature(voucher.struct_hash, mine)

    def _settles(self, signatures: Sequence[bytes], view: LaneView) -> bool:
        """Whether the escrow takes a voucher with these signatures now: all three, or without D's
        once a notice has run out. Until then work under it counts as unpaid: else a client and the
        other payee could let the reserve thaw before this one may collect."""
        signed = [signature not in (b"", NO_SIGNATURE) for signature in signatures]
        alone = 0 < view.solo_from <= self.node.clock()
        return all(signed) or (alone and signed[0] and signed[2])

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

    def _base(self, lane: Lane, voucher: Voucher, view: LaneView) -> LaneBook:
        """The book with the voucher's base: the one of the last voucher, or the root that the
        chain has settled in the lane's open epoch."""
        if voucher.epoch != view.epoch:
            # This party or the other may not have read the newest block yet.
            reason = f"the lane's epoch is {view.epoch}, not {voucher.epoch}"
            raise Refused(No.BEHIND, reason, 0.5)
        book = self.opened(lane, voucher.epoch)
        if voucher.base_root == book.base_root:
            return book
        if voucher.base_root != view.head_root:
            raise Refused(No.BEHIND, "baseRoot is neither the last base nor the settled root", 0.5)
        try:
            moved = self.moved(book, voucher.base_root)
        except LaneFault as fault:
            raise Refused(No.UNKNOWN, str(fault)) from fault
        if moved.base_root != voucher.base_root:
            raise Refused(No.CONFLICT, "a newer voucher on the last base may settle yet")
        return moved

    def opened(self, lane: Lane, epoch: int) -> LaneBook:
        """The lane's book in `epoch`. What earlier epochs' vouchers cover stays covered there."""
        book = self.books.get(lane.id) or LaneBook(lane, epoch=epoch)
        if book.epoch == epoch:
            return book
        done = book.covered | {leaf.key for leaf in book.leaves}
        return LaneBook(lane, epoch=epoch, covered=done)

    def moved(self, book: LaneBook, root: bytes) -> LaneBook:
        """The book after the voucher with that root has settled; LaneFault if it is not known.

        The same book while newer vouchers on its base may yet supersede the settled one.
        """
        for row in reversed(self.node.journal.vouchers(book.lane.id)):
            settled = Voucher.from_wire(row.voucher)
            if settled.root == root and settled.epoch == book.epoch:
                break
        else:
            raise LaneFault(f"no voucher with root 0x{root.hex()} is known here")
        # Its own runs say what it covers: its rounds may have been pruned since.
        inside = {key for run in unpack_runs(row.leaves) for key in run.members()}
        if settled.base_root != book.base_root or any(b.key not in inside for b in book.leaves):
            return book
        # What lies under an earlier base was forgotten when that one settled.
        for key in book.covered:
            self.rounds.get(book.lane.id, {}).pop(key, None)
        return LaneBook(
            book.lane,
            book.epoch,
            base_root=settled.root,
            base_sums=settled.sums,
            base_drafter=settled.due_drafter,
            base_verifier=settled.due_verifier,
            covered=frozenset(inside),
        )

    # ------------------------------------------------------------ restart

    def restore_lane(self, lane: Lane) -> None:
        """The lane's book from its vouchers, in the order they were signed. A voucher whose rounds
        are pruned (past the evidence lifetime) has settled; what hangs under it is rebuilt from
        its own figures."""
        for row in self.node.journal.vouchers(lane.id):
            voucher = Voucher.from_wire(row.voucher)
            pays = self.role == "client" or self._settles(
                (row.client, row.drafter, row.verifier), LaneView(0)
            )
            if pays:
                self._owe(voucher)
            try:
                book = self.opened(lane, voucher.epoch)
                if voucher.base_root != book.base_root:
                    book = self.moved(book, voucher.base_root)
                    if voucher.base_root != book.base_root:
                        raise LaneFault("its base is not the one of the vouchers before it")
                    self.books[lane.id] = book
                known = self.rounds.get(lane.id, {})
                fresh, _ = expected_voucher(book, unpack_runs(row.leaves), known)
            except (LaneFault, FrameError) as error:
                self.node.log.warning("voucher left out on restart", reason=str(error))
                continue
            if len(fresh.leaves) > len(book.leaves):
                self.books[lane.id] = fresh
            if pays:
                self.cover(fresh)
