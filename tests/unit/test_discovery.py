"""The table of announcements: one entry per operator, no ghosts, no forgeries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.network.discovery import (
    CLOCK_SKEW_MS,
    MAX_LIFETIME_MS,
    Intake,
    PeerTable,
    sign_announcement,
)
from node.network.messages import Announcement, Offer, Role, SignedAnnouncement
from settlement.signing import address_of_key

DEPLOYMENT = b"d" * 32
NOW = 1_800_000_000_000
KEYS = [bytes([i]) * 32 for i in range(1, 6)]
MODEL = b"m" * 32


def offer(role: Role = Role.DRAFTER, model: bytes = MODEL) -> Offer:
    return Offer(role, model, 10, bytes(20), bytes(32))


def announce(
    key: bytes = KEYS[0],
    sequence: int = 1,
    *,
    expires: int = NOW + 60_000,
    left: bool = False,
    offers: tuple[Offer, ...] = (),
    endpoints: tuple[str, ...] = (),
    deployment: bytes = DEPLOYMENT,
    operator: bytes | None = None,
) -> SignedAnnouncement:
    who = address_of_key(key) if operator is None else operator
    return sign_announcement(
        Announcement(who, sequence, expires, left, endpoints, offers), key, deployment
    )


@pytest.fixture
def table() -> PeerTable:
    return PeerTable(DEPLOYMENT)


def test_a_rejoin_replaces(table: PeerTable) -> None:
    assert table.offer(announce(sequence=1, endpoints=("a",)), NOW) is Intake.ADDED
    for sequence in range(2, 7):
        again = announce(sequence=sequence, endpoints=(f"port {sequence}",))
        assert table.offer(again, NOW + sequence) is Intake.REPLACED
    (entry,) = table.entries(NOW + 10)
    assert entry.announcement.endpoints == ("port 6",)
    assert table.offer(announce(sequence=6), NOW) is Intake.KNOWN
    assert table.offer(announce(sequence=3), NOW) is Intake.STALE


def test_leaving_leaves_no_ghost(table: PeerTable) -> None:
    old = announce(sequence=1, expires=NOW + 500_000)
    table.offer(old, NOW)
    # The goodbye itself expires first, and must still outlive what it takes back.
    gone = announce(sequence=2, expires=NOW + 1000, left=True)
    assert table.offer(gone, NOW) is Intake.REPLACED
    assert table.entries(NOW) == ()
    for later in (NOW, NOW + 2000, NOW + 499_999):
        assert table.offer(old, later) is Intake.STALE
        assert table.entries(later) == ()
    assert table.offer(old, NOW + 500_000) is Intake.EXPIRED
    assert len(table) == 0


def test_expiry_needs_no_goodbye(table: PeerTable) -> None:
    signed = announce()
    table.offer(signed, NOW)
    assert len(table.entries(NOW + 59_999)) == 1
    assert table.entries(NOW + 60_000) == ()
    assert table.offer(signed, NOW + 60_000) is Intake.EXPIRED


def test_forgeries(table: PeerTable) -> None:
    other = address_of_key(KEYS[1])
    assert table.offer(announce(operator=other), NOW) is Intake.FORGED
    assert table.offer(announce(deployment=b"x" * 32), NOW) is Intake.FORGED
    good = announce()
    assert table.offer(SignedAnnouncement(good.body, bytes(65)), NOW) is Intake.FORGED
    assert table.offer(SignedAnnouncement(good.body[:-1], good.signature), NOW) is Intake.MALFORMED
    assert table.offer(SignedAnnouncement(b"", good.signature), NOW) is Intake.MALFORMED
    assert len(table) == 0
    # A forgery in a known operator's name changes nothing.
    table.offer(good, NOW)
    body = announce(KEYS[0], sequence=9).body
    forged = SignedAnnouncement(body, announce(KEYS[1], sequence=9).signature)
    assert table.offer(forged, NOW) is Intake.FORGED
    assert table.sequence_of(address_of_key(KEYS[0])) == 1


def test_nobody_lives_for_ever(table: PeerTable) -> None:
    most = NOW + MAX_LIFETIME_MS + CLOCK_SKEW_MS
    assert table.offer(announce(expires=most + 1), NOW) is Intake.TOO_LONG
    assert table.offer(announce(expires=most), NOW) is Intake.ADDED


def test_a_flood_by_one_operator_is_slowed(table: PeerTable) -> None:
    results = [table.offer(announce(sequence=s), NOW) for s in range(1, 13)]
    assert results[:10] == [Intake.ADDED] + [Intake.REPLACED] * 9
    assert results[10:] == [Intake.RATE] * 2
    assert table.offer(announce(sequence=20), NOW + table.refill_ms) is Intake.REPLACED
    assert table.offer(announce(sequence=21), NOW + table.refill_ms) is Intake.RATE


def test_a_full_table_keeps_whom_it_knows() -> None:
    staked = address_of_key(KEYS[3])
    table = PeerTable(DEPLOYMENT, lambda operator: operator == staked, capacity=2)
    table.offer(announce(KEYS[0], expires=NOW + 50_000), NOW)
    table.offer(announce(KEYS[1], expires=NOW + 40_000), NOW)
    assert table.offer(announce(KEYS[2]), NOW) is Intake.FULL
    assert table.offer(announce(KEYS[3]), NOW) is Intake.ADDED
    assert {e.operator for e in table.entries(NOW)} == {staked, address_of_key(KEYS[0])}
    # Known operators still replace their own entry.
    assert table.offer(announce(KEYS[0], 2), NOW) is Intake.REPLACED


def test_offers_are_found_by_role_and_model(table: PeerTable) -> None:
    table.offer(announce(KEYS[0], offers=(offer(Role.DRAFTER),)), NOW)
    table.offer(announce(KEYS[1], offers=(offer(Role.VERIFIER), offer(Role.AUDITOR))), NOW)
    (drafter,) = table.entries(NOW, Role.DRAFTER, MODEL)
    assert drafter.operator == address_of_key(KEYS[0])
    assert table.entries(NOW, Role.DRAFTER, b"o" * 32) == ()
    assert len(table.entries(NOW, Role.AUDITOR)) == 1
    assert table.find(address_of_key(KEYS[2]), NOW) is None
    assert drafter.offers(Role.DRAFTER)[0].speed is None


# Ten operators' histories in any order, with repetitions, over any number of tables.
STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=30)
HISTORY = {
    (k, s): announce(KEYS[k], s, left=s == 6, expires=NOW + 60_000 + s)
    for k in range(3)
    for s in range(1, 7)
}


@given(STEPS)
@settings(max_examples=60)
def test_the_newest_wins_in_any_order(steps: list[tuple[int, int]]) -> None:
    table = PeerTable(DEPLOYMENT)
    for key, sequence in steps:
        table.offer(HISTORY[key, sequence], NOW)
    newest = {key: max(s for k, s in steps if k == key) for key, _ in steps}
    for key, sequence in newest.items():
        assert table.sequence_of(address_of_key(KEYS[key])) == sequence
    live = {address_of_key(KEYS[k]) for k, s in newest.items() if s != 6}
    assert {e.operator for e in table.entries(NOW)} == live


@given(STEPS, STEPS)
@settings(max_examples=60)
def test_one_exchange_makes_two_tables_equal(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = PeerTable(DEPLOYMENT), PeerTable(DEPLOYMENT)
    for table, steps in ((a, left), (b, right)):
        for step in steps:
            table.offer(HISTORY[step], NOW)
    wanted = b.wanted_from(a.held())
    for signed in b.news_for(a.held(), NOW):
        assert a.offer(signed, NOW).news
    for signed in a.news_for(b.held(), NOW):
        assert signed.body[1:21] in wanted
        assert b.offer(signed, NOW).news
    assert set(a.held()) == set(b.held())
