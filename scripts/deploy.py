#!/usr/bin/env python3
"""Deploy the contracts to any EVM chain, or finish a deployment that was interrupted.

    python scripts/deploy.py --rpc-url http://127.0.0.1:8545 --keystore deployer.json \\
        --password-file deployer.pass --profile devnet

Run twice it does nothing the second time. `--profile production` takes an existing token with
`--token` and ends with OpenZeppelin's timelock as the owner.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# Run as a file, this folder comes first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.cli import is_expected
from node.commands import CommandError
from node.commands._console import Console, address_argument, hex_of
from node.commands._wallet import add_options, address_book_path, open_key
from settlement.chain.address_book import AddressBook
from settlement.chain.deploy import deploy
from settlement.chain.fees import GWEI, FeePolicy
from settlement.chain.parameters import PROFILES
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import SqliteSendJournal, send_journal_path
from settlement.chain.sender import Sender


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--profile",
        choices=sorted(PROFILES),
        required=True,
        help="devnet: windows of minutes and a token of its own; production: the protocol's values",
    )
    parser.add_argument("--token", type=address_argument, help="an ERC-20 to stake and pay in")
    parser.add_argument("--guardian", type=address_argument, help="who may pause (default: you)")
    parser.add_argument(
        "--governor",
        type=address_argument,
        help="who proposes to the timelock from then on (production; default: you)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="deploy a new set and write over the address book"
    )
    add_options(parser)
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    parameters = PROFILES[args.profile]
    if parameters.timelock_delay and args.token is None:
        raise CommandError(
            "production stakes in a token that exists: name it with --token (DevToken can be "
            "minted at will)"
        )
    console = Console(args.json)
    rpc = Rpc.connect(args.rpc_url)
    book_path = address_book_path(args, rpc.chain_id)
    key = open_key(args)
    with SqliteSendJournal(send_journal_path(args.keystore, key.address, rpc.chain_id)) as journal:
        fees = FeePolicy(cap=int(args.max_fee_gwei * GWEI))
        sender = Sender(rpc, key.secret, journal, fees=fees)
        sender.tend()
        deploy(
            sender,
            rpc,
            book_path,
            parameters,
            token=args.token,
            guardian=args.guardian,
            governor=args.governor,
            fresh=args.fresh,
            progress=console.progress,
        )
    addresses = AddressBook.read(book_path).addresses
    console.result(
        {
            "chain": rpc.chain_id,
            "addressBook": str(book_path),
            "profile": parameters.name,
            "contracts": {name: hex_of(address) for name, address in addresses.items()},
        },
        [f"{name:<20} {hex_of(address)}" for name, address in addresses.items()],
    )


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    try:
        run(args)
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
