// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../libraries/Records.sol";
import {IAuditPanel} from "./IAuditPanel.sol";

/// @title IClaimJudge
/// @notice What a panel's convictions mean for AlphaLedger's cases (F8).
interface IClaimJudge {
    /// @notice Refutes D's assertion by a conviction under F12 in one of the claim's rounds.
    function refute(IAuditPanel.Charge calldata charge, uint64 ledgerCase) external;

    /// @notice Takes a round convicted under F9 out of a ledger case's counts, once.
    function exclude(
        IAuditPanel.Charge calldata charge,
        Records.RoundRecord calldata record,
        uint64 ledgerCase
    ) external;
}
