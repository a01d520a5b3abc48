// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "./Evidence.sol";
import {ExactEvidence} from "./ExactEvidence.sol";
import {ExactModel} from "./ExactModel.sol";
import {IntDot} from "./IntDot.sol";
import {Noise} from "./Noise.sol";
import {Records} from "./Records.sol";
import {RoundFaults} from "./RoundFaults.sol";
import {Traces} from "./Traces.sol";
import {Trees} from "./Trees.sol";

/// @title ExactFaults
/// @notice F9 by arithmetic: V's token is not what V's own hidden state gives. Mirrored by
/// `settlement/exact.py`.
/// @dev Two kinds of failure, as in `Evidence`. That the hidden state is the model's is not judged
/// here: a false one goes to the panel.
library ExactFaults {
    uint8 internal constant FAULT = 9;

    // Codes beside those of `AcceptRule`, `Openings` and `Evidence`; all V's.
    uint8 internal constant TOKEN_BEATEN = 24; // another token scores higher
    uint8 internal constant TOKEN_CUT = 25; // the token is below V's own cut-off
    uint8 internal constant TOKEN_UNKNOWN = 26; // the token is not in the vocabulary
    uint8 internal constant SCORE_FIGURES = 27; // relaxed: a score in the leaf is not the token's
    uint8 internal constant HIDDEN_WIDTH = 28; // the hidden state has another width than the head
    uint8 internal constant ELEMENT = 29; // an element of a trace is not its row times its input
    uint8 internal constant TRACE_SHAPE = 30; // a vector of a trace has another length than the model's

    /// @notice A layer has seven matrices.
    error NoSuchMatrix(uint8 matrix);

    uint8 private constant TIER_EXACT = 0;
    uint32 private constant NO_PENALTY = 1 << 16;
    uint32 private constant ALL_KEPT = 1 << 16; // top-p
    uint16 private constant NOISE_VERSION = 1;

    /// @dev What scores depend on, apart from the token.
    struct Scale {
        bytes32 seed;
        uint64 position;
        uint256 temperature;
        bool noisy;
    }

    /// @notice V's token against the argmax over the scores of the hidden state that V committed to.
    function token(ExactEvidence.TokenCase calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        RoundFaults.requireVerdict(order, e.start, e.verdict, e.verdictSignature, separator);
        RoundFaults.requireLeaf(e.verdict, e.leaf, e.index, e.path);
        _requireModel(e.manifest, e.weights, order);
        _requireArithmetic(order);
        // INVARIANT: row t of the head is token t's.
        if (ExactModel.sizes(e.weights.header).headIds != 0) {
            revert ExactEvidence.ForPanel("reduced head");
        }
        uint8 code = e.leaf.token < e.manifest.vocabSize ? _byScores(e, order) : TOKEN_UNKNOWN;
        if (code == 0) revert Evidence.NoFault();
        RoundFaults.accuseVerifier(r, order, e.verdict, FAULT, code);
        if (code == TOKEN_BEATEN && !e.leaf.accepted && e.leaf.draftToken == e.better) {
            _harmDrafter(r, order, e);
        }
    }

    /// @dev INVARIANT: V answers for the model that its order names, and for no other.
    function _requireModel(
        Records.Manifest calldata manifest,
        ExactModel.Weights calldata weights,
        Records.Order memory order
    ) private pure {
        Evidence.requireSame("manifest", keccak256(abi.encode(manifest)), order.targetModel);
        if (manifest.tier != TIER_EXACT) revert ExactEvidence.ForPanel("float tier");
        Evidence.requireSame("weights", ExactModel.weightsRoot(weights), manifest.weightsRoot);
    }

    function _requireArithmetic(Records.Order memory order) private pure {
        if (order.mode > Records.MODE_COUPLED) revert ExactEvidence.ForPanel("rejection mode");
        if (
            order.repetitionPenalty != NO_PENALTY || order.presencePenalty != 0
                || order.frequencyPenalty != 0
        ) revert ExactEvidence.ForPanel("penalties");
        if (order.noiseVersion != NOISE_VERSION) revert ExactEvidence.ForPanel("noise version");
        if (order.mode == Records.MODE_COUPLED && order.temperature == 0) {
            revert ExactEvidence.ForPanel("temperature");
        }
    }

    /// @return Zero where the token holds.
    function _byScores(ExactEvidence.TokenCase calldata e, Records.Order memory order)
        private
        pure
        returns (uint8)
    {
        Records.VerdictLeaf calldata leaf = e.leaf;
        Evidence.requireSame(
            "hidden state",
            Records.saltedFingerprint(e.salt, ExactModel.fingerprint(e.hidden)),
            leaf.fingerprint
        );
        ExactModel.requireRow(e.weights, ExactModel.HEAD, leaf.token, e.own);
        if (e.hidden.length != 2 * e.own.weights.length) return HIDDEN_WIDTH;
        IntDot.Lanes memory hidden = IntDot.lanes(e.hidden);
        bool noisy = order.mode == Records.MODE_COUPLED;
        // As in `RoundFaults`: the place is the leaf's index, whatever position the leaf says.
        Scale memory scale = Scale({
            seed: e.start.seed,
            position: uint64(e.verdict.base) + e.index,
            temperature: noisy ? order.temperature : 1 << 16,
            noisy: noisy
        });
        bool filtered = noisy && (order.topK != 0 || order.topP < ALL_KEPT);
        int64 cutoff = filtered ? leaf.cutoff : Records.NO_CUTOFF;

        int256 own = _plain(hidden, e.own, scale);
        if (own < cutoff) return TOKEN_CUT;
        own += _noise(scale, leaf.token);
        bool relaxed = order.relaxTau != 0 && leaf.draftToken != Records.NO_TOKEN;
        if (e.better == leaf.token) {
            return relaxed && !_figuresHold(leaf, own, e.better, own) ? SCORE_FIGURES : 0;
        }

        if (e.better >= e.manifest.vocabSize) {
            revert Evidence.NoSuchPlace("token", e.better, e.manifest.vocabSize);
        }
        ExactModel.requireRow(e.weights, ExactModel.HEAD, e.better, e.other);
        int256 other = _plain(hidden, e.other, scale);
        if (other < cutoff) {
            // D's token, if V counts it out, has the least score of all in the leaf.
            if (relaxed && e.better == leaf.draftToken && leaf.scoreDraft != Records.NO_CUTOFF) {
                return SCORE_FIGURES;
            }
            revert ExactEvidence.CutoffForPanel(e.better, other, cutoff);
        }
        other += _noise(scale, e.better);

        if (relaxed && leaf.accepted && !leaf.key) {
            if (other > own + int256(uint256(order.relaxTau))) return TOKEN_BEATEN;
        } else if (other > own || (other == own && e.better < leaf.token)) {
            return TOKEN_BEATEN;
        }
        return relaxed && !_figuresHold(leaf, own, e.better, other) ? SCORE_FIGURES : 0;
    }

    /// @dev The two scores that a relaxed leaf carries, against what they are.
    function _figuresHold(
        Records.VerdictLeaf calldata leaf,
        int256 own,
        uint32 better,
        int256 other
    ) private pure returns (bool) {
        if (leaf.token == leaf.draftToken && leaf.scoreDraft != own) return false;
        if (better == leaf.draftToken && leaf.scoreDraft != other) return false;
        // What V emits of its own is the highest; and nothing is higher than that.
        if (!leaf.accepted && leaf.scoreTop != own) return false;
        return other <= leaf.scoreTop;
    }

    function _plain(IntDot.Lanes memory hidden, ExactModel.Row calldata row, Scale memory scale)
        private
        pure
        returns (int256)
    {
        return ExactModel.score(ExactModel.logit(hidden, row), scale.temperature);
    }

    function _noise(Scale memory scale, uint32 id) private pure returns (int256) {
        return scale.noisy ? Noise.gumbel(scale.seed, scale.position, id) : int64(0);
    }

    /// @dev D drafted what should have come: its drafts from there on, as if all had been accepted.
    function _harmDrafter(
        Evidence.Ruling memory r,
        Records.Order memory order,
        ExactEvidence.TokenCase calldata e
    ) private pure {
        if (e.commit.k <= e.verdict.k) return;
        Evidence.requireSame("commit", Records.hash(e.commit), e.verdict.draftCommitHash);
        r.harmed = order.drafter;
        r.harmedLoss = uint256(order.priceAccepted) * (e.commit.k - e.verdict.k);
    }

    // ------------------------------------------------------------------ one element of a trace

    /// @notice An element of V's trace against the row and the input vector it comes from.
    function element(ExactEvidence.ElementCase calldata e, bytes32 separator)
        internal
        pure
        returns (Evidence.Ruling memory r)
    {
        Records.Order memory order = e.order;
        Evidence.requireSession(order, e.start, e.trace.startHash);
        // INVARIANT: V answers for the trace that V signed.
        Evidence.requireSigned(
            "trace", separator, ExactEvidence.hash(e.trace), e.traceSignature, order.verifier
        );
        _requireModel(e.manifest, e.weights, order);
        Trees.requireLeaf(
            e.trace.root,
            Traces.positionLeaf(e.vectorsRoot),
            e.position,
            e.trace.positions,
            e.positionPath
        );
        uint8 code = _byElement(e, ExactModel.sizes(e.weights.header));
        if (code == 0) revert Evidence.NoFault();
        (r.fault, r.code, r.guilty) = (FAULT, code, order.verifier);
        (r.startHash, r.round) = (e.trace.startHash, e.trace.round);
        // C gets back what it paid V for the position.
        (r.token, r.client, r.clientLoss) = (order.token, order.client, order.priceOutput);
    }

    /// @return Zero where the element holds.
    function _byElement(ExactEvidence.ElementCase calldata e, ExactModel.Sizes memory sizes)
        private
        pure
        returns (uint8)
    {
        if (e.layer >= sizes.layers) {
            revert Evidence.NoSuchPlace("layer", e.layer, sizes.layers);
        }
        (uint256 input, uint256 output, uint256 residual) = _ends(e.matrix);
        uint256 first = Traces.VECTORS * e.layer;

        _requireVector(e, e.input, Traces.rootOf(e.input.data, 2), first + input, sizes);
        (uint256 elements,) = Traces.shapeOf(sizes, input);
        uint256 exponent = e.input.exponent;
        if (
            e.input.data.length != 2 * elements
                || exponent > (input == Traces.ACTIVATION ? Traces.MAX_EXPONENT : 0)
        ) return TRACE_SHAPE;

        (bool fits, int256 shown) = _read(e, e.output, first + output, sizes);
        if (!fits) return TRACE_SHAPE;
        ExactModel.requireRow(e.weights, 16 * (e.layer + 1) + e.matrix, e.element, e.row);
        int256 due = ExactModel.scaled(
            IntDot.dot(IntDot.lanes(e.input.data), e.row.weights), e.row, exponent
        );
        if (residual != output) {
            int256 before;
            (fits, before) = _read(e, e.residual, first + residual, sizes);
            if (!fits) return TRACE_SHAPE;
            due = ExactModel.clamp(before + due, ExactModel.RESIDUAL_LIMIT);
        }
        return shown == due ? 0 : ELEMENT;
    }

    /// @dev Which vector a matrix reads, which it makes, and which it is added to: the same as it
    /// makes, where it is not added to any.
    function _ends(uint8 matrix) private pure returns (uint256, uint256, uint256) {
        if (matrix == 0) return (Traces.NORM, Traces.QUERY, Traces.QUERY);
        if (matrix == 1) return (Traces.NORM, Traces.KEY, Traces.KEY);
        if (matrix == 2) return (Traces.NORM, Traces.VALUE, Traces.VALUE);
        if (matrix == 3) return (Traces.MIXED, Traces.RESIDUAL_MID, Traces.RESIDUAL);
        if (matrix == 4) return (Traces.NORM_MID, Traces.GATE, Traces.GATE);
        if (matrix == 5) return (Traces.NORM_MID, Traces.UP, Traces.UP);
        // The next layer's x.
        if (matrix == 6) {
            return (Traces.ACTIVATION, Traces.VECTORS + Traces.RESIDUAL, Traces.RESIDUAL_MID);
        }
        revert NoSuchMatrix(matrix);
    }

    function _requireVector(
        ExactEvidence.ElementCase calldata e,
        ExactEvidence.Vector calldata vector,
        bytes32 chunksRoot,
        uint256 index,
        ExactModel.Sizes memory sizes
    ) private pure {
        Trees.requireLeaf(
            e.vectorsRoot,
            Traces.vectorLeaf(vector.exponent, chunksRoot),
            index,
            Traces.vectorsOf(sizes),
            vector.path
        );
    }

    /// @dev The case's element out of its chunk of vector `index`; or the chunk is not as long as the
    /// model has it.
    function _read(
        ExactEvidence.ElementCase calldata e,
        ExactEvidence.Vector calldata vector,
        uint256 index,
        ExactModel.Sizes memory sizes
    ) private pure returns (bool fits, int256 value) {
        (uint256 elements, uint256 width) = Traces.shapeOf(sizes, index);
        if (e.element >= elements) revert Evidence.NoSuchPlace("element", e.element, elements);
        _requireVector(e, vector, _chunksRoot(vector, e.element, elements), index, sizes);
        uint256 within = e.element % Traces.CHUNK;
        // Elements from the chunk's first to the vector's end.
        uint256 size = elements - (e.element - within);
        if (size > Traces.CHUNK) size = Traces.CHUNK;
        if (vector.data.length != width * size) return (false, 0);
        return (true, Traces.elementAt(vector.data, within, width));
    }

    function _chunksRoot(ExactEvidence.Vector calldata vector, uint256 element_, uint256 elements)
        private
        pure
        returns (bytes32)
    {
        return Trees.rootOf(
            Traces.chunkLeaf(vector.data),
            element_ / Traces.CHUNK,
            Traces.chunks(elements),
            vector.chunkPath
        );
    }
}
