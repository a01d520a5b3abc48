// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

import {AcceptRule} from "./AcceptRule.sol";
import {Buckets} from "./Buckets.sol";
import {Records} from "./Records.sol";
import {Trees} from "./Trees.sol";

/// @title Openings
/// @notice One position of a settled root, opened from the root down to its two leaves, and what a
/// contract can say of it.
/// @dev Two kinds of failure, kept apart. Where what is shown does not belong together (a hash that
/// does not match, a path that leads elsewhere, a signature by somebody else), the call reverts: a
/// stranger's mistake must not cost anyone. Where everything belongs together and breaks a rule, the
/// finding names the guilty. Every record here hangs on the root, which V signed in its voucher, and
/// on signatures of its own, so nobody is accused by what another has made up.
library Openings {
    /// @notice `what` hashes to `shown`, but the record above it names `named`.
    error NotNamed(string what, bytes32 shown, bytes32 named);

    /// @notice `what` is not signed by whom the order names.
    error NotSignedBy(string what, address signer, address expected);

    /// @notice The tree holds no output, so nothing can be drawn from it.
    error NothingToOpen(bytes32 root);

    // Of V, beside `AcceptRule`'s; F5 but for the last.
    uint8 internal constant SUMS = 16; // the root's sums are not its base's and its tree's together
    uint8 internal constant RECORD = 17; // the round record says otherwise than the signed records
    uint8 internal constant COUNTS = 18; // k, emitted or bucket counts do not fit each other
    uint8 internal constant CONTEXT = 19; // base or context does not follow from the round before
    uint8 internal constant STOP_PASSED = 20; // output goes on after a stop id
    uint8 internal constant WINDOW_VERIFIER = 21; // F4: another number of drafts than announced
    // Of D; F4.
    uint8 internal constant WINDOW_DRAFTER = 40;

    /// @notice The preimage of a settled root.
    struct Root {
        bytes32 top;
        uint256[9] sums;
        uint32 leafCount;
        bytes32 baseRoot;
    }

    /// @notice Everything about one drawn position. What a round does not have is left zero or empty.
    struct Opening {
        Root settled;
        Root base; // of settled.baseRoot
        Records.RoundRecord record;
        uint32 leafIndex;
        Trees.SumStep[] steps;
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit;
        bytes commitSignature; // D's, 65 bytes
        Records.Verdict verdict;
        bytes verdictSignature; // V's, 65 bytes
        Records.Verdict previous; // of the round before; none in round 0
        bytes previousSignature; // V's, 65 bytes
        Records.VerdictLeaf verdictLeaf;
        bytes32[] verdictPath;
        Records.DraftLeaf draftLeaf; // none past the last draft
        bytes32[] draftPath;
        bytes kept; // D's kept list, packed; rejection mode
    }

    /// @notice What an opening shows.
    struct Finding {
        uint8 verifier; // code of V's fault, or zero
        uint8 drafter; // code of D's fault, or zero
        uint32 position;
        uint8 bucket;
        bool drafted;
        bool accepted;
    }

    /// @notice Which output token of a tree a sample asks for: keccak256(tag ‖ seed ‖ uint8 sample)
    /// mod output. Of 256 bits, so the remainder favours none by more than 2**-192.
    function targetOf(bytes32 seed, uint8 sample, uint256 output) internal pure returns (uint256) {
        return uint256(keccak256(abi.encodePacked("verdraft/sample/1", seed, sample))) % output;
    }

    /// @notice The protocol's number of the fault behind a code: 3, 4 or 5.
    function faultOf(uint8 code) internal pure returns (uint8) {
        if (code == WINDOW_VERIFIER || code == WINDOW_DRAFTER) return 4;
        return code >= SUMS && code <= STOP_PASSED ? 5 : AcceptRule.faultOf(code);
    }

    /// @notice Judges the opening of one sample.
    /// @param root The settled root that was drawn.
    /// @param lane Id of the lane it belongs to.
    /// @param separator EIP-712 separator under which D and V signed.
    function judge(
        Opening calldata o,
        bytes32 root,
        bytes32 lane,
        bytes32 separator,
        bytes32 seed,
        uint8 sample
    ) internal pure returns (Finding memory finding) {
        (bool sumsHold, uint256 within) = _locate(o, root, seed, sample);
        _requireNamed(o, lane);
        _requireSigned(o, separator);
        if (!sumsHold) {
            finding.verifier = SUMS;
            return finding;
        }
        finding.verifier = _checkRound(o);
        if (finding.verifier != 0) return finding;
        _checkLeaves(o, within, finding);
        _checkCoins(o, finding);
    }

    // ------------------------------------------------------------------ what belongs together

    /// @dev From the root down to the round that covers the drawn token.
    function _locate(Opening calldata o, bytes32 root, bytes32 seed, uint8 sample)
        private
        pure
        returns (bool sumsHold, uint256 within)
    {
        // INVARIANT: what is opened is the root that was drawn, not another of the same lane.
        _same("root", _hash(o.settled), root);
        (uint256[9] memory total, uint256 before) = _climb(o);
        uint256 output = Trees.outputOf(total);
        if (output == 0) revert NothingToOpen(root);
        // INVARIANT: the drawn token alone says which round is opened, and where in it.
        within = Trees.requireCovers(targetOf(seed, sample, output), before, o.record.output);
        if (o.settled.baseRoot != 0) {
            // INVARIANT: the sums gone on from are those of the base, not made up.
            _same("baseRoot", _hash(o.base), o.settled.baseRoot);
            total = Trees.add(total, o.base.sums);
        }
        sumsHold = keccak256(abi.encode(total)) == keccak256(abi.encode(o.settled.sums));
    }

    /// @dev The sums of the whole tree, and the output to the left of the round.
    function _climb(Opening calldata o)
        private
        pure
        returns (uint256[9] memory total, uint256 before)
    {
        Records.RoundRecord memory record = o.record;
        bytes32 leaf = Records.leaf(record);
        bytes32 top;
        (top, total, before) =
            Trees.climb(leaf, Records.sums(record), o.leafIndex, o.settled.leafCount, o.steps);
        // INVARIANT: the round is in the tree, at that place, with those sums beside it.
        _same("top", top, o.settled.top);
    }

    /// @dev From the round record to the order, both commitments and the round before.
    function _requireNamed(Opening calldata o, bytes32 lane) private pure {
        _same("start", Records.hash(o.start), o.record.startHash);
        _same("order", Records.hash(o.order), o.start.sessionId);
        // INVARIANT: a round counts in the lane of its own order only.
        _same("lane", Records.laneId(Records.laneOf(o.order)), lane);
        _same("verdict", Records.hash(o.verdict), o.record.verdictHash);
        if (o.record.draftCommitHash != 0) {
            _same("commit", Records.hash(o.commit), o.record.draftCommitHash);
        }
        if (o.record.round != 0) {
            if (o.record.draftCommitHash != 0) {
                _same("previous", Records.hash(o.previous), o.commit.prevVerdictHash);
            }
            // Without drafts only V's signature says which round came before; another one is F2.
            _same("previous start", o.previous.startHash, o.record.startHash);
            _same(
                "previous round",
                bytes32(uint256(o.previous.round) + 1),
                bytes32(uint256(o.record.round))
            );
        }
    }

    function _requireSigned(Opening calldata o, bytes32 separator) private pure {
        // INVARIANT: V has put its name to the verdict, and D to its drafts.
        _signed("verdict", separator, o.record.verdictHash, o.verdictSignature, o.order.verifier);
        if (o.record.draftCommitHash != 0) {
            _signed(
                "commit", separator, o.record.draftCommitHash, o.commitSignature, o.order.drafter
            );
        }
        if (o.record.round != 0) {
            _signed(
                "previous",
                separator,
                Records.hash(o.previous),
                o.previousSignature,
                o.order.verifier
            );
        }
    }

    // ------------------------------------------------------------------ what breaks a rule

    /// @dev The round record against the records that V and D signed. Returns a code of V's.
    function _checkRound(Opening calldata o) private pure returns (uint8) {
        Records.RoundRecord calldata record = o.record;
        Records.Verdict calldata verdict = o.verdict;
        if (
            verdict.startHash != record.startHash || verdict.round != record.round
                || verdict.verdictRoot != record.verdictRoot
                || verdict.draftCommitHash != record.draftCommitHash
                || verdict.emitted != record.output || verdict.k != record.accepted
        ) return RECORD;
        uint256 window = _window(o);
        if (record.draftCommitHash == 0) {
            if (record.draftRoot != 0) return RECORD;
        } else {
            Records.DraftCommit calldata commit = o.commit;
            if (
                commit.startHash != record.startHash || commit.round != record.round
                    || commit.draftRoot != record.draftRoot || commit.version != verdict.version
                    || commit.base != verdict.base || commit.contextHash != verdict.contextHash
                    || window == 0
            ) return RECORD;
        }

        uint256 k = verdict.k;
        if (k > window || verdict.emitted < k || verdict.emitted > k + 1) return COUNTS;
        // A window that is not used up and ends in V's own token ends in a reject.
        uint256 reached = k < window && verdict.emitted == k + 1 ? k + 1 : k;
        (uint256 proposed, uint256 accepted) = _bucketTotals(record.buckets);
        if (proposed != reached || accepted != k) return COUNTS;

        if (record.round == 0) {
            bytes32 context = o.order.parentSession == 0 ? o.order.promptHash : o.order.contextHash;
            if (verdict.base != o.order.startPosition || verdict.contextHash != context) {
                return CONTEXT;
            }
        } else if (
            uint256(o.previous.base) + o.previous.emitted != verdict.base
                || o.previous.nextContextHash != verdict.contextHash
        ) {
            return CONTEXT;
        }
        return window > o.order.maxWindow ? WINDOW_VERIFIER : 0;
    }

    /// @dev Both leaves against each other and the round's counts.
    function _checkLeaves(Opening calldata o, uint256 within, Finding memory finding) private pure {
        Records.VerdictLeaf memory leaf = o.verdictLeaf;
        Records.Verdict calldata verdict = o.verdict;
        Trees.requireLeaf(
            verdict.verdictRoot, Records.leaf(leaf), within, verdict.emitted, o.verdictPath
        );
        uint256 window = _window(o);
        bool drafted = within < window;
        Records.DraftLeaf memory draft = o.draftLeaf;
        if (drafted) {
            Trees.requireLeaf(o.commit.draftRoot, Records.leaf(draft), within, window, o.draftPath);
        }
        uint256 position = uint256(verdict.base) + within;
        finding.position = uint32(position);
        finding.drafted = drafted;
        finding.accepted = leaf.accepted;
        finding.bucket = uint8(Buckets.indexOf(leaf.position, leaf.topProb));

        Records.Order memory order = o.order;
        if (drafted) {
            finding.drafter = AcceptRule.checkDraftLeaf(
                order, o.start.seed, verdict.contextHash, position, draft, o.commit.chainValue
            );
            if (finding.drafter == 0 && order.mode == Records.MODE_REJECTION) {
                finding.drafter = AcceptRule.checkDraftList(draft, o.kept);
            }
        }
        finding.verifier = AcceptRule.checkLeafPair(
            order, o.start.seed, position, drafted, draft, leaf, verdict.chainValue
        );
        if (finding.verifier == 0) {
            finding.verifier = _checkPlace(o, within, leaf, finding.bucket, drafted);
        }
    }

    /// @dev The verdict leaf against the round's counts, its stops and the context after it.
    function _checkPlace(
        Opening calldata o,
        uint256 within,
        Records.VerdictLeaf memory leaf,
        uint256 bucket,
        bool drafted
    ) private pure returns (uint8) {
        if (leaf.accepted != within < o.verdict.k) return COUNTS;
        uint256[9] memory sums = Records.sums(o.record);
        if (drafted && Trees.proposedIn(sums, bucket) == 0) return COUNTS;
        if (leaf.accepted && Trees.acceptedIn(sums, bucket) == 0) return COUNTS;
        if (within + 1 < o.verdict.emitted) {
            uint32[] calldata stops = o.order.stopIds;
            for (uint256 i; i < stops.length; ++i) {
                if (stops[i] == leaf.token) return STOP_PASSED;
            }
        } else if (within == 0) {
            // The only leaf of the round, so the context after it is known.
            bytes32 next = Records.nextContext(o.verdict.contextHash, leaf.token);
            if (next != o.verdict.nextContextHash) return CONTEXT;
        }
        return 0;
    }

    /// @dev Rejection mode: both chains, and the number of drafts that was announced.
    function _checkCoins(Opening calldata o, Finding memory finding) private pure {
        if (o.order.mode != Records.MODE_REJECTION) return;
        uint256 round = o.record.round;
        Records.Order memory order = o.order;
        bool drafts = o.record.draftCommitHash != 0;
        if (finding.verifier == 0) {
            finding.verifier = AcceptRule.checkChainVerifier(order, round, o.verdict.chainValue);
        }
        if (drafts && finding.drafter == 0) {
            finding.drafter = AcceptRule.checkChainDrafter(order, round, o.commit.chainValue);
        }
        uint256 announced = round == 0 ? o.start.firstK : o.previous.nextK;
        // INVARIANT: D is not to blame for keeping to the order where V announced more.
        if (announced > order.maxWindow) announced = order.maxWindow;
        uint256 window = _window(o);
        // Fewer only where that many and V's own token reach the end.
        bool short = window < announced && uint256(o.verdict.base) + window + 1 >= order.maxTokens;
        if (window == announced || short) return;
        if (!drafts && finding.verifier == 0) finding.verifier = WINDOW_VERIFIER;
        if (drafts && finding.drafter == 0) finding.drafter = WINDOW_DRAFTER;
    }

    // ------------------------------------------------------------------ inside

    function _window(Opening calldata o) private pure returns (uint256) {
        return o.record.draftCommitHash == 0 ? 0 : o.commit.k;
    }

    function _hash(Root memory root) private pure returns (bytes32) {
        return Trees.settledRoot(root.top, root.sums, root.leafCount, root.baseRoot);
    }

    function _bucketTotals(uint256[8] calldata buckets)
        private
        pure
        returns (uint256 proposed, uint256 accepted)
    {
        for (uint256 lane; lane < 16; ++lane) {
            uint256 shift = 64 * (lane % 4);
            proposed += buckets[lane / 4] >> shift & type(uint64).max;
            accepted += buckets[4 + lane / 4] >> shift & type(uint64).max;
        }
    }

    function _same(string memory what, bytes32 shown, bytes32 named) private pure {
        if (shown != named) revert NotNamed(what, shown, named);
    }

    function _signed(
        string memory what,
        bytes32 separator,
        bytes32 structHash,
        bytes calldata signature,
        address expected
    ) private pure {
        bytes32 digest = Records.digest(separator, structHash);
        (address signer,,) = ECDSA.tryRecover(digest, signature);
        if (signer != expected || signer == address(0)) revert NotSignedBy(what, signer, expected);
    }
}
