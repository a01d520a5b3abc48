// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Buckets} from "../../libraries/Buckets.sol";
import {Coins} from "../../libraries/Coins.sol";
import {Masses} from "../../libraries/Masses.sol";
import {Batch} from "./Batch.sol";

/// @notice `Coins`, `Masses` and `Buckets` as external functions, for forge and for the comparison
/// with Python.
contract CoinsHarness is Batch {
    function nonceCommitment(bytes32 nonce) external pure returns (bytes32) {
        return Coins.nonceCommitment(nonce);
    }

    function seed(bytes32 requestId, bytes32 nonceClient, bytes32 nonceVerifier)
        external
        pure
        returns (bytes32)
    {
        return Coins.seed(requestId, nonceClient, nonceVerifier);
    }

    function clientSeed(int64 seed_, bytes32 targetModel, bytes calldata packedIds)
        external
        pure
        returns (bytes32)
    {
        return Coins.clientSeed(seed_, targetModel, packedIds);
    }

    function chainStep(bytes32 value) external pure returns (bytes32) {
        return Coins.chainStep(value);
    }

    function anchorOf(bytes32 value, uint256 round) external pure returns (bytes32) {
        return Coins.anchorOf(value, round);
    }

    function requireOnChain(bytes32 anchor, bytes32 value, uint256 round) external pure {
        Coins.requireOnChain(anchor, value, round);
    }

    function coin(bytes32 chainValue, bytes32 seed_, uint64 position, uint8 purpose)
        external
        pure
        returns (uint64)
    {
        return Coins.coin(chainValue, seed_, position, purpose);
    }

    function draw(bytes32 chainValue, bytes32 seed_, bytes32 contextHash, uint64 position)
        external
        pure
        returns (uint64)
    {
        return Coins.draw(chainValue, seed_, contextHash, position);
    }

    function interval(bytes calldata packed, uint32 token)
        external
        pure
        returns (bool wellFormed, uint256 q, uint256 below)
    {
        return Masses.interval(packed, token);
    }

    function holds(uint64 below, uint64 q, uint64 w) external pure returns (bool) {
        return Masses.holds(below, q, w);
    }

    function accepts(uint64 u, uint64 q, uint64 p) external pure returns (bool) {
        return Masses.accepts(u, q, p);
    }

    function bucket(uint32 position, uint16 topProb) external pure returns (uint256) {
        return Buckets.indexOf(position, topProb);
    }
}
