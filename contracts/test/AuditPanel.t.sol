// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditPanel} from "../AuditPanel.sol";
import {Bonded} from "../Bonded.sol";
import {Juries} from "../Juries.sol";
import {PlaceRule} from "../PlaceRule.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IPlaceRule} from "../interfaces/IPlaceRule.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Fingerprints} from "../libraries/Fingerprints.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {Records} from "../libraries/Records.sol";
import {PanelCases} from "./PanelCases.sol";

/// @notice Cases about V, from accusation to conclusion.
contract AuditPanelTest is PanelCases {
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
