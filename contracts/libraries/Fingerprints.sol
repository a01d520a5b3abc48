// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Fingerprints
/// @notice A projection of the target's last hidden state, sixteen int16 in one word, and how far two
/// of them lie apart. In the exact tier the word is a hash, and only equality counts.
library Fingerprints {
    uint256 private constant VALUES = 16;

    /// @notice What a verdict leaf holds: keccak256(tag ‖ salt ‖ fingerprint).
    function seal(bytes32 salt, bytes32 print) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/fingerprint/1", salt, print));
    }

    /// @notice The sum of absolute differences, in units of 2**-12 standard deviations.
    function distance(bytes32 one, bytes32 other) internal pure returns (uint64 sum) {
        (uint256 a, uint256 b) = (uint256(one), uint256(other));
        for (uint256 i; i < VALUES; ++i) {
            // Casts to uint16 keep the lowest value on purpose.
            // forge-lint: disable-next-line(unsafe-typecast)
            int256 apart = int256(int16(uint16(a))) - int16(uint16(b));
            // forge-lint: disable-next-line(unsafe-typecast)
            sum += uint64(uint256(apart < 0 ? -apart : apart));
            a >>= 16;
            b >>= 16;
        }
    }
}
