// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {OpeningRule} from "../OpeningRule.sol";
import {AcceptRule} from "../libraries/AcceptRule.sol";
import {Coins} from "../libraries/Coins.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {RoundWork} from "./RoundWork.sol";

abstract contract OpeningWork is RoundWork {
    OpeningRule internal rule;

    function setUp() public virtual override {
        super.setUp();
        rule = new OpeningRule();
    }

    /// @dev A seed whose sample 0 falls on `target`.
    function _seedFor(uint256 output, uint256 target) internal pure returns (bytes32 seed) {
        uint256 tries;
        do {
            seed = keccak256(abi.encode(tries++));
        } while (Openings.targetOf(seed, 0, output) != target);
    }

    function _judge(Session memory s, uint256 index, uint256 within)
        internal
        view
        returns (Openings.Finding memory)
    {
        return _judge(s, _openingAt(s, index, within), index, within);
    }

    function _judge(Session memory s, Openings.Opening memory o, uint256 index, uint256 within)
        internal
        view
        returns (Openings.Finding memory)
    {
        uint256 target = within;
        for (uint256 i; i < index; ++i) {
            target += s.rounds[i].record.output;
        }
        return rule.judge(
            o,
            _rootHash(o.settled),
            Records.laneId(Records.laneOf(s.order)),
            escrow.domainSeparator(),
            _seedFor(_output(s), target),
            0
        );
    }

    function _assertVerifier(Session memory s, uint256 index, uint256 within, uint8 code)
        internal
        view
    {
        Openings.Finding memory found = _judge(s, index, within);
        assertEq(found.verifier, code, "V's fault");
        assertEq(found.drafter, 0, "D's fault");
    }
}

contract OpeningRuleHonestTest is OpeningWork {
    /// @dev Every position of honest rounds in every mode, and what it counts for.
    function test_HonestRoundsShowNothing() public view {
        for (uint8 mode; mode < 3; ++mode) {
            Session memory s = _honest(mode);
            for (uint256 i; i < s.rounds.length; ++i) {
                for (uint256 j; j < s.rounds[i].leaves.length; ++j) {
                    Openings.Finding memory found = _judge(s, i, j);
                    assertEq(found.verifier, 0);
                    assertEq(found.drafter, 0);
                    assertEq(found.position, s.rounds[i].leaves[j].position);
                    assertEq(found.accepted, s.rounds[i].leaves[j].accepted);
                    assertEq(found.drafted, j < s.rounds[i].drafts.length);
                    assertEq(found.bucket, 0);
                }
            }
        }
    }

    function testFuzz_TreesOfAnyShape(uint256 seed, uint8 rounds, uint8 mode) public view {
        Session memory s = _session(mode % 3);
        uint256 count = bound(rounds, 1, 9);
        uint16 window = 4;
        for (uint256 i; i < count; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint16 next = uint16(seed % 6);
            _play(s, window, uint16((seed >> 8) % (uint256(window) + 1)), next);
            window = next;
        }
        _seal(s);
        uint256 index = seed % count;
        Openings.Finding memory found = _judge(s, index, seed % s.rounds[index].leaves.length);
        assertEq(found.verifier, 0);
        assertEq(found.drafter, 0);
    }

    function test_OnABaseOnlyTheNewTreeIsDrawn() public view {
        Session memory before = _honest(1);
        Session memory s = _honest(1);
        s.base = _settled(before);
        Openings.Finding memory found = _judge(s, 3, 0);
        assertEq(found.verifier, 0);
        assertEq(Trees.outputOf(_settled(s).sums), 2 * _output(s));
    }

    function test_AStopEndsTheRoundAtADraft() public view {
        Session memory s = _session(1);
        _play(s, 4, 3, 4);
        Round memory r = s.rounds[0];
        // The third draft is a stop: accepted, emitted, and the last.
        r.drafts[2].token = STOP;
        Records.VerdictLeaf[] memory leaves = new Records.VerdictLeaf[](3);
        (leaves[0], leaves[1], leaves[2]) = (r.leaves[0], r.leaves[1], r.leaves[2]);
        (leaves[2].draftToken, leaves[2].token) = (STOP, STOP);
        r.leaves = leaves;
        r.verdict.emitted = 3;
        _seal(s);
        for (uint256 j; j < 3; ++j) {
            _assertVerifier(s, 0, j, 0);
        }
    }

    function test_FewerDraftsAtTheEnd() public view {
        Session memory s = _session(Records.MODE_REJECTION);
        s.order.maxTokens = 3;
        s.start.firstK = 4;
        _play(s, 2, 2, 0); // two drafts and V's own token reach the end
        _seal(s);
        Openings.Finding memory found = _judge(s, 0, 1);
        assertEq(found.verifier | found.drafter, 0);
    }
}

contract OpeningRuleEvidenceTest is OpeningWork {
    function _refused(Openings.Opening memory o, Session memory t, uint256 index, uint256 within)
        private
    {
        uint256 target = within;
        for (uint256 i; i < index; ++i) {
            target += t.rounds[i].record.output;
        }
        bytes32 lane = Records.laneId(Records.laneOf(t.order));
        bytes32 root = _rootHash(_settled(t));
        bytes32 seed = _seedFor(_output(t), target);
        bytes32 separator = escrow.domainSeparator();
        vm.expectPartialRevert(Openings.NotNamed.selector);
        rule.judge(o, root, lane, separator, seed, 0);
    }

    function test_AnotherRootIsNotOpened() public {
        Session memory t = _honest(1);
        Session memory other = _honest(1);
        other.order.requestId = keccak256("another request");
        _seal(other);
        _refused(_openingAt(other, 1, 0), t, 1, 0);
    }

    function test_FalseSumsInTheSettledRootAreNotTheRoot() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        o.settled.sums[0] += 1;
        _refused(o, t, 1, 0);
    }

    function test_FalseSumsInAStepLeadElsewhere() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        o.steps[0].sums[0] -= 1;
        _refused(o, t, 1, 0);
    }

    function test_FalseSumsInTheRecordLeadElsewhere() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        bytes32 kept = keccak256(abi.encode(o.record));
        Records.RoundRecord memory copy = abi.decode(abi.encode(o.record), (Records.RoundRecord));
        copy.output += 1;
        assertTrue(keccak256(abi.encode(copy)) != kept);
        o.record = copy;
        _refused(o, t, 1, 0);
    }

    function test_AFalseBaseIsNotTheBase() public {
        Session memory t = _honest(1);
        t.base = _settled(_honest(1));
        Openings.Opening memory o = _openingAt(t, 1, 0);
        o.base = abi.decode(abi.encode(o.base), (Openings.Root));
        o.base.sums[0] += 1;
        _refused(o, t, 1, 0);
    }

    function test_AnotherIndexLeadsElsewhere() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        o.leafIndex = 0;
        _refused(o, t, 1, 0);
    }

    function test_AnotherSessionsStartOrderAndLane() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        o.start.seed = keccak256("chosen later");
        _refused(o, t, 1, 0);
        t = _honest(1);
        o = _openingAt(t, 1, 0);
        o.order = abi.decode(abi.encode(o.order), (Records.Order));
        o.order.maxTokens += 1;
        _refused(o, t, 1, 0);
        // A round of another lane, smuggled into this one's tree.
        t = _honest(1);
        o = _openingAt(t, 1, 0);
        bytes32 root = _rootHash(o.settled);
        bytes32 separator = escrow.domainSeparator();
        bytes32 seed = _seedFor(9, 5);
        vm.expectPartialRevert(Openings.NotNamed.selector);
        rule.judge(o, root, keccak256("another lane"), separator, seed, 0);
    }

    function test_OtherVerdictCommitAndPrevious() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        o.verdict = t.rounds[2].verdict;
        _refused(o, t, 1, 0);
        o = _openingAt(t, 1, 0);
        o.commit = t.rounds[0].commit;
        _refused(o, t, 1, 0);
        o = _openingAt(t, 1, 0);
        o.previous = t.rounds[2].verdict;
        _refused(o, t, 1, 0);
        // Without drafts V's signature stands for the round before, and its number is checked.
        o = _openingAt(t, 2, 0);
        o.previous = t.rounds[0].verdict;
        o.previousSignature = t.rounds[0].verdictSignature;
        _refused(o, t, 2, 0);
    }

    function test_ProofsHaveOneShape() public {
        Session memory t = _honest(1);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        bytes32 root = _rootHash(o.settled);
        bytes32 lane = Records.laneId(Records.laneOf(t.order));
        bytes32 separator = escrow.domainSeparator();
        bytes32 seed = _seedFor(9, 5);
        Trees.SumStep[] memory deep = new Trees.SumStep[](200);
        Trees.SumStep[] memory steps = o.steps;
        o.steps = deep;
        vm.expectRevert(abi.encodeWithSelector(Trees.WrongProofLength.selector, 200, 2));
        rule.judge(o, root, lane, separator, seed, 0);
        o.steps = steps;
        o.verdictPath = new bytes32[](64);
        vm.expectRevert(abi.encodeWithSelector(Trees.WrongProofLength.selector, 64, 1));
        rule.judge(o, root, lane, separator, seed, 0);
    }

    function test_AnotherPositionIsNotTheOneDrawn() public {
        Session memory t = _honest(1);
        bytes32 lane = Records.laneId(Records.laneOf(t.order));
        bytes32 separator = escrow.domainSeparator();
        Openings.Opening memory o = _openingAt(t, 1, 0);
        bytes32 root = _rootHash(o.settled);
        // The draw fell on round 0; V would rather show round 1.
        bytes32 seed = _seedFor(9, 4);
        vm.expectPartialRevert(Trees.OutsideLeaf.selector);
        rule.judge(o, root, lane, separator, seed, 0);
        // The draw fell on the second token of round 1; V would rather show the first.
        seed = _seedFor(9, 6);
        vm.expectPartialRevert(Trees.NotInTree.selector);
        rule.judge(o, root, lane, separator, seed, 0);
    }

    function test_BothHaveSigned() public {
        Session memory t = _honest(1);
        bytes32 lane = Records.laneId(Records.laneOf(t.order));
        bytes32 separator = escrow.domainSeparator();
        bytes32 seed = _seedFor(9, 5);
        Openings.Opening memory o = _openingAt(t, 1, 0);
        bytes32 root = _rootHash(o.settled);
        o.commitSignature = _sign(verifier.key, Records.hash(o.commit));
        vm.expectRevert(
            abi.encodeWithSelector(
                Openings.NotSignedBy.selector, "commit", verifier.addr, drafter.addr
            )
        );
        rule.judge(o, root, lane, separator, seed, 0);
        o = _openingAt(t, 1, 0);
        o.verdictSignature = new bytes(65);
        vm.expectRevert(
            abi.encodeWithSelector(
                Openings.NotSignedBy.selector, "verdict", address(0), verifier.addr
            )
        );
        rule.judge(o, root, lane, separator, seed, 0);
        o = _openingAt(t, 1, 0);
        o.previousSignature = o.commitSignature;
        vm.expectPartialRevert(Openings.NotSignedBy.selector);
        rule.judge(o, root, lane, separator, seed, 0);
    }

    function test_ALeafOfNoOtherTreeAndNoOtherList() public {
        Session memory t = _honest(Records.MODE_REJECTION);
        bytes32 lane = Records.laneId(Records.laneOf(t.order));
        bytes32 separator = escrow.domainSeparator();
        bytes32 seed = _seedFor(9, 1);
        Openings.Opening memory o = _openingAt(t, 0, 1);
        bytes32 root = _rootHash(o.settled);
        o.draftLeaf = t.rounds[0].drafts[2];
        vm.expectPartialRevert(Trees.NotInTree.selector);
        rule.judge(o, root, lane, separator, seed, 0);
        o = _openingAt(t, 0, 1);
        o.kept = _kept(1);
        vm.expectPartialRevert(AcceptRule.NotThisLeaf.selector);
        rule.judge(o, root, lane, separator, seed, 0);
    }
}

/// @dev One byte is altered in honest rounds and signed again by the guilty key.
contract OpeningRuleFaultTest is OpeningWork {
    function test_SumsThatAreNotTheTrees() public view {
        Session memory s = _honest(1);
        Openings.Opening memory o = _openingAt(s, 1, 0);
        o.settled.sums[0] += 1 << 64;
        Openings.Finding memory found = _judge(s, o, 1, 0);
        assertEq(found.verifier, Openings.SUMS);
        assertEq(Openings.faultOf(Openings.SUMS), 5);
    }

    function test_ARecordThatSaysOtherwise() public view {
        Session memory s = _honest(1);
        s.rounds[1].record.accepted += 1;
        _assertVerifier(s, 1, 0, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].record.verdictRoot = keccak256("another tree");
        _assertVerifier(s, 1, 0, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].record.draftRoot = keccak256("another tree");
        _assertVerifier(s, 1, 0, Openings.RECORD);
        s = _honest(1);
        s.rounds[2].record.draftRoot = keccak256("a tree of no drafts");
        _assertVerifier(s, 2, 0, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].record.round = 7;
        s.rounds[0].verdict.round = 6; // so that the round before seems to fit
        s.rounds[0].verdictSignature = _sign(verifier.key, Records.hash(s.rounds[0].verdict));
        s.rounds[1].commit.prevVerdictHash = Records.hash(s.rounds[0].verdict);
        s.rounds[1].record.draftCommitHash = Records.hash(s.rounds[1].commit);
        s.rounds[1].commitSignature = _sign(drafter.key, s.rounds[1].record.draftCommitHash);
        _assertVerifier(s, 1, 0, Openings.RECORD);
    }

    function test_AVerdictOnAnotherDraft() public view {
        Session memory s = _honest(1);
        // V judges version 1 and files D's version 0.
        s.rounds[1].verdict.version = 1;
        _seal(s);
        _assertVerifier(s, 1, 0, Openings.RECORD);
        s = _honest(1);
        s.rounds[1].verdict.contextHash = keccak256("another context");
        _seal(s);
        _assertVerifier(s, 1, 0, Openings.RECORD);
    }

    function test_CountsThatDoNotFit() public view {
        Session memory s = _honest(1);
        s.rounds[1].record.buckets[0] += 1; // one draft more than was reached
        _assertVerifier(s, 1, 0, Openings.COUNTS);
        s = _honest(1);
        s.rounds[1].record.buckets[4] = 0; // D's accepted draft is not counted
        _assertVerifier(s, 1, 0, Openings.COUNTS);
        s = _honest(1);
        // Counted in another bucket than the leaf says.
        s.rounds[1].record.buckets[0] = 0;
        s.rounds[1].record.buckets[1] = 2;
        _assertVerifier(s, 1, 0, Openings.COUNTS);
        s = _honest(1);
        s.rounds[1].verdict.k = 0; // the leaf was accepted, D is to get nothing
        _seal(s);
        s.rounds[1].record.buckets[4] = 0;
        s.rounds[1].record.buckets[0] = 1;
        s.rounds[1].verdict.emitted = 2;
        _assertVerifier(s, 1, 0, Openings.COUNTS);
    }

    function test_BasesAndContextsFollow() public view {
        Session memory s = _honest(1);
        s.rounds[0].verdict.base += 1;
        s.rounds[0].commit.base += 1;
        _seal(s);
        _assertVerifier(s, 0, 0, Openings.CONTEXT);
        s = _honest(1);
        s.rounds[3].verdict.contextHash = keccak256("another text");
        s.rounds[3].commit.contextHash = keccak256("another text");
        _seal(s);
        _assertVerifier(s, 3, 0, Openings.CONTEXT);
        s = _honest(1);
        s.rounds[3].verdict.nextContextHash = keccak256("another text");
        _seal(s);
        _assertVerifier(s, 3, 0, Openings.CONTEXT);
    }

    function test_NothingFollowsAStop() public view {
        Session memory s = _session(1);
        _play(s, 4, 4, 3);
        Round memory r = s.rounds[0];
        r.drafts[1].token = STOP;
        (r.leaves[1].draftToken, r.leaves[1].token) = (STOP, STOP);
        _seal(s);
        _assertVerifier(s, 0, 1, Openings.STOP_PASSED);
        _assertVerifier(s, 0, 2, 0);
    }

    function test_NothingLiesPastMaxTokens() public view {
        Session memory s = _session(1);
        s.order.maxTokens = 4;
        _play(s, 4, 4, 3);
        _seal(s);
        _assertVerifier(s, 0, 4, AcceptRule.OUTSIDE_SESSION);
        assertEq(Openings.faultOf(AcceptRule.OUTSIDE_SESSION), 5);
    }

    function test_ALeafThatNamesAnotherDraft() public view {
        Session memory s = _honest(1);
        s.rounds[1].leaves[1].draftToken = 999; // D's rejected draft is misquoted
        _seal(s);
        _assertVerifier(s, 1, 1, AcceptRule.OTHER_DRAFT);
        assertEq(Openings.faultOf(AcceptRule.OTHER_DRAFT), 3);
    }

    function test_AcceptedButAnotherTokenEmitted() public view {
        for (uint8 mode; mode < 3; ++mode) {
            Session memory s = _honest(mode);
            s.rounds[0].leaves[2].token = 55;
            _seal(s);
            _assertVerifier(s, 0, 2, AcceptRule.ACCEPTED_OTHER);
        }
    }

    function test_AFalseRejectInRejectionMode() public view {
        Session memory s = _honest(Records.MODE_REJECTION);
        // p = q: the coin accepts, the leaf says it was rejected.
        s.rounds[3].leaves[0].p = Records.MASS_TOTAL;
        _seal(s);
        _assertVerifier(s, 3, 0, AcceptRule.COIN_SAYS_OTHERWISE);
    }

    function test_ACoinThatWasNotFixed() public view {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[1].verdict.chainValue = keccak256("a better coin");
        _seal(s);
        _assertVerifier(s, 1, 0, AcceptRule.CHAIN_VERIFIER);
    }

    function _assertDrafter(Session memory s, uint256 index, uint256 within, uint8 code)
        private
        view
    {
        Openings.Finding memory found = _judge(s, index, within);
        assertEq(found.drafter, code, "D's fault");
        assertEq(found.verifier, 0, "V's fault");
    }

    function test_ADrawOutsideItsMass() public view {
        Session memory s = _honest(Records.MODE_REJECTION);
        Records.DraftLeaf memory draft = s.rounds[0].drafts[1];
        // Half the mass, and the coin falls into the other half.
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
        _assertDrafter(s, 0, 1, AcceptRule.DRAW);
        assertEq(Openings.faultOf(AcceptRule.DRAW), 4);
    }

    function test_ADrawersChainAndList() public view {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[1].commit.chainValue = keccak256("a better coin");
        _seal(s);
        _assertDrafter(s, 1, 0, AcceptRule.CHAIN_DRAFTER);
        s = _honest(Records.MODE_REJECTION);
        // The leaf gives the token the whole mass; the list behind it does not hold the token.
        s.rounds[0].drafts[1].keptHash = Records.keptHash(_kept(5));
        _seal(s);
        Openings.Opening memory o = _openingAt(s, 0, 1);
        o.kept = _kept(5);
        Openings.Finding memory found = _judge(s, o, 0, 1);
        assertEq(found.drafter, AcceptRule.LIST_NOT_LEAF);
    }

    function test_AnotherNumberOfDraftsThanAnnounced() public view {
        Session memory s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 3);
        _play(s, 2, 1, 2); // three were announced
        _seal(s);
        _assertDrafter(s, 1, 0, Openings.WINDOW_DRAFTER);
        s = _session(Records.MODE_REJECTION);
        _play(s, 3, 3, 3); // firstK says four
        _seal(s);
        _assertDrafter(s, 0, 0, Openings.WINDOW_DRAFTER);
        s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 3);
        _play(s, 0, 0, 2); // V leaves D out when the coins are known
        _seal(s);
        _assertVerifier(s, 1, 0, Openings.WINDOW_VERIFIER);
        s = _session(Records.MODE_GREEDY);
        _play(s, 9, 0, 3); // the order allows eight
        _seal(s);
        _assertVerifier(s, 0, 0, Openings.WINDOW_VERIFIER);
        assertEq(Openings.faultOf(Openings.WINDOW_VERIFIER), 4);
        assertEq(Openings.faultOf(Openings.WINDOW_DRAFTER), 4);
    }

    /// @dev V announces twenty where the order allows eight: eight are right, then and later, and
    /// nobody is to blame; seven are not, and are D's; nine are V's, who took them.
    function test_AnnouncingMoreThanTheOrderAllowsBlamesNoDrafter() public view {
        Session memory s = _session(Records.MODE_REJECTION);
        assertEq(s.order.maxWindow, 8);
        s.start.firstK = 20;
        _play(s, 8, 8, 20);
        _play(s, 8, 2, 20);
        _seal(s);
        for (uint256 round; round < 2; ++round) {
            Openings.Finding memory found = _judge(s, round, 0);
            assertEq(found.drafter, 0, "D kept to the order");
            assertEq(found.verifier, 0, "what was announced is no fault of its own");
        }
        _assertWindowOf(7, 0, Openings.WINDOW_DRAFTER);
        _assertWindowOf(9, Openings.WINDOW_VERIFIER, 0);
    }

    /// @dev Round 1 with so many drafts, twenty announced.
    function _assertWindowOf(uint16 window, uint8 byVerifier, uint8 byDrafter) private view {
        Session memory s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 20);
        _play(s, window, 1, 4);
        _seal(s);
        Openings.Finding memory found = _judge(s, 1, 0);
        assertEq(found.verifier, byVerifier, "V's window");
        assertEq(found.drafter, byDrafter, "D's window");
    }

    /// @dev Each is judged for itself.
    function test_BothMayBeGuilty() public view {
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[1].commit.chainValue = keccak256("a better coin");
        s.rounds[1].verdict.chainValue = keccak256("a better coin");
        _seal(s);
        Openings.Finding memory found = _judge(s, 1, 0);
        assertEq(found.drafter, AcceptRule.CHAIN_DRAFTER);
        assertEq(found.verifier, AcceptRule.CHAIN_VERIFIER);
    }
}
