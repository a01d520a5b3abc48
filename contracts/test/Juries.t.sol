// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Juries} from "../Juries.sol";
import {IAuditorPool} from "../interfaces/IAuditorPool.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {PanelWork} from "./PanelWork.sol";

contract JuriesTest is PanelWork {
    bytes32 private _model;
    IJuries.Spans private _spans = IJuries.Spans(1 hours, 1 days, 6 hours, 12 hours);
    address private _court = makeAddr("court");

    function setUp() public override {
        super.setUp();
        _model = Records.modelId(target);
        vm.prank(owner);
        juries.setCourt(_court, true);
    }

    function _summon(uint8 size, bool waits) private returns (uint64) {
        return _summonFor(new address[](0), size, 0, waits);
    }

    function _summonFor(address[] memory parties, uint8 size, uint64 before, bool waits)
        private
        returns (uint64)
    {
        vm.prank(_court);
        return juries.summon(_model, parties, size, _spans, before, waits);
    }

    function _isSeated(uint64 jury, address account) private view returns (bool) {
        return juries.isMember(jury, account);
    }

    // ------------------------------------------------------------------ summons and seats

    function test_OnlyCourtsSummonAndOnlyWithinBounds() public {
        vm.expectRevert(abi.encodeWithSelector(Juries.NotCourt.selector, address(this)));
        juries.summon(_model, new address[](0), 5, _spans, 0, true);
        vm.startPrank(_court);
        vm.expectRevert(abi.encodeWithSelector(Juries.BadSummons.selector, "size", 16));
        juries.summon(_model, new address[](0), 16, _spans, 0, true);
        vm.expectRevert(abi.encodeWithSelector(Juries.BadSummons.selector, "size", 0));
        juries.summon(_model, new address[](0), 0, _spans, 0, true);
        vm.expectRevert(abi.encodeWithSelector(Juries.BadSummons.selector, "parties", 9));
        juries.summon(_model, new address[](9), 5, _spans, 0, true);
        IJuries.Spans memory bad = _spans;
        bad.seat = 0;
        vm.expectRevert(abi.encodeWithSelector(Juries.BadSummons.selector, "seat", 0));
        juries.summon(_model, new address[](0), 5, bad, 0, true);
        bad = _spans;
        bad.commit = 31 days;
        vm.expectRevert(abi.encodeWithSelector(Juries.BadSummons.selector, "commit", 31 days));
        juries.summon(_model, new address[](0), 5, bad, 0, true);
        bad = _spans;
        bad.reveal = 0;
        vm.expectRevert(abi.encodeWithSelector(Juries.BadSummons.selector, "reveal", 0));
        juries.summon(_model, new address[](0), 5, bad, 0, true);
        vm.stopPrank();
    }

    function test_SeatedAfterItsBlockAndInTime() public {
        _auditors(6);
        uint64 jury = _summon(5, false);
        vm.roll(vm.getBlockNumber() + 4);
        vm.expectRevert(abi.encodeWithSelector(Juries.TooEarly.selector, vm.getBlockNumber() + 1));
        juries.seat(jury);
        vm.roll(vm.getBlockNumber() + 1);
        juries.seat(jury);
        assertEq(juries.membersOf(jury).length, 5);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.WrongStage.selector, jury, IJuries.Stage.SEATED)
        );
        juries.seat(jury);
        jury = _summon(5, false);
        vm.roll(vm.getBlockNumber() + 6);
        vm.warp(block.timestamp + 1 hours + 1);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.TooLate.selector, juries.juryOf(jury).seatUntil)
        );
        juries.seat(jury);
        assertTrue(juries.isOver(jury));
    }

    /// @dev Audit fault 22: the hash is gone after 256 blocks.
    function test_ALostHashIsReplacedByALaterOne() public {
        _auditors(6);
        uint64 jury = _summon(5, false);
        uint256 anchor = juries.juryOf(jury).anchor;
        vm.roll(vm.getBlockNumber() + 300);
        _auditor("late", 1_000_000 ether);
        juries.seat(jury);
        IJuries.Jury memory state = juries.juryOf(jury);
        assertEq(uint8(state.stage), uint8(IJuries.Stage.SUMMONED));
        assertEq(state.target, vm.getBlockNumber() + 4);
        assertEq(state.anchor, anchor, "the stakes are those of the summons");
        _seat(jury);
        assertEq(juries.membersOf(jury).length, 5);
        assertFalse(_isSeated(jury, makeAddr("late")), "audit fault 23");
    }

    function test_NoPartyJudgesByWhateverKey() public {
        _auditors(3);
        address[] memory parties = new address[](4);
        // By its account, by its beneficiary, by a retired key. Who names a stranger's beneficiary as its
        // own does not put the stranger out.
        (parties[0], parties[1]) = (auditors[0], vault.payoutTo(auditors[1]));
        address next = makeAddr("next key");
        vm.prank(auditors[2]);
        vault.proposeKey(auditors[2], next);
        vm.prank(next);
        vault.acceptKey(auditors[2]);
        parties[2] = next;
        address friend = makeAddr("friend");
        address honest = _auditor("d", 2_000 ether);
        address payout = vault.payoutTo(honest);
        _fund(friend, address(vault), 10_000 ether);
        vm.prank(friend);
        vault.stake(friend, payout, Role.DRAFTER, 1, new bytes32[](0));
        parties[3] = friend;
        address fair = _auditor("fair", 1_000 ether);
        uint64 jury = _summonFor(parties, 5, 0, false);
        _seat(jury);
        assertEq(juries.membersOf(jury).length, 2);
        assertTrue(_isSeated(jury, fair) && _isSeated(jury, honest));
    }

    function test_WhoCannotPayDoesNotSit() public {
        _auditors(4);
        // Nobody has told the pool that this stake is gone.
        _slash(auditors[0], Role.AUDITOR, 5_001, keccak256("x"));
        _slash(auditors[1], Role.AUDITOR, 4_999, keccak256("y"));
        uint64 jury = _summon(5, false);
        _seat(jury);
        assertEq(juries.membersOf(jury).length, 3);
        assertFalse(_isSeated(jury, auditors[0]));
        assertTrue(_isSeated(jury, auditors[1]));
    }

    function test_MembersOfTheJuryBeforeComeLast() public {
        _auditors(8);
        uint64 first = _summon(5, false);
        _seat(first);
        uint64 second = _summonFor(new address[](0), 3, first, false);
        _seat(second);
        address[] memory members = juries.membersOf(second);
        for (uint256 i; i < 3; ++i) {
            assertFalse(_isSeated(first, members[i]));
        }
        uint64 third = _summonFor(new address[](0), 15, first, false);
        _seat(third);
        members = juries.membersOf(third);
        assertEq(members.length, 8, "all there are");
        for (uint256 i; i < 8; ++i) {
            assertEq(_isSeated(first, members[i]), i >= 3);
        }
    }

    /// @dev 400 juries of one, from stakes 1 : 3. The mean is 300, its deviation 8.7.
    function test_DrawsByStake() public {
        _auditor("one", 10_000 ether);
        address three = _auditor("three", 30_000 ether);
        uint256 sat;
        for (uint256 i; i < 400; ++i) {
            uint64 jury = _summon(1, false);
            _seat(jury);
            if (_isSeated(jury, three)) ++sat;
        }
        assertGt(sat, 300 - 44);
        assertLt(sat, 300 + 44);
    }

    // ------------------------------------------------------------------ answers

    function test_OnlyAMembersOwnKeyCommits() public {
        _auditors(5);
        uint64 jury = _summon(5, true);
        bytes32 word = keccak256("answer");
        vm.prank(auditors[0]);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.WrongStage.selector, jury, IJuries.Stage.SUMMONED)
        );
        juries.commit(jury, word);
        _seat(jury);
        vm.expectRevert(abi.encodeWithSelector(Juries.NotMember.selector, jury, address(this)));
        juries.commit(jury, word);
        address payout = vault.payoutTo(auditors[0]);
        vm.prank(payout);
        vm.expectRevert(abi.encodeWithSelector(Juries.NotMember.selector, jury, payout));
        juries.commit(jury, word);
        address next = makeAddr("next key");
        vm.prank(auditors[0]);
        vault.proposeKey(auditors[0], next);
        vm.prank(next);
        vault.acceptKey(auditors[0]);
        vm.prank(auditors[0]);
        vm.expectRevert(abi.encodeWithSelector(Juries.NotMember.selector, jury, auditors[0]));
        juries.commit(jury, word);
        vm.startPrank(next);
        vm.expectRevert(Juries.ZeroCommitment.selector);
        juries.commit(jury, 0);
        juries.commit(jury, word);
        vm.expectRevert(abi.encodeWithSelector(Juries.AlreadyCommitted.selector, jury, auditors[0]));
        juries.commit(jury, keccak256("another"));
        vm.stopPrank();
        assertEq(juries.answerOf(jury, auditors[0]).commitment, word);
        vm.warp(juries.juryOf(jury).commitUntil + 1);
        vm.prank(auditors[1]);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.TooLate.selector, juries.juryOf(jury).commitUntil)
        );
        juries.commit(jury, word);
    }

    function test_NoAnswerIsSeenWhileAnotherCanBeGiven() public {
        _auditors(3);
        uint64 jury = _summon(3, false);
        _seat(jury);
        address m = auditors[0];
        bytes32 word = juries.commitmentOf(jury, m, false, 7, PRINT, _salt(jury, m));
        vm.prank(m);
        juries.commit(jury, word);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.WrongStage.selector, jury, IJuries.Stage.SEATED)
        );
        juries.reveal(jury, m, false, 7, PRINT, _salt(jury, m));
        vm.warp(juries.juryOf(jury).commitUntil + 1);
        juries.reveal(jury, m, false, 7, PRINT, _salt(jury, m));
        assertTrue(juries.isOver(jury), "all who committed have revealed");
        IJuries.Answer memory answer = juries.answerOf(jury, m);
        assertTrue(answer.revealed);
        assertEq(answer.margin, 7);
        assertEq(answer.print, PRINT);
        vm.expectRevert();
        juries.reveal(jury, m, false, 7, PRINT, _salt(jury, m));
    }

    function test_AJuryThatWaitsRevealsWhenItsCourtHasOpened() public {
        _auditors(3);
        uint64 jury = _summon(3, true);
        _seat(jury);
        vm.prank(_court);
        vm.expectRevert(abi.encodeWithSelector(Juries.StillOpen.selector, jury));
        juries.open(jury);
        _commit(jury);
        address m = auditors[0];
        vm.expectRevert(
            abi.encodeWithSelector(Juries.WrongStage.selector, jury, IJuries.Stage.SEATED)
        );
        juries.reveal(jury, m, false, 0, PRINT, _salt(jury, m));
        vm.expectRevert(abi.encodeWithSelector(Juries.NotCourt.selector, address(this)));
        juries.open(jury);
        assertFalse(juries.isOver(jury));
        vm.prank(_court);
        juries.open(jury);
        uint256 until = juries.juryOf(jury).revealUntil;
        assertEq(until, block.timestamp + 12 hours);
        juries.reveal(jury, m, false, 0, PRINT, _salt(jury, m));
        vm.warp(until + 1);
        vm.expectRevert(abi.encodeWithSelector(Juries.TooLate.selector, until));
        juries.reveal(jury, auditors[1], false, 0, PRINT, _salt(jury, auditors[1]));
        assertTrue(juries.isOver(jury));
        vm.prank(_court);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.WrongStage.selector, jury, IJuries.Stage.OPENED)
        );
        juries.open(jury);
    }

    /// @dev A commitment holds the member and the jury: what was copied opens nothing.
    function testFuzz_ACopiedCommitmentOpensNothing(uint64 margin, bytes32 print, bytes32 salt)
        public
    {
        _auditors(2);
        uint64 jury = _summon(2, false);
        uint64 other = _summon(2, false);
        _seat(jury);
        juries.seat(other);
        address author = auditors[0];
        bytes32 word = juries.commitmentOf(jury, author, false, margin, print, salt);
        vm.prank(author);
        juries.commit(jury, word);
        vm.prank(auditors[1]);
        juries.commit(jury, word);
        vm.startPrank(author);
        juries.commit(other, word);
        vm.stopPrank();
        vm.prank(auditors[1]);
        juries.commit(other, keccak256("x"));
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(jury, auditors[1], false, margin, print, salt);
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(other, author, false, margin, print, salt);
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(jury, author, true, margin, print, salt);
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(jury, author, false, margin ^ 1, print, salt);
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(jury, author, false, margin, ~print, salt);
        uint256 chain = block.chainid;
        vm.chainId(chain + 1);
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(jury, author, false, margin, print, salt);
        vm.chainId(chain);
        juries.reveal(jury, author, false, margin, print, salt);
    }

    // ------------------------------------------------------------------ silence

    function _price(address member) private view returns (uint256) {
        return AUDITOR_STAKE - vault.slashable(member, Role.AUDITOR);
    }

    function test_SilenceCostsOnce() public {
        _auditors(4);
        uint64 jury = _summon(4, false);
        _seat(jury);
        silent[auditors[0]] = true;
        _commit(jury);
        vm.expectRevert(abi.encodeWithSelector(Juries.StillSitting.selector, jury));
        juries.dismiss(jury, auditors[0]);
        // One answers, one does not open what it has committed to.
        juries.reveal(jury, auditors[1], false, 0, PRINT, _salt(jury, auditors[1]));
        vm.warp(juries.juryOf(jury).revealUntil + 1);
        vm.startPrank(stranger);
        juries.dismiss(jury, auditors[0]);
        juries.dismiss(jury, auditors[2]);
        assertEq(_price(auditors[0]), AUDITOR_STAKE * 5 / 100);
        assertEq(_price(auditors[2]), AUDITOR_STAKE * 5 / 100);
        uint64 slice = vault.sliceOf(block.timestamp + _times().unbonding) + 1;
        assertEq(vault.vestingOf(stranger, slice), 2 * (AUDITOR_STAKE * 5 / 100) * 4 / 100);
        juries.dismiss(jury, auditors[0]);
        assertEq(_price(auditors[0]), AUDITOR_STAKE * 5 / 100, "once");
        vm.expectRevert(abi.encodeWithSelector(Juries.NotSilent.selector, jury, auditors[1]));
        juries.dismiss(jury, auditors[1]);
        vm.expectRevert(abi.encodeWithSelector(Juries.NotSilent.selector, jury, stranger));
        juries.dismiss(jury, stranger);
        vm.stopPrank();
        _assertConserved();
    }

    /// @dev Protocol §9: what a seat costs is what it cost when the jury was summoned.
    function test_AJuryKeepsTheTermsOfItsSummons() public {
        _auditors(4);
        uint64 jury = _summon(4, false);
        IJuries.Jury memory summoned = juries.juryOf(jury);
        vm.prank(owner);
        juries.setTerms(IJuries.Terms(10_000, 5_000, 99));
        assertEq(keccak256(abi.encode(juries.juryOf(jury))), keccak256(abi.encode(summoned)));
        _seat(jury);
        silent[auditors[0]] = true;
        _commit(jury);
        vm.warp(juries.juryOf(jury).revealUntil + 1);
        vm.prank(stranger);
        juries.dismiss(jury, auditors[0]);
        assertEq(_price(auditors[0]), AUDITOR_STAKE * 5 / 100);
        uint64 slice = vault.sliceOf(block.timestamp + _times().unbonding) + 1;
        assertEq(vault.vestingOf(stranger, slice), AUDITOR_STAKE * 5 / 100 * 4 / 100);
        assertEq(juries.juryOf(_summon(4, false)).silentBps, 10_000);
    }

    function test_ACancelledJuryOwesNoReveal() public {
        _auditors(4);
        uint64 jury = _summon(4, true);
        vm.prank(_court);
        vm.expectRevert(
            abi.encodeWithSelector(Juries.WrongStage.selector, jury, IJuries.Stage.SUMMONED)
        );
        juries.cancel(jury);
        _seat(jury);
        vm.prank(_court);
        vm.expectRevert(abi.encodeWithSelector(Juries.StillOpen.selector, jury));
        juries.cancel(jury);
        silent[auditors[0]] = true;
        _commit(jury);
        vm.expectRevert(abi.encodeWithSelector(Juries.NotCourt.selector, address(this)));
        juries.cancel(jury);
        vm.prank(_court);
        juries.cancel(jury);
        assertTrue(juries.isOver(jury));
        juries.dismiss(jury, auditors[0]);
        assertEq(_price(auditors[0]), AUDITOR_STAKE * 5 / 100);
        vm.expectRevert(abi.encodeWithSelector(Juries.NotSilent.selector, jury, auditors[1]));
        juries.dismiss(jury, auditors[1]);
    }

    function test_AJuryOfNoneIsOverAtOnce() public {
        uint64 jury = _summon(5, true);
        _seat(jury);
        assertEq(juries.membersOf(jury).length, 0);
        assertTrue(juries.isOver(jury));
        assertFalse(juries.isOver(99));
    }

    // ------------------------------------------------------------------ owner

    function test_OnlyTheOwnerSetsTermsAndCourts() public {
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        juries.setCourt(stranger, true);
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        juries.setTerms(IJuries.Terms(500, 400, 4));
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(Juries.ZeroAddress.selector, "court"));
        juries.setCourt(address(0), true);
        vm.expectRevert(abi.encodeWithSelector(Juries.BadTerm.selector, "silentBps", 0));
        juries.setTerms(IJuries.Terms(0, 400, 4));
        vm.expectRevert(abi.encodeWithSelector(Juries.BadTerm.selector, "rewardBps", 5_001));
        juries.setTerms(IJuries.Terms(500, 5_001, 4));
        vm.expectRevert(abi.encodeWithSelector(Juries.BadTerm.selector, "delay", 0));
        juries.setTerms(IJuries.Terms(500, 400, 0));
        juries.setTerms(IJuries.Terms(600, 400, 4));
        vm.expectRevert(abi.encodeWithSelector(Juries.ZeroAddress.selector, "vault"));
        new Juries(owner, IStakeVault(address(0)), pool, IJuries.Terms(500, 400, 4));
        vm.expectRevert(abi.encodeWithSelector(Juries.ZeroAddress.selector, "pool"));
        new Juries(owner, vault, IAuditorPool(address(0)), IJuries.Terms(500, 400, 4));
        vm.stopPrank();
        assertEq(juries.terms().silentBps, 600);
    }
}
