"""The game in closed form: what each lie gains and loses, and where honest play stops being best.

For a strategy s against honest others, per batch:

    net(s) = gain(s) − found(s) · taken(s)

gain is income less costs before any punishment, beyond what honest play earns (from `play`, in
which both have the same random numbers); found is the chance that a batch brings it down, from
`terms`; taken is the share of the stake that a finding costs. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from node.economics.market import Sessions
from node.economics.play import Played, Table
from node.economics.strategies import REJECTION, VISIBLE, Drafter, Trace, Verifier
from node.economics.terms import BPS, Stakes, Terms, auditors_see, conviction, lane_chance
from settlement.draws import DrawTerms
from settlement.payments import Dues, dues_under

_NEVER = float("inf")


class Taken(StrEnum):
    """What a finding costs."""

    FAULT = "fault"
    SILENCE = "silence"  # both deadlines
    REFUTED = "refuted"  # an α case

    def share(self, terms: Terms) -> float:
        """Of the role's stake."""
        if self is Taken.SILENCE:
            late, silent = terms.late_bps / BPS, terms.silent_bps / BPS
            return late + (1 - late) * silent
        return (terms.draw.fault_bps if self is Taken.FAULT else terms.refuted_bps) / BPS


class When(StrEnum):
    """What must happen before a strategy can be found out."""

    NEVER = "never"
    DRAWN = "drawn"  # the lane is drawn: settlement.draws.chance_of
    ALWAYS = "always"  # every batch
    CASES = "cases"  # the α test opens a case


@dataclass(frozen=True)
class Exposure:
    """How a strategy is brought down.

    Attributes:
        when: what must happen first; `rate` how often a batch has it, for CASES.
        seen: chance, given that, that honest eyes fall on it; the last jury's error comes on top
            where `judged`.
        taken: what it costs.
    """

    when: When
    taken: Taken = Taken.FAULT
    seen: float = 1.0
    judged: bool = False
    rate: float = 1.0


@dataclass(frozen=True)
class Deviation:
    """A strategy of one role against honest others. Money per batch in units of the stake token.

    Attributes:
        gain: beyond honest play, before punishment.
        due: what the batch's voucher asks for.
        revenue: what it asks for this role.
    """

    role: str
    name: str
    mode: str
    fault: str
    gain: float
    due: Dues
    revenue: int
    exposures: tuple[Exposure, ...]

    @property
    def tempts(self) -> bool:
        """Whether it would pay if nobody looked (rounding apart)."""
        return self.gain > 1e-9 * self.due.total

    def chance(self, terms: Terms, stakes: Stakes) -> float:
        return lane_chance(terms, stakes, self.due)

    def stake(self, stakes: Stakes) -> int:
        """Of the one who lies; of a pair the verifier's, which is what is slashed."""
        return stakes.drafter if self.role == "drafter" else stakes.verifier

    def found(self, terms: Terms, exposure: Exposure, stakes: Stakes) -> float:
        """The chance that a batch brings it down by this exposure."""
        before = {
            When.NEVER: 0.0,
            When.DRAWN: self.chance(terms, stakes),
            When.ALWAYS: 1.0,
            When.CASES: exposure.rate,
        }[exposure.when]
        right = conviction(terms) if exposure.judged else 1.0
        watched = auditors_see(terms, terms.corrupt) if exposure.when == When.DRAWN else 1.0
        return before * exposure.seen * right * (watched if exposure.judged else 1.0)

    def loss(self, terms: Terms, stakes: Stakes) -> float:
        """Expected, per batch."""
        return self.stake(stakes) * sum(
            self.found(terms, exposure, stakes) * exposure.taken.share(terms)
            for exposure in self.exposures
        )

    def net(self, terms: Terms, stakes: Stakes) -> float:
        return self.gain - self.loss(terms, stakes)


# ---------------------------------------------------------------- from what was played


def drafter_exposures(table: Table, drafter: Drafter, played: Played) -> tuple[Exposure, ...]:
    out = []
    if Trace.HELD in drafter.traces:
        out.append(Exposure(When.ALWAYS))
    # The draft model is run again in rejection mode; elsewhere only in a case.
    if Trace.RERUN in drafter.traces and table.mode == REJECTION and not drafter.registered:
        out.append(Exposure(When.DRAWN, judged=True))
    if Trace.LEDGER in drafter.traces and not drafter.registered:
        rate = played.cases / table.batches
        out.append(
            Exposure(When.CASES, Taken.REFUTED, judged=True, rate=rate),
        )
    return tuple(out)


def verifier_exposures(table: Table, verifier: Verifier, pool: Sessions) -> tuple[Exposure, ...]:
    out, samples = [], table.terms.draw.samples
    if Trace.HELD in verifier.traces:
        out.append(Exposure(When.ALWAYS))
    if Trace.SILENCE in verifier.traces:
        out.append(Exposure(When.DRAWN, Taken.SILENCE))
    if Trace.RERUN in verifier.traces:
        unseen = (1 - VISIBLE) ** pool.false * (1 - verifier.shows) ** pool.output
        seen = 1 - float(np.mean(unseen)) ** samples
        out.append(Exposure(When.DRAWN, seen=seen, judged=True))
    if Trace.OPENING in verifier.traces:
        seen = 1 - (1 - verifier.faulty) ** samples
        out.append(Exposure(When.DRAWN, seen=seen))
    return tuple(out)


def per_batch(table: Table, per_thousand: float) -> float:
    """Target passes per 1,000 output tokens to units of the stake token per batch."""
    market = table.market
    return per_thousand * market.costs.target_pass * market.batch_tokens / 1000


def deviation(
    table: Table,
    strategy: Drafter | Verifier,
    pool: Sessions,
    played: Played,
    honest: Played,
) -> Deviation:
    """`played` and `honest`: the same table and random numbers, with and without the strategy."""
    drafts = isinstance(strategy, Drafter)
    gain = (
        played.earned_drafter - honest.earned_drafter
        if drafts
        else played.earned_verifier - honest.earned_verifier
    )
    scale = table.market.sessions / len(pool)
    due = dues_under(table.terms.model, pool.tally(), table.prices.drafter, table.prices.verifier)
    return Deviation(
        role="drafter" if drafts else "verifier",
        name=strategy.name,
        mode=table.mode,
        fault=strategy.fault,
        gain=per_batch(table, gain),
        due=Dues(int(due.drafter * scale), int(due.verifier * scale)),
        revenue=int((due.drafter if drafts else due.verifier) * scale),
        exposures=(
            drafter_exposures(table, strategy, played)
            if isinstance(strategy, Drafter)
            else verifier_exposures(table, strategy, pool)
        ),
    )


# ---------------------------------------------------------------- break-evens


def staking(stakes: Stakes, role: str, stake: float) -> Stakes:
    """`stakes` with another stake of that role."""
    if role == "drafter":
        return replace(stakes, drafter=int(stake))
    return replace(stakes, verifier=int(stake))


def break_even_chance(table: Table, lie: Deviation) -> float | None:
    """The chance of a draw at which the lie neither gains nor loses; None where draws do not matter
    to it. Above 1: no chance is enough at this stake."""
    drawn = [exposure for exposure in lie.exposures if exposure.when == When.DRAWN]
    if not drawn or not lie.tempts:
        return None
    terms, stake = table.terms, lie.stake(table.stakes)
    others = sum(
        lie.found(terms, exposure, table.stakes) * exposure.taken.share(terms)
        for exposure in lie.exposures
        if exposure.when != When.DRAWN
    )
    right = conviction(terms) * auditors_see(terms, terms.corrupt)
    given = sum(e.seen * e.taken.share(terms) * (right if e.judged else 1.0) for e in drawn)
    return max(lie.gain - stake * others, 0.0) / (stake * given)


def break_even_stake(table: Table, lie: Deviation) -> float | None:
    """The least stake at which the lie does not pay, in units of what the batch asks for this role,
    other stakes staying as they are; None where it never gains, inf where no stake is enough."""
    if not lie.tempts:
        return None
    terms = table.terms

    def pays(stake: float) -> bool:
        return lie.net(terms, staking(table.stakes, lie.role, stake)) > 0

    return _least(lambda units: not pays(units * lie.revenue), 0.0, 10_000.0)


def largest_batch(table: Table, lie: Deviation) -> float | None:
    """Expected loss over gain where one batch takes all that the stake may be paid for (lock factor
    × what it answers for: D's part, or all of it); the other operator's stake is beyond want. Below
    1 the lie pays."""
    if not lie.tempts:
        return None
    answers = lie.due.drafter if lie.role == "drafter" else lie.due.total
    rich = 10**6 * lie.due.total
    stakes = staking(Stakes(rich, rich), lie.role, table.terms.lock_factor * answers)
    return lie.loss(table.terms, stakes) / lie.gain


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least value at which `holds`, false below and true above; inf if nowhere."""
    if holds(low):
        return low
    if not holds(high):
        return _NEVER
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# ---------------------------------------------------------------- where it breaks


@dataclass(frozen=True)
class Limit:
    """How far one parameter may move before a lie pays: from `default` to `breaks`, by `lie` (None:
    nowhere in the range searched, which ends at `searched`)."""

    parameter: str
    default: float
    breaks: float | None
    searched: float
    lie: str


Change = Callable[[Terms, float], Terms]


def _draw(terms: Terms, **changes: int) -> Terms:
    parts = {"base_rate": 0, "fault_bps": 0, "samples": 0}
    known = {name: getattr(terms.draw, name) for name in parts}
    return replace(terms, draw=DrawTerms(**{**known, **changes}))


@dataclass(frozen=True)
class Knob:
    """A parameter that `limits` turns from its default towards `end`."""

    name: str
    default: float
    end: float
    change: Change


def knobs(terms: Terms) -> tuple[Knob, ...]:
    """What is turned. Stakes follow the terms (`Terms.stake_cover`), as in a steady market."""
    days = terms.settle_seconds / 86_400
    return (
        Knob(
            "slash (share of the stake)",
            terms.draw.fault_bps / BPS,
            0.0,
            # A real deployment draws more often when it takes less: see DrawBeacon.chanceOf.
            lambda t, x: _draw(
                replace(t, refuted_bps=max(int(x * BPS), 0)), fault_bps=max(int(x * BPS), 1)
            ),
        ),
        Knob(
            "corrupt share of the auditors' stake",
            terms.corrupt,
            0.999,
            lambda t, x: replace(t, corrupt=x),
        ),
        Knob(
            "days between settlements",
            days,
            terms.lock_seconds / 86_400,
            lambda t, x: replace(t, settle_seconds=max(int(x * 86_400), 1)),
        ),
        Knob(
            "stake locked per unit paid",
            terms.lock_factor,
            0.0,
            lambda t, x: replace(t, lock_factor=x),  # type: ignore[arg-type]
        ),
    )


def limits(tables: Sequence[tuple[Table, Iterable[Deviation]]], steps: int = 200) -> list[Limit]:
    """For each knob, the first value on the way to its end at which some lie of some table pays."""
    out = []
    for index in range(len(knobs(tables[0][0].terms))):
        knob = knobs(tables[0][0].terms)[index]
        found: tuple[float, str] | None = None
        for step in range(1, steps + 1):
            value = knob.default + (knob.end - knob.default) * step / steps
            name = _who_gains(tables, lambda t, x=value, k=knob: k.change(t, x))  # type: ignore[misc]
            if name:
                found = (value, name)
                break
        out.append(
            Limit(
                knob.name,
                knob.default,
                found[0] if found else None,
                knob.end,
                found[1] if found else "",
            )
        )
    return out


def _who_gains(
    tables: Sequence[tuple[Table, Iterable[Deviation]]], change: Callable[[Terms], Terms]
) -> str:
    """The lie that gains most under changed terms, stakes following them; '' if none does."""
    best, name = 0.0, ""
    for table, lies in tables:
        terms = change(table.terms)
        scale = terms.stake_cover / table.terms.stake_cover
        for lie in lies:
            stakes = Stakes(int(table.stakes.drafter * scale), int(table.stakes.verifier * scale))
            net = lie.net(terms, stakes)
            if net > max(best, 1e-9 * lie.due.total):
                best, name = net, f"{lie.role} {lie.name} ({lie.mode})"
    return name


def flat_rate_limit(table: Table, lies: Iterable[Deviation]) -> tuple[float, str]:
    """The break-even audit rate: the draw chance, the same for every lane, below which some lie
    pays."""
    chances = [
        (chance, f"{lie.role} {lie.name}")
        for lie in lies
        if (chance := break_even_chance(table, lie)) is not None
    ]
    return max(chances, default=(0.0, ""))
