"""The contracts that hold money: the stake token, stakes, and the reserves of lanes.

Amounts are in the token's smallest unit, times in unix seconds. Methods as `contracts` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from settlement.chain.contract import Contract, Owned
from settlement.chain.rpc import BlockTag
from settlement.chain.send_journal import Call
from settlement.records import Lane

UNLIMITED: Final = 2**256 - 1


class Role(IntEnum):
    """What a stake answers for (IStakeVault.Role)."""

    DRAFTER = 0
    VERIFIER = 1
    AUDITOR = 2


class Token(Contract):
    """An ERC-20; `mint` on DevToken only."""

    def balance_of(self, account: bytes) -> int:
        return int(self.view("balanceOf", account))

    def allowance(self, owner: bytes, spender: bytes) -> int:
        return int(self.view("allowance", owner, spender))

    def decimals(self) -> int:
        return int(self.view("decimals"))

    def symbol(self) -> str:
        return str(self.view("symbol"))

    def approve(self, spender: bytes, amount: int) -> Call:
        return self.transact("approve", spender, amount)

    def transfer(self, to: bytes, amount: int) -> Call:
        return self.transact("transfer", to, amount)

    def mint(self, to: bytes, amount: int) -> Call:
        return self.transact("mint", to, amount)


# ---------------------------------------------------------------- stakes


@dataclass(frozen=True)
class StakeTimes:
    """IStakeVault.Times, seconds."""

    evidence: int
    first_deadline: int
    second_deadline: int
    panel: int
    appeal: int
    margin: int
    unbonding: int


@dataclass(frozen=True)
class Stake:
    """StakeVault.Stake: what serves, unbonds and is locked."""

    active: int
    unbonding: int
    exit_head: int
    exit_tail: int
    locked: int
    first_slice: int
    last_slice: int


@dataclass(frozen=True)
class Exit:
    """Stake on its way out; `amount` can be withdrawn from `mature_at` on."""

    amount: int
    mature_at: int


class StakeVault(Owned):
    """Stakes by operator and role."""

    def times(self) -> StakeTimes:
        return StakeTimes(*self.view("times"))

    def stake_token(self) -> bytes:
        return bytes(self.view("stakeToken"))

    def stake_of(self, key: bytes, role: Role) -> Stake:
        return Stake(*self.view("stakeOf", key, int(role)))

    def exits_of(self, key: bytes, role: Role) -> tuple[Exit, ...]:
        """Exits under way, oldest first."""
        return tuple(Exit(*fields) for fields in self.view("exitsOf", key, int(role)))

    def account_of(self, key: bytes) -> bytes:
        """The account a key is or was the operator key of; zero address if none."""
        return bytes(self.view("accountOf", key))

    def beneficiary_of(self, account: bytes) -> bytes:
        return bytes(self.view("beneficiaryOf", account))

    def operator_of(self, account: bytes) -> bytes:
        return bytes(self.view("operatorOf", account))

    def payout_to(self, key: bytes) -> bytes:
        return bytes(self.view("payoutTo", key))

    def slashable(self, key: bytes, role: Role) -> int:
        return int(self.view("slashable", key, int(role)))

    def serves(self, key: bytes, role: Role, model: bytes) -> bool:
        return bool(self.view("serves", key, int(role), model))

    def is_slasher(self, judge: bytes) -> bool:
        return bool(self.view("isSlasher", judge))

    def punished(self, fault: bytes) -> bool:
        """Whether a slash under that name was carried out, of a stake of `least_stake` or more."""
        return bool(self.view("punished", fault))

    def slice_length(self) -> int:
        """Seconds; locks, draws and vesting are counted by slice."""
        return int(self.view("sliceLength"))

    def slice_of(self, timestamp: int) -> int:
        return int(self.view("sliceOf", timestamp))

    def slice_start(self, slice_: int) -> int:
        """Unix seconds from which `slice_of` gives this slice."""
        return (slice_ - 1) * self.slice_length()

    def vesting_of(self, who: bytes, slice_: int) -> int:
        """Shares of slashes that `who` may claim when that slice has begun."""
        return int(self.view("vestingOf", who, slice_))

    def clock(self) -> bytes:
        """Whose spans `panel` and `appeal` must have room for; zero for none."""
        return bytes(self.view("clock"))

    def escrow(self) -> bytes:
        return bytes(self.view("escrow"))

    def paused_until(self) -> int:
        return int(self.view("pausedUntil"))

    def stake(
        self,
        account: bytes,
        beneficiary: bytes,
        role: Role,
        amount: int,
        models: Sequence[bytes] = (),
    ) -> Call:
        """Takes `amount` of the stake token from the sender. The first stake of a key opens its
        account and fixes `beneficiary`; later ones must name the same."""
        return self.transact("stake", account, beneficiary, int(role), amount, list(models))

    def unstake(self, account: bytes, role: Role, amount: int) -> Call:
        return self.transact("unstake", account, int(role), amount)

    def withdraw(self, account: bytes, role: Role) -> Call:
        return self.transact("withdraw", account, int(role))

    def set_model(self, account: bytes, role: Role, model: bytes, served: bool) -> Call:
        return self.transact("setModel", account, int(role), model, served)

    def release_locks(self, key: bytes, role: Role, limit: int) -> Call:
        return self.transact("releaseLocks", key, int(role), limit)

    def claim_vested(self, who: bytes, slices: Sequence[int]) -> Call:
        """Pays `who`, or its beneficiary, whoever calls."""
        return self.transact("claimVested", who, list(slices))

    def propose_key(self, account: bytes, key: bytes) -> Call:
        return self.transact("proposeKey", account, key)

    def accept_key(self, account: bytes) -> Call:
        return self.transact("acceptKey", account)

    def wire(self, escrow: bytes, beacon: bytes) -> Call:
        return self.transact("wire", escrow, beacon)

    def set_slasher(self, judge: bytes, allowed: bool) -> Call:
        return self.transact("setSlasher", judge, allowed)

    def set_clock(self, clock: bytes) -> Call:
        return self.transact("setClock", clock)

    def least_stake(self) -> int:
        """From what stake on a slash settles its fault for ever."""
        return int(self.view("leastStake"))

    def set_least_stake(self, least: int) -> Call:
        return self.transact("setLeastStake", least)


# ---------------------------------------------------------------- lanes


@dataclass(frozen=True)
class LaneState:
    """ILaneEscrow.LaneState. `position` is 160 bits of the current epoch's position hash, zero for
    a lane that nobody opened; `thawing` is part of `reserve`."""

    reserve: int
    thawing: int
    thawed_at: int
    solo_from: int
    epoch: int
    position: int


@dataclass(frozen=True)
class EscrowParameters:
    """ILaneEscrow.Parameters."""

    fee_bps: int
    lock_factor: int
    thaw_period: int


class LaneEscrow(Owned):
    """Reserves by lane, vouchers, payouts."""

    def domain_separator(self) -> bytes:
        return bytes(self.view("domainSeparator"))

    def parameters(self) -> EscrowParameters:
        return EscrowParameters(*self.view("parameters"))

    def lane_state(self, lane: bytes, block: BlockTag = "latest") -> LaneState:
        return LaneState(*self.view("laneState", lane, block=block))

    def past_position(self, lane: bytes, epoch: int, block: BlockTag = "latest") -> int:
        return int(self.view("pastPosition", lane, epoch, block=block))

    def payable_to(self, account: bytes, token: bytes) -> int:
        return int(self.view("payableTo", account, token))

    def stake_price_q32(self, token: bytes) -> int:
        """Stake units for one unit of the token, in Q32; zero for a token never listed."""
        return int(self.view("termsOf", token)[0])

    def is_open(self, token: bytes) -> bool:
        """Whether lanes can be reserved in the token."""
        return bool(self.view("termsOf", token)[1])

    def ledger(self) -> bytes:
        return bytes(self.view("ledger"))

    def is_fee_spender(self, spender: bytes) -> bool:
        return bool(self.view("isFeeSpender", spender))

    def paused_until(self) -> int:
        return int(self.view("pausedUntil"))

    def reserve(self, lane: Lane, amount: int) -> Call:
        return self.transact("reserve", lane.to_abi(), amount)

    def thaw(self, lane: Lane, amount: int) -> Call:
        return self.transact("thaw", lane.to_abi(), amount)

    def cancel_thaw(self, lane: Lane) -> Call:
        return self.transact("cancelThaw", lane.to_abi())

    def collect_thawed(self, lane: Lane, to: bytes) -> Call:
        return self.transact("collectThawed", lane.to_abi(), to)

    def open_epoch(self, lane: Lane) -> Call:
        return self.transact("openEpoch", lane.to_abi())

    def notice_solo(self, lane: Lane) -> Call:
        return self.transact("noticeSolo", lane.to_abi())

    def end_solo(self, lane: Lane) -> Call:
        return self.transact("endSolo", lane.to_abi())

    def withdraw(self, account: bytes, token: bytes) -> Call:
        return self.transact("withdraw", account, token)

    def settle(self, token: bytes, groups: Sequence[tuple[Any, ...]]) -> Call:
        """`groups` as `lanes.groups_of` builds them."""
        return self.transact("settle", token, list(groups))

    def wire(self, ledger: bytes, beacon: bytes) -> Call:
        return self.transact("wire", ledger, beacon)

    def list_token(self, token: bytes, stake_price_q32: int) -> Call:
        return self.transact("listToken", token, stake_price_q32)

    def set_fee_spender(self, spender: bytes, allowed: bool) -> Call:
        return self.transact("setFeeSpender", spender, allowed)
