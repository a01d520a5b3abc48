"""What watchers ask of a node's journal, from their own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

from node.evidence import EvidenceRoom
from node.roles.ports import Node
from node.roles.sealing_tickets import TICKET, ticket_of
from node.roles.stored import Private
from node.roles.suspicions import SUSPECT, Suspicion, answer_name, sealed_of
from settlement.draws import BatchEvidence
from settlement.panel_watch import Sealed, Suspect
from settlement.sealing import Text
from settlement.ticket_watch import Ticket

T = TypeVar("T")


class Holdings:
    """What watchers ask (`watcher.Records`, `panel_watch.Held`) over a journal that belongs to
    the event loop's thread: to be called from a worker thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.room = EvidenceRoom(node.journal, node.domain)
        self._held: set[bytes] = set()
        self._secrets: dict[str, bytes] = {}
        self._suspects: dict[str, Suspect] = {}
        self._tickets: dict[str, Ticket] = {}

    def holds(self, root: bytes) -> bool:
        if root not in self._held and self.hop(self.room.holds, root):
            self._held.add(root)
        return root in self._held

    def batch(self, root: bytes) -> BatchEvidence | None:
        return self.hop(self.room.batch, root)

    def text(self, start_hash: bytes, round_: int) -> Text | None:
        return self.hop(self.room.text, start_hash, round_)

    def print(self, start_hash: bytes, round_: int, within: int) -> tuple[bytes, bytes] | None:
        """Salt and fingerprint of a token of this verifier's own; None where it has none."""
        row = self.hop(self._node.journal.round, start_hash, round_)
        if row is None:
            return None
        private = Private.from_wire(row.private)
        if within >= len(private.salts):
            return None
        return private.salts[within], private.fingerprints[within]

    def sealed(self, question: str) -> Sealed | None:
        """This juror's answer to a question; None while it has none."""
        raw = self.hop(self._node.journal.secret, answer_name(question))
        return None if raw is None else sealed_of(raw)

    def suspects(self) -> tuple[Suspect, ...]:
        """What this node's audits have found that only a panel can judge."""
        for name, raw in self.hop(self._node.journal.secrets_under, SUSPECT):
            if name not in self._suspects:
                self._suspects[name] = Suspicion.from_wire(raw).suspect()
        return tuple(self._suspects.values())

    def tickets(self) -> tuple[Ticket, ...]:
        """What this auditor has sealed."""
        for name, raw in self.hop(self._node.journal.secrets_under, TICKET):
            if name not in self._tickets:
                self._tickets[name] = ticket_of(raw)
        return tuple(self._tickets.values())

    def secret(self, name: str) -> bytes:
        if name not in self._secrets:
            make = lambda: self._node.entropy(32)  # noqa: E731
            self._secrets[name] = self.hop(self._node.journal.secret_once, name, make)
        return self._secrets[name]

    def hop(self, call: Callable[..., T], *args: Any) -> T:
        """Calls in the journal's thread."""
        return trio.from_thread.run_sync(call, *args)
