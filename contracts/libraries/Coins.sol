// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Coins
/// @notice Seeds, hash chains and the coins of rejection mode, as `settlement/coins.py` makes them.
library Coins {
    /// @notice A chain value that lies too many steps from its anchor to be checked in one call.
    error ChainTooLong(uint256 steps, uint256 limit);

    /// @notice The value does not lead back to the anchor in that many steps.
    error NotOnChain(bytes32 anchor, bytes32 value, uint256 steps);

    uint8 internal constant PURPOSE_ACCEPT = 0;
    uint8 internal constant PURPOSE_RESIDUAL = 1;
    uint8 internal constant PURPOSE_BONUS = 2;

    /// @notice 120 gas a step: a bound that a block holds many times over.
    uint256 internal constant MAX_CHAIN_STEPS = 1 << 16;

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

    // ------------------------------------------------------------------ hash chains

    /// @notice v_{i−1} = keccak256(tag ‖ v_i): one step towards the anchor.
    function chainStep(bytes32 value) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/chain/1", value));
    }

    /// @notice The chain value `steps` steps nearer to the anchor.
    function chainBack(bytes32 value, uint256 steps) internal pure returns (bytes32) {
        // INVARIANT: loops are bounded, whatever a record says.
        if (steps > MAX_CHAIN_STEPS) revert ChainTooLong(steps, MAX_CHAIN_STEPS);
        for (uint256 i; i < steps; ++i) {
            value = chainStep(value);
        }
        return value;
    }

    /// @notice Reverts unless `value` is the chain's element `steps` steps after `anchor`.
    function requireOnChain(bytes32 anchor, bytes32 value, uint256 steps) internal pure {
        if (chainBack(value, steps) != anchor) revert NotOnChain(anchor, value, steps);
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
        return uint64(w * type(uint64).max >> 64);
    }

    /// @notice Whether the draw `w` falls on the token with mass `q` above `qBelow`.
    function drawFalls(uint64 w, uint64 qBelow, uint64 q) internal pure returns (bool) {
        return w >= qBelow && w - qBelow < q;
    }

    /// @notice u · q < p · 2**64: the draft is accepted. `q` = 0 never comes here: such a draft is
    /// invalid.
    function accepts(uint64 u, uint64 q, uint64 p) internal pure returns (bool) {
        return uint256(u) * q < uint256(p) << 64;
    }
}
