// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Coins
/// @notice Seeds, hash chains and the coins of rejection mode, as `settlement/coins.py` makes them.
library Coins {
    /// @notice No session has so many rounds; a chain that long is checked step by step.
    error RoundPastChain(uint256 round, uint256 limit);

    /// @notice The value is not that round's of the chain that the anchor begins.
    error NotOnChain(bytes32 anchor, bytes32 value, uint256 round);

    uint8 internal constant PURPOSE_ACCEPT = 0;
    uint8 internal constant PURPOSE_RESIDUAL = 1;
    uint8 internal constant PURPOSE_BONUS = 2;

    /// @notice Links of the longest chain.
    uint256 internal constant MAX_CHAIN = 1 << 16;

    // ------------------------------------------------------------------ seeds

    /// @notice keccak256(tag ‖ nonce): what an order says of a nonce before it is revealed.
    function nonceCommitment(bytes32 nonce) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/nonce/1", nonce));
    }

    /// @notice S = keccak256(tag ‖ requestId ‖ client's nonce ‖ verifier's nonce).
    function seed(bytes32 requestId, bytes32 nonceClient, bytes32 nonceVerifier)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encodePacked("verdraft/seed/1", requestId, nonceClient, nonceVerifier));
    }

    /// @notice S where the client alone chooses it (greedy and coupled mode): keccak256(tag ‖ int64
    /// seed ‖ target model ‖ keccak256(uint32 prompt ids)).
    function clientSeed(int64 seed_, bytes32 targetModel, bytes memory packedIds)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(
            abi.encodePacked("verdraft/client-seed/1", seed_, targetModel, keccak256(packedIds))
        );
    }

    // ------------------------------------------------------------------ hash chains

    /// @notice v_{i−1} = keccak256(tag ‖ v_i): one step towards the anchor.
    function chainStep(bytes32 value) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/chain/1", value));
    }

    /// @notice The anchor that `value` leads to if it is round `round`'s: round + 1 steps, because
    /// v_0 is public before the first draft and must never be a coin.
    function anchorOf(bytes32 value, uint256 round) internal pure returns (bytes32) {
        // INVARIANT: loops are bounded, whatever a record says.
        if (round >= MAX_CHAIN) revert RoundPastChain(round, MAX_CHAIN);
        bytes32 tag = "verdraft/chain/1"; // 16 bytes
        assembly ("memory-safe") {
            mstore(0x00, tag)
            mstore(0x10, value)
            // The hash lands where the next step reads it, behind the tag.
            for { let left := add(round, 1) } left { left := sub(left, 1) } {
                mstore(0x10, keccak256(0x00, 0x30))
            }
            value := mload(0x10)
        }
        return value;
    }

    /// @notice Reverts unless `value` is round `round`'s of the chain that `anchor` begins.
    /// @dev With the value of the round before at hand, `chainStep(value) == previous` says the same
    /// for the price of one step.
    function requireOnChain(bytes32 anchor, bytes32 value, uint256 round) internal pure {
        if (anchorOf(value, round) != anchor) revert NotOnChain(anchor, value, round);
    }

    // ------------------------------------------------------------------ coins

    /// @notice u: the first 64 bits of keccak256(tag ‖ v_r ‖ S ‖ uint64 position ‖ uint8 purpose).
    function coin(bytes32 chainValue, bytes32 seed_, uint64 position, uint8 purpose)
        internal
        pure
        returns (uint64)
    {
        bytes32 digest = keccak256(
            abi.encodePacked("verdraft/coin/1", chainValue, seed_, position, purpose)
        );
        return uint64(uint256(digest) >> 192);
    }

    /// @notice w′ = w · (2**64 − 1) >> 64 with w the first 64 bits of
    /// keccak256(tag ‖ d_r ‖ S ‖ contextHash ‖ uint64 position): a place in [0, 2**64 − 1) among
    /// masses that sum to 2**64 − 1.
    function draw(bytes32 chainValue, bytes32 seed_, bytes32 contextHash, uint64 position)
        internal
        pure
        returns (uint64)
    {
        bytes32 digest = keccak256(
            abi.encodePacked("verdraft/draw/1", chainValue, seed_, contextHash, position)
        );
        uint256 w = uint256(digest) >> 192;
        return uint64((w * type(uint64).max) >> 64);
    }
}
