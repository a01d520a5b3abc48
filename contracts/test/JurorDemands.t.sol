// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {JurorDemands} from "../JurorDemands.sol";
import {SessionDemands} from "../SessionDemands.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IDemands} from "../interfaces/IDemands.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IPlaceRule} from "../interfaces/IPlaceRule.sol";
import {ISessionDemands} from "../interfaces/ISessionDemands.sol";
import {Openings} from "../libraries/Openings.sol";
import {Sealing} from "../libraries/Sealing.sol";
import {PanelWork} from "./PanelWork.sol";

contract JurorDemandsTest is PanelWork {
    SessionDemands internal demands;
    JurorDemands internal readers;
    uint96 internal constant DEMAND_BOND = 10 ether;
    uint256 private _x;
    uint256 private _y;

    function setUp() public override {
        super.setUp();
        IDemands.Terms memory t;
        (t.bond, t.lateBps, t.silentBps, t.faultBps, t.rewardBps) =
        (DEMAND_BOND, 500, 5_000, 5_000, 400);
        demands = new SessionDemands(owner, vault, escrow, IDrawBeacon(address(beacon)), t);
        readers = new JurorDemands(vault, panel, juries, demands);
        vm.startPrank(owner);
        vault.setSlasher(address(demands), true);
        demands.setReader(address(readers), true);
        vm.stopPrank();
        _auditors(6);
        uint256 secret = uint256(keccak256("secret")) % Sealing.N;
        (_x, _y) = (vm.createWallet(secret).publicKeyX, vm.createWallet(secret).publicKeyY);
    }

    function _session(Session memory s, uint256 index)
        private
        view
        returns (ISessionDemands.SessionCase memory c)
    {
        Openings.Opening memory o =
            abi.decode(abi.encode(_openingAt(s, index, 0)), (Openings.Opening));
        (c.settled, c.record, c.leafIndex, c.steps) = (o.settled, o.record, o.leafIndex, o.steps);
        (c.order, c.start, c.verdict, c.target) = (o.order, o.start, o.verdict, target);
    }

    function _seated(uint256 index)
        private
        returns (IAuditPanel.Charge memory c, address juror, IPlaceRule.Source memory source)
    {
        Session memory s = _said(1);
        source = _source(s);
        c = _accuse(9, abi.encode(_place(s, index, 0), source));
        _seat(_juryOf(c));
        juror = juries.membersOf(_juryOf(c))[0];
        _fund(juror, address(readers), 100 ether);
    }

    function _demand(
        IAuditPanel.Charge memory c,
        address juror,
        uint256 index,
        IPlaceRule.Source memory source
    ) private returns (bytes32) {
        ISessionDemands.SessionCase memory session = _session(_said(1), index);
        vm.prank(juror);
        return readers.demand(c, session, source.batch, source.entries, 0, _x, _y);
    }

    function _refused(
        IAuditPanel.Charge memory c,
        address juror,
        ISessionDemands.SessionCase memory session,
        IPlaceRule.Source memory source,
        bytes4 error_
    ) private {
        vm.prank(juror);
        vm.expectPartialRevert(error_);
        readers.demand(c, session, source.batch, source.entries, 0, _x, _y);
    }

    function test_AJurorReadsWhatItHasToJudge() public {
        (IAuditPanel.Charge memory c, address juror, IPlaceRule.Source memory source) = _seated(1);
        ISessionDemands.SessionCase memory session = _session(_said(1), 1);
        _refused(c, stranger, session, source, JurorDemands.NotJuror.selector);
        address payout = vault.payoutTo(juror);
        _refused(c, payout, session, source, JurorDemands.NotJuror.selector);
        ISessionDemands.SessionCase memory early = _session(_said(1), 0);
        _refused(c, juror, early, source, JurorDemands.EndsBefore.selector);
        early.record.round = 1;
        early.start.seed = keccak256("another");
        _refused(c, juror, early, source, JurorDemands.NotThisSession.selector);
        c.fault = 12;
        _refused(c, juror, session, source, JurorDemands.NotThisCharge.selector);
        c.fault = 9;
        bytes32 id = _demand(c, juror, 1, source);
        assertEq(readers.jurorOf(id), juror);
        assertEq(demands.bonds().open, DEMAND_BOND);
        assertEq(uint8(demands.demandState(id).stage), uint8(IDemands.Stage.OPEN));
        assertEq(token.balanceOf(address(readers)), 0);
    }

    function test_OnlyWhileTheCaseRuns() public {
        (IAuditPanel.Charge memory c, address juror, IPlaceRule.Source memory source) = _seated(0);
        ISessionDemands.SessionCase memory session = _session(_said(1), 1);
        uint64 jury = _juryOf(c);
        _commit(jury);
        panel.openPrint(c, PRINT_SALT, PRINT);
        _reveal(jury);
        panel.decide(c);
        _refused(c, juror, session, source, JurorDemands.NotRunning.selector);
        _appeal(c, stranger);
        uint64 second = _juryOf(c);
        _seat(second);
        // Of six, the five before come last, so all sit again.
        assertEq(juries.membersOf(second).length, 6);
        _demand(c, juror, 1, source);
    }

    function test_TheBondComesBackWhereVWasSilent() public {
        (IAuditPanel.Charge memory c, address juror, IPlaceRule.Source memory source) = _seated(0);
        bytes32 id = _demand(c, juror, 0, source);
        vm.expectRevert(abi.encodeWithSelector(JurorDemands.NothingToRefund.selector, id));
        readers.refund(id);
        ISessionDemands.SessionDemand memory d;
        (d.nonce, d.by, d.verifier) = (1, address(readers), verifier.addr);
        (d.startHash, d.round) = (c.subject.startHash, 0);
        Session memory s = _said(1);
        (d.promptHash, d.contextHash) = (s.order.promptHash, s.rounds[0].verdict.nextContextHash);
        (d.tokens, d.keyX, d.keyY, d.terms) = (3, _x, _y, demands.terms());
        (d.terms.firstDeadline, d.terms.secondDeadline) = (1 days, 1 days);
        assertEq(keccak256(abi.encode(d)), id);
        vm.warp(block.timestamp + 1 days + 1);
        demands.expire(d);
        vm.expectRevert(abi.encodeWithSelector(JurorDemands.NothingToRefund.selector, id));
        readers.refund(id);
        vm.warp(block.timestamp + 1 days + 1);
        demands.expire(d);
        // Somebody else may have pulled it here already.
        demands.pullBond(address(readers));
        readers.refund(id);
        assertEq(token.balanceOf(vault.payoutTo(juror)), DEMAND_BOND);
        vm.expectRevert(abi.encodeWithSelector(JurorDemands.NothingToRefund.selector, id));
        readers.refund(id);
        assertEq(_stakeV(), STAKE * 95 / 200, "5 % and then half");
    }
}
