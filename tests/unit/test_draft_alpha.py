"""Acceptance formulas against enumeration and against sampling by the rule itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.draft import alpha


def _pair(weights: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    p, q = (np.array(side, dtype=np.float64) for side in zip(*weights, strict=True))
    return p / p.sum(), q / q.sum()


pairs = (
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8)
    .filter(lambda w: sum(a for a, _ in w) > 0 and sum(b for _, b in w) > 0)
    .map(_pair)
)


def _coupled_by_definition(p: np.ndarray, q: np.ndarray) -> float:
    total = 0.0
    for j in range(len(p)):
        if p[j] > 0 and q[j] > 0:
            total += 1.0 / sum(max(p[i] / p[j], q[i] / q[j]) for i in range(len(p)))
    return total


@given(pairs)
@settings(max_examples=150, deadline=None)
def test_coupled_equals_its_double_sum(pair: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = pair
    assert alpha.coupled(p, q) == pytest.approx(_coupled_by_definition(p, q), abs=1e-12)


@given(pairs)
@settings(max_examples=150, deadline=None)
def test_coupled_lies_between_its_bounds(pair: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = pair
    tv = 1.0 - float(alpha.rejection(p, q))
    got = alpha.coupled(p, q)
    assert (1 - tv) / (1 + tv) - 1e-12 <= got <= 1 - tv + 1e-12


@given(pairs)
@settings(max_examples=100, deadline=None)
def test_given_token_averages_to_the_acceptance(pair: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = pair
    for rule, whole in (
        ("rejection", float(alpha.rejection(p, q))),
        ("coupled", alpha.coupled(p, q)),
    ):
        parts = [p[j] * alpha.given_token(p, q, j, rule) for j in range(len(p)) if p[j] > 0]
        assert sum(parts) == pytest.approx(whole, abs=1e-12)


def test_coupled_agrees_with_gumbel_max_itself() -> None:
    p, q = _pair([(5, 1), (3, 3), (2, 6), (0, 2), (1, 0)])
    noise = np.random.default_rng(1).gumbel(size=(200_000, 5))
    with np.errstate(divide="ignore"):
        same = (np.log(p) + noise).argmax(1) == (np.log(q) + noise).argmax(1)
    error = 5 * np.sqrt(0.25 / len(noise))
    assert same.mean() == pytest.approx(alpha.coupled(p, q), abs=error)


def test_a_token_without_mass_cannot_have_been_put_out() -> None:
    with pytest.raises(ValueError, match="token 1 has no mass"):
        alpha.given_token(np.array([1.0, 0.0]), np.array([0.5, 0.5]), 1, "coupled")


@pytest.mark.parametrize("window", [1, 2, 3])
def test_rounds_along_a_text_against_all_outcomes(window: int) -> None:
    chances = [0.9, 0.2, 0.7, 0.5, 1.0, 0.0, 0.6]
    judged, accepted = np.zeros(window), np.zeros(window)
    for outcome in itertools.product((True, False), repeat=len(chances)):
        weight, k = 1.0, 0
        for ok, chance in zip(outcome, chances, strict=True):
            if k == window:  # the bonus token is not a draft: its coin is not looked at
                weight *= 0.5
                k = 0
                continue
            weight *= chance if ok else 1.0 - chance
            if weight == 0.0:
                break
            k = k + 1 if ok else 0
        if weight == 0.0:
            continue
        k = 0
        for ok in outcome:
            if k == window:
                k = 0
                continue
            judged[k] += weight
            accepted[k] += weight * ok
            k = k + 1 if ok else 0
    got_judged, got_accepted = alpha.by_draft_position(np.array(chances), window)
    np.testing.assert_allclose(got_judged, judged, atol=1e-12)
    np.testing.assert_allclose(got_accepted, accepted, atol=1e-12)


def test_tokens_per_round_of_a_perfect_and_a_useless_draft() -> None:
    perfect = alpha.by_draft_position(np.ones(500), 4)
    assert alpha.tokens_per_round(*perfect) == pytest.approx(5.0)
    useless = alpha.by_draft_position(np.zeros(500), 4)
    assert alpha.tokens_per_round(*useless) == pytest.approx(1.0)


def test_interval_is_wider_when_positions_hang_together() -> None:
    rng = np.random.default_rng(0)
    counts = np.full(60, 50)
    together = np.where(rng.random(60) < 0.5, 50.0, 0.0)
    apart = rng.binomial(50, 0.5, 60).astype(float)
    wide = alpha.clustered(together, counts, np.random.default_rng(1))
    narrow = alpha.clustered(apart, counts, np.random.default_rng(1))
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert wide.low < wide.value < wide.high
    assert wide.positions == 3000


def test_lookup_takes_the_longest_and_latest_match() -> None:
    assert alpha.lookup([1, 2, 3, 9, 2, 3, 8, 1, 2, 3]) == 9  # three ids beat the later two
    assert alpha.lookup([2, 3, 9, 2, 3, 8, 2, 3]) == 8  # of equal length, the latest
    assert alpha.lookup([7, 7]) == 7
    assert alpha.lookup([1, 2, 3]) is None
    assert alpha.lookup([]) is None
