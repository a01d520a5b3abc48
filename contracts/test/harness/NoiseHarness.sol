// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Logarithm} from "../../libraries/Logarithm.sol";
import {Noise} from "../../libraries/Noise.sol";
import {Batch} from "./Batch.sol";

/// @notice `Noise` and `Logarithm` as external functions, for forge and for the comparison with
/// Python.
contract NoiseHarness is Batch {
    function lnQ31(uint256 x) external pure returns (uint256) {
        return Logarithm.lnQ31(x);
    }

    function lnUpQ20(uint256 x) external pure returns (uint256) {
        return Logarithm.lnUpQ20(x);
    }

    function philox(uint256 counter, uint256 key) external pure returns (uint256) {
        return Noise.philox(counter, key);
    }

    function uniformBits(bytes32 seed, uint64 position, uint32 token)
        external
        pure
        returns (uint64)
    {
        return Noise.uniformBits(seed, position, token);
    }

    function gumbelOf(uint64 r) external pure returns (int64) {
        return Noise.gumbelOf(r);
    }

    function gumbel(bytes32 seed, uint64 position, uint32 token) external pure returns (int64) {
        return Noise.gumbel(seed, position, token);
    }
}
