// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Batches} from "../libraries/Batches.sol";
import {BeaconWork} from "./DrawBeacon.t.sol";

/// @notice Batches of an honest session settle, are captured, drawn and opened at random, while
/// strangers capture what is not due, draw what is drawn, and call deadlines.
/// @dev The test contract is its own handler; `act…` are the moves.
contract DrawBeaconInvariants is BeaconWork {
    bytes[] private _batches; // IDrawBeacon.Batch as it stands
    mapping(uint256 index => bytes) private _draws;
    uint256 private _uncaptured;
    uint256[] private _running;
    uint256 public opened;
    uint256 public reanchored;

    function setUp() public override {
        super.setUp();
        targetContract(address(this));
        bytes4[] memory moves = new bytes4[](6);
        moves[0] = this.actSettle.selector;
        moves[1] = this.actRoll.selector;
        moves[2] = this.actCapture.selector;
        moves[3] = this.actDraw.selector;
        moves[4] = this.actWait.selector;
        moves[5] = this.actAccuse.selector;
        targetSelector(FuzzSelector(address(this), moves));
        targetSender(stranger);
    }

    function actSettle() external {
        if (_batches.length == 8) return;
        _batches.push(abi.encode(_registered(_one(_entry(_honest(1), THIN)))));
        ++_uncaptured;
    }

    function actRoll(uint256 blocks) external {
        vm.roll(block.number + bound(blocks, 1, 300));
    }

    function actCapture(uint256 which) external {
        if (_batches.length == 0) return;
        which %= _batches.length;
        IDrawBeacon.Batch memory batch = abi.decode(_batches[which], (IDrawBeacon.Batch));
        bool captured = batch.randomness != 0;
        bool gone = block.number > batch.targetBlock + 256;
        bool due = block.number > batch.targetBlock;
        uint256 count = _capture(batch);
        assertEq(count, captured || gone || !due ? 0 : 1, "once, in time, and not before");
        if (captured) return;
        if (count == 1) {
            _after(batch);
            --_uncaptured;
        } else if (gone) {
            batch.targetBlock = uint64(block.number) + 2;
            ++reanchored;
        }
        _batches[which] = abi.encode(batch);
        assertEq(draws.batchHash(batch.id), keccak256(_batches[which]));
    }

    function actDraw(uint256 which) external {
        if (_batches.length == 0) return;
        which %= _batches.length;
        IDrawBeacon.Batch memory batch = abi.decode(_batches[which], (IDrawBeacon.Batch));
        Session memory s = _honest(1);
        Batches.Entry memory entry = _entry(s, THIN);
        IDrawBeacon.Draw memory drawn = _drawOf(batch, entry, s);
        try draws.draw(batch, _packed(_one(entry)), 0, drawn.lane) {
            assertEq(_draws[which].length, 0, "once");
            _draws[which] = abi.encode(drawn);
            _running.push(which);
        } catch {}
    }

    /// @dev An honest V opens what is drawn before time passes.
    function actWait(uint256 span) external {
        Session memory s = _honest(1);
        for (; _running.length != 0; _running.pop()) {
            IDrawBeacon.Draw memory drawn =
                abi.decode(_draws[_running[_running.length - 1]], (IDrawBeacon.Draw));
            for (uint8 j; j < 4; ++j) {
                draws.open(drawn, j, _sample(s, drawn, j));
                ++opened;
            }
        }
        vm.warp(block.timestamp + bound(span, 1 hours, 2 days));
    }

    /// @dev Strangers try to make V pay.
    function actAccuse(uint256 which) external {
        if (_draws[which % 8].length == 0) return;
        IDrawBeacon.Draw memory drawn = abi.decode(_draws[which % 8], (IDrawBeacon.Draw));
        try draws.expire(drawn) {
            revert("an honest verifier was punished");
        } catch {}
    }

    /// forge-config: default.invariant.runs = 8
    /// forge-config: default.invariant.depth = 40
    /// forge-config: default.invariant.fail-on-revert = true
    function invariant_NoLockIsReleasedUndrawn() public view {
        assertEq(draws.pendingIn(SLICE_ID), _uncaptured);
    }

    /// forge-config: default.invariant.runs = 8
    /// forge-config: default.invariant.depth = 40
    /// forge-config: default.invariant.fail-on-revert = true
    function invariant_TheHonestLoseNothing() public view {
        assertEq(_stakeV(), STAKE);
        assertEq(vault.slashable(drafter.addr, Role.DRAFTER), STAKE);
    }
}
