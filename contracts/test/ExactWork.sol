// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactDispute} from "../ExactDispute.sol";
import {ExactRule} from "../ExactRule.sol";
import {IExactRule} from "../interfaces/IExactRule.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ExactModel} from "../libraries/ExactModel.sol";
import {Noise} from "../libraries/Noise.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {CourtWork} from "./CourtWork.sol";
import {ExactModelHarness} from "./harness/ExactModelHarness.sol";

/// @notice The court for exact faults, a head of random weights, and sessions whose tokens are the
/// argmax of its scores over random hidden states.
abstract contract ExactWork is CourtWork {
    ExactDispute internal dispute;
    ExactRule internal exactRule;
    ExactModelHarness internal model;

    uint32 internal constant VOCABULARY = 12;
    uint32 internal constant WIDTH = 70; // no multiple of a block
    bytes32 internal constant LEAF_SALT = keccak256("salt of the leaf");

    function setUp() public virtual override {
        super.setUp();
        exactRule = new ExactRule();
        dispute = new ExactDispute(owner, vault, escrow, exactRule, _courtTerms());
        model = new ExactModelHarness();
        vm.prank(owner);
        vault.setSlasher(address(dispute), true);
        vm.prank(challenger);
        token.approve(address(dispute), type(uint256).max);
        vm.prank(copier);
        token.approve(address(dispute), type(uint256).max);
    }

    // ------------------------------------------------------------------ the model

    /// @dev `length` bytes of a stream.
    function _stream(bytes32 seed, uint256 length) internal pure returns (bytes memory out) {
        out = new bytes((length + 31) / 32 * 32);
        for (uint256 i; i < length; i += 32) {
            seed = keccak256(abi.encode(seed));
            assembly ("memory-safe") {
                mstore(add(add(out, 0x20), i), seed)
            }
        }
        assembly ("memory-safe") {
            mstore(out, length)
        }
    }

    function _headRow(uint32 id, uint256 width) internal pure returns (ExactModel.Row memory row) {
        row.multiplier = (1 << 22) + 7919 * id;
        row.shift = 21;
        row.weights = _stream(keccak256(abi.encode("row", id)), width);
        row.leafIndex = id;
    }

    function _header(uint32 vocabulary, uint32 width) internal pure returns (bytes memory) {
        return abi.encodePacked(
            "verdraft/exact-header/1",
            abi.encodePacked(uint32(1), vocabulary, vocabulary, width),
            abi.encodePacked(uint32(2 * width), uint32(2), uint32(3), uint32(1), uint32(32)),
            abi.encodePacked(uint32(2048), uint64(1024), _stream("phases", 128)),
            keccak256("tables"),
            bytes32(0)
        );
    }

    /// @dev A head of `VOCABULARY` rows, and nothing else in the tree.
    function _weights() internal view returns (ExactModel.Weights memory weights) {
        weights.header = _header(VOCABULARY, WIDTH);
        weights.leafCount = VOCABULARY;
        weights.treeRoot = _root(_headLeaves());
    }

    function _headLeaves() internal view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](VOCABULARY);
        for (uint32 id; id < VOCABULARY; ++id) {
            leaves[id] = model.leaf(ExactModel.HEAD, id, _headRow(id, WIDTH));
        }
    }

    function _opened(uint32 id) internal view returns (ExactModel.Row memory row) {
        row = _headRow(id, WIDTH);
        row.path = _path(_headLeaves(), id);
    }

    function _manifest(bytes32 weightsRoot, uint32 vocabulary)
        internal
        pure
        returns (Records.Manifest memory m)
    {
        m.architecture = "test";
        m.weightsRoot = weightsRoot;
        m.tokenizerHash = keccak256("tokenizer");
        m.vocabSize = vocabulary;
        m.eosIds = new uint32[](1);
        m.contextLength = 2048;
    }

    function _hidden(uint32 position) internal pure returns (bytes memory) {
        return _stream(keccak256(abi.encode("hidden", position)), 2 * WIDTH);
    }

    // ------------------------------------------------------------------ what is right

    /// @dev Before noise.
    function _plainScore(Session memory s, uint32 position, uint32 id)
        internal
        view
        returns (int256)
    {
        int256 z = model.logit(_hidden(position), _headRow(id, WIDTH));
        return model.score(z, s.order.mode == 0 ? 1 << 16 : s.order.temperature);
    }

    function _score(Session memory s, uint32 position, uint32 id) internal view returns (int256) {
        int256 noise = s.order.mode == 0 ? int64(0) : Noise.gumbel(s.start.seed, position, id);
        return _plainScore(s, position, id) + noise;
    }

    /// @dev Place `rank` of the kept tokens by score, the lower id first among equals.
    function _ranked(Session memory s, uint32 position, uint256 rank)
        internal
        view
        returns (uint32 best)
    {
        int256[] memory scores = new int256[](VOCABULARY);
        for (uint32 id; id < VOCABULARY; ++id) {
            scores[id] = _score(s, position, id);
        }
        for (uint256 place; place <= rank; ++place) {
            best = 0;
            for (uint32 id; id < VOCABULARY; ++id) {
                if (scores[id] > scores[best]) best = id;
            }
            scores[best] = type(int256).min;
        }
    }

    /// @dev Rounds of 4 accepted and one accepted of three, of the tokens that the model says.
    function _exact(uint8 mode) internal view returns (Session memory s) {
        s = _session(mode);
        s.order.targetModel =
            keccak256(abi.encode(_manifest(model.weightsRoot(_weights()), VOCABULARY)));
        (s.order.priceOutput, s.order.priceAccepted) = (3 ether, 2 ether);
        if (mode != 0) s.order.temperature = 45_000;
        _play(s, 4, 4, 3);
        _play(s, 3, 1, 0);
        for (uint256 i; i < s.rounds.length; ++i) {
            Round memory r = s.rounds[i];
            for (uint256 j; j < r.leaves.length; ++j) {
                Records.VerdictLeaf memory leaf = r.leaves[j];
                leaf.token = _ranked(s, leaf.position, 0);
                if (j < r.drafts.length) {
                    r.drafts[j].token = leaf.accepted ? leaf.token : _ranked(s, leaf.position, 1);
                    leaf.draftToken = r.drafts[j].token;
                }
                leaf.fingerprint =
                    Records.saltedFingerprint(LEAF_SALT, model.fingerprint(_hidden(leaf.position)));
            }
        }
        _seal(s);
    }

    // ------------------------------------------------------------------ evidence

    function _tokenCase(Session memory s, uint256 index, uint256 within, uint32 better)
        internal
        view
        returns (ExactEvidence.TokenCase memory e)
    {
        Openings.Opening memory o = _openingAt(s, index, within);
        (e.order, e.start, e.commit) = (o.order, o.start, o.commit);
        (e.verdict, e.verdictSignature) = (o.verdict, o.verdictSignature);
        e.index = uint32(within);
        (e.leaf, e.path) = (o.verdictLeaf, o.verdictPath);
        e.salt = LEAF_SALT;
        e.hidden = _hidden(e.verdict.base + e.index);
        e.weights = _weights();
        e.manifest = _manifest(model.weightsRoot(e.weights), VOCABULARY);
        if (e.leaf.token < VOCABULARY) e.own = _opened(e.leaf.token);
        e.better = better;
        if (better < VOCABULARY && better != e.leaf.token) e.other = _opened(better);
        // A copy: what a test does to evidence must not reach the session.
        e = abi.decode(abi.encode(e), (ExactEvidence.TokenCase));
    }

    function _judge(ExactEvidence.TokenCase memory e)
        internal
        view
        returns (Evidence.Ruling memory)
    {
        return exactRule.token(e, _separator());
    }

    function _fileExact(address who, bytes memory question) internal {
        bytes32 commitment = dispute.commitmentOf(keccak256(question), who, SALT);
        vm.prank(who);
        dispute.file(commitment);
    }

    function _prove(ExactEvidence.TokenCase memory e) internal {
        _fileExact(challenger, abi.encodeCall(IExactRule.token, (e, _separator())));
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(challenger);
        dispute.proveToken(e, SALT);
    }

    function _prove(ExactEvidence.ElementCase memory e) internal {
        _fileExact(challenger, abi.encodeCall(IExactRule.element, (e, _separator())));
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(challenger);
        dispute.proveElement(e, SALT);
    }
}
