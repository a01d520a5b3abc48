// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {SumWords} from "../libraries/SumWords.sol";

/// @notice Four lanes at a time against one at a time.
contract SumWordsTest is Test {
    uint256 internal constant LANE = type(uint64).max;

    function check(uint256[9] calldata counted, uint256[9] calldata sums)
        external
        pure
        returns (bool)
    {
        (bool good, bool changed) = SumWords.check(counted, sums);
        assertEq(changed, keccak256(abi.encode(counted)) != keccak256(abi.encode(sums)));
        return good;
    }

    function accumulate(uint256[9] calldata counted, uint256[9] calldata sums)
        external
        pure
        returns (uint256[9] memory delta)
    {
        SumWords.accumulate(delta, counted, sums);
        SumWords.accumulate(delta, counted, sums);
    }

    function _lane(uint256[9] memory words, uint256 word, uint256 lane)
        internal
        pure
        returns (uint256)
    {
        return (words[word] >> (64 * lane)) & LANE;
    }

    function _plain(uint256[9] memory counted, uint256[9] memory sums)
        internal
        pure
        returns (bool)
    {
        if (sums[0] >> 128 != 0) return false;
        for (uint256 word; word < 9; ++word) {
            for (uint256 lane; lane < 4; ++lane) {
                (uint256 old, uint256 next) = (_lane(counted, word, lane), _lane(sums, word, lane));
                if (next >= 1 << 63 || next < old || next - old >= 1 << 40) return false;
            }
        }
        for (uint256 word = 1; word < 5; ++word) {
            for (uint256 lane; lane < 4; ++lane) {
                uint256 proposed = _lane(sums, word, lane) - _lane(counted, word, lane);
                uint256 accepted = _lane(sums, word + 4, lane) - _lane(counted, word + 4, lane);
                if (accepted > proposed) return false;
            }
        }
        return true;
    }

    /// @dev Well-formed counts with one lane moved by `nudge`, so that both answers are common.
    function testFuzz_checkIsThePlainRule(
        uint64[34] memory old,
        uint64[34] memory proposed,
        uint64[34] memory accepted,
        uint256 place,
        uint256 nudge,
        uint8 how
    ) public view {
        uint256[9] memory counted;
        uint256[9] memory sums;
        for (uint256 i; i < 2; ++i) {
            uint256 base = old[i] % (1 << 62);
            counted[0] |= base << (64 * i);
            sums[0] |= (base + proposed[i] % (1 << 40)) << (64 * i);
        }
        for (uint256 i; i < 16; ++i) {
            uint256 base = old[2 + i] % (1 << 61);
            uint256 grown = proposed[2 + i] % (1 << 40);
            uint256 taken = grown == 0 ? 0 : accepted[2 + i] % (grown + 1);
            uint256 shift = 64 * (i % 4);
            counted[1 + i / 4] |= base << shift;
            counted[5 + i / 4] |= (base / 2) << shift;
            sums[1 + i / 4] |= (base + grown) << shift;
            sums[5 + i / 4] |= (base / 2 + taken) << shift;
        }
        assertTrue(_plain(counted, sums));
        assertTrue(this.check(counted, sums), "well-formed counts pass");
        if (how % 4 == 0) sums[place % 9] ^= 1 << (nudge % 256);
        else if (how % 4 == 1) sums[place % 9] = nudge;
        else if (how % 4 == 2) sums[place % 9] = counted[place % 9];
        else sums[place % 9] ^= uint256(1) << (64 * (nudge % 4) + (nudge / 4) % 3 * 20);
        assertEq(this.check(counted, sums), _plain(counted, sums));
    }

    function test_edges() public view {
        uint256[9] memory counted;
        uint256[9] memory sums;
        sums[1] = (1 << 40) - 1;
        sums[5] = (1 << 40) - 1;
        assertTrue(this.check(counted, sums));
        sums[5] = 1 << 40;
        assertFalse(this.check(counted, sums));
        sums[1] = 1 << 40;
        assertFalse(this.check(counted, sums));
        (sums[1], sums[5]) = (5 << 192, 6 << 192);
        assertFalse(this.check(counted, sums));
        sums[5] = 5 << 192;
        assertTrue(this.check(counted, sums));
        sums[0] = 1 << 128;
        assertFalse(this.check(counted, sums));
    }

    function test_accumulateAddsDifferences() public view {
        uint256[9] memory counted;
        uint256[9] memory sums;
        (counted[0], sums[0]) = (5 | (3 << 64), 9 | (4 << 64));
        (counted[8], sums[8]) = (1 << 192, 7 << 192);
        uint256[9] memory delta = this.accumulate(counted, sums);
        assertEq(delta[0], 8 | (2 << 64));
        assertEq(delta[8], 12 << 192);
    }
}
