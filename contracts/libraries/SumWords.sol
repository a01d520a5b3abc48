// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Trees} from "./Trees.sol";

/// @title SumWords
/// @notice Cumulative sums as a settlement meets them: compared and subtracted four lanes at a time,
/// answering where `Trees` reverts, so that one bad voucher leaves the other lanes of a call alone.
library SumWords {
    /// @dev Bits 40 to 63 of each of four lanes.
    uint256 internal constant ABOVE_40 =
        0xffffff0000000000ffffff0000000000ffffff0000000000ffffff0000000000;

    /// @notice Whether `sums` may follow `counted`: every lane well-formed, none smaller, none larger
    /// by 2**40 or more (so that 2**23 settlements cannot bring a counter to overflow), and in each
    /// bucket no more accepted than proposed; and whether they differ at all.
    /// @dev In assembly because the loops of checked array accesses cost more than a storage slot.
    function check(uint256[9] calldata counted, uint256[9] calldata sums)
        internal
        pure
        returns (bool good, bool changed)
    {
        uint256 tops = Trees.TOP_BITS;
        uint256 first = Trees.FIRST_WORD_CLEAR;
        uint256 above = ABOVE_40;
        assembly ("memory-safe") {
            // `bad` gathers a bit for every lane that breaks a rule. With its top bit set a lane
            // lends to itself: the bit survives a subtraction exactly where nothing was borrowed.
            let old := calldataload(counted)
            let fresh := calldataload(sums)
            let changes := xor(old, fresh)
            let grown := sub(or(fresh, tops), old)
            let bad :=
                or(and(fresh, first), or(xor(and(grown, tops), tops), and(xor(grown, tops), above)))
            for { let i := 0x20 } lt(i, 0xa0) { i := add(i, 0x20) } {
                let at := add(sums, i)
                let proposed := calldataload(at)
                let accepted := calldataload(add(at, 0x80))
                bad := or(bad, and(or(proposed, accepted), tops))
                at := add(counted, i)
                old := calldataload(at)
                changes := or(changes, xor(old, proposed))
                proposed := sub(or(proposed, tops), old)
                old := calldataload(add(at, 0x80))
                changes := or(changes, xor(old, accepted))
                accepted := sub(or(accepted, tops), old)
                bad := or(bad, xor(and(and(proposed, accepted), tops), tops))
                accepted := xor(accepted, tops)
                bad := or(bad, and(or(xor(proposed, tops), accepted), above))
                bad := or(bad, xor(and(sub(proposed, accepted), tops), tops))
            }
            good := iszero(bad)
            changed := iszero(iszero(changes))
        }
    }

    /// @notice delta += sums − counted. After `check`, and for at most 64 lanes, nothing carries.
    function accumulate(
        uint256[9] memory delta,
        uint256[9] calldata counted,
        uint256[9] calldata sums
    ) internal pure {
        assembly ("memory-safe") {
            for { let i := 0 } lt(i, 0x120) { i := add(i, 0x20) } {
                let to := add(delta, i)
                let grown := sub(calldataload(add(sums, i)), calldataload(add(counted, i)))
                mstore(to, add(mload(to), grown))
            }
        }
    }
}
