// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";

/// @title ExpiringPause
/// @notice A pause that one named holder may call, that ends by itself, and that cannot be chained
/// into a standstill: after each pause the contract runs unpaused for at least as long.
/// @dev The owner is OpenZeppelin's TimelockController (on a devnet: the deployer). What stands
/// behind `whenNotPaused` is money coming in; exits, disputes and payouts never do.
abstract contract ExpiringPause is Ownable2Step {
    /// @notice No pause is in force for longer.
    uint64 public constant MAX_PAUSE = 3 days;

    /// @notice Who may pause; zero: nobody.
    address public guardian;

    /// @notice Unix seconds at which the current or last pause ends.
    uint64 public pausedUntil;

    /// @notice Unix seconds before which no new pause may begin.
    uint64 public nextPauseFrom;

    event GuardianSet(address guardian);
    event Paused(address indexed by, uint64 until);
    event Unpaused(address indexed by);

    error NotGuardian(address caller, address guardian);
    error PausedUntil(uint64 until);
    error PauseTooLong(uint64 asked, uint64 limit);
    error PauseTooSoon(uint64 nextFrom);

    constructor(address owner, address guardian_) Ownable(owner) {
        guardian = guardian_;
        emit GuardianSet(guardian_);
    }

    modifier whenNotPaused() {
        if (block.timestamp < pausedUntil) revert PausedUntil(pausedUntil);
        _;
    }

    function setGuardian(address guardian_) external onlyOwner {
        guardian = guardian_;
        emit GuardianSet(guardian_);
    }

    /// @notice Refuses new money for `duration` seconds.
    function pause(uint64 duration) external {
        if (msg.sender != guardian) revert NotGuardian(msg.sender, guardian);
        if (duration == 0 || duration > MAX_PAUSE) revert PauseTooLong(duration, MAX_PAUSE);
        // INVARIANT: a pause is followed by at least as long without one.
        if (block.timestamp < nextPauseFrom) revert PauseTooSoon(nextPauseFrom);
        pausedUntil = uint64(block.timestamp) + duration;
        nextPauseFrom = pausedUntil + duration;
        emit Paused(msg.sender, pausedUntil);
    }

    /// @notice Ends the pause early.
    function unpause() external {
        if (msg.sender != guardian && msg.sender != owner()) {
            revert NotGuardian(msg.sender, guardian);
        }
        pausedUntil = uint64(block.timestamp);
        emit Unpaused(msg.sender);
    }
}
