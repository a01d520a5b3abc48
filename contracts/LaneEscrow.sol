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
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Batches} from "./libraries/Batches.sol";
import {LanePositions} from "./libraries/LanePositions.sol";
import {PaymentRule} from "./libraries/PaymentRule.sol";
import {Records} from "./libraries/Records.sol";
import {Signatures} from "./libraries/Signatures.sol";
import {SumWords} from "./libraries/SumWords.sol";

/// @title LaneEscrow
/// @notice Holds what clients reserve, and pays drafters and verifiers what vouchers say, as far as
/// their stake backs it.
///
/// @dev In the steady state a settled lane costs one storage slot: the reserve and 160 bits of the
/// position's hash share it. Everything else is written once a group (both payees' credit and locks,
/// the claim's counts) or once a call (totals, the batch).
///
/// Money moves in three ways only: in by `reserve`, out by `collectThawed` and `withdraw`, and
/// between reserve, fees and credits by `settle` and `spendFees`; each keeps
/// deposited = reserves + fees + payable + withdrawn.
contract LaneEscrow is ILaneEscrow, ExpiringPause, ReentrancyGuardTransient {
    using SafeCastLib for uint256;

    uint256 public constant MAX_LANES = 64;
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

    /// @dev One call of `settle`.
    struct Run {
        address token;
        uint256 priceQ32;
        uint256 lockRateQ32;
        bytes32 separator;
        uint256 lanes;
        uint256 settled;
        uint256 entries;
        bytes packed;
        uint256 paid;
        uint256 fees;
        bytes4 firstReason;
    }

    /// @dev One payee of a group: what its stake still lets it be paid.
    struct Payee {
        address account;
        uint256 room;
        uint256 reachable;
        uint256 paid;
    }

    struct Service {
        Payee drafter;
        Payee verifier;
        bool counted;
        uint256[9] delta;
    }

    /// @dev One lane under settlement.
    struct Step {
        bytes32 lane;
        uint256 reserve;
        uint256 terms;
        bool current;
        bytes32 root;
        bytes32 base;
        bool signed;
        bool repeats;
        uint256 toDrafter;
        uint256 toVerifier;
        uint256 fee;
        uint8 flags;
    }

    IStakeVault public immutable vault;

    IAlphaLedger public ledger;
    IDrawBeacon public beacon;
    mapping(address spender => bool) public isFeeSpender;
    mapping(address token => Terms) public termsOf;
    mapping(address account => mapping(address token => uint256)) public payableTo;
    mapping(bytes32 lane => mapping(uint32 epoch => uint160)) public pastPosition;

    Parameters private _parameters;
    mapping(address token => Totals) private _totals;
    mapping(bytes32 lane => Hot) private _hot;
    mapping(bytes32 lane => Cold) private _cold;

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
    error TooManyLanes(uint256 limit);
    error NothingSettled(bytes4 firstReason);

    // Why a lane was skipped; never thrown, their selectors stand in LaneSkipped and NothingSettled.
    error LaneUnknown();
    error PositionStale();
    error SumsMalformed();
    error TreeEmpty();
    error LeavesShrank();
    error LinkWithoutDrafter();
    error SoloWithoutNotice();
    error ClientSignatureBad();
    error VerifierSignatureBad();
    error DrafterSignatureBad();
    error NothingNew();

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

    // ------------------------------------------------------------------ settlement

    /// @inheritdoc ILaneEscrow
    function settle(address token, Group[] calldata groups)
        external
        nonReentrant
        returns (uint64 batchId)
    {
        Run memory run;
        run.token = token;
        run.priceQ32 = termsOf[token].stakePriceQ32;
        if (run.priceQ32 == 0) revert TokenNotListed(token);
        run.lockRateQ32 = run.priceQ32 * _parameters.lockFactor;
        run.separator = domainSeparator();
        for (uint256 i; i < groups.length; ++i) {
            run.lanes += groups[i].lanes.length;
        }
        // INVARIANT: a call's work is bounded.
        if (run.lanes > MAX_LANES || groups.length > MAX_LANES) revert TooManyLanes(MAX_LANES);
        run.packed = new bytes(run.lanes * Batches.ENTRY_BYTES);

        for (uint256 i; i < groups.length; ++i) {
            _settleGroup(run, groups[i]);
        }
        // One bad voucher leaves the others alone; nothing but bad ones says why.
        if (run.settled == 0) revert NothingSettled(run.firstReason);

        if (run.paid + run.fees != 0) {
            Totals storage totals = _totals[token];
            totals.reserves -= uint128(run.paid + run.fees);
            totals.fees += uint128(run.fees);
            totals.earned += uint128(run.paid);
        }
        if (run.entries != 0) batchId = _register(run);
    }

    function _register(Run memory run) private returns (uint64 batchId) {
        bytes memory packed = run.packed;
        uint256 size = run.entries * Batches.ENTRY_BYTES;
        bytes32 entriesHash;
        assembly ("memory-safe") {
            entriesHash := keccak256(add(packed, 0x20), size)
        }
        batchId = beacon.registerBatch(
            entriesHash, uint32(run.entries), run.token, vault.sliceOf(block.timestamp)
        );
        emit BatchSettled(batchId, run.token, entriesHash, run.entries);
    }

    function _settleGroup(Run memory run, Group calldata group) private {
        Service memory service;
        _cover(run, service.drafter, group.drafter, Role.DRAFTER);
        _cover(run, service.verifier, group.verifier, Role.VERIFIER);
        Step memory step;
        for (uint256 i; i < group.lanes.length; ++i) {
            LaneVoucher calldata voucher = group.lanes[i];
            step.lane = LanePositions.laneId(
                voucher.client, group.drafter, group.verifier, run.token, group.claimId
            );
            bytes4 reason = _settleLane(run, service, step, group, voucher);
            if (reason == 0) {
                ++run.settled;
            } else {
                if (run.firstReason == 0) run.firstReason = reason;
                emit LaneSkipped(step.lane, reason);
            }
        }
        _credit(run, service.drafter, group.drafter, Role.DRAFTER);
        _credit(run, service.verifier, group.verifier, Role.VERIFIER);
        if (service.counted && group.claimId != 0) {
            ledger.record(group.claimId, group.drafter, group.verifier, service.delta);
        }
    }

    function _cover(Run memory run, Payee memory payee, address key, Role role) private {
        uint256 lockable;
        (payee.account, lockable, payee.reachable) = vault.cover(key, role);
        payee.room = PaymentRule.roomDown(lockable, run.lockRateQ32);
    }

    function _credit(Run memory run, Payee memory payee, address key, Role role) private {
        if (payee.paid == 0) return;
        // INVARIANT: what is paid is locked behind in the same call, or neither happens.
        vault.lock(key, role, PaymentRule.lockUp(payee.paid, run.lockRateQ32));
        payableTo[payee.account][run.token] += payee.paid;
        emit Credited(payee.account, run.token, payee.paid);
    }

    /// @return Zero when the lane settled, else the selector of why it did not; then nothing of it,
    /// in storage or in `service`, has changed.
    function _settleLane(
        Run memory run,
        Service memory service,
        Step memory step,
        Group calldata group,
        LaneVoucher calldata voucher
    ) private returns (bytes4) {
        bytes4 reason = _openPosition(step, voucher.position);
        if (reason != 0) return reason;
        (bool good, bool changed) = SumWords.check(voucher.position.counted, voucher.sums);
        // INVARIANT: counts never fall, never wrap, and accept no more than was proposed.
        if (!good) return SumsMalformed.selector;
        reason = _linkRoot(step, voucher);
        if (reason != 0) return reason;
        reason = _checkSigners(run, step, group, voucher);
        if (reason != 0) return reason;
        _grant(service, step, voucher);

        bool moved = !step.repeats && voucher.link != Link.BEHIND;
        changed = changed && step.signed;
        if (!moved && !changed && step.toDrafter + step.toVerifier == 0) {
            return NothingNew.selector;
        }
        if (changed) {
            service.counted = true;
            SumWords.accumulate(service.delta, voucher.position.counted, voucher.sums);
        }
        _commit(run, service, step, voucher, moved);
        return 0;
    }

    function _openPosition(Step memory step, Position calldata position)
        private
        view
        returns (bytes4)
    {
        uint256 slot;
        {
            Hot storage hot = _hot[step.lane];
            assembly ("memory-safe") {
                slot := sload(hot.slot)
            }
        }
        uint160 current = uint160(slot >> 96);
        if (current == 0) return LaneUnknown.selector;
        step.reserve = uint96(slot);
        step.terms = position.terms;
        uint160 given = LanePositions.hash(position);
        step.current = given == current;
        // INVARIANT: watermarks come from the chain's commitment, never from the sender's word.
        if (!step.current && given != pastPosition[step.lane][LanePositions.epochOf(step.terms)]) {
            return PositionStale.selector;
        }
        return 0;
    }

    function _linkRoot(Step memory step, LaneVoucher calldata voucher)
        private
        pure
        returns (bytes4)
    {
        // INVARIANT: a tree without leaves is no tree.
        if (voucher.leafCount == 0) return TreeEmpty.selector;
        bytes32 headRoot = voucher.position.headRoot;
        Link link = voucher.link;
        step.base = link == Link.EXTENDS
            ? headRoot
            : link == Link.REPLACES ? voucher.position.headBase : voucher.baseRoot;
        step.root =
            LanePositions.settledRoot(voucher.top, voucher.sums, voucher.leafCount, step.base);
        step.repeats = step.root == headRoot;
        step.flags = 0;
        if (link == Link.REPLACES && headRoot != 0 && !step.repeats) {
            // INVARIANT: only a larger tree on the same base takes a settled one's place.
            if (voucher.leafCount <= LanePositions.leavesOf(step.terms)) {
                return LeavesShrank.selector;
            }
            step.flags = Batches.SUPERSEDES;
        }
        if (link == Link.BEHIND) step.flags = Batches.BEHIND;
        return 0;
    }

    function _checkSigners(
        Run memory run,
        Step memory step,
        Group calldata group,
        LaneVoucher calldata voucher
    ) private view returns (bytes4) {
        bytes32 digest = LanePositions.voucherDigest(
            run.separator,
            step.lane,
            LanePositions.epochOf(step.terms),
            step.base,
            step.root,
            voucher
        );
        // INVARIANT: the client pays only what it signed, or sends itself.
        if (
            msg.sender != voucher.client
                && !Signatures.isByClient(voucher.client, digest, voucher.clientSignature)
        ) return ClientSignatureBad.selector;
        // INVARIANT: the verifier answers only for what it signed, or sends itself.
        if (
            msg.sender != group.verifier
                && !Signatures.isByKey(
                    group.verifier, digest, voucher.verifierR, voucher.verifierVS
                )
        ) return VerifierSignatureBad.selector;

        step.signed = true;
        if (msg.sender == group.drafter) return 0;
        if (voucher.drafterR != 0 || voucher.drafterVS != 0) {
            // INVARIANT: the drafter's counts move only by what it signed.
            if (!Signatures.isByKey(group.drafter, digest, voucher.drafterR, voucher.drafterVS)) {
                return DrafterSignatureBad.selector;
            }
            return 0;
        }
        step.signed = false;
        if (voucher.link == Link.BEHIND) return LinkWithoutDrafter.selector;
        uint256 soloFrom = _cold[step.lane].soloFrom;
        // INVARIANT: C and V cannot empty a reserve past D without a thaw period's notice.
        if (soloFrom == 0 || block.timestamp < soloFrom) return SoloWithoutNotice.selector;
        return 0;
    }

    function _grant(Service memory service, Step memory step, LaneVoucher calldata voucher)
        private
        pure
    {
        uint256 paid = voucher.position.paid;
        uint256 feeBps = LanePositions.feeOf(step.terms);
        (uint256 toDrafter, uint256 toVerifier) = PaymentRule.grantsDown(
            step.reserve,
            feeBps,
            uint128(voucher.due),
            voucher.due >> 128,
            uint128(paid),
            paid >> 128
        );
        // INVARIANT: D is paid only on what it signed.
        if (!step.signed) toDrafter = 0;
        // INVARIANT: each payee is paid up to its own free stake, whatever the other's.
        step.toDrafter = FixedPointMathLib.min(toDrafter, service.drafter.room);
        step.toVerifier = FixedPointMathLib.min(toVerifier, service.verifier.room);
        step.fee = PaymentRule.feeUp(step.toDrafter + step.toVerifier, feeBps);
    }

    function _commit(
        Run memory run,
        Service memory service,
        Step memory step,
        LaneVoucher calldata voucher,
        bool moved
    ) private {
        uint256 figures = _figures(run, service, step, voucher);
        uint256 amount;
        uint256 paid;
        // What is granted lies within room and reserve, both below 2**96 here; at most 64 lanes.
        unchecked {
            service.drafter.room -= step.toDrafter;
            service.drafter.paid += step.toDrafter;
            service.verifier.room -= step.toVerifier;
            service.verifier.paid += step.toVerifier;
            amount = step.toDrafter + step.toVerifier;
            run.paid += amount;
            run.fees += step.fee;
            // INVARIANT: each watermark moves by what was paid, no more: the rest stays owed.
            paid = voucher.position.paid + step.toDrafter + (step.toVerifier << 128);
        }
        uint160 next = _nextPosition(step, voucher, paid, moved);
        // INVARIANT: checked: a reserve pays no more than it holds.
        uint256 left = step.reserve - (amount + step.fee);
        if (step.current) {
            _hot[step.lane] = Hot(uint96(left), next);
        } else {
            _hot[step.lane].reserve = uint96(left);
            pastPosition[step.lane][LanePositions.epochOf(step.terms)] = next;
        }
        emit LaneSettled(step.lane, step.root, figures, paid);
    }

    function _nextPosition(Step memory step, LaneVoucher calldata voucher, uint256 paid, bool moved)
        private
        pure
        returns (uint160)
    {
        Position calldata position = voucher.position;
        uint256 terms = step.terms;
        if (moved) {
            terms = LanePositions.terms(
                LanePositions.epochOf(terms), uint16(LanePositions.feeOf(terms)), voucher.leafCount
            );
        }
        return LanePositions.hashOf(
            moved ? step.root : position.headRoot,
            moved ? step.base : position.headBase,
            paid,
            terms,
            step.signed ? voucher.sums : position.counted
        );
    }

    /// @dev Writes the lane's entry if its root is to be drawn.
    function _figures(
        Run memory run,
        Service memory service,
        Step memory step,
        LaneVoucher calldata voucher
    ) private pure returns (uint256 figures) {
        uint256 paid = voucher.position.paid;
        uint256 valueDrafter =
            step.signed ? FixedPointMathLib.zeroFloorSub(uint128(voucher.due), uint128(paid)) : 0;
        uint256 valueVerifier = FixedPointMathLib.zeroFloorSub(voucher.due >> 128, paid >> 128);
        valueDrafter = FixedPointMathLib.min(valueDrafter, type(uint96).max);
        valueVerifier = FixedPointMathLib.min(valueVerifier, type(uint96).max);
        uint256 coverage = Batches.MAX_COVERAGE;
        // Values below 2**97 together, the price at most 2**96, stake below 2**97.
        unchecked {
            uint256 risk = ((valueDrafter + valueVerifier) * run.priceQ32) >> 32;
            if (risk != 0) {
                coverage = FixedPointMathLib.min(
                    (service.verifier.reachable << 8) / risk, Batches.MAX_COVERAGE
                );
            }
        }
        uint256 flags = step.flags;
        if (step.signed) flags |= Batches.COUNTED;
        if (!step.repeats) flags |= Batches.DRAWABLE;
        figures = valueDrafter | (valueVerifier << 96)
            | (uint256(LanePositions.epochOf(step.terms)) << 192) | (coverage << 224)
            | (flags << 248);
        if (!step.repeats) {
            bytes memory packed = run.packed;
            uint256 offset = run.entries * Batches.ENTRY_BYTES;
            (bytes32 lane, bytes32 root) = (step.lane, step.root);
            assembly ("memory-safe") {
                let at := add(add(packed, 0x20), offset)
                mstore(at, lane)
                mstore(add(at, 0x20), root)
                mstore(add(at, 0x40), figures)
            }
            ++run.entries;
        }
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
