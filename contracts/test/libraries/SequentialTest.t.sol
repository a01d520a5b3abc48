// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SequentialTest} from "../../libraries/SequentialTest.sol";
import {SequentialTestHarness} from "../harness/SequentialTestHarness.sol";
import {VectorReader} from "./VectorReader.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

/// @notice Held against solady's exponential and logarithm, which share no step with the library.
contract SequentialTestTest is VectorReader {
    SequentialTestHarness internal alpha;

    int256 internal constant WAD = 1e18;
    int256 internal constant UNIT = 1 << 20;

    struct Weight {
        uint8 rate;
        int32 accept;
        int32 reject;
    }

    struct Score {
        uint8 rate;
        uint64 proposed;
        uint64 accepted;
        int128 score;
    }

    struct Threshold {
        uint64 start;
        uint64 inverseDelta;
        uint64 verifierOrder;
        uint64 threshold;
    }

    function setUp() public {
        alpha = new SequentialTestHarness();
    }

    // ------------------------------------------------------------------ golden vectors

    function test_Vectors_Weights() public view {
        string memory json = _load("alpha");
        Weight[] memory list = abi.decode(
            vm.parseJsonTypeArray(json, ".weights", "Weight(uint8 rate,int32 accept,int32 reject)"),
            (Weight[])
        );
        assertEq(list.length, 94);
        for (uint256 i; i < list.length; ++i) {
            (int256 accept, int256 reject) = alpha.weights(list[i].rate);
            assertEq(accept, list[i].accept);
            assertEq(reject, list[i].reject);
        }
    }

    function test_Vectors_Scores() public view {
        string memory json = _load("alpha");
        Score[] memory list = abi.decode(
            vm.parseJsonTypeArray(
                json, ".scores", "Score(uint8 rate,uint64 proposed,uint64 accepted,int128 score)"
            ),
            (Score[])
        );
        assertGt(list.length, 30);
        for (uint256 i; i < list.length; ++i) {
            assertEq(alpha.llr(list[i].rate, list[i].proposed, list[i].accepted), list[i].score);
        }
    }

    function test_Vectors_Thresholds() public view {
        string memory json = _load("alpha");
        Threshold[] memory list = abi.decode(
            vm.parseJsonTypeArray(
                json,
                ".thresholds",
                "Threshold(uint64 start,uint64 inverseDelta,uint64 verifierOrder,uint64 threshold)"
            ),
            (Threshold[])
        );
        assertGt(list.length, 40);
        for (uint256 i; i < list.length; ++i) {
            assertEq(
                alpha.threshold(list[i].start, list[i].inverseDelta, list[i].verifierOrder),
                list[i].threshold
            );
        }
    }

    // ------------------------------------------------------------------ weights

    /// @dev The heart of the bound: under the claimed rate, exp(score) is expected to grow by at most
    /// nothing per outcome. A higher true rate only lowers it, because reject outweighs accept.
    function test_TheHonestExpectationIsAtMostOne() public view {
        for (uint256 rate = 6; rate <= 99; ++rate) {
            (int256 accept, int256 reject) = alpha.weights(rate);
            int256 a0 = int256(rate) * WAD / 100;
            int256 expected = a0 * _exp(accept) / WAD + (WAD - a0) * _exp(reject) / WAD;
            assertLe(expected, WAD - 3);
            assertGe(expected, WAD - 2 * WAD / UNIT);
            assertLt(accept, 0);
            assertGt(reject, 0);
        }
    }

    /// @dev e**(w / 2**20) in wad, rounded up by two units in its last place.
    function _exp(int256 weight) internal pure returns (int256) {
        return FixedPointMathLib.expWad(weight * WAD / UNIT) + 2;
    }

    function testFuzz_RevertWhen_TheRateIsOutside(uint256 rate) public {
        if (rate >= 6 && rate <= 99) rate += 94;
        vm.expectRevert(abi.encodeWithSelector(SequentialTest.RateOutsideRange.selector, rate));
        alpha.weights(rate);
    }

    // ------------------------------------------------------------------ scores

    function testFuzz_TheScoreIsTheSumOverOutcomes(uint256 outcomes, uint8 length, uint256 rate)
        public
        view
    {
        rate = bound(rate, 6, 99);
        uint64 accepted;
        for (uint256 i; i < length; ++i) {
            if ((outcomes >> (255 - i)) & 1 == 1) ++accepted;
        }
        assertEq(
            alpha.scoreTrace(rate, length, abi.encodePacked(outcomes)),
            alpha.llr(rate, length, accepted)
        );
    }

    function testFuzz_ScoresOfAdjacentIntervalsAddUp(
        uint256 rate,
        uint64 proposed,
        uint64 accepted,
        uint64 moreProposed,
        uint64 moreAccepted
    ) public view {
        rate = bound(rate, 6, 99);
        (proposed, moreProposed) = (proposed / 2, moreProposed / 2);
        accepted = uint64(bound(accepted, 0, proposed));
        moreAccepted = uint64(bound(moreAccepted, 0, moreProposed));
        assertEq(
            alpha.llr(rate, proposed, accepted) + alpha.llr(rate, moreProposed, moreAccepted),
            alpha.llr(rate, proposed + moreProposed, accepted + moreAccepted)
        );
    }

    function testFuzz_RevertWhen_MoreWereAcceptedThanProposed(uint64 proposed, uint64 more) public {
        proposed = uint64(bound(proposed, 0, type(uint64).max - 1));
        more = uint64(bound(more, 1, type(uint64).max - proposed));
        vm.expectRevert(
            abi.encodeWithSelector(
                SequentialTest.MoreAcceptedThanProposed.selector, proposed + more, proposed
            )
        );
        alpha.llr(80, proposed, proposed + more);
    }

    // ------------------------------------------------------------------ thresholds

    function testFuzz_TheThresholdIsTheSumRoundedUp(uint64 start, uint64 inverse, uint64 order)
        public
        view
    {
        start = uint64(bound(start >> (start % 64), 1, type(uint64).max));
        inverse = uint64(bound(inverse >> (inverse % 64), 2, type(uint64).max));
        order = order >> (order % 64);
        int256 zeta = 497_700_302_470_745_347; // ln(π²/6)
        int256 real = _ln(inverse) + _ln(32) + zeta + 2 * _ln(start);
        if (order != 0) real += zeta + 2 * _ln(order);
        int256 got = int256(alpha.threshold(start, inverse, order)) * WAD;
        assertGe(got, real * UNIT - 1e8);
        assertLe(got, real * UNIT + 9 * WAD);
    }

    function testFuzz_TheThresholdGrows(uint64 start, uint64 inverse, uint64 order) public view {
        start = uint64(bound(start, 1, type(uint64).max / 2));
        inverse = uint64(bound(inverse, 2, type(uint64).max / 2));
        order = uint64(bound(order, 1, type(uint64).max / 2));
        uint256 least = alpha.threshold(start, inverse, order);
        assertLe(least, alpha.threshold(start + 1, inverse, order));
        assertLt(least, alpha.threshold(2 * start, inverse, order));
        assertLt(least, alpha.threshold(start, 2 * inverse, order));
        assertLt(least, alpha.threshold(start, inverse, 2 * order));
        assertLt(alpha.threshold(start, inverse, 0), alpha.threshold(start, inverse, 1));
    }

    function testFuzz_RevertWhen_TheThresholdIsUndefined(uint64 start, uint64 inverse) public {
        vm.expectRevert(
            abi.encodeWithSelector(SequentialTest.ThresholdUndefined.selector, 0, inverse)
        );
        alpha.threshold(0, inverse, 0);
        start = uint64(bound(start, 1, type(uint64).max));
        vm.expectRevert(
            abi.encodeWithSelector(SequentialTest.ThresholdUndefined.selector, start, 1)
        );
        alpha.threshold(start, 1, 0);
    }

    function testFuzz_AFlagNeedsMoreThanTheThreshold(int256 score, uint256 limit) public view {
        limit = bound(limit, 0, uint256(type(int256).max) - 1);
        assertEq(alpha.flags(score, limit), score > int256(limit));
        assertFalse(alpha.flags(int256(limit), limit));
        assertTrue(alpha.flags(int256(limit) + 1, limit));
    }

    function _ln(uint64 x) internal pure returns (int256) {
        return FixedPointMathLib.lnWad(int256(uint256(x) * 1e18));
    }
}
