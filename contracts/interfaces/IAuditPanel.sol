// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {IPanelTerms} from "./IPanelTerms.sol";
import {IPlaceRule} from "./IPlaceRule.sol";

/// @title IAuditPanel
/// @notice Cases that only a run of the model can decide: F9 against V, F12 against D, and whether a
/// canary was wrong (F10).
///
/// @dev A case asks about one output token. What is asked follows from the settled root; the accuser
/// chooses nothing but the place. A panel answers; whoever does not like its verdict appeals once, at a
/// doubled bond; punished is after the last verdict. Every step that is due anyone may take.
interface IAuditPanel {
    /// @notice All of a case that never changes. The chain keeps its hash; the event CaseFiled the rest.
    struct Charge {
        uint64 caseId;
        uint8 fault; // 9, 10 or 12
        address accuser;
        address accused; // zero for a canary
        IPlaceRule.Subject subject;
        bool exact; // the model's tier
        uint64 margin; // tolerances of the float tier, as they stood at settlement
        uint64 distance;
        uint96 bond;
        uint128 fee; // for each juror, of what `subject.token` fees hold, where the case was a true one
        uint40 filedAt; // unix seconds
        IPanelTerms.Terms terms;
    }

    enum Stage {
        NONE,
        PANEL,
        DECIDED, // and may be appealed
        APPEAL,
        CLOSED
    }

    struct CaseState {
        Stage stage;
        JuryVerdict.Result result; // of the panel; once closed, the last
        uint64 panel; // juries
        uint64 appeal;
        uint40 openUntil; // for V to open its fingerprint
        uint40 appealUntil;
        bool printed;
        bool settled; // closed, and its jurors are paid from fees: it has cost somebody a stake
        bytes32 print;
        address appellant;
        uint96 appealBond;
        uint96 share; // of lost bonds, to each juror
    }

    event CaseFiled(
        uint64 indexed caseId, address indexed accused, address indexed accuser, Charge charge
    );
    event PrintOpened(uint64 indexed caseId, bytes32 salt, bytes32 print);
    event CaseDecided(
        uint64 indexed caseId, uint64 juryId, JuryVerdict.Result result, uint40 appealUntil
    );
    event CaseAppealed(
        uint64 indexed caseId, address indexed appellant, uint96 bond, uint64 juryId
    );
    event CaseClosed(uint64 indexed caseId, JuryVerdict.Result result, uint256 slashed);
    event JurorPaid(uint64 indexed caseId, address indexed juror, uint256 share, uint256 fee);

    // ------------------------------------------------------------------ cases

    /// @notice Accuses V (9) of a token, figure or fingerprint that is not the target's, or D (12) of a
    /// draft that is not its registered model's. Takes the bond, and of it the jurors' pay where what
    /// they find settles no fault: another case was first, or the stake is below the vault's least.
    /// Reward and compensation are shares of as much of the slash as the bond was asked for.
    /// @param place abi.encode of the arguments of `IPlaceRule.verdictPlace` or `draftPlace`.
    function accuse(uint8 fault, bytes calldata place) external returns (uint64 caseId);

    /// @notice Asks whether a canary is wrong, at its planter's bond. Only a referrer.
    /// @param content The canary's hash; the case's subject has it for a sealed fingerprint.
    function refer(address planter, bytes32 model, bytes32 content, bytes32 figures, bytes32 print)
        external
        returns (uint64 caseId);

    /// @notice Opens V's fingerprint once the jury has committed. Anyone who knows it may.
    function openPrint(Charge calldata charge, bytes32 salt, bytes32 print) external;

    /// @notice Takes the running jury's verdict: once it is over, or V has not opened in time.
    function decide(Charge calldata charge) external;

    /// @notice Asks for a second, larger jury, at twice the bond. Once.
    function appeal(Charge calldata charge) external;

    /// @notice Closes a case that nobody has appealed in time.
    function conclude(Charge calldata charge) external;

    /// @notice Pays a juror of a closed case: its share of lost bonds, or from the audit fees.
    function payJuror(Charge calldata charge, bool ofAppeal, address juror) external;

    // ------------------------------------------------------------------ read

    /// @notice keccak256(abi.encode(charge)); zero for none.
    function chargeHash(uint64 caseId) external view returns (bytes32);

    function caseOf(uint64 caseId) external view returns (CaseState memory);

    /// @notice What accusing that place takes now, under the terms of `settledAt`.
    /// @param accused Zero for a canary.
    function bondFor(bytes32 place, uint8 fault, address accused, uint64 settledAt)
        external
        view
        returns (uint96);
}
