// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {CourtWork} from "./CourtWork.sol";

/// @notice Evidence that would convict, but for a signature that another has made or a tree
/// that it is not in.
contract FaultCourtRefusalTest is CourtWork {
    function _notBy(string memory what, address expected) private {
        vm.expectRevert(
            abi.encodeWithSelector(Evidence.NotSignedBy.selector, what, client.addr, expected)
        );
    }

    function _byClient(Records.Verdict memory verdict) private returns (bytes memory signature) {
        signature = _sign(client.key, Records.hash(verdict));
        _notBy("verdict", verifier.addr);
    }

    function test_NobodyAnswersForALeafUnderAnothersVerdict() public {
        bytes32 sep = _separator();
        Session memory s = _honest(1);
        s.rounds[1].leaves[1].draftToken = 999;
        _seal(s);
        Evidence.LeafPair memory pair = _leafPair(s, 1, 1);
        roundRule.otherDraft(pair, sep);
        pair.verdictSignature = _byClient(pair.verdict);
        roundRule.otherDraft(pair, sep);

        s = _honest(Records.MODE_REJECTION);
        s.rounds[3].leaves[0].p = Records.MASS_TOTAL;
        _seal(s);
        pair = _leafPair(s, 3, 0);
        roundRule.acceptRule(pair, sep);
        pair.verdictSignature = _byClient(pair.verdict);
        roundRule.acceptRule(pair, sep);

        s = _honest(1);
        s.rounds[0].leaves[1].position = 900;
        _seal(s);
        Evidence.LeafPlace memory place = _leafPlace(s, 0, 1);
        roundRule.leafPlace(place, sep);
        place.verdictSignature = _byClient(place.verdict);
        roundRule.leafPlace(place, sep);
    }

    function test_NobodyAnswersForAnothersVerdict() public {
        bytes32 sep = _separator();
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[1].verdict.chainValue = keccak256("a better coin");
        _seal(s);
        Evidence.Round memory round = _roundOf(s, 1);
        roundRule.verdictRound(round, sep);
        round.verdictSignature = _byClient(round.verdict);
        roundRule.verdictRound(round, sep);

        s = _honest(1);
        s.rounds[3].verdict.contextHash = keccak256("another text");
        s.rounds[3].verdict.nextContextHash = keccak256("after it");
        _seal(s);
        round = _roundOf(s, 3);
        roundRule.roundFit(round, sep);
        round.verdictSignature = _byClient(round.verdict);
        roundRule.roundFit(round, sep);

        Evidence.AllLeaves memory all = _allLeaves(s, 3);
        roundRule.allLeaves(all, sep);
        all.verdictSignature = _byClient(all.verdict);
        roundRule.allLeaves(all, sep);
    }

    function test_NobodyAnswersForAnothersDrafts() public {
        bytes32 sep = _separator();
        Session memory s = _honest(Records.MODE_REJECTION);
        s.rounds[0].drafts[1].q = 0;
        s.rounds[1].commit.chainValue = keccak256("a better coin");
        _seal(s);
        Evidence.DraftPlace memory place = _draftPlace(s, 0, 1);
        roundRule.draftLeaf(place, sep);
        place.commitSignature = _sign(client.key, Records.hash(place.commit));
        _notBy("commit", drafter.addr);
        roundRule.draftLeaf(place, sep);

        Evidence.DraftRound memory round = _draftRound(s, 1);
        roundRule.draftRound(round, sep);
        round.commitSignature = _sign(client.key, Records.hash(round.commit));
        _notBy("commit", drafter.addr);
        roundRule.draftRound(round, sep);
    }

    /// @dev A record that contradicts its verdict, and one that stands twice, but in nobody's tree.
    function test_NobodyAnswersForARoundOutsideHisTree() public {
        Session memory s = _honest(1);
        Evidence.RecordCase memory one = _recordCase(s, 1);
        one.record.accepted += 1;
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        treeRule.recordCase(one);

        Openings.Opening memory first = _openingAt(s, 0, 0);
        Openings.Opening memory second = _openingAt(s, 1, 0);
        Evidence.Twice memory twice;
        twice.lane = Records.laneOf(s.order);
        twice.settled = first.settled;
        (twice.one, twice.oneIndex, twice.oneSteps) = (first.record, 0, first.steps);
        (twice.other, twice.otherIndex, twice.otherSteps) = (first.record, 1, second.steps);
        vm.expectPartialRevert(Evidence.NotNamed.selector);
        treeRule.roundTwice(twice);
    }
}
