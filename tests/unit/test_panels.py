"""Juries: draws, verdicts, and how often they err, against independent reckonings."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settlement.chain.parameters import PROFILES
from settlement.hashing import keccak256
from settlement.panels import (
    Answer,
    Measure,
    Result,
    bad_jury,
    bad_jury_of,
    distance,
    draw_jury,
    draw_seat,
    least_bond,
    lower_median,
    passes,
    result_of,
)

FLOAT = Measure(False, True, 1000, 50, bytes(32), bytes(32))


def answer(margin: int = 0, far: int = 0, **fields: bool) -> Answer:
    return Answer(print=far.to_bytes(32, "big"), margin=margin, revealed=True, **fields)


# ---------------------------------------------------------------- how often juries err


def test_the_chances_that_the_documents_state() -> None:
    third = Fraction(1, 3)
    assert bad_jury(3, third) == Fraction(7, 27)
    assert bad_jury(5, third) == Fraction(17, 81)
    assert bad_jury(15, third) == Fraction(422009, 4782969)
    assert round(float(bad_jury(5, third)), 3) == 0.210
    assert round(float(bad_jury(15, third)), 3) == 0.088
    assert round(float(bad_jury_of(5, 10, 30)), 3) == 0.191
    assert round(float(bad_jury_of(15, 10, 30)), 3) == 0.025


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_binomial_tail_is_a_sum_over_all_juries(size: int) -> None:
    share = Fraction(2, 7)
    whole = Fraction(0)
    for seats in product((True, False), repeat=size):
        chance = Fraction(1)
        for bad in seats:
            chance *= share if bad else 1 - share
        whole += chance if 2 * sum(seats) > size else 0
    assert bad_jury(size, share) == whole


@pytest.mark.parametrize(("size", "bad", "auditors"), [(3, 2, 7), (5, 4, 9), (15, 3, 6)])
def test_the_hypergeometric_tail_counts_juries(size: int, bad: int, auditors: int) -> None:
    seats = min(size, auditors)
    juries = list(combinations(range(auditors), seats))
    fallen = sum(2 * sum(member < bad for member in jury) > seats for jury in juries)
    assert bad_jury_of(size, bad, auditors) == Fraction(fallen, len(juries))


def test_drawn_juries_fall_as_often_as_reckoned() -> None:
    """2,000 juries of five from thirty equal stakes, ten of them hostile: 382 ± 18 are expected."""
    fallen = sum(
        sum(seat < 10 for seat in draw_jury(keccak256(number.to_bytes(4, "big")), [7] * 30, 5)) > 2
        for number in range(2000)
    )
    assert abs(fallen - 2000 * bad_jury_of(5, 10, 30)) < 4 * 18


# ---------------------------------------------------------------- the draw


@given(st.lists(st.integers(0, 50), max_size=12), st.sets(st.integers(0, 11)), st.integers(0))
def test_every_unit_of_the_weight_that_is_left_names_one_seat(
    weights: list[int], taken: set[int], word: int
) -> None:
    units = [
        seat for seat, weight in enumerate(weights) if seat not in taken for _ in range(weight)
    ]
    expected = units[word % len(units)] if units else None
    assert draw_seat(weights, sorted(taken), word) == expected


def test_a_jury_is_drawn_without_its_parties_and_the_jury_before_comes_last() -> None:
    seed = keccak256(b"jury")
    whole = draw_jury(seed, [5] * 8, 8)
    assert sorted(whole) == list(range(8))
    out = {0, 3}
    jury = draw_jury(seed, [5] * 8, 8, parties=2, is_out=out.__contains__)
    assert jury == tuple(seat for seat in whole if seat not in out)
    late = {1, 2, 4}
    jury = draw_jury(seed, [5] * 8, 8, is_late=late.__contains__, late=3)
    assert set(jury[-3:]) == late
    assert len(jury) == 8
    assert draw_jury(seed, [5] * 8, 4, is_late=late.__contains__, late=3) == jury[:4]
    assert draw_jury(seed, [], 3) == ()


def test_seats_are_drawn_by_weight() -> None:
    """Of 3,000 draws from 1 : 3 : 6; deviations are 16, 25 and 27."""
    rng = Random(1)
    drawn = Counter(draw_seat([1, 3, 6], [], rng.getrandbits(256)) for _ in range(3000))
    assert abs(drawn[0] - 300) < 66
    assert abs(drawn[1] - 900) < 101
    assert abs(drawn[2] - 1800) < 108


# ---------------------------------------------------------------- verdicts


def test_figures_at_the_tolerance_pass_and_one_over_does_not() -> None:
    assert passes(answer(1000, 50), FLOAT)
    assert not passes(answer(1001), FLOAT)
    assert not passes(answer(0, 51), FLOAT)
    assert result_of([answer(1000, 50)] * 3, FLOAT) == Result.CLEARED
    assert result_of([answer(1001), answer(1001), answer()], FLOAT) == Result.GUILTY
    assert result_of([answer(0, 51), answer(0, 51), answer()], FLOAT) == Result.GUILTY
    # Of an even number of answers, doubt is the accused's.
    assert result_of([answer(1001), answer()], FLOAT) == Result.CLEARED
    assert lower_median([4, 1, 3, 2]) == 2


@given(st.integers(1, 15), st.data())
def test_silence_never_makes_a_verdict(seats: int, data: st.DataObject) -> None:
    silent = data.draw(st.integers(0, seats))
    answers = [answer(1001)] * (seats - silent) + [Answer()] * silent
    expected = Result.GUILTY if 2 * (seats - silent) > seats else Result.VOID
    assert result_of(answers, FLOAT) == expected


def test_most_seats_have_to_say_that_nothing_was_delivered() -> None:
    nothing = answer(withheld=True)
    assert result_of([nothing, nothing, answer()], FLOAT) == Result.WITHHELD
    assert result_of([nothing, answer(), answer()], FLOAT) == Result.CLEARED
    assert result_of([nothing, nothing, answer(), answer()], FLOAT) == Result.VOID


def test_a_fingerprint_has_32_bytes() -> None:
    assert distance(b"\x80\x00" * 16, b"\x7f\xff" * 16) == 16 * 65535
    with pytest.raises(ValueError, match="32 bytes"):
        distance(bytes(31), bytes(32))


# ---------------------------------------------------------------- false accusations


def _accusing(panel: int, appeal: int, share: Fraction, bond: Fraction, appeals: bool) -> Fraction:
    """What a false accusation is worth, a branch at a time: the reward is one, jurors of `share` of
    the stake lie along, the accused appeals every conviction."""
    wrong = {1: bad_jury(panel, share), 2: bad_jury(appeal, share)}
    jurors = share / 2  # of a lost bond: half is the jurors'
    worth = Fraction(0)
    for first in (True, False):  # the panel convicts
        at = wrong[1] if first else 1 - wrong[1]
        if not first and not appeals:
            worth -= at * bond * (1 - jurors)
            continue
        for last in (True, False):
            so = at * (wrong[2] if last else 1 - wrong[2])
            if last:
                # Of the accused's own appeal half goes to the accuser.
                worth += so * (1 + (2 * bond * (Fraction(1, 2) + jurors) if first else 0))
            else:
                worth -= so * bond * (1 if first else 3) * (1 - jurors)
    return worth


@pytest.mark.parametrize("share", [Fraction(1, 4), Fraction(1, 3), Fraction(2, 5)])
@pytest.mark.parametrize("sizes", [(5, 15), (3, 15), (3, 5)])
def test_the_least_bond_parts_accusations_that_pay_from_those_that_do_not(
    sizes: tuple[int, int], share: Fraction
) -> None:
    least = least_bond(*sizes, share)
    for factor, pays in ((Fraction(99, 100), True), (Fraction(101, 100), False)):
        worth = (_accusing(*sizes, share, factor * least, appeals) for appeals in (True, False))
        assert (max(worth) > 0) == pays


def test_no_false_accusation_pays_under_the_deployed_terms() -> None:
    """While a third of the stake lies: whatever the accused's stake, and even if all that victims
    may get went to the accuser's friends."""
    for parameters in PROFILES.values():
        panel = parameters.panel
        returns = Fraction(panel.reward_bps + panel.victim_bps, panel.reward_bps)
        least = least_bond(panel.panel_size, panel.appeal_size, Fraction(1, 3), returns)
        assert Fraction(panel.bond_bps, 10_000) > 2 * least
