// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {LaneEscrow} from "../LaneEscrow.sol";
import {LaneReserves} from "../LaneReserves.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Batches} from "../libraries/Batches.sol";
import {Records} from "../libraries/Records.sol";
import {LaneWork} from "./LaneWork.sol";
import {ContractClient, GasBurningClient, ReturnBombClient} from "./doubles/Clients.sol";

/// @notice Which vouchers count, and what they leave behind: see LaneEscrow.settle.tree.
contract LaneEscrowSettleTest is LaneWork {
    Work internal kept; // a voucher that the test comes back to

    function setUp() public override {
        super.setUp();
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
    }

    function _opened(uint256 amount) internal returns (Work memory work) {
        work = _work();
        _reserve(work, amount);
    }

    function _id(Work memory work) internal pure returns (bytes32) {
        return Records.laneId(work.lane);
    }

    function _assertPaid(Work memory work, uint256 toDrafter, uint256 toVerifier) internal view {
        (uint256 d, uint256 v) = _paid(work);
        assertEq(d, toDrafter, "paid to D");
        assertEq(v, toVerifier, "paid to V");
        _assertConserved();
    }

    function _counted(Work memory work) internal view returns (uint256[9] memory) {
        return ledger.counts(work.lane.claimId, work.lane.verifier);
    }

    // ---------------------------------------------------------------- the plain way

    function test_settle_paysTheDeltaLocksAndCounts() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        assertEq(_settle(work), 1);
        _assertPaid(work, 120 ether, 300 ether);
        assertEq(escrow.payableTo(drafter.addr, address(token)), 120 ether);
        assertEq(escrow.payableTo(verifier.addr, address(token)), 300 ether);
        assertEq(vault.stakeOf(drafter.addr, Role.DRAFTER).locked, 600 ether);
        // For D's pay as well.
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, 2100 ether);
        assertEq(escrow.laneState(_id(work)).reserve, 10_000 ether - 420 ether - 8.4 ether);
        assertEq(escrow.accounting(address(token)).fees, 8.4 ether);
        assertEq(_counted(work)[0], 100 | (60 << 64));

        _serve(work, 50, 50);
        assertEq(_settle(work), 2);
        _assertPaid(work, 220 ether, 450 ether);
        assertEq(_counted(work)[0], 150 | (110 << 64));
        assertEq(_counted(work)[5], 110);
    }

    function test_settle_registersTheEntry() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        bytes32 root = _root(work);
        // Coverage: 1e6 ether of stake × 256 ÷ 420 ether.
        Batches.Entry[] memory entries = new Batches.Entry[](1);
        entries[0] = Batches.Entry({
            lane: _id(work),
            root: root,
            valueDrafter: 120 ether,
            valueVerifier: 300 ether,
            epoch: 0,
            coverage: uint24(uint256(1_000_000 * 256) / 420),
            flags: Batches.COUNTED | Batches.DRAWABLE
        });
        vm.expectEmit(address(escrow));
        emit ILaneEscrow.LaneSettled(
            _id(work), root, Batches.figures(entries[0]), 120 ether | (uint256(300 ether) << 128)
        );
        vm.expectEmit(address(escrow));
        emit ILaneEscrow.BatchSettled(1, address(token), Batches.hash(entries), 1);
        _settle(work);
        (bytes32 hash, uint32 count, address of_, uint64 slice) = beacon.batches(0);
        assertEq(hash, Batches.hash(entries));
        assertEq(count, 1);
        assertEq(of_, address(token));
        assertEq(slice, vault.sliceOf(block.timestamp));
    }

    /// @dev Fault 10: the same voucher twice, an older one after a newer one.
    function test_fault10_nothingIsCollectedTwice() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        ILaneEscrow.LaneVoucher memory first = _voucher(work);
        _settle(work);
        _settleFails(work, first, LaneEscrow.PositionStale.selector);
        _settleFails(work, LaneEscrow.NothingNew.selector);
        assertEq(beacon.count(), 1);
    }

    function test_settle_revertWhen_laneUnknown() public {
        Work memory work = _work();
        _serve(work, 1, 1);
        _settleFails(work, LaneEscrow.LaneUnknown.selector);
    }

    function test_settle_revertWhen_positionIsTheSendersOwn() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        _settle(work);
        _serve(work, 100, 60);
        work.position.paid = 0; // as if nothing had been paid yet
        _settleFails(work, LaneEscrow.PositionStale.selector);
    }

    function test_settle_revertWhen_tokenNotListedOrTooManyLanes() public {
        ILaneEscrow.Group[] memory groups = new ILaneEscrow.Group[](2);
        vm.expectRevert(abi.encodeWithSelector(LaneReserves.TokenNotListed.selector, stranger));
        escrow.settle(stranger, groups);
        groups[0].lanes = new ILaneEscrow.LaneVoucher[](60);
        groups[1].lanes = new ILaneEscrow.LaneVoucher[](5);
        vm.expectRevert(abi.encodeWithSelector(LaneEscrow.TooManyLanes.selector, 64));
        escrow.settle(address(token), groups);
        groups = new ILaneEscrow.Group[](65);
        vm.expectRevert(abi.encodeWithSelector(LaneEscrow.TooManyLanes.selector, 64));
        escrow.settle(address(token), groups);
        vm.expectRevert(abi.encodeWithSelector(LaneEscrow.NothingSettled.selector, bytes4(0)));
        escrow.settle(address(token), new ILaneEscrow.Group[](0));
    }

    // ---------------------------------------------------------------- counts and roots

    function test_settle_revertWhen_countsAreMalformed() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        work.sums[5] = 101; // more accepted than proposed
        _settleFails(work, LaneEscrow.SumsMalformed.selector);
        work.sums[5] = 1 << 63;
        _settleFails(work, LaneEscrow.SumsMalformed.selector);
        work.sums[5] = 60;
        work.sums[0] |= 1 << 128; // a lane that does not exist
        _settleFails(work, LaneEscrow.SumsMalformed.selector);
        work.sums[0] = (1 << 40) | (60 << 64); // more than any chain of rounds could make
        _settleFails(work, LaneEscrow.SumsMalformed.selector);
    }

    function test_settle_revertWhen_countsFall() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        _settle(work);
        _serve(work, 100, 60);
        work.sums[1] = 99;
        _settleFails(work, LaneEscrow.SumsMalformed.selector);
    }

    /// @dev Fault 13, as far as it is the escrow's: the empty tree.
    function test_fault13_emptyTreeIsNoTree() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        work.leaves = 0;
        _settleFails(work, LaneEscrow.TreeEmpty.selector);
    }

    function test_settle_largerTreeOnTheSameBaseSupersedes() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        _settle(work);
        bytes32 base = work.position.headBase;
        _serve(work, 100, 60);
        work.link = ILaneEscrow.Link.REPLACES;
        work.leaves = 4;
        _settleFails(work, LaneEscrow.LeavesShrank.selector);
        work.leaves = 5;
        vm.recordLogs();
        _settle(work);
        assertEq(work.position.headBase, base);
        assertEq(work.position.headRoot, _root(work));
        assertEq(work.position.terms >> 48, 5);
        _assertPaid(work, 240 ether, 600 ether);
        assertEq(beacon.count(), 2);
        _serve(work, 10, 6);
        _settle(work);
    }

    // ---------------------------------------------------------------- signatures

    function test_settle_revertWhen_aSignatureIsMissingOrForged() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        ILaneEscrow.LaneVoucher memory voucher = _voucher(work);
        bytes memory signature = voucher.clientSignature;
        voucher.clientSignature = "";
        _settleFails(work, voucher, LaneEscrow.ClientSignatureBad.selector);
        signature[3] ^= 0x01;
        voucher.clientSignature = signature;
        _settleFails(work, voucher, LaneEscrow.ClientSignatureBad.selector);
        voucher = _voucher(work);
        voucher.verifierR = 0;
        _settleFails(work, voucher, LaneEscrow.VerifierSignatureBad.selector);
        voucher = _voucher(work);
        (voucher.verifierR, voucher.verifierVS) = (voucher.drafterR, voucher.drafterVS);
        _settleFails(work, voucher, LaneEscrow.VerifierSignatureBad.selector);
        voucher = _voucher(work);
        (voucher.drafterR, voucher.drafterVS) = (voucher.verifierR, voucher.verifierVS);
        _settleFails(work, voucher, LaneEscrow.DrafterSignatureBad.selector);
    }

    function test_settle_senderNeedsNoSignature() public {
        Work memory work = _opened(10_000 ether);
        for (uint256 i; i < 3; ++i) {
            _serve(work, 10, 6);
            ILaneEscrow.LaneVoucher memory voucher = _voucher(work);
            if (i == 0) voucher.clientSignature = "";
            if (i == 1) (voucher.drafterR, voucher.drafterVS) = (0, 0);
            if (i == 2) (voucher.verifierR, voucher.verifierVS) = (0, 0);
            vm.prank(i == 0 ? client.addr : i == 1 ? drafter.addr : verifier.addr);
            _settle(work, voucher);
            _assertPaid(work, 12 ether * (i + 1), 30 ether * (i + 1));
        }
    }

    /// @dev Faults 11 and 12: every field is under the signatures; so are chain and contract.
    function test_fault11_everyFieldIsSigned() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        ILaneEscrow.LaneVoucher memory v = _voucher(work);
        v.due += 1;
        _settleFails(work, v, LaneEscrow.ClientSignatureBad.selector);
        v = _voucher(work);
        v.due += 1 << 128;
        _settleFails(work, v, LaneEscrow.ClientSignatureBad.selector);
        v = _voucher(work);
        v.top = bytes32(uint256(1));
        _settleFails(work, v, LaneEscrow.ClientSignatureBad.selector);
        v = _voucher(work);
        v.leafCount += 1;
        _settleFails(work, v, LaneEscrow.ClientSignatureBad.selector);
        for (uint256 i; i < 9; ++i) {
            v = _voucher(work);
            uint256[9] memory sums;
            for (uint256 j; j < 9; ++j) {
                sums[j] = work.sums[j];
            }
            // Proposed and accepted together, so that the counts stay well-formed.
            sums[i] += 1;
            if (i > 4) sums[i - 4] += 1;
            v.sums = sums;
            _settleFails(work, v, LaneEscrow.ClientSignatureBad.selector);
        }
    }

    function test_fault12_chainAndContractAreSigned() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        ILaneEscrow.LaneVoucher memory voucher = _voucher(work);
        bytes32 before = escrow.domainSeparator();
        vm.chainId(block.chainid + 1); // a fork: the separator follows
        assertTrue(escrow.domainSeparator() != before);
        _settleFails(work, voucher, LaneEscrow.ClientSignatureBad.selector);
        _settle(work); // signed again for the new chain
    }

    function test_fault12_laneIsSigned() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        ILaneEscrow.LaneVoucher memory voucher = _voucher(work);
        Work memory other = _opened(1);
        other.lane.claimId = 0;
        _reserve(other, 10_000 ether);
        _settleFails(other, voucher, LaneEscrow.ClientSignatureBad.selector);
    }

    // ---------------------------------------------------------------- contract clients

    function test_settle_contractClientApprovesByErc1271() public {
        ContractClient wallet = new ContractClient();
        Work memory work = _work();
        work.lane.client = address(wallet);
        work.clientKey = 0;
        _reserve(work, 10_000 ether);
        _serve(work, 100, 60);
        _settleFails(work, LaneEscrow.ClientSignatureBad.selector);
        wallet.approve(_digest(work));
        _settle(work);
        _assertPaid(work, 120 ether, 300 ether);
    }

    /// @dev A contract client that burns gas or answers a megabyte spoils its own lane only.
    function test_settle_hostileContractClientBlocksNobody() public {
        Work memory good = _opened(10_000 ether);
        _serve(good, 100, 60);
        address[2] memory hostile =
            [address(new GasBurningClient()), address(new ReturnBombClient())];
        ILaneEscrow.Group[] memory groups = _group(good, _voucher(good));
        ILaneEscrow.LaneVoucher[] memory lanes = new ILaneEscrow.LaneVoucher[](3);
        for (uint256 i; i < 2; ++i) {
            Work memory bad = _work();
            bad.lane.client = hostile[i];
            bad.clientKey = 0;
            _reserve(bad, 10_000 ether);
            _serve(bad, 100, 60);
            lanes[i] = _voucher(bad);
        }
        lanes[2] = groups[0].lanes[0];
        groups[0].lanes = lanes;
        vm.recordLogs();
        escrow.settle{gas: 1_500_000}(address(token), groups);
        _follow(good, vm.getRecordedLogs());
        _assertPaid(good, 120 ether, 300 ether);
    }

    // ---------------------------------------------------------------- without D's signature

    function test_solo_onlyAfterNotice() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        work.bySolo = true;
        _settleFails(work, LaneEscrow.SoloWithoutNotice.selector);
        vm.prank(verifier.addr);
        uint64 from = escrow.noticeSolo(work.lane);
        vm.warp(from - 1);
        _settleFails(work, LaneEscrow.SoloWithoutNotice.selector);
        vm.warp(from);
        _settle(work);
        // V alone is paid, and no count is in.
        _assertPaid(work, 0, 300 ether);
        assertEq(ledger.calls(), 0);
        assertEq(work.position.counted[0], 0);

        // D's later signature counts and pays the earlier batch too.
        work.bySolo = false;
        _serve(work, 100, 60);
        _settle(work);
        _assertPaid(work, 240 ether, 600 ether);
        assertEq(_counted(work)[0], 200 | (120 << 64));
    }

    function test_solo_sameRootSignedLater() public {
        Work memory work = _opened(10_000 ether);
        vm.prank(verifier.addr);
        vm.warp(escrow.noticeSolo(work.lane));
        _serve(work, 100, 60);
        work.bySolo = true;
        _settle(work);
        work.bySolo = false;
        assertEq(_settle(work), 2); // what D is paid now is drawn now
        _assertPaid(work, 120 ether, 300 ether);
        assertEq(_counted(work)[0], 100 | (60 << 64));
        assertEq(beacon.count(), 2);
    }

    /// @dev A signature that comes later and brings nobody anything counts, and registers no batch.
    function test_solo_sameRootSignedLaterForNothing() public {
        Work memory work = _opened(10_000 ether);
        vm.prank(verifier.addr);
        vm.warp(escrow.noticeSolo(work.lane));
        _serveAt(work, 100, 60, 0, 3 ether);
        work.bySolo = true;
        _settle(work);
        work.bySolo = false;
        assertEq(_settle(work), 0);
        assertEq(_counted(work)[0], 100 | (60 << 64));
        assertEq(beacon.count(), 1);
    }

    /// @dev The head has moved past what D signed: D's own voucher still pays and counts.
    function test_behind_paysWhatDSignedAfterTheHeadHasMoved() public {
        Work memory work = _opened(10_000 ether);
        vm.prank(verifier.addr);
        vm.warp(escrow.noticeSolo(work.lane));
        _serve(work, 100, 60);
        kept = work;
        Work memory signed = kept;
        // V and C go on without D, on the same base.
        _serve(work, 100, 60);
        work.leaves = 8;
        work.bySolo = true;
        _settle(work);
        _assertPaid(work, 0, 600 ether);
        bytes32 head = work.position.headRoot;

        signed.position = work.position;
        signed.link = ILaneEscrow.Link.BEHIND;
        signed.baseRoot = 0;
        assertEq(_settle(signed), 2);
        (uint256 d, uint256 v) = _paid(signed);
        assertEq(d, 120 ether);
        assertEq(v, 600 ether);
        assertEq(signed.position.headRoot, head);
        assertEq(_counted(work)[0], 100 | (60 << 64));
        _settleFails(signed, LaneEscrow.NothingNew.selector);

        // And the head still takes D's signature, counting only what is new.
        work.position = signed.position;
        work.bySolo = false;
        work.link = ILaneEscrow.Link.REPLACES;
        _settle(work);
        _assertPaid(work, 240 ether, 600 ether);
        assertEq(_counted(work)[0], 200 | (120 << 64));
    }

    function test_behind_revertWhen_withoutD() public {
        Work memory work = _opened(10_000 ether);
        vm.prank(verifier.addr);
        vm.warp(escrow.noticeSolo(work.lane));
        _serve(work, 100, 60);
        work.bySolo = true;
        work.link = ILaneEscrow.Link.BEHIND;
        work.baseRoot = keccak256("anything");
        _settleFails(work, LaneEscrow.LinkWithoutDrafter.selector);
    }

    // ---------------------------------------------------------------- epochs

    function test_epoch_olderVouchersStayCollectable() public {
        Work memory old = _opened(10_000 ether);
        _serve(old, 100, 60);
        _settle(old);
        _serve(old, 100, 60);
        vm.prank(drafter.addr);
        escrow.openEpoch(old.lane);
        Work memory fresh = _work();
        _freshEpoch(fresh, 1);
        _serve(fresh, 10, 6);
        _settle(fresh);
        _assertPaid(fresh, 12 ether, 30 ether);
        _settle(old);
        _assertPaid(old, 240 ether, 600 ether);
        _settleFails(old, LaneEscrow.NothingNew.selector);
        _serve(fresh, 10, 6);
        _settle(fresh);
        _assertPaid(fresh, 24 ether, 60 ether);
        assertEq(_counted(old)[0], 220 | (132 << 64));
    }

    /// @dev Fault 15: an epoch keeps the fee it was opened with.
    function test_fault15_epochKeepsItsFee() public {
        Work memory work = _opened(10_000 ether);
        ILaneEscrow.Parameters memory p = _parameters();
        p.feeBps = 1000;
        vm.prank(owner);
        escrow.setParameters(p);
        _serve(work, 100, 50);
        _settle(work);
        assertEq(escrow.accounting(address(token)).fees, 8 ether);
        vm.prank(client.addr);
        escrow.openEpoch(work.lane);
        _freshEpoch(work, 1);
        _serve(work, 100, 50);
        _settle(work);
        assertEq(escrow.accounting(address(token)).fees, 48 ether);
    }

    // ---------------------------------------------------------------- many lanes

    function _lanes(uint256 count) internal returns (Work[] memory works) {
        works = new Work[](count);
        for (uint256 i; i < count; ++i) {
            Party memory c = _party(string.concat("client ", vm.toString(i)));
            Records.Lane memory lane = _lane();
            lane.client = c.addr;
            works[i] = _work(lane, c.key, drafter.key, verifier.key);
            _reserve(works[i], 10_000 ether);
            _serve(works[i], 100, 60);
        }
    }

    function test_settle_oneBadLaneBlocksNoOther() public {
        Work[] memory works = _lanes(3);
        ILaneEscrow.Group[] memory groups = _group(works[0], _voucher(works[0]));
        groups[0].lanes = new ILaneEscrow.LaneVoucher[](3);
        for (uint256 i; i < 3; ++i) {
            groups[0].lanes[i] = _voucher(works[i]);
        }
        groups[0].lanes[1].due += 1;
        vm.expectEmit(address(escrow));
        emit ILaneEscrow.LaneSkipped(_id(works[1]), LaneEscrow.ClientSignatureBad.selector);
        escrow.settle(address(token), groups);
        assertEq(escrow.payableTo(drafter.addr, address(token)), 240 ether);
        assertEq(vault.stakeOf(drafter.addr, Role.DRAFTER).locked, 1200 ether);
        assertEq(_counted(works[0])[0], 200 | (120 << 64));
        assertEq(ledger.calls(), 1);
        _assertConserved();
    }

    function test_settle_groupsShareAPayeesStake() public {
        Work[] memory works = _lanes(2);
        // A second drafter, with another claim, for the same verifier.
        Party memory d2 = _party("second drafter");
        ledger.publish("claim 2", d2.addr);
        _stake(d2.addr, d2.addr, Role.DRAFTER, STAKE);
        works[1].lane.drafter = d2.addr;
        works[1].lane.claimId = "claim 2";
        works[1].drafterKey = d2.key;
        _reserve(works[1], 10_000 ether);
        ILaneEscrow.Group[] memory groups = new ILaneEscrow.Group[](2);
        groups[0] = _group(works[0], _voucher(works[0]))[0];
        groups[1] = _group(works[1], _voucher(works[1]))[0];
        // V's free stake answers for 400: D's 120, 280 of its own, and then for nothing more.
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, STAKE - 2000 ether);
        escrow.settle(address(token), groups);
        assertEq(escrow.payableTo(verifier.addr, address(token)), 280 ether);
        assertEq(escrow.payableTo(drafter.addr, address(token)), 120 ether);
        assertEq(escrow.payableTo(d2.addr, address(token)), 120 ether);
        assertEq(vault.stakeOf(verifier.addr, Role.VERIFIER).locked, 2000 ether);
        assertEq(beacon.count(), 1);
        _assertConserved();
    }

    function test_settle_laneTwiceInOneCall() public {
        Work memory work = _opened(10_000 ether);
        _serve(work, 100, 60);
        ILaneEscrow.Group[] memory groups = _group(work, _voucher(work));
        ILaneEscrow.LaneVoucher[] memory twice = new ILaneEscrow.LaneVoucher[](2);
        (twice[0], twice[1]) = (groups[0].lanes[0], groups[0].lanes[0]);
        groups[0].lanes = twice;
        escrow.settle(address(token), groups);
        assertEq(escrow.payableTo(drafter.addr, address(token)), 120 ether);
        assertEq(beacon.count(), 1);
    }

    function test_settle_laneWithoutClaimIsNotCounted() public {
        Work memory work = _work();
        work.lane.claimId = 0;
        _reserve(work, 10_000 ether);
        _serve(work, 100, 60);
        _settle(work);
        _assertPaid(work, 120 ether, 300 ether);
        assertEq(ledger.calls(), 0);
    }
}
