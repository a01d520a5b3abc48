// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {LaneEscrow} from "../LaneEscrow.sol";
import {StakeBook} from "../StakeBook.sol";
import {StakeVault} from "../StakeVault.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {LaneWork} from "./LaneWork.sol";
import {RefusingToken} from "./doubles/Tokens.sol";

/// @notice Faults that audits have found in escrows, stakes and disputes elsewhere, those of them that
/// no other test pins by name. AuditFaults.tree lists all of them.
contract AuditFaultsTest is LaneWork {
    function setUp() public override {
        super.setUp();
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
    }

    /// @dev Everything leaves at the moment of settlement; the last judgement still finds all of it,
    /// and what follows the last judgement still finds the rest.
    function test_Audit01_LateEvidenceFindsTheStake() public {
        uint256 settledAt = block.timestamp;
        vm.prank(verifier.addr);
        uint64 matureAt = vault.unstake(verifier.addr, Role.VERIFIER, STAKE);
        assertGt(matureAt, settledAt + vault.lockWindow());
        vm.warp(settledAt + vault.lockWindow());
        vm.prank(verifier.addr);
        vm.expectPartialRevert(StakeVault.NothingToWithdraw.selector);
        vault.withdraw(verifier.addr, Role.VERIFIER);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 5_000, "late").total, STAKE / 2);
        vm.warp(matureAt - 1);
        assertEq(_slash(verifier.addr, Role.VERIFIER, 10_000, "later").total, STAKE / 2);
    }

    /// @dev Whatever spans the owner is let to set: an exit and a thaw end after they began, and
    /// within a year.
    function testFuzz_Audit03_NoSpanOverflows(IStakeVault.Times memory t, uint32 thaw) public {
        vm.startPrank(owner);
        try vault.setTimes(t) {} catch {}
        ILaneEscrow.Parameters memory p = _parameters();
        p.thawPeriod = thaw;
        try escrow.setParameters(p) {} catch {}
        vm.stopPrank();
        vm.prank(verifier.addr);
        uint64 matureAt = vault.unstake(verifier.addr, Role.VERIFIER, 1 ether);
        assertGt(matureAt, block.timestamp + vault.lockWindow());
        assertLe(matureAt, block.timestamp + 365 days);
        Work memory work = _work();
        _reserve(work, 10 ether);
        vm.prank(client.addr);
        escrow.thaw(work.lane, 1 ether);
        uint64 thawedAt = escrow.laneState(Records.laneId(work.lane)).thawedAt;
        assertGe(thawedAt, block.timestamp + 10 minutes);
        assertLe(thawedAt, block.timestamp + 365 days);
    }

    /// @dev Two clients of the same payees: what one signed, the other never pays.
    function test_Audit10_ThePayerIsSigned() public {
        Party memory other = _party("another client");
        Work memory mine = _work();
        Work memory theirs = _work(_lane(), other.key, drafter.key, verifier.key);
        theirs.lane.client = other.addr;
        _reserve(mine, 1_000 ether);
        _reserve(theirs, 1_000 ether);
        _serve(mine, 10, 6);
        ILaneEscrow.LaneVoucher memory voucher = _voucher(mine);
        voucher.client = other.addr;
        _settleFails(theirs, voucher, LaneEscrow.ClientSignatureBad.selector);
        _settle(mine);
        assertEq(escrow.laneState(Records.laneId(theirs.lane)).reserve, 1_000 ether);
    }

    /// @dev However a stake is split among identities of one owner, the same share of it is lost.
    function testFuzz_Audit19_ManyIdentitiesLoseTheSame(uint96 whole, uint8 parts, uint16 bps)
        public
    {
        whole = uint96(bound(whole, 1 ether, 1e9 ether));
        parts = uint8(bound(parts, 1, 8));
        bps = uint16(bound(bps, 1, 10_000));
        uint256 lost;
        for (uint256 i; i < parts; ++i) {
            address one = makeAddr(string.concat("identity ", vm.toString(i)));
            _stake(one, beneficiaryV, Role.AUDITOR, whole / parts);
            lost += _slash(one, Role.AUDITOR, bps, keccak256(abi.encode(i))).total;
        }
        assertGe(lost, uint256(whole / parts) * parts * bps / 10_000, "no less for being many");
    }

    /// @dev Exits are a queue: shortened times and a slash in between change neither order nor sums.
    function test_Audit25_ExitsKeepTheirOrder() public {
        vm.startPrank(verifier.addr);
        uint64 first = vault.unstake(verifier.addr, Role.VERIFIER, 10 ether);
        vm.stopPrank();
        IStakeVault.Times memory t = _times();
        (t.unbonding, t.margin) = (16 days, 1 days);
        vm.prank(owner);
        vault.setTimes(t);
        vm.startPrank(verifier.addr);
        uint64 second = vault.unstake(verifier.addr, Role.VERIFIER, 20 ether);
        vm.warp(block.timestamp + 3 days);
        uint64 third = vault.unstake(verifier.addr, Role.VERIFIER, 40 ether);
        vm.stopPrank();
        assertEq(second, first, "no later exit overtakes an earlier one");
        assertGt(third, second);

        // More than all three: the rest comes out of what still serves.
        uint256 bps = 1;
        _slash(verifier.addr, Role.VERIFIER, bps, "small");
        uint256 taken = STAKE * bps / 10_000;
        assertEq(taken, 100 ether, "of what serves and leaves together");
        StakeBook.Exit[] memory exits = vault.exitsOf(verifier.addr, Role.VERIFIER);
        assertEq(exits.length, 3);
        for (uint256 i; i < 3; ++i) {
            assertEq(exits[i].amount, 0, "what would leave first is taken first");
        }
        assertEq(vault.activeStake(verifier.addr, Role.VERIFIER), STAKE - 100 ether);
    }

    /// @dev A token that answers false has paid nothing: the credit stays until it does.
    function test_Audit28_AnAnswerOfFalseIsNoPayment() public {
        RefusingToken refusing = new RefusingToken();
        vm.prank(owner);
        escrow.listToken(address(refusing), 1 << 32);
        Work memory work = _work();
        work.lane.token = address(refusing);
        refusing.mint(client.addr, 1_000 ether);
        vm.startPrank(client.addr);
        refusing.approve(address(escrow), type(uint256).max);
        escrow.reserve(work.lane, 1_000 ether);
        refusing.refuse(true);
        vm.expectRevert(abi.encodeWithSignature("TransferFromFailed()"));
        escrow.reserve(work.lane, 1);
        vm.stopPrank();
        _serve(work, 10, 6);
        _settle(work);
        uint256 credit = escrow.payableTo(verifier.addr, address(refusing));
        assertEq(credit, 30 ether);
        vm.expectRevert(abi.encodeWithSignature("TransferFailed()"));
        escrow.withdraw(verifier.addr, address(refusing));
        assertEq(escrow.payableTo(verifier.addr, address(refusing)), credit, "still owed");
        refusing.refuse(false);
        escrow.withdraw(verifier.addr, address(refusing));
        assertEq(refusing.balanceOf(beneficiaryV), credit);
    }
}
