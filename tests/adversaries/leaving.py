"""Everybody leaves: whatever an adversary has done, who is honest gets out what is his.

At the end of a scene on the chain, what is still open is ended as the watchers would end it
(`capture`, `finish`, `conclude`, pay), time passes until nothing is locked, and every account takes
out its stake, its pay, its bonds, its shares of slashes and its reserve. Then the books must come
to nothing but fees that nobody has earned and what was burned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from counter_contract import KEYS
from deployment import make_sender

from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import Reverted
from settlement.chain.events import LaneOpened, Staked, StakeSlashed, Vested
from settlement.chain.indexer import Batch, ChainEvent, Indexer, IndexStore
from settlement.chain.panel import AuditStage, CaseStage
from settlement.chain.panel_standing import fold_panel
from settlement.chain.standing import fold
from settlement.records import Lane
from settlement.signing import address_of_key
from settlement.ticket_watch import owed


@dataclass(frozen=True)
class Left:
    """What came of it, in token units.

    Attributes:
        honest: what honest parties have taken out.
        lost: what was slashed of them.
        stuck: what contracts hold for anybody and he could not take.
        balanced: every contract's books add up to the unit, and its tokens are there.
    """

    honest: int
    lost: int
    stuck: int
    balanced: bool

    @property
    def all_withdrew(self) -> bool:
        return self.balanced and not self.lost and not self.stuck


class Leaving:
    """Everybody's hands on the chain at the end of a scene."""

    def __init__(self, contracts: Contracts, anvil: Anvil, folder: Path, keys: list[bytes]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.chain, self.anvil = contracts, anvil
        self._folder = Path(mkdtemp(dir=folder))
        self._keys = {address_of_key(key): key for key in (*keys, KEYS[0], KEYS[1])}
        store = IndexStore(self._folder / "index.sqlite")
        self._indexer = Indexer(contracts.rpc, tuple(contracts.followed()), store)
        self._events: list[ChainEvent] = []
        self._sent = 0
        self._senders: dict[bytes, Any] = {}

    def events(self) -> list[ChainEvent]:
        def apply(batch: Batch) -> None:
            self._events.extend(batch.events)

        self._indexer.catch_up(apply)
        return self._events

    def of(self, kind: type[Any]) -> Iterator[Any]:
        return (found.event for found in self.events() if isinstance(found.event, kind))

    def send(self, call: Any, who: bytes = KEYS[1]) -> bool:
        """Whether it was taken."""
        if who not in self._senders:
            path = self._folder / f"{who.hex()[:16]}.sqlite"
            self._senders[who] = make_sender(self.chain.rpc, who, path, self.chain)
        self._sent += 1
        try:
            self._senders[who].send(f"leave:{self._sent}", call)
        except Reverted:
            return False
        return True

    def warp(self, seconds: int) -> None:
        self.anvil.warp(seconds)
        self.anvil.mine(1)

    # ------------------------------------------------------------ the course

    def __call__(self, honest: set[bytes]) -> Left:
        chain, token = self.chain, self.chain.token
        stakes = self._stakes()
        before = self._holdings(honest, stakes)
        self._end()
        times, slice_ = chain.vault.times(), chain.vault.slice_length()
        self.warp(times.unbonding + 2 * slice_)
        lanes = {event.parties.id: event.parties for event in self.of(LaneOpened)}
        for lane in lanes.values():
            state = chain.escrow.lane_state(lane.id)
            if state.reserve > state.thawing:
                free = state.reserve - state.thawing
                self.send(chain.escrow.thaw(lane, free), self._keys[lane.client])
        for account, role in stakes:
            active = chain.vault.stake_of(account, role).active
            if active:
                self.send(chain.vault.unstake(account, role, active), self._keys[account])
        self.warp(max(times.unbonding, chain.escrow.parameters().thaw_period) + 2 * slice_)
        for account, role in stakes:
            self.send(chain.vault.withdraw(account, role), self._keys[account])
        for lane in lanes.values():
            if chain.escrow.lane_state(lane.id).reserve:
                client = lane.client
                self.send(chain.escrow.collect_thawed(lane, client), self._keys[client])
        for account in self._keys:
            if chain.escrow.payable_to(account, token.address):
                self.send(chain.escrow.withdraw(account, token.address))
            for court in self._courts():
                if court.bond_of(account):
                    self.send(court.pull_bond(account))
        vested = {(bytes(event.who), event.slice) for event in self.of(Vested)}
        for who, slice_number in sorted(vested):
            self.send(chain.vault.claim_vested(who, [slice_number]))
        after = self._holdings(honest, stakes)
        return Left(
            honest=sum(after.values()) - sum(before.values()),
            lost=self._lost(honest),
            stuck=self._stuck(vested, list(lanes.values())),
            balanced=self._balanced(),
        )

    def _stakes(self) -> dict[tuple[bytes, Role], int]:
        found: dict[tuple[bytes, Role], int] = {}
        for event in self.of(Staked):
            key = (bytes(event.account), Role(event.role))
            found[key] = found.get(key, 0) + event.amount
        return found

    def _holdings(
        self, honest: set[bytes], stakes: dict[tuple[bytes, Role], int]
    ) -> dict[bytes, int]:
        """By address, what honest keys and their beneficiaries have in their own hands."""
        whose = {self.chain.vault.payout_to(who) for who in honest} | honest
        return {who: self.chain.token.balance_of(who) for who in sorted(whose)}

    def _end(self) -> None:
        """Draws what waits for it, and ends audits and cases that are only to be called over."""
        chain = self.chain
        for _ in range(3):  # where nobody came in time a later block takes the place
            waiting = [b for b in fold(self.events()).batches.values() if not b.captured]
            if not waiting:
                break
            self.anvil.mine(8)
            self.send(chain.beacon.capture([batch.batch for batch in waiting]))
        audits, panel = chain.audits, chain.panel
        self.warp(max(chain.audit_terms.terms()[8]) * 4)
        for _ in range(4):
            standing = fold_panel(self.events())
            for case in standing.cases.values():
                if case.stage in (CaseStage.PANEL, CaseStage.APPEAL):
                    self.send(panel.decide(case.charge))
                elif case.stage == CaseStage.DECIDED:
                    self.send(panel.conclude(case.charge))
            for ticket in standing.tickets.values():
                if ticket.stage in (AuditStage.OPENED, AuditStage.PLANTED):
                    self.send(audits.finish(ticket.id))
                elif ticket.stage in (AuditStage.PASSED, AuditStage.REFERRED):
                    self.send(audits.conclude(ticket.id))
                elif ticket.stage == AuditStage.SEALED:
                    self.send(audits.lapse(ticket.id))
            self.warp(2 * chain.audit_terms.terms()[8][3])
        standing = fold_panel(self.events())
        for ticket in standing.tickets.values():
            jury = standing.juries[ticket.jury]
            for member in jury.members:
                if ticket.ended and owed(chain, ticket, jury, member):
                    self.send(audits.pay(ticket.id, member))
        for case in standing.cases.values():
            state = panel.case_of(case.id)
            for of_appeal, jury in standing.sat(case):
                for member in jury.members:
                    fees = chain.escrow.view("accounting", chain.token.address)[2]
                    if jury.answered(member) and (state.share or (state.settled and fees)):
                        self.send(panel.pay_juror(case.charge, of_appeal, member))

    def _courts(self) -> tuple[Any, ...]:
        chain = self.chain
        demands = (chain.demands, chain.session_demands)
        return (chain.court, chain.exact_dispute, *demands, chain.ledger, chain.panel, chain.audits)

    # ------------------------------------------------------------ what is left

    def _lost(self, honest: set[bytes]) -> int:
        """What was slashed of who is honest."""
        return sum(
            event.slashed[0] for event in self.of(StakeSlashed) if bytes(event.account) in honest
        )

    def _stuck(self, vested: set[tuple[bytes, int]], lanes: list[Lane]) -> int:
        chain, token = self.chain, self.chain.token.address
        held = sum(chain.vault.vesting_of(*share) for share in vested)
        for account, role in self._stakes():
            stake = chain.vault.stake_of(account, role)
            held += stake.active + stake.unbonding
        held += sum(chain.escrow.lane_state(lane.id).reserve for lane in lanes)
        for account in self._keys:
            held += chain.escrow.payable_to(account, token)
            held += sum(court.bond_of(account) for court in self._courts())
        return held

    def _balanced(self) -> bool:
        """deposited = held + withdrawn + burned in each contract, and what is held is there."""
        chain, token = self.chain, self.chain.token
        deposited, reserves, fees, payable, withdrawn = chain.escrow.view(
            "accounting", token.address
        )
        good = deposited == reserves + fees + payable + withdrawn
        good &= token.balance_of(chain.escrow.address) == reserves + fees + payable
        staked, active, unbonding, vesting, out, burned, destroyed = chain.vault.view("accounting")
        good &= staked == active + unbonding + vesting + out + burned
        good &= token.balance_of(chain.vault.address) == staked - out - destroyed
        for court in self._courts():
            ledger = court is chain.ledger
            bonds = court.view("bondsHeld") if ledger else sum(court.view("bonds"))
            good &= token.balance_of(court.address) == bonds
        return bool(good)
