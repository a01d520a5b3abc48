"""A verifier begins the next pass while it commits a round, where no draft is asked for: what that
may do is save time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from arena import Arena, ignore
from test_roles import CrashAt, check_pay, close_draft, plain, serve_with_crash, target

from node.network.memory import run_deterministically
from node.roles.client import Outcome
from node.roles.plan import Plan
from node.roles.refusals import No
from node.roles.verifier import FORESEEN, VerifierRole

TOKENS = 9


@dataclass
class Noted:
    """What the verifier did, in order: ("pass", base) as one is begun, ahead or not, ("commit",
    number), ("close", 0)."""

    events: list[tuple[str, int]] = field(default_factory=list)
    commits: int = 0
    dead: bool = False  # as the arena's hooks have it

    def __call__(self, when: str, what: str) -> None:
        if (when, what) == ("after", "verdict"):
            self.events.append(("commit", self.commits))
            self.commits += 1

    def watch(self, role: VerifierRole, hang_at: int = -1) -> None:
        engine = role.engine
        verify, foresee, close = engine.verify, engine.foresee, engine.close

        async def noted(handle: Any, draft: Any, value: bytes) -> Any:
            if ("pass", draft.base) not in self.events:
                self.events.append(("pass", draft.base))
            if draft.base == hang_at:
                try:
                    await trio.sleep_forever()
                finally:
                    self.events.append(("given up", draft.base))
            return await verify(handle, draft, value)

        def foreseen(handle: Any, draft: Any) -> None:
            self.events.append(("pass", draft.base))
            foresee(handle, draft)

        async def closing(handle: Any) -> None:
            self.events.append(("close", 0))
            await close(handle)

        engine.verify, engine.foresee, engine.close = (  # type: ignore[method-assign]
            noted,
            foreseen,
            closing,
        )


async def serve(
    arena: Arena, plan: Plan, window: int, noted: Noted, hang_at: int = -1
) -> Outcome | None:
    """One request; None where the verifier gives it up in the pass at `hang_at`."""
    seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
    seats["verifier"].hook = noted
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    found: list[Outcome] = []
    async with trio.open_nursery() as nursery:
        role = await nursery.start(arena.verifier, seats["verifier"], target(), window)
        noted.watch(role, hang_at)
        await nursery.start(arena.drafter, seats["drafter"], close_draft())

        async def ask() -> None:
            async with arena.client(seats["client"]) as client:
                found.append(await client.generate(plan, ignore))
            nursery.cancel_scope.cancel()

        nursery.start_soon(ask)
        if hang_at >= 0:
            while ("pass", hang_at) not in noted.events or noted.commits < hang_at:
                await trio.sleep(0.01)
            (running,) = role.running.values()
            role._end(running, No.LEFT, "given up")
            running.scope.cancel()
            while ("close", 0) not in noted.events:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    return found[0] if found else None


def test_without_drafts_a_pass_begins_before_the_round_before_it_is_committed() -> None:
    arena, noted = Arena(seed=11), Noted()
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
    outcome = run_deterministically(11, serve, arena, plan, 0, noted)
    assert outcome is not None
    assert outcome.tokens == plain(plan, outcome)
    check_pay(arena, outcome)
    at = {event: place for place, event in enumerate(noted.events)}
    assert len(at) == len(noted.events) == 2 * TOKENS + 1  # each pass and commit once
    for number in range(TOKENS - 1):
        assert at["pass", number + 1] < at["commit", number]
        assert at["commit", number] < at["commit", number + 1]
        # Begun so many rounds ahead, and no earlier.
        last = number + FORESEEN + 1
        assert last >= TOKENS or at["commit", number] < at["pass", last]


def test_with_drafts_a_pass_waits_for_them() -> None:
    arena, noted = Arena(seed=12), Noted()
    plan = arena.plan(max_tokens=TOKENS, stop_ids=())
    outcome = run_deterministically(12, serve, arena, plan, 2, noted)
    assert outcome is not None
    assert outcome.tokens == plain(plan, outcome)
    commits = [place for place, (kind, _) in enumerate(noted.events) if kind == "commit"]
    for number, place in enumerate(commits[:-1]):
        drafted = outcome.sessions[0].rounds[number + 1].draft is not None
        assert (noted.events[place + 1][0] == "pass") is drafted


def test_a_session_that_ends_gives_up_its_pass_before_its_memory_goes() -> None:
    arena, noted = Arena(seed=13), Noted()
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
    assert run_deterministically(13, serve, arena, plan, 0, noted, 3) is None
    assert noted.events[-2:] == [("given up", 3), ("close", 0)]
    assert noted.commits == 3


def test_a_verifier_that_dies_with_a_pass_begun_loses_nothing(tmp_path: Path) -> None:
    def run(number: int | None) -> tuple[Outcome, Plan, CrashAt]:
        hook, arena = CrashAt(number), Arena(seed=14)
        folder = tmp_path / str(number)
        folder.mkdir()
        plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
        args = (arena, plan, folder, "verifier", hook, 0)
        return run_deterministically(14, serve_with_crash, *args), plan, hook

    _, _, clean = run(None)
    for number in range(0, clean.seen, 3):
        outcome, plan, hook = run(number)
        assert hook.seen > number, "the crash did not happen"
        assert outcome.tokens == plain(plan, outcome)
        assert len(outcome.tokens) == TOKENS
