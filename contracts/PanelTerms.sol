// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IJudgeClock} from "./interfaces/IJudgeClock.sol";
import {IPanelTerms} from "./interfaces/IPanelTerms.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

/// @title PanelTerms
/// @notice All that the owner may set of the panel, by the time it came into force: a batch is judged by
/// the terms under which it was settled. The panel itself has no owner.
contract PanelTerms is IPanelTerms, IJudgeClock, Ownable2Step {
    uint256 public constant MAX_BPS = 10_000;
    /// @notice Of a slash, to accuser and victims together.
    uint256 public constant MAX_RETURN_BPS = 5_000;
    uint256 public constant MAX_JURY = 15;
    /// @notice After so many clearances of a place its bond doubles no more.
    uint256 public constant MAX_DOUBLINGS = 16;
    /// @notice Least share of an accuser's reward that it puts down. With a third of the auditors' stake
    /// behind a false accuser who gets back what its own jurors share of lost bonds, an appeal's jury of
    /// fifteen errs with 0.088: the accusation loses from 0.046 of the reward on, and from 0.092 if what
    /// victims get is its own as well (`settlement.panels.least_bond`).
    uint256 public constant MIN_BOND_BPS = 1_000;

    IStakeVault public immutable vault;
    IDrawBeacon public immutable beacon;

    struct Version {
        uint64 since;
        Terms terms;
    }

    Version[] private _versions;
    /// @inheritdoc IPanelTerms
    mapping(address token => uint128) public feeOf;
    /// @inheritdoc IPanelTerms
    mapping(address referrer => bool) public isReferrer;

    error ZeroAddress(string what);
    error BadTerm(string what, uint256 value);
    error TakesTooLong(string what, uint256 span, uint256 held);

    constructor(address owner, IStakeVault vault_, IDrawBeacon beacon_, Terms memory terms_)
        Ownable(owner)
    {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        (vault, beacon) = (vault_, beacon_);
        _setTerms(terms_);
    }

    /// @notice For cases on batches settled from now on.
    function setTerms(Terms calldata terms_) external onlyOwner {
        _setTerms(terms_);
    }

    /// @notice What the fees of `token` pay each juror of a true case filed from now on.
    function setFee(address token, uint128 fee) external onlyOwner {
        feeOf[token] = fee;
        emit FeeSet(token, fee);
    }

    /// @notice Lets a contract ask about canaries, or no longer.
    function setReferrer(address referrer, bool allowed) external onlyOwner {
        if (referrer == address(0)) revert ZeroAddress("referrer");
        isReferrer[referrer] = allowed;
        emit ReferrerSet(referrer, allowed);
    }

    function _setTerms(Terms memory t) private {
        // INVARIANT: accusing is never free, and doubling the bond of an appeal overflows nothing.
        if (t.bond == 0 || t.bond > type(uint96).max / 2) revert BadTerm("bond", t.bond);
        // INVARIANT: a false accusation costs more than a bad jury may bring it.
        if (t.bondBps < MIN_BOND_BPS || t.bondBps > MAX_BPS) revert BadTerm("bondBps", t.bondBps);
        // INVARIANT: chance of a draw × slash is what the draws reckon with, and no less: they ask
        // for chance × `faultBps` ≥ 2 × what a lie can bring (DrawBeacon.chanceOf).
        if (t.faultBps < beacon.terms().faultBps || t.faultBps > MAX_BPS) {
            revert BadTerm("faultBps", t.faultBps);
        }
        // INVARIANT: at least half of every slash is lost to everyone.
        if (uint256(t.rewardBps) + t.victimBps > MAX_RETURN_BPS) {
            revert BadTerm("rewardBps + victimBps", uint256(t.rewardBps) + t.victimBps);
        }
        if (t.panelSize == 0 || t.panelSize > MAX_JURY) revert BadTerm("panelSize", t.panelSize);
        // INVARIANT: the second word is that of more.
        if (t.appealSize < t.panelSize || t.appealSize > MAX_JURY) {
            revert BadTerm("appealSize", t.appealSize);
        }
        if (t.minSeated == 0 || t.minSeated > t.panelSize) {
            revert BadTerm("minSeated", t.minSeated);
        }
        // INVARIANT: a pool that nobody has joined judges nobody.
        if (t.minPool == 0) revert BadTerm("minPool", 0);
        if (t.appealWindow == 0) revert BadTerm("appealWindow", 0);
        if (t.spans.seat == 0 || t.spans.commit == 0 || t.spans.open == 0 || t.spans.reveal == 0) {
            revert BadTerm("spans", 0);
        }
        // INVARIANT: unbonding ≥ evidence + both deadlines + panel + appeal + margin, with what a
        // panel and its appeal really take. The vault asks the same of `spans` when its own change.
        IStakeVault.Times memory times = vault.times();
        uint256 span = spanOf(t);
        if (span > times.panel) revert TakesTooLong("panel", span, times.panel);
        if (span + t.appealWindow > times.appeal) {
            revert TakesTooLong("appeal", span + t.appealWindow, times.appeal);
        }
        _versions.push(Version(uint64(block.timestamp), t));
        emit TermsChanged(t, uint64(block.timestamp));
    }

    /// @inheritdoc IPanelTerms
    function terms() external view returns (Terms memory) {
        return _versions[_versions.length - 1].terms;
    }

    /// @inheritdoc IPanelTerms
    function termsAt(uint64 timestamp) public view returns (Terms memory) {
        uint256 low;
        uint256 high = _versions.length;
        while (low < high) {
            uint256 middle = (low + high) / 2;
            if (_versions[middle].since <= timestamp) low = middle + 1;
            else high = middle;
        }
        // What was settled before there was a panel is judged by its first terms.
        return _versions[low == 0 ? 0 : low - 1].terms;
    }

    /// @inheritdoc IPanelTerms
    function bondAt(uint64 settledAt, address accused, Role role, uint256 cleared)
        external
        view
        returns (uint96)
    {
        Terms memory t = termsAt(settledAt);
        uint256 slash = vault.seasoned(accused, role) * t.faultBps / MAX_BPS;
        uint256 bond = FixedPointMathLib.divUp(
            FixedPointMathLib.divUp(slash * t.rewardBps, MAX_BPS) * t.bondBps, MAX_BPS
        );
        bond = FixedPointMathLib.max(t.bond, bond) << FixedPointMathLib.min(cleared, MAX_DOUBLINGS);
        return uint96(FixedPointMathLib.min(bond, type(uint96).max / 2));
    }

    /// @inheritdoc IPanelTerms
    function sharesOf(
        uint64 settledAt,
        uint256 bond,
        uint256 cleared,
        uint256 stake,
        uint256 client,
        uint256 drafter
    ) external view returns (uint256 rewardBps, uint256 toClient, uint256 toDrafter) {
        Terms memory t = termsAt(settledAt);
        uint256 whole = stake * t.faultBps / MAX_BPS;
        uint256 answered = whole;
        rewardBps = t.rewardBps;
        if (rewardBps != 0) {
            uint256 reward =
                (bond >> FixedPointMathLib.min(cleared, MAX_DOUBLINGS)) * MAX_BPS / t.bondBps;
            answered = FixedPointMathLib.min(whole, reward * MAX_BPS / rewardBps);
            // INVARIANT: an accuser wins no more than its bond was a share of.
            if (answered < whole) rewardBps = rewardBps * answered / whole;
        }
        (toClient, toDrafter) = (client, drafter);
        uint256 sum = client + drafter;
        uint256 most = answered * t.victimBps / MAX_BPS;
        if (sum > most) {
            // INVARIANT: prices that a session's parties made up bring them no more than this.
            toClient = FixedPointMathLib.fullMulDiv(client, most, sum);
            toDrafter = FixedPointMathLib.fullMulDiv(drafter, most, sum);
        }
    }

    /// @inheritdoc IJudgeClock
    function spans() external view returns (uint256 panel, uint256 appealed) {
        Terms storage t = _versions[_versions.length - 1].terms;
        panel = spanOf(t);
        appealed = panel + t.appealWindow;
    }

    /// @inheritdoc IPanelTerms
    function spanOf(Terms memory t) public pure returns (uint256) {
        return uint256(t.spans.seat) + t.spans.commit + t.spans.open + t.spans.reveal;
    }
}
