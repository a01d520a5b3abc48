"""Receipts learn by which transaction their vouchers were settled, once, over restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from node.receiptkeeper import ReceiptKeeper
from settlement.chain.events import LaneSettled
from settlement.chain.indexer import ChainEvent
from settlement.records import Voucher

VOUCHER = Voucher(b"l" * 32, 2, 10, 4, 40, 100, bytes(32), b"r" * 32, 3, (0,) * 8)


def receipt(folder: Path, name: str = "a.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    data = {"vouchers": [{"voucher": VOUCHER.to_json()}], "transactions": []}
    path.write_text(json.dumps(data))
    return path


def settled(drafter: int, verifier: int, epoch: int = 2, lane: bytes = b"l" * 32) -> ChainEvent:
    event = LaneSettled(lane, b"r" * 32, epoch << 192, drafter | verifier << 128)
    return ChainEvent(event, "LaneEscrow", 7, b"h" * 32, b"t" * 32, 0)


def transactions(path: Path) -> list:
    return json.loads(path.read_text())["transactions"]


def test_a_settlement_that_pays_in_full_is_written_once(tmp_path: Path) -> None:
    path = receipt(tmp_path)
    keeper = ReceiptKeeper(tmp_path, structlog.get_logger())
    for short in (settled(39, 100), settled(40, 99), settled(40, 100, epoch=1)):
        keeper.on_event(short)
    keeper.on_event(settled(40, 100, lane=b"m" * 32))
    assert transactions(path) == []
    keeper.on_event(settled(41, 100))
    keeper.on_event(settled(50, 200))
    (only,) = transactions(path)
    assert only["transaction"] == "0x" + (b"t" * 32).hex()
    assert only["voucher"] == 0
    again = ReceiptKeeper(tmp_path, structlog.get_logger())
    again.on_event(settled(60, 300))
    assert len(transactions(path)) == 1


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    path = receipt(tmp_path)
    keeper = ReceiptKeeper(tmp_path, structlog.get_logger())
    keeper.on_event(settled(40, 100))
    assert (tmp_path / "x.json").read_text() == "[]"
    assert len(transactions(path)) == 1


@pytest.mark.parametrize("left", [None, "[]", "{", '{"transactions": {}}'])
def test_a_receipt_that_its_owner_has_moved_or_changed_stops_nobody(
    tmp_path: Path, left: str | None
) -> None:
    """The listener runs in the daemon: what it raised would end the node."""
    path, other = receipt(tmp_path), receipt(tmp_path, "b.json")
    keeper = ReceiptKeeper(tmp_path, structlog.get_logger())
    path.unlink()
    if left is not None:
        path.write_text(left)
    keeper.on_event(settled(40, 100))
    assert len(transactions(other)) == 1
    assert left is None or path.read_text() == left
