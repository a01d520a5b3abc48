// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditPanel} from "../AuditPanel.sol";
import {Bonded} from "../Bonded.sol";
import {ClaimJudge} from "../ClaimJudge.sol";
import {Juries} from "../Juries.sol";
import {PanelTerms} from "../PanelTerms.sol";
import {PlaceRule} from "../PlaceRule.sol";
import {StakeVault} from "../StakeVault.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IPanelTerms} from "../interfaces/IPanelTerms.sol";
import {IPlaceRule} from "../interfaces/IPlaceRule.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Fingerprints} from "../libraries/Fingerprints.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {Records} from "../libraries/Records.sol";
import {PanelWork} from "./PanelWork.sol";

contract AuditPanelTest is PanelWork {
    uint64 private constant LEDGER_CASE = 3;

    function setUp() public override {
        super.setUp();
        _auditors(24);
    }

    function _result(IAuditPanel.Charge memory c) private view returns (JuryVerdict.Result) {
        return panel.caseOf(c.caseId).result;
    }

    function _assertResult(IAuditPanel.Charge memory c, JuryVerdict.Result result) private view {
        assertEq(uint8(_result(c)), uint8(result));
    }

    function _stageOf(IAuditPanel.Charge memory c) private view returns (IAuditPanel.Stage) {
        return panel.caseOf(c.caseId).stage;
    }

    /// @dev The ledger's case, as the panel and its judge ask for it.
    function _ledgerCase(IAlphaLedger.Stage stage, address who, bytes32 claim, uint64 openedAt)
        private
    {
        IAlphaLedger.Case memory opened;
        (opened.stage, opened.verifier, opened.claimId) = (stage, who, claim);
        opened.openedAt = openedAt;
        vm.mockCall(
            address(ledger), abi.encodeCall(IAlphaLedger.caseOf, (LEDGER_CASE)), abi.encode(opened)
        );
    }

    // ------------------------------------------------------------------ F9

    function test_GuiltyByMargin() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        assertEq(c.accused, verifier.addr);
        assertEq(panel.bonds().open, BOND);
        _toDecision(c);
        vm.expectRevert(
            abi.encodeWithSelector(AuditPanel.TooEarly.selector, panel.caseOf(c.caseId).appealUntil)
        );
        panel.conclude(c);
        assertEq(_stakeV(), STAKE, "nobody is punished while he may appeal");
        vm.warp(panel.caseOf(c.caseId).appealUntil + 1);
        panel.conclude(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2);
        // The round: three tokens of output and two accepted; the token asked about was accepted.
        assertEq(_vestedTo(client.addr), 8 ether);
        assertEq(_vestedTo(drafter.addr), 0);
        assertEq(_vestedTo(accuser), STAKE / 8);
        assertEq(panel.bondOf(accuser), BOND);
        assertTrue(vault.punished(_name(9, verifier.addr, c)));
        _assertBonds();
    }

    function _name(uint8 fault, address guilty, IAuditPanel.Charge memory c)
        private
        pure
        returns (bytes32)
    {
        return keccak256(
            abi.encode("verdraft/fault/1", fault, guilty, c.subject.startHash, c.subject.round)
        );
    }

    function test_GuiltyByDistanceAndDIsPaidForAFalseReject() public {
        for (uint256 i; i < auditors.length; ++i) {
            printOf[auditors[i]] = FAR;
        }
        IAuditPanel.Charge memory c = _accuse(9, _question(_said(1), 0, 2));
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_vestedTo(drafter.addr), 1 ether);
        _assertBonds();
    }

    function test_ClearedAndTheBondIsLost() public {
        _allSay(MARGIN);
        IAuditPanel.Charge memory c = _accuseV();
        uint64 jury = _juryOf(c);
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.CLEARED);
        assertEq(_stakeV(), STAKE);
        assertEq(panel.bondOf(accuser), 0);
        assertEq(panel.bondOf(verifier.addr), BOND / 2);
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < 5; ++i) {
            panel.payJuror(c, false, members[i]);
            assertEq(panel.bondOf(members[i]), BOND / 10);
        }
        assertEq(escrow.payableTo(members[0], address(token)), 0, "no fees for a false case");
        assertEq(panel.bonds().open, 0);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.NothingToPay.selector, members[0]));
        panel.payJuror(c, false, members[0]);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.NothingToPay.selector, stranger));
        panel.payJuror(c, false, stranger);
        panel.pullBond(members[0]);
        assertEq(token.balanceOf(vault.payoutTo(members[0])), BOND / 10);
        vm.expectRevert(abi.encodeWithSelector(Bonded.NothingToPull.selector, members[0]));
        panel.pullBond(members[0]);
        _assertBonds();
    }

    function test_OnePlaceCanBeAccusedAgainAtTwiceTheBond() public {
        IAuditPanel.Charge memory c = _accuseV();
        _conclude(c);
        IAuditPanel.Charge memory again = _accuse(9, _question(_said(1), 0, 1));
        assertEq(again.bond, 2 * BOND);
        // Another token of the round has its own.
        assertEq(_accuse(9, _question(_said(1), 0, 0)).bond, BOND);
        _allSay(MARGIN + 1);
        _conclude(again);
        _assertResult(again, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2, "being cleared bars nothing");
    }

    function test_WhatWasPunishedIsNotTriedAgain() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.AlreadyOpen.selector, c.caseId));
        this.accuseAgain(0, 1);
        _conclude(c);
        bytes32 name = _name(9, verifier.addr, c);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.AlreadyPunished.selector, name));
        this.accuseAgain(0, 0);
    }

    function accuseAgain(uint256 index, uint256 within) external {
        bytes memory question = _question(_said(1), index, within);
        vm.prank(accuser);
        panel.accuse(9, question);
    }

    function test_SilenceOfTheAccusedCostsWhatTheFaultWould() public {
        IAuditPanel.Charge memory c = _accuseV();
        uint64 jury = _juryOf(c);
        _seat(jury);
        vm.expectRevert(abi.encodeWithSelector(Juries.StillOpen.selector, jury));
        panel.openPrint(c, PRINT_SALT, PRINT);
        silent[juries.membersOf(jury)[0]] = true;
        _commit(jury);
        vm.expectPartialRevert(AuditPanel.NotThisPrint.selector);
        panel.openPrint(c, PRINT_SALT, FAR);
        vm.expectPartialRevert(AuditPanel.NotThisPrint.selector);
        panel.openPrint(c, keccak256("another"), PRINT);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.StillSitting.selector, jury));
        panel.decide(c);
        vm.warp(panel.caseOf(c.caseId).openUntil + 1);
        vm.expectPartialRevert(AuditPanel.TooLate.selector);
        panel.openPrint(c, PRINT_SALT, PRINT);
        panel.decide(c);
        _assertResult(c, JuryVerdict.Result.WITHHELD);
        vm.warp(panel.caseOf(c.caseId).appealUntil + 1);
        panel.conclude(c);
        assertEq(_stakeV(), STAKE / 2);
        assertFalse(vault.punished(_name(9, verifier.addr, c)), "under a name of its own");
        // Those who have committed are paid, the silent one is not.
        address[] memory members = juries.membersOf(jury);
        panel.payJuror(c, false, members[1]);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.NothingToPay.selector, members[0]));
        panel.payJuror(c, false, members[0]);
        _assertBonds();
    }

    function test_WhatMostWereNotGivenVWithholds() public {
        IAuditPanel.Charge memory c = _accuseV();
        uint64 jury = _juryOf(c);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < 3; ++i) {
            says[members[i]] = true;
        }
        _commit(jury);
        panel.openPrint(c, PRINT_SALT, PRINT);
        _reveal(jury);
        panel.decide(c);
        _assertResult(c, JuryVerdict.Result.WITHHELD);
    }

    function test_ASilentJuryIsFollowedByALarger() public {
        IAuditPanel.Charge memory c = _accuseV();
        uint64 jury = _juryOf(c);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < 3; ++i) {
            silent[members[i]] = true;
        }
        _allSay(MARGIN + 1);
        _commit(jury);
        panel.openPrint(c, PRINT_SALT, PRINT);
        _reveal(jury);
        panel.decide(c);
        assertEq(uint8(_stageOf(c)), uint8(IAuditPanel.Stage.APPEAL));
        uint64 larger = _juryOf(c);
        assertEq(juries.juryOf(larger).size, 15);
        assertFalse(juries.juryOf(larger).waits, "the fingerprint is known");
        _toDecision(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2);
        juries.dismiss(jury, members[0]);
        assertEq(vault.slashable(members[0], Role.AUDITOR), AUDITOR_STAKE * 95 / 100);
        _assertBonds();
    }

    function test_WhereNobodySitsTheCaseIsVoid() public {
        IAuditPanel.Charge memory c = _accuseV();
        uint64 jury = _juryOf(c);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.StillSitting.selector, jury));
        panel.decide(c);
        vm.warp(block.timestamp + 1 hours + 1);
        panel.decide(c);
        _assertResult(c, JuryVerdict.Result.VOID);
        assertEq(uint8(_stageOf(c)), uint8(IAuditPanel.Stage.CLOSED));
        assertEq(panel.bondOf(accuser), BOND);
        // Nothing was said, so it can be asked again, at the same bond.
        assertEq(_accuse(9, _question(_said(1), 0, 1)).bond, BOND);
        _assertBonds();
    }

    // ------------------------------------------------------------------ appeals

    function test_AnAppealOverturns() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        vm.expectRevert(
            abi.encodeWithSelector(
                AuditPanel.WrongStage.selector, c.caseId, IAuditPanel.Stage.PANEL
            )
        );
        panel.appeal(c);
        _toDecision(c);
        uint64 first = _juryOf(c);
        _appeal(c, beneficiaryV);
        assertEq(panel.bonds().open, 3 * BOND);
        _allSay(0);
        _toDecision(c);
        _assertResult(c, JuryVerdict.Result.CLEARED);
        assertEq(_stakeV(), STAKE);
        assertEq(panel.bondOf(beneficiaryV), 2 * BOND);
        assertEq(panel.bondOf(verifier.addr), BOND / 2);
        // Both juries share the rest.
        uint256 share = BOND / 2 / 20;
        address[] memory members = juries.membersOf(_juryOf(c));
        assertEq(members.length, 15);
        for (uint256 i; i < 15; ++i) {
            assertFalse(juries.isMember(first, members[i]), "new members first");
            panel.payJuror(c, true, members[i]);
        }
        members = juries.membersOf(first);
        for (uint256 i; i < 5; ++i) {
            panel.payJuror(c, false, members[i]);
            assertEq(panel.bondOf(members[i]), share);
        }
        assertEq(panel.bonds().open, 0);
        _assertBonds();
    }

    function test_AnAppealAgainstAClearanceOverturns() public {
        IAuditPanel.Charge memory c = _accuseV();
        _toDecision(c);
        _appeal(c, stranger);
        _allSay(MARGIN + 1);
        _toDecision(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2);
        assertEq(panel.bondOf(stranger), 2 * BOND);
        assertEq(panel.bondOf(accuser), BOND);
        _assertBonds();
    }

    function test_ALostAppealCostsItsBond() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        _toDecision(c);
        _appeal(c, beneficiaryV);
        _toDecision(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2);
        assertEq(panel.bondOf(beneficiaryV), 0);
        assertEq(panel.bondOf(accuser), BOND + BOND, "half of the appeal's bond");
        vm.expectRevert(
            abi.encodeWithSelector(
                AuditPanel.WrongStage.selector, c.caseId, IAuditPanel.Stage.CLOSED
            )
        );
        panel.appeal(c);
        _assertBonds();
    }

    function test_AnAppealThatSaysNothingLeavesTheVerdict() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        _toDecision(c);
        _appeal(c, beneficiaryV);
        vm.warp(block.timestamp + 1 hours + 1);
        panel.decide(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2);
        assertEq(panel.bondOf(beneficiaryV), 2 * BOND, "nobody has said that he was wrong");
        _assertBonds();
    }

    function test_AppealsHaveTheirTime() public {
        IAuditPanel.Charge memory c = _accuseV();
        _toDecision(c);
        uint40 until = panel.caseOf(c.caseId).appealUntil;
        assertEq(until, block.timestamp + 1 days);
        vm.warp(until + 1);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.TooLate.selector, until));
        panel.appeal(c);
    }

    // ------------------------------------------------------------------ what may be asked

    function test_OnlyWhatWasSettledAndInTime() public {
        Session memory s = _said(1);
        IPlaceRule.Place memory p = _place(s, 0, 1);
        IPlaceRule.Source memory source = _source(s);
        vm.startPrank(accuser);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.UnknownFault.selector, 10));
        panel.accuse(10, abi.encode(p, source));
        source.batch.settledAt -= 1;
        vm.expectPartialRevert(PlaceRule.NotThisBatch.selector);
        panel.accuse(9, abi.encode(p, source));
        source.batch.settledAt += 1;
        source.entries[95] = 0x01;
        vm.expectPartialRevert(PlaceRule.NotTheseEntries.selector);
        panel.accuse(9, abi.encode(p, source));
        source.entries[95] = 0x00;
        source.index = 1;
        vm.expectRevert(abi.encodeWithSelector(PlaceRule.NoSuchEntry.selector, 1, 1));
        panel.accuse(9, abi.encode(p, source));
        source.index = 0;
        p.leaf.token ^= 1;
        vm.expectRevert();
        panel.accuse(9, abi.encode(p, source));
        p.leaf.token ^= 1;
        p.within = 3;
        vm.expectRevert(abi.encodeWithSelector(Evidence.NoSuchPlace.selector, "token", 3, 3));
        panel.accuse(9, abi.encode(p, source));
        p.within = 1;
        p.order.priceOutput += 1;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        panel.accuse(9, abi.encode(p, source));
        p.order.priceOutput -= 1;
        p.settled.leafCount += 1;
        vm.expectRevert();
        panel.accuse(9, abi.encode(p, source));
        p.settled.leafCount -= 1;
        vm.warp(block.timestamp + 9 days);
        uint256 snapshot = vm.snapshotState();
        panel.accuse(9, abi.encode(p, source));
        vm.revertToState(snapshot);
        vm.warp(block.timestamp + 1);
        vm.expectRevert(
            abi.encodeWithSelector(AuditPanel.EvidenceOver.selector, block.timestamp - 1)
        );
        panel.accuse(9, abi.encode(p, source));
        vm.stopPrank();
    }

    /// @dev Three who come first cannot judge everybody.
    function test_AFewJudgeNobody() public {
        bytes32 model = Records.modelId(target);
        for (uint256 i; i < 22; ++i) {
            vm.prank(auditors[i]);
            vault.setModel(auditors[i], Role.AUDITOR, model, false);
            pool.sync(auditors[i], model, 0);
        }
        bytes memory question = _question(_said(1), 0, 1);
        vm.prank(accuser);
        vm.expectRevert(
            abi.encodeWithSelector(
                AuditPanel.PoolTooSmall.selector, 2 * AUDITOR_STAKE, 3 * AUDITOR_STAKE
            )
        );
        panel.accuse(9, question);
        vm.startPrank(auditors[0]);
        vault.setModel(auditors[0], Role.AUDITOR, model, true);
        pool.sync(auditors[0], model, 0);
        vm.stopPrank();
        vm.prank(accuser);
        panel.accuse(9, question);
    }

    function test_AnotherLanesRootIsNotThisOnes() public {
        Session memory s = _said(1);
        IPlaceRule.Place memory p = _place(s, 0, 1);
        IPlaceRule.Source memory source = _source(s);
        source.entries = abi.encode(keccak256("lane"), _rootHash(_settled(s)), uint256(0));
        source.batch.entriesHash = keccak256(source.entries);
        _keep(source.batch);
        vm.startPrank(accuser);
        vm.expectPartialRevert(PlaceRule.NotSettled.selector);
        panel.accuse(9, abi.encode(p, source));
        source.entries =
            abi.encode(Records.laneId(Records.laneOf(s.order)), keccak256("root"), uint256(0));
        source.batch.entriesHash = keccak256(source.entries);
        _keep(source.batch);
        vm.expectPartialRevert(PlaceRule.NotSettled.selector);
        panel.accuse(9, abi.encode(p, source));
        vm.stopPrank();
    }

    // ------------------------------------------------------------------ F12

    function test_ADraftOfAnotherModelInRejectionMode() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuse(12, _draftQuestion(_said(2), 1, 0));
        assertEq(c.accused, drafter.addr);
        assertEq(c.subject.model, Records.modelId(draft));
        assertFalse(juries.juryOf(_juryOf(c)).waits, "D has no fingerprint to open");
        vm.expectRevert();
        panel.openPrint(c, PRINT_SALT, PRINT);
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeD(), STAKE / 2);
        assertEq(_stakeV(), STAKE);
        assertEq(_vestedTo(client.addr), 2 ether, "the two that were accepted");
        _assertBonds();
    }

    function test_DoesNotAnswerForVsSilence() public {
        IAuditPanel.Charge memory c = _accuse(12, _draftQuestion(_said(2), 1, 0));
        for (uint256 i; i < auditors.length; ++i) {
            says[auditors[i]] = true;
        }
        _toDecision(c);
        assertEq(uint8(_stageOf(c)), uint8(IAuditPanel.Stage.APPEAL));
        _toDecision(c);
        _assertResult(c, JuryVerdict.Result.VOID);
        assertEq(_stakeD(), STAKE);
        assertEq(panel.bondOf(accuser), BOND);
    }

    function test_StrictDraftsAreJudgedOnlyWhereDHasGivenItsWord() public {
        Session memory s = _said(1);
        bytes memory question = _draftQuestion(s, 1, LEDGER_CASE);
        _ledgerCase(IAlphaLedger.Stage.OPEN, address(0), CLAIM, 0);
        vm.startPrank(accuser);
        vm.expectRevert(abi.encodeWithSelector(PlaceRule.NothingAsserted.selector, LEDGER_CASE));
        panel.accuse(12, question);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, address(0), keccak256("other"), 0);
        vm.expectRevert(abi.encodeWithSelector(PlaceRule.NothingAsserted.selector, LEDGER_CASE));
        panel.accuse(12, question);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, stranger, CLAIM, 0);
        vm.expectRevert(abi.encodeWithSelector(PlaceRule.NothingAsserted.selector, LEDGER_CASE));
        panel.accuse(12, question);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, verifier.addr, CLAIM, 0);
        panel.accuse(12, question);
        vm.stopPrank();
    }

    function test_DAnswersForWhatDSigned() public {
        Session memory s = _said(2);
        IPlaceRule.Place memory p = _place(s, 0, 1);
        IPlaceRule.Source memory source = _source(s);
        p.commitSignature = _sign(verifier.key, Records.hash(p.commit));
        vm.startPrank(accuser);
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        panel.accuse(12, abi.encode(p, source, 0));
        p = _place(s, 0, 1);
        p.draft.q -= 1;
        vm.expectRevert();
        panel.accuse(12, abi.encode(p, source, 0));
        p = _place(s, 1, 3);
        vm.expectRevert(abi.encodeWithSelector(Evidence.NoSuchPlace.selector, "draft", 3, 3));
        panel.accuse(12, abi.encode(p, source, 0));
        vm.stopPrank();
    }

    function test_WithoutADraftModelNothingIsRunAgain() public {
        Session memory s = _said(2);
        s.order.draftModel = 0;
        _seal(s);
        bytes memory question = _draftQuestion(s, 1, 0);
        vm.prank(accuser);
        vm.expectRevert(PlaceRule.NoDraftModel.selector);
        panel.accuse(12, question);
    }

    // ------------------------------------------------------------------ the exact tier

    function test_OneHashInTheExactTier() public {
        Records.Manifest memory exact = _manifest("exact", 0);
        bytes32 model = Records.modelId(exact);
        for (uint256 i; i < auditors.length; ++i) {
            vm.startPrank(auditors[i]);
            vault.setModel(auditors[i], Role.AUDITOR, model, true);
            pool.sync(auditors[i], model, 0);
            vm.stopPrank();
        }
        Session memory s = _said(1);
        s.order.targetModel = model;
        _seal(s);
        IAuditPanel.Charge memory c = _accuse(9, _question(s, 0, 1));
        assertTrue(c.exact);
        bytes32 right = keccak256(abi.encode(c.subject.figures, PRINT));
        for (uint256 i; i < auditors.length; ++i) {
            (printOf[auditors[i]], marginOf[auditors[i]]) = (right, type(uint64).max);
        }
        uint256 snapshot = vm.snapshotState();
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.CLEARED);
        vm.revertToState(snapshot);
        for (uint256 i; i < auditors.length; ++i) {
            printOf[auditors[i]] = keccak256("another");
        }
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertEq(_stakeV(), STAKE / 2);
    }

    // ------------------------------------------------------------------ fees

    function test_JurorsOfATrueCaseArePaidFromFees() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        vm.prank(owner);
        panelTerms.setFee(address(token), 50 ether);
        _conclude(c);
        uint64 jury = _juryOf(c);
        address[] memory members = juries.membersOf(jury);
        // Asked for what stood at the filing; there are no fees here, so the call is looked at.
        vm.expectCall(
            address(escrow), abi.encodeCall(escrow.spendFees, (address(token), members[0], FEE))
        );
        panel.payJuror(c, false, members[0]);
        vm.prank(owner);
        escrow.setFeeSpender(address(panel), false);
        panel.payJuror(c, false, members[1]);
        assertTrue(panel.isPaid(jury, members[1]), "and nothing is stuck without them");
    }

    // ------------------------------------------------------------------ AlphaLedger

    function test_AConvictionRefutesTheAssertion() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuse(12, _draftQuestion(_said(2), 1, 0));
        uint64 now_ = uint64(block.timestamp);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, address(0), CLAIM, now_);
        vm.expectPartialRevert(ClaimJudge.NotConvicted.selector);
        claimJudge.refute(c, LEDGER_CASE);
        _conclude(c);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, address(0), CLAIM, now_ - 1);
        vm.expectRevert(abi.encodeWithSelector(ClaimJudge.NotInThisCase.selector, LEDGER_CASE));
        claimJudge.refute(c, LEDGER_CASE);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, stranger, CLAIM, now_);
        vm.expectRevert(abi.encodeWithSelector(ClaimJudge.NotInThisCase.selector, LEDGER_CASE));
        claimJudge.refute(c, LEDGER_CASE);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, address(0), keccak256("other"), now_);
        vm.expectRevert(abi.encodeWithSelector(ClaimJudge.NotInThisCase.selector, LEDGER_CASE));
        claimJudge.refute(c, LEDGER_CASE);
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, address(0), CLAIM, now_);
        bytes memory call = abi.encodeCall(IAlphaLedger.refute, (LEDGER_CASE));
        vm.mockCall(address(ledger), call, "");
        vm.expectCall(address(ledger), call);
        claimJudge.refute(c, LEDGER_CASE);
        Records.RoundRecord memory record;
        vm.expectPartialRevert(ClaimJudge.NotConvicted.selector);
        claimJudge.exclude(c, record, LEDGER_CASE);
        c.accused = stranger;
        vm.expectPartialRevert(ClaimJudge.NotThisCharge.selector);
        claimJudge.refute(c, LEDGER_CASE);
    }

    function test_AFalseRoundLeavesTheLedgerOnce() public {
        _allSay(MARGIN + 1);
        Session memory s = _said(1);
        IAuditPanel.Charge memory c = _accuse(9, _question(s, 0, 1));
        _ledgerCase(IAlphaLedger.Stage.ANSWERED, address(0), CLAIM, uint64(block.timestamp));
        _conclude(c);
        Records.RoundRecord memory record = s.rounds[1].record;
        vm.expectPartialRevert(ClaimJudge.NotThisRound.selector);
        claimJudge.exclude(c, record, LEDGER_CASE);
        record = s.rounds[0].record;
        bytes memory call =
            abi.encodeCall(IAlphaLedger.exclude, (LEDGER_CASE, Records.sums(record)));
        vm.mockCall(address(ledger), call, "");
        vm.expectCall(address(ledger), call);
        claimJudge.exclude(c, record, LEDGER_CASE);
        vm.expectPartialRevert(ClaimJudge.AlreadyExcluded.selector);
        claimJudge.exclude(c, record, LEDGER_CASE);
        vm.expectPartialRevert(ClaimJudge.NotConvicted.selector);
        claimJudge.refute(c, LEDGER_CASE);
    }

    // ------------------------------------------------------------------ canaries

    function test_OnlyReferrersAskAboutCanaries() public {
        bytes32 model = Records.modelId(target);
        bytes32 content = keccak256("canary");
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.NotReferrer.selector, address(this)));
        panel.refer(accuser, model, content, 0, PRINT);
        vm.prank(owner);
        panelTerms.setReferrer(address(this), true);
        vm.recordLogs();
        panel.refer(accuser, model, content, 0, PRINT);
        IAuditPanel.Charge memory c = _chargeIn(vm.getRecordedLogs());
        // A planter that delivers nothing has planted nothing.
        for (uint256 i; i < auditors.length; ++i) {
            says[auditors[i]] = true;
        }
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.CLEARED);
        assertEq(panel.bondOf(accuser), 0);
        address member = juries.membersOf(panel.caseOf(c.caseId).panel)[0];
        panel.payJuror(c, false, member);
        assertEq(panel.bondOf(member), BOND / 5, "there is no accused: all to the jurors");
        _assertBonds();
    }

    // ------------------------------------------------------------------ terms

    function _setTerms(IPanelTerms.Terms memory t) private {
        vm.prank(owner);
        panelTerms.setTerms(t);
    }

    function test_TermsHaveTheirBounds() public {
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        panelTerms.setTerms(_panelTerms());
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        panelTerms.setFee(address(token), 1);
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        panelTerms.setReferrer(stranger, true);
        IPanelTerms.Terms memory t = _panelTerms();
        t.bond = 0;
        _refused(t, "bond", 0);
        (t.bond, t.faultBps) = (BOND, 4_999);
        _refused(t, "faultBps", 4_999);
        (t.faultBps, t.rewardBps) = (5_000, 2_501);
        _refused(t, "rewardBps + victimBps", 5_001);
        (t.rewardBps, t.panelSize) = (2_500, 16);
        _refused(t, "panelSize", 16);
        (t.panelSize, t.appealSize) = (5, 4);
        _refused(t, "appealSize", 4);
        (t.appealSize, t.minSeated) = (15, 6);
        _refused(t, "minSeated", 6);
        (t.minSeated, t.minPool) = (3, 0);
        _refused(t, "minPool", 0);
        (t.minPool, t.appealWindow) = (1, 0);
        _refused(t, "appealWindow", 0);
        (t.appealWindow, t.spans.open) = (1 days, 0);
        _refused(t, "spans", 0);
    }

    function _refused(IPanelTerms.Terms memory t, string memory what, uint256 value) private {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(PanelTerms.BadTerm.selector, what, value));
        panelTerms.setTerms(t);
    }

    /// @dev Protocol §9: unbonding ≥ evidence + deadlines + panel + appeal + margin, whichever changes.
    function test_NoJuryTakesLongerThanTheStakeIsHeld() public {
        IPanelTerms.Terms memory t = _panelTerms();
        t.spans.commit += 5 hours + 1;
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(PanelTerms.TakesTooLong.selector, "panel", 2 days + 1, 2 days)
        );
        panelTerms.setTerms(t);
        t.spans.commit -= 1;
        t.appealWindow = 2 days + 1;
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(PanelTerms.TakesTooLong.selector, "appeal", 4 days + 1, 4 days)
        );
        panelTerms.setTerms(t);
        t.appealWindow -= 1;
        _setTerms(t);
        // And the vault cannot take the time away.
        IStakeVault.Times memory times = _times();
        times.panel -= 1;
        vm.startPrank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(
                StakeVault.JudgeTakesLonger.selector, "panel", 2 days, 2 days - 1
            )
        );
        vault.setTimes(times);
        (times.panel, times.appeal) = (2 days, 4 days - 1);
        vm.expectRevert(
            abi.encodeWithSelector(
                StakeVault.JudgeTakesLonger.selector, "appeal", 4 days, 4 days - 1
            )
        );
        vault.setTimes(times);
        vm.expectRevert(abi.encodeWithSelector(StakeVault.ZeroAddress.selector, "clock"));
        vault.setClock(PanelTerms(address(0)));
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        vault.setClock(panelTerms);
    }

    function test_ABatchIsJudgedByTheTermsOfItsSettlement() public {
        bytes memory question = _question(_said(1), 0, 1);
        vm.warp(block.timestamp + 1 days);
        IPanelTerms.Terms memory t = _panelTerms();
        (t.bond, t.faultBps) = (7 ether, 10_000);
        _setTerms(t);
        vm.prank(owner);
        registry.setTolerance(Records.modelId(target), 0, 0, 0);
        IAuditPanel.Charge memory c = _accuse(9, question);
        assertEq(c.bond, BOND);
        assertEq(c.terms.faultBps, 5_000);
        assertEq(c.margin, MARGIN, "and by the tolerances of then");
        IAuditPanel.Charge memory later = _accuse(9, _question(_said(1), 0, 0));
        assertEq(later.bond, 7 ether);
        assertEq(later.terms.faultBps, 10_000);
        assertEq(panelTerms.termsAt(0).bond, BOND, "the first, for what was before");
        assertEq(panelTerms.terms().bond, 7 ether);
    }

    function test_ACaseGoesOnUnderItsOwnCharge() public {
        IAuditPanel.Charge memory c = _accuseV();
        c.terms.faultBps = 10_000;
        vm.expectPartialRevert(AuditPanel.NotThisCharge.selector);
        panel.decide(c);
        vm.expectPartialRevert(AuditPanel.NotThisCharge.selector);
        panel.payJuror(c, false, auditors[0]);
    }

    /// @dev Fingerprints.distance against its definition.
    function testFuzz_Distance(int16[16] memory a, int16[16] memory b) public pure {
        (uint256 one, uint256 other, uint256 sum) = (0, 0, 0);
        for (uint256 i; i < 16; ++i) {
            one = one << 16 | uint16(a[i]);
            other = other << 16 | uint16(b[i]);
            sum += a[i] > b[i] ? uint256(int256(a[i]) - b[i]) : uint256(int256(b[i]) - a[i]);
        }
        assertEq(Fingerprints.distance(bytes32(one), bytes32(other)), sum);
    }
}
