"""Whose link makes way: never who has a session for who has none, and no host has more than its
share."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.acquaintances import Acquaintances
from node.network.crowding import Held, NoRoom, Standing, is_this_machine, make_way, site_of
from node.network.transport import Limits
from settlement.chain.contracts import Role
from settlement.chain.events import KeyRotated, LaneOpened, Staked, StakeSlashed, UnstakeStarted
from settlement.records import Lane

LIMITS = Limits(max_links=6, links_per_host=3, evict_after=30.0, stranger_seconds=60.0)
hosts = st.sampled_from(["", "a", "b", "c"])
standings = st.sampled_from(Standing)
links = st.builds(
    Held,
    st.binary(min_size=20, max_size=20),
    hosts,
    standings,
    st.sampled_from([1.0, 59.0, 61.0, 900.0]),
    st.sampled_from([0.0, 29.0, 31.0]),
)


@given(st.lists(links, max_size=6), hosts, standings)
def test_who_makes_way(crowd: list[Held], host: str, standing: Standing) -> None:
    of_host = Counter(link.host for link in crowd)
    over_host = bool(host) and of_host[host] >= LIMITS.links_per_host
    full = len(crowd) >= LIMITS.max_links
    try:
        going = make_way(crowd, host, standing, LIMITS)
    except NoRoom:
        assert over_host or full
        candidates = [x for x in crowd if x.host == host] if over_host else crowd
        for link in candidates:
            assert link.standing > Standing.STRANGER or link.age < 60
            assert link.standing > standing or link.idle < 30
            assert not (link.standing == Standing.STRANGER and standing > Standing.STRANGER)
        return
    if going is None:
        assert not over_host
        assert not full
        return
    assert over_host or full
    assert not over_host or going.host == host
    # INVARIANT under test: nobody loses a link to who is less to this node, nor one in use to who
    # is as much, but a stranger that has had its time.
    assert going.standing <= standing
    if going.standing > Standing.STRANGER:
        assert going.idle >= LIMITS.evict_after
    elif standing == Standing.STRANGER:
        assert going.age >= LIMITS.stranger_seconds or going.idle >= LIMITS.evict_after


def test_strangers_of_the_most_crowded_host_go_first() -> None:
    stranger = Held(b"", "a", Standing.STRANGER, 90.0, 0.0)
    partner = replace(stranger, standing=Standing.PARTNER, idle=600.0)
    crowd = [replace(stranger, host="b"), stranger, stranger, partner, partner, partner]
    going = make_way(crowd, "c", Standing.STRANGER, LIMITS)
    assert going is stranger
    with pytest.raises(NoRoom, match="3 links, 3 with this host"):
        make_way([partner] * 3, "a", Standing.KNOWN, LIMITS)
    assert make_way([partner] * 5, "", Standing.STRANGER, LIMITS) is None


def test_what_counts_as_one_host() -> None:
    assert site_of("203.0.113.7") == site_of("::ffff:203.0.113.7") == "203.0.113.7"
    assert site_of("2001:db8:1:2::1") == site_of("2001:db8:1:2:ffff::9%eth0") == "2001:db8:1:2::/64"
    assert site_of("2001:db8:1:3::1") != site_of("2001:db8:1:2::1")
    assert site_of("") == ""
    assert is_this_machine("127.0.0.9")
    assert is_this_machine("::1")
    assert is_this_machine("::ffff:127.0.0.1")
    assert not is_this_machine("203.0.113.7")
    assert not is_this_machine("")


def event(what: Any) -> Any:
    return SimpleNamespace(event=what)


def test_who_has_stake_a_lane_or_a_session_is_no_stranger() -> None:
    me, v, d, c, new = (bytes([n]) * 20 for n in range(1, 6))
    lane = Lane(c, d, me, b"\x70" * 20, bytes(32))
    events = [event(Staked(v, Role.VERIFIER, 100, v))]
    running: set[bytes] = set()
    known = Acquaintances(me, lambda: events, lambda: running)
    assert [known.standing(peer) for peer in (v, d, c)] == [1, 0, 0]
    events += [event(LaneOpened(lane.id, lane, 200)), event(KeyRotated(v, v, new))]
    assert [known.standing(peer) for peer in (v, new, d, c)] == [0, 1, 1, 1]
    assert known.staked(new)
    assert not known.staked(c)
    running.add(v)
    assert known.standing(v) == Standing.PARTNER
    events.append(event(UnstakeStarted(v, Role.VERIFIER, 60, 0)))
    events.append(event(StakeSlashed(v, Role.VERIFIER, bytes(32), (40, 40, 0, 0), c, c)))
    assert known.standing(new) == Standing.STRANGER
    # A reorganisation takes it all back.
    events = [event(Staked(d, Role.DRAFTER, 1, d))]
    assert [known.standing(peer) for peer in (new, d, c)] == [0, 1, 0]
