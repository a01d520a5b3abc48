// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Coins} from "../../libraries/Coins.sol";
import {CoinsHarness} from "../harness/CoinsHarness.sol";
import {VectorReader} from "./VectorReader.sol";

/// @notice `Coins`, `Masses` and `Buckets`.
contract CoinsTest is VectorReader {
    CoinsHarness internal coins;

    function setUp() public {
        coins = new CoinsHarness();
    }

    // ------------------------------------------------------------------ golden vectors

    function test_Vectors_Seeds() public view {
        string memory json = _load("coins");
        bytes32 client = _word(json, ".seed.nonceClient");
        assertEq(coins.nonceCommitment(client), _word(json, ".seed.commitmentClient"));
        assertEq(
            coins.seed(_word(json, ".seed.requestId"), client, _word(json, ".seed.nonceVerifier")),
            _word(json, ".seed.jointSeed")
        );
        uint256 count = _count(json, ".seed.clientSeeds");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".seed.clientSeeds", i);
            assertEq(
                coins.clientSeed(
                    int64(vm.parseJsonInt(json, string.concat(item, ".seed"))),
                    _word(json, string.concat(item, ".targetModel")),
                    _packedIds(json, string.concat(item, ".prompt"))
                ),
                _word(json, string.concat(item, ".value")),
                item
            );
        }
    }

    function test_Vectors_Chain() public view {
        string memory json = _load("coins");
        bytes32[] memory values = vm.parseJsonBytes32Array(json, ".chain.values");
        bytes32[] memory rounds = vm.parseJsonBytes32Array(json, ".chain.rounds");
        assertEq(values.length, rounds.length + 1);
        assertGt(rounds.length, 3);
        for (uint256 i; i < rounds.length; ++i) {
            assertEq(coins.chainStep(values[i + 1]), values[i]);
            assertEq(rounds[i], values[i + 1]);
            coins.requireOnChain(values[0], rounds[i], i);
        }
    }

    function test_Vectors_CoinsAndDraws() public view {
        string memory json = _load("coins");
        uint256 count = _count(json, ".cases");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".cases", i);
            bytes32 value = _word(json, string.concat(item, ".chainValue"));
            bytes32 seed = _word(json, string.concat(item, ".seed"));
            uint64 position = uint64(_uint(json, string.concat(item, ".position")));
            uint256[] memory expected = vm.parseJsonUintArray(json, string.concat(item, ".coins"));
            assertEq(expected.length, 3);
            for (uint8 purpose; purpose < 3; ++purpose) {
                assertEq(coins.coin(value, seed, position, purpose), expected[purpose], item);
            }
            assertEq(
                coins.draw(value, seed, _word(json, string.concat(item, ".contextHash")), position),
                _uint(json, string.concat(item, ".draw")),
                item
            );
        }
    }

    struct Decision {
        uint64 u;
        uint64 q;
        uint64 p;
        bool accepted;
    }

    function test_Vectors_Decisions() public view {
        string memory json = _load("accept");
        Decision[] memory list = abi.decode(
            vm.parseJsonTypeArray(
                json, ".decisions", "Decision(uint64 u,uint64 q,uint64 p,bool accepted)"
            ),
            (Decision[])
        );
        assertGt(list.length, 60);
        for (uint256 i; i < list.length; ++i) {
            assertEq(coins.accepts(list[i].u, list[i].q, list[i].p), list[i].accepted);
        }
    }

    struct Bucketed {
        uint32 position;
        uint16 topProb;
        uint8 bucket;
    }

    function test_Vectors_Buckets() public view {
        string memory json = _load("alpha");
        Bucketed[] memory list = abi.decode(
            vm.parseJsonTypeArray(
                json, ".buckets", "Bucketed(uint32 position,uint16 topProb,uint8 bucket)"
            ),
            (Bucketed[])
        );
        assertGt(list.length, 60);
        for (uint256 i; i < list.length; ++i) {
            assertEq(coins.bucket(list[i].position, list[i].topProb), list[i].bucket);
        }
    }

    // ------------------------------------------------------------------ chains

    function testFuzz_AnchorsEqualSingleSteps(bytes32 value, uint8 round) public view {
        bytes32 expected = value;
        for (uint256 i; i <= round; ++i) {
            expected = keccak256(abi.encodePacked("verdraft/chain/1", expected));
        }
        assertEq(coins.anchorOf(value, round), expected);
    }

    function testFuzz_RevertWhen_AValueIsAnotherRounds(bytes32 secret, uint8 round, uint8 other)
        public
    {
        vm.assume(round != other);
        bytes32 anchor = coins.anchorOf(secret, round);
        coins.requireOnChain(anchor, secret, round);
        vm.expectRevert(
            abi.encodeWithSelector(Coins.NotOnChain.selector, anchor, secret, uint256(other))
        );
        coins.requireOnChain(anchor, secret, other);
    }

    function testFuzz_RevertWhen_TheAnchorPassesForACoin(bytes32 secret, uint8 round) public {
        bytes32 anchor = coins.anchorOf(secret, round);
        vm.expectPartialRevert(Coins.NotOnChain.selector);
        coins.requireOnChain(anchor, anchor, 0);
    }

    function testFuzz_RevertWhen_TheRoundIsPastTheChain(uint256 round) public {
        round = bound(round, Coins.MAX_CHAIN, type(uint256).max);
        vm.expectRevert(
            abi.encodeWithSelector(Coins.RoundPastChain.selector, round, Coins.MAX_CHAIN)
        );
        coins.anchorOf(keccak256("value"), round);
    }

    // ------------------------------------------------------------------ coins

    function testFuzz_CoinsAndDrawsEqualThePlainHash(
        bytes32 value,
        bytes32 seed,
        bytes32 context,
        uint64 position,
        uint8 purpose
    ) public view {
        bytes memory preimage = abi.encodePacked("verdraft/coin/1", value, seed, position, purpose);
        assertEq(preimage.length, 15 + 32 + 32 + 8 + 1);
        assertEq(coins.coin(value, seed, position, purpose), uint64(bytes8(keccak256(preimage))));
        preimage = abi.encodePacked("verdraft/draw/1", value, seed, context, position);
        uint256 w = uint64(bytes8(keccak256(preimage)));
        assertEq(coins.draw(value, seed, context, position), (w * type(uint64).max) / (1 << 64));
    }

    function testFuzz_EachPurposeHasItsOwnCoin(bytes32 value, bytes32 seed, uint64 position)
        public
        view
    {
        uint64 accept = coins.coin(value, seed, position, Coins.PURPOSE_ACCEPT);
        uint64 residual = coins.coin(value, seed, position, Coins.PURPOSE_RESIDUAL);
        uint64 bonus = coins.coin(value, seed, position, Coins.PURPOSE_BONUS);
        assertTrue(accept != residual && residual != bonus && accept != bonus);
    }

    function testFuzz_TheCoinRuleIsExact(uint64 u, uint64 q, uint64 p) public view {
        // u / 2**64 < p / q, without a division.
        bool expected = q != 0 && uint256(u) * q < uint256(p) * (1 << 64);
        assertEq(coins.accepts(u, q, p), expected);
        if (q == 0) return;
        // The least p that passes, and the one before.
        uint256 least = (uint256(u) * q) / (1 << 64) + 1;
        if (least <= type(uint64).max) assertTrue(coins.accepts(u, q, uint64(least)));
        assertFalse(coins.accepts(u, q, uint64(least - 1)) && uint256(u) * q >= (least - 1) << 64);
        // Where the target likes the token at least as much, every coin accepts.
        if (p >= q) assertTrue(coins.accepts(u, q, p));
    }

    // ------------------------------------------------------------------ kept lists

    struct Kept {
        uint32[] ids;
        uint64[] masses;
    }

    function testFuzz_ADrawFallsOnExactlyOneId(uint256 seed, uint64 w) public view {
        w = uint64(bound(w, 0, type(uint64).max - 1));
        Kept memory kept = _kept(seed);
        bytes memory packed = _pack(kept);
        uint256 holders;
        uint256 sum;
        for (uint256 i; i < kept.ids.length; ++i) {
            (bool wellFormed, uint256 q, uint256 below) = coins.interval(packed, kept.ids[i]);
            assertTrue(wellFormed);
            assertEq(q, kept.masses[i]);
            assertEq(below, sum);
            if (coins.holds(uint64(below), uint64(q), w)) ++holders;
            sum += q;
        }
        assertEq(sum, type(uint64).max);
        assertEq(holders, 1);
    }

    function testFuzz_ATokenOutsideTheListHasNoMass(uint256 seed, uint32 token) public view {
        Kept memory kept = _kept(seed);
        uint256 sum;
        for (uint256 i; i < kept.ids.length; ++i) {
            if (kept.ids[i] == token) return;
            if (kept.ids[i] < token) sum += kept.masses[i];
        }
        (bool wellFormed, uint256 q, uint256 below) = coins.interval(_pack(kept), token);
        assertTrue(wellFormed);
        assertEq(q, 0);
        assertEq(below, sum);
    }

    function testFuzz_AListThatIsNoDistributionIsRefused(uint256 seed, uint256 kind) public view {
        Kept memory kept = _kept(seed);
        uint256 entry = seed % kept.ids.length;
        kind = bound(kind, 0, 5);
        bytes memory packed;
        if (kind == 0) {
            kept.masses[entry] ^= 1;
        } else if (kind == 1) {
            kept.masses[entry] = 0;
        } else if (kind == 2) {
            kept.ids[entry] = type(uint32).max;
        } else if (kind == 3) {
            kept.ids[entry] = kept.ids[(entry + 1) % kept.ids.length];
            if (kept.ids.length == 1) kept.masses[0] -= 1;
        } else if (kind == 4) {
            packed = abi.encodePacked(_pack(kept), bytes1(0));
        } else {
            packed = abi.encodePacked(_pack(kept), uint32(type(uint32).max - 1), uint64(1));
        }
        if (packed.length == 0) packed = _pack(kept);
        (bool wellFormed,,) = coins.interval(packed, kept.ids[0]);
        assertFalse(wellFormed);
    }

    function test_AListHasOneToSixtyFourEntries() public view {
        (bool wellFormed,,) = coins.interval("", 0);
        assertFalse(wellFormed);
        for (uint256 count = 63; count < 67; ++count) {
            bytes memory packed;
            for (uint256 i; i < count; ++i) {
                uint64 mass = i == 0 ? type(uint64).max - uint64(count - 1) : 1;
                packed = abi.encodePacked(packed, uint32(i), mass);
            }
            (wellFormed,,) = coins.interval(packed, 0);
            assertEq(wellFormed, count <= 64);
        }
    }

    /// @dev One to eight ascending ids whose masses make up the whole.
    function _kept(uint256 seed) internal pure returns (Kept memory kept) {
        uint256 count = 1 + seed % 8;
        kept.ids = new uint32[](count);
        kept.masses = new uint64[](count);
        uint256 id;
        uint256 rest = type(uint64).max;
        for (uint256 i; i < count; ++i) {
            uint256 dice = uint256(keccak256(abi.encode(seed, i)));
            kept.ids[i] = uint32(id);
            id += 1 + dice % 1000;
            uint256 mass = i + 1 == count ? rest : 1 + (dice >> 32) % (rest / 2);
            kept.masses[i] = uint64(mass);
            rest -= mass;
        }
    }

    function _pack(Kept memory kept) internal pure returns (bytes memory packed) {
        for (uint256 i; i < kept.ids.length; ++i) {
            packed = abi.encodePacked(packed, kept.ids[i], kept.masses[i]);
        }
    }
}
