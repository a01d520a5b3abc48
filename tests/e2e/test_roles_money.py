"""Money between a payee and clients that mean harm: vouchers that leave rounds out or name them
twice, reserves that do not last, signatures that never come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from arena import DOMAIN, Arena, Seat, ignore
from test_roles import check_pay, close_draft, target

from node.config import LimitConfig
from node.network.errors import Refused
from node.network.memory import run_deterministically
from node.network.messages import RoundRun, VoucherRequest
from node.roles.client import ClientRole, Outcome
from node.roles.drafter import DrafterRole
from node.roles.lanes import LaneBook, LaneRound
from node.roles.plan import ClientError
from node.roles.ports import LaneView
from node.roles.purse import Payment, Purse
from node.roles.refusals import NO_SIGNATURE
from node.roles.verifier import VerifierRole
from settlement.payments import Dues, cost, exposure_bound
from settlement.records import Lane, Voucher

LIMITS = LimitConfig(round_seconds=1.0, resume_seconds=2.0, voucher_every=10**6)


async def no_pay(lane: Lane, *, patience: float) -> None:
    """Of a client that signs nothing by itself."""
    await trio.lowlevel.checkpoint()


@dataclass
class Desk:
    """A served session of which nothing is signed for yet, and vouchers made by hand."""

    arena: Arena
    client: ClientRole
    drafter: DrafterRole
    verifier: VerifierRole
    outcome: Outcome

    @property
    def lane(self) -> Lane:
        return self.outcome.sessions[0].terms.order.lane

    @property
    def rounds(self) -> list[LaneRound]:
        return list(self.client.purse.till.rounds[self.lane.id].values())

    def book(self, first: int, last: int, base: LaneBook | None = None) -> LaneBook:
        return (base or LaneBook(self.lane)).append(self.rounds[first:last])

    def request(self, book: LaneBook) -> VoucherRequest:
        voucher = book.voucher()
        mine = DOMAIN.sign(voucher, self.client.node.key)
        runs = tuple(RoundRun(r.start_hash, r.first, r.count) for r in book.runs())
        return VoucherRequest(voucher.to_wire(), (mine, NO_SIGNATURE, NO_SIGNATURE), runs)

    async def sign(self, book: LaneBook, party: Any = None) -> Voucher:
        """The payee's signature under the book's voucher, or Refused."""
        party = party or self.verifier
        await party.on_voucher(self.client.node.address, self.request(book))
        return book.voucher()


def at_till(
    seed: int,
    story: Callable[[Desk], Awaitable[None]],
    folder: Path | None = None,
    tokens: int = 40,
) -> None:
    async def main() -> None:
        arena = Arena(seed=seed, limits=replace(LIMITS, unsigned_tokens=10**6))
        seats = {
            name: arena.seat(name, folder / f"{name}.sqlite" if folder else ":memory:")
            for name in ("client", "drafter", "verifier")
        }
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 2)
            drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                pay, client.purse.pay = client.purse.pay, no_pay
                outcome = await client.generate(arena.plan(max_tokens=tokens, stop_ids=()), ignore)
                client.purse.pay = pay
                await story(Desk(arena, client, drafter, verifier, outcome))
            nursery.cancel_scope.cancel()

    run_deterministically(seed, main)


@pytest.mark.parametrize("name", ["verifier", "drafter"])
def test_a_voucher_goes_on_from_the_one_before(name: str) -> None:
    """Each of these alone is worth its rounds; only the last one counts, so one that leaves out
    what was signed for would take it back."""

    async def story(desk: Desk) -> None:
        party = getattr(desk, name)
        await desk.sign(desk.book(0, 4), party)
        with pytest.raises(Refused, match="leaves out rounds"):
            await desk.sign(desk.book(4, 9), party)
        await desk.sign(desk.book(0, 3), party)  # an older one, asked for late, takes nothing back
        await desk.sign(desk.book(0, 9), party)

    at_till(41, story)


@pytest.mark.parametrize("name", ["verifier", "drafter"])
def test_a_new_epoch_counts_no_round_again(name: str) -> None:
    """The same round in batches of two epochs is a fault of the verifier (F5)."""

    async def story(desk: Desk) -> None:
        party = getattr(desk, name)
        await desk.sign(desk.book(0, 6), party)
        desk.arena.chain.views[desk.lane.id] = LaneView(desk.arena.chain.reserve, epoch=1)
        fresh = LaneBook(desk.lane, epoch=1)
        with pytest.raises(Refused, match="counted already"):
            await desk.sign(desk.book(4, 9, fresh), party)
        await desk.sign(desk.book(6, 9, fresh), party)

    at_till(42, story)


def test_a_restart_remembers_the_rounds_of_older_epochs(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.sign(desk.book(0, 6))
        desk.arena.chain.views[desk.lane.id] = LaneView(desk.arena.chain.reserve, epoch=1)
        fresh = LaneBook(desk.lane, epoch=1)
        await desk.sign(desk.book(6, 8, fresh))
        node, engine = desk.verifier.node, desk.verifier.engine
        again = VerifierRole(node, engine, frozenset(), lambda _: None, lambda *_: None)
        with pytest.raises(Refused, match="counted already"):
            await again.on_voucher(desk.client.node.address, desk.request(desk.book(5, 9, fresh)))

    at_till(43, story, tmp_path)


@pytest.mark.parametrize("name", ["verifier", "drafter"])
def test_no_base_moves_under_a_newer_voucher(name: str) -> None:
    """While a newer voucher on the old base can still settle, a voucher on the settled root would
    hold the same rounds in a batch of its own (F5)."""

    async def story(desk: Desk) -> None:
        party = getattr(desk, name)
        four = desk.book(0, 4)
        await desk.sign(four, party)
        await desk.sign(desk.book(0, 8), party)
        settled = four.voucher()
        desk.arena.chain.views[desk.lane.id] = LaneView(
            desk.arena.chain.reserve,
            head_root=settled.root,
            paid_drafter=settled.due_drafter,
            paid_verifier=settled.due_verifier,
        )
        moved = desk.book(0, 9).rebase(settled)
        with pytest.raises(Refused, match="newer"):
            await desk.sign(moved, party)
        whole = await desk.sign(desk.book(0, 9), party)
        # Once the newest has settled, the next one hangs under it.
        desk.arena.chain.views[desk.lane.id] = LaneView(
            desk.arena.chain.reserve, head_root=whole.root
        )
        await desk.sign(desk.book(0, 11).rebase(whole), party)

    at_till(44, story)


def test_the_client_moves_no_base_under_its_newer_voucher() -> None:
    async def story(desk: Desk) -> None:
        purse = desk.client.purse
        rounds = purse.till.rounds[desk.lane.id]
        later = dict(list(rounds.items())[6:])
        for key in later:
            del rounds[key]
        first = await purse.pay(desk.lane, patience=5.0)
        rounds.update(list(later.items())[:2])
        second = await purse.pay(desk.lane, patience=5.0)
        rounds.update(later)
        assert first is not None
        assert second is not None
        assert second.complete
        desk.arena.chain.views[desk.lane.id] = LaneView(
            desk.arena.chain.reserve, head_root=first.voucher.root
        )
        third = await purse.pay(desk.lane, patience=5.0)
        assert third is not None
        assert third.complete
        assert third.voucher.base_root == bytes(32)
        desk.arena.chain.views[desk.lane.id] = LaneView(
            desk.arena.chain.reserve, head_root=third.voucher.root
        )
        assert await purse.pay(desk.lane, patience=5.0) is None

    at_till(45, story)


def test_what_older_epochs_owe_is_not_free_reserve() -> None:
    async def story(desk: Desk) -> None:
        payment = await desk.client.purse.pay(desk.lane, patience=5.0)
        assert payment is not None
        voucher = payment.voucher
        order = desk.outcome.sessions[0].terms.order
        owed = cost(Dues(voucher.due_drafter, voucher.due_verifier))
        need = desk.verifier.till.exposure(order)
        chain = desk.arena.chain
        chain.views[desk.lane.id] = LaneView(owed + need - 1, epoch=1)
        with pytest.raises(Refused, match="reserve"):
            await desk.verifier.till.require_reserve(order)
        chain.views[desk.lane.id] = LaneView(
            need, epoch=1, past={0: (voucher.due_drafter, voucher.due_verifier)}
        )
        await desk.verifier.till.require_reserve(order)

    at_till(46, story)


# ---------------------------------------------------------------- credit


async def serve(
    arena: Arena, tokens: int, change: Callable[[ClientRole], None] = lambda client: None
) -> tuple[VerifierRole, DrafterRole, ClientRole]:
    """One request that may fail; the roles afterwards."""
    seats: dict[str, Seat] = {n: arena.seat(n) for n in ("client", "drafter", "verifier")}
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    async with trio.open_nursery() as nursery:
        model = target()
        model.context_length = tokens + 16
        verifier = await nursery.start(arena.verifier, seats["verifier"], model, 3)
        drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
        async with arena.client(seats["client"]) as client:
            change(client)
            with suppress(ClientError):
                await client.generate(arena.plan(max_tokens=tokens, stop_ids=()), ignore)
        nursery.cancel_scope.cancel()
    return verifier, drafter, client


def test_nobody_serves_past_the_reserve() -> None:
    """The reserve covers one exposure bound and no more; every voucher is signed at once."""
    limits = LimitConfig(round_seconds=1.0, resume_seconds=2.0, voucher_every=8)
    arena = Arena(seed=51, limits=limits)
    order = arena.plan(max_window=8).template
    priced = replace(order, price_accepted=arena.prices.accepted, price_output=arena.prices.output)

    async def main() -> tuple[VerifierRole, DrafterRole, ClientRole]:
        return await serve(arena, 400)

    arena.chain.reserve = exposure_bound(
        priced.price_accepted, priced.price_output, limits.unsigned_tokens, priced.max_window
    )
    verifier, drafter, _ = run_deterministically(51, main)
    for role in (verifier, drafter):
        (rounds,) = role.till.rounds.values()
        owed = sum(r.due_drafter + r.due_verifier for r in rounds.values())
        assert 0 < owed <= arena.chain.reserve


def test_no_credit_past_the_bound_without_the_other_payees_signature() -> None:
    """Only a voucher that all three signed can settle at once: a client that brings D's signature
    to nobody, or asks D for none, gets no more than the bound out of either."""
    limits = LimitConfig(round_seconds=1.0, resume_seconds=2.0, voucher_every=8)
    arena = Arena(seed=52, limits=limits)

    def change(client: ClientRole) -> None:
        asked = client.purse._ask

        async def only_the_verifier(book: Any, payment: Payment, role: str, peer: bytes) -> Any:
            if role == "drafter":
                return payment
            return await asked(book, payment, role, peer)

        client.purse._ask = only_the_verifier

    async def main() -> tuple[VerifierRole, DrafterRole, ClientRole]:
        return await serve(arena, 400, change)

    verifier, drafter, _ = run_deterministically(52, main)
    for role in (verifier, drafter):
        (rounds,) = role.till.rounds.values()
        assert 0 < sum(r.record.output for r in rounds.values()) <= limits.unsigned_tokens + 9


def test_a_lane_that_may_settle_without_the_drafter_gets_no_drafts() -> None:
    arena = Arena(seed=53)
    asked: list[str] = []

    async def main() -> None:
        seats = {n: arena.seat(n) for n in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        lane = Lane(
            seats["client"].address,
            seats["drafter"].address,
            seats["verifier"].address,
            arena.plan().template.token,
            bytes(32),
        )
        arena.chain.views[lane.id] = LaneView(arena.chain.reserve, solo_from=1)

        async def emit(event: Any) -> None:
            asked.append(event.get("note", ""))

        async with trio.open_nursery() as nursery:
            await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                with pytest.raises(ClientError):
                    await client.generate(arena.plan(), emit)
            nursery.cancel_scope.cancel()

    run_deterministically(53, main)
    assert any("without the drafter's signature" in note for note in asked)


def test_sessions_on_one_lane_share_one_bound() -> None:
    """Four at once may not each take the last window before the bound."""
    limits = LimitConfig(
        round_seconds=1.0, resume_seconds=2.0, voucher_every=10**6, unsigned_tokens=40
    )
    arena = Arena(seed=54, limits=limits)

    async def main() -> VerifierRole:
        seats = {n: arena.seat(n) for n in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            model = target()
            model.context_length = 120
            verifier = await nursery.start(arena.verifier, seats["verifier"], model, 7)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                client.purse.pay = no_pay

                async def one() -> None:
                    plan = arena.plan(max_tokens=100, stop_ids=(), first_k=7)
                    with suppress(ClientError):
                        await client.generate(plan, ignore)

                with trio.move_on_after(30):
                    async with trio.open_nursery() as clients:
                        for _ in range(4):
                            clients.start_soon(one)
            nursery.cancel_scope.cancel()
        return verifier

    verifier = run_deterministically(54, main)
    (rounds,) = verifier.till.rounds.values()
    assert len({key[0] for key in rounds}) == 4
    assert 20 < sum(r.record.output for r in rounds.values()) <= 40 + 9


def test_a_client_whose_drafter_signs_nothing_is_not_held_up_for_ever() -> None:
    """Each voucher waits for the drafter's signature as long as patience lasts; the rounds go on
    meanwhile, and the waits must not pile up."""
    limits = LimitConfig(round_seconds=4.0, resume_seconds=4.0, voucher_every=4)
    arena = Arena(seed=55, limits=limits)

    async def main() -> float:
        def change(client: ClientRole) -> None:
            purse: Purse = client.purse
            asked = purse._ask

            async def slow(book: Any, payment: Payment, role: str, peer: bytes) -> Any:
                if role == "drafter":
                    await trio.sleep(60)
                return await asked(book, payment, role, peer)

            purse._ask = slow

        await serve(arena, 200, change)
        return trio.current_time()

    assert run_deterministically(55, main) < 60


def test_an_honest_request_is_paid_in_full_at_a_tight_bound() -> None:
    """The bounds above stop nobody who pays."""
    limits = LimitConfig(round_seconds=3.0, resume_seconds=6.0, voucher_every=4, unsigned_tokens=8)
    arena = Arena(seed=56, limits=limits)
    got: list[Outcome] = []

    def change(client: ClientRole) -> None:
        served = client.generate

        async def keep(*args: Any) -> Outcome:
            got.append(await served(*args))
            return got[-1]

        client.generate = keep

    async def main() -> Any:
        return await serve(arena, 120, change)

    run_deterministically(56, main)
    assert len(got[0].tokens) == 120
    assert len(got[0].sessions) == 1
    check_pay(arena, got[0])


def test_the_verifier_gets_the_drafters_signature_in_the_end() -> None:
    """Without it the verifier cannot settle; that its delivery failed once must not be the end."""

    async def story(desk: Desk) -> None:
        purse = desk.client.purse
        asked = purse._ask

        async def cut(book: LaneBook, payment: Payment, role: str, peer: bytes) -> Payment:
            if payment.complete:
                return payment
            return await asked(book, payment, role, peer)

        purse._ask = cut
        payment = await purse.pay(desk.lane, patience=5.0)
        assert payment is not None
        assert payment.complete
        purse._ask = asked
        (row,) = desk.verifier.node.journal.vouchers(desk.lane.id)
        assert not row.drafter
        await purse.chase(patience=5.0)
        (row,) = desk.verifier.node.journal.vouchers(desk.lane.id)
        assert row.drafter
        assert desk.verifier.till.unsigned_tokens(desk.lane) == 0

    at_till(57, story)
