// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Evidence} from "../libraries/Evidence.sol";
import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ExactFaults} from "../libraries/ExactFaults.sol";
import {Records} from "../libraries/Records.sol";
import {Traces} from "../libraries/Traces.sol";
import {ExactElementWork} from "./ExactElementWork.sol";

/// @notice One element of a trace against the row and the input it comes from. Values and shapes of all
/// seven matrices are compared with Python's in `tests/contracts/test_parity_exact.py`.
contract ExactDisputeElementTest is ExactElementWork {
    function _gate() private view returns (ExactEvidence.ElementCase memory) {
        return _elementOf(4, D, F, Traces.NORM_MID, Traces.GATE);
    }

    function test_AnElementThatIsNotItsRowTimesItsInputIsVs() public view {
        ExactEvidence.ElementCase memory e = _gate();
        e.trace.round = 3;
        e.traceSignature = _sign(verifier.key, ExactEvidence.hash(e.trace));
        Evidence.Ruling memory r = exactRule.element(e, _separator());
        assertEq(r.fault, 9);
        assertEq(r.code, ExactFaults.ELEMENT);
        assertEq(r.guilty, verifier.addr);
        assertFalse(r.drafter);
        assertEq(r.startHash, Records.hash(e.start));
        assertEq(r.round, 3);
        assertEq(r.client, client.addr);
        assertEq(r.clientLoss, 3 ether, "what C has paid V for the position");
    }

    function test_AnHonestElementAccusesNobody() public {
        _isRight = true;
        ExactEvidence.ElementCase memory e = _gate();
        bytes32 separator = _separator();
        vm.expectRevert(Evidence.NoFault.selector);
        exactRule.element(e, separator);
    }

    function test_ATraceThatVHasNotSignedAccusesNobody() public {
        ExactEvidence.ElementCase memory e = _elementOf(0, D, D, Traces.NORM, Traces.QUERY);
        bytes32 separator = _separator();
        exactRule.element(e, separator);
        e.traceSignature = _sign(drafter.key, ExactEvidence.hash(e.trace));
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        exactRule.element(e, separator);
    }

    function test_NothingIsTakenFromAnotherPlace() public {
        ExactEvidence.ElementCase memory e = _gate();
        bytes32 separator = _separator();
        e.layer = 30;
        vm.expectRevert(abi.encodeWithSelector(Evidence.NoSuchPlace.selector, "layer", 30, 30));
        exactRule.element(e, separator);
        (e.layer, e.matrix) = (7, 7);
        vm.expectRevert(abi.encodeWithSelector(ExactFaults.NoSuchMatrix.selector, 7));
        exactRule.element(e, separator);
        (e.matrix, e.element) = (4, F);
        vm.expectRevert();
        exactRule.element(e, separator);
        e.element = F / 2 + 1;
        vm.expectRevert();
        exactRule.element(e, separator);
        (e.element, e.position) = (F / 2, 701);
        vm.expectRevert();
        exactRule.element(e, separator);
        e.position = 700;
        exactRule.element(e, separator);
        e.input.data[5] ^= 0x01;
        vm.expectRevert();
        exactRule.element(e, separator);
    }
}
