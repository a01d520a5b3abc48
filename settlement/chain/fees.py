"""What a transaction may cost, and what to bid when the first bid does not get in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from settlement.chain.errors import ChainError
from settlement.chain.send_journal import Fees

GWEI: Final = 10**9
# Nodes replace a pooled transaction only if both of its fees rise by a tenth.
_MIN_BUMP_PERCENT: Final = 10


class FeeCapReached(ChainError):
    """The chain asks more per gas than the policy's cap."""

    def __init__(self, needed: int, cap: int) -> None:
        super().__init__(
            f"the chain asks {needed / GWEI:.3g} gwei per gas, the cap is {cap / GWEI:.3g}",
            "Wait for cheaper blocks, or raise the fee cap",
        )
        self.needed, self.cap = needed, cap


@dataclass(frozen=True)
class FeePolicy:
    """Fees in wei per gas. `cap` bounds every bid, replacements included."""

    cap: int = 300 * GWEI
    priority: int = GWEI
    bump_percent: int = 15
    replace_after: float = 45.0  # seconds without being mined

    def __post_init__(self) -> None:
        if self.bump_percent < _MIN_BUMP_PERCENT:
            raise ValueError(f"bump_percent is at least {_MIN_BUMP_PERCENT}: {self.bump_percent}")
        if self.cap <= 0:
            raise ValueError(f"cap must be positive: {self.cap}")

    def first(self, base_fee: int) -> Fees:
        """The opening bid: twice the base fee, so that six full blocks in a row do not price it
        out, plus the tip. FeeCapReached when even the present base fee is over the cap."""
        if base_fee > self.cap:
            raise FeeCapReached(base_fee, self.cap)
        max_fee = min(self.cap, 2 * base_fee + self.priority)
        return Fees(max_fee, min(self.priority, max_fee))

    def first_legacy(self, gas_price: int) -> Fees:
        """The bid on a chain without EIP-1559: the node's own proposal."""
        if gas_price > self.cap:
            raise FeeCapReached(gas_price, self.cap)
        return Fees(gas_price, gas_price)

    def bump(self, last: Fees, base_fee: int) -> Fees | None:
        """A bid that replaces `last` and suits `base_fee`; None when the cap leaves no room for
        the tenth that nodes ask."""
        wanted = max(_raised(last.max_fee, self.bump_percent), 2 * base_fee + self.priority)
        max_fee = min(self.cap, wanted)
        least = _raised(last.max_fee, _MIN_BUMP_PERCENT)
        priority = min(max(_raised(last.priority, self.bump_percent), self.priority), max_fee)
        if max_fee < least or priority < _raised(last.priority, _MIN_BUMP_PERCENT):
            return None
        return Fees(max_fee, priority)


def _raised(fee: int, percent: int) -> int:
    return -(-fee * (100 + percent) // 100)
