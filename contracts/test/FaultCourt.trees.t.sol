// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFaultCourt} from "../interfaces/IFaultCourt.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {ProofWork} from "./ProofWork.sol";

/// @notice F5 in what a settled root commits.
contract FaultCourtTreeTest is ProofWork {
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
