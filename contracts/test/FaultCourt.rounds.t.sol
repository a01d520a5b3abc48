// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AcceptRule} from "../libraries/AcceptRule.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {ProofWork} from "./ProofWork.sol";

/// @notice F5 between a verdict, its draft, its leaves and the verdict before.
contract FaultCourtRoundTest is ProofWork {
    function _misfits(Session memory s, uint256 index, uint8 code) private view {
        Evidence.Ruling memory r = roundRule.roundFit(_roundOf(s, index), _separator());
        _assertRuling(r, 5, code, verifier.addr, s, index);
    }

    function test_F5_ContextBreaks() public {
        Session memory s = _honest(1);
        s.rounds[3].verdict.contextHash = keccak256("another text");
        s.rounds[3].commit.contextHash = keccak256("another text");
        _seal(s);
        Evidence.Round memory e = _roundOf(s, 3);
        _ready(abi.encodeCall(roundRule.roundFit, (e, _separator())));
        _expect(5, Openings.CONTEXT, verifier.addr, Records.hash(s.start), 3);
        vm.prank(challenger);
        court.proveRoundFit(e, SALT);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    function test_F5_RoundsThatDoNotFit() public view {
        Session memory s = _honest(1);
        s.rounds[1].verdict.version = 1;
        _seal(s);
        _misfits(s, 1, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].verdict.base += 1;
        _seal(s);
        _misfits(s, 1, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].verdict.k = 4; // of three drafts
        _seal(s);
        _misfits(s, 1, Openings.COUNTS);
        s = _honest(1);
        s.rounds[1].verdict.emitted = 3; // one accepted
        _seal(s);
        _misfits(s, 1, Openings.COUNTS);
        s = _honest(1);
        (s.rounds[2].verdict.emitted, s.rounds[2].verdict.k) = (0, 0);
        _seal(s);
        _misfits(s, 2, Openings.COUNTS);
        s = _honest(1);
        s.rounds[0].verdict.base += 1;
        s.rounds[0].commit.base += 1;
        _seal(s);
        _misfits(s, 0, Openings.CONTEXT);
        s = _honest(1);
        s.rounds[2].verdict.base += 1;
        _seal(s);
        _misfits(s, 2, Openings.CONTEXT);
        s = _session(1);
        s.order.maxTokens = 4;
        _play(s, 4, 4, 3);
        _seal(s);
        _misfits(s, 0, AcceptRule.OUTSIDE_SESSION);
    }

    function test_F5_BothEndsOfABreakAreVs() public {
        bytes32 sep = _separator();
        Session memory s = _honest(1);
        Evidence.Round memory e = _roundOf(s, 2);
        // A stranger's verdict does not break V's chain.
        e.previous = abi.decode(abi.encode(e.previous), (Records.Verdict));
        e.previous.nextContextHash = keccak256("another text");
        e.previousSignature = _sign(drafter.key, Records.hash(e.previous));
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        roundRule.roundFit(e, sep);
        // Nor does V's own on another round.
        e.previous = s.rounds[0].verdict;
        e.previousSignature = s.rounds[0].verdictSignature;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        roundRule.roundFit(e, sep);
        // Without it nothing is known of the round before.
        e.previousSignature = "";
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.roundFit(e, sep);
    }

    function _misplaced(Session memory s, uint256 index, uint256 within, uint8 code) private view {
        Evidence.Ruling memory r = roundRule.leafPlace(_leafPlace(s, index, within), _separator());
        _assertRuling(r, 5, code, verifier.addr, s, index);
    }

    function test_F5_LeafOutOfPlace() public {
        Session memory s = _session(1);
        _play(s, 4, 4, 3);
        s.rounds[0].drafts[1].token = STOP;
        (s.rounds[0].leaves[1].draftToken, s.rounds[0].leaves[1].token) = (STOP, STOP);
        _seal(s);
        Evidence.LeafPlace memory e = _leafPlace(s, 0, 1);
        _ready(abi.encodeCall(roundRule.leafPlace, (e, _separator())));
        _expect(5, Openings.STOP_PASSED, verifier.addr, Records.hash(s.start), 0);
        vm.prank(challenger);
        court.proveLeafPlace(e, SALT);
        assertEq(_stakeV(), STAKE / 2);

        s = _honest(1);
        s.rounds[1].leaves[1].position = 4;
        _seal(s);
        _misplaced(s, 1, 1, AcceptRule.WRONG_POSITION);
        s = _honest(1);
        s.rounds[1].verdict.k = 2;
        _seal(s);
        _misplaced(s, 1, 1, Openings.COUNTS);
        s = _session(1);
        s.order.maxTokens = 4;
        _play(s, 4, 4, 3);
        _seal(s);
        _misplaced(s, 0, 4, AcceptRule.OUTSIDE_SESSION);
    }

    /// @dev The stop is the round's last token, and V signs a round after it.
    function test_F5_ARoundAfterAStop() public {
        Session memory s = _session(1);
        _play(s, 4, 0, 3);
        s.rounds[0].leaves[0].token = STOP;
        _play(s, 3, 0, 3);
        _seal(s);
        _misplaced(s, 0, 0, Openings.STOP_PASSED);
        bytes32 sep = _separator();
        Evidence.LeafPlace memory e = _leafPlace(s, 0, 0);
        e.laterSignature = "";
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.leafPlace(e, sep);
        e = _leafPlace(s, 0, 0);
        (e.later, e.laterSignature) = (e.verdict, e.verdictSignature);
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.leafPlace(e, sep);
        e = _leafPlace(s, 0, 0);
        e.laterSignature = _sign(drafter.key, Records.hash(e.later));
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        roundRule.leafPlace(e, sep);
        e = _leafPlace(s, 0, 0);
        e.later = abi.decode(abi.encode(e.later), (Records.Verdict));
        e.later.startHash = keccak256("another session");
        e.laterSignature = _sign(verifier.key, Records.hash(e.later));
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        roundRule.leafPlace(e, sep);
    }

    function test_F5_AllLeaves() public {
        Session memory s = _honest(1);
        s.rounds[0].verdict.nextContextHash = keccak256("another text");
        _seal(s);
        Evidence.AllLeaves memory e = _allLeaves(s, 0);
        _ready(abi.encodeCall(roundRule.allLeaves, (e, _separator())));
        _expect(5, Openings.CONTEXT, verifier.addr, Records.hash(s.start), 0);
        vm.prank(challenger);
        court.proveAllLeaves(e, SALT);
        assertEq(_stakeV(), STAKE / 2);
        s = _honest(1);
        s.rounds[0].verdict.k = 3;
        _seal(s);
        Evidence.Ruling memory r = roundRule.allLeaves(_allLeaves(s, 0), _separator());
        _assertRuling(r, 5, Openings.COUNTS, verifier.addr, s, 0);
        s = _honest(1);
        (s.rounds[1].verdict.emitted, s.rounds[1].verdict.k) = (1, 1); // the tree has two
        _seal(s);
        r = roundRule.allLeaves(_allLeaves(s, 1), _separator());
        _assertRuling(r, 5, Openings.COUNTS, verifier.addr, s, 1);
        e = _allLeaves(_honest(1), 0);
        e.leaves = new Records.VerdictLeaf[](0);
        bytes32 sep = _separator();
        vm.expectRevert(Trees.EmptyTree.selector);
        roundRule.allLeaves(e, sep);
        e.leaves = new Records.VerdictLeaf[](5);
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        roundRule.allLeaves(e, sep);
    }
}
