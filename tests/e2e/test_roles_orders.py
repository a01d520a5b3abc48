"""Orders made to hurt the payee that signs them: foreign anchors and nonces, ground seeds, hash
chains used twice. Each is signed by a client (and, where it takes one, by a drafter of its own)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from arena import DOMAIN, Arena, Seat, ignore
from test_roles import check_pay, close_draft, plain, target

from node.network import exchange
from node.network.errors import Busy, Refused
from node.network.memory import run_deterministically
from node.network.messages import (
    Kind,
    OrderAccept,
    OrderOffer,
    PromptDelivery,
    Quote,
    QuoteRequest,
    StartAccept,
    StartOffer,
)
from node.roles import party as party_module
from node.roles.client import ClientRole
from node.roles.party import Party
from node.roles.plan import Plan
from node.roles.ports import LaneView
from node.roles.refusals import NO_SIGNATURE, No
from settlement import coins
from settlement.hashing import ZERO32
from settlement.records import Lane, Mode, Order, SessionStart, extend_context


@dataclass
class Forger:
    """A client that writes its orders by hand; `own` is a drafter's key that it holds too."""

    arena: Arena
    client: ClientRole
    verifier: Party
    drafter: Party
    own: Seat
    counter: int = 1000
    sent: list[Order] = field(default_factory=list)

    async def ask(self, peer: bytes, kind: Kind, message: Any) -> Any:
        return await exchange.ask(self.client.node.transport, peer, kind, message, deadline=5.0)

    async def quote(self, party: Party, plan: Plan, parent: bytes = ZERO32) -> Quote:
        wanted = QuoteRequest(plan.template.request_id, parent, plan.template.max_tokens)
        return await self.ask(party.node.address, Kind.QUOTE, wanted)

    async def order(self, plan: Plan, nonce: bytes, *, own: bool = True, **changes: Any) -> Order:
        """An order that honest payees sign, but for `changes`; with the client's own drafter."""
        self.counter += 1
        parent = changes.get("parent_session", ZERO32)
        first = await self.quote(self.verifier, plan, parent)
        second = await self.quote(self.drafter, plan, parent)
        rejection = plan.template.mode == Mode.REJECTION
        good: dict[str, Any] = {
            "client": self.client.node.address,
            "drafter": self.own.address if own else self.drafter.node.address,
            "verifier": self.verifier.node.address,
            "draft_model": self.arena.offer(0, 0).draft_model_id,
            "price_accepted": self.arena.prices.accepted,
            "price_output": self.arena.prices.output,
            "nonce_commit_client": coins.nonce_commitment(nonce),
            "nonce_commit_verifier": first.nonce_commitment,
            "anchor_verifier": first.anchor if rejection else ZERO32,
            "anchor_drafter": second.anchor if rejection else ZERO32,
            "nonce": self.counter,
        }
        return replace(plan.template, **(good | changes))

    def signed(self, record: Any, *, own: bool = True) -> tuple[bytes, bytes, bytes]:
        mine = DOMAIN.sign(record, self.client.node.key)
        return mine, DOMAIN.sign(record, self.own.key) if own else NO_SIGNATURE, NO_SIGNATURE

    async def offer(
        self,
        party: Party,
        plan: Plan,
        order: Order,
        signatures: tuple[bytes, ...],
        output: tuple[int, ...] = (),
    ) -> OrderAccept:
        delivery = PromptDelivery(plan.salt, plan.prompt, plan.stops, output)
        offered = OrderOffer(order.to_wire(), tuple(signatures), delivery)
        return await self.ask(party.node.address, Kind.ORDER, offered)

    async def reveal(self, plan: Plan, order: Order, output: tuple[int, ...] = ()) -> bytes | None:
        """Gets V's signature, then what V gives for all three."""
        signatures = self.signed(order)
        accept = await self.offer(self.verifier, plan, order, signatures, output)
        whole = (*signatures[:2], accept.signature)
        return (await self.offer(self.verifier, plan, order, whole, output)).nonce

    async def start(self, order: Order, seed: bytes, nonces: tuple[bytes, bytes]) -> bytes:
        """Starts the session at V; the start hash."""
        start = SessionStart(order.session_id, seed, 2)
        signatures = self.signed(start)
        for _ in range(2):
            offered = StartOffer(order.session_id, start.to_wire(), signatures, nonces)
            answer = await self.ask(self.verifier.node.address, Kind.START, offered)
            assert isinstance(answer, StartAccept)
            signatures = (*signatures[:2], answer.signature)
        return start.struct_hash


def at_desk(seed: int, story: Callable[[Forger], Any]) -> None:
    """Runs `story`; afterwards an honest request must still be served and paid."""

    async def main() -> None:
        arena = Arena(seed=seed)
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                forger = Forger(arena, client, verifier, drafter, arena.seat("own drafter"))
                await story(forger)
                plan = arena.plan(max_tokens=8, stop_ids=())
                outcome = await client.generate(plan, ignore)
                assert outcome.tokens == plain(plan, outcome)
                check_pay(arena, outcome)
            nursery.cancel_scope.cancel()

    run_deterministically(seed, main)


@pytest.mark.parametrize("whose", ["verifier", "drafter"])
def test_a_foreign_anchor_is_refused(whose: str) -> None:
    """A chain value that does not lead to the order's anchor costs half the stake (F4): nobody
    signs an order that names another anchor than its own."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan(mode=Mode.REJECTION)
        order = await forger.order(
            plan, b"\x01" * 32, own=False, **{f"anchor_{whose}": b"\x42" * 32}
        )
        party = forger.verifier if whose == "verifier" else forger.drafter
        with pytest.raises(Refused, match="anchor") as refused:
            await forger.offer(party, plan, order, forger.signed(order, own=False))
        assert refused.value.code == No.CONFLICT

    at_desk(31, story)


def test_a_chain_serves_one_session() -> None:
    """What a first session has revealed of V's chain must be no coin of a second one."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan(mode=Mode.REJECTION)
        output = (3, 4)
        context = extend_context(plan.template.prompt_hash, output)
        anchors = []
        for nonce in (b"\x01" * 32, b"\x02" * 32):
            order = await forger.order(
                plan,
                nonce,
                parent_session=b"\x07" * 32,
                start_position=2,
                context_hash=context,
                nonce_commit_verifier=coins.nonce_commitment(b"\x09" * 32),
            )
            await forger.reveal(plan, order, output)
            seed = coins.joint_seed(order.request_id, nonce, b"\x09" * 32)
            await forger.start(order, seed, (nonce, b"\x09" * 32))
            anchors.append(order.anchor_verifier)
        assert anchors[0] != anchors[1]

    at_desk(32, story)


def test_no_seed_from_a_nonce_that_is_not_the_verifiers() -> None:
    """A first order under a joint seed carries the verifier's own commitment: else the client
    knows both nonces and chooses the seed."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan()
        order = await forger.order(
            plan, b"\x01" * 32, nonce_commit_verifier=coins.nonce_commitment(b"\x02" * 32)
        )
        with pytest.raises(Refused, match="nonceCommitVerifier") as refused:
            await forger.offer(forger.verifier, plan, order, forger.signed(order))
        assert refused.value.code == No.CONFLICT

    at_desk(33, story)


def test_a_request_has_one_first_order() -> None:
    """Who has seen the verifier's nonce cannot choose its own anew for the same request."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan()
        order = await forger.order(plan, b"\x01" * 32)
        known = await forger.reveal(plan, order)
        assert known is not None
        assert await forger.reveal(plan, order) == known  # asked again, told the same
        ground = await forger.order(plan, b"\x03" * 32)
        with pytest.raises(Refused, match="another order"):
            await forger.offer(forger.verifier, plan, ground, forger.signed(ground))
        seed = coins.joint_seed(plan.template.request_id, b"\x03" * 32, known)
        with pytest.raises(Refused):
            await forger.start(ground, seed, (b"\x03" * 32, known))

    at_desk(34, story)


def test_a_made_up_parent_gets_no_nonce() -> None:
    """A successor goes on with nonces that are known; asking as one before the first order
    reveals nothing."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan()
        first = await forger.quote(forger.verifier, plan)
        order = await forger.order(
            plan,
            b"\x01" * 32,
            parent_session=b"\x07" * 32,
            start_position=1,
            context_hash=extend_context(plan.template.prompt_hash, (5,)),
            nonce_commit_verifier=first.nonce_commitment,
        )
        assert await forger.reveal(plan, order, (5,)) is None

    at_desk(35, story)


@pytest.mark.parametrize("whose", ["verifier", "drafter"])
def test_an_order_in_another_token_is_refused(whose: str) -> None:
    """Prices are in units of one token: another one, listed but worth less, is no payment."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan()
        order = await forger.order(plan, b"\x01" * 32, own=False, token=b"\x66" * 20)
        party = forger.verifier if whose == "verifier" else forger.drafter
        with pytest.raises(Refused, match="token 0x6666"):
            await forger.offer(party, plan, order, forger.signed(order, own=False))

    at_desk(36, story)


def test_a_claim_that_the_drafter_does_not_serve_under_is_refused() -> None:
    """Counts under a claim made for another mode or draft would flag an honest drafter."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan()
        order = await forger.order(plan, b"\x01" * 32, own=False, claim_id=b"\x77" * 32)
        with pytest.raises(Refused, match="claim 0x7777"):
            await forger.offer(forger.drafter, plan, order, forger.signed(order, own=False))

    at_desk(37, story)


def test_orders_that_are_refused_write_nothing() -> None:
    """A stranger without a reserve cannot fill a disk with orders."""

    async def story(forger: Forger) -> None:
        reserve, forger.arena.chain.reserve = forger.arena.chain.reserve, 0
        journal = forger.verifier.node.journal
        for _ in range(3):
            plan = forger.arena.plan()
            order = await forger.order(plan, b"\x01" * 32)
            with pytest.raises(Refused, match="reserve"):
                await forger.offer(forger.verifier, plan, order, forger.signed(order))
            name = f"order-nonce:{order.client.hex()}:{order.nonce}"
            assert journal.secret(name) is None
        forger.arena.chain.reserve = reserve

    at_desk(38, story)


def test_one_client_cannot_push_out_anothers_order() -> None:
    async def story(forger: Forger) -> None:
        mine = forger.arena.plan()
        waiting = await forger.order(mine, b"\x01" * 32)
        await forger.offer(forger.verifier, mine, waiting, forger.signed(waiting))
        pending = forger.verifier.pending
        before = pending[waiting.session_id]
        crowd = forger.arena.seat("crowd")
        for number in range(40):
            plan = forger.arena.plan()
            order = replace(
                await forger.order(plan, b"\x02" * 32), client=crowd.address, nonce=number
            )
            nonce = forger.verifier.nonce(crowd.address, order.request_id)
            order = replace(order, nonce_commit_verifier=coins.nonce_commitment(nonce))
            delivery = PromptDelivery(plan.salt, plan.prompt, (), ())
            signatures = (DOMAIN.sign(order, crowd.key), NO_SIGNATURE, NO_SIGNATURE)
            offered = OrderOffer(order.to_wire(), signatures, delivery)
            await forger.verifier.on_order(crowd.address, offered)
        assert pending[waiting.session_id] is before
        assert len(pending) <= 20

    at_desk(39, story)


@pytest.mark.parametrize("whose", ["verifier", "drafter"])
def test_a_wider_window_than_the_payee_allows_is_refused(whose: str) -> None:
    """In rejection mode the announced window must be drafted and verified, whatever it costs."""

    async def story(forger: Forger) -> None:
        plan = forger.arena.plan(max_window=17)
        order = await forger.order(plan, b"\x01" * 32, own=False)
        party = forger.verifier if whose == "verifier" else forger.drafter
        with pytest.raises(Refused, match="maxWindow is 17, 0 to 16"):
            await forger.offer(party, plan, order, forger.signed(order, own=False))

    at_desk(40, story)


def test_one_peer_holds_up_nobody_by_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty orders at once while every look at the chain takes a second: few of them look, the
    others are told when to come back, and a client in the middle of it is served at once."""
    looking: Counter[bytes] = Counter()
    most: Counter[bytes] = Counter()

    async def story(forger: Forger) -> None:
        chain, plans = forger.arena.chain, [forger.arena.plan() for _ in range(30)]
        orders = [await forger.order(plan, b"\x01" * 32) for plan in plans]
        mine = {order.lane.id for order in orders}
        refused: list[Refused] = []

        async def slowly(lane: Lane) -> LaneView:
            if lane.id not in mine:
                return chain.lane(lane)
            looking[lane.client] += 1
            most[lane.client] = max(most[lane.client], looking[lane.client])
            await trio.sleep(1)
            looking[lane.client] -= 1
            return chain.lane(lane)

        monkeypatch.setattr(chain, "refresh", slowly)

        async def offer(plan: Plan, order: Order) -> None:
            try:
                await forger.offer(forger.verifier, plan, order, forger.signed(order))
            except Refused as no:
                refused.append(no)

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for plan, order in zip(plans, orders, strict=True):
                nursery.start_soon(offer, plan, order)
            await trio.sleep(0.1)
            async with forger.arena.client(forger.arena.seat("someone else")) as client:
                await client.generate(forger.arena.plan(max_tokens=8, stop_ids=()), ignore)
            assert trio.current_time() - began < 1
        assert most[forger.client.node.address] == 2
        assert len(refused) == 28
        assert all(isinstance(no, Busy) and no.retry_after for no in refused)

    at_desk(40, story)


def test_orders_that_never_start_run_out_and_those_that_do_cost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each leaves marks in the journal for good."""
    monkeypatch.setattr(party_module, "UNSTARTED", 2)

    async def story(forger: Forger) -> None:
        nonce = b"\x01" * 32
        for _ in range(4):
            plan = forger.arena.plan()
            order = await forger.order(plan, nonce)
            theirs = await forger.reveal(plan, order)
            assert theirs is not None
            seed = coins.joint_seed(order.request_id, nonce, theirs)
            await forger.start(order, seed, (nonce, theirs))
        for number in range(3):
            plan = forger.arena.plan()
            order = await forger.order(plan, nonce)
            if number < 2:
                await forger.offer(forger.verifier, plan, order, forger.signed(order))
                continue
            with pytest.raises(Busy, match="too many orders that never start; retry after 5"):
                await forger.offer(forger.verifier, plan, order, forger.signed(order))
            name = f"order-nonce:{order.client.hex()}:{order.nonce}"
            assert forger.verifier.node.journal.secret(name) is None
        await trio.sleep(12)  # and the four that nobody comes to have waited long enough

    at_desk(41, story)
