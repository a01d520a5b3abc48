"""A node's watcher without its daemon: a journal, a key, a chain followed by events, and looks that
a test takes one by one, kills in the middle and begins anew from the same files."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio
from played_sessions import Play

from node.config import ChainConfig, LimitConfig, PanelConfig, PriceConfig
from node.journal import Journal, StoredRound, StoredSession, StoredVoucher
from node.network.messages import PromptDelivery
from node.roles.frames import DraftFrame, Round, VerdictFrame
from node.roles.lanes import LeafRun
from node.roles.ports import Node
from node.roles.session import Terms
from node.roles.stored import pack_prompt, pack_runs
from node.watching import WatchDesk
from settlement import trees
from settlement.chain.contracts import Contracts
from settlement.chain.indexer import Batch, ChainEvent, Indexer, IndexStore
from settlement.chain.lanes import SignedVoucher
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import SqliteSendJournal
from settlement.chain.sender import Sender, nothing
from settlement.chain.standing import Standing, fold
from settlement.draws import RoundEvidence
from settlement.fault_proofs import Fault
from settlement.records import Domain, Voucher
from settlement.signing import address_of_key

PROMPT = PromptDelivery(b"\x0a" * 32, (5, 6, 7), (), ())


class Followed:
    """The confirmed events, as `ChainWatch` keeps them."""

    def __init__(self, contracts: Contracts, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._indexer = Indexer(contracts.rpc, contracts.followed(), IndexStore(path))
        self.events: list[ChainEvent] = []
        self.changed = trio.Event()

    def read(self) -> tuple[ChainEvent, ...]:
        self._indexer.catch_up(self._apply)
        return tuple(self.events)

    def _apply(self, batch: Batch) -> None:
        back_to = batch.rolled_back_to
        if back_to is not None:
            self.events = [event for event in self.events if event.block_number <= back_to]
        self.events.extend(batch.events)


class Watched:
    """One key's watcher over the files in `folder`."""

    def __init__(
        self,
        contracts: Contracts,
        key: bytes,
        folder: Path,
        at_step: Any = nothing,
        chain: Followed | None = None,
        panel: PanelConfig | None = None,
        **config: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.contracts, self.key, self.address = contracts, key, address_of_key(key)
        self.journal = Journal(folder / "journal.sqlite", durability="normal")
        self.chain = chain or Followed(contracts, folder / "index.sqlite")
        self.node = Node(
            address=self.address,
            key=key,
            domain=contracts.domain,
            journal=self.journal,
            transport=None,  # type: ignore[arg-type]
            chain=None,  # type: ignore[arg-type]
            limits=LimitConfig(),
            prices=PriceConfig(),
            clock=time.time,
            entropy=os.urandom,
            log=structlog.get_logger(),
        )
        self.sender = Sender(
            Rpc.connect(contracts.rpc.url),
            key,
            SqliteSendJournal(folder / "sends.sqlite"),
            errors=contracts.errors,
            poll_seconds=0.01,
            at_step=at_step,
        )
        settings = ChainConfig(
            "http://unused",
            folder / "unused",
            draw_patience_seconds=0.0,
            token_per_wei=1e-6,
            **config,
        )
        self.desk = WatchDesk(
            contracts,
            self.sender,
            self.chain,
            self.node,
            settings,
            draws=True,  # type: ignore
            panel=panel,
        )
        self.desk._policy = self.desk.policy_of(18)
        self.desk._panel_policy = self.desk.panel_policy_of(18)

    def close(self) -> None:
        self.sender.close()
        self.journal.close()

    def look(self) -> int:
        """One look at everything confirmed by now."""
        self.chain.read()
        return trio.run(partial(trio.to_thread.run_sync, self.desk.look, self.chain.events))

    def accuse(self, *faults: Fault) -> None:
        """As if the watcher had found them."""
        own = frozenset([self.address])
        trio.run(partial(trio.to_thread.run_sync, self.desk.accuse, faults, own))

    def standing(self) -> Standing:
        return fold(self.chain.read())

    def steps(self) -> list[str]:
        return [str(entry["step"]) for entry in self.desk.view()["challenges"]]

    def counted(self, name: str) -> int:
        return self.node.metrics.counters[name]


# ---------------------------------------------------------------- what a journal holds


def frames_of(evidence: RoundEvidence) -> Round:
    draft = None
    if evidence.commit is not None:
        draft = DraftFrame(
            evidence.commit, evidence.commit_signature, evidence.draft_leaves, evidence.kept
        )
    verdict = VerdictFrame(evidence.verdict, evidence.verdict_signature, evidence.verdict_leaves)
    return Round(draft, verdict)


def terms_of(domain: Domain, evidence: RoundEvidence) -> Terms:
    """Without the parties' signatures, which nothing here looks at."""
    three = (bytes(65), bytes(65), bytes(65))
    return Terms(domain, evidence.order, three, evidence.start, three)


def keep_session(
    journal: Journal, session: Play, role: str, seal: tuple[bytes, bytes] | None = None
) -> None:
    """Session and rounds, as a node that took part has them. `seal`: salt and fingerprint that V
    has behind every leaf."""
    first = session.rounds[0]
    terms, order = terms_of(session.domain, first), first.order
    journal.put_session(
        StoredSession(
            terms.start_hash,
            order.session_id,
            order.request_id,
            order.lane.id,
            role,
            terms.to_wire(),
            PROMPT.salt,
            pack_prompt(PROMPT),
            "closed",
        )
    )
    for evidence in session.rounds:
        done = frames_of(evidence)
        journal.put_round(
            StoredRound(
                terms.start_hash,
                evidence.record.round,
                done.draft.to_wire() if done.draft else None,
                done.verdict.to_wire(),
                b"" if seal is None else b"".join(seal) * len(evidence.verdict_leaves),
            )
        )


def keep_voucher(journal: Journal, session: Play, signed: SignedVoucher) -> None:
    run = LeafRun(session.rounds[0].start.struct_hash, 0, len(session.rounds))
    voucher = signed.voucher
    journal.put_voucher(
        StoredVoucher(
            voucher.lane,
            voucher.epoch,
            voucher.leaf_count,
            voucher.base_root,
            voucher.to_wire(),
            signed.client,
            signed.verifier,
            signed.drafter,
            pack_runs((run,)),
            top=signed.top,
        )
    )


def voucher_over(
    domain: Domain,
    rounds: tuple[RoundEvidence, ...],
    keys: tuple[bytes, bytes, bytes],
    *,
    epoch: int = 0,
    base: trees.Settled | None = None,
    settled: trees.Settled | None = None,
    due: int = 10**12,
) -> SignedVoucher:
    """A voucher over these rounds on that base (None: the epoch's start), by all three, with a
    little due to both payees. `settled` names other sums than theirs."""
    lane = rounds[0].order.lane
    right = trees.SumTree(evidence.record for evidence in rounds).settled(base)
    said = settled or right
    voucher = Voucher(
        lane=lane.id,
        epoch=epoch,
        output=said.sums.output,
        accepted=said.sums.accepted,
        due_drafter=due,
        due_verifier=due,
        base_root=said.base_root,
        root=said.root,
        leaf_count=said.leaf_count,
        buckets=said.sums.buckets,
    )
    client, drafter, verifier = (domain.sign(voucher, key) for key in keys)
    return SignedVoucher(lane, voucher, said.top, client=client, verifier=verifier, drafter=drafter)
