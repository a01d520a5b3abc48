// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAuditPanel} from "./IAuditPanel.sol";
import {IDrawBeacon} from "./IDrawBeacon.sol";
import {ISessionDemands} from "./ISessionDemands.sol";

/// @title IJurorDemands
/// @notice The panel's right to read: a juror demands the text of the session it has to judge, on
/// chain, where V has not delivered it by messages.
interface IJurorDemands {
    event JurorDemanded(uint64 indexed caseId, address indexed juror, bytes32 indexed id);
    event JurorRefunded(bytes32 indexed id, address indexed juror, uint256 bond);

    /// @notice `ISessionDemands.demandSession` for the session of a running case, up to its round or a
    /// later one. Only a member of the jury that sits, which puts up the demand's bond.
    function demand(
        IAuditPanel.Charge calldata charge,
        ISessionDemands.SessionCase calldata session,
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        uint256 keyX,
        uint256 keyY
    ) external returns (bytes32 id);

    /// @notice Gives a juror its bond back where V was silent or has sealed rubbish. Anyone may call.
    function refund(bytes32 id) external;
}
