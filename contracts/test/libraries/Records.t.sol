// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../../libraries/Records.sol";
import {RecordsHarness} from "../harness/RecordsHarness.sol";
import {VectorReader} from "./VectorReader.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

contract RecordsTest is VectorReader {
    RecordsHarness internal harness;
    Records.Order internal anOrder; // both of its lists are not empty

    function setUp() public {
        harness = new RecordsHarness();
        _loadTypes();
        bytes memory order = _record(_load("records"), ".signed[3].record", "Order");
        anOrder = abi.decode(order, (Records.Order));
    }

    // ------------------------------------------------------------------ golden vectors

    function test_Vectors_Signed() public {
        string memory json = _load("records");
        vm.chainId(_uint(json, ".domain.chainId"));
        bytes32 separator = harness.domainSeparator(vm.parseJsonAddress(json, ".domain.escrow"));
        assertEq(separator, _word(json, ".domain.separator"));
        address signer = vm.parseJsonAddress(json, ".signer");
        assertEq(vm.addr(_uint(json, ".privateKey")), signer);
        uint256 count = _count(json, ".signed");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".signed", i);
            bytes32 structHash = _hashOf(
                json, _text(json, string.concat(item, ".type")), string.concat(item, ".record")
            );
            assertEq(structHash, _word(json, string.concat(item, ".structHash")), item);
            bytes32 digest = harness.digest(separator, structHash);
            assertEq(digest, _word(json, string.concat(item, ".digest")), item);
            bytes memory signature = vm.parseJsonBytes(json, string.concat(item, ".signature"));
            assertEq(ECDSA.recover(digest, signature), signer, item);
        }
    }

    function test_Vectors_Leaves() public view {
        string memory json = _load("records");
        uint256 count = _count(json, ".leaves");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".leaves", i);
            bytes32 kind = keccak256(bytes(_text(json, string.concat(item, ".type"))));
            string memory record = string.concat(item, ".record");
            bytes32 leaf;
            if (kind == keccak256("DraftLeaf")) {
                leaf = harness.leafDraftLeaf(
                    abi.decode(_record(json, record, "DraftLeaf"), (Records.DraftLeaf))
                );
            } else if (kind == keccak256("VerdictLeaf")) {
                leaf = harness.leafVerdictLeaf(
                    abi.decode(_record(json, record, "VerdictLeaf"), (Records.VerdictLeaf))
                );
            } else if (kind == keccak256("RoundRecord")) {
                leaf = harness.leafRoundRecord(
                    abi.decode(_record(json, record, "RoundRecord"), (Records.RoundRecord))
                );
            } else {
                revert("a leaf of unknown type");
            }
            assertEq(leaf, _word(json, string.concat(item, ".leafHash")), item);
        }
    }

    function test_Vectors_Ids() public view {
        string memory json = _load("records");
        uint256 count = _count(json, ".lanes");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".lanes", i);
            bytes memory lane = vm.parseJsonType(
                json,
                string.concat(item, ".lane"),
                "Lane(address client,address drafter,address verifier,address token,bytes32 claimId)"
            );
            assertEq(
                harness.laneId(abi.decode(lane, (Records.Lane))),
                _word(json, string.concat(item, ".id"))
            );
        }
        bytes memory manifest = vm.parseJsonType(
            json,
            ".manifest",
            "Manifest(string architecture,uint8 tier,bytes32 weightsRoot,bytes32 tokenizerHash,uint32 vocabSize,uint32[] eosIds,uint32 contextLength)"
        );
        assertEq(
            harness.modelId(abi.decode(manifest, (Records.Manifest))),
            _word(json, ".manifest.modelId")
        );
    }

    function test_Vectors_ListsAndContexts() public view {
        string memory json = _load("records");
        bytes32 salt = _word(json, ".hashes.salt");
        bytes32 context = _word(json, ".hashes.context");
        bytes memory ids = _packedIds(json, ".hashes.tokens");
        assertEq(harness.promptHash(salt, ids), _word(json, ".hashes.promptHash"));
        assertEq(harness.promptHash(salt, ""), _word(json, ".hashes.emptyPromptHash"));
        assertEq(harness.topHash(ids), _word(json, ".hashes.topHash"));
        assertEq(harness.saltedFingerprint(salt, context), _word(json, ".hashes.saltedFingerprint"));
        assertEq(
            harness.stopStringHash(_text(json, ".hashes.stopString")),
            _word(json, ".hashes.stopStringHash")
        );
        assertEq(
            harness.keptHash(_packedKept(json, ".hashes.kept")), _word(json, ".hashes.keptHash")
        );
        uint32[] memory tokens = _u32s(json, ".hashes.tokens");
        for (uint256 i; i < tokens.length; ++i) {
            context = harness.nextContext(context, tokens[i]);
        }
        assertEq(context, _word(json, ".hashes.extendedContext"));
    }

    /// @dev Through the harness function of that name, which decodes what the vectors' type string
    /// encoded: a struct whose fields stand in another order would fail here.
    function _hashOf(string memory json, string memory kind, string memory path)
        internal
        view
        returns (bytes32)
    {
        bytes memory record = _record(json, path, kind);
        bytes32 name = keccak256(bytes(kind));
        if (name == keccak256("Order")) {
            return harness.hashOrder(abi.decode(record, (Records.Order)));
        }
        if (name == keccak256("SessionStart")) {
            return harness.hashSessionStart(abi.decode(record, (Records.SessionStart)));
        }
        if (name == keccak256("DraftCommit")) {
            return harness.hashDraftCommit(abi.decode(record, (Records.DraftCommit)));
        }
        if (name == keccak256("Verdict")) {
            return harness.hashVerdict(abi.decode(record, (Records.Verdict)));
        }
        if (name == keccak256("Voucher")) {
            return harness.hashVoucher(abi.decode(record, (Records.Voucher)));
        }
        if (name == keccak256("Claim")) {
            return harness.hashClaim(abi.decode(record, (Records.Claim)));
        }
        revert(string.concat("a record of unknown type: ", kind));
    }

    // ------------------------------------------------------------------ properties

    function testFuzz_TheSeparatorFollowsTheChain(uint64 one, uint64 other, address escrow) public {
        vm.assume(one != other);
        vm.chainId(one);
        bytes32 here = harness.domainSeparator(escrow);
        assertEq(
            here,
            keccak256(
                abi.encode(
                    keccak256(
                        "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
                    ),
                    keccak256("Verdraft"),
                    keccak256("1"),
                    uint256(one),
                    escrow
                )
            )
        );
        vm.chainId(other);
        assertNotEq(harness.domainSeparator(escrow), here);
    }

    function testFuzz_DigestsEqualOpenZeppelins(bytes32 separator, bytes32 structHash) public view {
        assertEq(
            harness.digest(separator, structHash),
            MessageHashUtils.toTypedDataHash(separator, structHash)
        );
    }

    /// @dev Word by word over the calldata: no field of an order is left out of what is signed.
    function testFuzz_EveryFieldOfAnOrderCounts(uint256 field, uint256 flip) public view {
        bytes memory data = abi.encodeCall(harness.hashOrder, (anOrder));
        bytes32 original = _call(data);
        // 39 words after the selector and the order's offset; two of them are arrays' offsets.
        field = bound(field, 0, 38);
        vm.assume(field != 17 && field != 18);
        flip = bound(flip, 0, 7);
        data[4 + 32 + 32 * field + 31] ^= bytes1(uint8(1 << flip));
        assertNotEq(_call(data), original);
    }

    function _call(bytes memory data) internal view returns (bytes32) {
        (bool ok, bytes memory answer) = address(harness).staticcall(data);
        assertTrue(ok);
        return abi.decode(answer, (bytes32));
    }

    function test_TheStopListsOfAnOrderCount() public view {
        Records.Order memory order = anOrder;
        bytes32[4] memory seen;
        seen[0] = harness.hashOrder(order);
        order.stopIds = new uint32[](1);
        seen[1] = harness.hashOrder(order);
        order.stopStringHashes = new bytes32[](7);
        seen[2] = harness.hashOrder(order);
        order.stopStringHashes = new bytes32[](8);
        seen[3] = harness.hashOrder(order);
        for (uint256 i; i < 4; ++i) {
            for (uint256 j; j < i; ++j) {
                assertNotEq(seen[i], seen[j]);
            }
        }
    }

    function testFuzz_LeavesAreThePlainConcatenation(
        Records.DraftLeaf memory draft,
        Records.VerdictLeaf memory verdict,
        Records.RoundRecord memory round
    ) public view {
        assertEq(
            harness.leafDraftLeaf(draft),
            keccak256(abi.encodePacked(bytes1(0), Records.DRAFT_LEAF_TYPEHASH, abi.encode(draft)))
        );
        assertEq(
            harness.leafVerdictLeaf(verdict),
            keccak256(
                abi.encodePacked(bytes1(0), Records.VERDICT_LEAF_TYPEHASH, abi.encode(verdict))
            )
        );
        assertEq(
            harness.leafRoundRecord(round),
            keccak256(abi.encodePacked(bytes1(0), Records.ROUND_RECORD_TYPEHASH, abi.encode(round)))
        );
    }

    function testFuzz_ContextsAndSumsEqualThePlainForm(
        bytes32 context,
        uint32 token,
        Records.Voucher memory voucher
    ) public view {
        assertEq(harness.nextContext(context, token), keccak256(abi.encodePacked(context, token)));
        uint256[9] memory sums = harness.sumsOfVoucher(voucher);
        assertEq(sums[0], uint256(voucher.output) + (uint256(voucher.accepted) << 64));
        for (uint256 i; i < 8; ++i) {
            assertEq(sums[i + 1], voucher.buckets[i]);
        }
    }

    function testFuzz_AnOrdersLaneNamesItsParties(address[4] memory parties, bytes32 claim)
        public
        view
    {
        Records.Order memory order;
        (order.client, order.drafter, order.verifier, order.token) =
        (parties[0], parties[1], parties[2], parties[3]);
        order.claimId = claim;
        Records.Lane memory lane = harness.laneOf(order);
        assertEq(
            harness.laneId(lane),
            keccak256(abi.encode(parties[0], parties[1], parties[2], parties[3], claim))
        );
    }
}
