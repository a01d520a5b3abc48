// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {StakeBook} from "../StakeBook.sol";
import {StakeLocks} from "../StakeLocks.sol";
import {StakeSlashing} from "../StakeSlashing.sol";
import {StakeVault} from "../StakeVault.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Deployed} from "./Deployed.sol";
import {JudgeDouble} from "./doubles/Counterparts.sol";
import {PlainToken} from "./doubles/Tokens.sol";

/// @notice Locks and slashes: see StakeVault.slash.tree.
contract StakeVaultSlashTest is Deployed {
    address internal alice = makeAddr("alice");
    address internal bob = makeAddr("bob");
    address internal challenger = makeAddr("challenger");

    function setUp() public override {
        super.setUp();
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 1000);
    }

    function _lock(uint256 amount) internal {
        vm.prank(address(escrow));
        vault.lock(verifier.addr, Role.VERIFIER, amount);
    }

    function _lockable() internal returns (uint256 lockable) {
        (, lockable,) = vault.cover(verifier.addr, Role.VERIFIER);
    }

    function _victims(uint256 a, uint256 b) internal view returns (IStakeVault.Victim[] memory v) {
        v = new IStakeVault.Victim[](2);
        v[0] = IStakeVault.Victim(alice, a);
        v[1] = IStakeVault.Victim(bob, b);
    }

    // ---------------------------------------------------------------- locks

    function test_lock_revertWhen_notTheEscrow() public {
        vm.expectRevert(
            abi.encodeWithSelector(StakeLocks.NotEscrow.selector, address(this), address(escrow))
        );
        vault.lock(verifier.addr, Role.VERIFIER, 1);
    }

    function test_lock_oneUnitBacksOneBatch() public {
        _lock(600);
        assertEq(_lockable(), 400);
        vm.prank(address(escrow));
        vm.expectRevert(abi.encodeWithSelector(StakeLocks.NotLockable.selector, 401, 400));
        vault.lock(verifier.addr, Role.VERIFIER, 401);
        _lock(400);
        assertEq(_lockable(), 0);
        assertEq(
            vault.lockIn(verifier.addr, Role.VERIFIER, vault.sliceOf(block.timestamp)).amount, 1000
        );
    }

    function test_lock_unknownKeyHasNothing() public {
        (address account, uint256 lockable, uint256 reachable) =
            vault.cover(stranger, Role.VERIFIER);
        assertEq(account, address(0));
        assertEq(lockable + reachable, 0);
        vm.prank(address(escrow));
        vm.expectRevert(abi.encodeWithSelector(StakeLocks.NotLockable.selector, 1, 0));
        vault.lock(stranger, Role.VERIFIER, 1);
        vm.expectRevert(abi.encodeWithSelector(StakeLocks.UnknownAccount.selector, stranger));
        vault.releaseLocks(stranger, Role.VERIFIER, 1);
    }

    function test_lock_heldForTheWindowAndReleasedAfter() public {
        _lock(600);
        uint256 end = block.timestamp + vault.lockWindow();
        vm.warp(end - 1);
        assertEq(_lockable(), 400);
        vm.warp(end);
        assertEq(_lockable(), 1000);
        assertEq(uint256(vault.stakeOf(verifier.addr, Role.VERIFIER).firstSlice), 0);
        _lock(1000);
        assertEq(_lockable(), 0);
    }

    function test_lock_laterLockOfTheSliceHoldsAllOfIt() public {
        vm.warp(1_800_000_000 / 3600 * 3600);
        _lock(100);
        vm.warp(block.timestamp + 30 minutes);
        _lock(100);
        vm.warp(block.timestamp + vault.lockWindow() - 1);
        assertEq(_lockable(), 800);
        vm.warp(block.timestamp + 1);
        assertEq(_lockable(), 1000);
    }

    function test_lock_slicesAreReleasedInOrderAndFourACall() public {
        for (uint256 i; i < 6; ++i) {
            _lock(10);
            vm.warp(block.timestamp + 2 hours);
        }
        vm.warp(block.timestamp + vault.lockWindow());
        assertEq(_lockable(), 1000 - 20);
        assertEq(vault.releaseLocks(verifier.addr, Role.VERIFIER, 64), 20);
        assertEq(_lockable(), 1000);
    }

    /// @dev Fault 27: evidence that randomness has not pointed at yet.
    function test_lock_notReleasedBeforeItsBatchesAreDrawn() public {
        _lock(600);
        uint64 slice = vault.sliceOf(block.timestamp);
        beacon.registerBatch(0, 1, address(token), slice);
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, 1000);
        vm.warp(block.timestamp + 400 days);
        // What no lock covers leaves; the locked part waits for the draw.
        vm.prank(verifier.addr);
        assertEq(vault.withdraw(verifier.addr, Role.VERIFIER), 400);
        vm.prank(verifier.addr);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.NothingToWithdraw.selector, 600, 600));
        vault.withdraw(verifier.addr, Role.VERIFIER);
        assertEq(vault.slashable(verifier.addr, Role.VERIFIER), 600);
        beacon.drawAll();
        vm.prank(verifier.addr);
        assertEq(vault.withdraw(verifier.addr, Role.VERIFIER), 600);
        _assertConserved();
    }

    /// @dev Fault 15, for locks: a shortened window frees nothing that was settled before.
    function test_fault15_lockKeepsTheWindowItBeganWith() public {
        _lock(600);
        uint256 start = block.timestamp;
        IStakeVault.Times memory t = _times();
        t.evidence = 1 days;
        vm.prank(owner);
        vault.setTimes(t);
        _lock(100);
        vm.warp(start + 15 days - 1);
        assertEq(_lockable(), 300);
        vm.warp(start + 15 days);
        assertEq(_lockable(), 1000);
    }

    // ---------------------------------------------------------------- slash

    function test_slash_revertWhen_notAJudge() public {
        vm.expectRevert(abi.encodeWithSelector(StakeSlashing.NotSlasher.selector, address(this)));
        vault.slash(
            verifier.addr, Role.VERIFIER, 5000, new IStakeVault.Victim[](0), address(0), 0, "F9"
        );
        vm.prank(owner);
        vault.setSlasher(address(judge), false);
        vm.expectRevert(abi.encodeWithSelector(StakeSlashing.NotSlasher.selector, address(judge)));
        _slash(verifier.addr, Role.VERIFIER, 5000, "F9");
    }

    function test_slash_split() public {
        IStakeVault.Slashed memory s = judge.slash(
            verifier.addr, Role.VERIFIER, 5000, _victims(100, 50), challenger, 4000, "F9"
        );
        assertEq(s.total, 500);
        assertEq(s.toVictims, 150);
        assertEq(s.toChallenger, 200);
        assertEq(s.burned, 150);
        assertEq(vault.slashable(verifier.addr, Role.VERIFIER), 500);
        _assertConserved();
    }

    function test_slash_victimsBeforeChallengerAndBurnBeforeBoth() public {
        IStakeVault.Slashed memory s = judge.slash(
            verifier.addr, Role.VERIFIER, 5000, _victims(300, 100), challenger, 5000, "F9"
        );
        // 500: 125 burned first, 375 for victims who ask 400, nothing left for the challenger.
        assertEq(s.toVictims, 281 + 93);
        assertEq(s.toChallenger, 1);
        assertEq(s.burned, 125);
        uint64 slice = vault.sliceOf(block.timestamp + 18 days) + 1;
        assertEq(vault.vestingOf(alice, slice), 281);
        assertEq(vault.vestingOf(bob, slice), 93);
        _assertConserved();
    }

    function test_slash_challengerAtMostHalf() public {
        IStakeVault.Slashed memory s = judge.slash(
            verifier.addr,
            Role.VERIFIER,
            10_000,
            new IStakeVault.Victim[](0),
            challenger,
            10_000,
            "F9"
        );
        assertEq(s.total, 1000);
        assertEq(s.toChallenger, 500);
        assertEq(s.burned, 500);
    }

    /// @dev Fault 2: stake that has matured but is not withdrawn.
    function test_fault2_maturedStakeIsSlashed() public {
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, 1000);
        vm.warp(block.timestamp + 30 days);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 5000, "F9").total, 500);
        vm.prank(verifier.addr);
        assertEq(vault.withdraw(verifier.addr, Role.VERIFIER), 500);
        _assertConserved();
    }

    /// @dev Fault 4: a slash made to revert by shrinking the stake or by a cut out of range.
    function test_fault4_slashIsCappedAndNeverReverts() public {
        assertEq(_slash(verifier.addr, Role.VERIFIER, type(uint256).max, "a").total, 1000);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 5000, "b").total, 0);
        assertEq(_slash(stranger, Role.VERIFIER, 5000, "c").total, 0);
        assertEq(_slash(verifier.addr, Role.DRAFTER, 5000, "d").total, 0);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 10);
        IStakeVault.Victim[] memory greedy = new IStakeVault.Victim[](20);
        for (uint256 i; i < 20; ++i) {
            greedy[i] = IStakeVault.Victim(address(uint160(100 + i)), type(uint256).max);
        }
        IStakeVault.Slashed memory s =
            judge.slash(drafter.addr, Role.DRAFTER, 10_000, greedy, challenger, 5000, "e");
        assertEq(s.total, 10);
        assertEq(s.toVictims, 0); // 7 over sixteen, rounded down
        assertEq(s.toChallenger, 5);
        assertEq(s.burned, 5);
        _assertConserved();
    }

    /// @dev Fault 26, for victims: the seventeenth of a list gets nothing.
    function test_fault26_victimsAreBounded() public {
        IStakeVault.Victim[] memory many = new IStakeVault.Victim[](17);
        for (uint256 i; i < 17; ++i) {
            many[i] = IStakeVault.Victim(address(uint160(100 + i)), 2);
        }
        IStakeVault.Slashed memory s =
            judge.slash(verifier.addr, Role.VERIFIER, 5000, many, address(0), 0, "F9");
        assertEq(s.toVictims, 32);
        uint64 slice = vault.sliceOf(block.timestamp + 18 days) + 1;
        assertEq(vault.vestingOf(many[15].who, slice), 2);
        assertEq(vault.vestingOf(many[16].who, slice), 0);
    }

    function test_slash_withOpenLocksStillWorks() public {
        _lock(1000);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 5000, "F9").total, 500);
        assertEq(_lockable(), 0);
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, 500);
        vm.warp(block.timestamp + 18 days);
        vm.prank(verifier.addr);
        assertEq(vault.withdraw(verifier.addr, Role.VERIFIER), 500);
    }

    /// @dev Fault 5: stake below some minimum. There is none. Fault 14: rounding to nothing.
    function test_fault5_fault14_smallStakeIsSlashedAndBurned() public {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1);
        IStakeVault.Slashed memory s =
            judge.slash(drafter.addr, Role.DRAFTER, 500, _victims(1, 1), challenger, 5000, "F10");
        assertEq(s.total, 1);
        assertEq(s.burned, 1);
    }

    /// @dev Fault 6: slashing oneself to leave early and with the reward.
    function test_fault6_selfSlashCostsAQuarterAndLeavesNoEarlier() public {
        IStakeVault.Victim[] memory self = new IStakeVault.Victim[](1);
        self[0] = IStakeVault.Victim(beneficiaryV, type(uint256).max);
        uint256 start = block.timestamp;
        IStakeVault.Slashed memory s =
            judge.slash(verifier.addr, Role.VERIFIER, 10_000, self, verifier.addr, 5000, "F9");
        assertEq(s.burned, 250);
        uint64[] memory slices = new uint64[](1);
        slices[0] = vault.sliceOf(start + 18 days) + 1;
        vm.warp(start + 18 days);
        vm.expectRevert(
            abi.encodeWithSelector(
                StakeSlashing.NotVested.selector, slices[0], vault.sliceOf(block.timestamp)
            )
        );
        vault.claimVested(beneficiaryV, slices);
        vm.warp(start + 18 days + SLICE);
        assertEq(vault.claimVested(beneficiaryV, slices), 750);
        assertEq(token.balanceOf(beneficiaryV), 750);
        _assertConserved();
    }

    function test_slash_oneFaultOnceForAllJudges() public {
        JudgeDouble second = new JudgeDouble(vault);
        vm.prank(owner);
        vault.setSlasher(address(second), true);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 5000, "F9").total, 500);
        assertTrue(vault.punished("F9"));
        IStakeVault.Slashed memory s = second.slash(
            verifier.addr, Role.VERIFIER, 5000, new IStakeVault.Victim[](0), address(0), 0, "F9"
        );
        assertEq(s.total, 0);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 5000, "F2").total, 250);
    }

    /// @dev A fault of a key without stake stays open for when it has some.
    function test_slash_nothingTakenDoesNotUseUpTheFault() public {
        _slash(stranger, Role.VERIFIER, 5000, "F2");
        _slash(verifier.addr, Role.AUDITOR, 5000, "F2");
        assertFalse(vault.punished("F2"));
        _stake(stranger, stranger, Role.VERIFIER, 100);
        assertEq(_slash(stranger, Role.VERIFIER, 5000, "F2").total, 50);
    }

    function test_slash_oldestExitsFirst() public {
        vm.startPrank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, 300);
        vault.unstake(verifier.addr, Role.VERIFIER, 300);
        vm.stopPrank();
        _slash(verifier.addr, Role.VERIFIER, 5000, "F9");
        StakeBook.Exit[] memory exits = vault.exitsOf(verifier.addr, Role.VERIFIER);
        assertEq(exits[0].amount, 0);
        assertEq(exits[1].amount, 100);
        assertEq(vault.activeStake(verifier.addr, Role.VERIFIER), 400);
        _assertConserved();
    }

    function test_slash_nobodyToPayIsBurned() public {
        IStakeVault.Victim[] memory nobody = new IStakeVault.Victim[](1);
        nobody[0] = IStakeVault.Victim(address(0), 100);
        IStakeVault.Slashed memory s =
            judge.slash(verifier.addr, Role.VERIFIER, 5000, nobody, address(0), 5000, "F9");
        assertEq(s.burned, 500);
        _assertConserved();
    }

    function testFuzz_slash_split(
        uint96 stake_,
        uint96 leaving,
        uint16 bps,
        uint128 a,
        uint128 b,
        uint16 share
    ) public {
        uint256 whole = bound(stake_, 1, type(uint88).max);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, whole);
        uint256 out = bound(leaving, 0, whole);
        if (out != 0) {
            vm.prank(drafter.addr);
            vault.unstake(drafter.addr, Role.DRAFTER, out);
        }
        IStakeVault.Slashed memory s =
            judge.slash(drafter.addr, Role.DRAFTER, bps, _victims(a, b), challenger, share, "x");
        uint256 cut = bps > 10_000 ? 10_000 : bps;
        assertEq(s.total, (whole * cut + 9_999) / 10_000, "the share, rounded up");
        assertEq(s.total, s.burned + s.toVictims + s.toChallenger, "all of it goes somewhere");
        assertGe(s.burned, s.total / 4, "a quarter burns");
        assertLe(s.toChallenger, s.total / 2, "half at most");
        assertLe(s.toVictims, uint256(a) + b, "no victim gains");
        assertEq(vault.slashable(drafter.addr, Role.DRAFTER), whole - s.total);
        _assertConserved();
    }

    /// @dev Audit of this contract: who is caught with one unit of stake, on purpose, is not done with
    /// the fault.
    function test_slash_APoorStakeSettlesNoFault() public {
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        vault.setLeastStake(1_000);
        vm.prank(owner);
        vault.setLeastStake(1_000);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 999);
        assertEq(_slash(drafter.addr, Role.DRAFTER, 5_000, "F9").total, 500);
        assertFalse(vault.punished("F9"));
        assertEq(
            _slash(drafter.addr, Role.DRAFTER, 5_000, "F9").total, 0, "no stake bears it twice"
        );
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 2_000);
        assertEq(_slash(drafter.addr, Role.DRAFTER, 5_000, "F9").total, 1_000);
        assertTrue(vault.punished("F9"));
        assertEq(_slash(drafter.addr, Role.DRAFTER, 5_000, "F9").total, 0);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 9_000);
        assertEq(_slash(drafter.addr, Role.DRAFTER, 5_000, "F9").total, 0, "done with, once");
        _assertConserved();
    }

    function test_slash_AStakeOfTheLeastSettlesTheFault() public {
        vm.prank(owner);
        vault.setLeastStake(1_000);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1_000);
        assertEq(_slash(drafter.addr, Role.DRAFTER, 5_000, "F9").total, 500);
        assertTrue(vault.punished("F9"));
    }

    /// @dev Like other parameters: bounded, and of no effect on what was settled before.
    function test_slash_ALeastStakeMovesInStepsAndLater() public {
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(StakeSlashing.LeastStakeTooFar.selector, 0, 0));
        vault.setLeastStake(0);
        vault.setLeastStake(1_000);
        assertEq(vault.leastStake(), 1_000, "the first at once");
        vm.expectRevert(abi.encodeWithSelector(StakeSlashing.LeastStakeTooFar.selector, 0, 1_000));
        vault.setLeastStake(0);
        vm.expectRevert(abi.encodeWithSelector(StakeSlashing.LeastStakeTooFar.selector, 499, 1_000));
        vault.setLeastStake(499);
        vm.expectRevert(
            abi.encodeWithSelector(StakeSlashing.LeastStakeTooFar.selector, 2_001, 1_000)
        );
        vault.setLeastStake(2_001);
        vault.setLeastStake(500);
        vm.warp(block.timestamp + 1 days);
        vault.setLeastStake(2_000);
        vm.stopPrank();
        // All that was settled before can be judged until then, and the vault holds its stake so long.
        vm.warp(block.timestamp + _times().unbonding - 1);
        assertEq(vault.leastStake(), 1_000);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1_500);
        _slash(drafter.addr, Role.DRAFTER, 1, "before");
        assertTrue(vault.punished("before"));
        vm.warp(block.timestamp + 1);
        assertEq(vault.leastStake(), 2_000);
        _slash(drafter.addr, Role.DRAFTER, 1, "after");
        assertFalse(vault.punished("after"));
    }

    // ---------------------------------------------------------------- vested shares and burning

    function test_vested_strangersShareGoesToItself() public {
        judge.slash(verifier.addr, Role.VERIFIER, 5000, _victims(100, 50), challenger, 4000, "F9");
        uint64[] memory slices = new uint64[](2);
        slices[0] = vault.sliceOf(block.timestamp + 18 days) + 1;
        slices[1] = slices[0]; // twice in one call pays once
        vm.warp(block.timestamp + 18 days + SLICE);
        vault.claimVested(challenger, slices);
        assertEq(token.balanceOf(challenger), 200);
        vm.expectRevert(StakeBook.ZeroAmount.selector);
        vault.claimVested(challenger, slices);
        _assertConserved();
    }

    function test_burn_destroysWhatTheTokenCanDestroy() public {
        _slash(verifier.addr, Role.VERIFIER, 5000, "F9");
        uint256 supply = token.totalSupply();
        assertEq(vault.burn(), 500);
        assertEq(token.totalSupply(), supply - 500);
        vm.expectRevert(StakeBook.ZeroAmount.selector);
        vault.burn();
        _assertConserved();
    }

    function test_burn_elseSendsItOutOfReach() public {
        PlainToken plain = new PlainToken();
        StakeVault other =
            new StakeVault(owner, guardian, address(plain), registry, SLICE, _times());
        JudgeDouble its = new JudgeDouble(other);
        vm.startPrank(owner);
        other.wire(address(escrow), IDrawBeacon(address(beacon)));
        other.setSlasher(address(its), true);
        vm.stopPrank();
        plain.mint(drafter.addr, 100);
        vm.startPrank(drafter.addr);
        plain.approve(address(other), 100);
        other.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 100, new bytes32[](0));
        vm.stopPrank();
        its.slash(
            drafter.addr, Role.DRAFTER, 10_000, new IStakeVault.Victim[](0), address(0), 0, "F1"
        );
        other.burn();
        assertEq(plain.balanceOf(other.DEAD()), 100);
    }
}
