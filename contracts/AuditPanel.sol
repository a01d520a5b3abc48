// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {Bonded} from "./Bonded.sol";
import {IAuditPanel} from "./interfaces/IAuditPanel.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IModelRegistry} from "./interfaces/IModelRegistry.sol";
import {IPanelTerms} from "./interfaces/IPanelTerms.sol";
import {IPlaceRule} from "./interfaces/IPlaceRule.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Fingerprints} from "./libraries/Fingerprints.sol";
import {JuryVerdict} from "./libraries/JuryVerdict.sol";

/// @title AuditPanel
/// @notice Has drawn auditors run the model again, and has the vault punish what they find.
///
/// @dev What a verdict rests on. A jury errs when more than half of its seats lie alike. With a third of
/// the stake in such hands that is 0.21 of panels of five and 0.09 of appeals of fifteen
/// (`settlement/panels.py` reckons it exactly), and the appeal is the last word: so 0.09 is what is left
/// where the honest side appeals.
///
/// Why accusing oneself never pays. The guilty loses `faultBps` of everything; accuser and victims get
/// back at most half of that (`rewardBps + victimBps ≤ 5,000`). Being cleared bars nobody from accusing
/// again, so nothing is won by filing first and badly; the accuser cannot file badly anyway, because
/// all that is asked follows from the settled root. Of a lost bond half goes to the accused and half to
/// the jurors, who are drawn: so a coalition that clears itself pays for it.
///
/// Why accusing others falsely never pays. The bond is a share of the reward (`PanelTerms.bondAt`),
/// above what a bad jury's chance is worth while a third of the stake lies; an appeal puts down twice
/// that. Stake that is laid down meanwhile asks for no more, and brings the accuser none either.
///
/// Why fees are not drained. They pay the jurors of the one case that settles a fault, by a slash of a
/// stake of the vault's least or more. Of another conviction, of a poor stake or of a round that was paid
/// for meanwhile, the jurors are paid out of the bond of who asked for it.
///
/// Why nothing can be stalled. Each jury's deadlines count from its summons and each step is anyone's
/// to take: a case is over after `PanelTerms.spans` at most, and a step taken late loses its right, not its
/// clock. A jury without a majority of its seats is followed by the appeal's; if that has none either,
/// the panel's verdict stands, or the case is void and the bond goes back.
contract AuditPanel is IAuditPanel, Bonded {
    uint8 public constant WRONG_TARGET = 9;
    uint8 public constant WRONG_CANARY = 10;
    uint8 public constant WRONG_DRAFT = 12;
    uint8 private constant TIER_EXACT = 0;

    ILaneEscrow public immutable escrow;
    IModelRegistry public immutable registry;
    IPlaceRule public immutable rule;
    IJuries public immutable juries;
    IPanelTerms public immutable terms;

    uint64 public caseCount;
    mapping(uint64 caseId => bytes32) public chargeHash;
    mapping(uint64 caseId => CaseState) private _cases;
    mapping(bytes32 place => uint64) public openCase;
    mapping(bytes32 place => uint256) public cleared;
    mapping(uint64 juryId => mapping(address juror => bool)) public isPaid;

    error UnknownFault(uint8 fault);
    error NotReferrer(address caller);
    error EvidenceOver(uint64 until);
    error PoolTooSmall(uint256 stake, uint256 needed);
    error AlreadyOpen(uint64 caseId);
    error AlreadyPunished(bytes32 fault);
    error NotThisCharge(bytes32 shown, bytes32 kept);
    error WrongStage(uint64 caseId, Stage stage);
    error NotThisPrint(bytes32 shown, bytes32 kept);
    error StillSitting(uint64 juryId);
    error TooLate(uint40 until);
    error TooEarly(uint40 until);
    error NothingToPay(address juror);

    constructor(
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IModelRegistry registry_,
        IPlaceRule rule_,
        IJuries juries_,
        IPanelTerms terms_
    ) Bonded(vault_) {
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        if (address(registry_) == address(0)) revert ZeroAddress("registry");
        if (address(rule_) == address(0)) revert ZeroAddress("rule");
        if (address(juries_) == address(0)) revert ZeroAddress("juries");
        if (address(terms_) == address(0)) revert ZeroAddress("terms");
        (escrow, registry, rule) = (escrow_, registry_, rule_);
        (juries, terms) = (juries_, terms_);
    }

    // ------------------------------------------------------------------ filing

    /// @inheritdoc IAuditPanel
    function accuse(uint8 fault, bytes calldata place)
        external
        nonReentrant
        returns (uint64 caseId)
    {
        if (fault != WRONG_TARGET && fault != WRONG_DRAFT) {
            revert UnknownFault(fault);
        }
        bool target = fault == WRONG_TARGET;
        Charge memory charge;
        (charge.fault, charge.accuser) = (fault, msg.sender);
        charge.subject =
            _ask(target ? IPlaceRule.verdictPlace.selector : IPlaceRule.draftPlace.selector, place);
        charge.accused = target ? charge.subject.verifier : charge.subject.drafter;
        // INVARIANT: the last verdict comes while the stake that served the batch is still held.
        if (block.timestamp > charge.subject.until) revert EvidenceOver(charge.subject.until);
        bytes32 name =
            _faultName(fault, charge.accused, charge.subject.startHash, charge.subject.round);
        // INVARIANT: a fault that is paid for is not tried again.
        if (_isPunished(name)) revert AlreadyPunished(name);
        caseId = _file(charge, target);
    }

    /// @dev The rule's answer; its revert where it refuses.
    function _ask(bytes4 function_, bytes calldata place)
        private
        view
        returns (IPlaceRule.Subject memory)
    {
        (bool held, bytes memory answer) =
            address(rule).staticcall(abi.encodePacked(function_, place));
        if (!held) {
            assembly ("memory-safe") {
                revert(add(answer, 0x20), mload(answer))
            }
        }
        return abi.decode(answer, (IPlaceRule.Subject));
    }

    /// @inheritdoc IAuditPanel
    function refer(address planter, bytes32 model, bytes32 content, bytes32 figures, bytes32 print)
        external
        nonReentrant
        returns (uint64 caseId)
    {
        // INVARIANT: nobody stakes a bond in another's name.
        if (!terms.isReferrer(msg.sender)) revert NotReferrer(msg.sender);
        Charge memory charge;
        (charge.fault, charge.accuser) = (WRONG_CANARY, planter);
        IPlaceRule.Subject memory s = charge.subject;
        (s.model, s.sealedPrint, s.figures) = (model, content, figures);
        (s.token, s.settledAt) = (bondToken, uint64(block.timestamp));
        caseId = _file(charge, false);
        CaseState storage state = _cases[caseId];
        (state.printed, state.print) = (true, print);
    }

    function _file(Charge memory charge, bool waits) private returns (uint64 caseId) {
        caseId = ++caseCount;
        bytes32 place = placeOf(charge.fault, charge.subject);
        // INVARIANT: one jury at a time for one question; the answers would be the same.
        if (openCase[place] != 0) revert AlreadyOpen(openCase[place]);
        openCase[place] = caseId;
        (charge.caseId, charge.filedAt) = (caseId, uint40(block.timestamp));
        charge.terms = terms.termsAt(charge.subject.settledAt);
        charge.bond = bondFor(place, charge.fault, charge.accused, charge.subject.settledAt);
        uint256 stake = juries.pool().totalAt(charge.subject.model, block.number);
        // INVARIANT: no few auditors judge anyone because nobody else has come.
        if (stake < charge.terms.minPool) revert PoolTooSmall(stake, charge.terms.minPool);
        charge.fee = terms.feeOf(charge.subject.token);
        (uint8 tier,,,) = registry.facts(charge.subject.model);
        charge.exact = tier == TIER_EXACT;
        if (!charge.exact) {
            IModelRegistry.Tolerance memory tolerance =
                registry.toleranceAt(charge.subject.model, charge.subject.settledAt);
            (charge.margin, charge.distance) = (tolerance.marginQ24, tolerance.distance);
            if (charge.fault == WRONG_CANARY) {
                // INVARIANT: a canary is wrong by far, so that no honest auditor takes it for right.
                charge.margin = _twice(charge.margin);
                charge.distance = _twice(charge.distance);
            }
        }
        chargeHash[caseId] = keccak256(abi.encode(charge));
        CaseState storage state = _cases[caseId];
        state.stage = Stage.PANEL;
        IPlaceRule.Subject memory s = charge.subject;
        state.panel = _summon(
            state,
            s.model,
            charge.terms,
            [s.client, s.drafter, s.verifier, charge.accuser, address(0)],
            waits
        );
        emit CaseFiled(caseId, charge.accused, charge.accuser, charge);
        _takeBond(charge.accuser, charge.bond);
    }

    /// @param parties Everybody who has a part in the case is left out of its jury.
    function _summon(
        CaseState storage state,
        bytes32 model,
        IPanelTerms.Terms memory t,
        address[5] memory parties,
        bool waits
    ) private returns (uint64) {
        state.openUntil =
            uint40(block.timestamp) + t.spans.seat + t.spans.commit + t.spans.open;
        address[] memory out = new address[](5);
        for (uint256 i; i < 5; ++i) {
            out[i] = parties[i];
        }
        uint8 size = state.panel == 0 ? t.panelSize : t.appealSize;
        return juries.summon(model, out, size, t.spans, state.panel, waits);
    }

    // ------------------------------------------------------------------ the course of a case

    /// @inheritdoc IAuditPanel
    function openPrint(Charge calldata charge, bytes32 salt, bytes32 print) external {
        CaseState storage state = _requireCharge(charge);
        if (state.stage != Stage.PANEL && state.stage != Stage.APPEAL) {
            revert WrongStage(charge.caseId, state.stage);
        }
        if (block.timestamp > state.openUntil) revert TooLate(state.openUntil);
        bytes32 shown = Fingerprints.seal(salt, print);
        // INVARIANT: V's fingerprint is the one it has committed to in its verdict.
        if (state.printed || shown != charge.subject.sealedPrint) {
            revert NotThisPrint(shown, charge.subject.sealedPrint);
        }
        (state.printed, state.print) = (true, print);
        emit PrintOpened(charge.caseId, salt, print);
        juries.open(_jury(state));
    }

    /// @inheritdoc IAuditPanel
    function decide(Charge calldata charge) external nonReentrant {
        CaseState storage state = _requireCharge(charge);
        if (state.stage != Stage.PANEL && state.stage != Stage.APPEAL) {
            revert WrongStage(charge.caseId, state.stage);
        }
        uint64 jury = _jury(state);
        (JuryVerdict.Result result, uint256 seated) = _verdict(charge, state, jury);
        if (state.stage == Stage.APPEAL) {
            emit CaseDecided(charge.caseId, jury, result, 0);
            _close(charge, state, result);
            return;
        }
        uint256 last =
            uint256(charge.filedAt) + terms.spanOf(charge.terms) + charge.terms.appealWindow;
        if (result != JuryVerdict.Result.VOID) {
            state.result = result;
            state.stage = Stage.DECIDED;
            // INVARIANT: deciding late moves no deadline.
            state.appealUntil =
                uint40(FixedPointMathLib.min(block.timestamp + charge.terms.appealWindow, last));
            emit CaseDecided(charge.caseId, jury, result, state.appealUntil);
            return;
        }
        emit CaseDecided(charge.caseId, jury, result, 0);
        if (seated < charge.terms.minSeated || block.timestamp > last) {
            _close(charge, state, result);
            return;
        }
        // A jury that has said nothing is followed by the larger one, at nobody's bond.
        _startAppeal(charge, state);
    }

    /// @inheritdoc IAuditPanel
    function appeal(Charge calldata charge) external nonReentrant {
        CaseState storage state = _requireCharge(charge);
        // INVARIANT: there is one appeal, so there is an end.
        if (state.stage != Stage.DECIDED) revert WrongStage(charge.caseId, state.stage);
        if (block.timestamp > state.appealUntil) revert TooLate(state.appealUntil);
        uint96 bond = 2 * charge.bond;
        (state.appellant, state.appealBond) = (msg.sender, bond);
        _startAppeal(charge, state);
        _takeBond(msg.sender, bond);
    }

    function _startAppeal(Charge calldata charge, CaseState storage state) private {
        state.stage = Stage.APPEAL;
        IPlaceRule.Subject calldata s = charge.subject;
        state.appeal = _summon(
            state,
            s.model,
            charge.terms,
            [s.client, s.drafter, s.verifier, charge.accuser, state.appellant],
            charge.fault == WRONG_TARGET && !state.printed
        );
        emit CaseAppealed(charge.caseId, state.appellant, state.appealBond, state.appeal);
    }

    /// @inheritdoc IAuditPanel
    function conclude(Charge calldata charge) external nonReentrant {
        CaseState storage state = _requireCharge(charge);
        if (state.stage != Stage.DECIDED) revert WrongStage(charge.caseId, state.stage);
        // INVARIANT: nobody is punished while he may still appeal.
        if (block.timestamp <= state.appealUntil) revert TooEarly(state.appealUntil);
        _close(charge, state, state.result);
    }

    /// @dev The jury's result, and how many sat. V's silence, after most have committed, is a result.
    function _verdict(Charge calldata charge, CaseState storage state, uint64 jury)
        private
        returns (JuryVerdict.Result result, uint256 seated)
    {
        uint256 committed;
        bool waits;
        (seated, committed, waits) = juries.seatsOf(jury);
        if (!juries.isOver(jury)) {
            bool silent = waits && !state.printed && block.timestamp > state.openUntil;
            if (!silent) revert StillSitting(jury);
            juries.cancel(jury);
            result = 2 * committed > seated ? JuryVerdict.Result.WITHHELD : JuryVerdict.Result.VOID;
        } else {
            result = JuryVerdict.resultOf(juries.answersOf(jury), _measure(charge, state));
        }
        if (seated < charge.terms.minSeated) result = JuryVerdict.Result.VOID;
        if (result == JuryVerdict.Result.WITHHELD && charge.fault != WRONG_TARGET) {
            // A planter has to deliver its canary. What V keeps back is not D's fault.
            result =
                charge.fault == WRONG_CANARY ? JuryVerdict.Result.CLEARED : JuryVerdict.Result.VOID;
        }
    }

    function _measure(Charge calldata charge, CaseState storage state)
        private
        view
        returns (JuryVerdict.Measure memory m)
    {
        (m.exact, m.printed, m.print) = (charge.exact, state.printed, state.print);
        (m.margin, m.distance) = (charge.margin, charge.distance);
        bytes32 figures = charge.subject.figures;
        m.expected =
            charge.fault == WRONG_DRAFT ? figures : keccak256(abi.encode(figures, state.print));
    }

    // ------------------------------------------------------------------ the end of a case

    /// @param last What the last jury said. Where an appeal's says nothing, the panel's stands.
    function _close(Charge calldata charge, CaseState storage state, JuryVerdict.Result last)
        private
    {
        JuryVerdict.Result first = state.result;
        JuryVerdict.Result result = last;
        if (last == JuryVerdict.Result.VOID && first != JuryVerdict.Result.NONE) result = first;
        bytes32 place = placeOf(charge.fault, charge.subject);
        delete openCase[place];
        state.stage = Stage.CLOSED;
        state.result = result;

        uint256 pot;
        uint256 slashed;
        bool guilty = _isGuilty(result);
        if (guilty) (slashed, state.settled) = _punish(charge, result, cleared[place]);
        if (state.appellant != address(0)) {
            // Lost where the appeal has found what the panel had.
            bool lost = last != JuryVerdict.Result.VOID && _isGuilty(first) == guilty;
            address other = guilty ? charge.accuser : charge.accused;
            if (lost) pot = _lose(state.appealBond, other);
            else _release(state.appellant, state.appealBond);
        }
        if (result == JuryVerdict.Result.CLEARED) {
            ++cleared[place];
            pot += _lose(charge.bond, charge.accused);
        } else {
            // INVARIANT: jurors of a conviction that settles nothing are paid by who has asked for it.
            uint256 pay = guilty && !state.settled ? _jurorsPay(charge, state, pot) : 0;
            _release(charge.accuser, charge.bond - pay);
            pot += pay;
        }
        _divide(state, pot);
        emit CaseClosed(charge.caseId, result, slashed);
    }

    /// @dev Of the accuser's bond: what the fees would have paid, less what there is already.
    function _jurorsPay(Charge calldata charge, CaseState storage state, uint256 pot)
        private
        view
        returns (uint256)
    {
        uint256 pay = escrow.inStakeUnits(charge.subject.token, charge.fee) * _jurors(state);
        return FixedPointMathLib.min(FixedPointMathLib.zeroFloorSub(pay, pot), charge.bond);
    }

    /// @dev Half to the other side, where there is one; the rest is the jurors'.
    function _lose(uint256 bond, address other) private returns (uint256 rest) {
        uint256 half = other == address(0) ? 0 : bond / 2;
        _release(other, half);
        return bond - half;
    }

    function _divide(CaseState storage state, uint256 pot) private {
        if (pot == 0) return;
        uint256 jurors = _jurors(state);
        uint256 share = jurors == 0 ? 0 : pot / jurors;
        // Below a bond, which has 96 bits, and its double.
        state.share = uint96(FixedPointMathLib.min(share, type(uint96).max));
        _forfeit(pot - state.share * jurors);
    }

    /// @dev After the last verdict. What the vault takes depends on what is there, and nothing reverts.
    /// @return slashed Units of stake.
    /// @return settled Whether this case has settled its fault. A canary's passers pay on their own.
    function _punish(Charge calldata charge, JuryVerdict.Result result, uint256 cleared_)
        private
        returns (uint256 slashed, bool settled)
    {
        if (charge.fault == WRONG_CANARY) return (0, true);
        bytes32 name = _nameOf(charge, result);
        // INVARIANT: one fault pays the jurors of one case, whatever number was filed.
        if (_isPunished(name)) return (0, false);
        Role role = _role(charge.fault);
        (uint256 rewardBps, IStakeVault.Victim[] memory victims) = _shares(charge, cleared_);
        slashed =
        vault.slash(
            charge.accused, role, charge.terms.faultBps, victims, charge.accuser, rewardBps, name
        )
        .total;
        settled = _isPunished(name);
    }

    /// @dev Who has lost by the fault, and what the accuser gets of the slash.
    function _shares(Charge calldata charge, uint256 cleared_)
        private
        view
        returns (uint256 rewardBps, IStakeVault.Victim[] memory victims)
    {
        IPlaceRule.Subject calldata s = charge.subject;
        victims = new IStakeVault.Victim[](2);
        (victims[0].who, victims[1].who) = (s.client, s.drafter);
        (rewardBps, victims[0].amount, victims[1].amount) = terms.sharesOf(
            s.settledAt,
            charge.bond,
            cleared_,
            vault.slashable(charge.accused, _role(charge.fault)),
            escrow.inStakeUnits(s.token, s.clientLoss),
            escrow.inStakeUnits(s.token, s.drafterLoss)
        );
    }

    /// @inheritdoc IAuditPanel
    function payJuror(Charge calldata charge, bool ofAppeal, address juror) external nonReentrant {
        CaseState storage state = _requireCharge(charge);
        if (state.stage != Stage.CLOSED) revert WrongStage(charge.caseId, state.stage);
        uint64 jury = ofAppeal ? state.appeal : state.panel;
        // INVARIANT: who has answered is paid once, and nobody else is.
        if (!juries.hasAnswered(jury, juror) || isPaid[jury][juror]) revert NothingToPay(juror);
        isPaid[jury][juror] = true;
        _release(juror, state.share);
        uint256 fee;
        // INVARIANT: no case that cost nobody a stake is paid out of what other lanes have paid.
        if (state.settled) {
            // The right to spend fees is the owner's to take away; shares are paid all the same.
            try escrow.spendFees(charge.subject.token, juror, charge.fee) returns (uint256 spent) {
                fee = spent;
            } catch {}
        }
        emit JurorPaid(charge.caseId, juror, state.share, fee);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IAuditPanel
    function caseOf(uint64 caseId) external view returns (CaseState memory) {
        return _cases[caseId];
    }

    /// @inheritdoc IAuditPanel
    function bondFor(bytes32 place, uint8 fault, address accused, uint64 settledAt)
        public
        view
        returns (uint96)
    {
        return terms.bondAt(settledAt, accused, _role(fault), cleared[place]);
    }

    /// @notice Names what a case is about: one case at a time may be.
    function placeOf(uint8 fault, IPlaceRule.Subject memory s) public pure returns (bytes32) {
        return keccak256(abi.encode(fault, s.startHash, s.round, s.within, s.sealedPrint));
    }

    // ------------------------------------------------------------------ inside

    function _requireCharge(Charge calldata charge) private view returns (CaseState storage) {
        bytes32 shown = keccak256(abi.encode(charge));
        bytes32 kept = chargeHash[charge.caseId];
        // INVARIANT: a case goes on under what it was filed with.
        if (shown != kept) revert NotThisCharge(shown, kept);
        return _cases[charge.caseId];
    }

    function _jury(CaseState storage state) private view returns (uint64) {
        return state.appeal == 0 ? state.panel : state.appeal;
    }

    function _isPunished(bytes32 name) private view returns (bool) {
        return vault.punished(name);
    }

    /// @dev What the case punishes.
    function _nameOf(Charge calldata charge, JuryVerdict.Result result)
        private
        view
        returns (bytes32)
    {
        // INVARIANT: silence before a panel costs what the fault would, under a name of its own.
        return result == JuryVerdict.Result.WITHHELD
            ? keccak256(abi.encode("verdraft/F7/1", address(this), charge.caseId, false))
            : _faultName(
                charge.fault, charge.accused, charge.subject.startHash, charge.subject.round
            );
    }

    /// @dev Under the name that every judge gives a fault of that round.
    function _faultName(uint8 fault, address accused, bytes32 startHash, uint32 round)
        private
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode("verdraft/fault/1", fault, accused, startHash, round));
    }

    function _role(uint8 fault) private pure returns (Role) {
        return fault == WRONG_DRAFT ? Role.DRAFTER : Role.VERIFIER;
    }

    function _twice(uint64 value) private pure returns (uint64) {
        return value > type(uint64).max / 2 ? type(uint64).max : 2 * value;
    }

    function _isGuilty(JuryVerdict.Result result) private pure returns (bool) {
        return result == JuryVerdict.Result.GUILTY || result == JuryVerdict.Result.WITHHELD;
    }

    function _jurors(CaseState storage state) private view returns (uint256 jurors) {
        jurors = juries.answeredIn(state.panel);
        if (state.appeal != 0) jurors += juries.answeredIn(state.appeal);
    }
}
