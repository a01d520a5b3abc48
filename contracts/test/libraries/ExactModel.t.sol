// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactEvidence} from "../../libraries/ExactEvidence.sol";
import {ExactModel} from "../../libraries/ExactModel.sol";
import {ExactModelHarness} from "../harness/ExactModelHarness.sol";
import {VectorReader} from "./VectorReader.sol";

/// @notice The arithmetic and the commitments of the exact tier against the golden vectors, and
/// rounding against what it promises.
contract ExactModelTest is VectorReader {
    ExactModelHarness internal model;

    function setUp() public {
        model = new ExactModelHarness();
    }

    function _int(string memory text, string memory path) private pure returns (int256) {
        return vm.parseJsonInt(text, path);
    }

    function _bytes(string memory text, string memory path) private pure returns (bytes memory) {
        return vm.parseJsonBytes(text, path);
    }

    function _row(string memory text, string memory path)
        private
        pure
        returns (ExactModel.Row memory row)
    {
        row.multiplier = uint32(_uint(text, string.concat(path, ".multiplier")));
        row.shift = uint8(_uint(text, string.concat(path, ".shift")));
        row.bias = int64(_int(text, string.concat(path, ".bias")));
    }

    // ------------------------------------------------------------------ golden vectors

    function test_Vectors_Dots() public view {
        string memory text = _load("exact");
        uint256 count = _count(text, ".dots");
        assertGt(count, 15);
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".dots", i);
            bytes memory a = _bytes(text, string.concat(item, ".activations"));
            bytes memory w = _bytes(text, string.concat(item, ".weights"));
            int256 dot = _int(text, string.concat(item, ".dot"));
            assertEq(model.packed(a, w), dot, item);
            assertEq(model.plain(a, w), dot, item);
        }
    }

    function test_Vectors_Scaled() public view {
        string memory text = _load("exact");
        uint256 count = _count(text, ".scaled");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".scaled", i);
            assertEq(
                model.scaled(
                    _int(text, string.concat(item, ".acc")),
                    _row(text, item),
                    _uint(text, string.concat(item, ".exponent"))
                ),
                _int(text, string.concat(item, ".value")),
                item
            );
        }
    }

    function test_Vectors_Scores() public view {
        string memory text = _load("exact");
        uint256 count = _count(text, ".scores");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".scores", i);
            assertEq(
                model.score(
                    _int(text, string.concat(item, ".z")),
                    _uint(text, string.concat(item, ".temperature"))
                ),
                _int(text, string.concat(item, ".score")),
                item
            );
        }
    }

    function test_Vectors_Head() public view {
        string memory text = _load("exact");
        ExactModel.Weights memory weights;
        weights.header = _bytes(text, ".head.header");
        weights.leafCount = uint32(_uint(text, ".head.leafCount"));
        weights.treeRoot = _word(text, ".head.treeRoot");
        assertEq(model.weightsRoot(weights), _word(text, ".head.weightsRoot"));
        assertEq(model.sizes(weights.header).vocabulary, 9);
        bytes memory hidden = _bytes(text, ".head.hidden");
        assertEq(model.fingerprint(hidden), _word(text, ".head.fingerprint"));
        uint256 count = _count(text, ".head.rows");
        assertEq(count, 9);
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".head.rows", i);
            ExactModel.Row memory row = _row(text, item);
            row.leafIndex = uint32(i);
            row.weights = _bytes(text, string.concat(item, ".weights"));
            row.path = vm.parseJsonBytes32Array(text, string.concat(item, ".path"));
            uint32 tensor = uint32(_uint(text, string.concat(item, ".tensor")));
            assertEq(model.leaf(tensor, uint32(i), row), _word(text, string.concat(item, ".leaf")));
            assertEq(model.logit(hidden, row), _int(text, string.concat(item, ".logit")));
            model.requireRow(weights, tensor, uint32(i), row);
        }
    }

    function test_Vectors_Traces() public view {
        string memory text = _load("exact");
        uint256 count = _count(text, ".vectors");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".vectors", i);
            bytes32 root = _word(text, string.concat(item, ".chunksRoot"));
            uint256 width = _uint(text, string.concat(item, ".width"));
            bytes memory data = _bytes(text, string.concat(item, ".data"));
            assertEq(model.chunksRoot(data, width), root, item);
            uint8 exponent = uint8(_uint(text, string.concat(item, ".exponent")));
            assertEq(
                model.vectorLeaf(exponent, root), _word(text, string.concat(item, ".leaf")), item
            );
            if (data.length <= 64 * width) assertEq(model.chunkLeaf(data), root, item);
        }
        assertEq(
            model.positionLeaf(_word(text, ".trace.vectorsRoot")),
            _word(text, ".trace.positionLeaf")
        );
        assertEq(ExactEvidence.TRACE_TYPEHASH, keccak256(bytes(_text(text, ".trace.typeString"))));
        ExactEvidence.Trace memory trace =
            abi.decode(_bytes(text, ".trace.encoded"), (ExactEvidence.Trace));
        assertEq(ExactEvidence.hash(trace), _word(text, ".trace.structHash"));
    }

    // ------------------------------------------------------------------ what rounding promises

    /// @dev Nearest, halves up: 2·|value − exact| ≤ 1, and value is the higher of two as near.
    function testFuzz_ScaledIsTheNearest(int256 acc, uint32 multiplier, uint8 shift) public view {
        acc = bound(acc, -(1 << 36), 1 << 36);
        shift = uint8(bound(shift, 1, 62));
        ExactModel.Row memory row;
        (row.multiplier, row.shift) = (multiplier, shift);
        int256 value = model.scaled(acc, row, 0);
        int256 twice = 2 * (acc * int256(uint256(multiplier)) - (value << shift));
        int256 one = int256(1) << shift;
        assertLt(twice, one);
        assertGe(twice, -one);
    }

    /// @dev Nearest, halves to even.
    function testFuzz_ScoreIsTheNearest(int256 z, uint32 temperature) public view {
        z = bound(z, -ExactModel.LOGIT_LIMIT, ExactModel.LOGIT_LIMIT);
        int256 t = int256(bound(temperature, 1, type(uint32).max));
        int256 score = model.score(z, uint256(t));
        int256 twice = 2 * (z * 65_536 - score * t);
        assertLe(twice, t);
        assertGe(twice, -t);
        if (twice == t || twice == -t) assertEq(score & 1, 0);
    }

    function test_LogitsAreBounded() public view {
        ExactModel.Row memory row;
        (row.multiplier, row.shift) = (type(uint32).max, 1);
        row.weights = hex"7f";
        assertEq(model.logit(hex"7fff", row), ExactModel.LOGIT_LIMIT);
        assertEq(model.logit(hex"8000", row), -ExactModel.LOGIT_LIMIT);
        row.multiplier = 0;
        row.bias = -77;
        assertEq(model.logit(hex"7fff", row), -77);
    }

    function test_RevertWhen_AHeaderIsNone() public {
        vm.expectRevert(abi.encodeWithSelector(ExactModel.BadHeader.selector, 134));
        model.sizes(new bytes(134));
        bytes memory header = _bytes(_load("exact"), ".head.header");
        header[26] = 0x02;
        vm.expectRevert(abi.encodeWithSelector(ExactModel.BadHeader.selector, header.length));
        model.sizes(header);
    }
}
