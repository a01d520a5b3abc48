"""When to settle what, and settling it.

A voucher is cumulative, so settling late costs nothing but risk, and settling often costs gas: a
lane is settled when what it owes is worth many times the gas, when its money is about to leave, or
when it has lain still for long. The policy is pure; `Settler` carries it out through the key's one
sender.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from settlement.chain.contracts import Contracts, LaneState
from settlement.chain.errors import Reverted
from settlement.chain.lanes import MAX_LANES, Position, SignedVoucher, groups_of
from settlement.chain.send_journal import Mined
from settlement.chain.sender import Sender
from settlement.hashing import keccak256, uint

# Gas of `settle` in the steady state, locks and counts included: a transaction with n lanes costs
# about TRANSACTION_GAS + n · LANE_GAS. A test holds both to contracts/gas.json.
TRANSACTION_GAS = 400_000
LANE_GAS = 37_000


class Reason(StrEnum):
    """Why a lane is settled now."""

    VALUE = "value"  # it owes many times what settling costs
    THAW = "thaw"  # the client is withdrawing the reserve
    IDLE = "idle"  # no new voucher for long
    DEADLINE = "deadline"  # evidence or stake behind it is about to go
    ASKED = "asked"  # its operator wants it settled now
    ALONG = "along"  # worth its own gas now that the transaction is paid for by another


@dataclass(frozen=True)
class SettlePolicy:
    """Thresholds. `token_per_wei` is what a wei of gas is worth in units of the lane's token."""

    value_factor: int = 20
    thaw_margin: float = 3600.0  # seconds before a thaw ends
    deadline_margin: float = 3600.0
    idle_seconds: float = 24 * 3600.0
    token_per_wei: Fraction = Fraction(1)
    transaction_gas: int = TRANSACTION_GAS
    lane_gas: int = LANE_GAS


@dataclass(frozen=True)
class OpenLane:
    """A lane with a voucher beyond what was paid, as this party sees it.

    `signed_at` is when the newest voucher was signed, `deadline` (or None) when settling becomes
    impossible for reasons outside the lane; unix seconds. `share` says whose money counts: this
    party's address. `asked`: the operator wants it settled whatever it is owed above the gas.
    """

    signed: SignedVoucher
    position: Position
    state: LaneState
    signed_at: float
    share: bytes
    deadline: float | None = None
    asked: bool = False

    @property
    def owed(self) -> int:
        """What this party gets by settling, reserve permitting: token units."""
        drafter, verifier = self.position.owed(self.signed.voucher)
        lane = self.signed.lane
        mine = 0
        if self.share == lane.drafter and self.signed.drafter:
            mine += drafter
        if self.share == lane.verifier:
            mine += verifier
        return min(mine, self.state.reserve)


@dataclass(frozen=True)
class Settlement:
    """Lanes to be settled in one transaction, all in `token`, each with its reason."""

    token: bytes
    lanes: tuple[tuple[OpenLane, Reason], ...]

    @property
    def intent(self) -> str:
        """Names the transition: these roots from these positions. So a second attempt after a
        crash is the first one, and a later one, from where this led to, is another."""
        parts = sorted(
            open_lane.signed.lane.id
            + open_lane.signed.voucher.root
            + uint(open_lane.position.digest, 20)
            for open_lane, _reason in self.lanes
        )
        if len(parts) == 1:
            lane, root, position = parts[0][:32], parts[0][32:64], parts[0][64:]
            return f"settle:{lane.hex()}:{root.hex()}:{position.hex()}"
        return f"settle:{len(parts)}:{keccak256(*parts).hex()}"


def reason_to_settle(
    lane: OpenLane, policy: SettlePolicy, gas_price: int, now: float
) -> Reason | None:
    """Why `lane` should be settled now on its own account, or None. `gas_price` in wei."""
    owed = lane.owed
    alone = _cost(policy, gas_price, policy.transaction_gas + policy.lane_gas)
    if owed <= alone:
        return None  # a ticket below its own redemption cost is kept until it is worth more
    if lane.asked:
        return Reason.ASKED
    if owed >= policy.value_factor * alone:
        return Reason.VALUE
    if lane.state.thawing and (
        # What stays after the thaw does not cover it, or the thaw is about to end.
        lane.state.reserve - lane.state.thawing < owed
        or now >= lane.state.thawed_at - policy.thaw_margin
    ):
        return Reason.THAW
    if lane.deadline is not None and now >= lane.deadline - policy.deadline_margin:
        return Reason.DEADLINE
    if now - lane.signed_at >= policy.idle_seconds:
        return Reason.IDLE
    return None


def plan(
    lanes: Iterable[OpenLane], policy: SettlePolicy, gas_price: int, now: float
) -> list[Settlement]:
    """What to settle now: per token at most 64 lanes a transaction, the most pressing first.

    A lane that would not be settled by itself goes along when there is room and it is worth its
    own part of the gas.
    """
    by_token: dict[bytes, list[tuple[OpenLane, Reason | None]]] = {}
    for lane in lanes:
        entry = (lane, reason_to_settle(lane, policy, gas_price, now))
        by_token.setdefault(lane.signed.lane.token, []).append(entry)
    part = _cost(policy, gas_price, policy.lane_gas)
    settlements = []
    for token, entries in sorted(by_token.items()):
        chosen = [(lane, reason) for lane, reason in entries if reason is not None]
        chosen.sort(key=lambda entry: (entry[1] is Reason.VALUE, -entry[0].owed))
        room = -len(chosen) % MAX_LANES
        if chosen and room:
            rest = [lane for lane, reason in entries if reason is None and lane.owed > part]
            rest.sort(key=lambda lane: -lane.owed)
            chosen += [(lane, Reason.ALONG) for lane in rest[:room]]
        settlements += [
            Settlement(token, tuple(chosen[start : start + MAX_LANES]))
            for start in range(0, len(chosen), MAX_LANES)
        ]
    return settlements


def _cost(policy: SettlePolicy, gas_price: int, gas: int) -> int:
    """Gas in units of the token, rounded up."""
    return -(
        -(gas * gas_price * policy.token_per_wei.numerator) // policy.token_per_wei.denominator
    )


@dataclass(frozen=True)
class SettleFailed:
    """A settlement that the chain would not take: the lanes, and the escrow's reason by name.
    `PositionStale` means that another settlement came between: read on and plan again."""

    settlement: Settlement
    reason: str


class Settler:
    """Sends settlements. Blocks: call it from a worker thread."""

    def __init__(self, contracts: Contracts, sender: Sender, policy: SettlePolicy) -> None:
        self._contracts, self._sender, self._policy = contracts, sender, policy

    def due(self, lanes: Iterable[OpenLane], now: float) -> list[Settlement]:
        """The plan at the chain's present base fee and this sender's priority fee."""
        base_fee = self._contracts.rpc.head().base_fee or 0
        return plan(lanes, self._policy, base_fee + self._sender.fees.priority, now)

    def settle(
        self, settlement: Settlement, *, confirmations: int = 1, timeout: float = 180.0
    ) -> Mined | SettleFailed:
        """Settle, and wait for the block. Lanes that the escrow skips do not stop the others; if
        it would skip all, nothing is sent. Raises what the sender raises, but for reverts."""
        items = [(lane.signed, lane.position) for lane, _reason in settlement.lanes]
        call = self._contracts.escrow.settle(settlement.token, groups_of(items))
        intent = self._sender.attempt(settlement.intent)
        try:
            return self._sender.send(intent, call, confirmations=confirmations, timeout=timeout)
        except Reverted as refused:
            return SettleFailed(settlement, self._named(refused))

    def _named(self, refused: Reverted) -> str:
        if refused.name != "NothingSettled":
            return refused.name or str(refused)
        first = refused.arguments.get("firstReason", b"")
        selector = first if isinstance(first, bytes) else b""
        return self._contracts.errors.name_of(selector) or "NothingSettled"
