// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {IDrawBeacon} from "./IDrawBeacon.sol";

/// @title IPlaceRule
/// @notice One output token of a settled root, shown from the batch down to what V or D said there.
/// @dev Panels forward what they are handed without reading it, so their arguments are the encoding of
/// these functions' own.
interface IPlaceRule {
    /// @notice The token. `commit` and what follows are shown where D is asked about, else left zero.
    struct Place {
        Openings.Root settled;
        Records.RoundRecord record;
        uint32 leafIndex;
        Trees.SumStep[] steps;
        Records.Order order;
        Records.SessionStart start;
        Records.Verdict verdict;
        uint32 within; // of the round
        Records.VerdictLeaf leaf;
        bytes32[] path;
        Records.DraftCommit commit;
        bytes commitSignature; // D's, 65 bytes
        Records.DraftLeaf draft;
        bytes32[] draftPath;
    }

    /// @notice The batch in which the root was settled, as the beacon has it now.
    struct Source {
        IDrawBeacon.Batch batch;
        bytes entries; // all entries of the batch, packed
        uint32 index;
    }

    /// @notice What is asked of auditors, and who answers for it.
    struct Subject {
        bytes32 root;
        bytes32 lane;
        address client;
        address drafter;
        address verifier;
        address token;
        bytes32 claimId;
        bytes32 model; // that auditors run: the target, or the draft model
        bytes32 startHash;
        uint32 round;
        uint32 within;
        uint64 target; // the token's number in the tree
        uint64 output; // of the tree
        bytes32 record; // leaf hash of the round record
        bytes32 sealedPrint; // of V's fingerprint; zero where D is asked about
        bytes32 figures; // one hash of all that was said there, but for the fingerprint
        uint64 batchId;
        uint32 index; // of the lane's entry in it
        bytes32 seed; // of that entry's draw; zero while the batch has no randomness
        uint128 value; // what that settlement has paid for the lane, both payees together
        uint64 settledAt; // unix seconds
        uint64 until; // after that nobody is accused of it: evidence and both deadlines
        uint128 clientLoss; // of `token`, what the client paid for the round
        uint128 drafterLoss; // what D was not paid for this token
    }

    /// @notice What V said of the token.
    function verdictPlace(Place calldata place, Source calldata source)
        external
        view
        returns (Subject memory);

    /// @notice What D drafted there.
    /// @param ledgerCase In the strict modes, where drafts change no text: the case of AlphaLedger in
    /// which D asserts its model. Else not looked at.
    function draftPlace(Place calldata place, Source calldata source, uint64 ledgerCase)
        external
        view
        returns (Subject memory);
}
