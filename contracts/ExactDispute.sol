// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Court} from "./Court.sol";
import {IExactDispute} from "./interfaces/IExactDispute.sol";
import {IExactRule} from "./interfaces/IExactRule.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IStakeVault} from "./interfaces/IStakeVault.sol";
import {ExactEvidence} from "./libraries/ExactEvidence.sol";

/// @title ExactDispute
/// @notice F9 in the exact tier, settled by arithmetic: one challenger is enough, and nobody votes.
///
/// @dev What it rests on: the target's manifest, which the order names by its hash, and V's own
/// signature under the hidden state. It does not say whether that hidden state is the model's.
contract ExactDispute is IExactDispute, Court {
    IExactRule public immutable rule;

    constructor(
        address owner,
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IExactRule rule_,
        Terms memory terms_
    ) Court(owner, vault_, escrow_, terms_) {
        if (address(rule_) == address(0)) revert ZeroAddress("rule");
        rule = rule_;
    }

    /// @inheritdoc IExactDispute
    function proveToken(ExactEvidence.TokenCase calldata, bytes32 salt) external nonReentrant {
        _prove(IExactRule.token.selector, salt);
    }

    /// @inheritdoc IExactDispute
    function proveElement(ExactEvidence.ElementCase calldata, bytes32 salt) external nonReentrant {
        _prove(IExactRule.element.selector, salt);
    }

    /// @dev The question is this call with two words changed: the rule's selector for the function's
    /// own, the separator for the salt. Evidence is kilobytes; nothing of it is encoded anew, and the
    /// rule decodes it.
    function _prove(bytes4 selector, bytes32 salt) private {
        bytes memory question =
            abi.encodePacked(selector, msg.data[4:36], _separator(), msg.data[68:]);
        Filing memory filing = _take(keccak256(question), salt);
        _punish(_ask(address(rule), question), filing);
    }
}
