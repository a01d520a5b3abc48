// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ICourt} from "./ICourt.sol";

/// @title IExactDispute
/// @notice The court for F9 where a contract can compute what V should have said: the exact tier, in
/// greedy and coupled mode, without penalties. Everything else of F9 goes to the panel. The evidence
/// hash of a filing is that of the rule's call data: selector and arguments of the function of
/// IExactRule.
interface IExactDispute is ICourt {
    /// @notice V's token is not the argmax of the scores that its own hidden state gives.
    function proveToken(ExactEvidence.TokenCase calldata evidence, bytes32 salt) external;

    /// @notice An element of a trace that V signed is not what its row of weights and its input give.
    function proveElement(ExactEvidence.ElementCase calldata evidence, bytes32 salt) external;
}
