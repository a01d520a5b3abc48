// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Signatures
/// @notice Who signed a digest: operators by key, clients by key or by contract.
/// @dev Accepts what `settlement/signing.py` accepts and no more: v of 27 or 28, s in the lower half.
/// Answers instead of reverting, so that one bad signature leaves the other lanes of a call alone;
/// but for want of gas, which is the sender's alone to mend.
library Signatures {
    /// @notice The call was sent with too little gas to ask a client's contract: send more.
    error TooLittleGas(uint256 left, uint256 needed);

    uint256 internal constant HALF_ORDER =
        0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;
    uint256 internal constant LOW_255 = type(uint256).max >> 1;

    /// @notice What a client's contract may spend on checking a signature.
    uint256 internal constant ERC1271_GAS = 100_000;
    bytes4 internal constant ERC1271_MAGIC = 0x1626ba7e;

    /// @notice Whether `signer` made this EIP-2098 signature: r, and s with v − 27 in the top bit.
    function isByKey(address signer, bytes32 digest, bytes32 r, bytes32 vs)
        internal
        view
        returns (bool)
    {
        return recover(digest, r, uint256(vs) & LOW_255, 27 + (uint256(vs) >> 255)) == signer
            && signer != address(0);
    }

    /// @notice Whether the client signed: its own key first (an account that has delegated its code
    /// keeps its key), then its ERC-1271 contract.
    function isByClient(address client, bytes32 digest, bytes calldata signature)
        internal
        view
        returns (bool)
    {
        if (signature.length == 65) {
            bytes32 r;
            uint256 s;
            uint256 v;
            assembly ("memory-safe") {
                r := calldataload(signature.offset)
                s := calldataload(add(signature.offset, 0x20))
                v := byte(0, calldataload(add(signature.offset, 0x40)))
            }
            // INVARIANT: the zero address, ecrecover's failure, signs nothing.
            if (recover(digest, r, s, v) == client && client != address(0)) return true;
        }
        return client.code.length != 0 && isByContract(client, digest, signature);
    }

    /// @dev Zero for anything malformed.
    function recover(bytes32 digest, bytes32 r, uint256 s, uint256 v)
        internal
        view
        returns (address signer)
    {
        // INVARIANT: one message, one signature: the mirrored s is refused.
        if (s > HALF_ORDER || (v != 27 && v != 28)) return address(0);
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, digest)
            mstore(add(free, 0x20), v)
            mstore(add(free, 0x40), r)
            mstore(add(free, 0x60), s)
            mstore(0x00, 0)
            // A failing recovery returns nothing and leaves the zero.
            pop(staticcall(gas(), 0x01, free, 0x80, 0x00, 0x20))
            signer := mload(0x00)
        }
    }

    /// @dev With a bound on gas, and none of its answer beyond a word copied: a client's contract can
    /// spoil its own lane but not the call.
    function isByContract(address client, bytes32 digest, bytes calldata signature)
        internal
        view
        returns (bool valid)
    {
        bytes memory question = abi.encodeWithSelector(ERC1271_MAGIC, digest, signature);
        // INVARIANT: the contract gets its whole allowance: nobody starves it into a "no", and an
        // estimate of gas never settles for skipping it (63/64 of what is left is passed on at most).
        uint256 needed = ERC1271_GAS * 64 / 63 + 5_000;
        if (gasleft() < needed) revert TooLittleGas(gasleft(), needed);
        assembly ("memory-safe") {
            mstore(0x00, 0)
            let ok := staticcall(100000, client, add(question, 0x20), mload(question), 0x00, 0x20)
            valid := and(and(ok, gt(returndatasize(), 0x1f)), eq(mload(0x00), shl(224, 0x1626ba7e)))
        }
    }
}
