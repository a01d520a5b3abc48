"""What this node's journal holds of settled roots, texts and signed faults, in the form that draws,
demands and proofs ask for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from node.journal import Journal, StoredVoucher
from node.roles.accusations import Accusation
from node.roles.session import Terms, round_record
from node.roles.stored import stored_round, unpack_prompt, unpack_runs
from settlement import trees
from settlement.draws import BatchEvidence, RoundEvidence
from settlement.hashing import ZERO32
from settlement.records import Domain, Voucher
from settlement.sealing import Text


@lru_cache(maxsize=256)
def _terms(wire: bytes, domain: Domain) -> Terms:
    """A session's terms, once for all its rounds: what is hashed of an order stays with it."""
    return Terms.from_wire(wire, domain)


class EvidenceRoom:
    """Reads evidence out of the journal. Not thread-safe: call from the journal's thread."""

    def __init__(self, journal: Journal, domain: Domain) -> None:
        self._journal = journal
        self._domain = domain

    def batch(self, root: bytes) -> BatchEvidence | None:
        """The rounds under `root`, or None when no voucher of it is known here, or what it goes on
        from cannot be opened any more."""
        row = self._journal.voucher_of_root(root)
        if row is None:
            return None
        voucher = Voucher.from_wire(row.voucher)
        base = self._settled(voucher.base_root)
        if base is None and voucher.base_root != ZERO32:
            return None
        rounds = self._rounds(row)
        earlier = {}
        for evidence in rounds:
            key = (evidence.record.start_hash, evidence.record.round - 1)
            before = self.round(*key) if key[1] >= 0 else None
            if before is not None:
                earlier[key] = before
        return BatchEvidence(rounds, base, earlier)

    def holds(self, root: bytes) -> bool:
        """Whether a voucher of `root` is known here."""
        return self._journal.voucher_of_root(root) is not None

    def text(self, start_hash: bytes, number: int) -> Text | None:
        """Prompt and output of a session up to the end of that round; None when it, or a round on
        the way, is not held."""
        session = self._journal.session(start_hash)
        rows = self._journal.rounds(start_hash)[: number + 1]
        if session is None or [row.round for row in rows] != list(range(number + 1)):
            return None
        delivery = unpack_prompt(session.prompt)
        output = list(delivery.output)
        for row in rows:
            output += stored_round(row.draft, row.verdict).verdict.tokens
        return Text(delivery.salt, tuple(delivery.prompt), tuple(output))

    def accusations(self) -> Iterator[tuple[str, Accusation]]:
        """(name, accusation) of everything that was kept for a proof."""
        for name, raw in self._journal.secrets_under("accusation"):
            yield name, Accusation.from_wire(raw)

    def _settled(self, root: bytes) -> trees.Settled | None:
        """The preimage of a root that a voucher here has; None where its top is not known and its
        rounds are no longer held."""
        if root == ZERO32:
            return None
        row = self._journal.voucher_of_root(root)
        if row is None:
            return None
        voucher = Voucher.from_wire(row.voucher)
        top = row.top
        if not top:
            rounds = self._rounds(row)
            if len(rounds) != voucher.leaf_count:
                return None
            top = trees.SumTree(evidence.record for evidence in rounds).top().hash
        settled = trees.Settled(top, voucher.sums, voucher.leaf_count, voucher.base_root)
        return settled if settled.root == root else None

    def _rounds(self, row: StoredVoucher) -> tuple[RoundEvidence, ...]:
        found = []
        for run in unpack_runs(row.leaves):
            for number in range(run.first, run.first + run.count):
                evidence = self.round(run.start_hash, number)
                if evidence is not None:
                    found.append(evidence)
        return tuple(found)

    def round(self, start_hash: bytes, number: int) -> RoundEvidence | None:
        """The round as it counted here, or None."""
        session = self._journal.session(start_hash)
        stored = self._journal.round(start_hash, number)
        if session is None or stored is None:
            return None
        terms = _terms(session.terms, self._domain)
        done = stored_round(stored.draft, stored.verdict)
        draft, verdict = done.draft, done.verdict
        return RoundEvidence(
            order=terms.order,
            start=terms.start,
            commit=draft.commit if draft else None,
            commit_signature=draft.signature if draft else b"",
            draft_leaves=draft.leaves if draft else (),
            kept=draft.kept if draft else (),
            verdict=verdict.verdict,
            verdict_signature=verdict.signature,
            verdict_leaves=verdict.leaves,
            record=round_record(done),
        )
