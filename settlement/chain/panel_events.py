"""The events of seats, juries, the panel and audits, as typed records: part of `events`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class SeatChanged:
    model: bytes
    account: bytes
    seat: int
    weight: int


@dataclass(frozen=True)
class JurySummoned:
    jury_id: int
    court: bytes
    model: bytes
    jury: tuple[Any, ...]


@dataclass(frozen=True)
class JuryReanchored:
    jury_id: int
    target: int


@dataclass(frozen=True)
class JurySeated:
    jury_id: int
    members: Sequence[bytes]


@dataclass(frozen=True)
class AnswerCommitted:
    jury_id: int
    member: bytes
    commitment: bytes


@dataclass(frozen=True)
class JuryOpened:
    jury_id: int
    reveal_until: int


@dataclass(frozen=True)
class JuryCancelled:
    jury_id: int


@dataclass(frozen=True)
class AnswerRevealed:
    jury_id: int
    member: bytes
    withheld: bool
    margin: int
    print: bytes


@dataclass(frozen=True)
class MemberDismissed:
    jury_id: int
    member: bytes
    slashed: int


@dataclass(frozen=True)
class CaseFiled:
    case_id: int
    accused: bytes
    accuser: bytes
    charge: tuple[Any, ...]


@dataclass(frozen=True)
class PrintOpened:
    case_id: int
    salt: bytes
    print: bytes


@dataclass(frozen=True)
class JurorPaid:
    case_id: int
    juror: bytes
    share: int
    fee: int


@dataclass(frozen=True)
class CaseDecided:
    case_id: int
    jury_id: int
    result: int
    appeal_until: int


@dataclass(frozen=True)
class CaseAppealed:
    case_id: int
    appellant: bytes
    bond: int
    jury_id: int


@dataclass(frozen=True)
class CaseClosed:
    case_id: int
    result: int
    slashed: int


@dataclass(frozen=True)
class TicketEntered:
    audit_id: int
    by: bytes
    model: bytes
    jury_id: int
    terms: tuple[Any, ...]


@dataclass(frozen=True)
class TokenNamed:
    audit_id: int
    verifier: bytes
    batch_id: int
    index: int
    sample: int
    first_until: int
    second_until: int


@dataclass(frozen=True)
class FingerprintOpened:
    audit_id: int
    salt: bytes
    print: bytes


@dataclass(frozen=True)
class AuditMoved:
    audit_id: int
    stage: int
    result: int


@dataclass(frozen=True)
class CanaryOpened:
    audit_id: int
    canary: tuple[Any, ...]


@dataclass(frozen=True)
class CanaryReferred:
    audit_id: int
    case_id: int


@dataclass(frozen=True)
class CanaryPassed:
    audit_id: int
    auditor: bytes
    slashed: int


@dataclass(frozen=True)
class AuditorPaid:
    audit_id: int
    auditor: bytes
    share: int
    fee: int


PANEL_EVENTS: Final[dict[str, tuple[type[Any], ...]]] = {
    "AuditorPool": (SeatChanged,),
    "Juries": (
        JurySummoned,
        JuryReanchored,
        JurySeated,
        AnswerCommitted,
        JuryOpened,
        JuryCancelled,
        AnswerRevealed,
        MemberDismissed,
    ),
    "AuditPanel": (CaseFiled, PrintOpened, CaseDecided, CaseAppealed, CaseClosed, JurorPaid),
    "SampleAudits": (
        TicketEntered,
        TokenNamed,
        FingerprintOpened,
        AuditMoved,
        CanaryOpened,
        CanaryReferred,
        CanaryPassed,
        AuditorPaid,
    ),
}
