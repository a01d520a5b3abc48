"""Tickets that an auditor enters: of the drawn tokens that fall to it, and canaries among them.

Both are made of sessions that this node audits, and both are journalled before anything is sent:
the parcel under its hash, then the ticket. The node's watcher (`settlement.ticket_watch`) enters
and opens them.

Of a drawn lane's samples, number i falls to the drawn auditor number i modulo how many they are, so
that no token is entered twice, which would cost a bond. Who is away leaves its share undone.

A canary is a session that was found clean, up to the end of some round, with another token in one
place of that round: any of the session's tokens, as a draw falls on them, so that where the
question stands tells nothing. Its hidden state is the true one: who makes a fingerprint and looks
at no figure passes it.
"""

from __future__ import annotations

import random
import struct
from fractions import Fraction
from typing import Final

from node.roles.auditing import DrawnLane
from node.roles.delivery import Delivered, Drawn
from node.roles.frames import take
from node.roles.parcels import Parcel, text_of
from node.roles.ports import Node
from node.roles.rerun import Findings, Tolerance
from node.roles.suspicions import Suspicion
from node.roles.tickets import TokenEngine, parcel_name
from settlement import trees
from settlement.chain.panel import TicketKind
from settlement.draws import target_of
from settlement.panels import place_of, verdict_figures
from settlement.records import Mode, Tier
from settlement.ticket_watch import Ticket

TICKET: Final = "ticket"  # the journal's name for what is to be entered


class Clerk:
    """Seals tickets into the journal.

    Args:
        engine: asked what an honest auditor says of a canary, in float tiers.
        samples: of a drawn lane, for which tickets are entered; 0: none.
        canaries: share of audited sessions of which one is planted.
    """

    def __init__(
        self,
        node: Node,
        engine: TokenEngine,
        tier: Tier,
        *,
        samples: int = 4,
        canaries: float = 0.0,
    ) -> None:
        self._node, self._engine, self._tier = node, engine, tier
        self._samples, self._canaries = samples, Fraction(canaries)

    def enter(self, drawn: DrawnLane, sample: int, found: Drawn, delivered: Delivered) -> None:
        """Seals the token that a sample falls on, if that is this node's to enter."""
        auditors = drawn.auditors(found.order.target_model)
        if sample >= self._samples or auditors[sample % len(auditors)] != self._node.address:
            return
        index = delivered.records.index(found.record)
        proof = delivered.proofs[index]
        assert proof is not None  # the round that was shown hangs under the root
        base = found.base.sums.output if found.base else 0
        target = target_of(drawn.seed, sample, found.root.sums.output - base)
        within = proof.offset_of(trees.round_leaf(found.record), target)
        suspicion = Suspicion.of(delivered, index, within)
        assert suspicion is not None
        name = f"{TICKET}:drawn:{drawn.batch_id}:{drawn.index}:{sample}"

        def make() -> bytes:
            text = self._keep(Parcel.of(self._node.entropy(32), delivered, index, within))
            place = suspicion.to_wire()
            head = struct.pack(">QIB", drawn.batch_id, drawn.index, sample)
            model = found.order.target_model
            return bytes([TicketKind.DRAWN]) + self._node.entropy(32) + model + text + head + place

        self._node.journal.secret_once(name, make)

    async def plant(self, drawn: DrawnLane, delivered: Delivered, findings: Findings) -> None:
        """Now and then seals a canary made of a session that was found clean."""
        if not self._canaries or findings.mismatches or findings.near_ties:
            return
        node, order = self._node, delivered.terms.order
        session = f"{drawn.batch_id}:{drawn.index}:{order.session_id.hex()}"
        lot = node.journal.secret_once(f"canary-lot:{session}", lambda: node.entropy(32))
        if Fraction(int.from_bytes(lot[:8], "big"), 1 << 64) >= self._canaries:
            return
        name = f"{TICKET}:canary:{session}"
        if node.journal.secret(name) is not None:
            return
        choice = random.Random(lot)
        # Where a draft was accepted from a list, the list would have to be another.
        listed = order.mode == Mode.REJECTION or order.relax_tau
        places = [
            (index, within)
            for index, done in enumerate(delivered.rounds)
            for within, leaf in enumerate(done.verdict.leaves)
            if not (listed and leaf.accepted)
        ]
        if not places:
            return
        index, within = choice.choice(places)
        true = Parcel.of(node.entropy(32), delivered, index, within)
        token = _other(true, choice)
        if token is None:
            return
        parcel = true.with_token(token)
        leaf = parcel.leaf
        print_ = findings.fingerprints[leaf.position - order.start_position]
        if self._tier != Tier.EXACT:
            answer = await self._engine.answer(parcel.case, index, within)
            if answer.margin <= 2 * Tolerance.of(self._tier).score:
                return  # an honest auditor on another machine might find nothing
        text = self._keep(parcel)
        canary = struct.pack(">II", index, within) + verdict_figures(leaf) + print_

        def make() -> bytes:
            kind, model = bytes([TicketKind.CANARY]), order.target_model
            return kind + node.entropy(32) + model + text + canary

        node.journal.secret_once(name, make)
        node.metrics.count("canaries")

    def _keep(self, parcel: Parcel) -> bytes:
        """Journals a parcel; its hash."""
        raw = parcel.to_wire()
        text = text_of(raw)
        self._node.journal.secret_once(parcel_name(text), lambda: raw)
        return text


def _other(parcel: Parcel, choice: random.Random) -> int | None:
    """Another token of the same text; None where it has no other."""
    leaf, case = parcel.leaf, parcel.case
    tokens = {*case.delivery.prompt, *case.output} - {leaf.token, leaf.draft_token}
    return choice.choice(sorted(tokens)) if tokens else None


def ticket_of(raw: bytes) -> Ticket:
    """A ticket as it is journalled. FrameError otherwise."""
    (kind,), raw = take(raw, 1, "kind")
    salt, raw = take(raw, 32, "salt")
    model, raw = take(raw, 32, "model")
    text, raw = take(raw, 32, "text")
    if kind == TicketKind.CANARY:
        head, raw = take(raw, 8, "place")
        figures, raw = take(raw, 32, "figures")
        print_, raw = take(raw, 32, "fingerprint")
        # No session was settled that it is about: its own hash stands in a session's place.
        canary = (text, *struct.unpack(">II", head), figures, print_, text)
        return Ticket(TicketKind.CANARY, salt, model, text, canary=canary)
    head, raw = take(raw, 13, "sample")
    batch, index, sample = struct.unpack(">QIB", head)
    suspicion = Suspicion.from_wire(raw)
    settled, proof, evidence = suspicion.evidence()
    place = place_of(settled, proof, evidence, suspicion.within)
    return Ticket(TicketKind.DRAWN, salt, model, text, batch, index, sample, place)
