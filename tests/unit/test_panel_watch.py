"""What a node owes before the panel, from made-up events: by when, under which name, and once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from settlement import panels
from settlement.chain.contracts import Role
from settlement.chain.errors import NodeUnreachable, Reverted
from settlement.chain.events import ModelServed
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import CaseStage, JuryStage
from settlement.chain.panel_disputes import panel_disputes
from settlement.chain.panel_events import (
    AnswerCommitted,
    AnswerRevealed,
    CaseAppealed,
    CaseClosed,
    CaseDecided,
    CaseFiled,
    JurorPaid,
    JuryCancelled,
    JuryOpened,
    JurySeated,
    JurySummoned,
    MemberDismissed,
    PrintOpened,
    SeatChanged,
    TicketEntered,
)
from settlement.chain.panel_standing import fold_panel
from settlement.chain.send_journal import Call
from settlement.chain.standing import Standing
from settlement.duties import Action, Now, Plan
from settlement.fault_proofs import fault_name
from settlement.hashing import keccak256
from settlement.panel_watch import PanelPolicy, PanelWatch, Sealed, Suspect
from settlement.panels import Answer, Result

C, D, V, ACCUSER = (bytes([n]) * 20 for n in (1, 2, 3, 4))
J1, J2, J3, OTHER = (bytes([n]) * 20 for n in (11, 12, 13, 99))
MODEL, START, ROOT, LANE = (bytes([n]) * 32 for n in (21, 22, 23, 24))
PANEL, JURIES, AUDITS = (bytes([n]) * 20 for n in (31, 32, 33))
FILED, SEAT, COMMIT, OPEN, REVEAL = 1_000, 10, 20, 10, 15
SEAT_UNTIL, COMMIT_UNTIL = FILED + SEAT, FILED + SEAT + COMMIT
OPEN_UNTIL, REVEAL_UNTIL = COMMIT_UNTIL + OPEN, COMMIT_UNTIL + REVEAL
BOND, SALT = 100, b"\x05" * 32
ANSWER = Answer(print=b"\x06" * 32, margin=3)


def subject(within: int = 2) -> tuple[Any, ...]:
    parties = (ROOT, LANE, C, D, V, b"\x07" * 20, bytes(32), MODEL)
    place = (START, 1, within, 40, 100, b"\x08" * 32, b"\x09" * 32, b"\x0a" * 32)
    return (*parties, *place, 1, 0, bytes(32), 5, 900, 5_000, 6, 7)


def charge(case: int = 1, fault: int = 9) -> tuple[Any, ...]:
    spans = (SEAT, COMMIT, OPEN, REVEAL)
    terms = (BOND, 5_000, 2_500, 2_500, 3, 15, 2, 1, 20, spans)
    head = (case, fault, ACCUSER, V, subject())
    return (*head, True, 0, 0, BOND, 1, FILED, terms)


def summoned(number: int, waits: bool = True, before: int = 0) -> JurySummoned:
    jury = (PANEL, 50, 51, 1, waits, 3, MODEL, SEAT_UNTIL, COMMIT_UNTIL, REVEAL_UNTIL)
    return JurySummoned(number, PANEL, MODEL, (*jury, REVEAL, 0, 0, 0, 500, 400, before))


def log(*events: Any, block: bytes = b"\xbb" * 32) -> list[ChainEvent]:
    return [
        ChainEvent(event, "Juries", 50 + at, block, bytes([at]) * 32, at)
        for at, event in enumerate(events)
    ]


FILING = (summoned(1), CaseFiled(1, V, ACCUSER, charge()))
SEATED = (*FILING, JurySeated(1, [J1, J2, J3]))


def sealed_word(member: bytes, answer: Answer = ANSWER, jury: int = 1) -> bytes:
    return panels.commitment(31337, JURIES, jury, member, answer, SALT)


COMMITTED = (*SEATED, *(AnswerCommitted(1, m, sealed_word(m)) for m in (J1, J2, J3)))
OPENED = (*COMMITTED, PrintOpened(1, SALT, ANSWER.print), JuryOpened(1, REVEAL_UNTIL))
REVEALED = (*OPENED, *(AnswerRevealed(1, m, False, 3, ANSWER.print) for m in (J1, J2, J3)))
DECIDED = (*REVEALED, CaseDecided(1, 1, Result.GUILTY, 1_100))


class Told:
    """A contract that notes what is made of its calls, and answers from a table."""

    def __init__(self, address: bytes, **answers: Any) -> None:
        self.address, self._answers = address, answers

    def __getattr__(self, name: str) -> Any:
        if name in self._answers:
            given = self._answers[name]
            return given if callable(given) else lambda *_: given
        return lambda *args: Call(self.address, repr((name, args)).encode(), where=name)


class Held:
    """A journal."""

    def __init__(self, **sealed: Sealed) -> None:
        self.answers: dict[str, Sealed] = dict(sealed)
        self.prints: dict[tuple[bytes, int, int], tuple[bytes, bytes]] = {}
        self.found: list[Suspect] = []
        self.secrets: dict[str, bytes] = {}

    def batch(self, root: bytes) -> None:
        return None

    def print(self, start_hash: bytes, round_: int, within: int) -> tuple[bytes, bytes] | None:
        return self.prints.get((start_hash, round_, within))

    def sealed(self, question: str) -> Sealed | None:
        return self.answers.get(question)

    def suspects(self) -> list[Suspect]:
        return self.found

    def secret(self, name: str) -> bytes:
        return self.secrets.setdefault(name, keccak256(name.encode()))


def question(events: list[ChainEvent], jury: int = 1) -> str:
    return fold_panel(events).cases[1].question(jury)


def plan(
    who: bytes,
    events: list[ChainEvent],
    time: int,
    held: Held | None = None,
    policy: PanelPolicy | None = None,
    standing: Standing | None = None,
    **answers: Any,
) -> Plan:
    stage = fold_panel(events).cases[1].stage if fold_panel(events).cases else CaseStage.NONE
    state = SimpleNamespace(stage=stage, share=0, settled=True)
    at_head = {"case_of": state, "bond_of": 0, "is_paid": False, **answers}
    contracts = SimpleNamespace(
        chain_id=31337,
        juries=Told(
            JURIES, jury_of=SimpleNamespace(stage=JuryStage.SUMMONED), is_closed=True, **answers
        ),
        panel=Told(PANEL, **at_head),
        pool=Told(b"\x34" * 20, eligible=answers.get("eligible", 0)),
        place_rule=Told(
            b"\x35" * 20,
            verdict_subject=answers.get("verdict_subject", subject()),
            verdict_question=b"question",
            draft_subject=answers.get("draft_subject", subject()),
            draft_question=b"drafts",
        ),
        panel_terms=Told(
            b"\x36" * 20,
            terms=(BOND, 5_000, 2_500, 2_500),
            fee_of=answers.get("fee_of", 0),
            seats=20,
        ),
        escrow=Told(b"\x38" * 20, stake_price_q32=3 << 31),
        audits=Told(AUDITS),
        vault=Told(
            b"\x37" * 20,
            slashable=answers.get("slashable", 0),
            least_stake=answers.get("least_stake", 0),
        ),
    )
    watch = PanelWatch(contracts, who, frozenset([who]), held or Held(), policy)  # type: ignore
    return watch.plan(events, standing or Standing(), Now(60, time))


def actions(made: Plan) -> list[Action]:
    return [duty.action for duty in made.duties]


# ---------------------------------------------------------------- jurors


def sat(events: list[ChainEvent]) -> Held:
    held = Held()
    held.answers[question(events)] = Sealed(ANSWER, SALT)
    return held


@pytest.mark.parametrize(
    ("time", "due"), [(FILED, True), (COMMIT_UNTIL, True), (COMMIT_UNTIL + 1, False)]
)
def test_a_juror_commits_to_its_journalled_answer_up_to_the_deadline(time: int, due: bool) -> None:
    events = log(*SEATED)
    made = plan(J1, events, time, sat(events))
    commits = [duty for duty in made.duties if duty.action == Action.COMMIT]
    assert bool(commits) == due
    if due:
        assert commits[0].until == COMMIT_UNTIL
        assert repr(sealed_word(J1)) in commits[0].call.data.decode()


def test_without_an_answer_nothing_is_committed_and_late_it_is_said() -> None:
    events = log(*SEATED)
    assert actions(plan(J1, events, FILED)) == []
    assert plan(J1, events, FILED).lacks == []
    (lack,) = plan(J1, events, COMMIT_UNTIL - 1).lacks
    assert (lack.action, lack.until) == (Action.COMMIT, COMMIT_UNTIL)


def test_an_answer_to_another_question_is_not_given_to_this_one() -> None:
    """After a reorganisation jury 1 may be about another case."""
    held = sat(log(*SEATED))
    other = replace(FILING[1], charge=(*charge()[:4], subject(within=3), *charge()[5:]))
    events = log(FILING[0], other, SEATED[2])
    assert actions(plan(J1, events, FILED, held)) == []


def test_a_commitment_that_a_reorganisation_undid_has_a_new_intent() -> None:
    before, after = log(*SEATED), log(*SEATED, block=b"\xcc" * 32)
    first, second = (plan(J1, e, FILED, sat(e)).duties[0] for e in (before, after))
    assert first.call == second.call
    assert first.intent != second.intent
    # Looked at again, it is the same duty: the sender sends it once.
    assert plan(J1, before, FILED + 1, sat(before)).duties[0].intent == first.intent


def test_it_commits_once_and_reveals_only_when_nobody_can_copy() -> None:
    one = log(*SEATED, AnswerCommitted(1, J1, sealed_word(J1)))
    assert actions(plan(J1, one, FILED, sat(one))) == []
    everybody = log(*COMMITTED)
    assert actions(plan(J1, everybody, FILED, sat(everybody))) == [], "V has not opened"
    shown = log(*OPENED)
    (reveal,) = plan(J1, shown, FILED, sat(shown)).duties
    assert (reveal.action, reveal.until) == (Action.REVEAL, REVEAL_UNTIL)
    assert repr((False, 3, ANSWER.print, SALT))[1:-1] in reveal.call.data.decode()
    assert actions(plan(J1, shown, REVEAL_UNTIL + 1, sat(shown))) == []


def test_a_jury_that_waits_for_nothing_reveals_when_it_is_closed() -> None:
    start = (summoned(1, waits=False), FILING[1], SEATED[2])
    one = log(*start, AnswerCommitted(1, J1, sealed_word(J1)))
    assert actions(plan(J1, one, COMMIT_UNTIL, sat(one))) == []
    assert Action.REVEAL in actions(plan(J1, one, COMMIT_UNTIL + 1, sat(one)))


def test_a_commitment_that_is_not_the_journals_is_an_operators_matter() -> None:
    events = log(*OPENED)
    held = Held()
    held.answers[question(events)] = Sealed(replace(ANSWER, margin=4), SALT)
    made = plan(J1, events, FILED, held)
    assert actions(made) == []
    assert made.lacks[0].action == Action.REVEAL


TICKET_TERMS = (BOND, 3, 500, 5_000, 500, 400, 5_000, 30, (SEAT, COMMIT, OPEN, REVEAL))
TICKET = (
    replace(summoned(1), court=AUDITS),
    TicketEntered(7, OTHER, MODEL, 1, TICKET_TERMS),
    JurySeated(1, [J1, J2, J3]),
)


def test_a_juror_of_a_ticket_that_nobody_delivers_abstains_in_time_and_is_not_silent() -> None:
    """Anybody can enter a ticket for a small bond: jurors that said nothing would pay for it."""
    held, late = Held(), COMMIT_UNTIL - COMMIT // 5 + 1
    assert plan(J1, log(*TICKET), late - 1, held).duties == [], "it may still come"
    (commit,) = plan(J1, log(*TICKET), late, held).duties
    assert (commit.action, commit.until) == (Action.COMMIT, COMMIT_UNTIL)
    (salt,) = held.secrets.values()
    abstention = Answer(withheld=True)
    word = panels.commitment(31337, JURIES, 1, J1, abstention, salt)
    assert repr(word) in commit.call.data.decode()
    assert plan(J1, log(*TICKET), late, held).duties == [commit], "and says the same after"
    assert plan(OTHER, log(*TICKET), late).duties == []
    assert plan(J1, log(*TICKET), COMMIT_UNTIL + 1, held).duties == []


def test_what_a_ticket_is_answered_with_is_what_the_journal_has() -> None:
    held, events = Held(), log(*TICKET)
    held.answers[fold_panel(events).tickets[7].question] = Sealed(ANSWER, SALT)
    (commit,) = plan(J1, events, FILED, held).duties
    assert repr(sealed_word(J1)) in commit.call.data.decode()
    everybody = [AnswerCommitted(1, m, sealed_word(m)) for m in (J1, J2, J3)]
    assert plan(J1, log(*TICKET, *everybody), FILED, held).duties == [], "the ticket is sealed"
    shown = log(*TICKET, *everybody, JuryOpened(1, REVEAL_UNTIL))
    (reveal,) = plan(J1, shown, FILED, held).duties
    assert reveal.action == Action.REVEAL
    assert repr((False, 3, ANSWER.print, SALT))[1:-1] in reveal.call.data.decode()
    over = log(
        *TICKET, *everybody, JuryOpened(1, REVEAL_UNTIL), AnswerRevealed(1, J1, False, 3, SALT)
    )
    assert plan(J1, over, FILED, held).duties == []


def test_an_answer_that_came_too_late_does_not_keep_the_abstention_from_being_revealed() -> None:
    held = Held()
    ticket = fold_panel(log(*TICKET)).tickets[7]
    salt = held.secret(f"audit-jury:{ticket.question}")
    word = panels.commitment(31337, JURIES, 1, J1, Answer(withheld=True), salt)
    said = (AnswerCommitted(1, J1, word), JuryOpened(1, REVEAL_UNTIL))
    events = log(*TICKET, *said)
    held.answers[fold_panel(events).tickets[7].question] = Sealed(ANSWER, SALT)
    made = plan(J1, events, COMMIT_UNTIL + 1, held)
    assert made.lacks == []
    (reveal,) = made.duties
    assert repr((True, 0, bytes(32), salt))[1:-1] in reveal.call.data.decode()


def test_who_does_not_sit_owes_nothing() -> None:
    for events in (SEATED, COMMITTED, OPENED, REVEALED, DECIDED):
        found = log(*events)
        assert plan(OTHER, found, FILED, sat(found)).duties == []


# ---------------------------------------------------------------- parties


def test_both_sides_seat_the_jury_in_its_time() -> None:
    events = log(*FILING)
    for who in (V, ACCUSER):
        (duty,) = plan(who, events, SEAT_UNTIL).duties
        assert (duty.action, duty.until) == (Action.SEAT, SEAT_UNTIL)
    # Nobody came: it is over, and void.
    assert actions(plan(ACCUSER, events, SEAT_UNTIL + 1)) == [Action.DECIDE]


def test_the_accused_opens_once_all_have_committed_and_not_before() -> None:
    held = Held()
    held.prints[START, 1, 2] = (SALT, ANSWER.print)
    assert plan(V, log(*SEATED), FILED, held).duties == []
    (duty,) = plan(V, log(*COMMITTED), FILED, held).duties
    assert (duty.action, duty.until) == (Action.UNSEAL, OPEN_UNTIL)
    assert plan(V, log(*COMMITTED), FILED).lacks[0].action == Action.UNSEAL
    assert Action.UNSEAL not in actions(plan(V, log(*OPENED), FILED, held))


def test_silence_of_the_accused_is_decided_after_its_deadline() -> None:
    events = log(*COMMITTED)
    assert plan(ACCUSER, events, OPEN_UNTIL).duties == []
    assert actions(plan(ACCUSER, events, OPEN_UNTIL + 1)) == [Action.DECIDE]


def test_jurors_do_what_parties_leave_undone_each_at_its_own_moment() -> None:
    events, policy = log(*REVEALED), PanelPolicy(patience=100)
    assert actions(plan(ACCUSER, events, FILED + 1, policy=policy)) == [Action.DECIDE]
    assert plan(J1, events, FILED + 1, policy=policy).duties == []
    late = [
        next(t for t in range(FILED, FILED + 300) if plan(who, events, t, policy=policy).duties)
        for who in (J1, J2, J3)
    ]
    assert len(set(late)) == 3


def test_a_step_that_is_mined_and_not_confirmed_is_not_taken_again() -> None:
    at_head = SimpleNamespace(stage=CaseStage.DECIDED, share=0)
    assert plan(ACCUSER, log(*REVEALED), FILED, case_of=at_head).duties == []


@pytest.mark.parametrize(
    ("result", "who", "appeals"),
    [
        (Result.GUILTY, V, True),
        (Result.WITHHELD, V, True),
        (Result.GUILTY, ACCUSER, False),
        (Result.CLEARED, ACCUSER, True),
        (Result.CLEARED, V, False),
        (Result.GUILTY, J1, False),
    ],
)
def test_only_who_has_lost_appeals(result: Result, who: bytes, appeals: bool) -> None:
    events = log(*REVEALED, CaseDecided(1, 1, result, 1_100))
    made = plan(who, events, 1_100, policy=PanelPolicy(appeal=2 * BOND))
    assert actions(made) == [Action.APPEAL] * appeals
    if appeals:
        (duty,) = made.duties
        assert duty.bond is not None
        assert (duty.bond.amount, duty.until) == (2 * BOND, 1_100)


def test_an_appeal_beyond_the_operators_bound_is_shown_instead() -> None:
    made = plan(V, log(*DECIDED), 1_100, policy=PanelPolicy(appeal=2 * BOND - 1))
    assert made.duties == []
    assert made.lacks[0].action == Action.APPEAL
    assert actions(plan(V, log(*DECIDED), 1_101)) == [Action.CONCLUDE]


def test_the_accused_appeals_for_up_to_an_eighth_of_its_stake() -> None:
    little = PanelPolicy(appeal=1)
    enough = plan(V, log(*DECIDED), 1_100, policy=little, slashable=8 * 2 * BOND)
    assert actions(enough) == [Action.APPEAL]
    assert enough.duties[0].bond is not None
    assert enough.duties[0].bond.amount == 2 * BOND
    short = plan(V, log(*DECIDED), 1_100, policy=little, slashable=8 * 2 * BOND - 1)
    assert short.duties == []
    assert short.lacks[0].action == Action.APPEAL
    never = plan(V, log(*DECIDED), 1_100, policy=PanelPolicy(), slashable=1 << 80)
    assert never.duties == [], "an operator that leaves appeals to itself"


# ---------------------------------------------------------------- accusing


def suspect(guilty: bytes = V) -> Suspect:
    return Suspect(guilty, START, 1, 2, LANE, ROOT, ("place",))


def settled() -> Standing:
    found = Standing()
    entry = SimpleNamespace(lane=LANE, root=ROOT)
    batch = SimpleNamespace(batch=("batch",), entries=(entry,), packed=lambda: b"entries")
    found.batches[1] = batch  # type: ignore[assignment]
    found.lanes[LANE] = SimpleNamespace(verifier=V)  # type: ignore[assignment]
    return found


def accuse(who: bytes = ACCUSER, **how: Any) -> Plan:
    held = Held()
    held.found = [how.pop("suspect", suspect())]
    events = how.pop("events", log())
    policy = how.pop("policy", PanelPolicy(bond=BOND))
    standing = how.pop("standing", settled())
    answers = {"bond_for": BOND, "place_of": b"\x01" * 32, **how}
    return plan(who, events, how.pop("time", 1_000), held, policy, standing, **answers)


def test_a_suspect_is_accused_with_its_bond_while_the_evidence_is_owed() -> None:
    (duty,) = accuse().duties
    assert duty.action == Action.ACCUSE
    assert duty.bond is not None
    assert (duty.bond.spender, duty.bond.amount, duty.until) == (PANEL, BOND, 5_000)
    assert duty.price is not None
    assert duty.price.reward(1_000_000) == 1_000_000 // 2 // 4
    assert accuse().duties[0].intent == duty.intent
    held = Held()
    held.found = [suspect()]
    late = plan(
        ACCUSER,
        log(),
        5_001,
        held,
        PanelPolicy(bond=BOND),
        settled(),
        bond_for=BOND,
        place_of=b"\x01" * 32,
    )
    assert late.duties == []


def test_what_the_jurors_of_a_poor_stake_cost_its_accuser_is_reckoned_with() -> None:
    """Their pay comes out of the bond where the conviction settles no fault."""
    rich, poor = (accuse(slashable=stake, least_stake=1_000, fee_of=2) for stake in (1_000, 999))
    prices = [made.duties[0].price for made in (rich, poor)]
    assert [price and price.less for price in prices] == [0, 2 * 20 * 3 // 2]
    assert [price and price.reward(8_000) for price in prices] == [1_000, 1_000 - 60]


def test_a_false_draft_is_accused_of_its_drafter() -> None:
    """Another fault at the same place: a case about V's token does not stand in its way."""
    found = replace(suspect(D), fault=12)
    (duty,) = accuse(suspect=found, draft_subject=subject()).duties
    assert duty.action == Action.ACCUSE
    assert repr((12, b"drafts"))[1:-1] in duty.call.data.decode()
    assert duty.price is not None
    assert (duty.price.guilty, duty.price.role) == (D, Role.DRAFTER)
    filed = accuse(suspect=found, events=log(*FILING), draft_subject=subject())
    assert Action.ACCUSE in actions(filed)
    punished = settled()
    punished.punished.add(fault_name(12, D, START, 1))
    assert accuse(suspect=found, standing=punished, draft_subject=subject()).duties == []


def test_nobody_accuses_twice_itself_what_is_not_settled_or_what_is_paid_for() -> None:
    filed = actions(accuse(events=log(*FILING)))
    assert Action.ACCUSE not in filed, "whoever has filed it"
    closed = log(*DECIDED, CaseClosed(1, Result.CLEARED, 0))
    assert Action.ACCUSE not in actions(accuse(events=closed)), "and whatever a jury said"
    assert accuse(who=V).duties == []
    assert accuse(standing=Standing()).duties == []
    punished = settled()
    punished.punished.add(fault_name(9, V, START, 1))
    assert accuse(standing=punished).duties == []


def test_a_friend_of_the_accused_cannot_take_a_fault_out_of_court() -> None:
    """It files first and lets the case lapse: who knows better seats the jury and sees it through,
    and files anew what has ended without a verdict."""
    assert Action.SEAT in actions(accuse(who=OTHER, events=log(*FILING)))
    assert Action.DECIDE in actions(accuse(who=OTHER, events=log(*REVEALED)))
    void = log(*FILING, CaseClosed(1, Result.VOID, 0))
    (again,) = accuse(who=OTHER, events=void).duties
    assert again.action == Action.ACCUSE
    assert again.intent != accuse(who=OTHER).duties[0].intent, "or it would not be sent twice"


def test_what_may_not_be_asked_or_costs_too_much_is_shown() -> None:
    def refuse(*_: Any) -> Any:
        raise Reverted("verdictPlace", "NotThisBatch", {})

    assert accuse(verdict_subject=refuse).lacks[0].action == Action.ACCUSE
    made = accuse(policy=PanelPolicy(bond=BOND - 1))
    assert made.duties == []
    assert "panel.accuse_tokens" in made.lacks[0].reason


@pytest.mark.parametrize(
    "error", [Reverted("caseOf", "NoSuchCase", {}), KeyError("an event that nobody has thought of")]
)
def test_what_fails_on_one_matter_leaves_the_others_their_deadlines(error: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise error

    events = log(*SEATED)
    made = plan(J1, events, FILED, sat(events), case_of=fail)
    assert Action.COMMIT in actions(made)
    assert [lack.about for lack in made.lacks] == ["panel case 1"]


def test_a_chain_that_does_not_answer_fails_the_whole_look() -> None:
    def fail(*_: Any) -> Any:
        raise NodeUnreachable("http://127.0.0.1:1", "refused")

    events = log(*SEATED)
    with pytest.raises(NodeUnreachable):
        plan(J1, events, FILED, sat(events), case_of=fail)


# ---------------------------------------------------------------- seats and pay


def test_a_seat_is_taken_followed_and_left() -> None:
    served = [ModelServed(J1, Role.AUDITOR, MODEL, True)]
    policy = PanelPolicy(seats=True)
    (take,) = plan(J1, log(*served), 1_000, policy=policy, eligible=70).duties
    assert take.action == Action.JOIN
    seated = [*served, SeatChanged(MODEL, J1, 0, 70)]
    assert plan(J1, log(*seated), 1_000, policy=policy, eligible=70).duties == []
    (follow,) = plan(J1, log(*seated), 1_000, policy=policy, eligible=60).duties
    left = [*seated, ModelServed(J1, Role.AUDITOR, MODEL, False)]
    (leave,) = plan(J1, log(*left), 1_000, policy=policy, eligible=0).duties
    again = [*left, SeatChanged(MODEL, J1, 0, 0)]
    assert plan(J1, log(*again), 1_000, policy=policy, eligible=0).duties == []
    more = [*again, ModelServed(J1, Role.AUDITOR, MODEL, True)]
    (back,) = plan(J1, log(*more), 1_000, policy=policy, eligible=70).duties
    assert len({d.intent for d in (take, follow, leave, back)}) == 4
    # Another's stake, another role's model, and an operator that wants no seat.
    assert plan(OTHER, log(*served), 1_000, policy=policy, eligible=70).duties == []
    verifier = log(ModelServed(J1, Role.VERIFIER, MODEL, True))
    assert plan(J1, verifier, 1_000, policy=policy, eligible=70).duties == []
    assert plan(J1, log(*served), 1_000, eligible=70).duties == []
    # A seat that is held is followed all the same, until it is left.
    assert actions(plan(J1, log(*seated), 1_000, eligible=0)) == [Action.JOIN]


CLOSED = (*DECIDED, CaseClosed(1, Result.GUILTY, 50))


def test_a_juror_collects_once_for_each_jury_and_everybody_pulls() -> None:
    (pay,) = plan(J1, log(*CLOSED), 1_200).duties
    assert pay.action == Action.COLLECT
    paid = log(*CLOSED, JurorPaid(1, J1, 5, 1))
    assert plan(J1, paid, 1_200).duties == []
    (pull,) = plan(J1, paid, 1_200, bond_of=5).duties
    assert "pull" in pull.intent
    (back,) = plan(ACCUSER, log(*CLOSED), 1_200, bond_of=BOND).duties
    assert back.action == Action.COLLECT
    appealed = (*DECIDED, summoned(2, waits=False, before=1), CaseAppealed(1, V, 200, 2))
    second = [AnswerCommitted(2, J1, bytes(32)), AnswerRevealed(2, J1, False, 3, ANSWER.print)]
    twice = (*appealed, JurySeated(2, [J1]), *second, CaseClosed(1, Result.GUILTY, 50))
    assert len(plan(J1, log(*twice), 1_200).duties) == 2
    assert len(plan(J1, log(*twice, JurorPaid(1, J1, 5, 1)), 1_200).duties) == 2
    both = log(*twice, *[JurorPaid(1, J1, 5, 1)] * 2)
    assert plan(J1, both, 1_200).duties == []


def test_nothing_is_sent_for_pay_that_is_nothing() -> None:
    cleared = log(*REVEALED, CaseClosed(1, Result.CLEARED, 0))
    nothing = SimpleNamespace(stage=CaseStage.CLOSED, share=0, settled=False)
    assert plan(J1, cleared, 1_200, case_of=nothing).duties == []
    assert plan(J1, log(*CLOSED), 1_200, case_of=nothing).duties == [], "no slash, no fees"
    share = SimpleNamespace(stage=CaseStage.CLOSED, share=5, settled=False)
    assert actions(plan(J1, cleared, 1_200, case_of=share)) == [Action.COLLECT]


def test_a_silent_juror_is_dismissed_by_who_took_part_and_never_by_itself() -> None:
    silent = (*OPENED, AnswerRevealed(1, J1, False, 3, ANSWER.print))
    over = (*silent, CaseDecided(1, 1, Result.GUILTY, 1_100), CaseClosed(1, Result.GUILTY, 9))
    made = plan(J1, log(*over), 1_200)
    assert actions(made).count(Action.DISMISS) == 2
    assert made.duties[-1].price is not None
    assert (made.duties[-1].price.role, made.duties[-1].price.bps) == (Role.AUDITOR, 500)
    assert actions(plan(J2, log(*over), 1_200)) == [Action.DISMISS]
    assert plan(OTHER, log(*over), 1_200).duties == []
    gone = [MemberDismissed(1, J2, 5), MemberDismissed(1, J3, 5)]
    assert Action.DISMISS not in actions(plan(J1, log(*over, *gone), 1_200))


def test_a_cancelled_jury_has_answered_by_its_commitments() -> None:
    events = log(*COMMITTED, JuryCancelled(1), CaseClosed(1, Result.WITHHELD, 9))
    assert actions(plan(J1, events, 1_200)) == [Action.COLLECT]


# ---------------------------------------------------------------- shown


@pytest.mark.parametrize(
    ("events", "time", "state", "until", "owed"),
    [
        (FILING, FILED, "panel: summoned", SEAT_UNTIL, ""),
        (SEATED, FILED, "panel: committing", COMMIT_UNTIL, "this node commits"),
        (COMMITTED, FILED, "panel: opening", OPEN_UNTIL, ""),
        (OPENED, FILED, "panel: revealing", REVEAL_UNTIL, "this node reveals"),
        (REVEALED, FILED, "panel: over", None, ""),
        (DECIDED, 1_100, "decided: guilty", 1_100, ""),
        (DECIDED, 1_101, "decided: guilty", None, ""),
        (CLOSED, 1_200, "closed: guilty", None, "this node is paid"),
    ],
)
def test_a_case_is_shown_with_its_deadline_and_what_this_node_owes(
    events: tuple[Any, ...], time: int, state: str, until: int | None, owed: str
) -> None:
    (row,) = panel_disputes(fold_panel(log(*events)), frozenset([J1]), time)
    assert (row.kind, row.state, row.until) == ("panel case", state, until)
    assert row.open == (events is not CLOSED)
    assert row.part == ("" if events is FILING else "juror")
    assert owed in row.next
    (seen,) = panel_disputes(fold_panel(log(*events)), frozenset([V]), time)
    assert seen.part == "accused"
    assert row.to_json()["bond"] == str(BOND)
