// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Trees} from "../../libraries/Trees.sol";
import {Batch} from "./Batch.sol";

/// @notice `Trees` as external functions, for forge and for the comparison with Python.
contract TreesHarness is Batch {
    function node(bytes32 left, bytes32 right) external pure returns (bytes32) {
        return Trees.node(left, right);
    }

    function proofLength(uint256 index, uint256 count) external pure returns (uint256) {
        return Trees.proofLength(index, count);
    }

    function rootOf(bytes32 leaf, uint256 index, uint256 count, bytes32[] calldata siblings)
        external
        pure
        returns (bytes32)
    {
        return Trees.rootOf(leaf, index, count, siblings);
    }

    function requireLeaf(
        bytes32 root,
        bytes32 leaf,
        uint256 index,
        uint256 count,
        bytes32[] calldata siblings
    ) external pure {
        Trees.requireLeaf(root, leaf, index, count, siblings);
    }

    function add(uint256[9] calldata left, uint256[9] calldata right)
        external
        pure
        returns (uint256[9] memory)
    {
        return Trees.add(left, right);
    }

    function sub(uint256[9] calldata left, uint256[9] calldata right)
        external
        pure
        returns (uint256[9] memory)
    {
        return Trees.sub(left, right);
    }

    function lanes(uint256[9] calldata words)
        external
        pure
        returns (
            uint256 output,
            uint256 accepted,
            uint256[16] memory proposedBy,
            uint256[16] memory acceptedBy
        )
    {
        output = Trees.outputOf(words);
        accepted = Trees.acceptedOf(words);
        for (uint256 bucket; bucket < 16; ++bucket) {
            proposedBy[bucket] = Trees.proposedIn(words, bucket);
            acceptedBy[bucket] = Trees.acceptedIn(words, bucket);
        }
    }

    function sumNode(
        bytes32 left,
        uint256[9] calldata leftSums,
        bytes32 right,
        uint256[9] calldata rightSums
    ) external pure returns (bytes32) {
        return Trees.sumNode(left, leftSums, right, rightSums);
    }

    function climb(
        bytes32 leaf,
        uint256[9] calldata sums,
        uint256 index,
        uint256 count,
        Trees.SumStep[] calldata steps
    ) external pure returns (bytes32 top, uint256[9] memory total, uint256 before) {
        return Trees.climb(leaf, sums, index, count, steps);
    }

    function requireCovers(uint256 target, uint256 before, uint256 output)
        external
        pure
        returns (uint256)
    {
        return Trees.requireCovers(target, before, output);
    }

    function settledRoot(bytes32 top, uint256[9] calldata sums, uint32 leafCount, bytes32 baseRoot)
        external
        pure
        returns (bytes32)
    {
        return Trees.settledRoot(top, sums, leafCount, baseRoot);
    }

    function requireSettled(bytes32 root, Trees.Settled calldata batch) external pure {
        Trees.requireSettled(root, batch);
    }

    function requireRound(
        Trees.Settled calldata batch,
        uint256[9] calldata baseSums,
        bytes32 leaf,
        uint256[9] calldata sums,
        uint256 index,
        Trees.SumStep[] calldata steps
    ) external pure returns (uint256) {
        return Trees.requireRound(batch, baseSums, leaf, sums, index, steps);
    }
}
