// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ExactModel} from "../libraries/ExactModel.sol";
import {Records} from "../libraries/Records.sol";
import {Traces} from "../libraries/Traces.sol";
import {Trees} from "../libraries/Trees.sol";
import {ExactWork} from "./ExactWork.sol";

/// @notice Elements of a signed trace at the default target's sizes: d 576, f 1536, 30 layers, a
/// vocabulary of 49,152, 253,885 rows in the weights' tree, a trace over 1,024 positions.
abstract contract ExactElementWork is ExactWork {
    uint32 internal constant D = 576;
    uint32 internal constant F = 1536;
    uint32 internal constant LAYERS = 30;
    uint32 internal constant TOKENS = 49_152;
    uint32 internal constant ROWS = 253_885;
    uint32 internal constant POSITIONS = 1_024;

    /// @dev Whether an output's element is what row and input give, and not chance; of a matrix whose
    /// output is int32 and added to nothing.
    bool internal _isRight;

    function _targetHeader() internal pure returns (bytes memory) {
        return abi.encodePacked(
            "verdraft/exact-header/1",
            abi.encodePacked(uint32(1), TOKENS, TOKENS, D, F),
            abi.encodePacked(LAYERS, uint32(9), uint32(3), uint32(64), uint32(8192)),
            uint64(1024),
            _stream("phases", 256),
            keccak256("tables"),
            bytes32(0)
        );
    }

    function _row(bytes32 seed, uint32 index, uint256 width)
        internal
        pure
        returns (ExactModel.Row memory row)
    {
        (row.leafIndex, row.multiplier, row.shift) = (index, (1 << 22) - 12_345, 21);
        row.weights = _stream(seed, width);
    }

    /// @dev A path from a leaf to a root that nobody else needs, for a tree of so many leaves.
    function _anyPath(string memory name, uint256 index, uint256 count)
        internal
        pure
        returns (bytes32[] memory path)
    {
        path = new bytes32[](Trees.proofLength(index, count));
        for (uint256 i; i < path.length; ++i) {
            path[i] = keccak256(abi.encode(name, i));
        }
    }

    function rootOver(bytes32 leaf, uint256 index, uint256 count, bytes32[] calldata path)
        external
        pure
        returns (bytes32)
    {
        return Trees.rootOf(leaf, index, count, path);
    }

    /// @dev One matrix of layer 7. The tree over the position's vectors is whole: the three that are
    /// opened stand in it, and the others are anything.
    function _elementOf(uint8 matrix, uint256 inputs, uint32 outputs, uint256 from, uint256 to)
        internal
        view
        returns (ExactEvidence.ElementCase memory e)
    {
        uint256 first = Traces.VECTORS * 7;
        (e.layer, e.matrix, e.position, e.element) = (7, matrix, 700, outputs / 2);
        e.input.data = _stream("input", 2 * inputs);
        bytes32[] memory vectors = new bytes32[](Traces.VECTORS * LAYERS + 2);
        for (uint256 i; i < vectors.length; ++i) {
            vectors[i] = keccak256(abi.encode("vector", i));
        }
        vectors[first + from] = model.vectorLeaf(0, model.chunksRoot(e.input.data, 2));
        bool added = matrix == 3 || matrix == 6;
        uint256 width = added || matrix == 4 || matrix == 5 ? 4 : 2;
        e.row = _row("row", 120_000, inputs);
        e.output = _chunk(vectors, first + to, "output", _outputOf(e, width), e.element, outputs);
        if (added) {
            uint256 before = matrix == 3 ? Traces.RESIDUAL : Traces.RESIDUAL_MID;
            bytes memory data = _stream(keccak256("before"), Traces.CHUNK * width);
            e.residual = _chunk(vectors, first + before, "before", data, e.element, outputs);
            e.residual.path = _path(vectors, first + before);
        }
        e.input.path = _path(vectors, first + from);
        e.output.path = _path(vectors, first + to);
        e.vectorsRoot = _root(vectors);
        e.positionPath = _anyPath("position", e.position, POSITIONS);
        e.trace.positions = POSITIONS;
        e.trace.root =
            this.rootOver(model.positionLeaf(e.vectorsRoot), e.position, POSITIONS, e.positionPath);

        e.weights.header = _targetHeader();
        e.weights.leafCount = ROWS;
        e.row.path = _anyPath("layer", 120_000, ROWS);
        e.weights.treeRoot =
            this.rootOver(model.leaf(16 * 8 + matrix, e.element, e.row), 120_000, ROWS, e.row.path);
        e.manifest = _manifest(model.weightsRoot(e.weights), TOKENS);
        Session memory s = _session(1);
        s.order.targetModel = keccak256(abi.encode(e.manifest));
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        s.start.sessionId = Records.hash(s.order);
        (e.order, e.start) = (s.order, s.start);
        e.trace.startHash = Records.hash(s.start);
        e.traceSignature = _sign(verifier.key, ExactEvidence.hash(e.trace));
    }

    /// @dev A chunk by chance, but for the element where it shall be right.
    function _outputOf(ExactEvidence.ElementCase memory e, uint256 width)
        private
        view
        returns (bytes memory data)
    {
        data = _stream(keccak256("output"), Traces.CHUNK * width);
        if (!_isRight) return data;
        int256 due = model.scaled(model.packed(e.input.data, e.row.weights), e.row, 0);
        for (uint256 i; i < 4; ++i) {
            data[4 * (e.element % Traces.CHUNK) + i] = bytes1(uint8(uint256(due) >> 8 * (3 - i)));
        }
    }

    /// @dev A vector of which the element's chunk is opened; the others are anything.
    function _chunk(
        bytes32[] memory vectors,
        uint256 index,
        string memory name,
        bytes memory data,
        uint256 element,
        uint256 elements
    ) private view returns (ExactEvidence.Vector memory v) {
        bytes32[] memory leaves = new bytes32[](Traces.chunks(elements));
        uint256 at = element / Traces.CHUNK;
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = keccak256(abi.encode(name, i));
        }
        v.data = data;
        leaves[at] = model.chunkLeaf(v.data);
        v.chunkPath = _path(leaves, at);
        vectors[index] = model.vectorLeaf(0, _root(leaves));
    }
}
