// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IAuditorPool
/// @notice Who may be drawn to audit a model, weighted by stake, as it stood at the end of any block.
interface IAuditorPool {
    /// @notice A seat changed hands or weight. Weight zero: the seat is free.
    event SeatChanged(bytes32 indexed model, address indexed account, uint256 seat, uint256 weight);
    event MinStakeChanged(uint96 minStake);

    /// @notice Brings an account's seat for a model up to what the vault says now: takes a seat, changes
    /// its weight, or gives it up. Anyone may call, but only the account's key or its beneficiary takes
    /// a seat: who sits answers, or pays for silence.
    /// @param displace Where all seats are taken: whose to take over. It must weigh less.
    function sync(address account, bytes32 model, uint256 displace)
        external
        returns (uint256 weight);

    /// @notice Draws one seat by weight: word mod (total less what `taken` weighs), walking the seats in
    /// ascending order, past those in `taken`.
    /// @param at The block whose end the weights are of; in the past.
    /// @param taken The first `count` of it are distinct seats that are left out.
    /// @return account Zero where nothing is left.
    function drawAt(
        bytes32 model,
        uint256 at,
        uint256 word,
        uint256[] calldata taken,
        uint256 count
    ) external view returns (address account, uint256 seat, uint256 weight);

    /// @notice What all seats of a model weighed at the end of a block.
    function totalAt(bytes32 model, uint256 at) external view returns (uint256);
}
