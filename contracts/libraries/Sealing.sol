// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Sealing
/// @notice Bytes that one reader can read and, if they are not what was owed, anyone can be shown:
/// Diffie–Hellman on secp256k1 with a key of the demand's own on one side and of the answer's own on
/// the other, and a keystream of hashes. Mirrored by `settlement/sealing.py`.
/// @dev Whoever contests gives away the secret of that one demand, and with it what was sealed to it.
/// An answer that is wrong in one place only thereby shows the rest to all: V, who wrote it, could
/// have told that at any time, and pays for it here.
library Sealing {
    uint256 internal constant P =
        0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f;
    uint256 internal constant N =
        0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
    uint256 internal constant G_X =
        0x79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798;
    uint256 internal constant G_Y =
        0x483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8;

    /// @notice Whether (x, y) is a point that `times` can multiply. Zero is none, and neither is the
    /// one x in 2**128 that passes the group's order.
    function isPoint(uint256 x, uint256 y) internal pure returns (bool) {
        if (x == 0 || x >= N || y >= P) return false;
        return mulmod(y, y, P) == addmod(mulmod(mulmod(x, x, P), x, P), 7, P);
    }

    /// @notice The address of a point: keccak256(x ‖ y), lower 160 bits.
    function addressOf(uint256 x, uint256 y) internal pure returns (address) {
        return address(uint160(uint256(keccak256(abi.encode(x, y)))));
    }

    /// @notice The address of `scalar` times the point (x, y); zero for no scalar.
    /// @dev ecrecover of the zero hash: with r = x and s = scalar · x it answers s / x times the point.
    function times(uint256 scalar, uint256 x, uint256 y) internal pure returns (address) {
        return ecrecover(0, uint8(27 + (y & 1)), bytes32(x), bytes32(mulmod(scalar, x, N)));
    }

    /// @notice Seals or opens: word i of `data` XOR keccak256(tag ‖ key ‖ id ‖ uint32 i).
    function stream(address key, bytes32 id, bytes calldata data)
        internal
        pure
        returns (bytes memory out)
    {
        out = data;
        uint256 words = (data.length + 31) / 32;
        for (uint256 i; i < words; ++i) {
            bytes32 pad = keccak256(abi.encodePacked("verdraft/seal/1", key, id, uint32(i)));
            assembly ("memory-safe") {
                // The last word's end lies in the padding that every bytes array has.
                let at := add(add(out, 0x20), mul(i, 0x20))
                mstore(at, xor(mload(at), pad))
            }
        }
    }

    /// @notice Whether `plain` is a prompt's salt, its ids and `tokens` output ids after it, such that
    /// the prompt has the hash and the output leads to the context.
    function isText(bytes memory plain, uint256 tokens, bytes32 promptHash, bytes32 contextHash)
        internal
        pure
        returns (bool)
    {
        uint256 output = 4 * tokens;
        if (plain.length < 32 + output) return false;
        uint256 prompt = plain.length - output;
        bytes memory tag = "verdraft/context/1";
        bytes32 context;
        assembly ("memory-safe") {
            // keccak256(tag ‖ salt ‖ ids), in fresh memory; then one hash for each output id.
            let free := mload(0x40)
            mcopy(free, add(tag, 0x20), mload(tag))
            mcopy(add(free, mload(tag)), add(plain, 0x20), prompt)
            context := keccak256(free, add(mload(tag), prompt))
        }
        if (context != promptHash) return false;
        assembly ("memory-safe") {
            let next := add(add(plain, 0x20), prompt)
            let end := add(next, output)
            for {} lt(next, end) { next := add(next, 4) } {
                mstore(0x00, context)
                mstore(0x20, mload(next))
                context := keccak256(0x00, 0x24)
            }
        }
        return context == contextHash;
    }
}
