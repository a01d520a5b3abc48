"""One pairing of strategies over many batches: sampled, paid, drawn, slashed; every unit is booked.

Payment is `payments.dues_under` and `payments.settle`, draws are `draws.chance_of` and its coin,
slashes are `slashing.slash`, cases are the α test's. What a strategy does not change is honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from node.economics import ledger
from node.economics.market import Conduct, Ints, Market, Sessions, sample
from node.economics.strategies import REJECTION, VISIBLE, Drafter, Trace, Verifier
from node.economics.terms import Stakes, Terms, auditors_see, conviction, is_drawn
from settlement.payments import Dues, Tally, audit_fee, dues_under, settle
from settlement.slashing import Split, court_losses, slash

HEADROOM = 1.5  # of an honest operator's stake over what its batches lock


class Books:
    """Where every unit is. Money moves and is never made: `total` stays what it was."""

    def __init__(self, balances: Mapping[str, int]) -> None:
        self.of = dict(balances)
        self._total = sum(self.of.values())

    def move(self, source: str, to: str, amount: int) -> None:
        if amount < 0:
            raise ValueError(f"{amount} from {source} to {to}: amounts are not negative")
        self.of[source] -= amount
        self.of[to] = self.of.get(to, 0) + amount

    @property
    def closed(self) -> bool:
        return sum(self.of.values()) == self._total


@dataclass(frozen=True)
class Prices:
    """What a unit earns under a payment model, in units of the stake token."""

    drafter: int
    verifier: int


@dataclass(frozen=True)
class Played:
    """What came of a pairing, per 1,000 output tokens that were ordered, in target passes.

    `earned_*` is income less costs before any punishment, `lost_*` what slashes and bonds took.
    `intact` is the share of output tokens that the target would have said. `cases` and `drawn` are
    counts over all batches; `balanced` says that no unit was made or lost.
    """

    drafter: float
    verifier: float
    client: float
    earned_drafter: float
    earned_verifier: float
    lost_drafter: float
    lost_verifier: float
    alpha: float
    passes: float
    intact: float
    steered: float
    drawn: int
    cases: int
    slashed_drafter: int
    slashed_verifier: int
    balanced: bool


def conduct(market: Market, drafter: Drafter, verifier: Verifier) -> Conduct:
    pair = market.acceptance
    return Conduct(
        drafter.rates(pair),
        drafter.steer(pair),
        drafter.steer_passes,
        verifier.false_reject,
        verifier.accept_all,
    )


def fair_prices(market: Market, terms: Terms, honest: Sessions) -> Prices:
    """Prices at which honest operators earn `margin` over their costs, whatever is paid for: so
    every model costs an honest market the same. Rounded up."""
    tally = honest.tally()
    units = dues_under(terms.model, tally, 1, 1)
    costs = market.costs
    drafting = tally.proposed * costs.draft_token
    verifying = costs.verify(tally.passes, tally.proposed)
    return Prices(
        -int(-(1 + market.margin) * drafting // units.drafter),
        -int(-(1 + market.margin) * verifying // units.verifier),
    )


def steady_stakes(market: Market, terms: Terms, prices: Prices, honest: Sessions) -> Stakes:
    """Stakes of operators that settle at their steady pace: `Terms.stake_cover` times a batch's
    dues, V's for D's as well, with some room."""
    due = dues_under(terms.model, honest.tally(), prices.drafter, prices.verifier)
    scale = HEADROOM * terms.stake_cover * market.sessions / len(honest)
    return Stakes(int(due.drafter * scale), int(due.total * scale))


@dataclass(frozen=True)
class Table:
    """What every pairing of one payment model shares."""

    market: Market
    terms: Terms
    mode: str
    prices: Prices
    stakes: Stakes
    claim: tuple[int, ...]
    steer_value: float = 1.0  # of a steered token to its drafter, in prices of an output token
    batches: int = 150


def set_table(
    market: Market,
    terms: Terms,
    mode: str,
    honest: Sessions,
    *,
    steer_value: float = 1.0,
    batches: int = 150,
) -> Table:
    """A table at the prices and stakes of an honest market. `honest`: sampled honest sessions."""
    prices = fair_prices(market, terms, honest)
    stakes = steady_stakes(market, terms, prices, honest)
    claim = market.acceptance.claim(terms.claim_slack)
    return Table(market, terms, mode, prices, stakes, claim, steer_value, batches)


def sample_pairing(
    market: Market, drafter: Drafter, verifier: Verifier, count: int, rng: np.random.Generator
) -> Sessions:
    return sample(market, conduct(market, drafter, verifier), count, rng)


def play(
    table: Table,
    drafter: Drafter,
    verifier: Verifier,
    pool: Sessions,
    rng: np.random.Generator,
) -> Played:
    """`table.batches` batches of `market.sessions` sessions drawn from `pool`, with the stakes
    brought back to their level after each slash: so a batch is a decision of its own."""
    rows = rng.integers(0, len(pool), (table.batches, table.market.sessions))
    game = _Game(table, drafter, verifier, pool, rows, rng)
    for batch in range(table.batches):
        game.settle(batch)
    game.hold_cases()
    return game.result()


class _Game:
    """The state of one `play`."""

    def __init__(
        self,
        table: Table,
        drafter: Drafter,
        verifier: Verifier,
        pool: Sessions,
        rows: Ints,
        rng: np.random.Generator,
    ) -> None:
        self.table, self.terms, self.market = table, table.terms, table.market
        self.d, self.v, self.pool, self.rows, self.rng = drafter, verifier, pool, rows, rng
        stakes = table.stakes
        # Everybody's purse is deep: what counts is what flows.
        self.books = Books(
            {
                "client": 10**30,
                "drafter": 10**30,
                "verifier": 10**30,
                "fees": 0,
                "accuser": 0,
                "burned": 0,
                "drafter stake": stakes.drafter,
                "verifier stake": stakes.verifier,
            }
        )
        self.start = dict(self.books.of)
        self.lost = {"drafter": 0, "verifier": 0}
        self.drawn = self.cases = 0
        self.cost = {"drafter": 0.0, "verifier": 0.0}
        # Of each session: what a re-run is sure to see of V's text or model.
        unseen = (1 - VISIBLE) ** pool.false * (1 - verifier.shows) ** pool.output
        self.seen = 1 - unseen
        sums = {name: getattr(pool, name)[rows].sum(axis=1) for name in _COUNTED}
        self.tallies = [
            Tally(*(int(sums[name][batch]) for name in _COUNTED)) for batch in range(len(rows))
        ]

    # ------------------------------------------------------------ a batch

    def settle(self, batch: int) -> None:
        table, terms = self.table, self.terms
        tally = self.tallies[batch]
        due = self._due(tally)
        self._work(tally)
        reserve = due.total + audit_fee(due.total, terms.fee_bps)
        if not terms.checked:
            self._pay(due, 0)
            return
        share = terms.stake_cover / terms.lock_factor
        payment = settle(
            due,
            Dues(),
            reserve,
            int(table.stakes.drafter / share) // terms.lock_factor,
            int(table.stakes.verifier / share) // terms.lock_factor,
            fee_bps=terms.fee_bps,
        )
        self._pay(payment.paid, payment.fee)
        self._prosecute(batch, tally, due)

    def _due(self, tally: Tally) -> Dues:
        table, terms = self.table, self.terms
        full = dues_under(terms.model, tally, table.prices.drafter, table.prices.verifier)
        # Where V's rounds are not signed, D's are not either.
        signed = min(self.d.paid if terms.checked else 1.0, self.v.paid)
        drafter = int(full.drafter * self.d.delivers * signed)
        return Dues(drafter, int(full.verifier * self.v.paid))

    def _work(self, tally: Tally) -> None:
        costs, market = self.market.costs, self.market
        drafting = self.d.cost * costs.draft_token + self.d.target_rows * costs.target_pass
        self.cost["drafter"] += tally.proposed * drafting * self.d.delivers
        verifying = self.v.cost * costs.verify(tally.passes, tally.proposed)
        if self.v.prefill:
            verifying += market.sessions * costs.prefill(market.prompt + market.length)
        self.cost["verifier"] += verifying

    def _pay(self, paid: Dues, fee: int) -> None:
        self.books.move("client", "drafter", paid.drafter)
        self.books.move("client", "verifier", paid.verifier)
        self.books.move("client", "fees", fee)

    # ------------------------------------------------------------ what is found

    def _prosecute(self, batch: int, tally: Tally, due: Dues) -> None:
        terms, stakes = self.terms, self.table.stakes
        for who, strategy in (("drafter", self.d), ("verifier", self.v)):
            if Trace.HELD in strategy.traces:
                self._slash(who, terms.draw.fault_bps, terms.reward_bps)
        if not is_drawn(terms, self.rng.bytes(32), stakes, due):
            return
        self.drawn += 1
        if Trace.SILENCE in self.v.traces:
            self._slash("verifier", terms.late_bps, terms.silent_reward_bps, refill=False)
            self._slash("verifier", terms.silent_bps, terms.silent_reward_bps)
            return
        samples = terms.draw.samples
        if Trace.OPENING in self.v.traces and (self.rng.random(samples) < self.v.faulty).any():
            # Nobody is paid for showing a fault in an opening.
            self._slash("verifier", terms.draw.fault_bps, 0)
            return
        # Sessions of the drawn tokens; all are of one length here.
        read = self.rows[batch][self.rng.integers(0, self.market.sessions, samples)]
        found = self.rng.random(samples) < self.seen[read]
        if found.any() and self._judged():
            loss = _round_loss(tally, due)
            self._slash("verifier", terms.draw.fault_bps, terms.reward_bps, loss)
        if self.table.mode == REJECTION and not self.d.registered and self._judged():
            self._slash("drafter", terms.draw.fault_bps, terms.reward_bps, _round_loss(tally, due))

    def _judged(self) -> bool:
        """Whether some drawn auditor is honest, and the last jury right."""
        seen = self.rng.random() < auditors_see(self.terms, self.terms.corrupt)
        return bool(seen and self.rng.random() < conviction(self.terms))

    def _slash(
        self,
        who: str,
        bps: int,
        reward_bps: int,
        losses: tuple[int, int] = (0, 0),
        refill: bool = True,
    ) -> None:
        terms, pot = self.terms, f"{who} stake"
        stake = self.books.of[pot]
        cut = court_losses(stake, bps, terms.victim_bps, *losses)
        split: Split = slash(stake, bps, cut, reward_bps)
        other = "drafter" if who == "verifier" else "verifier"
        self.books.move(pot, "client", split.to_victims[0])
        self.books.move(pot, other, split.to_victims[1])
        self.books.move(pot, "accuser", split.to_challenger)
        self.books.move(pot, "burned", split.burned)
        self.lost[who] += split.total
        if refill:
            level = getattr(self.table.stakes, who)
            self.books.move(who, pot, level - self.books.of[pot])

    def hold_cases(self) -> None:
        """The α test over all batches, in their order. An assertion of drafts that the registered
        model did not make is refuted unless the last jury errs."""
        terms = self.terms
        if not terms.checked:
            return
        proposed = self.pool.proposed_by[self.rows].sum(axis=1)
        accepted = self.pool.accepted_by[self.rows].sum(axis=1)
        held = ledger.cases(proposed, accepted, self.table.claim, stands=self.d.registered)
        for _ in held:
            self.cases += 1
            if self.d.registered or self.rng.random() >= conviction(terms):
                continue
            self._slash("drafter", terms.refuted_bps, terms.case_reward_bps)
            bond = terms.case_bond
            self.books.move("drafter", "accuser", bond // 2)
            self.books.move("drafter", "burned", bond - bond // 2)
            self.lost["drafter"] += bond

    # ------------------------------------------------------------ the sum of it

    def result(self) -> Played:
        market, pool = self.market, self.pool
        tokens = self.table.batches * market.batch_tokens
        unit = 1000 / tokens / market.costs.target_pass
        steered = int(pool.steered[self.rows].sum())
        steering = self.table.steer_value * self.table.prices.verifier * steered
        outside = {"drafter": steering, "verifier": 0.0}

        def payoff(who: str) -> float:
            pot = f"{who} stake"
            flow = self.books.of[who] - self.start[who] + self.books.of[pot] - self.start[pot]
            return (flow + outside[who] - self.cost[who]) * unit

        drafter, verifier = payoff("drafter"), payoff("verifier")
        lost = {who: taken * unit for who, taken in self.lost.items()}
        output = int(pool.output[self.rows].sum())
        reached = int(pool.proposed_by[self.rows].sum())
        return Played(
            drafter=drafter,
            verifier=verifier,
            client=(self.books.of["client"] - self.start["client"]) * unit,
            earned_drafter=drafter + lost["drafter"],
            earned_verifier=verifier + lost["verifier"],
            lost_drafter=lost["drafter"],
            lost_verifier=lost["verifier"],
            alpha=int(pool.accepted[self.rows].sum()) / reached,
            passes=int(pool.passes[self.rows].sum()) * 1000 / output,
            intact=1 - int(pool.altered[self.rows].sum()) / output,
            steered=steered / output,
            drawn=self.drawn,
            cases=self.cases,
            slashed_drafter=self.lost["drafter"],
            slashed_verifier=self.lost["verifier"],
            balanced=self.books.closed,
        )


_COUNTED = ("passes", "drafted", "accepted", "output")


def _round_loss(tally: Tally, due: Dues) -> tuple[int, int]:
    """(client's, other payee's) loss of one round, for whose payments victims are made whole."""
    return due.total // tally.passes, due.drafter // tally.passes


def honest_sessions(market: Market, count: int, rng: np.random.Generator) -> Sessions:
    """Sessions in which everybody is honest."""
    pair = market.acceptance
    return sample(market, Conduct(pair.rates, np.zeros_like(pair.rates)), count, rng)


def with_terms(table: Table, **changes: object) -> Table:
    """The same prices and stakes under other terms."""
    return replace(table, terms=replace(table.terms, **changes))  # type: ignore[arg-type]
