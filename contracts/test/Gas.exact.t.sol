// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ExactModel} from "../libraries/ExactModel.sol";
import {Records} from "../libraries/Records.sol";
import {Traces} from "../libraries/Traces.sol";
import {ExactElementWork} from "./ExactElementWork.sol";

/// @notice What the proofs of an exact fault cost as transactions of their own, at the default target's
/// sizes: d 576, f 1536, 30 layers, a vocabulary of 49,152, 253,885 rows in the weights' tree, a trace
/// over 1,024 positions. As `Gas.faults.t.sol` otherwise.
/// forge-config: default.isolate = true
contract GasExactTest is ExactElementWork {
    function _logLast(string memory name) private {
        emit log_named_uint(string.concat("gas ", name), vm.lastCallGas().gasTotalUsed);
    }

    // ------------------------------------------------------------------ a token

    /// @dev Two rows that are neighbours in the tree: the one's path begins with the other.
    function _case(uint8 mode) private view returns (ExactEvidence.TokenCase memory e) {
        uint32 own = 24_002;
        uint32 better = own + 1;
        e.weights.header = _targetHeader();
        e.weights.leafCount = ROWS;
        e.own = _row("own", TOKENS + own, D);
        e.other = _row("other", TOKENS + better, D);
        bytes32 leaf = model.leaf(ExactModel.HEAD, own, e.own);
        e.own.path = _anyPath("head", TOKENS + own, ROWS);
        e.other.path = _anyPath("head", TOKENS + own, ROWS);
        e.own.path[0] = model.leaf(ExactModel.HEAD, better, e.other);
        e.other.path[0] = leaf;
        e.weights.treeRoot = this.rootOver(leaf, TOKENS + own, ROWS, e.own.path);
        e.manifest = _manifest(model.weightsRoot(e.weights), TOKENS);
        e.hidden = _stream("hidden", 2 * D);
        (e.better, e.salt) = (better, LEAF_SALT);

        Session memory s = _session(mode);
        s.order.targetModel = keccak256(abi.encode(e.manifest));
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        // Nine leaves in the round, and V lies about the fourth.
        _play(s, 8, 8, 3);
        Records.VerdictLeaf memory lie = s.rounds[0].leaves[3];
        lie.token = own;
        lie.fingerprint = Records.saltedFingerprint(LEAF_SALT, model.fingerprint(e.hidden));
        int256 gap = model.logit(e.hidden, e.own) - model.logit(e.hidden, e.other);
        // Whichever of the two scores higher is the one that should have come.
        if (gap > 0) {
            lie.token = better;
            (e.own, e.other, e.better) = (e.other, e.own, own);
        }
        _seal(s);
        e.order = s.order;
        e.start = s.start;
        e.verdict = s.rounds[0].verdict;
        e.verdictSignature = s.rounds[0].verdictSignature;
        e.index = 3;
        e.leaf = lie;
        e.path = _path(_verdictLeaves(s.rounds[0]), 3);
    }

    function test_Token() public {
        _prove(_case(0));
        _logLast("exact_token_greedy");
    }

    function test_TokenCoupled() public {
        _prove(_case(1));
        _logLast("exact_token");
    }

    // ------------------------------------------------------------------ an element

    function test_ElementOfAHiddenSize() public {
        _prove(_elementOf(0, D, D, Traces.NORM, Traces.QUERY));
        _logLast("exact_element_query");
    }

    function test_ElementOfAGate() public {
        _prove(_elementOf(4, D, F, Traces.NORM_MID, Traces.GATE));
        _logLast("exact_element_gate");
    }

    function test_ElementOfTheLongest() public {
        _prove(_elementOf(6, F, D, Traces.ACTIVATION, Traces.VECTORS));
        _logLast("exact_element_down");
    }
}
