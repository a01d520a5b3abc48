// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IBonded
/// @notice Bonds of the stake token and where they are.
interface IBonded {
    /// @notice The contract's balance is at least open + payable + burning.
    struct Bonds {
        uint256 open;
        uint256 payable_; // to pull
        uint256 burning; // forfeited, not yet destroyed
    }

    event BondReleased(address indexed account, uint256 amount);
    event BondPulled(address indexed account, uint256 amount);
    event BondsBurned(uint256 amount);

    /// @notice Sends what `account` can pull, to where its money goes (`IStakeVault.payoutTo`).
    function pullBond(address account) external returns (uint256 amount);

    /// @notice Destroys what was forfeited.
    function burn() external returns (uint256 amount);

    function bondOf(address account) external view returns (uint256);

    function bonds() external view returns (Bonds memory);
}
