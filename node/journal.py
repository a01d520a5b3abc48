"""What a node has signed, learnt and promised, on disk before anyone else hears of it.

One SQLite file in WAL mode, one writer (this object, used from one thread). A record is signed at
most once per slot: `sign_once` writes the signed bytes in one transaction before they can be sent,
and gives the same bytes back for ever after, so that a restart re-sends and never re-signs.

Durability. `full` (default) is SQLite's synchronous=FULL: a committed row survives a power cut.
`normal` survives a killed process but may lose the last commits in a power cut; it is for machines
whose disk syncs slowly and says so in `status`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from settlement.records import Domain
from settlement.schema import Record

R = TypeVar("R", bound=Record)

SCHEMA_VERSION: Final = 4
# One statement list per version; a journal of version n runs n+1, n+2, … once each.
_MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE slots (
        slot TEXT PRIMARY KEY, record BLOB NOT NULL, signature BLOB NOT NULL, made REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL, made REAL NOT NULL)
        WITHOUT ROWID;
    CREATE TABLE sessions (
        start_hash BLOB PRIMARY KEY, session_id BLOB NOT NULL, request_id BLOB NOT NULL,
        lane BLOB NOT NULL, role TEXT NOT NULL, terms BLOB NOT NULL, salt BLOB NOT NULL,
        prompt BLOB NOT NULL, state TEXT NOT NULL, made REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX sessions_by_state ON sessions (state);
    CREATE TABLE rounds (
        start_hash BLOB NOT NULL, round INTEGER NOT NULL, draft BLOB, verdict BLOB NOT NULL,
        private BLOB NOT NULL, PRIMARY KEY (start_hash, round)
    ) WITHOUT ROWID;
    CREATE TABLE vouchers (
        lane BLOB NOT NULL, epoch INTEGER NOT NULL, leaf_count INTEGER NOT NULL,
        base_root BLOB NOT NULL, voucher BLOB NOT NULL, client BLOB NOT NULL,
        verifier BLOB NOT NULL, drafter BLOB NOT NULL, leaves BLOB NOT NULL, made REAL NOT NULL,
        PRIMARY KEY (lane, epoch, base_root, leaf_count)
    ) WITHOUT ROWID;
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """,
    "CREATE INDEX sessions_by_id ON sessions (session_id);",
    "CREATE INDEX vouchers_by_root ON vouchers (substr(voucher, 118, 32));",
    "ALTER TABLE vouchers ADD COLUMN top BLOB NOT NULL DEFAULT x'';",
)
_ROOT: Final = "substr(voucher, 118, 32)"  # where a voucher's wire form has its root
_VOUCHER: Final = (
    "SELECT lane, epoch, leaf_count, base_root, voucher, client, verifier, drafter, leaves, made, "
    "top FROM vouchers "
)


class JournalError(RuntimeError):
    """The journal cannot be used: the message says why and what to do."""


class SlotTaken(JournalError):
    """Another record was signed in this slot before; `record` and `signature` are its bytes."""

    def __init__(self, slot: str, record: bytes, signature: bytes) -> None:
        super().__init__(
            f"slot {slot} already holds a signed record; send that one again, never a second"
        )
        self.slot, self.record, self.signature = slot, record, signature


def _keep_private(path: str) -> None:
    """The file, made if need be, is its owner's alone: prompts, salts and secrets lie in it. What
    SQLite puts beside it gets the same mode."""
    if path == ":memory:":
        return
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return  # SQLite finds the same and says it
    if os.stat(path).st_mode & 0o077:
        try:
            os.chmod(path, 0o600)
        except OSError as error:
            raise JournalError(
                f"others can read {path}, and it is not yours to change ({error.strerror}); have "
                f"its owner run: chmod 600 {path}"
            ) from error


@dataclass(frozen=True)
class StoredSession:
    """A session as the journal holds it; `terms` is the wire form the role layer wrote."""

    start_hash: bytes
    session_id: bytes
    request_id: bytes
    lane: bytes
    role: str
    terms: bytes
    salt: bytes
    prompt: bytes
    state: str


@dataclass(frozen=True)
class StoredRound:
    """A committed round: frames as they were sent, and what only this node knows of it."""

    start_hash: bytes
    round: int
    draft: bytes | None
    verdict: bytes
    private: bytes


@dataclass(frozen=True)
class StoredVoucher:
    """A voucher with the signatures known so far (empty bytes: not yet).

    Attributes:
        leaves: its rounds, packed (`stored.pack_runs`).
        made: when it was journalled, unix seconds; set by the journal.
        top: its tree's top, which with the voucher opens its root when the rounds are long gone;
            empty in rows of older formats.
    """

    lane: bytes
    epoch: int
    leaf_count: int
    base_root: bytes
    voucher: bytes
    client: bytes
    verifier: bytes
    drafter: bytes
    leaves: bytes
    made: float = 0.0
    top: bytes = b""


class Journal:
    """The one writer of a node's journal.

    Args:
        path: the file, or ":memory:" in tests.
        durability: "full" or "normal", see the module.
        clock: unix seconds.
        hook: called with ("before" | "after", what) around every commit; tests crash a role there.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        durability: str = "full",
        clock: Callable[[], float] = time.time,
        hook: Callable[[str, str], None] | None = None,
    ) -> None:
        if durability not in ("full", "normal"):
            raise JournalError(f"durability is 'full' or 'normal', not {durability!r}")
        self.path = str(path)
        self.durability = durability
        self._clock = clock
        self._hook = hook
        self._open = False  # inside a batch
        try:
            _keep_private(self.path)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={durability.upper()}")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise JournalError(
                f"{self.path} is not a usable journal ({error}); restore a backup made with "
                "`verdraft journal backup`, and never start a signing node on an empty one"
            ) from error

    def _migrate(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} has format {version}, newer than this program's {SCHEMA_VERSION}; "
                "install the version that wrote it"
            )
        for number in range(version, SCHEMA_VERSION):
            # executescript commits by itself, so the version moves inside the same script.
            self._db.executescript(
                f"BEGIN; {_MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;"
            )

    @contextmanager
    def batch(self, what: str) -> Iterator[None]:
        """All writes inside become one commit: a record and what must be sent with it."""
        with self._commit(what):
            self._open = True
            try:
                yield
            finally:
                self._open = False

    @contextmanager
    def _commit(self, what: str) -> Iterator[sqlite3.Connection]:
        if self._open:
            yield self._db
            return
        if self._hook is not None:
            self._hook("before", what)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        if self._hook is not None:
            self._hook("after", what)

    # -- signing

    def sign_once(self, slot: str, record: Record, domain: Domain, private_key: bytes) -> bytes:
        """The signature over `record`, made and journalled if the slot is free.

        Raises SlotTaken if another record was signed there: the caller sends that one again.
        """
        wire = record.to_wire()
        row = self._db.execute(
            "SELECT record, signature FROM slots WHERE slot = ?", (slot,)
        ).fetchone()
        if row is not None:
            if row[0] != wire:
                raise SlotTaken(slot, row[0], row[1])
            return bytes(row[1])
        signature = domain.sign(record, private_key)
        with self._commit(f"slot {slot.split(':')[0]}") as db:
            db.execute(
                "INSERT INTO slots VALUES (?, ?, ?, ?)", (slot, wire, signature, self._clock())
            )
        return signature

    def signed(self, slot: str, kind: type[R]) -> tuple[R, bytes] | None:
        """The record signed in `slot` and its signature, or None."""
        row = self._db.execute(
            "SELECT record, signature FROM slots WHERE slot = ?", (slot,)
        ).fetchone()
        return None if row is None else (kind.from_wire(row[0]), bytes(row[1]))

    # -- secrets: nonces, hash-chain seeds, salts

    def secret_once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The secret of that name; made and journalled on first use."""
        found = self.secret(name)
        if found is not None:
            return found
        value = make()
        with self._commit(f"secret {name.split(':')[0]}") as db:
            db.execute("INSERT INTO secrets VALUES (?, ?, ?)", (name, value, self._clock()))
        return value

    def secret(self, name: str) -> bytes | None:
        """The secret of that name, or None where none was made."""
        row = self._db.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def secrets_under(self, prefix: str) -> list[tuple[str, bytes]]:
        """(name, value) of the secrets whose names are `prefix`, a colon and more, oldest first."""
        rows = self._db.execute(
            "SELECT name, value FROM secrets WHERE name > ? AND name < ? ORDER BY made, name",
            (f"{prefix}:", f"{prefix};"),  # ";" follows ":"
        )
        return [(str(name), bytes(value)) for name, value in rows]

    # -- sessions and rounds

    def put_session(self, session: StoredSession) -> None:
        """Stores a session; the same one again changes nothing."""
        if self.session(session.start_hash) is not None:
            return
        with self._commit("session") as db:
            db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session.start_hash,
                    session.session_id,
                    session.request_id,
                    session.lane,
                    session.role,
                    session.terms,
                    session.salt,
                    session.prompt,
                    session.state,
                    self._clock(),
                ),
            )

    def set_session_state(self, start_hash: bytes, state: str) -> None:
        with self._commit("session-state") as db:
            db.execute("UPDATE sessions SET state = ? WHERE start_hash = ?", (state, start_hash))

    _SESSION: Final = (
        "SELECT start_hash, session_id, request_id, lane, role, terms, salt, prompt, state "
        "FROM sessions "
    )

    def session(self, start_hash: bytes) -> StoredSession | None:
        row = self._db.execute(self._SESSION + "WHERE start_hash = ?", (start_hash,)).fetchone()
        return None if row is None else StoredSession(*row)

    def session_by_id(self, session_id: bytes) -> StoredSession | None:
        row = self._db.execute(self._SESSION + "WHERE session_id = ?", (session_id,)).fetchone()
        return None if row is None else StoredSession(*row)

    def sessions(self, state: str | None = None) -> list[StoredSession]:
        """Sessions in the order they were made; of one state if given."""
        where, args = ("", ()) if state is None else ("WHERE state = ? ", (state,))
        rows = self._db.execute(self._SESSION + where + "ORDER BY made", args).fetchall()
        return [StoredSession(*row) for row in rows]

    def lanes(self) -> list[tuple[bytes, bytes]]:
        """(lane id, terms of one of its sessions) of every lane."""
        rows = self._db.execute("SELECT lane, terms FROM sessions GROUP BY lane").fetchall()
        return [(bytes(lane), bytes(terms)) for lane, terms in rows]

    def put_round(self, row: StoredRound) -> None:
        """Stores a committed round; the same one again changes nothing, another one is an error
        (a (session, round) has one verdict)."""
        found = self.round(row.start_hash, row.round)
        if found is not None:
            if found.verdict != row.verdict:
                raise JournalError(f"round {row.round} is committed with another verdict already")
            return
        with self._commit("round") as db:
            db.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?)",
                (row.start_hash, row.round, row.draft, row.verdict, row.private),
            )

    def round(self, start_hash: bytes, number: int) -> StoredRound | None:
        """A committed round of a session, or None."""
        row = self._db.execute(
            "SELECT start_hash, round, draft, verdict, private FROM rounds "
            "WHERE start_hash = ? AND round = ?",
            (start_hash, number),
        ).fetchone()
        return None if row is None else StoredRound(*row)

    def rounds(self, start_hash: bytes, first: int = 0) -> list[StoredRound]:
        """A session's committed rounds from `first` on, ascending."""
        rows = self._db.execute(
            "SELECT start_hash, round, draft, verdict, private FROM rounds "
            "WHERE start_hash = ? AND round >= ? ORDER BY round",
            (start_hash, first),
        ).fetchall()
        return [StoredRound(*row) for row in rows]

    # -- vouchers

    def put_voucher(self, row: StoredVoucher) -> None:
        """Stores a voucher, or adds signatures to the one stored; a signature is never removed.

        Raises:
            JournalError: another voucher stands for these leaves; it stays.
        """
        with self._commit("voucher") as db:
            stored = db.execute(
                "INSERT INTO vouchers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (lane, epoch, base_root, leaf_count) DO UPDATE SET "
                "client = CASE WHEN length(client) THEN client ELSE excluded.client END, "
                "verifier = CASE WHEN length(verifier) THEN verifier ELSE excluded.verifier END, "
                "drafter = CASE WHEN length(drafter) THEN drafter ELSE excluded.drafter END "
                "WHERE voucher = excluded.voucher",
                (
                    row.lane,
                    row.epoch,
                    row.leaf_count,
                    row.base_root,
                    row.voucher,
                    row.client,
                    row.verifier,
                    row.drafter,
                    row.leaves,
                    self._clock(),
                    row.top,
                ),
            )
            if not stored.rowcount:
                raise JournalError(
                    f"lane 0x{row.lane.hex()}, epoch {row.epoch}: another voucher over the first "
                    f"{row.leaf_count} leaves is kept already"
                )

    def vouchers(self, lane: bytes | None = None) -> list[StoredVoucher]:
        """Vouchers, oldest first; of one lane if given."""
        where, args = ("", ()) if lane is None else ("WHERE lane = ? ", (lane,))
        rows = self._db.execute(_VOUCHER + where + "ORDER BY made, leaf_count", args).fetchall()
        return [StoredVoucher(*row) for row in rows]

    def voucher_of_root(self, root: bytes) -> StoredVoucher | None:
        """The newest voucher with that root, or None."""
        row = self._db.execute(
            f"{_VOUCHER}WHERE {_ROOT} = ? ORDER BY made DESC, leaf_count DESC LIMIT 1", (root,)
        ).fetchone()
        return None if row is None else StoredVoucher(*row)

    # -- small facts: cursors, counters

    def fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        """Writes a fact over the one before."""
        with self._commit("fact") as db:
            db.execute(
                "INSERT INTO facts VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )

    # -- keeping

    def prune(self, before: float, keep: Collection[bytes] = (), most: int = 1 << 30) -> int:
        """Drops at most that many closed sessions made before that time, with their rounds and
        drafts, but for those whose start hash is in `keep`: past the evidence lifetime nobody may
        ask for them. Slots stay: a signature is forever. Returns how many."""
        with self._commit("prune") as db:
            old = db.execute(
                "SELECT start_hash FROM sessions WHERE state = 'closed' AND made < ?", (before,)
            ).fetchall()
            gone = [bytes(start_hash) for (start_hash,) in old if start_hash not in keep][:most]
            for start_hash in gone:
                db.execute("DELETE FROM rounds WHERE start_hash = ?", (start_hash,))
                db.execute("DELETE FROM sessions WHERE start_hash = ?", (start_hash,))
                # The drafter's frames: "draft:<start hash>:…" (";" follows ":").
                name = f"draft:{start_hash.hex()}"
                db.execute(
                    "DELETE FROM secrets WHERE name > ? AND name < ?", (f"{name}:", f"{name};")
                )
        return len(gone)

    def prune_secrets(self, prefix: str, before: float) -> int:
        """Drops secrets under the prefix (as `secrets_under`) made before that time. Returns how
        many."""
        with self._commit("prune") as db:
            done = db.execute(
                "DELETE FROM secrets WHERE name > ? AND name < ? AND made < ?",
                (f"{prefix}:", f"{prefix};", before),
            )
        return done.rowcount

    def prune_vouchers(self, before: float) -> int:
        """Drops vouchers made before that time that a larger one on the same base, no younger and
        signed by all three, has superseded; never one that another goes on from, whose root its
        openings need. Returns how many."""
        with self._commit("prune") as db:
            done = db.execute(
                "DELETE FROM vouchers AS old WHERE made < ?1 AND EXISTS (SELECT 1 FROM vouchers "
                "AS new WHERE new.lane = old.lane AND new.epoch = old.epoch "
                "AND new.base_root = old.base_root AND new.leaf_count > old.leaf_count "
                "AND new.made < ?1 AND length(new.client) AND length(new.verifier) "
                "AND length(new.drafter)) AND NOT EXISTS (SELECT 1 FROM vouchers AS next "
                "WHERE next.lane = old.lane AND next.epoch = old.epoch "
                f"AND next.base_root = {_ROOT.replace('voucher', 'old.voucher')})",
                (before,),
            )
        return done.rowcount

    def backup(self, target: Path) -> None:
        """A consistent copy at `target`, made while the node runs; refuses to overwrite."""
        if target.exists():
            raise JournalError(f"{target} exists; name a new file")
        _keep_private(str(target))
        with sqlite3.connect(target) as copy:
            self._db.backup(copy)
        copy.close()

    def close(self) -> None:
        self._db.close()
