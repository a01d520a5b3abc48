// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {LaneEscrow} from "../LaneEscrow.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Batches} from "../libraries/Batches.sol";
import {LaneWork} from "./LaneWork.sol";

/// @notice Who gets what when reserve or stake falls short: see LaneEscrow.shares.tree.
contract LaneEscrowSharesTest is LaneWork {
    Work internal kept;

    function setUp() public override {
        super.setUp();
    }

    function _stakes(uint256 ofDrafter, uint256 ofVerifier) internal {
        if (ofDrafter != 0) _stake(drafter.addr, beneficiaryD, Role.DRAFTER, ofDrafter);
        if (ofVerifier != 0) _stake(verifier.addr, beneficiaryV, Role.VERIFIER, ofVerifier);
    }

    /// @dev Dues 100 ether to D, 300 ether to V; 408 ether with the fee.
    function _served(uint256 reserve) internal returns (Work memory work) {
        work = _work();
        _reserve(work, reserve);
        _serve(work, 100, 50);
    }

    function _assertPaid(Work memory work, uint256 toDrafter, uint256 toVerifier) internal view {
        (uint256 d, uint256 v) = _paid(work);
        assertEq(d, toDrafter, "paid to D");
        assertEq(v, toVerifier, "paid to V");
        _assertConserved();
    }

    /// @dev Faults 16 and 18: a voucher larger than the reserve, and one used up by less than it says.
    function test_fault16_fault18_partIsPaidAndTheRestStaysOwed() public {
        _stakes(STAKE, STAKE);
        Work memory work = _served(204 ether);
        _settle(work);
        _assertPaid(work, 50 ether, 150 ether);
        _reserve(work, 102 ether);
        _settle(work);
        _assertPaid(work, 75 ether, 225 ether);
        _reserve(work, 1000 ether);
        _settle(work);
        _assertPaid(work, 100 ether, 300 ether);
        assertEq(beacon.count(), 3, "each payment is drawn");
    }

    /// @dev Coming again does not eat into the other's part.
    function test_shares_repeatedSettlingGainsNothing() public {
        // D has no stake, so its part waits; V comes again and again.
        _stakes(0, STAKE);
        Work memory work = _served(204 ether);
        _settle(work);
        _assertPaid(work, 0, 150 ether);
        _settleFails(work, LaneEscrow.NothingNew.selector);
        _stakes(STAKE, 0);
        _settle(work);
        _assertPaid(work, 50 ether, 150 ether);
    }

    /// @dev Leaving D's signature out does not either.
    function test_shares_soloGainsNothing() public {
        _stakes(STAKE, STAKE);
        Work memory work = _served(204 ether);
        vm.prank(verifier.addr);
        vm.warp(escrow.noticeSolo(work.lane));
        work.bySolo = true;
        _settle(work);
        _assertPaid(work, 0, 150 ether);
        work.bySolo = false;
        _settle(work);
        _assertPaid(work, 50 ether, 150 ether);
    }

    /// @dev Fault 9: the payer drains the reserve through a verifier of its own.
    function test_fault9_payerCannotDrainThroughItsOwnVerifier() public {
        _stakes(STAKE, STAKE);
        Work memory work = _served(408 ether);
        kept = work;
        Work memory signed = kept;
        // C and V sign one another the whole reserve; D has signed nothing of it.
        work.dueVerifier = 400 ether;
        work.dueDrafter = 0;
        work.leaves = 9;
        work.bySolo = true;
        _settleFails(work, LaneEscrow.SoloWithoutNotice.selector);
        // With notice given, D has a thaw period to settle what it holds.
        vm.prank(verifier.addr);
        escrow.noticeSolo(work.lane);
        _settle(signed);
        _assertPaid(signed, 100 ether, 300 ether);
    }

    function test_shares_eachByItsOwnStake() public {
        _stakes(100 ether, STAKE); // backs 20 ether
        Work memory work = _served(10_000 ether);
        _settle(work);
        _assertPaid(work, 20 ether, 300 ether);
        _settleFails(work, LaneEscrow.NothingNew.selector);
        vm.warp(block.timestamp + vault.lockWindow());
        beacon.drawAll();
        _settle(work);
        _assertPaid(work, 40 ether, 300 ether);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _settle(work);
        _assertPaid(work, 100 ether, 300 ether);
    }

    /// @dev Fault 23: stake that is asked out between the check and the use.
    function test_fault23_unbondingStakeBacksNothing() public {
        _stakes(STAKE, STAKE);
        Work memory work = _served(10_000 ether);
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, STAKE);
        _settle(work);
        _assertPaid(work, 100 ether, 0);
    }

    function test_shares_payeeWithoutAccountIsOwed() public {
        Work memory work = _served(10_000 ether);
        _settle(work); // the root stands, nobody is paid
        _assertPaid(work, 0, 0);
        assertEq(beacon.count(), 1);
        _stakes(STAKE, STAKE);
        _settle(work);
        _assertPaid(work, 100 ether, 300 ether);
    }

    function test_shares_olderVoucherOwesNothingBack() public {
        _stakes(STAKE, STAKE);
        Work memory work = _served(10_000 ether);
        _settle(work);
        // A later voucher that owes D less than it has: no refund, and V gets its own.
        _serve(work, 100, 50);
        work.dueDrafter = 10 ether;
        _settle(work);
        _assertPaid(work, 100 ether, 600 ether);
    }

    function test_shares_otherTokensLockByTheirPrice() public {
        _stakes(STAKE, STAKE);
        vm.prank(owner);
        escrow.listToken(address(token), 1 << 31); // half a stake unit
        Work memory work = _served(10_000 ether);
        _settle(work);
        assertEq(vault.stakeOf(drafter.addr, Role.DRAFTER).locked, 250 ether);
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, 1000 ether);
    }

    // ------------------------------------------------------------------ what stakes answer for

    /// @dev A verdict that accepts what it should not brings D's pay too: V's stake is held for both,
    /// and where it does not reach, V waits and D does not.
    function test_cover_VsStakeAnswersForDsPay() public {
        _stakes(STAKE, 1_500 ether); // backs 300 ether
        Work memory work = _served(10_000 ether);
        _settle(work);
        _assertPaid(work, 100 ether, 200 ether);
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, 1_500 ether);
        _settleFails(work, LaneEscrow.NothingNew.selector);
        vm.warp(block.timestamp + vault.lockWindow());
        beacon.drawAll();
        _settle(work);
        _assertPaid(work, 100 ether, 300 ether);
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, 500 ether, "D's part once");
    }

    function test_cover_DIsPaidWhateverVHas() public {
        _stakes(STAKE, 300 ether); // backs 60 ether of D's 100
        Work memory work = _served(10_000 ether);
        _settle(work);
        _assertPaid(work, 100 ether, 0);
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, 300 ether);
        assertEq(vault.stakeOf(drafter.addr, Role.DRAFTER).locked, 500 ether);
    }

    function _expectCover(Work memory work, uint256 cover, uint256 toD, uint256 toV) private {
        Batches.Entry memory entry;
        (entry.valueDrafter, entry.valueVerifier) = (uint96(toD), uint96(toV));
        entry.coverage = uint24(cover);
        entry.flags = Batches.DRAWABLE | (work.bySolo ? 0 : Batches.COUNTED);
        vm.expectEmit(address(escrow));
        emit ILaneEscrow.LaneSettled(
            keccak256(abi.encode(work.lane)), _root(work), Batches.figures(entry), toD | toV << 128
        );
    }

    /// @dev Protocol §8: the chance of a draw follows the thinner of two stakes, V's against all that
    /// was asked for, D's against its own part.
    function test_cover_TheThinnerStakeSetsTheDraw() public {
        _stakes(1_200 ether, STAKE);
        Work memory work = _served(10_000 ether);
        _expectCover(work, 1_200 * 256 / 100, 100 ether, 300 ether);
        _settle(work);
    }

    function test_cover_VsMayBeTheThinnerOne() public {
        _stakes(STAKE, 40_000 ether);
        Work memory work = _served(10_000 ether);
        _expectCover(work, 40_000 * 256 / 400, 100 ether, 300 ether);
        _settle(work);
    }

    /// @dev What waits for D's stake is drawn for certain: it can be paid later, without another draw.
    function test_cover_DWithoutStakeIsDrawnForCertain() public {
        _stakes(0, STAKE);
        Work memory work = _served(10_000 ether);
        _expectCover(work, 0, 0, 300 ether);
        _settle(work);
    }

    function test_cover_DsStakeIsNotAskedWhereDIsOwedNothing() public {
        _stakes(0, STAKE);
        Work memory work = _served(10_000 ether);
        vm.prank(verifier.addr);
        vm.warp(escrow.noticeSolo(work.lane));
        work.bySolo = true;
        _expectCover(work, STAKE * 256 / 300 ether, 0, 300 ether);
        _settle(work);
    }

    /// @dev Audit of this contract: a V with one unit of stake settles and is paid nothing, has its draw
    /// with nothing to lose, stakes when the evidence is no more, and is paid by the same voucher.
    function test_cover_WhatIsPaidLaterIsDrawnThen() public {
        _stakes(STAKE, 1);
        Work memory work = _served(10_000 ether);
        _expectCover(work, 0, 100 ether, 0);
        _settle(work);
        vm.warp(block.timestamp + 30 days);
        beacon.drawAll();
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 40_000 ether);
        Batches.Entry memory entry;
        entry.valueVerifier = 300 ether;
        entry.coverage = uint24(uint256(40_000 ether + 1) * 256 / 300 ether);
        entry.flags = Batches.DRAWABLE | Batches.COUNTED;
        vm.expectEmit(address(escrow));
        emit ILaneEscrow.LaneSettled(
            keccak256(abi.encode(work.lane)),
            _root(work),
            Batches.figures(entry),
            100 ether | uint256(300 ether) << 128
        );
        assertEq(_settle(work), 2);
        assertEq(beacon.count(), 2);
    }

    /// @dev Each payment is drawn, for certain where the payee has just what it takes; so D could have V
    /// open without end, a unit of stake and of pay at a time.
    function test_cover_DrawsAreNotBoughtWithDust() public {
        _stakes(0, STAKE);
        Work memory work = _served(10_000 ether);
        _settle(work);
        assertEq(beacon.count(), 1);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 5);
        _settleFails(work, LaneEscrow.NothingNew.selector);
        // 400 ether are due in all: a thirty-second of that is 12.5.
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 62.5 ether - 10);
        _settleFails(work, LaneEscrow.NothingNew.selector);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 5);
        _settle(work);
        _assertPaid(work, 12.5 ether, 300 ether);
        assertEq(beacon.count(), 2);
        // The rest, however small, is paid in one.
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 400 ether);
        _settle(work);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 100 ether);
        _settle(work);
        _assertPaid(work, 100 ether, 300 ether);
        assertEq(beacon.count(), 4);
    }

    /// @dev What has been asked out may leave in the next block.
    function test_cover_LeavingStakeCoversNothing() public {
        _stakes(STAKE, STAKE);
        Work memory work = _served(10_000 ether);
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, STAKE - 40_000 ether);
        _expectCover(work, 40_000 * 256 / 400, 100 ether, 300 ether);
        _settle(work);
    }

    /// @dev All that is paid is covered five times while locks hold, so that a certain draw takes more
    /// than twice of it: half of the stake.
    function testFuzz_cover_WhatIsPaidIsCovered(uint96 ofVerifier, uint64 forDrafter, uint64 forV)
        public
    {
        uint256 stake_ = bound(ofVerifier, 1, STAKE);
        _stakes(STAKE, stake_);
        Work memory work = _work();
        _reserve(work, type(uint80).max);
        _serveAt(work, 100, 100, forDrafter, forV);
        _settle(work);
        (uint256 d, uint256 v) = _paid(work);
        assertTrue(v == 0 || 5 * (d + v) <= stake_);
    }

    /// @dev No payout above what was signed, whatever reserve, stake and prices; D never depends on V;
    /// what is locked covers what is paid.
    function testFuzz_shares(
        uint96 reserve,
        uint96 stakeDrafter,
        uint96 stakeVerifier,
        uint32 output,
        uint32 accepted,
        uint64 priceDrafter,
        uint64 priceVerifier
    ) public {
        uint256 sD = bound(stakeDrafter, 1, type(uint88).max);
        uint256 sV = bound(stakeVerifier, 1, type(uint88).max);
        _stakes(sD, sV);
        Work memory work = _work();
        _reserve(work, bound(reserve, 1, type(uint88).max));
        output = uint32(bound(output, 1, type(uint32).max));
        _serveAt(work, output, uint32(bound(accepted, 0, output)), priceDrafter, priceVerifier);
        uint256 held = escrow.laneState(keccak256(abi.encode(work.lane))).reserve;
        _settle(work);
        (uint256 d, uint256 v) = _paid(work);
        assertLe(d, work.dueDrafter);
        assertLe(v, work.dueVerifier);
        assertLe(d, sD / 5);
        uint256 answered = d < sV / 5 ? d : sV / 5;
        assertLe(v, sV / 5 - answered);
        assertEq(vault.stakeOf(drafter.addr, Role.DRAFTER).locked, d * 5);
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, (v + answered) * 5);
        uint256 fee = ((d + v) * 200 + 9_999) / 10_000;
        assertEq(escrow.laneState(keccak256(abi.encode(work.lane))).reserve, held - d - v - fee);
        _assertConserved();
    }
}
