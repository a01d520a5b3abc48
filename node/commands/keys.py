"""`verdraft keys new|show|rotate|accept`: the operator key, and another in its place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from node.commands import CommandError
from node.commands._console import Console, add_json, address_argument, hex_of
from node.commands._wallet import add_key_options, add_options, open_key, open_wallet, password
from node.keys import OperatorKey, write_keystore
from settlement.hashing import ZERO_ADDRESS

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    family = subparsers.add_parser(
        "keys",
        help="make or show the operator key",
        description="One secp256k1 key signs a node's records, pays its gas and is its libp2p "
        "identity. It lies in a Web3 keystore V3 file, under a password.",
    )
    actions = family.add_subparsers(title="actions", metavar="ACTION", required=True)
    new = actions.add_parser(
        "new",
        help="make a key in a new keystore file",
        description="Never overwrites a file. Keep the keystore and its password apart from each "
        "other: whoever has both can sign faults that cost the stake.",
        epilog="example: verdraft keys new --keystore keys/verifier.json",
    )
    new.set_defaults(run=_new)
    show = actions.add_parser(
        "show",
        help="show the address and the peer id of a key",
        description="The peer id is what others write at the end of this node's address.",
    )
    show.set_defaults(run=_show)
    for parser in (new, show):
        add_key_options(parser)
        add_json(parser)
    rotate = actions.add_parser(
        "rotate",
        help="name another key for this account",
        description="The other key takes over with `verdraft keys accept`, under its own keystore. "
        "The account goes on answering for what this one has signed, so keep its journal: evidence "
        "of it can still be asked for.",
    )
    rotate.add_argument("key", type=address_argument, metavar="ADDRESS", help="of the new key")
    rotate.set_defaults(run=_rotate)
    accept = actions.add_parser(
        "accept",
        help="take over an account that another key has named this one for",
        description="From then on this key signs and acts for the account, and the one before "
        "does no more. A key answers for one account only.",
    )
    accept.add_argument("account", type=address_argument, metavar="ADDRESS", help="the account")
    accept.set_defaults(run=_accept)
    for parser in (rotate, accept):
        add_options(parser)


def _new(args: argparse.Namespace) -> None:
    key = OperatorKey.generate()
    write_keystore(args.keystore, key, password(args, confirm=True))
    _print(args, key, "made")


def _show(args: argparse.Namespace) -> None:
    _print(args, open_key(args), "key")


def _print(args: argparse.Namespace, key: OperatorKey, what: str) -> None:
    Console(args.json).result(
        {
            "address": hex_of(key.address),
            "peerId": key.peer_id,
            "keystore": str(args.keystore),
        },
        [
            f"{what:8} {args.keystore}",
            f"address  {hex_of(key.address)}",
            f"peer id  {key.peer_id}",
        ],
    )


def _rotate(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault, account = wallet.contracts.vault, wallet.require_account()
        taken = vault.account_of(args.key)
        if taken != ZERO_ADDRESS:
            raise CommandError(
                f"{hex_of(args.key)} is or was a key of account {hex_of(taken)}: make a new one "
                "with `verdraft keys new`"
            )
        mined = wallet.send("rotate", vault.propose_key(account, args.key))
        wallet.console.result(
            {
                "account": hex_of(account),
                "proposed": hex_of(args.key),
                "transaction": hex_of(mined.hash),
            },
            [
                f"{hex_of(args.key)} may take over account {hex_of(account)}",
                f"then, with its keystore: verdraft keys accept {hex_of(account)}",
            ],
        )


def _accept(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault = wallet.contracts.vault
        before = vault.operator_of(args.account)
        if before == ZERO_ADDRESS:
            raise CommandError(f"there is no account {hex_of(args.account)} here")
        mined = wallet.send("accept", vault.accept_key(args.account))
        wallet.console.result(
            {
                "account": hex_of(args.account),
                "key": hex_of(wallet.address),
                "before": hex_of(before),
                "transaction": hex_of(mined.hash),
            },
            [f"{hex_of(wallet.address)} acts for account {hex_of(args.account)} now"],
        )
