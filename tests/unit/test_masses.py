"""Distributions in integers: exact totals, exact draws, and the rejection rule's law."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from settlement.masses import (
    MassError,
    accept_rejection,
    dense,
    interval,
    kept_list,
    masses_from_probabilities,
    point_mass,
    residual_masses,
    residual_token,
    sample_masses,
)
from settlement.records import MASS_TOTAL, check_kept

uint64s = st.one_of(st.integers(0, MASS_TOTAL), st.integers(0, 3), st.just(MASS_TOTAL))
weights = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=30).filter(
    lambda values: sum(values) > 0
)


def distribution(values: list[float]) -> np.ndarray:
    return masses_from_probabilities(np.array(values, dtype=np.float64))


# ---------------------------------------------------------------- masses


@given(weights)
def test_masses_sum_to_the_total_and_keep_the_proportions(values: list[float]) -> None:
    masses = distribution(values)
    assert sum(int(mass) for mass in masses) == MASS_TOTAL
    total = sum(Fraction(value) for value in values)
    for value, mass in zip(values, masses, strict=True):
        # 2**-53 relative from the float sum and quotient, a few units of 2**-62 from the floors.
        share = Fraction(value) / total
        slack = share * Fraction(len(values) + 4, 2**52) + Fraction(4 * len(values) + 8, 2**62)
        if mass != masses.max():
            assert abs(Fraction(int(mass), MASS_TOTAL) - share) <= slack


def test_the_remainder_goes_to_the_largest_and_among_equals_to_the_lowest_id() -> None:
    each = 4 * int(1 / 3 * 2**62)
    assert distribution([1, 1, 1]).tolist() == [MASS_TOTAL - 2 * each, each, each]
    low = 4 * (2**62 // 8)
    assert distribution([1, 3, 3, 1]).tolist() == [
        low,
        MASS_TOTAL - 2 * low - 4 * (3 * 2**62 // 8),
        4 * (3 * 2**62 // 8),
        low,
    ]


def test_a_lone_id_has_all_the_mass() -> None:
    assert distribution([0.3]).tolist() == [MASS_TOTAL]
    assert distribution([0.0, 5.0, 0.0]).tolist() == [0, MASS_TOTAL, 0]


def test_kept_ids_are_renormalised_among_themselves() -> None:
    p = np.array([0.4, 0.1, 0.1, 0.4])
    kept = np.array([1, 2])
    assert masses_from_probabilities(p, kept).tolist() == distribution([0.1, 0.1]).tolist()
    listed = kept_list(np.array([3, 9, 11]), distribution([0.5, 0.0, 0.5]))
    assert [token for token, _ in listed] == [3, 11]
    check_kept(listed)
    check_kept(point_mass(7))
    assert interval(listed, 11) == (listed[1][1], listed[0][1])
    assert interval(listed, 9) == (0, listed[0][1])
    assert dense(listed, 12).tolist()[3] == listed[0][1]
    with pytest.raises(MassError):
        dense(listed, 11)


@pytest.mark.parametrize(
    ("p", "kept"),
    [
        ([], None),
        ([0.0, 0.0], None),
        ([0.5, -0.1], None),
        ([0.5, float("nan")], None),
        ([float("inf"), 1.0], None),
        ([0.5, 0.5], [1, 0]),
        ([0.5, 0.5], [0, 0]),
        ([0.5, 0.5], [0, 2]),
        ([0.5, 0.5], [-1, 1]),
        ([0.5, 0.5], []),
    ],
)
def test_what_is_no_distribution_is_refused(p: list[float], kept: list[int] | None) -> None:
    with pytest.raises(MassError):
        masses_from_probabilities(
            np.array(p, dtype=np.float64), None if kept is None else np.array(kept, dtype=np.int64)
        )


def test_probabilities_are_float64() -> None:
    with pytest.raises(MassError, match="float32"):
        masses_from_probabilities(np.ones(3, dtype=np.float32))


@given(st.lists(st.integers(0, 2**58), min_size=1, max_size=12), uint64s)
def test_a_draw_is_the_cumulative_search(values: list[int], coin_value: int) -> None:
    masses = np.array(values, dtype=np.uint64)
    total = sum(values)
    if total == 0:
        with pytest.raises(MassError, match="no mass"):
            sample_masses(masses, coin_value)
        return
    target = coin_value * total >> 64
    index = sample_masses(masses, coin_value)
    assert sum(values[:index]) <= target < sum(values[: index + 1])


def test_the_last_coin_draws_the_last_unit() -> None:
    assert sample_masses(np.array([5, 1], dtype=np.uint64), MASS_TOTAL) == 1
    assert sample_masses(np.array([MASS_TOTAL - 1, 1], dtype=np.uint64), MASS_TOTAL) == 1
    assert sample_masses(np.array([0, 1, 5], dtype=np.uint64), 0) == 1


def test_masses_past_64_bits_and_longer_coins_are_refused() -> None:
    with pytest.raises(MassError, match="past"):
        sample_masses(np.array([MASS_TOTAL, 1], dtype=np.uint64), 0)
    for bad in (-1, 2**64):
        with pytest.raises(MassError):
            sample_masses(np.array([1], dtype=np.uint64), bad)
        with pytest.raises(MassError):
            accept_rejection(bad, 1, 1)
        with pytest.raises(MassError):
            accept_rejection(0, bad, 1)
        with pytest.raises(MassError):
            accept_rejection(0, 1, bad)


# ---------------------------------------------------------------- rejection


@given(uint64s, uint64s)
def test_a_draft_is_accepted_with_chance_min_1_p_over_q(q: int, p: int) -> None:
    if q == 0:
        assert not accept_rejection(0, q, p)
        return
    # The u that pass are exactly those below ⌈p · 2**64 / q⌉.
    bound = -(-(p << 64) // q)
    for u in {0, bound - 1, bound, MASS_TOTAL, (p << 64) // q}:
        if 0 <= u <= MASS_TOTAL:
            assert accept_rejection(u, q, p) == (u < bound)
    if p >= q:
        assert accept_rejection(MASS_TOTAL, q, p)


@given(weights, st.randoms(use_true_random=False), uint64s)
def test_the_residual_never_gives_what_q_overweights(
    values: list[float], rng: Random, coin_value: int
) -> None:
    p = distribution(values)
    q = distribution([rng.random() + 0.01 for _ in values])
    token = residual_token(p, q, coin_value)
    assert p[token] > q[token] or p.tolist() == q.tolist()


def test_without_residual_mass_p_itself_is_drawn() -> None:
    p = distribution([0.2, 0.8])
    assert residual_masses(p, p) is p
    assert residual_token(p, p, 0) == sample_masses(p, 0) == 0
    q = np.full(2, MASS_TOTAL, dtype=np.uint64)  # an inconsistent q leaves nothing either
    assert residual_token(p, q, MASS_TOTAL) == 1
    with pytest.raises(MassError, match="same vocabulary"):
        residual_masses(p, distribution([1.0]))


@given(st.randoms(use_true_random=False), st.integers(2, 8))
def test_the_law_of_a_position_is_the_targets_to_1e_12(rng: Random, size: int) -> None:
    """Over all drafts x ~ q and all coins, in exact fractions."""
    p = distribution([rng.random() ** 4 + 1e-6 for _ in range(size)])
    q = distribution([rng.random() ** 4 + 1e-6 for _ in range(size)])
    rest = [int(mass) for mass in residual_masses(p, q)]
    law = [Fraction(0)] * size
    for x in range(size):
        chance = Fraction(int(q[x]), MASS_TOTAL)
        passing = min(Fraction(-(-(int(p[x]) << 64) // int(q[x])), 1 << 64), Fraction(1))
        law[x] += chance * passing
        for y in range(size):
            law[y] += chance * (1 - passing) * Fraction(rest[y], sum(rest))
    for y in range(size):
        assert abs(law[y] - Fraction(int(p[y]), MASS_TOTAL)) < Fraction(1, 10**12)
