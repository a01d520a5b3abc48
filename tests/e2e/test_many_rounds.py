"""Ten thousand signed rounds over a network that loses, repeats, reorders and truncates.

Nothing may change but time: the text is the target's own, the money is price times count to the
unit on all three sides, and nobody ever signs two different records for one place (which would
cost its stake: faults F1 and F2). Signatures are watched where they are made, not in the journal
that is supposed to keep them apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from arena import Arena, ignore
from engine_models import TableModel
from test_roles import close_draft, plain

from node.config import LimitConfig
from node.network.memory import LinkConditions, run_deterministically
from node.roles.client import Outcome
from node.roles.plan import Plan
from node.roles.ports import LaneView
from settlement.records import Domain, DraftCommit, Mode, Order, SessionStart, Verdict, Voucher

ROUNDS = 10_000
CLIENTS = 4
TOKENS = 240  # a request
VOCAB = 12
BAD = LinkConditions(
    latency=0.005, jitter=0.01, loss=0.02, duplicate=0.05, reorder=0.05, truncate=0.01, cut=0.002
)


def place(record: Any) -> tuple[Any, ...] | None:
    """Where a party may sign once only; None for records that have no such place."""
    if isinstance(record, DraftCommit):
        return record.start_hash, record.round, record.context_hash
    if isinstance(record, Verdict):
        return record.start_hash, record.round
    if isinstance(record, SessionStart):
        return (record.session_id,)
    if isinstance(record, Order):
        return record.client, record.nonce
    if isinstance(record, Voucher):
        return record.lane, record.epoch, record.base_root, record.leaf_count
    return None


@dataclass
class Signatures:
    """Every record signed by anybody, by who signed it and for which place."""

    signed: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    twice: list[tuple[Any, ...]] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        sign = Domain.sign

        def watched(domain: Domain, record: Any, key: bytes) -> bytes:
            self.note(record, key)
            return sign(domain, record, key)

        patch.setattr(Domain, "sign", watched)

    def note(self, record: Any, key: bytes) -> None:
        self.count[type(record).__name__] += 1
        where = place(record)
        if where is None:
            return
        slot = (key, type(record), *where)
        if self.signed.setdefault(slot, record.struct_hash) != record.struct_hash:
            self.twice.append(slot)


def plan_of(arena: Arena, client: int, tokens: int) -> Plan:
    """The first client's text is sampled, the others' is greedy (whose noise costs nothing) under a
    penalty that keeps it from running in circles."""
    if client == 0:
        return arena.plan(max_tokens=tokens, stop_ids=(), max_window=2)
    plan = arena.plan(max_tokens=tokens, stop_ids=(), max_window=2, mode=Mode.GREEDY, temperature=0)
    return replace(plan, template=replace(plan.template, frequency_penalty=1 << 14))


async def serve_many(
    arena: Arena, requests: int, tokens: int, plans: dict[bytes, Plan]
) -> list[Outcome]:
    """`requests` requests by each of several clients at once, settled after each one."""
    payees = {name: arena.seat(name) for name in ("drafter", "verifier")}
    arena.list_drafter(payees["drafter"])
    arena.list_verifier(payees["verifier"])
    target = TableModel(VOCAB, 1)
    target.context_length = tokens + 16
    outcomes: list[Outcome] = []

    async def client(number: int) -> None:
        async with arena.client(arena.seat(f"client-{number}")) as role:
            for _ in range(requests):
                plan = plan_of(arena, number, tokens)
                outcome = await role.generate(plan, ignore)
                plans[outcome.sessions[0].terms.start_hash] = plan
                outcomes.append(outcome)
                settle(arena, outcome)

    async with trio.open_nursery() as nursery:
        await nursery.start(arena.verifier, payees["verifier"], target, 1)
        await nursery.start(arena.drafter, payees["drafter"], close_draft())
        async with trio.open_nursery() as clients:
            for number in range(CLIENTS):
                clients.start_soon(client, number)
        nursery.cancel_scope.cancel()
    return outcomes


def settle(arena: Arena, outcome: Outcome) -> None:
    """The lane's last voucher reaches the chain, if all have signed it."""
    last = outcome.sessions[-1]
    if last.payment is None or not last.payment.complete:
        return
    voucher = last.payment.voucher
    arena.chain.views[voucher.lane] = LaneView(
        arena.chain.reserve,
        head_root=voucher.root,
        paid_drafter=voucher.due_drafter,
        paid_verifier=voucher.due_verifier,
    )


def check_money(arena: Arena, outcomes: list[Outcome]) -> None:
    """Each lane's newest voucher is worth exactly the rounds of its sessions."""
    lanes: dict[bytes, list[Outcome]] = {}
    for outcome in outcomes:
        for served in outcome.sessions:
            group = lanes.setdefault(served.terms.order.lane.id, [])
            if outcome not in group:
                group.append(outcome)
    for lane, group in lanes.items():
        served = [s for o in group for s in o.sessions if s.terms.order.lane.id == lane]
        output = sum(len(s.state.tokens) for s in served)
        accepted = sum(r.verdict.verdict.k for s in served for r in s.rounds)
        payments = [s.payment for s in served if s.payment is not None and s.payment.complete]
        newest = max((p.voucher for p in payments), key=lambda v: v.output)
        assert (newest.output, newest.accepted) == (output, accepted)
        assert newest.due_verifier == output * arena.prices.output
        assert newest.due_drafter == accepted * arena.prices.accepted


def run_many(
    requests: int, tokens: int, seed: int, patch: pytest.MonkeyPatch
) -> tuple[int, Signatures]:
    """(rounds done, signatures made) by that many requests of each client, every text and payment
    checked."""
    watched = Signatures()
    watched.watch(patch)
    # Patience for a run of bad luck on the line: nobody else could take over.
    limits = LimitConfig(round_seconds=1.0, resume_seconds=12.0)
    arena = Arena(seed=seed, line=BAD, limits=limits)
    plans: dict[bytes, Plan] = {}
    outcomes = run_deterministically(seed, serve_many, arena, requests, tokens, plans)
    assert len(outcomes) == CLIENTS * requests
    for outcome in outcomes:
        plan = plans[outcome.sessions[0].terms.start_hash]
        assert outcome.tokens == plain(plan, outcome)
        assert len(outcome.tokens) == tokens
    check_money(arena, outcomes)
    done = sum(len(s.rounds) for o in outcomes for s in o.sessions)
    fates = Counter(fate for *_, fate in arena.network.trace)
    for fate in ("lost", "truncated", "sent twice", "sent late"):
        assert fates[fate] >= done // 100, fates
    return done, watched


@pytest.mark.slow
def test_ten_thousand_rounds_over_a_bad_network(monkeypatch: pytest.MonkeyPatch) -> None:
    # A round commits one or two tokens; this drafter makes it 1.8.
    requests = -(-ROUNDS * 2 // (CLIENTS * TOKENS))
    rounds, signatures = run_many(requests, TOKENS, 17, monkeypatch)
    assert rounds >= ROUNDS
    assert signatures.twice == []
    assert signatures.count["Verdict"] >= ROUNDS
    assert signatures.count["DraftCommit"] >= ROUNDS * 9 // 10


def test_some_rounds_over_a_bad_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in small, for every change."""
    rounds, signatures = run_many(2, 24, 18, monkeypatch)
    assert rounds >= 100
    assert signatures.twice == []
