"""What a deployment is set up with. Pure.

Production values are the protocol's; a devnet's are the same shape in minutes, so that a stake's
whole life can be watched. Both keep `unbonding ≥ evidence + deadlines + panel + appeal + margin`,
which the vault checks.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from settlement.alpha import CHECKPOINT_PROPOSALS
from settlement.chain.contracts import EscrowParameters, StakeTimes
from settlement.payments import AUDIT_FEE_BPS, LOCK_FACTOR

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TOKEN: Final = 10**18


@dataclass(frozen=True)
class LedgerParameters:
    """IAlphaLedger.Parameters; shares in hundredths of a percent of the drafter's stake."""

    spacing: int = CHECKPOINT_PROPOSALS
    late_bps: int = 1_000
    silent_bps: int = 5_000
    refuted_bps: int = 5_000
    reward_bps: int = 5_000
    bond: int = 100 * _TOKEN

    def to_abi(self) -> tuple[int, ...]:
        return (
            self.spacing,
            self.late_bps,
            self.silent_bps,
            self.refuted_bps,
            self.reward_bps,
            self.bond,
        )


@dataclass(frozen=True)
class BeaconTerms:
    """IDrawBeacon.Terms without the spans, which are the vault's."""

    base_rate: int = 2**32 // 20  # ρ, of 2**32
    late_bps: int = 500
    silent_bps: int = 5_000
    fault_bps: int = 5_000
    # With more, a silent verifier whose friend calls the deadlines would lose less than half.
    reward_bps: int = 400
    samples: int = 4
    delay: int = 4  # blocks

    def to_abi(self) -> tuple[int, ...]:
        return (
            0,
            0,
            0,
            self.base_rate,
            self.late_bps,
            self.silent_bps,
            self.fault_bps,
            self.reward_bps,
            self.samples,
            self.delay,
        )


@dataclass(frozen=True)
class CourtTerms:
    """ICourt.Terms, of FaultCourt and ExactDispute alike. `delay` and `window` in blocks."""

    bond: int = 100 * _TOKEN
    delay: int = 5
    window: int = 7_200  # a day of twelve-second blocks
    fault_bps: int = 5_000
    # Challenger and victims together never get more than half of a slash: see FaultCourt. With a
    # quarter to the challenger, reporting oneself before a draw costs what the draws reckon with.
    reward_bps: int = 2_500
    victim_bps: int = 2_500


@dataclass(frozen=True)
class DemandTerms:
    """IDemands.Terms without the spans, which are the vault's."""

    bond: int = 10 * _TOKEN  # worth the gas of an answer
    late_bps: int = 500
    silent_bps: int = 5_000
    fault_bps: int = 5_000
    reward_bps: int = 400  # as for draws

    def to_abi(self) -> tuple[int, ...]:
        shares = (self.late_bps, self.silent_bps, self.fault_bps, self.reward_bps)
        return (self.bond, 0, 0, *shares)


@dataclass(frozen=True)
class JurySpans:
    """IJuries.Spans: seconds to call for the draw, to commit, to open what was kept, to reveal."""

    seat: int
    commit: int
    open: int
    reveal: int


@dataclass(frozen=True)
class PanelParameters:
    """IPanelTerms.Terms, the auditors' minimum and what jurors are paid."""

    spans: JurySpans
    appeal_window: int  # seconds
    bond: int = 100 * _TOKEN
    fault_bps: int = 5_000
    reward_bps: int = 2_500  # as the court's
    victim_bps: int = 2_500
    panel_size: int = 5
    appeal_size: int = 15
    min_seated: int = 3
    min_pool: int = 100_000 * _TOKEN  # of stake in a model's pool: fewer judge nobody
    fee: int = _TOKEN  # to each juror of a true case, of the stake token's audit fees
    min_stake: int = 1_000 * _TOKEN  # of an auditor that is drawn
    silent_bps: int = 500  # F10
    silent_reward_bps: int = 400
    delay: int = 4  # blocks
    bond_bps: int = 2_000  # of the accuser's reward, where that is more than `bond`

    def terms_abi(self) -> tuple[Any, ...]:
        return (
            self.bond,
            self.fault_bps,
            self.reward_bps,
            self.victim_bps,
            self.panel_size,
            self.appeal_size,
            self.min_seated,
            self.min_pool,
            self.appeal_window,
            astuple(self.spans),
            self.bond_bps,
        )

    def juries_abi(self) -> tuple[int, ...]:
        return (self.silent_bps, self.silent_reward_bps, self.delay)


@dataclass(frozen=True)
class AuditParameters:
    """IAuditTerms.Terms, and what auditors of drawn tokens are paid."""

    spans: JurySpans
    refer_window: int  # seconds
    bond: int = 10 * _TOKEN
    size: int = 3
    late_bps: int = 500
    silent_bps: int = 5_000
    passed_bps: int = 500  # F10
    reward_bps: int = 400  # as for draws
    planted_bps: int = 5_000
    fee: int = _TOKEN // 10  # to each, at most, of the stake token's audit fees

    def to_abi(self) -> tuple[Any, ...]:
        return (
            self.bond,
            self.size,
            self.late_bps,
            self.silent_bps,
            self.passed_bps,
            self.reward_bps,
            self.planted_bps,
            self.refer_window,
            astuple(self.spans),
        )


@dataclass(frozen=True)
class Parameters:
    """All of a deployment's parameters. `timelock_delay` zero: the deployer stays the owner."""

    name: str
    times: StakeTimes
    slice_length: int  # seconds: locks and draws are counted by slice
    escrow: EscrowParameters
    ledger: LedgerParameters
    beacon: BeaconTerms
    court: CourtTerms
    demands: DemandTerms
    panel: PanelParameters
    audits: AuditParameters
    timelock_delay: int
    # A slash of less settles no fault for ever: half of it is far above what a round can bring.
    least_stake: int = 1_000 * _TOKEN

    def to_json(self) -> dict[str, Any]:
        return {"profile": self.name, "timelockDelay": self.timelock_delay}


PRODUCTION: Final = Parameters(
    name="production",
    times=StakeTimes(
        evidence=7 * _DAY,
        first_deadline=_DAY,
        second_deadline=_DAY,
        panel=2 * _DAY,
        appeal=4 * _DAY,
        margin=2 * _DAY,
        unbonding=18 * _DAY,
    ),
    slice_length=_HOUR,
    escrow=EscrowParameters(fee_bps=AUDIT_FEE_BPS, lock_factor=LOCK_FACTOR, thaw_period=2 * _DAY),
    ledger=LedgerParameters(),
    beacon=BeaconTerms(),
    court=CourtTerms(),
    demands=DemandTerms(),
    panel=PanelParameters(
        JurySpans(seat=_HOUR, commit=_DAY, open=6 * _HOUR, reveal=12 * _HOUR), appeal_window=_DAY
    ),
    audits=AuditParameters(
        JurySpans(seat=_HOUR, commit=_DAY, open=12 * _HOUR, reveal=12 * _HOUR), refer_window=_DAY
    ),
    timelock_delay=2 * _DAY,
)

DEVNET: Final = Parameters(
    name="devnet",
    times=StakeTimes(
        evidence=2 * _MINUTE,
        first_deadline=_MINUTE,
        second_deadline=_MINUTE,
        panel=_MINUTE,
        appeal=2 * _MINUTE,
        margin=_MINUTE,
        unbonding=8 * _MINUTE,
    ),
    slice_length=_MINUTE,
    # The escrow takes no shorter thaw than ten minutes.
    escrow=EscrowParameters(
        fee_bps=AUDIT_FEE_BPS, lock_factor=LOCK_FACTOR, thaw_period=10 * _MINUTE
    ),
    ledger=LedgerParameters(),
    # Every lane is drawn (but for one in 2**32), so that each run shows openings and audits.
    beacon=BeaconTerms(base_rate=2**32 - 1, delay=1),
    court=CourtTerms(delay=1),
    demands=DemandTerms(),
    # A panel, and an appeal with its window, fit in the minute and two that `times` has for them.
    panel=PanelParameters(
        JurySpans(seat=10, commit=22, open=10, reveal=16),
        appeal_window=20,
        panel_size=3,
        min_seated=2,
        min_pool=3_000 * _TOKEN,
        delay=1,
    ),
    # Seats and answers fit in half of the evidence's two minutes: what is drawn is audited in time.
    audits=AuditParameters(JurySpans(seat=15, commit=45, open=30, reveal=30), refer_window=30),
    timelock_delay=0,
    least_stake=100 * _TOKEN,
)

# A devnet on which panels are to be watched: as many jurors as in production, and time for six
# processes on one machine to load a model each. Deadlines are what a jury has at most: one that is
# through earlier is judged earlier, and only the time for an appeal passes in full.
DEVNET_PANEL: Final = replace(
    DEVNET,
    name="devnet-panel",
    times=replace(DEVNET.times, panel=150, appeal=170, unbonding=11 * _MINUTE),
    panel=replace(
        DEVNET.panel,
        spans=JurySpans(seat=20, commit=70, open=30, reveal=30),
        appeal_window=20,
        panel_size=5,
        min_seated=3,
    ),
)

PROFILES: Final = {parameters.name: parameters for parameters in (DEVNET, DEVNET_PANEL, PRODUCTION)}
