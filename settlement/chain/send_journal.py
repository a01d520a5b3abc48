"""What the transaction sender must remember: one small SQLite file per key and chain.

A transaction's bytes are here before the network sees them. So a process that died at any moment
finds, when it starts again, every transaction that may be out there, and sends those same bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from settlement.chain.errors import ChainError

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS intents (
    intent  TEXT PRIMARY KEY,
    call    TEXT NOT NULL,
    gas     INTEGER NOT NULL,
    nonce   INTEGER NOT NULL UNIQUE,
    result  TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS attempts (
    hash     BLOB PRIMARY KEY,
    intent   TEXT NOT NULL REFERENCES intents (intent),
    nonce    INTEGER NOT NULL,
    raw      BLOB NOT NULL,
    max_fee  TEXT NOT NULL,
    priority TEXT NOT NULL,
    at       REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS open_intents ON intents (nonce) WHERE result IS NULL;
CREATE INDEX IF NOT EXISTS attempts_of ON attempts (intent);
"""


class JournalMismatch(ChainError):
    """The journal belongs to another chain, another genesis or another key."""

    hint = "Each key and each chain has its own file: name another, or move this one away"


class IntentConflict(ChainError):
    """The same intent was submitted before with another call."""

    hint = "An intent's name must say all that its call depends on"


@dataclass(frozen=True)
class Call:
    """One transaction to be made: to an address (20 bytes), or None to create a contract. `where`
    names it in errors (`LaneEscrow.settle`)."""

    to: bytes | None
    data: bytes
    value: int = 0
    where: str = "call"

    def to_json(self) -> str:
        to = None if self.to is None else self.to.hex()
        return json.dumps([to, self.data.hex(), str(self.value), self.where])

    @classmethod
    def from_json(cls, text: str) -> Call:
        to, data, value, where = json.loads(text)
        return cls(
            None if to is None else bytes.fromhex(to), bytes.fromhex(data), int(value), where
        )

    def same_effect(self, other: Call) -> bool:
        return (self.to, self.data, self.value) == (other.to, other.data, other.value)


@dataclass(frozen=True)
class Fees:
    """Wei per gas. A chain without EIP-1559 has `priority` = `max_fee` = the gas price."""

    max_fee: int
    priority: int


@dataclass(frozen=True)
class Attempt:
    """Signed bytes for an intent; the replacements of one share its nonce, so one is mined."""

    hash: bytes
    raw: bytes
    nonce: int
    fees: Fees
    at: float  # unix seconds


@dataclass(frozen=True)
class Mined:
    """Where a transaction landed. `ok` is the receipt's status; `contract` the created address."""

    hash: bytes
    block_number: int
    block_hash: bytes
    ok: bool
    gas_used: int
    gas_price: int
    contract: bytes | None

    @property
    def cost(self) -> int:
        """Wei spent on gas."""
        return self.gas_used * self.gas_price

    def to_json(self) -> str:
        fields = asdict(self)
        return json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in fields.items()})

    @classmethod
    def from_json(cls, text: str) -> Mined:
        fields: dict[str, Any] = json.loads(text)
        for name in ("hash", "block_hash", "contract"):
            if fields[name] is not None:
                fields[name] = bytes.fromhex(fields[name])
        return cls(**fields)


@dataclass(frozen=True)
class Pending:
    """An intent as the journal holds it: open while `result` is None."""

    intent: str
    call: Call
    gas: int
    nonce: int
    attempts: tuple[Attempt, ...]  # of this nonce, in the order of signing; never empty
    result: Mined | None

    @property
    def newest(self) -> Attempt:
        return self.attempts[-1]


class SendJournal(Protocol):
    """The memory a sender needs. Each write is durable when it returns; `exclusive` holds off
    every other sender of the key, of this process or another."""

    def bind(self, identity: dict[str, str]) -> None: ...
    def exclusive(self) -> contextlib.AbstractContextManager[None]: ...
    def find(self, intent: str) -> Pending | None: ...
    def open(self) -> list[Pending]: ...
    def next_nonce(self) -> int: ...
    def add(self, intent: str, call: Call, gas: int, attempt: Attempt) -> None: ...
    def add_attempt(self, intent: str, attempt: Attempt) -> None: ...
    def finish(self, intent: str, result: Mined) -> None: ...


def send_journal_path(keystore: Path, address: bytes, chain_id: int) -> Path:
    """Beside the keystore, so that every program that has the key finds the one journal."""
    return keystore.parent / f"sends-{address.hex()}-{chain_id}.sqlite"


class SqliteSendJournal:
    """SendJournal in a SQLite file, which several threads and processes may have open."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = threading.RLock()
        self._held = 0
        self._lock_file = open(path.with_name(path.name + ".lock"), "a")  # noqa: SIM115
        self._db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        # FULL: what was written survives a power cut, not just the death of the process.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._lock_file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds off every other sender of this file, in other processes too; may be nested."""
        with self._lock:
            if self._held == 0:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
                if self._held == 0:
                    fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def bind(self, identity: dict[str, str]) -> None:
        """Tie the file to a key and a chain on first use; JournalMismatch on another later."""
        with self._transaction() as db:
            known = dict(db.execute("SELECT key, value FROM meta"))
            for key, value in identity.items():
                if known.setdefault(key, value) != value:
                    raise JournalMismatch(
                        f"{self.path} holds transactions of {key} {known[key]}, not {value}"
                    )
                db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))

    def find(self, intent: str) -> Pending | None:
        found = self._select("WHERE intent = ?", intent)
        return found[0] if found else None

    def open(self) -> list[Pending]:
        """Every unfinished intent, lowest nonce first."""
        return self._select("WHERE result IS NULL")

    def _select(self, where: str, *values: str) -> list[Pending]:
        with self._lock:
            rows = self._db.execute(
                f"SELECT intent, call, gas, nonce, result FROM intents {where} ORDER BY nonce",
                values,
            ).fetchall()
            return [
                Pending(
                    intent,
                    Call.from_json(call),
                    gas,
                    nonce,
                    self._attempts(intent, nonce),
                    None if result is None else Mined.from_json(result),
                )
                for intent, call, gas, nonce, result in rows
            ]

    def _attempts(self, intent: str, nonce: int) -> tuple[Attempt, ...]:
        rows = self._db.execute(
            "SELECT hash, raw, nonce, max_fee, priority, at FROM attempts "
            "WHERE intent = ? AND nonce = ? ORDER BY rowid",
            (intent, nonce),
        )
        return tuple(
            Attempt(hash_, raw, nonce_, Fees(int(max_fee), int(priority)), at)
            for hash_, raw, nonce_, max_fee, priority, at in rows
        )

    def next_nonce(self) -> int:
        """One past the highest nonce ever given out here; 0 for an empty journal."""
        with self._lock:
            (highest,) = self._db.execute("SELECT max(nonce) FROM attempts").fetchone()
        return 0 if highest is None else int(highest) + 1

    def add(self, intent: str, call: Call, gas: int, attempt: Attempt) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT INTO intents VALUES (?, ?, ?, ?, NULL)",
                (intent, call.to_json(), gas, attempt.nonce),
            )
            self._insert(db, intent, attempt)

    def add_attempt(self, intent: str, attempt: Attempt) -> None:
        """A replacement (same nonce), or a new nonce where a foreign transaction took the old."""
        with self._transaction() as db:
            db.execute("UPDATE intents SET nonce = ? WHERE intent = ?", (attempt.nonce, intent))
            self._insert(db, intent, attempt)

    @staticmethod
    def _insert(db: sqlite3.Connection, intent: str, attempt: Attempt) -> None:
        db.execute(
            "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                attempt.hash,
                intent,
                attempt.nonce,
                attempt.raw,
                str(attempt.fees.max_fee),
                str(attempt.fees.priority),
                attempt.at,
            ),
        )

    def finish(self, intent: str, result: Mined) -> None:
        """The transaction is final: nothing more is done for it."""
        with self._transaction() as db:
            db.execute("UPDATE intents SET result = ? WHERE intent = ?", (result.to_json(), intent))
