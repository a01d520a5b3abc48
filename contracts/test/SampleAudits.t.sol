// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditTerms} from "../AuditTerms.sol";
import {SampleAudits} from "../SampleAudits.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IAuditTerms} from "../interfaces/IAuditTerms.sol";
import {IBonded} from "../interfaces/IBonded.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPlaceRule} from "../interfaces/IPlaceRule.sol";
import {ISampleAudits} from "../interfaces/ISampleAudits.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {PanelWork} from "./PanelWork.sol";

contract SampleAuditsTest is PanelWork {
    SampleAudits internal audits;
    AuditTerms internal auditTerms;
    address internal poster = makeAddr("poster");
    bytes32 internal constant SALT = keccak256("ticket");
    uint96 internal constant TICKET = 20 ether;
    uint8 internal constant SAMPLE = 1;

    function setUp() public override {
        super.setUp();
        IDrawBeacon.Terms memory drawn;
        (drawn.faultBps, drawn.samples) = (5_000, 4);
        vm.mockCall(address(beacon), abi.encodeCall(IDrawBeacon.terms, ()), abi.encode(drawn));
        IDrawBeacon b = IDrawBeacon(address(beacon));
        auditTerms = new AuditTerms(owner, b, _auditTerms());
        audits = new SampleAudits(vault, escrow, b, registry, placeRule, juries, panel, auditTerms);
        vm.startPrank(owner);
        juries.setCourt(address(audits), true);
        vault.setSlasher(address(audits), true);
        panelTerms.setReferrer(address(audits), true);
        escrow.setFeeSpender(address(audits), true);
        auditTerms.setFee(address(token), 1 ether);
        vm.stopPrank();
        _fund(poster, address(audits), 1_000 ether);
        _fund(poster, address(panel), BOND);
        _auditors(12);
    }

    function _auditTerms() private pure returns (IAuditTerms.Terms memory t) {
        (t.bond, t.size) = (TICKET, 3);
        (t.lateBps, t.silentBps, t.passedBps, t.rewardBps) = (500, 5_000, 500, 400);
        t.plantedBps = 5_000;
        t.referWindow = 1 days;
        t.spans = IJuries.Spans(1 hours, 1 days, 6 hours, 12 hours);
    }

    // ------------------------------------------------------------------ tickets

    /// @dev A settled batch with randomness, its lane drawn, and the place its sample falls on.
    function _drawn(Session memory s)
        private
        returns (IPlaceRule.Place memory p, IPlaceRule.Source memory source)
    {
        source = _source(s);
        bytes32 lane = Records.laneId(Records.laneOf(s.order));
        uint256 figures = uint256(600 ether) | uint256(400 ether) << 96;
        source.entries = abi.encode(lane, _rootHash(_settled(s)), figures);
        source.batch.entriesHash = keccak256(source.entries);
        source.batch.randomness = keccak256("randomness");
        _keep(source.batch);
        bytes32 seed =
            keccak256(abi.encodePacked("verdraft/sample/1", source.batch.randomness, uint32(0)));
        uint256 token_ = Openings.targetOf(seed, SAMPLE, _output(s));
        p = token_ < 3 ? _place(s, 0, token_) : _place(s, 1, token_ - 3);
        IDrawBeacon.DrawState memory state;
        state.stage = IDrawBeacon.Stage.OPEN;
        _drawState(state);
    }

    function _drawState(IDrawBeacon.DrawState memory state) private {
        vm.mockCall(
            address(beacon), abi.encodeCall(IDrawBeacon.drawState, (9, 0)), abi.encode(state)
        );
    }

    function _enter(ISampleAudits.Kind kind, bytes32 content) private returns (uint64 id) {
        bytes32 ticket = audits.ticketOf(kind, content, SALT);
        vm.prank(poster);
        id = audits.enter(ticket, Records.modelId(target));
    }

    function _enterDrawn() private returns (uint64) {
        return _enter(ISampleAudits.Kind.DRAWN, keccak256(abi.encode(9, 0, SAMPLE)));
    }

    function _canary() private pure returns (ISampleAudits.Canary memory c) {
        (c.startHash, c.round, c.within) = (keccak256("start"), 2, 1);
        (c.figures, c.print, c.text) = (keccak256("figures"), PRINT, keccak256("text"));
    }

    function _enterCanary() private returns (uint64) {
        return _enter(ISampleAudits.Kind.CANARY, keccak256(abi.encode(_canary())));
    }

    function _jury(uint64 id) private view returns (uint64) {
        return audits.auditOf(id).jury;
    }

    function _committed(uint64 id) private returns (uint64 jury) {
        jury = _jury(id);
        _seat(jury);
        _commit(jury);
    }

    function _name(uint64 id) private {
        (IPlaceRule.Place memory p, IPlaceRule.Source memory source) = _drawn(_said(1));
        audits.name(id, SALT, SAMPLE, abi.encode(p, source));
    }

    function _stageIs(uint64 id, ISampleAudits.Stage stage) private view {
        assertEq(uint8(audits.auditOf(id).stage), uint8(stage));
    }

    function _assertBooks() private view {
        IBonded.Bonds memory b = audits.bonds();
        assertEq(token.balanceOf(address(audits)), b.open + b.payable_ + b.burning, "bonds");
        _assertBonds();
    }

    // ------------------------------------------------------------------ drawn tokens

    function test_ADrawnTokenIsRunAgainAndPaidFor() public {
        uint64 id = _enterDrawn();
        assertEq(audits.bonds().open, TICKET);
        uint64 jury = _committed(id);
        _name(id);
        ISampleAudits.Audit memory audit = audits.auditOf(id);
        assertEq(audit.verifier, verifier.addr);
        assertEq(audit.fee, 1 ether);
        vm.expectPartialRevert(SampleAudits.NotThisPrint.selector);
        audits.openPrint(id, PRINT_SALT, FAR);
        audits.openPrint(id, PRINT_SALT, PRINT);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.StillSitting.selector, id));
        audits.finish(id);
        _reveal(jury);
        vm.expectEmit(address(audits));
        emit ISampleAudits.AuditMoved(id, ISampleAudits.Stage.DONE, JuryVerdict.Result.CLEARED);
        audits.finish(id);
        assertEq(audits.bondOf(poster), TICKET);
        address member = juries.membersOf(jury)[0];
        vm.expectCall(
            address(escrow), abi.encodeCall(escrow.spendFees, (address(token), member, 1 ether))
        );
        audits.pay(id, member);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.NothingToPay.selector, member));
        audits.pay(id, member);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.NothingToPay.selector, stranger));
        audits.pay(id, stranger);
        assertEq(_stakeV(), STAKE, "an audit convicts nobody");
        _assertBooks();
    }

    function test_WhatAuditorsFindIsSaid() public {
        _allSay(MARGIN + 1);
        uint64 id = _enterDrawn();
        uint64 jury = _committed(id);
        _name(id);
        audits.openPrint(id, PRINT_SALT, PRINT);
        _reveal(jury);
        vm.expectEmit(address(audits));
        emit ISampleAudits.AuditMoved(id, ISampleAudits.Stage.DONE, JuryVerdict.Result.GUILTY);
        audits.finish(id);
    }

    /// @dev A fingerprint that is nobody's was not computed.
    function test_MadeUpFingerprintsAreNotPaid() public {
        uint64 id = _enterDrawn();
        uint64 jury = _jury(id);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        printOf[members[0]] = FAR;
        _commit(jury);
        _name(id);
        audits.openPrint(id, PRINT_SALT, PRINT);
        _reveal(jury);
        audits.finish(id);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.NothingToPay.selector, members[0]));
        audits.pay(id, members[0]);
        audits.pay(id, members[1]);
    }

    /// @dev Two who agree against V are paid: they have found something.
    function test_TwoWhoAgreeAgainstVArePaid() public {
        uint64 id = _enterDrawn();
        uint64 jury = _jury(id);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        (printOf[members[0]], printOf[members[2]]) = (FAR, FAR);
        _commit(jury);
        _name(id);
        audits.openPrint(id, PRINT_SALT, PRINT);
        _reveal(jury);
        audits.finish(id);
        audits.pay(id, members[0]);
        audits.pay(id, members[1]);
        audits.pay(id, members[2]);
    }

    function test_TheFeeIsNoMoreThanTheLaneHasPaid() public {
        vm.prank(owner);
        auditTerms.setFee(address(token), 100 ether);
        uint64 id = _enterDrawn();
        _committed(id);
        _name(id);
        // 2 % of 1,000 over three auditors.
        assertEq(audits.auditOf(id).fee, uint256(20 ether) / 3);
    }

    function test_OnlyTheTokenThatWasDrawn() public {
        uint64 id = _enterDrawn();
        (IPlaceRule.Place memory p, IPlaceRule.Source memory source) = _drawn(_said(1));
        bytes memory question = abi.encode(p, source);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.StillCommitting.selector, id));
        audits.name(id, SALT, SAMPLE, question);
        _committed(id);
        vm.expectPartialRevert(SampleAudits.NotThisTicket.selector);
        audits.name(id, keccak256("another"), SAMPLE, question);
        vm.expectPartialRevert(SampleAudits.NotThisTicket.selector);
        audits.name(id, SALT, SAMPLE + 1, question);
        Session memory s = _said(1);
        bytes memory beside =
            abi.encode(p.record.round == 0 ? _place(s, 1, 0) : _place(s, 0, 0), source);
        vm.expectPartialRevert(SampleAudits.NotDrawn.selector);
        audits.name(id, SALT, SAMPLE, beside);
        IDrawBeacon.DrawState memory none;
        _drawState(none);
        vm.expectPartialRevert(SampleAudits.NotDrawn.selector);
        audits.name(id, SALT, SAMPLE, question);
        none.stage = IDrawBeacon.Stage.SHOWN;
        _drawState(none);
        uint256 snapshot = vm.snapshotState();
        vm.warp(audits.auditOf(id).openUntil);
        audits.name(id, SALT, SAMPLE, question);
        vm.revertToState(snapshot);
        vm.warp(audits.auditOf(id).openUntil + 1);
        vm.expectPartialRevert(SampleAudits.TooLate.selector);
        audits.name(id, SALT, SAMPLE, question);
    }

    function test_OfTheModelThatWasEntered() public {
        bytes32 ticket =
            audits.ticketOf(ISampleAudits.Kind.DRAWN, keccak256(abi.encode(9, 0, SAMPLE)), SALT);
        vm.prank(poster);
        uint64 id = audits.enter(ticket, Records.modelId(draft));
        _committed(id);
        (IPlaceRule.Place memory p, IPlaceRule.Source memory source) = _drawn(_said(1));
        vm.expectPartialRevert(SampleAudits.NotThisModel.selector);
        audits.name(id, SALT, SAMPLE, abi.encode(p, source));
    }

    function test_AnAccusationCanStillFollow() public {
        (IPlaceRule.Place memory p, IPlaceRule.Source memory source) = _drawn(_said(1));
        vm.warp(block.timestamp + 7 days - 1 hours);
        uint64 id = _enterDrawn();
        _committed(id);
        vm.warp(source.batch.settledAt + 7 days + 1);
        vm.expectRevert(
            abi.encodeWithSelector(SampleAudits.TooLate.selector, source.batch.settledAt + 7 days)
        );
        audits.name(id, SALT, SAMPLE, abi.encode(p, source));
    }

    function test_TheSecondAuditOfATokenIsItsPostersExpense() public {
        uint64 id = _enterDrawn();
        uint64 again = _enterDrawn();
        _committed(id);
        uint64 jury = _jury(again);
        juries.seat(jury);
        _commit(jury);
        _name(id);
        _name(again);
        _stageIs(again, ISampleAudits.Stage.DONE);
        assertEq(audits.auditOf(again).share, TICKET / 3);
        assertTrue(juries.isOver(jury), "and its auditors owe no reveal");
        address member = juries.membersOf(jury)[0];
        audits.pay(again, member);
        assertEq(audits.bondOf(member), TICKET / 3);
        _assertBooks();
    }

    function test_KeepingTheFingerprintBackCostsTwice() public {
        uint64 id = _enterDrawn();
        uint64 jury = _committed(id);
        _name(id);
        ISampleAudits.Audit memory audit = audits.auditOf(id);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.TooEarly.selector, audit.firstUntil));
        audits.expire(id);
        vm.warp(audit.firstUntil + 1);
        vm.prank(stranger);
        audits.expire(id);
        assertEq(_stakeV(), STAKE * 95 / 100);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.TooEarly.selector, audit.secondUntil));
        audits.expire(id);
        uint256 snapshot = vm.snapshotState();
        audits.openPrint(id, PRINT_SALT, PRINT);
        vm.revertToState(snapshot);
        vm.warp(audit.secondUntil + 1);
        vm.expectPartialRevert(SampleAudits.TooLate.selector);
        audits.openPrint(id, PRINT_SALT, PRINT);
        audits.expire(id);
        assertEq(_stakeV(), STAKE * 95 / 200);
        assertEq(audits.bondOf(poster), TICKET);
        assertTrue(juries.isOver(jury));
        vm.expectPartialRevert(SampleAudits.WrongStage.selector);
        audits.expire(id);
        _assertBooks();
    }

    function test_ATicketThatIsNeverOpenedIsTheAuditors() public {
        uint64 id = _enterDrawn();
        uint64 jury = _committed(id);
        uint40 until = audits.auditOf(id).openUntil;
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.TooEarly.selector, until));
        audits.lapse(id);
        vm.warp(until + 1);
        audits.lapse(id);
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < 3; ++i) {
            audits.pay(id, members[i]);
            assertEq(audits.bondOf(members[i]), TICKET / 3);
        }
        assertEq(audits.bondOf(poster), 0);
        vm.expectPartialRevert(SampleAudits.WrongStage.selector);
        audits.lapse(id);
        _assertBooks();
    }

    function test_WhereNobodyWasSeatedTheBondGoesBack() public {
        uint64 id = _enterDrawn();
        vm.warp(audits.auditOf(id).openUntil + 1);
        audits.lapse(id);
        assertEq(audits.bondOf(poster), TICKET);
        _assertBooks();
    }

    // ------------------------------------------------------------------ canaries

    function _planted(uint64 id) private returns (uint64 jury) {
        jury = _committed(id);
        ISampleAudits.Canary memory c = _canary();
        c.print = FAR;
        vm.expectPartialRevert(SampleAudits.NotThisTicket.selector);
        audits.plant(id, SALT, c);
        audits.plant(id, SALT, _canary());
        _reveal(jury);
    }

    function test_ACanaryThatEverybodyFinds() public {
        _allSay(2 * MARGIN + 1);
        uint64 id = _enterCanary();
        uint64 jury = _planted(id);
        audits.finish(id);
        _stageIs(id, ISampleAudits.Stage.DONE);
        assertEq(audits.bondOf(poster), TICKET / 2);
        address member = juries.membersOf(jury)[0];
        audits.pay(id, member);
        assertEq(audits.bondOf(member), TICKET / 6);
        vm.expectPartialRevert(SampleAudits.WrongStage.selector);
        audits.punish(id, member);
        _assertBooks();
    }

    /// @dev Two of three pass what the panel finds wrong.
    function test_WhoPassesACanaryPays() public {
        _allSay(2 * MARGIN + 1);
        uint64 id = _enterCanary();
        uint64 jury = _jury(id);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        (marginOf[members[0]], marginOf[members[1]]) = (0, 0);
        _commit(jury);
        audits.plant(id, SALT, _canary());
        _reveal(jury);
        audits.finish(id);
        _stageIs(id, ISampleAudits.Stage.PASSED);
        vm.expectRevert(
            abi.encodeWithSelector(SampleAudits.NotPlanter.selector, address(this), poster)
        );
        audits.refer(id, _canary());
        ISampleAudits.Canary memory other = _canary();
        other.within += 1;
        vm.prank(poster);
        vm.expectPartialRevert(SampleAudits.NotThisTicket.selector);
        audits.refer(id, other);
        IAuditPanel.Charge memory c = _refer(id);
        assertEq(c.margin, 2 * MARGIN, "wrong by far");
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.StillSitting.selector, id));
        audits.conclude(id);
        _allSay(2 * MARGIN + 1);
        _conclude(c);
        audits.conclude(id);
        _stageIs(id, ISampleAudits.Stage.WRONG);
        audits.punish(id, members[0]);
        audits.punish(id, members[0]);
        audits.punish(id, members[1]);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.NothingToPunish.selector, members[2]));
        audits.punish(id, members[2]);
        assertEq(vault.slashable(members[0], Role.AUDITOR), AUDITOR_STAKE * 95 / 100, "once");
        assertEq(vault.slashable(members[1], Role.AUDITOR), AUDITOR_STAKE * 95 / 100);
        assertEq(vault.slashable(members[2], Role.AUDITOR), AUDITOR_STAKE);
        assertEq(_vestedTo(poster), 2 * (AUDITOR_STAKE * 5 / 100) / 2);
        assertEq(audits.bondOf(poster), TICKET / 2);
        assertEq(panel.bondOf(poster), BOND);
        _assertBooks();
    }

    function _refer(uint64 id) private returns (IAuditPanel.Charge memory) {
        vm.recordLogs();
        vm.prank(poster);
        audits.refer(id, _canary());
        return _chargeIn(vm.getRecordedLogs());
    }

    /// @dev A planter who calls a right answer wrong loses both bonds, and nobody else loses anything.
    function test_ACanaryThatIsRightCostsItsPlanter() public {
        uint64 id = _enterCanary();
        uint64 jury = _planted(id);
        audits.finish(id);
        IAuditPanel.Charge memory c = _refer(id);
        vm.expectPartialRevert(SampleAudits.WrongStage.selector);
        audits.refer(id, _canary());
        // What differs by less than twice the tolerance is not wrong by far.
        _allSay(2 * MARGIN);
        _conclude(c);
        audits.conclude(id);
        _stageIs(id, ISampleAudits.Stage.DONE);
        assertEq(audits.bondOf(poster), 0);
        assertEq(panel.bondOf(poster), 0);
        address member = juries.membersOf(jury)[0];
        vm.expectPartialRevert(SampleAudits.WrongStage.selector);
        audits.punish(id, member);
        audits.pay(id, member);
        assertEq(audits.bondOf(member), TICKET / 3);
        _assertBooks();
    }

    function test_APlanterWhoDoesNotGoToThePanelLosesItsBond() public {
        uint64 id = _enterCanary();
        _planted(id);
        audits.finish(id);
        uint40 until = audits.auditOf(id).firstUntil;
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.TooEarly.selector, until));
        audits.conclude(id);
        vm.warp(until + 1);
        vm.prank(poster);
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.TooLate.selector, until));
        audits.refer(id, _canary());
        audits.conclude(id);
        _stageIs(id, ISampleAudits.Stage.DONE);
        assertEq(audits.bondOf(poster), 0);
        _assertBooks();
    }

    function test_WhereThePanelFindsNothingNobodyPays() public {
        uint64 id = _enterCanary();
        _planted(id);
        audits.finish(id);
        IAuditPanel.Charge memory c = _refer(id);
        vm.warp(block.timestamp + 2 hours);
        panel.decide(c);
        audits.conclude(id);
        _stageIs(id, ISampleAudits.Stage.DONE);
        assertEq(audits.bondOf(poster), TICKET / 2);
        assertEq(panel.bondOf(poster), BOND);
        _assertBooks();
    }

    /// @dev A canary opens no batch and a batch no canary: each ticket names one kind.
    function test_ACanaryExcusesNoSettledToken() public {
        uint64 id = _enterCanary();
        _committed(id);
        (IPlaceRule.Place memory p, IPlaceRule.Source memory source) = _drawn(_said(1));
        vm.expectPartialRevert(SampleAudits.NotThisTicket.selector);
        audits.name(id, SALT, SAMPLE, abi.encode(p, source));
        uint64 drawn = _enterDrawn();
        _committed(drawn);
        vm.expectPartialRevert(SampleAudits.NotThisTicket.selector);
        audits.plant(drawn, SALT, _canary());
        // Whatever was planted, the settled token can be accused.
        _allSay(MARGIN + 1);
        _conclude(_accuse(9, abi.encode(p, source)));
        assertEq(_stakeV(), STAKE / 2);
    }

    function test_NothingTellsACanaryBeforeAllHaveCommitted() public {
        uint64 id = _enterCanary();
        _seat(_jury(id));
        vm.expectRevert(abi.encodeWithSelector(SampleAudits.StillCommitting.selector, id));
        audits.plant(id, SALT, _canary());
        assertFalse(juries.isMember(_jury(id), poster));
    }

    // ------------------------------------------------------------------ terms

    function _refused(IAuditTerms.Terms memory t, string memory what, uint256 value) private {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(AuditTerms.BadTerm.selector, what, value));
        auditTerms.setTerms(t);
    }

    function test_TermsHaveTheirBounds() public {
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        auditTerms.setTerms(_auditTerms());
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        auditTerms.setFee(address(token), 1);
        IAuditTerms.Terms memory t = _auditTerms();
        t.bond = 0;
        _refused(t, "bond", 0);
        (t.bond, t.size) = (TICKET, 9);
        _refused(t, "size", 9);
        (t.size, t.lateBps) = (3, 10_001);
        _refused(t, "lateBps", 10_001);
        (t.lateBps, t.silentBps) = (500, 4_999);
        _refused(t, "silentBps", 4_999);
        (t.silentBps, t.passedBps) = (5_000, 0);
        _refused(t, "passedBps", 0);
        (t.passedBps, t.rewardBps) = (500, 500);
        _refused(t, "rewardBps", 500);
        (t.rewardBps, t.plantedBps) = (400, 5_001);
        _refused(t, "plantedBps", 5_001);
        (t.plantedBps, t.referWindow) = (5_000, 0);
        _refused(t, "referWindow", 0);
        (t.referWindow, t.spans.open) = (1 days, 0);
        _refused(t, "open", 0);
    }

    /// @dev Protocol §9: whatever the owner sets afterwards, a ticket is paid and judged by the terms it
    /// was entered under.
    function _harsher() private {
        IAuditTerms.Terms memory t = _auditTerms();
        (t.bond, t.size) = (1, 1);
        (t.lateBps, t.silentBps, t.passedBps, t.rewardBps) = (5_000, 10_000, 10_000, 0);
        (t.plantedBps, t.referWindow) = (0, 1);
        t.spans = IJuries.Spans(1, 1, 1, 1);
        vm.prank(owner);
        auditTerms.setTerms(t);
        assertEq(auditTerms.terms().bond, 1);
    }

    function test_ADrawnTokenKeepsTheTermsOfItsEntry() public {
        uint64 id = _enterDrawn();
        _harsher();
        assertEq(keccak256(abi.encode(audits.termsOf(id))), keccak256(abi.encode(_auditTerms())));
        uint64 jury = _committed(id);
        assertEq(juries.membersOf(jury).length, 3);
        vm.warp(audits.auditOf(id).openUntil); // six hours, not a second
        _name(id);
        vm.warp(audits.auditOf(id).firstUntil + 1);
        vm.prank(stranger);
        audits.expire(id);
        assertEq(_stakeV(), STAKE * 95 / 100);
        vm.warp(audits.auditOf(id).secondUntil + 1);
        vm.prank(stranger);
        audits.expire(id);
        assertEq(_stakeV(), STAKE * 95 / 200);
        assertEq(_vestedTo(stranger), STAKE * 95 / 200 * 4 / 100);
        assertEq(audits.bondOf(poster), TICKET);
        // Who enters now does so under what stands now.
        uint64 later = _enterCanary();
        assertEq(audits.termsOf(later).bond, 1);
        _assertBooks();
    }

    function test_ACanaryKeepsTheTermsOfItsEntry() public {
        _allSay(2 * MARGIN + 1);
        uint64 id = _enterCanary();
        _harsher();
        uint64 jury = _jury(id);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        marginOf[members[0]] = 0;
        _commit(jury);
        audits.plant(id, SALT, _canary());
        _reveal(jury);
        audits.finish(id);
        assertEq(audits.auditOf(id).firstUntil, block.timestamp + 1 days, "to go to the panel");
        IAuditPanel.Charge memory c = _refer(id);
        _allSay(2 * MARGIN + 1);
        _conclude(c);
        audits.conclude(id);
        audits.punish(id, members[0]);
        assertEq(vault.slashable(members[0], Role.AUDITOR), AUDITOR_STAKE * 95 / 100);
        assertEq(_vestedTo(poster), AUDITOR_STAKE * 5 / 100 / 2);
        _assertBooks();
    }
}
