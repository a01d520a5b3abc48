// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../libraries/Records.sol";

/// @title IAlphaLedger
/// @notice Claims of acceptance rates, the counts they are tested against, and the cases that a
/// failed test opens.
interface IAlphaLedger {
    /// @notice What may still happen to a claim. A claim once published stays, whatever its status.
    enum Status {
        NONE,
        ACTIVE,
        SUSPENDED, // a case is open
        VOID // a case was refuted or never answered
    }

    /// @notice Where a case stands.
    enum Stage {
        NONE,
        OPEN, // waits for the drafter's assertion
        LATE, // the first deadline has passed and been paid for
        ANSWERED, // the drafter asserts that its registered model made the drafts
        STOOD, // nobody refuted it: the claim's rates are now what was observed
        DISMISSED, // without the rounds found false the test no longer fails
        REFUTED, // a judge found that another model made the drafts
        UNANSWERED // silence at the second deadline
    }

    /// @notice A claim as it stands now.
    struct ClaimState {
        address drafter;
        uint8 mode;
        uint32 maxTemperature; // Q16
        Status status;
        uint16 era; // times its rates were replaced
        uint32 verifiers; // verifiers that have settled under it
        uint128 rates; // percent, bucket b at bits 8·b
        uint64 openCase; // zero: none
        bytes32 targetModel;
        bytes32 draftModel;
    }

    /// @notice What a case may cost, as the parameters stood when it opened.
    struct CaseTerms {
        uint16 lateBps;
        uint16 silentBps;
        uint16 refutedBps;
        uint16 rewardBps;
        uint128 bond;
        uint32 judgedWithin; // seconds after the answer
    }

    /// @notice One failed test and what came of it.
    struct Case {
        bytes32 claimId;
        address verifier; // whose series failed; zero: the whole claim's
        address flagger;
        uint8 bucket;
        Stage stage;
        uint16 era;
        uint32 from; // checkpoints of that series
        uint32 to;
        uint64 openedAt;
        uint64 firstUntil;
        uint64 secondUntil;
        uint64 refutableUntil; // zero until answered
        address answeredBy;
        CaseTerms terms;
        uint128 threshold; // at 2**20, that the score had to exceed
        uint256[4] counts; // of the interval, as `BucketHistory` packs them
    }

    /// @notice What cases cost and how long counts run together. Fixed for a case when it opens.
    struct Parameters {
        uint32 spacing; // proposals after which a state becomes a checkpoint
        uint16 lateBps; // lost at the first missed deadline
        uint16 silentBps; // lost at the second
        uint16 refutedBps; // lost when a judge refutes
        uint16 rewardBps; // the flagger's share of a slash
        uint128 bond; // of the stake token, with an assertion
    }

    event ClaimRegistered(bytes32 indexed claimId, address indexed drafter, Records.Claim claim);
    /// @notice Counts were added; `checkpoint` holds them in that series.
    event Counted(
        bytes32 indexed claimId,
        address indexed verifier,
        uint256[9] delta,
        uint32 checkpoint,
        uint32 claimCheckpoint
    );
    /// @notice A verifier settled under the claim for the first time, as the order-th.
    event VerifierJoined(bytes32 indexed claimId, address indexed verifier, uint32 order);
    event SeriesFull(bytes32 indexed claimId, address indexed verifier);
    event CaseOpened(
        uint64 indexed caseId,
        bytes32 indexed claimId,
        address indexed drafter,
        Case opened,
        int256 score
    );
    event CaseAnswered(uint64 indexed caseId, address by, uint64 refutableUntil);
    event RoundsExcluded(uint64 indexed caseId, uint256[9] sums, int256 score);
    event CaseMoved(uint64 indexed caseId, bytes32 indexed claimId, Stage stage);
    event RatesReplaced(bytes32 indexed claimId, uint16 era, uint128 rates);
    event BondReleased(address indexed account, uint256 amount);
    event BondPaid(address indexed account, uint256 amount, address to);
    event JudgeSet(address indexed judge, bool allowed);
    event ParametersChanged(Parameters parameters);

    // ------------------------------------------------------------------ what other contracts call

    /// @notice The drafter whose published claim this is; zero if nobody published it. A claim once
    /// published stays, suspended or replaced or not.
    function claimDrafter(bytes32 claimId) external view returns (address);

    /// @notice Adds what one transaction settled for lanes of one claim and verifier. Only the escrow.
    /// @dev Does not revert for a published claim, whatever its state, and costs a bounded amount: it
    /// stands in the way of every payment. The escrow vouches that every lane of `delta` is below
    /// 2**46, that accepted ≤ proposed in each bucket, and that `verifier` is not zero.
    /// @param drafter The claim's drafter, as the escrow checked when the lane was opened.
    /// @param delta Nine words: output | accepted << 64, then proposed and accepted by bucket, four
    /// uint64 lanes a word (`Records`).
    function record(bytes32 claimId, address drafter, address verifier, uint256[9] memory delta)
        external;

    // ------------------------------------------------------------------ judges

    /// @notice Another model made the drafts (F12): the drafter loses its stake's share and its bond.
    function refute(uint64 caseId) external;

    /// @notice No fault found: the case ends now, as it would at its deadline.
    function uphold(uint64 caseId) external;

    /// @notice Takes rounds of the case's interval, found false under F9, out of its counts. If the
    /// test does not fail without them, the case is dismissed.
    /// @param sums As in a round record: output | accepted << 64, then eight bucket words.
    function exclude(uint64 caseId, uint256[9] calldata sums) external;

    // ------------------------------------------------------------------ read

    function claimOf(bytes32 claimId) external view returns (ClaimState memory);

    function caseOf(uint64 caseId) external view returns (Case memory);

    function parameters() external view returns (Parameters memory);
}
