// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";

/// @title ITreeRule
/// @notice What a settled root proves against the verifier who signed it: F5, one function for each
/// kind. Each reverts where the evidence does not belong together, and with NoFault where it does
/// and breaks no rule. That the root is the accused's own is the court's to see.
interface ITreeRule {
    /// @notice F5: a round record against what it names.
    function recordCase(Evidence.RecordCase calldata evidence)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F5: false sums in a settled tree or its root.
    function treeStep(Evidence.TreeStep calldata evidence)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F5: one round counted twice.
    function roundTwice(Evidence.Twice calldata evidence)
        external
        pure
        returns (Evidence.Ruling memory);
}
