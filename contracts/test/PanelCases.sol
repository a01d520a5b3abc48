// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {PanelWork} from "./PanelWork.sol";

/// @notice Cases of the panel: what they came to.
abstract contract PanelCases is PanelWork {
    uint64 internal constant LEDGER_CASE = 3;

    function setUp() public virtual override {
        super.setUp();
        _auditors(24);
    }

    function _result(IAuditPanel.Charge memory c) internal view returns (JuryVerdict.Result) {
        return panel.caseOf(c.caseId).result;
    }

    function _assertResult(IAuditPanel.Charge memory c, JuryVerdict.Result result) internal view {
        assertEq(uint8(_result(c)), uint8(result));
    }

    function _stageOf(IAuditPanel.Charge memory c) internal view returns (IAuditPanel.Stage) {
        return panel.caseOf(c.caseId).stage;
    }

    /// @dev The ledger's case, as the panel and its judge ask for it.
    function _ledgerCase(IAlphaLedger.Stage stage, address who, bytes32 claim, uint64 openedAt)
        internal
    {
        IAlphaLedger.Case memory opened;
        (opened.stage, opened.verifier, opened.claimId) = (stage, who, claim);
        opened.openedAt = openedAt;
        vm.mockCall(
            address(ledger), abi.encodeCall(IAlphaLedger.caseOf, (LEDGER_CASE)), abi.encode(opened)
        );
    }

    function _name(uint8 fault, address guilty, IAuditPanel.Charge memory c)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(
            abi.encode("verdraft/fault/1", fault, guilty, c.subject.startHash, c.subject.round)
        );
    }
}
