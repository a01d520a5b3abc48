// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {ExactEvidence} from "../libraries/ExactEvidence.sol";

/// @title IExactRule
/// @notice Judges proofs of F9 that the exact tier's arithmetic decides. Returns what evidence
/// establishes; reverts where it does not belong together, proves nothing, or is for the panel.
interface IExactRule {
    /// @notice V's token against the argmax over the scores of its own hidden state.
    function token(ExactEvidence.TokenCase calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice An element of V's trace against the row and the input vector it comes from.
    function element(ExactEvidence.ElementCase calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);
}
