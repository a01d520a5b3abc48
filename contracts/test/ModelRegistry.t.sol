// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {ModelRegistry} from "../ModelRegistry.sol";
import {IModelRegistry} from "../interfaces/IModelRegistry.sol";
import {Records} from "../libraries/Records.sol";

/// @notice See ModelRegistry.tree.
contract ModelRegistryTest is Test {
    address internal owner = makeAddr("owner");
    ModelRegistry internal registry;

    function setUp() public {
        registry = new ModelRegistry(owner);
    }

    function _manifest(uint8 tier) internal pure returns (Records.Manifest memory m) {
        m.architecture = "llama";
        m.tier = tier;
        m.weightsRoot = keccak256("weights");
        m.tokenizerHash = keccak256("tokenizer");
        m.vocabSize = 32_000;
        m.eosIds = new uint32[](1);
        m.eosIds[0] = 2;
        m.contextLength = 4096;
    }

    function test_register_namesTheContent() public {
        Records.Manifest memory m = _manifest(0);
        bytes32 id = Records.modelId(m);
        assertFalse(registry.isRegistered(id));
        vm.expectEmit();
        emit IModelRegistry.ModelRegistered(id, m, address(this));
        assertEq(registry.register(m), id);
        assertTrue(registry.isRegistered(id));
        vm.recordLogs();
        assertEq(registry.register(m), id);
        assertEq(vm.getRecordedLogs().length, 0);
        (uint8 tier, uint32 vocab, uint32 context, bytes32 root) = registry.facts(id);
        assertEq(tier, 0);
        assertEq(vocab, 32_000);
        assertEq(context, 4096);
        assertEq(root, keccak256("weights"));
    }

    function _refused(Records.Manifest memory m, string memory field, uint256 value) internal {
        vm.expectRevert(abi.encodeWithSelector(ModelRegistry.BadManifest.selector, field, value));
        registry.register(m);
    }

    function test_register_revertWhen_malformed() public {
        Records.Manifest memory m = _manifest(0);
        m.architecture = "";
        _refused(m, "architecture", 0);
        m.architecture = string(new bytes(65));
        _refused(m, "architecture", 65);
        m = _manifest(3);
        _refused(m, "tier", 3);
        m = _manifest(0);
        m.weightsRoot = 0;
        _refused(m, "weightsRoot", 0);
        m = _manifest(0);
        m.tokenizerHash = 0;
        _refused(m, "tokenizerHash", 0);
        m = _manifest(0);
        m.vocabSize = 0;
        _refused(m, "vocabSize", 0);
        m.vocabSize = type(uint32).max;
        _refused(m, "vocabSize", type(uint32).max);
        m = _manifest(0);
        m.contextLength = 0;
        _refused(m, "contextLength", 0);
        m = _manifest(0);
        m.eosIds[0] = 32_000;
        _refused(m, "eosIds", 32_000);
        m.eosIds = new uint32[](65);
        _refused(m, "eosIds", 65);
    }

    function test_facts_revertWhen_unknown() public {
        vm.expectRevert(abi.encodeWithSelector(ModelRegistry.UnknownModel.selector, bytes32("x")));
        registry.facts("x");
    }

    function test_tolerance_revertWhen_notAllowed() public {
        bytes32 exact = registry.register(_manifest(0));
        bytes32 float = registry.register(_manifest(1));
        vm.expectRevert(
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this))
        );
        registry.setTolerance(float, 1, 1, 1);
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(ModelRegistry.NotFloatTier.selector, exact, 0));
        registry.setTolerance(exact, 1, 1, 1);
        vm.expectRevert(abi.encodeWithSelector(ModelRegistry.UnknownModel.selector, bytes32("x")));
        registry.setTolerance("x", 1, 1, 1);
        vm.expectRevert(
            abi.encodeWithSelector(ModelRegistry.BadTolerance.selector, 1_000_001, 1_000_000)
        );
        registry.setTolerance(float, 1, 1, 1_000_001);
    }

    /// @dev Fault 15: a batch is judged by the tolerance that stood when it settled.
    function test_fault15_toleranceByTheTimeItStood() public {
        bytes32 model = registry.register(_manifest(2));
        vm.warp(1000);
        vm.expectRevert(abi.encodeWithSelector(ModelRegistry.NoTolerance.selector, model, 1000));
        registry.toleranceAt(model, 1000);
        vm.startPrank(owner);
        for (uint64 i = 1; i <= 5; ++i) {
            registry.setTolerance(model, i, i, uint32(i));
            vm.warp(1000 + 100 * i);
        }
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(ModelRegistry.NoTolerance.selector, model, 999));
        registry.toleranceAt(model, 999);
        for (uint64 i = 1; i <= 5; ++i) {
            uint256 since = 900 + 100 * i;
            assertEq(registry.toleranceAt(model, since).marginQ24, i);
            assertEq(registry.toleranceAt(model, since + 99).marginQ24, i);
        }
        assertEq(registry.toleranceAt(model, type(uint64).max).marginQ24, 5);
    }
}
