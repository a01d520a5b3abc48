// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Masses
/// @notice Distributions as 64-bit masses that sum to exactly 2**64 − 1, and what a coin makes of
/// them, as `settlement/masses.py` and `settlement/records.py` have them.
library Masses {
    /// @notice A kept list has 1 to 64 entries of twelve bytes: uint32 id, uint64 mass.
    error KeptLength(uint256 length);

    /// @notice Ids ascend strictly and stay below `Records.NO_TOKEN`.
    error KeptId(uint256 entry, uint256 id);

    /// @notice An entry without mass has no place in the list.
    error KeptMass(uint256 entry);

    /// @notice The masses sum to something other than 2**64 − 1.
    error KeptTotal(uint256 total);

    uint256 internal constant ENTRY = 12;
    uint256 internal constant MAX_ENTRIES = 64;

    /// @notice Mass of `token` in a kept list and the sum of the masses of lower ids; (0, sum of
    /// lower) for a token that is not kept. Reverts on a list that is no distribution.
    /// @param packed (uint32 id ‖ uint64 mass)*, big-endian: the preimage of `Records.keptHash`.
    function interval(bytes memory packed, uint32 token)
        internal
        pure
        returns (uint256 q, uint256 below)
    {
        uint256 length = packed.length;
        if (length == 0 || length % ENTRY != 0 || length > ENTRY * MAX_ENTRIES) {
            revert KeptLength(length);
        }
        uint256 total;
        uint256 least; // the least id that may come next
        for (uint256 offset; offset < length; offset += ENTRY) {
            uint256 word;
            assembly ("memory-safe") {
                // Reads up to 20 bytes past the list; the shift drops them.
                word := mload(add(add(packed, 0x20), offset))
            }
            uint256 id = word >> 224;
            uint256 mass = (word >> 160) & type(uint64).max;
            // INVARIANT: one token, one place: no order or repetition of ids to choose from.
            if (id < least || id == type(uint32).max) revert KeptId(offset / ENTRY, id);
            if (mass == 0) revert KeptMass(offset / ENTRY);
            if (id == token) q = mass;
            if (id < token) below = total + mass;
            total += mass;
            least = id + 1;
        }
        // INVARIANT: exactly one whole: nobody stretches a distribution.
        if (total != type(uint64).max) revert KeptTotal(total);
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
