"""The script that removes guards finds each of them and takes out what it says."""

from __future__ import annotations

import pytest

from scripts.remove_guards import CannotRun, all_guards, guards_in, switched
from settlement.chain.paths import ROOT

CONTRACT = """
pragma solidity ^0.8.30;

contract One {
    function all(uint256 a, uint256 b) external {
        // INVARIANT: nothing is nothing,
        // on two lines.
        if (a == 0 || (b == 0 && a != 1)) revert Zero();
        // INVARIANT: what is declared for it stays.
        uint256 c = a + b;
        if (c > 5) {
            revert Large(c);
        }
        // INVARIANT: no more than there is.
        uint256 d = FixedPointMathLib.min(a, left[b]);
        // INVARIANT: rounded up.
        e = FixedPointMathLib.divUp(d * 2, BPS);
        // INVARIANT: paid once.
        owed[msg.sender] = 0;
        // INVARIANT: shown and named.
        _same("root", hash(a), b);
        assembly {
            // INVARIANT: not here.
            a := and(a, 1)
        }
    }

    /// @dev INVARIANT: readers only.
    function _require(address who) private view {
        if (!reader[who]) revert NotReader(who);
    }
}
"""


def test_each_kind_is_taken_out() -> None:
    removals = [" ".join(guard.removal.split()) for guard in guards_in("One.sol", CONTRACT)]
    assert removals == [
        "if (KEPT && (a == 0 || (b == 0 && a != 1)))",
        "if (KEPT && (c > 5))",
        "uint256 d = (KEPT ? FixedPointMathLib.min(a, left[b]) : a);",
        "e = (KEPT ? FixedPointMathLib.divUp(d * 2, BPS) : d * 2 / BPS);",
        "if (KEPT) { owed[msg.sender] = 0; }",
        'if (KEPT) { _same("root", hash(a), b); }',
        "if (!KEPT) return;",
    ]


def test_the_switches_stand_where_the_guards_stood() -> None:
    guards = list(enumerate(guards_in("One.sol", CONTRACT)))
    text = switched(CONTRACT, guards, 1)
    assert 'import {Removed} from "../Removed.sol";' in text
    assert [f"Removed.kept({n})" in text for n, _ in guards] == [True] * len(guards)
    assert "if (Removed.kept(1) && (c > 5)) {\n            revert Large(c);" in text
    assert "uint256 c = a + b;" in text


def test_what_it_cannot_remove_is_an_error() -> None:
    odd = "// INVARIANT: odd.\nreturn a + b;\n"
    with pytest.raises(CannotRun, match="add it to BY_HAND"):
        guards_in("One.sol", odd)


def test_every_guard_of_the_contracts_is_understood() -> None:
    assert len(all_guards(ROOT)) > 150
