// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Coins} from "../../libraries/Coins.sol";
import {Masses} from "../../libraries/Masses.sol";
import {PaymentRule} from "../../libraries/PaymentRule.sol";
import {SumWords} from "../../libraries/SumWords.sol";
import {Trees} from "../../libraries/Trees.sol";

/// @notice For halmos: each `check_` holds for every input, not for those that a fuzzer thought of.
/// `make prove` runs them where halmos is installed. The plain rule stands beside the packed one.
contract SymbolicRules {
    // ------------------------------------------------------------------ sums of a settlement

    function checked(uint256[9] calldata counted, uint256[9] calldata sums)
        external
        pure
        returns (bool good, bool changed)
    {
        return SumWords.check(counted, sums);
    }

    /// @dev The first word: output and accepted. Neither falls, leaps by 2**40, or passes 2**63, and
    /// the upper half stays empty.
    function check_OutputAndAcceptedNeverFall(uint256 before, uint256 then) external view {
        uint256[9] memory counted;
        uint256[9] memory sums;
        (counted[0], sums[0]) = (before, then);
        // What was counted has passed this check itself.
        if (before & Trees.FIRST_WORD_CLEAR != 0) return;
        (bool good, bool changed) = this.checked(counted, sums);
        bool plain = then & Trees.FIRST_WORD_CLEAR == 0;
        for (uint256 lane; lane < 2; ++lane) {
            plain = plain && _mayFollow(_lane(before, lane), _lane(then, lane));
        }
        assert(good == plain);
        assert(changed == (before != then));
    }

    /// @dev One bucket of 32 bits, in each of a word's four lanes, the others empty: it does not fall,
    /// and no more of it is accepted than proposed since. With 64 bits, where the leap of 2**40 and the
    /// bound of 2**63 come in, the solver finds no end: those are the fuzzer's, with four lanes at once
    /// (`testFuzz_checkIsThePlainRule`, `test_edges`).
    function check_ABucketNeverFalls(uint32 before, uint32 then, uint32 was, uint32 accepted)
        external
        view
    {
        bool plain = then >= before && accepted >= was;
        unchecked {
            plain = plain && accepted - was <= then - before;
        }
        for (uint256 lane; lane < 4; ++lane) {
            uint256 shift = 64 * lane;
            uint256[9] memory counted;
            uint256[9] memory sums;
            (counted[1], sums[1]) = (uint256(before) << shift, uint256(then) << shift);
            (counted[5], sums[5]) = (uint256(was) << shift, uint256(accepted) << shift);
            (bool good,) = this.checked(counted, sums);
            assert(good == plain);
        }
    }

    function _lane(uint256 word, uint256 lane) private pure returns (uint256) {
        return word >> 64 * lane & type(uint64).max;
    }

    function _mayFollow(uint256 before, uint256 then) private pure returns (bool) {
        unchecked {
            return then >= before && then - before < 1 << 40;
        }
    }

    // ------------------------------------------------------------------ sums along a path

    /// @dev Four lanes in one addition: no carry, or a top bit that tells.
    function check_LanesAddWithoutCarry(uint256 a, uint256 b) external pure {
        unchecked {
            uint256 c = a + b;
            bool fits = (a | b | c) & Trees.TOP_BITS == 0;
            if (!fits) return;
            for (uint256 lane; lane < 4; ++lane) {
                assert(_lane(c, lane) == _lane(a, lane) + _lane(b, lane));
            }
        }
    }

    // ------------------------------------------------------------------ the accept rule

    /// @dev u · q < p · 2**64, in 32 bits by a multiplication that cannot be cut short.
    function check_TheCoinRule(uint32 u, uint32 q, uint32 p) external pure {
        bool plain = q != 0 && uint256(u) * q < uint256(p) * (1 << 64);
        assert(Masses.accepts(u, q, p) == plain);
    }

    /// @dev A higher p never turns an accept into a reject, nor does a lower coin.
    function check_TheCoinRuleIsMonotonic(uint32 u, uint32 q, uint64 p, uint64 more) external pure {
        if (!Masses.accepts(u, q, p) || more < p) return;
        assert(Masses.accepts(u, q, more));
        if (u != 0) assert(Masses.accepts(u - 1, q, p));
    }

    /// @dev One place falls on one interval: of two that do not overlap, at most one holds it.
    function check_OnePlaceOneToken(uint64 below, uint64 q, uint64 gap, uint64 other, uint64 w)
        external
        pure
    {
        unchecked {
            uint256 next = uint256(below) + q + gap;
            if (next + other > type(uint64).max) return;
            bool first = Masses.holds(below, q, w);
            bool second = Masses.holds(uint64(next), other, w);
            assert(!(first && second));
        }
    }

    /// @dev The assembly of the chain is its single steps.
    function check_AnchorsAreSteps(bytes32 value) external pure {
        bytes32 plain = Coins.chainStep(Coins.chainStep(Coins.chainStep(value)));
        assert(Coins.anchorOf(value, 2) == plain);
    }

    // ------------------------------------------------------------------ money

    /// @dev Where the reserve covers both dues, each gets all of its own. 16 bits: with more the solver
    /// finds no end. Where it does not cover them, and for all widths, it is the fuzzer's
    /// (`testFuzz_grantsFitReserveAndDues`).
    function check_WhatIsCoveredIsGranted(
        uint16 reserve,
        uint16 dueDrafter,
        uint16 dueVerifier,
        uint16 paidDrafter,
        uint16 paidVerifier
    ) external pure {
        unchecked {
            uint256 d = dueDrafter > paidDrafter ? dueDrafter - paidDrafter : 0;
            uint256 v = dueVerifier > paidVerifier ? dueVerifier - paidVerifier : 0;
            if (d + v > uint256(reserve) * PaymentRule.BPS / (PaymentRule.BPS + 200)) return;
            (uint256 toDrafter, uint256 toVerifier) = PaymentRule.grantsDown(
                reserve, 200, dueDrafter, dueVerifier, paidDrafter, paidVerifier
            );
            assert(toDrafter == d && toVerifier == v);
        }
    }

    /// @dev And whatever is paid within that budget fits the reserve with the fee on it, in 12 bits. In all:
    /// paid · 10,200 ≤ reserve · 10,000, so paid · 200 ≤ (reserve − paid) · 10,000, and the quotient of
    /// those is at most reserve − paid, rounded up or not.
    function check_GrantsFitTheReserve(uint16 reserve, uint16 paid) external pure {
        unchecked {
            if (reserve >= 1 << 12) return;
            if (paid > uint256(reserve) * PaymentRule.BPS / (PaymentRule.BPS + 200)) return;
            assert(paid + PaymentRule.feeUp(paid, 200) <= reserve);
        }
    }
}
