// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITreeRule} from "./interfaces/ITreeRule.sol";
import {Evidence} from "./libraries/Evidence.sol";
import {TreeFaults} from "./libraries/TreeFaults.sol";

/// @title TreeRule
/// @notice `TreeFaults` at an address of its own, as `RoundRule` is of `RoundFaults`.
contract TreeRule is ITreeRule {
    /// @inheritdoc ITreeRule
    function recordCase(Evidence.RecordCase calldata evidence)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return TreeFaults.recordCase(evidence);
    }

    /// @inheritdoc ITreeRule
    function treeStep(Evidence.TreeStep calldata evidence)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return TreeFaults.treeStep(evidence);
    }

    /// @inheritdoc ITreeRule
    function roundTwice(Evidence.Twice calldata evidence)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return TreeFaults.roundTwice(evidence);
    }
}
