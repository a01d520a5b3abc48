"""What leaves a journal, and what must not: rounds that a voucher of these days covers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import trio
import trio.testing
from played_sessions import play
from watched_node import keep_session, keep_voucher, voucher_over

from node.evidence import EvidenceRoom
from node.journal import Journal, StoredRound, StoredSession, StoredVoucher
from node.retention import TICKETS_KEPT, keep_short
from node.roles.lanes import LeafRun
from node.roles.stored import pack_runs
from settlement import trees
from settlement.draws import opening_of
from settlement.records import Domain, Mode

LANE, ZERO = b"l" * 32, bytes(32)
HOUR = 3600.0


def add(journal: Journal, name: bytes, state: str = "closed") -> bytes:
    start_hash = name * 32
    journal.put_session(
        StoredSession(start_hash, start_hash, b"r" * 32, LANE, "drafter", b"", b"", b"", state)
    )
    journal.put_round(StoredRound(start_hash, 0, None, b"verdict", b""))
    journal.secret_once(f"draft:{start_hash.hex()}:0:{ZERO.hex()}", lambda: b"frame")
    return start_hash


def sign(
    journal: Journal, count: int, *starts: bytes, base: bytes = ZERO, drafter: bytes = b"D"
) -> None:
    runs = pack_runs(tuple(LeafRun(start, 0, 1) for start in starts))
    journal.put_voucher(
        StoredVoucher(LANE, 0, count, base, b"%d" % count, b"C", b"V", drafter, runs)
    )


async def test_old_closed_sessions_leave_with_all_that_is_theirs(tmp_path: Path) -> None:
    now = [0.0]
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    old, covered, open_ = add(journal, b"o"), add(journal, b"c"), add(journal, b"p", "open")
    now[0] = 20 * HOUR
    sign(journal, 1, covered)  # its tree is needed to settle and to answer a draw
    fresh = add(journal, b"f")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_short, journal, 10 * HOUR, lambda: now[0])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [row.start_hash for row in journal.sessions()] == [covered, open_, fresh]
    assert journal.rounds(old) == []
    assert journal.secret(f"draft:{old.hex()}:0:{ZERO.hex()}") is None
    for kept in (covered, open_, fresh):
        assert journal.rounds(kept)
        assert journal.secret(f"draft:{kept.hex()}:0:{ZERO.hex()}") == b"frame"


async def test_superseded_vouchers_leave_and_their_successors_stay(tmp_path: Path) -> None:
    now = [0.0]
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    start = add(journal, b"o")
    for count in (1, 2, 3):
        sign(journal, count, start)
    sign(journal, 4, start, drafter=b"")  # cannot settle yet: takes nobody's place
    sign(journal, 1, start, base=b"b" * 32)
    now[0] = 20 * HOUR
    sign(journal, 5, start)  # of these days: the one before may be what has settled
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_short, journal, 10 * HOUR, lambda: now[0])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    left = [(row.base_root, row.leaf_count) for row in journal.vouchers()]
    assert sorted(left) == sorted([(ZERO, 3), (ZERO, 4), (ZERO, 5), (b"b" * 32, 1)])


async def test_a_batch_can_be_opened_when_its_base_is_long_gone(tmp_path: Path) -> None:
    """A lane lay still past the retention and serves again: V owes openings of the new batch, whose
    root names the old one's."""
    now, domain = [0.0], Domain(31337, b"\x55" * 20)
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    keys = (b"\x01" * 32, b"\x02" * 32, b"\x03" * 32)
    old = play(domain, Random(3), Mode.GREEDY, keys=keys)
    keep_session(journal, old, "verifier")
    first = voucher_over(domain, old.rounds, keys)
    keep_voucher(journal, old, first)
    base = trees.SumTree(evidence.record for evidence in old.rounds).settled(None)
    now[0] = 40 * HOUR
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_short, journal, 30 * HOUR, lambda: now[0])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert journal.rounds(old.rounds[0].start.struct_hash) == []
    fresh = play(domain, Random(4), Mode.GREEDY, keys=keys)
    keep_session(journal, fresh, "verifier")
    second = voucher_over(domain, fresh.rounds, keys, base=base)
    keep_voucher(journal, fresh, second)
    room = EvidenceRoom(journal, domain)
    held = room.batch(second.voucher.root)
    assert held is not None
    assert opening_of(held, second.voucher.root, b"\x07" * 32, 0)
    # Where an older program has written no top, there is nothing to open it with, and no crash.
    journal._db.execute("UPDATE vouchers SET top = x''")
    assert room.batch(second.voucher.root) is None
    assert room.batch(first.voucher.root) is not None


def test_a_voucher_that_another_goes_on_from_stays(tmp_path: Path) -> None:
    now = [0.0]
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    start = add(journal, b"o")
    root = b"r" * 32
    runs = pack_runs((LeafRun(start, 0, 1),))
    for count, mark in ((1, root), (2, b"s" * 32)):
        wire = bytes(117) + mark + bytes([count])
        journal.put_voucher(StoredVoucher(LANE, 0, count, ZERO, wire, b"C", b"V", b"D", runs))
    sign(journal, 1, start, base=root)
    journal.prune_vouchers(HOUR)
    assert [row.leaf_count for row in journal.vouchers() if row.base_root == ZERO] == [1, 2]


async def test_what_was_delivered_for_audits_leaves_and_other_secrets_stay(tmp_path: Path) -> None:
    now = [0.0]
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    for name in ("parcel:aa", "ticket:drawn:1:0:0", "jury:1:aa", "challenge:aa"):
        journal.secret_once(name, lambda: b"old")

    async def sweep() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_short, journal, 10 * HOUR, lambda: now[0])
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    now[0] = TICKETS_KEPT - HOUR  # an audit may run for longer than sessions are kept
    await sweep()
    assert journal.secret("parcel:aa") == b"old"
    now[0] = TICKETS_KEPT + HOUR
    journal.secret_once("parcel:bb", lambda: b"new")
    await sweep()
    left = [n for n in ("parcel", "ticket", "jury", "challenge") if journal.secrets_under(n)]
    assert left == ["parcel", "jury", "challenge"]
    assert journal.secret("parcel:bb") == b"new"
    assert journal.secret("parcel:aa") is None
