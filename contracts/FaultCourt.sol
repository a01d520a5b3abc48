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
    function proveDraftTwice(Evidence.DraftPair calldata, bytes32 salt) external {
        _prove(IRoundRule.draftTwice.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveVerdictTwice(Evidence.VerdictPair calldata, bytes32 salt) external {
        _prove(IRoundRule.verdictTwice.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveOtherDraft(Evidence.LeafPair calldata, bytes32 salt) external {
        _prove(IRoundRule.otherDraft.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveAcceptRule(Evidence.LeafPair calldata, bytes32 salt) external {
        _prove(IRoundRule.acceptRule.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveDraftLeaf(Evidence.DraftPlace calldata, bytes32 salt) external {
        _prove(IRoundRule.draftLeaf.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveDraftRound(Evidence.DraftRound calldata, bytes32 salt) external {
        _prove(IRoundRule.draftRound.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveVerdictRound(Evidence.Round calldata, bytes32 salt) external {
        _prove(IRoundRule.verdictRound.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveRoundFit(Evidence.Round calldata, bytes32 salt) external {
        _prove(IRoundRule.roundFit.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveLeafPlace(Evidence.LeafPlace calldata, bytes32 salt) external {
        _prove(IRoundRule.leafPlace.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveAllLeaves(Evidence.AllLeaves calldata, bytes32 salt) external {
        _prove(IRoundRule.allLeaves.selector, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveRecord(Evidence.RecordCase calldata, Source calldata source, bytes32 salt)
        external
    {
        _proveTree(ITreeRule.recordCase.selector, source, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveSums(Evidence.TreeStep calldata, Source calldata source, bytes32 salt) external {
        _proveTree(ITreeRule.treeStep.selector, source, salt);
    }

    /// @inheritdoc IFaultCourt
    function proveRoundTwice(Evidence.Twice calldata, Source calldata source, bytes32 salt)
        external
    {
        _proveTree(ITreeRule.roundTwice.selector, source, salt);
    }

    // ------------------------------------------------------------------ inside

    /// @dev The question is this call with two words changed: the rule's selector for the function's
    /// own, the separator for the salt. Encoded anew, a tree's path costs more than the rule that reads
    /// it. What is hashed is what the rule is asked, so the evidence can be no other than was filed.
    function _prove(bytes4 selector, bytes32 salt) private nonReentrant {
        bytes memory question =
            abi.encodePacked(selector, msg.data[4:36], _separator(), msg.data[68:]);
        Filing memory filing = _take(keccak256(question), salt);
        _punish(_ask(address(roundRule), question), filing);
    }

    /// @dev As `_prove`, for a rule that is asked for the evidence alone: what lies between this call's
    /// three words and its source.
    function _proveTree(bytes4 selector, Source calldata source, bytes32 salt)
        private
        nonReentrant
    {
        uint256 end = 4 + uint256(bytes32(msg.data[36:68]));
        bytes memory question = abi.encodePacked(selector, uint256(0x20), msg.data[100:end]);
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
