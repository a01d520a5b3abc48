// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../../libraries/Records.sol";
import {Batch} from "./Batch.sol";

/// @notice `Records` as external functions, for forge and for the comparison with Python.
contract RecordsHarness is Batch {
    function domainSeparator(address escrow) external view returns (bytes32) {
        return Records.domainSeparator(escrow);
    }

    function digest(bytes32 separator, bytes32 structHash) external pure returns (bytes32) {
        return Records.digest(separator, structHash);
    }

    function laneId(Records.Lane calldata lane) external pure returns (bytes32) {
        return Records.laneId(lane);
    }

    function laneOf(Records.Order calldata order) external pure returns (Records.Lane memory) {
        return Records.laneOf(order);
    }

    function modelId(Records.Manifest calldata manifest) external pure returns (bytes32) {
        return Records.modelId(manifest);
    }

    function hashOrder(Records.Order calldata order) external pure returns (bytes32) {
        return Records.hash(order);
    }

    function hashSessionStart(Records.SessionStart calldata start) external pure returns (bytes32) {
        return Records.hash(start);
    }

    function hashDraftCommit(Records.DraftCommit calldata commit) external pure returns (bytes32) {
        return Records.hash(commit);
    }

    function hashVerdict(Records.Verdict calldata verdict) external pure returns (bytes32) {
        return Records.hash(verdict);
    }

    function hashVoucher(Records.Voucher calldata voucher) external pure returns (bytes32) {
        return Records.hash(voucher);
    }

    function hashClaim(Records.Claim calldata claim) external pure returns (bytes32) {
        return Records.hash(claim);
    }

    function leafDraftLeaf(Records.DraftLeaf calldata fields) external pure returns (bytes32) {
        return Records.leaf(fields);
    }

    function leafVerdictLeaf(Records.VerdictLeaf calldata fields) external pure returns (bytes32) {
        return Records.leaf(fields);
    }

    function leafRoundRecord(Records.RoundRecord calldata fields) external pure returns (bytes32) {
        return Records.leaf(fields);
    }

    function sumsOfRoundRecord(Records.RoundRecord calldata record)
        external
        pure
        returns (uint256[9] memory)
    {
        return Records.sums(record);
    }

    function sumsOfVoucher(Records.Voucher calldata voucher)
        external
        pure
        returns (uint256[9] memory)
    {
        return Records.sums(voucher);
    }

    function nextContext(bytes32 context, uint32 token) external pure returns (bytes32) {
        return Records.nextContext(context, token);
    }

    function promptHash(bytes32 salt, bytes calldata packedIds) external pure returns (bytes32) {
        return Records.promptHash(salt, packedIds);
    }

    function keptHash(bytes calldata packedKept) external pure returns (bytes32) {
        return Records.keptHash(packedKept);
    }

    function topHash(bytes calldata packedIds) external pure returns (bytes32) {
        return Records.topHash(packedIds);
    }

    function saltedFingerprint(bytes32 salt, bytes32 fingerprint) external pure returns (bytes32) {
        return Records.saltedFingerprint(salt, fingerprint);
    }

    function stopStringHash(string calldata text) external pure returns (bytes32) {
        return Records.stopStringHash(text);
    }
}
