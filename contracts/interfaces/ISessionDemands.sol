// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {IDemands} from "./IDemands.sol";
import {IDrawBeacon} from "./IDrawBeacon.sol";

/// @title ISessionDemands
/// @notice Demands for what was said in a session: prompt and output up to a settled round, sealed to
/// whoever may read it. Records and leaves are demanded one by one (IEvidenceDemands).
///
/// @dev V answers with bytes that only the demander can open: salt, prompt ids and output ids, under
/// Diffie–Hellman between a key of the demand's own and one of the answer's own (`Sealing`). What is
/// not that text the demander contests by giving its key away: then the contract opens the answer
/// itself and holds it against the order's prompt hash and the context that V signed.
interface ISessionDemands is IDemands {
    /// @notice Which text: the session of a round that was settled, up to that round's end.
    struct SessionCase {
        Openings.Root settled;
        Records.RoundRecord record;
        uint32 leafIndex;
        Trees.SumStep[] steps;
        Records.Order order;
        Records.SessionStart start;
        Records.Verdict verdict;
        Records.Manifest target; // bounds how long the text can be
    }

    /// @notice A demanded text. The chain keeps its hash; the event SessionDemanded the rest.
    struct SessionDemand {
        uint64 nonce;
        address by;
        address verifier;
        bytes32 startHash;
        uint32 round;
        bytes32 promptHash; // c_0
        bytes32 contextHash; // c after the last token
        uint32 tokens; // of output
        uint256 keyX; // the demander's key, made for this demand
        uint256 keyY;
        Terms terms;
    }

    event SessionDemanded(
        bytes32 indexed id,
        address indexed verifier,
        SessionDemand demand,
        uint40 firstUntil,
        uint40 secondUntil
    );
    event SessionAnswered(
        bytes32 indexed id, uint256 keyX, uint256 keyY, bytes sealedText, uint40 contestUntil
    );
    event ReaderSet(address indexed reader, bool allowed);

    /// @notice Demands a session's text. C and D of the order may, readers that the owner names (the
    /// contract of a panel), staked auditors of the model where the order lets them, and anyone where
    /// it is public. Takes the bond.
    function demandSession(
        SessionCase calldata session,
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        uint256 keyX,
        uint256 keyY
    ) external returns (bytes32 id);

    /// @notice Delivers the text, sealed. Only V: the bytes are its word.
    function answer(
        SessionDemand calldata demand,
        uint256 keyX,
        uint256 keyY,
        bytes calldata sealedText
    ) external;

    /// @notice Shows that an answer is not the text demanded, by the secret of the demand's key. Costs
    /// V both prices at once.
    function contest(
        SessionDemand calldata demand,
        uint256 keyX,
        uint256 keyY,
        bytes calldata sealedText,
        uint256 secret
    ) external;

    /// @notice Closes an answered demand once it can no longer be contested, or at once by the
    /// demander: V gets the bond.
    function close(SessionDemand calldata demand) external;

    /// @notice Takes the price of a missed deadline; the second needs a second call.
    function expire(SessionDemand calldata demand) external;
}
