"""What a payee brings to the chain: vouchers that the escrow takes, of every epoch, however the
other parties behave. Vouchers and journals are real, the escrow is a table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
import trio
from arena import DOMAIN
from test_roles_money import Desk, at_till

from node.config import ChainConfig
from node.journal import StoredVoucher
from node.roles.lanes import LaneBook
from node.roles.ports import LaneView
from node.settling import SettlingDesk, VoucherShelf
from settlement.chain.contracts import LaneState
from settlement.chain.errors import ChainError
from settlement.chain.events import EpochOpened, LaneOpened
from settlement.chain.indexer import Batch, BlockRef, ChainEvent
from settlement.chain.lanes import Position
from settlement.chain.positions import LaneHistory
from settlement.records import Lane, Voucher
from settlement.settler import OpenLane


@dataclass
class Escrow:
    """Nothing was settled yet: every epoch stands at its beginning."""

    state: LaneState
    sent: list[str] = field(default_factory=list)
    penniless: bool = False

    def lane_state(self, lane: bytes) -> LaneState:
        return self.state

    def past_position(self, lane: bytes, epoch: int) -> int:
        return Position(epoch, 200).digest

    def notice_solo(self, lane: Lane) -> str:
        return "notice"

    def end_solo(self, lane: Lane) -> str:
        return "end"

    def send(self, intent: str, call: str) -> None:
        if self.penniless:
            raise ChainError("not enough ether for gas")
        self.sent.append(call)


def opened(lane: Lane) -> LaneHistory:
    """Two epochs of the lane were opened, at the same fee, and nothing was settled."""
    history = LaneHistory()
    events = (LaneOpened(lane.id, lane, 200), EpochOpened(lane.id, 1, 200, lane.client))
    at = (bytes(32), bytes(32))
    found = [ChainEvent(event, "LaneEscrow", n, *at, n) for n, event in enumerate(events)]
    history.apply(Batch(None, tuple(found), BlockRef(1, bytes(32))))
    return history


@dataclass
class Contracts:
    escrow: Escrow


def state_of(epoch: int = 0, solo_from: int = 0) -> LaneState:
    return LaneState(
        reserve=10**20,
        thawing=0,
        thawed_at=0,
        solo_from=solo_from,
        epoch=epoch,
        position=Position(epoch, 200).digest,
    )


def settling(desk: Desk, escrow: Escrow, role: str, now: float) -> SettlingDesk:
    node = getattr(desk, role).node
    return SettlingDesk(
        Contracts(escrow),  # type: ignore[arg-type]
        escrow,  # type: ignore[arg-type]
        opened(desk.lane),
        VoucherShelf(node.journal, DOMAIN),
        node.journal,
        ChainConfig("http://nowhere", Path("nowhere")),
        role,
        lambda: now,
        structlog.get_logger(),
    )


def paid_part(count: int, story: Callable[[Desk], Awaitable[None]]) -> Callable[[Desk], Any]:
    """All three have signed for the first `count` rounds; then the story."""

    async def run(desk: Desk) -> None:
        rounds = desk.client.purse.till.rounds[desk.lane.id]
        later = dict(list(rounds.items())[count:])
        for key in later:
            del rounds[key]
        payment = await desk.client.purse.pay(desk.lane, patience=5.0)
        assert payment is not None
        assert payment.complete
        rounds.update(later)
        await story(desk)

    return run


def made_of(desk: Desk, root: bytes) -> StoredVoucher:
    rows = desk.verifier.node.journal.vouchers(desk.lane.id)
    return next(row for row in rows if Voucher.from_wire(row.voucher).root == root)


def test_a_missing_signature_of_the_drafter_keeps_no_older_voucher_from_settling() -> None:
    """The newest voucher lacks it: the escrow would skip it for want of notice."""

    async def story(desk: Desk) -> None:
        newest = await desk.sign(desk.book(0, 9))
        now = made_of(desk, newest.root).made
        escrow = Escrow(state_of())
        found = await settling(desk, escrow, "verifier", now)._open_lane(desk.lane)
        assert found is not None
        assert found.signed.drafter
        assert found.signed.voucher.leaf_count == 5
        assert escrow.sent == []
        # After a long wait notice is given once, and when that has run out the newest settles.
        await settling(desk, escrow, "verifier", now + 4000)._open_lane(desk.lane)
        assert escrow.sent == ["notice"]
        escrow.state = state_of(solo_from=int(now) + 9000)
        await settling(desk, escrow, "verifier", now + 5000)._open_lane(desk.lane)
        found = await settling(desk, escrow, "verifier", now + 9001)._open_lane(desk.lane)
        assert found is not None
        assert found.signed.voucher == newest
        assert escrow.sent == ["notice"]
        # D has signed after all: the notice is taken back.
        journal = desk.verifier.node.journal
        journal.put_voucher(replace(made_of(desk, newest.root), drafter=b"\x01" * 65))
        await settling(desk, escrow, "verifier", now + 9002)._open_lane(desk.lane)
        assert escrow.sent == ["notice", "end"]

    at_till(61, paid_part(5, story))


def test_a_new_epoch_leaves_the_old_one_collectable() -> None:
    """A client cannot escape what it signed by opening another epoch."""

    async def story(desk: Desk) -> None:
        now = desk.verifier.node.clock()
        for role in ("verifier", "drafter"):
            found = await settling(desk, Escrow(state_of(epoch=1)), role, now)._open_lane(desk.lane)
            assert isinstance(found, OpenLane)
            assert (found.position.epoch, found.signed.voucher.leaf_count) == (0, 5)
        desk.arena.chain.views[desk.lane.id] = LaneView(desk.arena.chain.reserve, epoch=1)
        payment = await desk.client.purse.pay(desk.lane, patience=5.0)
        assert payment is not None
        assert payment.complete
        assert payment.voucher.epoch == 1
        first = await settling(desk, Escrow(state_of(epoch=1)), "verifier", now)._open_lane(
            desk.lane
        )
        assert first is not None
        assert first.position.epoch == 0

    at_till(62, paid_part(5, story))


def test_asking_covers_what_was_signed_before_and_nothing_after() -> None:
    async def story(desk: Desk) -> None:
        made = max(row.made for row in desk.verifier.node.journal.vouchers(desk.lane.id))
        for asked_at, covered in ((made - 1, False), (made, True)):
            settler = settling(desk, Escrow(state_of()), "verifier", asked_at)
            settler.ask()
            found = await settler._open_lane(desk.lane)
            assert found is not None
            assert found.asked is covered

    at_till(66, paid_part(5, story))


def test_rounds_that_are_gone_stop_no_desk() -> None:
    async def story(desk: Desk) -> None:
        journal = desk.verifier.node.journal
        now = desk.verifier.node.clock()
        journal._db.execute("DELETE FROM rounds WHERE round = 1")
        found = await settling(desk, Escrow(state_of()), "verifier", now)._open_lane(desk.lane)
        assert found is not None  # its tree's top is kept beside the voucher
        journal._db.execute("UPDATE vouchers SET top = x''")  # as older formats left it
        found = await settling(desk, Escrow(state_of()), "verifier", now)._open_lane(desk.lane)
        assert found is None
        await trio.lowlevel.checkpoint()

    at_till(63, paid_part(5, story))


def test_a_lane_is_moved_on_by_what_is_left_of_it() -> None:
    """Past their retention rounds leave the journal; their lane goes on under what has settled."""

    async def story(desk: Desk) -> None:
        till, journal = desk.verifier.till, desk.verifier.node.journal
        (row,) = journal.vouchers(desk.lane.id)
        settled = Voucher.from_wire(row.voucher)
        journal._db.execute("DELETE FROM rounds WHERE round < 5")
        known = till.rounds[desk.lane.id]
        for key in list(known)[:5]:
            del known[key]
        till.books.clear()
        till.restore_lane(desk.lane)
        desk.arena.chain.views[desk.lane.id] = LaneView(
            desk.arena.chain.reserve, head_root=settled.root
        )
        book = LaneBook(desk.lane).append(desk.rounds[:5])
        assert book.voucher() == settled
        await desk.sign(book.append(desk.rounds[5:8]).rebase(settled))

    at_till(64, paid_part(5, story))


def test_a_notice_that_cannot_be_sent_keeps_nothing_from_settling() -> None:
    async def story(desk: Desk) -> None:
        newest = await desk.sign(desk.book(0, 9))
        now = made_of(desk, newest.root).made
        escrow = Escrow(state_of(), penniless=True)
        found = await settling(desk, escrow, "verifier", now + 4000)._open_lane(desk.lane)
        assert found is not None
        assert found.signed.voucher.leaf_count == 5

    at_till(65, paid_part(5, story))
