"""What a transaction bids, and how a replacement outbids it under the cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settlement.chain.fees import GWEI, FeeCapReached, FeePolicy
from settlement.chain.send_journal import Fees

wei = st.integers(0, 10**12)


@given(wei, st.integers(1, 10**12), wei)
def test_the_opening_bid_is_bounded_and_enough_for_now(base: int, cap: int, tip: int) -> None:
    policy = FeePolicy(cap=cap, priority=tip)
    if base > cap:
        with pytest.raises(FeeCapReached) as refused:
            policy.first(base)
        assert (refused.value.needed, refused.value.cap) == (base, cap)
        return
    bid = policy.first(base)
    assert base <= bid.max_fee <= cap
    assert 0 <= bid.priority <= bid.max_fee


@given(wei, wei, wei, st.integers(1, 10**12), wei)
def test_a_replacement_rises_by_a_tenth_or_is_not_made(
    base: int, last_max: int, last_tip: int, cap: int, tip: int
) -> None:
    last = Fees(last_max, min(last_tip, last_max))
    bid = FeePolicy(cap=cap, priority=tip).bump(last, base)
    if bid is None:
        # Only the cap stands in the way.
        assert cap * 10 < max(last.max_fee, last.priority) * 11
        return
    assert bid.max_fee <= cap
    assert bid.max_fee * 10 >= last.max_fee * 11
    assert bid.priority * 10 >= last.priority * 11
    assert bid.priority <= bid.max_fee


def test_a_replacement_follows_the_base_fee() -> None:
    policy = FeePolicy(cap=100 * GWEI, priority=GWEI)
    assert policy.bump(Fees(3 * GWEI, GWEI), 20 * GWEI) == Fees(41 * GWEI, 115 * GWEI // 100)


def test_bids_end_at_the_cap() -> None:
    policy, bid = FeePolicy(cap=10 * GWEI, priority=GWEI), Fees(2 * GWEI, GWEI)
    seen = 0
    while bid is not None:
        last, bid = bid, policy.bump(bid, GWEI)
        seen += 1
        assert seen < 100
    assert 10 * GWEI * 10 // 11 < last.max_fee <= 10 * GWEI


def test_policies_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 10"):
        FeePolicy(bump_percent=9)
    with pytest.raises(ValueError, match="positive"):
        FeePolicy(cap=0)
    with pytest.raises(FeeCapReached):
        FeePolicy(cap=5).first_legacy(6)
