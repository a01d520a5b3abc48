// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {IDemands} from "./IDemands.sol";
import {IDrawBeacon} from "./IDrawBeacon.sol";

/// @title IEvidenceDemands
/// @notice Demands for any one position of a settled root, open to all.
interface IEvidenceDemands is IDemands {
    /// @notice One position of a settled root. The chain keeps its hash; the event Demanded the rest.
    struct Demand {
        uint64 nonce;
        address by;
        bytes32 root;
        Records.Lane lane;
        bytes32 seed; // `Openings.targetOf(seed, 0, output)` is the output token demanded
        Terms terms;
    }

    event Demanded(
        bytes32 indexed id,
        address indexed verifier,
        Demand demand,
        uint40 firstUntil,
        uint40 secondUntil
    );
    /// @notice An answer showed a fault, of code `Openings` or `AcceptRule`.
    event AnswerFaulty(
        bytes32 indexed id, address indexed guilty, uint8 code, bytes32 startHash, uint32 round
    );
    /// @notice Demands a position of a root settled in `batch`, while its evidence is owed. Takes the
    /// bond.
    /// @param entries All entries of the batch, packed.
    /// @param seed Chooses the token: whoever wants a certain one tries seeds.
    function demandLeaf(
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        Records.Lane calldata lane,
        bytes32 seed
    ) external returns (bytes32 id);

    /// @notice Opens the demanded position. Anyone may hand it in; V has to see to it.
    function answer(Demand calldata demand, Openings.Opening calldata opening) external;

    /// @notice Takes the price of a missed deadline; the second needs a second call.
    function expire(Demand calldata demand) external;
}
