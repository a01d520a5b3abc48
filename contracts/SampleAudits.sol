// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {Bonded} from "./Bonded.sol";
import {IAuditPanel} from "./interfaces/IAuditPanel.sol";
import {IAuditTerms} from "./interfaces/IAuditTerms.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IModelRegistry} from "./interfaces/IModelRegistry.sol";
import {IPlaceRule} from "./interfaces/IPlaceRule.sol";
import {ISampleAudits} from "./interfaces/ISampleAudits.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Fingerprints} from "./libraries/Fingerprints.sol";
import {JuryVerdict} from "./libraries/JuryVerdict.sol";
import {Openings} from "./libraries/Openings.sol";

/// @title SampleAudits
/// @notice Sealed tickets for a few drawn auditors: a drawn token, or a canary.
///
/// @dev An auditor is paid for a fingerprint that agrees with V's or another auditor's, committed before
/// it could have seen either: so it has run the model, or colludes. Whether it also looks at what it
/// finds the canaries show: until it has committed it cannot tell one from a drawn token, because both
/// are a hash, a bond and a session delivered by whoever entered it. A canary's planter pays its
/// auditors out of its own bond, so planting is no way to drain fees; it lives on catching somebody.
///
/// Opening a canary excuses no settled record: a drawn token is named by its batch, and a batch is what
/// the escrow has settled.
contract SampleAudits is ISampleAudits, Bonded {
    uint256 public constant MAX_BPS = 10_000;
    uint8 private constant TIER_EXACT = 0;

    ILaneEscrow public immutable escrow;
    IDrawBeacon public immutable beacon;
    IModelRegistry public immutable registry;
    IPlaceRule public immutable rule;
    IJuries public immutable juries;
    IAuditPanel public immutable panel;
    IAuditTerms public immutable terms;

    uint64 public auditCount;
    mapping(uint64 auditId => Audit) private _audits;
    mapping(uint64 auditId => IAuditTerms.Terms) private _termsOf;
    mapping(uint64 auditId => mapping(address auditor => bool)) public isPaid;
    mapping(bytes32 token => uint64) public auditOfToken;

    error WrongStage(uint64 auditId, Stage stage);
    error StillCommitting(uint64 auditId);
    error StillSitting(uint64 auditId);
    error TooEarly(uint40 until);
    error TooLate(uint256 until);
    error NotThisTicket(bytes32 shown, bytes32 kept);
    error NotThisModel(bytes32 shown, bytes32 entered);
    error NotDrawn(uint64 batchId, uint32 index, uint64 shown, uint64 drawn);
    error NotThisPrint(bytes32 shown, bytes32 kept);
    error NotPlanter(address caller, address planter);
    error NothingToPunish(address auditor);
    error NothingToPay(address auditor);

    constructor(
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IDrawBeacon beacon_,
        IModelRegistry registry_,
        IPlaceRule rule_,
        IJuries juries_,
        IAuditPanel panel_,
        IAuditTerms terms_
    ) Bonded(vault_) {
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        if (address(registry_) == address(0)) revert ZeroAddress("registry");
        if (address(rule_) == address(0)) revert ZeroAddress("rule");
        if (address(juries_) == address(0)) revert ZeroAddress("juries");
        if (address(panel_) == address(0)) revert ZeroAddress("panel");
        (escrow, beacon, registry) = (escrow_, beacon_, registry_);
        (rule, juries, panel) = (rule_, juries_, panel_);
        if (address(terms_) == address(0)) revert ZeroAddress("terms");
        terms = terms_;
    }

    // ------------------------------------------------------------------ tickets

    /// @inheritdoc ISampleAudits
    function enter(bytes32 ticket, bytes32 model) external nonReentrant returns (uint64 auditId) {
        IAuditTerms.Terms memory t = terms.terms();
        auditId = ++auditCount;
        _termsOf[auditId] = t;
        Audit storage audit = _audits[auditId];
        (audit.by, audit.stage) = (msg.sender, Stage.SEALED);
        (audit.ticket, audit.model) = (ticket, model);
        audit.openUntil = uint40(block.timestamp) + t.spans.seat + t.spans.commit + t.spans.open;
        // The session's own parties are not known yet; one that is drawn knows what it sees, and is
        // one of a few.
        address[] memory parties = new address[](1);
        parties[0] = msg.sender;
        audit.jury = juries.summon(model, parties, t.size, t.spans, 0, true);
        emit TicketEntered(auditId, msg.sender, model, audit.jury, t);
        _takeBond(msg.sender, t.bond);
    }

    /// @inheritdoc ISampleAudits
    function name(uint64 auditId, bytes32 salt, uint8 sample, bytes calldata place)
        external
        nonReentrant
    {
        Audit storage audit = _sealed(auditId);
        IPlaceRule.Subject memory s = _ask(place);
        bytes32 content = keccak256(abi.encode(s.batchId, s.index, sample));
        _requireTicket(audit, Kind.DRAWN, content, salt);
        if (s.model != audit.model) revert NotThisModel(s.model, audit.model);
        _requireDrawn(s, sample);
        IStakeVault.Times memory times = vault.times();
        uint256 last = s.until
            - FixedPointMathLib.min(s.until, uint256(times.firstDeadline) + times.secondDeadline);
        // INVARIANT: what the auditors find can still be taken to the panel.
        if (block.timestamp > last) revert TooLate(last);
        // INVARIANT: one audit a drawn token is paid for by fees. A second ticket is its own expense.
        if (auditOfToken[content] != 0) {
            _end(auditId, audit, Stage.DONE, 0);
            return;
        }
        auditOfToken[content] = auditId;
        audit.stage = Stage.NAMED;
        (audit.verifier, audit.token, audit.sealedPrint) = (s.verifier, s.token, s.sealedPrint);
        audit.firstUntil = uint40(block.timestamp) + times.firstDeadline;
        audit.secondUntil = audit.firstUntil + times.secondDeadline;
        // INVARIANT: an audit pays its auditors no more than the lane has paid for audits.
        uint256 most = uint256(s.value) * escrow.parameters().feeBps / MAX_BPS;
        audit.fee =
            uint128(FixedPointMathLib.min(terms.feeOf(s.token), most / _termsOf[auditId].size));
        _measure(audit, s.settledAt, s.figures);
        emit TokenNamed(
            auditId, s.verifier, s.batchId, s.index, sample, audit.firstUntil, audit.secondUntil
        );
    }

    /// @dev That the token is the one which the beacon's sample falls on.
    function _requireDrawn(IPlaceRule.Subject memory s, uint8 sample) private view {
        // INVARIANT: nobody chooses which tokens the fees are spent on.
        bool isDrawn = s.seed != 0 && sample < beacon.terms().samples
            && beacon.drawState(s.batchId, s.index).stage != IDrawBeacon.Stage.NONE;
        // forge-lint: disable-next-line(unsafe-typecast)
        uint64 drawn = uint64(Openings.targetOf(s.seed, sample, s.output));
        if (!isDrawn || s.target != drawn) revert NotDrawn(s.batchId, s.index, s.target, drawn);
    }

    /// @dev The rule's answer; its revert where it refuses.
    function _ask(bytes calldata place) private view returns (IPlaceRule.Subject memory) {
        (bool held, bytes memory answer) =
            address(rule).staticcall(abi.encodePacked(IPlaceRule.verdictPlace.selector, place));
        if (!held) {
            assembly ("memory-safe") {
                revert(add(answer, 0x20), mload(answer))
            }
        }
        return abi.decode(answer, (IPlaceRule.Subject));
    }

    /// @inheritdoc ISampleAudits
    function plant(uint64 auditId, bytes32 salt, Canary calldata canary) external nonReentrant {
        Audit storage audit = _sealed(auditId);
        bytes32 content = keccak256(abi.encode(canary));
        // INVARIANT: what is wrong about a canary was fixed before anyone looked at it.
        _requireTicket(audit, Kind.CANARY, content, salt);
        audit.stage = Stage.PLANTED;
        audit.sealedPrint = content;
        _measure(audit, block.timestamp, canary.figures);
        _print(audit, canary.figures, canary.print);
        emit CanaryOpened(auditId, canary);
        juries.open(audit.jury);
    }

    /// @inheritdoc ISampleAudits
    function lapse(uint64 auditId) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.SEALED) revert WrongStage(auditId, audit.stage);
        // INVARIANT: no bond is lost while the ticket can still be opened.
        if (block.timestamp <= audit.openUntil) revert TooEarly(audit.openUntil);
        bool seated = juries.juryOf(audit.jury).stage == IJuries.Stage.SEATED;
        if (seated) _end(auditId, audit, Stage.DONE, 0);
        // Without auditors there was nothing to open the ticket for.
        else _end(auditId, audit, Stage.DONE, MAX_BPS);
    }

    function _sealed(uint64 auditId) private view returns (Audit storage audit) {
        audit = _audits[auditId];
        if (audit.stage != Stage.SEALED) revert WrongStage(auditId, audit.stage);
        if (block.timestamp > audit.openUntil) revert TooLate(audit.openUntil);
        // INVARIANT: nobody can tell a canary while he can still commit.
        if (!juries.isClosed(audit.jury)) revert StillCommitting(auditId);
    }

    function _requireTicket(Audit storage audit, Kind kind, bytes32 content, bytes32 salt)
        private
        view
    {
        bytes32 shown = ticketOf(kind, content, salt);
        if (shown != audit.ticket) revert NotThisTicket(shown, audit.ticket);
    }

    function _measure(Audit storage audit, uint256 settledAt, bytes32 figures) private {
        (uint8 tier,,,) = registry.facts(audit.model);
        JuryVerdict.Measure storage m = audit.measure;
        (m.exact, m.printed, m.expected) = (tier == TIER_EXACT, true, figures);
        if (m.exact) return;
        IModelRegistry.Tolerance memory tolerance = registry.toleranceAt(audit.model, settledAt);
        (m.margin, m.distance) = (tolerance.marginQ24, tolerance.distance);
    }

    function _print(Audit storage audit, bytes32 figures, bytes32 print) private {
        audit.measure.print = print;
        audit.measure.expected = keccak256(abi.encode(figures, print));
    }

    // ------------------------------------------------------------------ V's fingerprint

    /// @inheritdoc ISampleAudits
    function openPrint(uint64 auditId, bytes32 salt, bytes32 print) external {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.NAMED) revert WrongStage(auditId, audit.stage);
        if (block.timestamp > audit.secondUntil) revert TooLate(audit.secondUntil);
        bytes32 shown = Fingerprints.seal(salt, print);
        // INVARIANT: V's fingerprint is the one it has committed to in its verdict.
        if (shown != audit.sealedPrint) revert NotThisPrint(shown, audit.sealedPrint);
        _print(audit, audit.measure.expected, print);
        emit FingerprintOpened(auditId, salt, print);
        _move(auditId, audit, Stage.OPENED, JuryVerdict.Result.NONE);
        juries.open(audit.jury);
    }

    /// @inheritdoc ISampleAudits
    function expire(uint64 auditId) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.NAMED) revert WrongStage(auditId, audit.stage);
        bool first = !audit.late;
        uint40 until = first ? audit.firstUntil : audit.secondUntil;
        // INVARIANT: nobody pays for a deadline that has not passed.
        if (block.timestamp <= until) revert TooEarly(until);
        IAuditTerms.Terms memory t = _termsOf[auditId];
        if (first) audit.late = true;
        else _end(auditId, audit, Stage.DONE, MAX_BPS);
        vault.slash(
            audit.verifier,
            Role.VERIFIER,
            first ? t.lateBps : t.silentBps,
            new IStakeVault.Victim[](0),
            msg.sender,
            t.rewardBps,
            keccak256(abi.encode("verdraft/F7/1", address(this), auditId, first))
        );
    }

    // ------------------------------------------------------------------ the end

    /// @inheritdoc ISampleAudits
    function finish(uint64 auditId) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.OPENED && audit.stage != Stage.PLANTED) {
            revert WrongStage(auditId, audit.stage);
        }
        if (!juries.isOver(audit.jury)) revert StillSitting(auditId);
        if (audit.stage == Stage.OPENED) {
            _end(auditId, audit, Stage.DONE, MAX_BPS);
            return;
        }
        IJuries.Answer[] memory answers = juries.answersOf(audit.jury);
        for (uint256 i; i < answers.length; ++i) {
            if (!_passed(audit, answers[i])) continue;
            audit.firstUntil = uint40(block.timestamp) + _termsOf[auditId].referWindow;
            _move(auditId, audit, Stage.PASSED, JuryVerdict.Result.NONE);
            return;
        }
        _end(auditId, audit, Stage.DONE, MAX_BPS / 2);
    }

    /// @inheritdoc ISampleAudits
    function refer(uint64 auditId, Canary calldata canary) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.PASSED) revert WrongStage(auditId, audit.stage);
        // INVARIANT: the panel takes its bond from whom it is owed by.
        if (msg.sender != audit.by) revert NotPlanter(msg.sender, audit.by);
        if (block.timestamp > audit.firstUntil) revert TooLate(audit.firstUntil);
        _move(auditId, audit, Stage.REFERRED, JuryVerdict.Result.NONE);
        bytes32 content = keccak256(abi.encode(canary));
        if (content != audit.sealedPrint) revert NotThisTicket(content, audit.sealedPrint);
        audit.panelCase = panel.refer(audit.by, audit.model, content, canary.figures, canary.print);
        emit CanaryReferred(auditId, audit.panelCase);
    }

    /// @inheritdoc ISampleAudits
    function conclude(uint64 auditId) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage == Stage.PASSED) {
            if (block.timestamp <= audit.firstUntil) revert TooEarly(audit.firstUntil);
            // Who does not stand by his canary has put people to work for nothing.
            _end(auditId, audit, Stage.DONE, 0);
            return;
        }
        if (audit.stage != Stage.REFERRED) revert WrongStage(auditId, audit.stage);
        IAuditPanel.CaseState memory state = panel.caseOf(audit.panelCase);
        if (state.stage != IAuditPanel.Stage.CLOSED) revert StillSitting(auditId);
        if (state.result == JuryVerdict.Result.GUILTY) {
            _end(auditId, audit, Stage.WRONG, MAX_BPS / 2);
        } else {
            bool right = state.result == JuryVerdict.Result.CLEARED;
            _end(auditId, audit, Stage.DONE, right ? 0 : MAX_BPS / 2);
        }
    }

    /// @inheritdoc ISampleAudits
    function punish(uint64 auditId, address auditor) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.WRONG) revert WrongStage(auditId, audit.stage);
        // INVARIANT: who has called a false session right pays for it, and nobody else does.
        if (!_passed(audit, juries.answerOf(audit.jury, auditor))) revert NothingToPunish(auditor);
        IAuditTerms.Terms memory t = _termsOf[auditId];
        IStakeVault.Slashed memory slashed = vault.slash(
            auditor,
            Role.AUDITOR,
            t.passedBps,
            new IStakeVault.Victim[](0),
            audit.by,
            t.plantedBps,
            keccak256(abi.encode("verdraft/F10/1", address(this), auditId, auditor))
        );
        emit CanaryPassed(auditId, auditor, slashed.total);
    }

    /// @inheritdoc ISampleAudits
    function pay(uint64 auditId, address auditor) external nonReentrant {
        Audit storage audit = _audits[auditId];
        if (audit.stage != Stage.DONE && audit.stage != Stage.WRONG) {
            revert WrongStage(auditId, audit.stage);
        }
        IJuries.Answer memory answer = juries.answerOf(audit.jury, auditor);
        bool owed = answer.commitment != 0 && !isPaid[auditId][auditor];
        if (audit.fee != 0) {
            owed = owed && _agrees(audit, auditor, answer);
        } else if (juries.juryOf(audit.jury).stage == IJuries.Stage.OPENED) {
            owed = owed && answer.revealed;
        }
        // INVARIANT: who has done the work is paid once, and nobody else is.
        if (!owed) revert NothingToPay(auditor);
        isPaid[auditId][auditor] = true;
        _release(auditor, audit.share);
        uint256 fee;
        if (audit.fee != 0) {
            try escrow.spendFees(audit.token, auditor, audit.fee) returns (uint256 spent) {
                fee = spent;
            } catch {}
        }
        emit AuditorPaid(auditId, auditor, audit.share, fee);
    }

    /// @dev The bond goes back to the poster by `bps`, and the rest to those who were put to work. A jury
    /// that nobody will open is released.
    function _end(uint64 auditId, Audit storage audit, Stage stage, uint256 bps) private {
        JuryVerdict.Result result;
        IJuries.Jury memory jury = juries.juryOf(audit.jury);
        if (jury.stage == IJuries.Stage.OPENED) {
            result = JuryVerdict.resultOf(juries.answersOf(audit.jury), audit.measure);
        } else if (jury.stage == IJuries.Stage.SEATED) {
            juries.cancel(audit.jury);
        }
        uint256 bond = _termsOf[auditId].bond;
        uint256 back = bond * bps / MAX_BPS;
        uint256 rest = bond - back;
        _release(audit.by, back);
        uint256 workers = jury.stage == IJuries.Stage.OPENED ? jury.revealed : jury.committed;
        uint256 share = workers == 0 ? 0 : rest / workers;
        audit.share = uint96(share);
        _forfeit(rest - share * workers);
        _move(auditId, audit, stage, result);
    }

    function _move(uint64 auditId, Audit storage audit, Stage stage, JuryVerdict.Result result)
        private
    {
        audit.stage = stage;
        emit AuditMoved(auditId, stage, result);
    }

    function _passed(Audit storage audit, IJuries.Answer memory answer)
        private
        view
        returns (bool)
    {
        return answer.revealed && !answer.withheld && JuryVerdict.passes(answer, audit.measure);
    }

    /// @dev A fingerprint near V's, or near another auditor's: nobody had seen it before.
    function _agrees(Audit storage audit, address auditor, IJuries.Answer memory answer)
        private
        view
        returns (bool)
    {
        if (!answer.revealed || answer.withheld) return false;
        JuryVerdict.Measure memory m = audit.measure;
        if (_near(m, answer.print, m.exact ? m.expected : m.print)) return true;
        address[] memory members = juries.membersOf(audit.jury);
        for (uint256 i; i < members.length; ++i) {
            if (members[i] == auditor) continue;
            IJuries.Answer memory other = juries.answerOf(audit.jury, members[i]);
            if (other.revealed && !other.withheld && _near(m, answer.print, other.print)) {
                return true;
            }
        }
        return false;
    }

    function _near(JuryVerdict.Measure memory m, bytes32 one, bytes32 other)
        private
        pure
        returns (bool)
    {
        return m.exact ? one == other : Fingerprints.distance(one, other) <= m.distance;
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc ISampleAudits
    function ticketOf(Kind kind, bytes32 content, bytes32 salt) public pure returns (bytes32) {
        return keccak256(abi.encode("verdraft/ticket/1", kind, content, salt));
    }

    /// @inheritdoc ISampleAudits
    function auditOf(uint64 auditId) external view returns (Audit memory) {
        return _audits[auditId];
    }

    /// @inheritdoc ISampleAudits
    function termsOf(uint64 auditId) external view returns (IAuditTerms.Terms memory) {
        return _termsOf[auditId];
    }
}
