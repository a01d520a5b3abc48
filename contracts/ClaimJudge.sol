// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAlphaLedger} from "./interfaces/IAlphaLedger.sol";
import {IAuditPanel} from "./interfaces/IAuditPanel.sol";
import {IClaimJudge} from "./interfaces/IClaimJudge.sol";
import {IPlaceRule} from "./interfaces/IPlaceRule.sol";
import {JuryVerdict} from "./libraries/JuryVerdict.sol";
import {Records} from "./libraries/Records.sol";

/// @title ClaimJudge
/// @notice Tells AlphaLedger's cases what the panel has found. Has no will of its own: anyone may call.
/// @dev It upholds nothing: that one draft was cleared does not say that the others were the model's, and
/// a guilty drafter could have an honest draft cleared to have its case closed. An assertion that is
/// not refuted stands at the case's own deadline.
contract ClaimJudge is IClaimJudge {
    uint8 private constant WRONG_TARGET = 9;
    uint8 private constant WRONG_DRAFT = 12;

    IAuditPanel public immutable panel;
    IAlphaLedger public immutable ledger;
    mapping(uint64 ledgerCase => mapping(bytes32 record => bool)) public isExcluded;

    error ZeroAddress(string what);
    error NotThisCharge(bytes32 shown, bytes32 kept);
    error NotConvicted(uint64 caseId, uint8 fault, JuryVerdict.Result result);
    error NotInThisCase(uint64 ledgerCase);
    error NotThisRound(bytes32 shown, bytes32 kept);
    error AlreadyExcluded(uint64 ledgerCase, bytes32 record);

    constructor(IAuditPanel panel_, IAlphaLedger ledger_) {
        if (address(panel_) == address(0)) revert ZeroAddress("panel");
        if (address(ledger_) == address(0)) revert ZeroAddress("ledger");
        (panel, ledger) = (panel_, ledger_);
    }

    /// @inheritdoc IClaimJudge
    function refute(IAuditPanel.Charge calldata charge, uint64 ledgerCase) external {
        _requireConvicted(charge, WRONG_DRAFT);
        _requireInCase(charge.subject, ledgerCase);
        ledger.refute(ledgerCase);
    }

    /// @inheritdoc IClaimJudge
    function exclude(
        IAuditPanel.Charge calldata charge,
        Records.RoundRecord calldata record,
        uint64 ledgerCase
    ) external {
        _requireConvicted(charge, WRONG_TARGET);
        _requireInCase(charge.subject, ledgerCase);
        bytes32 shown = Records.leaf(record);
        if (shown != charge.subject.record) revert NotThisRound(shown, charge.subject.record);
        // INVARIANT: a false round is taken out once, however many of its tokens were false.
        if (isExcluded[ledgerCase][shown]) revert AlreadyExcluded(ledgerCase, shown);
        isExcluded[ledgerCase][shown] = true;
        ledger.exclude(ledgerCase, Records.sums(record));
    }

    function _requireConvicted(IAuditPanel.Charge calldata charge, uint8 fault) private view {
        bytes32 shown = keccak256(abi.encode(charge));
        bytes32 kept = panel.chargeHash(charge.caseId);
        if (shown != kept) revert NotThisCharge(shown, kept);
        IAuditPanel.CaseState memory state = panel.caseOf(charge.caseId);
        // INVARIANT: the ledger hears of what a closed case has found, and of nothing else.
        if (
            state.stage != IAuditPanel.Stage.CLOSED || charge.fault != fault
                || state.result != JuryVerdict.Result.GUILTY
        ) revert NotConvicted(charge.caseId, charge.fault, state.result);
    }

    /// @dev That a round was counted in the series which a ledger case is about, before it was opened.
    function _requireInCase(IPlaceRule.Subject calldata subject, uint64 ledgerCase) private view {
        IAlphaLedger.Case memory opened = ledger.caseOf(ledgerCase);
        // INVARIANT: a round speaks about its own claim, and its own verifier's counts.
        if (
            opened.claimId != subject.claimId || subject.settledAt > opened.openedAt
                || (opened.verifier != address(0) && opened.verifier != subject.verifier)
        ) revert NotInThisCase(ledgerCase);
    }
}
