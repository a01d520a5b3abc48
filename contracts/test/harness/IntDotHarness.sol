// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IntDot} from "../../libraries/IntDot.sol";
import {Batch} from "./Batch.sol";

/// @notice `IntDot` as external functions, beside a twin that takes one element after the other.
contract IntDotHarness is Batch {
    function packed(bytes calldata activations, bytes calldata weights)
        external
        pure
        returns (int256)
    {
        return IntDot.dot(IntDot.lanes(activations), weights);
    }

    function packedTwice(bytes calldata activations, bytes calldata weights, bytes calldata others)
        external
        pure
        returns (int256, int256)
    {
        IntDot.Lanes memory lanes = IntDot.lanes(activations);
        return (IntDot.dot(lanes, weights), IntDot.dot(lanes, others));
    }

    function plain(bytes calldata activations, bytes calldata weights)
        external
        pure
        returns (int256 result)
    {
        require(activations.length == 2 * weights.length, "lengths differ");
        for (uint256 i; i < weights.length; ++i) {
            int256 a = int16(uint16(bytes2(activations[2 * i:2 * i + 2])));
            int256 w = int8(uint8(weights[i]));
            result += a * w;
        }
    }
}
