"""The client's purse: vouchers over what it received, signed by it and by both payees.

The client orders the leaves of each lane's tree. It signs only rounds that it has checked, at the
prices of its own orders, and journals the voucher before it asks anyone to countersign.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

import trio

from node.journal import StoredVoucher
from node.network.errors import BUSY, NetworkError, Refused
from node.network.messages import Kind, RoundRun, VoucherRequest, VoucherSignature
from node.roles.lanes import LaneBook, LaneFault
from node.roles.lines import ask
from node.roles.ports import Node
from node.roles.refusals import NO_SIGNATURE, No
from node.roles.session import SessionFault, check_signature
from node.roles.stored import pack_runs
from node.roles.tills import Till
from settlement.hashing import ZERO32
from settlement.records import Lane, Voucher

ANSWER_SECONDS: Final = 2.0  # for one try: a lost frame must not use up the caller's patience


@dataclass(frozen=True)
class Payment:
    """A voucher and who has signed it (empty: not yet)."""

    voucher: Voucher
    client: bytes
    drafter: bytes
    verifier: bytes

    @property
    def complete(self) -> bool:
        return bool(self.client and self.drafter and self.verifier)


class Purse:
    """Pays every lane of one client."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.till = Till(node, "client", lambda lane: None)
        self._delivered: dict[bytes, bytes] = {}  # by lane: what V last had with all signatures
        self._locks: defaultdict[bytes, trio.Lock] = defaultdict(trio.Lock)

    async def pay(self, lane: Lane, *, patience: float) -> Payment | None:
        """Signs for every round of the lane so far and collects the payees' signatures, for at
        most `patience` seconds. None when there is nothing to pay for.

        Raises Refused (CHAIN) when the chain does not answer. A payee that is gone leaves its
        signature empty: `chase` asks again later.
        """
        async with self._locks[lane.id]:
            book = await self._book(lane)
            if not book.leaves:
                return None
            payment = self._sign(book)
            with trio.move_on_after(patience):
                await self._collect(book, payment)
            return self._stored(payment.voucher)

    async def chase(self, patience: float) -> None:
        """Asks again for the signatures that the last voucher of each lane lacks, and brings V the
        others', without which it could not settle."""
        for lane_id, book in list(self.till.books.items()):
            rows = self.node.journal.vouchers(lane_id)
            if book.leaves and rows and self._delivered.get(lane_id) != rows[-1].voucher:
                try:
                    await self.pay(book.lane, patience=patience)
                except Refused as no:
                    self.node.log.debug("signatures still missing", reason=str(no))

    async def _book(self, lane: Lane) -> LaneBook:
        """The lane's book on its current base, with every round received."""
        view = await self.till.view(lane)
        book = self.till.opened(lane, view.epoch)
        if view.head_root not in (ZERO32, book.base_root):
            try:
                book = self.till.moved(book, view.head_root)
            except LaneFault as fault:
                raise Refused(No.UNKNOWN, f"the chain settled what is not mine: {fault}") from fault
        seen = book.covered | {leaf.key for leaf in book.leaves}
        rounds = self.till.rounds.get(lane.id, {})
        return book.append(item for key, item in rounds.items() if key not in seen)

    def _sign(self, book: LaneBook) -> Payment:
        node, voucher = self.node, book.voucher()
        slot = (
            f"voucher:{voucher.lane.hex()}:{voucher.epoch}:{voucher.base_root.hex()}:"
            f"{voucher.leaf_count}"
        )
        with node.journal.batch("voucher"):
            mine = node.journal.sign_once(slot, voucher, node.domain, node.key)
            self._store(book, Payment(voucher, mine, b"", b""))
        self.till.books[book.lane.id] = book
        self.till.cover(book)
        return self._stored(voucher)

    def _store(self, book: LaneBook, payment: Payment) -> None:
        voucher = payment.voucher
        self.node.journal.put_voucher(
            StoredVoucher(
                voucher.lane,
                voucher.epoch,
                voucher.leaf_count,
                voucher.base_root,
                voucher.to_wire(),
                payment.client,
                payment.verifier,
                payment.drafter,
                pack_runs(book.runs()),
                top=book.top,
            )
        )

    def _stored(self, voucher: Voucher) -> Payment:
        """The journalled payment of that voucher, with the signatures gathered so far."""
        wire = voucher.to_wire()
        row = next(r for r in self.node.journal.vouchers(voucher.lane) if r.voucher == wire)
        return Payment(voucher, row.client, row.drafter, row.verifier)

    async def _collect(self, book: LaneBook, payment: Payment) -> None:
        """V's signature, then D's beside it, then V gets D's: each can settle with all three."""
        lane = book.lane
        payment = await self._ask(book, payment, "verifier", lane.verifier)
        payment = await self._ask(book, payment, "drafter", lane.drafter)
        if payment.complete:
            await self._ask(book, payment, "verifier", lane.verifier)

    async def _ask(self, book: LaneBook, payment: Payment, role: str, peer: bytes) -> Payment:
        """One payee's signature. A payee that lacks rounds still on their way is asked again."""
        wanted = VoucherRequest(
            payment.voucher.to_wire(),
            tuple(s or NO_SIGNATURE for s in (payment.client, payment.drafter, payment.verifier)),
            tuple(RoundRun(r.start_hash, r.first, r.count) for r in book.runs()),
        )
        while True:
            try:
                answer = await ask(
                    self.node.transport,
                    peer,
                    Kind.VOUCHER,
                    wanted,
                    VoucherSignature,
                    deadline=ANSWER_SECONDS,
                )
                break
            except Refused as no:
                if no.code not in (No.BEHIND, BUSY):
                    self.node.log.warning("voucher refused", role=role, reason=str(no))
                    return payment
                await trio.sleep(no.retry_after or 0.05)
            except NetworkError as error:
                self.node.log.info("no signature yet", role=role, reason=str(error))
                return payment
        try:
            check_signature(self.node.domain, role, peer, payment.voucher, answer.signature)
        except SessionFault as fault:
            self.node.log.warning("voucher signature refused", role=role, rule=fault.rule)
            return payment
        if role == "verifier" and payment.complete:
            self._delivered[book.lane.id] = wanted.voucher
        payment = replace(payment, **{role: answer.signature})
        self._store(book, payment)
        return payment

    def last(self, lane: Lane) -> tuple[Payment, LaneBook] | None:
        """The lane's newest payment and the book that it covers; None before the first."""
        book = self.till.books.get(lane.id)
        if book is None or not book.leaves:
            return None
        return self._stored(book.voucher()), book
