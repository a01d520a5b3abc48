"""The contracts' events as typed records. Field order is that of the ABI; a test compares both.

An event has a class here where something reads it; all others come as OtherEvent.
Structs whose fields nothing here reads stay tuples, in the ABI's order: that is how the contracts
take them back (`DrawBeacon.capture(batch)`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, get_type_hints

from settlement.chain.abi import AbiMismatch, DecodedLog
from settlement.chain.money import Role
from settlement.chain.panel_events import PANEL_EVENTS
from settlement.records import Claim, Lane

_COUNTED, _BEHIND, _DRAWABLE = 1, 4, 8  # Batches' flags, the figures' top byte


@dataclass(frozen=True)
class OtherEvent:
    """An event without a class: by contract, name and Solidity argument names."""

    contract: str
    name: str
    arguments: Mapping[str, Any]


# ---------------------------------------------------------------- StakeVault


@dataclass(frozen=True)
class AccountOpened:
    account: bytes
    beneficiary: bytes


@dataclass(frozen=True)
class Staked:
    account: bytes
    role: Role
    amount: int
    sender: bytes


@dataclass(frozen=True)
class ModelServed:
    account: bytes
    role: Role
    model: bytes
    served: bool


@dataclass(frozen=True)
class UnstakeStarted:
    account: bytes
    role: Role
    amount: int
    mature_at: int


@dataclass(frozen=True)
class Withdrawn:
    account: bytes
    role: Role
    amount: int
    to: bytes


@dataclass(frozen=True)
class KeyRotated:
    account: bytes
    retired: bytes
    key: bytes


@dataclass(frozen=True)
class StakeSlashed:
    account: bytes
    role: Role
    fault: bytes
    slashed: tuple[int, int, int, int]  # total, burned, to victims, to challenger
    challenger: bytes
    judge: bytes


@dataclass(frozen=True)
class Vested:
    who: bytes
    amount: int
    slice: int


# ---------------------------------------------------------------- LaneEscrow


@dataclass(frozen=True)
class LaneOpened:
    lane: bytes
    parties: Lane
    fee_bps: int


@dataclass(frozen=True)
class EpochOpened:
    lane: bytes
    epoch: int
    fee_bps: int
    by: bytes


@dataclass(frozen=True)
class LaneSettled:
    """`figures` as Batches.figures packs them; `paid` is both watermarks, D | V << 128."""

    lane: bytes
    root: bytes
    figures: int
    paid: int

    @property
    def epoch(self) -> int:
        """The lane's epoch that was settled."""
        return self.figures >> 192 & 0xFFFFFFFF

    @property
    def paid_drafter(self) -> int:
        """Paid to D in the epoch so far, in token units."""
        return self.paid & (1 << 128) - 1

    @property
    def paid_verifier(self) -> int:
        """Paid to V in the epoch so far, in token units."""
        return self.paid >> 128

    @property
    def counted(self) -> bool:
        """Whether the voucher's counts entered the claim's ledger."""
        return bool(self.figures >> 248 & _COUNTED)

    @property
    def drawable(self) -> bool:
        """Whether the root is new, and so an entry of the batch."""
        return bool(self.figures >> 248 & _DRAWABLE)

    @property
    def moves_head(self) -> bool:
        """Whether the root is the epoch's newest now: new, and not behind the one before."""
        return self.drawable and not self.figures >> 248 & _BEHIND


# ---------------------------------------------------------------- AlphaLedger


@dataclass(frozen=True)
class ClaimRegistered:
    claim_id: bytes
    drafter: bytes
    claim: Claim


@dataclass(frozen=True)
class Counted:
    claim_id: bytes
    verifier: bytes
    delta: tuple[int, ...]
    checkpoint: int
    claim_checkpoint: int


@dataclass(frozen=True)
class VerifierJoined:
    claim_id: bytes
    verifier: bytes
    order: int


@dataclass(frozen=True)
class CaseOpened:
    case_id: int
    claim_id: bytes
    drafter: bytes
    opened: tuple[Any, ...]
    score: int


@dataclass(frozen=True)
class CaseAnswered:
    case_id: int
    by: bytes
    refutable_until: int


@dataclass(frozen=True)
class CaseMoved:
    case_id: int
    claim_id: bytes
    stage: int


@dataclass(frozen=True)
class RatesReplaced:
    claim_id: bytes
    era: int
    rates: int


# ---------------------------------------------------------------- DrawBeacon


@dataclass(frozen=True)
class BatchRegistered:
    batch_id: int
    batch: tuple[Any, ...]


@dataclass(frozen=True)
class BatchReanchored:
    batch_id: int
    target_block: int


@dataclass(frozen=True)
class RandomnessCaptured:
    batch_id: int
    randomness: bytes
    by: bytes


@dataclass(frozen=True)
class LaneDrawn:
    batch_id: int
    index: int
    verifier: bytes
    draw: tuple[Any, ...]
    first_until: int
    second_until: int


@dataclass(frozen=True)
class PositionOpened:
    batch_id: int
    index: int
    claim_id: bytes
    sample: int
    position: int
    bucket: int
    drafted: bool
    accepted: bool


@dataclass(frozen=True)
class FaultShown:
    batch_id: int
    index: int
    guilty: bytes
    code: int
    start_hash: bytes
    round: int


@dataclass(frozen=True)
class DrawMoved:
    batch_id: int
    index: int
    stage: int


# ---------------------------------------------------------------- FaultCourt


@dataclass(frozen=True)
class Filed:
    challenger: bytes
    commitment: bytes
    bond: int
    open_from: int
    open_until: int


@dataclass(frozen=True)
class FaultProven:
    fault: int
    guilty: bytes
    challenger: bytes
    code: int
    start_hash: bytes
    round: int
    slashed: tuple[int, int, int, int]  # total, burned, to victims, to challenger


@dataclass(frozen=True)
class BondForfeited:
    challenger: bytes
    commitment: bytes
    bond: int


@dataclass(frozen=True)
class BondPulled:
    challenger: bytes
    amount: int


# ---------------------------------------------------------------- EvidenceDemands


@dataclass(frozen=True)
class Demanded:
    id: bytes
    verifier: bytes
    demand: tuple[Any, ...]
    first_until: int
    second_until: int


@dataclass(frozen=True)
class DemandMoved:
    id: bytes
    stage: int


@dataclass(frozen=True)
class AnswerFaulty:
    id: bytes
    guilty: bytes
    code: int
    start_hash: bytes
    round: int


# ---------------------------------------------------------------- SessionDemands


@dataclass(frozen=True)
class SessionDemanded:
    id: bytes
    verifier: bytes
    demand: tuple[Any, ...]
    first_until: int
    second_until: int


@dataclass(frozen=True)
class SessionAnswered:
    id: bytes
    key_x: int
    key_y: int
    sealed_text: bytes
    contest_until: int


TYPED: Final[dict[str, tuple[type[Any], ...]]] = {
    "StakeVault": (
        AccountOpened,
        Staked,
        ModelServed,
        UnstakeStarted,
        Withdrawn,
        KeyRotated,
        StakeSlashed,
        Vested,
    ),
    "LaneEscrow": (
        LaneOpened,
        EpochOpened,
        LaneSettled,
    ),
    "AlphaLedger": (
        ClaimRegistered,
        Counted,
        VerifierJoined,
        CaseOpened,
        CaseAnswered,
        CaseMoved,
        RatesReplaced,
    ),
    "DrawBeacon": (
        BatchRegistered,
        BatchReanchored,
        RandomnessCaptured,
        LaneDrawn,
        PositionOpened,
        FaultShown,
        DrawMoved,
    ),
    "FaultCourt": (Filed, FaultProven, BondForfeited, BondPulled),
    "ExactDispute": (Filed, FaultProven, BondForfeited, BondPulled),
    "EvidenceDemands": (Demanded, DemandMoved, AnswerFaulty),
    "SessionDemands": (SessionDemanded, SessionAnswered, DemandMoved),
    **PANEL_EVENTS,
}

_STRUCTS: Final[dict[Any, Callable[[Any], Any]]] = {
    Role: Role,
    Lane: lambda value: Lane(*value),
    Claim: lambda value: Claim(*value),
}


def _converters(kind: type[Any]) -> tuple[Callable[[Any], Any], ...]:
    hints = get_type_hints(kind)
    return tuple(_STRUCTS.get(hints[field.name], lambda value: value) for field in fields(kind))


_BY_NAME: Final = {
    (contract, kind.__name__): (kind, _converters(kind))
    for contract, kinds in TYPED.items()
    for kind in kinds
}


def typed(contract: str, log: DecodedLog) -> Any:
    """The event's own class, or OtherEvent. AbiMismatch when the chain's event has other fields
    than this program knows."""
    known = _BY_NAME.get((contract, log.event))
    if known is None:
        return OtherEvent(contract, log.event, log.arguments)
    kind, converters = known
    values = list(log.arguments.values())
    if len(values) != len(converters):
        raise AbiMismatch(f"{contract}.{log.event} has {len(values)} fields, {kind} has others")
    return kind(*(convert(value) for convert, value in zip(converters, values, strict=True)))
