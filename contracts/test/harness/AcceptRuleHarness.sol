// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AcceptRule} from "../../libraries/AcceptRule.sol";
import {Records} from "../../libraries/Records.sol";
import {Batch} from "./Batch.sol";

/// @notice `AcceptRule` as external functions, for forge and for the comparison with Python.
contract AcceptRuleHarness is Batch {
    /// @notice What of an order the rule reads: an order has forty fields, most of them no matter
    /// here.
    struct Terms {
        uint32 startPosition;
        uint32 maxTokens;
        uint8 mode;
        uint32 relaxTau;
        uint32 keyTargetSurprisal;
        uint32 keyDraftSurprisal;
        bytes32 anchorVerifier;
        bytes32 anchorDrafter;
    }

    function checkLeafPair(
        Terms calldata terms,
        bytes32 seed,
        uint256 position,
        bool drafted,
        Records.DraftLeaf calldata draft,
        Records.VerdictLeaf calldata verdict,
        bytes32 chainValue
    ) external pure returns (uint8) {
        return AcceptRule.checkLeafPair(
            _order(terms), seed, position, drafted, draft, verdict, chainValue
        );
    }

    function checkDraftLeaf(
        Terms calldata terms,
        bytes32 seed,
        bytes32 contextHash,
        uint256 position,
        Records.DraftLeaf calldata draft,
        bytes32 chainValue
    ) external pure returns (uint8) {
        return AcceptRule.checkDraftLeaf(
            _order(terms), seed, contextHash, position, draft, chainValue
        );
    }

    function checkDraftList(Records.DraftLeaf calldata draft, bytes calldata packed)
        external
        pure
        returns (uint8)
    {
        return AcceptRule.checkDraftList(draft, packed);
    }

    function checkChainVerifier(Terms calldata terms, uint256 round, bytes32 chainValue)
        external
        pure
        returns (uint8)
    {
        return AcceptRule.checkChainVerifier(_order(terms), round, chainValue);
    }

    function checkChainDrafter(Terms calldata terms, uint256 round, bytes32 chainValue)
        external
        pure
        returns (uint8)
    {
        return AcceptRule.checkChainDrafter(_order(terms), round, chainValue);
    }

    function faultOf(uint8 code) external pure returns (uint8) {
        return AcceptRule.faultOf(code);
    }

    function byDrafter(uint8 code) external pure returns (bool) {
        return AcceptRule.byDrafter(code);
    }

    function _order(Terms calldata terms) private pure returns (Records.Order memory order) {
        order.startPosition = terms.startPosition;
        order.maxTokens = terms.maxTokens;
        order.mode = terms.mode;
        order.relaxTau = terms.relaxTau;
        order.keyTargetSurprisal = terms.keyTargetSurprisal;
        order.keyDraftSurprisal = terms.keyDraftSurprisal;
        order.anchorVerifier = terms.anchorVerifier;
        order.anchorDrafter = terms.anchorDrafter;
    }
}
