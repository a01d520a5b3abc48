// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IntDot} from "./IntDot.sol";
import {Trees} from "./Trees.sol";

/// @title ExactModel
/// @notice The parts of the exact tier that a contract computes: what a manifest's weights root
/// commits to, the fingerprint of a hidden state, and the arithmetic from a row of weights to a score.
/// Bit for bit as `docs/exact.md` specifies and `settlement/exact.py` has it.
library ExactModel {
    /// @notice The tensors that proofs name; a layer's are 16·(layer + 1) + its number there.
    uint32 internal constant HEAD = 1;

    /// @notice No logit is larger in size, Q24.
    int256 internal constant LOGIT_LIMIT = (1 << 36) - 1;

    /// @notice No element of the residual stream is larger in size, Q16.
    int256 internal constant RESIDUAL_LIMIT = (1 << 31) - 1;

    /// @notice That is no header.
    error BadHeader(uint256 length);

    /// @notice The preimage of a weights root.
    struct Weights {
        bytes header; // sizes, constants and the hash of the tables
        uint32 leafCount;
        bytes32 treeRoot;
    }

    /// @notice What a header says of the sizes, and of the head.
    struct Sizes {
        uint256 vocabulary;
        uint256 headRows;
        uint256 hidden; // d
        uint256 mlp; // f
        uint256 layers;
        uint256 heads; // H
        uint256 keyHeads; // Hk
        uint256 headSize; // c
        bytes32 headIds; // zero: a head over the whole vocabulary, row by row
    }

    /// @notice A row of a tensor, and where it stands in the tree over all rows.
    struct Row {
        uint32 leafIndex;
        uint32 multiplier;
        uint8 shift;
        int64 bias;
        bytes weights; // int8 each
        bytes32[] path;
    }

    /// @dev Tag (23 bytes), ten uint32, E, the phases, the hash of the tables, headIds.
    uint256 private constant HEADER_SIZES = 23;
    uint256 private constant HEADER_FIXED = 23 + 40 + 8 + 32 + 32;

    /// @notice keccak256("verdraft/exact-weights/1" ‖ keccak256(header) ‖ uint32 leafCount ‖ treeRoot).
    function weightsRoot(Weights calldata weights) internal pure returns (bytes32) {
        return keccak256(
            abi.encodePacked(
                "verdraft/exact-weights/1",
                keccak256(weights.header),
                weights.leafCount,
                weights.treeRoot
            )
        );
    }

    /// @notice Reads a header, which the caller has held against a weights root.
    function sizes(bytes calldata header) internal pure returns (Sizes memory s) {
        uint256 length = header.length;
        if (length < HEADER_FIXED) revert BadHeader(length);
        // Version, vocabulary, head rows, d, f, layers, H, Hk: eight uint32 in a word; then c.
        uint256 word = uint256(bytes32(header[HEADER_SIZES:HEADER_SIZES + 32]));
        uint256 mask = type(uint32).max;
        s.vocabulary = (word >> 192) & mask;
        s.headRows = (word >> 160) & mask;
        s.hidden = (word >> 128) & mask;
        s.mlp = (word >> 96) & mask;
        s.layers = (word >> 64) & mask;
        s.heads = (word >> 32) & mask;
        s.keyHeads = word & mask;
        s.headSize = uint32(bytes4(header[HEADER_SIZES + 32:HEADER_SIZES + 36]));
        s.headIds = bytes32(header[length - 32:]);
        if (word >> 224 != 1) revert BadHeader(length);
    }

    /// @notice The leaf that row `row` of tensor `tensor` is.
    function leaf(uint32 tensor, uint32 row, Row calldata r) internal pure returns (bytes32) {
        return keccak256(
            abi.encodePacked(
                bytes1(0x00),
                "verdraft/exact-row/1",
                tensor,
                row,
                r.multiplier,
                r.shift,
                r.bias,
                r.weights
            )
        );
    }

    /// @notice Reverts unless `r` is row `row` of tensor `tensor`. Its leaf says which it is, so its
    /// place in the tree need not.
    function requireRow(Weights calldata weights, uint32 tensor, uint32 row, Row calldata r)
        internal
        pure
    {
        Trees.requireLeaf(
            weights.treeRoot, leaf(tensor, row, r), r.leafIndex, weights.leafCount, r.path
        );
    }

    /// @notice keccak256("verdraft/hidden/1" ‖ int16 each).
    function fingerprint(bytes calldata hidden) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/hidden/1", hidden));
    }

    /// @notice rshift(acc · multiplier, shift − exponent) + bias, where rshift rounds to the nearest,
    /// halves up, and a negative shift multiplies.
    /// @dev Unchecked: |acc| ≤ 2**36, so the product is below 2**68 and, shifted left by at most 63,
    /// below 2**131. An exponent of more is no activation's.
    function scaled(int256 acc, Row calldata r, uint256 exponent) internal pure returns (int256) {
        unchecked {
            int256 product = acc * int256(uint256(r.multiplier));
            if (r.shift <= exponent) return (product << (exponent - r.shift)) + r.bias;
            uint256 shift = r.shift - exponent;
            return ((product + int256(1 << (shift - 1))) >> shift) + r.bias;
        }
    }

    /// @notice The logit that a row of the head gives, Q24.
    function logit(IntDot.Lanes memory hidden, Row calldata r) internal pure returns (int256 z) {
        z = clamp(scaled(IntDot.dot(hidden, r.weights), r, 0), LOGIT_LIMIT);
    }

    /// @notice z · 2**16 / temperature (Q16, positive), to the nearest, halves to even.
    /// @dev Unchecked: |z| < 2**36.
    function score(int256 z, uint256 temperature) internal pure returns (int256 quotient) {
        unchecked {
            int256 divisor = int256(temperature);
            int256 dividend = z * 65536;
            quotient = dividend / divisor;
            int256 rest = dividend - quotient * divisor;
            if (rest < 0) (quotient, rest) = (quotient - 1, rest + divisor);
            int256 twice = 2 * rest;
            if (twice > divisor || (twice == divisor && quotient & 1 == 1)) ++quotient;
        }
    }

    /// @notice `x` within ±limit.
    function clamp(int256 x, int256 limit) internal pure returns (int256) {
        if (x > limit) return limit;
        return x < -limit ? -limit : x;
    }
}
