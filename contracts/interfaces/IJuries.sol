// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAuditorPool} from "./IAuditorPool.sol";

/// @title IJuries
/// @notice Auditors drawn for one question, who answer it without seeing each other's answers.
///
/// @dev A court summons a jury; anyone seats it by the randomness of a later block; members commit, then
/// reveal; who is silent is dismissed at a price. What the answers mean is the court's business.
interface IJuries {
    /// @notice Seconds for each phase, counted from the summons whatever happens in between.
    struct Spans {
        uint32 seat; // to call for the draw
        uint32 commit; // after that
        uint32 open; // after that, for the court to open what was kept until all had committed
        uint32 reveal; // after that
    }

    /// @notice What silence costs; fixed for a jury when it is summoned.
    struct Terms {
        uint16 silentBps; // of the member's auditor stake
        uint16 rewardBps; // of that, to whoever dismisses it
        uint8 delay; // blocks from summons to randomness
    }

    enum Stage {
        NONE,
        SUMMONED, // waits to be seated
        SEATED, // commits; without a court's opening, reveals too
        OPENED, // the court has opened: reveals
        CANCELLED // the court needs no answers
    }

    /// @notice One jury. Blocks: anchor (whose end the weights are of) and target (whose hash draws).
    struct Jury {
        address court;
        uint40 anchor;
        uint40 target;
        Stage stage;
        bool waits; // for the court's opening
        uint8 size; // asked for
        bytes32 model;
        uint40 seatUntil; // unix seconds, as all below
        uint40 commitUntil;
        uint40 revealUntil; // of a jury that waits: once opened
        uint32 revealSpan;
        uint8 seated;
        uint8 committed;
        uint8 revealed;
        uint16 silentBps;
        uint16 rewardBps;
        uint64 before; // the jury whose members come last; zero: none
    }

    /// @notice What a member says. `print` is its own fingerprint, or in the exact tier one hash of all.
    struct Answer {
        bytes32 commitment;
        bytes32 print;
        uint64 margin; // Q24
        bool withheld; // nobody gave it what it needs to answer
        bool revealed;
    }

    event JurySummoned(
        uint64 indexed juryId, address indexed court, bytes32 indexed model, Jury jury
    );
    event JuryReanchored(uint64 indexed juryId, uint40 target);
    event JurySeated(uint64 indexed juryId, address[] members);
    event AnswerCommitted(uint64 indexed juryId, address indexed member, bytes32 commitment);
    event JuryOpened(uint64 indexed juryId, uint40 revealUntil);
    event JuryCancelled(uint64 indexed juryId);
    event AnswerRevealed(
        uint64 indexed juryId, address indexed member, bool withheld, uint64 margin, bytes32 print
    );
    event MemberDismissed(uint64 indexed juryId, address indexed member, uint256 slashed);
    event TermsChanged(Terms terms);
    event CourtSet(address indexed court, bool allowed);

    // ------------------------------------------------------------------ courts

    /// @notice Asks for a jury. Only a court that the owner has named.
    /// @param parties Left out of it with all their keys; at most eight.
    /// @param before A jury whose members are seated only where nobody else is left.
    /// @param waits Whether the court will open something once all have committed.
    function summon(
        bytes32 model,
        address[] calldata parties,
        uint8 size,
        Spans calldata spans,
        uint64 before,
        bool waits
    ) external returns (uint64 juryId);

    /// @notice Starts the reveals of a jury that waits. Only its court, once commitments are closed.
    function open(uint64 juryId) external;

    /// @notice Needs no answers any more. Only its court, once commitments are closed.
    function cancel(uint64 juryId) external;

    // ------------------------------------------------------------------ anyone

    /// @notice Seats the jury by the hash of its target block; takes a later block where that is gone.
    function seat(uint64 juryId) external;

    /// @notice Commits the caller's answer, once: `commitmentOf`. Only a member's operator key.
    function commit(uint64 juryId, bytes32 commitment) external;

    /// @notice Opens a commitment. Anyone may hand it in; the salt is the member's to give away.
    function reveal(
        uint64 juryId,
        address member,
        bool withheld,
        uint64 margin,
        bytes32 print,
        bytes32 salt
    ) external;

    /// @notice Takes the price of a member's silence, once the jury is over.
    function dismiss(uint64 juryId, address member) external;

    // ------------------------------------------------------------------ read

    /// @notice Whom juries are drawn from.
    function pool() external view returns (IAuditorPool);

    /// @notice keccak256(abi.encode(tag, chain, this contract, jury, member, salt, withheld, margin,
    /// print)): of no use to any other member, for any other question or on any other chain.
    function commitmentOf(
        uint64 juryId,
        address member,
        bool withheld,
        uint64 margin,
        bytes32 print,
        bytes32 salt
    ) external view returns (bytes32);

    function juryOf(uint64 juryId) external view returns (Jury memory);

    /// @notice Of a jury: how many sit, how many of them have committed, and whether the court opens it.
    function seatsOf(uint64 juryId)
        external
        view
        returns (uint256 seated, uint256 committed, bool waits);

    function membersOf(uint64 juryId) external view returns (address[] memory);

    function isMember(uint64 juryId, address member) external view returns (bool);

    function answerOf(uint64 juryId, address member) external view returns (Answer memory);

    /// @notice All members' answers, in the order of the draw.
    function answersOf(uint64 juryId) external view returns (Answer[] memory);

    /// @notice Whether a member has revealed, or committed where the court has cancelled the reveals.
    function hasAnswered(uint64 juryId, address member) external view returns (bool);

    /// @notice How many have.
    function answeredIn(uint64 juryId) external view returns (uint256);

    /// @notice Whether nobody can or need commit any more.
    function isClosed(uint64 juryId) external view returns (bool);

    /// @notice Whether no further answer can come.
    function isOver(uint64 juryId) external view returns (bool);
}
