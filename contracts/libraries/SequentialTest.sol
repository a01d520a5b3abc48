// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Logarithm} from "./Logarithm.sol";

/// @title SequentialTest
/// @notice The integer likelihood-ratio test of an acceptance claim, as `weights`, `llr` and
/// `threshold` of `settlement/alpha.py`, whose text shows why an honest drafter is flagged with
/// probability at most δ over all intervals together.
/// @dev All figures are at 2**20.
library SequentialTest {
    /// @notice A claimed rate is 6 to 99 percent.
    error RateOutsideRange(uint256 rate);

    /// @notice More drafts were accepted than proposed.
    error MoreAcceptedThanProposed(uint256 accepted, uint256 proposed);

    /// @notice Starts are counted from 1, and δ is at most one half.
    error ThresholdUndefined(uint256 start, uint256 inverseDelta);

    uint256 internal constant LOWEST_RATE = 6;
    uint256 internal constant HIGHEST_RATE = 99;

    /// @notice δ = 10⁻⁶.
    uint256 internal constant INVERSE_DELTA = 1_000_000;

    /// @notice ⌈2**20 ln(π²/6)⌉.
    uint256 internal constant LN_PI2_6_UP_Q20 = 521_877;

    /// @notice Two halves of δ times sixteen buckets.
    uint256 internal constant SHARES = 32;

    /// @dev For rates 6 … 99: uint24 −accept, uint24 reject. `packed_weights` of settlement/alpha.py.
    bytes private constant WEIGHTS = hex"0b17220080ae0b17220097520b172200ae520b172200c5b30b172200dd750b172200f59c"
        hex"0b1722010e290b17220127210b17220140850b1722015a580b172201749e0b1722018f5a"
        hex"0b172201aa8e0b172201c63f0b172201e2700a589601e83209b2bc01ee170920f401f421"
        hex"089fbb01fa52082c580200ab07c4a402072c0766e8020dd90711c00214b206c406021bba"
        hex"067cc90222f1063b40022a5b05febf0231f905c6b60239ce0592ab0241db056231024a24"
        hex"0534ef0252aa050a93025b7104e2d802647b04bd82026dcc049a5902776604792e02814e"
        hex"0459d8028b87043c2f02961504201202a0fc04056302ac4003ec0602b7e803d3e302c3f6"
        hex"03bce302d07203a6f302dd610391ff02eaca037df802f8b2036acd030722035871031622"
        hex"0346d70325b90335f30335f20325ba0346d6031623035870030723036acc02f8b3037df7"
        hex"02eacb0391fe02dd6203a6f202d07303bce202c3f703d3e202b7e903ec0502ac41040562"
        hex"02a0fd042011029616043c2e028b880459d702814f04792d027767049a58026dcd04bd81"
        hex"02647c04e2d7025b72050a920252ab0534ee024a250562300241dc0592aa0239cf05c6b5"
        hex"0231fa05febe022a5c063b3f0222f2067cc8021bbb06c4050214b30711bf020dda0766e7"
        hex"02072d07c4a30200ac082c5701fa53089fba01f4220920f301ee1809b2bb01e8330a5895"
        hex"01e2710b172101dcd20bf49701d7530cf99101d1f50e326401ccb60fb17a01c7951193ea"
        hex"01c291140b5101bda917761d01b8db1cab0b01b429265dc7";

    /// @notice What one outcome adds to the score: `accept` < 0 < `reject`.
    /// @param rate Claimed rate a₀ in percent. With a₁ = max(a₀ − 10, a₀ / 2): accept = ⌊2**20
    /// ln(a₁/a₀)⌋ and reject = ⌊2**20 ln((1 − a₁)/(1 − a₀))⌋.
    function weights(uint256 rate) internal pure returns (int256 accept, int256 reject) {
        if (rate < LOWEST_RATE || rate > HIGHEST_RATE) revert RateOutsideRange(rate);
        bytes memory table = WEIGHTS;
        uint256 entry;
        assembly ("memory-safe") {
            entry := shr(208, mload(add(add(table, 0x20), mul(sub(rate, 6), 6))))
        }
        // Both halves are below 2**24.
        // forge-lint: disable-next-line(unsafe-typecast)
        accept = -int256(entry >> 24);
        // forge-lint: disable-next-line(unsafe-typecast)
        reject = int256(entry & 0xffffff);
    }

    /// @notice accepted · accept + (proposed − accepted) · reject.
    /// @dev Counts below 2**64 keep every product below 2**88.
    function llr(uint256 rate, uint64 proposed, uint64 accepted) internal pure returns (int256) {
        if (accepted > proposed) revert MoreAcceptedThanProposed(accepted, proposed);
        (int256 accept, int256 reject) = weights(rate);
        return int256(uint256(accepted)) * accept + int256(uint256(proposed - accepted)) * reject;
    }

    /// @notice What a score must exceed, rounded up: ln(1/δ) + ln 32 + ln(π²/6) + 2 ln k, and
    /// ln(π²/6) + 2 ln j on top for a verifier's own test.
    /// @param start k ≥ 1: an interval that begins at checkpoint c has k = c + 1.
    /// @param inverseDelta 1/δ ≥ 2.
    /// @param verifierOrder j ≥ 1, or 0 for the claim as a whole.
    function threshold(uint256 start, uint256 inverseDelta, uint256 verifierOrder)
        internal
        pure
        returns (uint256 total)
    {
        if (start == 0 || inverseDelta < 2) revert ThresholdUndefined(start, inverseDelta);
        total = Logarithm.lnUpQ20(inverseDelta) + Logarithm.lnUpQ20(SHARES) + LN_PI2_6_UP_Q20;
        total += 2 * Logarithm.lnUpQ20(start);
        if (verifierOrder != 0) {
            total += LN_PI2_6_UP_Q20 + 2 * Logarithm.lnUpQ20(verifierOrder);
        }
    }

    /// @notice Whether a score lies past its threshold.
    function flags(int256 score, uint256 limit) internal pure returns (bool) {
        // INVARIANT: strictly past it: at the threshold the bound on false flags still holds.
        // forge-lint: disable-next-line(unsafe-typecast)
        return score > 0 && uint256(score) > limit;
    }
}
