"""What the chain says after a devnet run: settlements with gas, draws, accounts, conservation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.devnet.options import Operator
from node.devnet.world import CHAIN_ROLE, World
from settlement.chain.events import (
    FaultShown,
    LaneDrawn,
    LaneSettled,
    OtherEvent,
    PositionOpened,
)
from settlement.chain.indexer import ChainEvent, Indexer, IndexStore
from settlement.chain.panel_events import AnswerRevealed, AuditorPaid
from settlement.chain.panel_standing import fold_panel
from settlement.chain.standing import fold
from settlement.panels import Result
from settlement.records import Voucher
from settlement.schema import RecordError
from settlement.ticket_watch import owed as owed_to

_LOW_128 = (1 << 128) - 1


@dataclass(frozen=True)
class Settled:
    """One lane's settlement."""

    tx: str
    lane: str
    gas_used: int
    lanes_in_tx: int
    output_delta: int
    accepted_delta: int
    due_drafter_delta: int
    due_verifier_delta: int
    root: str
    leaf_count: int


class ChainReader:
    """Every event of the protocol's contracts since the devnet began."""

    def __init__(self, world: World) -> None:
        contracts = world.contracts
        self._world = world
        self._indexer = Indexer(
            world.rpc,
            contracts.followed(),
            IndexStore(world.folder / "devnet-index.sqlite"),
        )
        self.events: list[ChainEvent] = []

    def read(self) -> list[ChainEvent]:
        self._indexer.catch_up(lambda batch: self.events.extend(batch.events))
        return self.events

    def of(self, kind: type) -> list[ChainEvent]:
        return [event for event in self.read() if isinstance(event.event, kind)]

    def settlements(self, vouchers: Iterable[Voucher]) -> list[Settled]:
        """Settlements in chain order; `vouchers` are the client's, by whose roots they are told."""
        by_root = {voucher.root: voucher for voucher in vouchers}
        found = self.of(LaneSettled)
        in_tx: dict[bytes, int] = {}
        for item in found:
            in_tx[item.transaction] = in_tx.get(item.transaction, 0) + 1
        last: dict[bytes, tuple[Voucher | None, int]] = {}
        out = []
        for item in found:
            event = item.event
            before, paid = last.get(event.lane, (None, 0))
            voucher = by_root.get(event.root)
            last[event.lane] = (voucher, event.paid)
            receipt = self._world.rpc.receipt(item.transaction)
            gas = 0 if receipt is None else receipt.gas_used
            out.append(
                Settled(
                    tx="0x" + item.transaction.hex(),
                    lane="0x" + event.lane.hex(),
                    gas_used=gas,
                    lanes_in_tx=in_tx[item.transaction],
                    output_delta=_delta(voucher, before, "output"),
                    accepted_delta=_delta(voucher, before, "accepted"),
                    due_drafter_delta=(event.paid & _LOW_128) - (paid & _LOW_128),
                    due_verifier_delta=(event.paid >> 128) - (paid >> 128),
                    root="0x" + event.root.hex(),
                    leaf_count=voucher.leaf_count if voucher else 0,
                )
            )
        return out

    def paid(self) -> dict[bytes, tuple[int, int]]:
        """By lane what the chain has paid: (to the drafter, to the verifier)."""
        return {
            item.event.lane: (item.event.paid & _LOW_128, item.event.paid >> 128)
            for item in self.of(LaneSettled)
        }

    def draws(self) -> dict[str, int]:
        drawn, opened = self.of(LaneDrawn), self.of(PositionOpened)
        return {
            "drawn": len(drawn),
            "opened": len(opened),
            "samples": sum(_samples(item.event) for item in drawn),
        }

    def tickets(self) -> dict[str, int]:
        """Drawn tokens that auditors were paid for: how many, their juries' words, and the fees in
        token units."""
        standing = fold_panel(self.read())
        named = [ticket for ticket in standing.tickets.values() if ticket.named]
        paid = [item.event for item in self.of(AuditorPaid)]
        words = [item.event.withheld for item in self.of(AnswerRevealed)]
        return {
            "entered": len(standing.tickets),
            "named": len(named),
            "cleared": sum(ticket.result == Result.CLEARED for ticket in named),
            "answers": len(words) - sum(words),
            "withheld": sum(words),
            "payments": len(paid),
            "fees": sum(event.fee for event in paid),
        }

    def tickets_open(self) -> list[str]:
        """What first-level audits have still to do: drawn lanes of which no token is named while
        there is time, audits that run, and auditors that are not paid."""
        contracts, events = self._world.contracts, self.read()
        standing, chain = fold_panel(events), fold(events)
        now = contracts.rpc.head().timestamp
        named = {(t.named.batch_id, t.named.index) for t in standing.tickets.values() if t.named}
        waiting = [
            f"draw {batch}/{index}"
            for batch, index in chain.draws
            if (batch, index) not in named and now <= chain.batches[batch].evidence_until
        ]
        for ticket in standing.tickets.values():
            jury = standing.juries[ticket.jury]
            if not ticket.ended:
                waiting.append(f"audit {ticket.id}: {ticket.stage.name.lower()}")
                continue
            waiting += [
                f"audit {ticket.id}: pay of {self._world.named(member)}"
                for member in jury.members
                if member not in ticket.paid and owed_to(contracts, ticket, jury, member)
            ]
        return waiting

    def bonds_back(self) -> dict[bytes, int]:
        """By account, bonds (and shares of others' lost ones) that went to its beneficiary."""
        back: dict[bytes, int] = {}
        for item in self.of(OtherEvent):
            if item.event.name == "BondPulled":
                account = bytes(item.event.arguments["account"])
                back[account] = back.get(account, 0) + int(item.event.arguments["amount"])
        return back

    def faults(self) -> list[dict[str, Any]]:
        return [
            {"guilty": self._world.named(item.event.guilty), "code": item.event.code}
            for item in self.of(FaultShown)
        ]


def _delta(voucher: Voucher | None, before: Voucher | None, name: str) -> int:
    if voucher is None:
        return 0
    return int(getattr(voucher, name)) - (int(getattr(before, name)) if before else 0)


def _samples(drawn: LaneDrawn) -> int:
    """How many positions a drawn lane must open: the beacon's terms in the draw."""
    terms = drawn.draw[-1]
    return int(terms[8])


def owed(journal: Path) -> dict[bytes, tuple[int, int]]:
    """By lane what the client's vouchers are worth: (to the drafter, to the verifier), each by the
    newest voucher that it could settle. The client may be running."""
    from node.journal import Journal

    held = Journal(journal, durability="normal")
    try:
        dues: dict[bytes, tuple[int, int]] = {}
        for row in held.vouchers():
            voucher = Voucher.from_wire(row.voucher)
            drafter, verifier = dues.get(row.lane, (0, 0))
            if row.client and row.verifier:
                verifier = max(verifier, voucher.due_verifier)
                if row.drafter:
                    drafter = max(drafter, voucher.due_drafter)
                dues[row.lane] = (drafter, verifier)
        return dues
    finally:
        held.close()


def vouchers_of(journal: Path) -> list[Voucher]:
    """Every voucher in a stopped node's journal."""
    from node.journal import Journal

    held = Journal(journal, durability="normal")
    try:
        return [Voucher.from_wire(row.voucher) for row in held.vouchers()]
    except RecordError:
        return []
    finally:
        held.close()


# ---------------------------------------------------------------- money


def accounts(world: World) -> dict[str, dict[str, Any]]:
    """Per operator: stake, what it can pull, and what its beneficiary has received."""
    out = {}
    token, escrow, vault = world.contracts.token, world.contracts.escrow, world.contracts.vault
    for operator in world.operators:
        stake = 0
        if operator.role in CHAIN_ROLE:
            stake = vault.stake_of(operator.address, CHAIN_ROLE[operator.role]).active
        out[operator.name] = {
            "address": "0x" + operator.address.hex(),
            "role": operator.role,
            "stake": str(stake),
            "payable": str(escrow.payable_to(operator.address, token.address)),
            "withdrawn": str(token.balance_of(operator.beneficiary)),
        }
    return out


def conservation(world: World) -> dict[str, Any]:
    """deposited = reserves + stakes + bonds + fees held + payable + withdrawn + burned, over the
    contracts' own books, and each contract's token balance against them."""
    contracts = world.contracts
    token = contracts.token
    deposited, reserves, fees, payable, withdrawn = contracts.escrow.view(
        "accounting", token.address
    )
    staked, active, unbonding, vesting, out, burned, destroyed = contracts.vault.view("accounting")
    courts = (
        contracts.court,
        contracts.exact_dispute,
        contracts.demands,
        contracts.session_demands,
        contracts.panel,
        contracts.audits,
    )
    bonds = contracts.ledger.view("bondsHeld")
    bonds += sum(sum(court.view("bonds")) for court in courts)
    terms = {
        # Bonds are counted while they are held: pulled ones leave both sides.
        "deposited": deposited + staked + bonds,
        "reserves": reserves,
        "stakes": active + unbonding,
        "bonds": bonds,
        "fees_held": fees,
        "payable": payable + vesting,
        "withdrawn": withdrawn + out,
        "burned": burned,
    }
    total = sum(terms.values()) - terms["deposited"]
    held = total - terms["withdrawn"] - destroyed
    balances = sum(
        token.balance_of(contract.address)
        for contract in (contracts.escrow, contracts.vault, contracts.ledger, *courts)
    )
    return {
        **{name: str(value) for name, value in terms.items()},
        "ok": terms["deposited"] == total and balances == held,
    }


def withdraw_all(world: World, operators: Iterable[Operator]) -> None:
    """Every payee pulls what it has earned to its beneficiary."""
    escrow, token = world.contracts.escrow, world.contracts.token
    for operator in operators:
        if escrow.payable_to(operator.address, token.address):
            call = escrow.withdraw(operator.address, token.address)
            world.sender(operator).send("devnet:withdraw", call, timeout=30.0)
