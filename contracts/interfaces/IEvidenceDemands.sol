// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {IDrawBeacon} from "./IDrawBeacon.sol";

/// @title IEvidenceDemands
/// @notice F7 outside the draws: anyone may demand any one position of a settled root, at a bond. V
/// opens it on chain and keeps the bond, or pays for its silence at two deadlines.
interface IEvidenceDemands {
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

    /// @notice One position of a settled root. The chain keeps its hash; the event Demanded the rest.
    struct Demand {
        uint64 nonce;
        address by;
        bytes32 root;
        Records.Lane lane;
        bytes32 seed; // `Openings.targetOf(seed, 0, output)` is the output token demanded
        Terms terms;
    }

    enum Stage {
        NONE,
        OPEN,
        LATE, // the first deadline has passed and been paid for
        SHOWN, // answered
        FAULTY, // answered, and the answer shows a fault of V
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

    event Demanded(
        bytes32 indexed id,
        address indexed verifier,
        Demand demand,
        uint40 firstUntil,
        uint40 secondUntil
    );
    event DemandMoved(bytes32 indexed id, Stage stage);
    /// @notice An answer showed a fault, of code `Openings` or `AcceptRule`.
    event AnswerFaulty(
        bytes32 indexed id, address indexed guilty, uint8 code, bytes32 startHash, uint32 round
    );
    event BondPulled(address indexed account, uint256 amount);
    event TermsChanged(Terms terms);

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

    /// @notice Sends what `account` can pull, to where its money goes (`IStakeVault.payoutTo`).
    function pullBond(address account) external returns (uint256 amount);

    function demandState(bytes32 id) external view returns (DemandState memory);

    function bondOf(address account) external view returns (uint256);

    function bonds() external view returns (Bonds memory);

    function terms() external view returns (Terms memory);
}
