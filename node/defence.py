"""What a node bids to keep its own stake when gas is dear: more and more as a deadline comes near.

One cap for every call would slash the honest in a gas spike: an opening that is too dear to send
costs a share of the stake at its first deadline and half of it at the second. So the cap of calls
that defend stake grows, from the usual one to a share of what the missed deadline costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from node.config import ChainConfig
from node.watching import WatchDesk
from settlement.chain.contracts import Role
from settlement.chain.errors import ChainError
from settlement.chain.fees import GWEI
from settlement.chain.parameters import (
    BeaconTerms,
    LedgerParameters,
    PanelParameters,
)
from settlement.duties import Action, Duty

BPS: Final = 10_000
GAS: Final = 1_000_000  # more than any of these calls takes: the more gas, the lower the cap
# What is at stake by a call's next deadline at least: whose stake, and basis points of it.
AT_STAKE: Final[dict[Action, tuple[tuple[Role, ...], int]]] = {
    Action.OPEN: ((Role.VERIFIER,), BeaconTerms.late_bps),
    Action.ANSWER: ((Role.VERIFIER,), BeaconTerms.late_bps),
    Action.UNSEAL: ((Role.VERIFIER,), BeaconTerms.late_bps),
    Action.ASSERT: ((Role.DRAFTER,), LedgerParameters.late_bps),
    Action.APPEAL: ((Role.VERIFIER, Role.DRAFTER), PanelParameters.fault_bps),
    Action.COMMIT: ((Role.AUDITOR,), PanelParameters.silent_bps),
    Action.REVEAL: ((Role.AUDITOR,), PanelParameters.silent_bps),
}


@dataclass(frozen=True)
class DefencePolicy:
    """How far bids go. Prices in wei per gas.

    Attributes:
        usual: the cap of every other call, and of these while there is time.
        most: the cap of these, whatever is at stake.
        share: of what a missed deadline costs, that may be spent against it.
        seconds: before the deadline, from when on the cap grows.
        margin: seconds before the deadline, when it is at its highest: blocks take their time.
        token_per_wei: what a wei is worth in the stake token's smallest units.
    """

    usual: int
    most: int
    share: Fraction
    seconds: float
    margin: float
    token_per_wei: Fraction

    @classmethod
    def of(cls, config: ChainConfig) -> DefencePolicy:
        return cls(
            usual=round(config.max_fee_gwei * GWEI),
            most=round(config.defence_max_fee_gwei * GWEI),
            share=Fraction(config.defence_share),
            seconds=config.defence_seconds,
            margin=config.defence_seconds / 4,
            token_per_wei=Fraction(config.token_per_wei),
        )

    def highest(self, at_stake: int, gas: int = GAS) -> int:
        """The cap at the deadline, for stake units that are lost by missing it: gas at that price
        costs no more than the share of them. The usual cap where the token's worth is not known."""
        if not self.token_per_wei:
            return self.usual
        worth = self.share * at_stake / self.token_per_wei / gas
        return max(self.usual, min(self.most, math.floor(worth)))

    def cap(self, at_stake: int, left: float, gas: int = GAS) -> int:
        """The cap `left` seconds before the deadline. It grows by equal factors in equal times, so
        that a spike which passes is waited for, and none is outbid by more than it takes."""
        highest = self.highest(at_stake, gas)
        span = self.seconds - self.margin
        if left >= self.seconds and left > self.margin:
            return self.usual
        if left <= self.margin or span <= 0:
            return highest
        grown = (self.seconds - left) / span
        cap = round(self.usual * (highest / self.usual) ** grown)
        return min(max(cap, self.usual), highest)


class DefendingDesk(WatchDesk):
    """A watcher whose bids for its own stake follow a `DefencePolicy`.

    Its sender is its own: an account's transactions are mined in the order of their nonces, so
    while stake is defended whatever waits in front of the defence has to be bid up with it.
    """

    def _do(self, duty: Duty) -> int:
        if duty.until is None or duty.action not in AT_STAKE:
            return super()._do(duty)
        usual = self._sender.fees
        try:
            self._sender.fees = replace(usual, cap=self._cap(duty, duty.until))
        except ChainError as error:
            self._node.log.warning("bids stay at the usual cap", reason=str(error))
        try:
            return super()._do(duty)
        finally:
            self._sender.fees = usual

    def _cap(self, duty: Duty, until: int) -> int:
        roles, bps = AT_STAKE[duty.action]
        vault, key = self._contracts.vault, self._node.address
        at_stake = sum(vault.slashable(key, role) for role in roles) * bps // BPS
        left = until - self._contracts.rpc.head().timestamp
        return DefencePolicy.of(self._config).cap(at_stake, left)
