// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {StakeTimes} from "./StakeTimes.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

/// @title StakeBook
/// @notice What the vault keeps of every account and stake, and how it is read.
abstract contract StakeBook is StakeTimes {
    struct Account {
        address beneficiary;
        address operator;
        address proposed;
    }

    /// @dev Two slots. Exits are a queue by index: [exitHead, exitTail).
    struct Stake {
        uint96 active;
        uint96 unbonding;
        uint32 exitHead;
        uint32 exitTail;
        uint128 locked;
        uint64 firstSlice;
        uint64 lastSlice;
    }

    struct Exit {
        uint96 amount;
        uint64 matureAt;
    }

    /// @dev A linked list by slice: `next` is the following slice with a lock of this stake.
    struct SliceLock {
        uint96 amount;
        uint64 releaseAt;
        uint64 next;
    }

    /// @dev What was staked since `until` less a slice of time, while that is not over.
    struct Fresh {
        uint96 amount;
        uint64 until;
    }

    address public immutable stakeToken;

    mapping(address key => address) public accountOf;
    mapping(address key => uint64) public retiredAt;
    mapping(address account => Account) internal _accounts;
    mapping(address account => mapping(Role => Stake)) internal _stakes;
    mapping(address account => mapping(Role => mapping(uint256 index => Exit))) internal _exits;
    mapping(address account => mapping(Role => mapping(uint64 slice => SliceLock))) internal _locks;
    mapping(address account => mapping(Role => mapping(bytes32 model => bool))) internal _serves;
    mapping(address account => mapping(Role => Fresh)) internal _fresh;

    // Two to a slot, so that a slash writes two slots and an exit one.
    uint128 internal _deposited;
    uint128 internal _withdrawn;
    uint128 internal _active;
    uint128 internal _unbonding;
    uint128 internal _vesting;
    uint128 internal _burned;
    uint128 internal _burnedOut;

    error ZeroAmount();

    constructor(address stakeToken_) {
        if (stakeToken_ == address(0)) revert ZeroAddress("stakeToken");
        stakeToken = stakeToken_;
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IStakeVault
    function operatorOf(address account) external view returns (address) {
        return _accounts[account].operator;
    }

    /// @notice Where the account's money goes, fixed at its first deposit; zero for no account.
    function beneficiaryOf(address account) external view returns (address) {
        return _accounts[account].beneficiary;
    }

    /// @inheritdoc IStakeVault
    function payoutTo(address key) public view returns (address) {
        address account = accountOf[key];
        return account == address(0) ? key : _accounts[account].beneficiary;
    }

    /// @inheritdoc IStakeVault
    function slashable(address key, Role role) external view returns (uint256) {
        Stake storage s = _stakes[accountOf[key]][role];
        return uint256(s.active) + s.unbonding;
    }

    /// @inheritdoc IStakeVault
    function seasoned(address key, Role role) external view returns (uint256) {
        address account = accountOf[key];
        Stake storage s = _stakes[account][role];
        Fresh storage fresh = _fresh[account][role];
        uint256 whole = uint256(s.active) + s.unbonding;
        return
            block.timestamp < fresh.until
                ? FixedPointMathLib.zeroFloorSub(whole, fresh.amount)
                : whole;
    }

    /// @inheritdoc IStakeVault
    function activeStake(address key, Role role) external view returns (uint256) {
        return _stakes[accountOf[key]][role].active;
    }

    /// @inheritdoc IStakeVault
    function serves(address key, Role role, bytes32 model) external view returns (bool) {
        return _serves[accountOf[key]][role][model];
    }

    /// @notice The stake behind `key`: how much serves, unbonds and is locked.
    function stakeOf(address key, Role role) external view returns (Stake memory) {
        return _stakes[accountOf[key]][role];
    }

    /// @notice The exits under way, oldest first.
    function exitsOf(address key, Role role) external view returns (Exit[] memory exits) {
        address account = accountOf[key];
        Stake storage s = _stakes[account][role];
        uint256 head = s.exitHead;
        exits = new Exit[](s.exitTail - head);
        for (uint256 i; i < exits.length; ++i) {
            exits[i] = _exits[account][role][head + i];
        }
    }

    /// @notice What the stake has locked in one slice.
    function lockIn(address key, Role role, uint64 slice) external view returns (SliceLock memory) {
        return _locks[accountOf[key]][role][slice];
    }

    /// @inheritdoc IStakeVault
    function accounting() external view returns (VaultAccounting memory) {
        return VaultAccounting({
            deposited: _deposited,
            active: _active,
            unbonding: _unbonding,
            vesting: _vesting,
            withdrawn: _withdrawn,
            burned: _burned,
            burnedOut: _burnedOut
        });
    }
}
