// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Logarithm} from "../../libraries/Logarithm.sol";
import {NoiseHarness} from "../harness/NoiseHarness.sol";
import {VectorReader} from "./VectorReader.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

/// @notice `Noise` and `Logarithm`, held against solady's logarithm, which shares no step with them.
contract NoiseTest is VectorReader {
    NoiseHarness internal noise;

    int256 internal constant WAD = 1e18;

    function setUp() public {
        noise = new NoiseHarness();
    }

    // ------------------------------------------------------------------ golden vectors

    function test_Vectors_Philox() public view {
        string memory json = _load("noise");
        uint256 count = _count(json, ".philox");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".philox", i);
            assertEq(
                noise.philox(
                    _joined(json, string.concat(item, ".counter"), 4),
                    _joined(json, string.concat(item, ".key"), 2)
                ),
                _joined(json, string.concat(item, ".output"), 4),
                item
            );
        }
    }

    /// @dev Random123's kat_vectors, in case the file above were made from a wrong generator.
    function test_PhiloxGivesItsPublishedAnswers() public view {
        assertEq(noise.philox(0, 0), 0x9b00dbd8_bc57ac4c_e169c58d_6627e8d5);
        assertEq(
            noise.philox(type(uint128).max, type(uint64).max), 0x6d5451fd_a20bc7c6_41c83b0e_408f276d
        );
        assertEq(
            noise.philox(0x03707344_13198a2e_85a308d3_243f6a88, 0x299f31d0_a4093822),
            0x24126ea1_5001e420_94fdcceb_d16cfe09
        );
    }

    struct Logged {
        uint64 x;
        uint64 lnQ31;
        uint64 lnUpQ20;
    }

    function test_Vectors_Logarithm() public view {
        string memory json = _load("noise");
        Logged[] memory list = abi.decode(
            vm.parseJsonTypeArray(
                json, ".logarithm", "Logged(uint64 x,uint64 lnQ31,uint64 lnUpQ20)"
            ),
            (Logged[])
        );
        assertGt(list.length, 60);
        for (uint256 i; i < list.length; ++i) {
            assertEq(noise.lnQ31(list[i].x), list[i].lnQ31);
            assertEq(noise.lnUpQ20(list[i].x), list[i].lnUpQ20);
        }
    }

    struct Noisy {
        uint64 r;
        int64 noise;
    }

    function test_Vectors_Gumbel() public view {
        string memory json = _load("noise");
        Noisy[] memory list = abi.decode(
            vm.parseJsonTypeArray(json, ".gumbel", "Noisy(uint64 r,int64 noise)"), (Noisy[])
        );
        assertGt(list.length, 100);
        for (uint256 i; i < list.length; ++i) {
            assertEq(noise.gumbelOf(list[i].r), list[i].noise);
        }
    }

    function test_Vectors_Positions() public view {
        string memory json = _load("noise");
        uint256 count = _count(json, ".positions");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".positions", i);
            bytes32 seed = _word(json, string.concat(item, ".seed"));
            uint64 position = uint64(_uint(json, string.concat(item, ".position")));
            uint32[] memory tokens = _u32s(json, string.concat(item, ".tokens"));
            uint256[] memory r = vm.parseJsonUintArray(json, string.concat(item, ".uniform"));
            int256[] memory g = vm.parseJsonIntArray(json, string.concat(item, ".noise"));
            assertGt(tokens.length, 5);
            for (uint256 j; j < tokens.length; ++j) {
                assertEq(noise.uniformBits(seed, position, tokens[j]), r[j], item);
                assertEq(noise.gumbel(seed, position, tokens[j]), g[j], item);
            }
        }
    }

    // ------------------------------------------------------------------ properties

    function testFuzz_NoiseNeverFalls(uint64 r, uint8 shift, uint64 step) public view {
        r >>= shift % 64; // every magnitude
        step >>= shift % 64;
        if (shift & 64 != 0) r = ~r; // and from the other end
        if (step > type(uint64).max - r) step = type(uint64).max - r;
        assertLe(noise.gumbelOf(r), noise.gumbelOf(r + step));
    }

    function test_NoiseNeverFallsInTheMiddleAndAtTheEnds() public view {
        uint64 middle = 1 << 63;
        for (uint64 i; i < 40; ++i) {
            assertLe(noise.gumbelOf(middle - 20 + i), noise.gumbelOf(middle - 19 + i));
            assertLe(noise.gumbelOf(i), noise.gumbelOf(i + 1));
            assertLe(noise.gumbelOf(type(uint64).max - i - 1), noise.gumbelOf(type(uint64).max - i));
        }
        assertEq(noise.gumbelOf(0), -63_885_530);
        assertEq(noise.gumbelOf(type(uint64).max), 755_890_198);
    }

    /// @dev For r up to 2**63; above, u is too near to one for solady's eighteen digits of −ln u.
    function testFuzz_NoiseIsTheGumbelValue(uint64 r, uint8 shift) public view {
        r = uint64(bound(r >> (shift % 56), 1 << 8, 1 << 63));
        // u = (2r + 1) / 2**65; solady's ln of a quotient in wad would lose small u.
        int256 lnU = FixedPointMathLib.lnWad(int256((2 * uint256(r) + 1) * 1e18))
            - FixedPointMathLib.lnWad(int256(uint256(1 << 65) * 1e18));
        int256 gumbel = -FixedPointMathLib.lnWad(-lnU);
        assertApproxEqAbs(int256(noise.gumbelOf(r)) * WAD / (1 << 24), gumbel, 2e11); // 2**-22
    }

    function testFuzz_LogarithmIsALowerBoundAndUpIsAnUpperOne(uint64 x, uint8 shift) public view {
        x = uint64(bound(x >> (shift % 64), 1, type(uint64).max));
        int256 real = FixedPointMathLib.lnWad(int256(uint256(x) * 1e18));
        uint256 low = noise.lnQ31(x);
        // In units of 2**-31, with a unit of slack for solady's own last digits.
        int256 realQ31 = real * (1 << 31) / WAD;
        assertLe(int256(low), realQ31 + 1);
        assertGe(int256(low + Logarithm.LN_ERROR_Q31), realQ31 - 1);
        int256 up = int256(noise.lnUpQ20(x));
        assertGe(up * WAD, real * (1 << 20) - 1e6);
        assertLe(up * WAD, real * (1 << 20) + WAD * 101 / 100 + 1e6);
    }

    function testFuzz_RevertWhen_LogarithmIsOutsideItsRange(uint256 x) public {
        x = bound(x, 1 << 64, type(uint256).max);
        vm.expectRevert(abi.encodeWithSelector(Logarithm.LogarithmOutsideRange.selector, x));
        noise.lnQ31(x);
        vm.expectRevert(abi.encodeWithSelector(Logarithm.LogarithmOutsideRange.selector, 0));
        noise.lnUpQ20(0);
    }

    /// @dev Counter and key of the protocol, written out word by word.
    function testFuzz_TwoNeighboursShareABlock(bytes32 seed, uint64 position, uint32 token)
        public
        view
    {
        bytes32 h = keccak256(abi.encodePacked("verdraft/noise/1", seed, position));
        uint256[5] memory words;
        for (uint256 i; i < 5; ++i) {
            words[i] = uint32(bytes4(h << (32 * i)));
        }
        uint256 block_ = noise.philox(
            uint256(token / 2) + (words[2] << 32) + (words[3] << 64) + (words[4] << 96),
            words[0] + (words[1] << 32)
        );
        uint256 even = (uint32(block_) * uint256(1 << 32)) + uint32(block_ >> 32);
        uint256 odd = (uint32(block_ >> 64) * uint256(1 << 32)) + uint32(block_ >> 96);
        uint32 first = token - (token % 2);
        assertEq(noise.uniformBits(seed, position, first), even);
        assertEq(noise.uniformBits(seed, position, first + 1), odd);
        assertEq(noise.gumbel(seed, position, first), noise.gumbelOf(uint64(even)));
        assertEq(noise.gumbel(seed, position, first + 1), noise.gumbelOf(uint64(odd)));
    }

    /// @dev 32-bit words, the first in the lowest bits.
    function _joined(string memory json, string memory path, uint256 count)
        internal
        pure
        returns (uint256 joined)
    {
        uint256[] memory words = vm.parseJsonUintArray(json, path);
        assertEq(words.length, count);
        for (uint256 i; i < count; ++i) {
            joined |= words[i] << (32 * i);
        }
    }
}
