// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Bonded} from "../Bonded.sol";
import {IBonded} from "../interfaces/IBonded.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Deployed} from "./Deployed.sol";

contract BondedDoor is Bonded {
    constructor(IStakeVault vault_) Bonded(vault_) {}

    function take(address from, uint256 amount) external {
        _takeBond(from, amount);
    }

    function release(address to, uint256 amount) external {
        _release(to, amount);
    }

    function forfeit(uint256 amount) external {
        _forfeit(amount);
    }
}

contract BondedTest is Deployed {
    BondedDoor internal door;

    function setUp() public override {
        super.setUp();
        door = new BondedDoor(vault);
        _fund(stranger, address(door), 1_000 ether);
    }

    function _assertBooks() private view {
        IBonded.Bonds memory b = door.bonds();
        assertEq(token.balanceOf(address(door)), b.open + b.payable_ + b.burning);
    }

    /// @dev Audit fault 20: a token that keeps a part of what it moves.
    function test_WhatDoesNotArriveIsNotBooked() public {
        vm.mockCall(address(token), abi.encodeCall(token.balanceOf, (address(door))), abi.encode(7));
        vm.expectRevert(abi.encodeWithSelector(Bonded.ShortBond.selector, 10 ether, 0));
        door.take(stranger, 10 ether);
        vm.clearMockedCalls();
        door.take(stranger, 10 ether);
        assertEq(door.bonds().open, 10 ether);
        vm.expectRevert(abi.encodeWithSelector(Bonded.ZeroAddress.selector, "vault"));
        new BondedDoor(IStakeVault(address(0)));
    }

    function test_PulledByTheBeneficiaryOnce() public {
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        door.take(stranger, 10 ether);
        vm.expectRevert(abi.encodeWithSelector(Bonded.NothingToPull.selector, verifier.addr));
        door.pullBond(verifier.addr);
        door.release(verifier.addr, 4 ether);
        door.release(verifier.addr, 0);
        assertEq(door.pullBond(verifier.addr), 4 ether);
        assertEq(token.balanceOf(beneficiaryV), 4 ether);
        vm.expectRevert(abi.encodeWithSelector(Bonded.NothingToPull.selector, verifier.addr));
        door.pullBond(verifier.addr);
        _assertBooks();
    }

    function test_ForfeitedBondsAreBurned() public {
        vm.expectRevert(Bonded.NothingToBurn.selector);
        door.burn();
        door.take(stranger, 10 ether);
        door.forfeit(3 ether);
        assertEq(door.burn(), 3 ether);
        assertEq(token.balanceOf(door.DEAD()), 3 ether);
        vm.expectRevert(Bonded.NothingToBurn.selector);
        door.burn();
        _assertBooks();
    }

    function testFuzz_HoldsWhatItsBooksSay(uint64 bond, uint64 back, uint64 lost) public {
        uint256 whole = bound(bond, 1, 1_000 ether);
        uint256 part = bound(back, 0, whole);
        door.take(stranger, whole);
        door.release(client.addr, part);
        door.forfeit(bound(lost, 0, whole - part));
        _assertBooks();
        if (part != 0) door.pullBond(client.addr);
        if (door.bonds().burning != 0) door.burn();
        _assertBooks();
    }
}
