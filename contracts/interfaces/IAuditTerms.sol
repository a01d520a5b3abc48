// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJuries} from "./IJuries.sol";

/// @title IAuditTerms
/// @notice What audits of drawn tokens are run by.
interface IAuditTerms {
    /// @notice Fixed for an audit when its ticket is entered.
    struct Terms {
        uint96 bond; // of the stake token, with a ticket
        uint8 size; // auditors
        uint16 lateBps; // of V's stake, where it does not open its fingerprint by the first deadline
        uint16 silentBps; // nor by the second
        uint16 passedBps; // of an auditor's stake, for passing a canary
        uint16 rewardBps; // of V's slashes, to who called them
        uint16 plantedBps; // of an auditor's, to the canary's planter
        uint32 referWindow; // seconds for a planter to go to the panel
        IJuries.Spans spans; // `open`: to open the ticket
    }

    event TermsChanged(Terms terms);
    event FeeSet(address indexed token, uint128 fee);

    /// @notice The terms of tickets entered now.
    function terms() external view returns (Terms memory);

    /// @notice What the held fees of `token` pay each auditor of a drawn token, at most.
    function feeOf(address token) external view returns (uint128);
}
