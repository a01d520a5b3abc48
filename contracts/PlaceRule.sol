// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAlphaLedger} from "./interfaces/IAlphaLedger.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IPlaceRule} from "./interfaces/IPlaceRule.sol";
import {Batches} from "./libraries/Batches.sol";
import {Evidence} from "./libraries/Evidence.sol";
import {Openings} from "./libraries/Openings.sol";
import {Records} from "./libraries/Records.sol";
import {Trees} from "./libraries/Trees.sol";

/// @title PlaceRule
/// @notice Holds nothing and says what may be asked of auditors: tokens of roots that were settled. What
/// is shown hangs on the root, which V signed; D answers for what D signed.
contract PlaceRule is IPlaceRule {
    ILaneEscrow public immutable escrow;
    IDrawBeacon public immutable beacon;
    IAlphaLedger public immutable ledger;

    error ZeroAddress(string what);
    /// @notice The order names no draft model, so nothing can be run again.
    error NoDraftModel();
    error NotThisBatch(uint64 batchId, bytes32 shown, bytes32 kept);
    error NotTheseEntries(bytes32 shown, bytes32 kept);
    error NoSuchEntry(uint32 index, uint256 entries);
    error NotSettled(bytes32 shown, bytes32 settled);
    error NothingAsserted(uint64 ledgerCase);

    constructor(ILaneEscrow escrow_, IDrawBeacon beacon_, IAlphaLedger ledger_) {
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        if (address(ledger_) == address(0)) revert ZeroAddress("ledger");
        (escrow, beacon, ledger) = (escrow_, beacon_, ledger_);
    }

    /// @inheritdoc IPlaceRule
    function verdictPlace(Place calldata place, Source calldata source)
        external
        view
        returns (Subject memory subject)
    {
        subject = _subject(place);
        _settled(subject, source);
        subject.model = place.order.targetModel;
        Records.VerdictLeaf memory leaf = place.leaf;
        subject.sealedPrint = leaf.fingerprint;
        subject.figures = keccak256(
            abi.encode(
                leaf.token,
                leaf.accepted,
                leaf.p,
                leaf.topProb,
                leaf.cutoff,
                leaf.scoreDraft,
                leaf.scoreTop,
                leaf.surprisal,
                leaf.key
            )
        );
        subject.clientLoss = _loss(place.order.priceOutput, place.verdict.emitted)
            + _loss(place.order.priceAccepted, place.verdict.k);
        if (leaf.draftToken != Records.NO_TOKEN && !leaf.accepted) {
            subject.drafterLoss = _loss(place.order.priceAccepted, 1);
        }
    }

    /// @inheritdoc IPlaceRule
    function draftPlace(Place calldata place, Source calldata source, uint64 ledgerCase)
        external
        view
        returns (Subject memory subject)
    {
        subject = _subject(place);
        _settled(subject, source);
        if (place.order.mode != Records.MODE_REJECTION && place.order.relaxTau == 0) {
            _requireAsserted(subject, ledgerCase);
        }
        if (place.order.draftModel == 0) revert NoDraftModel();
        subject.model = place.order.draftModel;
        Records.DraftCommit memory commit = place.commit;
        bytes32 hash = Records.hash(commit);
        Evidence.requireSame("commit", hash, place.record.draftCommitHash);
        // INVARIANT: D answers for what D signed, whatever V has put in its tree.
        Evidence.requireSigned(
            "commit", escrow.domainSeparator(), hash, place.commitSignature, place.order.drafter
        );
        Evidence.requireSame("commit start", commit.startHash, subject.startHash);
        if (place.within >= commit.k) {
            revert Evidence.NoSuchPlace("draft", place.within, commit.k);
        }
        Trees.requireLeaf(
            commit.draftRoot, Records.leaf(place.draft), place.within, commit.k, place.draftPath
        );
        subject.figures = Records.leaf(place.draft);
        subject.clientLoss = _loss(place.order.priceAccepted, place.verdict.k);
    }

    /// @dev That the root was settled in the lane.
    function _settled(Subject memory s, Source calldata source) private view {
        IDrawBeacon.Batch memory batch = source.batch;
        bytes32 shown = keccak256(abi.encode(batch));
        bytes32 kept = beacon.batchHash(batch.id);
        // INVARIANT: only what was settled is judged, so that its time and its stake are known.
        if (shown != kept) revert NotThisBatch(batch.id, shown, kept);
        bytes32 packed = keccak256(source.entries);
        if (packed != batch.entriesHash) revert NotTheseEntries(packed, batch.entriesHash);
        uint256 offset = uint256(source.index) * Batches.ENTRY_BYTES;
        if (source.index >= batch.entries || source.entries.length < offset + Batches.ENTRY_BYTES) {
            revert NoSuchEntry(source.index, batch.entries);
        }
        bytes32 lane = bytes32(source.entries[offset:offset + 32]);
        bytes32 root = bytes32(source.entries[offset + 32:offset + 64]);
        if (lane != s.lane) revert NotSettled(s.lane, lane);
        if (root != s.root) revert NotSettled(s.root, root);
        uint256 figures = uint256(bytes32(source.entries[offset + 64:offset + 96]));
        // Two values of 96 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        s.value = uint128(uint256(uint96(figures)) + uint96(figures >> 96));
        (s.batchId, s.index) = (batch.id, source.index);
        if (batch.randomness != 0) {
            s.seed =
                keccak256(abi.encodePacked("verdraft/sample/1", batch.randomness, source.index));
        }
        s.settledAt = batch.settledAt;
        s.until = batch.settledAt + batch.terms.evidence + batch.terms.firstDeadline
            + batch.terms.secondDeadline;
    }

    function _requireAsserted(Subject memory s, uint64 ledgerCase) private view {
        IAlphaLedger.Case memory opened = ledger.caseOf(ledgerCase);
        // INVARIANT: where drafts change no text, D answers for them only if it has given its word.
        if (
            opened.stage != IAlphaLedger.Stage.ANSWERED || opened.claimId != s.claimId
                || (opened.verifier != address(0) && opened.verifier != s.verifier)
        ) revert NothingAsserted(ledgerCase);
    }

    /// @dev From the root down to the verdict's leaf.
    function _subject(Place calldata place) private pure returns (Subject memory s) {
        Records.Order memory order = place.order;
        Openings.Root memory settled = place.settled;
        s.root = Evidence.rootHash(settled);
        _climb(place, s);
        s.startHash = place.record.startHash;
        s.round = place.record.round;
        Evidence.requireSession(order, place.start, s.startHash);
        s.lane = Records.laneId(Records.laneOf(order));
        bytes32 verdictHash = Records.hash(place.verdict);
        Evidence.requireSame("verdict", verdictHash, place.record.verdictHash);
        Evidence.requireSame("verdict start", place.verdict.startHash, s.startHash);
        if (place.within >= place.verdict.emitted) {
            revert Evidence.NoSuchPlace("token", place.within, place.verdict.emitted);
        }
        Trees.requireLeaf(
            place.verdict.verdictRoot,
            Records.leaf(place.leaf),
            place.within,
            place.verdict.emitted,
            place.path
        );
        s.within = place.within;
        (s.client, s.drafter, s.verifier) = (order.client, order.drafter, order.verifier);
        (s.token, s.claimId) = (order.token, order.claimId);
    }

    function _climb(Place calldata place, Subject memory s) private pure {
        Records.RoundRecord memory record = place.record;
        s.record = Records.leaf(record);
        (bytes32 top, uint256[9] memory total, uint256 before) = Trees.climb(
            s.record, Records.sums(record), place.leafIndex, place.settled.leafCount, place.steps
        );
        // INVARIANT: only what V has settled is asked about.
        Evidence.requireSame("top", top, place.settled.top);
        // Sums are below 2**63 each.
        // forge-lint: disable-next-line(unsafe-typecast)
        s.target = uint64(before + place.within);
        // forge-lint: disable-next-line(unsafe-typecast)
        s.output = uint64(Trees.outputOf(total));
    }

    /// @dev At most half of what 128 bits hold, so that two of them add up.
    function _loss(uint128 price, uint256 count) private pure returns (uint128) {
        uint256 loss = uint256(price) * count;
        // forge-lint: disable-next-line(unsafe-typecast)
        return loss > type(uint120).max ? type(uint120).max : uint128(loss);
    }
}
