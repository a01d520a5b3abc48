// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeCastLib} from "solady/utils/SafeCastLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {ExpiringPause} from "./ExpiringPause.sol";
import {StakeBook} from "./StakeBook.sol";
import {StakeLocks} from "./StakeLocks.sol";
import {StakeSlashing} from "./StakeSlashing.sol";
import {StakeTimes} from "./StakeTimes.sol";
import {IModelRegistry} from "./interfaces/IModelRegistry.sol";
import {Role} from "./interfaces/IStakeVault.sol";

/// @title StakeVault
/// @notice Holds every stake. Stake serves, then unbonds, then leaves to a beneficiary fixed at the
/// first deposit; from the first day to the last a judge can take it.
///
/// @dev The rule that makes a lie costly is one inequality: stake that served when a batch settled is
/// reachable until everything that batch can be accused of has been judged. A batch settled at T can
/// be judged until T + lockWindow. Stake asked out at T or later leaves at T + unbonding or later, and
/// unbonding > lockWindow. Stake asked out before T does not count as cover for that batch. Locks hold
/// longer only while a batch of their slice has no randomness, which anyone can bring about.
///
/// Here is what operators do; how long stake is held stands in `StakeTimes`, what is kept of it in
/// `StakeBook`, what the escrow asks in `StakeLocks` and what judges take in `StakeSlashing`.
contract StakeVault is StakeLocks, StakeSlashing {
    using SafeCastLib for uint256;

    uint256 public constant MAX_EXITS = 16;
    uint256 public constant MAX_MODELS = 32;

    IModelRegistry public immutable registry;

    mapping(address account => mapping(Role => uint256)) public modelCount;

    error NotForAccount(address caller, address account);
    error OperatorMustOpen(address caller, address operator);
    error BeneficiaryFixed(address fixedAt, address given);
    error KeyTaken(address key, address account);
    error KeyNotProposed(address key, address proposed);
    error UnknownModel(bytes32 model);
    error TooManyModels(uint256 limit);
    error ShortDeposit(uint256 asked, uint256 arrived);
    error NotEnoughStake(uint256 asked, uint256 active);
    error ExitQueueFull(uint256 limit, uint64 oldestMatureAt);
    error NothingToWithdraw(uint256 matured, uint256 held);

    constructor(
        address owner,
        address guardian,
        address stakeToken_,
        IModelRegistry registry_,
        uint64 sliceLength_,
        Times memory times_
    ) ExpiringPause(owner, guardian) StakeTimes(sliceLength_, times_) StakeBook(stakeToken_) {
        registry = registry_;
    }

    // ------------------------------------------------------------------ operators

    /// @notice Adds stake in a role, and models it serves. The first deposit opens the account, comes
    /// from the operator key itself and fixes the beneficiary; later ones come from either of them.
    /// @param account The operator key that opens or opened the account.
    function stake(
        address account,
        address beneficiary,
        Role role,
        uint256 amount,
        bytes32[] calldata models
    ) external whenNotPaused nonReentrant {
        _stake(account, beneficiary, role, amount, models);
    }

    /// @notice As `stake`, with a permit for the token first. A permit that somebody has already used
    /// leaves its allowance behind, so a failing one is passed over.
    function stakeWithPermit(
        address account,
        address beneficiary,
        Role role,
        uint256 amount,
        bytes32[] calldata models,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external whenNotPaused nonReentrant {
        try IERC20Permit(stakeToken).permit(msg.sender, address(this), amount, deadline, v, r, s) {}
            catch {}
        _stake(account, beneficiary, role, amount, models);
    }

    function _stake(
        address account,
        address beneficiary,
        Role role,
        uint256 amount,
        bytes32[] calldata models
    ) private {
        // INVARIANT: an empty call changes nobody's state.
        if (amount == 0) revert ZeroAmount();
        Account storage held = _accounts[account];
        if (held.beneficiary == address(0)) {
            // INVARIANT: nobody opens an account, and names its beneficiary, in another's name.
            if (msg.sender != account) revert OperatorMustOpen(msg.sender, account);
            if (beneficiary == address(0)) revert ZeroAddress("beneficiary");
            // INVARIANT: a key answers for one account only.
            if (accountOf[account] != address(0)) revert KeyTaken(account, accountOf[account]);
            accountOf[account] = account;
            held.beneficiary = beneficiary;
            held.operator = account;
            emit AccountOpened(account, beneficiary);
        } else {
            _requireFor(account, held);
            // INVARIANT: money goes where the first deposit said, whoever holds the hot key.
            if (beneficiary != held.beneficiary) {
                revert BeneficiaryFixed(held.beneficiary, beneficiary);
            }
        }
        for (uint256 i; i < models.length; ++i) {
            _setModel(account, role, models[i], true);
        }

        _pull(amount);
        _stakes[account][role].active += amount.toUint96();
        Fresh storage fresh = _fresh[account][role];
        // What was fresh still and what is new: less than what is staked, which has 96 bits.
        uint256 before = block.timestamp < fresh.until ? fresh.amount : 0;
        // INVARIANT: no stake raises the bond of an accusation that is under way already.
        _fresh[account][role] =
            Fresh(uint96(before + amount), uint64(block.timestamp) + sliceLength);
        _active += uint128(amount);
        _deposited += uint128(amount);
        emit Staked(account, role, amount, msg.sender);
    }

    /// @notice Says that the account serves a model in a role, or no longer.
    function setModel(address account, Role role, bytes32 model, bool served) external {
        _requireFor(account, _accounts[account]);
        _setModel(account, role, model, served);
    }

    function _setModel(address account, Role role, bytes32 model, bool served) private {
        if (_serves[account][role][model] == served) return;
        if (served) {
            if (!registry.isRegistered(model)) revert UnknownModel(model);
            if (++modelCount[account][role] > MAX_MODELS) revert TooManyModels(MAX_MODELS);
        } else {
            --modelCount[account][role];
        }
        _serves[account][role][model] = served;
        emit ModelServed(account, role, model, served);
    }

    /// @notice Asks `amount` of active stake out. It serves no more from now, and stays slashable
    /// until it is withdrawn.
    function unstake(address account, Role role, uint256 amount)
        external
        returns (uint64 matureAt)
    {
        _requireFor(account, _accounts[account]);
        if (amount == 0) revert ZeroAmount();
        Stake storage s = _stakes[account][role];
        if (amount > s.active) revert NotEnoughStake(amount, s.active);
        (uint32 head, uint32 tail) = (s.exitHead, s.exitTail);
        // INVARIANT: a slash walks at most this many exits.
        if (tail - head >= MAX_EXITS) {
            revert ExitQueueFull(MAX_EXITS, _exits[account][role][head].matureAt);
        }
        matureAt = uint64(block.timestamp) + _times.unbonding;
        if (tail > head) {
            // The queue stays in order when the period has been shortened meanwhile.
            uint64 before = _exits[account][role][tail - 1].matureAt;
            if (before > matureAt) matureAt = before;
        }
        _exits[account][role][tail] = Exit(uint96(amount), matureAt);
        s.exitTail = tail + 1;
        s.active -= uint96(amount);
        s.unbonding += uint96(amount);
        _active -= uint128(amount);
        _unbonding += uint128(amount);
        emit UnstakeStarted(account, role, amount, matureAt);
    }

    /// @notice Pays all matured exits to the beneficiary, less what undrawn batches still lock.
    function withdraw(address account, Role role) external nonReentrant returns (uint256 amount) {
        Account storage held = _accounts[account];
        _requireFor(account, held);
        Stake storage s = _stakes[account][role];
        _release(account, role, s, MAX_EXITS);

        uint256 whole = uint256(s.active) + s.unbonding;
        uint256 free = FixedPointMathLib.zeroFloorSub(whole, s.locked);
        uint256 matured;
        uint32 head = s.exitHead;
        uint32 tail = s.exitTail;
        while (head < tail) {
            Exit storage exit = _exits[account][role][head];
            // INVARIANT: stake stays the unbonding period it was asked out under.
            if (block.timestamp < exit.matureAt) break;
            matured += exit.amount;
            // INVARIANT: stake that covers a batch without randomness stays.
            uint256 take = FixedPointMathLib.min(exit.amount, free - amount);
            amount += take;
            if (take < exit.amount) {
                exit.amount -= uint96(take);
                break;
            }
            delete _exits[account][role][head];
            ++head;
        }
        // Exits that a slash emptied leave the queue too, else sixteen of them would bar it for ever.
        if (amount == 0 && head == s.exitHead) revert NothingToWithdraw(matured, s.locked);
        s.exitHead = head;
        s.unbonding -= uint96(amount);
        _unbonding -= uint128(amount);
        _withdrawn += uint128(amount);
        emit Withdrawn(account, role, amount, held.beneficiary);
        SafeTransferLib.safeTransfer(stakeToken, held.beneficiary, amount);
    }

    /// @notice Names the key that shall sign for the account; it takes over by `acceptKey`.
    function proposeKey(address account, address key) external {
        Account storage held = _accounts[account];
        _requireFor(account, held);
        if (key == address(0)) revert ZeroAddress("key");
        if (accountOf[key] != address(0)) revert KeyTaken(key, accountOf[key]);
        held.proposed = key;
        emit KeyProposed(account, key);
    }

    /// @notice The proposed key takes over. Its consent is this call: nobody ties a stranger's key to
    /// an account of his. What retired keys have signed the account goes on answering for.
    function acceptKey(address account) external {
        Account storage held = _accounts[account];
        if (held.proposed != msg.sender) revert KeyNotProposed(msg.sender, held.proposed);
        // INVARIANT: a key answers for one account only.
        if (accountOf[msg.sender] != address(0)) {
            revert KeyTaken(msg.sender, accountOf[msg.sender]);
        }
        address retired = held.operator;
        accountOf[msg.sender] = account;
        retiredAt[retired] = uint64(block.timestamp);
        held.operator = msg.sender;
        held.proposed = address(0);
        emit KeyRotated(account, retired, msg.sender);
    }

    // ------------------------------------------------------------------ inside

    function _requireFor(address account, Account storage held) private view {
        if (held.beneficiary == address(0)) revert UnknownAccount(account);
        // INVARIANT: only the account's own key or its beneficiary moves its stake.
        if (msg.sender != held.operator && msg.sender != held.beneficiary) {
            revert NotForAccount(msg.sender, account);
        }
    }

    function _pull(uint256 amount) private {
        uint256 before = SafeTransferLib.balanceOf(stakeToken, address(this));
        SafeTransferLib.safeTransferFrom(stakeToken, msg.sender, address(this), amount);
        uint256 arrived = SafeTransferLib.balanceOf(stakeToken, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != amount) revert ShortDeposit(amount, arrived);
    }
}
