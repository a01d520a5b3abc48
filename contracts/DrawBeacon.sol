// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IOpeningRule} from "./interfaces/IOpeningRule.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Batches} from "./libraries/Batches.sol";
import {Openings} from "./libraries/Openings.sol";
import {Records} from "./libraries/Records.sol";

/// @title DrawBeacon
/// @notice Draws, by randomness that nobody had when a batch was settled, which of its lanes must be
/// opened on chain and where; re-runs the accept rule on what is opened; makes silence cost.
///
/// @dev Every lane of a batch is drawn on its own. Its chance is the base rate or, if that is more,
/// what makes lying a loss: chance × slash ≥ 2 × what the lie could bring, with `coverage`, the thinner
/// of two stakes as they stood at settlement: V's against all that the voucher asked for, D's against
/// what it asked for D. A draw shared by the batch would be cheaper and
/// worse: whoever settles could bury one false lane under a huge honest one that pays itself.
///
/// Trust in the randomness: it is the hash of block settle + `delay`, and so of everything that block
/// holds, its proposer's RANDAO reveal included. Whoever proposes that block can throw it away and
/// take another, at the price of the block: one bit of choice each. And a hash is gone after 256
/// blocks: if in all that time nobody has captured it, a later block takes its place, which is a
/// second draw. One honest watcher, who is paid for it, keeps that from happening. On chains whose
/// `block.number` or `blockhash` are not their own blocks' (some rollups), this contract is not to
/// be used.
contract DrawBeacon is IDrawBeacon, Ownable2Step {
    uint256 public constant MAX_BPS = 10_000;
    /// @notice Block hashes reach so far back.
    uint256 public constant HASHES_KEPT = 256;
    uint256 public constant MAX_SAMPLES = 8;
    /// @notice Units of `Entry.coverage`.
    uint256 private constant COVERAGE_ONE = 256;

    IStakeVault public immutable vault;
    IOpeningRule public immutable rule;
    ILaneEscrow public escrow;

    Terms private _terms;
    /// @notice Of a token's held fees, to whoever captures a batch or calls a draw.
    mapping(address token => uint256) public rewardOf;
    mapping(uint64 batchId => bytes32) public batchHash;
    /// @dev Batches of a slice: registered in the lower half, captured in the upper.
    mapping(uint64 slice => uint256) private _counts;
    mapping(uint64 batchId => mapping(uint32 index => DrawState)) private _draws;
    mapping(uint64 batchId => mapping(uint32 index => bytes32)) private _drawHash;

    error ZeroAddress(string what);
    error AlreadyWired(address escrow);
    error NotEscrow(address caller, address escrow);
    error BadTerm(string what, uint256 value);
    error NotThisBatch(uint64 batchId, bytes32 shown, bytes32 kept);
    error NothingCaptured(uint256 batches);
    error NotCaptured(uint64 batchId, uint64 targetBlock);
    error NotTheseEntries(bytes32 shown, bytes32 kept);
    error NoSuchEntry(uint32 index, uint256 entries);
    error NotThisLane(bytes32 shown, bytes32 drawn);
    error NotDrawn(uint64 batchId, uint32 index, uint256 coin, uint256 chance);
    error AlreadyDrawn(uint64 batchId, uint32 index);
    error TooLateToDraw(uint64 until);
    error NotThisDraw(bytes32 shown, bytes32 kept);
    error WrongStage(Stage stage);
    error NoSuchSample(uint8 sample, uint8 samples);
    error AlreadyOpened(uint8 sample);
    error TooLate(uint40 until);
    error TooEarly(uint40 until);

    constructor(address owner, IStakeVault vault_, IOpeningRule rule_, Terms memory terms_)
        Ownable(owner)
    {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(rule_) == address(0)) revert ZeroAddress("rule");
        vault = vault_;
        rule = rule_;
        _setTerms(terms_);
    }

    // ------------------------------------------------------------------ owner

    /// @notice Names the escrow, once and for ever.
    function wire(ILaneEscrow escrow_) external onlyOwner {
        // INVARIANT: whose batches are drawn never changes.
        if (address(escrow) != address(0)) revert AlreadyWired(address(escrow));
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        escrow = escrow_;
    }

    /// @notice For batches registered from now on. The deadlines are the vault's, so they are not read
    /// here.
    function setTerms(Terms calldata terms_) external onlyOwner {
        _setTerms(terms_);
    }

    function _setTerms(Terms memory t) private {
        if (t.delay == 0) revert BadTerm("delay", t.delay);
        if (t.samples == 0 || t.samples > MAX_SAMPLES) revert BadTerm("samples", t.samples);
        if (t.faultBps == 0 || t.faultBps > MAX_BPS) revert BadTerm("faultBps", t.faultBps);
        // INVARIANT: silence to the end costs no less than the fault that it could hide.
        if (t.silentBps < t.faultBps || t.silentBps > MAX_BPS) {
            revert BadTerm("silentBps", t.silentBps);
        }
        if (t.lateBps > MAX_BPS) revert BadTerm("lateBps", t.lateBps);
        // INVARIANT: nor does it where V's friend is the one to call the deadlines and gets the share.
        uint256 lost = t.lateBps + (MAX_BPS - t.lateBps) * t.silentBps / MAX_BPS;
        if (lost * (MAX_BPS - FixedPointMathLib.min(t.rewardBps, MAX_BPS)) < t.faultBps * MAX_BPS) {
            revert BadTerm("rewardBps", t.rewardBps);
        }
        // Written out of the vault's times when a batch is registered.
        (t.evidence, t.firstDeadline, t.secondDeadline) = (0, 0, 0);
        _terms = t;
        emit TermsChanged(t);
    }

    /// @notice What the held fees of `token` pay for a capture or a draw; must cover its gas.
    function setReward(address token, uint256 amount) external onlyOwner {
        rewardOf[token] = amount;
        emit RewardSet(token, amount);
    }

    // ------------------------------------------------------------------ batches

    /// @inheritdoc IDrawBeacon
    function registerBatch(bytes32 entriesHash, uint32 entries, address token, uint64 slice)
        external
        returns (uint64 batchId)
    {
        // INVARIANT: only what was settled is drawn, and all of it.
        if (msg.sender != address(escrow)) revert NotEscrow(msg.sender, address(escrow));
        Terms memory t = _terms;
        IStakeVault.Times memory times = vault.times();
        (t.evidence, t.firstDeadline, t.secondDeadline) =
        (times.evidence, times.firstDeadline, times.secondDeadline);

        uint256 counts = _counts[slice];
        // A slice is a span of time with far fewer than 2**32 transactions in it.
        batchId = slice << 32 | uint32(counts);
        _counts[slice] = counts + 1;
        Batch memory registered = Batch({
            id: batchId,
            entriesHash: entriesHash,
            token: token,
            entries: entries,
            slice: slice,
            settledAt: uint64(block.timestamp),
            settledBlock: uint64(block.number),
            // INVARIANT: the randomness is of a block that comes after the batch is fixed.
            targetBlock: uint64(block.number) + t.delay,
            randomness: 0,
            terms: t
        });
        batchHash[batchId] = keccak256(abi.encode(registered));
        emit BatchRegistered(batchId, registered);
    }

    /// @inheritdoc IDrawBeacon
    function pendingIn(uint64 slice) external view returns (uint256) {
        uint256 counts = _counts[slice];
        return uint128(counts) - (counts >> 128);
    }

    /// @inheritdoc IDrawBeacon
    function capture(Batch[] calldata batches) external returns (uint256 captured) {
        for (uint256 i; i < batches.length; ++i) {
            Batch memory b = batches[i];
            // INVARIANT: a batch gets its randomness once: after that its hash is another one. Those
            // that another call has captured meanwhile are passed over, so that nobody's call fails
            // for being second on one of them.
            if (keccak256(abi.encode(b)) != batchHash[b.id] || b.randomness != 0) continue;
            // INVARIANT: nobody captures a block that is not yet final in its own hash.
            if (block.number <= b.targetBlock) continue;
            bytes32 hash = blockhash(b.targetBlock);
            if (hash == 0) {
                b.targetBlock = uint64(block.number) + b.terms.delay;
                batchHash[b.id] = keccak256(abi.encode(b));
                emit BatchReanchored(b.id, b.targetBlock);
                continue;
            }
            b.randomness = keccak256(
                abi.encodePacked("verdraft/sample/1", hash, block.chainid, address(this), b.id)
            );
            batchHash[b.id] = keccak256(abi.encode(b));
            _counts[b.slice] += 1 << 128;
            ++captured;
            emit RandomnessCaptured(b.id, b.randomness, msg.sender);
            _reward(b.token);
        }
    }

    // ------------------------------------------------------------------ draws

    /// @inheritdoc IDrawBeacon
    function draw(
        Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        Records.Lane calldata lane
    ) external {
        _requireBatch(batch);
        if (batch.randomness == 0) revert NotCaptured(batch.id, batch.targetBlock);
        uint64 until = batch.settledAt + batch.terms.evidence;
        // INVARIANT: a draw starts while the stake that answers for it is still held.
        if (block.timestamp > until) revert TooLateToDraw(until);
        // INVARIANT: drawn lanes are those that were settled, none more and none other.
        Batches.Entry memory entry = _entryAt(batch, entries, index);
        (bytes32 seed, uint256 coin, uint256 chance) = _lot(batch, entry, index);
        if (coin >= chance) revert NotDrawn(batch.id, index, coin, chance);
        bytes32 laneId = Records.laneId(lane);
        if (laneId != entry.lane) revert NotThisLane(laneId, entry.lane);
        DrawState storage state = _draws[batch.id][index];
        // INVARIANT: a lane's clock is started once: nobody gains time or pays twice.
        if (state.stage != Stage.NONE) revert AlreadyDrawn(batch.id, index);

        Draw memory drawn = Draw(batch.id, index, seed, entry, lane, batch.terms);
        _drawHash[batch.id][index] = keccak256(abi.encode(drawn));
        state.verifier = lane.verifier;
        state.firstUntil = uint40(block.timestamp) + batch.terms.firstDeadline;
        state.secondUntil = state.firstUntil + batch.terms.secondDeadline;
        state.stage = Stage.OPEN;
        emit LaneDrawn(batch.id, index, lane.verifier, drawn, state.firstUntil, state.secondUntil);
        _reward(batch.token);
    }

    /// @notice Which lanes of a captured batch are drawn: bit i for entry i.
    function drawnIn(Batch calldata batch, bytes calldata entries)
        external
        view
        returns (uint256 mask)
    {
        _requireBatch(batch);
        if (batch.randomness == 0) revert NotCaptured(batch.id, batch.targetBlock);
        for (uint32 i; i < batch.entries; ++i) {
            (, uint256 coin, uint256 chance) = _lot(batch, _entryAt(batch, entries, i), i);
            if (coin < chance) mask |= 1 << i;
        }
    }

    /// @notice The chance, out of 2**64, that a lane with this cover is drawn.
    /// @dev chance × slash ≥ 2 × revenue, where slash = faultBps of the stake and stake = coverage / 256
    /// × revenue. A third more, because one stake answers for many lanes: of several faults found each
    /// takes its share of what the one before has left, and with a third more the whole still holds
    /// for revenue up to 0.22 of the stake, above the fifth that locks allow (V's are held for D's pay
    /// as well). A chance of 1 is all there is: it is enough from a cover of 4 on, and what is paid is
    /// covered 5 times. Below that lies what was asked for and waits for free stake, and what D is paid
    /// beside a V that has none: whom C trusts with so little behind it is C's choice.
    function chanceOf(Terms memory t, uint24 coverage) public pure returns (uint256) {
        if (coverage == 0) return 1 << 64;
        uint256 needed = FixedPointMathLib.divUp(
            (8 * MAX_BPS * COVERAGE_ONE) << 64, 3 * uint256(t.faultBps) * coverage
        );
        uint256 base = uint256(t.baseRate) << 32;
        return FixedPointMathLib.min(FixedPointMathLib.max(needed, base), 1 << 64);
    }

    /// @inheritdoc IDrawBeacon
    function open(Draw calldata drawn, uint8 sample, Openings.Opening calldata opening) external {
        DrawState storage state = _requireRunning(drawn);
        if (sample >= drawn.terms.samples) revert NoSuchSample(sample, drawn.terms.samples);
        uint8 bit = uint8(1 << sample);
        // INVARIANT: one opening answers for one sample, and an α sample is counted once.
        if (state.opened & bit != 0) revert AlreadyOpened(sample);
        // INVARIANT: after the last deadline only the price is left.
        if (block.timestamp > state.secondUntil) revert TooLate(state.secondUntil);

        Openings.Finding memory found = rule.judge(
            opening,
            drawn.entry.root,
            drawn.entry.lane,
            escrow.domainSeparator(),
            drawn.seed,
            sample
        );
        state.opened |= bit;
        if (found.verifier != 0) {
            // Nothing more can come of this draw; what it hid is judged elsewhere.
            _move(drawn, state, Stage.FAULTY);
        } else if (state.opened == (1 << drawn.terms.samples) - 1) {
            _move(drawn, state, Stage.SHOWN);
        }
        if (found.verifier != 0) {
            _punish(drawn, opening, drawn.lane.verifier, Role.VERIFIER, found.verifier);
        }
        if (found.drafter != 0) {
            _punish(drawn, opening, drawn.lane.drafter, Role.DRAFTER, found.drafter);
        }
        if (found.verifier | found.drafter == 0) {
            emit PositionOpened(
                drawn.batchId,
                drawn.index,
                drawn.lane.claimId,
                sample,
                found.position,
                found.bucket,
                found.drafted,
                found.accepted
            );
        }
    }

    /// @inheritdoc IDrawBeacon
    function expire(Draw calldata drawn) external {
        DrawState storage state = _requireRunning(drawn);
        bool first = state.stage == Stage.OPEN;
        uint40 until = first ? state.firstUntil : state.secondUntil;
        // INVARIANT: nobody pays for a deadline that has not passed.
        if (block.timestamp <= until) revert TooEarly(until);
        _move(drawn, state, first ? Stage.LATE : Stage.SILENT);
        vault.slash(
            drawn.lane.verifier,
            Role.VERIFIER,
            first ? drawn.terms.lateBps : drawn.terms.silentBps,
            new IStakeVault.Victim[](0),
            msg.sender,
            drawn.terms.rewardBps,
            keccak256(abi.encode("verdraft/F7/1", address(this), drawn.batchId, drawn.index, first))
        );
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IDrawBeacon
    function drawState(uint64 batchId, uint32 index) external view returns (DrawState memory) {
        return _draws[batchId][index];
    }

    /// @inheritdoc IDrawBeacon
    function terms() external view returns (Terms memory) {
        return _terms;
    }

    // ------------------------------------------------------------------ inside

    /// @dev Nobody is paid for showing a fault here: an opening lies open before it is mined, and who
    /// copies it would be paid as well. FaultCourt takes proofs by commit and reveal.
    function _punish(
        Draw calldata drawn,
        Openings.Opening calldata opening,
        address guilty,
        Role role,
        uint8 code
    ) private {
        (bytes32 startHash, uint32 round) = code == Openings.SUMS
            ? (drawn.entry.root, 0)
            : (opening.record.startHash, opening.record.round);
        emit FaultShown(drawn.batchId, drawn.index, guilty, code, startHash, round);
        vault.slash(
            guilty,
            role,
            drawn.terms.faultBps,
            new IStakeVault.Victim[](0),
            address(0),
            0,
            keccak256(
                abi.encode("verdraft/fault/1", Openings.faultOf(code), guilty, startHash, round)
            )
        );
    }

    function _requireBatch(Batch calldata batch) private view {
        bytes32 shown = keccak256(abi.encode(batch));
        bytes32 kept = batchHash[batch.id];
        if (shown != kept) revert NotThisBatch(batch.id, shown, kept);
    }

    function _requireRunning(Draw calldata drawn) private view returns (DrawState storage state) {
        bytes32 shown = keccak256(abi.encode(drawn));
        bytes32 kept = _drawHash[drawn.batchId][drawn.index];
        // INVARIANT: what is opened or paid for is what was drawn.
        if (shown != kept) revert NotThisDraw(shown, kept);
        state = _draws[drawn.batchId][drawn.index];
        if (state.stage != Stage.OPEN && state.stage != Stage.LATE) revert WrongStage(state.stage);
    }

    function _move(Draw calldata drawn, DrawState storage state, Stage stage) private {
        state.stage = stage;
        emit DrawMoved(drawn.batchId, drawn.index, stage);
    }

    /// @dev The lane's seed, and its lot: drawn where the coin, 64 bits of the seed, is below the
    /// chance.
    function _lot(Batch calldata batch, Batches.Entry memory entry, uint32 index)
        private
        pure
        returns (bytes32 seed, uint256 coin, uint256 chance)
    {
        seed = keccak256(abi.encodePacked("verdraft/sample/1", batch.randomness, index));
        coin = uint256(seed) >> 192;
        chance = chanceOf(batch.terms, entry.coverage);
    }

    function _entryAt(Batch calldata batch, bytes calldata entries, uint32 index)
        private
        pure
        returns (Batches.Entry memory entry)
    {
        bytes32 shown = keccak256(entries);
        if (shown != batch.entriesHash) revert NotTheseEntries(shown, batch.entriesHash);
        if (index >= batch.entries || entries.length < (uint256(index) + 1) * Batches.ENTRY_BYTES) {
            revert NoSuchEntry(index, batch.entries);
        }
        uint256 offset = uint256(index) * Batches.ENTRY_BYTES;
        entry.lane = bytes32(entries[offset:offset + 32]);
        entry.root = bytes32(entries[offset + 32:offset + 64]);
        uint256 word = uint256(bytes32(entries[offset + 64:offset + 96]));
        entry.valueDrafter = uint96(word);
        entry.valueVerifier = uint96(word >> 96);
        entry.epoch = uint32(word >> 192);
        entry.coverage = uint24(word >> 224);
        entry.flags = uint8(word >> 248);
    }

    /// @dev What cannot be paid is passed over: the beacon's right to spend fees is the owner's to take
    /// away, and locks wait for captures.
    function _reward(address token) private {
        uint256 amount = rewardOf[token];
        if (amount == 0) return;
        try escrow.spendFees(token, msg.sender, amount) returns (uint256) {} catch {}
    }
}
