"""`verdraft status`: what an account has where. Needs no password."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from node.commands._console import (
    Console,
    add_json,
    address_argument,
    hex_of,
    show_amount,
    show_time,
)
from node.commands._wallet import (
    ROLES,
    add_chain_options,
    add_key_options,
    connect,
    role_named,
)
from node.keys import keystore_address
from settlement.hashing import ZERO_ADDRESS

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from settlement.chain.contracts import Contracts


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "status",
        help="show balances, stakes, payouts, open sends",
        description="What an account has where: coin for gas, tokens, what is payable, stakes with "
        "what is locked and unbonding, and transactions that are still watched. Needs no password.",
    )
    parser.add_argument(
        "--address",
        type=address_argument,
        metavar="ADDRESS",
        help="whose account (default: the keystore's)",
    )
    parser.set_defaults(run=_status)
    add_chain_options(parser)
    add_key_options(parser)
    add_json(parser)


def _status(args: argparse.Namespace) -> None:
    address = args.address or keystore_address(args.keystore)
    contracts = connect(args)
    head = contracts.rpc.head()
    token = contracts.token
    decimals, symbol = token.decimals(), token.symbol()
    account = contracts.vault.account_of(address)
    earner = address if account == ZERO_ADDRESS else account
    data: dict[str, Any] = {
        "address": hex_of(address),
        "chain": {"id": contracts.chain_id, "block": head.number, "timestamp": head.timestamp},
        "coin": str(contracts.rpc.balance(address)),
        "token": str(token.balance_of(address)),
        "payable": str(contracts.escrow.payable_to(earner, token.address)),
        "account": None if account == ZERO_ADDRESS else hex_of(account),
        "beneficiary": hex_of(contracts.vault.payout_to(address)),
        "stakes": _stakes(contracts, address),
        "pausedUntil": max(contracts.vault.paused_until(), contracts.escrow.paused_until()),
        "openTransactions": _open_transactions(args, address, contracts.chain_id),
    }

    def show(units: str) -> str:
        return show_amount(int(units), decimals, symbol)

    lines = [
        f"address   {data['address']}",
        f"chain     {contracts.chain_id}, block {head.number}",
        f"coin      {show_amount(int(data['coin']), 18, 'ETH')}",
        f"token     {show(data['token'])}",
        f"payable   {show(data['payable'])} to {data['beneficiary']}",
    ]
    for role, stake in data["stakes"].items():
        lines.append(
            f"{role:<9} {show(stake['active'])} serve, {show(stake['locked'])} locked, "
            f"{show(stake['unbonding'])} unbonding"
        )
        lines += [
            f"          {show(leaving['amount'])} from "
            f"{show_time(leaving['matureAt'], head.timestamp)}"
            for leaving in stake["exits"]
        ]
    if not data["stakes"]:
        lines.append("stake     none")
    if data["pausedUntil"] > head.timestamp:
        lines.append(f"paused    until {show_time(data['pausedUntil'], head.timestamp)}")
    lines += [
        f"open      {sent['intent']} (nonce {sent['nonce']})" for sent in data["openTransactions"]
    ]
    Console(args.json).result(data, lines)


def _stakes(contracts: Contracts, address: bytes) -> dict[str, Any]:
    stakes = {}
    for name in ROLES:
        role = role_named(name)
        stake = contracts.vault.stake_of(address, role)
        if not (stake.active or stake.unbonding or stake.locked):
            continue
        stakes[name] = {
            "active": str(stake.active),
            "unbonding": str(stake.unbonding),
            "locked": str(stake.locked),
            "exits": [
                {"amount": str(leaving.amount), "matureAt": leaving.mature_at}
                for leaving in contracts.vault.exits_of(address, role)
            ],
        }
    return stakes


def _open_transactions(
    args: argparse.Namespace, address: bytes, chain_id: int
) -> list[dict[str, Any]]:
    from settlement.chain.send_journal import SqliteSendJournal, send_journal_path

    path = send_journal_path(args.keystore, address, chain_id)
    if not path.exists():
        return []
    with SqliteSendJournal(path) as journal:
        return [
            {"intent": sent.intent, "nonce": sent.nonce, "transaction": hex_of(sent.newest.hash)}
            for sent in journal.open()
        ]
