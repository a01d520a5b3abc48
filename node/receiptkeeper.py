"""Adds to a client's receipts the transactions that settled their vouchers.

A receipt is written when the text ends; its vouchers settle later. The keeper watches confirmed
settlements and writes each into every receipt of that lane and epoch which it pays in full.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import structlog

from settlement.chain.events import LaneSettled
from settlement.chain.indexer import ChainEvent
from settlement.durable import write_atomic
from settlement.records import Voucher
from settlement.schema import RecordError


def pays(event: LaneSettled, voucher: Voucher) -> bool:
    """Whether the lane's watermarks after this settlement cover the voucher."""
    return (
        event.lane == voucher.lane
        and event.epoch == voucher.epoch
        and event.paid_drafter >= voucher.due_drafter
        and event.paid_verifier >= voucher.due_verifier
    )


class ReceiptKeeper:
    """The receipts in one folder that still wait for a settlement."""

    def __init__(self, folder: Path, log: structlog.typing.FilteringBoundLogger) -> None:
        self._log = log
        self._waiting: dict[Path, dict[int, Voucher]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            self.watch(path)

    def watch(self, path: Path) -> None:
        """A receipt was written: its unsettled vouchers are waited for."""
        try:
            data = json.loads(path.read_text())
            vouchers = [Voucher.from_json(entry["voucher"]) for entry in data["vouchers"]]
            settled = {int(entry["voucher"]) for entry in data["transactions"]}
        except (OSError, ValueError, KeyError, TypeError, RecordError) as error:
            self._log.warning("not a receipt of this program", file=str(path), reason=str(error))
            return
        missing = {n: voucher for n, voucher in enumerate(vouchers) if n not in settled}
        if missing:
            self._waiting[path] = missing

    def on_event(self, found: ChainEvent) -> None:
        """A confirmed event; anything but a settlement is passed over. A receipt that was moved
        away or changed meanwhile is told and waited for no more: it is the client's file."""
        event = found.event
        if not isinstance(event, LaneSettled):
            return
        for path, missing in list(self._waiting.items()):
            paid = [number for number, voucher in missing.items() if pays(event, voucher)]
            if not paid:
                continue
            for number in paid:
                del missing[number]
            try:
                _add(path, found, paid)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                self._log.warning("receipt not completed", file=str(path), reason=repr(error))
                missing.clear()
            if not missing:
                del self._waiting[path]


def _add(path: Path, found: ChainEvent, numbers: list[int]) -> None:
    data: dict[str, Any] = json.loads(path.read_text())
    for number in numbers:
        data["transactions"].append(
            {
                "voucher": number,
                "transaction": "0x" + found.transaction.hex(),
                "block": found.block_number,
                "blockHash": "0x" + found.block_hash.hex(),
                "root": "0x" + found.event.root.hex(),
            }
        )
    write_atomic(path, json.dumps(data))
