// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What a stake answers for. An operator may hold one stake in each.
enum Role {
    DRAFTER,
    VERIFIER,
    AUDITOR
}

/// @title IStakeVault
/// @notice Stakes by operator and role, their exit, their locks and their loss.
///
/// @dev Assumed of the stake token, as Morpho Blue states its own: ERC-20; a transfer moves exactly
/// the amount asked for (no fee on transfer); no balance changes without a transfer (no rebasing);
/// no call-back into the sender or receiver that matters (every entry point is guarded all the same);
/// less than 2**96 units exist. A deposit that arrives short is refused by balance difference.
///
/// An **account** is named by the operator key that opened it. A **key** is any operator key that the
/// account ever had: the functions that judges and the escrow call take keys, so that what an old key
/// signed stays slashable. Functions for the escrow and for judges never revert on a key without an
/// account: it has nothing, so nothing can be locked or taken.
interface IStakeVault {
    /// @notice Every span of time that the protocol's safety rests on, in seconds, in one slot.
    /// @dev `unbonding ≥ evidence + firstDeadline + secondDeadline + panel + appeal + margin` whenever
    /// any of them changes. What counts for a batch or an exit is what stood when it was made.
    struct Times {
        uint32 evidence; // after settlement, while evidence may be filed
        uint32 firstDeadline; // to answer a draw or demand
        uint32 secondDeadline; // after the first, to answer still
        uint32 panel; // commit and reveal of a panel
        uint32 appeal; // all appeals together
        uint32 margin; // for congestion and re-anchored randomness
        uint32 unbonding; // from asking out to withdrawing
    }

    /// @notice Someone a fault has cost money, and how much, in units of the stake token.
    struct Victim {
        address who;
        uint256 amount;
    }

    /// @notice Where a slash went. `total = burned + toVictims + toChallenger`.
    struct Slashed {
        uint256 total;
        uint256 burned;
        uint256 toVictims;
        uint256 toChallenger;
    }

    /// @notice Where every deposited unit is. `deposited = active + unbonding + vesting + withdrawn +
    /// burned`, and the vault's balance is `deposited − withdrawn − burnedOut`.
    struct VaultAccounting {
        uint256 deposited;
        uint256 active;
        uint256 unbonding; // matured but not yet withdrawn included
        uint256 vesting; // victims' and challengers' shares, matured but not yet claimed included
        uint256 withdrawn;
        uint256 burned; // booked as burned, whether or not destroyed yet
        uint256 burnedOut; // of it, already destroyed
    }

    event AccountOpened(address indexed account, address indexed beneficiary);
    event Staked(address indexed account, Role indexed role, uint256 amount, address from);
    event ModelServed(
        address indexed account, Role indexed role, bytes32 indexed model, bool served
    );
    event UnstakeStarted(
        address indexed account, Role indexed role, uint256 amount, uint64 matureAt
    );
    event Withdrawn(address indexed account, Role indexed role, uint256 amount, address to);
    event KeyProposed(address indexed account, address indexed key);
    event KeyRotated(address indexed account, address indexed retired, address indexed key);
    event StakeLocked(
        address indexed account, Role indexed role, uint256 amount, uint64 slice, uint64 releaseAt
    );
    event LockReleased(address indexed account, Role indexed role, uint256 amount, uint64 slice);
    event StakeSlashed(
        address indexed account,
        Role indexed role,
        bytes32 indexed fault,
        Slashed slashed,
        address challenger,
        address judge
    );
    event Vested(address indexed who, uint256 amount, uint64 slice);
    event VestedClaimed(address indexed who, uint256 amount, address to);
    event Burned(uint256 amount);
    event TimesChanged(Times times);
    event SlasherSet(address indexed judge, bool allowed);
    event LeastStakeSet(uint96 leastStake, uint64 from);
    event Wired(address escrow, address beacon);
    event ClockSet(address clock);

    // ------------------------------------------------------------------ read

    /// @notice The token that is staked, lost and burned.
    function stakeToken() external view returns (address);

    function times() external view returns (Times memory);

    /// @notice Seconds that stake stays locked for a settled batch: all of `times` up to, and
    /// without, the margin.
    function lockWindow() external view returns (uint64);

    /// @notice The time slice that `timestamp` lies in. Locks and draws are counted by slice; its
    /// length never changes.
    function sliceOf(uint256 timestamp) external view returns (uint64);

    /// @notice The account that `key` is or was the operator key of; zero if none.
    function accountOf(address key) external view returns (address);

    /// @notice The account's operator key now: the only one that may sign for it from here on.
    function operatorOf(address account) external view returns (address);

    /// @notice When `key` was rotated out; zero while it is current or unknown.
    function retiredAt(address key) external view returns (uint64);

    /// @notice Where money for `key` goes: its account's beneficiary, or `key` itself without one.
    function payoutTo(address key) external view returns (address);

    /// @notice All that a slash of `key` in `role` can reach: active, unbonding and matured.
    function slashable(address key, Role role) external view returns (uint256);

    /// @notice As `slashable`, without what was staked within the last slice of time: each deposit
    /// begins that anew for all that is fresh. What bonds of accusations are reckoned by.
    function seasoned(address key, Role role) external view returns (uint256);

    /// @notice Stake that serves: not unbonding. What draws are weighted by.
    function activeStake(address key, Role role) external view returns (uint256);

    /// @notice Whether the account behind `key` serves `model` in `role`.
    function serves(address key, Role role, bytes32 model) external view returns (bool);

    function accounting() external view returns (VaultAccounting memory);

    // ------------------------------------------------------------------ escrow

    /// @notice Releases up to four matured slices of the stake's locks, then says what is there.
    /// Anyone may call: nothing is released before its time.
    /// @return account Zero when the key has none.
    /// @return lockable Active stake that no batch locks yet.
    /// @return reachable All active stake. What unbonds can be slashed as long as it is there, but may
    /// have left before a batch of now is judged.
    function cover(address key, Role role)
        external
        returns (address account, uint256 lockable, uint256 reachable);

    /// @notice Locks `amount` of the stake behind `key` for a batch settled now. Only the escrow, and
    /// never more than `cover` says is lockable.
    function lock(address key, Role role, uint256 amount) external;

    // ------------------------------------------------------------------ judges

    /// @notice Takes `bps` of everything that `slashable` counts, rounded up, capped at what is there.
    /// A quarter (rounded up) is burned first; victims then get up to their amounts, pro rata and
    /// rounded down where it does not reach; then the challenger up to `challengerBps` of the slash,
    /// at most half; the rest is burned. Shares vest for the unbonding period.
    /// @dev Only an authorised judge. Never reverts on any state of the accused: an unknown key, an
    /// empty stake or a fault already punished takes nothing and returns zeros. At most 16 victims.
    /// @param fault Names the fault once for all judges (e.g. keccak of id, session and round): a
    /// second slash under the same name takes nothing. Stages of one fault are named apart. A stake below
    /// `leastStake` is slashed and leaves the fault open for what is staked after it, so that nobody has
    /// a fault done with while poor; no stake bears the same fault twice.
    function slash(
        address key,
        Role role,
        uint256 bps,
        Victim[] calldata victims,
        address challenger,
        uint256 challengerBps,
        bytes32 fault
    ) external returns (Slashed memory);

    /// @notice Whether a slash under this name was carried out, of a stake of `leastStake` or more.
    function punished(bytes32 fault) external view returns (bool);
}
