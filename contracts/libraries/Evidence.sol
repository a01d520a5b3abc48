// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

import {Openings} from "./Openings.sol";
import {Records} from "./Records.sol";
import {Trees} from "./Trees.sol";

/// @title Evidence
/// @notice What proves a fault, one struct for each kind of proof, and what a proof establishes.
/// @dev Two kinds of failure, as in `Openings`: what does not belong together reverts and costs nobody
/// anything; what belongs together and breaks no rule reverts with NoFault; only the rest is a ruling.
/// Everything an accused is judged by hangs on a signature of its own key.
library Evidence {
    /// @notice Everything belongs together, and nothing of this kind is wrong with it.
    error NoFault();

    /// @notice `what` says `shown` where `named` is needed.
    error NotNamed(string what, bytes32 shown, bytes32 named);

    /// @notice `what` is not signed by `expected`.
    error NotSignedBy(string what, address signer, address expected);

    /// @notice There is no such place: a draft past the window, a leaf past the output, a level past
    /// the top.
    error NoSuchPlace(string what, uint256 index, uint256 count);

    // Beside the codes of `AcceptRule` and `Openings`.
    uint8 internal constant ROUND_TWICE = 22; // F5: one round twice in a tree or in a chain of batches
    uint8 internal constant VERDICT_TWICE = 23; // F2
    uint8 internal constant DRAFT_TWICE = 41; // F1

    /// @notice F1. No order is needed: the two signatures name the guilty, the start hash the session.
    struct DraftPair {
        Records.DraftCommit one;
        bytes oneSignature;
        Records.DraftCommit other;
        bytes otherSignature;
    }

    /// @notice F2.
    struct VerdictPair {
        Records.Order order;
        Records.SessionStart start;
        Records.Verdict one;
        bytes oneSignature;
        Records.Verdict other;
        bytes otherSignature;
    }

    /// @notice F3, and F4 by V: a leaf of the verdict beside the draft leaf of the same place. Past the
    /// last draft there is none, and draftLeaf and draftPath stay empty.
    struct LeafPair {
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit;
        Records.Verdict verdict;
        bytes verdictSignature;
        uint32 index;
        Records.VerdictLeaf verdictLeaf;
        bytes32[] verdictPath;
        Records.DraftLeaf draftLeaf;
        bytes32[] draftPath;
    }

    /// @notice F4 by D: a draft leaf, and the list behind it in rejection mode.
    struct DraftPlace {
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit;
        bytes commitSignature;
        uint32 index;
        Records.DraftLeaf leaf;
        bytes32[] path;
        bytes kept;
    }

    /// @notice F4 by D: its coin or its window. `previous` is needed for the window, and not in
    /// round 0.
    struct DraftRound {
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit;
        bytes commitSignature;
        Records.Verdict previous;
        bytes previousSignature;
    }

    /// @notice F4 by V (coin, window) and F5 (draft, counts, context): a verdict, the draft it names,
    /// and the verdict of the round before, where that is what it does not fit. What a round does not
    /// have is left zero.
    struct Round {
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit;
        Records.Verdict verdict;
        bytes verdictSignature;
        Records.Verdict previous;
        bytes previousSignature;
    }

    /// @notice F5: one leaf in its place. `later` is a verdict on a later round, where the leaf is a
    /// round's last and a stop; else zero.
    struct LeafPlace {
        Records.Order order;
        Records.SessionStart start;
        Records.Verdict verdict;
        bytes verdictSignature;
        uint32 index;
        Records.VerdictLeaf leaf;
        bytes32[] path;
        Records.Verdict later;
        bytes laterSignature;
    }

    /// @notice F5: all leaves of a verdict.
    struct AllLeaves {
        Records.Order order;
        Records.SessionStart start;
        Records.Verdict verdict;
        bytes verdictSignature;
        Records.VerdictLeaf[] leaves;
    }

    /// @notice F5: a round record in a settled tree against what it names. Leaves may be left out where
    /// they are not what it contradicts.
    struct RecordCase {
        Records.Lane lane;
        Openings.Root settled;
        Records.RoundRecord record;
        uint32 leafIndex;
        Trees.SumStep[] steps;
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit;
        Records.Verdict verdict;
        Records.VerdictLeaf[] leaves;
    }

    /// @notice F5: one step of a settled tree: a leaf (level 0: `record`) or a node (level n: both
    /// halves) and the sums that stand beside it in the path; or, where those are right, the root's.
    struct TreeStep {
        Records.Lane lane;
        Openings.Root settled;
        Openings.Root base; // of settled.baseRoot
        uint8 level;
        uint32 index; // at that level
        Records.RoundRecord record;
        Trees.SumStep left;
        Trees.SumStep right;
        uint256[9] claimed;
        Trees.SumStep[] steps;
    }

    /// @notice F5: one round at two places of what a settled root counts. `older` is empty for one
    /// tree; else the preimages of the roots it goes on from, each the base of the one before, down
    /// to the tree that holds the second place.
    struct Twice {
        Records.Lane lane;
        Openings.Root settled;
        Records.RoundRecord one;
        uint32 oneIndex;
        Trees.SumStep[] oneSteps;
        Openings.Root[] older;
        Records.RoundRecord other;
        uint32 otherIndex;
        Trees.SumStep[] otherSteps;
    }

    /// @notice What a proof establishes. Losses in units of `token`.
    struct Ruling {
        uint8 fault; // 1 to 5, or 9
        uint8 code;
        bool drafter; // else the verifier
        address guilty;
        bytes32 startHash; // or the settled root, for false sums
        uint32 round;
        bytes32 lane; // of F5 in a tree; its root is to be shown as signed or settled
        bytes32 root; // zero: nothing more to show
        address token;
        address client;
        uint256 clientLoss;
        address harmed; // the other operator
        uint256 harmedLoss;
    }

    // ------------------------------------------------------------------ shared checks

    function requireSame(string memory what, bytes32 shown, bytes32 named) internal pure {
        if (shown != named) revert NotNamed(what, shown, named);
    }

    /// @dev The zero address, ecrecover's failure, signs nothing.
    function signerOf(
        string memory what,
        bytes32 separator,
        bytes32 structHash,
        bytes calldata signature
    ) internal pure returns (address signer) {
        (signer,,) = ECDSA.tryRecover(Records.digest(separator, structHash), signature);
        if (signer == address(0)) revert NotSignedBy(what, address(0), address(0));
    }

    function requireSigned(
        string memory what,
        bytes32 separator,
        bytes32 structHash,
        bytes calldata signature,
        address expected
    ) internal pure {
        address signer = signerOf(what, separator, structHash, signature);
        if (signer != expected) revert NotSignedBy(what, signer, expected);
    }

    /// @notice The order behind a start, and the start behind a record.
    function requireSession(
        Records.Order memory order,
        Records.SessionStart memory start,
        bytes32 startHash
    ) internal pure {
        // INVARIANT: terms are those of the accused's own session.
        requireSame("start", Records.hash(start), startHash);
        requireSame("order", Records.hash(order), start.sessionId);
    }

    function rootHash(Openings.Root memory root) internal pure returns (bytes32) {
        return Trees.settledRoot(root.top, root.sums, root.leafCount, root.baseRoot);
    }
}
