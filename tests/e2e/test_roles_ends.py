"""Sessions end: whatever a party does or leaves undone, nobody's place, memory or money is held
for good, and no text passes that the target did not say."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio
from arena import DOMAIN, Arena, ignore
from test_roles import close_draft, plain, target
from test_roles_orders import Forger

from node.config import LimitConfig
from node.network.memory import run_deterministically
from node.network.messages import Offer, Role
from node.roles import party
from node.roles.client import Outcome
from node.roles.frames import VerdictFrame
from node.roles.plan import ClientError, NoParties, Plan
from node.roles.session import SessionFault, SessionState, advance, check_verdict
from settlement import coins, trees
from settlement.records import Mode, extend_context

ONE = LimitConfig(round_seconds=1.0, resume_seconds=2.0, max_sessions=1)


async def begin_alone(forger: Forger, plan: Plan) -> None:
    """A session at V whose drafter and client never come."""
    order = await forger.order(plan, b"\x01" * 32)
    nonce = await forger.reveal(plan, order)
    assert nonce is not None
    seed = coins.joint_seed(order.request_id, b"\x01" * 32, nonce)
    await forger.start(order, seed, (b"\x01" * 32, nonce))


@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.REJECTION])
def test_a_session_that_nobody_comes_to_gives_its_place_back(mode: Mode) -> None:
    async def main() -> float:
        arena = Arena(seed=71, limits=ONE)
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                forger = Forger(arena, client, verifier, drafter, arena.seat("own drafter"))
                await begin_alone(forger, arena.plan(mode=mode))
                with pytest.raises(NoParties, match="sessions run here already"):
                    await client.generate(arena.plan(), ignore)
                await trio.sleep(10)
                assert verifier.node.journal.sessions("open") == []
                await client.generate(arena.plan(), ignore)
                took = trio.current_time()
            nursery.cancel_scope.cancel()
        return took

    assert run_deterministically(71, main) < 60


def test_a_client_that_does_not_pay_gives_the_place_back() -> None:
    limits = replace(ONE, voucher_every=10**6, unsigned_tokens=8)

    async def main() -> None:
        arena = Arena(seed=72, limits=limits)
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:

                async def nothing(*_: Any, **__: Any) -> None:
                    await trio.sleep(0)

                client.purse.pay = nothing
                with trio.move_on_after(30), suppress(ClientError):
                    await client.generate(arena.plan(max_tokens=40, stop_ids=()), ignore)
            await trio.sleep(10)
            assert verifier.node.journal.sessions("open") == []
            nursery.cancel_scope.cancel()

    run_deterministically(72, main)


def test_a_session_that_the_engine_cannot_open_ends_alone() -> None:
    """Whatever the engine raises: the role lives, and the place is free again."""

    async def main() -> Outcome:
        arena = Arena(seed=73, limits=ONE)
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            opened = verifier.engine.open

            async def busy(*args: Any) -> Any:
                verifier.engine.open = opened
                raise RuntimeError("too many wait for this device")

            verifier.engine.open = busy
            async with arena.client(seats["client"]) as client:
                with suppress(ClientError):
                    await client.generate(arena.plan(), ignore)
                await trio.sleep(61)
                outcome = await client.generate(arena.plan(), ignore)
            nursery.cancel_scope.cancel()
        return outcome

    assert run_deterministically(73, main).tokens


def test_a_reason_in_any_script_reaches_the_client() -> None:
    arena = Arena(seed=82)
    notes: list[str] = []

    async def emit(event: Any) -> None:
        notes.append(event.get("note", ""))

    async def main() -> None:
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())

            async def refuse(*_: Any) -> Any:
                raise ValueError("\N{LATIN SMALL LETTER E WITH ACUTE}" * 500)

            verifier.engine.open = refuse
            async with arena.client(seats["client"]) as client:
                with suppress(ClientError):
                    await client.generate(arena.plan(), emit)
            nursery.cancel_scope.cancel()

    run_deterministically(82, main)
    assert any("\N{LATIN SMALL LETTER E WITH ACUTE}" in note for note in notes)


def test_a_drafter_whose_verifier_never_answers_gives_the_place_back() -> None:
    async def main() -> None:
        arena = Arena(seed=74, limits=ONE)
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with trio.open_nursery() as doomed:
                await doomed.start(arena.verifier, seats["verifier"], target(), 3)
                async with arena.client(seats["client"]) as client:

                    async def emit(event: Any) -> None:
                        if event["type"] == "round":
                            doomed.cancel_scope.cancel()

                    with suppress(ClientError):
                        await client.generate(arena.plan(max_tokens=200, stop_ids=()), emit)
            assert drafter.node.journal.sessions("open")
            await trio.sleep(60)
            assert drafter.node.journal.sessions("open") == []
            assert all(live.state.stopped for live in drafter.sessions.values())
            nursery.cancel_scope.cancel()

    run_deterministically(74, main)


def test_ended_sessions_leave_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party, "ENDED_KEPT", 3)

    async def main() -> None:
        arena = Arena(seed=75)
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                for _ in range(8):
                    await client.generate(arena.plan(max_tokens=4, stop_ids=()), ignore)
                assert len(client.node.journal.sessions()) == 8
            assert len(verifier.sessions) <= 5
            assert len(verifier.running) <= 5
            assert len(drafter.sessions) <= 5
            nursery.cancel_scope.cancel()

    run_deterministically(75, main)


# ---------------------------------------------------------------- the client's side


async def serve(arena: Arena, plan: Plan, emit: Any = ignore, slow: float = 0.0) -> Any:
    seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    async with trio.open_nursery() as nursery:
        verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
        await nursery.start(arena.drafter, seats["drafter"], close_draft())
        verify = verifier.engine.verify

        async def slowly(*args: Any) -> Any:
            await trio.sleep(slow)
            return await verify(*args)

        verifier.engine.verify = slowly
        async with arena.client(seats["client"]) as client:
            try:
                result: Any = await client.generate(plan, emit)
            except ClientError as error:
                result = error
            nursery.cancel_scope.cancel()
    if isinstance(result, ClientError):
        raise result
    return result


def test_a_window_cut_short_without_a_stop_is_refused() -> None:
    """A verifier that knows its coins could else choose where to stop."""
    arena = Arena(seed=76)
    plan = arena.plan(max_tokens=40, stop_ids=())
    outcome = run_deterministically(76, serve, arena, plan)
    terms, state = outcome.sessions[0].terms, SessionState.begin(outcome.sessions[0].terms)
    key, cut = arena.seat("verifier").key, 0
    for done in outcome.sessions[0].rounds:
        if done.verdict.verdict.k >= 2:
            leaves = done.verdict.leaves[:1]
            short = replace(
                done.verdict.verdict,
                k=1,
                emitted=1,
                verdict_root=trees.merkle_root([leaf.leaf_hash for leaf in leaves]),
                next_context_hash=extend_context(state.context, (leaves[0].token,)),
            )
            frame = VerdictFrame(short, DOMAIN.sign(short, key), leaves)
            with pytest.raises(SessionFault, match="cut short"):
                check_verdict(terms, state, done.draft, frame)
            cut += 1
        check_verdict(terms, state, done.draft, done.verdict)
        state = advance(terms, state, done)
    assert cut


def test_a_request_ends_at_its_deadline() -> None:
    """A verifier that trickles cannot hold a client for longer than the order says."""
    arena = Arena(seed=77)
    plan = arena.plan(max_tokens=120, stop_ids=(), deadline=int(arena.clock + 20))
    ended: list[float] = []

    async def main() -> None:
        with pytest.raises(ClientError, match="deadline"):
            await serve(arena, plan, slow=2.5)
        ended.append(trio.current_time())

    run_deterministically(77, main)
    assert ended[0] < 40


def test_a_request_given_up_is_paid_for() -> None:
    """Whoever closes its stream has got those tokens all the same."""
    arena = Arena(seed=78, limits=LimitConfig(round_seconds=3.0, resume_seconds=6.0))

    async def main() -> None:
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                with trio.CancelScope() as scope:

                    async def emit(event: Any) -> None:
                        if event.get("round") == 4:
                            scope.cancel()

                    await client.generate(arena.plan(max_tokens=200, stop_ids=()), emit)
                assert scope.cancelled_caught
                (row,) = client.node.journal.sessions()
                assert row.state == "closed"
                (voucher,) = client.node.journal.vouchers(row.lane)
                assert voucher.client
                assert voucher.verifier
                assert voucher.drafter
                (lane,) = client.purse.till.rounds
                rounds = client.purse.till.rounds[lane].values()
                assert voucher.leaf_count == len(rounds) >= 5
            nursery.cancel_scope.cancel()

    run_deterministically(78, main)


@pytest.mark.parametrize("role", ["drafter", "verifier"])
def test_nobody_is_paid_more_than_the_client_will_pay(role: str) -> None:
    """A price may rise between a reserve and an order: no reserve is a payee's for asking."""
    arena = Arena(seed=79)

    async def main() -> None:
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        listed = getattr(arena, f"{role}s")
        offer: Offer = listed[0].offer
        listed[0] = replace(listed[0], offer=replace(offer, price=10**20))
        async with trio.open_nursery() as nursery:
            await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                with pytest.raises(NoParties, match="price"):
                    await client.generate(arena.plan(), ignore)
            nursery.cancel_scope.cancel()

    run_deterministically(79, main)


def test_a_party_without_stake_is_not_asked() -> None:
    arena = Arena(seed=80)
    notes: list[str] = []

    async def emit(event: Any) -> None:
        notes.append(event.get("note", ""))

    async def main() -> None:
        arena.chain.covers[arena.seat("verifier").address, int(Role.VERIFIER)] = 0
        with pytest.raises(NoParties, match="no stake"):
            await serve(arena, arena.plan(), emit)

    run_deterministically(80, main)
    assert any("no stake" in note for note in notes)


@pytest.mark.parametrize("role", ["drafter", "verifier"])
def test_a_party_whose_stake_does_not_cover_the_order_is_not_asked(role: str) -> None:
    """Were any stake enough, a lie could cost less than it earns."""
    arena = Arena(seed=84)
    price = {"drafter": 3, "verifier": 11 + 3}[role]  # V's stake answers for D's pay too
    where = (arena.seat(role).address, int(Role[role.upper()]))

    async def tried(plan: Plan, cover: int, factor: float) -> Outcome:
        arena.chain.covers[where] = cover
        arena.limits = replace(arena.limits, stake_cover=factor)
        arena.drafters.clear()
        arena.verifiers.clear()
        return await serve(arena, plan)

    async def main() -> None:
        most = price * 12
        for cover, factor in ((most - 1, 1.0), (2 * most, 2.5)):
            with pytest.raises(NoParties, match=f"{role}: its free stake covers payments"):
                await tried(arena.plan(max_tokens=12), cover, factor)
        await tried(arena.plan(max_tokens=12), most, 1.0)
        await tried(arena.plan(max_tokens=12), 1, 0.0)

    run_deterministically(84, main)


def test_the_text_is_the_targets() -> None:
    """Of the helper above: it serves honestly."""
    arena = Arena(seed=81)
    plan = arena.plan(max_tokens=12, stop_ids=())
    outcome = run_deterministically(81, serve, arena, plan)
    assert outcome.tokens == plain(plan, outcome)
