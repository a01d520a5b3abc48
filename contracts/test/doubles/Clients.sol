// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice A client that is a contract: accepts one digest that its owner approved.
contract ContractClient {
    mapping(bytes32 => bool) public approved;

    function approve(bytes32 digest) external {
        approved[digest] = true;
    }

    function isValidSignature(bytes32 digest, bytes calldata) external view returns (bytes4) {
        return approved[digest] ? bytes4(0x1626ba7e) : bytes4(0);
    }
}

/// @notice Burns all the gas it is given when asked about a signature.
contract GasBurningClient {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        for (uint256 i;; ++i) {}
        return 0x1626ba7e;
    }
}

/// @notice Answers with a megabyte.
contract ReturnBombClient {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        assembly {
            return(0, 100000)
        }
    }
}
