"""Tickets on the in-memory network: auditors seal what falls to them and canaries among it, give it
to who is drawn, and answer for what others have sealed. The chain's events are made up; what
becomes of tickets and answers on a chain is `test_ticket_processes.py`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from arena import TARGET, Arena, InThread
from audit_scene import AUDITORS, Scene, loaded, staged

from node.network.errors import Refused
from node.network.messages import Kind, ParcelPage, ParcelRequest
from node.roles import tickets
from node.roles.delivery import Undelivered
from node.roles.frames import FrameError
from node.roles.juror import JurorRole, JuryBoard
from node.roles.lines import ask
from node.roles.parcels import Parcel, text_of
from node.roles.refusals import No
from node.roles.rerun import Tolerance, WorkerRerun
from node.roles.sealing_tickets import TICKET, Clerk, ticket_of
from node.roles.stored import Private, stored_round
from node.roles.suspicions import Suspicion, answer_name, sealed_of
from node.roles.tickets import TRIES, CanaryReader, TicketRole, parcel_name
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import TicketKind
from settlement.chain.panel_events import (
    CanaryOpened,
    CanaryReferred,
    CaseFiled,
    JurySeated,
    JurySummoned,
    TicketEntered,
)
from settlement.panels import Answer, Measure, passes
from settlement.records import Mode, Tier
from settlement.ticket_watch import Ticket

AUDITS, UNTIL, SPAN = b"\x33" * 20, 1_000, 60
TERMS = (10, 3, 500, 5_000, 500, 400, 5_000, 30, (10, SPAN, 30, 30))
UNIT = Tolerance()


class Slow(InThread):
    """A worker that takes its time."""

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await trio.sleep(500)
        return function(*args, **kwargs)


@dataclass
class Trial:
    """A drawn lane whose auditors have sealed tickets, and one of those on the made-up chain."""

    scene: Scene
    texts: dict[bytes, bytes | None] = field(default_factory=dict)  # by transaction
    events: list[ChainEvent] = field(default_factory=list)
    now: int = UNTIL - SPAN
    down: bool = False
    roles: dict[str, TicketRole] = field(default_factory=dict)

    def say(self, *events: Any) -> None:
        for event in events:
            at = len(self.events)
            log = ChainEvent(event, "SampleAudits", at, b"\xbb" * 32, bytes([at]) * 32, 0)
            self.events.append(log)

    def held(self, name: str) -> list[Ticket]:
        journal = self.scene.nodes[name].journal
        return [ticket_of(raw) for _name, raw in journal.secrets_under(TICKET)]

    def holder(self, kind: TicketKind) -> tuple[str, Ticket]:
        return next((n, t) for n in AUDITORS for t in self.held(n) if t.kind == kind)

    def parcel(self, name: str, ticket: Ticket) -> Parcel:
        raw = self.scene.nodes[name].journal.secret(parcel_name(ticket.text))
        assert raw is not None
        assert text_of(raw) == ticket.text
        return Parcel.from_wire(raw)

    def enter(self, name: str, text: bytes | None) -> list[str]:
        """The ticket is on the chain, its jury the two others; their names."""
        seats = self.scene.seats
        jury = (AUDITS, 1, 2, 1, True, 3, TARGET, UNTIL - SPAN, UNTIL, UNTIL + 10, 10, 0, 0, 0, 500)
        others = [other for other in AUDITORS if other != name]
        self.say(
            JurySummoned(1, AUDITS, TARGET, (*jury, 400, 0)),
            TicketEntered(7, seats[name].address, TARGET, 1, TERMS),
            JurySeated(1, [seats[other].address for other in others]),
        )
        self.texts[self.events[-2].transaction] = text
        for role in self.roles.values():
            role.look()
        return others

    def answer(self, name: str) -> Answer | None:
        board = JuryBoard(lambda: self.events)
        question = board.standing().tickets[7].question
        raw = self.scene.nodes[name].journal.secret(answer_name(question))
        return None if raw is None else sealed_of(raw).answer

    async def answers(self, names: list[str], seconds: float = 60.0) -> list[Answer | None]:
        with trio.move_on_after(seconds):
            while None in [self.answer(name) for name in names]:
                await trio.sleep(0.2)
        return [self.answer(name) for name in names]

    async def clock(self) -> int:
        if self.down:
            raise OSError("the chain does not answer")
        return self.now

    async def text_of(self, transaction: bytes) -> bytes | None:
        return self.texts.get(transaction)

    async def sit(self, nursery: trio.Nursery, worker: Any = None, again: bool = False) -> None:
        for name in AUDITORS:
            engine = WorkerRerun(worker or InThread(), loaded)
            board = JuryBoard(lambda: self.events)
            node = self.scene.nodes[name]
            role = TicketRole(node, board, engine, self.clock, self.text_of, pause=0.5)
            if again:  # what serves parcels is still there
                role._nursery = nursery
                role.look()
            else:
                await nursery.start(role.run)
            self.roles[name] = role

    def print(self, ticket: Ticket) -> bytes:
        """V's own fingerprint of a drawn token."""
        journal = self.scene.nodes["verifier"].journal
        raw = next(
            raw
            for name in AUDITORS
            for _, raw in self.scene.nodes[name].journal.secrets_under(TICKET)
            if ticket_of(raw).text == ticket.text
        )
        _settled, _proof, evidence = Suspicion.from_wire(raw[1 + 32 + 32 + 32 + 13 :]).evidence()
        record, within = evidence.record, ticket.place[7]
        row = journal.round(record.start_hash, record.round)
        assert row is not None
        return Private.from_wire(row.private).fingerprints[within]


def tried(
    seed: int,
    act: Callable[[Trial], Any],
    *,
    canaries: float = 0.0,
    worker: Any = None,
    **plan: Any,
) -> Any:
    """A session is served, drawn and audited by messages; its auditors have sealed tickets."""
    arena = Arena(seed=seed)

    async def scene(found: Scene) -> Any:
        trial = Trial(found)
        for role in found.auditors:
            clerk = Clerk(role.node, role.engine, Tier.FLOAT32, canaries=canaries)  # type: ignore
            role.clerk = clerk
        reports = await found.audited()
        assert {report["verdict"] for report in reports} == {"clean"}
        async with trio.open_nursery() as nursery:
            await trial.sit(nursery, worker)
            result = await act(trial)
            nursery.cancel_scope.cancel()
        return result

    changes = {"mode": Mode.GREEDY, "temperature": 0, "max_tokens": 24, "stop_ids": (), **plan}
    return staged(seed, arena, arena.plan(**changes), scene)


def measured(print_: bytes) -> Measure:
    return Measure(False, True, UNIT.score, UNIT.fingerprint, print_, bytes(32))


# ---------------------------------------------------------------- sealing


def test_each_sample_falls_to_one_auditor() -> None:
    async def act(trial: Trial) -> Any:
        drawn = trial.scene.draws.held[0]
        turns = drawn.auditors(TARGET)
        return [
            (ticket.batch_id, ticket.index, ticket.sample, turns.index(seat.address))
            for name in AUDITORS
            for ticket in trial.held(name)
            for seat in [trial.scene.seats[name]]
        ]

    assert sorted(tried(4, act)) == [(1, 0, 0, 0), (1, 0, 1, 1), (1, 0, 2, 2), (1, 0, 3, 0)]


def test_a_parcel_says_whose_session_it_is_to_nobody() -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.DRAWN)
        raw = trial.scene.nodes[name].journal.secret(parcel_name(ticket.text))
        nodes = trial.scene.nodes
        start = nodes["client"].journal.session_by_id(trial.scene.session_id).start_hash
        secrets = [nodes[n].address for n in ("client", "drafter", "verifier")]
        row = nodes["verifier"].journal.round(start, 0)
        sealed = stored_round(row.draft, row.verdict).verdict.leaves[0].fingerprint
        secrets += [start, trial.scene.session_id, trial.scene.draws.held[0].root, sealed]
        return [secret in raw for secret in secrets]

    assert tried(4, act) == [False] * 7


def test_what_is_no_parcel_is_refused_and_breaks_nothing() -> None:
    async def act(trial: Trial) -> bytes:
        name, ticket = trial.holder(TicketKind.DRAWN)
        return trial.scene.nodes[name].journal.secret(parcel_name(ticket.text)) or b""

    raw, chance = tried(4, act), random.Random(9)
    assert Parcel.from_wire(raw).to_wire() == raw
    refused = 0
    for _ in range(400):
        bad = bytearray(raw)
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        cut = bytes(bad[: chance.choice([len(bad), chance.randrange(len(bad))])])
        try:
            parcel = Parcel.from_wire(cut)
            assert parcel.to_wire() == cut
        except FrameError:
            refused += 1
    assert refused > 200


def zero_parts(raw: bytes) -> bytes:
    return raw[:68] + bytes(1 << 22)


def test_a_parcel_of_nothing_is_refused_at_once() -> None:
    """Four million bytes of empty parts: looked at one by one they took minutes."""
    began = time.process_time()
    with pytest.raises(FrameError):
        Parcel.from_wire(zero_parts(bytes(68)))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("what", ["kept", "q", "token", "count"])
def test_lists_that_no_drafter_commits_to_are_refused(what: str) -> None:
    """They would make the run fail for whose silence stake is lost."""

    async def act(trial: Trial) -> Parcel:
        parcels = [trial.parcel(n, t) for n in AUDITORS for t in trial.held(n)]
        return next(p for p in parcels if any(r.draft for r in p.case.rounds))

    parcel = tried(5, act, mode=Mode.REJECTION, temperature=1 << 16)
    number = next(i for i, done in enumerate(parcel.case.rounds) if done.draft)
    rounds = list(parcel.case.rounds)
    done = rounds[number]
    draft, leaf = done.draft, done.draft.leaves[0]
    if what == "kept":
        draft = replace(draft, kept=(((leaf.token, 5),), *draft.kept[1:]))
    elif what == "q":
        draft = replace(draft, leaves=(replace(leaf, q=leaf.q - 1), *draft.leaves[1:]))
    elif what == "token":
        draft = replace(draft, leaves=(replace(leaf, token=leaf.token + 1), *draft.leaves[1:]))
    rounds[number] = replace(done, draft=draft)
    if what == "count":
        rounds = rounds * 40
    bad = replace(parcel, case=replace(parcel.case, rounds=tuple(rounds)))
    with pytest.raises(FrameError):
        Parcel.from_wire(bad.to_wire())


def test_where_a_canarys_question_stands_tells_nothing() -> None:
    async def act(trial: Trial) -> Any:
        held = [(n, t) for n in AUDITORS for t in trial.held(n) if t.kind == TicketKind.CANARY]
        parcels = [trial.parcel(name, ticket) for name, ticket in held]
        return [p.within < len(p.case.rounds[-1].verdict.leaves) - 1 for p in parcels]

    inner = [found for seed in range(4, 8) for found in tried(seed, act, canaries=1.0)]
    assert {True, False} == set(inner)


# ---------------------------------------------------------------- answering


@pytest.mark.parametrize(
    "mode",
    [
        Mode.REJECTION,
        *(pytest.param(m, marks=pytest.mark.slow) for m in (Mode.GREEDY, Mode.COUPLED)),
    ],
)
@pytest.mark.parametrize(("kind", "right"), [(TicketKind.DRAWN, True), (TicketKind.CANARY, False)])
def test_a_drawn_token_passes_before_all_and_a_canary_before_none(
    mode: Mode, kind: TicketKind, right: bool
) -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(kind)
        print_ = ticket.canary[4] if ticket.canary else trial.print(ticket)
        others = trial.enter(name, ticket.text)
        return [passes(a, measured(print_)) for a in await trial.answers(others) if a is not None]

    temperature = 0 if mode == Mode.GREEDY else 1 << 16
    assert tried(5, act, canaries=1.0, mode=mode, temperature=temperature) == [right] * 2


def test_a_canary_differs_in_one_word_and_has_the_true_fingerprint() -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.CANARY)
        parcel = trial.parcel(name, ticket)
        engine = trial.scene.auditors[0].engine
        answer = await engine.answer(parcel.case, parcel.index, parcel.within)  # type: ignore
        _start, round_, within, figures, print_, text = ticket.canary
        assert (round_, within, figures) == (parcel.index, parcel.within, parcel.figures)
        assert text == ticket.text
        return answer.print == print_, answer.margin > 2 * UNIT.score

    assert tried(5, act, canaries=1.0) == (True, True)


def test_without_the_setting_no_canary_is_sealed() -> None:
    async def act(trial: Trial) -> Any:
        return {ticket.kind for name in AUDITORS for ticket in trial.held(name)}

    assert tried(5, act) == {TicketKind.DRAWN}


def test_only_the_tickets_auditors_are_given_its_parcel() -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.DRAWN)
        others = trial.enter(name, ticket.text)
        holder, said = trial.scene.seats[name].address, {}
        for asker in (*others, "stranger", "verifier"):
            try:
                transport = trial.scene.nodes[asker].transport
                page = await ask(transport, holder, Kind.PARCEL, ParcelRequest(7, 0), ParcelPage)
                said[asker in others] = page.total
            except Refused as no:
                said[asker in others] = No(no.code)
        return said

    found = tried(4, act)
    assert found[True] > 100
    assert found[False] == No.NOT_YOURS


# ---------------------------------------------------------------- what does not come


@pytest.mark.parametrize("said", [None, b"\x44" * 32])
def test_what_the_chain_does_not_bind_is_withheld_when_time_runs_out(said: bytes | None) -> None:
    """Else a planter could deliver one text, open another, and have the honest slashed."""

    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.DRAWN)
        if said is not None:  # its holder gives what it says all the same
            raw = trial.parcel(name, ticket).to_wire()
            trial.scene.nodes[name].journal.secret_once(parcel_name(said), lambda: raw)
        others = trial.enter(name, said)
        await trio.sleep(SPAN // 2)
        early = [trial.answer(other) for other in others]
        trial.now = UNTIL - SPAN // 4
        return early, await trial.answers(others, 5.0)

    assert tried(4, act) == ([None] * 2, [Answer(withheld=True)] * 2)


def test_a_model_that_is_too_slow_costs_no_stake() -> None:
    """The chain stands still, and its deadline does not."""

    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.DRAWN)
        return await trial.answers(trial.enter(name, ticket.text))

    assert tried(4, act, worker=Slow()) == [Answer(withheld=True)] * 2


@pytest.mark.slow  # for what the logs make of it
def test_a_chain_that_does_not_answer_for_a_while_ends_nothing() -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.DRAWN)
        trial.down = True
        others = trial.enter(name, ticket.text)
        await trio.sleep(2)
        trial.down = False
        for role in trial.roles.values():
            role.look()
        return [a.withheld for a in await trial.answers(others) if a is not None]

    assert tried(4, act) == [False] * 2


def test_a_restarted_auditor_keeps_the_answer_that_it_has() -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.DRAWN)
        others = trial.enter(name, ticket.text)
        before = await trial.answers(others)
        async with trio.open_nursery() as nursery:
            await trial.sit(nursery, again=True)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        counted = [trial.scene.nodes[n].metrics.counters["tickets_answered"] for n in others]
        return before == [trial.answer(other) for other in others], counted

    assert tried(4, act) == (True, [1, 1])


class Failing:
    """An engine that a parcel makes fail."""

    def __init__(self, error: Exception) -> None:
        self.error, self.runs = error, 0

    async def answer(self, case: Any, index: int, within: int) -> Answer:
        self.runs += 1
        await trio.lowlevel.checkpoint()
        raise self.error


@pytest.mark.parametrize(
    ("error", "most"), [(ValueError("masses do not fit"), 1), (RuntimeError("memory"), TRIES)]
)
def test_a_parcel_that_makes_a_node_fail_is_not_run_for_ever(
    error: Exception, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(trial: Trial) -> Any:
        engine = Failing(error)
        for role in trial.roles.values():
            role.engine = engine
        name, ticket = trial.holder(TicketKind.DRAWN)
        parcel = trial.parcel(name, ticket)

        async def fetch(*_: Any) -> Parcel:  # no thread: the test's clock jumps while one works
            await trio.lowlevel.checkpoint()
            return parcel

        monkeypatch.setattr(tickets, "fetch_parcel", fetch)
        others = trial.enter(name, ticket.text)
        await trio.sleep(SPAN // 2)
        trial.now = UNTIL
        return engine.runs, await trial.answers(others, 5.0)

    assert tried(4, act) == (2 * most, [Answer(withheld=True)] * 2)


async def drops(transport: Any, source: bytes, kind: Kind, wanted: Any, *_: Any, **__: Any) -> Any:
    """A holder that gives a byte at a time."""
    await trio.sleep(4.0)
    return ParcelPage(1 << 25, b"x")


def test_a_holder_that_delivers_in_drops_is_not_listened_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(trial: Trial) -> Any:
        monkeypatch.setattr(tickets, "ask", drops)
        began = trio.current_time()
        with pytest.raises(Undelivered, match="whole pages"):
            await tickets.fetch_parcel(trial.scene.nodes["stranger"], 7, b"t" * 32, b"s" * 20)
        return trio.current_time() - began < 10

    assert tried(4, act) is True


# ---------------------------------------------------------------- canaries before the panel


def referred(trial: Trial, holder: str, canary: tuple[Any, ...]) -> Any:
    """The canary is before a jury of one who had no part in it."""
    subject = (*(bytes(32),) * 2, *(bytes(20),) * 4, bytes(32), TARGET, *(0,) * 16)
    accuser = trial.scene.seats[holder].address
    terms = (*(0,) * 9, (10, SPAN, 30))
    charge = (1, 10, accuser, bytes(20), subject, False, 0, 0, 100, 1, 0, terms)
    jury = (AUDITS, 1, 2, 1, False, 3, TARGET, UNTIL - SPAN, UNTIL, UNTIL + 10, 10, 0, 0, 0, 500)
    trial.say(
        CanaryOpened(7, canary),
        JurySummoned(2, AUDITS, TARGET, (*jury, 400, 0)),
        CaseFiled(1, bytes(20), accuser, charge),
        CanaryReferred(7, 1),
        JurySeated(2, [trial.scene.seats["stranger"].address]),
    )
    return JuryBoard(lambda: trial.events).standing().cases[1]


@pytest.mark.parametrize("change", [None, "text", "figures"])
def test_a_canary_is_what_its_ticket_was_for_or_the_panel_convicts_nobody(
    change: str | None,
) -> None:
    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.CANARY)
        trial.enter(name, ticket.text)
        canary = list(ticket.canary)
        if change:
            canary[{"figures": 3, "text": 5}[change]] = b"\x66" * 32
        case = referred(trial, name, tuple(canary))
        board = JuryBoard(lambda: trial.events)
        reader = CanaryReader(trial.scene.nodes["stranger"], board, trial.text_of)
        parcel = await reader(case)
        return replace(parcel, salt=bytes(32)) == replace(
            trial.parcel(name, ticket), salt=bytes(32)
        )

    if change is None:
        assert tried(5, act, canaries=1.0) is True
    else:
        with pytest.RaisesGroup(Undelivered, flatten_subgroups=True):
            tried(5, act, canaries=1.0)


@pytest.mark.parametrize("what", ["never", "fails", "silent"])
def test_a_juror_is_never_silent_of_a_canary(what: str) -> None:
    """Whatever its planter does: silence would cost the juror stake, and the appeal's too."""

    async def act(trial: Trial) -> Any:
        name, ticket = trial.holder(TicketKind.CANARY)
        trial.enter(name, ticket.text)
        case = referred(trial, name, ticket.canary)
        board = JuryBoard(lambda: trial.events)

        async def read(_case: Any) -> Parcel:
            if what == "never":
                await trio.sleep_forever()
            if what == "silent":
                raise Undelivered("nothing")
            return trial.parcel(name, ticket)

        engine: Any = Failing(ValueError("masses do not fit"))
        node = trial.scene.nodes["stranger"]
        role = JurorRole(node, board, engine, trial.clock, canaries=read, pause=0.5)
        with trio.fail_after(10 * SPAN):
            return await role._answer(case, board.standing().jury_of(case))

    assert tried(5, act, canaries=1.0) == Answer(withheld=True)
