// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {Checkpoints} from "@openzeppelin/contracts/utils/structs/Checkpoints.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {IAuditorPool} from "./interfaces/IAuditorPool.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

/// @title AuditorPool
/// @notice For each model a thousand seats under a sum tree of stakes, with its history: a draw walks
/// ten levels, whatever the number of auditors, over weights that nobody can change any more.
///
/// @dev The vault tells nobody of its changes, so a seat's weight is what the last `sync` saw. Weights
/// too low cost the auditor its own chance. Weights too high are harmless while the stake is on its way
/// out, for it can still be slashed; who draws looks at what stands behind a seat (`Juries`), and
/// anyone may bring it up to date.
///
/// One beneficiary has one seat: so who is left out of a draw is left out with all his keys, and no
/// seat is won by splitting stake. That a stranger names one's beneficiary as his own only gives his
/// stake away: the larger stake keeps the seat.
contract AuditorPool is IAuditorPool, Ownable2Step {
    using Checkpoints for Checkpoints.Trace208;

    uint256 public constant DEPTH = 10;
    /// @notice Of a model. When all are taken, a larger stake takes over a smaller one's.
    uint256 public constant SEATS = 1 << DEPTH;

    IStakeVault public immutable vault;
    /// @notice Who has less takes no seat.
    uint96 public minStake;

    /// @dev Node 1 is the whole, 2n and 2n + 1 the halves of n, SEATS + s the seat s.
    mapping(bytes32 model => mapping(uint256 node => Checkpoints.Trace208)) private _weights;
    mapping(bytes32 model => mapping(uint256 seat => Checkpoints.Trace208)) private _holders;
    /// @dev By beneficiary, plus one.
    mapping(bytes32 model => mapping(address payout => uint256)) private _seatOf;
    mapping(bytes32 model => uint256[]) private _free;
    mapping(bytes32 model => uint256) public opened;

    error ZeroAddress(string what);
    error NotAnAccount(address account);
    error NotForAccount(address caller, address account);
    error SeatTaken(address payout, address holder, uint256 weight);
    error PoolFull(uint256 displace, uint256 weight);
    error MinStakeZero();
    error NoSuchSeat(uint256 seat);

    constructor(address owner, IStakeVault vault_, uint96 minStake_) Ownable(owner) {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        vault = vault_;
        _setMinStake(minStake_);
    }

    /// @notice Who falls below a raised minimum leaves at the next `sync`.
    function setMinStake(uint96 minStake_) external onlyOwner {
        _setMinStake(minStake_);
    }

    function _setMinStake(uint96 minStake_) private {
        // INVARIANT: filling all seats is never free.
        if (minStake_ == 0) revert MinStakeZero();
        minStake = minStake_;
        emit MinStakeChanged(minStake_);
    }

    // ------------------------------------------------------------------ seats

    /// @inheritdoc IAuditorPool
    function sync(address account, bytes32 model, uint256 displace)
        external
        returns (uint256 weight)
    {
        if (account == address(0) || vault.accountOf(account) != account) {
            revert NotAnAccount(account);
        }
        weight = eligible(account, model);
        address payout = vault.payoutTo(account);
        uint256 place = _seatOf[model][payout];
        uint256 seat;
        if (place != 0) {
            seat = place - 1;
            address holder = holderOf(model, seat);
            if (holder != account) {
                uint256 held = eligible(holder, model);
                // INVARIANT: one beneficiary, one seat, and nobody loses it to a smaller stake.
                if (held >= weight) revert SeatTaken(payout, holder, held);
                _requireConsent(account, payout);
                _hold(model, seat, account);
            }
        } else {
            if (weight == 0) return 0;
            _requireConsent(account, payout);
            seat = _vacant(model, weight, displace);
            _seatOf[model][payout] = seat + 1;
            _hold(model, seat, account);
        }
        if (weight == 0) {
            delete _seatOf[model][payout];
            _free[model].push(seat);
        }
        _weigh(model, seat, weight);
        emit SeatChanged(model, account, seat, weight);
    }

    /// @dev INVARIANT: nobody is made to answer, and to pay for silence, who has not asked to.
    function _requireConsent(address account, address payout) private view {
        if (msg.sender != vault.operatorOf(account) && msg.sender != payout) {
            revert NotForAccount(msg.sender, account);
        }
    }

    function _vacant(bytes32 model, uint256 weight, uint256 displace)
        private
        returns (uint256 seat)
    {
        uint256 free = _free[model].length;
        if (free != 0) {
            seat = _free[model][free - 1];
            _free[model].pop();
            return seat;
        }
        seat = opened[model];
        if (seat < SEATS) {
            opened[model] = seat + 1;
            return seat;
        }
        if (displace >= SEATS) revert NoSuchSeat(displace);
        address holder = holderOf(model, displace);
        // INVARIANT: nobody is put out by a stake that is not larger.
        if (eligible(holder, model) >= weight) revert PoolFull(displace, weight);
        delete _seatOf[model][vault.payoutTo(holder)];
        emit SeatChanged(model, holder, displace, 0);
        return displace;
    }

    function _hold(bytes32 model, uint256 seat, address account) private {
        _holders[model][seat].push(uint48(block.number), uint160(account));
    }

    function _weigh(bytes32 model, uint256 seat, uint256 weight) private {
        uint256 node = SEATS + seat;
        uint256 before = _weights[model][node].latest();
        if (before == weight) return;
        for (; node != 0; node >>= 1) {
            Checkpoints.Trace208 storage trace = _weights[model][node];
            // Stakes have 96 bits, and there are 2**10 seats.
            // forge-lint: disable-next-line(unsafe-typecast)
            trace.push(uint48(block.number), uint208(trace.latest() + weight - before));
        }
    }

    // ------------------------------------------------------------------ read

    /// @notice What an account's seat would weigh if it were brought up to date now.
    function eligible(address account, bytes32 model) public view returns (uint256 weight) {
        if (!vault.serves(account, Role.AUDITOR, model)) return 0;
        weight = vault.activeStake(account, Role.AUDITOR);
        if (weight < minStake) weight = 0;
    }

    /// @notice Who had a seat last, whether it weighs anything or not.
    function holderOf(bytes32 model, uint256 seat) public view returns (address) {
        return address(uint160(_holders[model][seat].latest()));
    }

    /// @notice The seat of a beneficiary's auditor, and what it weighs in draws from now on.
    function seatOf(address payout, bytes32 model)
        external
        view
        returns (bool seated, uint256 seat, uint256 weight)
    {
        uint256 place = _seatOf[model][payout];
        if (place == 0) return (false, 0, 0);
        return (true, place - 1, _weights[model][SEATS + place - 1].latest());
    }

    /// @inheritdoc IAuditorPool
    function totalAt(bytes32 model, uint256 at) external view returns (uint256) {
        return _weightAt(model, 1, at);
    }

    /// @inheritdoc IAuditorPool
    function drawAt(
        bytes32 model,
        uint256 at,
        uint256 word,
        uint256[] calldata taken,
        uint256 count
    ) external view returns (address account, uint256 seat, uint256 weight) {
        uint256[] memory weights = new uint256[](count);
        uint256 left = _weightAt(model, 1, at);
        for (uint256 i; i < count; ++i) {
            weights[i] = _weightAt(model, SEATS + taken[i], at);
            left = FixedPointMathLib.zeroFloorSub(left, weights[i]);
        }
        if (left == 0) return (address(0), 0, 0);
        // Of 256 bits over less than 2**106: the remainder favours nobody by more than 2**-150.
        seat = _walk(model, at, word % left, taken, weights);
        weight = _weightAt(model, SEATS + seat, at);
        account = address(uint160(_holders[model][seat].upperLookupRecent(uint48(at))));
    }

    /// @dev From the root down, as if the taken seats weighed nothing.
    function _walk(
        bytes32 model,
        uint256 at,
        uint256 place,
        uint256[] calldata taken,
        uint256[] memory weights
    ) private view returns (uint256) {
        uint256 node = 1;
        while (node < SEATS) {
            node <<= 1;
            uint256 sum = _weightAt(model, node, at) - _within(node, taken, weights);
            if (place >= sum) {
                place -= sum;
                ++node;
            }
        }
        return node - SEATS;
    }

    /// @dev What the taken seats under a node weigh.
    function _within(uint256 node, uint256[] calldata taken, uint256[] memory weights)
        private
        pure
        returns (uint256 sum)
    {
        uint256 shift = DEPTH - FixedPointMathLib.log2(node);
        for (uint256 i; i < weights.length; ++i) {
            if ((SEATS + taken[i]) >> shift == node) sum += weights[i];
        }
    }

    function _weightAt(bytes32 model, uint256 node, uint256 at) private view returns (uint256) {
        return _weights[model][node].upperLookupRecent(uint48(at));
    }
}
