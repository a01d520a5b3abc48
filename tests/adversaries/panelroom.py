"""What a panel makes of what a second run finds: F9 against V, F12 against D. Needs anvil, solc.

Seven auditors stand by, each with a stake and a key; who sits is drawn by the contracts. A juror
runs the registered model itself and answers as its node would (`node.roles.answering`), sealed,
before V opens its fingerprint. The accuser is a stranger who has the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import arena
import courtroom
from courtroom import KEYS, STAKE, TOKEN, Courtroom, deploy_devnet, make_sender
from leaving import Left
from pairs import Pair
from stage import Played, Rerun, Row, Scene

from node.roles import answering
from node.roles.rerun import Tolerance
from settlement import panels
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.indexer import Batch, ChainEvent, Indexer, IndexStore
from settlement.chain.lanes import Position, SignedVoucher, groups_of
from settlement.chain.panel import WRONG_DRAFT, WRONG_TARGET, CaseStage
from settlement.chain.panel_events import CaseFiled
from settlement.chain.parameters import DEVNET, JurySpans
from settlement.chain.sender import Sender
from settlement.chain.standing import fold
from settlement.draws import BatchEvidence
from settlement.hashing import keccak256
from settlement.panels import Answer, Result
from settlement.records import Lane, Manifest, Tier
from settlement.signing import address_of_key

RESERVE = 10 * TOKEN
# A bond grows with the stake that it puts at risk, and with the times a place was cleared.
MOST_BOND = 10**5 * TOKEN
AUDITORS = tuple(keccak256(b"auditor", bytes([number])) for number in range(7))
TARGET, DRAFT = (
    Manifest(name, Tier.FLOAT32, b"\x01" * 32, b"\x02" * 32, 512, (2,), 1024)
    for name in ("target", "draft")
)
# Phases that no slow machine misses; the test moves the clock where it is done with one.
PARAMETERS = replace(
    DEVNET,
    times=replace(DEVNET.times, evidence=100_000, panel=2_000, appeal=4_000, unbonding=120_000),
    panel=replace(DEVNET.panel, spans=JurySpans(400, 400, 400, 400), appeal_window=400),
    audits=replace(DEVNET.audits, spans=JurySpans(400, 400, 400, 400)),
)


def honestly(answer: Answer) -> Answer:
    return answer


def blindly(answer: Answer) -> Answer:
    """Whatever it is asked, it finds nothing."""
    return replace(answer, margin=0)


@dataclass(frozen=True)
class Ruled:
    """Stake units. `recovered` is what slashes gave to victims who are honest; `honest` what was
    taken from anyone else; `result` the last jury's; `refunded`: the client has back what it paid
    for every round in question."""

    slashed: int
    recovered: int
    honest: int
    result: Result
    refunded: bool
    left: Left


class Hall:
    """Everybody's hands on the chain in one scene, and its events."""

    def __init__(self, contracts: Contracts, anvil: Anvil, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Of its own: what was sent before the chain was rolled back must not pass for sent.
        folder = Path(mkdtemp(dir=folder))
        self.chain, self.anvil, self.folder = contracts, anvil, folder
        followed = (
            *contracts.followed(),
            contracts.pool,
            contracts.juries,
            contracts.panel,
            contracts.audits,
        )
        unique = {contract.address: contract for contract in followed}
        index = IndexStore(folder / "index.sqlite")
        self._indexer = Indexer(contracts.rpc, tuple(unique.values()), index)
        self._events: list[ChainEvent] = []
        self._senders: dict[bytes, Sender] = {}
        self._sent = 0

    def sender(self, key: bytes) -> Sender:
        if key not in self._senders:
            path = self.folder / f"{key.hex()[:16]}.sqlite"
            self._senders[key] = make_sender(self.chain.rpc, key, path, self.chain)
        return self._senders[key]

    def send(self, key: bytes, call: Any) -> None:
        self._sent += 1
        self.sender(key).send(f"step:{self._sent}", call)

    def events(self) -> list[ChainEvent]:
        def apply(batch: Batch) -> None:
            self._events.extend(batch.events)

        self._indexer.catch_up(apply)
        return self._events

    def last(self, kind: type[Any]) -> Any:
        return [found.event for found in self.events() if isinstance(found.event, kind)][-1]

    def fund(self, name: str, key: bytes, role: Role, models: Sequence[bytes] = ()) -> None:
        """A stake of STAKE behind that key."""
        vault, token, address = self.chain.vault, self.chain.token, address_of_key(key)
        self.anvil.set_balance(address, 10**20)
        self.send(KEYS[0], token.transfer(address, STAKE))
        self.send(key, token.approve(vault.address, STAKE))
        self.send(key, vault.stake(address, keccak256(address)[:20], role, STAKE, list(models)))

    def reserve(self, lane: Lane, key: bytes) -> None:
        """The client's reserve for a lane."""
        chain = self.chain
        self.anvil.set_balance(lane.client, 10**20)
        self.send(KEYS[0], chain.token.transfer(lane.client, RESERVE))
        self.send(key, chain.token.approve(chain.escrow.address, RESERVE))
        self.send(key, chain.escrow.reserve(lane, RESERVE))

    def settle(self, signed: SignedVoucher, key: bytes) -> None:
        """The lane's first settlement."""
        chain = self.chain
        position = Position(signed.voucher.epoch, chain.escrow.parameters().fee_bps)
        call = chain.escrow.settle(chain.token.address, groups_of([(signed, position)]))
        self.send(key, call)
        self.anvil.mine(4)

    def source(self, root: bytes) -> tuple[Any, ...]:
        """IPlaceRule.Source of that root's settlement."""
        for batch, index, entry, _lane in fold(self.events()).settlements():
            if entry.root == root:
                return (batch.batch, batch.packed(), index)
        raise LookupError(f"no settlement of 0x{root.hex()}")

    # ------------------------------------------------------------ juries

    def seat(self, jury: int) -> tuple[bytes, ...]:
        self.anvil.mine(2)
        self.send(KEYS[1], self.chain.juries.seat(jury))
        return self.chain.juries.members_of(jury)

    def commit(self, jury: int, answers: dict[bytes, Answer]) -> None:
        for key, answer in answers.items():
            member = address_of_key(key)
            word = panels.commitment(
                self.chain.chain_id, self.chain.juries.address, jury, member, answer, keccak256(key)
            )
            self.send(key, self.chain.juries.commit(jury, word))

    def reveal(self, jury: int, answers: dict[bytes, Answer]) -> None:
        for key, answer in answers.items():
            words = (answer.withheld, answer.margin, answer.print, keccak256(key))
            self.send(key, self.chain.juries.reveal(jury, address_of_key(key), *words))


def key_of(member: bytes) -> bytes:
    """The key of an auditor that was drawn."""
    return next(key for key in AUDITORS if address_of_key(key) == member)


@dataclass(frozen=True)
class Place:
    """A token or a draft that a second run contradicts."""

    start_hash: bytes
    round: int
    within: int
    answer: Answer  # an honest juror's


def wrong_tokens(pair: Pair, run: Rerun) -> Iterator[Place]:
    """The first wrong place of every round that has one, and what a juror's node answers there."""
    bound, said = Tolerance().fingerprint, run.prints
    first = run.case.order.start_position
    for index, done in enumerate(run.case.rounds):
        verdict = done.verdict.verdict
        for within in range(verdict.emitted):
            at = verdict.base + within
            found = any(item.position == at for item in run.findings.mismatches)
            ours = run.findings.fingerprints[at - first]
            if found or panels.distance(ours, said[at - first]) > bound:
                token_bytes = pair.tokenizer().token_bytes
                answer = answering.answer(pair.target(), run.case, index, within, token_bytes)
                yield Place(verdict.start_hash, verdict.round, within, answer)
                break


def wrong_drafts(run: Rerun) -> Iterator[Place]:
    """The same for drafts; only those that V has answered can be asked about."""
    unit = Tolerance()
    for done in run.case.rounds:
        verdict = done.verdict.verdict
        for within in range(verdict.emitted):
            at = verdict.base + within
            found = [item.margin for item in run.drafts if item.position == at]
            if found:
                # In units of scores, as the figures of a verdict are counted.
                answer = Answer(margin=ceil(max(found) / unit.mass * unit.score))
                yield Place(verdict.start_hash, verdict.round, within, answer)
                break


class PanelRoom(Courtroom):
    """A courtroom with registered models, their tolerances, and auditors who have staked."""

    def __init__(self, anvil: Anvil, folder: Path) -> None:
        self.anvil, self.folder = anvil, folder
        self.contracts: Contracts = deploy_devnet(anvil, folder, PARAMETERS)
        chain, hall = self.contracts, Hall(self.contracts, anvil, folder / "opening")
        owner = courtroom.OWNER
        unit = Tolerance()
        for model in (TARGET, DRAFT):
            hall.send(owner, chain.registry.register(model))
            call = chain.registry.set_tolerance(model.model_id, unit.score, unit.fingerprint, 0)
            hall.send(owner, call)
        models = [TARGET.model_id, DRAFT.model_id]
        for key in AUDITORS:
            hall.fund("auditor", key, Role.AUDITOR, models)
            for model_id in models:
                hall.send(key, chain.pool.sync(address_of_key(key), model_id))

    @contextmanager
    def sits(self) -> Iterator[None]:
        before = arena.TARGET, arena.DRAFT
        arena.TARGET, arena.DRAFT = TARGET.model_id, DRAFT.model_id
        try:
            with super().sits():
                yield
        finally:
            arena.TARGET, arena.DRAFT = before

    def judged(
        self,
        row: Row,
        scene: Scene,
        played: Played,
        *,
        lying: int = 0,
        silent: bool = False,
    ) -> Row:
        """The row with what a panel has taken, given and spared.

        Args:
            lying: so many of each drawn panel find nothing, whatever there is. Where they clear the
                accused, the accuser appeals.
            silent: V opens no fingerprint.
        """
        with self.anvil.rolled_back():
            judging = _Judging(self, scene, played, lying, silent)
            ruled = judging.rule()
        if lying:
            how = f"; {lying} of {PARAMETERS.panel.panel_size} jurors lie"
            how += f", {judging.cleared} cases cleared and won on appeal" * bool(judging.cleared)
            row = replace(row, caught=row.caught + how)
        return replace(
            row,
            outcome="slashed" if ruled.slashed else row.outcome,
            slashed=ruled.slashed,
            victim_recovered=ruled.recovered,
            honest_slashed=row.honest_slashed + (ruled.honest > 0),
            text_intact=row.text_intact or ruled.refunded,
            all_withdrew=ruled.left.all_withdrew,
            withdrawn=ruled.left.honest,
        )

    def leave(self, folder: Path, keys: Iterable[bytes], crooked: Iterable[bytes]) -> Left:
        """The auditors too."""
        return super().leave(folder, [*keys, *AUDITORS], crooked)

    def paid(self, row: Row, scene: Scene, played: Played) -> Row:
        """The row of a scene that neither court nor panel has seen: what was signed is settled, and
        everybody leaves with it."""
        with self.anvil.rolled_back():
            left = _Judging(self, scene, played, 0, False).pay()
        if left is None:
            return row  # nothing was signed that the chain would take
        return replace(row, all_withdrew=left.all_withdrew, withdrawn=left.honest)


class _Judging:
    """One scene before the panel: stakes, a reserve, a settlement, a case for every wrong round."""

    def __init__(
        self, room: PanelRoom, scene: Scene, played: Played, lying: int, silent: bool
    ) -> None:
        self.room, self.scene, self.played = room, scene, played
        self.lying, self.silent, self.cleared = lying, silent, 0
        self.liars: frozenset[bytes] = frozenset()
        folder = room.folder / scene.name.replace(" ", "-")
        self.hall = Hall(room.contracts, room.anvil, folder)
        self.accuser = KEYS[1]

    def _staked(self) -> dict[str, Role]:
        """Everybody but the client stakes."""
        played = self.played
        seats = {
            name: Role.DRAFTER if "drafter" in name else Role.VERIFIER
            for name in played.nodes
            if name != "client"
        }
        for name, role in seats.items():
            self.hall.fund(name, played.nodes[name].key, role)
        return seats

    def rule(self) -> Ruled:
        played, chain = self.played, self.room.contracts
        seats = self._staked()
        since, owed, result = chain.rpc.head().number, 0, Result.NONE
        for run in played.reruns:
            places = list(self._places(run))
            if not places:
                continue
            batch = self._settled(run)
            for place in places:
                result = self._case(run, batch, place)
                owed += self._paid_for(run, place)
        lost = {
            name: STAKE - chain.vault.slashable(played.nodes[name].address, role)
            for name, role in seats.items()
        }
        auditors = sum(
            STAKE - chain.vault.slashable(address_of_key(key), Role.AUDITOR) for key in AUDITORS
        )
        guilty = sum(lost.pop(seat) for seat in self.scene.crooked if seat in lost)
        victims = {
            node.address for name, node in played.nodes.items() if name not in self.scene.crooked
        }
        to = self.room.vested(since)
        refund = to.get(played.nodes["client"].address, 0)
        return Ruled(
            slashed=guilty,
            recovered=sum(amount for who, amount in to.items() if who in victims),
            honest=sum(lost.values()) + auditors,
            result=result,
            refunded=0 < owed <= refund,
            left=self._leave(),
        )

    def _leave(self) -> Left:
        nodes, crooked = self.played.nodes, self.scene.crooked
        keys = [node.key for node in nodes.values()]
        liars = [nodes[seat].address for seat in crooked if seat in nodes]
        liars += [address_of_key(key) for key in self.liars]
        return self.room.leave(self.hall.folder, keys, liars)

    def pay(self) -> Left | None:
        """Settles the newest voucher of every lane, and lets everybody leave."""
        self._staked()
        newest = {
            run.served.terms.order.lane.id: run
            for run in self.played.reruns
            if run.batch is not None and run.served.payment.client
        }
        for run in newest.values():
            self._settled(run)
        return self._leave() if newest else None

    def _places(self, run: Rerun) -> Iterator[Place]:
        if self.fault == WRONG_DRAFT:
            yield from wrong_drafts(run)
        else:
            yield from wrong_tokens(self.played.pair, run)

    @property
    def fault(self) -> int:
        return WRONG_DRAFT if self.scene.crooked == ("drafter",) else WRONG_TARGET

    @staticmethod
    def _paid_for(run: Rerun, place: Place) -> int:
        """What the client has paid for that round."""
        order = run.served.terms.order
        verdict = run.served.rounds[place.round].verdict.verdict
        return verdict.emitted * order.price_output + verdict.k * order.price_accepted

    def _settled(self, run: Rerun) -> BatchEvidence:
        """The lane's voucher reaches the chain by V's hand."""
        hall, batch, client = self.hall, run.batch, self.played.nodes["client"]
        payment, lane = run.served.payment, run.served.terms.order.lane
        assert batch is not None, "nothing was signed, so nothing can be settled"
        signed = SignedVoucher(
            lane,
            payment.voucher,
            batch.settled()[1].top,
            client=payment.client,
            verifier=payment.verifier,
            drafter=payment.drafter,
        )
        hall.reserve(lane, client.key)
        verifier = next(n for n in self.played.nodes.values() if n.address == lane.verifier)
        if not payment.drafter:
            # V is paid alone after notice: else it could empty a reserve past D.
            escrow = self.room.contracts.escrow
            hall.send(verifier.key, escrow.notice_solo(lane))
            self.room.anvil.warp(escrow.parameters().thaw_period + 1)
        hall.settle(signed, verifier.key)
        return batch

    def _case(self, run: Rerun, batch: BatchEvidence, place: Place) -> Result:
        hall, chain = self.hall, self.room.contracts
        words = panels.place_words(batch, place.start_hash, place.round, place.within)
        source = hall.source(run.served.payment.voucher.root)
        ask = chain.place_rule.verdict_question
        if self.fault == WRONG_DRAFT:
            ask = chain.place_rule.draft_question
        hall.send(self.accuser, chain.token.approve(chain.panel.address, MOST_BOND))
        hall.send(self.accuser, chain.panel.accuse(self.fault, ask(words, source)))
        filed = hall.last(CaseFiled)
        jury = chain.panel.case_of(filed.case_id).jury
        members = hall.seat(jury)
        keys = [key_of(member) for member in members]
        # The first drawn ones are the liars of this case, in its appeal too.
        self.liars = frozenset(keys[: self.lying])
        answers = {key: (blindly if key in self.liars else honestly)(place.answer) for key in keys}
        hall.commit(jury, answers)
        if self.silent:
            self.room.anvil.warp(4 * PARAMETERS.panel.spans.open)
        else:
            if self.fault == WRONG_TARGET:
                sealed = run.sealed[place.round]
                opened = sealed.salts[place.within], sealed.fingerprints[place.within]
                hall.send(self.accuser, chain.panel.open_print(filed.charge, *opened))
            hall.reveal(jury, answers)
        hall.send(self.accuser, chain.panel.decide(filed.charge))
        if chain.panel.case_of(filed.case_id).result == Result.CLEARED:
            self.cleared += 1
            self._appealed(filed, place)
        else:
            self.room.anvil.warp(PARAMETERS.panel.appeal_window + 1)
            hall.send(self.accuser, chain.panel.conclude(filed.charge))
        state = chain.panel.case_of(filed.case_id)
        assert state.stage == CaseStage.CLOSED
        return state.result

    def _appealed(self, filed: CaseFiled, place: Place) -> None:
        """The accuser asks the larger jury, of whom as many lie as before."""
        hall, chain = self.hall, self.room.contracts
        hall.send(self.accuser, chain.token.approve(chain.panel.address, MOST_BOND))
        hall.send(self.accuser, chain.panel.appeal(filed.charge))
        jury = chain.panel.case_of(filed.case_id).jury
        members = hall.seat(jury)
        late = self.liars
        answers = {
            key: (blindly if key in late else honestly)(place.answer)
            for key in map(key_of, members)
        }
        hall.commit(jury, answers)
        hall.reveal(jury, answers)
        hall.send(self.accuser, chain.panel.decide(filed.charge))


@contextmanager
def opened(folder: Path) -> Iterator[PanelRoom]:
    """A fresh chain with all contracts and auditors, for as long as the block lasts."""
    with Anvil() as anvil:
        room = PanelRoom(anvil, folder)
        with room.sits():
            yield room
