// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Masses
/// @notice Distributions as 64-bit masses that sum to exactly 2**64 − 1, and what a coin makes of
/// them, as `settlement/masses.py` and `settlement/records.py` have them.
library Masses {
    uint256 internal constant ENTRY = 12;
    uint256 internal constant MAX_ENTRIES = 64;

    /// @notice Mass of `token` in a kept list and the sum of the masses of lower ids; (0, sum of
    /// lower) for a token that is not kept.
    /// @param packed (uint32 id ‖ uint64 mass)*, big-endian: the preimage of `Records.keptHash`.
    /// @return wellFormed Whether it is a distribution: 1 to 64 ids, strictly ascending, none
    /// `Records.NO_TOKEN`, no zero mass, and the total 2**64 − 1. Else the other two mean nothing.
    function interval(bytes memory packed, uint32 token)
        internal
        pure
        returns (bool wellFormed, uint256 q, uint256 below)
    {
        uint256 length = packed.length;
        if (length == 0 || length % ENTRY != 0 || length > ENTRY * MAX_ENTRIES) {
            return (false, 0, 0);
        }
        uint256 total;
        uint256 least; // the least id that may come next
        // Unchecked: at most 64 masses below 2**64 are added up.
        unchecked {
            for (uint256 offset; offset < length; offset += ENTRY) {
                uint256 word;
                assembly ("memory-safe") {
                    // Reads up to 20 bytes past the list; the shifts drop them.
                    word := mload(add(add(packed, 0x20), offset))
                }
                uint256 id = word >> 224;
                uint256 mass = (word >> 160) & type(uint64).max;
                // INVARIANT: one token, one place: no order or repetition of ids to choose from.
                if (id < least || id == type(uint32).max || mass == 0) return (false, 0, 0);
                if (id == token) q = mass;
                if (id < token) below = total + mass;
                total += mass;
                least = id + 1;
            }
        }
        // INVARIANT: exactly one whole: nobody stretches a distribution.
        wellFormed = total == type(uint64).max;
    }

    /// @notice Whether the place `w` falls on the token of mass `q` above `below`.
    function holds(uint64 below, uint64 q, uint64 w) internal pure returns (bool) {
        unchecked {
            return w >= below && w - below < q;
        }
    }

    /// @notice u · q < p · 2**64 with q > 0: a draft of mass `q` under the drafter and `p` under the
    /// target is accepted by coin `u`.
    function accepts(uint64 u, uint64 q, uint64 p) internal pure returns (bool) {
        return q != 0 && uint256(u) * q < uint256(p) << 64;
    }
}
