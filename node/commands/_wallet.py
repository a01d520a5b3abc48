"""What every command that touches the chain shares: its options, the key, the one sender."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from node.commands._console import Console, add_json
from node.keys import (
    OperatorKey,
    keystore_address,
    password_from_descriptor,
    password_from_file,
    password_from_prompt,
    read_keystore,
)

if TYPE_CHECKING:
    from settlement.chain.contracts import Contracts
    from settlement.chain.send_journal import Call, Mined
    from settlement.chain.sender import Sender

DEFAULT_RPC = "http://127.0.0.1:8545"
_PROGRESS_SECONDS = 2.0


def home() -> Path:
    """Where keys, address books and journals lie unless an option says otherwise."""
    return Path(os.environ.get("VERDRAFT_HOME") or Path.home() / ".verdraft")


def add_key_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keystore",
        type=Path,
        default=home() / "operator.json",
        help="keystore V3 file (default: %(default)s)",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--password-file", type=Path, help="file of mode 0600 whose first line is the password"
    )
    source.add_argument(
        "--password-fd", type=int, help="open file descriptor to read the password from"
    )


def add_chain_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rpc-url", default=DEFAULT_RPC, help="JSON-RPC endpoint (default: %(default)s)"
    )
    parser.add_argument(
        "--address-book",
        type=Path,
        help="address book of the deployment (default: addresses-CHAIN.json in ~/.verdraft)",
    )
    parser.add_argument(
        "--max-fee-gwei", type=float, default=300.0, help="most paid per gas (default: %(default)g)"
    )
    parser.add_argument(
        "--confirmations", type=int, default=1, help="blocks to wait for (default: %(default)d)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        help="seconds to wait for them (default: %(default)g)",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Chain, key and output options, under one heading at the end of the help."""
    add_chain_options(parser)
    add_key_options(parser)
    add_json(parser)


def password(args: argparse.Namespace, *, confirm: bool = False) -> bytes:
    """The password from where the options say, else from the prompt."""
    if args.password_file is not None:
        return password_from_file(args.password_file)
    if args.password_fd is not None:
        return password_from_descriptor(args.password_fd)
    return password_from_prompt(confirm=confirm)


def open_key(args: argparse.Namespace) -> OperatorKey:
    keystore_address(args.keystore)  # a missing or broken file is told before a password is asked
    return read_keystore(args.keystore, password(args))


def address_book_path(args: argparse.Namespace, chain_id: int) -> Path:
    return args.address_book or home() / f"addresses-{chain_id}.json"


def send_journal_path(keystore: Path, address: bytes, chain_id: int) -> Path:
    """Beside the keystore, so that every program that has the key finds the one journal."""
    return keystore.parent / f"sends-{address.hex()}-{chain_id}.sqlite"


def connect(args: argparse.Namespace) -> Contracts:
    """The deployment the options name, checked to be there."""
    from settlement.chain import deploy
    from settlement.chain.rpc import Rpc

    chain_id = Rpc.connect(args.rpc_url).chain_id
    contracts, _book = deploy.connect(args.rpc_url, address_book_path(args, chain_id))
    return contracts


@dataclass
class Wallet:
    """A key on a chain: the deployment, the sender, and what the stake token is called."""

    contracts: Contracts
    sender: Sender
    console: Console
    confirmations: int
    timeout: float

    @property
    def address(self) -> bytes:
        return self.sender.address

    @cached_property
    def decimals(self) -> int:
        return self.contracts.token.decimals()

    @cached_property
    def symbol(self) -> str:
        return self.contracts.token.symbol()

    def send(self, what: str, call: Call) -> Mined:
        """One transaction, with word of how it goes. Each command run is an intent of its own:
        staking twice is two stakes."""
        from settlement.chain.sender import NotMined

        intent = f"cli:{call.where}:{secrets.token_hex(8)}"
        transaction = self.sender.submit(intent, call)
        self.console.progress(f"{what}: sent 0x{transaction.hex()}")
        start = time.monotonic()
        while True:
            try:
                mined = self.sender.wait(
                    intent, confirmations=self.confirmations, timeout=_PROGRESS_SECONDS
                )
            except NotMined:
                waited = time.monotonic() - start
                if waited >= self.timeout:
                    raise
                head = self.contracts.rpc.head().number
                self.console.progress(f"{what}: waiting for a block, {waited:.0f} s, now at {head}")
                continue
            self.console.progress(f"{what}: in block {mined.block_number}")
            return mined

    def allow(self, spender: bytes, amount: int) -> None:
        """Let a contract take `amount` of the stake token from this account, and no more."""
        token = self.contracts.token
        if token.allowance(self.address, spender) < amount:
            self.send("approve", token.approve(spender, amount))


@contextlib.contextmanager
def open_wallet(args: argparse.Namespace) -> Iterator[Wallet]:
    """Unlock the key and tie it to the deployment. Transactions that earlier runs left open are
    taken up on the way."""
    from settlement.chain.fees import GWEI, FeePolicy
    from settlement.chain.send_journal import SqliteSendJournal
    from settlement.chain.sender import Sender

    contracts = connect(args)
    key = open_key(args)
    path = send_journal_path(args.keystore, key.address, contracts.chain_id)
    with SqliteSendJournal(path) as journal:
        sender = Sender(
            contracts.rpc,
            key.secret,
            journal,
            errors=contracts.errors,
            fees=FeePolicy(cap=int(args.max_fee_gwei * GWEI)),
        )
        sender.tend()
        yield Wallet(contracts, sender, Console(args.json), args.confirmations, args.timeout)
