"""Who loses a place to whom, over any sessions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import LimitConfig
from node.network.errors import Refused
from node.roles.places import PACE_SECONDS, Place, held_up, make_room

clients = st.integers(0, 3).map(lambda n: bytes([n]) * 20)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Place], LimitConfig]:
    """Sessions that one after another could all be admitted."""
    most = draw(st.integers(1, 8))
    limits = LimitConfig(
        max_sessions=most,
        max_sessions_per_client=draw(st.integers(1, 8)),
        idle_seconds=draw(st.sampled_from([0.0, 5.0])),
    )
    places: list[Place] = []
    for number in range(draw(st.integers(0, most))):
        client = draw(clients)
        if sum(p.client == client for p in places) < limits.max_sessions_per_client:
            waiting = draw(st.sampled_from([0.0, 1.0, 6.0, 60.0]))
            places.append(Place(bytes([number]) * 32, client, waiting))
    return places, limits


@given(crowds(), clients)
def test_a_place_is_lost_only_by_waiting_and_to_who_has_less(
    crowd: tuple[list[Place], LimitConfig], client: bytes
) -> None:
    places, limits = crowd
    held = Counter(place.client for place in places)
    full, share = len(places) >= limits.max_sessions, limits.max_sessions_per_client
    idle = [place for place in places if place.waiting > limits.idle_seconds]
    try:
        loser = make_room(places, client, limits)
    except Refused:
        assert full or held[client] >= share
        if held[client] < share:
            assert all(held[place.client] <= held[client] for place in idle)
        else:
            assert all(place.client != client for place in idle)
        return
    if loser is None:
        assert not full
        assert held[client] < share
        return
    assert loser in idle
    assert loser.client == client or held[loser.client] > held[client]
    # What has been admitted keeps every bound.
    after = [place for place in places if place is not loser]
    assert len(after) < limits.max_sessions
    assert sum(place.client == client for place in after) < share


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(1, 17)), max_size=40), st.floats(0, 60))
def test_what_counts_as_waiting(rounds: list[tuple[float, int]], now: float) -> None:
    """At a pace that is well, only the wait that goes on; at any other, all that is beyond it."""
    before, tokens = sum(wait for wait, _ in rounds), sum(count for _, count in rounds)
    counts = held_up(now, before, tokens)
    assert now <= counts <= now + before
    if all(wait <= PACE_SECONDS * count for wait, count in rounds):
        assert counts == now
    assert counts >= now + before - PACE_SECONDS * tokens - 1e-6


def test_the_most_crowded_client_loses_its_longest_wait() -> None:
    limits = LimitConfig(max_sessions=4, max_sessions_per_client=4, idle_seconds=5.0)
    a, b, c = (bytes([n]) * 20 for n in range(3))
    places = [
        Place(b"1", a, 90.0),
        Place(b"2", b, 7.0),
        Place(b"3", b, 8.0),
        Place(b"4", b, 0.0),
    ]
    loser = make_room(places, c, limits)
    assert loser is not None
    assert loser.session_id == b"3"
    with pytest.raises(Refused, match="4 sessions run here already"):
        make_room([Place(p.session_id, p.client, 5.0) for p in places], c, limits)
