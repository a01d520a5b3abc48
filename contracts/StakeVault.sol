// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeCastLib} from "solady/utils/SafeCastLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {ExpiringPause} from "./ExpiringPause.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IJudgeClock} from "./interfaces/IJudgeClock.sol";
import {IModelRegistry} from "./interfaces/IModelRegistry.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

interface IBurnable {
    function burn(uint256 amount) external;
}

/// @title StakeVault
/// @notice Holds every stake. Stake serves, then unbonds, then leaves to a beneficiary fixed at the
/// first deposit; from the first day to the last a judge can take it.
///
/// @dev The rule that makes a lie costly is one inequality: stake that served when a batch settled is
/// reachable until everything that batch can be accused of has been judged. A batch settled at T can
/// be judged until T + lockWindow. Stake asked out at T or later leaves at T + unbonding or later, and
/// unbonding > lockWindow. Stake asked out before T does not count as cover for that batch. Locks hold
/// longer only while a batch of their slice has no randomness, which anyone can bring about.
// Constants count as states there; the vault is one book, and its pages belong together.
// solhint-disable-next-line max-states-count
contract StakeVault is IStakeVault, ExpiringPause, ReentrancyGuardTransient {
    using SafeCastLib for uint256;

    uint256 public constant BPS = 10_000;
    uint256 public constant MAX_EXITS = 16;
    uint256 public constant MAX_MODELS = 32;
    uint256 public constant MAX_VICTIMS = 16;
    uint256 public constant MAX_CHALLENGER_BPS = 5_000;
    /// @notice Slices that one settlement tries to release on its way.
    uint256 public constant RELEASES_PER_CALL = 4;
    /// @notice No span of `Times` is longer, so no sum of them overflows anything.
    uint32 public constant MAX_SPAN = 365 days;
    /// @notice Where burned stake goes if its token cannot destroy it.
    address public constant DEAD = 0x000000000000000000000000000000000000dEaD;

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

    address public immutable stakeToken;
    IModelRegistry public immutable registry;
    /// @notice Seconds in a slice.
    uint64 public immutable sliceLength;

    address public escrow;
    IDrawBeacon public beacon;
    /// @notice Says how long a panel and its appeal really take; zero until there is a panel.
    IJudgeClock public clock;

    mapping(address key => address) public accountOf;
    mapping(address key => uint64) public retiredAt;
    mapping(address judge => bool) public isSlasher;
    mapping(bytes32 fault => bool) public punished;
    mapping(address account => Account) private _accounts;
    mapping(address account => mapping(Role => Stake)) private _stakes;
    mapping(address account => mapping(Role => mapping(uint256 index => Exit))) private _exits;
    mapping(address account => mapping(Role => mapping(uint64 slice => SliceLock))) private _locks;
    mapping(address account => mapping(Role => mapping(bytes32 model => bool))) private _serves;
    mapping(address account => mapping(Role => uint256)) public modelCount;
    mapping(address who => mapping(uint64 slice => uint256)) public vestingOf;

    Times private _times;
    uint128 private _deposited;
    uint128 private _active;
    uint128 private _unbonding;
    uint128 private _vesting;
    uint128 private _withdrawn;
    uint128 private _burned;
    uint128 private _burnedOut;

    error ZeroAddress(string what);
    error ZeroAmount();
    error AlreadyWired(address escrow);
    error NotEscrow(address caller, address escrow);
    error NotSlasher(address caller);
    error NotForAccount(address caller, address account);
    error UnknownAccount(address account);
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
    error NotLockable(uint256 asked, uint256 lockable);
    error UnbondingTooShort(uint256 unbonding, uint256 needed);
    error JudgeTakesLonger(string what, uint256 span, uint256 given);
    error SpanTooLong(uint256 span, uint256 limit);
    error SpanZero();
    error NotVested(uint64 slice, uint64 now_);

    constructor(
        address owner,
        address guardian,
        address stakeToken_,
        IModelRegistry registry_,
        uint64 sliceLength_,
        Times memory times_
    ) ExpiringPause(owner, guardian) {
        if (stakeToken_ == address(0)) revert ZeroAddress("stakeToken");
        if (sliceLength_ == 0) revert SpanZero();
        if (sliceLength_ > MAX_SPAN) revert SpanTooLong(sliceLength_, MAX_SPAN);
        stakeToken = stakeToken_;
        registry = registry_;
        sliceLength = sliceLength_;
        _setTimes(times_);
    }

    // ------------------------------------------------------------------ owner

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

    /// @notice Names whose spans `panel` and `appeal` must have room for, from now on.
    function setClock(IJudgeClock clock_) external onlyOwner {
        if (address(clock_) == address(0)) revert ZeroAddress("clock");
        clock = clock_;
        _requireTimeFor(clock_, _times);
        emit ClockSet(address(clock_));
    }

    /// @notice Lets a judge slash, or no longer.
    function setSlasher(address judge, bool allowed) external onlyOwner {
        if (judge == address(0)) revert ZeroAddress("judge");
        isSlasher[judge] = allowed;
        emit SlasherSet(judge, allowed);
    }

    /// @notice Changes the spans for batches and exits that begin from now on.
    function setTimes(Times calldata times_) external onlyOwner {
        _setTimes(times_);
    }

    function _setTimes(Times memory t) private {
        uint256 judged = _judged(t);
        uint256 needed = judged + t.margin;
        // INVARIANT: no stake leaves before everything it served for can have been judged.
        if (t.unbonding < needed) revert UnbondingTooShort(t.unbonding, needed);
        // INVARIANT: no exit is pushed beyond reach, and no sum of spans overflows.
        if (t.unbonding > MAX_SPAN) revert SpanTooLong(t.unbonding, MAX_SPAN);
        if (t.evidence == 0 || t.firstDeadline == 0 || t.secondDeadline == 0 || t.margin == 0) {
            revert SpanZero();
        }
        if (address(clock) != address(0)) _requireTimeFor(clock, t);
        _times = t;
        emit TimesChanged(t);
    }

    function _requireTimeFor(IJudgeClock clock_, Times memory t) private view {
        (uint256 panel, uint256 appeal) = clock_.spans();
        // INVARIANT: stake is held as long as those who judge it take.
        if (t.panel < panel) revert JudgeTakesLonger("panel", panel, t.panel);
        if (t.appeal < appeal) revert JudgeTakesLonger("appeal", appeal, t.appeal);
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

    // ------------------------------------------------------------------ locks

    /// @inheritdoc IStakeVault
    function cover(address key, Role role)
        external
        returns (address account, uint256 lockable, uint256 reachable)
    {
        account = accountOf[key];
        if (account == address(0)) return (account, 0, 0);
        Stake storage s = _stakes[account][role];
        _release(account, role, s, RELEASES_PER_CALL);
        uint256 active = s.active;
        lockable = FixedPointMathLib.zeroFloorSub(active, s.locked);
        reachable = active + s.unbonding;
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
        private
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

    // ------------------------------------------------------------------ judges

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
        if (account == address(0) || punished[fault]) return slashed;

        Stake storage s = _stakes[account][role];
        // INVARIANT: what is leaving or could leave already counts and can be taken.
        uint256 whole = uint256(s.active) + s.unbonding;
        // INVARIANT: a slash never asks for more than is there, so it never reverts for want of it.
        uint256 share = FixedPointMathLib.min(bps, BPS);
        // INVARIANT: rounded up, so that a small stake does not round to no punishment.
        slashed.total = FixedPointMathLib.divUp(whole * share, BPS);
        // Where nothing is there to take, the fault stays open: nobody has it done with while poor.
        if (slashed.total == 0) return slashed;
        punished[fault] = true;
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

    // ------------------------------------------------------------------ read

    /// @inheritdoc IStakeVault
    function times() external view returns (Times memory) {
        return _times;
    }

    /// @inheritdoc IStakeVault
    function lockWindow() public view returns (uint64) {
        return uint64(_judged(_times));
    }

    /// @inheritdoc IStakeVault
    /// @dev Slice 0 is no slice: lists end there.
    function sliceOf(uint256 timestamp) public view returns (uint64) {
        return uint64(timestamp / sliceLength) + 1;
    }

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

    // ------------------------------------------------------------------ inside

    function _judged(Times memory t) private pure returns (uint256) {
        return uint256(t.evidence) + t.firstDeadline + t.secondDeadline + t.panel + t.appeal;
    }

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
