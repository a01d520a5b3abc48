"""A found fault on its way through FaultCourt: what to do next, by what the chain says. Pure.

    found ── file (bond) ──▶ filed ── delay blocks ──▶ prove ──▶ proven ── pull the bond
                               └── window passes ──▶ lapsed: the bond is lost, file anew

A challenge is journalled once, with its evidence as the rule takes it, before anything is sent:
what was committed to is what is proven, whatever is learnt or pruned meanwhile. Salts are
journalled secrets, one for each filing. All else follows from confirmed events, so a node that is
killed between any two steps, or sees them undone by a reorganisation, goes on from what stands.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from settlement.chain.contracts import Contracts, FaultCourt, Role
from settlement.chain.standing import FilingView, Standing
from settlement.draws import blank
from settlement.fault_proofs import Fault, Kind
from settlement.records import Voucher

MOST_FILINGS: Final = 3  # of one fault: a filing lapses when a whole window went by unused
Secret = Callable[[str], bytes]


class Step(StrEnum):
    """Where a challenge stands."""

    FILE = "file"
    WAIT = "wait"  # filed, and may not be proven yet
    PROVE = "prove"
    PROVEN = "proven"
    PUNISHED = "punished"  # by another's proof, and nothing of ours is filed
    EMPTY = "empty"  # the guilty has no stake to take: the fault stays open
    LAPSED = "lapsed"  # given up after MOST_FILINGS
    UNSOURCED = "unsourced"  # the root of a tree's fault is not settled (any more)


@dataclass(frozen=True)
class Challenge:
    """A fault with what FaultCourt's rule is asked about it."""

    fault: Fault
    question: bytes

    @property
    def name(self) -> bytes:
        """What the vault punishes once."""
        return self.fault.name

    @property
    def role(self) -> Role:
        return Role.DRAFTER if self.fault.by_drafter else Role.VERIFIER

    @classmethod
    def of(cls, contracts: Contracts, fault: Fault) -> Challenge:
        question = contracts.rule_of(fault).question(fault, contracts.domain.separator)
        return cls(fault, question)

    def to_wire(self) -> bytes:
        """JSON; the evidence is in the question."""
        fault = self.fault
        return json.dumps(
            {
                "number": fault.number,
                "code": int(fault.code),
                "guilty": fault.guilty.hex(),
                "drafter": fault.by_drafter,
                "start": fault.start_hash.hex(),
                "round": fault.round,
                "kind": fault.kind.name,
                "lane": fault.lane.hex(),
                "root": fault.root.hex(),
                "question": self.question.hex(),
            }
        ).encode()

    @classmethod
    def from_wire(cls, contracts: Contracts, raw: bytes) -> Challenge:
        """The inverse of `to_wire`, for the contracts it was made for."""
        data: dict[str, Any] = json.loads(raw)
        question, kind = bytes.fromhex(data["question"]), Kind[data["kind"]]
        evidence = contracts.rule_for(kind).interface.decode_call(kind.rule_function, question)[0]
        fault = Fault(
            data["number"],
            data["code"],
            bytes.fromhex(data["guilty"]),
            data["drafter"],
            bytes.fromhex(data["start"]),
            data["round"],
            kind,
            tuple(evidence),
            bytes.fromhex(data["lane"]),
            bytes.fromhex(data["root"]),
        )
        return cls(fault, question)


@dataclass(frozen=True)
class Standpoint:
    """A challenge's step, with the filing it is about: its number and salt, and the chain's view of
    it once it is confirmed."""

    step: Step
    attempt: int = 0
    salt: bytes = b""
    commitment: bytes = b""
    filing: FilingView | None = None


def salt_name(challenge: Challenge, attempt: int) -> str:
    """What the journal calls the salt of a filing."""
    return f"filing:{challenge.name.hex()}:{attempt}"


def standpoint(
    challenge: Challenge,
    standing: Standing,
    challenger: bytes,
    block: int,
    slashable: Callable[[], int],
    secret: Secret,
) -> Standpoint:
    """Where `challenger` stands with its challenge.

    Args:
        block: number of the newest block.
        slashable: the guilty role's whole stake; asked for before a bond is put down.
        secret: 32 journalled random bytes by name, made at the first call.
    """
    fault = challenge.fault
    mine = ("proof", fault.number, fault.guilty, challenger, fault.start_hash, fault.round)
    if any(
        (j.where, j.number, j.guilty, j.by, j.start_hash, j.round) == mine for j in standing.judged
    ):
        return Standpoint(Step.PROVEN)
    for attempt in range(MOST_FILINGS):
        salt = secret(salt_name(challenge, attempt))
        commitment = FaultCourt.commitment(challenge.question, challenger, salt)
        filing = standing.filings.get((challenger, commitment))
        here = (attempt, salt, commitment, filing)
        if filing is None:
            if challenge.name in standing.punished:
                return Standpoint(Step.PUNISHED)
            # INVARIANT: no bond is put down for a slash of nothing.
            return Standpoint(Step.FILE if slashable() else Step.EMPTY, *here)
        if filing.forfeited or block > filing.open_until:
            continue
        # Also where another was faster: a proof that holds brings the bond back.
        return Standpoint(Step.PROVE if block >= filing.open_from else Step.WAIT, *here)
    return Standpoint(Step.LAPSED)


def source_of(challenge: Challenge, standing: Standing) -> tuple[Any, ...] | None:
    """IFaultCourt.Source: the settlement in which the fault's root stands; None when there is none.
    Only for faults of a tree."""
    fault = challenge.fault
    for batch, index, entry, _lane in standing.settlements():
        if (entry.root, entry.lane) == (fault.root, fault.lane):
            return (blank(Voucher), b"", batch.batch, batch.packed(), index)
    return None
