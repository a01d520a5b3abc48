"""The indexer: each event once and in order, whatever the chain takes back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from counter_contract import KEYS, Counter
from hypothesis import given, settings
from hypothesis import strategies as st

from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contract
from settlement.chain.indexer import (
    Batch,
    BlockRef,
    ChainMoved,
    Indexer,
    IndexStore,
    StoreOfAnotherChain,
    common_ancestor,
    next_range,
)
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import SqliteSendJournal
from settlement.chain.sender import Sender
from settlement.hashing import keccak256


@given(st.integers(0, 40), st.integers(0, 40), st.integers(-1, 5))
def test_the_common_ancestor_is_the_newest_block_that_stands(
    length: int, agree: int, floor: int
) -> None:
    known = [BlockRef(number * 3, bytes([number]) * 32) for number in range(length)]
    asked: list[int] = []

    def hash_at(number: int) -> bytes | None:
        asked.append(number)
        return bytes([number // 3]) * 32 if number // 3 < agree else None

    expected = (min(agree, length) - 1) * 3 if min(agree, length) else floor
    assert common_ancestor(known, hash_at, floor) == expected
    assert len(asked) <= length.bit_length()


@given(st.integers(-1, 100), st.integers(0, 100), st.integers(1, 20), st.integers(1, 30))
def test_the_next_range_is_confirmed_new_and_bounded(
    cursor: int, head: int, confirmations: int, limit: int
) -> None:
    heights = next_range(cursor, head, confirmations, limit)
    assert len(heights) <= limit
    for height in heights:
        assert cursor < height
        assert head - height + 1 >= confirmations
    if len(heights) < limit:
        # Nothing confirmed is left out.
        assert max(heights, default=cursor) >= head - confirmations + 1 or not heights


# ---------------------------------------------------------------- on a chain


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def counter(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Counter:
    rpc = Rpc.connect(anvil.url)
    with SqliteSendJournal(tmp_path_factory.mktemp("deploy") / "sends.sqlite") as journal:
        mined = Sender(rpc, KEYS[0], journal, poll_seconds=0.01).send("new", Counter.creation())
    assert mined.contract is not None
    return Counter(rpc, mined.contract)


class Reader:
    """A consumer: keeps what the indexer told it, under the indexer's own transaction."""

    def __init__(self, counter: Counter, path: Path, **options: int) -> None:
        self.store = IndexStore(path)
        self.store.connection.execute(
            "CREATE TABLE IF NOT EXISTS seen (block INTEGER, id BLOB, total INTEGER)"
        )
        contract = Contract(counter.rpc, counter.address, counter.interface, counter.errors)
        self.indexer = Indexer(counter.rpc, [contract], self.store, **options)

    def apply(self, batch: Batch) -> None:
        run = self.store.connection.execute
        if batch.rolled_back_to is not None:
            run("DELETE FROM seen WHERE block > ?", (batch.rolled_back_to,))
        for event in batch.events:
            arguments = event.event.arguments
            run(
                "INSERT INTO seen VALUES (?, ?, ?)",
                (event.block_number, arguments["id"], arguments["total"]),
            )

    def catch_up(self) -> list[bytes]:
        self.indexer.catch_up(self.apply)
        return self.seen

    @property
    def seen(self) -> list[bytes]:
        return [
            row[0] for row in self.store.connection.execute("SELECT id FROM seen ORDER BY rowid")
        ]


@pytest.fixture
def sender(anvil: Anvil, counter: Counter, tmp_path: Path) -> Iterator[Sender]:
    with anvil.rolled_back(), SqliteSendJournal(tmp_path / "sends.sqlite") as journal:
        yield Sender(counter.rpc, KEYS[1], journal, poll_seconds=0.01)


def hit(sender: Sender, counter: Counter, *names: str) -> list[bytes]:
    for name in names:
        sender.send(name, counter.hit(name))
    return [keccak256(name.encode()) for name in names]


def test_events_come_once_and_in_order(sender: Sender, counter: Counter, tmp_path: Path) -> None:
    reader = Reader(counter, tmp_path / "index.sqlite", limit=2)
    expected = hit(sender, counter, "a", "b", "c")
    assert reader.catch_up() == expected
    assert reader.catch_up() == expected
    expected += hit(sender, counter, "d")
    reader.store.close()
    # Another process goes on where the cursor stands.
    assert Reader(counter, tmp_path / "index.sqlite").catch_up() == expected


def test_unconfirmed_blocks_wait(
    anvil: Anvil, sender: Sender, counter: Counter, tmp_path: Path
) -> None:
    reader = Reader(counter, tmp_path / "index.sqlite", confirmations=3)
    expected = hit(sender, counter, "a")
    assert reader.catch_up() == []
    anvil.mine(1)
    assert reader.catch_up() == []
    anvil.mine(1)
    assert reader.catch_up() == expected


@pytest.mark.parametrize("depth", [1, 3])
def test_a_reorganisation_takes_back_and_brings_anew(
    depth: int, anvil: Anvil, sender: Sender, counter: Counter, tmp_path: Path
) -> None:
    reader = Reader(counter, tmp_path / "index.sqlite")
    hashes = hit(sender, counter, "a", "b", "c")
    assert reader.catch_up() == hashes
    anvil.reorg(depth)
    assert reader.catch_up() == hashes[: 3 - depth]
    sender.wait("a")  # sent again with the same bytes
    for name in "bc":
        sender.wait(name)
    assert reader.catch_up() == hashes


def test_a_chain_that_grew_shorter_is_followed_back(
    anvil: Anvil, sender: Sender, counter: Counter, tmp_path: Path
) -> None:
    reader = Reader(counter, tmp_path / "index.sqlite")
    first = hit(sender, counter, "a")
    mark = anvil.snapshot()
    hit(sender, counter, "b", "c")
    anvil.mine(3)
    reader.catch_up()
    anvil.revert(mark)
    assert reader.catch_up() == first


def test_a_consumer_that_fails_gets_the_batch_again(
    sender: Sender, counter: Counter, tmp_path: Path
) -> None:
    reader = Reader(counter, tmp_path / "index.sqlite")
    reader.catch_up()
    expected = hit(sender, counter, "a")

    def half(batch: Batch) -> None:
        reader.apply(batch)
        raise RuntimeError("died")

    with pytest.raises(RuntimeError):
        reader.indexer.poll(half)
    assert reader.seen == []  # the cursor and the consumer's rows went back together
    assert reader.catch_up() == expected


def test_a_reorganisation_between_two_reads_is_noticed(
    anvil: Anvil, sender: Sender, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(counter, tmp_path / "index.sqlite")
    hit(sender, counter, "a")
    real = counter.rpc.request
    armed = True

    def request(method: str, *params: object) -> object:
        nonlocal armed
        if method == "eth_getLogs" and armed:
            armed = False
            anvil.reorg(1)
        return real(method, *params)

    monkeypatch.setattr(counter.rpc, "request", request)
    with pytest.raises(ChainMoved):
        reader.indexer.poll(reader.apply)
    assert reader.catch_up() == []  # the block now there is empty


def test_a_store_serves_one_deployment(counter: Counter, tmp_path: Path) -> None:
    Reader(counter, tmp_path / "index.sqlite").store.close()
    with pytest.raises(StoreOfAnotherChain, match="remove it"):
        Reader(counter, tmp_path / "index.sqlite", start=1)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=5))
def test_any_mix_of_blocks_and_reorganisations(steps: list[tuple[int, int]]) -> None:
    # After all of it, the reader holds exactly what a fresh reader finds.
    with tempfile.TemporaryDirectory() as folder, Anvil() as anvil:
        rpc = Rpc.connect(anvil.url)
        with SqliteSendJournal(Path(folder) / "sends.sqlite") as journal:
            sender = Sender(rpc, KEYS[1], journal, poll_seconds=0.01)
            mined = sender.send("new", Counter.creation())
            assert mined.contract is not None
            counter = Counter(rpc, mined.contract)
            anvil.mine(5)
            reader = Reader(counter, Path(folder) / "index.sqlite", limit=3)
            for index, (hits, depth) in enumerate(steps):
                hit(sender, counter, *(f"{index}.{n}" for n in range(hits)))
                reader.catch_up()
                if depth:
                    anvil.reorg(depth)
                    reader.indexer.poll(reader.apply)
            reader.catch_up()
            fresh = Reader(counter, Path(folder) / "fresh.sqlite")
            assert reader.seen == fresh.catch_up()
            assert len(reader.seen) == counter.total
            reader.store.close()
            fresh.store.close()
