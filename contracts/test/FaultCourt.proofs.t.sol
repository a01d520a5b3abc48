// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AcceptRule} from "../libraries/AcceptRule.sol";
import {Coins} from "../libraries/Coins.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {ProofWork} from "./ProofWork.sol";

/// @notice F1 to F4.
/// @dev One thing is altered in honest rounds and signed again by the guilty key; then it is proven
/// through the court, and the stake pays.
contract FaultCourtProofTest is ProofWork {
    function test_F1_DraftTwice() public {
        Session memory s = _honest(1);
        Evidence.DraftPair memory e = _draftPair(s, 1);
        _ready(abi.encodeCall(roundRule.draftTwice, (e, _separator())));
        _expect(1, Evidence.DRAFT_TWICE, drafter.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveDraftTwice(e, SALT);
        assertEq(_stakeD(), STAKE / 2);
        assertEq(_stakeV(), STAKE, "V is not to blame");
        assertEq(_vestedTo(challenger), STAKE / 8, "a quarter of the slash");
        _assertBonds();
    }

    function _refusesF1(Evidence.DraftPair memory e) private {
        bytes32 sep = _separator();
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.draftTwice(e, sep);
    }

    function _resign(Session memory s, Evidence.DraftPair memory e) private view {
        e.otherSignature = _sign(s.drafterKey, Records.hash(e.other));
    }

    function test_F1_OnlyOnePlaceCounts() public {
        Session memory s = _honest(1);
        Evidence.DraftPair memory e = _draftPair(s, 1);
        e.other.draftRoot = e.one.draftRoot; // sent again under a higher version
        _resign(s, e);
        _refusesF1(e);
        e = _draftPair(s, 1);
        e.other.round += 1;
        _resign(s, e);
        _refusesF1(e);
        e = _draftPair(s, 1);
        e.other.contextHash = keccak256("another context");
        _resign(s, e);
        _refusesF1(e);
        e = _draftPair(s, 1);
        e.other.startHash = keccak256("another session");
        _resign(s, e);
        _refusesF1(e);
        e = _draftPair(s, 1);
        e.otherSignature = _sign(s.verifierKey, Records.hash(e.other));
        bytes32 sep = _separator();
        vm.expectRevert(
            abi.encodeWithSelector(
                Evidence.NotSignedBy.selector, "other", verifier.addr, drafter.addr
            )
        );
        roundRule.draftTwice(e, sep);
        e.otherSignature = new bytes(65);
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        roundRule.draftTwice(e, sep);
        (e.oneSignature, e.otherSignature) = (new bytes(65), new bytes(65));
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        roundRule.draftTwice(e, sep);
    }

    function test_F2_VerdictTwiceUnderAnotherVersion() public {
        Session memory s = _honest(1);
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        _seal(s);
        Evidence.VerdictPair memory e = _verdictPair(s, 1);
        _ready(abi.encodeCall(roundRule.verdictTwice, (e, _separator())));
        _expect(2, Evidence.VERDICT_TWICE, verifier.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveVerdictTwice(e, SALT);
        assertEq(_stakeV(), STAKE / 2);
        // Two output tokens, one of them drafted.
        assertEq(_vestedTo(client.addr), 8 ether, "C has its money back");
        _assertBonds();
    }

    function test_F2_TheSameVerdictAgainIsNone() public {
        Session memory s = _honest(1);
        Evidence.VerdictPair memory e = _verdictPair(s, 1);
        (e.other, e.otherSignature) = (e.one, e.oneSignature);
        bytes32 sep = _separator();
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.verdictTwice(e, sep);
        // Of two rounds, or of two sessions.
        e = _verdictPair(s, 1);
        e.other = s.rounds[2].verdict;
        e.otherSignature = s.rounds[2].verdictSignature;
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.verdictTwice(e, sep);
        e = _verdictPair(s, 1);
        e.other.startHash = keccak256("another session");
        e.otherSignature = _sign(verifier.key, Records.hash(e.other));
        vm.expectRevert(Evidence.NoFault.selector);
        roundRule.verdictTwice(e, sep);
        e = _verdictPair(s, 1);
        e.otherSignature = _sign(drafter.key, Records.hash(e.other));
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        roundRule.verdictTwice(e, sep);
        e = _verdictPair(s, 1);
        e.start.firstK += 1;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        roundRule.verdictTwice(e, sep);
        e.start.firstK -= 1;
        e.order.maxTokens += 1;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        roundRule.verdictTwice(e, sep);
    }

    function test_F3_OtherDraft() public {
        Session memory s = _honest(1);
        s.order.priceAccepted = 2 ether;
        s.rounds[1].leaves[1].draftToken = 999;
        _seal(s);
        Evidence.LeafPair memory e = _leafPair(s, 1, 1);
        _ready(abi.encodeCall(roundRule.otherDraft, (e, _separator())));
        _expect(3, AcceptRule.OTHER_DRAFT, verifier.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveOtherDraft(e, SALT);
        assertEq(_stakeV(), STAKE / 2);
        assertEq(_vestedTo(client.addr), 2 ether);
        assertEq(_vestedTo(drafter.addr), 4 ether, "two of three drafts were not accepted");
        _assertBonds();
    }

    /// @dev Past the window no draft is to be named.
    function test_F3_ADraftThatWasNone() public view {
        Session memory s = _honest(1);
        s.rounds[0].leaves[4].draftToken = 5;
        _seal(s);
        Evidence.Ruling memory r = roundRule.otherDraft(_leafPair(s, 0, 4), _separator());
        _assertRuling(r, 3, AcceptRule.OTHER_DRAFT, verifier.addr, s, 0);
        s = _honest(1);
        s.rounds[2].leaves[0].draftToken = 5;
        _seal(s);
        r = roundRule.otherDraft(_leafPair(s, 2, 0), _separator());
        _assertRuling(r, 3, AcceptRule.OTHER_DRAFT, verifier.addr, s, 2);
    }

    function test_F4_AcceptRule() public {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[3].leaves[0].p = Records.MASS_TOTAL; // p = q, and yet rejected
        _seal(s);
        Evidence.LeafPair memory e = _leafPair(s, 3, 0);
        _ready(abi.encodeCall(roundRule.acceptRule, (e, _separator())));
        _expect(4, AcceptRule.COIN_SAYS_OTHERWISE, verifier.addr, Records.hash(s.start), 3);
        vm.prank(challenger);
        court.proveAcceptRule(e, SALT);
        assertEq(_stakeV(), STAKE / 2);
        for (uint8 mode; mode < 3; ++mode) {
            s = _honest(mode);
            s.rounds[0].leaves[2].token = 55;
            _seal(s);
            _finds(_leafPair(s, 0, 2), AcceptRule.ACCEPTED_OTHER, s, 0);
        }
        s = _honest(1);
        s.rounds[2].leaves[0].accepted = true; // nothing was drafted
        _seal(s);
        _finds(_leafPair(s, 2, 0), AcceptRule.ACCEPTED_NOTHING, s, 2);
        s = _honest(1);
        s.rounds[1].leaves[1].token = s.rounds[1].drafts[1].token;
        _seal(s);
        _finds(_leafPair(s, 1, 1), AcceptRule.REJECTED_OWN_TOKEN, s, 1);
    }

    /// @dev A wrong position, or a misnamed draft, is a fault of its own and hides no other.
    function test_F4_IsNotHiddenBehindAnotherFault() public view {
        Session memory s = _honest(1);
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[2];
        (leaf.token, leaf.draftToken, leaf.position) = (55, 55, 900);
        _seal(s);
        _finds(_leafPair(s, 0, 2), AcceptRule.ACCEPTED_OTHER, s, 0);
        Evidence.Ruling memory r = roundRule.otherDraft(_leafPair(s, 0, 2), _separator());
        _assertRuling(r, 3, AcceptRule.OTHER_DRAFT, verifier.addr, s, 0);
        r = roundRule.leafPlace(_leafPlace(s, 0, 2), _separator());
        _assertRuling(r, 5, AcceptRule.WRONG_POSITION, verifier.addr, s, 0);
    }

    function test_F4_RelaxedRule() public view {
        Session memory s = _session(1);
        s.order.relaxTau = 10;
        _play(s, 4, 2, 3);
        s.rounds[0].leaves[0].scoreTop = 11;
        _seal(s);
        _finds(_leafPair(s, 0, 0), AcceptRule.RELAXED_ACCEPT, s, 0);
        s.rounds[0].leaves[0].scoreTop = 10;
        s.rounds[0].leaves[2].scoreTop = 10; // and yet rejected
        _seal(s);
        _finds(_leafPair(s, 0, 2), AcceptRule.RELAXED_REJECT, s, 0);
        s.rounds[0].leaves[2].scoreDraft = 11;
        _seal(s);
        _finds(_leafPair(s, 0, 2), AcceptRule.SCORES_CROSSED, s, 0);
        s.rounds[0].leaves[2].surprisal = 1;
        _seal(s);
        _finds(_leafPair(s, 0, 2), AcceptRule.KEY_BIT, s, 0);
    }

    function test_F4_DraftOutsideItsDraw() public {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.order.priceAccepted = 2 ether;
        _seal(s);
        Records.DraftLeaf memory draft = s.rounds[0].drafts[1];
        uint64 w = Coins.draw(
            s.rounds[0].commit.chainValue,
            s.start.seed,
            s.rounds[0].commit.contextHash,
            draft.position
        );
        uint64 half = Records.MASS_TOTAL / 2;
        draft.q = half;
        draft.qBelow = w < half ? half : 0;
        _seal(s);
        Evidence.DraftPlace memory e = _draftPlace(s, 0, 1);
        _ready(abi.encodeCall(roundRule.draftLeaf, (e, _separator())));
        _expect(4, AcceptRule.DRAW, drafter.addr, Records.hash(s.start), 0);
        vm.prank(challenger);
        court.proveDraftLeaf(e, SALT);
        assertEq(_stakeD(), STAKE / 2);
        assertEq(_stakeV(), STAKE);
        assertEq(_vestedTo(client.addr), 8 ether, "what D could be paid for the window");
        _assertBonds();
    }

    function test_F4_DraftListPlaceAndToken() public view {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[0].drafts[1].keptHash = Records.keptHash(_kept(5));
        _seal(s);
        Evidence.DraftPlace memory e = _draftPlace(s, 0, 1);
        e.kept = _kept(5);
        Evidence.Ruling memory r = roundRule.draftLeaf(e, _separator());
        _assertRuling(r, 4, AcceptRule.LIST_NOT_LEAF, drafter.addr, s, 0);
        assertTrue(r.drafter);
        s = _honest(Records.MODE_REJECTION);
        bytes memory bad = abi.encodePacked(uint32(5), uint64(7));
        s.rounds[0].drafts[1].keptHash = Records.keptHash(bad);
        _seal(s);
        e = _draftPlace(s, 0, 1);
        e.kept = bad;
        r = roundRule.draftLeaf(e, _separator());
        _assertRuling(r, 4, AcceptRule.LIST_MALFORMED, drafter.addr, s, 0);
        for (uint8 mode; mode < 3; ++mode) {
            s = _honest(mode);
            s.rounds[0].drafts[1].position += 1;
            _seal(s);
            r = roundRule.draftLeaf(_draftPlace(s, 0, 1), _separator());
            _assertRuling(r, 4, AcceptRule.DRAFT_WRONG_POSITION, drafter.addr, s, 0);
            s = _honest(mode);
            s.rounds[0].drafts[3].token = Records.NO_TOKEN;
            _seal(s);
            r = roundRule.draftLeaf(_draftPlace(s, 0, 3), _separator());
            _assertRuling(r, 4, AcceptRule.DRAFT_NO_TOKEN, drafter.addr, s, 0);
        }
    }

    function test_F4_CoinsOffTheirChains() public {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[1].commit.chainValue = keccak256("a better coin");
        s.rounds[1].verdict.chainValue = keccak256("a better coin");
        _seal(s);
        Evidence.DraftRound memory d = _draftRound(s, 1);
        _ready(abi.encodeCall(roundRule.draftRound, (d, _separator())));
        _expect(4, AcceptRule.CHAIN_DRAFTER, drafter.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveDraftRound(d, SALT);
        Evidence.Round memory v = _roundOf(s, 1);
        _ready(abi.encodeCall(roundRule.verdictRound, (v, _separator())));
        _expect(4, AcceptRule.CHAIN_VERIFIER, verifier.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveVerdictRound(v, SALT);
        // Each is judged for itself.
        assertEq(_stakeD(), STAKE / 2);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    function test_F4_Windows() public view {
        bytes32 sep = _separator();
        Session memory s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 3);
        _play(s, 2, 1, 2); // three were announced
        _seal(s);
        Evidence.Ruling memory r = roundRule.draftRound(_draftRound(s, 1), sep);
        _assertRuling(r, 4, Openings.WINDOW_DRAFTER, drafter.addr, s, 1);
        s = _session(Records.MODE_REJECTION);
        _play(s, 3, 3, 3); // firstK says four
        _seal(s);
        r = roundRule.draftRound(_draftRound(s, 0), sep);
        _assertRuling(r, 4, Openings.WINDOW_DRAFTER, drafter.addr, s, 0);
        s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 3);
        _play(s, 0, 0, 2); // V leaves D out when the coins are known
        _seal(s);
        r = roundRule.verdictRound(_roundOf(s, 1), sep);
        _assertRuling(r, 4, Openings.WINDOW_VERIFIER, verifier.addr, s, 1);
        s = _session(Records.MODE_GREEDY);
        _play(s, 9, 0, 3); // the order allows eight
        _seal(s);
        r = roundRule.verdictRound(_roundOf(s, 0), sep);
        _assertRuling(r, 4, Openings.WINDOW_VERIFIER, verifier.addr, s, 0);
    }

    function test_F4_DIsHeldToTheAnnouncementItKnew() public {
        bytes32 sep = _separator();
        Session memory s = _honest(Records.MODE_REJECTION);
        Evidence.DraftRound memory e = _draftRound(s, 1);
        // V signs another announcement afterwards.
        e.previous = abi.decode(abi.encode(e.previous), (Records.Verdict));
        e.previous.nextK = 7;
        e.previousSignature = _sign(verifier.key, Records.hash(e.previous));
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        roundRule.draftRound(e, sep);
    }
}
