// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {PaymentRule} from "../libraries/PaymentRule.sol";

contract PaymentRuleTest is Test {
    struct Case {
        uint96 reserve;
        uint16 feeBps;
        uint128 dueD;
        uint128 dueV;
        uint96 paidD;
        uint96 paidV;
    }

    function _grants(Case memory c, uint256 reserve, uint256 paidD, uint256 paidV)
        internal
        pure
        returns (uint256, uint256)
    {
        return PaymentRule.grantsDown(reserve, c.feeBps, c.dueD, c.dueV, paidD, paidV);
    }

    function _cost(uint256 paid, uint256 feeBps) internal pure returns (uint256) {
        return paid + PaymentRule.feeUp(paid, feeBps);
    }

    function testFuzz_grantsFitReserveAndDues(Case memory c) public pure {
        c.feeBps = uint16(bound(c.feeBps, 0, 1000));
        (uint256 d, uint256 v) = _grants(c, c.reserve, c.paidD, c.paidV);
        assertLe(_cost(d + v, c.feeBps), c.reserve, "grant and fee fit");
        assertLe(d + c.paidD, c.dueD > c.paidD ? c.dueD : c.paidD);
        assertLe(v + c.paidV, c.dueV > c.paidV ? c.dueV : c.paidV);
    }

    /// @dev Whoever is paid first, and however often, each ends with the same, to a unit or two.
    function testFuzz_orderDoesNotMatter(Case memory c) public pure {
        c.feeBps = uint16(bound(c.feeBps, 0, 1000));
        (uint256 d, uint256 v) = _grants(c, c.reserve, 0, 0);
        // V alone first (D has no stake now), again, then D.
        uint256 left = c.reserve - _cost(v, c.feeBps);
        (, uint256 more) = _grants(c, left, 0, v);
        assertLe(more, 1, "coming again gains nothing");
        (uint256 late,) = _grants(c, left, 0, v);
        assertApproxEqAbs(late, d, 1, "coming later loses nothing");
        // And the other way round.
        left = c.reserve - _cost(d, c.feeBps);
        (more,) = _grants(c, left, d, 0);
        assertLe(more, 1);
        (, late) = _grants(c, left, d, 0);
        assertApproxEqAbs(late, v, 1);
    }

    /// @dev One more unit in the reserve never means less for anyone.
    function testFuzz_monotonicInTheReserve(Case memory c, uint32 more) public pure {
        c.feeBps = uint16(bound(c.feeBps, 0, 1000));
        c.reserve = uint96(bound(c.reserve, 0, type(uint96).max - more));
        (uint256 d, uint256 v) = _grants(c, c.reserve, 0, 0);
        (uint256 d2, uint256 v2) = _grants(c, uint256(c.reserve) + more, 0, 0);
        assertGe(d2, d);
        assertGe(v2, v);
    }

    function testFuzz_lockFitsWhatWasFree(uint96 lockable, uint128 rate, uint96 paid) public pure {
        uint256 lockRate = bound(rate, 1, 100 << 96);
        uint256 room = PaymentRule.roomDown(lockable, lockRate);
        uint256 amount = paid < room ? paid : room;
        vm.assume(amount < 1 << 96);
        uint256 locked = PaymentRule.lockUp(amount, lockRate);
        assertLe(locked, lockable);
        assertTrue(amount == 0 || locked != 0, "nothing is paid without a lock");
    }

    function test_examples() public pure {
        (uint256 d, uint256 v) = PaymentRule.grantsDown(1020, 200, 250, 750, 0, 0);
        assertEq(d, 250);
        assertEq(v, 750);
        (d, v) = PaymentRule.grantsDown(1019, 200, 250, 750, 0, 0);
        assertEq(d, 249); // 999 to share
        assertEq(v, 749);
        (d, v) = PaymentRule.grantsDown(510, 200, 250, 750, 250, 250);
        assertEq(d, 0);
        assertEq(v, 500);
        (d, v) = PaymentRule.grantsDown(0, 200, 250, 750, 0, 0);
        assertEq(d + v, 0);
        (d, v) = PaymentRule.grantsDown(100, 200, 0, 0, 0, 0);
        assertEq(d + v, 0);
        assertEq(PaymentRule.feeUp(1, 200), 1);
        assertEq(PaymentRule.feeUp(50, 200), 1);
        assertEq(PaymentRule.feeUp(51, 200), 2);
    }
}
