// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IDrawBeacon
/// @notice Later randomness, weighted draws over settled roots, openings and their deadlines.
/// @dev These are the parts that other contracts call. Deadlines come from `IStakeVault.times()` as it
/// stood when the batch was registered.
interface IDrawBeacon {
    /// @notice One settlement transaction, as registered.
    struct Batch {
        bytes32 entriesHash; // `Batches.hash` of its entries; the event BatchSettled carries them
        uint64 settledAt; // unix seconds
        uint64 settledBlock;
        uint64 slice;
        uint32 entries;
        address token;
        bytes32 randomness; // zero until captured
    }

    /// @notice A batch awaits its randomness.
    event BatchRegistered(
        uint64 indexed batchId, bytes32 entriesHash, uint32 entries, uint64 slice, address token
    );

    /// @notice Registers what one transaction settled. Only the escrow.
    /// @dev Must not revert and must cost a bounded amount: it stands in the way of every payment.
    /// Parameters (ρ, samples, deadlines) are fixed for the batch here.
    function registerBatch(bytes32 entriesHash, uint32 entries, address token, uint64 slice)
        external
        returns (uint64 batchId);

    /// @notice Batches of the slice whose randomness is not captured yet. No lock of the slice is
    /// released before this is zero; anyone can bring it there, so nothing stays locked for ever.
    function pendingIn(uint64 slice) external view returns (uint256);

    function batch(uint64 batchId) external view returns (Batch memory);
}
