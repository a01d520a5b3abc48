// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {IDemands} from "./interfaces/IDemands.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Batches} from "./libraries/Batches.sol";

/// @title Demands
/// @notice What every demand for evidence has: terms, a bond, two deadlines, and the price of silence
/// (F7).
///
/// @dev The demander is fixed before the answer is seen, so that its share of a slash can be copied by
/// nobody. That the demander stands behind V itself gains nothing: silence costs `late` and `silent`
/// together, and what comes back of them leaves no less lost than a fault that it could hide (the
/// invariant of `_setTerms`). Nor does flooding V with demands: each brings V its bond, which must be
/// worth the gas of an answer.
abstract contract Demands is IDemands, Ownable2Step, ReentrancyGuardTransient {
    uint256 public constant MAX_BPS = 10_000;

    IStakeVault public immutable vault;
    ILaneEscrow public immutable escrow;
    IDrawBeacon public immutable beacon;
    address public immutable bondToken;

    Terms private _terms;
    Bonds private _bonds;
    uint64 private _nonce;
    mapping(bytes32 id => DemandState) internal _states;
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
        Terms memory terms_
    ) Ownable(owner) {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        (vault, escrow, beacon) = (vault_, escrow_, beacon_);
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

    /// @inheritdoc IDemands
    function pullBond(address account) external nonReentrant returns (uint256 amount) {
        amount = bondOf[account];
        if (amount == 0) revert NothingToPull(account);
        delete bondOf[account];
        _bonds.payable_ -= amount;
        emit BondPulled(account, amount);
        SafeTransferLib.safeTransfer(bondToken, vault.payoutTo(account), amount);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IDemands
    function demandState(bytes32 id) external view returns (DemandState memory) {
        return _states[id];
    }

    /// @inheritdoc IDemands
    function bonds() external view returns (Bonds memory) {
        return _bonds;
    }

    /// @inheritdoc IDemands
    function terms() external view returns (Terms memory) {
        return _terms;
    }

    // ------------------------------------------------------------------ inside

    /// @dev The root that was settled for the lane, while its evidence is owed.
    function _settledRoot(
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        bytes32 lane
    ) internal view returns (bytes32) {
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
        uint64 until = batch.settledAt + batch.terms.evidence;
        // INVARIANT: evidence is owed no longer than the stake that answers for it is held.
        if (block.timestamp > until) revert EvidenceOver(until);
        return bytes32(entries[offset + 32:offset + 64]);
    }

    /// @dev A number no demand had, and the terms of now with the vault's deadlines.
    function _next() internal returns (uint64 nonce, Terms memory t) {
        t = _terms;
        IStakeVault.Times memory times = vault.times();
        (t.firstDeadline, t.secondDeadline) = (times.firstDeadline, times.secondDeadline);
        return (++_nonce, t);
    }

    /// @dev Starts the clock and takes the bond.
    function _start(bytes32 id, Terms memory t) internal returns (DemandState memory) {
        DemandState storage state = _states[id];
        state.firstUntil = uint40(block.timestamp) + t.firstDeadline;
        state.secondUntil = state.firstUntil + t.secondDeadline;
        state.stage = Stage.OPEN;
        _bonds.open += t.bond;
        uint256 before = SafeTransferLib.balanceOf(bondToken, address(this));
        SafeTransferLib.safeTransferFrom(bondToken, msg.sender, address(this), t.bond);
        uint256 arrived = SafeTransferLib.balanceOf(bondToken, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != t.bond) revert ShortBond(t.bond, arrived);
        return state;
    }

    /// @dev What is answered or paid for is what was demanded: an id is the hash of all its demand says.
    function _running(bytes32 id) internal view returns (DemandState storage state) {
        state = _states[id];
        // INVARIANT: a demand is answered once, or paid for, and never both at one deadline.
        if (state.stage != Stage.OPEN && state.stage != Stage.LATE) revert WrongStage(state.stage);
    }

    /// @dev As `_running`, for an answer.
    function _answerable(bytes32 id) internal view returns (DemandState storage state) {
        state = _running(id);
        // INVARIANT: after the last deadline only the price is left.
        if (block.timestamp > state.secondUntil) revert TooLate(state.secondUntil);
    }

    function _expire(bytes32 id, address verifier, address by, Terms memory t) internal {
        DemandState storage state = _running(id);
        bool first = state.stage == Stage.OPEN;
        uint40 until = first ? state.firstUntil : state.secondUntil;
        // INVARIANT: nobody pays for a deadline that has not passed.
        if (block.timestamp <= until) revert TooEarly(until);
        _move(id, state, first ? Stage.LATE : Stage.SILENT);
        if (!first) _release(t.bond, by);
        _charge(id, verifier, by, t, first);
    }

    /// @dev The price of one missed deadline, once.
    function _charge(bytes32 id, address verifier, address by, Terms memory t, bool first)
        internal
    {
        vault.slash(
            verifier,
            Role.VERIFIER,
            first ? t.lateBps : t.silentBps,
            new IStakeVault.Victim[](0),
            by,
            t.rewardBps,
            keccak256(abi.encode("verdraft/F7/1", address(this), id, first))
        );
    }

    function _move(bytes32 id, DemandState storage state, Stage stage) internal {
        state.stage = stage;
        emit DemandMoved(id, stage);
    }

    function _release(uint96 bond, address to) internal {
        _bonds.open -= bond;
        _bonds.payable_ += bond;
        bondOf[to] += bond;
    }
}
