// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IntDot
/// @notice The dot product of an int16 and an int8 vector, eight products to a multiplication.
///
/// @dev How. Written in powers of X = 2**32, A = Σ a_k X**k and B = Σ b_k X**(7−k), k = 0 … 7, the
/// product A·B has Σ a_k b_k at X**7. So one `mul` adds up eight products, if A's and B's elements
/// stand in opposite orders, and modulo 2**256 nothing above X**7 is left. Elements may be negative:
/// A and B are then those sums modulo 2**256, borrows and all.
///
/// Reading the top lane: with P = Σ c_k X**k modulo 2**256, |c_k| < 2**30, what lies below lane 7 is
/// less than 2**223 in size; so c_7 = (P + 2**223) >> 224, arithmetic. A block of 32 elements adds up
/// four products, |c_k| ≤ 32 · 2**15 · 2**8 = 2**28.
///
/// Order. Of 32 weights in a word, element 4j + r is in lane j from the left once the word is shifted
/// right by 8·(3 − r) bits and masked; `lanes` puts the int16 elements r, 4 + r, … 28 + r from right
/// to left beside it. A vector that ends within a block ends in zeros there: what the weights' word
/// reads past its own end is multiplied by nothing.
///
/// Weights enter as w + 128, which is never negative: Σ a·w = Σ a·(w + 128) − 128·Σ a.
library IntDot {
    /// @notice A vector of int16 is two bytes an element.
    error OddLength(uint256 length);

    /// @notice Past this the sums could leave their lanes.
    error VectorTooLong(uint256 elements, uint256 limit);

    /// @notice Weights and activations do not pair up.
    error LengthsDiffer(uint256 activations, uint256 weights);

    uint256 internal constant MAX_ELEMENTS = 1 << 14;

    /// @notice An int16 vector in the order in which `dot` wants it.
    struct Lanes {
        uint256[] words; // four to 32 elements
        int256 sum;
        uint256 elements;
    }

    /// @notice Reads big-endian int16.
    function lanes(bytes calldata activations) internal pure returns (Lanes memory result) {
        if (activations.length & 1 != 0) revert OddLength(activations.length);
        uint256 elements = activations.length >> 1;
        if (elements > MAX_ELEMENTS) revert VectorTooLong(elements, MAX_ELEMENTS);
        // Two words more: `mstore` below writes past the last four.
        uint256[] memory words = new uint256[]((elements + 31) / 32 * 4 + 2);
        int256 sum;
        assembly ("memory-safe") {
            let low := 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff
            let bias := 0x0000800000008000000080000000800000008000000080000000800000008000
            let out := add(words, 0x20)
            let from := activations.offset
            let total
            for { let left := elements } left {} {
                let h0 := calldataload(from)
                let h1 := calldataload(add(from, 0x20))
                let taken := 32
                if lt(left, 32) {
                    // INVARIANT: nothing behind the vector counts; a shift of 256 or more gives zero.
                    taken := left
                    switch lt(left, 16)
                    case 1 {
                        h0 := and(h0, shl(sub(256, shl(4, left)), not(0)))
                        h1 := 0
                    }
                    default { h1 := and(h1, shl(sub(512, shl(4, left)), not(0))) }
                }
                // Each element as itself + 2**15, so that it is never negative.
                let signs := or(bias, shl(16, bias))
                h0 := xor(h0, signs)
                h1 := xor(h1, signs)
                // The pairs (28, 29), (24, 25) … (0, 1) from left to right: each store puts one in
                // place, and its neighbours are overwritten by the next.
                mstore(out, shl(192, h1))
                mstore(add(out, 0x04), shl(128, h1))
                mstore(add(out, 0x08), shl(64, h1))
                mstore(add(out, 0x0c), h1)
                mstore(add(out, 0x10), shl(192, h0))
                mstore(add(out, 0x14), shl(128, h0))
                mstore(add(out, 0x18), shl(64, h0))
                mstore(add(out, 0x1c), h0)
                let pairs := mload(out)
                // And (30, 31), (26, 27) … (2, 3).
                h0 := shl(32, h0)
                h1 := shl(32, h1)
                mstore(out, shl(192, h1))
                mstore(add(out, 0x04), shl(128, h1))
                mstore(add(out, 0x08), shl(64, h1))
                mstore(add(out, 0x0c), h1)
                mstore(add(out, 0x10), shl(192, h0))
                mstore(add(out, 0x14), shl(128, h0))
                mstore(add(out, 0x18), shl(64, h0))
                mstore(add(out, 0x1c), h0)
                h1 := mload(out)

                h0 := sub(and(shr(16, pairs), low), bias)
                mstore(out, h0)
                total := add(total, h0)
                h0 := sub(and(pairs, low), bias)
                mstore(add(out, 0x20), h0)
                total := add(total, h0)
                h0 := sub(and(shr(16, h1), low), bias)
                mstore(add(out, 0x40), h0)
                total := add(total, h0)
                h0 := sub(and(h1, low), bias)
                mstore(add(out, 0x60), h0)
                total := add(total, h0)

                out := add(out, 0x80)
                from := add(from, 0x40)
                left := sub(left, taken)
            }
            // Times 1 + X + … + X**7, every lane comes to the top: |lane| ≤ 512 · 4 · 2**15 = 2**26.
            sum := sar(
                224,
                add(
                    mul(total, 0x0000000100000001000000010000000100000001000000010000000100000001),
                    shl(223, 1)
                )
            )
        }
        result.words = words;
        result.sum = sum;
        result.elements = elements;
    }

    /// @notice Σ a_i w_i over int8 `weights`, one byte each; |result| ≤ 2**36.
    function dot(Lanes memory activations, bytes calldata weights)
        internal
        pure
        returns (int256 result)
    {
        if (weights.length != activations.elements) {
            revert LengthsDiffer(activations.elements, weights.length);
        }
        uint256[] memory words = activations.words;
        assembly ("memory-safe") {
            let low := 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff
            let signs := 0x8080808080808080808080808080808080808080808080808080808080808080
            let half := shl(223, 1)
            let from := weights.offset
            let end := add(from, weights.length)
            let at := add(words, 0x20)
            for {} lt(from, end) {
                from := add(from, 0x20)
                at := add(at, 0x80)
            } {
                let w := xor(calldataload(from), signs)
                let product := mul(mload(at), and(shr(24, w), low))
                product := add(product, mul(mload(add(at, 0x20)), and(shr(16, w), low)))
                product := add(product, mul(mload(add(at, 0x40)), and(shr(8, w), low)))
                product := add(product, mul(mload(add(at, 0x60)), and(w, low)))
                result := add(result, sar(224, add(product, half)))
            }
        }
        unchecked {
            result -= 128 * activations.sum;
        }
    }
}
