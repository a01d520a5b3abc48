// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStakeVault} from "./IStakeVault.sol";

/// @title ICourt
/// @notice Faults that a contract judges alone, proven by anyone, by commit and reveal.
///
/// @dev A challenger first files a commitment, with a bond, and names its evidence some blocks later.
/// Who copies a proof out of the open would have to wait as long himself, and the first to reveal has
/// been paid by then; what he copied of a commitment is worthless under another name. A valid proof
/// brings the bond back, even where the fault was punished meanwhile; one that is refused changes
/// nothing and can be mended until the filing lapses; then the bond burns.
interface ICourt {
    /// @notice What filings are judged and paid by. A filing keeps those of its own time.
    struct Terms {
        uint96 bond; // of the stake token
        uint32 delay; // blocks from filing to the first in which it may be proven
        uint32 window; // blocks after that in which it may be
        uint16 faultBps; // of the guilty role's whole stake
        uint16 rewardBps; // of the slash, to the challenger
        uint16 victimBps; // of the slash, at most, to those the round has cost money
    }

    /// @notice A commitment on its way. Zero bond: none.
    struct Filing {
        uint96 bond;
        uint40 from; // blocks
        uint40 until;
        uint16 faultBps;
        uint16 rewardBps;
        uint16 victimBps;
    }

    /// @notice Where the bonds are: the court's balance is at least open + payable + burning. Fewer
    /// than 2**96 units of the token exist.
    struct Bonds {
        uint128 open; // of filings
        uint128 payable_; // to pull
        uint128 burning; // forfeited, not yet destroyed
    }

    event Filed(
        address indexed challenger,
        bytes32 indexed commitment,
        uint96 bond,
        uint40 openFrom,
        uint40 openUntil
    );
    /// @notice A proof held. `slashed` is zero where the fault had been punished before, or the guilty
    /// has nothing.
    event FaultProven(
        uint8 indexed fault,
        address indexed guilty,
        address indexed challenger,
        uint8 code,
        bytes32 startHash,
        uint32 round,
        IStakeVault.Slashed slashed
    );
    event BondForfeited(address indexed challenger, bytes32 indexed commitment, uint96 bond);
    event BondPulled(address indexed challenger, uint256 amount);
    event BondsBurned(uint256 amount);
    event TermsChanged(Terms terms);

    // ------------------------------------------------------------------ filing

    /// @notice Files a commitment: `commitmentOf(evidence hash, caller, salt)`. Takes the bond.
    function file(bytes32 commitment) external;

    /// @notice Burns the bond of a filing that has lapsed. Anyone may call.
    function forfeit(address challenger, bytes32 commitment) external;

    /// @notice Sends what `challenger` can pull, to where its money goes (`IStakeVault.payoutTo`).
    function pullBond(address challenger) external returns (uint256 amount);

    /// @notice Destroys what was forfeited.
    function burn() external returns (uint256 amount);

    // ------------------------------------------------------------------ read

    /// @notice keccak256(abi.encode(evidenceHash, challenger, salt)). What evidenceHash is the hash of
    /// stands in each court's own interface.
    function commitmentOf(bytes32 evidenceHash, address challenger, bytes32 salt)
        external
        pure
        returns (bytes32);

    function filingOf(address challenger, bytes32 commitment) external view returns (Filing memory);

    /// @notice What `challenger` can pull.
    function bondOf(address challenger) external view returns (uint256);

    function bonds() external view returns (Bonds memory);

    function terms() external view returns (Terms memory);
}
