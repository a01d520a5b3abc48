"""The records service: what a party keeps of its sessions, for those who may see it.

A session's own parties may read it. So may an auditor drawn for a lane under whose settled root one
of the drawn positions falls into that session, and a juror of a panel's case about it, while it
runs; and nobody else: everyone else gets NOT_YOURS, for sessions that exist and for those that do
not. V also takes the auditors' commitments here, and
opens its salts once all drawn auditors have committed, or the time for it is over: whoever has not
committed by then has seen what it would have to compute, and may not commit any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from node.evidence import EvidenceRoom
from node.journal import StoredSession
from node.network import exchange
from node.network.codec import decode
from node.network.errors import Refused
from node.network.messages import (
    MAX_ROUNDS_PER_ANSWER,
    MAX_SALTED_ROUNDS,
    AuditCommit,
    AuditReveal,
    CaseRequest,
    Done,
    DrawnAnswer,
    DrawnRequest,
    Kind,
    RecordsRequest,
    RecordsResponse,
    RootPreimage,
    SaltsAnswer,
    SaltsRequest,
    SumPath,
)
from node.roles.allowance import Allowance
from node.roles.auditing import DrawnLane, Draws, is_signed, opens
from node.roles.ports import Node
from node.roles.refusals import No
from node.roles.session import Terms
from node.roles.stored import stored_round, unpack_prompt
from settlement import trees
from settlement.chain.panel_standing import PanelCase
from settlement.draws import BatchEvidence, target_of
from settlement.hashing import ZERO32
from settlement.records import Sums

ROOTS_KEPT: Final = 8
COMMIT_SECONDS: Final = 120.0  # how long V waits for all drawn auditors after the first commitment


# ---------------------------------------------------------------- proofs on the wire


def path_of(proof: trees.SumProof) -> SumPath:
    siblings = tuple(node.hash + node.sums.packed for node in proof.siblings)
    return SumPath(proof.index, siblings)


def proof_of(path: SumPath, count: int) -> trees.SumProof:
    """The inverse of `path_of`, in a tree of `count` leaves. RecordError for sums that are none."""
    siblings = tuple(trees.SumNode(raw[:32], sums_of(raw[32:])) for raw in path.siblings)
    return trees.SumProof(path.index, count, siblings)


def sums_of(raw: bytes) -> Sums:
    """The inverse of `Sums.packed`; RecordError for what no sums pack to."""
    words = [int.from_bytes(raw[at : at + 32], "big") for at in range(0, 288, 32)]
    output, accepted = words[0] & (1 << 64) - 1, words[0] >> 64
    return Sums.from_words(output, accepted, tuple(words[1:]))


def preimage_of(settled: trees.Settled) -> RootPreimage:
    return RootPreimage(settled.top, settled.sums.packed, settled.leaf_count, settled.base_root)


def settled_of(preimage: RootPreimage) -> trees.Settled:
    """The inverse of `preimage_of`. TreeError or RecordError for what is none."""
    return trees.Settled(
        preimage.top, sums_of(preimage.sums), preimage.leaf_count, preimage.base_root
    )


# ---------------------------------------------------------------- what a root covers


@dataclass(frozen=True)
class Covered:
    """The rounds under a settled root, as this node has them."""

    batch: BatchEvidence
    tree: trees.SumTree
    settled: trees.Settled
    places: dict[tuple[bytes, int], int]  # (start hash, round) → leaf index

    @classmethod
    def of(cls, batch: BatchEvidence, root: bytes) -> Covered | None:
        """None when these rounds do not make up the root (some are pruned, say)."""
        try:
            tree, settled = batch.settled()
        except trees.TreeError:
            return None
        if settled.root != root:
            return None
        places = {evidence.key: place for place, evidence in enumerate(batch.rounds)}
        return cls(batch, tree, settled, places)

    def hit(self, seed: bytes, sample: int) -> int:
        """The leaf that the sample falls on."""
        return self.tree.descend(target_of(seed, sample, self.tree.top().sums.output))

    def hits(self, drawn: DrawnLane) -> frozenset[bytes]:
        """Start hashes of the sessions that the draw's samples fall into."""
        return frozenset(
            self.batch.rounds[self.hit(drawn.seed, sample)].record.start_hash
            for sample in range(drawn.samples)
        )


# ---------------------------------------------------------------- the service


class Judges(Protocol):
    """Who sits on the juries of the panel now (`juror.JuryBoard`)."""

    def judges(self, peer: bytes, start_hash: bytes, root: bytes) -> bool: ...

    def case_of(self, peer: bytes, case_id: int) -> PanelCase | None: ...


class RecordsService:
    """Answers RECORDS, DRAWN and CASE, and on a verifier COMMIT, SALTS and REVEAL, from the
    journal."""

    def __init__(
        self,
        node: Node,
        draws: Draws,
        *,
        commit_seconds: float = COMMIT_SECONDS,
        judges: Judges | None = None,
    ) -> None:
        self.node = node
        self.draws = draws
        self.judges = judges
        self.commit_seconds = commit_seconds
        self._room = EvidenceRoom(node.journal, node.domain)
        self._covered: OrderedDict[bytes, Covered] = OrderedDict()
        self._allowance = Allowance(what="requests for records")

    def serve(self, *, salts: bool) -> None:
        """Registers the request handlers with the transport; `salts`: this is a verifier, to whom
        auditors commit."""
        transport = self.node.transport
        exchange.serve(transport, Kind.RECORDS, self.on_records)
        exchange.serve(transport, Kind.DRAWN, self.on_drawn)
        exchange.serve(transport, Kind.CASE, self.on_case)
        if not salts:
            return
        exchange.serve(transport, Kind.COMMIT, self.on_commit)
        exchange.serve(transport, Kind.SALTS, self.on_salts)
        exchange.serve(transport, Kind.REVEAL, self.on_reveal)

    # ------------------------------------------------------------ reading

    async def on_records(self, peer: bytes, ask: RecordsRequest) -> RecordsResponse:
        self._allowance.take(peer, self.node.clock())
        session = self.node.journal.session_by_id(ask.session_id)
        terms = None if session is None else Terms.from_wire(session.terms, self.node.domain)
        if session is None or terms is None:
            raise self._not_yours()
        covered = self._reader(peer, terms, ask.root)
        count = min(ask.rounds, MAX_ROUNDS_PER_ANSWER)
        rows = []
        for number in range(ask.first_round, ask.first_round + count + 1):
            row = self.node.journal.round(terms.start_hash, number)
            if row is None:
                break
            rows.append(row)
        rounds = [stored_round(row.draft, row.verdict).to_wire() for row in rows[:count]]
        numbers = range(ask.first_round, ask.first_round + len(rounds))
        proofs = () if covered is None else self._proofs(covered, terms.start_hash, numbers)
        signatures = (*terms.order_signatures, *terms.start_signatures)
        return RecordsResponse(
            session_id=ask.session_id,
            first_round=ask.first_round,
            rounds=tuple(rounds),
            more=len(rows) > count,
            order=terms.order.to_wire() if ask.opening else b"",
            start=terms.start.to_wire() if ask.opening else b"",
            signatures=signatures if ask.opening else (),
            prompt=unpack_prompt(session.prompt) if ask.opening else None,
            proofs=proofs,
        )

    def _reader(self, peer: bytes, terms: Terms, root: bytes) -> Covered | None:
        """What the root covers, if one is named. Refused unless the peer may read the session."""
        if root == ZERO32:
            if peer not in terms.parties:
                raise self._not_yours()
            return None
        for drawn in self.draws.lanes():
            if (drawn.root, drawn.lane) != (root, terms.order.lane):
                continue
            if peer in drawn.auditors(terms.order.target_model):
                covered = self._cover(root)
                if covered is not None and terms.start_hash in covered.hits(drawn):
                    return covered
        if self.judges is not None and self.judges.judges(peer, terms.start_hash, root):
            covered = self._cover(root)
            if covered is not None:
                return covered
        raise self._not_yours()

    async def on_drawn(self, peer: bytes, ask: DrawnRequest) -> DrawnAnswer:
        self._allowance.take(peer, self.node.clock())
        drawn = self._lane(ask.batch_id, ask.index)
        if drawn is None or not drawn.models_of(peer) or ask.sample >= drawn.samples:
            raise self._not_yours()
        covered = self._cover(drawn.root)
        if covered is None:
            raise Refused(No.UNKNOWN, f"the rounds under 0x{drawn.root.hex()} are not held here")
        return self._shown(covered, covered.hit(drawn.seed, ask.sample))

    async def on_case(self, peer: bytes, ask: CaseRequest) -> DrawnAnswer:
        """The round that a case is about, for a juror of it."""
        self._allowance.take(peer, self.node.clock())
        case = None if self.judges is None else self.judges.case_of(peer, ask.case_id)
        if case is None:
            raise self._not_yours()
        subject = case.subject
        covered = self._cover(subject.root)
        place = None
        if covered is not None:
            place = covered.places.get((subject.start_hash, subject.round))
        if covered is None or place is None:
            raise Refused(No.UNKNOWN, f"the rounds under 0x{subject.root.hex()} are not held here")
        return self._shown(covered, place)

    def _shown(self, covered: Covered, place: int) -> DrawnAnswer:
        evidence, base = covered.batch.rounds[place], covered.batch.base
        return DrawnAnswer(
            root=preimage_of(covered.settled),
            base=None if base is None else preimage_of(base),
            record=evidence.record.to_wire(),
            path=path_of(covered.tree.proof(place)),
            order=evidence.order.to_wire(),
            start=evidence.start.to_wire(),
        )

    # ------------------------------------------------------------ commitments and salts

    async def on_commit(self, peer: bytes, commit: AuditCommit) -> Done:
        """A drawn auditor's commitment, kept for good; a second, other one is refused."""
        self._allowance.take(peer, self.node.clock())
        self._auditors(commit.auditor, commit.batch_id, commit.index, commit.session_id)
        if commit.auditor != peer or not is_signed(self.node.domain, commit):
            raise Refused(No.ORDER, "a commitment is signed and sent by its own auditor")
        journal, name = self.node.journal, _commit_name(commit, commit.auditor)
        if journal.secret(name) is None and journal.fact(_opened_name(commit)) is not None:
            raise Refused(No.CONFLICT, "the salts are open: nobody can commit any more")
        if journal.secret_once(name, commit.encode) != commit.encode():
            raise Refused(No.CONFLICT, "this auditor has committed to something else before")
        if journal.fact(_first_name(commit)) is None:
            journal.set_fact(_first_name(commit), repr(self.node.clock()))
        return Done(commit.commitment)

    async def on_salts(self, peer: bytes, ask: SaltsRequest) -> SaltsAnswer:
        self._allowance.take(peer, self.node.clock())
        session, auditors = self._auditors(peer, ask.batch_id, ask.index, ask.session_id)
        journal = self.node.journal
        if journal.secret(_commit_name(ask, peer)) is None:
            raise Refused(No.ORDER, "commit before you ask for the salts")
        missing = [a for a in auditors if journal.secret(_commit_name(ask, a)) is None]
        waited = self.node.clock() - float(journal.fact(_first_name(ask)) or "inf")
        if missing and waited < self.commit_seconds:
            raise Refused(No.BEHIND, f"{len(missing)} drawn auditors have not committed yet", 0.5)
        if journal.fact(_opened_name(ask)) is None:
            journal.set_fact(_opened_name(ask), repr(self.node.clock()))
        rounds = []
        for number in range(ask.first_round, ask.first_round + min(ask.rounds, MAX_SALTED_ROUNDS)):
            row = journal.round(session.start_hash, number)
            if row is None:
                break
            rounds.append(row.private)
        return SaltsAnswer(ask.session_id, ask.first_round, tuple(rounds))

    async def on_reveal(self, peer: bytes, reveal: AuditReveal) -> Done:
        """An auditor's finding, if it opens its commitment. Kept and logged."""
        self._allowance.take(peer, self.node.clock())
        self._auditors(reveal.auditor, reveal.batch_id, reveal.index, reveal.session_id)
        journal = self.node.journal
        stored = journal.secret(_commit_name(reveal, reveal.auditor))
        if reveal.auditor != peer or not is_signed(self.node.domain, reveal):
            raise Refused(No.ORDER, "a reveal is signed and sent by its own auditor")
        if stored is None or not opens(decode(stored, AuditCommit), reveal):
            raise Refused(No.ORDER, "this does not open a commitment made here")
        name = f"audit-reveal:{_name(reveal)}:{reveal.auditor.hex()}"
        if journal.secret_once(name, reveal.encode) != reveal.encode():
            raise Refused(No.CONFLICT, "this auditor has revealed something else before")
        self.node.log.info(
            "audited",
            session=reveal.session_id.hex()[:12],
            auditor=reveal.auditor.hex(),
            verdict=reveal.verdict,
            mismatches=reveal.mismatches,
        )
        return Done(reveal.digest)

    # ------------------------------------------------------------ who may

    def _auditors(
        self, peer: bytes, batch_id: int, index: int, session_id: bytes
    ) -> tuple[StoredSession, tuple[bytes, ...]]:
        """The session and its drawn auditors; NOT_YOURS unless the peer is one of them."""
        drawn = self._lane(batch_id, index)
        session = self.node.journal.session_by_id(session_id)
        if drawn is None or session is None:
            raise self._not_yours()
        order = Terms.from_wire(session.terms, self.node.domain).order
        auditors = drawn.auditors(order.target_model)
        if order.lane != drawn.lane or peer not in auditors:
            raise self._not_yours()
        covered = self._cover(drawn.root)
        if covered is None or session.start_hash not in covered.hits(drawn):
            raise self._not_yours()
        return session, auditors

    def _lane(self, batch_id: int, index: int) -> DrawnLane | None:
        wanted = (batch_id, index)
        return next((drawn for drawn in self.draws.lanes() if drawn.key == wanted), None)

    def _not_yours(self) -> Refused:
        self.node.metrics.count("records_refused")
        return Refused(No.NOT_YOURS, "for the session's parties and drawn auditors only")

    # ------------------------------------------------------------ trees

    def _cover(self, root: bytes) -> Covered | None:
        """The rounds under a root. Only roots that are settled and drawn come here."""
        found = self._covered.pop(root, None)
        if found is None:
            batch = self._room.batch(root)
            found = None if batch is None else Covered.of(batch, root)
        if found is not None:
            self._covered[root] = found
            while len(self._covered) > ROOTS_KEPT:
                self._covered.popitem(last=False)
        return found

    def _proofs(
        self, covered: Covered, start_hash: bytes, numbers: Iterable[int]
    ) -> tuple[SumPath | None, ...]:
        places = [covered.places.get((start_hash, number)) for number in numbers]
        return tuple(
            None if place is None else path_of(covered.tree.proof(place)) for place in places
        )


Named = AuditCommit | AuditReveal | SaltsRequest


def _name(about: Named) -> str:
    return f"{about.batch_id}:{about.index}:{about.session_id.hex()}"


def _commit_name(about: Named, auditor: bytes) -> str:
    return f"audit-commit:{_name(about)}:{auditor.hex()}"


def _first_name(about: Named) -> str:
    return f"audit-first:{_name(about)}"


def _opened_name(about: Named) -> str:
    return f"audit-opened:{_name(about)}"
