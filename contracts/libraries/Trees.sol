// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Trees
/// @notice Merkle trees and Merkle sum trees over positions, as `settlement/trees.py` builds them.
/// @dev A tree is position-indexed, so a proof says where a leaf stands and not merely that it is
/// there. The number of leaves is committed beside every root and fixes the length of each proof;
/// an odd last node rises unhashed, which leaves no second leaf list with the same root. Leaves
/// begin with 0x00, nodes with 0x01, sum nodes with 0x02, settled roots with 0x03.
///
/// Sums are nine words: output | accepted << 64, then eight words of four uint64 bucket lanes.
/// Every lane stays below 2**63, so that one 256-bit addition adds four lanes and the four top bits
/// tell whether any of them overflowed.
library Trees {
    /// @notice A tree of no leaves has no root and proves nothing.
    error EmptyTree();

    /// @notice A tree has at most 2**32 − 1 leaves.
    error TreeTooLarge(uint256 count);

    /// @notice A zero root is the absence of a tree.
    error ZeroRoot();

    /// @notice The zero hash is never a leaf or a node.
    error ZeroNode();

    /// @notice The tree has no such leaf.
    error IndexOutsideTree(uint256 index, uint256 count);

    /// @notice A leaf at this index of a tree of this size has a proof of exactly `expected` steps.
    error WrongProofLength(uint256 given, uint256 expected);

    /// @notice The leaf, at its index, does not lead to the root.
    error NotInTree(bytes32 leaf, uint256 index, bytes32 computed, bytes32 root);

    /// @notice A lane reaches 2**63, or the unused half of the first word is not empty.
    error SumsOverflow(uint256 word, uint256 left, uint256 right);

    /// @notice A lane of `right` is larger than that of `left`.
    error SumsUnderflow(uint256 word, uint256 left, uint256 right);

    /// @notice The target lies outside what the leaf covers: [before, before + own output).
    error OutsideLeaf(uint256 target, uint256 before, uint256 output);

    /// @notice One step of a sum proof: the sibling and what it adds up to.
    struct SumStep {
        bytes32 sibling;
        uint256[9] sums;
    }

    /// @notice The preimage of a settled root.
    struct Settled {
        bytes32 top;
        uint256[9] sums; // cumulative over the lane's epoch
        uint32 leafCount;
        bytes32 baseRoot; // zero: the epoch's start
    }

    /// @notice That is not what the root was made from.
    error NotThisBatch(bytes32 computed, bytes32 root);

    /// @notice The sums settled are not the base's plus the tree's.
    error WrongSettledSums(uint256 word, uint256 settled, uint256 computed);

    uint256 internal constant SUM_WORDS = 9;

    /// @dev The top bit of each of four lanes.
    uint256 internal constant TOP_BITS =
        0x8000000000000000800000000000000080000000000000008000000000000000;

    /// @dev What must be clear in the first word: two top bits, and the lanes it does not use.
    uint256 internal constant FIRST_WORD_CLEAR =
        0xffffffffffffffffffffffffffffffff80000000000000008000000000000000;

    // ------------------------------------------------------------------ Merkle trees

    /// @notice keccak256(0x01 ‖ left ‖ right).
    function node(bytes32 left, bytes32 right) internal pure returns (bytes32 result) {
        assembly ("memory-safe") {
            // 65 bytes do not fit the 64 of scratch space.
            let free := mload(0x40)
            mstore8(free, 0x01)
            mstore(add(free, 0x01), left)
            mstore(add(free, 0x21), right)
            result := keccak256(free, 0x41)
        }
    }

    /// @notice The steps that the proof of leaf `index` in a tree of `count` leaves has.
    function proofLength(uint256 index, uint256 count) internal pure returns (uint256 steps) {
        if (count == 0) revert EmptyTree();
        if (count > type(uint32).max) revert TreeTooLarge(count);
        if (index >= count) revert IndexOutsideTree(index, count);
        unchecked {
            while (count > 1) {
                if ((index ^ 1) < count) ++steps;
                index >>= 1;
                count = (count + 1) >> 1;
            }
        }
    }

    /// @notice The root to which `leaf`, standing at `index` among `count`, leads.
    /// @param siblings From the bottom up; none at a level where the node is the odd last one.
    function rootOf(bytes32 leaf, uint256 index, uint256 count, bytes32[] calldata siblings)
        internal
        pure
        returns (bytes32 current)
    {
        // INVARIANT: index and count alone fix the proof's shape; nobody chooses its depth.
        uint256 steps = proofLength(index, count);
        if (siblings.length != steps) revert WrongProofLength(siblings.length, steps);
        if (leaf == 0) revert ZeroNode();
        current = leaf;
        bool zero;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 0x01)
            let left := add(free, 0x01)
            let next := siblings.offset
            for {} gt(count, 1) {
                index := shr(1, index)
                count := shr(1, add(count, 1))
            } {
                if iszero(lt(xor(index, 1), count)) { continue }
                let sibling := calldataload(next)
                next := add(next, 0x20)
                if iszero(sibling) {
                    zero := 1
                    break
                }
                // An odd index stands on the right, 32 bytes further.
                let own := shl(5, and(index, 1))
                mstore(add(left, own), current)
                mstore(add(left, xor(own, 0x20)), sibling)
                current := keccak256(free, 0x41)
            }
        }
        if (zero) revert ZeroNode();
    }

    /// @notice Reverts unless `leaf` stands at `index` of the tree of `count` leaves under `root`.
    function requireLeaf(
        bytes32 root,
        bytes32 leaf,
        uint256 index,
        uint256 count,
        bytes32[] calldata siblings
    ) internal pure {
        // INVARIANT: no tree, no proof: the zero root of an absent tree matches nothing.
        if (root == 0) revert ZeroRoot();
        bytes32 computed = rootOf(leaf, index, count, siblings);
        if (computed != root) revert NotInTree(leaf, index, computed, root);
    }

    // ------------------------------------------------------------------ sums

    /// @notice Lane by lane; reverts where a lane would reach 2**63.
    function add(uint256[9] memory left, uint256[9] memory right)
        internal
        pure
        returns (uint256[9] memory total)
    {
        uint256 clear = FIRST_WORD_CLEAR;
        unchecked {
            for (uint256 i; i < SUM_WORDS; ++i) {
                uint256 a = left[i];
                uint256 b = right[i];
                uint256 c = a + b;
                // INVARIANT: no lane ever carries into the next: sums are added, never wrapped.
                if ((a | b | c) & clear != 0) revert SumsOverflow(i, a, b);
                total[i] = c;
                clear = TOP_BITS;
            }
        }
    }

    /// @notice Lane by lane; reverts where a lane of `right` is the larger one.
    function sub(uint256[9] memory left, uint256[9] memory right)
        internal
        pure
        returns (uint256[9] memory difference)
    {
        requireSums(left);
        requireSums(right);
        unchecked {
            for (uint256 i; i < SUM_WORDS; ++i) {
                // With its top bit set, a lane lends to itself: the bit survives where left ≥ right.
                uint256 lent = (left[i] | TOP_BITS) - right[i];
                // INVARIANT: cumulative counts never fall.
                if (lent & TOP_BITS != TOP_BITS) revert SumsUnderflow(i, left[i], right[i]);
                difference[i] = lent ^ TOP_BITS;
            }
        }
    }

    /// @notice Reverts unless every lane is below 2**63 and the first word uses two lanes only.
    function requireSums(uint256[9] memory words) internal pure {
        uint256 clear = FIRST_WORD_CLEAR;
        unchecked {
            for (uint256 i; i < SUM_WORDS; ++i) {
                if (words[i] & clear != 0) revert SumsOverflow(i, words[i], 0);
                clear = TOP_BITS;
            }
        }
    }

    function outputOf(uint256[9] memory words) internal pure returns (uint256) {
        return words[0] & type(uint64).max;
    }

    function acceptedOf(uint256[9] memory words) internal pure returns (uint256) {
        return (words[0] >> 64) & type(uint64).max;
    }

    /// @notice Positions of `bucket` that were reached with a draft.
    function proposedIn(uint256[9] memory words, uint256 bucket) internal pure returns (uint256) {
        return (words[1 + bucket / 4] >> (64 * (bucket % 4))) & type(uint64).max;
    }

    /// @notice Drafts of `bucket` that were accepted.
    function acceptedIn(uint256[9] memory words, uint256 bucket) internal pure returns (uint256) {
        return (words[5 + bucket / 4] >> (64 * (bucket % 4))) & type(uint64).max;
    }

    // ------------------------------------------------------------------ sum trees

    /// @notice keccak256(0x02 ‖ left ‖ sums of left ‖ right ‖ sums of right), 641 bytes.
    function sumNode(
        bytes32 left,
        uint256[9] memory leftSums,
        bytes32 right,
        uint256[9] memory rightSums
    ) internal pure returns (bytes32 result) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 0x02)
            mstore(add(free, 0x01), left)
            mcopy(add(free, 0x21), leftSums, 0x120)
            mstore(add(free, 0x141), right)
            mcopy(add(free, 0x161), rightSums, 0x120)
            result := keccak256(free, 0x281)
        }
    }

    /// @notice What `leaf` with `sums`, at `index` among `count`, leads to.
    /// @dev A node may stand in for a leaf, with its own index and the count of its level: so a false
    /// sum anywhere in a tree can be shown from there up.
    /// @param steps From the bottom up; none at a level where the node is the odd last one.
    /// @return top The tree's top hash.
    /// @return total What the whole tree adds up to.
    /// @return before Output tokens of all leaves to the left of this one.
    function climb(
        bytes32 leaf,
        uint256[9] memory sums,
        uint256 index,
        uint256 count,
        SumStep[] calldata steps
    ) internal pure returns (bytes32 top, uint256[9] memory total, uint256 before) {
        // INVARIANT: index and count alone fix the proof's shape; nobody chooses its depth.
        uint256 expected = proofLength(index, count);
        if (steps.length != expected) revert WrongProofLength(steps.length, expected);
        requireSums(sums);
        if (leaf == 0) revert ZeroNode();
        uint256 own = _halves(leaf, sums);
        uint256 used;
        unchecked {
            while (count > 1) {
                // Outputs below 2**63 each, at most one a level: no overflow.
                if ((index ^ 1) < count) before += _rise(own, index & 1, steps[used++]);
                index >>= 1;
                count = (count + 1) >> 1;
            }
        }
        assembly ("memory-safe") {
            top := mload(own)
            total := add(own, 0x20)
        }
    }

    /// @dev Memory for a climb: the node (hash, nine sums), then the preimage of its parent (0x02, the
    /// left half, the right half, each a hash and nine sums). A step's calldata has the same form.
    function _halves(bytes32 leaf, uint256[9] memory sums) private pure returns (uint256 own) {
        assembly ("memory-safe") {
            own := mload(0x40)
            mstore(0x40, add(own, 0x3e0))
            mstore(own, leaf)
            mcopy(add(own, 0x20), sums, 0x120)
            mstore8(add(own, 0x140), 0x02)
        }
    }

    /// @dev Replaces the node at `own` by its parent.
    /// @param odd 1 where the node is the right child, else 0.
    /// @return passed Output tokens of the sibling where that is the left child, else 0.
    function _rise(uint256 own, uint256 odd, SumStep calldata step)
        private
        pure
        returns (uint256 passed)
    {
        bytes32 sibling = step.sibling;
        if (sibling == 0) revert ZeroNode();
        uint256 other;
        assembly ("memory-safe") {
            let left := add(own, 0x141)
            other := add(left, mul(0x140, iszero(odd)))
            calldatacopy(other, step, 0x140)
            mcopy(add(left, mul(0x140, odd)), own, 0x140)
            mstore(own, keccak256(sub(left, 1), 0x281))
            passed := mul(odd, and(mload(add(other, 0x20)), 0xffffffffffffffff))
        }
        _addInto(own + 0x20, other + 0x20);
    }

    /// @dev `add` of the nine words at two places in memory, into the first. What breaks a lane's bound
    /// is gathered and looked at once: a jump for each word costs more than the sum.
    function _addInto(uint256 left, uint256 right) private pure {
        uint256 clear = FIRST_WORD_CLEAR;
        uint256 tops = TOP_BITS;
        uint256 bad;
        assembly ("memory-safe") {
            let a := mload(left)
            let b := mload(right)
            let c := add(a, b)
            mstore(left, c)
            bad := and(or(or(a, b), c), clear)
            let seen := 0
            for { let offset := 0x20 } lt(offset, 0x120) { offset := add(offset, 0x40) } {
                let at := add(left, offset)
                let from := add(right, offset)
                a := mload(at)
                b := mload(from)
                c := add(a, b)
                mstore(at, c)
                seen := or(seen, or(or(a, b), c))
                at := add(at, 0x20)
                a := mload(at)
                b := mload(add(from, 0x20))
                c := add(a, b)
                mstore(at, c)
                seen := or(seen, or(or(a, b), c))
            }
            bad := or(bad, and(seen, tops))
        }
        // INVARIANT: no lane ever carries into the next: sums are added, never wrapped.
        if (bad != 0) _revertSums(left, right);
    }

    /// @dev Names the first word of a sum just taken, modulo 2**256, in which a lane is out of bounds.
    function _revertSums(uint256 left, uint256 right) private pure {
        uint256 clear = FIRST_WORD_CLEAR;
        for (uint256 i; i < SUM_WORDS; ++i) {
            uint256 b;
            uint256 c;
            assembly ("memory-safe") {
                c := mload(add(left, mul(i, 0x20)))
                b := mload(add(right, mul(i, 0x20)))
            }
            unchecked {
                uint256 a = c - b;
                if ((a | b | c) & clear != 0) revert SumsOverflow(i, a, b);
            }
            clear = TOP_BITS;
        }
    }

    /// @notice Reverts unless output token `target` of the tree lies in the leaf that covers
    /// [before, before + output): the leaf a weighted draw ends in.
    /// @return within The token's place inside the leaf.
    function requireCovers(uint256 target, uint256 before, uint256 output)
        internal
        pure
        returns (uint256 within)
    {
        // INVARIANT: exactly one leaf covers a token, so the opener has no choice of leaf.
        if (target < before || target - before >= output) {
            revert OutsideLeaf(target, before, output);
        }
        unchecked {
            return target - before;
        }
    }

    /// @notice keccak256(0x03 ‖ top ‖ sums ‖ uint32 leafCount ‖ baseRoot), 357 bytes.
    /// @param sums Cumulative over the lane's epoch: what baseRoot's preimage says plus this tree.
    /// @param baseRoot The settled root that this tree goes on from; zero at the epoch's start.
    function settledRoot(bytes32 top, uint256[9] memory sums, uint32 leafCount, bytes32 baseRoot)
        internal
        pure
        returns (bytes32 result)
    {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 0x03)
            mstore(add(free, 0x01), top)
            mcopy(add(free, 0x21), sums, 0x120)
            mstore(add(free, 0x141), shl(224, leafCount))
            mstore(add(free, 0x145), baseRoot)
            result := keccak256(free, 0x165)
        }
    }

    /// @notice Reverts unless `batch` is what `root` was made from.
    function requireSettled(bytes32 root, Settled memory batch) internal pure {
        // INVARIANT: an absent batch has the zero root, and nothing opens it.
        if (root == 0) revert ZeroRoot();
        bytes32 computed = settledRoot(batch.top, batch.sums, batch.leafCount, batch.baseRoot);
        if (computed != root) revert NotThisBatch(computed, root);
    }

    /// @notice Reverts unless a round is leaf `index` of the batch and the batch's sums are right.
    /// @param batch Opened by `requireSettled`.
    /// @param baseSums Sums of the preimage of `batch.baseRoot`; all zero where that is zero.
    /// @param leaf Leaf hash of the round record.
    /// @param sums Its own sums.
    /// @return before Output tokens of the batch before this round.
    function requireRound(
        Settled memory batch,
        uint256[9] memory baseSums,
        bytes32 leaf,
        uint256[9] memory sums,
        uint256 index,
        SumStep[] calldata steps
    ) internal pure returns (uint256 before) {
        bytes32 top;
        uint256[9] memory total;
        (top, total, before) = climb(leaf, sums, index, batch.leafCount, steps);
        if (top != batch.top) revert NotInTree(leaf, index, top, batch.top);
        total = add(total, baseSums);
        for (uint256 i; i < SUM_WORDS; ++i) {
            if (total[i] != batch.sums[i]) revert WrongSettledSums(i, batch.sums[i], total[i]);
        }
    }
}
