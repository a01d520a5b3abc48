"""A settled session before the panel: parties with stakes, auditors with seats, a model whose
tolerance is registered, and everybody's hands on the chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deployment import (
    CLIENT,
    DRAFTER,
    OWNER,
    TOKEN,
    VERIFIER,
    Parties,
    deploy_devnet,
    make_sender,
    open_lane,
)
from played_sessions import Play, play, record_of, sealed
from watched_node import voucher_over

from settlement import panels, trees
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.indexer import Batch, ChainEvent, Indexer, IndexStore
from settlement.chain.lanes import Position, SignedVoucher, groups_of
from settlement.chain.parameters import DEVNET, JurySpans
from settlement.chain.sender import Sender
from settlement.chain.standing import fold
from settlement.draws import RoundEvidence
from settlement.hashing import keccak256
from settlement.panels import Answer
from settlement.records import Manifest, Mode, Tier, salted_fingerprint
from settlement.signing import address_of_key

STAKE = 10**6 * TOKEN
AUDITOR_STAKE = 10**4 * TOKEN
KEYS = (CLIENT, DRAFTER, VERIFIER)
V = address_of_key(VERIFIER)
AUDITORS = tuple(keccak256(b"auditor", bytes([number])) for number in range(4))
TARGET = Manifest("target", Tier.FLOAT32, b"\x01" * 32, b"\x02" * 32, 512, (2,), 1024)
MARGIN, DISTANCE = 1 << 14, 64
# Phases that no slow machine misses.
PARAMETERS = replace(
    DEVNET,
    times=replace(DEVNET.times, panel=2_000, appeal=4_000, unbonding=6_300),
    panel=replace(DEVNET.panel, spans=JurySpans(400, 400, 400, 400), appeal_window=400),
    audits=replace(DEVNET.audits, spans=JurySpans(400, 400, 400, 400)),
)
PANEL, AUDITS = PARAMETERS.panel, PARAMETERS.audits
# Of what half of V's stake would bring the accuser, more than the least bond (PanelTerms.bondAt).
BOND = STAKE // 2 * PANEL.reward_bps // 10_000 * PANEL.bond_bps // 10_000
SPARE = 10 * BOND  # what an auditor has for bonds
SALT, PRINT = b"\x05" * 32, bytes(range(32))


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the deployment's address book lies."""
    return tmp_path_factory.mktemp("panel")


@pytest.fixture(scope="module")
def opened(anvil: Anvil, folder: Path) -> Contracts:
    contracts = open_lane(deploy_devnet(anvil, folder, PARAMETERS), folder, stake=STAKE).contracts
    owner = make_sender(contracts.rpc, OWNER, folder / "governor.sqlite", contracts)
    owner.send("register", contracts.registry.register(TARGET))
    tolerance = contracts.registry.set_tolerance(TARGET.model_id, MARGIN, DISTANCE, 0)
    owner.send("tolerance", tolerance)
    for key in AUDITORS:
        auditor = address_of_key(key)
        anvil.set_balance(auditor, 10**20)
        owner.send(f"mint:{auditor.hex()}", contracts.token.mint(auditor, AUDITOR_STAKE + SPARE))
        sender = make_sender(contracts.rpc, key, folder / auditor.hex(), contracts)
        sender.send("approve", contracts.token.approve(contracts.vault.address, AUDITOR_STAKE))
        stake = contracts.vault.stake(
            auditor, keccak256(auditor)[:20], Role.AUDITOR, AUDITOR_STAKE, [TARGET.model_id]
        )
        sender.send("stake", stake)
        sender.send("sync", contracts.pool.sync(auditor, TARGET.model_id))
    anvil.warp(PARAMETERS.slice_length)  # from then on V's stake counts for bonds
    return contracts


@pytest.fixture
def chain(anvil: Anvil, opened: Contracts) -> Iterator[Contracts]:
    with anvil.rolled_back():
        yield opened


class World:
    """Everybody's hands on the chain, and its events."""

    def __init__(self, chain: Contracts, anvil: Anvil, folder: Path) -> None:
        self.chain, self.anvil = chain, anvil
        senders = {key: make_sender(chain.rpc, key, folder / key.hex(), chain) for key in KEYS}
        self.parties = Parties(chain, *senders.values())
        self.auditors = {
            address_of_key(key): make_sender(chain.rpc, key, folder / key.hex(), chain)
            for key in AUDITORS
        }
        store = IndexStore(folder / "index.sqlite")
        self._indexer = Indexer(chain.rpc, chain.followed(), store)
        self._events: list[ChainEvent] = []
        self._sent = 0

    def events(self) -> list[ChainEvent]:
        def apply(batch: Batch) -> None:
            self._events.extend(batch.events)

        self._indexer.catch_up(apply)
        return self._events

    def last(self, kind: type[Any]) -> Any:
        return [e.event for e in self.events() if isinstance(e.event, kind)][-1]

    def send(self, sender: Sender, call: Any) -> None:
        self._sent += 1
        sender.send(f"step:{self._sent}", call)

    def settle(self, session: Play) -> SignedVoucher:
        signed = voucher_over(self.chain.domain, session.rounds, KEYS, due=10**20)
        position = Position(signed.voucher.epoch, self.chain.escrow.parameters().fee_bps)
        groups = groups_of([(signed, position)])
        self.send(self.parties.verifier, self.chain.escrow.settle(self.chain.token.address, groups))
        self.anvil.mine(4)
        return signed

    def source(self) -> tuple[Any, ...]:
        """IPlaceRule.Source of the only settlement."""
        ((batch, index, _entry, _lane),) = fold(self.events()).settlements()
        return (batch.batch, batch.packed(), index)

    def seat(self, jury: int) -> tuple[bytes, ...]:
        self.anvil.mine(2)
        self.send(self.parties.client, self.chain.juries.seat(jury))
        return self.chain.juries.members_of(jury)

    def commit(self, jury: int, answers: dict[bytes, Answer]) -> None:
        juries = self.chain.juries
        for member, answer in answers.items():
            sealed_word = panels.commitment(
                self.chain.chain_id, juries.address, jury, member, answer, keccak256(member)
            )
            self.send(self.auditors[member], juries.commit(jury, sealed_word))

    def reveal(self, jury: int, answers: dict[bytes, Answer]) -> None:
        for member, answer in answers.items():
            words = (answer.withheld, answer.margin, answer.print, keccak256(member))
            self.send(self.auditors[member], self.chain.juries.reveal(jury, member, *words))


@pytest.fixture
def world(chain: Contracts, anvil: Anvil, tmp_path: Path) -> World:
    return World(chain, anvil, tmp_path)


def played(chain: Contracts, mode: Mode = Mode.COUPLED, **terms: Any) -> Play:
    """A session whose fingerprints are all sealed by one salt."""
    session = play(
        chain.domain,
        Random(4),
        mode,
        token=chain.token.address,
        keys=KEYS,
        target_model=TARGET.model_id,
        **terms,
    )
    rounds: list[RoundEvidence] = []
    for evidence in session.rounds:
        leaves = tuple(
            replace(leaf, fingerprint=salted_fingerprint(SALT, PRINT))
            for leaf in evidence.verdict_leaves
        )
        root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
        verdict = replace(evidence.verdict, verdict_root=root)
        commit = evidence.commit
        if commit and rounds:
            before = rounds[-1].verdict.struct_hash
            commit = replace(commit, prev_verdict_hash=before)
            verdict = replace(verdict, draft_commit_hash=commit.struct_hash)
        changed = replace(
            evidence,
            commit=commit,
            verdict=verdict,
            verdict_leaves=leaves,
            record=record_of(verdict, commit, leaves),
        )
        rounds.append(sealed(chain.domain, changed, (DRAFTER, VERIFIER)))
    return replace(session, rounds=tuple(rounds))
