// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {StdStorage, stdStorage} from "forge-std/Test.sol";

import {AuditorPool} from "../AuditorPool.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {PanelWork} from "./PanelWork.sol";

contract AuditorPoolTest is PanelWork {
    using stdStorage for StdStorage;

    bytes32 private _model;

    function setUp() public override {
        super.setUp();
        _model = Records.modelId(target);
    }

    function _weightOf(address account) private view returns (bool seated, uint256 weight) {
        (seated,, weight) = pool.seatOf(vault.payoutTo(account), _model);
    }

    function test_SeatsFollowTheVault() public {
        vm.expectRevert(abi.encodeWithSelector(AuditorPool.NotAnAccount.selector, stranger));
        pool.sync(stranger, _model, 0);
        address a = _auditor("a", 5_000 ether);
        (bool seated, uint256 weight) = _weightOf(a);
        assertTrue(seated);
        assertEq(weight, 5_000 ether);

        vm.prank(a);
        vault.unstake(a, Role.AUDITOR, 1_000 ether);
        pool.sync(a, _model, 0);
        (, weight) = _weightOf(a);
        assertEq(weight, 4_000 ether, "what is on its way out is not drawn for");
        _slash(a, Role.AUDITOR, 5_000, keccak256("x"));
        pool.sync(a, _model, 0);
        (, weight) = _weightOf(a);
        assertEq(weight, 2_500 ether);

        vm.prank(a);
        vault.unstake(a, Role.AUDITOR, 1_600 ether);
        assertEq(pool.sync(a, _model, 0), 0, "below the minimum");
        (seated,) = _weightOf(a);
        assertFalse(seated);
        vm.roll(vm.getBlockNumber() + 1);
        assertEq(pool.totalAt(_model, vm.getBlockNumber()), 0);
    }

    function test_NobodyIsSeatedAgainstHisWill() public {
        address a = makeAddr("a");
        bytes32[] memory models = new bytes32[](1);
        models[0] = _model;
        _fund(a, address(vault), 5_000 ether);
        vm.prank(a);
        vault.stake(a, makeAddr("a's"), Role.AUDITOR, 5_000 ether, models);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(AuditorPool.NotForAccount.selector, stranger, a));
        pool.sync(a, _model, 0);
        vm.prank(a);
        pool.sync(a, _model, 0);
        vm.prank(a);
        vault.unstake(a, Role.AUDITOR, 5_000 ether);
        vm.prank(stranger);
        assertEq(pool.sync(a, _model, 0), 0, "but anyone brings a seat up to date");
    }

    function test_ServingAnotherModelGivesTheSeatUp() public {
        address a = _auditor("a", 5_000 ether);
        address b = _auditor("b", 5_000 ether);
        vm.prank(a);
        vault.setModel(a, Role.AUDITOR, _model, false);
        pool.sync(a, _model, 0);
        (bool seated,) = _weightOf(a);
        assertFalse(seated);
        assertEq(pool.opened(_model), 2);
        address c = _auditor("c", 6_000 ether);
        assertEq(pool.holderOf(_model, 0), c, "the freed seat");
        assertEq(pool.holderOf(_model, 1), b);
        assertEq(pool.opened(_model), 2);
    }

    function test_OneBeneficiaryHasOneSeat() public {
        address a = _auditor("a", 5_000 ether);
        address payout = vault.payoutTo(a);
        address b = makeAddr("b");
        bytes32[] memory models = new bytes32[](1);
        models[0] = _model;
        _fund(b, address(vault), 20_000 ether);
        vm.prank(b);
        vault.stake(b, payout, Role.AUDITOR, 5_000 ether, models);
        vm.expectRevert(
            abi.encodeWithSelector(AuditorPool.SeatTaken.selector, payout, a, 5_000 ether)
        );
        pool.sync(b, _model, 0);
        // Nobody is put out for less than he has.
        vm.prank(b);
        vault.stake(b, payout, Role.AUDITOR, 1 ether, new bytes32[](0));
        vm.expectRevert(
            abi.encodeWithSelector(AuditorPool.NotForAccount.selector, address(this), b)
        );
        pool.sync(b, _model, 0);
        vm.prank(payout);
        pool.sync(b, _model, 0);
        assertEq(pool.holderOf(_model, 0), b);
        vm.roll(vm.getBlockNumber() + 1);
        assertEq(pool.totalAt(_model, vm.getBlockNumber()), 5_001 ether, "not both");
        vm.expectRevert(
            abi.encodeWithSelector(AuditorPool.SeatTaken.selector, payout, b, 5_001 ether)
        );
        pool.sync(a, _model, 0);
    }

    function test_AFullPoolTakesTheLargerStake() public {
        address a = _auditor("a", 5_000 ether);
        address small = makeAddr("small");
        bytes32[] memory models = new bytes32[](1);
        models[0] = _model;
        _fund(small, address(vault), 20_000 ether);
        vm.prank(small);
        vault.stake(small, small, Role.AUDITOR, 5_000 ether, models);
        uint256 seats = pool.SEATS();
        stdstore.target(address(pool)).sig("opened(bytes32)").with_key(_model).checked_write(seats);
        vm.prank(small);
        vm.expectRevert(abi.encodeWithSelector(AuditorPool.PoolFull.selector, 0, 5_000 ether));
        pool.sync(small, _model, 0);
        vm.startPrank(small);
        vm.expectRevert(abi.encodeWithSelector(AuditorPool.NoSuchSeat.selector, seats));
        pool.sync(small, _model, seats);
        vault.stake(small, small, Role.AUDITOR, 1 ether, new bytes32[](0));
        pool.sync(small, _model, 0);
        vm.stopPrank();
        assertEq(pool.holderOf(_model, 0), small);
        (bool seated,) = _weightOf(a);
        assertFalse(seated, "put out");
        vm.roll(vm.getBlockNumber() + 1);
        assertEq(pool.totalAt(_model, vm.getBlockNumber()), 5_001 ether);
    }

    /// @dev The same draw by walking all seats.
    function _walk(uint256 word, uint256[] memory stakes, bool[] memory taken)
        private
        view
        returns (address)
    {
        uint256 left;
        for (uint256 i; i < stakes.length; ++i) {
            if (!taken[i]) left += stakes[i];
        }
        if (left == 0) return address(0);
        uint256 place = word % left;
        for (uint256 i; i < stakes.length; ++i) {
            if (taken[i]) continue;
            if (place < stakes[i]) return auditors[i];
            place -= stakes[i];
        }
        revert("walked past the end");
    }

    function testFuzz_DrawsAsAWalkDoes(uint256 seed, uint256 mask) public {
        uint256 count = 12;
        uint256[] memory stakes = new uint256[](count);
        bool[] memory out = new bool[](count);
        uint256[] memory taken = new uint256[](count);
        uint256 used;
        for (uint256 i; i < count; ++i) {
            uint256 word = uint256(keccak256(abi.encode(seed, i)));
            stakes[i] = MIN_STAKE + word % (1 << (60 + word % 30));
            _auditor(string.concat("a", vm.toString(i)), stakes[i]);
            out[i] = mask >> i & 1 == 1;
            if (out[i]) taken[used++] = i;
        }
        vm.roll(vm.getBlockNumber() + 1);
        for (uint256 i; i < 8; ++i) {
            uint256 word = uint256(keccak256(abi.encode("word", seed, i)));
            (address drawn,, uint256 weight) =
                pool.drawAt(_model, vm.getBlockNumber() - 1, word, taken, used);
            address expected = _walk(word, stakes, out);
            assertEq(drawn, expected);
            if (drawn != address(0)) {
                assertEq(weight, vault.activeStake(drawn, Role.AUDITOR));
            }
        }
    }

    function test_NobodyIsDrawnFromNothing() public view {
        (address drawn,, uint256 weight) = pool.drawAt(_model, block.number, 7, new uint256[](0), 0);
        assertEq(drawn, address(0));
        assertEq(weight, 0);
    }

    /// @dev Audit fault 23: what is staked or moved after a block changes no draw over its stakes.
    function testFuzz_LaterStakesChangeNoDraw(uint256 word) public {
        _auditors(4);
        uint256 then = vm.getBlockNumber();
        vm.roll(then + 1);
        (address before,,) = pool.drawAt(_model, then, word, new uint256[](0), 0);
        uint256 total = pool.totalAt(_model, then);
        _auditor("whale", 500_000 ether);
        vm.startPrank(auditors[0]);
        vault.unstake(auditors[0], Role.AUDITOR, AUDITOR_STAKE);
        vm.stopPrank();
        pool.sync(auditors[0], _model, 0);
        address late = _auditor("late", 500_000 ether);
        assertEq(pool.holderOf(_model, 0), late, "in the seat that was left");
        (address afterwards,,) = pool.drawAt(_model, then, word, new uint256[](0), 0);
        assertEq(before, afterwards);
        assertEq(pool.totalAt(_model, then), total);
        assertGt(pool.totalAt(_model, then + 1), total);
    }

    function test_OnlyTheOwnerSetsTheMinimumAndItIsNeverZero() public {
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", this));
        pool.setMinStake(1);
        vm.startPrank(owner);
        vm.expectRevert(AuditorPool.MinStakeZero.selector);
        pool.setMinStake(0);
        pool.setMinStake(2 ether);
        vm.stopPrank();
        assertEq(pool.minStake(), 2 ether);
        vm.expectRevert(abi.encodeWithSelector(AuditorPool.ZeroAddress.selector, "vault"));
        new AuditorPool(owner, IStakeVault(address(0)), 1);
    }
}
