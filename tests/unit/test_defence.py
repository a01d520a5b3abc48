"""Bids for one's own stake: they grow towards the deadline, and never past what it is worth."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from node.config import ChainConfig
from node.defence import GAS, DefencePolicy
from settlement.chain.fees import GWEI

policies = st.builds(
    DefencePolicy,
    usual=st.integers(1, 10**12),
    most=st.integers(10**12, 10**14),
    share=st.fractions(0, 1, max_denominator=100),
    seconds=st.floats(0, 10**5),
    margin=st.floats(0, 10**4),
    token_per_wei=st.fractions(0, 10**6, max_denominator=10**6),
)
stakes = st.integers(0, 10**24)
times = st.floats(-(10**5), 10**6)


@given(policies, stakes, times)
def test_a_cap_is_between_the_usual_one_and_what_the_stake_is_worth(
    policy: DefencePolicy, stake: int, left: float
) -> None:
    cap = policy.cap(stake, left)
    assert policy.usual <= cap <= max(policy.usual, policy.most)
    if cap > policy.usual:
        # INVARIANT under test: all the gas of the call at this price costs no more than the share.
        assert cap * GAS * policy.token_per_wei <= policy.share * stake
    if left >= policy.seconds > policy.margin:
        assert cap == policy.usual
    if left <= policy.margin:
        assert cap == policy.highest(stake)


@given(policies, stakes, times, times)
def test_a_cap_never_falls_as_the_deadline_comes_near(
    policy: DefencePolicy, stake: int, a: float, b: float
) -> None:
    late, early = sorted((a, b))
    assert policy.cap(stake, late) >= policy.cap(stake, early)


@given(policies, stakes, stakes, times)
def test_more_at_stake_never_bids_less(policy: DefencePolicy, a: int, b: int, left: float) -> None:
    less, more = sorted((a, b))
    assert policy.cap(less, left) <= policy.cap(more, left)


def test_a_spike_does_not_cost_a_verifier_its_stake() -> None:
    """A thousand tokens of stake, of which a missed deadline takes fifty, each worth as much as a
    coin of gas: below a day before the deadline nothing but the usual cap, then up to the limit."""
    config = ChainConfig("http://127.0.0.1:1", None)  # type: ignore[arg-type]
    policy = DefencePolicy.of(config)
    at_stake = 50 * 10**18
    assert policy.cap(at_stake, 86_400) == 100 * GWEI
    assert 400 * GWEI < policy.cap(at_stake, 27_000) < 500 * GWEI  # half of the way, in factors
    assert policy.cap(at_stake, 10_000) == 2000 * GWEI
    cheap = DefencePolicy(100 * GWEI, 2000 * GWEI, Fraction(1, 2), 43_200, 10_800, Fraction(100))
    # Fifty tokens that are worth half a coin: a quarter of a coin over a million gas.
    assert cheap.cap(at_stake, 0) == 250 * GWEI
    unknown = DefencePolicy(100 * GWEI, 2000 * GWEI, Fraction(1, 2), 43_200, 10_800, Fraction(0))
    assert unknown.cap(at_stake, 0) == 100 * GWEI
