// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AcceptRule} from "./AcceptRule.sol";
import {Evidence} from "./Evidence.sol";
import {Openings} from "./Openings.sol";
import {Records} from "./Records.sol";
import {Trees} from "./Trees.sol";

/// @title RoundFaults
/// @notice Faults that a session's own signed records prove, settled or not: F1 to F4, and F5 between
/// a verdict, its draft, its leaves and the verdict before. Mirrored by `settlement/faults.py`.
/// @dev Each kind is judged by itself, whatever else is wrong with the same leaf: nobody hides one
/// fault behind another.
library RoundFaults {
    // ------------------------------------------------------------------ F1, F2

    /// @notice Two windows by one key for one place: same session, round and context, other drafts.
    function draftTwice(Evidence.DraftPair calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        r.guilty = Evidence.signerOf("one", separator, Records.hash(e.one), e.oneSignature);
        // INVARIANT: both are by one key; nobody answers for another's second draft.
        Evidence.requireSigned(
            "other", separator, Records.hash(e.other), e.otherSignature, r.guilty
        );
        if (
            e.one.startHash != e.other.startHash || e.one.round != e.other.round
                || e.one.contextHash != e.other.contextHash || e.one.draftRoot == e.other.draftRoot
        ) revert Evidence.NoFault();
        (r.fault, r.code, r.drafter) = (1, Evidence.DRAFT_TWICE, true);
        (r.startHash, r.round) = (e.one.startHash, e.one.round);
    }

    /// @notice Two verdicts of V on one round, whatever their versions.
    function verdictTwice(Evidence.VerdictPair calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        Evidence.requireSession(order, e.start, e.one.startHash);
        bytes32 one = Records.hash(e.one);
        bytes32 other = Records.hash(e.other);
        Evidence.requireSigned("one", separator, one, e.oneSignature, order.verifier);
        Evidence.requireSigned("other", separator, other, e.otherSignature, order.verifier);
        if (e.one.startHash != e.other.startHash || e.one.round != e.other.round || one == other) {
            revert Evidence.NoFault();
        }
        accuseVerifier(r, order, e.one, 2, Evidence.VERDICT_TWICE);
    }

    // ------------------------------------------------------------------ F3, F4 of leaves

    /// @notice The verdict leaf names another draft token than D's leaf of that place.
    function otherDraft(Evidence.LeafPair calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        bool drafted = _requirePair(e, order, separator);
        if (e.verdictLeaf.draftToken == (drafted ? e.draftLeaf.token : Records.NO_TOKEN)) {
            revert Evidence.NoFault();
        }
        accuseVerifier(r, order, e.verdict, 3, AcceptRule.OTHER_DRAFT);
        _harmDrafter(r, order, e);
    }

    /// @notice V's decision against the accept rule, on the leaves' own figures.
    function acceptRule(Evidence.LeafPair calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        bool drafted = _requirePair(e, order, separator);
        Records.VerdictLeaf memory leaf = e.verdictLeaf;
        uint8 code = _ruleAlone(e, order, leaf, drafted);
        if (code == AcceptRule.NO_FAULT) revert Evidence.NoFault();
        accuseVerifier(r, order, e.verdict, 4, code);
        if (!leaf.accepted) _harmDrafter(r, order, e);
    }

    /// @dev With place and draft put right, so that neither can hide what the rule finds.
    function _ruleAlone(
        Evidence.LeafPair calldata e,
        Records.Order memory order,
        Records.VerdictLeaf memory leaf,
        bool drafted
    ) private pure returns (uint8) {
        Records.DraftLeaf memory draft = e.draftLeaf;
        unchecked {
            leaf.position = e.verdict.base + e.index;
        }
        leaf.draftToken = drafted ? draft.token : Records.NO_TOKEN;
        // Bounds are F5; the very last position of all lies within no order.
        if (leaf.position == type(uint32).max) return AcceptRule.NO_FAULT;
        (order.startPosition, order.maxTokens) = (0, type(uint32).max);
        return AcceptRule.checkLeafPair(
            order, e.start.seed, leaf.position, drafted, draft, leaf, e.verdict.chainValue
        );
    }

    /// @dev What a leaf pair must show before it accuses V.
    function _requirePair(
        Evidence.LeafPair calldata e,
        Records.Order memory order,
        bytes32 separator
    ) private pure returns (bool drafted) {
        requireVerdict(order, e.start, e.verdict, e.verdictSignature, separator);
        requireLeaf(e.verdict, e.verdictLeaf, e.index, e.verdictPath);
        uint256 window;
        if (e.verdict.draftCommitHash != 0) {
            Evidence.requireSame("commit", Records.hash(e.commit), e.verdict.draftCommitHash);
            window = e.commit.k;
        }
        drafted = e.index < window;
        if (drafted) {
            Trees.requireLeaf(
                e.commit.draftRoot, Records.leaf(e.draftLeaf), e.index, window, e.draftPath
            );
        }
    }

    /// @notice D's leaf against its place, its draw and its list.
    function draftLeaf(Evidence.DraftPlace calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        _requireCommit(order, e.start, e.commit, e.commitSignature, separator);
        if (e.index >= e.commit.k) revert Evidence.NoSuchPlace("draft", e.index, e.commit.k);
        Records.DraftLeaf memory leaf = e.leaf;
        Trees.requireLeaf(e.commit.draftRoot, Records.leaf(leaf), e.index, e.commit.k, e.path);
        uint8 code = AcceptRule.checkDraftLeaf(
            order,
            e.start.seed,
            e.commit.contextHash,
            uint256(e.commit.base) + e.index,
            leaf,
            e.commit.chainValue
        );
        if (code == AcceptRule.NO_FAULT && order.mode == Records.MODE_REJECTION) {
            code = AcceptRule.checkDraftList(leaf, e.kept);
        }
        if (code == AcceptRule.NO_FAULT) revert Evidence.NoFault();
        _accuseDrafter(r, order, e.commit, code);
    }

    // ------------------------------------------------------------------ F4 of rounds

    /// @notice D's coin against its anchor, and its window against what was announced.
    function draftRound(Evidence.DraftRound calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        _requireCommit(order, e.start, e.commit, e.commitSignature, separator);
        // Outside rejection mode there are no coins, and a window's number binds nobody.
        if (order.mode != Records.MODE_REJECTION) revert Evidence.NoFault();
        uint8 code = AcceptRule.checkChainDrafter(order, e.commit.round, e.commit.chainValue);
        if (code == AcceptRule.NO_FAULT) {
            uint256 announced = e.start.firstK;
            if (e.commit.round != 0) {
                bytes32 previous = Records.hash(e.previous);
                // INVARIANT: D is held to the announcement it had before it, and to no other.
                Evidence.requireSame("previous", previous, e.commit.prevVerdictHash);
                Evidence.requireSigned(
                    "previous", separator, previous, e.previousSignature, order.verifier
                );
                _requireBefore(e.previous, e.commit.startHash, e.commit.round);
                announced = e.previous.nextK;
            }
            if (_asAnnounced(order, e.commit.base, e.commit.k, announced)) {
                revert Evidence.NoFault();
            }
            code = Openings.WINDOW_DRAFTER;
        }
        _accuseDrafter(r, order, e.commit, code);
    }

    /// @notice V's coin against its anchor, and the window it took against what it may.
    function verdictRound(Evidence.Round calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        uint256 window = _requireRound(e, order, separator);
        uint8 code;
        bool coins = order.mode == Records.MODE_REJECTION;
        if (coins) {
            code = AcceptRule.checkChainVerifier(order, e.verdict.round, e.verdict.chainValue);
        }
        if (code == AcceptRule.NO_FAULT && window > order.maxWindow) {
            code = Openings.WINDOW_VERIFIER;
        }
        if (code == AcceptRule.NO_FAULT && coins && e.verdict.draftCommitHash == 0) {
            // V has left D out although it had announced drafts.
            bool known = e.verdict.round == 0 || e.previousSignature.length != 0;
            uint256 announced = e.verdict.round == 0 ? e.start.firstK : e.previous.nextK;
            if (known && !_asAnnounced(order, e.verdict.base, 0, announced)) {
                code = Openings.WINDOW_VERIFIER;
            }
        }
        if (code == AcceptRule.NO_FAULT) revert Evidence.NoFault();
        accuseVerifier(r, order, e.verdict, 4, code);
    }

    /// @dev As many as announced and the order allows (so that V cannot announce what D may not
    /// draft); fewer only where that many and V's own token reach the end.
    function _asAnnounced(
        Records.Order memory order,
        uint256 base,
        uint256 window,
        uint256 announced
    ) private pure returns (bool) {
        if (announced > order.maxWindow) announced = order.maxWindow;
        return window == announced
            || (window < announced && base + window + 1 >= uint256(order.maxTokens));
    }

    // ------------------------------------------------------------------ F5 of rounds

    /// @notice A verdict against the draft it names, its own counts and the verdict before.
    function roundFit(Evidence.Round calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        uint256 window = _requireRound(e, order, separator);
        uint8 code = _fit(e, order, window);
        if (code == AcceptRule.NO_FAULT) revert Evidence.NoFault();
        accuseVerifier(r, order, e.verdict, 5, code);
    }

    function _fit(Evidence.Round calldata e, Records.Order memory order, uint256 window)
        private
        pure
        returns (uint8)
    {
        Records.Verdict calldata verdict = e.verdict;
        if (verdict.draftCommitHash != 0) {
            Records.DraftCommit calldata commit = e.commit;
            if (
                commit.startHash != verdict.startHash || commit.round != verdict.round
                    || commit.version != verdict.version || commit.base != verdict.base
                    || commit.contextHash != verdict.contextHash || window == 0
            ) return Openings.RECORD;
        }
        uint256 emitted = verdict.emitted;
        if (
            verdict.k > window || emitted == 0 || emitted < verdict.k
                || emitted > uint256(verdict.k) + 1
        ) return Openings.COUNTS;
        if (verdict.round == 0) {
            bytes32 context = order.parentSession == 0 ? order.promptHash : order.contextHash;
            if (verdict.base != order.startPosition || verdict.contextHash != context) {
                return Openings.CONTEXT;
            }
        } else if (
            e.previousSignature.length != 0
                && (uint256(e.previous.base) + e.previous.emitted != verdict.base
                    || e.previous.nextContextHash != verdict.contextHash)
        ) {
            return Openings.CONTEXT;
        }
        return verdict.base + emitted > order.maxTokens ? AcceptRule.OUTSIDE_SESSION : 0;
    }

    /// @dev Verdict, the draft that it names, and the verdict before where one is shown.
    function _requireRound(Evidence.Round calldata e, Records.Order memory order, bytes32 separator)
        private
        pure
        returns (uint256 window)
    {
        requireVerdict(order, e.start, e.verdict, e.verdictSignature, separator);
        if (e.verdict.draftCommitHash != 0) {
            Evidence.requireSame("commit", Records.hash(e.commit), e.verdict.draftCommitHash);
            window = e.commit.k;
        }
        if (e.verdict.round != 0 && e.previousSignature.length != 0) {
            // INVARIANT: both ends of a broken chain are V's own word.
            Evidence.requireSigned(
                "previous", separator, Records.hash(e.previous), e.previousSignature, order.verifier
            );
            _requireBefore(e.previous, e.verdict.startHash, e.verdict.round);
        }
    }

    /// @notice One leaf of a verdict against its place, its accept bit and its stops.
    function leafPlace(Evidence.LeafPlace calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        requireVerdict(order, e.start, e.verdict, e.verdictSignature, separator);
        requireLeaf(e.verdict, e.leaf, e.index, e.path);
        uint8 code = _place(e, order, separator);
        if (code == AcceptRule.NO_FAULT) revert Evidence.NoFault();
        accuseVerifier(r, order, e.verdict, 5, code);
    }

    function _place(Evidence.LeafPlace calldata e, Records.Order memory order, bytes32 separator)
        private
        pure
        returns (uint8)
    {
        uint256 position = uint256(e.verdict.base) + e.index;
        if (position < order.startPosition || position >= order.maxTokens) {
            return AcceptRule.OUTSIDE_SESSION;
        }
        if (e.leaf.position != position) return AcceptRule.WRONG_POSITION;
        if (e.leaf.accepted != e.index < e.verdict.k) return Openings.COUNTS;
        bool stops;
        for (uint256 i; i < order.stopIds.length; ++i) {
            if (order.stopIds[i] == e.leaf.token) stops = true;
        }
        if (!stops) return 0;
        if (uint256(e.index) + 1 < e.verdict.emitted) return Openings.STOP_PASSED;
        if (e.laterSignature.length == 0) return 0;
        Evidence.requireSigned(
            "later", separator, Records.hash(e.later), e.laterSignature, order.verifier
        );
        Evidence.requireSame("later start", e.later.startHash, e.verdict.startHash);
        return e.later.round > e.verdict.round ? Openings.STOP_PASSED : 0;
    }

    /// @notice All leaves of a verdict against its counts and the context after it.
    function allLeaves(Evidence.AllLeaves calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        requireVerdict(order, e.start, e.verdict, e.verdictSignature, separator);
        // INVARIANT: these are the leaves, and no shorter or longer list has their root.
        Evidence.requireSame("leaves", rootOver(e.leaves), e.verdict.verdictRoot);
        uint256 accepted;
        bytes32 context = e.verdict.contextHash;
        for (uint256 i; i < e.leaves.length; ++i) {
            Records.VerdictLeaf calldata leaf = e.leaves[i];
            context = Records.nextContext(context, leaf.token);
            if (leaf.accepted) ++accepted;
        }
        uint8 code;
        if (e.leaves.length != e.verdict.emitted || accepted != e.verdict.k) {
            code = Openings.COUNTS;
        } else if (context != e.verdict.nextContextHash) {
            code = Openings.CONTEXT;
        } else {
            revert Evidence.NoFault();
        }
        accuseVerifier(r, order, e.verdict, 5, code);
    }

    /// @notice The root over leaves.
    /// @dev As `Records.leafOf` and `Trees.node`, with one preimage written over and over: bounds and
    /// copies cost more than the hashes.
    function rootOver(Records.VerdictLeaf[] calldata leaves) internal pure returns (bytes32 root) {
        if (leaves.length == 0) revert Trees.EmptyTree();
        bytes32 typeHash = Records.VERDICT_LEAF_TYPEHASH;
        assembly ("memory-safe") {
            let level := mload(0x40)
            let width := leaves.length
            let preimage := add(level, shl(5, width))
            mstore8(preimage, 0x00)
            mstore(add(preimage, 0x01), typeHash)
            // A leaf is twelve words of values, one leaf behind the other.
            let from := leaves.offset
            for { let to := level } lt(to, preimage) { to := add(to, 0x20) } {
                calldatacopy(add(preimage, 0x21), from, 0x180)
                mstore(to, keccak256(preimage, 0x1a1))
                from := add(from, 0x180)
            }
            mstore8(preimage, 0x01)
            for {} gt(width, 1) { width := shr(1, add(width, 1)) } {
                for { let i := 0 } lt(i, width) { i := add(i, 2) } {
                    from := add(level, shl(5, i))
                    let to := add(level, shl(4, i))
                    switch lt(add(i, 1), width)
                    case 0 {
                        // An odd last node rises unhashed.
                        mstore(to, mload(from))
                    }
                    default {
                        mcopy(add(preimage, 0x01), from, 0x40)
                        mstore(to, keccak256(preimage, 0x41))
                    }
                }
            }
            root := mload(level)
        }
    }

    // ------------------------------------------------------------------ inside

    /// @notice That V signed the verdict, in a session under this order.
    function requireVerdict(
        Records.Order memory order,
        Records.SessionStart calldata start,
        Records.Verdict calldata verdict,
        bytes calldata signature,
        bytes32 separator
    ) internal pure {
        Evidence.requireSession(order, start, verdict.startHash);
        // INVARIANT: V answers for what V signed.
        Evidence.requireSigned(
            "verdict", separator, Records.hash(verdict), signature, order.verifier
        );
    }

    function _requireCommit(
        Records.Order memory order,
        Records.SessionStart calldata start,
        Records.DraftCommit calldata commit,
        bytes calldata signature,
        bytes32 separator
    ) private pure {
        Evidence.requireSession(order, start, commit.startHash);
        // INVARIANT: D answers for what D signed.
        Evidence.requireSigned("commit", separator, Records.hash(commit), signature, order.drafter);
    }

    /// @notice That the leaf stands at `index` of the verdict's tree.
    function requireLeaf(
        Records.Verdict calldata verdict,
        Records.VerdictLeaf calldata leaf,
        uint32 index,
        bytes32[] calldata path
    ) internal pure {
        if (index >= verdict.emitted) {
            revert Evidence.NoSuchPlace("leaf", index, verdict.emitted);
        }
        Trees.requireLeaf(verdict.verdictRoot, Records.leafOf(leaf), index, verdict.emitted, path);
    }

    function _requireBefore(Records.Verdict calldata previous, bytes32 startHash, uint32 round)
        private
        pure
    {
        Evidence.requireSame("previous start", previous.startHash, startHash);
        Evidence.requireSame(
            "previous round", bytes32(uint256(previous.round) + 1), bytes32(uint256(round))
        );
    }

    /// @notice C gets back what it paid for the round, at the order's prices.
    function accuseVerifier(
        Evidence.Ruling memory r,
        Records.Order memory order,
        Records.Verdict calldata verdict,
        uint8 fault,
        uint8 code
    ) internal pure {
        (r.fault, r.code, r.guilty) = (fault, code, order.verifier);
        (r.startHash, r.round) = (verdict.startHash, verdict.round);
        (r.token, r.client) = (order.token, order.client);
        r.clientLoss =
            uint256(order.priceOutput) * verdict.emitted + uint256(order.priceAccepted) * verdict.k;
    }

    /// @dev D's loss: the drafts behind a false reject, as if all had been accepted.
    function _harmDrafter(
        Evidence.Ruling memory r,
        Records.Order memory order,
        Evidence.LeafPair calldata e
    ) private pure {
        if (e.verdict.draftCommitHash == 0 || e.commit.k <= e.verdict.k) return;
        r.harmed = order.drafter;
        r.harmedLoss = uint256(order.priceAccepted) * (e.commit.k - e.verdict.k);
    }

    /// @dev C gets back at most what D was paid for the window.
    function _accuseDrafter(
        Evidence.Ruling memory r,
        Records.Order memory order,
        Records.DraftCommit calldata commit,
        uint8 code
    ) private pure {
        (r.fault, r.code, r.drafter, r.guilty) = (4, code, true, order.drafter);
        (r.startHash, r.round) = (commit.startHash, commit.round);
        (r.token, r.client) = (order.token, order.client);
        r.clientLoss = uint256(order.priceAccepted) * commit.k;
    }
}
