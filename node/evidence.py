"""What this node's journal holds of a settled root, in the form that draws ask for."""

from __future__ import annotations

from node.journal import Journal, StoredVoucher
from node.roles.session import Terms, round_record
from node.roles.stored import stored_round, unpack_runs
from settlement import trees
from settlement.draws import BatchEvidence, RoundEvidence
from settlement.hashing import ZERO32
from settlement.records import Domain, Voucher


class EvidenceRoom:
    """Reads evidence out of the journal. Not thread-safe: call from the journal's thread."""

    def __init__(self, journal: Journal, domain: Domain) -> None:
        self._journal = journal
        self._domain = domain

    def batch(self, root: bytes) -> BatchEvidence | None:
        """The rounds under `root`, or None when no voucher of it is known here."""
        row = self._row(root)
        if row is None:
            return None
        voucher = Voucher.from_wire(row.voucher)
        rounds = self._rounds(row)
        earlier = {}
        for evidence in rounds:
            key = (evidence.record.start_hash, evidence.record.round - 1)
            before = self._round(*key) if key[1] >= 0 else None
            if before is not None:
                earlier[key] = before
        return BatchEvidence(rounds, self._settled(voucher.base_root), earlier)

    def _row(self, root: bytes) -> StoredVoucher | None:
        for row in reversed(self._journal.vouchers()):
            if Voucher.from_wire(row.voucher).root == root:
                return row
        return None

    def _settled(self, root: bytes) -> trees.Settled | None:
        """The preimage of a root that a voucher here has."""
        if root == ZERO32:
            return None
        row = self._row(root)
        if row is None:
            return None
        voucher = Voucher.from_wire(row.voucher)
        top = trees.SumTree(evidence.record for evidence in self._rounds(row)).top()
        return trees.Settled(top.hash, voucher.sums, voucher.leaf_count, voucher.base_root)

    def _rounds(self, row: StoredVoucher) -> tuple[RoundEvidence, ...]:
        found = []
        for run in unpack_runs(row.leaves):
            for number in range(run.first, run.first + run.count):
                evidence = self._round(run.start_hash, number)
                if evidence is not None:
                    found.append(evidence)
        return tuple(found)

    def _round(self, start_hash: bytes, number: int) -> RoundEvidence | None:
        session = self._journal.session(start_hash)
        stored = self._journal.round(start_hash, number)
        if session is None or stored is None:
            return None
        terms = Terms.from_wire(session.terms, self._domain)
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
