"""Whom this node has reason to make room for: peers with stake, lanes or sessions of their own.

Keys cost nothing, so a table of peers and a set of links can be filled by whoever likes. Stakes and
reserves cost something; who has one is not pushed out by who has not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from node.network.crowding import Standing
from settlement.chain.events import (
    KeyRotated,
    LaneOpened,
    Staked,
    StakeSlashed,
    UnstakeStarted,
)
from settlement.chain.indexer import ChainEvent


class Acquaintances:
    """By the confirmed events that `events` gives, and the peers that `partners` names, with whom a
    session runs now."""

    def __init__(
        self,
        me: bytes,
        events: Callable[[], Sequence[ChainEvent]],
        partners: Callable[[], Iterable[bytes]],
    ) -> None:
        self._me, self._source, self._partners = me, events, partners
        self._begin(())

    def _begin(self, events: Sequence[ChainEvent]) -> None:
        self._events, self._read = events, 0
        self._stakes: Counter[bytes] = Counter()  # active, of all roles, by account
        self._accounts: dict[bytes, bytes] = {}  # by key, where it is another than the account's
        self._lanes: set[bytes] = set()  # the others' keys

    def staked(self, peer: bytes) -> bool:
        """Whether the peer's key has active stake in any role."""
        self._follow()
        return self._stakes[self._accounts.get(peer, peer)] > 0

    def standing(self, peer: bytes) -> Standing:
        if peer in self._partners():
            return Standing.PARTNER
        if self.staked(peer) or peer in self._lanes:
            return Standing.KNOWN
        return Standing.STRANGER

    def _follow(self) -> None:
        events = self._source()
        # A reorganisation makes another list of them.
        if events is not self._events or len(events) < self._read:
            self._begin(events)
        for found in events[self._read :]:
            self._take(found.event)
        self._read = len(events)

    def _take(self, event: object) -> None:
        match event:
            case Staked():
                self._stakes[event.account] += event.amount
            case UnstakeStarted():
                self._stakes[event.account] -= event.amount
            case StakeSlashed():
                self._stakes[event.account] -= event.slashed[0]
            case KeyRotated():
                self._accounts[event.retired] = bytes(20)
                self._accounts[event.key] = event.account
            case LaneOpened():
                lane = event.parties
                parties = {lane.client, lane.drafter, lane.verifier}
                if self._me in parties:
                    self._lanes |= parties - {self._me}
