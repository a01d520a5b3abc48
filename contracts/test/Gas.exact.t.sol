// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ExactModel} from "../libraries/ExactModel.sol";
import {Records} from "../libraries/Records.sol";
import {Traces} from "../libraries/Traces.sol";
import {Trees} from "../libraries/Trees.sol";
import {ExactWork} from "./ExactWork.sol";

/// @notice What the proofs of an exact fault cost as transactions of their own, at the default target's
/// sizes: d 576, f 1536, 30 layers, a vocabulary of 49,152, 253,885 rows in the weights' tree, a trace
/// over 1,024 positions. As `Gas.faults.t.sol` otherwise.
/// forge-config: default.isolate = true
contract GasExactTest is ExactWork {
    uint32 private constant D = 576;
    uint32 private constant F = 1536;
    uint32 private constant LAYERS = 30;
    uint32 private constant TOKENS = 49_152;
    uint32 private constant ROWS = 253_885;
    uint32 private constant POSITIONS = 1_024;

    function _logLast(string memory name) private {
        emit log_named_uint(string.concat("gas ", name), vm.lastCallGas().gasTotalUsed);
    }

    function _targetHeader() private pure returns (bytes memory) {
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
        private
        pure
        returns (ExactModel.Row memory row)
    {
        (row.leafIndex, row.multiplier, row.shift) = (index, (1 << 22) - 12_345, 21);
        row.weights = _stream(seed, width);
    }

    /// @dev A path from a leaf to a root that nobody else needs, for a tree of so many leaves.
    function _anyPath(string memory name, uint256 index, uint256 count)
        private
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

    // ------------------------------------------------------------------ a token

    /// @dev Two rows that are neighbours in the tree: the one's path begins with the other.
    function _case(uint8 mode) private view returns (ExactEvidence.TokenCase memory e) {
        uint32 own = 24_002;
        uint32 better = own + 1;
        e.weights.header = _targetHeader();
        e.weights.leafCount = ROWS;
        e.own = _row("own", TOKENS + own, D);
        e.other = _row("other", TOKENS + better, D);
        bytes32 leaf = model.leaf(ExactModel.HEAD, own, e.own);
        e.own.path = _anyPath("head", TOKENS + own, ROWS);
        e.other.path = _anyPath("head", TOKENS + own, ROWS);
        e.own.path[0] = model.leaf(ExactModel.HEAD, better, e.other);
        e.other.path[0] = leaf;
        e.weights.treeRoot = this.rootOver(leaf, TOKENS + own, ROWS, e.own.path);
        e.manifest = _manifest(model.weightsRoot(e.weights), TOKENS);
        e.hidden = _stream("hidden", 2 * D);
        (e.better, e.salt) = (better, LEAF_SALT);

        Session memory s = _session(mode);
        s.order.targetModel = keccak256(abi.encode(e.manifest));
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        // Nine leaves in the round, and V lies about the fourth.
        _play(s, 8, 8, 3);
        Records.VerdictLeaf memory lie = s.rounds[0].leaves[3];
        lie.token = own;
        lie.fingerprint = Records.saltedFingerprint(LEAF_SALT, model.fingerprint(e.hidden));
        int256 gap = model.logit(e.hidden, e.own) - model.logit(e.hidden, e.other);
        // Whichever of the two scores higher is the one that should have come.
        if (gap > 0) {
            lie.token = better;
            (e.own, e.other, e.better) = (e.other, e.own, own);
        }
        _seal(s);
        e.order = s.order;
        e.start = s.start;
        e.verdict = s.rounds[0].verdict;
        e.verdictSignature = s.rounds[0].verdictSignature;
        e.index = 3;
        e.leaf = lie;
        e.path = _path(_verdictLeaves(s.rounds[0]), 3);
    }

    function test_Token() public {
        _prove(_case(0));
        _logLast("exact_token_greedy");
    }

    function test_TokenCoupled() public {
        _prove(_case(1));
        _logLast("exact_token");
    }

    // ------------------------------------------------------------------ an element

    /// @dev One matrix of layer 7. The tree over the position's vectors is whole: the three that are
    /// opened stand in it, and the others are anything.
    function _elementOf(uint8 matrix, uint256 inputs, uint32 outputs, uint256 from, uint256 to)
        private
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
        e.output = _chunk(vectors, first + to, "output", width, e.element, outputs);
        if (added) {
            uint256 before = matrix == 3 ? Traces.RESIDUAL : Traces.RESIDUAL_MID;
            e.residual = _chunk(vectors, first + before, "before", width, e.element, outputs);
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
        e.row = _row("row", 120_000, inputs);
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

    /// @dev A vector of random elements, of which the element's chunk is opened.
    function _chunk(
        bytes32[] memory vectors,
        uint256 index,
        string memory name,
        uint256 width,
        uint256 element,
        uint256 elements
    ) private view returns (ExactEvidence.Vector memory v) {
        bytes32[] memory leaves = new bytes32[](Traces.chunks(elements));
        uint256 at = element / Traces.CHUNK;
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = keccak256(abi.encode(name, i));
        }
        v.data = _stream(keccak256(bytes(name)), Traces.CHUNK * width);
        leaves[at] = model.chunkLeaf(v.data);
        v.chunkPath = _path(leaves, at);
        vectors[index] = model.vectorLeaf(0, _root(leaves));
    }

    function test_ElementOfAHiddenSize() public {
        _prove(_elementOf(0, D, D, Traces.NORM, Traces.QUERY));
        _logLast("exact_element_query");
    }

    function test_ElementOfAGate() public {
        _prove(_elementOf(4, D, F, Traces.NORM_MID, Traces.GATE));
        _logLast("exact_element_gate");
    }

    /// @dev No figure: only here an element's evidence is built.
    function test_ATraceThatVHasNotSignedAccusesNobody() public {
        ExactEvidence.ElementCase memory e = _elementOf(0, D, D, Traces.NORM, Traces.QUERY);
        bytes32 separator = _separator();
        exactRule.element(e, separator);
        e.traceSignature = _sign(drafter.key, ExactEvidence.hash(e.trace));
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        exactRule.element(e, separator);
    }

    function test_ElementOfTheLongest() public {
        _prove(_elementOf(6, F, D, Traces.ACTIVATION, Traces.VECTORS));
        _logLast("exact_element_down");
    }
}
