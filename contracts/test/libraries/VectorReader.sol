// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

/// @notice Reads the golden vectors that `scripts/make_vectors.py` writes. Small integers are JSON
/// numbers there and wide ones decimal strings; forge takes both. Records are read by their own
/// type strings, which the vectors carry.
/// @dev A file's text is passed along in memory: in storage, every look would read it slot by slot.
abstract contract VectorReader is Test {
    mapping(bytes32 kind => string) private typeStrings;

    function _load(string memory name) internal view returns (string memory json) {
        return vm.readFile(string.concat("tests/vectors/", name, ".json"));
    }

    /// @dev To be called in `setUp` of a test that reads records.
    function _loadTypes() internal {
        string memory json = _load("records");
        string[] memory kinds = vm.parseJsonKeys(json, ".typeStrings");
        assertGt(kinds.length, 8);
        for (uint256 i; i < kinds.length; ++i) {
            typeStrings[keccak256(bytes(kinds[i]))] =
                vm.parseJsonString(json, string.concat(".typeStrings.", kinds[i]));
        }
    }

    function _typeString(string memory kind) internal view returns (string memory typeString) {
        typeString = typeStrings[keccak256(bytes(kind))];
        require(bytes(typeString).length != 0, string.concat("no type string of ", kind));
    }

    function _at(string memory list, uint256 index) internal pure returns (string memory) {
        return string.concat(list, "[", vm.toString(index), "]");
    }

    /// @dev How many elements the list at `path` has; a test over none would pass unseen.
    function _count(string memory json, string memory path) internal view returns (uint256 count) {
        while (vm.keyExistsJson(json, _at(path, count))) {
            ++count;
        }
        require(count != 0, string.concat("no vectors at ", path));
    }

    /// @dev ABI encoding of the record of type `kind` at `path`.
    function _record(string memory json, string memory path, string memory kind)
        internal
        view
        returns (bytes memory)
    {
        return vm.parseJsonType(json, path, _typeString(kind));
    }

    function _uint(string memory json, string memory path) internal pure returns (uint256) {
        return vm.parseJsonUint(json, path);
    }

    function _word(string memory json, string memory path) internal pure returns (bytes32) {
        return vm.parseJsonBytes32(json, path);
    }

    function _text(string memory json, string memory path) internal pure returns (string memory) {
        return vm.parseJsonString(json, path);
    }

    function _u32s(string memory json, string memory path)
        internal
        pure
        returns (uint32[] memory ids)
    {
        uint256[] memory list = vm.parseJsonUintArray(json, path);
        ids = new uint32[](list.length);
        for (uint256 i; i < list.length; ++i) {
            ids[i] = uint32(list[i]);
        }
    }

    /// @dev Ids packed four bytes each, big-endian.
    function _packedIds(string memory json, string memory path)
        internal
        pure
        returns (bytes memory packed)
    {
        uint32[] memory ids = _u32s(json, path);
        for (uint256 i; i < ids.length; ++i) {
            packed = abi.encodePacked(packed, ids[i]);
        }
    }

    /// @dev [[id, mass], …] as twelve bytes an entry.
    function _packedKept(string memory json, string memory path)
        internal
        view
        returns (bytes memory packed)
    {
        uint256 count = _count(json, path);
        for (uint256 i; i < count; ++i) {
            uint256[] memory entry = vm.parseJsonUintArray(json, _at(path, i));
            assertEq(entry.length, 2);
            packed = abi.encodePacked(packed, uint32(entry[0]), uint64(entry[1]));
        }
    }
}
