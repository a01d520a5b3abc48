"""What a role needs of the world, as interfaces: a test passes others than the daemon does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from node.config import LimitConfig, PriceConfig
from node.inference.proposal import Draft, DraftCoin, VerifyOutcome
from node.journal import Journal
from node.network.transport import Transport
from node.roles.metrics import Metrics
from settlement.payments import Dues
from settlement.records import Domain, Lane, Order


@dataclass(frozen=True)
class LaneView:
    """A lane on chain, as of the last confirmed block. Amounts in token units.

    Attributes:
        reserve: what the client has set aside, thawing part included.
        thawing: the part that the client is withdrawing.
        epoch: the open epoch.
        head_root: root of the last settled batch in that epoch (zero: none).
        paid_drafter, paid_verifier: watermarks of the epoch.
        past: watermarks (drafter, verifier) of earlier epochs that have settled something: what
            their vouchers are due beyond them is still collectable out of the reserve.
        solo_from: unix seconds from which vouchers settle without D's signature (zero: never).
    """

    reserve: int
    thawing: int = 0
    epoch: int = 0
    head_root: bytes = bytes(32)
    paid_drafter: int = 0
    paid_verifier: int = 0
    past: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    solo_from: int = 0

    def paid(self, epoch: int) -> Dues:
        """The watermarks of an epoch."""
        if epoch == self.epoch:
            return Dues(self.paid_drafter, self.paid_verifier)
        return Dues(*self.past.get(epoch, (0, 0)))


class ChainView(Protocol):
    """The confirmed chain, read without waiting. Stale by at most a polling interval."""

    def lane(self, lane: Lane) -> LaneView:
        """The lane's state; an empty one if it was never reserved."""
        ...

    async def refresh(self, lane: Lane) -> LaneView:
        """Reads the lane now. Raises ChainUnavailable when the chain does not answer."""
        ...

    async def cover(self, operator: bytes, role: int, token: bytes) -> int:
        """Payments that the operator's free stake in a role (`network.messages.Role`) can answer
        for now, in units of `token`: free active stake over what the contracts lock behind each
        unit paid. V's answers for D's pay too. Zero without stake. Raises ChainUnavailable."""
        ...


class ChainUnavailable(RuntimeError):
    """The chain does not answer; work that needs no fresh state goes on."""


class TargetEngine(Protocol):
    """The target model, many sessions at once. Calls may be cancelled while they wait."""

    async def open(
        self,
        session_id: bytes,
        order: Order,
        seed: bytes,
        prompt: Sequence[int],
        stops: Sequence[str],
        output: Sequence[int],
    ) -> Any:
        """A session after `output` committed tokens; the handle is opaque."""
        ...

    async def verify(self, handle: Any, draft: Draft | None, chain_value: bytes) -> VerifyOutcome:
        """One pass over the draft; the session moves on by what was emitted."""
        ...

    def foresee(self, handle: Any, draft: Draft) -> None:
        """The next draft that will be verified, an empty one, outside rejection mode: its pass may
        begin as soon as the one under way is over, or now. Where the session ends instead, a pass
        has been run in vain."""
        ...

    async def close(self, handle: Any) -> None: ...


class DraftEngine(Protocol):
    """A drafter's model or table."""

    async def open(
        self, order: Order, seed: bytes, prompt: Sequence[int], output: Sequence[int]
    ) -> Any: ...

    async def propose(self, handle: Any, k: int, coin: DraftCoin | None) -> Draft:
        """At most `k` tokens after the committed ones; an empty draft says "none this time"."""
        ...

    async def draft_ahead(self, handle: Any, count: int) -> None:
        """Drafts on past what was proposed, while the verifier works."""
        ...

    async def commit(self, handle: Any, emitted: Sequence[int]) -> None:
        """The round's output; the session rolls back or forward to it."""
        ...

    async def close(self, handle: Any) -> None: ...


@dataclass
class Node:
    """What every role of one process shares. `clock` is unix seconds, `entropy(n)` n random
    bytes; both are injected so that a failing run replays from its seed. `token` is the one that
    prices are in (None: any, in tests)."""

    address: bytes
    key: bytes
    domain: Domain
    journal: Journal
    transport: Transport
    chain: ChainView
    limits: LimitConfig
    prices: PriceConfig
    clock: Callable[[], float]
    entropy: Callable[[int], bytes]
    log: structlog.typing.FilteringBoundLogger
    metrics: Metrics = field(default_factory=Metrics)
    token: bytes | None = None
