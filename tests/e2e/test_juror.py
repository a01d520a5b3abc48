"""Jurors on the in-memory network: given the session by who holds it, they run the target again and
journal one answer. Cases and juries are made-up events; what becomes of answers on a chain is
`test_panel_people.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from arena import DRAFT, TARGET, Arena, InThread
from audit_scene import Scene, close_draft, loaded, staged
from engine_models import TableModel
from test_auditor import OneLie, OtherHidden

from node.inference.model_drafter import ModelDrafter
from node.network.errors import Refused
from node.network.messages import CaseRequest, DrawnAnswer, Kind, RecordsRequest, RecordsResponse
from node.roles.juror import JurorRole, JuryBoard
from node.roles.lines import ask
from node.roles.refusals import No
from node.roles.rerun import LoadedDraft, Tolerance, WorkerRerun
from node.roles.session import round_record
from node.roles.stored import Private, stored_round
from node.roles.suspicions import answer_name, sealed_of
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel_events import CaseClosed, CaseFiled, JurySeated, JurySummoned
from settlement.panels import Answer, Measure, passes
from settlement.records import Mode

JURORS = ("auditor-1", "auditor-2", "auditor-3")
PANEL, UNTIL, SPAN = b"\x31" * 20, 1_000, 60
UNIT = Tolerance()


@dataclass
class Trial:
    """One case about a served session, its jury, and the chain's clock."""

    scene: Scene
    round: int = 2
    within: int = 0
    fault: int = 9
    draft: Any = None  # what the jurors have of the order's draft model
    events: list[ChainEvent] = field(default_factory=list)
    now: int = UNTIL - SPAN
    jurors: list[JurorRole] = field(default_factory=list)

    def say(self, *events: Any) -> None:
        for event in events:
            at = len(self.events)
            log = ChainEvent(event, "AuditPanel", at, b"\xbb" * 32, bytes([at]) * 32, 0)
            self.events.append(log)

    def session(self) -> Any:
        return self.scene.nodes["client"].journal.session_by_id(self.scene.session_id)

    def leaf(self) -> Any:
        """V's leaf of the token, and V's own fingerprint behind it."""
        row = self.scene.nodes["verifier"].journal.round(self.session().start_hash, self.round)
        assert row is not None
        done = stored_round(row.draft, row.verdict)
        return done, Private.from_wire(row.private).fingerprints[self.within]

    def file(self, jurors: tuple[str, ...] = JURORS) -> None:
        scene, done = self.scene, self.leaf()[0]
        drawn, seats = scene.draws.held[0], scene.seats
        parties = (seats[name].address for name in ("client", "drafter", "verifier"))
        record = round_record(done).leaf_hash
        where = (self.session().start_hash, self.round, self.within, 0, 0, record)
        model = TARGET if self.fault == 9 else DRAFT
        head = (drawn.root, drawn.lane.id, *parties, bytes(20), bytes(32), model)
        subject = (*head, *where, bytes(32), bytes(32), 1, 0, bytes(32), 0, 0, 0, 0, 0)
        terms = (100, 5_000, 2_500, 2_500, 3, 15, 2, 1, 20, (10, SPAN, 10, 10))
        accuser = seats["stranger"].address
        charge = (1, self.fault, accuser, seats["verifier"].address, subject, False)
        jury = (PANEL, 1, 2, 1, True, 3, TARGET, UNTIL - SPAN, UNTIL, UNTIL + 10, 10, 0, 0, 0, 500)
        self.say(
            JurySummoned(1, PANEL, TARGET, (*jury, 400, 0)),
            CaseFiled(
                1, charge[3], accuser, (*charge, UNIT.score, UNIT.fingerprint, 100, 1, 0, terms)
            ),
            JurySeated(1, [seats[name].address for name in jurors]),
        )

    def question(self) -> str:
        board = JuryBoard(lambda: self.events)
        return board.standing().cases[1].question(1)

    def answers(self) -> list[Answer | None]:
        found = []
        for name in JURORS:
            raw = self.scene.nodes[name].journal.secret(answer_name(self.question()))
            found.append(None if raw is None else sealed_of(raw).answer)
        return found

    async def clock(self) -> int:
        return self.now

    async def answered(self, seconds: float = 30.0) -> list[Answer]:
        with trio.move_on_after(seconds):
            while None in self.answers():
                await trio.sleep(0.2)
        found = [answer for answer in self.answers() if answer is not None]
        assert len(found) == len(JURORS), self.answers()
        return found


async def sit(trial: Trial, nursery: trio.Nursery, names: tuple[str, ...] = JURORS) -> None:
    for name in names:
        draft = None if trial.draft is None else (lambda: LoadedDraft(DRAFT, trial.draft))
        engine = WorkerRerun(InThread(), loaded, draft)  # type: ignore[arg-type]
        board = JuryBoard(lambda: trial.events)
        role = JurorRole(trial.scene.nodes[name], board, engine, trial.clock, pause=0.5)
        await nursery.start(role.run)
        trial.jurors.append(role)


def tried(
    seed: int,
    act: Callable[[Trial], Any],
    model: Any = None,
    plan: dict[str, Any] | None = None,
    serve: tuple[str, ...] = ("client", "drafter", "verifier"),
    **where: Any,
) -> Any:
    """A session served and settled, a case filed over one of its tokens, a jury seated."""
    arena = Arena(seed=seed)
    changes = {"mode": Mode.GREEDY, "temperature": 0, "max_tokens": 24, "stop_ids": ()}

    async def scene(found: Scene) -> Any:
        trial = Trial(found, **where)
        for name, service in found.services.items():
            if name in serve:
                service.judges = JuryBoard(lambda: trial.events)
        async with trio.open_nursery() as nursery:
            await sit(trial, nursery)
            result = await act(trial)
            nursery.cancel_scope.cancel()
        return result

    return staged(seed, arena, arena.plan(**{**changes, **(plan or {})}), scene, model=model)


def measure(trial: Trial) -> Measure:
    return Measure(False, True, UNIT.score, UNIT.fingerprint, trial.leaf()[1], bytes(32))


async def verdicts(trial: Trial) -> list[bool]:
    """Whether each juror's answer finds the token right."""
    trial.file()
    for role in trial.jurors:
        role.look()
    return [passes(answer, measure(trial)) for answer in await trial.answered()]


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"mode": Mode.COUPLED, "temperature": 1 << 16, "top_k": 4},
        {"mode": Mode.REJECTION, "temperature": 1 << 16},
        {"stops": ("hej", "jj"), "max_tokens": 60},
    ],
)
def test_an_honest_token_passes_before_every_juror(plan: dict[str, Any]) -> None:
    assert tried(4, verdicts, plan=plan) == [True] * 3


@pytest.mark.parametrize("model", [OneLie(3 + 10), OtherHidden(), TableModel(12, 9)])
def test_a_false_token_or_hidden_state_passes_before_none(model: Any) -> None:
    async def at(trial: Trial) -> Any:
        # The round and place of output position 10, where one token was changed.
        place, position = trial.session().start_hash, 10
        for row in trial.scene.nodes["verifier"].journal.rounds(place):
            verdict = stored_round(row.draft, row.verdict).verdict.verdict
            if 0 <= position - verdict.base < verdict.emitted:
                trial.round, trial.within = row.round, position - verdict.base
        found = await verdicts(trial)
        trial.within, trial.round = 0, 0
        return found

    assert tried(6, at, model=model) == [False] * 3


def test_the_token_after_the_lie_is_the_targets_again() -> None:
    """Teacher-forced: each token is judged on V's own text, so one lie is one false token."""
    assert tried(6, verdicts, model=OneLie(3 + 10), round=0) == [True] * 3


def test_a_juror_is_given_the_session_and_nobody_else_is() -> None:
    async def act(trial: Trial) -> list[No]:
        trial.file(("auditor-1",))
        root, session = trial.scene.draws.held[0].root, trial.scene.session_id
        verifier, said = trial.scene.seats["verifier"].address, []
        trial.scene.draws.held.clear()  # drawn auditors may read for another reason
        for name in ("auditor-1", "auditor-2", "stranger"):
            transport = trial.scene.nodes[name].transport
            for kind, wanted, expected in (
                (Kind.CASE, CaseRequest(1), DrawnAnswer),
                (Kind.RECORDS, RecordsRequest(session, 0, 4, True, root), RecordsResponse),
            ):
                try:
                    await ask(transport, verifier, kind, wanted, expected)
                except Refused as no:
                    said.append((name, No(no.code)))
        trial.say(CaseClosed(1, 2, 0))
        transport = trial.scene.nodes["auditor-1"].transport
        with pytest.raises(Refused):  # the case is over: no reason to read it any more
            await ask(transport, verifier, Kind.CASE, CaseRequest(1), DrawnAnswer)
        return said

    assert tried(5, act) == [
        (name, No.NOT_YOURS) for name in ("auditor-2", "auditor-2", "stranger", "stranger")
    ]


@pytest.mark.parametrize("serve", [("client",), ("drafter",), ("verifier",)])
def test_any_party_will_do(serve: tuple[str, ...]) -> None:
    assert tried(5, verdicts, serve=serve) == [True] * 3


def test_what_nobody_delivers_is_withheld_when_the_time_runs_out_and_not_before() -> None:
    async def act(trial: Trial) -> Any:
        trial.file()
        for role in trial.jurors:
            role.look()
        await trio.sleep(10)
        early = trial.answers()
        trial.now = UNTIL - SPAN // 3
        return early, await trial.answered()

    early, late = tried(5, act, serve=())
    assert early == [None] * 3
    assert late == [Answer(withheld=True)] * 3


def test_a_restarted_juror_keeps_the_answer_that_it_has() -> None:
    async def act(trial: Trial) -> Any:
        await verdicts(trial)
        before = [
            trial.scene.nodes[name].journal.secret(answer_name(trial.question())) for name in JURORS
        ]
        trial.jurors.clear()
        async with trio.open_nursery() as nursery:
            await sit(trial, nursery)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        after = [
            trial.scene.nodes[name].journal.secret(answer_name(trial.question())) for name in JURORS
        ]
        counted = [trial.scene.nodes[name].metrics.counters["jury_answers"] for name in JURORS]
        return before == after, counted

    assert tried(5, act) == (True, [1, 1, 1])


REJECTION = {"mode": Mode.REJECTION, "temperature": 1 << 16}


def of_draft(trial: Trial) -> Measure:
    return Measure(False, False, UNIT.score, UNIT.fingerprint, bytes(32), bytes(32))


@pytest.mark.parametrize(("seed", "right"), [(None, True), (7, False)])
def test_a_draft_is_judged_by_the_registered_draft_model(seed: int | None, right: bool) -> None:
    """D's own model in the first case; in the second what is registered is another than D's."""

    async def act(trial: Trial) -> list[bool]:
        trial.round, trial.within = first_window(trial), 0
        trial.file()
        for role in trial.jurors:
            role.look()
        return [passes(answer, of_draft(trial)) for answer in await trial.answered()]

    model = close_draft() if seed is None else ModelDrafter(TableModel(12, seed))
    assert tried(4, act, plan=REJECTION, fault=12, draft=model) == [right] * 3


def first_window(trial: Trial) -> int:
    """The first round in which something was drafted and answered."""
    journal = trial.scene.nodes["verifier"].journal
    rounds = journal.rounds(trial.session().start_hash)
    return next(row.round for row in rounds if row.draft is not None)


@pytest.mark.parametrize("plan", [REJECTION, {}])
def test_of_drafts_that_it_cannot_run_again_a_juror_convicts_nobody(plan: dict[str, Any]) -> None:
    """Without the draft model; and in a strict mode, which commits D to no distribution."""

    async def act(trial: Trial) -> Any:
        trial.round = first_window(trial)
        trial.now = UNTIL
        trial.file()
        for role in trial.jurors:
            role.look()
        return await trial.answered()

    draft = None if plan else close_draft()
    assert tried(5, act, plan=plan, fault=12, draft=draft) == [Answer(withheld=True)] * 3
