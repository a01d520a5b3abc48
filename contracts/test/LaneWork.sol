// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "forge-std/Vm.sol";

import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {Deployed} from "./Deployed.sol";

/// @notice What three parties do between reserve and settle: serve, sign, hand in, and follow the
/// lane's position by events alone, as an indexer does.
abstract contract LaneWork is Deployed {
    /// @dev One lane's epoch as its parties know it.
    struct Work {
        Records.Lane lane;
        uint256 clientKey;
        uint256 drafterKey;
        uint256 verifierKey;
        ILaneEscrow.Position position;
        uint128 dueDrafter;
        uint128 dueVerifier;
        uint256[9] sums;
        bytes32 top;
        uint32 leaves;
        ILaneEscrow.Link link;
        bytes32 baseRoot; // for Link.BEHIND
        bool bySolo; // without D's signature
    }

    bytes32 private constant LANE_SETTLED =
        keccak256("LaneSettled(bytes32,bytes32,uint256,uint256)");

    function _work(Records.Lane memory lane, uint256 c, uint256 d, uint256 v)
        internal
        view
        returns (Work memory work)
    {
        work.lane = lane;
        (work.clientKey, work.drafterKey, work.verifierKey) = (c, d, v);
        work.position.terms = uint256(escrow.parameters().feeBps) << 32;
    }

    function _work() internal view returns (Work memory) {
        return _work(_lane(), client.key, drafter.key, verifier.key);
    }

    /// @dev Opens the epoch that the lane stands in now.
    function _freshEpoch(Work memory work, uint32 epoch) internal view {
        ILaneEscrow.Position memory empty;
        uint256[9] memory none;
        work.position = empty;
        work.position.terms = uint256(epoch) | (uint256(escrow.parameters().feeBps) << 32);
        (work.dueDrafter, work.dueVerifier, work.sums) = (0, 0, none);
    }

    function _reserve(Work memory work, uint256 amount) internal {
        _fund(work.lane.client, address(escrow), amount);
        vm.prank(work.lane.client);
        escrow.reserve(work.lane, amount);
    }

    /// @dev One more batch: `output` tokens of which `accepted` were drafted, 2 units each to D and 3
    /// to V, in bucket 0, one rejected draft for each token of V's own.
    function _serve(Work memory work, uint64 output, uint64 accepted) internal pure {
        _serveAt(work, output, accepted, 2 ether, 3 ether);
    }

    function _serveAt(
        Work memory work,
        uint64 output,
        uint64 accepted,
        uint256 priceDrafter,
        uint256 priceVerifier
    ) internal pure {
        work.sums[0] += uint256(output) | (uint256(accepted) << 64);
        work.sums[1] += output;
        work.sums[5] += accepted;
        work.dueDrafter += uint128(accepted * priceDrafter);
        work.dueVerifier += uint128(output * priceVerifier);
        work.top = keccak256(abi.encode(work.top, output, accepted));
        work.leaves = 4;
        work.link = ILaneEscrow.Link.EXTENDS;
    }

    function _base(Work memory work) internal pure returns (bytes32) {
        if (work.link == ILaneEscrow.Link.EXTENDS) return work.position.headRoot;
        if (work.link == ILaneEscrow.Link.REPLACES) return work.position.headBase;
        return work.baseRoot;
    }

    function _root(Work memory work) internal pure returns (bytes32) {
        return Trees.settledRoot(work.top, work.sums, work.leaves, _base(work));
    }

    /// @dev By the record library, not by the escrow's own assembly.
    function _digest(Work memory work) internal view returns (bytes32) {
        uint256[8] memory buckets;
        for (uint256 i; i < 8; ++i) {
            buckets[i] = work.sums[i + 1];
        }
        Records.Voucher memory voucher = Records.Voucher({
            lane: Records.laneId(work.lane),
            epoch: uint32(work.position.terms),
            output: uint64(work.sums[0]),
            accepted: uint64(work.sums[0] >> 64),
            dueDrafter: work.dueDrafter,
            dueVerifier: work.dueVerifier,
            baseRoot: _base(work),
            root: _root(work),
            leafCount: work.leaves,
            buckets: buckets
        });
        return Records.digest(escrow.domainSeparator(), Records.hash(voucher));
    }

    function _voucher(Work memory work) internal view returns (ILaneEscrow.LaneVoucher memory) {
        ILaneEscrow.LaneVoucher memory voucher;
        voucher.client = work.lane.client;
        voucher.position = work.position;
        voucher.due = uint256(work.dueDrafter) | (uint256(work.dueVerifier) << 128);
        voucher.sums = work.sums;
        voucher.top = work.top;
        voucher.leafCount = work.leaves;
        voucher.link = work.link;
        voucher.baseRoot = work.baseRoot;
        bytes32 digest = _digest(work);
        if (!work.bySolo) {
            (voucher.drafterR, voucher.drafterVS) = vm.signCompact(work.drafterKey, digest);
        }
        (voucher.verifierR, voucher.verifierVS) = vm.signCompact(work.verifierKey, digest);
        if (work.clientKey != 0) {
            (uint8 v, bytes32 r, bytes32 s) = vm.sign(work.clientKey, digest);
            voucher.clientSignature = abi.encodePacked(r, s, v);
        }
        // A copy: memory structs are references, and the parties go on working.
        return abi.decode(abi.encode(voucher), (ILaneEscrow.LaneVoucher));
    }

    function _group(Work memory work, ILaneEscrow.LaneVoucher memory voucher)
        internal
        pure
        returns (ILaneEscrow.Group[] memory groups)
    {
        groups = new ILaneEscrow.Group[](1);
        groups[0].drafter = work.lane.drafter;
        groups[0].verifier = work.lane.verifier;
        groups[0].claimId = work.lane.claimId;
        groups[0].lanes = new ILaneEscrow.LaneVoucher[](1);
        groups[0].lanes[0] = voucher;
    }

    function _settle(Work memory work) internal returns (uint64) {
        return _settle(work, _voucher(work));
    }

    function _settle(Work memory work, ILaneEscrow.LaneVoucher memory voucher)
        internal
        returns (uint64 batchId)
    {
        ILaneEscrow.Group[] memory groups = _group(work, voucher);
        vm.recordLogs();
        batchId = escrow.settle(work.lane.token, groups);
        _follow(work, vm.getRecordedLogs());
    }

    function _settleFails(Work memory work, bytes4 reason) internal {
        _settleFails(work, _voucher(work), reason);
    }

    function _settleFails(Work memory work, ILaneEscrow.LaneVoucher memory voucher, bytes4 reason)
        internal
    {
        ILaneEscrow.Group[] memory groups = _group(work, voucher);
        vm.expectRevert(abi.encodeWithSignature("NothingSettled(bytes4)", reason));
        escrow.settle(work.lane.token, groups);
    }

    /// @dev The position after a settlement, from its event and the voucher that was handed in.
    function _follow(Work memory work, Vm.Log[] memory logs) internal view {
        bytes32 id = Records.laneId(work.lane);
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != LANE_SETTLED || logs[i].topics[1] != id) continue;
            (bytes32 root, uint256 figures, uint256 paid) =
                abi.decode(logs[i].data, (bytes32, uint256, uint256));
            if (uint32(figures >> 192) != uint32(work.position.terms)) continue;
            uint256 flags = figures >> 248;
            work.position.paid = paid;
            if (flags & 1 != 0) {
                // A copy: memory structs are references.
                for (uint256 j; j < 9; ++j) {
                    work.position.counted[j] = work.sums[j];
                }
            }
            if (flags & 8 != 0 && flags & 4 == 0) {
                bytes32 base = _base(work);
                work.position.headRoot = root;
                work.position.headBase = base;
                work.position.terms =
                    (work.position.terms & type(uint48).max) | (uint256(work.leaves) << 48);
            }
        }
        // Handed in again, the head stands on its own base.
        if (work.link == ILaneEscrow.Link.EXTENDS) work.link = ILaneEscrow.Link.REPLACES;
    }

    function _paid(Work memory work) internal pure returns (uint256 toDrafter, uint256 toVerifier) {
        return (uint128(work.position.paid), work.position.paid >> 128);
    }
}
