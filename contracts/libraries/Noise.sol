// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Logarithm} from "./Logarithm.sol";
import {LibBit} from "solady/utils/LibBit.sol";

/// @title Noise
/// @notice Noise version 1: the Gumbel variables that couple drafter and target, bit for bit as
/// `settlement/noise.py`, whose text gives steps, derivation and error bounds.
library Noise {
    /// @notice G of `token` at `position` under `seed`, Q24, in [−3.81, 45.06) · 2**24.
    function gumbel(bytes32 seed, uint64 position, uint32 token) internal pure returns (int64) {
        return gumbelOf(uniformBits(seed, position, token));
    }

    /// @notice r, uniform in [0, 2**64): of one Philox block two neighbouring tokens take a half each.
    function uniformBits(bytes32 seed, uint64 position, uint32 token)
        internal
        pure
        returns (uint64)
    {
        uint256 h = uint256(keccak256(abi.encodePacked("verdraft/noise/1", seed, position)));
        uint256 mask = type(uint32).max;
        // The hash's 32-bit words, first to last: two of the key, then counter words 1, 2, 3.
        uint256 key = (h >> 224) | (((h >> 192) & mask) << 32);
        uint256 counter = uint256(token >> 1) | (((h >> 160) & mask) << 32)
            | (((h >> 128) & mask) << 64) | (((h >> 96) & mask) << 96);
        uint256 x = philox(counter, key);
        if (token & 1 == 1) x >>= 64;
        return uint64(((x & mask) << 32) | ((x >> 32) & mask));
    }

    /// @notice Philox4x32-10 (Salmon et al., SC 2011), word 0 in the lowest 32 bits of counter, key
    /// and result.
    function philox(uint256 counter, uint256 key) internal pure returns (uint256) {
        uint256 mask = type(uint32).max;
        uint256 x0 = counter & mask;
        uint256 x1 = (counter >> 32) & mask;
        uint256 x2 = (counter >> 64) & mask;
        uint256 x3 = (counter >> 96) & mask;
        uint256 k0 = key & mask;
        uint256 k1 = (key >> 32) & mask;
        unchecked {
            for (uint256 i; i < 10; ++i) {
                uint256 a = x0 * 0xD2511F53;
                uint256 b = x2 * 0xCD9E8D57;
                x0 = (b >> 32) ^ x1 ^ k0;
                x1 = b & mask;
                x2 = (a >> 32) ^ x3 ^ k1;
                x3 = a & mask;
                k0 = (k0 + 0x9E3779B9) & mask;
                k1 = (k1 + 0xBB67AE85) & mask;
            }
        }
        return x0 | (x1 << 32) | (x2 << 64) | (x3 << 96);
    }

    /// @notice G(r) = −ln(−ln u), u = (r + ½) / 2**64, Q24.
    /// @dev Unchecked: every intermediate is below 2**63 in size, as the Python text shows.
    function gumbelOf(uint64 r) internal pure returns (int64) {
        unchecked {
            bool upper = r >> 63 != 0;
            uint256 a = upper ? ~r : r; // below 2**63: the distance to the nearer end
            uint256 x = 2 * a + 1; // x / 2**65 is u in the lower half and 1 − u in the upper
            uint256 high = LibBit.fls(x);
            uint256 m = high > 31 ? x >> (high - 31) : x << (31 - high);
            // −ln(x / 2**65), Q31.
            uint256 e = (((65 - high) * Logarithm.LN2_Q40) >> 9) - Logarithm.lnMantissaQ31(m);
            int256 g;
            if (upper) {
                // −ln(−ln(1 − v)) = −ln v − h(v), both below 2**37.
                // forge-lint: disable-next-line(unsafe-typecast)
                g = int256(e) - int256(_tailQ31(a >> 32));
            } else {
                // −ln E with E in Q31.
                g = int256((31 * Logarithm.LN2_Q40) >> 9) - int256(Logarithm.lnQ31(e));
            }
            return int64((g + 64) >> 7);
        }
    }

    /// @dev h(v) = ln(−ln(1 − v) / v) on [0, ½] in Q31, for w = 2v in Q31.
    function _tailQ31(uint256 w) private pure returns (uint256) {
        unchecked {
            uint256 acc = 68_661;
            acc = (acc * w) >> 31;
            acc = (acc * w) >> 31;
            acc = (acc * w) >> 31;
            acc = ((acc * w) >> 31) + 771_485;
            acc = ((acc * w) >> 31) + 285_172;
            acc = ((acc * w) >> 31) + 1_927_140;
            acc = ((acc * w) >> 31) + 4_437_771;
            acc = ((acc * w) >> 31) + 11_671_180;
            acc = ((acc * w) >> 31) + 33_562_147;
            acc = ((acc * w) >> 31) + 111_847_233;
            acc = ((acc * w) >> 31) + 536_870_943;
            return (acc * w) >> 31;
        }
    }
}
