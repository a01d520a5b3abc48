"""One typed wrapper per contract.

A view reads the chain and answers in this protocol's types. A transaction's method only describes
the `Call`; the key's one sender makes it. Reverts surface as `Reverted`, under the contract's own
error name. Amounts are in the token's smallest unit, times in unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from settlement.chain.abi import ErrorBook, Interface
from settlement.chain.compile import Artifacts
from settlement.chain.contract import Contract as Contract
from settlement.chain.contract import Owned as Owned
from settlement.chain.errors import ContractMissing
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
from settlement.chain.rpc import BlockTag, Rpc
from settlement.chain.send_journal import Call
from settlement.fault_proofs import Fault, Kind
from settlement.hashing import keccak256
from settlement.records import Claim, Domain, Lane, Manifest

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
UNLIMITED: Final = 2**256 - 1


class Role(IntEnum):
    """What a stake answers for (IStakeVault.Role)."""

    DRAFTER = 0
    VERIFIER = 1
    AUDITOR = 2


class ClaimStatus(IntEnum):
    """IAlphaLedger.Status."""

    NONE = 0
    ACTIVE = 1
    SUSPENDED = 2
    VOID = 3


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


@dataclass(frozen=True)
class ClaimState:
    """IAlphaLedger.ClaimState, rates unpacked to percent."""

    drafter: bytes
    mode: int
    max_temperature: int
    status: ClaimStatus
    era: int
    verifiers: int
    rates: tuple[int, ...]
    open_case: int
    target_model: bytes
    draft_model: bytes


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


class ModelRegistry(Owned):
    """Manifests by content."""

    def is_registered(self, model: bytes) -> bool:
        return bool(self.view("isRegistered", model))

    def register(self, manifest: Manifest) -> Call:
        return self.transact(
            "register",
            (
                manifest.architecture,
                int(manifest.tier),
                manifest.weights_root,
                manifest.tokenizer_hash,
                manifest.vocab_size,
                list(manifest.eos_ids),
                manifest.context_length,
            ),
        )

    def tolerance_at(self, model: bytes, timestamp: int) -> tuple[int, int]:
        """(margin in Q24 score units, fingerprint distance) that honest runs of a float-tier model
        may differ by, as of unix seconds. Reverted where none is registered."""
        margin, distance, *_ = self.view("toleranceAt", model, timestamp)
        return int(margin), int(distance)

    def set_tolerance(self, model: bytes, margin_q24: int, distance: int, flip_ppm: int) -> Call:
        return self.transact("setTolerance", model, margin_q24, distance, flip_ppm)


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
        """Whether a slash under that name was carried out."""
        return bool(self.view("punished", fault))

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
        return self.transact("stake", account, beneficiary, int(role), amount, list(models))

    def unstake(self, account: bytes, role: Role, amount: int) -> Call:
        return self.transact("unstake", account, int(role), amount)

    def withdraw(self, account: bytes, role: Role) -> Call:
        return self.transact("withdraw", account, int(role))

    def set_model(self, account: bytes, role: Role, model: bytes, served: bool) -> Call:
        return self.transact("setModel", account, int(role), model, served)

    def release_locks(self, key: bytes, role: Role, limit: int) -> Call:
        return self.transact("releaseLocks", key, int(role), limit)

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


class AlphaLedger(Owned):
    """Claims of acceptance rates, their counts and cases."""

    def claim_drafter(self, claim_id: bytes) -> bytes:
        return bytes(self.view("claimDrafter", claim_id))

    def claim_of(self, claim_id: bytes) -> ClaimState:
        fields = list(self.view("claimOf", claim_id))
        fields[3] = ClaimStatus(fields[3])
        fields[6] = tuple(fields[6] >> 8 * bucket & 0xFF for bucket in range(16))
        return ClaimState(*fields)

    def score_of(
        self, claim_id: bytes, verifier: bytes, bucket: int, start: int, end: int
    ) -> tuple[int, int]:
        """Log-likelihood ratio and its threshold, both at 2**20, between two checkpoints."""
        score, threshold = self.view("scoreOf", claim_id, verifier, bucket, start, end)
        return int(score), int(threshold)

    def escrow(self) -> bytes:
        return bytes(self.view("escrow"))

    def is_judge(self, judge: bytes) -> bool:
        return bool(self.view("isJudge", judge))

    def set_judge(self, judge: bytes, allowed: bool) -> Call:
        return self.transact("setJudge", judge, allowed)

    def register(self, claim: Claim) -> Call:
        return self.transact("register", claim.to_abi())

    def flag(self, claim_id: bytes, verifier: bytes, bucket: int, start: int, end: int) -> Call:
        return self.transact("flag", claim_id, verifier, bucket, start, end)

    def assert_draft_model(self, case_id: int) -> Call:
        return self.transact("assertDraftModel", case_id)

    def expire(self, case_id: int) -> Call:
        return self.transact("expire", case_id)

    def conclude(self, case_id: int) -> Call:
        return self.transact("conclude", case_id)

    def bond_of(self, account: bytes) -> int:
        """What the account can pull."""
        return int(self.view("bondPayable", account))

    def pull_bond(self, account: bytes) -> Call:
        return self.transact("pullBond", account)

    def wire(self, escrow: bytes) -> Call:
        return self.transact("wire", escrow)


class DrawBeacon(Owned):
    """Later randomness, draws, openings. Batches, draws and openings are passed on as the events
    carried them (tuples in the ABI's order)."""

    def pending_in(self, slice_: int) -> int:
        return int(self.view("pendingIn", slice_))

    def batch_hash(self, batch_id: int) -> bytes:
        return bytes(self.view("batchHash", batch_id))

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
        interfaces = {name: Interface(name, artifact.abi) for name, artifact in artifacts.items()}
        errors = ErrorBook([*interfaces.values(), _LIBRARY_ERRORS])

        def wrap(kind: type[_C], name: str, address_name: str = "") -> _C:
            address = addresses.get(address_name or name)
            if address is None:
                raise ContractMissing(name, bytes(20), "not in the address book")
            return kind(rpc, address, interfaces[name], errors)

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
