// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";

/// @title IRoundRule
/// @notice What a session's own records prove: one function for each kind. Each reverts where the evidence does
/// not belong together, and with NoFault where it does and breaks no rule.
/// @dev `separator` is the EIP-712 separator under which the parties signed.
interface IRoundRule {
    /// @notice F1: two windows of D for one place.
    function draftTwice(Evidence.DraftPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F2: two verdicts of V on one round.
    function verdictTwice(Evidence.VerdictPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F3: V's leaf names another draft token than D's leaf.
    function otherDraft(Evidence.LeafPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F4 by V: the accept rule, on the leaves' own figures.
    function acceptRule(Evidence.LeafPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F4 by D: a draft out of place, outside its draw, or not of its list.
    function draftLeaf(Evidence.DraftPlace calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F4 by D: coin or number of drafts.
    function draftRound(Evidence.DraftRound calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F4 by V: coin or number of drafts.
    function verdictRound(Evidence.Round calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F5: a verdict against its draft, its counts, the verdict before and max tokens.
    function roundFit(Evidence.Round calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F5: a leaf out of place, against the accepted count, or a stop that was passed.
    function leafPlace(Evidence.LeafPlace calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);

    /// @notice F5: a verdict against all its leaves.
    function allLeaves(Evidence.AllLeaves calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory);
}
