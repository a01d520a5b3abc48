"""The panel's cases as rows for people and programs: state, the deadline that runs, and who owes
what. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from settlement.chain.disputes import Dispute
from settlement.chain.panel import CaseStage
from settlement.chain.panel_standing import JuryView, PanelCase, PanelStanding


def panel_disputes(panel: PanelStanding, mine: frozenset[bytes], now: int) -> Iterator[Dispute]:
    """Every case, oldest first, as the owner of the keys `mine` sees it.

    Args:
        now: unix seconds of the newest block.
    """
    for case in panel.cases.values():
        yield _row(case, panel, mine, now)


def _row(case: PanelCase, panel: PanelStanding, mine: frozenset[bytes], now: int) -> Dispute:
    jury = panel.jury_of(case)
    sits = any(set(sat.members) & mine for _, sat in panel.sat(case))
    part = "accused" if case.accused in mine else "by" if case.accuser in mine else ""
    state, until, what = _course(case, jury, mine, now)
    if case.stage == CaseStage.CLOSED:
        what = _owed(case, panel, mine)
    return Dispute(
        kind="panel case",
        id=str(case.id),
        accused=case.accused,
        by=case.accuser,
        state=state,
        open=case.stage != CaseStage.CLOSED,
        until=until,
        until_block=None,
        bond=case.bond,
        part=part or ("juror" if sits else ""),
        next=what,
    )


def _course(
    case: PanelCase, jury: JuryView, mine: frozenset[bytes], now: int
) -> tuple[str, int | None, str]:
    """(state, deadline, what is next)."""
    accused = "this node" if case.accused in mine else "the accused"
    word = case.result.name.lower()
    if case.stage == CaseStage.CLOSED:
        return f"closed: {word}", None, "nothing"
    if case.stage == CaseStage.DECIDED:
        if now > case.appeal_until:
            return f"decided: {word}", None, "anybody may have it concluded"
        loser = case.accused if case.guilty else case.accuser
        who = "this node" if loser in mine else "who it goes against"
        what = f"{who} may appeal, at twice the bond"
        return f"decided: {word}", case.appeal_until, what
    name = "appeal" if case.stage == CaseStage.APPEAL else "panel"
    if jury.is_over(now):
        return f"{name}: over", None, "anybody may have it decided"
    if not jury.seated:
        return f"{name}: summoned", jury.summoned.seat_until, "anybody may have the jury seated"
    if not jury.is_closed(now):
        left = [member for member in jury.members if member not in jury.committed]
        what = f"{len(left)} of {len(jury.members)} jurors have to commit"
        if mine & set(left):
            what = "this node commits to its answer, or loses stake; " + what
        return f"{name}: committing", jury.summoned.commit_until, what
    if jury.waits:
        what = f"{accused} opens its fingerprint, or loses what the fault costs"
        return f"{name}: opening", case.open_until(jury), what
    left = [member for member in jury.committed if member not in jury.revealed]
    what = f"{len(left)} of {len(jury.committed)} jurors have to reveal"
    if mine & set(left):
        what = "this node reveals its answer, or loses stake; " + what
    return f"{name}: revealing", jury.reveal_until, what


def _owed(case: PanelCase, panel: PanelStanding, mine: frozenset[bytes]) -> str:
    """What a closed case leaves to do."""
    for _, jury in panel.sat(case):
        for member in set(jury.members) & mine:
            if not jury.answered(member):
                return "this node was silent: anybody may take its stake's share for that"
    unpaid = [
        member
        for _, jury in panel.sat(case)
        for member in jury.members
        if jury.answered(member) and member not in case.paid
    ]
    if mine & set(unpaid):
        return "this node is paid for its answer, where anything is due"
    return "nothing: it is over"
