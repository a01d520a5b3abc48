// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IOpeningRule} from "./interfaces/IOpeningRule.sol";
import {Openings} from "./libraries/Openings.sol";

/// @title OpeningRule
/// @notice `Openings` at an address of its own: it holds nothing, asks nobody, and answers the same
/// for ever. Apart from the contracts that call it because together they pass the size limit of code.
contract OpeningRule is IOpeningRule {
    /// @inheritdoc IOpeningRule
    function judge(
        Openings.Opening calldata opening,
        bytes32 root,
        bytes32 lane,
        bytes32 separator,
        bytes32 seed,
        uint8 sample
    ) external pure returns (Openings.Finding memory) {
        return Openings.judge(opening, root, lane, separator, seed, sample);
    }
}
