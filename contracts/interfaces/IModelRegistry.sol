// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../libraries/Records.sol";

/// @title IModelRegistry
/// @notice Manifests of target and draft models, by content: an id names one manifest for ever.
interface IModelRegistry {
    /// @notice How far honest runs of a float-tier model may lie apart, from measured honest runs.
    /// @dev Versions never change: a dispute uses the one that stood when its batch settled.
    struct Tolerance {
        uint64 marginQ24; // score units between V's token and the auditor's
        uint64 distance; // sum of absolute differences of two fingerprints, in units of 2**-12
        uint32 flipPpm; // honest rate of flips below the margin, per million tokens
        uint64 since; // unix seconds
    }

    event ModelRegistered(bytes32 indexed model, Records.Manifest manifest, address by);
    event ToleranceSet(bytes32 indexed model, uint256 indexed version, Tolerance tolerance);

    /// @notice keccak256(abi.encode(manifest)) of a manifest now or already known. Anyone may call.
    function register(Records.Manifest calldata manifest) external returns (bytes32 model);

    function isRegistered(bytes32 model) external view returns (bool);

    /// @notice The parts of a manifest that judges need; reverts UnknownModel.
    function facts(bytes32 model)
        external
        view
        returns (uint8 tier, uint32 vocabSize, uint32 contextLength, bytes32 weightsRoot);

    /// @notice The tolerance that stood at `timestamp`; reverts NoTolerance when none did.
    function toleranceAt(bytes32 model, uint256 timestamp) external view returns (Tolerance memory);
}
