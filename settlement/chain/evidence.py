"""The contracts that ask for evidence and judge it: draws, proofs of faults, demands.

Batches, draws, demands and openings are passed on as the events carried them, in the ABI's order.
Amounts are in the stake token's smallest unit. Methods as `contracts` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from settlement.chain.contract import Contract, Owned
from settlement.chain.send_journal import Call
from settlement.fault_proofs import Fault
from settlement.hashing import keccak256
from settlement.records import Lane


class DrawBeacon(Owned):
    """Later randomness, draws, openings. Batches, draws and openings are passed on as the events
    carried them (tuples in the ABI's order)."""

    def escrow(self) -> bytes:
        return bytes(self.view("escrow"))

    def capture(self, batches: Sequence[tuple[Any, ...]]) -> Call:
        return self.transact("capture", list(batches))

    def draw(self, batch: tuple[Any, ...], entries: bytes, index: int, lane: Lane) -> Call:
        return self.transact("draw", batch, entries, index, lane.to_abi())

    def open(self, drawn: tuple[Any, ...], sample: int, opening: tuple[Any, ...]) -> Call:
        return self.transact("open", drawn, sample, opening)

    def expire(self, drawn: tuple[Any, ...]) -> Call:
        return self.transact("expire", drawn)

    def wire(self, escrow: bytes) -> Call:
        return self.transact("wire", escrow)


@dataclass(frozen=True)
class Filing:
    """IFaultCourt.Filing: a commitment that may be proven in blocks `open_from` to `open_until`. A
    zero bond: there is none."""

    bond: int
    open_from: int
    open_until: int
    fault_bps: int
    reward_bps: int
    victim_bps: int


class FaultRule(Contract):
    """RoundRule, TreeRule or ExactRule: what evidence proves. Ask it before filing."""

    def question(self, fault: Fault, separator: bytes) -> bytes:
        """The call whose hash a filing commits to."""
        extra = () if fault.kind.of_tree else (separator,)
        return self.interface.encode(fault.kind.rule_function, fault.evidence, *extra)

    def ruling(self, fault: Fault, separator: bytes) -> tuple[Any, ...]:
        """Evidence.Ruling on chain; Reverted where the contract does not see the fault."""
        extra = () if fault.kind.of_tree else (separator,)
        return tuple(self.view(fault.kind.rule_function, fault.evidence, *extra))


class FaultCourt(Owned):
    """Faults by commit and reveal: F1 to F5, and of the same base ExactDispute's F9."""

    def filing_of(self, challenger: bytes, commitment: bytes) -> Filing:
        return Filing(*self.view("filingOf", challenger, commitment))

    def bond_of(self, challenger: bytes) -> int:
        return int(self.view("bondOf", challenger))

    def bond(self) -> int:
        """What a filing takes now."""
        return self.terms()[0]

    def terms(self) -> tuple[int, ...]:
        """Bond, delay, window, and the shares to take, of the challenger and of victims, for
        filings from now on."""
        return tuple(self.view("terms"))

    @staticmethod
    def commitment(question: bytes, challenger: bytes, salt: bytes) -> bytes:
        """What `challenger` files: keccak256(abi.encode(keccak256(question), challenger, salt))."""
        return keccak256(keccak256(question), bytes(12), challenger, salt)

    def file(self, commitment: bytes) -> Call:
        return self.transact("file", commitment)

    def prove(self, fault: Fault, salt: bytes, source: tuple[Any, ...] | None = None) -> Call:
        """`source` (IFaultCourt.Source) for faults of a tree, and only there."""
        if (source is not None) != fault.kind.of_tree:
            raise ValueError(f"{fault.kind.name}: a source goes with faults of a tree")
        extra = () if source is None else (source,)
        return self.transact(fault.kind.court_function, fault.evidence, *extra, salt)

    def forfeit(self, challenger: bytes, commitment: bytes) -> Call:
        return self.transact("forfeit", challenger, commitment)

    def pull_bond(self, challenger: bytes) -> Call:
        return self.transact("pullBond", challenger)


class Demands(Owned):
    """What both kinds of demand have."""

    def bond(self) -> int:
        """What a demand takes now."""
        return int(self.view("terms")[0])

    def bond_of(self, account: bytes) -> int:
        return int(self.view("bondOf", account))

    def expire(self, demand: tuple[Any, ...]) -> Call:
        return self.transact("expire", demand)

    def pull_bond(self, account: bytes) -> Call:
        return self.transact("pullBond", account)


class EvidenceDemands(Demands):
    """Any one position of a settled root, on demand. Demands are passed on as the event Demanded
    carried them, openings as `draws.opening_of` makes them with the demand's seed and sample 0."""

    def demand_leaf(
        self, batch: tuple[Any, ...], entries: bytes, index: int, lane: Lane, seed: bytes
    ) -> Call:
        return self.transact("demandLeaf", batch, entries, index, lane.to_abi(), seed)

    def answer(self, demand: tuple[Any, ...], opening: tuple[Any, ...]) -> Call:
        return self.transact("answer", demand, opening)


class SessionDemands(Demands):
    """A session's text, sealed to whoever may read it: see `settlement.sealing`."""

    def demand_session(
        self,
        session: tuple[Any, ...],
        batch: tuple[Any, ...],
        entries: bytes,
        index: int,
        key: tuple[int, int],
    ) -> Call:
        """`session` is ISessionDemands.SessionCase; `key` a point made for this demand alone."""
        return self.transact("demandSession", session, batch, entries, index, *key)

    def answer(self, demand: tuple[Any, ...], key: tuple[int, int], sealed: bytes) -> Call:
        return self.transact("answer", demand, *key, sealed)

    def contest(
        self, demand: tuple[Any, ...], key: tuple[int, int], sealed: bytes, secret: bytes
    ) -> Call:
        """Gives the demand's secret away: only against an answer that is not the text."""
        number = int.from_bytes(secret, "big")
        return self.transact("contest", demand, *key, sealed, number)

    def close(self, demand: tuple[Any, ...]) -> Call:
        return self.transact("close", demand)

    def is_reader(self, reader: bytes) -> bool:
        return bool(self.view("isReader", reader))

    def set_reader(self, reader: bytes, allowed: bool) -> Call:
        return self.transact("setReader", reader, allowed)
