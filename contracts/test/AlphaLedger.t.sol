// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AlphaLedger} from "../AlphaLedger.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {BucketHistory} from "../libraries/BucketHistory.sol";
import {Records} from "../libraries/Records.sol";
import {LedgerWork} from "./LedgerWork.sol";

contract AlphaLedgerOwnerTest is LedgerWork {
    function test_OnlyTheOwnerSets() public {
        bytes memory refusal =
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", stranger);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        alpha.setJudge(stranger, true);
        vm.expectRevert(refusal);
        alpha.setParameters(_ledgerParameters());
        vm.expectRevert(refusal);
        alpha.wire(stranger);
    }

    function test_TheEscrowIsNamedOnce() public {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.AlreadyWired.selector, address(escrow)));
        alpha.wire(stranger);
    }

    function test_SilenceIsNeverCheaperThanRefutation() public {
        IAlphaLedger.Parameters memory p = _ledgerParameters();
        p.silentBps = p.refutedBps - 1;
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.BadParameter.selector, "silentBps", p.silentBps)
        );
        alpha.setParameters(p);
        p = _ledgerParameters();
        p.spacing = 0;
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.BadParameter.selector, "spacing", 0));
        alpha.setParameters(p);
        p = _ledgerParameters();
        p.rewardBps = 5_001;
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.BadParameter.selector, "rewardBps", 5_001)
        );
        alpha.setParameters(p);
    }
}

contract AlphaLedgerRegisterTest is LedgerWork {
    function test_OnlyTheDrafterPromises() public {
        Records.Claim memory claim = _claim(80);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.NotDrafter.selector, stranger, drafter.addr)
        );
        alpha.register(claim);
    }

    function test_ModelsAndModeMustExist() public {
        Records.Claim memory claim = _claim(80);
        claim.mode = 3;
        vm.startPrank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.ModeUnknown.selector, 3));
        alpha.register(claim);
        claim = _claim(80);
        claim.targetModel = bytes32(0);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.ModelUnknown.selector, bytes32(0)));
        alpha.register(claim);
        claim = _claim(80);
        claim.draftModel = bytes32(uint256(1));
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.ModelUnknown.selector, bytes32(uint256(1)))
        );
        alpha.register(claim);
        // An n-gram drafter has none.
        claim.draftModel = 0;
        assertEq(alpha.claimDrafter(alpha.register(claim)), drafter.addr);
    }

    function testFuzz_RatesStayInRange(uint8 rate, uint256 bucket) public {
        bucket = bound(bucket, 0, 15);
        Records.Claim memory claim = _claim(80);
        claim.rates[bucket] = rate;
        bool fine = rate >= 6 && rate <= 99;
        vm.prank(drafter.addr);
        if (!fine) {
            vm.expectRevert(
                abi.encodeWithSelector(AlphaLedger.RateOutsideRange.selector, bucket, rate)
            );
        }
        bytes32 id = alpha.register(claim);
        if (fine) assertEq(alpha.rateOf(id, bucket), rate);
    }

    function test_AClaimIsPublishedOnce() public {
        bytes32 id = _register(80);
        assertEq(id, Records.hash(_claim(80)));
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.ACTIVE));
        vm.prank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.ClaimTaken.selector, id));
        alpha.register(_claim(80));
    }

    function test_ASuspendedClaimCannotBePublishedAnew() public {
        (bytes32 id,) = _flagged();
        vm.prank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.ClaimTaken.selector, id));
        alpha.register(_claim(80));
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.SUSPENDED));
    }
}

contract AlphaLedgerRecordTest is LedgerWork {
    function test_OnlyTheEscrowCounts() public {
        bytes32 id = _register(80);
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.NotEscrow.selector, stranger, address(escrow))
        );
        alpha.record(id, drafter.addr, verifier.addr, _delta(0, 1, 1));
    }

    function test_UnknownClaimsAreNotCounted() public {
        vm.prank(address(escrow));
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.ClaimUnknown.selector, bytes32(0)));
        alpha.record(0, drafter.addr, verifier.addr, _delta(0, 1, 1));
    }

    function test_NothingProposedIsNoNewState() public {
        bytes32 id = _register(80);
        _record(id, verifier.addr, 0, 0, 0);
        assertEq(_newest(id, address(0)), 0);
        _record(id, verifier.addr, 0, 600, 500);
        _record(id, verifier.addr, 0, 0, 0);
        assertEq(_newest(id, address(0)), 1);
        assertEq(_newest(id, verifier.addr), 1);
    }

    function test_CheckpointsAreFixedAfterW() public {
        bytes32 id = _register(80);
        _record(id, verifier.addr, 0, W - 1, 0);
        assertEq(_newest(id, address(0)), 1, "newest state");
        _record(id, verifier.addr, 0, 1, 0);
        assertEq(_newest(id, address(0)), 1, "fixed in place");
        _record(id, verifier.addr, 1, 1, 1);
        assertEq(_newest(id, address(0)), 2, "the next one");
        (uint256[16] memory proposed,) = alpha.countsBetween(id, address(0), 0, 1);
        assertEq(proposed[0], W);
        (proposed,) = alpha.countsBetween(id, address(0), 1, 2);
        assertEq(proposed[0], 0);
        assertEq(proposed[1], 1);
    }

    function test_VerifiersAreNumberedAndCountedApart() public {
        bytes32 id = _register(80);
        address second = makeAddr("second");
        _record(id, verifier.addr, 5, 600, 500);
        _record(id, second, 5, 700, 100);
        _record(id, verifier.addr, 6, 10, 10);
        (,,, uint256 order,) = alpha.seriesOf(id, verifier.addr);
        assertEq(order, 1);
        (,,, order,) = alpha.seriesOf(id, second);
        assertEq(order, 2);
        (,,, order,) = alpha.seriesOf(id, address(0));
        assertEq(order, 0);
        assertEq(alpha.claimOf(id).verifiers, 2);
        (uint256[16] memory proposed, uint256[16] memory accepted) =
            alpha.countsBetween(id, second, 0, 1);
        assertEq(proposed[5], 700);
        assertEq(accepted[5], 100);
        (proposed, accepted) = alpha.countsBetween(id, address(0), 0, 3);
        assertEq(proposed[5], 1300);
        assertEq(accepted[5], 600);
        assertEq(proposed[6], 10);
    }

    struct Plain {
        uint256[16] proposed;
        uint256[16] accepted;
    }

    /// @dev The packed ring against plain sums, over every interval.
    function testFuzz_IntervalsAreExact(uint256 seed) public {
        bytes32 id = _register(80);
        Plain[] memory fixed_ = new Plain[](30);
        Plain memory sum;
        uint256 closed;
        uint256 since;
        uint256 newest;
        for (uint256 n; n < 24; ++n) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256[9] memory delta;
            uint256 proposals;
            for (uint256 b; b < 16; ++b) {
                uint256 p = uint8(seed >> 16 * b);
                if (n % 5 == 0) p <<= 13;
                uint256 a = p * uint8(seed >> 16 * b + 8) / 255;
                delta[1 + b / 4] |= p << 64 * (b % 4);
                delta[5 + b / 4] |= a << 64 * (b % 4);
                sum.proposed[b] += p;
                sum.accepted[b] += a;
                proposals += p;
            }
            // Some small, so that states stay open.
            if (n % 3 == 1) {
                for (uint256 b; b < 16; ++b) {
                    sum.proposed[b] -= delta[1 + b / 4] >> 64 * (b % 4) & type(uint64).max;
                    sum.accepted[b] -= delta[5 + b / 4] >> 64 * (b % 4) & type(uint64).max;
                }
                delta = _delta(seed % 16, 100, seed % 101);
                sum.proposed[seed % 16] += 100;
                sum.accepted[seed % 16] += seed % 101;
                proposals = 100;
            }
            vm.prank(address(escrow));
            alpha.record(id, drafter.addr, verifier.addr, delta);
            since += proposals;
            if (proposals != 0) newest = closed + 1;
            _copy(fixed_[newest], sum);
            if (since >= W) (closed, since) = (newest, 0);
        }
        assertEq(_newest(id, address(0)), newest);
        for (uint256 from; from < newest; ++from) {
            for (uint256 to = from + 1; to <= newest; ++to) {
                (uint256[16] memory proposed, uint256[16] memory accepted) =
                    alpha.countsBetween(id, from % 2 == 0 ? address(0) : verifier.addr, from, to);
                for (uint256 b; b < 16; ++b) {
                    assertEq(proposed[b], fixed_[to].proposed[b] - fixed_[from].proposed[b]);
                    assertEq(accepted[b], fixed_[to].accepted[b] - fixed_[from].accepted[b]);
                }
            }
        }
    }

    function _copy(Plain memory to, Plain memory from) private pure {
        for (uint256 b; b < 16; ++b) {
            to.proposed[b] = from.proposed[b];
            to.accepted[b] = from.accepted[b];
        }
    }

    function test_TheRingKeepsTheLast() public {
        bytes32 id = _register(80);
        uint256 kept = BucketHistory.KEPT;
        for (uint256 n = 1; n <= kept + 3; ++n) {
            _record(id, verifier.addr, n % 16, W + n, n);
        }
        (uint256 oldest, uint256 newest,,,) = alpha.seriesOf(id, address(0));
        assertEq(newest, kept + 3);
        assertEq(oldest, 4);
        (, uint256[16] memory accepted) = alpha.countsBetween(id, address(0), 4, 5);
        assertEq(accepted[5], 5);
        (, accepted) = alpha.countsBetween(id, address(0), newest - 1, newest);
        assertEq(accepted[newest % 16], newest);
        vm.expectRevert(
            abi.encodeWithSelector(BucketHistory.CheckpointUnknown.selector, 3, 4, newest)
        );
        alpha.countsBetween(id, address(0), 3, 5);
        vm.expectRevert(
            abi.encodeWithSelector(BucketHistory.CheckpointUnknown.selector, newest + 1, 4, newest)
        );
        alpha.countsBetween(id, address(0), 5, newest + 1);
        // The beginning stays: it is nothing.
        (, accepted) = alpha.countsBetween(id, address(0), 0, newest);
        uint256 expected;
        for (uint256 n = 16; n <= newest; n += 16) {
            expected += n;
        }
        assertEq(accepted[0], expected);
    }

    function test_LongIntervalsAreRefusedAndCountsGoOn() public {
        bytes32 id = _register(80);
        // Every lane of every word near the largest that the escrow lets through.
        uint256[9] memory delta;
        uint256 lane = (1 << 46) - 1;
        for (uint256 i = 1; i < 9; ++i) {
            delta[i] = lane | lane << 64 | lane << 128 | lane << 192;
        }
        for (uint256 n; n < 3; ++n) {
            vm.prank(address(escrow));
            alpha.record(id, drafter.addr, verifier.addr, delta);
        }
        vm.expectRevert(
            abi.encodeWithSelector(BucketHistory.IntervalTooLong.selector, 16 * lane, (1 << 30) - 1)
        );
        alpha.countsBetween(id, address(0), 1, 2);
        _record(id, verifier.addr, 7, (1 << 30) - 1, 123_456_789);
        (uint256[16] memory proposed, uint256[16] memory accepted) =
            alpha.countsBetween(id, address(0), 3, 4);
        assertEq(proposed[7], (1 << 30) - 1);
        assertEq(accepted[7], 123_456_789);
        assertEq(proposed[8], 0);
    }

    function test_AFullSeriesStopsAndPaymentsGoOn() public {
        bytes32 id = _register(80);
        uint256[9] memory delta;
        uint256 lane = type(uint64).max;
        delta[1] = lane | lane << 64;
        vm.prank(address(escrow));
        vm.expectEmit(address(alpha));
        emit IAlphaLedger.SeriesFull(id, verifier.addr);
        alpha.record(id, drafter.addr, verifier.addr, delta);
        assertEq(_newest(id, address(0)), 0);
        _record(id, verifier.addr, 0, 600, 0);
        assertEq(_newest(id, address(0)), 0, "nothing is counted after the end");
    }

    function test_SuspendedAndVoidClaimsAreCounted() public {
        (bytes32 id, uint64 caseId) = _flagged();
        _record(id, verifier.addr, 3, 600, 600);
        assertEq(_newest(id, address(0)), 3);
        vm.warp(block.timestamp + 3 days);
        alpha.expire(caseId);
        alpha.expire(caseId);
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.VOID));
        _record(id, verifier.addr, 3, 600, 600);
        assertEq(_newest(id, address(0)), 4);
    }
}
