"""`verdraft disputes`: what is in dispute on the chain, by when, and who does what next."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.commands import CommandError
from node.commands._console import (
    Console,
    add_json,
    address_argument,
    hex_of,
    show_amount,
    show_time,
)
from node.commands._wallet import add_chain_options, address_book_path
from node.commands._wallet import home as home_folder
from node.commands.ask import add_api
from node.keys import KeyFault, keystore_address

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from settlement.chain.contracts import Contracts
    from settlement.chain.disputes import Dispute
    from settlement.chain.indexer import ChainEvent


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "disputes",
        help="show draws, demands, cases, filings, panels and faults",
        description="Reads the deployment's events and shows every draw, demand, case, filing and "
        "panel that is open, and every fault that was judged: its state, deadline with the time "
        "left, bond, and what happens next. With --api also what that running node has found and "
        "will do. Needs no password.",
    )
    parser.add_argument(
        "--address", type=address_argument, help="whose part is marked (default: the keystore's)"
    )
    parser.add_argument("--mine", action="store_true", help="only what concerns that address")
    parser.add_argument("--closed", action="store_true", help="also what is over")
    add_api(parser)
    parser.add_argument(
        "--keystore",
        type=Path,
        default=home_folder() / "operator.json",
        help="keystore V3 file (default: %(default)s)",
    )
    parser.set_defaults(run=_run)
    add_chain_options(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> None:
    from settlement.chain.disputes import disputes
    from settlement.chain.panel_disputes import panel_disputes
    from settlement.chain.panel_standing import fold_panel
    from settlement.chain.standing import fold

    key = _key(args)
    if args.mine and key is None:
        raise CommandError(
            f"whose? {args.keystore} is not there: name an --address or a --keystore"
        )
    contracts, events = _read(args)
    standing = fold(events)
    head = contracts.rpc.head()
    mine = frozenset() if key is None else standing.keys_of(key)
    rows = [
        row
        for row in (
            *disputes(standing, key, head.timestamp, head.number),
            *panel_disputes(fold_panel(events), mine, head.timestamp),
        )
        if _is_wanted(args, row) and not _is_used(contracts, row)
    ]
    here = _ask(args.api) if args.api else None
    data = {
        "address": None if key is None else hex_of(key),
        "chain": {"id": contracts.chain_id, "block": head.number, "timestamp": head.timestamp},
        "disputes": [row.to_json() for row in rows],
        "node": here,
    }
    token = contracts.token
    decimals, symbol = token.decimals(), token.symbol()
    lines = [f"chain {contracts.chain_id}, block {head.number}"]
    for row in rows:
        lines += _lines(row, head.timestamp, head.number, decimals, symbol)
    if not rows:
        lines.append("nothing is in dispute" + (" that concerns this address" * args.mine))
    Console(args.json).result(data, lines + _node_lines(here, head.timestamp))


def _key(args: argparse.Namespace) -> bytes | None:
    if args.address is not None:
        return args.address
    if not args.keystore.exists():
        return None
    try:
        return keystore_address(args.keystore)
    except KeyFault as error:
        raise CommandError(f"{error}; or name an --address") from error


def _read(args: argparse.Namespace) -> tuple[Contracts, list[ChainEvent]]:
    """The deployment and its events, read from its first block."""
    from settlement.chain import deploy
    from settlement.chain.indexer import Batch, Indexer, IndexStore
    from settlement.chain.rpc import Rpc

    chain_id = Rpc.connect(args.rpc_url).chain_id
    contracts, book = deploy.connect(args.rpc_url, address_book_path(args, chain_id))
    events: list[ChainEvent] = []

    def take(batch: Batch) -> None:
        if batch.rolled_back_to is not None:
            events[:] = [e for e in events if e.block_number <= batch.rolled_back_to]
        events.extend(batch.events)

    with tempfile.TemporaryDirectory() as folder, IndexStore(Path(folder) / "index") as store:
        Indexer(
            contracts.rpc,
            contracts.followed(),
            store,
            start=book.first_block,
            confirmations=args.confirmations,
        ).catch_up(take)
    return contracts, events


def _is_wanted(args: argparse.Namespace, row: Dispute) -> bool:
    if args.mine and not row.part:
        return False
    return row.open or row.kind == "fault" or args.closed


def _is_used(contracts: Contracts, row: Dispute) -> bool:
    """A filing that a proof has used up: events do not tell which, the court does."""
    if row.kind != "filing" or not row.open:
        return False
    commitment = bytes.fromhex(row.id[2:])
    courts = (contracts.court, contracts.exact_dispute)
    return all(court.filing_of(row.by, commitment).bond == 0 for court in courts)


def _lines(row: Dispute, now: int, block: int, decimals: int, symbol: str) -> list[str]:
    title = f"{row.kind} {row.id if len(row.id) < 60 else row.id[:14] + '…'}: {row.state}"
    lines = ["", title + (f"  ({_PARTS[row.part]})" if row.part else "")]
    if row.accused:
        lines.append(f"  accused   {hex_of(row.accused)}")
    if row.by:
        lines.append(f"  by        {hex_of(row.by)}")
    if row.until is not None:
        lines.append(f"  deadline  {show_time(row.until, now)}")
    if row.until_block is not None:
        left = row.until_block - block
        lines.append(
            f"  deadline  block {row.until_block} "
            + (f"({left} blocks left)" if left > 0 else "(passed)")
        )
    if row.bond:
        lines.append(f"  bond      {show_amount(row.bond, decimals, symbol)}")
    lines.append(f"  next      {row.next}")
    return lines


_PARTS = {
    "accused": "against this address",
    "by": "by this address",
    "juror": "this address sits on its jury",
}


def _ask(api: str) -> dict[str, Any]:
    import httpx

    try:
        answer = httpx.get(f"{api.rstrip('/')}/v1/disputes", timeout=10.0).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"the node at {api} does not answer: {error}") from error
    found: dict[str, Any] = answer.json()
    return found


def _node_lines(here: dict[str, Any] | None, now: int) -> list[str]:
    """What the running node says of itself."""
    if not here:
        return []
    lines = ["", "this node"]
    for found in here["challenges"]:
        lines.append(
            f"  challenge {found['fault']} (code {found['code']}, round {found['round']}) of "
            f"{found['guilty']}: {found['step']}"
        )
    for due in here["due"]:
        until = "" if due["until"] is None else f", by {show_time(due['until'], now)}"
        lines.append(f"  due       {due['action']} {due['about']}{until}")
    for lack in here["lacking"]:
        lines.append(f"  LACKING   {lack['action']} {lack['about']}: {lack['reason']}")
    return lines if len(lines) > 2 else [*lines, "  nothing to do"]
