// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {console} from "forge-std/console.sol";

import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {LaneWork} from "./LaneWork.sol";

/// @notice What settlement costs as a transaction of its own: cold storage, calldata and the 21,000
/// included. 2**18 accepted tokens a lane, sixteen buckets filled, locks written, V sending.
/// forge-config: default.isolate = true
contract LaneEscrowGasTest is LaneWork {
    function setUp() public override {
        super.setUp();
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1e9 ether);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 1e9 ether);
    }

    function _lanes(uint256 count) internal returns (Work[] memory works) {
        works = new Work[](count);
        for (uint256 i; i < count; ++i) {
            Party memory c = _party(string.concat("client ", vm.toString(i)));
            Records.Lane memory lane = _lane();
            lane.client = c.addr;
            works[i] = _work(lane, c.key, drafter.key, verifier.key);
            _reserve(works[i], 100_000_000 ether);
        }
    }

    /// @dev 2**18 accepted of 2**18 + 2**16 output, spread over the buckets, at odd prices.
    function _month(Work memory work) internal pure {
        uint64 accepted = 1 << 18;
        _serveAt(work, accepted + (1 << 16), accepted, 1_234_567_890_123, 9_876_543_210_987);
        work.sums[1] -= accepted + (1 << 16);
        work.sums[5] -= accepted;
        for (uint256 i; i < 16; ++i) {
            uint256 shift = 64 * (i % 4);
            work.sums[1 + i / 4] += (20_000 + 97 * i) << shift;
            work.sums[5 + i / 4] += (16_384 + 31 * i) << shift;
        }
        work.leaves = 70_000;
    }

    function _settleAll(Work[] memory works) internal returns (uint256 gas) {
        ILaneEscrow.Group[] memory groups = _group(works[0], _voucher(works[0]));
        groups[0].lanes = new ILaneEscrow.LaneVoucher[](works.length);
        for (uint256 i; i < works.length; ++i) {
            _month(works[i]);
            groups[0].lanes[i] = _voucher(works[i]);
            (groups[0].lanes[i].verifierR, groups[0].lanes[i].verifierVS) = (0, 0);
        }
        vm.recordLogs();
        vm.prank(verifier.addr);
        escrow.settle(address(token), groups);
        gas = vm.lastCallGas().gasTotalUsed;
        (uint256 tokens, uint256 bytes_) = _calldata(groups);
        console.log("  calldata bytes", bytes_, "floor", 21_000 + 10 * tokens);
        console.log("  calldata standard", 4 * tokens);
        for (uint256 i; i < works.length; ++i) {
            works[i].position.paid =
                uint256(works[i].dueDrafter) | (uint256(works[i].dueVerifier) << 128);
        }
        _followAll(works);
    }

    function _followAll(Work[] memory works) private {
        // Everything was paid and signed, so positions follow without the events.
        vm.getRecordedLogs();
        for (uint256 i; i < works.length; ++i) {
            bytes32 base = works[i].position.headRoot;
            works[i].position.headRoot = _root(works[i]);
            works[i].position.headBase = base;
            works[i].position.terms =
                (works[i].position.terms & type(uint48).max) | (uint256(works[i].leaves) << 48);
            for (uint256 j; j < 9; ++j) {
                works[i].position.counted[j] = works[i].sums[j];
            }
        }
    }

    function _calldata(ILaneEscrow.Group[] memory groups)
        internal
        view
        returns (uint256 tokens, uint256 size)
    {
        bytes memory data = abi.encodeCall(escrow.settle, (address(token), groups));
        size = data.length;
        for (uint256 i; i < size; ++i) {
            tokens += data[i] == 0 ? 1 : 4;
        }
    }

    function _run(uint256 count) internal {
        Work[] memory works = _lanes(count);
        uint256 first = _settleAll(works);
        vm.warp(block.timestamp + 1 days);
        _settleAll(works);
        vm.warp(block.timestamp + 10 minutes);
        uint256 steady = _settleAll(works);
        console.log("lanes", count, "first", first);
        console.log("steady total", steady, "per lane", steady / count);
        _assertConserved();
    }

    function test_gas_1() public {
        _run(1);
    }

    function test_gas_8() public {
        _run(8);
    }

    function test_gas_64() public {
        _run(64);
    }
}
