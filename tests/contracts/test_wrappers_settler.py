"""The settler on a chain: what it plans is paid, and what the chain refuses does not stop it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deployment import TOKEN, Book, Parties, deploy_devnet, fresh_position, open_lane

from settlement.chain.anvil import Anvil
from settlement.chain.lanes import Position, SignedVoucher
from settlement.chain.send_journal import Mined
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
