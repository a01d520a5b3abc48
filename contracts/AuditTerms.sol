// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

import {IAuditTerms} from "./interfaces/IAuditTerms.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";

/// @title AuditTerms
/// @notice All that the owner may set of audits. `SampleAudits` itself has no owner.
contract AuditTerms is IAuditTerms, Ownable2Step {
    uint256 public constant MAX_BPS = 10_000;
    uint256 public constant MAX_SIZE = 8;
    uint32 public constant MAX_SPAN = 30 days;

    IDrawBeacon public immutable beacon;

    Terms private _terms;
    /// @inheritdoc IAuditTerms
    mapping(address token => uint128) public feeOf;

    error ZeroAddress(string what);
    error BadTerm(string what, uint256 value);

    constructor(address owner, IDrawBeacon beacon_, Terms memory terms_) Ownable(owner) {
        if (address(beacon_) == address(0)) revert ZeroAddress("beacon");
        beacon = beacon_;
        _setTerms(terms_);
    }

    /// @notice For tickets entered from now on.
    function setTerms(Terms calldata terms_) external onlyOwner {
        _setTerms(terms_);
    }

    function _setTerms(Terms memory t) private {
        // INVARIANT: auditors are never put to work for nothing.
        if (t.bond == 0) revert BadTerm("bond", t.bond);
        if (t.size == 0 || t.size > MAX_SIZE) revert BadTerm("size", t.size);
        if (t.lateBps > MAX_BPS) revert BadTerm("lateBps", t.lateBps);
        // INVARIANT: a fingerprint kept back to the end costs no less than one that is false.
        if (t.silentBps < beacon.terms().faultBps || t.silentBps > MAX_BPS) {
            revert BadTerm("silentBps", t.silentBps);
        }
        if (t.passedBps == 0 || t.passedBps > MAX_BPS) revert BadTerm("passedBps", t.passedBps);
        // INVARIANT: nor does it where V's friend is the one to call the deadlines and gets the share.
        uint256 lost = t.lateBps + (MAX_BPS - t.lateBps) * uint256(t.silentBps) / MAX_BPS;
        uint256 kept = MAX_BPS - FixedPointMathLib.min(t.rewardBps, MAX_BPS);
        if (lost * kept < uint256(beacon.terms().faultBps) * MAX_BPS) {
            revert BadTerm("rewardBps", t.rewardBps);
        }
        // INVARIANT: who catches himself through a friend loses at least half of what it costs.
        if (t.plantedBps > MAX_BPS / 2) revert BadTerm("plantedBps", t.plantedBps);
        if (t.referWindow == 0 || t.referWindow > MAX_SPAN) {
            revert BadTerm("referWindow", t.referWindow);
        }
        if (t.spans.open == 0 || t.spans.open > MAX_SPAN) revert BadTerm("open", t.spans.open);
        _terms = t;
        emit TermsChanged(t);
    }

    /// @notice What the held fees of `token` pay each auditor of a drawn token, at most.
    function setFee(address token, uint128 fee) external onlyOwner {
        feeOf[token] = fee;
        emit FeeSet(token, fee);
    }

    /// @inheritdoc IAuditTerms
    function terms() external view returns (Terms memory) {
        return _terms;
    }
}
