"""A request served on the in-memory network, its lane drawn, and auditors who look at it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio
from arena import TARGET, Arena, InThread, Letters, Seat, ignore
from engine_models import TableModel

from node.inference.model_drafter import ModelDrafter
from node.network.memory import run_deterministically
from node.roles.auditing import Auditor, DrawnLane
from node.roles.auditor import AuditorRole, Patience
from node.roles.client import Outcome
from node.roles.plan import Plan
from node.roles.ports import Node
from node.roles.records import RecordsService
from node.roles.rerun import Loaded, WorkerRerun
from settlement.records import Mode

VOCAB = 12
AUDITORS = ("auditor-1", "auditor-2", "auditor-3")
QUICK = Patience(grace=2.0, deliver=5.0, open=20.0, pause=0.5)


def target() -> TableModel:
    return TableModel(VOCAB, 1)


def loaded() -> Loaded:
    return Loaded(TARGET, target(), Letters().token_bytes)


def close_draft() -> ModelDrafter:
    model = TableModel(VOCAB, 1)
    model.table = model.table + TableModel(VOCAB, 2, spread=0.5).table
    return ModelDrafter(model)


@dataclass
class TableDraws:
    """The confirmed draws, filled in by the test."""

    held: list[DrawnLane] = field(default_factory=list)

    def lanes(self) -> list[DrawnLane]:
        return self.held


@dataclass
class Scene:
    """A served request whose lane is drawn, everybody still there."""

    arena: Arena
    draws: TableDraws
    seats: dict[str, Seat]
    nodes: dict[str, Node]
    auditors: list[AuditorRole]
    services: dict[str, RecordsService] = field(default_factory=dict)
    session_id: bytes = b""
    outcome: Outcome | None = None

    def views(self) -> list[dict[str, Any]]:
        """Every report of every auditor."""
        return [
            report
            for role in self.auditors
            for audit in role.view()
            for report in audit["sessions"]
        ]

    async def audited(self) -> list[dict[str, Any]]:
        for role in self.auditors:
            role.look()
        while not all(
            role.audits and all(a.done for a in role.audits.values()) for role in self.auditors
        ):
            await trio.sleep(0.5)
        return self.views()


def drawn_lane(arena: Arena, scene: Scene, lane: Any, root: bytes) -> DrawnLane:
    accounts = {
        scene.seats[name].address: Auditor(
            scene.seats[name].address,
            frozenset([scene.seats[name].address]),
            stake=100,
            models=frozenset([TARGET]),
        )
        for name in AUDITORS
    }
    until = int(arena.clock) + 3600
    return DrawnLane(1, 0, lane, root, b"\x05" * 32, 4, until, accounts)


async def play(
    arena: Arena,
    plan: Plan,
    act: Callable[[Scene], Any],
    *,
    model: Any = None,
    records: tuple[str, ...] = ("client", "drafter", "verifier"),
    auditors: tuple[str, ...] = AUDITORS,
) -> Any:
    """Serves the plan, draws its lane, starts the auditors, and gives the scene to `act`."""
    names = ("client", "drafter", "verifier", "stranger", *AUDITORS)
    scene = Scene(arena, TableDraws(), {n: arena.seat(n) for n in names}, {}, [])
    seats = scene.seats
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    async with trio.open_nursery() as nursery:
        for name, run, engine in (
            ("verifier", arena.verifier, model or target()),
            ("drafter", arena.drafter, close_draft()),
        ):
            role = await nursery.start(run, seats[name], engine)
            scene.nodes[name] = role.node
        for name in auditors:
            scene.auditors.append(await nursery.start(audit_on, scene, name))
        async with arena.node(seats["stranger"]) as stranger, arena.client(seats["client"]) as role:
            scene.nodes |= {"stranger": stranger, "client": role.node}
            for name in records:
                service = RecordsService(scene.nodes[name], scene.draws, commit_seconds=15.0)
                service.serve(salts=name == "verifier")
                scene.services[name] = service
            outcome = scene.outcome = await role.generate(plan, ignore)
            (served,) = outcome.sessions
            assert served.payment is not None
            scene.session_id = served.terms.order.session_id
            lane, root = served.terms.order.lane, served.payment.voucher.root
            scene.draws.held.append(drawn_lane(arena, scene, lane, root))
            result = await act(scene)
        nursery.cancel_scope.cancel()
    return result


def staged(seed: int, arena: Arena, plan: Plan, act: Callable[[Scene], Any], **how: Any) -> Any:
    """`play` on a clock of its own, the same in every run."""
    return run_deterministically(seed, functools.partial(play, **how), arena, plan, act)


async def audit_on(scene: Scene, name: str, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    async with scene.arena.node(scene.seats[name]) as node:
        scene.nodes[name] = node
        engine = WorkerRerun(InThread(), loaded)  # type: ignore
        role = AuditorRole(node, scene.draws, engine, patience=QUICK)
        async with trio.open_nursery() as nursery:
            await nursery.start(role.run)
            task_status.started(role)


async def audited(scene: Scene) -> list[dict[str, Any]]:
    return await scene.audited()


def greedy(arena: Arena, **changes: Any) -> Plan:
    return arena.plan(mode=Mode.GREEDY, temperature=0, max_tokens=24, stop_ids=(), **changes)
