"""Dishonest clients: each a small change to the honest role or to what stands on chain."""

from __future__ import annotations

from typing import Any

import trio
from arena import TableChain

from node.roles.client import ClientRole
from node.roles.plan import Plan
from node.roles.ports import LaneView
from node.roles.session import SessionFault
from settlement.records import Lane


class NeverSigns(ClientRole):
    """Takes rounds and signs no voucher."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)

        async def nothing(*_: Any, **__: Any) -> None:
            await trio.sleep(0)

        self.purse.pay = nothing  # type: ignore[method-assign]


class SignsOnce(ClientRole):
    """Signs its first voucher and no other."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        pay = self.purse.pay

        async def once(*wanted: Any, **how: Any) -> Any:
            if self.node.journal.vouchers():
                await trio.sleep(0)
                return None
            return await pay(*wanted, **how)

        self.purse.pay = once  # type: ignore[method-assign]


class ForgedSeed(ClientRole):
    """Starts the session under a seed of its own."""

    def _seed(self, *arguments: Any) -> Any:
        nonces, seed = super()._seed(*arguments)
        return nonces, bytes([seed[0] ^ 1]) + seed[1:]


class ReusedNonce(ClientRole):
    """Orders again under the number of an order that has been served."""

    def _order(self, *arguments: Any) -> Any:
        self.node.journal.set_fact("order-nonce", "6")
        return super()._order(*arguments)


class SeedGrinding(ClientRole):
    """Gives up a request whose seed it does not like, and orders it again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: set[bytes] = set()

    def _fresh(self, plan: Plan) -> Plan:
        return plan  # the same request, so that V's nonce stays the known one

    def _nonce(self, plan: Plan) -> bytes:
        return self.node.entropy(32)

    def _seed(self, *arguments: Any) -> Any:
        nonces, seed = super()._seed(*arguments)
        self.seen.add(seed)
        if seed[0] % 16:
            raise SessionFault("client", "another seed, please")
        return nonces, seed


class Thawing(TableChain):
    """The client asks its whole reserve out once work has begun."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.asked, self.after = 0, after

    def lane(self, lane: Lane) -> LaneView:
        self.asked += 1
        thawing = self.reserve if self.asked > self.after else 0
        return LaneView(self.reserve, thawing=thawing)
