// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Demands} from "../Demands.sol";
import {EvidenceDemands} from "../EvidenceDemands.sol";
import {ModelRegistry} from "../ModelRegistry.sol";
import {OpeningRule} from "../OpeningRule.sol";
import {StakeVault} from "../StakeVault.sol";
import {IDemands} from "../interfaces/IDemands.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IEvidenceDemands} from "../interfaces/IEvidenceDemands.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {IOpeningRule} from "../interfaces/IOpeningRule.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {RoundWork} from "./RoundWork.sol";
import {FeeOnTransferToken, HookToken} from "./doubles/Tokens.sol";

abstract contract DemandWork is RoundWork {
    EvidenceDemands internal demands;
    address internal demander = makeAddr("demander");
    uint96 internal constant BOND = 10 ether;
    bytes32 internal constant SEED = keccak256("any token");

    function setUp() public virtual override {
        super.setUp();
        demands = new EvidenceDemands(
            owner, vault, escrow, IDrawBeacon(address(beacon)), new OpeningRule(), _demandTerms()
        );
        vm.prank(owner);
        vault.setSlasher(address(demands), true);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        _fund(demander, address(demands), 1_000 ether);
    }

    function _demandTerms() internal pure returns (IDemands.Terms memory t) {
        (t.bond, t.lateBps, t.silentBps, t.faultBps, t.rewardBps) = (BOND, 500, 5_000, 5_000, 400);
    }

    /// @dev The session's root as entry 1 of batch 9.
    function _batch(Session memory s)
        internal
        returns (IDrawBeacon.Batch memory batch, bytes memory entries)
    {
        entries = abi.encode(
            keccak256("other lane"),
            keccak256("other root"),
            uint256(0),
            Records.laneId(Records.laneOf(s.order)),
            _rootHash(_settled(s)),
            uint256(0)
        );
        batch.id = 9;
        batch.entries = 2;
        batch.entriesHash = keccak256(entries);
        batch.settledAt = uint64(block.timestamp);
        batch.terms.evidence = _times().evidence;
        vm.mockCall(
            address(beacon),
            abi.encodeCall(IDrawBeacon.batchHash, (9)),
            abi.encode(keccak256(abi.encode(batch)))
        );
    }

    function _demand(Session memory s)
        internal
        returns (IEvidenceDemands.Demand memory d, bytes32 id)
    {
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        (d.by, d.root, d.lane) = (demander, _rootHash(_settled(s)), Records.laneOf(s.order));
        (d.nonce, d.seed, d.terms) = (++_made, SEED, demands.terms());
        (d.terms.firstDeadline, d.terms.secondDeadline) = (1 days, 1 days);
        vm.prank(demander);
        id = demands.demandLeaf(batch, entries, 1, d.lane, SEED);
        assertEq(id, keccak256(abi.encode(d)));
    }

    uint64 private _made;

    function _answer(Session memory s) internal pure returns (Openings.Opening memory) {
        return _opening(s, Openings.targetOf(SEED, 0, _output(s)));
    }

    function _stakeV() internal view returns (uint256) {
        return vault.slashable(verifier.addr, Role.VERIFIER);
    }

    function _vestedTo(address who) internal view returns (uint256) {
        return vault.vestingOf(who, vault.sliceOf(block.timestamp + _times().unbonding) + 1);
    }

    function _assertBonds() internal view {
        IDemands.Bonds memory b = demands.bonds();
        assertEq(token.balanceOf(address(demands)), b.open + b.payable_, "bonds");
        _assertConserved();
    }

    function _stage(bytes32 id) internal view returns (IDemands.Stage) {
        return demands.demandState(id).stage;
    }
}

contract EvidenceDemandsTermsTest is DemandWork {
    function _refused(IDemands.Terms memory t, string memory what, uint256 value) private {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(Demands.BadTerm.selector, what, value));
        demands.setTerms(t);
    }

    function test_TermsHaveBounds() public {
        IDemands.Terms memory t = _demandTerms();
        t.bond = 0;
        _refused(t, "bond", 0);
        t = _demandTerms();
        t.faultBps = 0;
        _refused(t, "faultBps", 0);
        t = _demandTerms();
        t.silentBps = 4_999;
        _refused(t, "silentBps", 4_999);
        t = _demandTerms();
        t.lateBps = 10_001;
        _refused(t, "lateBps", 10_001);
        t = _demandTerms();
        // 52.5 % are lost by silence; with 4.8 % of that back it would be less than half.
        t.rewardBps = 480;
        _refused(t, "rewardBps", 480);
        t.rewardBps = 10_001;
        _refused(t, "rewardBps", 10_001);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", stranger));
        demands.setTerms(_demandTerms());
    }

    function test_CounterpartsExist() public {
        IDrawBeacon draws = IDrawBeacon(address(beacon));
        IOpeningRule rule = demands.rule();
        IDemands.Terms memory t = _demandTerms();
        vm.expectRevert(abi.encodeWithSelector(Demands.ZeroAddress.selector, "vault"));
        new EvidenceDemands(owner, IStakeVault(address(0)), escrow, draws, rule, t);
        vm.expectRevert(abi.encodeWithSelector(Demands.ZeroAddress.selector, "escrow"));
        new EvidenceDemands(owner, vault, ILaneEscrow(address(0)), draws, rule, t);
        vm.expectRevert(abi.encodeWithSelector(Demands.ZeroAddress.selector, "beacon"));
        new EvidenceDemands(owner, vault, escrow, IDrawBeacon(address(0)), rule, t);
        vm.expectRevert(abi.encodeWithSelector(Demands.ZeroAddress.selector, "rule"));
        new EvidenceDemands(owner, vault, escrow, draws, IOpeningRule(address(0)), t);
    }
}

contract EvidenceDemandsTest is DemandWork {
    function test_OnlyWhatWasSettledIsOwed() public {
        Session memory s = _honest(1);
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        Records.Lane memory lane = Records.laneOf(s.order);
        vm.startPrank(demander);
        batch.settledAt += 1;
        vm.expectPartialRevert(Demands.NotThisBatch.selector);
        demands.demandLeaf(batch, entries, 1, lane, SEED);
        batch.settledAt -= 1;
        entries[5] ^= 0x01;
        vm.expectPartialRevert(Demands.NotTheseEntries.selector);
        demands.demandLeaf(batch, entries, 1, lane, SEED);
        entries[5] ^= 0x01;
        vm.expectPartialRevert(Demands.NoSuchEntry.selector);
        demands.demandLeaf(batch, entries, 2, lane, SEED);
        vm.expectPartialRevert(Demands.NotThisLane.selector);
        demands.demandLeaf(batch, entries, 0, lane, SEED);
        // To the last second of the evidence time, and not past it.
        vm.warp(uint256(batch.settledAt) + batch.terms.evidence + 1);
        vm.expectRevert(
            abi.encodeWithSelector(
                Demands.EvidenceOver.selector, batch.settledAt + batch.terms.evidence
            )
        );
        demands.demandLeaf(batch, entries, 1, lane, SEED);
        vm.warp(uint256(batch.settledAt) + batch.terms.evidence);
        demands.demandLeaf(batch, entries, 1, lane, SEED);
        vm.stopPrank();
        assertEq(demands.bonds().open, BOND);
    }

    function test_VAnswersAndKeepsTheBond() public {
        for (uint8 mode; mode < 3; ++mode) {
            Session memory s = _honest(mode);
            (IEvidenceDemands.Demand memory d, bytes32 id) = _demand(s);
            vm.prank(stranger);
            demands.answer(d, _answer(s));
            assertTrue(_stage(id) == IDemands.Stage.SHOWN);
            vm.expectPartialRevert(Demands.WrongStage.selector);
            demands.answer(d, _answer(s));
            vm.warp(block.timestamp + 10 days);
            vm.expectPartialRevert(Demands.WrongStage.selector);
            demands.expire(d);
        }
        assertEq(_stakeV(), STAKE);
        assertEq(demands.bondOf(verifier.addr), 3 * BOND);
        demands.pullBond(verifier.addr);
        assertEq(token.balanceOf(beneficiaryV), 3 * BOND, "as its stake would");
        vm.expectPartialRevert(Demands.NothingToPull.selector);
        demands.pullBond(verifier.addr);
        _assertBonds();
    }

    function test_AnotherPositionOrRootIsNoAnswer() public {
        Session memory s = _honest(1);
        (IEvidenceDemands.Demand memory d,) = _demand(s);
        uint256 target = Openings.targetOf(SEED, 0, _output(s));
        Openings.Opening memory other = _opening(s, (target + 1) % _output(s));
        vm.expectRevert();
        demands.answer(d, other);
        Session memory t = _session(1);
        _play(t, 4, 4, 3);
        _seal(t);
        Openings.Opening memory foreign = _answer(t);
        vm.expectPartialRevert(Openings.NotNamed.selector);
        demands.answer(d, foreign);
        // Nor is a demand that nobody made.
        d.seed = keccak256("an easier token");
        Openings.Opening memory right = _answer(s);
        vm.expectRevert(abi.encodeWithSelector(Demands.WrongStage.selector, IDemands.Stage.NONE));
        demands.answer(d, right);
    }

    function test_SilenceCostsTwice() public {
        Session memory s = _honest(1);
        (IEvidenceDemands.Demand memory d, bytes32 id) = _demand(s);
        uint256 start = block.timestamp;
        vm.warp(start + 1 days);
        vm.expectPartialRevert(Demands.TooEarly.selector);
        demands.expire(d);
        vm.warp(start + 1 days + 1);
        vm.prank(stranger);
        demands.expire(d);
        assertEq(_stakeV(), STAKE * 95 / 100);
        assertTrue(_stage(id) == IDemands.Stage.LATE);
        vm.warp(start + 2 days);
        vm.expectPartialRevert(Demands.TooEarly.selector);
        demands.expire(d);
        vm.warp(start + 2 days + 1);
        Openings.Opening memory late = _answer(s);
        vm.expectPartialRevert(Demands.TooLate.selector);
        demands.answer(d, late);
        demands.expire(d);
        assertEq(_stakeV(), STAKE * 475 / 1000);
        assertTrue(_stage(id) == IDemands.Stage.SILENT);
        vm.expectPartialRevert(Demands.WrongStage.selector);
        demands.expire(d);
        // The demander has its bond again and its share, however many strangers called.
        assertEq(demands.bondOf(demander), BOND);
        assertGt(_vestedTo(demander), 0);
        assertEq(_vestedTo(stranger), 0);
        _assertBonds();
    }

    function test_AnAnswerBetweenTheDeadlines() public {
        Session memory s = _honest(1);
        (IEvidenceDemands.Demand memory d, bytes32 id) = _demand(s);
        vm.warp(block.timestamp + 1 days + 1);
        demands.expire(d);
        vm.warp(block.timestamp + 1 days - 1);
        demands.answer(d, _answer(s));
        assertTrue(_stage(id) == IDemands.Stage.SHOWN);
        assertEq(_stakeV(), STAKE * 95 / 100);
        assertEq(demands.bondOf(verifier.addr), BOND);
    }

    function test_AnAnswerThatShowsAFault() public {
        Session memory s = _honest(1);
        for (uint256 i; i < s.rounds.length; ++i) {
            for (uint256 j; j < s.rounds[i].leaves.length; ++j) {
                s.rounds[i].leaves[j].draftToken = 999;
            }
        }
        _seal(s);
        // Counts that fit the records, so that the leaf alone is wrong.
        for (uint256 i; i < s.rounds.length; ++i) {
            Round memory r = s.rounds[i];
            uint256 reached = r.verdict.k < r.commit.k ? r.verdict.k + 1 : r.verdict.k;
            uint256[8] memory none;
            r.record.buckets = none;
            r.record.buckets[0] = reached;
            r.record.buckets[4] = r.verdict.k;
        }
        (IEvidenceDemands.Demand memory d, bytes32 id) = _demand(s);
        Openings.Opening memory o = _answer(s);
        vm.prank(stranger);
        demands.answer(d, o);
        assertTrue(_stage(id) == IDemands.Stage.FAULTY);
        assertEq(_stakeV(), STAKE / 2);
        assertEq(demands.bondOf(demander), BOND);
        assertEq(_vestedTo(demander), STAKE / 2 * 400 / 10_000);
        // It is the fault that a proof would show: punished once.
        bytes32 name = keccak256(
            abi.encode(
                "verdraft/fault/1", uint8(3), verifier.addr, o.record.startHash, o.record.round
            )
        );
        assertTrue(vault.punished(name));
        _assertBonds();
    }

    /// @dev Terms and deadlines of another time do not reach a demand.
    function test_Audit15_ADemandKeepsItsTerms() public {
        Session memory s = _honest(1);
        (IEvidenceDemands.Demand memory d,) = _demand(s);
        IDemands.Terms memory t = _demandTerms();
        (t.bond, t.lateBps, t.silentBps) = (1, 9_000, 10_000);
        IStakeVault.Times memory times = _times();
        times.firstDeadline = 1;
        vm.startPrank(owner);
        demands.setTerms(t);
        vault.setTimes(times);
        vm.stopPrank();
        vm.warp(block.timestamp + 1 days);
        vm.expectPartialRevert(Demands.TooEarly.selector);
        demands.expire(d);
        vm.warp(block.timestamp + 1);
        demands.expire(d);
        assertEq(_stakeV(), STAKE * 95 / 100);
        demands.answer(d, _answer(s));
        assertEq(demands.bondOf(verifier.addr), BOND);
        _assertBonds();
    }

    /// @dev V's own friend demands and takes the share: no less is lost than for the fault.
    function test_Audit06_SilenceAmongFriendsSavesNothing() public {
        Session memory s = _honest(1);
        (IEvidenceDemands.Demand memory d,) = _demand(s);
        vm.warp(block.timestamp + 1 days + 1);
        demands.expire(d);
        uint256 back = _vestedTo(demander);
        vm.warp(block.timestamp + 1 days);
        demands.expire(d);
        back += _vestedTo(demander);
        assertGe(STAKE - _stakeV() - back, STAKE / 2);
    }

    function test_Audit20_TokensThatCallBackOrKeep() public {
        HookToken hook = new HookToken();
        StakeVault other = new StakeVault(
            owner, guardian, address(hook), new ModelRegistry(owner), SLICE, _times()
        );
        IDrawBeacon draws = IDrawBeacon(address(beacon));
        EvidenceDemands over =
            new EvidenceDemands(owner, other, escrow, draws, demands.rule(), _demandTerms());
        Session memory s = _honest(1);
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        Records.Lane memory lane = Records.laneOf(s.order);
        hook.mint(demander, 100 ether);
        vm.startPrank(demander);
        hook.approve(address(over), type(uint256).max);
        hook.arm(
            address(over),
            abi.encodeCall(EvidenceDemands.demandLeaf, (batch, entries, 1, lane, SEED))
        );
        over.demandLeaf(batch, entries, 1, lane, SEED);
        assertFalse(hook.succeeded(), "a demand within a demand");
        assertEq(over.bonds().open, BOND);
        vm.stopPrank();

        FeeOnTransferToken fee = new FeeOnTransferToken();
        other = new StakeVault(
            owner, guardian, address(fee), new ModelRegistry(owner), SLICE, _times()
        );
        over = new EvidenceDemands(owner, other, escrow, draws, demands.rule(), _demandTerms());
        fee.mint(demander, 100 ether);
        vm.startPrank(demander);
        fee.approve(address(over), type(uint256).max);
        vm.expectPartialRevert(Demands.ShortBond.selector);
        over.demandLeaf(batch, entries, 1, lane, SEED);
        vm.stopPrank();
    }
}
