"""Watches settled batches: captures randomness, calls draws, and opens what this key must open.

Everything is derived from events each time, so a restart or a reorganisation needs no memory: what
is still to do is what the chain says is not done. Actions are idempotent intents of the key's one
sender. Blocks: call `act` from a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from settlement.chain.contracts import Contracts
from settlement.chain.errors import ChainError, Reverted
from settlement.chain.events import (
    BatchReanchored,
    BatchRegistered,
    DrawMoved,
    LaneDrawn,
    LaneOpened,
    LaneSettled,
    PositionOpened,
    RandomnessCaptured,
)
from settlement.chain.indexer import ChainEvent
from settlement.chain.send_journal import Call
from settlement.chain.sender import Sender
from settlement.draws import BatchEvidence, CannotOpen, DrawTerms, Entry, is_drawn, opening_of
from settlement.hashing import keccak256, uint
from settlement.records import Lane

_DRAWABLE: Final = 8
_RANDOMNESS, _TARGET, _TERMS, _SETTLED_AT = 8, 7, 9, 5  # places in IDrawBeacon.Batch


class Stage(IntEnum):
    """IDrawBeacon.Stage."""

    NONE = 0
    OPEN = 1
    LATE = 2
    SHOWN = 3
    FAULTY = 4
    SILENT = 5


@dataclass
class BatchView:
    """A registered batch as the events leave it: the ABI's tuple, and its lanes."""

    batch: tuple[Any, ...]
    entries: tuple[Entry, ...]

    @property
    def id(self) -> int:
        return int(self.batch[0])

    @property
    def randomness(self) -> bytes:
        return bytes(self.batch[_RANDOMNESS])

    def packed(self) -> bytes:
        return b"".join(entry.packed() for entry in self.entries)


@dataclass
class DrawView:
    """A drawn lane as the events leave it."""

    draw: tuple[Any, ...]
    verifier: bytes
    first_until: int
    second_until: int
    stage: Stage = Stage.OPEN
    opened: set[int] = field(default_factory=set)

    @property
    def key(self) -> tuple[int, int]:
        return (int(self.draw[0]), int(self.draw[1]))

    @property
    def seed(self) -> bytes:
        return bytes(self.draw[2])

    @property
    def root(self) -> bytes:
        return bytes(self.draw[3][1])

    @property
    def samples(self) -> int:
        return DrawTerms.of(self.draw[5]).samples


@dataclass
class Standing:
    """Lanes by id, batches by id, and draws by (batch id, index), as the events leave them."""

    lanes: dict[bytes, Lane] = field(default_factory=dict)
    batches: dict[int, BatchView] = field(default_factory=dict)
    draws: dict[tuple[int, int], DrawView] = field(default_factory=dict)


def fold(events: Iterable[ChainEvent]) -> Standing:
    """How things stand after `events`, in chain order. Pure."""
    standing = Standing()
    batches, draws = standing.batches, standing.draws
    entries: dict[bytes, list[Entry]] = {}
    pending: dict[int, tuple[bytes, tuple[Any, ...]]] = {}
    for found in events:
        event = found.event
        if isinstance(event, LaneOpened):
            standing.lanes[event.lane] = event.parties
        elif isinstance(event, LaneSettled):
            if event.figures >> 248 & _DRAWABLE:
                entry = Entry(event.lane, event.root, event.figures)
                entries.setdefault(found.transaction, []).append(entry)
        elif isinstance(event, BatchRegistered):
            pending[event.batch_id] = (found.transaction, tuple(event.batch))
        elif isinstance(event, BatchReanchored):
            view = _view(event.batch_id, pending, entries, batches)
            view.batch = _with(view.batch, _TARGET, event.target_block)
        elif isinstance(event, RandomnessCaptured):
            view = _view(event.batch_id, pending, entries, batches)
            view.batch = _with(view.batch, _RANDOMNESS, event.randomness)
        elif isinstance(event, LaneDrawn):
            drawn = DrawView(event.draw, event.verifier, event.first_until, event.second_until)
            draws[drawn.key] = drawn
        elif isinstance(event, PositionOpened):
            draws[event.batch_id, event.index].opened.add(event.sample)
        elif isinstance(event, DrawMoved):
            draws[event.batch_id, event.index].stage = Stage(event.stage)
    for batch_id in pending:
        _view(batch_id, pending, entries, batches)
    return standing


def _view(
    batch_id: int,
    pending: Mapping[int, tuple[bytes, tuple[Any, ...]]],
    entries: Mapping[bytes, list[Entry]],
    batches: dict[int, BatchView],
) -> BatchView:
    if batch_id not in batches:
        transaction, batch = pending[batch_id]
        batches[batch_id] = BatchView(batch, tuple(entries.get(transaction, ())))
    return batches[batch_id]


def _with(batch: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*batch[:place], value, *batch[place + 1 :])


Say = Callable[[str, Mapping[str, Any]], None]


class Watcher:
    """One key's part in draws.

    Args:
        evidence: what is known of a root that this key's operator verified; None if nothing.
        draws: whether this key calls draws (anybody may; a verifier leaves it to others).
        say: told what was done, for logs.
        patience: seconds over which those who have nothing at stake in a batch spread their
            calls, each at a moment of its own, so that not everybody pays for the same one.
    """

    def __init__(
        self,
        contracts: Contracts,
        sender: Sender,
        *,
        evidence: Callable[[bytes], BatchEvidence | None],
        draws: bool,
        say: Say,
        patience: float = 120.0,
    ) -> None:
        self._contracts, self._sender = contracts, sender
        self._evidence = evidence
        self._draws = draws
        self._say = say
        self._patience = patience

    def _turn(self, batch: BatchView, now: int) -> bool:
        """Whether this key's moment has come to do what anybody may do for the batch."""
        draw = int.from_bytes(keccak256(self._sender.address, uint(batch.id, 8))[:4], "big")
        return now - int(batch.batch[_SETTLED_AT]) >= self._patience * draw / 2**32

    def act(self, events: Iterable[ChainEvent]) -> int:
        """Does what is to be done now; returns how many transactions were sent. An action that the
        chain refuses (somebody was faster, most often) does not stop the others."""
        standing = fold(events)
        head = self._contracts.rpc.head()
        done = 0
        for batch in standing.batches.values():
            if not int.from_bytes(batch.randomness, "big"):
                lanes = [standing.lanes.get(entry.lane) for entry in batch.entries]
                mine = any(lane and lane.verifier == self._sender.address for lane in lanes)
                due = head.number > int(batch.batch[_TARGET])
                if due and (mine or self._turn(batch, head.timestamp)):
                    done += self._try(
                        f"capture:{batch.id}:{batch.batch[_TARGET]}",
                        "capture",
                        self._contracts.beacon.capture([batch.batch]),
                    )
            elif self._draws and self._turn(batch, head.timestamp):
                done += self._draw(batch, standing, head.timestamp)
        for drawn in standing.draws.values():
            mine = drawn.verifier == self._sender.address
            if mine and drawn.stage in (Stage.OPEN, Stage.LATE):
                done += self._open(drawn)
        return done

    def _draw(self, batch: BatchView, standing: Standing, now: int) -> int:
        terms = DrawTerms.of(batch.batch[_TERMS])
        until = int(batch.batch[_SETTLED_AT]) + int(batch.batch[_TERMS][0])
        done = 0
        for index, entry in enumerate(batch.entries):
            if (batch.id, index) in standing.draws or now > until:
                continue
            lane = standing.lanes.get(entry.lane)
            if lane is None or not is_drawn(batch.randomness, index, terms, entry.coverage):
                continue
            done += self._try(
                f"draw:{batch.id}:{index}",
                "draw",
                self._contracts.beacon.draw(batch.batch, batch.packed(), index, lane),
            )
        return done

    def _open(self, drawn: DrawView) -> int:
        held = self._evidence(drawn.root)
        if held is None:
            self._say("evidence lacks", {"root": drawn.root.hex()})
            return 0
        done = 0
        for sample in range(drawn.samples):
            if sample in drawn.opened:
                continue
            try:
                opening = opening_of(held, drawn.root, drawn.seed, sample)
            except CannotOpen as error:
                self._say("cannot open", {"reason": str(error), "sample": sample})
                continue
            done += self._try(
                f"open:{drawn.key[0]}:{drawn.key[1]}:{sample}",
                "open",
                self._contracts.beacon.open(drawn.draw, sample, opening),
            )
        return done

    def _try(self, intent: str, what: str, call: Call) -> int:
        try:
            mined = self._sender.send(intent, call)
        except Reverted as refused:
            self._say(f"{what} refused", {"reason": str(refused)})
            return 0
        except ChainError as error:
            self._say(f"{what} not sent", {"reason": str(error)})
            return 0
        self._say(what, {"intent": intent, "gas": mined.gas_used})
        return 1
