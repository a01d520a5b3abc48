// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../libraries/Openings.sol";

/// @title IOpeningRule
/// @notice What a contract can say of one opened position.
interface IOpeningRule {
    /// @notice Judges the opening of one sample. Reverts where what is shown does not belong together;
    /// answers with codes where it does and breaks a rule.
    /// @param root The settled root that was drawn.
    /// @param lane Id of the lane it belongs to.
    /// @param separator EIP-712 separator under which drafter and verifier signed.
    /// @param seed Of the drawn lane.
    /// @param sample Which of its positions is opened.
    function judge(
        Openings.Opening calldata opening,
        bytes32 root,
        bytes32 lane,
        bytes32 separator,
        bytes32 seed,
        uint8 sample
    ) external pure returns (Openings.Finding memory);
}
