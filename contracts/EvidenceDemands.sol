// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IEvidenceDemands} from "./interfaces/IEvidenceDemands.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IOpeningRule} from "./interfaces/IOpeningRule.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Batches} from "./libraries/Batches.sol";
import {Openings} from "./libraries/Openings.sol";
import {Records} from "./libraries/Records.sol";

/// @title EvidenceDemands
/// @notice Makes what lies under a settled root available on demand: V opens the position or pays.
///
/// @dev A demand is for one output token, as a draw's sample is, and is answered by the same opening,
/// judged by the same rule. The demander is fixed before the answer is seen, so that its reward for
/// a fault can be copied by nobody. That the demander stands behind V itself gains nothing: silence
/// costs `late` and `silent` together, and what comes back of them as a reward leaves no less lost
/// than a fault that it could hide (the invariant of `_setTerms`); a fault that V shows itself gives
/// back `rewardBps` of the slash. Nor does flooding V with demands: each brings V its bond, which
/// must be worth the gas of an answer.
contract EvidenceDemands is IEvidenceDemands, Ownable2Step, ReentrancyGuardTransient {
    uint256 public constant MAX_BPS = 10_000;

    IStakeVault public immutable vault;
    ILaneEscrow public immutable escrow;
    IDrawBeacon public immutable beacon;
    IOpeningRule public immutable rule;
    address public immutable bondToken;

    Terms private _terms;
    Bonds private _bonds;
    uint64 private _nonce;
    mapping(bytes32 id => DemandState) private _states;
    mapping(address account => uint256) public bondOf;

    error ZeroAddress(string what);
    error BadTerm(string what, uint256 value);
    error NotThisBatch(uint64 batchId, bytes32 shown, bytes32 kept);
    error NotTheseEntries(bytes32 shown, bytes32 kept);
    error NoSuchEntry(uint32 index, uint256 entries);
    error NotThisLane(bytes32 shown, bytes32 lane);
    error EvidenceOver(uint64 until);
    error ShortBond(uint256 asked, uint256 arrived);
    error WrongStage(Stage stage);
    error TooLate(uint40 until);
    error TooEarly(uint40 until);
    error NothingToPull(address account);

    constructor(
        address owner,
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IDrawBeacon beacon_,
        IOpeningRule rule_,
        Terms memory terms_
    ) Ownable(owner) {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        if (address(rule_) == address(0)) revert ZeroAddress("rule");
        (vault, escrow, beacon, rule) = (vault_, escrow_, beacon_, rule_);
        bondToken = vault_.stakeToken();
        _setTerms(terms_);
    }

    // ------------------------------------------------------------------ owner

    /// @notice For demands from now on. The deadlines are the vault's, so they are not read here.
    function setTerms(Terms calldata terms_) external onlyOwner {
        _setTerms(terms_);
    }

    function _setTerms(Terms memory t) private {
        // INVARIANT: asking is never free, and answering is paid for.
        if (t.bond == 0) revert BadTerm("bond", t.bond);
        if (t.faultBps == 0 || t.faultBps > MAX_BPS) revert BadTerm("faultBps", t.faultBps);
        // INVARIANT: silence to the end costs no less than the fault that it could hide.
        if (t.silentBps < t.faultBps || t.silentBps > MAX_BPS) {
            revert BadTerm("silentBps", t.silentBps);
        }
        if (t.lateBps > MAX_BPS) revert BadTerm("lateBps", t.lateBps);
        // INVARIANT: nor does it where V's friend is the demander and gets the share.
        uint256 lost = t.lateBps + (MAX_BPS - t.lateBps) * uint256(t.silentBps) / MAX_BPS;
        uint256 kept = MAX_BPS - FixedPointMathLib.min(t.rewardBps, MAX_BPS);
        if (lost * kept < t.faultBps * MAX_BPS) revert BadTerm("rewardBps", t.rewardBps);
        // Written out of the vault's times when a demand is made.
        (t.firstDeadline, t.secondDeadline) = (0, 0);
        _terms = t;
        emit TermsChanged(t);
    }

    // ------------------------------------------------------------------ demands

    /// @inheritdoc IEvidenceDemands
    function demandLeaf(
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        Records.Lane calldata lane,
        bytes32 seed
    ) external nonReentrant returns (bytes32 id) {
        bytes32 root = _settledRoot(batch, entries, index, Records.laneId(lane));
        uint64 until = batch.settledAt + batch.terms.evidence;
        // INVARIANT: evidence is owed no longer than the stake that answers for it is held.
        if (block.timestamp > until) revert EvidenceOver(until);

        Terms memory t = _terms;
        IStakeVault.Times memory times = vault.times();
        (t.firstDeadline, t.secondDeadline) = (times.firstDeadline, times.secondDeadline);
        Demand memory demand = Demand(++_nonce, msg.sender, root, lane, seed, t);
        id = keccak256(abi.encode(demand));
        DemandState storage state = _states[id];
        state.firstUntil = uint40(block.timestamp) + t.firstDeadline;
        state.secondUntil = state.firstUntil + t.secondDeadline;
        state.stage = Stage.OPEN;
        _bonds.open += t.bond;
        emit Demanded(id, lane.verifier, demand, state.firstUntil, state.secondUntil);

        uint256 before = SafeTransferLib.balanceOf(bondToken, address(this));
        SafeTransferLib.safeTransferFrom(bondToken, msg.sender, address(this), t.bond);
        uint256 arrived = SafeTransferLib.balanceOf(bondToken, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != t.bond) revert ShortBond(t.bond, arrived);
    }

    /// @inheritdoc IEvidenceDemands
    function answer(Demand calldata demand, Openings.Opening calldata opening)
        external
        nonReentrant
    {
        (bytes32 id, DemandState storage state) = _running(demand);
        // INVARIANT: after the last deadline only the price is left.
        if (block.timestamp > state.secondUntil) revert TooLate(state.secondUntil);
        Openings.Finding memory found = rule.judge(
            opening,
            demand.root,
            Records.laneId(demand.lane),
            escrow.domainSeparator(),
            demand.seed,
            0
        );
        bool faulty = found.verifier != 0;
        _move(id, state, faulty ? Stage.FAULTY : Stage.SHOWN);
        // INVARIANT: who answers in time, and truly, is paid for it.
        _release(demand.terms.bond, faulty ? demand.by : demand.lane.verifier);
        if (faulty) {
            _punish(id, demand, opening, demand.lane.verifier, Role.VERIFIER, found.verifier);
        }
        if (found.drafter != 0) {
            _punish(id, demand, opening, demand.lane.drafter, Role.DRAFTER, found.drafter);
        }
    }

    /// @inheritdoc IEvidenceDemands
    function expire(Demand calldata demand) external nonReentrant {
        (bytes32 id, DemandState storage state) = _running(demand);
        bool first = state.stage == Stage.OPEN;
        uint40 until = first ? state.firstUntil : state.secondUntil;
        // INVARIANT: nobody pays for a deadline that has not passed.
        if (block.timestamp <= until) revert TooEarly(until);
        _move(id, state, first ? Stage.LATE : Stage.SILENT);
        if (!first) _release(demand.terms.bond, demand.by);
        vault.slash(
            demand.lane.verifier,
            Role.VERIFIER,
            first ? demand.terms.lateBps : demand.terms.silentBps,
            new IStakeVault.Victim[](0),
            demand.by,
            demand.terms.rewardBps,
            keccak256(abi.encode("verdraft/F7/1", address(this), id, first))
        );
    }

    /// @inheritdoc IEvidenceDemands
    function pullBond(address account) external nonReentrant returns (uint256 amount) {
        amount = bondOf[account];
        if (amount == 0) revert NothingToPull(account);
        delete bondOf[account];
        _bonds.payable_ -= amount;
        emit BondPulled(account, amount);
        SafeTransferLib.safeTransfer(bondToken, vault.payoutTo(account), amount);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IEvidenceDemands
    function demandState(bytes32 id) external view returns (DemandState memory) {
        return _states[id];
    }

    /// @inheritdoc IEvidenceDemands
    function bonds() external view returns (Bonds memory) {
        return _bonds;
    }

    /// @inheritdoc IEvidenceDemands
    function terms() external view returns (Terms memory) {
        return _terms;
    }

    // ------------------------------------------------------------------ inside

    function _settledRoot(
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        bytes32 lane
    ) private view returns (bytes32) {
        bytes32 shown = keccak256(abi.encode(batch));
        bytes32 kept = beacon.batchHash(batch.id);
        // INVARIANT: V owes evidence for what was settled, and for nothing else.
        if (shown != kept) revert NotThisBatch(batch.id, shown, kept);
        bytes32 packed = keccak256(entries);
        if (packed != batch.entriesHash) revert NotTheseEntries(packed, batch.entriesHash);
        uint256 offset = uint256(index) * Batches.ENTRY_BYTES;
        if (index >= batch.entries || entries.length < offset + Batches.ENTRY_BYTES) {
            revert NoSuchEntry(index, batch.entries);
        }
        bytes32 settled = bytes32(entries[offset:offset + 32]);
        if (settled != lane) revert NotThisLane(lane, settled);
        return bytes32(entries[offset + 32:offset + 64]);
    }

    function _running(Demand calldata demand)
        private
        view
        returns (bytes32 id, DemandState storage state)
    {
        // INVARIANT: what is answered or paid for is what was demanded.
        id = keccak256(abi.encode(demand));
        state = _states[id];
        if (state.stage != Stage.OPEN && state.stage != Stage.LATE) revert WrongStage(state.stage);
    }

    function _move(bytes32 id, DemandState storage state, Stage stage) private {
        state.stage = stage;
        emit DemandMoved(id, stage);
    }

    function _release(uint96 bond, address to) private {
        _bonds.open -= bond;
        _bonds.payable_ += bond;
        bondOf[to] += bond;
    }

    /// @dev Under the name that a proof before FaultCourt, or a drawn opening, has.
    function _punish(
        bytes32 id,
        Demand calldata demand,
        Openings.Opening calldata opening,
        address guilty,
        Role role,
        uint8 code
    ) private {
        (bytes32 startHash, uint32 round) = code == Openings.SUMS
            ? (demand.root, 0)
            : (opening.record.startHash, opening.record.round);
        emit AnswerFaulty(id, guilty, code, startHash, round);
        vault.slash(
            guilty,
            role,
            demand.terms.faultBps,
            new IStakeVault.Victim[](0),
            demand.by,
            demand.terms.rewardBps,
            keccak256(
                abi.encode("verdraft/fault/1", Openings.faultOf(code), guilty, startHash, round)
            )
        );
    }
}
