"""Places among a payee's sessions: what one client, or one that only holds places, cannot do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio
from arena import DOMAIN, Arena, ignore
from test_roles import close_draft, plain, target
from test_roles_ends import begin_alone
from test_roles_orders import Forger

from node.config import LimitConfig
from node.network import exchange
from node.network.errors import PeerClosed, Refused
from node.network.memory import run_deterministically
from node.network.messages import DraftRound, Kind, StartOffer
from node.network.messages import SessionState as StateMessage
from node.roles.plan import Plan
from node.roles.ports import LaneView
from node.roles.refusals import NO_SIGNATURE
from settlement import coins
from settlement.hashing import ZERO32
from settlement.records import Mode, Order, SessionStart

LIMITS = LimitConfig(
    round_seconds=30.0,
    resume_seconds=10.0,
    max_sessions=4,
    max_sessions_per_client=3,
    idle_seconds=5.0,
)


def at_places(seed: int, story: Any, limits: LimitConfig = LIMITS) -> Any:
    """Runs `story(arena, forger, verifier, drafter)` beside honest payees. The forger is a client
    with a drafter of its own that nobody runs."""

    async def main() -> Any:
        arena = Arena(seed=seed, limits=limits)
        arena.list_drafter(arena.seat("drafter"))
        arena.list_verifier(arena.seat("verifier"))
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, arena.seat("verifier"), target(), 3)
            drafter = await nursery.start(arena.drafter, arena.seat("drafter"), close_draft())
            async with arena.client(arena.seat("forger")) as client:
                own = arena.seat("own drafter")
                forger = Forger(arena, client, verifier, drafter, own)
                result = await story(arena, forger, verifier)
            nursery.cancel_scope.cancel()
        return result

    return run_deterministically(seed, main)


async def begin(forger: Forger, plan: Plan) -> Order:
    """As `begin_alone`; the order."""
    await begin_alone(forger, plan)
    running = list(forger.verifier.running.values())  # type: ignore[attr-defined]
    return running[-1].live.terms.order


async def served(arena: Arena, seat: str = "honest") -> None:
    plan = arena.plan(max_tokens=8, stop_ids=())
    async with arena.client(arena.seat(seat)) as client:
        outcome = await client.generate(plan, ignore)
    assert outcome.tokens == plain(plan, outcome)


def test_one_client_leaves_room_for_others() -> None:
    """However large its reserve."""

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        for _ in range(3):
            await begin_alone(forger, arena.plan())
        with pytest.raises(Refused, match="3 sessions of yours run here, at most 3"):
            await begin_alone(forger, arena.plan())
        await served(arena)
        # One of its own that waits gives way to its next.
        await trio.sleep(6)
        await begin_alone(forger, arena.plan())
        open_now = verifier.node.journal.sessions("open")
        assert len(open_now) == 3

    at_places(101, story)


@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.REJECTION])
def test_sessions_that_only_hold_places_give_way(mode: Mode) -> None:
    """Two keys of one hand take all places, with a drafter that never comes. An honest client is
    served as soon as they have waited."""
    limits = replace(LIMITS, max_sessions_per_client=2)

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        async with arena.client(arena.seat("second key")) as client:
            second = replace(forger, client=client, sent=[])
            for hand in (forger, second, forger, second):
                await begin_alone(hand, arena.plan(mode=mode))
            began = trio.current_time()
            await trio.sleep(6)
            await served(arena)
            assert trio.current_time() - began < 10
            counts = verifier.node.metrics.counters
            assert counts["sessions_given_up"] == 1

    at_places(102, story, limits)


def test_nobody_turns_out_sessions_that_are_at_work() -> None:
    """Places are lost by waiting only: a verifier's own slow pass is no waiting."""
    limits = replace(LIMITS, max_sessions=1, max_sessions_per_client=1, idle_seconds=1.0)

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        verify = verifier.engine.verify

        async def slowly(*args: Any) -> Any:
            await trio.sleep(8)
            return await verify(*args)

        verifier.engine.verify = slowly
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served, arena)
            await trio.sleep(4)
            with pytest.raises(Refused, match="1 sessions run here already"):
                await begin_alone(forger, arena.plan())

    at_places(103, story, limits)


@pytest.mark.parametrize(
    ("mode", "what"),
    [(Mode.COUPLED, "stale"), (Mode.REJECTION, "stale"), (Mode.REJECTION, "empty")],
)
def test_windows_that_lead_to_no_round_buy_no_time(mode: Mode, what: str) -> None:
    """A drafter that says something every few seconds and never what is wanted."""

    async def story(arena: Arena, forger: Forger, verifier: Any) -> float:
        order = await begin(forger, arena.plan(mode=mode))
        began = trio.current_time()

        async def chatter() -> None:
            async with arena.node(forger.own) as node:
                line = await exchange.open_channel(
                    node.transport, order.verifier, Kind.SESSION, deadline=5.0
                )
                start_hash = verifier.running[order.session_id].live.terms.start_hash
                state = StateMessage(order.session_id, start_hash, 0, 0, order.prompt_hash, False)
                await line.send(state)
                number = 0 if what == "empty" else 7
                while True:
                    await line.send(DraftRound(number, b""))
                    await trio.sleep(5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(chatter)
            while not verifier.running[order.session_id].ended:
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert verifier.running[order.session_id].blocked[1] == "no draft has come that fits"
        return trio.current_time() - began

    assert at_places(104, story) < 2 * 40 + 5


@pytest.mark.parametrize("pause", [4.0, 0.5])
def test_a_little_now_and_then_holds_no_place(pause: float) -> None:
    """An empty window asks for one token. Every four seconds it is no way to keep a place that
    others want; twice a second it is a session like any other, until its client must pay."""
    limits = replace(LIMITS, max_sessions=1, unsigned_tokens=32)

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        order = await begin(forger, arena.plan(max_tokens=200, stop_ids=()))
        running = verifier.running[order.session_id]

        async def drip() -> None:
            async with arena.node(forger.own) as node:
                line = await exchange.open_channel(
                    node.transport, order.verifier, Kind.SESSION, deadline=5.0
                )
                start_hash = running.live.terms.start_hash
                state = StateMessage(order.session_id, start_hash, 0, 0, order.prompt_hash, False)
                await line.send(state)
                with suppress(PeerClosed):
                    while True:
                        await trio.sleep(pause)
                        await line.send(DraftRound(running.live.state.round, b""))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            await trio.sleep(15)
            waiting = verifier.waiting(running.live)
            assert len(running.live.state.tokens) >= 3
            assert running.since > trio.current_time() - 5  # no single wait was too long
            if pause > 1:
                await served(arena)
                assert running.ended
            else:
                assert waiting < 1
                await trio.sleep(15)
                await served(arena)
            nursery.cancel_scope.cancel()

    at_places(110, story, limits)


def test_a_reserve_stands_behind_every_open_session() -> None:
    """One small reserve opens one session, however idle, and not all of them: neither by orders one
    after the other nor by orders that were all signed before the first one started."""

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        plans = [arena.plan() for _ in range(3)]
        nonce = b"\x01" * 32
        need = verifier.till.exposure(await forger.order(plans[0], nonce))
        arena.chain.reserve = 2 * need - 1
        orders = [await forger.order(plan, nonce) for plan in plans]
        revealed = [
            await forger.reveal(plan, order) for plan, order in zip(plans, orders, strict=True)
        ]

        async def start(number: int) -> None:
            order, theirs = orders[number], revealed[number]
            assert theirs is not None
            seed = coins.joint_seed(order.request_id, nonce, theirs)
            await forger.start(order, seed, (nonce, theirs))

        await start(0)
        with pytest.raises(Refused, match="the lane's reserve has"):
            await start(1)
        with pytest.raises(Refused, match="the lane's reserve has"):
            await begin_alone(forger, arena.plan())
        arena.chain.reserve = 2 * need
        await start(2)
        # What an ended session held is free again.
        for running in list(verifier.running.values()):
            verifier.give_up(running.live, "the test says so")
        assert verifier.till.room(orders[0].lane, LaneView(2 * need)) == 2 * need

    at_places(105, story)


def test_a_successor_needs_no_second_reserve() -> None:
    """A hand-over goes on under the reserve of the session that it ends, and in its place."""
    limits = replace(LIMITS, max_sessions=1)

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        plan, nonce = arena.plan(), b"\x01" * 32
        first = await forger.order(plan, nonce)
        arena.chain.reserve = 2 * verifier.till.exposure(first) - 1
        theirs = await forger.reveal(plan, first)
        assert theirs is not None
        seed = coins.joint_seed(first.request_id, nonce, theirs)
        await forger.start(first, seed, (nonce, theirs))
        then = replace(
            first,
            parent_session=first.session_id,
            context_hash=first.prompt_hash,
            nonce=first.nonce + 1,
        )
        await forger.reveal(plan, then)
        await forger.start(then, seed, (nonce, theirs))
        await trio.sleep(0.1)
        assert [r.ended for r in verifier.running.values()] == [True, False]
        with pytest.raises(Refused, match="reserve"):
            await begin_alone(forger, arena.plan())
        assert then.parent_session != ZERO32

    at_places(106, story, limits)


def test_a_start_is_admitted_once_and_by_the_reserve_as_it_is() -> None:
    """The last look at the lane may be forgotten, or older than a deposit; and two starts of one
    session may both wait for the next."""

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        plan, nonce = arena.plan(), b"\x01" * 32
        order = await forger.order(plan, nonce)
        theirs = await forger.reveal(plan, order)
        assert theirs is not None
        seed = coins.joint_seed(order.request_id, nonce, theirs)
        arena.chain.lane = lambda lane: LaneView(0)  # type: ignore[method-assign]

        async def refresh(lane: Any) -> LaneView:
            await trio.sleep(0.2)
            return LaneView(arena.chain.reserve)

        arena.chain.refresh = refresh  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(forger.start, order, seed, (nonce, theirs))
        assert len(verifier.node.journal.sessions("open")) == 1
        assert list(verifier.sessions) == [order.session_id]
        assert verifier.till._of(order.lane).running.keys() <= {
            verifier.sessions[order.session_id].terms.start_hash
        }

    at_places(107, story)


def test_orders_on_many_lanes_leave_nothing_behind() -> None:
    """Any claim makes another lane; who is refused for its reserve leaves no trace."""

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        arena.chain.reserve = 0
        plan = arena.plan()
        for number in range(5):
            order = await forger.order(plan, b"\x01" * 32, claim_id=bytes([number + 1]) * 32)
            with pytest.raises(Refused, match="reserve"):
                await forger.offer(forger.verifier, plan, order, forger.signed(order))
        assert not verifier.till._unpaid
        assert not verifier.pending

    at_places(108, story)


def test_a_verifier_that_never_serves_holds_no_places_at_a_drafter() -> None:
    """Two clients and a verifier of one hand; nobody opens a line to that verifier."""
    limits = replace(LIMITS, max_sessions_per_client=2)

    async def story(arena: Arena, forger: Forger, verifier: Any) -> None:
        drafter = forger.drafter

        async def begin_there(hand: Forger) -> None:
            plan = arena.plan(client_seed=7)
            order = await hand.order(
                plan,
                bytes(32),
                own=False,
                verifier=hand.own.address,
                nonce_commit_client=ZERO32,
                nonce_commit_verifier=ZERO32,
            )
            by_own = DOMAIN.sign(order, hand.own.key)
            signed = (DOMAIN.sign(order, hand.client.node.key), NO_SIGNATURE, by_own)
            await hand.offer(drafter, plan, order, signed)
            seed = coins.client_seed(7, order.target_model, plan.prompt)
            start = SessionStart(order.session_id, seed, 2)
            signed = (
                DOMAIN.sign(start, hand.client.node.key),
                NO_SIGNATURE,
                DOMAIN.sign(start, hand.own.key),
            )
            nonces = ((7).to_bytes(32, "big"), ZERO32)
            offered = StartOffer(order.session_id, start.to_wire(), signed, nonces)
            await hand.ask(drafter.node.address, Kind.START, offered)

        async with arena.client(arena.seat("second key")) as client:
            second = replace(forger, client=client, sent=[])
            for hand in (forger, second, forger, second):
                await begin_there(hand)
            assert len(drafter.node.journal.sessions("open")) == 4
            await trio.sleep(6)
            await served(arena)
        assert drafter.node.metrics.counters["sessions_given_up"] == 1
        assert len(drafter.node.journal.sessions("open")) == 3
        await trio.sleep(90)
        assert drafter.node.journal.sessions("open") == []

    at_places(109, story, limits)
