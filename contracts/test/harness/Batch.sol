// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice Many calls of one harness in one message, each with its own success and answer: what lets
/// the Python side compare thousands of cases in seconds.
abstract contract Batch {
    /// @return answers For each call one byte, 1 where it succeeded, and what it returned.
    function batch(bytes[] calldata calls) external view returns (bytes[] memory answers) {
        answers = new bytes[](calls.length);
        for (uint256 i; i < calls.length; ++i) {
            (bool ok, bytes memory answer) = address(this).staticcall(calls[i]);
            answers[i] = abi.encodePacked(ok, answer);
        }
    }
}
