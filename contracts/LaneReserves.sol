// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeCastLib} from "solady/utils/SafeCastLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {ExpiringPause} from "./ExpiringPause.sol";
import {IAlphaLedger} from "./interfaces/IAlphaLedger.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IStakeVault} from "./interfaces/IStakeVault.sol";
import {LanePositions} from "./libraries/LanePositions.sol";
import {Records} from "./libraries/Records.sol";

/// @title LaneReserves
/// @notice The escrow's books: what clients put in and take out, what payees pull, what audits cost,
/// and what the owner may set. What moves money from a reserve to its payees is `LaneEscrow`.
///
/// @dev Money moves in three ways only: in by `reserve`, out by `collectThawed` and `withdraw`, and
/// between reserve, fees and credits by `settle` and `spendFees`; each keeps
/// deposited = reserves + fees + payable + withdrawn.
abstract contract LaneReserves is ILaneEscrow, ExpiringPause, ReentrancyGuardTransient {
    using SafeCastLib for uint256;

    uint16 public constant MAX_FEE_BPS = 1_000;
    uint16 public constant MAX_LOCK_FACTOR = 100;
    uint32 public constant MIN_THAW = 10 minutes;
    uint32 public constant MAX_THAW = 365 days;
    /// @notice A token's price in stake units stays below this, in Q32.
    uint128 public constant MAX_PRICE_Q32 = 1 << 96;

    /// @dev What a settlement touches of a lane: one slot.
    struct Hot {
        uint96 reserve;
        uint160 position;
    }

    /// @dev What it does not: one slot more. Thawing is a part of `Hot.reserve`.
    struct Cold {
        uint96 thawing;
        uint64 thawedAt;
        uint64 soloFrom;
        uint32 epoch;
    }

    struct Terms {
        uint128 stakePriceQ32;
        bool open;
    }

    struct Totals {
        uint128 reserves;
        uint128 fees;
        uint128 earned;
        uint128 withdrawn;
        uint128 deposited;
    }

    IStakeVault public immutable vault;

    IAlphaLedger public ledger;
    IDrawBeacon public beacon;
    mapping(address spender => bool) public isFeeSpender;
    mapping(address token => Terms) public termsOf;
    mapping(address account => mapping(address token => uint256)) public payableTo;
    mapping(bytes32 lane => mapping(uint32 epoch => uint160)) public pastPosition;

    Parameters internal _parameters;
    mapping(address token => Totals) internal _totals;
    mapping(bytes32 lane => Hot) internal _hot;
    mapping(bytes32 lane => Cold) internal _cold;

    error ZeroAddress(string what);
    error ZeroAmount();
    error AlreadyWired(address ledger);
    error NotWired();
    error BadParameter(string name, uint256 value, uint256 low, uint256 high);
    error TokenNotListed(address token);
    error ShortDeposit(uint256 asked, uint256 arrived);
    error ClaimNotOf(bytes32 claimId, address drafter, address publisher);
    error NotClient(address caller, address client);
    error NotVerifier(address caller, address verifier);
    error NotParty(address caller, bytes32 lane);
    error NotFeeSpender(address caller);
    error NotEnoughReserve(uint256 asked, uint256 reserve);
    error NotOpened(bytes32 lane);
    error NothingThaws(bytes32 lane);
    error StillThawing(uint64 thawedAt, uint256 now_);
    error NothingPayable(address account, address token);

    constructor(address owner, address guardian, IStakeVault vault_, Parameters memory parameters_)
        ExpiringPause(owner, guardian)
    {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        vault = vault_;
        _setParameters(parameters_);
    }

    // ------------------------------------------------------------------ owner

    /// @notice Names the ledger and the beacon, once and for ever.
    function wire(IAlphaLedger ledger_, IDrawBeacon beacon_) external onlyOwner {
        // INVARIANT: who counts and who draws never changes.
        if (address(ledger) != address(0)) revert AlreadyWired(address(ledger));
        if (address(ledger_) == address(0)) revert ZeroAddress("ledger");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        ledger = ledger_;
        beacon = beacon_;
    }

    /// @notice Changes what settlements from now on lock, and what epochs opened from now on charge.
    function setParameters(Parameters calldata parameters_) external onlyOwner {
        _setParameters(parameters_);
    }

    function _setParameters(Parameters memory p) private {
        if (p.feeBps > MAX_FEE_BPS) revert BadParameter("feeBps", p.feeBps, 0, MAX_FEE_BPS);
        if (p.lockFactor == 0 || p.lockFactor > MAX_LOCK_FACTOR) {
            revert BadParameter("lockFactor", p.lockFactor, 1, MAX_LOCK_FACTOR);
        }
        // INVARIANT: a thaw outlasts a settlement, and never overflows into the past.
        if (p.thawPeriod < MIN_THAW || p.thawPeriod > MAX_THAW) {
            revert BadParameter("thawPeriod", p.thawPeriod, MIN_THAW, MAX_THAW);
        }
        _parameters = p;
        emit ParametersChanged(p);
    }

    /// @notice Lets lanes be reserved in a token. Listing vouches for the assumptions of ILaneEscrow.
    /// @param stakePriceQ32 Stake units for one unit of the token, in Q32; 2**32 for the stake token.
    function listToken(address token, uint128 stakePriceQ32) external onlyOwner {
        if (token == address(0)) revert ZeroAddress("token");
        // INVARIANT: no payment goes without a lock.
        if (stakePriceQ32 == 0 || stakePriceQ32 > MAX_PRICE_Q32) {
            revert BadParameter("stakePriceQ32", stakePriceQ32, 1, MAX_PRICE_Q32);
        }
        termsOf[token] = Terms(stakePriceQ32, true);
        emit TokenListed(token, stakePriceQ32);
    }

    /// @notice Takes no more reserves in a token. What is reserved already is settled as before.
    function delistToken(address token) external onlyOwner {
        termsOf[token].open = false;
        emit TokenListed(token, 0);
    }

    /// @notice Lets a contract spend the audit fees, or no longer.
    function setFeeSpender(address spender, bool allowed) external onlyOwner {
        isFeeSpender[spender] = allowed;
        emit FeeSpenderSet(spender, allowed);
    }

    // ------------------------------------------------------------------ clients

    /// @inheritdoc ILaneEscrow
    function reserve(Records.Lane calldata lane, uint256 amount)
        external
        whenNotPaused
        nonReentrant
    {
        _reserve(lane, amount);
    }

    /// @notice As `reserve`, with a permit for the token first. A permit that somebody has already
    /// used leaves its allowance behind, so a failing one is passed over.
    function reserveWithPermit(
        Records.Lane calldata lane,
        uint256 amount,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external whenNotPaused nonReentrant {
        try IERC20Permit(lane.token).permit(msg.sender, address(this), amount, deadline, v, r, s) {}
            catch {}
        _reserve(lane, amount);
    }

    function _reserve(Records.Lane calldata lane, uint256 amount) private {
        // INVARIANT: an empty call opens nothing and changes nobody's lane.
        if (amount == 0) revert ZeroAmount();
        if (!termsOf[lane.token].open) revert TokenNotListed(lane.token);
        bytes32 id = Records.laneId(lane);
        Hot storage hot = _hot[id];
        if (hot.position == 0) _openLane(id, lane, hot);

        uint256 before = SafeTransferLib.balanceOf(lane.token, address(this));
        SafeTransferLib.safeTransferFrom(lane.token, msg.sender, address(this), amount);
        uint256 arrived = SafeTransferLib.balanceOf(lane.token, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != amount) revert ShortDeposit(amount, arrived);

        hot.reserve += amount.toUint96();
        Totals storage totals = _totals[lane.token];
        totals.reserves += uint128(amount);
        totals.deposited += uint128(amount);
        emit Reserved(id, msg.sender, amount);
    }

    function _openLane(bytes32 id, Records.Lane calldata lane, Hot storage hot) private {
        if (lane.client == address(0)) revert ZeroAddress("client");
        if (lane.drafter == address(0)) revert ZeroAddress("drafter");
        if (lane.verifier == address(0)) revert ZeroAddress("verifier");
        if (address(ledger) == address(0)) revert NotWired();
        if (lane.claimId != 0) {
            address publisher = ledger.claimDrafter(lane.claimId);
            // INVARIANT: a lane counts for a claim of its own drafter, so the ledger can take it.
            if (publisher != lane.drafter) {
                revert ClaimNotOf(lane.claimId, lane.drafter, publisher);
            }
        }
        uint16 feeBps = _parameters.feeBps;
        hot.position = LanePositions.fresh(0, feeBps);
        emit LaneOpened(id, lane, feeBps);
    }

    /// @inheritdoc ILaneEscrow
    function thaw(Records.Lane calldata lane, uint256 amount) external {
        if (msg.sender != lane.client) revert NotClient(msg.sender, lane.client);
        if (amount == 0) revert ZeroAmount();
        bytes32 id = Records.laneId(lane);
        Cold storage cold = _cold[id];
        uint256 thawing = cold.thawing + amount;
        if (thawing > _hot[id].reserve) revert NotEnoughReserve(thawing, _hot[id].reserve);
        cold.thawing = uint96(thawing);
        // INVARIANT: whatever is added thaws for the whole period, and so does all with it.
        cold.thawedAt = uint64(block.timestamp) + _parameters.thawPeriod;
        emit ThawStarted(id, thawing, cold.thawedAt);
    }

    /// @inheritdoc ILaneEscrow
    function cancelThaw(Records.Lane calldata lane) external {
        if (msg.sender != lane.client) revert NotClient(msg.sender, lane.client);
        bytes32 id = Records.laneId(lane);
        Cold storage cold = _cold[id];
        if (cold.thawing == 0) revert NothingThaws(id);
        emit ThawCancelled(id, cold.thawing);
        cold.thawing = 0;
        cold.thawedAt = 0;
    }

    /// @inheritdoc ILaneEscrow
    function collectThawed(Records.Lane calldata lane, address to)
        external
        nonReentrant
        returns (uint256 amount)
    {
        if (msg.sender != lane.client) revert NotClient(msg.sender, lane.client);
        if (to == address(0)) revert ZeroAddress("to");
        bytes32 id = Records.laneId(lane);
        Cold storage cold = _cold[id];
        if (cold.thawing == 0) revert NothingThaws(id);
        // INVARIANT: payees have the whole thaw period to collect first.
        if (block.timestamp < cold.thawedAt) revert StillThawing(cold.thawedAt, block.timestamp);
        Hot storage hot = _hot[id];
        // INVARIANT: what vouchers have taken meanwhile is not paid out twice.
        amount = FixedPointMathLib.min(cold.thawing, hot.reserve);
        cold.thawing = 0;
        cold.thawedAt = 0;
        hot.reserve -= uint96(amount);
        Totals storage totals = _totals[lane.token];
        totals.reserves -= uint128(amount);
        totals.withdrawn += uint128(amount);
        emit ThawCollected(id, amount, to);
        SafeTransferLib.safeTransfer(lane.token, to, amount);
    }

    // ------------------------------------------------------------------ payees

    /// @inheritdoc ILaneEscrow
    function openEpoch(Records.Lane calldata lane) external returns (uint32 epoch) {
        bytes32 id = Records.laneId(lane);
        // INVARIANT: only a party moves a lane's epoch.
        if (msg.sender != lane.client && msg.sender != lane.drafter && msg.sender != lane.verifier)
        {
            revert NotParty(msg.sender, id);
        }
        Hot storage hot = _hot[id];
        if (hot.position == 0) revert NotOpened(id);
        Cold storage cold = _cold[id];
        // INVARIANT: what an epoch still owes stays collectable under its own number.
        pastPosition[id][cold.epoch] = hot.position;
        epoch = ++cold.epoch;
        uint16 feeBps = _parameters.feeBps;
        hot.position = LanePositions.fresh(epoch, feeBps);
        emit EpochOpened(id, epoch, feeBps, msg.sender);
    }

    /// @inheritdoc ILaneEscrow
    function noticeSolo(Records.Lane calldata lane) external returns (uint64 soloFrom) {
        if (msg.sender != lane.verifier) revert NotVerifier(msg.sender, lane.verifier);
        bytes32 id = Records.laneId(lane);
        soloFrom = uint64(block.timestamp) + _parameters.thawPeriod;
        _cold[id].soloFrom = soloFrom;
        emit SoloNoticed(id, soloFrom);
    }

    /// @inheritdoc ILaneEscrow
    function endSolo(Records.Lane calldata lane) external {
        if (msg.sender != lane.verifier) revert NotVerifier(msg.sender, lane.verifier);
        bytes32 id = Records.laneId(lane);
        _cold[id].soloFrom = 0;
        emit SoloEnded(id);
    }

    /// @inheritdoc ILaneEscrow
    function withdraw(address account, address token)
        external
        nonReentrant
        returns (uint256 amount)
    {
        amount = payableTo[account][token];
        if (amount == 0) revert NothingPayable(account, token);
        // INVARIANT: a credit is pulled once.
        payableTo[account][token] = 0;
        Totals storage totals = _totals[token];
        totals.earned -= uint128(amount);
        totals.withdrawn += uint128(amount);
        address to = vault.payoutTo(account);
        emit PaidOut(account, token, amount, to);
        SafeTransferLib.safeTransfer(token, to, amount);
    }

    /// @inheritdoc ILaneEscrow
    function spendFees(address token, address to, uint256 amount) external returns (uint256 spent) {
        if (!isFeeSpender[msg.sender]) revert NotFeeSpender(msg.sender);
        Totals storage totals = _totals[token];
        // INVARIANT: audits are paid from fees and from nothing else.
        spent = FixedPointMathLib.min(amount, totals.fees);
        totals.fees -= uint128(spent);
        totals.earned += uint128(spent);
        payableTo[to][token] += spent;
        emit FeeSpent(msg.sender, token, spent, to);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc ILaneEscrow
    function domainSeparator() public view returns (bytes32) {
        return Records.domainSeparator(address(this));
    }

    /// @inheritdoc ILaneEscrow
    function parameters() external view returns (Parameters memory) {
        return _parameters;
    }

    /// @inheritdoc ILaneEscrow
    function laneState(bytes32 lane) external view returns (LaneState memory) {
        Hot storage hot = _hot[lane];
        Cold storage cold = _cold[lane];
        return LaneState({
            reserve: hot.reserve,
            thawing: cold.thawing,
            thawedAt: cold.thawedAt,
            soloFrom: cold.soloFrom,
            epoch: cold.epoch,
            position: hot.position
        });
    }

    /// @inheritdoc ILaneEscrow
    function inStakeUnits(address token, uint256 amount) external view returns (uint256) {
        return FixedPointMathLib.fullMulDiv(amount, termsOf[token].stakePriceQ32, 1 << 32);
    }

    /// @inheritdoc ILaneEscrow
    function accounting(address token) external view returns (EscrowAccounting memory) {
        Totals storage totals = _totals[token];
        return EscrowAccounting({
            deposited: totals.deposited,
            reserves: totals.reserves,
            fees: totals.fees,
            payable_: totals.earned,
            withdrawn: totals.withdrawn
        });
    }
}
