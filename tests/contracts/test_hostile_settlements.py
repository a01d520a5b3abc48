"""A `settle` call that others have made is read for one's own lane, whatever stands beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from counter_contract import Counter
from deployment import VERIFIER, make_sender

from node.settling import SettlingDesk
from settlement.chain.abi import Interface
from settlement.chain.anvil import Anvil
from settlement.chain.calls import calls_to
from settlement.chain.compile import compile_contracts
from settlement.chain.lanes import vouchers_in
from settlement.chain.rpc import Rpc, Transaction
from settlement.chain.send_journal import Call
from settlement.hashing import ZERO32

pytestmark = pytest.mark.slow


def lane(
    client: bytes, sums0: int = 10 | 5 << 64, leaves: int = 4, link: int = 0
) -> tuple[Any, ...]:
    """ILaneEscrow.LaneVoucher, in the ABI's order."""
    position = (ZERO32, ZERO32, 0, 0, [0] * 9)
    top = b"\x01" * 32
    return (client, position, 0, [sums0] + [0] * 8, top, leaves, link, *(ZERO32,) * 5, b"")


@pytest.mark.parametrize("fields", [{"sums0": 1 << 63}, {"sums0": 1 << 200}, {"link": 7}])
def test_what_nobody_could_sign_hides_no_other_lane(fields: dict[str, int]) -> None:
    escrow = Interface("LaneEscrow", compile_contracts()["LaneEscrow"].abi)
    mine, theirs = b"\x03" * 20, b"\x09" * 20
    for lanes in ([lane(mine), lane(theirs, **fields)], [lane(theirs, **fields), lane(mine)]):
        groups = [(b"\x01" * 20, b"\x02" * 20, ZERO32, lanes)]
        found = vouchers_in(escrow, escrow.encode("settle", b"\x07" * 20, groups))
        assert [where.client for where, _ in found] == [mine]


def test_a_contract_that_asks_the_escrow_for_more_hides_no_settlement() -> None:
    escrow = Interface("LaneEscrow", compile_contracts()["LaneEscrow"].abi)
    groups = [(b"\x01" * 20, b"\x02" * 20, ZERO32, [lane(b"\x03" * 20)])]
    settle = escrow.encode("settle", b"\x07" * 20, groups)
    address = b"\x08" * 20
    inner = [
        {"to": "0x" + address.hex(), "input": "0x" + data.hex()}
        for data in (escrow.encode("laneState", ZERO32), settle, b"")
    ]
    rpc = SimpleNamespace(
        transaction=lambda _hash: Transaction(b"\x09" * 20, b""),
        request=lambda *_: {"to": "0x" + "09" * 20, "input": "0x", "calls": inner},
    )
    desk: Any = SettlingDesk.__new__(SettlingDesk)
    desk._contracts = SimpleNamespace(
        rpc=rpc, escrow=SimpleNamespace(address=address, interface=escrow)
    )
    found = desk._settled_in(SimpleNamespace(transaction=ZERO32))
    assert [where.client for where, _ in found] == [b"\x03" * 20]


def test_calls_made_through_a_contract_are_found(tmp_path: Path) -> None:
    with Anvil() as chain:
        rpc = Rpc.connect(chain.url)
        sender = make_sender(rpc, VERIFIER, tmp_path / "sends.sqlite")
        counter = sender.send("counter", Counter.creation()).contract
        assert counter is not None
        # Passes what it is called with on to the counter, twice; reverts if that does.
        body = bytes.fromhex("366000600037")
        for _ in range(2):
            body += bytes.fromhex("60006000366000600073") + counter + bytes.fromhex("5af1")
            body += bytes([0x60, len(body) + 8]) + bytes.fromhex("5760006000fd5b")
        code = b"\x60" + bytes([len(body)]) + bytes.fromhex("80600b6000396000f3") + body
        relay = sender.send("relay", Call(None, code, where="relay")).contract
        assert relay is not None
        data = Counter(rpc, counter).hit("one").data
        through = sender.send("through", Call(relay, data, where="relay"))
        straight = sender.send("straight", Call(counter, data, where="Counter.hit"))
        assert calls_to(rpc, through.hash, counter) == [data, data]
        assert calls_to(rpc, straight.hash, counter) == [data]
        assert calls_to(rpc, through.hash, b"\x09" * 20) == []
        assert calls_to(rpc, bytes(32), counter) == []
