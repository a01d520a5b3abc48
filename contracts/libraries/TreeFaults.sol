// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Buckets} from "./Buckets.sol";
import {Evidence} from "./Evidence.sol";
import {Openings} from "./Openings.sol";
import {Records} from "./Records.sol";
import {RoundFaults} from "./RoundFaults.sol";
import {Trees} from "./Trees.sol";

/// @title TreeFaults
/// @notice F5 in what a settled root commits: records that contradict what they name, sums that do not
/// add up, rounds counted twice. Mirrored by `settlement/faults.py`.
/// @dev The guilty is the verifier of the lane. That the root is its own, by signature or by
/// settlement, is for the court to see: a ruling names root and lane.
library TreeFaults {
    /// @notice A round record against verdict, draft and leaves.
    function recordCase(Evidence.RecordCase calldata e)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.RoundRecord memory record = e.record;
        _requireIn(e.settled, record, e.leafIndex, e.steps);
        Records.Order memory order = e.order;
        Evidence.requireSession(order, e.start, record.startHash);
        Evidence.requireSame("verdict", Records.hash(e.verdict), record.verdictHash);
        if (record.draftCommitHash != 0) {
            Evidence.requireSame("commit", Records.hash(e.commit), record.draftCommitHash);
        }
        bytes32 lane = Records.laneId(e.lane);
        uint8 code;
        // A round counts in the lane of its own order only.
        if (Records.laneId(Records.laneOf(order)) != lane) code = Openings.RECORD;
        if (code == 0) code = _againstVerdict(e);
        if (code == 0 && e.leaves.length != 0) code = _againstLeaves(e);
        if (code == 0) revert Evidence.NoFault();

        (r.fault, r.code, r.guilty) = (5, code, e.lane.verifier);
        (r.startHash, r.round) = (record.startHash, record.round);
        (r.lane, r.root) = (lane, Evidence.rootHash(e.settled));
        (r.token, r.client) = (e.lane.token, e.lane.client);
        r.clientLoss = uint256(order.priceOutput) * record.output + uint256(order.priceAccepted)
            * record.accepted;
    }

    function _againstVerdict(Evidence.RecordCase calldata e) private pure returns (uint8) {
        Records.RoundRecord calldata record = e.record;
        Records.Verdict calldata verdict = e.verdict;
        if (
            verdict.startHash != record.startHash || verdict.round != record.round
                || verdict.verdictRoot != record.verdictRoot
                || verdict.draftCommitHash != record.draftCommitHash
                || verdict.emitted != record.output || verdict.k != record.accepted
        ) return Openings.RECORD;
        bytes32 draftRoot = record.draftCommitHash == 0 ? bytes32(0) : e.commit.draftRoot;
        if (record.draftRoot != draftRoot) return Openings.RECORD;

        uint256 k = verdict.k;
        uint256 window = record.draftCommitHash == 0 ? 0 : e.commit.k;
        // A window that is not used up and ends in V's own token ends in a reject.
        uint256 reached = k < window && verdict.emitted == k + 1 ? k + 1 : k;
        (uint256 proposed, uint256 accepted) = _totals(record.buckets);
        return proposed != reached || accepted != k ? Openings.COUNTS : 0;
    }

    /// @dev Each bucket, counted again.
    function _againstLeaves(Evidence.RecordCase calldata e) private pure returns (uint8) {
        Records.VerdictLeaf[] calldata leaves = e.leaves;
        Evidence.requireSame("leaves", RoundFaults.rootOver(leaves), e.record.verdictRoot);
        uint256[8] memory buckets;
        // A lane holds as many leaves as calldata could: nothing carries.
        unchecked {
            for (uint256 i; i < leaves.length; ++i) {
                Records.VerdictLeaf calldata leaf = leaves[i];
                if (leaf.draftToken == Records.NO_TOKEN) continue;
                uint256 bucket = Buckets.indexOf(leaf.position, leaf.topProb);
                uint256 one = 1 << ((bucket & 3) << 6);
                bool taken = leaf.accepted;
                assembly ("memory-safe") {
                    // Bucket over four is the word, below four of eight.
                    let at := add(buckets, shl(5, shr(2, bucket)))
                    mstore(at, add(mload(at), one))
                    if taken {
                        at := add(at, 0x80)
                        mstore(at, add(mload(at), one))
                    }
                }
            }
        }
        uint256[8] calldata said = e.record.buckets;
        for (uint256 i; i < 8; ++i) {
            if (buckets[i] != said[i]) return Openings.COUNTS;
        }
        return 0;
    }

    /// @notice One step of the tree whose sums are not what lies below it, or a root whose sums are
    /// not its base's and its tree's.
    function treeStep(Evidence.TreeStep calldata e)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        // INVARIANT: shifts stay inside the word, and levels inside the tree.
        if (e.level > 32) revert Evidence.NoSuchPlace("level", e.level, 33);
        bytes32 node;
        bool holds;
        if (e.level == 0) {
            Records.RoundRecord memory record = e.record;
            node = Records.leaf(record);
            holds = _equal(Records.sums(record), e.claimed);
        } else {
            node = Trees.sumNode(e.left.sibling, e.left.sums, e.right.sibling, e.right.sums);
            holds = _addUp(e.left.sums, e.right.sums, e.claimed);
        }
        // INVARIANT: sums are V's word only where a node above has hashed them. At the top nothing has:
        // there only what the halves cannot add up to is V's, or what the root makes of them.
        if (!holds && e.steps.length == 0 && (e.level == 0 || _fit(e.left.sums, e.right.sums))) {
            revert Evidence.NoFault();
        }
        // Nodes of that level: leafCount / 2**level, rounded up.
        uint256 width = (uint256(e.settled.leafCount) + (1 << e.level) - 1) >> e.level;
        (bytes32 top, uint256[9] memory total,) =
            Trees.climb(node, e.claimed, e.index, width, e.steps);
        Evidence.requireSame("top", top, e.settled.top);
        if (holds) {
            uint256[9] memory none;
            uint256[9] memory base = none;
            if (e.settled.baseRoot != 0) {
                Evidence.requireSame("baseRoot", Evidence.rootHash(e.base), e.settled.baseRoot);
                base = e.base.sums;
            }
            if (_addUp(base, total, e.settled.sums)) revert Evidence.NoFault();
        }
        bytes32 root = Evidence.rootHash(e.settled);
        (r.fault, r.code, r.guilty) = (5, Openings.SUMS, e.lane.verifier);
        // The key under which an opening of the same root is punished.
        (r.startHash, r.lane, r.root) = (root, Records.laneId(e.lane), root);
    }

    /// @notice One round at two places among all that a settled root counts.
    /// @dev Only along the chain of bases, because only there are both counted: a batch that takes
    /// another's place on the same base holds the same rounds by right, and vouchers signed on the
    /// old base before a settlement was seen hold them innocently.
    function roundTwice(Evidence.Twice calldata e)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        _requireIn(e.settled, e.one, e.oneIndex, e.oneSteps);
        Openings.Root memory root = e.settled;
        r.root = Evidence.rootHash(root);
        for (uint256 i; i < e.older.length; ++i) {
            // INVARIANT: V, who signed the newest root, has signed what it goes on from.
            Evidence.requireSame("older", Evidence.rootHash(e.older[i]), root.baseRoot);
            root = e.older[i];
        }
        Openings.Root calldata last = e.older.length == 0 ? e.settled : e.older[e.older.length - 1];
        _requireIn(last, e.other, e.otherIndex, e.otherSteps);
        bool samePlace = e.older.length == 0 && e.oneIndex == e.otherIndex;
        if (samePlace || e.one.startHash != e.other.startHash || e.one.round != e.other.round) {
            revert Evidence.NoFault();
        }
        (r.fault, r.code, r.guilty) = (5, Evidence.ROUND_TWICE, e.lane.verifier);
        (r.startHash, r.round) = (e.one.startHash, e.one.round);
        r.lane = Records.laneId(e.lane);
    }

    // ------------------------------------------------------------------ inside

    function _requireIn(
        Openings.Root calldata settled,
        Records.RoundRecord memory record,
        uint32 index,
        Trees.SumStep[] calldata steps
    ) private pure {
        (bytes32 top,,) = Trees.climb(
            Records.leaf(record), Records.sums(record), index, settled.leafCount, steps
        );
        // INVARIANT: the record is in the tree, at that place.
        Evidence.requireSame("top", top, settled.top);
    }

    function _totals(uint256[8] calldata buckets)
        private
        pure
        returns (uint256 proposed, uint256 accepted)
    {
        // Sixteen lanes of 64 bits: no sum of them wraps.
        unchecked {
            for (uint256 i; i < 4; ++i) {
                proposed += _lanes(buckets[i]);
                accepted += _lanes(buckets[4 + i]);
            }
        }
    }

    function _lanes(uint256 word) private pure returns (uint256) {
        uint256 one = type(uint64).max;
        unchecked {
            return (word & one) + (word >> 64 & one) + (word >> 128 & one) + (word >> 192);
        }
    }

    function _equal(uint256[9] memory a, uint256[9] calldata b) private pure returns (bool) {
        for (uint256 i; i < 9; ++i) {
            if (a[i] != b[i]) return false;
        }
        return true;
    }

    /// @dev Whether a + b keeps every lane below 2**63.
    function _fit(uint256[9] calldata a, uint256[9] calldata b) private pure returns (bool) {
        uint256 clear = Trees.FIRST_WORD_CLEAR;
        for (uint256 i; i < 9; ++i) {
            unchecked {
                if ((a[i] | b[i] | (a[i] + b[i])) & clear != 0) return false;
            }
            clear = Trees.TOP_BITS;
        }
        return true;
    }

    /// @dev Whether a + b = c lane by lane, none of them at 2**63 or above. Answers where
    /// `Trees.add` reverts: sums that carry are as false as others.
    function _addUp(uint256[9] memory a, uint256[9] memory b, uint256[9] calldata c)
        private
        pure
        returns (bool)
    {
        uint256 clear = Trees.FIRST_WORD_CLEAR;
        for (uint256 i; i < 9; ++i) {
            unchecked {
                if ((a[i] | b[i] | c[i]) & clear != 0 || a[i] + b[i] != c[i]) return false;
            }
            clear = Trees.TOP_BITS;
        }
        return true;
    }
}
