"""What a deployment is set up with. Pure.

Production values are the protocol's; a devnet's are the same shape in minutes, so that a stake's
whole life can be watched. Both keep `unbonding ≥ evidence + deadlines + panel + appeal + margin`,
which the vault checks.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    timelock_delay: int

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
    timelock_delay=0,
)

PROFILES: Final = {parameters.name: parameters for parameters in (DEVNET, PRODUCTION)}
