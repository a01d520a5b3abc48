"""Lanes without a chain, for trials of everything else: each has the same reserve, and nothing is
ever settled unless a view says so."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from node.roles.ports import LaneView
from settlement.records import Lane

PLENTY = 10**30


@dataclass
class TableChain:
    """A `ports.ChainView` out of tables.

    Attributes:
        reserve: of lanes without a view of their own.
        views: by lane id.
        covers: what a stake answers for, by (operator, role); of others, plenty.
        token: the one that covers are asked in; None: any.
    """

    reserve: int = PLENTY
    views: dict[bytes, LaneView] = field(default_factory=dict)
    covers: dict[tuple[bytes, int], int] = field(default_factory=dict)
    token: bytes | None = None

    def lane(self, lane: Lane) -> LaneView:
        return self.views.get(lane.id, LaneView(self.reserve))

    async def refresh(self, lane: Lane) -> LaneView:
        await trio.lowlevel.checkpoint()
        return self.lane(lane)

    async def cover(self, operator: bytes, role: int, token: bytes) -> int:
        await trio.lowlevel.checkpoint()
        if self.token is not None and token != self.token:
            raise ValueError(f"prices are in 0x{self.token.hex()}, not 0x{token.hex()}")
        return self.covers.get((operator, int(role)), PLENTY)
