// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Coins} from "./Coins.sol";
import {Masses} from "./Masses.sol";
import {Records} from "./Records.sol";

/// @title AcceptRule
/// @notice The accept rule run again on the figures that two leaves carry: what a contract can judge
/// alone. Same functions, same order of checks, same codes as `settlement/accept_rule.py`.
/// @dev The figures themselves may be lies; those fall under F9 and F12 and need a model. Drafter and
/// verifier are judged apart, because each may be guilty where the other is not. Every function
/// returns the code of the first check that fails, or `NO_FAULT`.
library AcceptRule {
    /// @notice The kept list shown is not the one that the leaf names: the prover's mistake, nobody's
    /// fault.
    error NotThisLeaf(bytes32 shown, bytes32 named);

    uint8 internal constant NO_FAULT = 0;

    // The verifier's.
    uint8 internal constant OUTSIDE_SESSION = 1; // F5
    uint8 internal constant WRONG_POSITION = 2; // F5
    uint8 internal constant OTHER_DRAFT = 3; // F3
    uint8 internal constant ACCEPTED_NOTHING = 4; // this and all below: F4
    uint8 internal constant ACCEPTED_OTHER = 5;
    uint8 internal constant REJECTED_OWN_TOKEN = 6;
    uint8 internal constant COIN_SAYS_OTHERWISE = 7;
    uint8 internal constant KEY_BIT = 8;
    uint8 internal constant SCORES_CROSSED = 9;
    uint8 internal constant RELAXED_ACCEPT = 10;
    uint8 internal constant RELAXED_REJECT = 11;
    uint8 internal constant CHAIN_VERIFIER = 12;

    // The drafter's.
    uint8 internal constant DRAFT_WRONG_POSITION = 32;
    uint8 internal constant DRAFT_NO_TOKEN = 33;
    uint8 internal constant DRAW = 34;
    uint8 internal constant LIST_MALFORMED = 35;
    uint8 internal constant LIST_NOT_LEAF = 36;
    uint8 internal constant CHAIN_DRAFTER = 37;

    /// @notice The protocol's number of the fault behind a code: 3, 4 or 5.
    function faultOf(uint8 code) internal pure returns (uint8) {
        if (code == OUTSIDE_SESSION || code == WRONG_POSITION) return 5;
        return code == OTHER_DRAFT ? 3 : 4;
    }

    /// @notice Whether the code accuses the drafter; else it accuses the verifier.
    function byDrafter(uint8 code) internal pure returns (bool) {
        return code >= DRAFT_WRONG_POSITION;
    }

    /// @notice The verifier's fault in the verdict leaf that stands at `position`.
    /// @param seed S of the session's start.
    /// @param position Base + index of the leaf in the verdict tree, as its Merkle proof shows.
    /// @param drafted False at index K, where no draft was made; `draft` is not read then.
    /// @param draft The draft leaf at the same index of the draft tree.
    /// @param chainValue v_r of the verdict; read in rejection mode only.
    function checkLeafPair(
        Records.Order memory order,
        bytes32 seed,
        uint256 position,
        bool drafted,
        Records.DraftLeaf memory draft,
        Records.VerdictLeaf memory verdict,
        bytes32 chainValue
    ) internal pure returns (uint8) {
        if (position < order.startPosition || position >= order.maxTokens) return OUTSIDE_SESSION;
        if (verdict.position != position) return WRONG_POSITION;
        if (verdict.draftToken != (drafted ? draft.token : Records.NO_TOKEN)) return OTHER_DRAFT;
        if (!drafted) return verdict.accepted ? ACCEPTED_NOTHING : NO_FAULT;
        bool same = verdict.token == verdict.draftToken;
        if (verdict.accepted && !same) return ACCEPTED_OTHER;
        if (order.mode == Records.MODE_REJECTION) {
            uint64 u = Coins.coin(chainValue, seed, verdict.position, Coins.PURPOSE_ACCEPT);
            if (verdict.accepted != Masses.accepts(u, draft.q, verdict.p)) {
                return COIN_SAYS_OTHERWISE;
            }
            // A rejected draft has p < q, so the residual never gives it back.
            return draft.q != 0 && !verdict.accepted && same ? REJECTED_OWN_TOKEN : NO_FAULT;
        }
        if (order.relaxTau == 0) {
            return same && !verdict.accepted ? REJECTED_OWN_TOKEN : NO_FAULT;
        }
        return _checkRelaxed(order, draft, verdict);
    }

    /// @notice The drafter's fault in the draft leaf that stands at `position`.
    /// @param contextHash c at the round's base, as the DraftCommit names it.
    /// @param position Base + index of the leaf in the draft tree.
    /// @param chainValue d_r of the DraftCommit; read in rejection mode only.
    function checkDraftLeaf(
        Records.Order memory order,
        bytes32 seed,
        bytes32 contextHash,
        uint256 position,
        Records.DraftLeaf memory draft,
        bytes32 chainValue
    ) internal pure returns (uint8) {
        if (draft.position != position) return DRAFT_WRONG_POSITION;
        if (draft.token == Records.NO_TOKEN) return DRAFT_NO_TOKEN;
        if (order.mode != Records.MODE_REJECTION) return NO_FAULT;
        // INVARIANT: the interval lies inside the whole; an end past it would win coins twice.
        bool inside = uint256(draft.qBelow) + draft.q <= Records.MASS_TOTAL;
        uint64 drawn = Coins.draw(chainValue, seed, contextHash, draft.position);
        return inside && Masses.holds(draft.qBelow, draft.q, drawn) ? NO_FAULT : DRAW;
    }

    /// @notice The drafter's fault in the kept list behind a rejection-mode leaf.
    /// @param packed (uint32 id ‖ uint64 mass)*, as the drafter's frame carried it.
    function checkDraftList(Records.DraftLeaf memory draft, bytes memory packed)
        internal
        pure
        returns (uint8)
    {
        bytes32 shown = Records.keptHash(packed);
        if (shown != draft.keptHash) revert NotThisLeaf(shown, draft.keptHash);
        (bool wellFormed, uint256 q, uint256 below) = Masses.interval(packed, draft.token);
        if (!wellFormed) return LIST_MALFORMED;
        return q == draft.q && below == draft.qBelow ? NO_FAULT : LIST_NOT_LEAF;
    }

    /// @notice The verifier's fault if v_r of `round` does not lead to the order's anchor; rejection
    /// mode only.
    function checkChainVerifier(Records.Order memory order, uint256 round, bytes32 chainValue)
        internal
        pure
        returns (uint8)
    {
        return Coins.anchorOf(chainValue, round) == order.anchorVerifier ? NO_FAULT : CHAIN_VERIFIER;
    }

    /// @notice The drafter's fault if d_r of `round` does not lead to the order's anchor; rejection
    /// mode only.
    function checkChainDrafter(Records.Order memory order, uint256 round, bytes32 chainValue)
        internal
        pure
        returns (uint8)
    {
        return Coins.anchorOf(chainValue, round) == order.anchorDrafter ? NO_FAULT : CHAIN_DRAFTER;
    }

    /// @dev Greedy and coupled mode with τ > 0.
    function _checkRelaxed(
        Records.Order memory order,
        Records.DraftLeaf memory draft,
        Records.VerdictLeaf memory verdict
    ) private pure returns (uint8) {
        bool strict = verdict.surprisal > order.keyTargetSurprisal
            || draft.surprisal > order.keyDraftSurprisal;
        if (strict && !verdict.key) return KEY_BIT;
        if (verdict.scoreDraft > verdict.scoreTop) return SCORES_CROSSED;
        bool tied = verdict.scoreDraft == verdict.scoreTop;
        // On int256: scoreTop − τ may leave int64.
        bool passes = !verdict.key
            && int256(verdict.scoreDraft)
                >= int256(verdict.scoreTop) - int256(uint256(order.relaxTau));
        if (verdict.accepted) return passes || tied ? NO_FAULT : RELAXED_ACCEPT;
        if (verdict.token == verdict.draftToken) return REJECTED_OWN_TOKEN;
        // Among equals the lowest id is the target's own token.
        return passes || (tied && verdict.token > verdict.draftToken) ? RELAXED_REJECT : NO_FAULT;
    }
}
