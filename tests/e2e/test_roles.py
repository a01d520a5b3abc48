"""The three roles together, in memory: text, payment, hand-over, restarts, hostile networks.

Signatures, hashes, journals and the engine are the real ones; the models are tables whose plain
decoding is known, so every run is compared with what the target alone would say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio
from arena import DOMAIN, Arena, Crash, Letters, Seat, ignore
from engine_models import TableModel

from node.inference.drafter import Step
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.scripted import ScriptedDrafter
from node.network.memory import LinkConditions, run_deterministically
from node.roles.client import Outcome
from node.roles.convert import stop_rules
from node.roles.plan import Plan
from node.roles.session import Terms
from settlement.records import Mode

VOCAB = 12


def target() -> TableModel:
    return TableModel(VOCAB, 1)


def close_draft() -> ModelDrafter:
    """A draft table that agrees with the target most of the time."""
    model = TableModel(VOCAB, 1)
    noise = TableModel(VOCAB, 2, spread=0.5)
    model.table = model.table + noise.table
    return ModelDrafter(model)


def plain(plan: Plan, outcome: Outcome) -> tuple[int, ...]:
    """What the target alone says under the order's own parameters and seed."""
    order = outcome.sessions[0].terms.order
    return tuple(
        decode_plain(
            target(),
            plan.prompt,
            SamplingParams.from_order(order),
            stop_rules(order, plan.stops),
            seed=outcome.sessions[0].terms.seed,
            token_bytes=Letters().token_bytes,
        ).tokens
    )


def check_pay(arena: Arena, outcome: Outcome) -> None:
    """The last voucher of the lane says what the rounds are worth, signed by all three."""
    last = outcome.sessions[-1]
    assert last.payment is not None
    assert last.payment.complete
    lane = last.terms.order.lane
    served = [s for s in outcome.sessions if s.terms.order.lane == lane]
    output = sum(len(s.state.tokens) for s in served)
    accepted = sum(r.verdict.verdict.k for s in served for r in s.rounds)
    voucher = last.payment.voucher
    assert (voucher.output, voucher.accepted) == (output, accepted)
    assert voucher.due_verifier == output * arena.prices.output
    assert voucher.due_drafter == accepted * arena.prices.accepted


async def serve_one(arena: Arena, plan: Plan, drafter=None, window: int = 3) -> Outcome:
    """One verifier, one drafter, one client, one request."""
    seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    async with trio.open_nursery() as nursery:
        await nursery.start(arena.verifier, seats["verifier"], target(), window)
        await nursery.start(arena.drafter, seats["drafter"], drafter or close_draft())
        async with arena.client(seats["client"]) as client:
            outcome = await client.generate(plan, ignore)
        nursery.cancel_scope.cancel()
    return outcome


@pytest.mark.parametrize("mode", [Mode.GREEDY, Mode.COUPLED, Mode.REJECTION])
@pytest.mark.parametrize("window", [0, 1, 4])
def test_a_request_is_served_paid_and_lossless(mode: Mode, window: int) -> None:
    arena = Arena(seed=7)
    temperature = 0 if mode == Mode.GREEDY else 1 << 16
    plan = arena.plan(mode=mode, temperature=temperature, first_k=window)
    outcome = run_deterministically(7, serve_one, arena, plan, None, window)
    assert len(outcome.sessions) == 1
    if mode != Mode.REJECTION:
        assert outcome.tokens == plain(plan, outcome)
    check_pay(arena, outcome)
    drafted = [len(r.draft.leaves) for r in outcome.sessions[0].rounds if r.draft]
    assert bool(drafted) == (window > 0)


@pytest.mark.parametrize("mode", [Mode.GREEDY, Mode.COUPLED])
def test_penalties_and_filters_of_a_request_reach_both_models(mode: Mode) -> None:
    """The text is that of plain decoding under them, another than without, and a draft that is
    the target itself is accepted throughout: so it was penalised alike."""
    temperature = 0 if mode == Mode.GREEDY else 1 << 16
    wish = {"mode": mode, "temperature": temperature, "max_tokens": 40, "stop_ids": ()}
    penalties = {
        "top_k": 6,
        "repetition_penalty": 3 << 15,
        "presence_penalty": 1 << 14,
        "frequency_penalty": 1 << 13,
    }
    texts = []
    for changes in ({}, penalties):
        arena = Arena(seed=7)
        plan = arena.plan(**wish, **changes)
        outcome = run_deterministically(7, serve_one, arena, plan, ModelDrafter(target()))
        assert outcome.tokens == plain(plan, outcome)
        rounds = [r for s in outcome.sessions for r in s.rounds if r.draft]
        assert all(r.verdict.verdict.k == len(r.draft.leaves) for r in rounds)
        texts.append(outcome.tokens)
    assert texts[0] != texts[1]


def test_a_relaxed_request_is_served_and_says_that_it_is_not_lossless() -> None:
    """More drafts are kept than in the strict session, and the text is another."""
    kept = {}
    for tau in (0, 2 << 24):
        arena = Arena(seed=7)
        keys = {"key_target_surprisal": 4 << 16, "key_draft_surprisal": 1 << 24}
        relaxed = {"relax_tau": tau, **keys, "key_overlap": 1 << 16} if tau else {}
        plan = arena.plan(max_tokens=40, stop_ids=(), **relaxed)
        outcome = run_deterministically(7, serve_one, arena, plan)
        assert (outcome.tokens == plain(plan, outcome)) == (tau == 0)
        assert outcome.sessions[0].terms.order.lossless == (tau == 0)
        check_pay(arena, outcome)
        kept[tau] = sum(r.verdict.verdict.k for s in outcome.sessions for r in s.rounds)
    assert kept[2 << 24] > kept[0]


def test_a_drafter_that_sends_random_tokens_changes_nothing_but_speed() -> None:
    arena = Arena(seed=3)
    plan = arena.plan(max_tokens=40, stop_ids=())
    number = arena.random
    noise = ScriptedDrafter(lambda seen, position: Step(number.randrange(VOCAB)))
    outcome = run_deterministically(3, serve_one, arena, plan, noise)
    assert outcome.tokens == plain(plan, outcome)
    assert len(outcome.tokens) == 40
    check_pay(arena, outcome)


def test_stop_strings_end_the_output_for_all_three() -> None:
    arena = Arena(seed=5)
    plan = arena.plan(max_tokens=60, stop_ids=(), stops=("hej", "jj"))
    outcome = run_deterministically(5, serve_one, arena, plan)
    text = "".join(chr(97 + t) for t in outcome.tokens)
    assert text.endswith(("hej", "jj"))
    assert outcome.tokens == plain(plan, outcome)


@pytest.mark.parametrize("seed", range(6))
def test_a_lossy_network_changes_nothing_but_time(seed: int) -> None:
    bad = LinkConditions(
        latency=0.01, jitter=0.02, loss=0.05, duplicate=0.1, reorder=0.1, truncate=0.02, cut=0.01
    )
    arena = Arena(seed=seed, line=bad)
    plan = arena.plan(max_tokens=48, stop_ids=())
    outcome = run_deterministically(seed, serve_one, arena, plan)
    assert outcome.tokens == plain(plan, outcome)
    assert len(outcome.tokens) == 48


class CrashAt:
    """Kills the process at the n-th side of a journal commit (even: before it, odd: after)."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.seen = 0
        self.dead = False  # until the journal is opened again: a killed process writes nothing

    def __call__(self, when: str, what: str) -> None:
        if self.dead:
            raise Crash("dead already")
        self.seen += 1
        if self.number is not None and self.seen == self.number + 1:
            self.dead = True
            raise Crash(f"{when} {what}")


async def serve_with_crash(
    arena: Arena, plan: Plan, folder: Path, crashing: str, hook: CrashAt, window: int = 3
):
    """One request while one party's process dies once and comes back from its journal."""
    seats = {
        name: arena.seat(name, folder / f"{name}.sqlite")
        for name in ("client", "drafter", "verifier")
    }
    seats[crashing].hook = hook
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    outcome = None
    async with trio.open_nursery() as nursery:
        await nursery.start(arena.keep, arena.verifier, seats["verifier"], target(), window)
        await nursery.start(arena.keep, arena.drafter, seats["drafter"], close_draft())
        while outcome is None:
            try:
                async with arena.client(seats["client"]) as client:
                    await client.recover(5.0)
                    outcome = await client.generate(plan, ignore)
            except* Crash:
                plan = replace(
                    plan,
                    template=replace(plan.template, request_id=arena.random.randbytes(32)),
                )
        nursery.cancel_scope.cancel()
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("crashing", ["client", "drafter", "verifier"])
@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.REJECTION])
def test_a_crash_around_any_journal_write_loses_nothing(
    crashing: str, mode: Mode, tmp_path: Path
) -> None:
    def run(number: int | None) -> tuple[Outcome, Arena, CrashAt]:
        hook, arena = CrashAt(number), Arena(seed=1)
        folder = tmp_path / str(number)
        folder.mkdir()
        plan = arena.plan(mode=mode, max_tokens=12, stop_ids=())
        outcome = run_deterministically(1, serve_with_crash, arena, plan, folder, crashing, hook)
        return outcome, arena, hook

    _, _, clean = run(None)
    assert clean.seen > 10
    for number in range(clean.seen):
        outcome, arena, hook = run(number)
        assert hook.seen > number, "the crash did not happen"
        plan = arena.plan(mode=mode, max_tokens=12, stop_ids=())
        if mode == Mode.COUPLED:
            assert outcome.tokens == plain(plan, outcome)
        assert len(outcome.tokens) == 12
        last = outcome.sessions[-1]
        assert last.payment is not None
        assert last.payment.complete


def test_another_drafter_goes_on_with_the_same_text() -> None:
    """The drafter is killed in mid-session; the client hands over and the text is the same."""
    arena = Arena(seed=2)
    plan = arena.plan(max_tokens=40, stop_ids=())

    async def main() -> Outcome:
        seats = {n: arena.seat(n) for n in ("client", "drafter", "second", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_drafter(seats["second"])
        arena.list_verifier(seats["verifier"])
        scopes: dict[bytes, trio.CancelScope] = {}

        async def doomed(seat: Seat, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as scope:
                scopes[seat.address] = scope
                await arena.drafter(seat, close_draft(), task_status=task_status)

        killed = []

        async def emit(event) -> None:
            if event["type"] == "round" and event["round"] == 3 and not killed:
                order = client.node.journal.sessions()[-1]
                drafter = Terms.from_wire(order.terms, DOMAIN).order.drafter
                killed.append(drafter)
                scopes[drafter].cancel()

        async with trio.open_nursery() as nursery:
            await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(doomed, seats["drafter"])
            await nursery.start(doomed, seats["second"])
            async with arena.client(seats["client"]) as client:
                outcome = await client.generate(plan, emit)
            nursery.cancel_scope.cancel()
        return outcome

    outcome = run_deterministically(2, main)
    first, second = outcome.sessions
    assert first.terms.order.drafter != second.terms.order.drafter
    assert first.terms.seed == second.terms.seed
    assert outcome.tokens == plain(plan, outcome)
    assert len(outcome.tokens) == 40
    check_pay(arena, outcome)
