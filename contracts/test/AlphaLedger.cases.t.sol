// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AlphaLedger} from "../AlphaLedger.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IStakeVault} from "../interfaces/IStakeVault.sol";
import {BucketHistory} from "../libraries/BucketHistory.sol";
import {Records} from "../libraries/Records.sol";
import {SequentialTest} from "../libraries/SequentialTest.sol";
import {LedgerWork} from "./LedgerWork.sol";
import {FeeOnTransferToken} from "./doubles/Tokens.sol";

contract AlphaLedgerFlagTest is LedgerWork {
    function test_WrongArguments() public {
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.ClaimUnknown.selector, bytes32(0)));
        alpha.flag(0, address(0), 0, 0, 1);
        bytes32 id = _register(80);
        _record(id, verifier.addr, 3, 2_000, 0);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.BucketOutsideRange.selector, 16));
        alpha.flag(id, address(0), 16, 0, 1);
        vm.expectRevert(abi.encodeWithSelector(BucketHistory.IntervalEmpty.selector, 1, 1));
        alpha.flag(id, address(0), 3, 1, 1);
        vm.expectRevert(abi.encodeWithSelector(BucketHistory.CheckpointUnknown.selector, 2, 1, 1));
        alpha.flag(id, address(0), 3, 0, 2);
        vm.expectRevert(abi.encodeWithSelector(BucketHistory.CheckpointUnknown.selector, 1, 1, 0));
        alpha.flag(id, stranger, 3, 0, 1);
    }

    function test_APromiseKeptIsNotFlagged() public {
        bytes32 id = _register(80);
        _record(id, verifier.addr, 3, 100_000, 80_000);
        (int256 score, uint256 threshold) = alpha.scoreOf(id, address(0), 3, 0, 1);
        assertLt(score, 0);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.TestPasses.selector, score, threshold));
        alpha.flag(id, address(0), 3, 0, 1);
        // A bucket in which nothing was proposed says nothing.
        (score,) = alpha.scoreOf(id, address(0), 4, 0, 1);
        assertEq(score, 0);
    }

    /// @dev One more reject tips it: the threshold must be exceeded, not reached.
    function testFuzz_TheThresholdIsExact(uint8 rate, uint16 before) public {
        rate = uint8(bound(rate, 6, 99));
        bytes32 id = _register(rate);
        uint256 k = 1;
        if (before % 2 == 0) {
            _record(id, verifier.addr, 0, W, W);
            k = 2;
        }
        (, int256 reject) = SequentialTest.weights(rate);
        uint256 limit = SequentialTest.threshold(k, 1_000_000, 0);
        uint256 most = limit / uint256(reject); // so many rejects do not exceed it
        uint256 from = k - 1;
        _record(id, verifier.addr, 9, most, 0);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.TestPasses.selector, int256(most) * reject, limit)
        );
        alpha.flag(id, address(0), 9, from, k);
        _record(id, verifier.addr, 9, 1, 0);
        alpha.flag(id, address(0), 9, from, _newest(id, address(0)));
    }

    function test_TheNewestStateIsTested() public {
        bytes32 id = _register(80);
        _record(id, verifier.addr, 3, 100, 0);
        assertEq(_newest(id, address(0)), 1);
        vm.prank(flagger);
        uint64 caseId = alpha.flag(id, address(0), 3, 0, 1);
        IAlphaLedger.Case memory opened = alpha.caseOf(caseId);
        assertEq(opened.claimId, id);
        assertEq(opened.flagger, flagger);
        assertEq(opened.bucket, 3);
        assertEq(opened.firstUntil, block.timestamp + 1 days);
        assertEq(opened.secondUntil, block.timestamp + 2 days);
        assertEq(alpha.claimOf(id).openCase, caseId);
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.SUSPENDED));
        assertEq(_drafterStake(), STAKE, "a shortfall is no fault");
    }

    /// @dev A drafter's own verifier cannot dilute what another one has seen.
    function test_WashingTheWholeHidesNoVerifiersRecord() public {
        bytes32 id = _register(80);
        address own = makeAddr("the drafter's own verifier");
        for (uint256 n; n < 8; ++n) {
            _record(id, own, 3, 1_000_000, 1_000_000);
            _record(id, verifier.addr, 3, 250, 125);
        }
        _record(id, own, 3, 1_000_000, 1_000_000);
        uint256 newest = _newest(id, address(0));
        for (uint256 from; from < newest; ++from) {
            for (uint256 to = from + 1; to <= newest; ++to) {
                (int256 whole, uint256 limit) = alpha.scoreOf(id, address(0), 3, from, to);
                assertLe(whole, int256(limit), "the whole shows nothing");
            }
        }
        (int256 score, uint256 threshold) =
            alpha.scoreOf(id, verifier.addr, 3, 0, _newest(id, verifier.addr));
        assertEq(threshold, SequentialTest.threshold(1, 1_000_000, 2), "the second verifier's");
        assertGt(score, int256(threshold));
        alpha.flag(id, verifier.addr, 3, 0, _newest(id, verifier.addr));
    }

    function test_OneCaseAtATime() public {
        (bytes32 id,) = _flagged();
        vm.expectRevert(
            abi.encodeWithSelector(
                AlphaLedger.ClaimNotActive.selector, id, IAlphaLedger.Status.SUSPENDED
            )
        );
        alpha.flag(id, verifier.addr, 3, 1, 2);
    }

    function test_AnOldClaimStaysTestable() public {
        bytes32 old = _register(80);
        _record(old, verifier.addr, 3, 2_000, 1_000);
        Records.Claim memory next = _claim(40);
        vm.prank(drafter.addr);
        bytes32 id = alpha.register(next);
        _record(id, verifier.addr, 3, 2_000, 1_000);
        vm.expectRevert();
        alpha.flag(id, address(0), 3, 0, 1);
        alpha.flag(old, address(0), 3, 0, 1);
        assertEq(uint8(_status(old)), uint8(IAlphaLedger.Status.SUSPENDED));
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.ACTIVE));
    }
}

contract AlphaLedgerCaseTest is LedgerWork {
    function _wrongStage(uint64 caseId) private view returns (bytes memory) {
        return abi.encodeWithSelector(AlphaLedger.WrongStage.selector, caseId, _stage(caseId));
    }

    function test_OnlyTheDraftersAccountAnswers() public {
        (, uint64 caseId) = _flagged();
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.NotDrafter.selector, stranger, drafter.addr)
        );
        alpha.assertDraftModel(caseId);
        vm.prank(drafter.addr);
        vm.expectRevert(_wrongStage(caseId + 1));
        alpha.assertDraftModel(caseId + 1);
    }

    function test_ARotatedKeyAnswers() public {
        (, uint64 caseId) = _flagged();
        address next = makeAddr("next key");
        vm.prank(drafter.addr);
        vault.proposeKey(drafter.addr, next);
        vm.prank(next);
        vault.acceptKey(drafter.addr);
        _fund(next, address(alpha), BOND);
        vm.prank(next);
        alpha.assertDraftModel(caseId);
        assertEq(uint8(_stage(caseId)), uint8(IAlphaLedger.Stage.ANSWERED));
        assertEq(alpha.bondsHeld(), BOND);
    }

    function test_AnAnswerCostsItsBond() public {
        (, uint64 caseId) = _flagged();
        uint256 before = token.balanceOf(drafter.addr);
        vm.prank(drafter.addr);
        alpha.assertDraftModel(caseId);
        assertEq(token.balanceOf(drafter.addr), before - BOND);
        assertEq(token.balanceOf(address(alpha)), BOND);
        assertEq(alpha.caseOf(caseId).refutableUntil, block.timestamp + 6 days);
        vm.prank(drafter.addr);
        vm.expectRevert(_wrongStage(caseId));
        alpha.assertDraftModel(caseId);
    }

    function test_TooLateAtTheSecondDeadline() public {
        (, uint64 caseId) = _flagged();
        uint64 until = alpha.caseOf(caseId).secondUntil;
        vm.warp(until + 1);
        vm.prank(drafter.addr);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.TooLate.selector, until));
        alpha.assertDraftModel(caseId);
    }

    function test_SilenceCostsATenthThenHalf() public {
        (bytes32 id, uint64 caseId) = _flagged();
        uint64 first = alpha.caseOf(caseId).firstUntil;
        vm.warp(first);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.TooEarly.selector, first));
        alpha.expire(caseId);
        vm.warp(first + 1);
        alpha.expire(caseId);
        assertEq(_drafterStake(), STAKE * 9 / 10);
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.SUSPENDED));
        uint64 second = alpha.caseOf(caseId).secondUntil;
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.TooEarly.selector, second));
        alpha.expire(caseId);
        vm.warp(second + 1);
        alpha.expire(caseId);
        assertEq(_drafterStake(), STAKE * 45 / 100);
        assertEq(uint8(_stage(caseId)), uint8(IAlphaLedger.Stage.UNANSWERED));
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.VOID));
        vm.expectRevert(_wrongStage(caseId));
        alpha.expire(caseId);
    }

    function test_ALateAnswerSavesTheRest() public {
        (, uint64 caseId) = _flagged();
        vm.warp(alpha.caseOf(caseId).firstUntil + 1);
        alpha.expire(caseId);
        vm.prank(drafter.addr);
        alpha.assertDraftModel(caseId);
        vm.warp(block.timestamp + 30 days);
        vm.expectRevert(_wrongStage(caseId));
        alpha.expire(caseId);
        alpha.conclude(caseId);
        assertEq(_drafterStake(), STAKE * 9 / 10);
    }

    /// @dev Costs are those of the day the case was opened.
    function test_ParametersDoNotReachOpenCases() public {
        (, uint64 caseId) = _flagged();
        IAlphaLedger.Parameters memory p = _ledgerParameters();
        (p.lateBps, p.silentBps, p.refutedBps, p.bond) = (10_000, 10_000, 10_000, 0);
        vm.prank(owner);
        alpha.setParameters(p);
        vm.warp(block.timestamp + 1 days + 1);
        alpha.expire(caseId);
        assertEq(_drafterStake(), STAKE * 9 / 10);
        vm.prank(drafter.addr);
        alpha.assertDraftModel(caseId);
        assertEq(alpha.bondsHeld(), BOND);
        vm.prank(caseJudge);
        alpha.refute(caseId);
        assertEq(_drafterStake(), STAKE * 45 / 100);
    }

    function test_ConcludeWaits() public {
        (, uint64 caseId) = _answered();
        uint64 until = alpha.caseOf(caseId).refutableUntil;
        vm.warp(until);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.TooEarly.selector, until));
        alpha.conclude(caseId);
    }

    function test_WhatWasSeenReplacesTheClaim() public {
        (bytes32 id, uint64 caseId) = _answered();
        vm.warp(block.timestamp + 7 days);
        alpha.conclude(caseId);
        assertEq(uint8(_stage(caseId)), uint8(IAlphaLedger.Stage.STOOD));
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.ACTIVE));
        assertEq(alpha.rateOf(id, 3), 60, "1,200 of 2,000");
        assertEq(alpha.rateOf(id, 4), 80, "nothing seen");
        assertEq(_drafterStake(), STAKE);
        assertEq(alpha.bondPayable(drafter.addr), BOND);
    }

    function test_OldCountsAreNotTestedAgainstNewRates() public {
        (bytes32 id, uint64 caseId) = _answered();
        _record(id, verifier.addr, 3, 300, 0); // while the case runs
        vm.prank(caseJudge);
        alpha.uphold(caseId);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.NothingUnderTheseRates.selector, id, address(0), 1)
        );
        alpha.flag(id, address(0), 3, 0, 3);
        _record(id, verifier.addr, 3, 600, 360);
        (,, uint256 floor,,) = alpha.seriesOf(id, address(0));
        assertEq(floor, 3);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.BeforeFloor.selector, 0, 3));
        alpha.flag(id, address(0), 3, 0, 4);
        (int256 score,) = alpha.scoreOf(id, address(0), 3, 3, 4);
        assertLt(score, 0, "60 % of 600 under a claim of 60 %");
        // And a shortfall under the new rates opens the next case.
        _record(id, verifier.addr, 3, 600, 100);
        alpha.flag(id, verifier.addr, 3, 3, 5);
    }

    function test_ObservedRatesNeverRiseAndNeedNumbers() public {
        bytes32 id = _register(80);
        vm.startPrank(address(escrow));
        alpha.record(id, drafter.addr, verifier.addr, _delta(0, 400, 0)); // the failed bucket
        alpha.record(id, drafter.addr, verifier.addr, _delta(1, 511, 5)); // one short of enough
        alpha.record(id, drafter.addr, verifier.addr, _delta(2, 512, 256)); // enough
        alpha.record(id, drafter.addr, verifier.addr, _delta(3, 1_000, 999)); // better than claimed
        vm.stopPrank();
        uint64 caseId = alpha.flag(id, address(0), 0, 0, _newest(id, address(0)));
        vm.prank(drafter.addr);
        alpha.assertDraftModel(caseId);
        vm.prank(caseJudge);
        alpha.uphold(caseId);
        assertEq(alpha.rateOf(id, 0), 6, "the lowest rate that can be tested");
        assertEq(alpha.rateOf(id, 1), 80);
        assertEq(alpha.rateOf(id, 2), 50);
        assertEq(alpha.rateOf(id, 3), 80);
    }

    function test_OnlyAJudgeJudges() public {
        (, uint64 caseId) = _answered();
        bytes memory refusal = abi.encodeWithSelector(AlphaLedger.NotJudge.selector, stranger);
        uint256[9] memory sums;
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        alpha.refute(caseId);
        vm.expectRevert(refusal);
        alpha.uphold(caseId);
        vm.expectRevert(refusal);
        alpha.exclude(caseId, sums);
    }

    function test_ARefutedCaseCostsHalfAndTheBond() public {
        (bytes32 id, uint64 caseId) = _answered();
        vm.prank(caseJudge);
        alpha.refute(caseId);
        assertEq(_drafterStake(), STAKE / 2);
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.VOID));
        assertEq(alpha.bondPayable(drafter.addr), 0);
        assertEq(alpha.bondPayable(flagger), BOND / 2);
        alpha.pullBond(flagger);
        alpha.pullBond(alpha.DEAD());
        assertEq(token.balanceOf(flagger), BOND / 2);
        assertEq(token.balanceOf(address(alpha)), 0);
        bytes memory refusal = _wrongStage(caseId);
        vm.prank(caseJudge);
        vm.expectRevert(refusal);
        alpha.refute(caseId);
    }

    /// @dev A drafter that flags itself and lets itself be refuted through a friend is poorer for it.
    function test_FlaggingOneselfNeverPays() public {
        (, uint64 caseId) = _answered();
        uint256 before = _drafterStake();
        vm.prank(caseJudge);
        alpha.refute(caseId);
        uint256 lost = before - _drafterStake() + BOND;
        uint256 back = (before - _drafterStake()) / 10 + BOND / 2;
        assertGt(lost, back);
    }

    function test_NoMoreIsExcludedThanWasCounted() public {
        (, uint64 caseId) = _answered();
        vm.startPrank(caseJudge);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.NotCounted.selector, 3, 2_001, 2_000));
        alpha.exclude(caseId, _delta(3, 2_001, 0));
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.NotCounted.selector, 2, 1, 0));
        alpha.exclude(caseId, _delta(2, 1, 0));
        // 801 rejects of 800.
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.NotCounted.selector, 3, 801, 2_000));
        alpha.exclude(caseId, _delta(3, 801, 0));
    }

    function test_FalseRoundsLeaveTheCase() public {
        (bytes32 id, uint64 caseId) = _answered();
        vm.prank(caseJudge);
        alpha.exclude(caseId, _delta(3, 200, 0)); // still fails
        assertEq(uint8(_stage(caseId)), uint8(IAlphaLedger.Stage.ANSWERED));
        vm.warp(block.timestamp + 7 days);
        alpha.conclude(caseId);
        assertEq(alpha.rateOf(id, 3), 66, "1,200 of 1,800");
    }

    function test_WithoutFalseRoundsTheClaimStands() public {
        (bytes32 id, uint64 caseId) = _answered();
        vm.prank(caseJudge);
        alpha.exclude(caseId, _delta(3, 500, 0)); // 1,200 of 1,500
        assertEq(uint8(_stage(caseId)), uint8(IAlphaLedger.Stage.DISMISSED));
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.ACTIVE));
        assertEq(alpha.rateOf(id, 3), 80);
        assertEq(alpha.bondPayable(drafter.addr), BOND);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.BeforeFloor.selector, 1, 2));
        alpha.flag(id, address(0), 3, 1, 2);
    }

    function test_BondsGoToTheBeneficiaryOnce() public {
        (, uint64 caseId) = _answered();
        vm.prank(caseJudge);
        alpha.uphold(caseId);
        vm.prank(stranger);
        assertEq(alpha.pullBond(drafter.addr), BOND);
        assertEq(token.balanceOf(beneficiaryD), BOND);
        assertEq(alpha.bondsHeld(), 0);
        vm.expectRevert(abi.encodeWithSelector(AlphaLedger.NothingToPull.selector, drafter.addr));
        alpha.pullBond(drafter.addr);
    }

    /// @dev A slash may find nothing and never stands in the way of closing a case.
    function test_ADrafterWithoutStakeIsStillClosed() public {
        address poor = makeAddr("poor");
        Records.Claim memory claim = _claim(80);
        claim.drafter = poor;
        vm.prank(poor);
        bytes32 id = alpha.register(claim);
        vm.prank(address(escrow));
        alpha.record(id, poor, verifier.addr, _delta(3, 2_000, 0));
        uint64 caseId = alpha.flag(id, address(0), 3, 0, 1);
        vm.warp(block.timestamp + 3 days);
        alpha.expire(caseId);
        alpha.expire(caseId);
        assertEq(uint8(_status(id)), uint8(IAlphaLedger.Status.VOID));
    }

    /// @dev A token that keeps a part of each transfer is not supported, and cannot unbalance the books.
    function test_ABondThatArrivesShortIsRefused() public {
        FeeOnTransferToken fee = new FeeOnTransferToken();
        vm.mockCall(
            address(vault), abi.encodeCall(IStakeVault.stakeToken, ()), abi.encode(address(fee))
        );
        alpha = new AlphaLedger(address(this), vault, registry, _ledgerParameters());
        alpha.wire(address(escrow));
        (, uint64 caseId) = _flagged();
        fee.mint(drafter.addr, BOND);
        vm.startPrank(drafter.addr);
        fee.approve(address(alpha), BOND);
        vm.expectRevert(
            abi.encodeWithSelector(AlphaLedger.BondShort.selector, BOND, BOND * 99 / 100)
        );
        alpha.assertDraftModel(caseId);
    }
}
