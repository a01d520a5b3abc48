// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IAlphaLedger
/// @notice Claims of acceptance rates, and the counts they are tested against.
/// @dev These are the parts that other contracts call.
interface IAlphaLedger {
    /// @notice The drafter whose published claim this is; zero if nobody published it. A claim once
    /// published stays, suspended or replaced or not.
    function claimDrafter(bytes32 claimId) external view returns (address);

    /// @notice Adds what one transaction settled for lanes of one claim and verifier. Only the escrow.
    /// @dev Must not revert for a published claim, whatever its state, and must cost a bounded
    /// amount: it stands in the way of every payment. The escrow vouches that every lane of `delta`
    /// is below 2**46, that accepted ≤ proposed in each bucket, and that `verifier` is not zero.
    /// @param drafter The claim's drafter, as the escrow checked when the lane was opened.
    /// @param delta Nine words: output | accepted << 64, then proposed and accepted by bucket, four
    /// uint64 lanes a word (`Records`).
    function record(bytes32 claimId, address drafter, address verifier, uint256[9] memory delta)
        external;
}
