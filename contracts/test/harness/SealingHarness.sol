// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Sealing} from "../../libraries/Sealing.sol";
import {Batch} from "./Batch.sol";

/// @notice `Sealing` from outside, for parity tests.
contract SealingHarness is Batch {
    function isPoint(uint256 x, uint256 y) external pure returns (bool) {
        return Sealing.isPoint(x, y);
    }

    function times(uint256 scalar, uint256 x, uint256 y) external pure returns (address) {
        return Sealing.times(scalar, x, y);
    }

    function stream(address key, bytes32 id, bytes calldata data)
        external
        pure
        returns (bytes memory)
    {
        return Sealing.stream(key, id, data);
    }

    function isText(bytes calldata plain, uint256 tokens, bytes32 promptHash, bytes32 contextHash)
        external
        pure
        returns (bool)
    {
        return Sealing.isText(plain, tokens, promptHash, contextHash);
    }
}
