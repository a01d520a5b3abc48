// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Batches
/// @notice What one settlement transaction leaves behind for later draws and judgements: one entry
/// for each lane whose head moved, kept on chain as a single hash and in full in the events.
library Batches {
    /// @notice One lane's settled root. 96 bytes when packed.
    struct Entry {
        bytes32 lane;
        bytes32 root;
        uint96 valueDrafter; // what D was paid by this settlement
        uint96 valueVerifier; // what V was paid
        uint32 epoch;
        uint24 coverage; // see `coverage` below
        uint8 flags;
    }

    // `coverage`, in 256ths, rounded down and capped: the lesser of V's active stake ÷ what the voucher
    // asked for both beyond their watermarks, and D's ÷ what it asked for D, in stake units.

    /// @notice D signed this root: its α counts are in.
    uint8 internal constant COUNTED = 1;
    /// @notice The root replaces an earlier one on the same base: the draw is over the larger tree.
    uint8 internal constant SUPERSEDES = 2;

    /// @notice The head had already moved past this root, by a voucher that D did not sign.
    uint8 internal constant BEHIND = 4;
    /// @notice The root is new to its lane, or pays: it is registered for a draw. Without it a
    /// signature has come later, and counts.
    uint8 internal constant DRAWABLE = 8;

    uint24 internal constant MAX_COVERAGE = type(uint24).max;

    /// @notice Bytes of an entry as the hash covers it.
    uint256 internal constant ENTRY_BYTES = 96;

    /// @notice The third word of a packed entry.
    function figures(Entry memory entry) internal pure returns (uint256) {
        return uint256(entry.valueDrafter) | (uint256(entry.valueVerifier) << 96)
            | (uint256(entry.epoch) << 192) | (uint256(entry.coverage) << 224)
            | (uint256(entry.flags) << 248);
    }

    /// @notice keccak256 of the packed entries: lane ‖ root ‖ figures, each 32 bytes, one after
    /// another.
    function hash(Entry[] memory entries) internal pure returns (bytes32) {
        bytes memory packed = new bytes(entries.length * ENTRY_BYTES);
        for (uint256 i; i < entries.length; ++i) {
            (bytes32 lane, bytes32 root) = (entries[i].lane, entries[i].root);
            uint256 word = figures(entries[i]);
            assembly ("memory-safe") {
                let at := add(add(packed, 0x20), mul(i, 96))
                mstore(at, lane)
                mstore(add(at, 0x20), root)
                mstore(add(at, 0x40), word)
            }
        }
        return keccak256(packed);
    }
}
