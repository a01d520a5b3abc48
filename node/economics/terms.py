"""What is paid for, drawn and punished, and the chances that follow. Pure.

The chance of a draw, the division of a slash and the chance that a jury errs are the node's own
functions (`settlement.draws`, `settlement.slashing`, `settlement.panels`): a share of the auditors'
stake is in corrupt hands that lie alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Final

from settlement.draws import DrawTerms, chance_of, lane_seed
from settlement.panels import bad_jury
from settlement.payments import AUDIT_FEE_BPS, LOCK_FACTOR, Dues, PaymentModel

BPS: Final = 10_000
COVERAGE_ONE: Final = 256
MAX_COVERAGE: Final = (1 << 24) - 1
_TOKEN: Final = 10**18
_DAY: Final = 86_400


class TermsError(ValueError):
    """A share, size or count outside its range."""


@dataclass(frozen=True)
class Terms:
    """A payment model and everything that stands behind it.

    `checked` false is a textbook model: the parties count what they were sent, and nothing is
    staked, drawn or punished.

    Attributes:
        draw: ρ, the fault's share and s, as the beacon has them.
        flat_rate: the chance of a draw, the same for every lane, in place of the beacon's rule.
        late_bps, silent_bps, silent_reward_bps: F7.
        reward_bps, victim_bps: of a slash, to accuser and victims.
        case_late_bps, case_silent_bps, refuted_bps, case_reward_bps, case_bond: of α cases.
        accusing_bond: before a panel, at least; an appeal's is twice what the accuser's is.
        accusing_bond_bps: of the accuser's reward, where that is more (PanelTerms.bondAt).
        panel_size, appeal_size: seats.
        auditors: drawn for each drawn lane.
        corrupt: share of the auditors' stake whose holders lie alike.
        auditor_silent_bps: F10.
        canaries: share of an auditor's cases that are planted.
        lock_seconds: how long a settled amount holds stake.
        settle_seconds: between two settlements of a lane.
        lanes: that an operator's one stake answers for.
        claim_slack: points that an honest drafter promises less than it has.
    """

    model: PaymentModel = PaymentModel.ACCEPTED_AND_OUTPUT
    checked: bool = True
    fee_bps: int = AUDIT_FEE_BPS
    lock_factor: int = LOCK_FACTOR
    draw: DrawTerms = field(default_factory=lambda: DrawTerms(2**32 // 20, 5_000, 4))
    flat_rate: float | None = None
    late_bps: int = 500
    silent_bps: int = 5_000
    silent_reward_bps: int = 400
    reward_bps: int = 2_500
    victim_bps: int = 2_500
    case_late_bps: int = 1_000
    case_silent_bps: int = 5_000
    refuted_bps: int = 5_000
    case_reward_bps: int = 5_000
    case_bond: int = 100 * _TOKEN
    accusing_bond: int = 100 * _TOKEN
    accusing_bond_bps: int = 2_000
    panel_size: int = 5
    appeal_size: int = 15
    auditors: int = 3
    corrupt: float = 1 / 3
    auditor_silent_bps: int = 500
    canaries: float = 0.05
    lock_seconds: int = 15 * _DAY
    settle_seconds: int = _DAY
    lanes: int = 1
    claim_slack: int = 3

    def __post_init__(self) -> None:
        for name in ("corrupt", "canaries", "flat_rate"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise TermsError(f"{name} is a share of one, not {share}")
        if min(self.settle_seconds, self.lanes, self.panel_size, self.appeal_size) < 1:
            raise TermsError("spans, lanes and juries are positive")

    @property
    def model_name(self) -> str:
        return self.model.value

    @property
    def stake_cover(self) -> float:
        """Stake that a steady operator must have, in units of what one batch pays it: every batch
        under lock at once, `lock_factor` for each."""
        batches = max(1.0, self.lock_seconds / self.settle_seconds)
        return self.lock_factor * batches * self.lanes


def textbook(model: PaymentModel) -> Terms:
    """One of the three models without anything behind it."""
    return Terms(model=model, checked=False, fee_bps=0)


# ---------------------------------------------------------------- chances


@dataclass(frozen=True)
class Stakes:
    """What each operator's role has staked."""

    drafter: int
    verifier: int


def coverage(reachable: int, asked: int) -> int:
    """A stake against what it answers for, in 256ths (LaneEscrow._coverage)."""
    return MAX_COVERAGE if asked == 0 else min((reachable << 8) // asked, MAX_COVERAGE)


def lane_coverage(stakes: Stakes, asked: Dues) -> int:
    """The thinner of V's stake against all that a voucher asks for and D's against its part
    (LaneEscrow._figures)."""
    return min(coverage(stakes.verifier, asked.total), coverage(stakes.drafter, asked.drafter))


def chance_at(terms: Terms, cover: int) -> int:
    """The chance, out of 2**64, that a lane with this cover in 256ths is drawn."""
    if terms.flat_rate is not None:
        return int(terms.flat_rate * (1 << 64))
    return chance_of(terms.draw, cover)


def lane_chance(terms: Terms, stakes: Stakes, asked: Dues) -> float:
    """The chance that a batch's lane is drawn."""
    return chance_at(terms, lane_coverage(stakes, asked)) / 2**64


def is_drawn(terms: Terms, randomness: bytes, stakes: Stakes, asked: Dues) -> bool:
    """Whether the first lane of a batch is drawn by that randomness (draws.is_drawn)."""
    coin = int.from_bytes(lane_seed(randomness, 0)[:8], "big")
    return coin < chance_at(terms, lane_coverage(stakes, asked))


@cache
def jury_errs(seats: int, corrupt: float) -> float:
    """P(more than half of the seats are in corrupt hands): binomial. For 1/3: 0.21 of 5 seats,
    0.088 of 15."""
    return float(bad_jury(seats, Fraction(corrupt).limit_denominator(10**6)))


def conviction(terms: Terms) -> float:
    """P(the last jury judges rightly), where the honest side appeals."""
    return 1 - jury_errs(terms.appeal_size, terms.corrupt)


def wrong_conviction(terms: Terms, accuser_appeals: bool) -> float:
    """P(an innocent is convicted): both juries err, or the appeal alone where the accuser lodges
    it."""
    appeal = jury_errs(terms.appeal_size, terms.corrupt)
    return appeal if accuser_appeals else jury_errs(terms.panel_size, terms.corrupt) * appeal


def auditors_see(terms: Terms, bought: float = 0.0) -> float:
    """P(at least one of a lane's drawn auditors is not in the liar's pay), `bought` of their stake
    being so."""
    return 1 - bought**terms.auditors


# ---------------------------------------------------------------- the inequality


@dataclass(frozen=True)
class Cover:
    """The inequality of section 8 at one cover: chance × slash over the worst revenue.

    Attributes:
        cover: V's stake over what the batch asked for, or D's over its part.
        chance: of a draw.
        ratio: chance × slash / revenue, nothing else taken off.
        judged: the same times the chance that some drawn auditor and the last jury are right.
    """

    cover: float
    chance: float
    ratio: float
    judged: float


def inequality(terms: Terms, covers: tuple[float, ...]) -> list[Cover]:
    """Detection × slash against everything that a batch can bring, at those covers. Every token is
    false: a liar who lies less gains in proportion and is found more than in proportion."""
    rows = []
    sure = conviction(terms) * auditors_see(terms, terms.corrupt)
    for cover in covers:
        chance = chance_at(terms, min(int(cover * COVERAGE_ONE), MAX_COVERAGE)) / 2**64
        ratio = chance * terms.draw.fault_bps / BPS * cover
        rows.append(Cover(cover, chance, ratio, ratio * sure))
    return rows
