// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExpiringPause} from "../ExpiringPause.sol";
import {StakeBook} from "../StakeBook.sol";
import {StakeLocks} from "../StakeLocks.sol";
import {StakeTimes} from "../StakeTimes.sol";
import {StakeVault} from "../StakeVault.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {Deployed} from "./Deployed.sol";
import {FeeOnTransferToken, HookToken} from "./doubles/Tokens.sol";

/// @notice Stake in, models, keys and exits: see StakeVault.stake.tree.
contract StakeVaultStakeTest is Deployed {
    bytes32[] internal none;

    function _model(uint32 size) internal returns (bytes32) {
        uint32[] memory ends = new uint32[](1);
        return registry.register(
            Records.Manifest("llama", 0, keccak256("w"), keccak256("t"), size, ends, 4096)
        );
    }

    function _open() internal {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
    }

    // ---------------------------------------------------------------- stake

    /// @dev What bonds are reckoned by: every deposit begins a slice anew for all that is fresh.
    function test_stake_SeasonsForASlice() public {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1_000);
        assertEq(vault.seasoned(drafter.addr, Role.DRAFTER), 0);
        vm.warp(block.timestamp + SLICE);
        assertEq(vault.seasoned(drafter.addr, Role.DRAFTER), 1_000);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 10);
        vm.warp(block.timestamp + SLICE - 1);
        assertEq(vault.seasoned(drafter.addr, Role.DRAFTER), 1_000);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 5);
        vm.warp(block.timestamp + SLICE - 1);
        assertEq(vault.seasoned(drafter.addr, Role.DRAFTER), 1_000, "both are fresh");
        vm.prank(drafter.addr);
        vault.unstake(drafter.addr, Role.DRAFTER, 1_010);
        assertEq(vault.seasoned(drafter.addr, Role.DRAFTER), 1_000, "what leaves can be lost");
        assertEq(vault.seasoned(drafter.addr, Role.VERIFIER), 0, "by role");
        vm.warp(block.timestamp + 1);
        assertEq(vault.seasoned(drafter.addr, Role.DRAFTER), 1_015);
    }

    function test_stake_firstDepositOpensAndFixesBeneficiary() public {
        _open();
        assertEq(vault.accountOf(drafter.addr), drafter.addr);
        assertEq(vault.operatorOf(drafter.addr), drafter.addr);
        assertEq(vault.beneficiaryOf(drafter.addr), beneficiaryD);
        assertEq(vault.activeStake(drafter.addr, Role.DRAFTER), STAKE);
        assertEq(vault.activeStake(drafter.addr, Role.VERIFIER), 0);
        _assertConserved();
    }

    function test_stake_beneficiaryMayAdd() public {
        _open();
        _fund(beneficiaryD, address(vault), 5);
        vm.prank(beneficiaryD);
        vault.stake(drafter.addr, beneficiaryD, Role.AUDITOR, 5, none);
        assertEq(vault.activeStake(drafter.addr, Role.AUDITOR), 5);
    }

    function test_stake_revertWhen_beneficiaryDiffers() public {
        _open();
        _fund(drafter.addr, address(vault), 5);
        vm.prank(drafter.addr);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.BeneficiaryFixed.selector, beneficiaryD, stranger)
        );
        vault.stake(drafter.addr, stranger, Role.DRAFTER, 5, none);
    }

    function test_stake_revertWhen_openedByAnother() public {
        _fund(stranger, address(vault), 5);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.OperatorMustOpen.selector, stranger, drafter.addr)
        );
        vault.stake(drafter.addr, stranger, Role.DRAFTER, 5, none);
    }

    /// @dev Fault 17 of the audits: calls with nothing in them, on another's behalf.
    function test_fault17_zeroValueCallsChangeNothing() public {
        vm.startPrank(drafter.addr);
        vm.expectRevert(StakeBook.ZeroAmount.selector);
        vault.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 0, none);
        vm.stopPrank();
        _open();
        vm.startPrank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotForAccount.selector, stranger, drafter.addr)
        );
        vault.unstake(drafter.addr, Role.DRAFTER, 0);
        vm.stopPrank();
        vm.prank(drafter.addr);
        vm.expectRevert(StakeBook.ZeroAmount.selector);
        vault.unstake(drafter.addr, Role.DRAFTER, 0);
    }

    function test_stake_revertWhen_strangerAdds() public {
        _open();
        _fund(stranger, address(vault), 5);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotForAccount.selector, stranger, drafter.addr)
        );
        vault.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 5, none);
    }

    function test_stake_revertWhen_noBeneficiary() public {
        vm.prank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(StakeTimes.ZeroAddress.selector, "beneficiary"));
        vault.stake(drafter.addr, address(0), Role.DRAFTER, 5, none);
    }

    function test_stake_revertWhen_keyAnswersForAnotherAccount() public {
        _open();
        vm.prank(drafter.addr);
        vault.proposeKey(drafter.addr, stranger);
        vm.prank(stranger);
        vault.acceptKey(drafter.addr);
        _fund(stranger, address(vault), 5);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.KeyTaken.selector, stranger, drafter.addr)
        );
        vault.stake(stranger, stranger, Role.DRAFTER, 5, none);
    }

    /// @dev Fault 20: tokens that keep a fee, and tokens that call back.
    function test_fault20_feeOnTransferIsRefused() public {
        FeeOnTransferToken taxed = new FeeOnTransferToken();
        StakeVault other =
            new StakeVault(owner, guardian, address(taxed), registry, SLICE, _times());
        taxed.mint(drafter.addr, 1000);
        vm.startPrank(drafter.addr);
        taxed.approve(address(other), 1000);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.ShortDeposit.selector, 1000, 990));
        other.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1000, none);
    }

    function test_fault20_hooksCannotReenter() public {
        HookToken hook = new HookToken();
        StakeVault other = new StakeVault(owner, guardian, address(hook), registry, SLICE, _times());
        // The token itself is the operator, so that its call-back has every right but one.
        hook.mint(address(hook), 100);
        vm.startPrank(address(hook));
        hook.approve(address(other), 100);
        hook.arm(
            address(other),
            abi.encodeCall(StakeVault.stake, (address(hook), beneficiaryD, Role.DRAFTER, 7, none))
        );
        other.stake(address(hook), beneficiaryD, Role.DRAFTER, 40, none);
        assertFalse(hook.succeeded());
        assertEq(bytes4(hook.answer()), bytes4(keccak256("ReentrancyGuardReentrantCall()")));
        assertEq(other.activeStake(address(hook), Role.DRAFTER), 40);
    }

    /// @dev Fault 21: a permit that somebody else has used already.
    function test_fault21_usedPermitDoesNotBlockADeposit() public {
        vm.prank(owner);
        token.mint(drafter.addr, 10);
        uint256 deadline = block.timestamp + 1;
        bytes32 digest = keccak256(
            abi.encodePacked(
                hex"1901",
                token.DOMAIN_SEPARATOR(),
                keccak256(
                    abi.encode(
                        keccak256(
                            "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
                        ),
                        drafter.addr,
                        address(vault),
                        10,
                        0,
                        deadline
                    )
                )
            )
        );
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(drafter.key, digest);
        vm.prank(stranger);
        token.permit(drafter.addr, address(vault), 10, deadline, v, r, s);
        vm.prank(drafter.addr);
        vault.stakeWithPermit(drafter.addr, beneficiaryD, Role.DRAFTER, 10, none, deadline, v, r, s);
        assertEq(vault.activeStake(drafter.addr, Role.DRAFTER), 10);
    }

    // ---------------------------------------------------------------- models

    function test_models_servedByRole() public {
        bytes32[] memory models = new bytes32[](1);
        models[0] = _model(1000);
        _fund(drafter.addr, address(vault), 5);
        vm.prank(drafter.addr);
        vault.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 5, models);
        assertTrue(vault.serves(drafter.addr, Role.DRAFTER, models[0]));
        assertFalse(vault.serves(drafter.addr, Role.VERIFIER, models[0]));
        vm.prank(beneficiaryD);
        vault.setModel(drafter.addr, Role.DRAFTER, models[0], false);
        assertFalse(vault.serves(drafter.addr, Role.DRAFTER, models[0]));
        assertEq(vault.modelCount(drafter.addr, Role.DRAFTER), 0);
    }

    function test_models_revertWhen_unknownOrTooMany() public {
        _open();
        vm.startPrank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.UnknownModel.selector, CLAIM));
        vault.setModel(drafter.addr, Role.DRAFTER, CLAIM, true);
        for (uint32 i; i < 32; ++i) {
            vault.setModel(drafter.addr, Role.DRAFTER, _model(100 + i), true);
        }
        bytes32 last = _model(99);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.TooManyModels.selector, 32));
        vault.setModel(drafter.addr, Role.DRAFTER, last, true);
        vm.stopPrank();
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotForAccount.selector, stranger, drafter.addr)
        );
        vault.setModel(drafter.addr, Role.DRAFTER, last, false);
    }

    // ---------------------------------------------------------------- keys

    function test_keys_oldKeyStaysAnswerable() public {
        _open();
        vm.prank(beneficiaryD);
        vault.proposeKey(drafter.addr, stranger);
        vm.prank(stranger);
        vault.acceptKey(drafter.addr);
        assertEq(vault.operatorOf(drafter.addr), stranger);
        assertEq(vault.accountOf(stranger), drafter.addr);
        assertEq(vault.retiredAt(drafter.addr), block.timestamp);
        assertEq(vault.slashable(stranger, Role.DRAFTER), STAKE);
        // The retired key moves nothing any more, but what it signed is still paid for.
        vm.prank(drafter.addr);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotForAccount.selector, drafter.addr, drafter.addr)
        );
        vault.unstake(drafter.addr, Role.DRAFTER, 1);
        IStakeVault.Slashed memory gone = _slash(drafter.addr, Role.DRAFTER, 5000, "F1");
        assertEq(gone.total, STAKE / 2);
        assertEq(vault.payoutTo(stranger), beneficiaryD);
        assertEq(vault.payoutTo(drafter.addr), beneficiaryD);
    }

    function test_keys_revertWhen_notProposedOrTaken() public {
        _open();
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotForAccount.selector, stranger, drafter.addr)
        );
        vault.proposeKey(drafter.addr, stranger);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.KeyNotProposed.selector, stranger, address(0))
        );
        vault.acceptKey(drafter.addr);
        vm.startPrank(drafter.addr);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.KeyTaken.selector, verifier.addr, verifier.addr)
        );
        vault.proposeKey(drafter.addr, verifier.addr);
        vm.expectRevert(abi.encodeWithSelector(StakeTimes.ZeroAddress.selector, "key"));
        vault.proposeKey(drafter.addr, address(0));
        // Proposed while free, taken before it accepts: it opens an account of its own.
        vault.proposeKey(drafter.addr, stranger);
        vm.stopPrank();
        _stake(stranger, stranger, Role.AUDITOR, 1);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.KeyTaken.selector, stranger, stranger));
        vault.acceptKey(drafter.addr);
    }

    // ---------------------------------------------------------------- exits

    function test_exit_afterUnbondingToTheBeneficiaryOnly() public {
        _open();
        vm.prank(drafter.addr);
        uint64 matureAt = vault.unstake(drafter.addr, Role.DRAFTER, STAKE);
        assertEq(matureAt, block.timestamp + 18 days);
        assertEq(vault.activeStake(drafter.addr, Role.DRAFTER), 0);
        assertEq(vault.slashable(drafter.addr, Role.DRAFTER), STAKE);
        vm.warp(matureAt - 1);
        vm.prank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.NothingToWithdraw.selector, 0, 0));
        vault.withdraw(drafter.addr, Role.DRAFTER);
        vm.warp(matureAt);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotForAccount.selector, stranger, drafter.addr)
        );
        vault.withdraw(drafter.addr, Role.DRAFTER);
        vm.prank(drafter.addr);
        assertEq(vault.withdraw(drafter.addr, Role.DRAFTER), STAKE);
        assertEq(token.balanceOf(beneficiaryD), STAKE);
        assertEq(token.balanceOf(drafter.addr), 0);
        _assertConserved();
    }

    function test_exit_revertWhen_moreThanActive() public {
        _open();
        vm.prank(drafter.addr);
        vm.expectRevert(
            abi.encodeWithSelector(StakeVault.NotEnoughStake.selector, STAKE + 1, STAKE)
        );
        vault.unstake(drafter.addr, Role.DRAFTER, STAKE + 1);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(StakeLocks.UnknownAccount.selector, stranger));
        vault.unstake(stranger, Role.DRAFTER, 1);
    }

    /// @dev Fault 26: a loop that an attacker can make long.
    function test_fault26_exitQueueIsBounded() public {
        _open();
        vm.startPrank(drafter.addr);
        uint64 first = vault.unstake(drafter.addr, Role.DRAFTER, 1);
        for (uint256 i = 1; i < 16; ++i) {
            vault.unstake(drafter.addr, Role.DRAFTER, 1);
        }
        vm.expectRevert(abi.encodeWithSelector(StakeVault.ExitQueueFull.selector, 16, first));
        vault.unstake(drafter.addr, Role.DRAFTER, 1);
        vm.warp(first);
        assertEq(vault.withdraw(drafter.addr, Role.DRAFTER), 16);
        vault.unstake(drafter.addr, Role.DRAFTER, 1);
        assertEq(vault.exitsOf(drafter.addr, Role.DRAFTER).length, 1);
    }

    /// @dev Sixteen exits that a slash emptied must not bar the queue for ever.
    function test_exit_emptiedExitsLeaveTheQueue() public {
        _open();
        vm.startPrank(drafter.addr);
        for (uint256 i; i < 16; ++i) {
            vault.unstake(drafter.addr, Role.DRAFTER, 1);
        }
        vm.stopPrank();
        _slash(drafter.addr, Role.DRAFTER, 5000, "F1");
        vm.warp(block.timestamp + 18 days);
        vm.startPrank(drafter.addr);
        assertEq(vault.withdraw(drafter.addr, Role.DRAFTER), 0);
        vault.unstake(drafter.addr, Role.DRAFTER, 1);
        vm.stopPrank();
        _assertConserved();
    }

    /// @dev Fault 3: a thaw or unbonding period so long that it wraps round to now.
    function test_fault3_unbondingCannotOverflow() public {
        IStakeVault.Times memory t = _times();
        t.unbonding = type(uint32).max;
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(StakeTimes.SpanTooLong.selector, type(uint32).max, 365 days)
        );
        vault.setTimes(t);
    }

    /// @dev Fault 15: parameters applied to what began before them.
    function test_fault15_exitKeepsThePeriodItBeganWith() public {
        _open();
        vm.prank(drafter.addr);
        uint64 matureAt = vault.unstake(drafter.addr, Role.DRAFTER, 10);
        IStakeVault.Times memory t = _times();
        t.unbonding = 300 days;
        vm.prank(owner);
        vault.setTimes(t);
        vm.warp(matureAt);
        vm.prank(drafter.addr);
        assertEq(vault.withdraw(drafter.addr, Role.DRAFTER), 10);
        vm.prank(drafter.addr);
        uint64 later = vault.unstake(drafter.addr, Role.DRAFTER, 10);
        assertEq(later, matureAt + 300 days);
        // Shortened again: the queue stays in order.
        vm.prank(owner);
        vault.setTimes(_times());
        vm.prank(drafter.addr);
        assertEq(vault.unstake(drafter.addr, Role.DRAFTER, 10), later);
    }

    // ---------------------------------------------------------------- owner

    /// @dev Fault 1: unbonding no longer than the time in which evidence may still come.
    function test_fault1_unbondingCoversEverythingThatIsJudged() public {
        IStakeVault.Times memory t = _times();
        assertEq(vault.lockWindow(), 15 days);
        t.unbonding = 17 days - 1;
        vm.startPrank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(StakeTimes.UnbondingTooShort.selector, 17 days - 1, 17 days)
        );
        vault.setTimes(t);
        t = _times();
        t.evidence += 1 days + 1;
        vm.expectRevert(
            abi.encodeWithSelector(StakeTimes.UnbondingTooShort.selector, 18 days, 18 days + 1)
        );
        vault.setTimes(t);
        t = _times();
        t.firstDeadline = 0;
        vm.expectRevert(StakeTimes.SpanZero.selector);
        vault.setTimes(t);
        vm.stopPrank();
        vm.expectRevert(
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this))
        );
        vault.setTimes(_times());
    }

    function test_owner_wiresOnce() public {
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(StakeLocks.AlreadyWired.selector, address(escrow)));
        vault.wire(stranger, IDrawBeacon(stranger));
        vm.expectRevert(abi.encodeWithSelector(StakeTimes.ZeroAddress.selector, "judge"));
        vault.setSlasher(address(0), true);
        StakeVault other =
            new StakeVault(owner, guardian, address(token), registry, SLICE, _times());
        vm.expectRevert(abi.encodeWithSelector(StakeTimes.ZeroAddress.selector, "escrow"));
        other.wire(address(0), IDrawBeacon(stranger));
        vm.expectRevert(abi.encodeWithSelector(StakeTimes.ZeroAddress.selector, "beacon"));
        other.wire(stranger, IDrawBeacon(address(0)));
        vm.stopPrank();
        vm.expectRevert(
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this))
        );
        other.wire(stranger, IDrawBeacon(stranger));
        vm.expectRevert(
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this))
        );
        vault.setSlasher(stranger, true);
    }

    // ---------------------------------------------------------------- pause

    function test_pause_stopsStakesButNoExit() public {
        _open();
        vm.prank(guardian);
        vault.pause(1 days);
        uint64 until = uint64(block.timestamp + 1 days);
        vm.startPrank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(ExpiringPause.PausedUntil.selector, until));
        vault.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1, none);
        vault.unstake(drafter.addr, Role.DRAFTER, STAKE);
        vm.stopPrank();
        _slash(drafter.addr, Role.DRAFTER, 100, "F10");
        _fund(drafter.addr, address(vault), 1);
        vm.warp(until);
        vm.prank(drafter.addr);
        vault.stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1, none);
    }

    function test_pause_cannotBeChained() public {
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(ExpiringPause.NotGuardian.selector, stranger, guardian)
        );
        vault.pause(1 days);
        vm.startPrank(guardian);
        vm.expectRevert(
            abi.encodeWithSelector(ExpiringPause.PauseTooLong.selector, 3 days + 1, 3 days)
        );
        vault.pause(3 days + 1);
        uint64 start = uint64(block.timestamp);
        vault.pause(2 days);
        vault.unpause();
        vm.warp(start + 4 days - 1);
        vm.expectRevert(abi.encodeWithSelector(ExpiringPause.PauseTooSoon.selector, start + 4 days));
        vault.pause(1);
        vm.warp(start + 4 days);
        vault.pause(1);
        vm.stopPrank();
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(ExpiringPause.NotGuardian.selector, stranger, guardian)
        );
        vault.unpause();
        vm.prank(owner);
        vault.setGuardian(stranger);
        assertEq(vault.guardian(), stranger);
    }
}
