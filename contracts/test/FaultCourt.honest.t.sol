// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {ProofWork} from "./ProofWork.sol";

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
