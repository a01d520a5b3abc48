// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {IntDot} from "../../libraries/IntDot.sol";
import {IntDotHarness} from "../harness/IntDotHarness.sol";

/// @notice The packed dot product against its plain twin, on any length and on the extremes.
contract IntDotTest is Test {
    IntDotHarness internal dots;

    function setUp() public {
        dots = new IntDotHarness();
    }

    /// @dev `length` bytes of a stream.
    function _bytes(bytes32 seed, uint256 length) private pure returns (bytes memory out) {
        while (out.length < length) {
            seed = keccak256(abi.encode(seed));
            out = bytes.concat(out, seed);
        }
        assembly ("memory-safe") {
            mstore(out, length)
        }
    }

    /// @dev `count` times the same two or one bytes.
    function _constant(bytes memory element, uint256 count)
        private
        pure
        returns (bytes memory out)
    {
        out = new bytes(element.length * count);
        for (uint256 i; i < out.length; ++i) {
            out[i] = element[i % element.length];
        }
    }

    function _agree(bytes memory a, bytes memory w) private view returns (int256 result) {
        result = dots.packed(a, w);
        assertEq(result, dots.plain(a, w));
    }

    /// forge-config: default.fuzz.runs = 128
    function testFuzz_PackedIsPlain(bytes32 seed, uint16 count) public view {
        uint256 n = bound(count, 0, 700);
        _agree(_bytes(seed, 2 * n), _bytes(~seed, n));
    }

    /// @dev One element apart in every place, so that no two places can be mixed up.
    function test_EveryPlaceIsItsOwn() public view {
        for (uint256 n = 1; n <= 67; ++n) {
            for (uint256 at; at < n; at += n < 34 ? 1 : 7) {
                bytes memory a = new bytes(2 * n);
                bytes memory w = _bytes(bytes32(n), n);
                (a[2 * at], a[2 * at + 1]) = (0x80, 0x01);
                assertEq(dots.packed(a, w), -32767 * int256(int8(uint8(w[at]))));
            }
        }
    }

    function test_Extremes() public view {
        uint256[5] memory sizes = [uint256(1), 31, 576, 1536, 1 << 14];
        for (uint256 i; i < sizes.length; ++i) {
            uint256 n = sizes[i];
            int256 m = int256(n);
            bytes memory low = _constant(hex"8000", n);
            bytes memory high = _constant(hex"7fff", n);
            bytes memory down = _constant(hex"80", n);
            bytes memory up = _constant(hex"7f", n);
            assertEq(dots.packed(low, down), m * 32768 * 128);
            assertEq(dots.packed(low, up), -m * 32768 * 127);
            assertEq(dots.packed(high, down), -m * 32767 * 128);
            assertEq(dots.packed(high, up), m * 32767 * 127);
            assertEq(dots.packed(_constant(hex"0000", n), down), 0);
            assertEq(dots.packed(low, new bytes(n)), 0);
            // Signs that alternate: a borrow from lane to lane and none.
            assertEq(
                dots.packed(_constant(hex"80007fff", n / 2), _constant(hex"807f", n / 2)),
                int256(n / 2) * (32768 * 128 + 32767 * 127)
            );
        }
    }

    /// @dev What stands behind either vector in the call data does not count.
    function test_NothingBehindTheEndCounts() public view {
        bytes memory a = _bytes("a", 2 * 37);
        bytes memory w = _bytes("w", 37);
        bytes memory ones = _constant(hex"ff", 64);
        (int256 one, int256 other) = dots.packedTwice(a, w, w);
        assertEq(one, other);
        assertEq(one, dots.plain(a, w));
        // The same call with its padding turned to ones.
        bytes memory call = abi.encodeCall(dots.packed, (a, w));
        uint256 head = 4 + 64;
        for (uint256 i = head + 32 + 74; i < head + 32 + 96; ++i) {
            call[i] = 0xff;
        }
        for (uint256 i = head + 32 + 96 + 32 + 37; i < call.length; ++i) {
            call[i] = 0xff;
        }
        (bool held, bytes memory answer) = address(dots).staticcall(bytes.concat(call, ones));
        assertTrue(held);
        assertEq(abi.decode(answer, (int256)), one);
    }

    function test_OneReadingServesTwoRows() public view {
        bytes memory a = _bytes("a", 2 * 576);
        (int256 one, int256 other) = dots.packedTwice(a, _bytes("y", 576), _bytes("j", 576));
        assertEq(one, dots.plain(a, _bytes("y", 576)));
        assertEq(other, dots.plain(a, _bytes("j", 576)));
    }

    function test_RevertWhen_LengthsAreOff() public {
        vm.expectRevert(abi.encodeWithSelector(IntDot.OddLength.selector, 3));
        dots.packed(new bytes(3), new bytes(1));
        vm.expectRevert(abi.encodeWithSelector(IntDot.LengthsDiffer.selector, 4, 5));
        dots.packed(new bytes(8), new bytes(5));
        vm.expectRevert(abi.encodeWithSelector(IntDot.LengthsDiffer.selector, 4, 3));
        dots.packed(new bytes(8), new bytes(3));
        uint256 over = (1 << 14) + 1;
        vm.expectRevert(abi.encodeWithSelector(IntDot.VectorTooLong.selector, over, 1 << 14));
        dots.packed(new bytes(2 * over), new bytes(over));
    }

    function test_Cost() public {
        uint256[2] memory sizes = [uint256(576), 1536];
        for (uint256 i; i < 2; ++i) {
            bytes memory a = _bytes("a", 2 * sizes[i]);
            bytes memory w = _bytes("w", sizes[i]);
            uint256 before = gasleft();
            dots.packed(a, w);
            uint256 used = before - gasleft();
            before = gasleft();
            dots.plain(a, w);
            emit log_named_uint("packed", used);
            emit log_named_uint("plain", before - gasleft());
            assertLt(used * 10, before - gasleft());
        }
    }
}
