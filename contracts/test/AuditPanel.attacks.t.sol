// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditPanel} from "../AuditPanel.sol";
import {Juries} from "../Juries.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IPanelTerms} from "../interfaces/IPanelTerms.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {PanelWork} from "./PanelWork.sol";

/// @notice What a coalition could try against the panel, and what it costs it.
contract AuditPanelAttacksTest is PanelWork {
    mapping(address auditor => bool) private _hostile;

    function setUp() public override {
        super.setUp();
        _auditors(30);
        for (uint256 i; i < 10; ++i) {
            _hostile[auditors[i]] = true;
        }
    }

    function _all(uint64 honest, uint64 hostile) private {
        for (uint256 i; i < auditors.length; ++i) {
            marginOf[auditors[i]] = _hostile[auditors[i]] ? hostile : honest;
        }
    }

    function _hostileIn(uint64 jury) private view returns (uint256 count) {
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < members.length; ++i) {
            if (_hostile[members[i]]) ++count;
        }
    }

    // ------------------------------------------------------------------ a third of the stake

    /// @dev Ten of thirty equal stakes are hostile and clear a guilty V. Over 60 cases about one panel
    /// in five falls to them (0.191 exactly, `settlement.panels.bad_jury_of(5, 10, 30)`; deviation of
    /// the count 3.05) and an appeal mends it but for one in forty (0.025).
    function test_AThirdOfTheStakeIsAdversarial() public {
        _all(MARGIN + 1, 0);
        uint256 bad;
        uint256 wrong;
        uint256 clean = vm.snapshotState();
        for (uint256 i; i < 60; ++i) {
            vm.revertToState(clean);
            vm.roll(20_000 + 50 * i);
            IAuditPanel.Charge memory c = _accuseV();
            uint64 jury = _juryOf(c);
            vm.roll(vm.getBlockNumber() + 5);
            vm.setBlockhash(vm.getBlockNumber() - 1, keccak256(abi.encode("hash", i)));
            juries.seat(jury);
            bool falls = _hostileIn(jury) > 2;
            _commit(jury);
            panel.openPrint(c, PRINT_SALT, PRINT);
            _reveal(jury);
            panel.decide(c);
            JuryVerdict.Result result = panel.caseOf(c.caseId).result;
            // A panel errs exactly when more than half of its seats lie alike.
            assertEq(result == JuryVerdict.Result.CLEARED, falls);
            if (!falls) continue;
            ++bad;
            _appeal(c, accuser);
            jury = _juryOf(c);
            vm.roll(vm.getBlockNumber() + 5);
            vm.setBlockhash(vm.getBlockNumber() - 1, keccak256(abi.encode("again", i)));
            juries.seat(jury);
            falls = _hostileIn(jury) > 7;
            _commit(jury);
            _reveal(jury);
            panel.decide(c);
            assertEq(panel.caseOf(c.caseId).result == JuryVerdict.Result.CLEARED, falls);
            assertEq(_stakeV(), falls ? STAKE : STAKE / 2);
            if (falls) ++wrong;
        }
        // Within three deviations of 11.5.
        assertGt(bad, 2);
        assertLt(bad, 21);
        assertLe(wrong, 3);
    }

    // ------------------------------------------------------------------ copying

    /// @dev Who copies a commitment can open nothing, and pays for silence.
    function test_ACopiedCommitmentCostsItsCopier() public {
        IAuditPanel.Charge memory c = _accuseV();
        uint64 jury = _juryOf(c);
        _seat(jury);
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < 4; ++i) {
            _commitAs(jury, members[i]);
        }
        bytes32 copied = juries.answerOf(jury, members[0]).commitment;
        vm.prank(members[4]);
        juries.commit(jury, copied);
        panel.openPrint(c, PRINT_SALT, PRINT);
        for (uint256 i; i < 4; ++i) {
            address m = members[i];
            juries.reveal(jury, m, false, 0, PRINT, _salt(jury, m));
        }
        // Even with all that is public now.
        vm.expectPartialRevert(Juries.NotThisAnswer.selector);
        juries.reveal(jury, members[4], false, 0, PRINT, _salt(jury, members[0]));
        vm.warp(juries.juryOf(jury).revealUntil + 1);
        juries.dismiss(jury, members[4]);
        assertEq(vault.slashable(members[4], Role.AUDITOR), AUDITOR_STAKE * 95 / 100);
        panel.decide(c);
        vm.warp(panel.caseOf(c.caseId).appealUntil + 1);
        panel.conclude(c);
        vm.expectRevert(abi.encodeWithSelector(AuditPanel.NothingToPay.selector, members[4]));
        panel.payJuror(c, false, members[4]);
    }

    function _commitAs(uint64 jury, address m) private {
        bytes32 word = juries.commitmentOf(jury, m, false, 0, PRINT, _salt(jury, m));
        vm.prank(m);
        juries.commit(jury, word);
    }

    // ------------------------------------------------------------------ self-accusation

    /// @dev V with friends as accuser, client and drafter, at prices of its own: whatever of a slash
    /// comes back to the coalition, it is half of it at most.
    function testFuzz_SlashingOneselfNeverPays(uint96 stake, uint128 price) public {
        uint256 extra = bound(stake, 1, 10_000_000 ether);
        _fund(verifier.addr, address(vault), extra);
        vm.prank(verifier.addr);
        vault.stake(verifier.addr, beneficiaryV, Role.VERIFIER, extra, new bytes32[](0));
        _all(MARGIN + 1, MARGIN + 1);
        Session memory s = _said(1);
        (s.order.priceOutput, s.order.priceAccepted) = (price, price);
        _seal(s);
        uint256 before = _stakeV();
        IAuditPanel.Charge memory c = _accuse(9, _question(s, 0, 2));
        _conclude(c);
        uint256 lost = before - _stakeV();
        uint256 back = _vestedTo(accuser) + _vestedTo(client.addr) + _vestedTo(drafter.addr);
        assertGe(lost, before / 2);
        assertLe(back, lost / 2);
        assertEq(panel.bondOf(accuser), c.bond, "the bond is neither won nor lost");
        _assertBonds();
    }

    /// @dev Having oneself cleared first bars nobody, and costs what jurors get.
    function test_AFriendsFalseCaseBarsNoTrueOne() public {
        // The friend asks about a token that is right; the false one is beside it.
        IAuditPanel.Charge memory friends = _accuse(9, _question(_said(1), 0, 0));
        _all(MARGIN + 1, 0);
        IAuditPanel.Charge memory c = _accuseV();
        assertTrue(friends.caseId != c.caseId, "while the other is open");
        _conclude(c);
        assertEq(_stakeV(), STAKE / 2);
    }

    // ------------------------------------------------------------------ false accusations

    function test_AFalseAccusationLosesItsBondAndFreesNothing() public {
        uint256 before = token.balanceOf(accuser);
        IAuditPanel.Charge memory c = _accuseV();
        _conclude(c);
        vm.expectRevert();
        panel.pullBond(accuser);
        panel.pullBond(verifier.addr);
        assertEq(before - token.balanceOf(accuser), BOND);
        assertEq(token.balanceOf(beneficiaryV), BOND / 2);
        assertEq(_stakeV(), STAKE);
    }

    /// @dev Doubling with every clearance, harassing one token costs more and more.
    function test_HarassmentGrowsDearer() public {
        uint256 paid;
        for (uint256 i; i < 4; ++i) {
            IAuditPanel.Charge memory c = _accuseV();
            paid += c.bond;
            _conclude(c);
        }
        assertEq(paid, 15 * BOND);
        assertEq(panel.bondOf(verifier.addr), 15 * BOND / 2);
    }

    /// @dev Audit of this contract: the accused raises its stake, and with it the bond, in the block of
    /// the accusation. What was read is what is taken, and the reward goes by the same stake.
    function test_AStakeThatGrowsPutsNoAccusationOff() public {
        IPanelTerms.Terms memory t = _panelTerms();
        t.bond = 100 ether;
        vm.prank(owner);
        panelTerms.setTerms(t);
        vm.warp(block.timestamp + SLICE);
        _all(MARGIN + 1, MARGIN + 1);
        bytes32 place = keccak256("never asked about");
        uint64 at = uint64(block.timestamp);
        assertEq(panel.bondFor(place, 9, verifier.addr, at), BOND);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 9 * STAKE);
        IAuditPanel.Charge memory c = _accuseV();
        assertEq(c.bond, BOND);
        _conclude(c);
        assertEq(_stakeV(), 5 * STAKE, "all of it pays");
        assertEq(_vestedTo(accuser), STAKE / 8, "the reward is what the bond was a share of");
    }

    // ------------------------------------------------------------------ fees

    function _decideBoth(IAuditPanel.Charge memory one, IAuditPanel.Charge memory other) private {
        _sit(one);
        _sit(other);
        panel.decide(one);
        panel.decide(other);
        vm.warp(panel.caseOf(other.caseId).appealUntil + 1);
        panel.conclude(one);
        panel.conclude(other);
    }

    /// @dev Audit of this contract: V, accuser and jurors of one hand file every token of a false round
    /// before the first case closes, and have fees pay the jurors of each for one slash.
    function test_OneSlashPaysTheJurorsOfOneCase() public {
        _all(MARGIN + 1, MARGIN + 1);
        IAuditPanel.Charge memory one = _accuseV();
        IAuditPanel.Charge memory other = _accuse(9, _question(_said(1), 0, 0));
        _decideBoth(one, other);
        assertEq(_stakeV(), STAKE / 2, "once");
        assertTrue(panel.caseOf(one.caseId).settled);
        assertFalse(panel.caseOf(other.caseId).settled);
        assertEq(panel.bondOf(accuser), 2 * BOND - 5 * FEE, "who asks again pays who answers");
        bytes4 spends = escrow.spendFees.selector;
        address member = juries.membersOf(panel.caseOf(other.caseId).panel)[0];
        vm.expectCall(address(escrow), abi.encodePacked(spends), 1);
        uint256 before = panel.bondOf(member);
        panel.payJuror(other, false, member);
        assertEq(panel.bondOf(member) - before, FEE);
        panel.payJuror(one, false, juries.membersOf(panel.caseOf(one.caseId).panel)[0]);
        _assertBonds();
    }

    /// @dev A stake below the vault's least leaves its fault open: each further case costs its accuser.
    function test_APoorStakeIsTriedAtItsAccusersCost() public {
        vm.prank(owner);
        vault.setLeastStake(uint96(2 * STAKE));
        _all(MARGIN + 1, MARGIN + 1);
        vm.expectCall(address(escrow), abi.encodePacked(escrow.spendFees.selector), 0);
        for (uint256 i = 1; i < 3; ++i) {
            IAuditPanel.Charge memory c = _accuseV();
            _conclude(c);
            assertFalse(vault.punished(_nameOf(c)));
            assertEq(_stakeV(), STAKE / 2, "no stake bears it twice");
            assertEq(panel.bondOf(accuser), i * (BOND - 5 * FEE));
            address member = juries.membersOf(panel.caseOf(c.caseId).panel)[0];
            panel.payJuror(c, false, member);
            assertGe(panel.bondOf(member), FEE);
        }
        _assertBonds();
    }

    /// @dev What an appeal has lost pays them first, and the bond is all that an accuser can lose.
    function test_JurorsArePaidOutOfTheBondAsFarAsItGoes() public {
        vm.startPrank(owner);
        vault.setLeastStake(uint96(2 * STAKE));
        panelTerms.setFee(address(token), BOND / 10);
        vm.stopPrank();
        _all(MARGIN + 1, MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        _toDecision(c);
        _appeal(c, beneficiaryV);
        _toDecision(c);
        // Twenty tenths, of which half of the appeal's bond is one whole, and the other half its own.
        assertEq(panel.bondOf(accuser), BOND);
        assertEq(panel.caseOf(c.caseId).share, BOND / 10);
        vm.prank(owner);
        panelTerms.setFee(address(token), BOND);
        IAuditPanel.Charge memory again = _accuse(9, _question(_said(1), 1, 1));
        _conclude(again);
        assertEq(panel.bondOf(accuser), BOND, "all of the second");
        assertEq(panel.caseOf(again.caseId).share, again.bond / 5);
        _assertBonds();
    }

    function _nameOf(IAuditPanel.Charge memory c) private view returns (bytes32) {
        return keccak256(
            abi.encode("verdraft/fault/1", 9, verifier.addr, c.subject.startHash, c.subject.round)
        );
    }

    // ------------------------------------------------------------------ stalling

    /// @dev The guilty opens late, appeals late and says nothing; everyone takes his steps as late as
    /// he can. It ends in the time for which the stake is held (protocol §9).
    function test_TheGuiltyCannotStall() public {
        _all(MARGIN + 1, MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        uint256 filedAt = block.timestamp;
        uint64 jury = _juryOf(c);
        vm.roll(vm.getBlockNumber() + 6);
        vm.warp(juries.juryOf(jury).seatUntil);
        juries.seat(jury);
        silent[juries.membersOf(jury)[0]] = true;
        _commit(jury);
        vm.warp(panel.caseOf(c.caseId).openUntil);
        panel.openPrint(c, PRINT_SALT, PRINT);
        vm.warp(juries.juryOf(jury).revealUntil);
        _reveal(jury);
        vm.warp(juries.juryOf(jury).revealUntil + 1);
        panel.decide(c);
        assertLe(block.timestamp - 1 - filedAt, _times().panel);
        vm.warp(panel.caseOf(c.caseId).appealUntil);
        _appeal(c, beneficiaryV);
        uint256 from = block.timestamp;
        // Nobody even seats it: the first verdict stands.
        jury = _juryOf(c);
        vm.roll(vm.getBlockNumber() + 6);
        vm.warp(juries.juryOf(jury).seatUntil);
        juries.seat(jury);
        _commit(jury);
        vm.warp(juries.juryOf(jury).revealUntil + 1);
        panel.decide(c);
        assertEq(uint8(panel.caseOf(c.caseId).stage), uint8(IAuditPanel.Stage.CLOSED));
        assertLe(block.timestamp - 1 - from, _times().appeal - 1 days);
        assertLe(block.timestamp - 1 - filedAt, _times().panel + _times().appeal);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    /// @dev Deciding a month late gives nobody an appeal, a second jury or another deadline.
    function test_LateStepsMoveNoDeadline() public {
        _all(MARGIN + 1, MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        _sit(c);
        vm.warp(block.timestamp + 30 days);
        panel.decide(c);
        vm.expectPartialRevert(AuditPanel.TooLate.selector);
        panel.appeal(c);
        panel.conclude(c);
        assertEq(_stakeV(), STAKE / 2);

        IAuditPanel.Charge memory other = _accuse(9, _question(_said(1), 1, 1));
        uint64 jury = _juryOf(other);
        _seat(jury);
        for (uint256 i; i < auditors.length; ++i) {
            silent[auditors[i]] = true;
        }
        vm.warp(block.timestamp + 30 days);
        panel.decide(other);
        assertEq(uint8(panel.caseOf(other.caseId).stage), uint8(IAuditPanel.Stage.CLOSED));
        assertEq(panel.bondOf(accuser), 2 * BOND);
    }

    /// @dev Two silent juries: nothing stays locked, and the silent pay.
    function test_SilentJuriesStickNothing() public {
        for (uint256 i; i < auditors.length; ++i) {
            silent[auditors[i]] = true;
        }
        IAuditPanel.Charge memory c = _accuseV();
        uint64 first = _juryOf(c);
        _seat(first);
        _commit(first);
        panel.decide(c);
        uint64 second = _juryOf(c);
        assertTrue(second != first);
        _seat(second);
        _commit(second);
        panel.decide(c);
        assertEq(uint8(panel.caseOf(c.caseId).result), uint8(JuryVerdict.Result.VOID));
        panel.pullBond(accuser);
        assertEq(panel.bonds().open, 0);
        address[] memory members = juries.membersOf(second);
        for (uint256 i; i < members.length; ++i) {
            juries.dismiss(second, members[i]);
            assertEq(vault.slashable(members[i], Role.AUDITOR), AUDITOR_STAKE * 95 / 100);
        }
        _assertBonds();
    }

    // ------------------------------------------------------------------ who sits

    /// @dev The parties' own auditors are drawn neither for the panel nor for the appeal.
    function test_PartiesJudgeNeitherPanelNorAppeal() public {
        // V's, D's, the client's and the accuser's own auditors, which pay to their keys. One that has V's
        // beneficiary sits: else whoever names an auditor's beneficiary would keep that auditor out.
        address own = _ownAuditor("V's auditor", verifier.addr);
        address ds = _ownAuditor("D's auditor", drafter.addr);
        address clients = _ownAuditor("client's auditor", client.addr);
        address accusers = _ownAuditor("accuser's auditor", accuser);
        _all(MARGIN + 1, MARGIN + 1);
        IAuditPanel.Charge memory c = _accuseV();
        uint64 first = _juryOf(c);
        _toDecision(c);
        _appeal(c, _ownAppellant());
        uint64 second = _juryOf(c);
        _sit(c);
        address[5] memory barred =
            [own, ds, clients, accusers, vault.accountOf(makeAddr("appellant"))];
        for (uint256 i; i < 5; ++i) {
            assertTrue(barred[i] != address(0));
            assertFalse(juries.isMember(first, barred[i]) && i < 4);
            assertFalse(juries.isMember(second, barred[i]));
        }
    }

    /// @dev Ten times what all others have together, so that chance would draw it.
    function _ownAuditor(string memory name, address beneficiary)
        private
        returns (address account)
    {
        account = makeAddr(name);
        bytes32[] memory models = new bytes32[](1);
        models[0] = keccak256(abi.encode(target));
        _fund(account, address(vault), 3_000_000 ether);
        vm.startPrank(account);
        vault.stake(account, beneficiary, Role.AUDITOR, 3_000_000 ether, models);
        pool.sync(account, models[0], 0);
        vm.stopPrank();
        printOf[account] = PRINT;
    }

    function _ownAppellant() private returns (address) {
        return _ownAuditor("appellant", makeAddr("appellant's"));
    }

    /// @dev Stake bought after the accusation is not drawn, however much it is.
    function test_StakeBoughtForTheCaseIsNotDrawn() public {
        IAuditPanel.Charge memory c = _accuseV();
        vm.roll(vm.getBlockNumber() + 1);
        address late = _ownAuditor("late", makeAddr("late's"));
        uint64 jury = _juryOf(c);
        _seat(jury);
        assertFalse(juries.isMember(jury, late));
    }
}
