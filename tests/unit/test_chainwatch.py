"""A chain that takes its time: whoever needs an answer now is told in time to tell its peer."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio

from node import chainwatch
from node.chainwatch import ChainWatch
from node.config import ChainConfig
from node.roles.ports import ChainUnavailable
from settlement.chain.contracts import LaneState
from settlement.chain.indexer import Batch, BlockRef, ChainMoved
from settlement.records import Lane

LANE = Lane(b"\x01" * 20, b"\x02" * 20, b"\x03" * 20, b"\x04" * 20, bytes(32))


class Escrow:
    """Answers once `thawed` is set."""

    address = b"\x0e" * 20
    events: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.thawed = threading.Event()
        self.blocks: list[Any] = []

    def lane_state(self, lane: bytes, block: Any = "latest") -> LaneState:
        self.blocks.append(block)
        assert self.thawed.wait(20), "nobody thawed the chain"
        return LaneState(reserve=7, thawing=2, thawed_at=0, solo_from=0, epoch=0, position=0)


@pytest.fixture
def escrow() -> Escrow:
    return Escrow()


@pytest.fixture
def watch(escrow: Escrow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChainWatch:
    monkeypatch.setattr(chainwatch, "Indexer", lambda *args, **kwargs: None)
    monkeypatch.setattr(chainwatch, "ANSWER_SECONDS", 0.05)
    contracts: Any = SimpleNamespace(rpc=None, escrow=escrow, vault=None, followed=tuple)
    config = ChainConfig("http://127.0.0.1:1", tmp_path / "book.json")
    return ChainWatch(contracts, config, tmp_path, 0, structlog.get_logger())


async def test_silence_is_told_and_an_answer_ends_it(watch: ChainWatch, escrow: Escrow) -> None:
    with trio.fail_after(10), pytest.raises(ChainUnavailable, match="did not answer within"):
        await watch.refresh(LANE)
    assert "did not answer" in watch.health()["error"]
    escrow.thawed.set()
    view = await watch.refresh(LANE)
    assert (view.reserve, view.thawing) == (7, 2)
    assert watch.health()["error"] == ""


async def test_calls_left_behind_hold_up_nobody_elses_threads(
    watch: ChainWatch, escrow: Escrow
) -> None:
    async def refused() -> None:
        with pytest.raises(ChainUnavailable):
            await watch.refresh(LANE)

    free = trio.to_thread.current_default_thread_limiter().available_tokens
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(refused)
    assert trio.to_thread.current_default_thread_limiter().available_tokens == free
    escrow.thawed.set()
    # Those that still ran end by themselves and make room.
    with trio.fail_after(10):
        while watch._callers.borrowed_tokens:
            await trio.sleep(0.01)
    assert (await watch.refresh(LANE)).reserve == 7


async def test_a_lane_is_as_of_the_block_that_events_were_read_to(
    watch: ChainWatch, escrow: Escrow
) -> None:
    """A reserve from a later block than the watermarks would count a settlement twice, and refuse
    a client whose reserve is well."""
    escrow.thawed.set()
    await watch.refresh(LANE)
    watch._apply(Batch(None, (), BlockRef(41, b"\x01" * 32)))
    await watch.refresh(LANE)
    assert escrow.blocks == ["latest", 41]


async def test_strangers_orders_fill_no_memory(
    watch: ChainWatch, escrow: Escrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order may name any claim, and so any lane; what was asked for last is kept."""
    monkeypatch.setattr(chainwatch, "LANES_KEPT", 3)
    escrow.thawed.set()
    lanes = [replace(LANE, claim_id=bytes([n]) * 32) for n in range(6)]
    for lane in lanes:
        await watch.refresh(lane)
        assert watch.lane(lanes[0]).reserve == 7  # asked for by the rounds of a session
    assert len(watch._lanes) == 3
    assert [watch.lane(lane).reserve for lane in lanes] == [7, 0, 0, 0, 7, 7]


async def test_a_chain_that_moves_while_it_is_read_is_read_again(watch: ChainWatch) -> None:
    """At the start, too: a node that gave up then would not come up on a busy chain."""
    answers: list[Any] = [ChainMoved("block 7 was replaced"), object(), None]

    class Moving:
        def poll(self, apply: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    watch._indexer = Moving()  # type: ignore[assignment]
    with trio.fail_after(5):
        await watch.catch_up()
    assert answers == []
    assert watch.health()["error"] == ""
