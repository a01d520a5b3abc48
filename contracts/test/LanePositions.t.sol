// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {LanePositions} from "../libraries/LanePositions.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";

/// @notice The assembly over calldata against the same hashes by the libraries that read memory.
contract LanePositionsTest is Test {
    function root(ILaneEscrow.LaneVoucher calldata voucher, bytes32 base)
        external
        pure
        returns (bytes32)
    {
        return LanePositions.settledRoot(voucher.top, voucher.sums, voucher.leafCount, base);
    }

    function digest(
        bytes32 separator,
        bytes32 lane,
        uint256 terms,
        bytes32 base,
        bytes32 settled,
        ILaneEscrow.LaneVoucher calldata voucher
    ) external pure returns (bytes32) {
        return LanePositions.voucherDigest(
            separator, lane, LanePositions.epochOf(terms), base, settled, voucher
        );
    }

    function position(ILaneEscrow.Position calldata given)
        external
        pure
        returns (uint160, uint160)
    {
        return (
            LanePositions.hash(given),
            LanePositions.hashOf(
                given.headRoot, given.headBase, given.paid, given.terms, given.counted
            )
        );
    }

    /// @dev Built here: the fuzzer knows no bounds of an enum.
    function _voucher(bytes32 top, uint256[9] calldata sums, uint32 leafCount, uint256 due)
        internal
        pure
        returns (ILaneEscrow.LaneVoucher memory voucher)
    {
        (voucher.top, voucher.sums, voucher.leafCount, voucher.due) = (top, sums, leafCount, due);
    }

    function testFuzz_rootIsTheTreesOwn(
        bytes32 top,
        uint256[9] calldata sums,
        uint32 leafCount,
        bytes32 base
    ) external view {
        ILaneEscrow.LaneVoucher memory voucher = _voucher(top, sums, leafCount, 0);
        assertEq(
            this.root(voucher, base),
            Trees.settledRoot(voucher.top, voucher.sums, voucher.leafCount, base)
        );
    }

    function testFuzz_digestIsTheRecordsOwn(
        bytes32 separator,
        bytes32 lane,
        uint256 terms,
        bytes32 base,
        bytes32 settled,
        uint256[9] calldata sums,
        uint32 leafCount,
        uint256 due
    ) external view {
        ILaneEscrow.LaneVoucher memory voucher = _voucher(0, sums, leafCount, due);
        Records.Voucher memory signed;
        signed.lane = lane;
        signed.epoch = uint32(terms);
        signed.output = uint64(voucher.sums[0]);
        signed.accepted = uint64(voucher.sums[0] >> 64);
        signed.dueDrafter = uint128(voucher.due);
        signed.dueVerifier = uint128(voucher.due >> 128);
        signed.baseRoot = base;
        signed.root = settled;
        signed.leafCount = voucher.leafCount;
        for (uint256 i; i < 8; ++i) {
            signed.buckets[i] = voucher.sums[i + 1];
        }
        assertEq(
            this.digest(separator, lane, terms, base, settled, voucher),
            Records.digest(separator, Records.hash(signed))
        );
    }

    function testFuzz_laneIdIsTheRecordsOwn(Records.Lane calldata lane) external pure {
        assertEq(
            LanePositions.laneId(
                lane.client, lane.drafter, lane.verifier, lane.token, lane.claimId
            ),
            Records.laneId(lane)
        );
    }

    function testFuzz_positionIsAPlainHash(ILaneEscrow.Position calldata given) external view {
        uint160 expected = uint160(uint256(keccak256(abi.encode(given))));
        (uint160 whole, uint160 byParts) = this.position(given);
        assertEq(whole, expected);
        assertEq(byParts, expected);
    }

    function testFuzz_freshPositionIsEmpty(uint32 epoch, uint16 feeBps) external pure {
        ILaneEscrow.Position memory empty;
        empty.terms = LanePositions.terms(epoch, feeBps, 0);
        assertEq(LanePositions.fresh(epoch, feeBps), uint160(uint256(keccak256(abi.encode(empty)))));
    }

    function testFuzz_termsUnpack(uint32 epoch, uint16 feeBps, uint32 leaves) external pure {
        uint256 packed = LanePositions.terms(epoch, feeBps, leaves);
        assertEq(LanePositions.epochOf(packed), epoch);
        assertEq(LanePositions.feeOf(packed), feeBps);
        assertEq(LanePositions.leavesOf(packed), leaves);
    }
}
