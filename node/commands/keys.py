"""`verdraft keys new|show`: the operator key and its two names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from node.commands._console import Console, add_json, hex_of
from node.commands._wallet import add_key_options, open_key, password
from node.keys import OperatorKey, write_keystore

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
