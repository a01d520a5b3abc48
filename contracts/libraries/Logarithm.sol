// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {LibBit} from "solady/utils/LibBit.sol";

/// @title Logarithm
/// @notice The integer natural logarithm of the noise and of the α test, bit for bit as
/// `settlement/logarithm.py`, whose text gives the derivation and the error bounds.
/// @dev Unchecked throughout: every intermediate is non-negative and below 2**63.
library Logarithm {
    /// @notice The logarithm is taken of integers in [1, 2**64).
    error LogarithmOutsideRange(uint256 x);

    /// @notice ⌊2**40 ln 2⌋.
    uint256 internal constant LN2_Q40 = 762_123_384_785;

    /// @notice `lnQ31(x)` is at most this much below 2**31 · ln x.
    uint256 internal constant LN_ERROR_Q31 = 8;

    /// @notice A lower bound in Q31 on ln(m / 2**31), for m in [2**31, 2**32), which the caller
    /// guarantees.
    /// @dev ln y = 2 artanh((y − 1)/(y + 1)); the coefficients are ⌊2**32 / (2k + 1)⌋, k = 9 … 0.
    function lnMantissaQ31(uint256 m) internal pure returns (uint256) {
        unchecked {
            uint256 s = ((m - (1 << 31)) << 31) / (m + (1 << 31));
            uint256 t = (s * s) >> 31;
            uint256 acc = 226_050_910;
            acc = ((acc * t) >> 31) + 252_645_135;
            acc = ((acc * t) >> 31) + 286_331_153;
            acc = ((acc * t) >> 31) + 330_382_099;
            acc = ((acc * t) >> 31) + 390_451_572;
            acc = ((acc * t) >> 31) + 477_218_588;
            acc = ((acc * t) >> 31) + 613_566_756;
            acc = ((acc * t) >> 31) + 858_993_459;
            acc = ((acc * t) >> 31) + 1_431_655_765;
            acc = ((acc * t) >> 31) + 4_294_967_296;
            return (acc * s) >> 31;
        }
    }

    /// @notice ⌊2**31 ln x⌋ or up to `LN_ERROR_Q31` less.
    function lnQ31(uint256 x) internal pure returns (uint256) {
        if (x == 0 || x >> 64 != 0) revert LogarithmOutsideRange(x);
        unchecked {
            uint256 high = LibBit.fls(x);
            uint256 m = high > 31 ? x >> (high - 31) : x << (31 - high);
            return lnMantissaQ31(m) + ((high * LN2_Q40) >> 9);
        }
    }

    /// @notice An upper bound on 2**20 ln x, less than 1.01 units above it.
    function lnUpQ20(uint256 x) internal pure returns (uint256) {
        unchecked {
            return (lnQ31(x) + LN_ERROR_Q31 + 2047) >> 11;
        }
    }
}
