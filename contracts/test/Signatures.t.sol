// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {Signatures} from "../libraries/Signatures.sol";
import {ContractClient, GasBurningClient, ReturnBombClient} from "./doubles/Clients.sol";

contract SignaturesTest is Test {
    uint256 internal constant ORDER =
        0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    function byClient(address client, bytes32 digest, bytes calldata signature)
        external
        view
        returns (bool)
    {
        return Signatures.isByClient(client, digest, signature);
    }

    function testFuzz_byKey(uint256 seed, bytes32 digest) public view {
        uint256 key = bound(seed, 1, ORDER - 1);
        address signer = vm.addr(key);
        (bytes32 r, bytes32 vs) = vm.signCompact(key, digest);
        assertTrue(Signatures.isByKey(signer, digest, r, vs));
        assertFalse(Signatures.isByKey(signer, ~digest, r, vs));
        assertFalse(Signatures.isByKey(address(uint160(signer) ^ 1), digest, r, vs));
        assertFalse(Signatures.isByKey(signer, digest, r, bytes32(uint256(vs) ^ (1 << 255))));
    }

    function testFuzz_byClientsKey(uint256 seed, bytes32 digest) public view {
        uint256 key = bound(seed, 1, ORDER - 1);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        assertTrue(this.byClient(vm.addr(key), digest, abi.encodePacked(r, s, v)));
        // The mirrored signature of the same message is refused.
        bytes memory mirrored =
            abi.encodePacked(r, bytes32(ORDER - uint256(s)), v == 27 ? uint8(28) : uint8(27));
        assertFalse(this.byClient(vm.addr(key), digest, mirrored));
        assertEq(ecrecover(digest, v == 27 ? 28 : 27, r, bytes32(ORDER - uint256(s))), vm.addr(key));
        assertFalse(this.byClient(vm.addr(key), digest, abi.encodePacked(r, s)));
        assertFalse(this.byClient(vm.addr(key), digest, abi.encodePacked(r, s, uint8(v - 27))));
    }

    /// @dev A recovery that fails gives the zero address, which must not count as a signer.
    function test_zeroAddressSignsNothing() public view {
        assertFalse(Signatures.isByKey(address(0), "x", bytes32(0), bytes32(0)));
        assertFalse(this.byClient(address(0), "x", new bytes(65)));
    }

    function test_contractClients() public {
        ContractClient wallet = new ContractClient();
        assertFalse(this.byClient(address(wallet), "x", ""));
        wallet.approve("x");
        assertTrue(this.byClient(address(wallet), "x", ""));
        assertTrue(this.byClient(address(wallet), "x", new bytes(65)));
        assertFalse(this.byClient(address(new ReturnBombClient()), "x", ""));
        assertFalse(this.byClient(address(this), "x", "")); // no such function
        address burner = address(new GasBurningClient());
        uint256 before = gasleft();
        assertFalse(this.byClient(burner, "x", ""));
        assertLt(before - gasleft(), 130_000);
    }

    /// @dev With too little gas the client is not asked, and nobody is told that it said no.
    function test_contractClientIsNotStarved() public {
        ContractClient wallet = new ContractClient();
        wallet.approve("x");
        vm.expectPartialRevert(Signatures.TooLittleGas.selector);
        this.byClient{gas: 100_000}(address(wallet), "x", "");
        assertTrue(this.byClient{gas: 130_000}(address(wallet), "x", ""));
    }

    /// @dev An account that has delegated its code still has its key.
    function test_keyOfAnAccountWithCode() public {
        (address client, uint256 key) = makeAddrAndKey("delegated");
        vm.etch(client, address(new GasBurningClient()).code);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, "x");
        assertTrue(this.byClient(client, "x", abi.encodePacked(r, s, v)));
    }
}
