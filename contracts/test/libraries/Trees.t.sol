// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../../libraries/Records.sol";
import {Trees} from "../../libraries/Trees.sol";
import {TreesHarness} from "../harness/TreesHarness.sol";
import {VectorReader} from "./VectorReader.sol";

/// @dev Every proof is held against a tree that is built the plain way: level by level, by
/// concatenation, without the library.
contract TreesTest is VectorReader {
    TreesHarness internal trees;

    uint256 internal constant MOST = type(uint64).max >> 1; // a lane's largest value

    struct Level {
        bytes32[] hashes;
        uint256[9][] sums;
    }

    function setUp() public {
        trees = new TreesHarness();
        _loadTypes();
    }

    // ------------------------------------------------------------------ golden vectors

    function test_Vectors_Merkle() public view {
        string memory json = _load("trees");
        uint256 count = _count(json, ".merkle");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".merkle", i);
            bytes32[] memory leaves = vm.parseJsonBytes32Array(json, string.concat(item, ".leaves"));
            bytes32 root = _word(json, string.concat(item, ".root"));
            assertEq(_root(leaves), root);
            for (uint256 j; j < leaves.length; ++j) {
                bytes32[] memory siblings =
                    vm.parseJsonBytes32Array(json, _at(string.concat(item, ".proofs"), j));
                trees.requireLeaf(root, leaves[j], j, leaves.length, siblings);
            }
        }
    }

    struct VectorStep {
        bytes32 hash;
        bytes sums;
    }

    struct Descent {
        uint256 outputPosition;
        uint256 index;
        uint256 offset;
    }

    function test_Vectors_SumTrees() public view {
        string memory json = _load("trees");
        uint256 count = _count(json, ".sum");
        for (uint256 i; i < count; ++i) {
            _checkSumTree(json, _at(".sum", i));
        }
    }

    function _checkSumTree(string memory json, string memory item) internal view {
        Trees.Settled memory batch = _settled(json, item);
        trees.requireSettled(_word(json, string.concat(item, ".settledRoot")), batch);
        bytes memory total = vm.parseJsonBytes(json, string.concat(item, ".total"));
        uint256[9] memory base = trees.sub(batch.sums, _nineWords(total));
        uint256 before;
        uint256 found;
        for (uint256 i; i < batch.leafCount; ++i) {
            Records.RoundRecord memory round = _round(json, _at(string.concat(item, ".rounds"), i));
            Trees.SumStep[] memory steps = _steps(json, _at(string.concat(item, ".proofs"), i));
            assertEq(_open(batch, base, round, i, steps), before);
            found += _checkDescents(json, item, i, before, round.output);
            before += round.output;
        }
        assertEq(found, _count(json, string.concat(item, ".descents")));
    }

    function _settled(string memory json, string memory item)
        internal
        pure
        returns (Trees.Settled memory batch)
    {
        batch.top = _word(json, string.concat(item, ".top"));
        batch.sums = _nineWords(vm.parseJsonBytes(json, string.concat(item, ".cumulative")));
        batch.leafCount = uint32(_uint(json, string.concat(item, ".leafCount")));
        batch.baseRoot = _word(json, string.concat(item, ".baseRoot"));
    }

    function _open(
        Trees.Settled memory batch,
        uint256[9] memory base,
        Records.RoundRecord memory round,
        uint256 index,
        Trees.SumStep[] memory steps
    ) internal view returns (uint256) {
        (bytes32 leaf, uint256[9] memory sums) = (Records.leaf(round), Records.sums(round));
        return trees.requireRound(batch, base, leaf, sums, index, steps);
    }

    /// @dev How many of the drawn tokens lie in this leaf, each at its place.
    function _checkDescents(
        string memory json,
        string memory item,
        uint256 index,
        uint256 before,
        uint256 output
    ) internal view returns (uint256 found) {
        Descent[] memory descents = abi.decode(
            vm.parseJsonTypeArray(
                json,
                string.concat(item, ".descents"),
                "Descent(uint256 outputPosition,uint256 index,uint256 offset)"
            ),
            (Descent[])
        );
        for (uint256 j; j < descents.length; ++j) {
            if (descents[j].index != index) continue;
            uint256 within = trees.requireCovers(descents[j].outputPosition, before, output);
            assertEq(within, descents[j].offset);
            ++found;
        }
    }

    function _round(string memory json, string memory path)
        internal
        view
        returns (Records.RoundRecord memory)
    {
        return abi.decode(_record(json, path, "RoundRecord"), (Records.RoundRecord));
    }

    function _steps(string memory json, string memory path)
        internal
        pure
        returns (Trees.SumStep[] memory steps)
    {
        VectorStep[] memory read = abi.decode(
            vm.parseJsonTypeArray(json, path, "VectorStep(bytes32 hash,bytes sums)"), (VectorStep[])
        );
        steps = new Trees.SumStep[](read.length);
        for (uint256 i; i < read.length; ++i) {
            steps[i] = Trees.SumStep(read[i].hash, _nineWords(read[i].sums));
        }
    }

    function _nineWords(bytes memory packed) internal pure returns (uint256[9] memory) {
        assertEq(packed.length, 288);
        return abi.decode(packed, (uint256[9]));
    }

    // ------------------------------------------------------------------ hashes

    function testFuzz_NodesEqualThePlainConcatenation(
        bytes32 left,
        bytes32 right,
        uint256[9] memory a,
        uint256[9] memory b,
        uint32 count
    ) public view {
        assertEq(trees.node(left, right), keccak256(abi.encodePacked(bytes1(0x01), left, right)));
        assertEq(
            trees.sumNode(left, a, right, b),
            keccak256(abi.encodePacked(bytes1(0x02), left, a, right, b))
        );
        assertEq(
            trees.settledRoot(left, a, count, right),
            keccak256(abi.encodePacked(bytes1(0x03), left, a, count, right))
        );
    }

    // ------------------------------------------------------------------ Merkle proofs

    /// forge-config: default.fuzz.runs = 64
    function testFuzz_EveryLeafLeadsToTheRoot(uint256 count, uint256 seed) public view {
        count = bound(count, 1, 40);
        bytes32[] memory leaves = _leaves(count, seed);
        bytes32 root = _root(leaves);
        for (uint256 i; i < count; ++i) {
            bytes32[] memory siblings = _siblings(leaves, i);
            assertEq(trees.proofLength(i, count), siblings.length);
            assertEq(trees.rootOf(leaves[i], i, count, siblings), root);
            trees.requireLeaf(root, leaves[i], i, count, siblings);
        }
    }

    function testFuzz_RevertWhen_TheProofIsTooShortOrTooLong(uint256 count, uint256 index) public {
        count = bound(count, 2, 40);
        index = bound(index, 0, count - 1);
        bytes32[] memory leaves = _leaves(count, index);
        bytes32[] memory siblings = _siblings(leaves, index);
        bytes32[] memory longer = new bytes32[](siblings.length + 1);
        for (uint256 i; i < siblings.length; ++i) {
            longer[i] = siblings[i];
        }
        longer[siblings.length] = keccak256("one too many");
        vm.expectRevert(
            abi.encodeWithSelector(
                Trees.WrongProofLength.selector, siblings.length + 1, siblings.length
            )
        );
        trees.rootOf(leaves[index], index, count, longer);

        bytes32[] memory shorter = new bytes32[](siblings.length - 1);
        vm.expectRevert(
            abi.encodeWithSelector(
                Trees.WrongProofLength.selector, siblings.length - 1, siblings.length
            )
        );
        trees.rootOf(leaves[index], index, count, shorter);
    }

    function testFuzz_AChangedBitLeadsElsewhere(
        uint256 count,
        uint256 index,
        uint256 step,
        uint8 bit
    ) public {
        count = bound(count, 2, 40);
        index = bound(index, 0, count - 1);
        bytes32[] memory leaves = _leaves(count, step);
        bytes32 root = _root(leaves);
        bytes32[] memory siblings = _siblings(leaves, index);
        step = bound(step, 0, siblings.length - 1);
        siblings[step] ^= bytes32(uint256(1) << bit);
        bytes32 computed = trees.rootOf(leaves[index], index, count, siblings);
        assertNotEq(computed, root);
        vm.expectRevert(
            abi.encodeWithSelector(Trees.NotInTree.selector, leaves[index], index, computed, root)
        );
        trees.requireLeaf(root, leaves[index], index, count, siblings);
    }

    /// @dev The same path under another index of the same shape is another claim.
    function test_AnotherIndexLeadsElsewhere() public view {
        bytes32[] memory leaves = _leaves(8, 1);
        bytes32[] memory siblings = _siblings(leaves, 2);
        for (uint256 i; i < 8; ++i) {
            if (i == 2) continue;
            assertNotEq(trees.rootOf(leaves[2], i, 8, siblings), _root(leaves));
        }
    }

    /// @dev Were the odd last leaf paired with itself, [a, b, c] and [a, b, c, c] would share a root.
    function test_AnOddLeafIsNotDoubled() public view {
        bytes32[] memory three = _leaves(3, 1);
        bytes32[] memory four = new bytes32[](4);
        (four[0], four[1], four[2], four[3]) = (three[0], three[1], three[2], three[2]);
        assertNotEq(_root(three), _root(four));
        assertEq(trees.rootOf(three[2], 2, 3, _siblings(three, 2)), _root(three));
    }

    function test_RevertWhen_ThereIsNoSuchTreeOrLeaf() public {
        bytes32[] memory none = new bytes32[](0);
        bytes32 leaf = keccak256("leaf");
        vm.expectRevert(Trees.EmptyTree.selector);
        trees.rootOf(leaf, 0, 0, none);
        vm.expectRevert(abi.encodeWithSelector(Trees.TreeTooLarge.selector, 1 << 32));
        trees.rootOf(leaf, 0, 1 << 32, none);
        vm.expectRevert(abi.encodeWithSelector(Trees.IndexOutsideTree.selector, 3, 3));
        trees.rootOf(leaf, 3, 3, none);
        vm.expectRevert(Trees.ZeroRoot.selector);
        trees.requireLeaf(0, leaf, 0, 1, none);
        vm.expectRevert(Trees.ZeroNode.selector);
        trees.rootOf(0, 0, 1, none);
        vm.expectRevert(Trees.ZeroNode.selector);
        trees.rootOf(leaf, 0, 2, new bytes32[](1));
    }

    // ------------------------------------------------------------------ sums

    function testFuzz_AddIsLaneByLane(uint64[34] memory a, uint64[34] memory b) public view {
        uint256[9] memory expected;
        for (uint256 i; i < 34; ++i) {
            (a[i], b[i]) = (a[i] >> 2, b[i] >> 2);
            _put(expected, i, uint256(a[i]) + b[i]);
        }
        _assertSums(trees.add(_pack(a), _pack(b)), expected);
    }

    function testFuzz_RevertWhen_OneLaneOverflows(
        uint64[34] memory a,
        uint64[34] memory b,
        uint256 lane,
        uint64 share
    ) public {
        lane = bound(lane, 0, 33);
        for (uint256 i; i < 34; ++i) {
            (a[i], b[i]) = (a[i] >> 2, b[i] >> 2);
        }
        // 2**63 in all, one more than a lane holds, split anywhere.
        a[lane] = uint64(bound(share, 1, MOST));
        b[lane] = uint64(MOST + 1 - a[lane]);
        (uint256 word,) = _place(lane);
        (uint256[9] memory left, uint256[9] memory right) = (_pack(a), _pack(b));
        vm.expectRevert(
            abi.encodeWithSelector(Trees.SumsOverflow.selector, word, left[word], right[word])
        );
        trees.add(left, right);
        b[lane] -= 1;
        trees.add(left, _pack(b));
    }

    function testFuzz_SubUndoesAdd(uint64[34] memory a, uint64[34] memory b) public view {
        for (uint256 i; i < 34; ++i) {
            (a[i], b[i]) = (a[i] >> 2, b[i] >> 2);
        }
        uint256[9] memory total = trees.add(_pack(a), _pack(b));
        _assertSums(trees.sub(total, _pack(b)), _pack(a));
        _assertSums(trees.sub(total, _pack(a)), _pack(b));
    }

    function testFuzz_RevertWhen_ALaneWouldBeNegative(
        uint64[34] memory a,
        uint256 lane,
        uint64 less
    ) public {
        lane = bound(lane, 0, 33);
        for (uint256 i; i < 34; ++i) {
            a[i] >>= 1;
        }
        less = uint64(bound(less, 0, MOST - 1));
        a[lane] = less;
        uint256[9] memory left = _pack(a);
        a[lane] = less + 1;
        vm.expectPartialRevert(Trees.SumsUnderflow.selector);
        trees.sub(left, _pack(a));
    }

    function testFuzz_RevertWhen_AnUnusedLaneIsSet(uint8 bit) public {
        uint256[9] memory dirty;
        dirty[0] = 1 << bound(bit, 128, 255);
        uint256[9] memory zero;
        vm.expectPartialRevert(Trees.SumsOverflow.selector);
        trees.add(dirty, zero);
        vm.expectPartialRevert(Trees.SumsOverflow.selector);
        trees.climb(keccak256("leaf"), dirty, 0, 1, new Trees.SumStep[](0));
    }

    // ------------------------------------------------------------------ sum proofs

    /// forge-config: default.fuzz.runs = 32
    function testFuzz_EveryRoundLeadsToTopTotalAndPlace(uint256 count, uint256 seed) public view {
        count = bound(count, 1, 12);
        Level memory level = _sumLeaves(count, seed);
        (bytes32 top, uint256[9] memory total) = _sumTop(level);
        uint256 before;
        for (uint256 i; i < count; ++i) {
            (bytes32 gotTop, uint256[9] memory gotTotal, uint256 gotBefore) =
                trees.climb(level.hashes[i], level.sums[i], i, count, _sumSteps(level, i));
            assertEq(gotTop, top);
            _assertSums(gotTotal, total);
            assertEq(gotBefore, before);
            before += level.sums[i][0] & type(uint64).max;
        }
        assertEq(before, total[0] & type(uint64).max);
    }

    /// forge-config: default.fuzz.runs = 64
    function testFuzz_AChangedSumLeadsElsewhere(
        uint256 count,
        uint256 index,
        uint256 step,
        uint256 lane
    ) public view {
        count = bound(count, 2, 12);
        index = bound(index, 0, count - 1);
        Level memory level = _sumLeaves(count, step);
        (bytes32 top,) = _sumTop(level);
        Trees.SumStep[] memory steps = _sumSteps(level, index);
        lane = bound(lane, 0, 33);
        (uint256 word, uint256 shift) = _place(lane);
        steps[bound(step, 0, steps.length - 1)].sums[word] ^= 1 << shift;
        (bytes32 computed,,) =
            trees.climb(level.hashes[index], level.sums[index], index, count, steps);
        assertNotEq(computed, top);
    }

    /// forge-config: default.fuzz.runs = 64
    function testFuzz_EachTokenLiesInExactlyOneLeaf(uint256 count, uint256 seed, uint256 target)
        public
    {
        count = bound(count, 1, 12);
        Level memory level = _sumLeaves(count, seed);
        (, uint256[9] memory total) = _sumTop(level);
        target = bound(target, 0, (total[0] & type(uint64).max) - 1);
        uint256 before;
        uint256 holders;
        for (uint256 i; i < count; ++i) {
            uint256 output = level.sums[i][0] & type(uint64).max;
            if (target >= before && target < before + output) {
                assertEq(trees.requireCovers(target, before, output), target - before);
                ++holders;
            } else {
                vm.expectRevert(
                    abi.encodeWithSelector(Trees.OutsideLeaf.selector, target, before, output)
                );
                trees.requireCovers(target, before, output);
            }
            before += output;
        }
        assertEq(holders, 1);
    }

    // ------------------------------------------------------------------ the plain way

    function _leaves(uint256 count, uint256 seed) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            leaves[i] = keccak256(abi.encode(seed, i));
        }
    }

    function _up(bytes32[] memory level) internal pure returns (bytes32[] memory parents) {
        parents = new bytes32[]((level.length + 1) / 2);
        for (uint256 i; i < parents.length; ++i) {
            parents[i] = 2 * i + 1 < level.length
                ? keccak256(abi.encodePacked(bytes1(0x01), level[2 * i], level[2 * i + 1]))
                : level[2 * i];
        }
    }

    function _root(bytes32[] memory level) internal pure returns (bytes32) {
        while (level.length > 1) level = _up(level);
        return level[0];
    }

    function _siblings(bytes32[] memory level, uint256 index)
        internal
        pure
        returns (bytes32[] memory siblings)
    {
        bytes32[] memory found = new bytes32[](32);
        uint256 used;
        while (level.length > 1) {
            uint256 other = index % 2 == 0 ? index + 1 : index - 1;
            if (other < level.length) found[used++] = level[other];
            level = _up(level);
            index /= 2;
        }
        siblings = new bytes32[](used);
        for (uint256 i; i < used; ++i) {
            siblings[i] = found[i];
        }
    }

    function _sumLeaves(uint256 count, uint256 seed) internal pure returns (Level memory level) {
        level.hashes = _leaves(count, seed);
        level.sums = new uint256[9][](count);
        for (uint256 i; i < count; ++i) {
            for (uint256 lane; lane < 34; ++lane) {
                // Room for twelve leaves, and at least one output token each.
                uint256 value = uint256(keccak256(abi.encode(seed, i, lane))) % (MOST / 16) + 1;
                _put(level.sums[i], lane, value);
            }
        }
    }

    function _sumUp(Level memory level) internal pure returns (Level memory parents) {
        uint256 count = (level.hashes.length + 1) / 2;
        parents.hashes = new bytes32[](count);
        parents.sums = new uint256[9][](count);
        for (uint256 i; i < count; ++i) {
            (uint256 left, uint256 right) = (2 * i, 2 * i + 1);
            parents.hashes[i] = level.hashes[left];
            parents.sums[i] = level.sums[left];
            if (right >= level.hashes.length) continue;
            parents.hashes[i] = keccak256(
                abi.encodePacked(
                    bytes1(0x02),
                    level.hashes[left],
                    level.sums[left],
                    level.hashes[right],
                    level.sums[right]
                )
            );
            uint256[9] memory total;
            for (uint256 lane; lane < 34; ++lane) {
                _put(total, lane, _get(level.sums[left], lane) + _get(level.sums[right], lane));
            }
            parents.sums[i] = total;
        }
    }

    function _sumTop(Level memory level) internal pure returns (bytes32, uint256[9] memory) {
        while (level.hashes.length > 1) level = _sumUp(level);
        return (level.hashes[0], level.sums[0]);
    }

    function _sumSteps(Level memory level, uint256 index)
        internal
        pure
        returns (Trees.SumStep[] memory steps)
    {
        Trees.SumStep[] memory found = new Trees.SumStep[](32);
        uint256 used;
        while (level.hashes.length > 1) {
            uint256 other = index % 2 == 0 ? index + 1 : index - 1;
            if (other < level.hashes.length) {
                found[used++] = Trees.SumStep(level.hashes[other], level.sums[other]);
            }
            level = _sumUp(level);
            index /= 2;
        }
        steps = new Trees.SumStep[](used);
        for (uint256 i; i < used; ++i) {
            steps[i] = found[i];
        }
    }

    /// @dev Lanes 0 and 1 are output and accepted; 2 … 33 the buckets.
    function _place(uint256 lane) internal pure returns (uint256 word, uint256 shift) {
        return lane < 2 ? (0, 64 * lane) : (1 + (lane - 2) / 4, 64 * ((lane - 2) % 4));
    }

    function _put(uint256[9] memory words, uint256 lane, uint256 value) internal pure {
        (uint256 word, uint256 shift) = _place(lane);
        words[word] |= value << shift;
    }

    function _get(uint256[9] memory words, uint256 lane) internal pure returns (uint256) {
        (uint256 word, uint256 shift) = _place(lane);
        return (words[word] >> shift) & type(uint64).max;
    }

    function _pack(uint64[34] memory lanes) internal pure returns (uint256[9] memory words) {
        for (uint256 i; i < 34; ++i) {
            _put(words, i, lanes[i]);
        }
    }

    function _assertSums(uint256[9] memory got, uint256[9] memory expected) internal pure {
        for (uint256 i; i < 9; ++i) {
            assertEq(got[i], expected[i]);
        }
    }

    /// @dev In no lane, at no level: a sum beside the path that reaches 2**63, or two halves of it.
    function testFuzz_RevertWhen_APathsSumsCarry(uint256 lane, uint256 level, bool halves) public {
        lane = bound(lane, 0, 33);
        uint256 word = lane < 2 ? 0 : 1 + (lane - 2) / 4;
        uint256 shift = 64 * (lane < 2 ? lane : (lane - 2) % 4);
        uint256[9] memory sums;
        Trees.SumStep[] memory steps = new Trees.SumStep[](3);
        for (uint256 i; i < 3; ++i) {
            steps[i].sibling = keccak256(abi.encode("sibling", i));
        }
        if (halves) sums[word] = 1 << 62 + shift;
        steps[level % 3].sums[word] = 1 << (halves ? 62 : 63) + shift;
        vm.expectRevert(
            abi.encodeWithSelector(
                Trees.SumsOverflow.selector, word, sums[word], steps[level % 3].sums[word]
            )
        );
        trees.climb(keccak256("leaf"), sums, 0, 8, steps);
    }

    function test_RevertWhen_ThereIsNoBatch() public {
        Trees.Settled memory nothing;
        vm.expectRevert(Trees.ZeroRoot.selector);
        trees.requireSettled(0, nothing);
    }
}
