"""One scene of the gallery: a dishonest party among honest ones, and what comes of it.

Everything is real but the chain, which is a table, and the models, which are tables too: records,
signatures, journals, the engine, the network's messages. An honest spare of the dishonest role is
there, so that a client who is let down can go on with another; it costs a little more, so the
dishonest one is asked first.

`fault` is what `settlement.faults` proves from the honest parties' own journals, the same proof
that FaultCourt takes (`courtroom` shows it to the contracts), or what a second run of the target or
of the draft model finds, which a panel judges (`panelroom`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import arena as lanes
import trio
from arena import Arena, InThread
from pairs import TABLES, Pair

from node.config import PriceConfig
from node.evidence import EvidenceRoom
from node.inference.fingerprint import distance
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from node.journal import StoredVoucher
from node.network.errors import NetworkError
from node.network.memory import run_deterministically
from node.network.messages import Role
from node.roles.client import ClientRole, Outcome
from node.roles.convert import stop_rules
from node.roles.drafter import DrafterRole
from node.roles.engines import WorkerDrafter, WorkerTarget
from node.roles.plan import ClientError, Party, Plan
from node.roles.ports import Node
from node.roles.redraft import redraft
from node.roles.rerun import Case, Difference, Findings, Tolerance, rerun
from node.roles.session import SessionFault
from node.roles.stored import Private, stored_round
from node.roles.verifier import VerifierRole
from settlement.draws import BatchEvidence
from settlement.fault_proofs import Fault
from settlement.faults import equivocations
from settlement.payments import Dues, cost, dues
from settlement.records import Lane, Mode, Voucher
from settlement.round_faults import round_faults

PATIENCE = 400.0  # simulated seconds


@dataclass(frozen=True)
class Row:
    """What the gallery says of an adversary.

    Attributes:
        caught: how; empty where it was not.
        outcome: refused (nobody serves or signs on), found (the evidence is complete; who rules
            on it is not on this stage), unprofitable (it earns less than honest work does), slashed
            (a court or a panel has ruled).
        fault: as protocol section 8 numbers it; empty where nothing is punishable.
        sessions: that were started.
        slashed, victim_recovered: stake units; zero where there is no vault (see `courtroom`).
        text_intact: what the client kept is the target's own text, or a panel has given it back
            what it paid for every round that is not.
        honest_slashed: honest parties that anything was proven against, or taken from.
        all_withdrew: at the end everybody took out all that was his, and the books came out even
            (`leaving`); None where no chain was there.
        withdrawn: token units that honest parties took out.
    """

    adversary: str
    role: str
    mode: str
    caught: str
    outcome: str
    fault: str
    sessions: int
    slashed: int
    victim_recovered: int
    text_intact: bool
    honest_slashed: int
    all_withdrew: bool | None = None
    withdrawn: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Rerun:
    """A served session beside honest runs of both models.

    Attributes:
        served: a `client.Served`; `case` the same as an auditor has it.
        findings: of the target's.
        drafts: of the draft model's; rejection mode only.
        sealed: by round, the salts and fingerprints that V has behind its leaves, as it opens them
            to who is drawn.
        batch: the client's evidence of the session's last voucher, if it has one.
        earlier: the lane's older vouchers with all signatures, and their evidence.
    """

    served: Any
    case: Case
    findings: Findings
    drafts: tuple[Difference, ...]
    sealed: list[Private]
    batch: BatchEvidence | None
    earlier: list[tuple[StoredVoucher, BatchEvidence]]

    @property
    def prints(self) -> list[bytes]:
        """V's fingerprints, a position each; none where it kept none."""
        return [print_ for done in self.sealed for print_ in done.fingerprints]


@dataclass
class Played:
    """A scene after it was played."""

    arena: Arena
    plan: Plan
    pair: Pair = TABLES
    nodes: dict[str, Node] = field(default_factory=dict)
    outcome: Outcome | None = None
    error: str = ""
    notes: list[str] = field(default_factory=list)
    seen: int = 0  # output tokens that reached the client
    proofs: tuple[Fault, ...] = ()  # one for each thing that FaultCourt punishes
    reruns: list[Rerun] = field(default_factory=list)
    mismatches: int = 0  # output tokens whose leaf is not what the target says
    redrafted: int = 0  # drafts that are not the registered model's, rejection mode
    farthest: int = 0  # of V's fingerprints from those of a second run
    stale: int = 0  # frames that the honest verifier dropped
    signed: int = 0  # output tokens that the client has signed for
    served_cost: int = 0  # what the client must hold for all that V has served, fee included

    @property
    def faults(self) -> set[tuple[int, bytes]]:
        """(number, guilty) of what is proven."""
        return {(proof.number, proof.guilty) for proof in self.proofs}

    @property
    def sessions(self) -> list[Any]:
        return self.outcome.sessions if self.outcome else []

    def refused(self) -> str:
        """The last reason that somebody gave for going no further."""
        return self.error or (self.notes[-1] if self.notes else "")

    def text_is_the_targets(self) -> bool:
        """Against the target alone, in strict modes; true where nothing was kept."""
        if self.outcome is None:
            return True
        terms = self.outcome.sessions[0].terms
        if terms.order.mode == Mode.REJECTION:
            return True
        alone = decode_plain(
            self.pair.target(),
            self.plan.prompt,
            SamplingParams.from_order(terms.order),
            stop_rules(terms.order, self.plan.stops),
            seed=terms.seed,
            token_bytes=self.pair.tokenizer().token_bytes,
        )
        return tuple(alone.tokens) == self.outcome.tokens

    def paid(self, name: str) -> int:
        """What the vouchers that all three signed owe that seat."""
        total = 0
        seat = self.nodes[name].address
        for served in self.sessions:
            order = served.terms.order
            payment = served.payment
            if payment is None or not payment.complete or seat not in order_parties(order):
                continue
            voucher = payment.voucher
            total = voucher.due_drafter if seat == order.drafter else voucher.due_verifier
        return total


def order_parties(order: Any) -> tuple[bytes, bytes]:
    return order.drafter, order.verifier


@dataclass(frozen=True)
class Scene:
    """Who is replaced by whom: `role` names the dishonest, "drafter and verifier" two. Models that
    are left out are the pair's honest ones."""

    name: str
    role: str
    mode: Mode = Mode.COUPLED
    pair: Pair = TABLES
    drafter: Callable[[], Any] | None = None
    drafter_role: type[DrafterRole] = DrafterRole
    target: Callable[[], Any] | None = None
    verifier_role: type[VerifierRole] = VerifierRole
    client_role: type[ClientRole] = ClientRole
    chain: Callable[[], Any] | None = None
    wishes: dict[str, Any] = field(default_factory=dict)
    requests: int = 1

    @property
    def crooked(self) -> tuple[str, ...]:
        """The dishonest seats."""
        return tuple(self.role.split(" and "))

    def play(self, seed: int = 5) -> Played:
        return run_deterministically(seed, _play, self, seed)


async def _play(scene: Scene, seed: int) -> Played:
    arena = Arena(seed=seed)
    if scene.chain is not None:
        arena.chain = scene.chain()
    pair = scene.pair
    wishes = {
        "max_tokens": 48,
        "stop_ids": (),
        "mode": scene.mode,
        "prompt": pair.prompt(),
        **scene.wishes,
    }
    played = Played(arena, arena.plan(**wishes), pair)
    target, drafter = (scene.target or pair.target)(), (scene.drafter or pair.drafter)()
    async with trio.open_nursery() as nursery:
        crooked_v, crooked_d = "verifier" in scene.crooked, "drafter" in scene.crooked
        await nursery.start(_verifier, played, "verifier", scene.verifier_role, target, crooked_v)
        await nursery.start(_drafter, played, "drafter", scene.drafter_role, drafter, crooked_d)
        if crooked_v:
            await nursery.start(
                _verifier, played, "spare verifier", VerifierRole, pair.target(), False
            )
        if crooked_d:
            await nursery.start(
                _drafter, played, "spare drafter", DrafterRole, pair.drafter(), False
            )
        async with _client(played, scene.client_role) as client:
            for number in range(scene.requests):
                if number:
                    played.plan = arena.plan(**wishes)
                await _generate(played, client)
            await trio.sleep(30)  # what was sent late is still read
            await _look(played, scene)
        nursery.cancel_scope.cancel()
    return played


async def _generate(played: Played, client: ClientRole) -> None:
    async def emit(event: Any) -> None:
        if event["type"] == "note":
            played.notes.append(event["note"])
        else:
            played.seen += len(event["tokens"])

    with trio.move_on_after(PATIENCE) as waited:
        try:
            played.outcome = await client.generate(played.plan, emit)
        except (ClientError, NetworkError, SessionFault) as error:
            played.error = str(error)
    if waited.cancelled_caught:
        played.error = "no end"


async def _verifier(
    played: Played,
    name: str,
    kind: type[VerifierRole],
    model: Any,
    cheap: bool,
    task_status: Any = trio.TASK_STATUS_IGNORED,
) -> None:
    arena = played.arena
    async with _node(played, name, cheap) as node:
        verifier = Verifier(model, played.pair.tokenizer(), max_tokens=1 << 12)
        engine = WorkerTarget(InThread(), verifier)  # type: ignore[arg-type]
        models = frozenset([lanes.TARGET])
        role = kind(node, engine, models, lambda order: FixedWindow(3), lambda *_: None)
        offer = arena.offer(Role.VERIFIER, node.prices.output)
        arena.verifiers.append(Party(node.address, offer))
        async with trio.open_nursery() as nursery:
            await nursery.start(role.run)
            task_status.started(role)


async def _drafter(
    played: Played,
    name: str,
    kind: type[DrafterRole],
    drafter: Any,
    cheap: bool,
    task_status: Any = trio.TASK_STATUS_IGNORED,
) -> None:
    arena = played.arena
    async with _node(played, name, cheap) as node:
        engine = WorkerDrafter(InThread(), drafter)  # type: ignore[arg-type]
        role = kind(node, engine, frozenset([lanes.DRAFT]), frozenset([lanes.TARGET]))
        offer = arena.offer(Role.DRAFTER, node.prices.accepted)
        arena.drafters.append(Party(node.address, offer))
        async with trio.open_nursery() as nursery:
            await nursery.start(role.run)
            task_status.started(role)


@asynccontextmanager
async def _node(played: Played, name: str, cheap: bool) -> Any:
    async with played.arena.node(played.arena.seat(name)) as node:
        if cheap:
            prices = played.arena.prices
            node.prices = PriceConfig(accepted=prices.accepted - 1, output=prices.output - 1)
        played.nodes[name] = node
        yield node


@asynccontextmanager
async def _client(played: Played, kind: type[ClientRole]) -> Any:
    async with _node(played, "client", False) as node:
        yield kind(node, _Directory(played.arena), played.pair.tokenizer().token_bytes)


class _Directory:
    """All that are listed."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def drafters(self, target_model: bytes) -> list[Party]:
        return list(self._arena.drafters)

    def verifiers(self, target_model: bytes) -> list[Party]:
        return list(self._arena.verifiers)


# ---------------------------------------------------------------- what is found


async def _look(played: Played, scene: Scene) -> None:
    """What the honest parties' journals prove, and what a second run of the target finds."""
    found = {
        proof.key: proof
        for name, node in played.nodes.items()
        if name not in scene.crooked
        for proof in proven(node)
    }
    played.proofs = tuple(found.values())
    for name, node in played.nodes.items():
        if "verifier" in name:
            played.stale += node.metrics.counters["stale_drafts"]
    played.served_cost = _served_cost(played)
    signed: dict[bytes, int] = {}
    for row in played.nodes["client"].journal.vouchers():
        signed[row.lane] = max(signed.get(row.lane, 0), Voucher.from_wire(row.voucher).output)
    played.signed = sum(signed.values())
    for served in played.sessions:
        if served.rounds:
            played.reruns.append(_rerun(played, served))
    for run in played.reruns:
        findings = run.findings
        played.mismatches += len({item.position for item in findings.mismatches})
        played.redrafted += len({item.position for item in run.drafts})
        for said, ran in zip(run.prints, findings.fingerprints, strict=False):
            played.farthest = max(played.farthest, distance(said, ran))


def _rerun(played: Played, served: Any) -> Rerun:
    pair, terms = played.pair, served.terms
    case = Case(terms.order, terms.seed, served.delivery, tuple(served.rounds))
    findings = rerun(pair.target(), case, Tolerance(), pair.tokenizer().token_bytes)
    rejection = terms.order.mode == Mode.REJECTION
    drafts = redraft(pair.drafter(), case) if rejection else ()
    node = next(n for n in played.nodes.values() if n.address == terms.order.verifier)
    rows = node.journal.rounds(terms.start_hash)[: len(served.rounds)]
    sealed = [Private.from_wire(row.private) for row in rows]
    room = EvidenceRoom(played.nodes["client"].journal, lanes.DOMAIN)
    batch = room.batch(served.payment.voucher.root) if served.payment else None
    earlier = _earlier(played, room, terms.order.lane)
    return Rerun(served, case, findings, drafts, sealed, batch, earlier)


def _earlier(
    played: Played, room: EvidenceRoom, lane: Lane
) -> list[tuple[StoredVoucher, BatchEvidence]]:
    rows = played.nodes["client"].journal.vouchers(lane.id)
    pairs = [(row, room.batch(Voucher.from_wire(row.voucher).root)) for row in rows[:-1]]
    return [
        (row, batch)
        for row, batch in pairs
        if batch is not None and row.client and row.verifier and row.drafter
    ]


def _served_cost(played: Played) -> int:
    journal, prices = played.nodes["verifier"].journal, played.arena.prices
    total = Dues()
    for session in journal.sessions():
        for row in journal.rounds(session.start_hash):
            verdict = stored_round(row.draft, row.verdict).verdict.verdict
            total += dues(verdict.emitted, verdict.k, prices.accepted, prices.output)
    return cost(total)


def proven(node: Node) -> list[Fault]:
    """Everything that this node kept and a contract can judge: what its watcher makes challenges of
    (node/watching.py)."""
    room = EvidenceRoom(node.journal, lanes.DOMAIN)
    out = []
    kept = [accusation for _, accusation in room.accusations()]
    for accusation in kept:
        here, before = accusation.evidence()
        held = room.round(here.verdict.start_hash, here.verdict.round)
        faults = list(round_faults(lanes.DOMAIN, here, before))
        if held is not None:
            faults += equivocations(lanes.DOMAIN, here, held)
        for other in kept:
            if other is not accusation:
                faults += equivocations(lanes.DOMAIN, here, other.evidence()[0])
        out += faults
    return out
