// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Court} from "./Court.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IFaultCourt} from "./interfaces/IFaultCourt.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IRoundRule} from "./interfaces/IRoundRule.sol";
import {IStakeVault} from "./interfaces/IStakeVault.sol";
import {ITreeRule} from "./interfaces/ITreeRule.sol";
import {Batches} from "./libraries/Batches.sol";
import {Evidence} from "./libraries/Evidence.sol";
import {Records} from "./libraries/Records.sol";
import {Signatures} from "./libraries/Signatures.sol";

/// @title FaultCourt
/// @notice The court for F1 to F5, which records prove by themselves: has the rule contracts judge.
contract FaultCourt is IFaultCourt, Court {
    IDrawBeacon public immutable beacon;
    IRoundRule public immutable roundRule;
    ITreeRule public immutable treeRule;

    error NotThisRoot(bytes32 shown, bytes32 root);
    error NotThisLane(bytes32 shown, bytes32 lane);
    error NotByVerifier(address signer, address verifier);
    error NotThisBatch(uint64 batchId, bytes32 shown, bytes32 kept);
    error NotTheseEntries(bytes32 shown, bytes32 kept);
    error NoSuchEntry(uint32 index, uint256 entries);

    constructor(
        address owner,
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IDrawBeacon beacon_,
        IRoundRule roundRule_,
        ITreeRule treeRule_,
        Terms memory terms_
    ) Court(owner, vault_, escrow_, terms_) {
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        if (address(roundRule_) == address(0)) revert ZeroAddress("roundRule");
        if (address(treeRule_) == address(0)) revert ZeroAddress("treeRule");
        (beacon, roundRule, treeRule) = (beacon_, roundRule_, treeRule_);
    }

    // ------------------------------------------------------------------ proofs

    /// @inheritdoc IFaultCourt
    function proveDraftTwice(Evidence.DraftPair calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.draftTwice, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveVerdictTwice(Evidence.VerdictPair calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.verdictTwice, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveOtherDraft(Evidence.LeafPair calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.otherDraft, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveAcceptRule(Evidence.LeafPair calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.acceptRule, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveDraftLeaf(Evidence.DraftPlace calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.draftLeaf, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveDraftRound(Evidence.DraftRound calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.draftRound, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveVerdictRound(Evidence.Round calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.verdictRound, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveRoundFit(Evidence.Round calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.roundFit, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveLeafPlace(Evidence.LeafPlace calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.leafPlace, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveAllLeaves(Evidence.AllLeaves calldata evidence, bytes32 salt) external {
        _prove(abi.encodeCall(IRoundRule.allLeaves, (evidence, _separator())), salt);
    }

    /// @inheritdoc IFaultCourt
    function proveRecord(
        Evidence.RecordCase calldata evidence,
        Source calldata source,
        bytes32 salt
    ) external {
        _proveTree(abi.encodeCall(ITreeRule.recordCase, (evidence)), source, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveSums(Evidence.TreeStep calldata evidence, Source calldata source, bytes32 salt)
        external
    {
        _proveTree(abi.encodeCall(ITreeRule.treeStep, (evidence)), source, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveRoundTwice(Evidence.Twice calldata evidence, Source calldata source, bytes32 salt)
        external
    {
        _proveTree(abi.encodeCall(ITreeRule.roundTwice, (evidence)), source, salt);
    }

    // ------------------------------------------------------------------ inside

    function _prove(bytes memory question, bytes32 salt) private nonReentrant {
        Filing memory filing = _take(keccak256(question), salt);
        _punish(_ask(address(roundRule), question), filing);
    }

    function _proveTree(bytes memory question, Source calldata source, bytes32 salt)
        private
        nonReentrant
    {
        Filing memory filing = _take(keccak256(question), salt);
        Evidence.Ruling memory ruling = _ask(address(treeRule), question);
        _requireOwn(ruling, source);
        _punish(ruling, filing);
    }

    /// @dev That the root is the guilty verifier's.
    function _requireOwn(Evidence.Ruling memory ruling, Source calldata source) private view {
        if (source.signature.length != 0) {
            Records.Voucher memory voucher = source.voucher;
            // INVARIANT: what V answers for is the root that V signed, in the lane it signed it for.
            if (voucher.root != ruling.root) revert NotThisRoot(voucher.root, ruling.root);
            if (voucher.lane != ruling.lane) revert NotThisLane(voucher.lane, ruling.lane);
            bytes32 digest = Records.digest(_separator(), Records.hash(voucher));
            address signer = _recover(digest, source.signature);
            if (signer != ruling.guilty || signer == address(0)) {
                revert NotByVerifier(signer, ruling.guilty);
            }
            return;
        }
        bytes32 shown = keccak256(abi.encode(source.batch));
        bytes32 kept = beacon.batchHash(source.batch.id);
        // INVARIANT: only what the escrow has settled stands in for V's signature.
        if (shown != kept) revert NotThisBatch(source.batch.id, shown, kept);
        bytes32 entries = keccak256(source.entries);
        if (entries != source.batch.entriesHash) {
            revert NotTheseEntries(entries, source.batch.entriesHash);
        }
        uint256 offset = uint256(source.index) * Batches.ENTRY_BYTES;
        if (source.index >= source.batch.entries || source.entries.length < offset + 64) {
            revert NoSuchEntry(source.index, source.batch.entries);
        }
        bytes32 lane = bytes32(source.entries[offset:offset + 32]);
        bytes32 root = bytes32(source.entries[offset + 32:offset + 64]);
        if (root != ruling.root) revert NotThisRoot(root, ruling.root);
        if (lane != ruling.lane) revert NotThisLane(lane, ruling.lane);
    }

    function _recover(bytes32 digest, bytes calldata signature) private view returns (address) {
        if (signature.length != 65) return address(0);
        return Signatures.recover(
            digest,
            bytes32(signature[:32]),
            uint256(bytes32(signature[32:64])),
            uint8(signature[64])
        );
    }
}
