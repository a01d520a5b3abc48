// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {CourtWork} from "./CourtWork.sol";

/// @notice What a proof costs as a transaction of its own, with victims and a challenger to be paid
/// for the first time; trees of 2**14 rounds. As `Gas.t.sol` otherwise.
/// forge-config: default.isolate = true
contract GasFaultTest is CourtWork {
    uint256 private constant DEPTH = 14;

    function _logLast(string memory name) private {
        emit log_named_uint(string.concat("gas ", name), vm.lastCallGas().gasTotalUsed);
    }

    function _priced(uint8 mode) private view returns (Session memory s) {
        s = _honest(mode);
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        _seal(s);
    }

    function test_File() public {
        _fileAs(challenger, "question");
        _logLast("fault_file");
    }

    function test_F1() public {
        _prove(_draftPair(_priced(1), 1));
        _logLast("fault_F1");
    }

    function test_F2() public {
        _prove(_verdictPair(_priced(1), 1));
        _logLast("fault_F2");
    }

    function test_F3() public {
        Session memory s = _priced(1);
        s.rounds[1].leaves[1].draftToken = 999;
        _seal(s);
        _proveOther(_leafPair(s, 1, 1));
        _logLast("fault_F3");
    }

    function test_F4_Accept() public {
        Session memory s = _priced(Records.MODE_REJECTION);
        s.rounds[3].leaves[0].p = Records.MASS_TOTAL;
        _seal(s);
        _proveAccept(_leafPair(s, 3, 0));
        _logLast("fault_F4_accept");
    }

    function test_F4_Draft() public {
        Session memory s = _priced(Records.MODE_REJECTION);
        s.rounds[0].drafts[1].q = 0;
        _seal(s);
        _prove(_draftPlace(s, 0, 1));
        _logLast("fault_F4_draft");
    }

    function test_F4_Coins() public {
        Session memory s = _priced(Records.MODE_REJECTION);
        s.rounds[1].commit.chainValue = keccak256("a better coin");
        s.rounds[1].verdict.chainValue = keccak256("a better coin");
        _seal(s);
        _proveCoins(_roundOf(s, 1));
        _logLast("fault_F4_coin_verifier");
        _prove(_draftRound(s, 1));
        _logLast("fault_F4_coin_drafter");
    }

    function test_F5_Round() public {
        Session memory s = _priced(1);
        s.rounds[3].verdict.contextHash = keccak256("another text");
        s.rounds[3].commit.contextHash = keccak256("another text");
        _seal(s);
        _proveFit(_roundOf(s, 3));
        _logLast("fault_F5_round");
    }

    function test_F5_Leaf() public {
        Session memory s = _priced(1);
        s.rounds[0].leaves[1].position = 900;
        _seal(s);
        _prove(_leafPlace(s, 0, 1));
        _logLast("fault_F5_leaf");
    }

    function test_F5_Leaves() public {
        Session memory s = _session(1);
        _play(s, 8, 8, 3);
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        s.rounds[0].verdict.nextContextHash = keccak256("another text");
        _seal(s);
        _prove(_allLeaves(s, 0));
        _logLast("fault_F5_nine_leaves");
    }

    // ------------------------------------------------------------------ trees

    function _siblings(string memory name) private pure returns (Trees.SumStep[] memory steps) {
        steps = new Trees.SumStep[](DEPTH);
        for (uint256 i; i < DEPTH; ++i) {
            steps[i].sibling = keccak256(abi.encode(name, i));
            for (uint256 j; j < 9; ++j) {
                uint256 lane = 100_000 + i * j;
                steps[i].sums[j] = lane | lane << 64;
                if (j != 0) steps[i].sums[j] |= lane << 128 | lane << 192;
            }
        }
    }

    /// @dev The root over a leaf with those siblings.
    function _over(
        Openings.Root memory root,
        Records.RoundRecord memory record,
        uint256 index,
        Trees.SumStep[] memory steps
    ) private pure {
        root.leafCount = uint32(1 << DEPTH);
        root.top = Records.leaf(record);
        uint256[9] memory total = Records.sums(record);
        for (uint256 i; i < DEPTH; ++i) {
            root.top = index >> i & 1 == 1
                ? Trees.sumNode(steps[i].sibling, steps[i].sums, root.top, total)
                : Trees.sumNode(root.top, total, steps[i].sibling, steps[i].sums);
            total = Trees.add(total, steps[i].sums);
        }
        root.sums = total;
    }

    function test_F5_Record() public {
        uint256 fresh = vm.snapshotState();
        Session memory s = _session(1);
        _play(s, 8, 8, 3);
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        _seal(s);
        s.rounds[0].record.buckets[0] = 7 | 1 << 64; // of eight, one in another bucket
        Evidence.RecordCase memory e = _recordCase(s, 0);
        e.leafIndex = 5_555;
        e.steps = _siblings("record");
        _over(e.settled, e.record, 5_555, e.steps);
        _prove(e, _signedSource(s, e.settled));
        _logLast("fault_F5_buckets_of_nine_leaves");
        vm.revertToState(fresh);
        // What verdict or totals contradict needs no leaves.
        s.rounds[0].record.buckets[0] = 9;
        e = _recordCase(s, 0);
        e.leafIndex = 5_555;
        e.steps = _siblings("record");
        e.leaves = new Records.VerdictLeaf[](0);
        _over(e.settled, e.record, 5_555, e.steps);
        _prove(e, _signedSource(s, e.settled));
        _logLast("fault_F5_record");
    }

    function test_F5_Sums() public {
        Session memory s = _priced(1);
        Evidence.TreeStep memory e = _treeStep(s, 0);
        e.index = 5_555;
        e.steps = _siblings("sums");
        _over(e.settled, e.record, 5_555, e.steps);
        e.settled.sums[0] += 1;
        _prove(e, _signedSource(s, e.settled));
        _logLast("fault_F5_sums");
    }

    function test_F5_Twice() public {
        Session memory s = _priced(1);
        Evidence.Twice memory e;
        e.lane = Records.laneOf(s.order);
        (e.one, e.other) = (s.rounds[1].record, s.rounds[1].record);
        (e.oneIndex, e.otherIndex) = (5_555, 1_234);
        (e.oneSteps, e.otherSteps) = (_siblings("one"), _siblings("other"));
        e.older = new Openings.Root[](1);
        _over(e.older[0], e.other, 1_234, e.otherSteps);
        e.settled.baseRoot = _rootHash(e.older[0]);
        _over(e.settled, e.one, 5_555, e.oneSteps);
        e.settled.sums = Trees.add(e.settled.sums, e.older[0].sums);
        _prove(e, _signedSource(s, e.settled));
        _logLast("fault_F5_twice");
    }
}
