// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJuries} from "./IJuries.sol";
import {Role} from "./IStakeVault.sol";

/// @title IPanelTerms
/// @notice What panels are run by, as it stood at any time.
interface IPanelTerms {
    /// @notice What a case is judged and paid by: those that stood when its batch was settled.
    struct Terms {
        uint96 bond; // of the stake token, at least; doubled for each time the place was cleared before
        uint16 faultBps; // of the guilty role's whole stake
        uint16 rewardBps; // of the slash, to the accuser
        uint16 victimBps; // of the slash, at most, to those it has cost money
        uint8 panelSize;
        uint8 appealSize;
        uint8 minSeated; // fewer decide nothing
        uint96 minPool; // of stake in the model's pool: with less a few could judge anyone
        uint32 appealWindow; // seconds after the first verdict
        IJuries.Spans spans; // of each jury
        uint16 bondBps; // of what a ruling would bring the accuser: its bond, if that is more than `bond`
    }

    event TermsChanged(Terms terms, uint64 since);
    event FeeSet(address indexed token, uint128 fee);
    event ReferrerSet(address indexed referrer, bool allowed);

    /// @notice The terms of batches settled now.
    function terms() external view returns (Terms memory);

    /// @notice The terms that stood at a time: later ones never judge an earlier batch.
    function termsAt(uint64 timestamp) external view returns (Terms memory);

    /// @notice What accusing takes under the terms of `settledAt`: it grows with what the accused can
    /// lose, so that no stake is worth a try at a bad jury, and with each time the place was cleared.
    /// @dev What was staked within the last slice of time does not count: nobody raises the bond of an
    /// accusation that is under way. `sharesOf` has the other side of it.
    /// @param accused Zero where nobody is, as by a canary.
    function bondAt(uint64 settledAt, address accused, Role role, uint256 cleared)
        external
        view
        returns (uint96);

    /// @notice How a slash of that stake is shared out, under the terms of `settledAt`.
    /// @param bond As it was taken. Accuser and victims have shares of as much of the slash as it was
    /// asked for, and of no more.
    /// @param cleared How often the place had been cleared when it was taken.
    /// @param stake Of the guilty, all that a slash can reach.
    /// @param client What the fault has cost the client, in stake units.
    /// @param drafter And D.
    /// @return rewardBps Of the whole slash, to the accuser.
    /// @return toClient Units of stake, at most.
    /// @return toDrafter Units of stake, at most.
    function sharesOf(
        uint64 settledAt,
        uint256 bond,
        uint256 cleared,
        uint256 stake,
        uint256 client,
        uint256 drafter
    ) external view returns (uint256 rewardBps, uint256 toClient, uint256 toDrafter);

    /// @notice Seconds that one jury may take.
    function spanOf(Terms calldata t) external pure returns (uint256);

    /// @notice What the held fees of `token` pay each juror of a true case filed now.
    function feeOf(address token) external view returns (uint128);

    /// @notice Whether a contract may ask about canaries.
    function isReferrer(address referrer) external view returns (bool);
}
