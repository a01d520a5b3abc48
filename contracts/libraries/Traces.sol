// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactModel} from "./ExactModel.sol";
import {Trees} from "./Trees.sol";

/// @title Traces
/// @notice What a verifier commits to when it posts a trace: every vector of the exact forward pass,
/// at every position. Bit for bit as `docs/exact.md`, "Disputes", and `settlement/exact_trace.py`.
///
/// @dev Four trees, one in the other, all as `Trees` has them. Chunks of 64 elements make a vector;
/// `VECTORS` vectors a layer, and two past the last layer, make a position; positions make the trace.
/// A vector's place follows from layer and operation, so nothing in it says what it is.
library Traces {
    // ------------------------------------------------------------------ vectors of a layer

    uint256 internal constant RESIDUAL = 0; // int32, d: x as it enters the layer
    uint256 internal constant NORM = 1; // int16, d; past the last layer: the final hidden state
    uint256 internal constant QUERY = 2; // int16, H·c
    uint256 internal constant KEY = 3; // int16, Hk·c
    uint256 internal constant VALUE = 4; // int16, Hk·c
    uint256 internal constant QUERY_ROTATED = 5; // int16, H·c
    uint256 internal constant KEY_ROTATED = 6; // int16, Hk·c
    uint256 internal constant MIXED = 7; // int16, H·c: what the heads bring together
    uint256 internal constant RESIDUAL_MID = 8; // int32, d: x after attention
    uint256 internal constant NORM_MID = 9; // int16, d
    uint256 internal constant GATE = 10; // int32, f
    uint256 internal constant UP = 11; // int32, f
    uint256 internal constant ACTIVATION = 12; // int16, f, and its exponent
    uint256 internal constant VECTORS = 13;
    /// @notice Past the last layer: RESIDUAL and NORM.
    uint256 internal constant LAST_VECTORS = 2;

    uint256 internal constant CHUNK = 64; // elements

    /// @notice σ·g·u is below 2**52; its first 15 bits are kept, and rounding may take one more.
    uint256 internal constant MAX_EXPONENT = 38;

    // ------------------------------------------------------------------ hashes

    /// @notice keccak256(0x00 ‖ "verdraft/trace-chunk/1" ‖ elements), each in its vector's width.
    function chunkLeaf(bytes calldata elements) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x00), "verdraft/trace-chunk/1", elements));
    }

    /// @notice keccak256(0x00 ‖ "verdraft/trace-vector/1" ‖ uint8 exponent ‖ root of the chunks).
    function vectorLeaf(uint8 exponent, bytes32 chunksRoot) internal pure returns (bytes32) {
        return
            keccak256(
                abi.encodePacked(bytes1(0x00), "verdraft/trace-vector/1", exponent, chunksRoot)
            );
    }

    /// @notice keccak256(0x00 ‖ "verdraft/trace-position/1" ‖ root of the position's vectors).
    function positionLeaf(bytes32 vectorsRoot) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x00), "verdraft/trace-position/1", vectorsRoot));
    }

    /// @notice How many chunks so many elements make.
    function chunks(uint256 elements) internal pure returns (uint256) {
        return (elements + CHUNK - 1) / CHUNK;
    }

    /// @notice The root over the chunks of a whole vector of `width`-byte elements, at least one.
    function rootOf(bytes calldata whole, uint256 width) internal pure returns (bytes32) {
        uint256 size = CHUNK * width;
        uint256 count = (whole.length + size - 1) / size;
        if (count == 0) revert Trees.EmptyTree();
        bytes32[] memory level = new bytes32[](count);
        assembly ("memory-safe") {
            // As `chunkLeaf`, with one prefix of 23 bytes for all of them.
            let free := mload(0x40)
            mstore(free, hex"0076657264726166742f74726163652d6368756e6b2f31")
            let out := add(level, 0x20)
            let from := whole.offset
            let end := add(from, whole.length)
            for {} lt(from, end) {
                from := add(from, size)
                out := add(out, 0x20)
            } {
                let length := size
                if gt(add(from, size), end) { length := sub(end, from) }
                calldatacopy(add(free, 23), from, length)
                mstore(out, keccak256(free, add(23, length)))
            }
        }
        for (; count > 1; count = (count + 1) / 2) {
            for (uint256 i; i < count; i += 2) {
                // An odd last node rises unhashed.
                level[i / 2] = i + 1 < count ? Trees.node(level[i], level[i + 1]) : level[i];
            }
        }
        return level[0];
    }

    // ------------------------------------------------------------------ shapes

    /// @notice Elements of vector number `vector`, counted from any layer's first, and bytes of each.
    function shapeOf(ExactModel.Sizes memory sizes, uint256 vector)
        internal
        pure
        returns (uint256 elements, uint256 width)
    {
        vector %= VECTORS;
        width = 2;
        if (vector == QUERY || vector == QUERY_ROTATED || vector == MIXED) {
            return (sizes.heads * sizes.headSize, width);
        }
        if (vector == KEY || vector == KEY_ROTATED || vector == VALUE) {
            return (sizes.keyHeads * sizes.headSize, width);
        }
        if (vector == RESIDUAL || vector == RESIDUAL_MID || vector == GATE || vector == UP) {
            width = 4;
        }
        elements = vector < GATE ? sizes.hidden : sizes.mlp;
    }

    /// @notice Vectors of one position.
    function vectorsOf(ExactModel.Sizes memory sizes) internal pure returns (uint256) {
        return VECTORS * sizes.layers + LAST_VECTORS;
    }

    /// @notice The signed big-endian number of `width` bytes (2 or 4) of index `index`.
    function elementAt(bytes calldata elements, uint256 index, uint256 width)
        internal
        pure
        returns (int256)
    {
        bytes calldata word = elements[index * width:(index + 1) * width];
        return width == 2 ? int256(int16(uint16(bytes2(word)))) : int32(uint32(bytes4(word)));
    }
}
