// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {StakeBook} from "./StakeBook.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

/// @title StakeLocks
/// @notice Stake that stands behind what the escrow has settled, until it has been drawn and judged.
abstract contract StakeLocks is StakeBook {
    /// @notice Slices that one settlement tries to release on its way.
    uint256 public constant RELEASES_PER_CALL = 4;

    address public escrow;
    IDrawBeacon public beacon;

    error AlreadyWired(address escrow);
    error NotEscrow(address caller, address escrow);
    error UnknownAccount(address account);
    error NotLockable(uint256 asked, uint256 lockable);

    /// @notice Names the escrow and the beacon, once and for ever.
    function wire(address escrow_, IDrawBeacon beacon_) external onlyOwner {
        // INVARIANT: who may lock stake, and whose word releases it, never changes.
        if (escrow != address(0)) revert AlreadyWired(escrow);
        if (escrow_ == address(0)) revert ZeroAddress("escrow");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        escrow = escrow_;
        beacon = beacon_;
        emit Wired(escrow_, address(beacon_));
    }

    /// @inheritdoc IStakeVault
    function cover(address key, Role role)
        external
        returns (address account, uint256 lockable, uint256 reachable)
    {
        account = accountOf[key];
        if (account == address(0)) return (account, 0, 0);
        Stake storage s = _stakes[account][role];
        _release(account, role, s, RELEASES_PER_CALL);
        // INVARIANT: what has been asked out covers no batch from here on: it may leave before a draw.
        reachable = s.active;
        lockable = FixedPointMathLib.zeroFloorSub(reachable, s.locked);
    }

    /// @inheritdoc IStakeVault
    function lock(address key, Role role, uint256 amount) external {
        if (msg.sender != escrow) revert NotEscrow(msg.sender, escrow);
        if (amount == 0) return;
        address account = accountOf[key];
        Stake storage s = _stakes[account][role];
        uint256 locked = s.locked;
        uint256 lockable = FixedPointMathLib.zeroFloorSub(s.active, locked);
        // INVARIANT: one unit of stake backs one batch at a time.
        if (amount > lockable) revert NotLockable(amount, lockable);

        uint64 slice = sliceOf(block.timestamp);
        uint64 releaseAt = uint64(block.timestamp) + lockWindow();
        SliceLock storage current = _locks[account][role][slice];
        uint64 last = s.lastSlice;
        if (last != slice) {
            if (s.firstSlice == 0) s.firstSlice = slice;
            else _locks[account][role][last].next = slice;
            s.lastSlice = slice;
        }
        // The longest window of the slice counts, so a shortened one frees nothing settled before.
        if (current.releaseAt < releaseAt) current.releaseAt = releaseAt;
        // At most the active stake, which has 96 bits.
        current.amount += uint96(amount);
        s.locked = uint128(locked + amount);
        emit StakeLocked(account, role, amount, slice, releaseAt);
    }

    /// @notice Releases up to `limit` slices of locks whose time has come.
    function releaseLocks(address key, Role role, uint256 limit)
        external
        returns (uint256 released)
    {
        address account = accountOf[key];
        if (account == address(0)) revert UnknownAccount(key);
        return _release(account, role, _stakes[account][role], limit);
    }

    function _release(address account, Role role, Stake storage s, uint256 limit)
        internal
        returns (uint256 released)
    {
        uint64 slice = s.firstSlice;
        for (uint256 i; i < limit && slice != 0; ++i) {
            SliceLock memory due = _locks[account][role][slice];
            // INVARIANT: a lock holds for the whole window of the batches under it.
            if (block.timestamp < due.releaseAt) break;
            // INVARIANT: no lock is released before its batches have had their draw.
            if (beacon.pendingIn(slice) != 0) break;
            delete _locks[account][role][slice];
            released += due.amount;
            emit LockReleased(account, role, due.amount, slice);
            slice = due.next;
        }
        if (released != 0) {
            s.firstSlice = slice;
            if (slice == 0) s.lastSlice = 0;
            s.locked -= uint128(released);
        }
    }
}
