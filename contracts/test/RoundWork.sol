// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Buckets} from "../libraries/Buckets.sol";
import {Coins} from "../libraries/Coins.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {Deployed} from "./Deployed.sol";

/// @notice What a drafter and a verifier do in a session: rounds with both leaf trees, signed records
/// and the lane's sum tree over them; and the opening of any of its positions.
/// @dev In two steps, so that a test can put in a lie between them and have it signed: `_play` writes
/// what is said, `_seal` hashes and signs it.
abstract contract RoundWork is Deployed {
    struct Round {
        Records.DraftLeaf[] drafts;
        Records.VerdictLeaf[] leaves;
        Records.DraftCommit commit;
        Records.Verdict verdict;
        Records.RoundRecord record;
        bytes commitSignature;
        bytes verdictSignature;
        bool drafted;
    }

    struct Session {
        Records.Order order;
        Records.SessionStart start;
        Round[] rounds;
        uint32 position;
        bytes32 context;
        uint16 nextK;
        uint256 drafterKey;
        uint256 verifierKey;
        Openings.Root base;
    }

    uint32 internal constant OWN = 7; // the token that V emits of its own
    uint32 internal constant STOP = 2;
    uint16 internal constant SURE = 60_000;
    bytes internal constant EMPTY_LIST = "";

    function _session(uint8 mode) internal view returns (Session memory s) {
        Records.Order memory o = s.order;
        o.requestId = keccak256("request");
        (o.client, o.drafter, o.verifier) = (client.addr, drafter.addr, verifier.addr);
        o.token = address(token);
        o.mode = mode;
        o.temperature = mode == 0 ? 0 : 1 << 16;
        o.topP = 1 << 16;
        o.repetitionPenalty = 1 << 16;
        o.stopIds = new uint32[](1);
        o.stopIds[0] = STOP;
        o.stopStringHashes = new bytes32[](0);
        o.maxWindow = 8;
        o.noiseVersion = 1;
        o.maxTokens = 1_000;
        o.promptHash = keccak256("prompt");
        o.claimId = CLAIM;
        if (mode == Records.MODE_REJECTION) {
            o.anchorVerifier = _back(_chainEnd("v"), 64);
            o.anchorDrafter = _back(_chainEnd("d"), 64);
        }
        s.start.sessionId = Records.hash(o);
        s.start.seed = keccak256("seed");
        s.start.firstK = 4;
        s.context = o.promptHash;
        s.nextK = 4;
        (s.drafterKey, s.verifierKey) = (drafter.key, verifier.key);
    }

    /// @dev The chain value so many steps before.
    function _back(bytes32 value, uint256 steps) private pure returns (bytes32) {
        for (uint256 i; i < steps; ++i) {
            value = Coins.chainStep(value);
        }
        return value;
    }

    function _chainEnd(string memory whose) private pure returns (bytes32) {
        return keccak256(abi.encode("chain", whose));
    }

    /// @dev Four rounds: all accepted, one accepted, none drafted (outside rejection mode), none
    /// accepted; 5 + 2 + 1 + 1 output tokens.
    function _honest(uint8 mode) internal view returns (Session memory s) {
        s = _session(mode);
        bool coins = mode == Records.MODE_REJECTION;
        _play(s, 4, 4, 3);
        _play(s, 3, 1, coins ? 2 : 0);
        _play(s, coins ? 2 : 0, 0, 5);
        _play(s, 5, 0, 4);
        _seal(s);
    }

    /// @dev One round more: `window` drafts of which the first `k` are accepted.
    function _play(Session memory s, uint16 window, uint16 k, uint16 nextK) internal pure {
        Round memory r;
        uint32 index = uint32(s.rounds.length);
        r.drafted = window != 0;
        bool coins = s.order.mode == Records.MODE_REJECTION;
        r.drafts = new Records.DraftLeaf[](window);
        for (uint256 i; i < window; ++i) {
            r.drafts[i].position = s.position + uint32(i);
            r.drafts[i].token = 100 + uint32(i);
            if (coins) {
                r.drafts[i].q = Records.MASS_TOTAL;
                r.drafts[i].keptHash = Records.keptHash(_kept(r.drafts[i].token));
            }
        }
        r.leaves = new Records.VerdictLeaf[](k + 1);
        bytes32 context = s.context;
        for (uint256 i; i <= k; ++i) {
            Records.VerdictLeaf memory leaf = r.leaves[i];
            leaf.position = s.position + uint32(i);
            leaf.draftToken = i < window ? r.drafts[i].token : Records.NO_TOKEN;
            leaf.accepted = i < k;
            leaf.token = i < k ? leaf.draftToken : OWN;
            if (coins && i < k) leaf.p = Records.MASS_TOTAL;
            leaf.topProb = SURE;
            leaf.cutoff = Records.NO_CUTOFF;
            leaf.fingerprint = keccak256(abi.encode("fingerprint", leaf.position));
            context = Records.nextContext(context, leaf.token);
        }
        r.commit.round = index;
        r.commit.base = s.position;
        r.commit.contextHash = s.context;
        r.commit.k = window;
        r.verdict.round = index;
        r.verdict.base = s.position;
        r.verdict.contextHash = s.context;
        r.verdict.k = k;
        r.verdict.emitted = k + 1;
        r.verdict.nextContextHash = context;
        r.verdict.nextK = nextK;
        if (coins) {
            r.commit.chainValue = _back(_chainEnd("d"), 63 - index);
            r.verdict.chainValue = _back(_chainEnd("v"), 63 - index);
        }
        s.position += k + 1;
        s.context = context;
        s.nextK = nextK;
        Round[] memory rounds = new Round[](index + 1);
        for (uint256 i; i < index; ++i) {
            rounds[i] = s.rounds[i];
        }
        rounds[index] = r;
        s.rounds = rounds;
    }

    function _kept(uint32 id) internal pure returns (bytes memory) {
        return abi.encodePacked(id, Records.MASS_TOTAL);
    }

    /// @dev Hashes and signs what was said.
    function _seal(Session memory s) internal view {
        s.start.sessionId = Records.hash(s.order);
        bytes32 startHash = Records.hash(s.start);
        bytes32 previous;
        for (uint256 i; i < s.rounds.length; ++i) {
            Round memory r = s.rounds[i];
            r.verdict.startHash = startHash;
            r.record.startHash = startHash;
            r.record.round = r.verdict.round;
            if (r.drafted) {
                r.commit.startHash = startHash;
                r.commit.prevVerdictHash = previous;
                r.commit.draftRoot = _root(_draftLeaves(r));
                r.record.draftRoot = r.commit.draftRoot;
                bytes32 hash = Records.hash(r.commit);
                r.record.draftCommitHash = hash;
                r.verdict.draftCommitHash = hash;
                r.commitSignature = _sign(s.drafterKey, hash);
            }
            r.verdict.verdictRoot = _root(_verdictLeaves(r));
            r.record.verdictRoot = r.verdict.verdictRoot;
            previous = Records.hash(r.verdict);
            r.record.verdictHash = previous;
            r.verdictSignature = _sign(s.verifierKey, previous);
            _count(r);
        }
    }

    function _count(Round memory r) internal pure {
        r.record.output = r.verdict.emitted;
        r.record.accepted = r.verdict.k;
        uint256[8] memory buckets;
        for (uint256 i; i < r.leaves.length; ++i) {
            Records.VerdictLeaf memory leaf = r.leaves[i];
            if (leaf.draftToken == Records.NO_TOKEN) continue;
            uint256 b = Buckets.indexOf(leaf.position, leaf.topProb);
            buckets[b / 4] += 1 << 64 * (b % 4);
            if (leaf.accepted) buckets[4 + b / 4] += 1 << 64 * (b % 4);
        }
        r.record.buckets = buckets;
    }

    function _sign(uint256 key, bytes32 structHash) internal view returns (bytes memory) {
        bytes32 digest = Records.digest(escrow.domainSeparator(), structHash);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    // ------------------------------------------------------------------ the lane's tree

    /// @dev The settled root over all rounds, on the session's base.
    function _settled(Session memory s) internal pure returns (Openings.Root memory root) {
        (bytes32[] memory hashes, uint256[9][] memory sums) = _records(s);
        uint256[9] memory total;
        (root.top, total) = _sumTop(hashes, sums);
        root.sums = Trees.add(s.base.sums, total);
        root.leafCount = uint32(hashes.length);
        if (s.base.leafCount != 0) root.baseRoot = _rootHash(s.base);
    }

    function _rootHash(Openings.Root memory root) internal pure returns (bytes32) {
        return Trees.settledRoot(root.top, root.sums, root.leafCount, root.baseRoot);
    }

    function _output(Session memory s) internal pure returns (uint256 output) {
        for (uint256 i; i < s.rounds.length; ++i) {
            output += s.rounds[i].record.output;
        }
    }

    /// @dev The opening of output token `target` of the tree.
    function _opening(Session memory s, uint256 target)
        internal
        pure
        returns (Openings.Opening memory o)
    {
        uint256 index;
        uint256 before;
        while (before + s.rounds[index].record.output <= target) {
            before += s.rounds[index].record.output;
            ++index;
        }
        return _openingAt(s, index, target - before);
    }

    function _openingAt(Session memory s, uint256 index, uint256 within)
        internal
        pure
        returns (Openings.Opening memory o)
    {
        Round memory r = s.rounds[index];
        o.settled = _settled(s);
        o.base = s.base;
        o.record = r.record;
        o.leafIndex = uint32(index);
        (bytes32[] memory hashes, uint256[9][] memory sums) = _records(s);
        o.steps = _sumPath(hashes, sums, index);
        o.order = s.order;
        o.start = s.start;
        o.verdict = r.verdict;
        o.verdictSignature = r.verdictSignature;
        if (index != 0) {
            o.previous = s.rounds[index - 1].verdict;
            o.previousSignature = s.rounds[index - 1].verdictSignature;
        }
        o.verdictLeaf = r.leaves[within];
        o.verdictPath = _path(_verdictLeaves(r), within);
        if (r.drafted) {
            o.commit = r.commit;
            o.commitSignature = r.commitSignature;
            if (within < r.drafts.length) {
                o.draftLeaf = r.drafts[within];
                o.draftPath = _path(_draftLeaves(r), within);
                if (s.order.mode == Records.MODE_REJECTION) {
                    o.kept = _kept(r.drafts[within].token);
                }
            }
        }
    }

    function _records(Session memory s)
        internal
        pure
        returns (bytes32[] memory hashes, uint256[9][] memory sums)
    {
        hashes = new bytes32[](s.rounds.length);
        sums = new uint256[9][](s.rounds.length);
        for (uint256 i; i < hashes.length; ++i) {
            hashes[i] = Records.leaf(s.rounds[i].record);
            sums[i] = Records.sums(s.rounds[i].record);
        }
    }

    function _draftLeaves(Round memory r) internal pure returns (bytes32[] memory hashes) {
        hashes = new bytes32[](r.drafts.length);
        for (uint256 i; i < hashes.length; ++i) {
            hashes[i] = Records.leaf(r.drafts[i]);
        }
    }

    function _verdictLeaves(Round memory r) internal pure returns (bytes32[] memory hashes) {
        hashes = new bytes32[](r.leaves.length);
        for (uint256 i; i < hashes.length; ++i) {
            hashes[i] = Records.leaf(r.leaves[i]);
        }
    }

    // ------------------------------------------------------------------ trees, from the leaves up

    function _root(bytes32[] memory level) internal pure returns (bytes32) {
        while (level.length > 1) {
            bytes32[] memory next = new bytes32[]((level.length + 1) / 2);
            for (uint256 i; i < next.length; ++i) {
                next[i] = 2 * i + 1 < level.length
                    ? Trees.node(level[2 * i], level[2 * i + 1])
                    : level[2 * i];
            }
            level = next;
        }
        return level[0];
    }

    function _path(bytes32[] memory level, uint256 index)
        internal
        pure
        returns (bytes32[] memory path)
    {
        path = new bytes32[](Trees.proofLength(index, level.length));
        uint256 used;
        while (level.length > 1) {
            if (index ^ 1 < level.length) path[used++] = level[index ^ 1];
            bytes32[] memory next = new bytes32[]((level.length + 1) / 2);
            for (uint256 i; i < next.length; ++i) {
                next[i] = 2 * i + 1 < level.length
                    ? Trees.node(level[2 * i], level[2 * i + 1])
                    : level[2 * i];
            }
            level = next;
            index /= 2;
        }
    }

    function _sumTop(bytes32[] memory hashes, uint256[9][] memory sums)
        internal
        pure
        returns (bytes32, uint256[9] memory)
    {
        while (hashes.length > 1) {
            (hashes, sums) = _sumLevel(hashes, sums);
        }
        return (hashes[0], sums[0]);
    }

    function _sumPath(bytes32[] memory hashes, uint256[9][] memory sums, uint256 index)
        internal
        pure
        returns (Trees.SumStep[] memory steps)
    {
        steps = new Trees.SumStep[](Trees.proofLength(index, hashes.length));
        uint256 used;
        while (hashes.length > 1) {
            if (index ^ 1 < hashes.length) {
                steps[used++] = Trees.SumStep(hashes[index ^ 1], sums[index ^ 1]);
            }
            (hashes, sums) = _sumLevel(hashes, sums);
            index /= 2;
        }
    }

    function _sumLevel(bytes32[] memory hashes, uint256[9][] memory sums)
        private
        pure
        returns (bytes32[] memory up, uint256[9][] memory upSums)
    {
        up = new bytes32[]((hashes.length + 1) / 2);
        upSums = new uint256[9][](up.length);
        for (uint256 i; i < up.length; ++i) {
            if (2 * i + 1 < hashes.length) {
                up[i] =
                    Trees.sumNode(hashes[2 * i], sums[2 * i], hashes[2 * i + 1], sums[2 * i + 1]);
                upSums[i] = Trees.add(sums[2 * i], sums[2 * i + 1]);
            } else {
                (up[i], upSums[i]) = (hashes[2 * i], sums[2 * i]);
            }
        }
    }
}
