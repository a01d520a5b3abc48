"""Clients, auditors and pairs: the roles whose lies need no table of pairings.

Payoffs per session (clients), per drawn lane (auditors) and per batch (pairs), in units of the
stake token, against honest play of everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from node.economics.expected import Deviation, Exposure, When
from node.economics.market import Sessions
from node.economics.play import Table
from node.economics.strategies import VISIBLE
from node.economics.terms import (
    BPS,
    Terms,
    auditors_see,
    conviction,
    jury_errs,
    lane_chance,
    wrong_conviction,
)
from settlement.panels import least_bond
from settlement.payments import (
    Dues,
    LaneBalance,
    Stop,
    audit_fee,
    cost,
    dues,
    dues_under,
    must_stop,
)


@dataclass(frozen=True)
class Row:
    """One strategy of a role. `net` is what it brings beyond honest play: at most zero where honest
    play is best. `breaks` says where that ends."""

    role: str
    name: str
    what: str
    gain: float
    net: float
    caught: str
    breaks: str


@dataclass(frozen=True)
class Assumed:
    """What no rule of the protocol fixes.

    Attributes:
        value: of an output token to its client, in prices of it (both payees and fee).
        lane_tokens: what a fresh lane costs its client in gas, in prices of output tokens.
        auditor_stake: of one auditor, in stakes of the verifier.
    """

    value: float = 1.5
    lane_tokens: float = 256.0
    auditor_stake: float = 0.2


# ---------------------------------------------------------------- clients


def unpaid_tokens(table: Table, alpha: float, reserve: int) -> tuple[int, Stop | None]:
    """Output tokens that a client gets from honest operators without signing anything, and why they
    stop: rounds of the expected size until `payments.must_stop` says so."""
    window, prices = table.market.window, table.prices
    accepted = round((1 - alpha ** (window + 1)) / (1 - alpha) - 1) if alpha < 1 else window
    served, unsigned = 0, Dues()
    while True:
        balance = LaneBalance(reserve, 0, Dues())
        stop = must_stop(prices.drafter, prices.verifier, window, served, unsigned, balance)
        if stop is not None:
            return served, stop
        served += accepted + 1
        unsigned += dues(accepted + 1, accepted, prices.drafter, prices.verifier)


def clients(table: Table, honest: Sessions, assumed: Assumed) -> list[Row]:
    """Honest use, and each way of getting more for less."""
    market, prices = table.market, table.prices
    output, accepted = int(honest.output.sum()), int(honest.accepted.sum())
    per_token = cost(dues(output, accepted, prices.drafter, prices.verifier)) / output
    alpha = accepted / int(honest.proposed_by.sum())
    session = market.length * per_token
    free, why = unpaid_tokens(table, alpha, 10**30)
    lane = assumed.lane_tokens * per_token
    # Free tokens come in portions, each from a fresh lane.
    stolen = session - market.length / free * lane
    reserve = cost(dues(32, 24, prices.drafter, prices.verifier))
    covered, stop = unpaid_tokens(table, alpha, reserve)
    served = dues(covered, covered * accepted // output, prices.drafter, prices.verifier)
    over = cost(served) - min(cost(served), reserve)
    return [
        Row("client", "honest", "signs what it got", 0.0, 0.0, "—", ""),
        Row(
            "client",
            "unpaid exposure",
            "takes what is served without a voucher, then a fresh lane",
            session,
            stolen,
            f"served no further ({why})",
            f"pays where a fresh lane costs less than {free} output tokens",
        ),
        Row(
            "client",
            "refuses to sign",
            "the same, in one lane",
            free * per_token,
            -max(assumed.value - 1, 0) * max(market.length - free, 0) * per_token,
            f"served no further ({why})",
            f"at most {free} tokens once",
        ),
        Row(
            "client",
            "over-committed reserve",
            f"many sessions on a reserve of 32 tokens: {covered} served",
            over,
            over,
            f"served no further ({stop})",
            "never: what is served is covered, fee included",
        ),
        Row(
            "client",
            "withdraws while owing",
            "asks its reserve out before the voucher is settled",
            0.0,
            0.0,
            "a thawing reserve stays collectable, longer than a settlement takes",
            "never",
        ),
        Row(
            "client",
            "hard prompts",
            "buys text that it does not want, to sink an honest α",
            -session,
            -session,
            "the drafter's assertion stands; nobody is slashed",
            f"worth more than {session / per_token:.0f} tokens' price a session to a rival",
        ),
        Row(
            "client",
            "reused nonce, forged seed",
            "orders under a nonce or seed that is not its own",
            0.0,
            -max(assumed.value - 1, 0) * session,
            "not served",
            "never",
        ),
    ]


# ---------------------------------------------------------------- auditors


@dataclass(frozen=True)
class AuditCost:
    """Re-running at the chosen rate. Shares are of what the lane's inference costs both payees.

    Attributes:
        chance: of a draw.
        audits: of whole sessions, by the auditors that nodes draw.
        tickets: of drawn tokens on chain: prompt and half of the text each, on an average.
        panels: the panel's and the appeal's re-runs, as if every drawn lane had a case.
    """

    chance: float
    audits: float
    tickets: float
    panels: float
    batch_tokens: int
    lane_cost: float
    audit: float

    @property
    def share(self) -> float:
        return self.audits + self.tickets + self.panels


def audit_cost(table: Table, honest: Sessions, cases: float = 0.0) -> AuditCost:
    """What auditing costs beside inference. `cases`: share of drawn lanes that come before a panel
    and its appeal; honest ones do not."""
    market, terms = table.market, table.terms
    tally, scale = honest.tally(), market.sessions / len(honest)
    costs = market.costs
    lane = costs.verify(tally.passes, tally.proposed) + tally.proposed * costs.draft_token
    lane *= scale
    due = dues_under(terms.model, tally, table.prices.drafter, table.prices.verifier)
    asked = Dues(int(due.drafter * scale), int(due.verifier * scale))
    chance = lane_chance(terms, table.stakes, asked)
    session = costs.prefill(market.prompt + market.length)
    audit = min(terms.draw.samples, market.sessions) * session
    ticket = terms.draw.samples * costs.prefill(market.prompt + market.length / 2)
    juries = (terms.panel_size + terms.appeal_size) * session
    return AuditCost(
        chance,
        chance * terms.auditors * audit / lane,
        chance * terms.auditors * ticket / lane,
        chance * cases * juries / lane,
        market.batch_tokens,
        lane,
        audit,
    )


def auditors(table: Table, honest: Sessions, assumed: Assumed) -> list[Row]:
    """Per drawn lane and auditor. The fees of all lanes pay for those that are drawn."""
    terms = table.terms
    spent = audit_cost(table, honest)
    accusers = [_accuser(table, appeals) for appeals in (False, True)]
    if spent.chance == 0:
        # Nobody is ever drawn, so there is nothing to be lazy about.
        return accusers
    scale = table.market.sessions / len(honest)
    due = dues_under(terms.model, honest.tally(), table.prices.drafter, table.prices.verifier)
    pay = audit_fee(int(due.total * scale), terms.fee_bps) / spent.chance / terms.auditors
    stake = assumed.auditor_stake * table.stakes.verifier
    silence = terms.auditor_silent_bps / BPS * stake
    base = pay - spent.audit
    # A clean answer to a canary costs as much as silence.
    caught = terms.canaries * silence
    rows = [
        Row(
            "auditor", "honest", "runs the model again", 0.0, 0.0, "—",
            f"paid while the fee is above {terms.fee_bps * spent.audit / pay / BPS:.2%}",
        ),
        Row(
            "auditor",
            "rubber-stamp",
            "says clean, runs nothing",
            spent.audit,
            -caught - base,
            "unpaid: its fingerprint is nobody's; canaries",
            f"pays where an audit costs more than {1 + caught / pay:.2f} of its fee",
        ),
        Row(
            "auditor",
            "blind eye",
            "runs the model and reports no lie",
            0.0,
            -caught,
            "canaries",
            f"worth it for a bribe above {caught / 10**18:.2f} tokens a ticket",
        ),
        Row(
            "auditor", "copycat", "waits to copy another's answer", spent.audit,
            -silence - base, "a commitment binds its author; none opens", "never",
        ),
        Row(
            "auditor", "silent", "takes the seat and no part", spent.audit,
            -silence - base, "F10 at the deadline", "never",
        ),
    ]  # fmt: skip
    return rows + accusers


def _accuser(table: Table, appeals: bool) -> Row:
    """A false accusation of an honest verifier whose every juror in corrupt hands lies for it."""
    terms = table.terms
    wins = wrong_conviction(terms, appeals)
    panel = jury_errs(terms.panel_size, terms.corrupt)
    share = terms.draw.fault_bps / BPS * terms.reward_bps / BPS
    reward = share * table.stakes.verifier
    bond = max(float(terms.accusing_bond), reward * terms.accusing_bond_bps / BPS)
    # Lost where the first jury cleared and the accuser appealed in vain: the appeal's bond as well.
    # Half of a lost bond is the jurors', and so in part its own.
    bonds = 1 - wins + (2 * (1 - panel) * conviction(terms) if appeals else 0.0)
    lost = bonds * (1 - terms.corrupt / 2) * bond
    net = wins * reward - lost
    least = least_bond(
        terms.panel_size, terms.appeal_size, Fraction(terms.corrupt).limit_denominator(10**6)
    )
    if least * BPS < terms.accusing_bond_bps:
        breaks = (
            f"never: the bond is {terms.accusing_bond_bps / BPS:.0%} of the reward, "
            f"{float(least):.1%} would do"
        )
    else:
        even = lost / bond * terms.accusing_bond / (wins * share) / 10**18
        breaks = f"pays above a stake of {even:,.0f} tokens"
    return Row(
        "auditor",
        "false accuser" + (", appeals" if appeals else ""),
        f"accuses an honest verifier; {terms.corrupt:.0%} of the auditors' stake lies along",
        wins * reward,
        net,
        "the panel, and the appeal",
        breaks,
    )


# ---------------------------------------------------------------- pairs


@dataclass(frozen=True)
class Pair:
    """Two roles with one purse."""

    name: str
    what: str
    lie: Deviation
    terms: Terms


def pairs(
    table: Table, honest: Sessions, retaliating: Sessions, accept_all: Deviation
) -> list[Pair]:
    """Coalitions. Gains are the coalition's; what is slashed is the verifier's stake.

    Args:
        retaliating: sessions of a verifier that rejects valid drafts.
        accept_all: that verifier's deviation, for the one with auditors in its pay.
    """
    market, terms, prices = table.market, table.terms, table.prices
    costs, scale = market.costs, market.sessions / len(honest)
    tally = honest.tally()
    due = dues_under(terms.model, tally, prices.drafter, prices.verifier)
    asked = Dues(int(due.drafter * scale), int(due.verifier * scale))
    work = costs.verify(tally.passes, tally.proposed) + tally.proposed * costs.draft_token
    seen = Exposure(When.DRAWN, judged=True)

    def lie(name: str, gain: float, exposure: Exposure) -> Deviation:
        return Deviation("pair", name, table.mode, "F9", gain, asked, asked.verifier, (exposure,))

    token_hidden = 1 - VISIBLE
    steered = 0.05
    hidden = token_hidden ** (steered * market.length)
    steering = Exposure(When.DRAWN, seen=1 - hidden**terms.draw.samples, judged=True)
    worth = steered * market.batch_tokens * prices.verifier * table.steer_value

    # C saves D's price for what V turns down; V pays for the passes that makes.
    more = retaliating.tally()
    saved = (tally.accepted * scale - more.accepted * scale) * prices.drafter
    saved *= 1 + terms.fee_bps / BPS
    passes = costs.verify(more.passes, more.proposed) - costs.verify(tally.passes, tally.proposed)
    against = saved - passes * scale
    bought = replace(terms, corrupt=0.5)
    return [
        Pair("D + V invent", "all text made up, nothing computed", lie(
            "D + V invent", work * scale, seen), terms),
        Pair("D + V steer", "one token in twenty is D's choice, not the target's", lie(
            "D + V steer", worth, steering), terms),
        Pair("V + auditors", "V accepts all, half of the auditors' stake is V's", replace(
            accept_all, role="pair", name="V + auditors"), bought),
        Pair("C + V against D", "V rejects valid drafts and C signs", lie(
            "C + V against D", against, seen), terms),
    ]  # fmt: skip


def pair_rows(table: Table, found: list[Pair]) -> list[Row]:
    rows = []
    for pair in found:
        stake = table.stakes.verifier
        net = pair.lie.net(pair.terms, table.stakes)
        caught = auditors_see(pair.terms, pair.terms.corrupt) * conviction(pair.terms)
        chance = pair.lie.chance(pair.terms, table.stakes)
        even = pair.lie.gain / stake / (pair.terms.draw.fault_bps / BPS)
        rows.append(
            Row(
                "pair",
                pair.name,
                pair.what,
                pair.lie.gain,
                net,
                f"F9, found in {caught:.0%} of draws",
                f"pays below a chance of {even / caught:.2%} (it is {chance:.2%})"
                if pair.lie.gain > 0
                else "never: the passes cost more than the drafts",
            )
        )
    return rows
