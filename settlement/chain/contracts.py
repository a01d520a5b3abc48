"""One typed wrapper per contract, and all of a deployment's together.

A view reads the chain and answers in this protocol's types. A transaction's method only describes
the `Call`; the key's one sender makes it. Reverts surface as `Reverted`, under the contract's own
error name. Amounts are in the token's smallest unit, times in unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from settlement.chain.abi import ErrorBook, Interface
from settlement.chain.claims import AlphaLedger, ClaimState, ClaimStatus, ModelRegistry
from settlement.chain.compile import Artifacts
from settlement.chain.contract import Contract, Owned
from settlement.chain.errors import ContractMissing
from settlement.chain.evidence import (
    Demands,
    DrawBeacon,
    EvidenceDemands,
    FaultCourt,
    FaultRule,
    Filing,
    SessionDemands,
)
from settlement.chain.money import (
    UNLIMITED,
    EscrowParameters,
    Exit,
    LaneEscrow,
    LaneState,
    Role,
    Stake,
    StakeTimes,
    StakeVault,
    Token,
)
from settlement.chain.panel import (
    AuditorPool,
    AuditPanel,
    AuditTerms,
    ClaimJudge,
    Juries,
    JurorDemands,
    PanelTerms,
    PlaceRule,
    SampleAudits,
)
from settlement.chain.rpc import Rpc
from settlement.fault_proofs import Fault, Kind
from settlement.records import Domain

__all__ = [
    "UNLIMITED",
    "AlphaLedger",
    "ClaimState",
    "ClaimStatus",
    "Contract",
    "Contracts",
    "Demands",
    "DrawBeacon",
    "EscrowParameters",
    "EvidenceDemands",
    "Exit",
    "FaultCourt",
    "FaultRule",
    "Filing",
    "LaneEscrow",
    "LaneState",
    "ModelRegistry",
    "Owned",
    "Role",
    "SessionDemands",
    "Stake",
    "StakeTimes",
    "StakeVault",
    "Token",
]

# Solady's libraries revert from assembly, so these stand in no contract's ABI.
_LIBRARY_ERRORS: Final = Interface(
    "solady",
    [
        {"type": "error", "name": name, "inputs": []}
        for name in (
            "TransferFromFailed",
            "TransferFailed",
            "ApproveFailed",
            "ETHTransferFailed",
            "Overflow",
            "FullMulDivFailed",
            "DivFailed",
        )
    ],
)
_C = TypeVar("_C", bound="Contract")


@dataclass(frozen=True)
class Contracts:
    """The deployed protocol on one chain. `token` is the stake token."""

    rpc: Rpc
    chain_id: int
    token: Token
    registry: ModelRegistry
    vault: StakeVault
    escrow: LaneEscrow
    ledger: AlphaLedger
    beacon: DrawBeacon
    court: FaultCourt
    demands: EvidenceDemands
    session_demands: SessionDemands
    round_rule: FaultRule
    tree_rule: FaultRule
    exact_dispute: FaultCourt
    exact_rule: FaultRule
    pool: AuditorPool
    juries: Juries
    panel_terms: PanelTerms
    place_rule: PlaceRule
    panel: AuditPanel
    claim_judge: ClaimJudge
    juror_demands: JurorDemands
    audit_terms: AuditTerms
    audits: SampleAudits
    errors: ErrorBook

    @classmethod
    def at(cls, rpc: Rpc, addresses: Mapping[str, bytes], artifacts: Artifacts) -> Contracts:
        """The wrappers over `addresses` (contract name → 20 bytes; "Token" is the stake token).
        Nothing is read from the chain but its id; `deploy.connect` also checks the code."""
        interfaces = [Interface(name, artifact.abi) for name, artifact in artifacts.items()]
        errors = ErrorBook([*interfaces, _LIBRARY_ERRORS])

        def wrap(kind: type[_C], name: str, address_name: str = "") -> _C:
            address = addresses.get(address_name or name)
            if address is None:
                raise ContractMissing(name, bytes(20), "not in the address book")
            return kind(rpc, address, Interface(name, artifacts.require(name).abi), errors)

        return cls(
            rpc,
            rpc.chain_id,
            wrap(Token, "DevToken", "Token"),
            wrap(ModelRegistry, "ModelRegistry"),
            wrap(StakeVault, "StakeVault"),
            wrap(LaneEscrow, "LaneEscrow"),
            wrap(AlphaLedger, "AlphaLedger"),
            wrap(DrawBeacon, "DrawBeacon"),
            wrap(FaultCourt, "FaultCourt"),
            wrap(EvidenceDemands, "EvidenceDemands"),
            wrap(SessionDemands, "SessionDemands"),
            wrap(FaultRule, "RoundRule"),
            wrap(FaultRule, "TreeRule"),
            wrap(FaultCourt, "ExactDispute"),
            wrap(FaultRule, "ExactRule"),
            wrap(AuditorPool, "AuditorPool"),
            wrap(Juries, "Juries"),
            wrap(PanelTerms, "PanelTerms"),
            wrap(PlaceRule, "PlaceRule"),
            wrap(AuditPanel, "AuditPanel"),
            wrap(ClaimJudge, "ClaimJudge"),
            wrap(JurorDemands, "JurorDemands"),
            wrap(AuditTerms, "AuditTerms"),
            wrap(SampleAudits, "SampleAudits"),
            errors,
        )

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of every record settled here."""
        return Domain(self.chain_id, self.escrow.address)

    def all(self) -> Iterable[Owned]:
        """Every contract that has an owner; the token has its own."""
        holders = (self.vault, self.escrow, self.ledger)
        courts = (self.court, self.exact_dispute)
        judges = (self.beacon, *courts, self.demands, self.session_demands)
        auditors = (self.pool, self.juries, self.panel_terms, self.audit_terms)
        return (self.registry, *holders, *judges, *auditors)

    def followed(self) -> Iterable[Contract]:
        """Those whose events tell how everything stands (`standing.fold`)."""
        holders = (self.vault, self.escrow, self.ledger)
        judges = (self.court, self.exact_dispute, self.panel, self.audits)
        jurors = (self.pool, self.juries)
        return (*holders, self.beacon, *judges, self.demands, self.session_demands, *jurors)

    def rule_of(self, fault: Fault) -> FaultRule:
        """The rule that judges this fault."""
        return self.rule_for(fault.kind)

    def rule_for(self, kind: Kind) -> FaultRule:
        """The rule that judges faults of this kind."""
        if kind.of_exact:
            return self.exact_rule
        return self.tree_rule if kind.of_tree else self.round_rule

    def court_of(self, fault: Fault) -> FaultCourt:
        """The court that takes this kind of fault: where it is filed, proven and paid."""
        return self.exact_dispute if fault.kind.of_exact else self.court
