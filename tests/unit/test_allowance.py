"""What one peer may ask for, whatever it does and whoever else asks."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.network.errors import Busy
from node.roles.allowance import PEERS_KEPT, Allowance, AtOnce, Gate, Rate


def test_a_peer_gets_its_burst_and_then_what_time_brings() -> None:
    allowance = Allowance(burst=3, per_second=2)
    for _ in range(3):
        allowance.take(b"a", 10.0)
    with pytest.raises(Busy) as busy:
        allowance.take(b"a", 10.0)
    assert busy.value.retry_after == pytest.approx(0.5)
    allowance.take(b"b", 10.0)  # others are not held up
    allowance.take(b"a", 10.5)
    with pytest.raises(Busy):
        allowance.take(b"a", 10.5)
    for number in range(5000):
        allowance.take(number.to_bytes(4, "big"), 11.0)
    assert len(allowance._held) <= PEERS_KEPT


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=60), st.integers(1, 8))
def test_no_more_than_the_burst_and_the_rate_and_what_it_says_holds(
    asks: list[tuple[float, bool]], burst: int
) -> None:
    """Over any history no more gets through than burst + rate · time, but for what was given back;
    and who waits as long as it was told gets through."""
    allowance, now, taken, given_back = Allowance(burst, 2.0), 0.0, 0, 0
    for pause, give in asks:
        now += pause
        if give and taken > given_back:
            allowance.give(b"a", now)
            given_back += 1
        try:
            allowance.take(b"a", now)
            taken += 1
        except Busy as busy:
            wait = busy.retry_after
            assert wait is not None
            assert 0 < wait <= 0.5
            now += wait + 1e-6
            allowance.take(b"a", now)
            taken += 1
        assert taken <= burst + 2.0 * now + given_back + 1e-6


def test_what_runs_at_once_is_bounded_for_each_and_for_all() -> None:
    gate = AtOnce(each=2, together=3, what="orders")
    with ExitStack() as stack:
        for peer in (b"a", b"a", b"b"):
            stack.enter_context(gate.place(peer))
        for peer in (b"a", b"c"):
            with pytest.raises(Busy, match="too many orders at once"), gate.place(peer):
                pass
    with pytest.raises(ZeroDivisionError), gate.place(b"a"):
        _ = 1 // 0
    assert not gate._running


def test_what_finds_no_place_costs_no_allowance() -> None:
    gate = Gate(Rate(burst=2, per_second=1.0, each=1, together=1), "orders")
    with gate.admit(b"a", 0.0):
        for _ in range(5):
            with pytest.raises(Busy, match="at once"), gate.admit(b"a", 0.0):
                pass
    with gate.admit(b"a", 0.0):
        pass
    with pytest.raises(Busy, match="too many orders; retry after 1"), gate.admit(b"a", 0.0):
        pass
