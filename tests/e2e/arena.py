"""Roles on the in-memory network: real records, signatures, journals and engines, no sockets.

The chain is a table here; the same roles run against contracts in `test_devnet.py`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
import trio

from node.config import LimitConfig, PriceConfig
from node.inference.drafter import Drafter
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from node.journal import Journal
from node.network.memory import LinkConditions, MemoryNetwork
from node.network.messages import BOUNDS, Offer, Role
from node.roles.client import ClientRole
from node.roles.drafter import DrafterRole
from node.roles.engines import WorkerDrafter, WorkerTarget
from node.roles.offchain import TableChain
from node.roles.plan import Party, Plan, plan_for
from node.roles.ports import Node
from node.roles.running import WindowPolicy
from node.roles.verifier import VerifierRole
from settlement.records import Domain, Mode
from settlement.signing import address_of_key

DOMAIN = Domain(31337, b"\x0e" * 20)
TOKEN = b"\x70" * 20
TARGET = b"\x11" * 32
DRAFT = b"\x12" * 32
VOCAB = 12


class Crash(BaseException):
    """A process dies here. Not an Exception: nothing in a role may survive it."""


class Letters:
    """A tokenizer for table models: token 0 is "a", 1 is "b", and so on."""

    def token_bytes(self, token: int) -> bytes:
        return bytes([97 + token])


class InThread:
    """A worker that runs in the event loop's own thread, so that a run replays from its seed."""

    def __init__(self) -> None:
        # By session and base: requests named ahead, and outcomes of those whose pass is over.
        self._foreseen: dict[tuple[int, int], Any] = {}
        self._over: dict[tuple[int, int], Any] = {}

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args, **kwargs)

    finish = call

    async def open(self, verifier: Verifier, *args: Any, last: int = 0, **kwargs: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return verifier.open(*args, **kwargs)

    async def verify(self, verifier: Verifier, session: Any, request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        outcome = self._over.pop((id(session), request.draft.base), None)
        if outcome is None:
            outcome = verifier.verify(session, request)
        after = self._foreseen.pop((id(session), session.position), None)
        if after is not None and not session.ended:
            self.foresee(verifier, session, after)
        return outcome

    def foresee(self, verifier: Verifier, session: Any, request: Any) -> None:
        """Runs the pass at once, or as soon as the session has come so far."""
        at = (id(session), request.draft.base)
        if session.ended:
            return
        if request.draft.base == session.position:
            self._over[at] = verifier.verify(session, request)
        else:
            self._foreseen[at] = request

    def forget(self, session: Any) -> None:
        for table in (self._foreseen, self._over):
            for key in [key for key in table if key[0] == id(session)]:
                del table[key]

    async def propose(self, session: Any, k: int, coin: Any = None, owed: Any = ()) -> Any:
        await trio.lowlevel.checkpoint()
        if owed:
            session.commit(owed)
        return session.propose(k, coin)

    async def draft_ahead(self, session: Any, n: int) -> int:
        await trio.lowlevel.checkpoint()
        return int(session.draft_ahead(n))


@dataclass
class Seat:
    """One operator: its key, its journal's place, and how to make its role again after a crash."""

    name: str
    key: bytes
    journal: Path | str = ":memory:"
    hook: Any = None  # called around every commit; its `dead` is cleared by a restart

    @property
    def address(self) -> bytes:
        return address_of_key(self.key)


@dataclass
class Arena:
    """A network of seats. `start` puts a role on a seat; leaving its scope is a kill."""

    seed: int = 0
    line: LinkConditions = field(default_factory=LinkConditions)
    limits: LimitConfig = field(
        default_factory=lambda: LimitConfig(round_seconds=3.0, resume_seconds=6.0)
    )
    clock: float = 1_800_000_000.0
    chain: TableChain = field(default_factory=lambda: TableChain(token=TOKEN))
    verifiers: list[Party] = field(default_factory=list)
    drafters: list[Party] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = MemoryNetwork(self.seed, self.line)
        self.random = random.Random(f"arena/{self.seed}")
        self.prices = PriceConfig(accepted=3, output=11)

    def seat(self, name: str, journal: Path | str = ":memory:") -> Seat:
        return Seat(name, random.Random(f"key/{name}").randbytes(32), journal)

    @asynccontextmanager
    async def node(self, seat: Seat) -> AsyncIterator[Node]:
        """The seat's node on the network; cancelling the block is `kill -9`."""
        async with self.network.join(seat.address, BOUNDS) as transport:
            if seat.hook is not None:
                seat.hook.dead = False
            journal = Journal(seat.journal, durability="normal", hook=seat.hook)
            try:
                yield Node(
                    address=seat.address,
                    key=seat.key,
                    domain=DOMAIN,
                    journal=journal,
                    transport=transport,
                    chain=self.chain,
                    limits=self.limits,
                    prices=self.prices,
                    clock=lambda: self.clock + trio.current_time(),
                    entropy=self.random.randbytes,
                    log=structlog.get_logger(seat=seat.name),
                    token=TOKEN,
                )
            finally:
                journal.close()

    def offer(self, role: Role, price: int) -> Offer:
        return Offer(int(role), TARGET, price, TOKEN, bytes(32), None, DRAFT)

    def list_drafter(self, seat: Seat) -> None:
        self.drafters.append(Party(seat.address, self.offer(Role.DRAFTER, self.prices.accepted)))

    def list_verifier(self, seat: Seat) -> None:
        self.verifiers.append(Party(seat.address, self.offer(Role.VERIFIER, self.prices.output)))

    async def verifier(
        self,
        seat: Seat,
        model: Any,
        window: int | WindowPolicy = 3,
        task_status: trio.TaskStatus[VerifierRole] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Runs a verifier on the seat until cancelled."""
        async with self.node(seat) as node:
            verifier = Verifier(model, Letters())  # type: ignore[arg-type]
            engine = WorkerTarget(InThread(), verifier)  # type: ignore[arg-type]
            role = VerifierRole(
                node,
                engine,
                frozenset([TARGET]),
                lambda order: FixedWindow(window) if isinstance(window, int) else window,
                lambda order, delivery: None,
            )
            async with trio.open_nursery() as nursery:
                await nursery.start(role.run)
                task_status.started(role)

    async def drafter(
        self,
        seat: Seat,
        drafter: Drafter,
        task_status: trio.TaskStatus[DrafterRole] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Runs a drafter on the seat until cancelled."""
        async with self.node(seat) as node:
            engine = WorkerDrafter(InThread(), drafter)  # type: ignore[arg-type]
            role = DrafterRole(node, engine, frozenset([DRAFT]), frozenset([TARGET]))
            async with trio.open_nursery() as nursery:
                await nursery.start(role.run)
                task_status.started(role)

    async def keep(
        self, run: Callable[..., Any], *args: Any, task_status: Any = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Runs a role like a supervisor: after a crash it starts again from its journal."""
        told = False
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(run, *args)
                    if not told:
                        told = True
                        task_status.started()
            except BaseExceptionGroup as group:
                if group.subgroup(Crash) is None:
                    raise
            await trio.sleep(0.05)

    @asynccontextmanager
    async def client(self, seat: Seat) -> AsyncIterator[ClientRole]:
        async with self.node(seat) as node:
            directory = _Listed(self)
            yield ClientRole(node, directory, Letters().token_bytes)

    def plan(self, **changes: Any) -> Plan:
        values: dict[str, Any] = {
            "request_id": self.random.randbytes(32),
            "salt": self.random.randbytes(32),
            "client": bytes(20),
            "token": TOKEN,
            "target_model": TARGET,
            "prompt": (1, 2, 3),
            "stops": (),
            "stop_ids": (0,),
            "template_hash": bytes(32),
            "mode": Mode.COUPLED,
            "temperature": 1 << 16,
            "top_k": 0,
            "top_p": 1 << 16,
            "max_tokens": 32,
            "max_window": 8,
            "deadline": int(self.clock + 3000),
        }
        return plan_for(**(values | changes))


@dataclass
class _Listed:
    arena: Arena

    def drafters(self, target_model: bytes) -> list[Party]:
        return list(self.arena.drafters)

    def verifiers(self, target_model: bytes) -> list[Party]:
        return list(self.arena.verifiers)


async def ignore(event: Any) -> None:
    """An emitter for tests that look at the outcome only."""
