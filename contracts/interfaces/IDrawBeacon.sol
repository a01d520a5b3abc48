// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Batches} from "../libraries/Batches.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";

/// @title IDrawBeacon
/// @notice Later randomness, weighted draws over settled roots, openings and their deadlines.
interface IDrawBeacon {
    /// @notice What a batch is drawn and judged by. Taken when it is registered, never changed after.
    struct Terms {
        uint32 evidence; // seconds after settlement, while a lane may be drawn
        uint32 firstDeadline; // seconds after the draw was called
        uint32 secondDeadline; // seconds after the first
        uint32 baseRate; // of lanes drawn whatever their cover, out of 2**32
        uint16 lateBps; // of V's stake, at the first missed deadline
        uint16 silentBps; // at the second
        uint16 faultBps; // for a fault that an opening shows, and that the cover is reckoned by
        uint16 rewardBps; // of a slash for silence, to who called it
        uint8 samples; // positions in a drawn lane
        uint8 delay; // blocks from settlement to randomness
    }

    /// @notice One settlement transaction. The chain keeps its hash; the events carry the rest.
    struct Batch {
        uint64 id;
        bytes32 entriesHash; // `Batches.hash` of its entries; the event BatchSettled carries them
        address token;
        uint32 entries;
        uint64 slice;
        uint64 settledAt; // unix seconds
        uint64 settledBlock;
        uint64 targetBlock; // whose hash makes the randomness
        bytes32 randomness; // zero until captured
        Terms terms;
    }

    /// @notice A drawn lane. The chain keeps its hash; the event LaneDrawn carries the rest.
    struct Draw {
        uint64 batchId;
        uint32 index; // of the entry in the batch
        bytes32 seed;
        Batches.Entry entry;
        Records.Lane lane;
        Terms terms;
    }

    /// @notice Where a drawn lane stands.
    enum Stage {
        NONE,
        OPEN, // positions wait to be opened
        LATE, // the first deadline has passed and been paid for
        SHOWN, // all positions were opened
        FAULTY, // an opening showed a fault of V
        SILENT // the second deadline has passed and been paid for
    }

    struct DrawState {
        address verifier;
        uint40 firstUntil;
        uint40 secondUntil;
        Stage stage;
        uint8 opened; // bit j: sample j
    }

    /// @notice A batch awaits its randomness.
    event BatchRegistered(uint64 indexed batchId, Batch batch);
    /// @notice The target block's hash was gone; a later block takes its place.
    event BatchReanchored(uint64 indexed batchId, uint64 targetBlock);
    event RandomnessCaptured(uint64 indexed batchId, bytes32 randomness, address by);
    event LaneDrawn(
        uint64 indexed batchId,
        uint32 indexed index,
        address indexed verifier,
        Draw draw,
        uint40 firstUntil,
        uint40 secondUntil
    );
    /// @notice A drawn position was opened and broke no rule: one α sample of the claim.
    event PositionOpened(
        uint64 indexed batchId,
        uint32 indexed index,
        bytes32 indexed claimId,
        uint8 sample,
        uint32 position,
        uint8 bucket,
        bool drafted,
        bool accepted
    );
    /// @notice An opening showed a fault, of code `Openings` or `AcceptRule`.
    event FaultShown(
        uint64 indexed batchId,
        uint32 indexed index,
        address indexed guilty,
        uint8 code,
        bytes32 startHash,
        uint32 round
    );
    event DrawMoved(uint64 indexed batchId, uint32 indexed index, Stage stage);
    event TermsChanged(Terms terms);
    event RewardSet(address indexed token, uint256 amount);

    // ------------------------------------------------------------------ what other contracts call

    /// @notice Registers what one transaction settled. Only the escrow.
    /// @dev Does not revert and costs a bounded amount: it stands in the way of every payment. All
    /// terms (ρ, samples, deadlines, shares) are fixed for the batch here.
    function registerBatch(bytes32 entriesHash, uint32 entries, address token, uint64 slice)
        external
        returns (uint64 batchId);

    /// @notice Batches of the slice whose randomness is not captured yet. No lock of the slice is
    /// released before this is zero; anyone can bring it there, so nothing stays locked for ever.
    function pendingIn(uint64 slice) external view returns (uint256);

    /// @notice keccak256(abi.encode(batch)) as it stands now; zero for no batch. Judges are handed the
    /// batch and compare.
    function batchHash(uint64 batchId) external view returns (bytes32);

    // ------------------------------------------------------------------ anyone

    /// @notice Captures the randomness of batches, for a reward each; moves on those whose block's
    /// hash is gone. Batches already captured are passed over.
    /// @return captured How many got their randomness.
    function capture(Batch[] calldata batches) external returns (uint256 captured);

    /// @notice Starts the clock of a drawn lane, for a reward.
    /// @param entries All entries of the batch, packed.
    function draw(
        Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        Records.Lane calldata lane
    ) external;

    /// @notice Opens one drawn position. Anyone may hand it in; V has to see to it.
    function open(Draw calldata drawn, uint8 sample, Openings.Opening calldata opening) external;

    /// @notice Takes the price of a missed deadline; the second needs a second call.
    function expire(Draw calldata drawn) external;

    // ------------------------------------------------------------------ read

    function drawState(uint64 batchId, uint32 index) external view returns (DrawState memory);

    function terms() external view returns (Terms memory);
}
