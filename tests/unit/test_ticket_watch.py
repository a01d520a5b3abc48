"""What a node owes to tickets, from made-up events: who takes which step, by when, and once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_panel_watch import (
    AUDITS,
    BOND,
    COMMIT_UNTIL,
    FILED,
    J1,
    J2,
    J3,
    JURIES,
    MODEL,
    OPEN_UNTIL,
    OTHER,
    PANEL,
    REVEAL_UNTIL,
    SALT,
    SEAT_UNTIL,
    TICKET,
    TICKET_TERMS,
    Told,
    V,
    charge,
    log,
    sealed_word,
    summoned,
)

from settlement.chain.indexer import ChainEvent
from settlement.chain.panel import AuditStage, JuryStage, TicketKind
from settlement.chain.panel_events import (
    AnswerCommitted,
    AnswerRevealed,
    AuditMoved,
    AuditorPaid,
    CanaryOpened,
    CanaryPassed,
    CanaryReferred,
    CaseClosed,
    CaseFiled,
    FingerprintOpened,
    JuryOpened,
    SeatChanged,
    TokenNamed,
)
from settlement.chain.panel_standing import fold_panel
from settlement.chain.standing import BatchView, Standing, fold
from settlement.draws import Entry
from settlement.duties import Action, Now, Plan
from settlement.panel_watch import PanelPolicy
from settlement.panels import Answer, Result, canary_content, drawn_content, ticket
from settlement.ticket_watch import Ticket, TicketWatch

TEXT, OTHER_TEXT = b"\x41" * 32, b"\x42" * 32
SETTLED, EVIDENCE = 1_000, 200
HOLDER = OTHER  # who has entered `TICKET`
DRAWN = Ticket(TicketKind.DRAWN, SALT, MODEL, TEXT, 3, 0, 1, ("place",))
CANARY = Ticket(
    TicketKind.CANARY, SALT, MODEL, TEXT, canary=(TEXT, 4, 0, b"\x51" * 32, b"\x52" * 32, TEXT)
)
PRINT = b"\x06" * 32
MEASURE = (True, True, 0, 0, PRINT, PRINT)
ALL = tuple(AnswerCommitted(1, member, sealed_word(member)) for member in (J1, J2, J3))
NAMED = (*TICKET, *ALL, TokenNamed(7, V, 3, 0, 1, 1_060, 1_120))
SHOWN = (FingerprintOpened(7, SALT, PRINT), AuditMoved(7, AuditStage.OPENED, 0))
OPENED = (*NAMED, *SHOWN, JuryOpened(1, REVEAL_UNTIL))
SAID = tuple(AnswerRevealed(1, member, False, 0, PRINT) for member in (J1, J2, J3))
DONE = (*OPENED, *SAID, AuditMoved(7, AuditStage.DONE, Result.CLEARED))
PLANTED = (
    *TICKET,
    *ALL,
    CanaryOpened(7, CANARY.canary),
    JuryOpened(1, REVEAL_UNTIL),
    *SAID,
)
PASSED = (*PLANTED, AuditMoved(7, AuditStage.PASSED, 0))


def standing(events: list[ChainEvent]) -> Standing:
    found = fold(events)
    terms = (EVIDENCE, *(0,) * 10)
    batch = (3, 0, 0, 0, 0, SETTLED, 0, 0, b"\x61" * 32, terms)
    value = 300_000 | 200_000 << 96
    found.batches[3] = BatchView(batch, (Entry(b"\x62" * 32, b"\x63" * 32, value),))
    return found


def plan(
    who: bytes,
    events: tuple[Any, ...],
    time: int,
    *held: Ticket,
    watch: TicketWatch | None = None,
    fees: int = 10**9,
    policy: PanelPolicy | None = None,
    **answers: Any,
) -> Plan:
    found = log(*events)
    view = fold_panel(found).tickets.get(7)
    audit = [b""] * 16
    audit[1], audit[7], audit[9] = view.stage if view else 0, 1_150, answers.pop("late", False)
    audit[13], audit[14] = answers.pop("share", 0), answers.pop("fee", 5)
    audit[15] = answers.pop("measure", MEASURE)
    given = {
        "text_of": lambda transaction: TEXT,
        "audit_of": tuple(audit),
        "stage_of": view.stage if view else 0,
        "is_paid": False,
        "audit_of_token": 0,
        "bond_of": 0,
        **answers,
    }
    seen = answers.get("answers_of", tuple(Answer(print=PRINT, revealed=True) for _ in range(3)))
    contracts = SimpleNamespace(
        chain_id=31337,
        audits=Told(AUDITS, **given),
        juries=Told(
            JURIES,
            jury_of=SimpleNamespace(stage=JuryStage.SUMMONED),
            is_closed=True,
            answers_of=seen,
        ),
        panel=Told(PANEL),
        panel_terms=Told(b"\x36" * 20, bond=BOND),
        audit_terms=Told(b"\x37" * 20, terms=TICKET_TERMS, fee_of=10**6),
        place_rule=Told(b"\x38" * 20, verdict_question=b"question"),
        token=SimpleNamespace(address=b"\x39" * 20),
        escrow=Told(
            b"\x3a" * 20,
            parameters=SimpleNamespace(fee_bps=200),
            view=(0, 0, fees, 0, 0),
        ),
    )
    return (watch or TicketWatch()).plan(
        contracts,  # type: ignore[arg-type]
        who,
        frozenset([who]),
        SimpleNamespace(tickets=lambda: held),
        found,
        standing(found),
        Now(60, time),
        policy or PanelPolicy(bond=BOND),
    )


def actions(made: Plan) -> list[Action]:
    return [duty.action for duty in made.duties]


# ---------------------------------------------------------------- entering


def test_what_a_ticket_seals_is_the_contracts_hash() -> None:
    assert DRAWN.sealed == ticket(0, drawn_content(3, 0, 1), SALT)
    assert CANARY.sealed == ticket(1, canary_content(CANARY.canary), SALT)


def test_a_drawn_token_is_entered_once_with_its_bond_and_the_hash_of_its_parcel() -> None:
    (enter,) = plan(HOLDER, (), SETTLED, DRAWN).duties
    assert enter.action == Action.ENTER
    assert repr((DRAWN.sealed, MODEL, TEXT))[1:-1] in enter.call.data.decode()
    assert enter.bond is not None
    assert (enter.bond.spender, enter.bond.amount) == (AUDITS, BOND)
    assert plan(HOLDER, TICKET, SETTLED, DRAWN).duties == [], "it is on the chain"


@pytest.mark.parametrize(("late", "due"), [(0, True), (1, False)])
def test_no_bond_is_risked_where_there_may_be_no_time_to_open(late: int, due: bool) -> None:
    spans = TICKET_TERMS[8]
    last = SETTLED + EVIDENCE - spans[0] - spans[1] - spans[2] // 4
    assert bool(plan(HOLDER, (), last + late, DRAWN).duties) == due
    assert plan(HOLDER, (), last + late, CANARY).duties, "a canary waits for no batch"


def test_nothing_is_entered_that_no_fees_are_left_for() -> None:
    """Of a batch worth 500,000 the audit fee is 10,000: three times 3,333."""
    assert plan(HOLDER, (), SETTLED, DRAWN, fees=9_999).duties
    assert plan(HOLDER, (), SETTLED, DRAWN, fees=9_998).duties == []
    entered = (*TICKET, *ALL)
    other = replace(DRAWN, sample=2, text=OTHER_TEXT)
    for kept, due in ((DRAWN, 0), (CANARY, 1)):
        made = plan(HOLDER, entered, SETTLED, kept, other, fees=9_999)
        assert actions(made).count(Action.ENTER) == due, "fees pay for no canary"
    two = replace(DRAWN, sample=2, text=OTHER_TEXT)
    assert len(plan(HOLDER, (), SETTLED, DRAWN, two, fees=9_999).duties) == 1


# ---------------------------------------------------------------- leading


def test_the_holder_seats_the_jury_once_its_block_is_there() -> None:
    summons = TICKET[:2]
    (seat,) = plan(HOLDER, summons, SEAT_UNTIL, DRAWN).duties
    assert (seat.action, seat.until) == (Action.SEAT, SEAT_UNTIL)
    assert plan(HOLDER, summons, SEAT_UNTIL + 1, DRAWN).duties == []
    assert plan(J1, summons, SEAT_UNTIL).duties == [], "a stranger to that model"


def test_others_seat_a_jury_whose_ticket_is_left_waiting_for_a_better_draw() -> None:
    summons = (SeatChanged(MODEL, J1, 0, 50), *TICKET[:2])
    patience = PanelPolicy(patience=8.0)
    assert plan(J1, summons, FILED + 1, policy=patience).duties == []
    (seat,) = plan(J1, summons, FILED + 8, policy=patience).duties
    assert seat.action == Action.SEAT
    gone = (*summons, SeatChanged(MODEL, J1, 0, 0))
    assert plan(J1, gone, FILED + 8, policy=patience).duties == []


@pytest.mark.parametrize(
    ("kept", "call"), [(DRAWN, (7, SALT, 1, b"question")), (CANARY, (7, SALT, CANARY.canary))]
)
def test_it_is_opened_when_nobody_can_commit_any_more(kept: Ticket, call: Any) -> None:
    assert plan(HOLDER, (*TICKET, *ALL[:2]), COMMIT_UNTIL, kept).duties == []
    for events, now in (((*TICKET, *ALL), FILED), ((*TICKET, *ALL[:2]), COMMIT_UNTIL + 1)):
        (name,) = plan(HOLDER, events, now, kept).duties
        assert (name.action, name.until) == (Action.NAME, OPEN_UNTIL)
        assert repr(call)[1:-1] in name.call.data.decode()
        assert plan(J1, events, now).duties == [], "only who holds it can"


def test_what_cannot_be_opened_is_an_operators_matter_and_lapses_for_the_others() -> None:
    (lack,) = plan(HOLDER, (*TICKET, *ALL), FILED).lacks
    assert (lack.action, lack.until) == (Action.NAME, OPEN_UNTIL)
    late = OPEN_UNTIL + 200
    for who in (HOLDER, J1):
        (lapse,) = plan(who, (*TICKET, *ALL), late).duties
        assert (lapse.action, lapse.call.where) == (Action.CONCLUDE, "lapse")
    assert plan(J1, (*TICKET, *ALL), OPEN_UNTIL + 1).duties == [], "the holder is first"


def test_a_verifier_that_opens_nothing_pays_at_each_deadline() -> None:
    assert plan(HOLDER, NAMED, 1_060, DRAWN).duties == []
    (first,) = plan(HOLDER, NAMED, 1_061, DRAWN).duties
    assert (first.action, first.call.where) == (Action.EXPIRE, "expire")
    assert first.price is not None
    assert (first.price.guilty, first.price.bps) == (V, 500)
    assert plan(HOLDER, NAMED, 1_120, DRAWN, late=True).duties == []
    (second,) = plan(HOLDER, NAMED, 1_121, DRAWN, late=True).duties
    assert second.price is None, "whatever it brings, it ends the audit that others wait for"
    assert second.intent != first.intent


def test_the_end_is_called_at_once_by_its_holder_and_else_by_an_auditor() -> None:
    assert plan(HOLDER, OPENED, FILED, DRAWN).duties == [], "they have not revealed"
    over = (*OPENED, *SAID)
    assert plan(HOLDER, over, FILED, DRAWN).duties[0].call.where == "finish"
    assert plan(J1, over, FILED).duties == []
    waiting = [
        next(t for t in range(FILED, FILED + 200) if plan(who, over, t).duties) for who in (J1, J2)
    ]
    assert waiting[0] != waiting[1], "not both pay for the same call"


# ---------------------------------------------------------------- canaries


def test_a_planter_stands_by_its_canary_within_its_bound() -> None:
    (refer,) = plan(HOLDER, PASSED, 1_150, CANARY).duties
    assert (refer.action, refer.until) == (Action.ACCUSE, 1_150)
    assert refer.bond is not None
    assert (refer.bond.spender, refer.bond.amount) == (PANEL, BOND)
    small = PanelPolicy(bond=BOND - 1)
    made = plan(HOLDER, PASSED, 1_150, CANARY, policy=small)
    assert made.duties == []
    assert "panel.accuse_tokens" in made.lacks[0].reason
    (end,) = plan(HOLDER, PASSED, 1_151, CANARY).duties
    assert end.call.where == "conclude"


def test_who_has_passed_what_the_panel_found_wrong_is_punished_once() -> None:
    filed = (
        summoned(2, waits=False),
        CaseFiled(1, bytes(20), HOLDER, charge(fault=10)),
        CanaryReferred(7, 1),
        AuditMoved(7, AuditStage.REFERRED, 0),
    )
    assert plan(HOLDER, (*PASSED, *filed), 1_200, CANARY).duties == [], "the panel sits"
    closed = (*PASSED, *filed, CaseClosed(1, Result.GUILTY, 0))
    (end,) = plan(HOLDER, closed, 1_200, CANARY).duties
    assert end.call.where == "conclude"
    wrong = (*closed, AuditMoved(7, AuditStage.WRONG, Result.GUILTY))
    said = (
        Answer(print=PRINT, revealed=True),
        Answer(print=SALT, revealed=True),
        Answer(print=PRINT, revealed=True, withheld=True),
    )
    (punish,) = plan(HOLDER, wrong, 1_200, CANARY, answers_of=said).duties
    assert punish.price is not None
    assert (punish.price.guilty, punish.price.bps, punish.price.share_bps) == (J1, 500, 5_000)
    paid = (*wrong, CanaryPassed(7, J1, 50))
    assert plan(HOLDER, paid, 1_200, CANARY, answers_of=said).duties == []
    assert Action.EXPIRE not in actions(plan(J2, wrong, 1_200, answers_of=said))


# ---------------------------------------------------------------- pay


def test_an_auditor_is_paid_once_for_what_agrees() -> None:
    (pay,) = plan(J1, DONE, 1_200).duties
    assert (pay.action, pay.call.where) == (Action.COLLECT, "pay")
    assert plan(J1, (*DONE, AuditorPaid(7, J1, 0, 5)), 1_200).duties == []
    alone = (Answer(print=SALT, revealed=True), *[Answer(print=PRINT, revealed=True)] * 2)
    assert plan(J1, DONE, 1_200, answers_of=alone).duties == []
    assert plan(OTHER, DONE, 1_200).duties == []


def test_of_a_lost_bond_who_has_answered_has_a_share() -> None:
    assert plan(J1, DONE, 1_200, fee=0, share=9).duties
    assert plan(J1, DONE, 1_200, fee=0, share=0).duties == []


def test_who_was_silent_is_dismissed_and_bonds_are_pulled() -> None:
    two = (*OPENED, *SAID[:2], AuditMoved(7, AuditStage.DONE, Result.CLEARED))
    (dismiss,) = plan(HOLDER, two, 1_200, DRAWN).duties
    assert (dismiss.action, dismiss.price.guilty) == (Action.DISMISS, J3)  # type: ignore
    (pull,) = plan(HOLDER, DONE, 1_200, DRAWN, bond_of=BOND).duties
    assert (pull.action, pull.call.where) == (Action.COLLECT, "pull_bond")


def test_another_transaction_is_another_question_and_another_block_is_not() -> None:
    """A reorganisation may give the number to another ticket, and no answer is carried over; or it
    mines the same ticket again, and what was committed can still be revealed."""
    one = fold_panel(log(*TICKET)).tickets[7].question
    assert fold_panel(log(*TICKET, block=b"\xcc" * 32)).tickets[7].question == one
    assert fold_panel(log(TICKET[0], *TICKET)).tickets[7].question != one


def test_a_token_that_others_have_had_audited_risks_no_bond() -> None:
    assert plan(HOLDER, (), SETTLED, DRAWN, audit_of_token=99).duties == []


def test_no_bond_goes_beyond_what_the_operator_allows() -> None:
    made = plan(HOLDER, (), SETTLED, DRAWN, policy=PanelPolicy(bond=BOND - 1))
    assert made.duties == []
    assert "accuse_tokens" in made.lacks[0].reason
