// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IJudgeClock
/// @notice How long a judge may take, for whoever holds stake until it is done.
interface IJudgeClock {
    /// @notice Seconds from an accusation to the first verdict, and from there to the last.
    function spans() external view returns (uint256 panel, uint256 appeal);
}
