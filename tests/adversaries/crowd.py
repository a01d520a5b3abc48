"""Honest operators among honest and hostile clients at once, over links that lose, cut, repeat and
reorder: what anybody could prove against whom afterwards, and whether the honest got their due.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

import cast_clients as hostile
import trio
from arena import DRAFT, TARGET, Arena, InThread, ignore
from pairs import TABLES, TINY_PAIR
from stage import proven
from test_many_rounds import BAD, check_money, place
from test_many_rounds import settle as settle_on_chain

from node.config import LimitConfig
from node.inference.params import SamplingParams
from node.inference.plain import compare, decode_plain
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from node.network.errors import NetworkError
from node.network.memory import run_deterministically
from node.roles.client import ClientRole
from node.roles.convert import stop_rules
from node.roles.drafter import DrafterRole
from node.roles.engines import WorkerDrafter, WorkerTarget
from node.roles.plan import ClientError
from node.roles.session import SessionFault
from node.roles.verifier import VerifierRole
from settlement.records import Domain, Mode

Row = dict[str, Any]


@dataclass
class Watch:
    """Every signature that is made, by who made it and for which place. `twice`: by the keys of
    `honest`, for one place and two different records."""

    honest: frozenset[bytes]
    signed: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    twice: int = 0
    count: Counter[str] = field(default_factory=Counter)

    def note(self, record: Any, key: bytes) -> None:
        self.count[type(record).__name__] += 1
        where = place(record)
        if where is not None and key in self.honest:
            slot = (key, type(record), *where)
            held = self.signed.setdefault(slot, record.struct_hash)
            self.twice += held != record.struct_hash


REQUESTS: Final = 3  # of each client in a run
HONEST_CLIENTS: Final = 2
# Two of each: who has let a client down, or a bad link has, is not asked again for a while.
DRAFTERS, VERIFIERS = ("drafter-1", "drafter-2"), ("verifier-1", "verifier-2")


def run_of_sessions(number: int, kind: str, requests: int = REQUESTS) -> Row:
    """One run: two honest clients and five hostile ones, `requests` requests each."""
    limits = LimitConfig(round_seconds=1.0, resume_seconds=6.0)
    arena = Arena(seed=number, line=BAD, limits=limits)
    seats = (*DRAFTERS, *VERIFIERS, *(f"client-{index}" for index in range(HONEST_CLIENTS)))
    watch, sign = Watch(frozenset(arena.seat(name).key for name in seats)), Domain.sign

    def watched(domain: Domain, record: Any, key: bytes) -> bytes:
        watch.note(record, key)
        return sign(domain, record, key)

    Domain.sign = watched  # type: ignore[method-assign]
    try:
        row: Row = run_deterministically(number, _served, arena, kind, requests)
    finally:
        Domain.sign = sign  # type: ignore[method-assign]
    signed = {name: watch.count[name] for name in ("Verdict", "DraftCommit", "Voucher")}
    return {"kind": kind, "number": number, **row, "signed": signed, "twice": watch.twice}


async def _served(arena: Arena, kind: str, requests: int) -> Row:
    pair, tokens = (TINY_PAIR, 24) if kind == "sessions" else (TABLES, 120)
    names = ("NeverSigns", "SignsOnce", "ForgedSeed", "ReusedNonce", "SeedGrinding")
    roles = [ClientRole] * HONEST_CLIENTS + [getattr(hostile, name) for name in names]
    payees = {name: arena.seat(name) for name in (*DRAFTERS, *VERIFIERS)}
    for drafter, verifier in zip(DRAFTERS, VERIFIERS, strict=True):
        arena.list_drafter(payees[drafter])
        arena.list_verifier(payees[verifier])
    outcomes: list[tuple[Any, Any]] = []
    ended: Counter[str] = Counter()
    lost: list[str] = []
    nodes: dict[str, Any] = {}
    tokenizer = pair.tokenizer()

    async def client(index: int, role_kind: Any) -> None:
        async with arena.node(arena.seat(f"client-{index}")) as node:
            nodes[f"client-{index}"] = node
            role = role_kind(node, _Listed(arena), tokenizer.token_bytes)
            honest = role_kind is ClientRole
            for request in range(requests):
                mode = (Mode.COUPLED, Mode.GREEDY, Mode.REJECTION)[(index + request) % 3]
                plan = arena.plan(
                    prompt=pair.prompt(),
                    max_tokens=tokens,
                    stop_ids=(),
                    mode=mode,
                    temperature=0 if mode == Mode.GREEDY else 1 << 16,
                )
                try:
                    with trio.move_on_after(400):
                        outcome = await role.generate(plan, ignore)
                        ended["finished"] += 1
                        if honest:
                            outcomes.append((plan, outcome))
                            settle_on_chain(arena, outcome)
                        continue
                    ended["timed out"] += 1
                except (ClientError, NetworkError, SessionFault) as error:
                    ended["refused"] += 1
                    if honest:
                        lost.append(str(error))
            await all_done.wait()

    all_done = trio.Event()
    async with trio.open_nursery() as nursery:
        for drafter, verifier in zip(DRAFTERS, VERIFIERS, strict=True):
            nodes[verifier] = await nursery.start(_verifier, arena, payees[verifier], pair)
            nodes[drafter] = await nursery.start(_drafter, arena, payees[drafter], pair)
        async with trio.open_nursery() as clients:
            for index, role_kind in enumerate(roles):
                clients.start_soon(client, index, role_kind)
            await _quiet(ended, requests * len(roles))
            honest_seats = [seat.address for seat in payees.values()]
            honest_seats += [nodes[f"client-{i}"].address for i in range(HONEST_CLIENTS)]
            proofs = [proof for node in nodes.values() for proof in proven(node)]
            sessions = [
                (nodes[name], session.start_hash)
                for name in VERIFIERS
                for session in nodes[name].journal.sessions()
            ]
            rounds = sum(len(node.journal.rounds(start)) for node, start in sessions)
            all_done.set()
        nursery.cancel_scope.cancel()
    check_money(arena, [outcome for _plan, outcome in outcomes])
    wrong = sum(not _is_the_targets(pair, plan, outcome) for plan, outcome in outcomes)
    return {
        "requests": requests * len(roles),
        "sessions": len(sessions),
        "rounds": rounds,
        "ended": dict(ended),
        "honest_answered": len(outcomes),
        "honest_asked": requests * HONEST_CLIENTS,
        "against_honest": sum(proof.guilty in honest_seats for proof in proofs),
        "against_hostile": sum(proof.guilty not in honest_seats for proof in proofs),
        "wrong_texts": wrong,
        "lost": lost,
    }


async def _quiet(ended: Counter[str], wanted: int) -> None:
    while sum(ended.values()) < wanted:
        await trio.sleep(1)
    await trio.sleep(30)  # what was sent late is still read


@dataclass
class _Listed:
    arena: Arena

    def drafters(self, target_model: bytes) -> list[Any]:
        return list(self.arena.drafters)

    def verifiers(self, target_model: bytes) -> list[Any]:
        return list(self.arena.verifiers)


async def _verifier(arena: Arena, seat: Any, pair: Any, task_status: Any) -> None:
    async with arena.node(seat) as node:
        # In rejection mode the announced window must come. A drafter notices that its frame was
        # lost when it has waited for a verdict as long as V would wait for the frame.
        patience = 2.5 * node.limits.round_seconds
        node.limits = replace(node.limits, round_seconds=patience)
        verifier = Verifier(pair.target(), pair.tokenizer(), max_tokens=1 << 13)
        engine = WorkerTarget(InThread(), verifier)  # type: ignore[arg-type]
        role = VerifierRole(
            node, engine, frozenset([TARGET]), lambda order: FixedWindow(2), lambda *_: None
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(role.run)
            task_status.started(node)


async def _drafter(arena: Arena, seat: Any, pair: Any, task_status: Any) -> None:
    async with arena.node(seat) as node:
        engine = WorkerDrafter(InThread(), pair.drafter())  # type: ignore[arg-type]
        role = DrafterRole(node, engine, frozenset([DRAFT]), frozenset([TARGET]))
        async with trio.open_nursery() as nursery:
            await nursery.start(role.run)
            task_status.started(node)


def _is_the_targets(pair: Any, plan: Any, outcome: Any) -> bool:
    """Against the target alone, up to a near-tie; rejection mode's text is random."""
    terms = outcome.sessions[0].terms
    if terms.order.mode == Mode.REJECTION:
        return True
    alone = decode_plain(
        pair.target(),
        plan.prompt,
        SamplingParams.from_order(terms.order),
        stop_rules(terms.order, plan.stops),
        seed=terms.seed,
        token_bytes=pair.tokenizer().token_bytes,
    )
    return compare(outcome.tokens, alone).lossless
