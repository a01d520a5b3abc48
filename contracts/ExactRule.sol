// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IExactRule} from "./interfaces/IExactRule.sol";
import {Evidence} from "./libraries/Evidence.sol";
import {ExactEvidence} from "./libraries/ExactEvidence.sol";
import {ExactFaults} from "./libraries/ExactFaults.sol";

/// @title ExactRule
/// @notice `ExactFaults` at an address of its own, as `RoundRule` is of `RoundFaults`.
contract ExactRule is IExactRule {
    /// @inheritdoc IExactRule
    function token(ExactEvidence.TokenCase calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return ExactFaults.token(evidence, separator);
    }

    /// @inheritdoc IExactRule
    function element(ExactEvidence.ElementCase calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return ExactFaults.element(evidence, separator);
    }
}
