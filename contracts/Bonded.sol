// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {IBonded} from "./interfaces/IBonded.sol";
import {IStakeVault} from "./interfaces/IStakeVault.sol";

/// @title Bonded
/// @notice The books of a contract that takes bonds in the stake token: each is open, ready to be
/// pulled, or to be burned, and the balance is never less than the three together.
abstract contract Bonded is IBonded, ReentrancyGuardTransient {
    /// @notice Where forfeited bonds go.
    address public constant DEAD = 0x000000000000000000000000000000000000dEaD;

    IStakeVault public immutable vault;
    address public immutable bondToken;

    Bonds private _bonds;
    mapping(address account => uint256) public bondOf;

    error ZeroAddress(string what);
    error ShortBond(uint256 asked, uint256 arrived);
    error NothingToPull(address account);
    error NothingToBurn();

    constructor(IStakeVault vault_) {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        vault = vault_;
        bondToken = vault_.stakeToken();
    }

    /// @inheritdoc IBonded
    function pullBond(address account) external nonReentrant returns (uint256 amount) {
        amount = bondOf[account];
        if (amount == 0) revert NothingToPull(account);
        delete bondOf[account];
        _bonds.payable_ -= amount;
        emit BondPulled(account, amount);
        SafeTransferLib.safeTransfer(bondToken, vault.payoutTo(account), amount);
    }

    /// @inheritdoc IBonded
    function burn() external nonReentrant returns (uint256 amount) {
        amount = _bonds.burning;
        if (amount == 0) revert NothingToBurn();
        _bonds.burning = 0;
        emit BondsBurned(amount);
        SafeTransferLib.safeTransfer(bondToken, DEAD, amount);
    }

    /// @inheritdoc IBonded
    function bonds() external view returns (Bonds memory) {
        return _bonds;
    }

    function _takeBond(address from, uint256 amount) internal {
        _bonds.open += amount;
        uint256 before = SafeTransferLib.balanceOf(bondToken, address(this));
        SafeTransferLib.safeTransferFrom(bondToken, from, address(this), amount);
        uint256 arrived = SafeTransferLib.balanceOf(bondToken, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != amount) revert ShortBond(amount, arrived);
    }

    function _release(address to, uint256 amount) internal {
        if (amount == 0) return;
        _bonds.open -= amount;
        _bonds.payable_ += amount;
        bondOf[to] += amount;
        emit BondReleased(to, amount);
    }

    function _forfeit(uint256 amount) internal {
        _bonds.open -= amount;
        _bonds.burning += amount;
    }
}
