// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../interfaces/ICourt.sol";
import {IStakeVault} from "../interfaces/IStakeVault.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Records} from "../libraries/Records.sol";
import {CourtWork} from "./CourtWork.sol";

/// @notice What proofs end in.
abstract contract ProofWork is CourtWork {
    /// @dev The ruling that the next proof must end in.
    function _expect(uint8 fault, uint8 code, address guilty, bytes32 startHash, uint32 round)
        internal
    {
        vm.expectEmit(true, true, true, false, address(court));
        IStakeVault.Slashed memory any;
        emit ICourt.FaultProven(fault, guilty, challenger, code, startHash, round, any);
    }

    function _assertRuling(
        Evidence.Ruling memory r,
        uint8 fault,
        uint8 code,
        address guilty,
        Session memory s,
        uint256 index
    ) internal pure {
        assertEq(r.fault, fault, "fault");
        assertEq(r.code, code, "code");
        assertEq(r.guilty, guilty, "guilty");
        assertEq(r.startHash, Records.hash(s.start), "start");
        assertEq(r.round, s.rounds[index].verdict.round, "round");
    }

    function _finds(Evidence.LeafPair memory e, uint8 code, Session memory s, uint256 index)
        internal
        view
    {
        _assertRuling(roundRule.acceptRule(e, _separator()), 4, code, s.order.verifier, s, index);
    }
}
