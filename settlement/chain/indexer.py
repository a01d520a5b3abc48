"""Follow confirmed blocks, decode their events, and take back what a reorganisation undid.

A node is believed on nothing but block hashes: logs marked as removed may never come (anvil sends
none). The indexer keeps the hashes of blocks it has read; when the chain has another hash at the
height of the newest of them, it goes back to the newest one that still stands.

The pure part (`common_ancestor`, `next_range`) decides; `Indexer` asks the chain and keeps the
cursor in SQLite.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from settlement.chain.contracts import Contract
from settlement.chain.errors import ChainError
from settlement.chain.events import typed
from settlement.chain.rpc import Header, Log, Rpc

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS identity (
    one INTEGER PRIMARY KEY CHECK (one = 1), genesis BLOB NOT NULL, start INTEGER NOT NULL
) STRICT;
"""
_RANGE: Final = 1000  # blocks a request for logs covers: what public endpoints allow
_KEPT: Final = 512  # block hashes remembered; a deeper reorganisation starts over


class StoreOfAnotherChain(ChainError):
    """The indexer's file was written on another chain or for another deployment."""

    hint = "It holds nothing that the chain does not: remove it, and it is built again"


class ChainMoved(ChainError):
    """The chain was reorganised while it was read; the next poll sees it."""


@dataclass(frozen=True)
class BlockRef:
    """A block by height and hash (32 bytes)."""

    number: int
    hash: bytes


@dataclass(frozen=True)
class ChainEvent:
    """One decoded event and where it stands. `event` is a class of `events`."""

    event: Any
    contract: str
    block_number: int
    block_hash: bytes
    transaction: bytes
    log_index: int


@dataclass(frozen=True)
class Batch:
    """What one poll brought: first, if `rolled_back_to` is not None, forget all events of blocks
    above it; then take `events`, in chain order. `head` is the newest block read."""

    rolled_back_to: int | None
    events: tuple[ChainEvent, ...]
    head: BlockRef


# ---------------------------------------------------------------- pure


def common_ancestor(
    known: Sequence[BlockRef], hash_at: Callable[[int], bytes | None], floor: int
) -> int:
    """Height of the newest block in `known` (ascending) that the chain still has, by `hash_at`;
    `floor` if there is none. Asks for O(log n) blocks: hashes agree below the fork only."""
    low, high = 0, len(known)
    while low < high:
        middle = (low + high) // 2
        if hash_at(known[middle].number) == known[middle].hash:
            low = middle + 1
        else:
            high = middle
    return known[low - 1].number if low else floor


def next_range(cursor: int, head: int, confirmations: int, limit: int = _RANGE) -> range:
    """Heights to read next: after `cursor`, with `confirmations` blocks (their own counted) on
    them, at most `limit`."""
    newest = head - confirmations + 1
    return range(cursor + 1, min(newest, cursor + limit) + 1)


# ---------------------------------------------------------------- store


class IndexStore:
    """The cursor: hashes of blocks that were read, and their consumer's side of the same commit.

    `connection` may hold the consumer's own tables: what it writes inside `apply` is committed
    together with the cursor, so that each event takes effect once.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.connection = sqlite3.connect(
            path, timeout=30, check_same_thread=False, isolation_level=None
        )
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.executescript(_SCHEMA)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside become one commit; none where it raises."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def bind(self, genesis: bytes, start: int) -> None:
        """StoreOfAnotherChain if the file began elsewhere."""
        self.connection.execute("INSERT OR IGNORE INTO identity VALUES (1, ?, ?)", (genesis, start))
        row = self.connection.execute("SELECT genesis, start FROM identity").fetchone()
        if row != (genesis, start):
            raise StoreOfAnotherChain(
                f"{self.path} follows a deployment at block {row[1]} of chain "
                f"0x{row[0].hex()[:8]}…, not at block {start} of 0x{genesis.hex()[:8]}…"
            )

    def blocks(self) -> list[BlockRef]:
        """Read blocks that are remembered, ascending."""
        rows = self.connection.execute("SELECT number, hash FROM blocks ORDER BY number")
        return [BlockRef(number, hash_) for number, hash_ in rows]

    def forget_above(self, number: int) -> None:
        self.connection.execute("DELETE FROM blocks WHERE number > ?", (number,))

    def remember(self, blocks: Iterable[BlockRef]) -> None:
        """Blocks that were read; the oldest beyond what is kept are forgotten."""
        rows = [(block.number, block.hash) for block in blocks]
        self.connection.executemany("INSERT INTO blocks VALUES (?, ?)", rows)
        self.connection.execute(
            "DELETE FROM blocks WHERE number <= (SELECT max(number) FROM blocks) - ?", (_KEPT,)
        )


# ---------------------------------------------------------------- shell


class Indexer:
    """Reads the events of `contracts` from block `start` on, each once, in order.

    `confirmations` counts the block itself: 1 reads up to the head. One thread polls at a time.
    """

    def __init__(
        self,
        rpc: Rpc,
        contracts: Iterable[Contract],
        store: IndexStore,
        *,
        start: int = 0,
        confirmations: int = 1,
        limit: int = _RANGE,
    ) -> None:
        if confirmations < 1:
            raise ValueError(
                f"confirmations count the block itself: at least 1, not {confirmations}"
            )
        self._rpc, self._store = rpc, store
        self._by_address = {contract.address: contract.interface for contract in contracts}
        self._floor = max(start - 1, -1)
        self._confirmations, self._limit = confirmations, limit
        self._lock = threading.Lock()
        genesis = rpc.header(0)
        store.bind(b"" if genesis is None else genesis.hash, start)

    def poll(self, apply: Callable[[Batch], None] = lambda _batch: None) -> Batch | None:
        """Read on by one range of blocks; None when there is nothing new.

        `apply` runs inside the transaction that moves the cursor: if it raises, nothing moved and
        the same batch comes again. Raises ChainMoved when the chain changed underneath (poll
        again), NodeUnreachable, RpcFailed.
        """
        with self._lock:
            known = self._store.blocks()
            newest = known[-1] if known else None
            back_to: int | None = None
            top = self._rpc.head()
            if newest is not None and (top.number, top.hash) == (newest.number, newest.hash):
                return None  # a quiet chain costs one question
            if newest is not None and self._hash_at(newest.number) != newest.hash:
                back_to = common_ancestor(known, self._hash_at, self._floor)
                known = [block for block in known if block.number <= back_to]
            cursor = known[-1].number if known else self._floor
            heights = next_range(cursor, top.number, self._confirmations, self._limit)
            if not heights and back_to is None:
                return None
            blocks, events = self._read(heights, known[-1] if known else None)
            head = blocks[-1] if blocks else (known[-1] if known else BlockRef(cursor, b""))
            batch = Batch(back_to, events, head)
            with self._store.transaction():
                if back_to is not None:
                    self._store.forget_above(back_to)
                self._store.remember(blocks)
                apply(batch)
            return batch

    def catch_up(self, apply: Callable[[Batch], None] = lambda _batch: None) -> None:
        """Poll until nothing is new. What the chain does meanwhile is followed too."""
        while True:
            try:
                if self.poll(apply) is None:
                    return
            except ChainMoved:
                continue

    def _hash_at(self, number: int) -> bytes | None:
        header = self._rpc.header(number)
        return None if header is None else header.hash

    def _read(
        self, heights: range, before: BlockRef | None
    ) -> tuple[list[BlockRef], tuple[ChainEvent, ...]]:
        """Blocks and events of `heights`, seen to be one chain that goes on from `before`."""
        if not heights:
            return [], ()
        # Hashes of the last blocks only: a fork below those starts over.
        first_kept = max(heights.start, heights.stop - _KEPT)
        headers = [self._header(number) for number in range(first_kept, heights.stop)]
        if before is not None and first_kept == before.number + 1:
            headers_before = before.hash
        else:
            headers_before = headers[0].parent
        for header in headers:
            if header.parent != headers_before:
                raise ChainMoved(f"block {header.number} has another parent than was read")
            headers_before = header.hash
        events = self._events(heights)
        # The same last block after as before: so all below it, logs included, was its chain.
        if self._hash_at(headers[-1].number) != headers[-1].hash:
            raise ChainMoved(f"block {headers[-1].number} was replaced while it was read")
        by_number = {header.number: header.hash for header in headers}
        for event in events:
            if by_number.get(event.block_number, event.block_hash) != event.block_hash:
                raise ChainMoved(f"a log of block {event.block_number} is of another block")
        return [BlockRef(header.number, header.hash) for header in headers], events

    def _header(self, number: int) -> Header:
        header = self._rpc.header(number)
        if header is None:
            raise ChainMoved(f"the chain has no block {number} any more")
        return header

    def _events(self, heights: range) -> tuple[ChainEvent, ...]:
        logs = self._rpc.logs(heights.start, heights.stop - 1, self._by_address)
        events = [event for event in map(self._decode, logs) if event is not None]
        events.sort(key=lambda event: (event.block_number, event.log_index))
        return tuple(events)

    def _decode(self, log: Log) -> ChainEvent | None:
        interface = self._by_address.get(log.address)
        if interface is None:
            return None  # the node was asked for ours; another's is not taken for one of them
        decoded = interface.decode_log(log.topics, log.data)
        if decoded is None:
            return None
        return ChainEvent(
            typed(interface.name, decoded),
            interface.name,
            log.block_number,
            log.block_hash,
            log.transaction,
            log.index,
        )
