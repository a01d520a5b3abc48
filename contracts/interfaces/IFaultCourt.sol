// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {Records} from "../libraries/Records.sol";
import {ICourt} from "./ICourt.sol";
import {IDrawBeacon} from "./IDrawBeacon.sol";

/// @title IFaultCourt
/// @notice F1 to F5, which records prove by themselves. The evidence hash of a filing is that of the
/// rule's call data: selector and arguments of the function of IRoundRule or ITreeRule.
interface IFaultCourt is ICourt {
    /// @notice That a root is its verifier's: a voucher it signed, or, with an empty signature, a batch
    /// in which it was settled (the escrow has seen the signature then).
    struct Source {
        Records.Voucher voucher;
        bytes signature; // V's, 65 bytes
        IDrawBeacon.Batch batch; // as the beacon has it now
        bytes entries; // all entries of the batch, packed
        uint32 index;
    }

    // ------------------------------------------------------------------ proofs

    /// @notice F1: D signed two windows for one place.
    function proveDraftTwice(Evidence.DraftPair calldata evidence, bytes32 salt) external;

    /// @notice F2: V signed two verdicts on one round.
    function proveVerdictTwice(Evidence.VerdictPair calldata evidence, bytes32 salt) external;

    /// @notice F3: V's leaf names another draft token than D's leaf.
    function proveOtherDraft(Evidence.LeafPair calldata evidence, bytes32 salt) external;

    /// @notice F4 by V: the accept rule broken on the leaves' own figures.
    function proveAcceptRule(Evidence.LeafPair calldata evidence, bytes32 salt) external;

    /// @notice F4 by D: a draft out of place, outside its draw, or not of its list.
    function proveDraftLeaf(Evidence.DraftPlace calldata evidence, bytes32 salt) external;

    /// @notice F4 by D: coin or number of drafts.
    function proveDraftRound(Evidence.DraftRound calldata evidence, bytes32 salt) external;

    /// @notice F4 by V: coin or number of drafts.
    function proveVerdictRound(Evidence.Round calldata evidence, bytes32 salt) external;

    /// @notice F5: a verdict against its draft, its counts, the verdict before and max tokens.
    function proveRoundFit(Evidence.Round calldata evidence, bytes32 salt) external;

    /// @notice F5: a leaf out of place, against the accepted count, or a stop that was passed.
    function proveLeafPlace(Evidence.LeafPlace calldata evidence, bytes32 salt) external;

    /// @notice F5: a verdict against all its leaves.
    function proveAllLeaves(Evidence.AllLeaves calldata evidence, bytes32 salt) external;

    /// @notice F5: a round record against what it names.
    /// @param source Not part of the commitment: a batch's hash moves when its randomness comes.
    function proveRecord(
        Evidence.RecordCase calldata evidence,
        Source calldata source,
        bytes32 salt
    ) external;

    /// @notice F5: false sums in a settled tree or its root.
    function proveSums(Evidence.TreeStep calldata evidence, Source calldata source, bytes32 salt)
        external;

    /// @notice F5: one round counted twice.
    function proveRoundTwice(Evidence.Twice calldata evidence, Source calldata source, bytes32 salt)
        external;
}
