"""A client that reads slowly holds up neither its own session's verifier nor anybody else."""

from __future__ import annotations

from typing import Any

import trio
from arena import Arena, ignore
from test_roles import close_draft, plain, target

from node.network.memory import run_deterministically
from node.roles.client import Outcome
from node.roles.plan import Plan

PAUSE = 2.0  # seconds of the run's own clock for every round that the slow one is shown


async def slow_and_fast(arena: Arena, plans: list[Plan]) -> dict[str, Any]:
    """The slow client's request, then the fast one's beside it; what had happened when."""
    seats = {name: arena.seat(name) for name in ("slow", "fast", "drafter", "verifier")}
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    seen: dict[str, Any] = {"shown": 0}

    async def dawdle(event: Any) -> None:
        if event["type"] == "round":
            seen["shown"] += 1
            await trio.sleep(PAUSE)

    async def read_slowly(client: Any) -> None:
        seen["slow"] = await client.generate(plans[0], dawdle)

    async with trio.open_nursery() as nursery:
        role = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
        await nursery.start(arena.drafter, seats["drafter"], close_draft())
        async with (
            arena.client(seats["slow"]) as slow,
            arena.client(seats["fast"]) as fast,
            trio.open_nursery() as readers,
        ):
            readers.start_soon(read_slowly, slow)
            while not seen["shown"]:
                await trio.sleep(0.01)
            began = trio.current_time()
            seen["fast"] = await fast.generate(plans[1], ignore)
            seen["seconds"] = trio.current_time() - began
            seen["ended"] = [running.ended for running in role.running.values()]
            seen["shown_by_then"] = seen["shown"]
        nursery.cancel_scope.cancel()
    return seen


def test_a_slow_reader_stalls_nobody() -> None:
    arena = Arena(seed=11)
    plans = [arena.plan(max_tokens=40, stop_ids=()) for _ in range(2)]
    seen = run_deterministically(11, slow_and_fast, arena, plans)
    slow, fast = seen["slow"], seen["fast"]
    assert isinstance(slow, Outcome)
    assert slow.tokens == plain(plans[0], slow)
    assert fast.tokens == plain(plans[1], fast)
    assert seen["seconds"] < PAUSE
    assert seen["shown_by_then"] == 1
    assert seen["ended"] == [True, True]  # the slow one's own session too
    assert len(slow.sessions[0].rounds) > 5
