// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Records} from "./Records.sol";

/// @title LanePositions
/// @notice Hashes of what a lane's epoch stands at and of the voucher that moves it, taken straight
/// from calldata.
/// @dev A position is 13 words; the chain keeps the lower 160 bits of their hash beside the reserve, in
/// one slot. 160 bits are what an address has: to open a slot as two positions takes 2**80 hashes.
library LanePositions {
    uint256 internal constant POSITION_BYTES = 416;

    /// @notice epoch | feeBps << 32 | leaves under the head << 48.
    function terms(uint32 epoch, uint16 feeBps, uint32 leaves) internal pure returns (uint256) {
        return uint256(epoch) | (uint256(feeBps) << 32) | (uint256(leaves) << 48);
    }

    function epochOf(uint256 terms_) internal pure returns (uint32) {
        return uint32(terms_);
    }

    function feeOf(uint256 terms_) internal pure returns (uint256) {
        return uint16(terms_ >> 32);
    }

    function leavesOf(uint256 terms_) internal pure returns (uint256) {
        return uint32(terms_ >> 48);
    }

    /// @notice keccak256(headRoot ‖ headBase ‖ paid ‖ terms ‖ counted), lower 160 bits.
    function hash(ILaneEscrow.Position calldata position) internal pure returns (uint160 result) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, position, 416)
            result := and(keccak256(free, 416), 0xffffffffffffffffffffffffffffffffffffffff)
        }
    }

    /// @notice The position at an epoch's start: no head, nothing paid, nothing counted.
    function fresh(uint32 epoch, uint16 feeBps) internal pure returns (uint160 result) {
        uint256 start = terms(epoch, feeBps, 0);
        assembly ("memory-safe") {
            let free := mload(0x40)
            // Memory past the free pointer may be dirty; calldata past its end reads as zeros.
            calldatacopy(free, calldatasize(), 416)
            mstore(add(free, 0x60), start)
            result := and(keccak256(free, 416), 0xffffffffffffffffffffffffffffffffffffffff)
        }
    }

    /// @notice The position after a settlement.
    /// @param counts The nine words of D's watermark: the voucher's sums, or the old ones.
    function hashOf(
        bytes32 headRoot,
        bytes32 headBase,
        uint256 paid,
        uint256 terms_,
        uint256[9] calldata counts
    ) internal pure returns (uint160 result) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, headRoot)
            mstore(add(free, 0x20), headBase)
            mstore(add(free, 0x40), paid)
            mstore(add(free, 0x60), terms_)
            calldatacopy(add(free, 0x80), counts, 0x120)
            result := and(keccak256(free, 416), 0xffffffffffffffffffffffffffffffffffffffff)
        }
    }

    /// @notice As `Trees.settledRoot`, with the sums from calldata.
    function settledRoot(bytes32 top, uint256[9] calldata sums, uint32 leafCount, bytes32 baseRoot)
        internal
        pure
        returns (bytes32 result)
    {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 0x03)
            mstore(add(free, 0x01), top)
            calldatacopy(add(free, 0x21), sums, 0x120)
            mstore(add(free, 0x141), shl(224, leafCount))
            mstore(add(free, 0x145), baseRoot)
            result := keccak256(free, 0x165)
        }
    }

    /// @notice As `Records.laneId`.
    function laneId(
        address client,
        address drafter,
        address verifier,
        address token,
        bytes32 claimId
    ) internal pure returns (bytes32 result) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            let mask := 0xffffffffffffffffffffffffffffffffffffffff
            mstore(free, and(client, mask))
            mstore(add(free, 0x20), and(drafter, mask))
            mstore(add(free, 0x40), and(verifier, mask))
            mstore(add(free, 0x60), and(token, mask))
            mstore(add(free, 0x80), claimId)
            result := keccak256(free, 0xa0)
        }
    }

    /// @notice What C, V and D sign: `Records.hash` of the Voucher that follows from the call, under
    /// the domain.
    function voucherDigest(
        bytes32 separator,
        bytes32 lane,
        uint32 epoch,
        bytes32 baseRoot,
        bytes32 root,
        ILaneEscrow.LaneVoucher calldata voucher
    ) internal pure returns (bytes32 result) {
        bytes32 typeHash = Records.VOUCHER_TYPEHASH;
        uint256 due = voucher.due;
        uint256[9] calldata sums = voucher.sums;
        uint32 leafCount = voucher.leafCount;
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, add(sums, 0x20), 0x100)
            let buckets := keccak256(free, 0x100)
            let first := calldataload(sums)
            mstore(free, typeHash)
            mstore(add(free, 0x20), lane)
            // The compiler cleans a narrow value's upper bits only where it uses them itself.
            mstore(add(free, 0x40), and(epoch, 0xffffffff))
            mstore(add(free, 0x60), and(first, 0xffffffffffffffff))
            mstore(add(free, 0x80), and(shr(64, first), 0xffffffffffffffff))
            mstore(add(free, 0xa0), and(due, 0xffffffffffffffffffffffffffffffff))
            mstore(add(free, 0xc0), shr(128, due))
            mstore(add(free, 0xe0), baseRoot)
            mstore(add(free, 0x100), root)
            mstore(add(free, 0x120), and(leafCount, 0xffffffff))
            mstore(add(free, 0x140), buckets)
            let structHash := keccak256(free, 0x160)
            mstore(free, hex"1901")
            mstore(add(free, 0x02), separator)
            mstore(add(free, 0x22), structHash)
            result := keccak256(free, 0x42)
        }
    }
}
