// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExpiringPause} from "../ExpiringPause.sol";
import {LaneEscrow} from "../LaneEscrow.sol";
import {LaneReserves} from "../LaneReserves.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {LaneWork} from "./LaneWork.sol";
import {FeeOnTransferToken, HookToken} from "./doubles/Tokens.sol";

/// @notice Reserves, thaws, payouts, fees and what the owner may change: see LaneEscrow.clients.tree.
contract LaneEscrowClientsTest is LaneWork {
    Work internal none;

    function _id() internal view returns (bytes32) {
        return Records.laneId(_lane());
    }

    function _reserved(uint256 amount) internal {
        _reserve(_work(), amount);
    }

    // ---------------------------------------------------------------- reserve

    function test_reserve_opensTheLane() public {
        _fund(client.addr, address(escrow), 100);
        vm.expectEmit();
        emit ILaneEscrow.LaneOpened(_id(), _lane(), 200);
        vm.expectEmit();
        emit ILaneEscrow.Reserved(_id(), client.addr, 100);
        vm.prank(client.addr);
        escrow.reserve(_lane(), 100);
        ILaneEscrow.LaneState memory lane = escrow.laneState(_id());
        assertEq(lane.reserve, 100);
        assertEq(lane.epoch, 0);
        assertTrue(lane.position != 0);
        _assertConserved();
    }

    function test_reserve_anyoneMayPayButTheClientOwns() public {
        _fund(stranger, address(escrow), 100);
        vm.prank(stranger);
        escrow.reserve(_lane(), 100);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.NotClient.selector, stranger, client.addr)
        );
        escrow.thaw(_lane(), 100);
        vm.prank(client.addr);
        escrow.thaw(_lane(), 100);
    }

    /// @dev Fault 17: an empty call by a stranger opens nothing and restarts nothing.
    function test_fault17_zeroReserveAndZeroThawAreRefused() public {
        vm.expectRevert(LaneReserves.ZeroAmount.selector);
        escrow.reserve(_lane(), 0);
        _reserved(10);
        vm.prank(client.addr);
        vm.expectRevert(LaneReserves.ZeroAmount.selector);
        escrow.thaw(_lane(), 0);
    }

    function test_reserve_revertWhen_tokenNotListed() public {
        Records.Lane memory lane = _lane();
        lane.token = stranger;
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.TokenNotListed.selector, stranger));
        escrow.reserve(lane, 1);
        vm.prank(owner);
        escrow.delistToken(address(token));
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.TokenNotListed.selector, address(token))
        );
        escrow.reserve(_lane(), 1);
    }

    function test_reserve_revertWhen_partyMissing() public {
        Records.Lane memory lane = _lane();
        lane.client = address(0);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ZeroAddress.selector, "client"));
        escrow.reserve(lane, 1);
        lane = _lane();
        lane.drafter = address(0);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ZeroAddress.selector, "drafter"));
        escrow.reserve(lane, 1);
        lane = _lane();
        lane.verifier = address(0);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ZeroAddress.selector, "verifier"));
        escrow.reserve(lane, 1);
    }

    function test_reserve_revertWhen_claimIsNotTheDrafters() public {
        ledger.publish("other", verifier.addr);
        Records.Lane memory lane = _lane();
        lane.claimId = "other";
        vm.expectRevert(
            abi.encodeWithSelector(
                LaneReserves.ClaimNotOf.selector, bytes32("other"), drafter.addr, verifier.addr
            )
        );
        escrow.reserve(lane, 1);
    }

    function test_fault20_feeOnTransferIsRefused() public {
        FeeOnTransferToken taxed = new FeeOnTransferToken();
        vm.prank(owner);
        escrow.listToken(address(taxed), 1 << 32);
        taxed.mint(client.addr, 1000);
        Records.Lane memory lane = _lane();
        lane.token = address(taxed);
        vm.startPrank(client.addr);
        taxed.approve(address(escrow), 1000);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ShortDeposit.selector, 1000, 990));
        escrow.reserve(lane, 1000);
    }

    function test_fault20_hooksCannotReenter() public {
        HookToken hook = new HookToken();
        vm.prank(owner);
        escrow.listToken(address(hook), 1 << 32);
        Records.Lane memory lane = _lane();
        lane.token = address(hook);
        hook.mint(client.addr, 1000);
        vm.startPrank(client.addr);
        hook.approve(address(escrow), 1000);
        hook.arm(address(escrow), abi.encodeCall(ILaneEscrow.reserve, (lane, 1)));
        escrow.reserve(lane, 500);
        assertFalse(hook.succeeded());
        assertEq(bytes4(hook.answer()), bytes4(keccak256("ReentrancyGuardReentrantCall()")));
        escrow.thaw(lane, 500);
        vm.warp(block.timestamp + 1 days);
        hook.arm(
            address(escrow), abi.encodeCall(ILaneEscrow.withdraw, (drafter.addr, address(hook)))
        );
        escrow.collectThawed(lane, client.addr);
        assertEq(bytes4(hook.answer()), bytes4(keccak256("ReentrancyGuardReentrantCall()")));
        assertEq(escrow.accounting(address(hook)).reserves, 0);
    }

    function test_fault21_failingPermitDoesNotBlockAReserve() public {
        _fund(client.addr, address(escrow), 10);
        vm.prank(client.addr);
        escrow.reserveWithPermit(_lane(), 10, block.timestamp, 27, 0, 0);
        assertEq(escrow.laneState(_id()).reserve, 10);
    }

    // ---------------------------------------------------------------- thaw

    function test_thaw_collectedAfterThePeriod() public {
        _reserved(100);
        vm.startPrank(client.addr);
        escrow.thaw(_lane(), 60);
        uint64 thawedAt = escrow.laneState(_id()).thawedAt;
        assertEq(thawedAt, block.timestamp + 1 days);
        vm.warp(thawedAt - 1);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.StillThawing.selector, thawedAt, block.timestamp)
        );
        escrow.collectThawed(_lane(), client.addr);
        vm.warp(thawedAt);
        assertEq(escrow.collectThawed(_lane(), stranger), 60);
        assertEq(token.balanceOf(stranger), 60);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.NothingThaws.selector, _id()));
        escrow.collectThawed(_lane(), client.addr);
        vm.stopPrank();
        assertEq(escrow.laneState(_id()).reserve, 40);
        _assertConserved();
    }

    function test_thaw_addingRestartsTheClock() public {
        _reserved(100);
        vm.startPrank(client.addr);
        escrow.thaw(_lane(), 60);
        vm.warp(block.timestamp + 23 hours);
        escrow.thaw(_lane(), 10);
        vm.warp(block.timestamp + 23 hours);
        vm.expectRevert();
        escrow.collectThawed(_lane(), client.addr);
        vm.warp(block.timestamp + 1 hours);
        assertEq(escrow.collectThawed(_lane(), client.addr), 70);
    }

    function test_thaw_revertWhen_moreThanReserved() public {
        _reserved(100);
        vm.startPrank(client.addr);
        escrow.thaw(_lane(), 60);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.NotEnoughReserve.selector, 101, 100));
        escrow.thaw(_lane(), 41);
    }

    function test_thaw_cancelled() public {
        _reserved(100);
        vm.prank(client.addr);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.NothingThaws.selector, _id()));
        escrow.cancelThaw(_lane());
        vm.prank(client.addr);
        escrow.thaw(_lane(), 60);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.NotClient.selector, stranger, client.addr)
        );
        escrow.cancelThaw(_lane());
        vm.prank(client.addr);
        escrow.cancelThaw(_lane());
        assertEq(escrow.laneState(_id()).thawing, 0);
        vm.warp(block.timestamp + 2 days);
        vm.prank(client.addr);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.NothingThaws.selector, _id()));
        escrow.collectThawed(_lane(), client.addr);
    }

    /// @dev What thaws stays collectable, and is not paid out twice.
    function test_thaw_vouchersComeFirst() public {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        Work memory work = _work();
        _reserve(work, 510 ether);
        vm.prank(client.addr);
        escrow.thaw(_lane(), 510 ether);
        _serve(work, 100, 50);
        _settle(work);
        vm.warp(block.timestamp + 1 days);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.NotClient.selector, stranger, client.addr)
        );
        escrow.collectThawed(_lane(), stranger);
        vm.startPrank(client.addr);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ZeroAddress.selector, "to"));
        escrow.collectThawed(_lane(), address(0));
        assertEq(escrow.collectThawed(_lane(), client.addr), 510 ether - 408 ether);
        vm.stopPrank();
        _assertConserved();
    }

    // ---------------------------------------------------------------- payouts and fees

    /// @dev Fault 28: pushed payments. Payees pull, to the beneficiary only.
    function test_fault28_payeesPullToTheBeneficiary() public {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        Work memory work = _work();
        _reserve(work, 510 ether);
        _serve(work, 100, 50);
        _settle(work);
        assertEq(escrow.payableTo(drafter.addr, address(token)), 100 ether);
        assertEq(token.balanceOf(beneficiaryD), 0);
        vm.prank(stranger);
        assertEq(escrow.withdraw(drafter.addr, address(token)), 100 ether);
        assertEq(token.balanceOf(beneficiaryD), 100 ether);
        vm.expectRevert(
            abi.encodeWithSelector(
                LaneReserves.NothingPayable.selector, drafter.addr, address(token)
            )
        );
        escrow.withdraw(drafter.addr, address(token));
        _assertConserved();
    }

    function test_fees_onlyForSpendersAndOnlyWhatIsHeld() public {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        Work memory work = _work();
        _reserve(work, 510 ether);
        _serve(work, 100, 50);
        _settle(work);
        assertEq(escrow.accounting(address(token)).fees, 8 ether);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.NotFeeSpender.selector, address(this)));
        escrow.spendFees(address(token), stranger, 1);
        vm.prank(owner);
        escrow.setFeeSpender(address(this), true);
        assertEq(escrow.spendFees(address(token), stranger, 5 ether), 5 ether);
        assertEq(escrow.spendFees(address(token), stranger, 5 ether), 3 ether);
        assertEq(escrow.spendFees(address(token), stranger, 5 ether), 0);
        escrow.withdraw(stranger, address(token));
        assertEq(token.balanceOf(stranger), 8 ether);
        _assertConserved();
    }

    // ---------------------------------------------------------------- epochs and notices

    function test_epoch_onlyAPartyOpensOne() public {
        _reserved(100);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.NotParty.selector, stranger, _id()));
        escrow.openEpoch(_lane());
        vm.prank(client.addr);
        assertEq(escrow.openEpoch(_lane()), 1);
        vm.prank(drafter.addr);
        assertEq(escrow.openEpoch(_lane()), 2);
        vm.prank(verifier.addr);
        assertEq(escrow.openEpoch(_lane()), 3);
        assertEq(escrow.laneState(_id()).epoch, 3);
        assertTrue(escrow.pastPosition(_id(), 2) != 0);
        Records.Lane memory unopened = _lane();
        unopened.claimId = 0;
        vm.prank(client.addr);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.NotOpened.selector, Records.laneId(unopened))
        );
        escrow.openEpoch(unopened);
    }

    function test_solo_onlyTheVerifierGivesNotice() public {
        _reserved(100);
        vm.prank(drafter.addr);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.NotVerifier.selector, drafter.addr, verifier.addr)
        );
        escrow.noticeSolo(_lane());
        vm.prank(verifier.addr);
        assertEq(escrow.noticeSolo(_lane()), block.timestamp + 1 days);
        vm.prank(drafter.addr);
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.NotVerifier.selector, drafter.addr, verifier.addr)
        );
        escrow.endSolo(_lane());
        vm.prank(verifier.addr);
        escrow.endSolo(_lane());
        assertEq(escrow.laneState(_id()).soloFrom, 0);
    }

    // ---------------------------------------------------------------- owner

    function test_owner_parametersAreBounded() public {
        ILaneEscrow.Parameters memory p = _parameters();
        vm.startPrank(owner);
        p.feeBps = 1001;
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.BadParameter.selector, "feeBps", 1001, 0, 1000)
        );
        escrow.setParameters(p);
        p = _parameters();
        p.lockFactor = 0;
        vm.expectRevert(
            abi.encodeWithSelector(LaneReserves.BadParameter.selector, "lockFactor", 0, 1, 100)
        );
        escrow.setParameters(p);
        // Fault 3: a thaw that overflows into the past, or ends before a settlement can land.
        p = _parameters();
        p.thawPeriod = type(uint32).max;
        vm.expectRevert(
            abi.encodeWithSelector(
                LaneReserves.BadParameter.selector,
                "thawPeriod",
                type(uint32).max,
                10 minutes,
                365 days
            )
        );
        escrow.setParameters(p);
        p.thawPeriod = 10 minutes - 1;
        vm.expectRevert(
            abi.encodeWithSelector(
                LaneReserves.BadParameter.selector,
                "thawPeriod",
                10 minutes - 1,
                10 minutes,
                365 days
            )
        );
        escrow.setParameters(p);
        vm.expectRevert(
            abi.encodeWithSelector(
                LaneReserves.BadParameter.selector, "stakePriceQ32", 0, 1, uint256(1) << 96
            )
        );
        escrow.listToken(address(token), 0);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.AlreadyWired.selector, address(ledger)));
        escrow.wire(IAlphaLedger(stranger), IDrawBeacon(stranger));
        vm.stopPrank();
    }

    function test_owner_aloneChangesAnything() public {
        bytes memory denied =
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this));
        vm.expectRevert(denied);
        escrow.setParameters(_parameters());
        vm.expectRevert(denied);
        escrow.listToken(stranger, 1);
        vm.expectRevert(denied);
        escrow.delistToken(address(token));
        vm.expectRevert(denied);
        escrow.setFeeSpender(stranger, true);
        vm.expectRevert(denied);
        escrow.wire(IAlphaLedger(stranger), IDrawBeacon(stranger));
    }

    function test_reserve_revertWhen_notWired() public {
        LaneEscrow other = new LaneEscrow(owner, guardian, vault, _parameters());
        vm.prank(owner);
        other.listToken(address(token), 1 << 32);
        vm.expectRevert(LaneReserves.NotWired.selector);
        other.reserve(_lane(), 1);
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ZeroAddress.selector, "ledger"));
        other.wire(IAlphaLedger(address(0)), IDrawBeacon(stranger));
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.ZeroAddress.selector, "beacon"));
        other.wire(IAlphaLedger(stranger), IDrawBeacon(address(0)));
    }

    function test_inStakeUnits_byThePrice() public {
        vm.prank(owner);
        escrow.listToken(stranger, 3 << 31);
        assertEq(escrow.inStakeUnits(stranger, 101), 151);
        assertEq(escrow.inStakeUnits(owner, 101), 0);
    }

    // ---------------------------------------------------------------- pause

    function test_pause_stopsReservesButNoPayout() public {
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        Work memory work = _work();
        _reserve(work, 1000 ether);
        vm.prank(guardian);
        escrow.pause(3 days);
        vm.expectRevert(
            abi.encodeWithSelector(ExpiringPause.PausedUntil.selector, block.timestamp + 3 days)
        );
        escrow.reserve(_lane(), 1);
        _serve(work, 100, 50);
        _settle(work);
        escrow.withdraw(verifier.addr, address(token));
        vm.prank(client.addr);
        escrow.thaw(_lane(), 1);
        vm.warp(block.timestamp + 1 days);
        vm.prank(client.addr);
        escrow.collectThawed(_lane(), client.addr);
    }
}
