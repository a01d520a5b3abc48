// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactModel} from "./ExactModel.sol";
import {Records} from "./Records.sol";

/// @title ExactEvidence
/// @notice What proves a fault (F9) by the exact tier's arithmetic, beside `Evidence`.
library ExactEvidence {
    /// @notice Arithmetic alone does not decide this: it goes to the panel, which answers with one
    /// exact hash.
    error ForPanel(string why);

    /// @notice Token `token` scores below the cut-off that V committed to. If the cut-off is false,
    /// that is for the panel: it takes the whole row of scores.
    error CutoffForPanel(uint32 token, int256 score, int64 cutoff);

    /// @notice One output position, the hidden state behind it, and the head's rows of V's token and
    /// of one that should have come instead.
    struct TokenCase {
        Records.Manifest manifest; // of the order's target
        Records.Order order;
        Records.SessionStart start;
        Records.DraftCommit commit; // left zero where the round has none, or D has lost nothing
        Records.Verdict verdict;
        bytes verdictSignature;
        uint32 index;
        Records.VerdictLeaf leaf;
        bytes32[] path;
        bytes32 salt; // of the leaf's fingerprint
        bytes hidden; // int16 each, big-endian
        ExactModel.Weights weights;
        ExactModel.Row own; // of the head, for leaf.token; empty where there is no such token
        uint32 better; // leaf.token itself, where that is cut off, or its own figures are false
        ExactModel.Row other; // of the head, for `better`; empty where that is leaf.token
    }

    /// @notice V's commitment to a whole forward pass, up to the output position at `index` of a
    /// round: signed, like a record.
    struct Trace {
        bytes32 startHash;
        uint32 round;
        uint32 index;
        uint32 positions; // tokens of prompt and output that the pass read
        bytes32 root;
    }

    bytes32 internal constant TRACE_TYPEHASH = keccak256(
        "Trace(bytes32 startHash,uint32 round,uint32 index,uint32 positions,bytes32 root)"
    );

    /// @notice A vector of the trace: the whole of it, or the one chunk that an element stands in.
    struct Vector {
        uint8 exponent; // of an activation; else zero
        bytes data;
        bytes32[] chunkPath; // empty for a whole vector
        bytes32[] path; // among the position's vectors
    }

    /// @notice One element of one matrix product of a trace: input vector, row of weights, output.
    struct ElementCase {
        Records.Manifest manifest; // of the order's target
        Records.Order order;
        Records.SessionStart start;
        Trace trace;
        bytes traceSignature;
        ExactModel.Weights weights;
        uint32 position;
        bytes32 vectorsRoot; // of the position
        bytes32[] positionPath;
        uint32 layer;
        uint8 matrix; // 0 to 6: query, key, value, attention output, gate, up, down
        uint32 element;
        ExactModel.Row row;
        Vector input; // whole
        Vector output; // a chunk
        Vector residual; // a chunk of what the product is added to; empty for the other matrices
    }

    /// @notice EIP-712 struct hash.
    function hash(Trace memory trace) internal pure returns (bytes32) {
        return keccak256(abi.encode(TRACE_TYPEHASH, trace));
    }
}
