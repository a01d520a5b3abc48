// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {IAuditTerms} from "./IAuditTerms.sol";

/// @title ISampleAudits
/// @notice The first level: drawn tokens are run again by a few drawn auditors, among canaries that
/// nobody can tell from them until all have committed.
///
/// @dev Whoever wants a token audited enters a sealed ticket, with a bond, and delivers the session to
/// the auditors that are drawn. Only after they have committed is the ticket opened: it names a drawn
/// token of a settled batch, or a canary that its planter wrote. An audit convicts nobody; what it finds
/// may be taken to the panel.
interface ISampleAudits {
    enum Kind {
        DRAWN,
        CANARY
    }

    enum Stage {
        NONE,
        SEALED, // the ticket is sealed
        NAMED, // it names a drawn token; V opens its fingerprint
        OPENED, // and has; the auditors reveal
        PLANTED, // it is a canary; the auditors reveal
        PASSED, // some have passed the canary; its planter goes to the panel
        REFERRED, // and has
        WRONG, // the canary was wrong: who passed it pays
        DONE
    }

    /// @notice What a planter commits to: one false answer of V's, in a session that was never settled.
    struct Canary {
        bytes32 startHash;
        uint32 round;
        uint32 within;
        bytes32 figures; // as `IPlaceRule.Subject.figures`
        bytes32 print; // as V would open it
        bytes32 text; // keccak256 of all that is delivered
    }

    struct Audit {
        address by;
        Stage stage;
        uint40 openUntil; // unix seconds, as all below
        uint64 jury;
        bytes32 ticket;
        bytes32 model;
        address verifier;
        uint40 firstUntil; // for V's fingerprint; of a canary: for its planter to go to the panel
        uint40 secondUntil;
        bool late;
        bytes32 sealedPrint; // of a canary: its hash
        uint64 panelCase;
        address token;
        uint96 share; // of a lost bond, to each auditor
        uint128 fee; // to each auditor, of `token`
        JuryVerdict.Measure measure;
    }

    event TicketEntered(
        uint64 indexed auditId,
        address indexed by,
        bytes32 indexed model,
        uint64 juryId,
        IAuditTerms.Terms terms
    );
    event TokenNamed(
        uint64 indexed auditId,
        address indexed verifier,
        uint64 batchId,
        uint32 index,
        uint8 sample,
        uint40 firstUntil,
        uint40 secondUntil
    );
    event FingerprintOpened(uint64 indexed auditId, bytes32 salt, bytes32 print);
    event CanaryOpened(uint64 indexed auditId, Canary canary);
    event CanaryReferred(uint64 indexed auditId, uint64 caseId);
    event CanaryPassed(uint64 indexed auditId, address indexed auditor, uint256 slashed);
    event AuditMoved(uint64 indexed auditId, Stage stage, JuryVerdict.Result result);
    event AuditorPaid(uint64 indexed auditId, address indexed auditor, uint256 share, uint256 fee);

    // ------------------------------------------------------------------ tickets

    /// @notice Enters a sealed ticket (`ticketOf`) for auditors of `model`. Takes the bond.
    function enter(bytes32 ticket, bytes32 model) external returns (uint64 auditId);

    /// @notice Opens a ticket as a drawn token, once all have committed. Anyone with its salt may.
    /// @param place abi.encode of the arguments of `IPlaceRule.verdictPlace`.
    function name(uint64 auditId, bytes32 salt, uint8 sample, bytes calldata place) external;

    /// @notice Opens a ticket as a canary, once all have committed.
    function plant(uint64 auditId, bytes32 salt, Canary calldata canary) external;

    /// @notice Ends an audit whose ticket nobody has opened in time: its bond is the auditors'.
    function lapse(uint64 auditId) external;

    // ------------------------------------------------------------------ drawn tokens

    /// @notice Opens V's fingerprint of the named token.
    function openPrint(uint64 auditId, bytes32 salt, bytes32 print) external;

    /// @notice Takes the price of V's silence (F7); the second needs a second call.
    function expire(uint64 auditId) external;

    // ------------------------------------------------------------------ the end

    /// @notice Ends an audit whose auditors have answered; of a canary, finds out whether some passed.
    function finish(uint64 auditId) external;

    /// @notice Takes a canary that some have passed to the panel, at the planter's bond there. Only the
    /// planter.
    function refer(uint64 auditId, Canary calldata canary) external;

    /// @notice Ends a canary by the panel's word, or because its planter did not ask for it in time.
    function conclude(uint64 auditId) external;

    /// @notice Takes the price of passing a canary that was wrong (F10).
    function punish(uint64 auditId, address auditor) external;

    /// @notice Pays an auditor of an audit that has ended.
    function pay(uint64 auditId, address auditor) external;

    // ------------------------------------------------------------------ read

    /// @notice What a ticket seals: keccak256(abi.encode(tag, kind, content, salt)), content being
    /// keccak256(abi.encode(batchId, index, sample)) or keccak256(abi.encode(canary)).
    function ticketOf(Kind kind, bytes32 content, bytes32 salt) external pure returns (bytes32);

    function auditOf(uint64 auditId) external view returns (Audit memory);

    function termsOf(uint64 auditId) external view returns (IAuditTerms.Terms memory);
}
