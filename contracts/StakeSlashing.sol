// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {StakeBook} from "./StakeBook.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

interface IBurnable {
    function burn(uint256 amount) external;
}

/// @title StakeSlashing
/// @notice What judges take of a stake, who gets what of it and when, and how the rest is destroyed.
abstract contract StakeSlashing is StakeBook, ReentrancyGuardTransient {
    uint256 public constant BPS = 10_000;
    uint256 public constant MAX_VICTIMS = 16;
    uint256 public constant MAX_CHALLENGER_BPS = 5_000;
    /// @notice Where burned stake goes if its token cannot destroy it.
    address public constant DEAD = 0x000000000000000000000000000000000000dEaD;

    /// @dev What a stake must be for a slash to settle its fault: `current` before `from`, then `next`.
    struct Least {
        uint96 current;
        uint96 next;
        uint64 from;
    }

    mapping(address judge => bool) public isSlasher;
    Least private _least;
    /// @dev Of a fault: DONE, or what earlier slashes under its name have left of a small stake.
    mapping(bytes32 fault => uint256) private _borne;
    uint256 private constant DONE = type(uint256).max;
    mapping(address who => mapping(uint64 slice => uint256)) public vestingOf;

    error NotSlasher(address caller);
    error LeastStakeTooFar(uint96 asked, uint96 current);
    error NotVested(uint64 slice, uint64 now_);

    /// @notice Lets a judge slash, or no longer.
    function setSlasher(address judge, bool allowed) external onlyOwner {
        if (judge == address(0)) revert ZeroAddress("judge");
        isSlasher[judge] = allowed;
        emit SlasherSet(judge, allowed);
    }

    /// @notice Sets from what stake on a slash settles its fault: more than a false round can bring. The
    /// first holds at once; another from the time on at which no batch of now can be judged any more.
    function setLeastStake(uint96 asked) external onlyOwner {
        uint96 current = leastStake();
        // INVARIANT: no step leaves all faults open for ever, or done with for next to nothing.
        if (asked == 0 || (current != 0 && (asked < current / 2 || asked > 2 * uint256(current)))) {
            revert LeastStakeTooFar(asked, current);
        }
        uint64 from = uint64(block.timestamp);
        // INVARIANT: what was settled before is judged by what stood then, for as long as it is.
        if (current != 0) from += _times.unbonding;
        _least = Least(current, asked, from);
        emit LeastStakeSet(asked, from);
    }

    /// @notice A smaller stake settles no fault for ever.
    function leastStake() public view returns (uint96) {
        Least storage least = _least;
        return block.timestamp < least.from ? least.current : least.next;
    }

    /// @inheritdoc IStakeVault
    function punished(bytes32 fault) external view returns (bool) {
        return _borne[fault] == DONE;
    }

    /// @inheritdoc IStakeVault
    /// @dev What would leave first is taken first: exits from the oldest on, then active stake. Locks
    /// stay, so a slashed stake gets no new cover out of its loss.
    function slash(
        address key,
        Role role,
        uint256 bps,
        Victim[] calldata victims,
        address challenger,
        uint256 challengerBps,
        bytes32 fault
    ) external returns (Slashed memory slashed) {
        if (!isSlasher[msg.sender]) revert NotSlasher(msg.sender);
        address account = accountOf[key];
        // INVARIANT: one fault is punished once, by whichever judge comes first.
        if (account == address(0) || _borne[fault] == DONE) return slashed;

        Stake storage s = _stakes[account][role];
        // INVARIANT: what is leaving or could leave already counts and can be taken.
        uint256 whole = uint256(s.active) + s.unbonding;
        // INVARIANT: a slash never asks for more than is there, so it never reverts for want of it.
        uint256 share = FixedPointMathLib.min(bps, BPS);
        // INVARIANT: rounded up, so that a small stake does not round to no punishment.
        slashed.total = FixedPointMathLib.divUp(
            FixedPointMathLib.zeroFloorSub(whole, _borne[fault]) * share, BPS
        );
        if (slashed.total == 0) return slashed;
        // INVARIANT: nobody has a fault done with while poor; and no stake bears it twice.
        _borne[fault] = whole < leastStake() ? whole - slashed.total : DONE;
        _take(account, role, s, slashed.total);

        // INVARIANT: a quarter is gone before anyone is paid, so slashing oneself always costs.
        uint256 rest = slashed.total - FixedPointMathLib.divUp(slashed.total, 4);
        uint64 slice = sliceOf(block.timestamp + _times.unbonding) + 1;
        slashed.toVictims = _compensate(victims, rest, slice);
        if (challenger != address(0)) {
            // INVARIANT: an accuser never gets more than half of what he brings down.
            uint256 reward =
                slashed.total * FixedPointMathLib.min(challengerBps, MAX_CHALLENGER_BPS) / BPS;
            slashed.toChallenger = FixedPointMathLib.min(reward, rest - slashed.toVictims);
            _vest(challenger, slashed.toChallenger, slice);
        }
        uint256 paid = slashed.toVictims + slashed.toChallenger;
        slashed.burned = slashed.total - paid;
        _vesting += uint128(paid);
        _burned += uint128(slashed.burned);
        emit StakeSlashed(account, role, fault, slashed, challenger, msg.sender);
    }

    function _take(address account, Role role, Stake storage s, uint256 amount) private {
        uint256 left = amount;
        uint32 tail = s.exitTail;
        for (uint32 i = s.exitHead; i < tail && left != 0; ++i) {
            Exit storage exit = _exits[account][role][i];
            uint256 take = FixedPointMathLib.min(exit.amount, left);
            exit.amount -= uint96(take);
            left -= take;
        }
        uint256 fromExits = amount - left;
        s.unbonding -= uint96(fromExits);
        _unbonding -= uint128(fromExits);
        s.active -= uint96(left);
        _active -= uint128(left);
    }

    function _compensate(Victim[] calldata victims, uint256 rest, uint64 slice)
        private
        returns (uint256 paid)
    {
        // INVARIANT: bounded, whatever list a judge is handed.
        uint256 count = FixedPointMathLib.min(victims.length, MAX_VICTIMS);
        uint256 asked;
        for (uint256 i; i < count; ++i) {
            asked += FixedPointMathLib.min(victims[i].amount, type(uint128).max);
        }
        if (asked == 0) return 0;
        for (uint256 i; i < count; ++i) {
            if (victims[i].who == address(0)) continue;
            uint256 amount = FixedPointMathLib.min(victims[i].amount, type(uint128).max);
            // INVARIANT: victims together never get more than the slash leaves.
            if (asked > rest) amount = rest * amount / asked;
            _vest(victims[i].who, amount, slice);
            paid += amount;
        }
    }

    function _vest(address who, uint256 amount, uint64 slice) private {
        if (amount == 0) return;
        vestingOf[who][slice] += amount;
        emit Vested(who, amount, slice);
    }

    /// @notice Pays vested shares of slashes to whom they belong, or its beneficiary. Anyone may call.
    function claimVested(address who, uint64[] calldata slices)
        external
        nonReentrant
        returns (uint256 amount)
    {
        uint64 current = sliceOf(block.timestamp);
        for (uint256 i; i < slices.length; ++i) {
            // INVARIANT: no share leaves before the accused's own stake could have.
            if (slices[i] > current) revert NotVested(slices[i], current);
            amount += vestingOf[who][slices[i]];
            delete vestingOf[who][slices[i]];
        }
        if (amount == 0) revert ZeroAmount();
        address to = payoutTo(who);
        _vesting -= uint128(amount);
        _withdrawn += uint128(amount);
        emit VestedClaimed(who, amount, to);
        SafeTransferLib.safeTransfer(stakeToken, to, amount);
    }

    /// @notice Destroys what slashes have burned so far. Apart from the slash, so that no token can
    /// make a slash revert.
    function burn() external nonReentrant returns (uint256 amount) {
        amount = _burned - _burnedOut;
        if (amount == 0) revert ZeroAmount();
        _burnedOut = _burned;
        emit Burned(amount);
        try IBurnable(stakeToken).burn(amount) {}
        catch {
            SafeTransferLib.safeTransfer(stakeToken, DEAD, amount);
        }
    }
}
