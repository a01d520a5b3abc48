// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditPanel} from "../AuditPanel.sol";
import {ClaimJudge} from "../ClaimJudge.sol";
import {PlaceRule} from "../PlaceRule.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IPlaceRule} from "../interfaces/IPlaceRule.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {Records} from "../libraries/Records.sol";
import {PanelCases} from "./PanelCases.sol";

/// @notice Other kinds of case: about D, in the exact tier, about canaries; and what follows from a verdict.
contract AuditPanelKindsTest is PanelCases {
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

    // ------------------------------------------------------------------ what is asked about

    /// @dev A record that stands under no settled root is anybody's to make up.
    function test_OnlyWhatStandsUnderTheRootIsAskedAbout() public {
        Session memory s = _said(1);
        IPlaceRule.Place memory p = _place(s, 0, 2);
        IPlaceRule.Source memory source = _source(s);
        placeRule.verdictPlace(p, source);
        p.steps[0].sibling = keccak256("another round");
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        placeRule.verdictPlace(p, source);
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

    /// @dev Audit of this contract: a V without stake, its own accuser and jurors of its own would take
    /// what other lanes have paid, case after case.
    function test_ACaseThatCostsNobodyAStakeTakesNoFees() public {
        _allSay(MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        vm.prank(address(panel));
        vault.slash(
            verifier.addr, Role.VERIFIER, 10_000, new IStakeVault.Victim[](0), address(0), 0, "else"
        );
        _conclude(c);
        _assertResult(c, JuryVerdict.Result.GUILTY);
        assertFalse(vault.punished(_name(9, verifier.addr, c)));
        assertEq(panel.bondOf(accuser), BOND - 5 * FEE, "who asked pays them");
        address member = juries.membersOf(_juryOf(c))[0];
        vm.mockCallRevert(
            address(escrow), abi.encodePacked(escrow.spendFees.selector), "no fee is asked for"
        );
        vm.expectCall(address(escrow), abi.encodePacked(escrow.spendFees.selector), 0);
        panel.payJuror(c, false, member);
        assertTrue(panel.isPaid(_juryOf(c), member));
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
}
