"""The settler on a chain: what it plans is paid, and what the chain refuses does not stop it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from deployment import TOKEN, Book, Parties, deploy_devnet, fresh_position, open_lane

from node.chainwatch import ChainWatch
from node.config import ChainConfig
from node.network import messages
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Role
from settlement.chain.lanes import Position, SignedVoucher
from settlement.chain.send_journal import Mined
from settlement.payments import LOCK_FACTOR
from settlement.settler import OpenLane, SettleFailed, SettlePolicy, Settler


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    folder = tmp_path_factory.mktemp("settler")
    with Anvil() as anvil:
        yield open_lane(deploy_devnet(anvil, folder), folder)


def as_open(
    parties: Parties, signed: SignedVoucher, position: Position, signed_at: float = 0.0
) -> OpenLane:
    state = parties.contracts.escrow.lane_state(parties.lane.id)
    return OpenLane(signed, position, state, signed_at, parties.verifier.address)


def settle(settler: Settler, lane: OpenLane) -> Mined | SettleFailed:
    """The one settlement that is due, carried out."""
    (due,) = settler.due([lane], now=0.0)
    return settler.settle(due)


def test_the_plan_is_carried_out_and_stale_positions_are_named(
    parties: Parties, tmp_path: Path
) -> None:
    contracts, lane = parties.contracts, parties.lane
    settler = Settler(contracts, parties.verifier, SettlePolicy())
    book, start = Book(lane), fresh_position(contracts)
    book.serve("a", output=64)
    signed = book.sign(contracts)
    opened = as_open(parties, signed, start)
    done = settle(settler, opened)
    assert isinstance(done, Mined)
    assert contracts.escrow.payable_to(parties.verifier.address, lane.token) == 64 * TOKEN // 50

    # The same transition again is the first one: nothing is sent.
    sent = contracts.rpc.transaction_count(parties.verifier.address)
    again = settle(settler, opened)
    assert again == done
    assert contracts.rpc.transaction_count(parties.verifier.address) == sent

    # A further voucher from a position that has passed is refused by name, before it costs gas.
    book.serve("b", output=64)
    stale = as_open(parties, book.sign(contracts), start)
    failed = settle(settler, stale)
    assert isinstance(failed, SettleFailed)
    assert failed.reason == "PositionStale"
    unsigned = replace(stale.signed, client=bytes(64) + b"\x1b")
    here = replace(
        start,
        head_root=signed.voucher.root,
        leaves=1,
        paid_drafter=signed.voucher.due_drafter,
        paid_verifier=signed.voucher.due_verifier,
        counted=signed.voucher.sums,
    )
    assert here.digest == contracts.escrow.lane_state(lane.id).position
    failed = settle(settler, as_open(parties, unsigned, here))
    assert isinstance(failed, SettleFailed)
    assert failed.reason == "ClientSignatureBad"
    assert contracts.rpc.transaction_count(parties.verifier.address) == sent
    done = settle(settler, as_open(parties, stale.signed, here))
    assert isinstance(done, Mined)


async def test_a_node_knows_what_an_operator_can_still_be_paid(
    parties: Parties, tmp_path: Path
) -> None:
    """What a client asks before it orders is what the escrow would pay at most: so many payments as
    the stake that no earlier one has locked stands behind."""
    contracts, lane = parties.contracts, parties.lane
    config = ChainConfig(contracts.rpc.url, tmp_path / "book.json")
    watch = ChainWatch(contracts, config, tmp_path, 0, structlog.get_logger())
    position = fresh_position(contracts, 1)
    parties.client.send("epoch", contracts.escrow.open_epoch(lane))
    state = contracts.vault.stake_of(lane.verifier, Role.VERIFIER)
    before = await watch.cover(lane.verifier, messages.Role.VERIFIER, lane.token)
    assert before == (state.active - state.locked) // LOCK_FACTOR
    book = Book(lane, epoch=1)
    book.serve("c", output=50)
    settler = Settler(contracts, parties.verifier, SettlePolicy())
    assert isinstance(settle(settler, as_open(parties, book.sign(contracts), position)), Mined)
    after = await watch.cover(lane.verifier, messages.Role.VERIFIER, lane.token)
    # V's stake answers for what D is paid too.
    assert after == before - 50 * TOKEN // 50 - 24 * TOKEN // 100
    # Not of that role, of nobody, in no such token.
    assert await watch.cover(lane.verifier, messages.Role.AUDITOR, lane.token) == 0
    assert await watch.cover(b"\x99" * 20, messages.Role.VERIFIER, lane.token) == 0
    assert await watch.cover(lane.verifier, messages.Role.VERIFIER, b"\x98" * 20) == 0
