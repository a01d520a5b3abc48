// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactModel} from "../../libraries/ExactModel.sol";
import {IntDot} from "../../libraries/IntDot.sol";
import {Traces} from "../../libraries/Traces.sol";
import {IntDotHarness} from "./IntDotHarness.sol";

/// @notice `ExactModel`, `IntDot` and the hashes of `Traces` as external functions, for forge and for
/// the comparison with Python.
contract ExactModelHarness is IntDotHarness {
    function weightsRoot(ExactModel.Weights calldata weights) external pure returns (bytes32) {
        return ExactModel.weightsRoot(weights);
    }

    function sizes(bytes calldata header) external pure returns (ExactModel.Sizes memory) {
        return ExactModel.sizes(header);
    }

    function leaf(uint32 tensor, uint32 row, ExactModel.Row calldata r)
        external
        pure
        returns (bytes32)
    {
        return ExactModel.leaf(tensor, row, r);
    }

    function requireRow(
        ExactModel.Weights calldata weights,
        uint32 tensor,
        uint32 row,
        ExactModel.Row calldata r
    ) external pure {
        ExactModel.requireRow(weights, tensor, row, r);
    }

    function fingerprint(bytes calldata hidden) external pure returns (bytes32) {
        return ExactModel.fingerprint(hidden);
    }

    function scaled(int256 acc, ExactModel.Row calldata r, uint256 exponent)
        external
        pure
        returns (int256)
    {
        return ExactModel.scaled(acc, r, exponent);
    }

    function logit(bytes calldata hidden, ExactModel.Row calldata r)
        external
        pure
        returns (int256)
    {
        return ExactModel.logit(IntDot.lanes(hidden), r);
    }

    function score(int256 z, uint256 temperature) external pure returns (int256) {
        return ExactModel.score(z, temperature);
    }

    function chunksRoot(bytes calldata whole, uint256 width) external pure returns (bytes32) {
        return Traces.rootOf(whole, width);
    }

    function vectorLeaf(uint8 exponent, bytes32 root) external pure returns (bytes32) {
        return Traces.vectorLeaf(exponent, root);
    }

    function positionLeaf(bytes32 root) external pure returns (bytes32) {
        return Traces.positionLeaf(root);
    }

    function chunkLeaf(bytes calldata elements) external pure returns (bytes32) {
        return Traces.chunkLeaf(elements);
    }
}
