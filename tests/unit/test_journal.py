"""The journal: a slot is signed once, for ever; a crash around any commit loses nothing sent."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from node.journal import (
    Journal,
    JournalError,
    SlotTaken,
    StoredRound,
    StoredSession,
    StoredVoucher,
)
from settlement.records import Domain, SessionStart, Voucher

DOMAIN = Domain(31337, bytes(range(20)))
KEY = b"\x11" * 32


def start(k: int) -> SessionStart:
    return SessionStart(b"\x01" * 32, b"\x02" * 32, k)


class Crash(Exception):
    pass


def test_a_slot_gives_the_same_signature_for_the_same_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    first = journal.sign_once("verdict:1", start(1), DOMAIN, KEY)
    assert journal.sign_once("verdict:1", start(1), DOMAIN, KEY) == first
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.signed("verdict:1", SessionStart) == (start(1), first)


def test_a_slot_refuses_a_second_record_and_carries_the_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    first = journal.sign_once("verdict:1", start(1), DOMAIN, KEY)
    with pytest.raises(SlotTaken) as caught:
        journal.sign_once("verdict:1", start(2), DOMAIN, KEY)
    assert caught.value.record == start(1).to_wire()
    assert caught.value.signature == first


def test_a_crash_before_the_commit_leaves_the_slot_free_and_after_it_taken(tmp_path: Path) -> None:
    def hook(when: str, what: str) -> None:
        if when == crash_at:
            raise Crash

    crash_at = "before"
    journal = Journal(tmp_path / "j", hook=hook)
    with pytest.raises(Crash):
        journal.sign_once("verdict:1", start(1), DOMAIN, KEY)
    journal.close()
    crash_at = "after"
    journal = Journal(tmp_path / "j", hook=hook)
    assert journal.signed("verdict:1", SessionStart) is None
    with pytest.raises(Crash):
        journal.sign_once("verdict:1", start(1), DOMAIN, KEY)
    journal.close()
    journal = Journal(tmp_path / "j")
    assert journal.signed("verdict:1", SessionStart) is not None


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    assert journal.secret_once("nonce:1", lambda: b"a") == b"a"
    assert journal.secret_once("nonce:1", lambda: b"b") == b"a"
    assert journal.secret("nonce:2") is None


def session(state: str = "open") -> StoredSession:
    return StoredSession(
        b"s" * 32, b"i" * 32, b"r" * 32, b"l" * 32, "verifier", b"terms", b"salt", b"ids", state
    )


def test_rounds_are_idempotent_but_never_replaced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.put_session(session())
    journal.put_session(session())
    row = StoredRound(b"s" * 32, 0, None, b"verdict", b"salts")
    journal.put_round(row)
    journal.put_round(row)
    assert journal.rounds(b"s" * 32) == [row]
    with pytest.raises(JournalError, match="another verdict"):
        journal.put_round(StoredRound(b"s" * 32, 0, None, b"other", b"salts"))


def test_a_voucher_only_gains_signatures(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    row = StoredVoucher(b"l" * 32, 0, 3, bytes(32), b"voucher", b"C", b"", b"", b"")
    journal.put_voucher(row)
    journal.put_voucher(StoredVoucher(b"l" * 32, 0, 3, bytes(32), b"voucher", b"", b"V", b"", b""))
    with pytest.raises(JournalError, match="another voucher"):
        journal.put_voucher(
            StoredVoucher(b"l" * 32, 0, 3, bytes(32), b"another", b"X", b"X", b"X", b"")
        )
    (stored,) = journal.vouchers(b"l" * 32)
    assert (stored.voucher, stored.client, stored.verifier, stored.drafter) == (
        b"voucher",
        b"C",
        b"V",
        b"",
    )


def test_a_voucher_is_found_by_its_root_the_newest_first(tmp_path: Path) -> None:
    """Also in a journal of the version that had no index for it."""
    now = [0.0]
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    for leaves, root in ((1, b"a" * 32), (2, b"b" * 32), (3, b"a" * 32)):
        now[0] += 1
        voucher = Voucher(b"l" * 32, 7, 9, 8, 6, 5, b"z" * 32, root, leaves, (0,) * 8)
        row = StoredVoucher(
            voucher.lane, 7, leaves, voucher.base_root, voucher.to_wire(), b"C", b"", b"", b""
        )
        journal.put_voucher(row)
    journal._db.executescript(
        "DROP INDEX vouchers_by_root; ALTER TABLE vouchers DROP COLUMN top; PRAGMA user_version = 2"
    )
    journal.close()
    journal = Journal(tmp_path / "j")
    for root, leaves in ((b"a" * 32, 3), (b"b" * 32, 2)):
        found = journal.voucher_of_root(root)
        assert found is not None
        assert (found.leaf_count, found.top) == (leaves, b"")
        assert Voucher.from_wire(found.voucher).root == root
    assert journal.voucher_of_root(b"z" * 32) is None
    plan = journal._db.execute(
        "EXPLAIN QUERY PLAN SELECT 1 FROM vouchers WHERE substr(voucher, 118, 32) = ?", (b"a",)
    ).fetchall()
    assert "vouchers_by_root" in str(plan)


def test_pruning_drops_old_closed_sessions_and_keeps_slots(tmp_path: Path) -> None:
    now = [0.0]
    journal = Journal(tmp_path / "j", clock=lambda: now[0])
    journal.put_session(session())
    journal.put_round(StoredRound(b"s" * 32, 0, None, b"v", b""))
    journal.sign_once("verdict:1", start(1), DOMAIN, KEY)
    assert journal.prune(before=10.0) == 0
    journal.set_session_state(b"s" * 32, "closed")
    assert journal.prune(before=10.0) == 1
    assert journal.rounds(b"s" * 32) == []
    assert journal.signed("verdict:1", SessionStart) is not None


def test_a_journal_and_its_backup_are_their_owners_alone(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.sqlite", tmp_path / "copy.sqlite"
    before = os.umask(0)
    try:
        path.touch(0o644)  # as earlier versions made it
        journal = Journal(path)
        journal.backup(copy)
    finally:
        os.umask(before)
    found = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    journal.close()
    assert found == dict.fromkeys(found, 0o600)
    assert {"journal.sqlite", "journal.sqlite-wal", "copy.sqlite"} <= found.keys()


def test_a_readable_journal_of_somebody_elses_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "journal.sqlite"
    path.touch()
    path.chmod(0o644)
    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(JournalError, match="have its owner run: chmod 600"):
        Journal(path)


def test_a_backup_is_a_journal_and_never_overwrites(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.set_fact("cursor", "7")
    journal.backup(tmp_path / "copy")
    assert Journal(tmp_path / "copy").fact("cursor") == "7"
    with pytest.raises(JournalError, match="exists"):
        journal.backup(tmp_path / "copy")


def test_garbage_and_newer_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"not a database" * 100)
    with pytest.raises(JournalError, match="backup"):
        Journal(tmp_path / "garbage")
    with sqlite3.connect(tmp_path / "newer") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="newer"):
        Journal(tmp_path / "newer")
    with pytest.raises(JournalError, match="durability"):
        Journal(tmp_path / "x", durability="none")
