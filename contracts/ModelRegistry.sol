// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";

import {IModelRegistry} from "./interfaces/IModelRegistry.sol";
import {Records} from "./libraries/Records.sol";

/// @title ModelRegistry
/// @notice Manifests by content, and for the float tier the tolerances that disputes are judged by.
/// @dev A manifest needs no permission: its id is its hash, and a false one names a model that nobody
/// serves. A tolerance does: it decides disputes, so it comes from the owner's timelock, and every
/// version stays readable by the time it stood.
contract ModelRegistry is IModelRegistry, Ownable2Step {
    uint8 public constant TIERS = 3; // exact, float32, bfloat16
    uint256 public constant MAX_ARCHITECTURE = 64; // bytes
    uint256 public constant MAX_EOS = 64;
    uint32 public constant FLIP_UNIT = 1_000_000;

    /// @dev One slot beside the root. `known` tells a registered model from an empty slot.
    struct Facts {
        bytes32 weightsRoot;
        bool known;
        uint8 tier;
        uint32 vocabSize;
        uint32 contextLength;
    }

    mapping(bytes32 model => Facts) private _facts;
    mapping(bytes32 model => Tolerance[]) private _tolerances;

    error UnknownModel(bytes32 model);
    error BadManifest(string field, uint256 value);
    error NotFloatTier(bytes32 model, uint8 tier);
    error BadTolerance(uint32 flipPpm, uint32 limit);
    error NoTolerance(bytes32 model, uint256 timestamp);

    constructor(address owner) Ownable(owner) {}

    /// @inheritdoc IModelRegistry
    function register(Records.Manifest calldata manifest) external returns (bytes32 model) {
        model = keccak256(abi.encode(manifest));
        if (_facts[model].known) return model;
        uint256 length = bytes(manifest.architecture).length;
        if (length == 0 || length > MAX_ARCHITECTURE) revert BadManifest("architecture", length);
        if (manifest.tier >= TIERS) revert BadManifest("tier", manifest.tier);
        if (manifest.weightsRoot == 0) revert BadManifest("weightsRoot", 0);
        if (manifest.tokenizerHash == 0) revert BadManifest("tokenizerHash", 0);
        if (manifest.vocabSize == 0 || manifest.vocabSize == Records.NO_TOKEN) {
            revert BadManifest("vocabSize", manifest.vocabSize);
        }
        if (manifest.contextLength == 0) revert BadManifest("contextLength", 0);
        uint256 ends = manifest.eosIds.length;
        if (ends > MAX_EOS) revert BadManifest("eosIds", ends);
        for (uint256 i; i < ends; ++i) {
            if (manifest.eosIds[i] >= manifest.vocabSize) {
                revert BadManifest("eosIds", manifest.eosIds[i]);
            }
        }
        _facts[model] = Facts({
            weightsRoot: manifest.weightsRoot,
            known: true,
            tier: manifest.tier,
            vocabSize: manifest.vocabSize,
            contextLength: manifest.contextLength
        });
        emit ModelRegistered(model, manifest, msg.sender);
    }

    /// @notice Sets what honest runs of a float-tier model may differ by, from now on.
    function setTolerance(bytes32 model, uint64 marginQ24, uint64 distance, uint32 flipPpm)
        external
        onlyOwner
    {
        Facts storage known = _facts[model];
        if (!known.known) revert UnknownModel(model);
        // INVARIANT: the exact tier has no tolerance: one differing bit is a fault.
        if (known.tier == 0) revert NotFloatTier(model, known.tier);
        if (flipPpm > FLIP_UNIT) revert BadTolerance(flipPpm, FLIP_UNIT);
        Tolerance memory tolerance = Tolerance({
            marginQ24: marginQ24,
            distance: distance,
            flipPpm: flipPpm,
            since: uint64(block.timestamp)
        });
        _tolerances[model].push(tolerance);
        emit ToleranceSet(model, _tolerances[model].length - 1, tolerance);
    }

    /// @inheritdoc IModelRegistry
    function isRegistered(bytes32 model) external view returns (bool) {
        return _facts[model].known;
    }

    /// @inheritdoc IModelRegistry
    function facts(bytes32 model)
        external
        view
        returns (uint8 tier, uint32 vocabSize, uint32 contextLength, bytes32 weightsRoot)
    {
        Facts storage known = _facts[model];
        if (!known.known) revert UnknownModel(model);
        return (known.tier, known.vocabSize, known.contextLength, known.weightsRoot);
    }

    /// @inheritdoc IModelRegistry
    /// @dev A binary search: versions are in the order of their times, and a judge may not be made to
    /// walk a long list.
    function toleranceAt(bytes32 model, uint256 timestamp)
        external
        view
        returns (Tolerance memory)
    {
        Tolerance[] storage versions = _tolerances[model];
        uint256 low;
        uint256 high = versions.length;
        while (low < high) {
            uint256 middle = (low + high) / 2;
            if (versions[middle].since <= timestamp) low = middle + 1;
            else high = middle;
        }
        // INVARIANT: a later tolerance never judges an earlier batch.
        if (low == 0) revert NoTolerance(model, timestamp);
        return versions[low - 1];
    }
}
