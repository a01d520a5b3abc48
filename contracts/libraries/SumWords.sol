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
    /// bucket no more accepted than proposed.
    function check(uint256[9] calldata counted, uint256[9] calldata sums)
        internal
        pure
        returns (bool)
    {
        uint256 tops = Trees.TOP_BITS;
        uint256 bad;
        unchecked {
            bad = sums[0] & Trees.FIRST_WORD_CLEAR;
            uint256 lent = (sums[0] | tops) - counted[0];
            bad |= (lent & tops) ^ tops;
            bad |= (lent ^ tops) & ABOVE_40;
            for (uint256 i = 1; i < 5; ++i) {
                (uint256 a, uint256 b) = (sums[i], sums[i + 4]);
                bad |= (a | b) & tops;
                uint256 proposed = (a | tops) - counted[i];
                uint256 accepted = (b | tops) - counted[i + 4];
                bad |= (proposed & accepted & tops) ^ tops;
                bad |= ((proposed | accepted) ^ tops) & ABOVE_40 & ~tops;
                // Both have every top bit set here, or the answer is no already.
                bad |= ((proposed - (accepted ^ tops)) & tops) ^ tops;
            }
        }
        return bad == 0;
    }

    function differ(uint256[9] calldata counted, uint256[9] calldata sums)
        internal
        pure
        returns (bool)
    {
        uint256 difference;
        for (uint256 i; i < 9; ++i) {
            difference |= counted[i] ^ sums[i];
        }
        return difference != 0;
    }

    /// @notice delta += sums − counted. After `check`, and for at most 64 lanes, nothing carries.
    function accumulate(
        uint256[9] memory delta,
        uint256[9] calldata counted,
        uint256[9] calldata sums
    ) internal pure {
        unchecked {
            for (uint256 i; i < 9; ++i) {
                delta[i] += sums[i] - counted[i];
            }
        }
    }
}
