// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../interfaces/ICourt.sol";
import {IFaultCourt} from "../interfaces/IFaultCourt.sol";
import {IStakeVault} from "../interfaces/IStakeVault.sol";
import {AcceptRule} from "../libraries/AcceptRule.sol";
import {Coins} from "../libraries/Coins.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {CourtWork} from "./CourtWork.sol";

abstract contract ProofWork is CourtWork {
    /// @dev The ruling that the next proof must end in.
    function _expect(uint8 fault, uint8 code, address guilty, bytes32 startHash, uint32 round)
        internal
    {
        vm.expectEmit(true, true, true, false, address(court));
        IStakeVault.Slashed memory any;
        emit ICourt.FaultProven(fault, guilty, challenger, code, startHash, round, any);
    }

    function _assertRuling(
        Evidence.Ruling memory r,
        uint8 fault,
        uint8 code,
        address guilty,
        Session memory s,
        uint256 index
    ) internal pure {
        assertEq(r.fault, fault, "fault");
        assertEq(r.code, code, "code");
        assertEq(r.guilty, guilty, "guilty");
        assertEq(r.startHash, Records.hash(s.start), "start");
        assertEq(r.round, s.rounds[index].verdict.round, "round");
    }

    function _finds(Evidence.LeafPair memory e, uint8 code, Session memory s, uint256 index)
        internal
        view
    {
        _assertRuling(roundRule.acceptRule(e, _separator()), 4, code, s.order.verifier, s, index);
    }
}

/// @dev Nothing that honest parties have signed proves anything against them.
contract FaultCourtHonestTest is ProofWork {
    function _noFault() private {
        vm.expectRevert(Evidence.NoFault.selector);
    }

    function _honestRound(Session memory s, uint256 i, bytes32 sep) private {
        Round memory r = s.rounds[i];
        Evidence.Round memory round = _roundOf(s, i);
        _noFault();
        roundRule.verdictRound(round, sep);
        _noFault();
        roundRule.roundFit(round, sep);
        Evidence.AllLeaves memory all = _allLeaves(s, i);
        _noFault();
        roundRule.allLeaves(all, sep);
        if (r.drafted) {
            Evidence.DraftRound memory drafts = _draftRound(s, i);
            _noFault();
            roundRule.draftRound(drafts, sep);
        }
        for (uint256 j; j < r.leaves.length; ++j) {
            Evidence.LeafPair memory pair = _leafPair(s, i, j);
            _noFault();
            roundRule.otherDraft(pair, sep);
            _noFault();
            roundRule.acceptRule(pair, sep);
            Evidence.LeafPlace memory place = _leafPlace(s, i, j);
            _noFault();
            roundRule.leafPlace(place, sep);
        }
        for (uint256 j; j < r.drafts.length; ++j) {
            Evidence.DraftPlace memory place = _draftPlace(s, i, j);
            _noFault();
            roundRule.draftLeaf(place, sep);
        }
        Evidence.RecordCase memory record = _recordCase(s, i);
        _noFault();
        treeRule.recordCase(record);
        Evidence.TreeStep memory step = _treeStep(s, i);
        _noFault();
        treeRule.treeStep(step);
    }

    function test_HonestSessionsProveNothing() public {
        bytes32 sep = _separator();
        for (uint8 mode; mode < 3; ++mode) {
            Session memory s = _honest(mode);
            for (uint256 i; i < s.rounds.length; ++i) {
                _honestRound(s, i, sep);
            }
        }
    }

    function test_AnHonestTreeOnABaseProvesNothing() public {
        Session memory s = _session(1);
        s.base.top = keccak256("older rounds");
        s.base.leafCount = 77;
        s.base.sums[0] = 300 | 200 << 64;
        _play(s, 4, 2, 3);
        _play(s, 3, 3, 3);
        _play(s, 3, 0, 3);
        _seal(s);
        bytes32 sep = _separator();
        for (uint256 i; i < 3; ++i) {
            _honestRound(s, i, sep);
        }
    }

    /// forge-config: default.fuzz.runs = 24
    function testFuzz_HonestSessionsProveNothing(uint256 seed) public {
        Session memory s = _session(uint8(seed % 3));
        uint256 rounds = 1 + (seed >> 8) % 4;
        uint16 announced = s.start.firstK;
        for (uint256 i; i < rounds; ++i) {
            uint16 window = announced;
            uint16 k = uint16((seed >> (16 + 8 * i)) % (window + 1));
            announced = uint16((seed >> (64 + 8 * i)) % 9);
            _play(s, window, k, announced);
        }
        _seal(s);
        bytes32 sep = _separator();
        for (uint256 i; i < rounds; ++i) {
            _honestRound(s, i, sep);
        }
    }

    /// @dev An announcement above the order's limit cannot be met: D keeps to the limit.
    function test_DIsNotHeldToMoreThanTheOrderAllows() public {
        Session memory s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 30);
        _play(s, 8, 1, 2);
        _seal(s);
        Evidence.DraftRound memory e = _draftRound(s, 1);
        bytes32 sep = _separator();
        _noFault();
        roundRule.draftRound(e, sep);
    }

    function test_FewerDraftsAtMaxTokens() public {
        Session memory s = _session(Records.MODE_REJECTION);
        s.order.maxTokens = 7;
        _play(s, 4, 4, 4);
        _play(s, 2, 1, 2);
        _seal(s);
        Evidence.DraftRound memory e = _draftRound(s, 1);
        bytes32 sep = _separator();
        _noFault();
        roundRule.draftRound(e, sep);
    }

    /// @dev A batch that took another's place holds the same rounds by right.
    function test_TheSamePlaceTwiceIsOnce() public {
        Session memory s = _honest(1);
        Evidence.Twice memory e;
        Openings.Opening memory o = _openingAt(s, 1, 0);
        e.lane = Records.laneOf(s.order);
        e.settled = o.settled;
        (e.one, e.oneIndex, e.oneSteps) = (o.record, o.leafIndex, o.steps);
        (e.other, e.otherIndex, e.otherSteps) = (o.record, o.leafIndex, o.steps);
        _noFault();
        treeRule.roundTwice(e);
        // Two rounds at two places.
        Openings.Opening memory p = _openingAt(s, 2, 0);
        (e.other, e.otherIndex, e.otherSteps) = (p.record, p.leafIndex, p.steps);
        _noFault();
        treeRule.roundTwice(e);
    }
}

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

    // ------------------------------------------------------------------ F5 of rounds

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

    // ------------------------------------------------------------------ F5 of trees

    function test_F5_RecordAgainstVerdict() public {
        Session memory s = _honest(1);
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        _seal(s);
        s.rounds[1].record.accepted += 1;
        Evidence.RecordCase memory e = _recordCase(s, 1);
        e.leaves = new Records.VerdictLeaf[](0);
        IFaultCourt.Source memory source = _signedSource(s, e.settled);
        _ready(abi.encodeCall(treeRule.recordCase, (e)));
        _expect(5, Openings.RECORD, verifier.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveRecord(e, source, SALT);
        assertEq(_stakeV(), STAKE / 2);
        assertEq(_vestedTo(client.addr), 10 ether, "as the record counted");
        _assertBonds();
    }

    function _records(Session memory s, uint256 index, uint8 code) private view {
        Evidence.Ruling memory r = treeRule.recordCase(_recordCase(s, index));
        _assertRuling(r, 5, code, verifier.addr, s, index);
        assertEq(r.root, _rootHash(_settled(s)));
    }

    function test_F5_Records() public view {
        Session memory s = _honest(1);
        s.rounds[1].record.verdictRoot = keccak256("another tree");
        _records(s, 1, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].record.draftRoot = keccak256("another tree");
        _records(s, 1, Openings.RECORD);
        s = _honest(1);
        s.rounds[2].record.draftRoot = keccak256("a tree of no drafts");
        _records(s, 2, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].record.output += 1;
        _records(s, 1, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].record.buckets[0] += 1; // one draft more than was reached
        _records(s, 1, Openings.COUNTS);
        s = _honest(1);
        s.rounds[1].record.buckets[4] = 0; // D's accepted draft is not counted
        _records(s, 1, Openings.COUNTS);
        s = _honest(1);
        // The totals are right, the buckets are not: only the leaves show it.
        s.rounds[1].record.buckets[0] = 1 | 1 << 64;
        _records(s, 1, Openings.COUNTS);
    }

    function test_F5_BucketsNeedTheLeaves() public {
        Session memory s = _honest(1);
        s.rounds[1].record.buckets[0] = 1 | 1 << 64;
        Evidence.RecordCase memory e = _recordCase(s, 1);
        e.leaves = new Records.VerdictLeaf[](0);
        vm.expectRevert(Evidence.NoFault.selector);
        treeRule.recordCase(e);
        e.leaves = s.rounds[0].leaves;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        treeRule.recordCase(e);
    }

    /// @dev A round of another lane, counted in this one's tree.
    function test_F5_ARoundOfAnotherLane() public view {
        Session memory s = _honest(1);
        Evidence.RecordCase memory e = _recordCase(s, 1);
        e.lane.claimId = keccak256("another claim");
        Evidence.Ruling memory r = treeRule.recordCase(e);
        _assertRuling(r, 5, Openings.RECORD, verifier.addr, s, 1);
        assertEq(r.lane, Records.laneId(e.lane));
    }

    function test_F5_SumsOfTheRoot() public {
        Session memory s = _honest(1);
        Evidence.TreeStep memory e = _treeStep(s, 1);
        e.settled.sums[0] += 1 << 64;
        IFaultCourt.Source memory source = _signedSource(s, e.settled);
        bytes32 root = _rootHash(e.settled);
        _ready(abi.encodeCall(treeRule.treeStep, (e)));
        _expect(5, Openings.SUMS, verifier.addr, root, 0);
        vm.prank(challenger);
        court.proveSums(e, source, SALT);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    /// @dev The tree of the session with other sums beside leaf 2.
    function _falseLeafSums(Session memory s) private pure returns (Evidence.TreeStep memory e) {
        (bytes32[] memory hashes, uint256[9][] memory sums) = _records(s);
        sums[2][0] += 5;
        e = _treeStep(s, 2);
        e.claimed = sums[2];
        e.steps = _sumPath(hashes, sums, 2);
        (e.settled.top, e.settled.sums) = _sumTop(hashes, sums);
    }

    function test_F5_SumsBesideALeaf() public view {
        Session memory s = _honest(1);
        Evidence.TreeStep memory e = _falseLeafSums(s);
        Evidence.Ruling memory r = treeRule.treeStep(e);
        assertEq(r.code, Openings.SUMS);
        assertEq(r.guilty, verifier.addr);
        assertEq(r.startHash, _rootHash(e.settled));
        assertEq(r.root, _rootHash(e.settled));
    }

    /// @dev Leaves 0 and 1 under a node that claims more than both.
    function test_F5_SumsBesideANode() public {
        Session memory s = _honest(1);
        (bytes32[] memory hashes, uint256[9][] memory sums) = _records(s);
        Evidence.TreeStep memory e;
        e.lane = Records.laneOf(s.order);
        (e.level, e.index) = (1, 0);
        e.left = Trees.SumStep(hashes[0], sums[0]);
        e.right = Trees.SumStep(hashes[1], sums[1]);
        e.claimed = Trees.add(sums[0], sums[1]);
        e.steps = new Trees.SumStep[](1);
        e.steps[0] = Trees.SumStep(
            Trees.sumNode(hashes[2], sums[2], hashes[3], sums[3]), Trees.add(sums[2], sums[3])
        );
        bytes32 node = Trees.sumNode(hashes[0], sums[0], hashes[1], sums[1]);
        e.settled.leafCount = 4;
        for (uint256 i; i < 2; ++i) {
            e.settled.top = Trees.sumNode(node, e.claimed, e.steps[0].sibling, e.steps[0].sums);
            e.settled.sums = Trees.add(e.claimed, e.steps[0].sums);
            if (i == 0) {
                vm.expectRevert(Evidence.NoFault.selector);
                treeRule.treeStep(e);
                e.claimed[0] += 7;
            }
        }
        assertEq(treeRule.treeStep(e).code, Openings.SUMS);
        // Sums below that carry are as false as others.
        e.claimed[0] -= 7;
        e.left.sums[1] = 1 << 63;
        e.right.sums[1] = 1 << 63;
        node = Trees.sumNode(e.left.sibling, e.left.sums, e.right.sibling, e.right.sums);
        e.settled.top = Trees.sumNode(node, e.claimed, e.steps[0].sibling, e.steps[0].sums);
        assertEq(treeRule.treeStep(e).code, Openings.SUMS);
        e.level = 33;
        vm.expectPartialRevert(Evidence.NoSuchPlace.selector);
        treeRule.treeStep(e);
    }

    /// @dev Nothing has hashed the sums that an accuser puts beside the top: they accuse nobody.
    function test_F5_SumsBesideTheTopAreTheAccusersOwn() public {
        // A tree of one leaf.
        Session memory s = _session(1);
        _play(s, 4, 2, 3);
        _seal(s);
        Evidence.TreeStep memory e = _treeStep(s, 0);
        assertEq(e.steps.length, 0);
        e.claimed[0] += 1;
        vm.expectRevert(Evidence.NoFault.selector);
        treeRule.treeStep(e);
        e.claimed[0] -= 1;
        e.settled.sums[0] += 1; // the root's are V's word
        assertEq(treeRule.treeStep(e).code, Openings.SUMS);

        // The top node of four, shown as the one node of its level, and of levels above.
        s = _honest(1);
        (bytes32[] memory hashes, uint256[9][] memory sums) = _records(s);
        e = _treeStep(s, 0);
        e.steps = new Trees.SumStep[](0);
        e.index = 0;
        e.left = Trees.SumStep(
            Trees.sumNode(hashes[0], sums[0], hashes[1], sums[1]), Trees.add(sums[0], sums[1])
        );
        e.right = Trees.SumStep(
            Trees.sumNode(hashes[2], sums[2], hashes[3], sums[3]), Trees.add(sums[2], sums[3])
        );
        for (e.level = 2; e.level <= 32; e.level += 15) {
            e.claimed = Trees.add(e.left.sums, e.right.sums);
            vm.expectRevert(Evidence.NoFault.selector);
            treeRule.treeStep(e);
            e.claimed[3] += 1;
            vm.expectRevert(Evidence.NoFault.selector);
            treeRule.treeStep(e);
        }
        // Halves that carry cannot be summed by anyone: they are V's.
        e.level = 2;
        (e.left.sums[1], e.right.sums[1]) = (1 << 62, 1 << 62);
        e.settled.top = Trees.sumNode(e.left.sibling, e.left.sums, e.right.sibling, e.right.sums);
        assertEq(treeRule.treeStep(e).code, Openings.SUMS);
    }

    function _twice(Session memory s, uint256 one, uint256 other)
        private
        pure
        returns (Evidence.Twice memory e)
    {
        Openings.Opening memory o = _openingAt(s, one, 0);
        Openings.Opening memory p = _openingAt(s, other, 0);
        e.lane = Records.laneOf(s.order);
        e.settled = o.settled;
        (e.one, e.oneIndex, e.oneSteps) = (o.record, o.leafIndex, o.steps);
        (e.other, e.otherIndex, e.otherSteps) = (p.record, p.leafIndex, p.steps);
        e.older = new Openings.Root[](0);
    }

    function test_F5_OneRoundTwiceInATree() public {
        Session memory s = _honest(1);
        s.rounds[3].record = s.rounds[1].record;
        Evidence.Twice memory e = _twice(s, 1, 3);
        IFaultCourt.Source memory source = _signedSource(s, e.settled);
        _ready(abi.encodeCall(treeRule.roundTwice, (e)));
        _expect(5, Evidence.ROUND_TWICE, verifier.addr, Records.hash(s.start), 1);
        vm.prank(challenger);
        court.proveRoundTwice(e, source, SALT);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    /// @dev Round 1 again, three batches later.
    function test_F5_OneRoundTwiceInAChainOfBatches() public {
        Session memory s = _honest(1);
        Openings.Opening memory old = _openingAt(s, 1, 0);
        Openings.Root[] memory older = new Openings.Root[](3);
        older[2] = old.settled;
        for (uint256 i = 2; i > 0; --i) {
            older[i - 1].top = keccak256(abi.encode(i));
            older[i - 1].leafCount = 9;
            older[i - 1].baseRoot = _rootHash(older[i]);
        }
        s.base = older[0];
        Evidence.Twice memory e = _twice(s, 1, 1);
        e.older = older;
        (e.other, e.otherIndex, e.otherSteps) = (old.record, old.leafIndex, old.steps);
        Evidence.Ruling memory r = treeRule.roundTwice(e);
        _assertRuling(r, 5, Evidence.ROUND_TWICE, verifier.addr, s, 1);
        assertEq(r.root, _rootHash(e.settled));
        // A batch beside the chain is not what the root goes on from.
        e.older[1].leafCount = 8;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        treeRule.roundTwice(e);
    }
}
