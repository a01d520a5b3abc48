"""How much of this node's disk, chain and time one peer may take by asking. Pure but for its state.

Who asks too much is told when to ask again (`Busy` with `retry_after`); nobody else notices.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from node.network.errors import Busy

BURST: Final = 64.0  # requests that a peer may make at once, …
PER_SECOND: Final = 16.0  # … and how fast that comes back
PEERS_KEPT: Final = 1024
AGAIN_SECONDS: Final = 0.1


class Allowance:
    """A bucket of requests per peer. `what` names them in a refusal."""

    def __init__(
        self, burst: float = BURST, per_second: float = PER_SECOND, what: str = "requests"
    ) -> None:
        self._burst, self._rate, self._what = burst, per_second, what
        self._held: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # left, as of

    def take(self, peer: bytes, now: float) -> None:
        """Raises Busy when the peer has asked too often; that costs it nothing more."""
        left = self._left(peer, now)
        self._keep(peer, left - 1.0 if left >= 1.0 else left, now)
        if left < 1.0:
            raise Busy(f"too many {self._what}", (1.0 - left) / self._rate)

    def give(self, peer: bytes, now: float) -> None:
        """One back: what was asked for has come to something."""
        self._keep(peer, min(self._burst, self._left(peer, now) + 1.0), now)

    def _left(self, peer: bytes, now: float) -> float:
        left, since = self._held.get(peer, (self._burst, now))
        return min(self._burst, left + max(0.0, now - since) * self._rate)

    def _keep(self, peer: bytes, left: float, now: float) -> None:
        self._held[peer] = (left, now)
        self._held.move_to_end(peer)
        while len(self._held) > PEERS_KEPT:
            self._held.popitem(last=False)


class AtOnce:
    """So many requests under way of one peer, and of all together."""

    def __init__(self, each: int, together: int, what: str = "requests") -> None:
        self._each, self._together, self._what = each, together, what
        self._running: Counter[bytes] = Counter()

    @contextmanager
    def place(self, peer: bytes) -> Iterator[None]:
        """Held while a request runs. Raises Busy when there is none."""
        if self._running[peer] >= self._each or self._running.total() >= self._together:
            raise Busy(f"too many {self._what} at once", AGAIN_SECONDS)
        self._running[peer] += 1
        try:
            yield
        finally:
            self._running[peer] -= 1
            if not self._running[peer]:
                del self._running[peer]


@dataclass(frozen=True)
class Rate:
    """What a peer may ask of one kind: at once after a pause, a second for ever, and in parallel;
    and how many may run of all peers."""

    burst: float
    per_second: float
    each: int
    together: int


class Gate:
    """Rate and parallelism of one kind of request."""

    def __init__(self, rate: Rate, what: str) -> None:
        self._allowance = Allowance(rate.burst, rate.per_second, what)
        self._at_once = AtOnce(rate.each, rate.together, what)

    @contextmanager
    def admit(self, peer: bytes, now: float) -> Iterator[None]:
        """Around the handling of a request. Raises Busy instead."""
        with self._at_once.place(peer):
            self._allowance.take(peer, now)
            yield
