// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {LaneReserves} from "./LaneReserves.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Batches} from "./libraries/Batches.sol";
import {LanePositions} from "./libraries/LanePositions.sol";
import {PaymentRule} from "./libraries/PaymentRule.sol";
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
/// V's stake is locked for what both payees get: a verdict that accepts what it should not brings D's
/// pay as well as V's, and `DrawBeacon.chanceOf` holds that sum against what V can lose. D's pay is D's
/// own stake's matter alone: where V's does not reach for both, it is V's pay that waits.
contract LaneEscrow is LaneReserves {
    uint256 public constant MAX_LANES = 64;
    /// @notice A root that comes again pays at least this part of all dues, or all that is left.
    uint256 public constant PARTS = 32;

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
        uint256 answered; // what D is paid and V's stake answers for too
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
        uint256 answered;
        uint256 fee;
        uint8 flags;
    }

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
        LaneReserves(owner, guardian, vault_, parameters_)
    {}

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
        _credit(run, service.drafter, group.drafter, Role.DRAFTER, 0);
        _credit(run, service.verifier, group.verifier, Role.VERIFIER, service.answered);
        if (service.counted && group.claimId != 0) {
            ledger.record(group.claimId, group.drafter, group.verifier, service.delta);
        }
    }

    function _cover(Run memory run, Payee memory payee, address key, Role role) private {
        uint256 lockable;
        (payee.account, lockable, payee.reachable) = vault.cover(key, role);
        payee.room = PaymentRule.roomDown(lockable, run.lockRateQ32);
    }

    function _credit(Run memory run, Payee memory payee, address key, Role role, uint256 answered)
        private
    {
        uint256 backed = payee.paid + answered;
        if (backed == 0) return;
        // INVARIANT: what is paid is locked behind in the same call, or neither happens.
        vault.lock(key, role, PaymentRule.lockUp(backed, run.lockRateQ32));
        if (payee.paid == 0) return;
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
        // INVARIANT: a root that comes again is paid in few parts: each part is drawn, and draws cost V.
        if (step.repeats && _isDust(step, voucher)) {
            (step.toDrafter, step.toVerifier, step.answered, step.fee) = (0, 0, 0, 0);
        }

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
        // INVARIANT: D is paid up to its own free stake, whatever V's.
        step.toDrafter = FixedPointMathLib.min(toDrafter, service.drafter.room);
        // INVARIANT: V's stake answers for D's pay as well, as far as it goes.
        step.answered = FixedPointMathLib.min(step.toDrafter, service.verifier.room);
        // INVARIANT: V is paid up to what its free stake answers for beside that.
        step.toVerifier = FixedPointMathLib.min(toVerifier, service.verifier.room - step.answered);
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
            service.verifier.room -= step.toVerifier + step.answered;
            service.verifier.paid += step.toVerifier;
            service.answered += step.answered;
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
            Hot storage hot = _hot[step.lane];
            // Both members at once: the compiler would write the slot twice. `left` is below 2**96.
            assembly ("memory-safe") {
                sstore(hot.slot, or(left, shl(96, next)))
            }
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

    /// @dev Less than a thirty-second of all that the epoch was due, and not the whole rest.
    function _isDust(Step memory step, LaneVoucher calldata voucher) private pure returns (bool) {
        uint256 granted = step.toDrafter + step.toVerifier;
        uint256 paid = voucher.position.paid;
        uint256 rest = FixedPointMathLib.zeroFloorSub(voucher.due >> 128, paid >> 128);
        if (step.signed) {
            rest += FixedPointMathLib.zeroFloorSub(uint128(voucher.due), uint128(paid));
        }
        return granted < rest && granted * PARTS < (voucher.due >> 128) + uint128(voucher.due);
    }

    /// @dev A stake against what it answers for, in 256ths, rounded down.
    function _coverage(Run memory run, uint256 stake, uint256 value)
        private
        pure
        returns (uint256)
    {
        // Values below 2**97, the price at most 2**96, stake below 2**97.
        unchecked {
            uint256 risk = (value * run.priceQ32) >> 32;
            if (risk == 0) return Batches.MAX_COVERAGE;
            return FixedPointMathLib.min((stake << 8) / risk, Batches.MAX_COVERAGE);
        }
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
        // INVARIANT: a draw is as likely as the thinner of two stakes asks: V's, for a lie of V brings
        // D's pay too, or D's, which in rejection mode answers for draws that only an audit sees.
        uint256 coverage = FixedPointMathLib.min(
            _coverage(run, service.verifier.reachable, valueDrafter + valueVerifier),
            _coverage(run, service.drafter.reachable, valueDrafter)
        );
        uint256 flags = step.flags;
        if (step.signed) flags |= Batches.COUNTED;
        // INVARIANT: nobody is paid without a draw: what was owed is paid at a later one's cover.
        bool drawable = !step.repeats || step.toDrafter + step.toVerifier != 0;
        if (drawable) flags |= Batches.DRAWABLE;
        figures = step.toDrafter | (step.toVerifier << 96)
            | (uint256(LanePositions.epochOf(step.terms)) << 192) | (coverage << 224)
            | (flags << 248);
        if (drawable) {
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
}
