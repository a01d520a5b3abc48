// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IRoundRule} from "./interfaces/IRoundRule.sol";
import {Evidence} from "./libraries/Evidence.sol";
import {RoundFaults} from "./libraries/RoundFaults.sol";

/// @title RoundRule
/// @notice `RoundFaults` at an address of its own: it holds nothing, asks nobody, and answers the same
/// for ever. Apart from FaultCourt, which holds bonds and punishes, so that each can be read whole,
/// and because together they pass the size limit of code.
contract RoundRule is IRoundRule {
    /// @inheritdoc IRoundRule
    function draftTwice(Evidence.DraftPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.draftTwice(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function verdictTwice(Evidence.VerdictPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.verdictTwice(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function otherDraft(Evidence.LeafPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.otherDraft(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function acceptRule(Evidence.LeafPair calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.acceptRule(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function draftLeaf(Evidence.DraftPlace calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.draftLeaf(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function draftRound(Evidence.DraftRound calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.draftRound(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function verdictRound(Evidence.Round calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.verdictRound(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function roundFit(Evidence.Round calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.roundFit(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function leafPlace(Evidence.LeafPlace calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.leafPlace(evidence, separator);
    }

    /// @inheritdoc IRoundRule
    function allLeaves(Evidence.AllLeaves calldata evidence, bytes32 separator)
        external
        pure
        returns (Evidence.Ruling memory)
    {
        return RoundFaults.allLeaves(evidence, separator);
    }
}
