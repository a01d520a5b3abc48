"""Everything that is, or was, in dispute on a chain, as rows for people and programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from settlement.chain.standing import (
    CaseView,
    ClaimCaseStage,
    DemandStage,
    DemandView,
    DrawView,
    FilingView,
    JudgedFault,
    Stage,
    Standing,
)

_DEMAND_OVER: Final = (DemandStage.SHOWN, DemandStage.FAULTY, DemandStage.SILENT)
_JUDGED: Final = {
    "proof": "proven before FaultCourt",
    "opening": "shown by an opening",
    "answer": "shown by an answer to a demand",
}


@dataclass(frozen=True)
class Dispute:
    """One matter.

    Attributes:
        kind: "draw", "demand", "session demand", "case", "filing" or "fault".
        accused: who pays if it goes against them; empty where the chain does not know (a filing).
        by: who raised it; empty for draws.
        state: the contract's stage, in lower case.
        open: something may still happen.
        until: unix seconds of the deadline that runs. until_block: the same, in blocks.
        bond: stake token units held for it, or that an answer takes.
        part: this key's part in it ("accused", "by", or "" for others').
        next: what happens next, and who does it.
    """

    kind: str
    id: str
    accused: bytes
    by: bytes
    state: str
    open: bool
    until: int | None
    until_block: int | None
    bond: int
    part: str
    next: str

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "id": self.id,
            "accused": _hex(self.accused),
            "by": _hex(self.by),
            "state": self.state,
            "open": self.open,
            "until": self.until,
            "untilBlock": self.until_block,
            "bond": str(self.bond),
            "part": self.part or None,
            "next": self.next,
        }


def disputes(standing: Standing, key: bytes | None, now: int, block: int) -> list[Dispute]:
    """All of them, oldest first within a kind, as `key` sees them (None: nobody in particular).

    Args:
        now, block: unix seconds and number of the newest block.
    """
    mine = frozenset() if key is None else standing.keys_of(key)
    rows: list[Dispute] = []
    rows += (_draw(view, mine, now) for view in standing.draws.values())
    rows += (_demand(view, mine, now) for view in standing.demands.values())
    rows += (_case(view, mine, now) for view in standing.cases.values())
    rows += (_filing(view, mine, block) for view in standing.filings.values())
    rows += _faults(standing, mine)
    return rows


def _who(mine: frozenset[bytes], party: bytes, name: str) -> str:
    return "this node" if party in mine else name


def _part(mine: frozenset[bytes], accused: bytes, by: bytes) -> str:
    return "accused" if accused in mine else "by" if by in mine else ""


def _draw(view: DrawView, mine: frozenset[bytes], now: int) -> Dispute:
    missing = [str(sample) for sample in range(view.samples) if sample not in view.opened]
    who = _who(mine, view.verifier, "the verifier")
    bps, _share = view.price_bps
    if not view.running:
        ends = {
            Stage.SHOWN: "nothing: all positions were opened",
            Stage.FAULTY: "nothing: an opening showed a fault",
            Stage.SILENT: "nothing: silence has been paid for",
        }
        what = ends.get(view.stage, "nothing")
    elif now > view.until:
        what = f"anybody may call expire: {bps / 100:g} % of the verifier's stake"
        if now <= view.second_until:
            what += f"; {who} can still open {', '.join(missing)}"
    else:
        what = f"{who} opens sample {', '.join(missing)} or loses {bps / 100:g} % of its stake"
    return Dispute(
        kind="draw",
        id=f"{view.key[0]}/{view.key[1]}",
        accused=view.verifier,
        by=b"",
        state=view.stage.name.lower(),
        open=view.running,
        until=view.until if view.running else None,
        until_block=None,
        bond=0,
        part=_part(mine, view.verifier, b""),
        next=what,
    )


def _demand(view: DemandView, mine: frozenset[bytes], now: int) -> Dispute:
    who, asker = _who(mine, view.verifier, "the verifier"), _who(mine, view.by, "the demander")
    bps, _share = view.price_bps
    if view.stage in _DEMAND_OVER:
        ends = {
            DemandStage.SHOWN: "nothing: it was answered",
            DemandStage.FAULTY: "nothing: the answer showed a fault",
            DemandStage.SILENT: "nothing: silence has been paid for",
        }
        what = ends[view.stage]
    elif view.stage == DemandStage.ANSWERED:
        over = now > view.until
        what = f"{who} closes it" if over else f"{asker} looks at the answer, and may contest it"
    elif now > view.until:
        what = f"{asker} takes {bps / 100:g} % of the verifier's stake"
        if now <= view.second_until:
            what += f", unless {who} answers first"
    else:
        what = f"{who} answers or loses {bps / 100:g} % of its stake"
    return Dispute(
        kind="session demand" if view.of_session else "demand",
        id=_hex(view.id) or "",
        accused=view.verifier,
        by=view.by,
        state=view.stage.name.lower(),
        open=view.stage not in _DEMAND_OVER,
        until=None if view.stage in _DEMAND_OVER else view.until,
        until_block=None,
        bond=view.bond,
        part=_part(mine, view.verifier, view.by),
        next=what,
    )


def _case(view: CaseView, mine: frozenset[bytes], now: int) -> Dispute:
    who, asker = _who(mine, view.drafter, "the drafter"), _who(mine, view.flagger, "the flagger")
    bps, _share = view.price_bps
    running = view.running or view.stage == ClaimCaseStage.ANSWERED
    if view.stage == ClaimCaseStage.ANSWERED:
        over = now > view.until
        what = f"{who} concludes it" if over else "a judge may refute the drafter's assertion"
    elif not view.running:
        what = "nothing: it is over"
    elif now > view.until:
        what = f"{asker} takes {bps / 100:g} % of the drafter's stake"
        if now <= view.second_until:
            what += f", unless {who} asserts its draft model first"
    else:
        what = f"{who} asserts its draft model or loses {bps / 100:g} % of its stake"
    return Dispute(
        kind="case",
        id=str(view.id),
        accused=view.drafter,
        by=view.flagger,
        state=view.stage.name.lower(),
        open=running,
        until=view.until if running else None,
        until_block=None,
        bond=view.bond,
        part=_part(mine, view.drafter, view.flagger),
        next=what,
    )


def _filing(view: FilingView, mine: frozenset[bytes], block: int) -> Dispute:
    who = _who(mine, view.challenger, "the challenger")
    until: int | None = view.open_until
    if view.forfeited:
        state, what, until = "forfeited", "nothing: its bond is forfeited", None
    elif block > view.open_until:
        state, what = "lapsed", "anybody may forfeit its bond, where no proof has used it"
    elif block + 1 < view.open_from:
        state, what, until = "waiting", f"{who} may prove it from that block on", view.open_from
    else:
        state, what = "open", f"{who} proves it, or loses its bond"
    return Dispute(
        kind="filing",
        id=_hex(view.commitment) or "",
        accused=b"",
        by=view.challenger,
        state=state,
        open=not view.forfeited,
        until=None,
        until_block=until,
        bond=view.bond,
        part=_part(mine, b"", view.challenger),
        next=what,
    )


def _faults(standing: Standing, mine: frozenset[bytes]) -> Iterator[Dispute]:
    for judged in standing.judged:
        by = judged.by if any(judged.by) else b""
        yield Dispute(
            kind="fault",
            id=f"F{judged.number} code {judged.code}, round {judged.round} "
            f"of {(_hex(judged.start_hash) or '')[:14]}",
            accused=judged.guilty,
            by=by,
            state=_JUDGED[judged.where],
            open=False,
            until=None,
            until_block=None,
            bond=0,
            part=_part(mine, judged.guilty, by),
            next=_outcome(standing, judged),
        )


def _outcome(standing: Standing, judged: JudgedFault) -> str:
    if judged.name not in standing.punished:
        return "nothing was there to take: the fault stays open"
    if judged.where == "proof" and not judged.slashed:
        return "nothing: it was punished before"
    return "nothing: punished"


def _hex(raw: bytes) -> str | None:
    return "0x" + raw.hex() if raw else None
