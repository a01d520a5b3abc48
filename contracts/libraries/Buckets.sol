// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Buckets
/// @notice The sixteen kinds of position under which acceptance is counted: how far into the output,
/// and how sure the target is. Both are known before the outcome, else the test's bound is void.
/// @dev Mirrors the buckets of `settlement/alpha.py`.
library Buckets {
    uint256 internal constant COUNT = 16;

    /// @notice 4 · (position < 16, < 64, < 256, else) + (topProb ≥ 0.9, ≥ 0.6, ≥ 0.3, else).
    /// @param position Output tokens before this one, counted from the prompt's end.
    /// @param topProb The target's largest probability × 65536 at temperature 1, before filters.
    function indexOf(uint32 position, uint16 topProb) internal pure returns (uint256) {
        uint256 byPosition = position < 16 ? 0 : position < 64 ? 1 : position < 256 ? 2 : 3;
        // ⌈65536 × 0.9⌉, ⌈65536 × 0.6⌉, ⌈65536 × 0.3⌉.
        uint256 byProb = topProb >= 58983 ? 0 : topProb >= 39322 ? 1 : topProb >= 19661 ? 2 : 3;
        return 4 * byPosition + byProb;
    }
}
