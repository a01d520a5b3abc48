// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IDemands
/// @notice F7 outside the draws: evidence that V owes is demanded at a bond. V answers on chain and
/// keeps the bond, or pays for its silence at two deadlines.
interface IDemands {
    /// @notice What a demand is judged and paid by. A demand keeps those of its own time.
    struct Terms {
        uint96 bond; // of the stake token; V's, if it answers
        uint32 firstDeadline; // seconds, the vault's when the demand was made
        uint32 secondDeadline; // seconds after the first
        uint16 lateBps; // of V's stake, at the first missed deadline
        uint16 silentBps; // at the second
        uint16 faultBps; // for a fault that an answer shows
        uint16 rewardBps; // of any of these slashes, to the demander
    }

    enum Stage {
        NONE,
        OPEN,
        LATE, // the first deadline has passed and been paid for
        ANSWERED, // and may still be contested, where an answer is sealed
        SHOWN, // answered
        FAULTY, // answered, and the answer shows a fault of V or is none
        SILENT // the second deadline has passed and been paid for
    }

    struct DemandState {
        uint40 firstUntil;
        uint40 secondUntil;
        Stage stage;
    }

    /// @notice Where the bonds are: the contract's balance is at least open + payable.
    struct Bonds {
        uint256 open;
        uint256 payable_;
    }

    event DemandMoved(bytes32 indexed id, Stage stage);
    event BondPulled(address indexed account, uint256 amount);
    event TermsChanged(Terms terms);

    /// @notice Sends what `account` can pull, to where its money goes (`IStakeVault.payoutTo`).
    function pullBond(address account) external returns (uint256 amount);

    function demandState(bytes32 id) external view returns (DemandState memory);

    function bondOf(address account) external view returns (uint256);

    function bonds() external view returns (Bonds memory);

    function terms() external view returns (Terms memory);
}
