// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {Market} from "./Market.sol";

/// @notice Over any sequence of calls: every unit is somewhere, nobody is paid what was not signed,
/// an honest stake never falls, and everyone can leave.
/// forge-config: default.invariant.runs = 64
/// forge-config: default.invariant.depth = 64
/// forge-config: default.invariant.fail-on-revert = true
contract MarketInvariants is Test {
    Market internal market;

    function setUp() public {
        market = new Market();
        market.open();
        targetContract(address(market));
        bytes4[] memory calls = new bytes4[](17);
        calls[0] = Market.reserve.selector;
        calls[1] = Market.serveAndSettle.selector;
        calls[2] = Market.settleAgain.selector;
        calls[3] = Market.forge.selector;
        calls[4] = Market.openEpoch.selector;
        calls[5] = Market.solo.selector;
        calls[6] = Market.thaw.selector;
        calls[7] = Market.collectThawed.selector;
        calls[8] = Market.withdrawEarned.selector;
        calls[9] = Market.stake.selector;
        calls[10] = Market.unstake.selector;
        calls[11] = Market.leave.selector;
        calls[12] = Market.punish.selector;
        calls[13] = Market.draw.selector;
        calls[14] = Market.burn.selector;
        calls[15] = Market.pass.selector;
        calls[16] = Market.spendFees.selector;
        targetSelector(FuzzSelector(address(market), calls));
    }

    function invariant_market() public view {
        market.checkConservation();
        market.checkPayouts();
        market.checkStakes();
    }

    /// @dev At the end of each run everyone leaves.
    function afterInvariant() public {
        market.leaveAltogether();
    }

    /// @dev The handler does reach what it is there to reach.
    function test_marketDoesSomething() public {
        for (uint256 i; i < 40; ++i) {
            market.serveAndSettle(i, 100, 60, 1);
            market.unstake(i, 10 ether);
            market.pass(1 days);
            market.leave(i);
            market.punish(i, 100, 1 ether, 1000);
        }
        assertGt(market.settlements(), 30);
        assertGt(market.exits(), 0);
        assertGt(market.slashes(), 10);
        market.checkConservation();
        market.checkPayouts();
        market.checkStakes();
        market.leaveAltogether();
    }
}
