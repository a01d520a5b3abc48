// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SequentialTest} from "../../libraries/SequentialTest.sol";
import {Batch} from "./Batch.sol";

/// @notice `SequentialTest` as external functions, for forge and for the comparison with Python.
contract SequentialTestHarness is Batch {
    function weights(uint256 rate) external pure returns (int256 accept, int256 reject) {
        return SequentialTest.weights(rate);
    }

    function llr(uint256 rate, uint64 proposed, uint64 accepted) external pure returns (int256) {
        return SequentialTest.llr(rate, proposed, accepted);
    }

    function threshold(uint256 start, uint256 inverseDelta, uint256 verifierOrder)
        external
        pure
        returns (uint256)
    {
        return SequentialTest.threshold(start, inverseDelta, verifierOrder);
    }

    function flags(int256 score, uint256 limit) external pure returns (bool) {
        return SequentialTest.flags(score, limit);
    }

    /// @notice The score of a trace of outcomes, one bit each, the first in the top bit of the first
    /// byte: set where the draft was accepted.
    function scoreTrace(uint256 rate, uint64 length, bytes calldata outcomes)
        external
        pure
        returns (int256 score)
    {
        (int256 accept, int256 reject) = SequentialTest.weights(rate);
        for (uint256 i; i < length; ++i) {
            bool accepted = (uint8(outcomes[i / 8]) >> (7 - (i % 8))) & 1 == 1;
            score += accepted ? accept : reject;
        }
    }
}
