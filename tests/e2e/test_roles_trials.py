"""Windows that are asked for only to learn what a drafter would be worth: nobody waits for them,
and what they teach is what the text says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from arena import DRAFT, Arena, ignore
from test_roles import CrashAt, check_pay, close_draft, plain, serve_with_crash, target

from node.inference.window import Round
from node.network import exchange
from node.network.exchange import MessageChannel
from node.network.memory import run_deterministically
from node.network.messages import DraftRound, Kind, Resume, Role, VerdictRound
from node.roles.client import Outcome
from node.roles.frames import VerdictFrame
from node.roles.plan import Party, Plan
from node.roles.running import TRIAL_SECONDS, compared
from node.roles.verdict_lines import HELD_SECONDS, TOGETHER
from node.roles.verifier import VerifierRole
from settlement.hashing import ZERO32
from settlement.records import Mode

TOKENS = 24


@dataclass
class Trying:
    """Asks for two drafts whenever it may, and waits for none."""

    k: int = 2
    trying: bool = True
    observed: list[Round] = field(default_factory=list)
    compared: list[Round] = field(default_factory=list)

    def choose(self, remaining: int | None = None) -> int:
        return self.k

    def observe(self, done: Round) -> None:
        self.observed.append(done)

    def compare(self, done: Round) -> None:
        self.compared.append(done)


async def serve(
    monkeypatch: pytest.MonkeyPatch,
    arena: Arena,
    plan: Plan,
    policy: Trying,
    slow: float = 0.0,
    pause: float = 0.01,
    spying: bool = False,
) -> tuple[Outcome, VerifierRole, list[tuple[str, int]]]:
    """One request; passes take `pause`, drafts `slow` seconds. What went over the line between
    drafter and verifier, in order: ("round", number), ("draft", round)."""
    seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    seen: list[tuple[str, int]] = []
    send = MessageChannel.send

    async def sending(self: MessageChannel, message: Any) -> None:
        if isinstance(message, VerdictRound):
            seen.append(("round", VerdictFrame.from_wire(message.frame).verdict.round))
        elif isinstance(message, DraftRound):
            seen.append(("draft", message.round))
        await send(self, message)

    monkeypatch.setattr(MessageChannel, "send", sending)
    async with trio.open_nursery() as nursery:
        role = await nursery.start(arena.verifier, seats["verifier"], target(), policy)
        drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
        verify, propose = role.engine.verify, drafter.engine.propose

        async def passing(handle: Any, draft: Any, value: bytes) -> Any:
            await trio.sleep(pause)
            return await verify(handle, draft, value)

        async def drafting(handle: Any, k: int, coin: Any) -> Any:
            await trio.sleep(slow)
            if spying:
                (session_id,) = drafter.sessions
                where, transport = seats["verifier"].address, drafter.node.transport
                ask = Resume(session_id, 0)
                await exchange.ask(transport, where, Kind.RESUME, ask, deadline=1)
            return await propose(handle, k, coin)

        role.engine.verify, drafter.engine.propose = passing, drafting
        async with arena.client(seats["client"]) as client:
            outcome = await client.generate(plan, ignore)
        nursery.cancel_scope.cancel()
    return outcome, role, seen


@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.GREEDY])
@pytest.mark.parametrize("slow", [0.0, 0.055])
def test_nobody_waits_for_a_trial_and_it_is_judged_by_the_text(
    mode: Mode, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, policy = Arena(seed=21), Trying()
    heat = {} if mode == Mode.COUPLED else {"temperature": 0}
    plan = arena.plan(mode=mode, max_tokens=TOKENS, stop_ids=(), first_k=0, **heat)
    outcome, _, seen = run_deterministically(21, serve, monkeypatch, arena, plan, policy, slow)
    assert outcome.tokens == plain(plan, outcome)
    check_pay(arena, outcome)
    rounds = outcome.sessions[0].rounds
    assert len(rounds) == TOKENS
    assert all(done.draft is None for done in rounds)
    assert {done.asked for done in policy.observed} == {0}
    # As many as fit one after the other, each compared with what was then emitted.
    asked = [done.verdict.verdict.round + 1 for done in rounds if done.verdict.verdict.next_k]
    assert len(policy.compared) in (len(asked), len(asked) - 1)
    assert len(policy.compared) >= 2
    drafted = [base for what, base in seen if what == "draft"]
    assert drafted[: len(asked)] == asked[: len(drafted)]
    assert {done.drafts for done in policy.compared} <= {1, 2}
    assert sum(done.accepted for done in policy.compared) > 0
    for done in policy.compared:
        assert done.rejected == (done.accepted < done.drafts)
    # The drafter had not been shown what it was to guess.
    for before, here in itertools.pairwise(seen):
        if here[0] == "draft":
            assert before == ("round", here[1] - 1)


def test_a_trial_that_is_not_answered_in_time_counts_as_no_guess_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arena, policy = Arena(seed=22), Trying()
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
    slow = TRIAL_SECONDS + 0.2
    args = (monkeypatch, arena, plan, policy, slow, 0.1)
    outcome, role, seen = run_deterministically(22, serve, *args)
    assert outcome.tokens == plain(plan, outcome)
    assert role.node.metrics.counters["late_drafts"] >= 1
    assert policy.compared
    assert {(done.drafts, done.accepted, done.asked) for done in policy.compared} == {(0, 0, 1)}
    # It was in the middle of a draft when the session ended, and took up the line once more.
    assert {number for what, number in seen if what == "round"} == set(range(TOKENS))


def test_a_drafter_that_asks_how_far_the_text_is_has_its_trial_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arena, policy = Arena(seed=26), Trying()
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
    args = (monkeypatch, arena, plan, policy, 0.035, 0.01, True)
    outcome, _, _ = run_deterministically(26, serve, *args)
    assert outcome.tokens == plain(plan, outcome)
    assert {done.drafts for done in policy.compared} == {0}


def test_in_relaxed_mode_there_are_no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    arena, policy = Arena(seed=27), Trying()
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0, relax_tau=6000)
    outcome, _, _ = run_deterministically(27, serve, monkeypatch, arena, plan, policy)
    assert len(outcome.tokens) == TOKENS
    assert policy.compared == []
    assert any(done.draft is not None for done in outcome.sessions[0].rounds)


def test_a_wrong_guess_is_told_from_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arena, policy = Arena(seed=23), Trying(k=3)
    plan = arena.plan(max_tokens=60, stop_ids=(), first_k=0)
    outcome, _, _ = run_deterministically(23, serve, monkeypatch, arena, plan, policy)
    text = outcome.tokens
    assert text == plain(plan, outcome)
    right = sum(done.accepted for done in policy.compared)
    wrong = sum(done.rejected for done in policy.compared)
    assert right > 0
    assert wrong > 0


def test_what_a_drafter_says_it_read_right_behind_a_window_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arena, policy = Arena(seed=28), Trying(trying=False)
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
    send = MessageChannel.send

    async def lying(self: MessageChannel, message: Any) -> None:
        if isinstance(message, DraftRound):
            message = replace(message, microseconds=0, reading=10_000_000)
        await send(self, message)

    monkeypatch.setattr(MessageChannel, "send", lying)
    outcome, _, _ = run_deterministically(28, serve, monkeypatch, arena, plan, policy)
    assert outcome.tokens == plain(plan, outcome)
    behind = [done for done in policy.observed if done.drafts][1:]
    assert len(behind) > 3
    assert all(done.network_seconds > 0 for done in behind)
    assert {done.reading_seconds for done in behind} == {0.0}


def test_at_one_price_a_drafter_with_a_model_comes_before_one_that_looks_up() -> None:
    async def main() -> None:
        arena = Arena(seed=29)
        seats = {name: arena.seat(name) for name in ("client", "a", "b", "c", "verifier")}
        arena.list_verifier(seats["verifier"])
        for name, price, model in (("a", 3, ZERO32), ("b", 3, DRAFT), ("c", 2, ZERO32)):
            offer = replace(arena.offer(Role.DRAFTER, price), draft_model_id=model)
            arena.drafters.append(Party(seats[name].address, offer))
        async with arena.client(seats["client"]) as client:
            for _ in range(8):
                found = [d.operator for d, _ in client._pairs(arena.plan())]
                assert found == [seats[name].address for name in "cba"]

    run_deterministically(29, main)


@pytest.mark.slow
@pytest.mark.parametrize("crashing", ["drafter", "verifier"])
def test_a_crash_during_trials_loses_nothing(crashing: str, tmp_path: Path) -> None:
    def run(number: int | None) -> tuple[Outcome, Plan, CrashAt]:
        hook, arena = CrashAt(number), Arena(seed=24)
        folder = tmp_path / str(number)
        folder.mkdir()
        plan = arena.plan(max_tokens=12, stop_ids=(), first_k=0)
        args = (arena, plan, folder, crashing, hook, Trying())
        return run_deterministically(24, serve_with_crash, *args), plan, hook

    _, _, clean = run(None)
    for number in range(0, clean.seen, 2):
        outcome, plan, hook = run(number)
        assert hook.seen > number, "the crash did not happen"
        assert outcome.tokens == plain(plan, outcome)
        assert len(outcome.tokens) == 12


def coming(slow: Sequence[int] = ()) -> list[float]:
    """When each of `TOKENS` rounds that nobody acts on came to the client: seconds from the first.
    Their passes take a quarter of what a round is held for; four times as long where `slow`."""
    arena, policy = Arena(seed=25), Trying(k=0, trying=False)
    plan = arena.plan(max_tokens=TOKENS, stop_ids=(), first_k=0)
    came: list[float] = []

    async def ask() -> Outcome:
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])

        async def note(event: Any) -> None:
            if event["type"] == "round":
                came.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            role = await nursery.start(arena.verifier, seats["verifier"], target(), policy)
            verify = role.engine.verify

            async def passing(handle: Any, draft: Any, value: bytes) -> Any:
                await trio.sleep((4 if draft.base in slow else 0.25) * HELD_SECONDS)
                return await verify(handle, draft, value)

            role.engine.verify = passing
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                outcome = await client.generate(plan, note)
            nursery.cancel_scope.cancel()
        return outcome

    outcome = run_deterministically(25, ask)
    assert outcome.tokens == plain(plan, outcome)
    assert len(came) == TOKENS
    return [at - came[0] for at in came]


def test_rounds_that_nobody_acts_on_come_together() -> None:
    came = coming()
    times = sorted(set(came))
    sizes = [came.count(at) for at in times]
    assert sizes[0] == 1  # the first comes at once
    assert max(sizes) == TOGETHER
    assert len(times) <= 2 + -(-(TOKENS - 1) // (TOGETHER - 1))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert max(gaps) <= TOGETHER * HELD_SECONDS


def test_rounds_wait_for_no_other_that_is_long_in_coming() -> None:
    slow = 5
    came = coming([slow])
    # The four behind the first are there after a quarter each, and then held once.
    assert came[slow - 1] <= (4 * 0.25 + 1.1) * HELD_SECONDS
    assert came[slow] >= came[slow - 1] + 2 * HELD_SECONDS


@pytest.mark.parametrize(
    ("tokens", "text", "want"),
    [
        ([1, 2], [1, 2, 3], (2, False)),
        ([1, 2], [1, 5], (1, True)),
        ([1, 2], [4], (0, True)),
        ([1, 2], [1], (1, False)),
        ([1, 2], [], (0, False)),
        ([], [1], (0, False)),
    ],
)
def test_drafts_are_right_up_to_the_first_that_the_text_does_not_say(
    tokens: list[int], text: list[int], want: tuple[int, bool]
) -> None:
    assert compared(tokens, text) == want
