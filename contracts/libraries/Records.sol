// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Records
/// @notice Every signed struct, every leaf and every hash of a list, as `settlement/records.py`
/// defines them. Field order and type strings are the format; a test regenerates the strings from
/// the Python dataclasses and compares.
/// @dev Units: token ids are uint32 (`NO_TOKEN` where there is none); masses are uint64 and the kept
/// masses of a distribution sum to exactly 2**64 − 1; scores are int64 in Q24; temperature, top-p
/// and penalties are Q16; surprisals are Q16 nats; positions count output tokens from the prompt's
/// end and stay absolute over a hand-over.
library Records {
    uint32 internal constant NO_TOKEN = type(uint32).max;
    uint64 internal constant MASS_TOTAL = type(uint64).max;
    uint256 internal constant MAX_KEPT = 64;
    uint256 internal constant MAX_TOP = 8;
    int64 internal constant NO_CUTOFF = type(int64).min;

    uint8 internal constant MODE_GREEDY = 0;
    uint8 internal constant MODE_COUPLED = 1;
    uint8 internal constant MODE_REJECTION = 2;

    /// @notice First byte of what a tree hashes: no node can pass for a leaf, no root for a node.
    bytes1 internal constant LEAF_PREFIX = 0x00;

    /// @notice What a model is. `keccak256(abi.encode(manifest))` is its id.
    struct Manifest {
        string architecture;
        uint8 tier;
        bytes32 weightsRoot;
        bytes32 tokenizerHash;
        uint32 vocabSize;
        uint32[] eosIds;
        uint32 contextLength;
    }

    /// @notice Who pays whom in which token, under which α claim: one escrow account. Never signed.
    struct Lane {
        address client;
        address drafter;
        address verifier;
        address token;
        bytes32 claimId;
    }

    /// @notice What the client buys, signed by client, drafter and verifier. Its hash is the session id.
    struct Order {
        bytes32 requestId;
        bytes32 parentSession;
        uint32 startPosition;
        bytes32 contextHash;
        address client;
        address drafter;
        address verifier;
        address token;
        bytes32 targetModel;
        bytes32 draftModel;
        uint8 mode;
        uint32 temperature;
        uint32 topK;
        uint32 topP;
        uint32 repetitionPenalty;
        int32 presencePenalty;
        int32 frequencyPenalty;
        uint32[] stopIds;
        bytes32[] stopStringHashes;
        bytes32 templateHash;
        uint32 relaxTau;
        uint32 keyTargetSurprisal;
        uint32 keyDraftSurprisal;
        uint32 keyOverlap;
        uint16 maxWindow;
        uint16 noiseVersion;
        uint128 priceAccepted;
        uint128 priceOutput;
        uint32 maxTokens;
        bytes32 promptHash;
        bytes32 claimId;
        uint8 seedPolicy;
        bytes32 nonceCommitClient;
        bytes32 nonceCommitVerifier;
        bytes32 anchorVerifier;
        bytes32 anchorDrafter;
        uint8 disclosure;
        uint64 deadline;
        uint64 nonce;
    }

    /// @notice The seed made known, signed by all three. Its hash stands in every later record.
    struct SessionStart {
        bytes32 sessionId;
        bytes32 seed;
        uint16 firstK;
    }

    /// @notice The drafter's commitment to its window, signed before the verifier looks at it.
    struct DraftCommit {
        bytes32 startHash;
        uint32 round;
        uint32 version;
        uint32 base;
        bytes32 contextHash;
        bytes32 prevVerdictHash;
        bytes32 draftRoot;
        uint16 k;
        bytes32 chainValue;
    }

    /// @notice One proposed token. `q`, `qBelow` and `keptHash` are zero outside rejection mode,
    /// `surprisal` and `topHash` outside relaxed acceptance.
    struct DraftLeaf {
        uint32 position;
        uint32 token;
        uint64 q;
        uint64 qBelow;
        bytes32 keptHash;
        uint32 surprisal;
        bytes32 topHash;
    }

    /// @notice The verifier's word on a round: at most one per session and round, whatever the version.
    struct Verdict {
        bytes32 startHash;
        uint32 round;
        uint32 version;
        bytes32 draftCommitHash;
        uint32 base;
        bytes32 contextHash;
        uint16 k;
        uint16 emitted;
        bytes32 nextContextHash;
        bytes32 verdictRoot;
        bytes32 chainValue;
        uint16 nextK;
    }

    /// @notice One output position: what was drafted, what was emitted, the figures of the decision.
    struct VerdictLeaf {
        uint32 position;
        uint32 draftToken;
        uint32 token;
        bool accepted;
        uint64 p;
        uint16 topProb;
        int64 cutoff;
        int64 scoreDraft;
        int64 scoreTop;
        uint32 surprisal;
        bool key;
        bytes32 fingerprint;
    }

    /// @notice A round as the lane's sum tree holds it. `buckets` as in a voucher.
    struct RoundRecord {
        bytes32 startHash;
        uint32 round;
        bytes32 draftRoot;
        bytes32 verdictRoot;
        bytes32 draftCommitHash;
        bytes32 verdictHash;
        uint64 output;
        uint64 accepted;
        uint256[8] buckets;
    }

    /// @notice What a lane owes, cumulative over its epoch. `buckets` are eight words of four uint64
    /// lanes, lane j at bits 64·j: proposed in buckets 0–15, then accepted in buckets 0–15.
    struct Voucher {
        bytes32 lane;
        uint32 epoch;
        uint64 output;
        uint64 accepted;
        uint128 dueDrafter;
        uint128 dueVerifier;
        bytes32 baseRoot;
        bytes32 root;
        uint32 leafCount;
        uint256[8] buckets;
    }

    /// @notice Sixteen acceptance rates in percent that a drafter promises. Its hash is the claim id.
    struct Claim {
        address drafter;
        bytes32 targetModel;
        bytes32 draftModel;
        uint8 mode;
        uint32 maxTemperature;
        uint8[16] rates;
        uint64 nonce;
    }

    bytes32 internal constant ORDER_TYPEHASH = keccak256(
        "Order(bytes32 requestId,bytes32 parentSession,uint32 startPosition,"
        "bytes32 contextHash,address client,address drafter,address verifier,address token,"
        "bytes32 targetModel,bytes32 draftModel,uint8 mode,uint32 temperature,uint32 topK,"
        "uint32 topP,uint32 repetitionPenalty,int32 presencePenalty,int32 frequencyPenalty,"
        "uint32[] stopIds,bytes32[] stopStringHashes,bytes32 templateHash,uint32 relaxTau,"
        "uint32 keyTargetSurprisal,uint32 keyDraftSurprisal,uint32 keyOverlap,"
        "uint16 maxWindow,uint16 noiseVersion,uint128 priceAccepted,uint128 priceOutput,"
        "uint32 maxTokens,bytes32 promptHash,bytes32 claimId,uint8 seedPolicy,"
        "bytes32 nonceCommitClient,bytes32 nonceCommitVerifier,bytes32 anchorVerifier,"
        "bytes32 anchorDrafter,uint8 disclosure,uint64 deadline,uint64 nonce)"
    );
    bytes32 internal constant SESSION_START_TYPEHASH =
        keccak256("SessionStart(bytes32 sessionId,bytes32 seed,uint16 firstK)");
    bytes32 internal constant DRAFT_COMMIT_TYPEHASH = keccak256(
        "DraftCommit(bytes32 startHash,uint32 round,uint32 version,uint32 base,"
        "bytes32 contextHash,bytes32 prevVerdictHash,bytes32 draftRoot,uint16 k,"
        "bytes32 chainValue)"
    );
    bytes32 internal constant DRAFT_LEAF_TYPEHASH = keccak256(
        "DraftLeaf(uint32 position,uint32 token,uint64 q,uint64 qBelow,bytes32 keptHash,"
        "uint32 surprisal,bytes32 topHash)"
    );
    bytes32 internal constant VERDICT_TYPEHASH = keccak256(
        "Verdict(bytes32 startHash,uint32 round,uint32 version,bytes32 draftCommitHash,"
        "uint32 base,bytes32 contextHash,uint16 k,uint16 emitted,bytes32 nextContextHash,"
        "bytes32 verdictRoot,bytes32 chainValue,uint16 nextK)"
    );
    bytes32 internal constant VERDICT_LEAF_TYPEHASH = keccak256(
        "VerdictLeaf(uint32 position,uint32 draftToken,uint32 token,bool accepted,uint64 p,"
        "uint16 topProb,int64 cutoff,int64 scoreDraft,int64 scoreTop,uint32 surprisal,"
        "bool key,bytes32 fingerprint)"
    );
    bytes32 internal constant ROUND_RECORD_TYPEHASH = keccak256(
        "RoundRecord(bytes32 startHash,uint32 round,bytes32 draftRoot,bytes32 verdictRoot,"
        "bytes32 draftCommitHash,bytes32 verdictHash,uint64 output,uint64 accepted,"
        "uint256[8] buckets)"
    );
    bytes32 internal constant VOUCHER_TYPEHASH = keccak256(
        "Voucher(bytes32 lane,uint32 epoch,uint64 output,uint64 accepted,uint128 dueDrafter,"
        "uint128 dueVerifier,bytes32 baseRoot,bytes32 root,uint32 leafCount," "uint256[8] buckets)"
    );
    bytes32 internal constant CLAIM_TYPEHASH = keccak256(
        "Claim(address drafter,bytes32 targetModel,bytes32 draftModel,uint8 mode,"
        "uint32 maxTemperature,uint8[16] rates,uint64 nonce)"
    );

    bytes32 internal constant DOMAIN_TYPEHASH = keccak256(
        "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    );
    bytes32 internal constant DOMAIN_NAME_HASH = keccak256("Verdraft");
    bytes32 internal constant DOMAIN_VERSION_HASH = keccak256("1");

    // ------------------------------------------------------------------ domain

    /// @notice EIP-712 separator of every record: this protocol, this chain, this escrow.
    /// @dev Reads `block.chainid` on every call: a separator kept over a fork would let a signature
    /// count on both sides of it.
    function domainSeparator(address escrow) internal view returns (bytes32) {
        return keccak256(
            abi.encode(
                DOMAIN_TYPEHASH, DOMAIN_NAME_HASH, DOMAIN_VERSION_HASH, block.chainid, escrow
            )
        );
    }

    /// @notice What a key signs: keccak256(0x19 0x01 ‖ separator ‖ struct hash).
    function digest(bytes32 separator, bytes32 structHash) internal pure returns (bytes32 result) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, hex"1901")
            mstore(add(free, 0x02), separator)
            mstore(add(free, 0x22), structHash)
            result := keccak256(free, 0x42)
        }
    }

    // ------------------------------------------------------------------ ids

    /// @notice keccak256(abi.encode(client, drafter, verifier, token, claimId)).
    function laneId(Lane memory lane) internal pure returns (bytes32) {
        return keccak256(abi.encode(lane));
    }

    /// @notice The lane that an order's payments run through.
    function laneOf(Order memory order) internal pure returns (Lane memory) {
        return Lane({
            client: order.client,
            drafter: order.drafter,
            verifier: order.verifier,
            token: order.token,
            claimId: order.claimId
        });
    }

    /// @notice keccak256(abi.encode(manifest)).
    function modelId(Manifest memory manifest) internal pure returns (bytes32) {
        return keccak256(abi.encode(manifest));
    }

    // ------------------------------------------------------------------ EIP-712 struct hashes

    /// @notice The session id.
    /// @dev The order's 39 words as they lie in memory, the two arrays' pointers replaced: array members
    /// count as the hash of their elements, each padded to a word, as EIP-712 says.
    function hash(Order memory order) internal pure returns (bytes32 result) {
        bytes32 typeHash = ORDER_TYPEHASH;
        bytes32 stopIds = keccak256(abi.encodePacked(order.stopIds));
        bytes32 stopStringHashes = keccak256(abi.encodePacked(order.stopStringHashes));
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, typeHash)
            mcopy(add(free, 0x20), order, 0x4e0)
            // Members 17 and 18, counted from 0.
            mstore(add(free, 0x240), stopIds)
            mstore(add(free, 0x260), stopStringHashes)
            result := keccak256(free, 0x500)
        }
    }

    /// @notice The start hash that stands in every later record of the session.
    function hash(SessionStart memory start) internal pure returns (bytes32) {
        uint256 at;
        assembly ("memory-safe") {
            at := start
        }
        return _hashOfWords(SESSION_START_TYPEHASH, at, 3);
    }

    function hash(DraftCommit memory commit) internal pure returns (bytes32) {
        uint256 at;
        assembly ("memory-safe") {
            at := commit
        }
        return _hashOfWords(DRAFT_COMMIT_TYPEHASH, at, 9);
    }

    function hash(Verdict memory verdict) internal pure returns (bytes32) {
        uint256 at;
        assembly ("memory-safe") {
            at := verdict
        }
        return _hashOfWords(VERDICT_TYPEHASH, at, 12);
    }

    /// @dev A struct of values alone lies in memory as `abi.encode` would write it.
    function _hashOfWords(bytes32 typeHash, uint256 at, uint256 words)
        private
        pure
        returns (bytes32 result)
    {
        assembly ("memory-safe") {
            let free := mload(0x40)
            let size := mul(words, 0x20)
            mstore(free, typeHash)
            mcopy(add(free, 0x20), at, size)
            result := keccak256(free, add(size, 0x20))
        }
    }

    function hash(Voucher memory voucher) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                VOUCHER_TYPEHASH,
                voucher.lane,
                voucher.epoch,
                voucher.output,
                voucher.accepted,
                voucher.dueDrafter,
                voucher.dueVerifier,
                voucher.baseRoot,
                voucher.root,
                voucher.leafCount,
                keccak256(abi.encode(voucher.buckets))
            )
        );
    }

    /// @notice The claim id.
    function hash(Claim memory claim) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                CLAIM_TYPEHASH,
                claim.drafter,
                claim.targetModel,
                claim.draftModel,
                claim.mode,
                claim.maxTemperature,
                keccak256(abi.encode(claim.rates)),
                claim.nonce
            )
        );
    }

    // ------------------------------------------------------------------ leaves

    /// @notice keccak256(0x00 ‖ typehash ‖ abi.encode(fields)).
    function leaf(DraftLeaf memory fields) internal pure returns (bytes32) {
        uint256 at;
        assembly ("memory-safe") {
            at := fields
        }
        return _leafOfWords(DRAFT_LEAF_TYPEHASH, at, 7);
    }

    /// @notice keccak256(0x00 ‖ typehash ‖ abi.encode(fields)).
    function leaf(VerdictLeaf memory fields) internal pure returns (bytes32) {
        uint256 at;
        assembly ("memory-safe") {
            at := fields
        }
        return _leafOfWords(VERDICT_LEAF_TYPEHASH, at, 12);
    }

    /// @dev A struct of values alone lies in memory as `abi.encode` would write it.
    function _leafOfWords(bytes32 typeHash, uint256 at, uint256 words)
        private
        pure
        returns (bytes32 result)
    {
        assembly ("memory-safe") {
            let free := mload(0x40)
            let size := mul(words, 0x20)
            mstore8(free, 0x00)
            mstore(add(free, 0x01), typeHash)
            mcopy(add(free, 0x21), at, size)
            result := keccak256(free, add(size, 0x21))
        }
    }

    /// @notice keccak256(0x00 ‖ typehash ‖ abi.encode(fields)), the buckets word by word.
    /// @dev Eight words of values, then a pointer to eight of buckets.
    function leaf(RoundRecord memory fields) internal pure returns (bytes32 result) {
        bytes32 typeHash = ROUND_RECORD_TYPEHASH;
        uint256[8] memory buckets = fields.buckets;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 0x00)
            mstore(add(free, 0x01), typeHash)
            mcopy(add(free, 0x21), fields, 0x100)
            mcopy(add(free, 0x121), buckets, 0x100)
            result := keccak256(free, 0x221)
        }
    }

    /// @notice As `leaf` of a verdict leaf, straight from calldata, where a struct of values alone lies as
    /// `abi.encode` would write it. A word that is no value of its type leads to no leaf of an honest
    /// tree, and whoever then reads that member reverts.
    function leafOf(VerdictLeaf calldata fields) internal pure returns (bytes32 result) {
        bytes32 typeHash = VERDICT_LEAF_TYPEHASH;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 0x00)
            mstore(add(free, 0x01), typeHash)
            calldatacopy(add(free, 0x21), fields, 0x180)
            result := keccak256(free, 0x1a1)
        }
    }

    // ------------------------------------------------------------------ sums

    /// @notice Nine words: output | accepted << 64, then the eight bucket words.
    function sums(RoundRecord memory record) internal pure returns (uint256[9] memory) {
        return packSums(record.output, record.accepted, record.buckets);
    }

    /// @notice Nine words: output | accepted << 64, then the eight bucket words.
    function sums(Voucher memory voucher) internal pure returns (uint256[9] memory) {
        return packSums(voucher.output, voucher.accepted, voucher.buckets);
    }

    /// @notice Nine words: output | accepted << 64, then the eight bucket words.
    function packSums(uint64 output, uint64 accepted, uint256[8] memory buckets)
        internal
        pure
        returns (uint256[9] memory words)
    {
        words[0] = uint256(output) | (uint256(accepted) << 64);
        assembly ("memory-safe") {
            mcopy(add(words, 0x20), buckets, 0x100)
        }
    }

    // ------------------------------------------------------------------ lists and contexts

    /// @notice c_{n+1} = keccak256(c_n ‖ uint32 token).
    function nextContext(bytes32 context, uint32 token) internal pure returns (bytes32 result) {
        assembly ("memory-safe") {
            mstore(0x00, context)
            mstore(0x20, shl(224, token))
            result := keccak256(0x00, 0x24)
        }
    }

    /// @notice c_0 = keccak256(tag ‖ salt ‖ uint32 token ids), the ids packed big-endian.
    function promptHash(bytes32 salt, bytes memory packedIds) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/context/1", salt, packedIds));
    }

    /// @notice keccak256(tag ‖ (uint32 id ‖ uint64 mass)*), twelve bytes an entry.
    /// @dev Only the hash: `Masses.interval` checks what the list says.
    function keptHash(bytes memory packedKept) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/kept/1", packedKept));
    }

    /// @notice keccak256(tag ‖ uint32 ids), best first, four bytes an id.
    function topHash(bytes memory packedIds) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/top/1", packedIds));
    }

    /// @notice keccak256(tag ‖ salt ‖ fingerprint): what a verdict leaf carries.
    function saltedFingerprint(bytes32 salt, bytes32 fingerprint) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/fingerprint/1", salt, fingerprint));
    }

    /// @notice keccak256(tag ‖ UTF-8 text): how an order names a stop string.
    function stopStringHash(string memory text) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked("verdraft/stop-string/1", text));
    }
}
