// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {PanelTerms} from "../PanelTerms.sol";
import {StakeTimes} from "../StakeTimes.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IPanelTerms} from "../interfaces/IPanelTerms.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {PanelCases} from "./PanelCases.sol";

/// @notice What the owner may set of the panel, and for whom it counts.
contract PanelTermsTest is PanelCases {
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
        (t.bond, t.bondBps) = (BOND, 999);
        _refused(t, "bondBps", 999);
        t.bondBps = 10_001;
        _refused(t, "bondBps", 10_001);
        (t.bondBps, t.faultBps) = (1_000, 4_999);
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
                StakeTimes.JudgeTakesLonger.selector, "panel", 2 days, 2 days - 1
            )
        );
        vault.setTimes(times);
        (times.panel, times.appeal) = (2 days, 4 days - 1);
        vm.expectRevert(
            abi.encodeWithSelector(
                StakeTimes.JudgeTakesLonger.selector, "appeal", 4 days, 4 days - 1
            )
        );
        vault.setTimes(times);
        vm.expectRevert(abi.encodeWithSelector(StakeTimes.ZeroAddress.selector, "clock"));
        vault.setClock(PanelTerms(address(0)));
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        vault.setClock(panelTerms);
    }

    function test_ABatchIsJudgedByTheTermsOfItsSettlement() public {
        bytes memory question = _question(_said(1), 0, 1);
        vm.warp(block.timestamp + 1 days);
        IPanelTerms.Terms memory t = _panelTerms();
        (t.bond, t.bondBps, t.faultBps) = (BOND + 7, 1_000, 10_000);
        _setTerms(t);
        vm.prank(owner);
        registry.setTolerance(Records.modelId(target), 0, 0, 0);
        IAuditPanel.Charge memory c = _accuse(9, question);
        assertEq(c.bond, BOND);
        assertEq(c.terms.faultBps, 5_000);
        assertEq(c.margin, MARGIN, "and by the tolerances of then");
        IAuditPanel.Charge memory later = _accuse(9, _question(_said(1), 0, 0));
        assertEq(later.bond, 2 * BOND, "a tenth of a quarter of all of it");
        assertEq(later.terms.faultBps, 10_000);
        assertEq(panelTerms.termsAt(0).bond, BOND, "the first, for what was before");
        assertEq(panelTerms.terms().bond, BOND + 7);
    }

    /// @dev A false accusation is worth its reward times the chance of a bad jury, so the bond follows
    /// the reward: `settlement.panels.least_bond` says how much is enough.
    function test_TheBondGrowsWithWhatTheAccusedCanLose() public {
        bytes32 place = keccak256("a place never asked about");
        assertEq(panel.bondFor(place, 9, verifier.addr, 0), BOND);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 3 * STAKE);
        assertEq(
            panel.bondFor(place, 9, verifier.addr, 0), BOND, "not by what is laid down just now"
        );
        vm.warp(block.timestamp + SLICE);
        assertEq(panel.bondFor(place, 9, verifier.addr, 0), 4 * BOND);
        assertEq(panel.bondFor(place, 12, drafter.addr, 0), BOND, "each by its own role's stake");
        assertEq(panel.bondFor(place, 12, verifier.addr, 0), BOND, "it has none as a drafter");
        assertEq(panel.bondFor(place, 10, address(0), 0), BOND, "a canary has no accused");
        // What unbonds can be lost, so it counts.
        vm.prank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, 4 * STAKE);
        assertEq(panel.bondFor(place, 9, verifier.addr, 0), 4 * BOND);
        IAuditPanel.Charge memory c = _accuse(9, _question(_said(1), 0, 1));
        assertEq(c.bond, 4 * BOND);
        assertEq(panel.bonds().open, 4 * BOND);
    }

    function test_ASlashIsSharedOutByItsBond() public {
        IPanelTerms.Terms memory t = _panelTerms();
        t.bond = 100 ether;
        _setTerms(t);
        uint64 at = uint64(block.timestamp);
        // Reward in basis points of the whole slash, and what two victims have at most together.
        _shares(at, BOND, 0, STAKE, 2_500, STAKE / 8);
        _shares(at, BOND, 0, 10 * STAKE, 250, STAKE / 8);
        _shares(at, BOND, 1, STAKE, 1_250, STAKE / 16);
        _shares(at, 5_000 ether, 0, STAKE, 1_000, 50_000 ether);
        _shares(at, BOND, 0, 16, 2_500, 2);
        _shares(at, BOND, 0, 0, 2_500, 0);
        t.rewardBps = 0;
        _setTerms(t);
        _shares(at, 1, 0, STAKE, 0, STAKE / 8);
    }

    function _shares(
        uint64 at,
        uint256 bond,
        uint256 past,
        uint256 stake,
        uint256 reward,
        uint256 most
    ) private view {
        (uint256 bps, uint256 c, uint256 d) =
            panelTerms.sharesOf(at, bond, past, stake, 3 * STAKE, STAKE);
        assertEq(bps, reward);
        assertEq(c, 3 * most / 4);
        assertEq(d, most / 4);
        (bps, c, d) = panelTerms.sharesOf(at, bond, past, stake, most / 2, most / 3);
        assertEq(bps, reward);
        assertEq(c, most / 2, "no victim gains");
        assertEq(d, most / 3);
    }

    /// @dev Rounded so that who puts down all that is asked loses nothing of its reward.
    function testFuzz_TheWholeBondAnswersForAll(
        uint96 extra,
        uint16 bond,
        uint16 reward,
        uint8 past
    ) public {
        IPanelTerms.Terms memory t = _panelTerms();
        (t.bond, t.bondBps) = (1, uint16(bound(bond, 1_000, 10_000)));
        t.rewardBps = uint16(bound(reward, 0, 2_500));
        _setTerms(t);
        uint256 added = bound(extra, 1, 1e28);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, added);
        vm.warp(block.timestamp + SLICE);
        uint96 asked =
            panelTerms.bondAt(uint64(block.timestamp), verifier.addr, Role.VERIFIER, past % 3);
        (uint256 bps,,) =
            panelTerms.sharesOf(uint64(block.timestamp), asked, past % 3, _stakeV(), 0, 0);
        assertEq(bps, t.rewardBps);
    }
}
