"""What every command that touches the chain shares: its options, the key, the one sender."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from node.commands import CommandError
from node.commands._console import (
    Console,
    add_json,
    address_argument,
    count_argument,
    hash_argument,
    hex_of,
    positive_argument,
    show_amount,
    show_time,
)
from node.keys import (
    OperatorKey,
    keystore_address,
    password_from_descriptor,
    password_from_file,
    password_from_prompt,
    read_keystore,
)
from settlement.hashing import ZERO32, ZERO_ADDRESS
from settlement.records import Lane

if TYPE_CHECKING:
    from settlement.chain.address_book import AddressBook
    from settlement.chain.contracts import Contract, Contracts, Role
    from settlement.chain.indexer import ChainEvent
    from settlement.chain.send_journal import Call, Mined
    from settlement.chain.sender import Sender

DEFAULT_RPC = "http://127.0.0.1:8545"
ROLES = ("drafter", "verifier", "auditor")
_PROGRESS_SECONDS = 2.0


def home() -> Path:
    """Where keys, address books and journals lie unless an option says otherwise."""
    return Path(os.environ.get("VERDRAFT_HOME") or Path.home() / ".verdraft")


def add_key_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("key")
    group.add_argument(
        "--keystore",
        type=Path,
        default=home() / "operator.json",
        metavar="FILE",
        help="keystore V3 file (default: operator.json in $VERDRAFT_HOME, else in ~/.verdraft)",
    )
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="mode 0600; its first line is the password (default: ask at the terminal)",
    )
    source.add_argument(
        "--password-fd",
        type=int,
        metavar="N",
        help="open file descriptor to read the password from",
    )


def add_chain_options(parser: argparse.ArgumentParser) -> None:
    """To read a deployment."""
    _add_chain_options(parser, sends=False)


def _add_chain_options(parser: argparse.ArgumentParser, *, sends: bool) -> None:
    group = parser.add_argument_group("chain")
    group.add_argument(
        "--rpc-url", default=DEFAULT_RPC, metavar="URL", help="JSON-RPC (default: %(default)s)"
    )
    group.add_argument(
        "--address-book",
        type=Path,
        metavar="FILE",
        help="addresses of the deployment (default: addresses-CHAIN.json in $VERDRAFT_HOME, else "
        "in ~/.verdraft)",
    )
    group.add_argument(
        "--confirmations",
        type=count_argument,
        default=1,
        metavar="N",
        help="blocks that count, the newest being one (default: %(default)d)",
    )
    if not sends:
        return
    group.add_argument(
        "--max-fee-gwei",
        type=positive_argument,
        default=300.0,
        metavar="GWEI",
        help="most paid per gas (default: %(default)g)",
    )
    group.add_argument(
        "--timeout",
        type=positive_argument,
        default=300.0,
        metavar="SECONDS",
        help="patience for the confirmations; a later run goes on waiting (default: %(default)g)",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Chain, key and output options, for a command that sends a transaction."""
    _add_chain_options(parser, sends=True)
    add_key_options(parser)
    add_json(parser)


def add_role(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", choices=ROLES, required=True, help="what the stake answers for")


def role_named(name: str) -> Role:
    from settlement.chain.contracts import Role

    return Role[name.upper()]


def add_lane(parser: argparse.ArgumentParser) -> None:
    """The parties of one lane."""
    parser.add_argument("--drafter", type=address_argument, required=True, metavar="ADDRESS")
    parser.add_argument("--verifier", type=address_argument, required=True, metavar="ADDRESS")
    parser.add_argument(
        "--claim",
        type=hash_argument,
        default=ZERO32,
        metavar="ID",
        help="the drafter's claim of acceptance rates that the lane counts for (default: none)",
    )
    parser.add_argument(
        "--client", type=address_argument, metavar="ADDRESS", help="default: this key's address"
    )


def lane_named(args: argparse.Namespace, contracts: Contracts, client: bytes) -> Lane:
    """The lane of a client with the parties that the options name, in the stake token."""
    return Lane(client, args.drafter, args.verifier, contracts.token.address, args.claim)


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


def deployment(args: argparse.Namespace) -> tuple[Contracts, AddressBook]:
    """The deployment that the options name, checked to be there, and its address book."""
    from settlement.chain import deploy
    from settlement.chain.rpc import Rpc

    chain_id = Rpc.connect(args.rpc_url).chain_id
    return deploy.connect(args.rpc_url, address_book_path(args, chain_id))


def connect(args: argparse.Namespace) -> Contracts:
    """The contracts of `deployment`."""
    return deployment(args)[0]


def events_of(of: Sequence[Contract], first_block: int, confirmations: int = 1) -> list[ChainEvent]:
    """All events of contracts on one chain so far, in chain order."""
    from settlement.chain.indexer import Batch, Indexer, IndexStore

    events: list[ChainEvent] = []

    def take(batch: Batch) -> None:
        if batch.rolled_back_to is not None:
            events[:] = [e for e in events if e.block_number <= batch.rolled_back_to]
        events.extend(batch.events)

    with tempfile.TemporaryDirectory() as folder, IndexStore(Path(folder) / "index") as store:
        Indexer(of[0].rpc, of, store, start=first_block, confirmations=confirmations).catch_up(take)
    return events


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

    def show(self, units: int) -> str:
        """An amount of the stake token for people."""
        return show_amount(units, self.decimals, self.symbol)

    def moment(self, timestamp: int) -> str:
        """A time for people, as the chain's clock has it."""
        return show_time(timestamp, self.contracts.rpc.head().timestamp)

    def require_account(self) -> bytes:
        """The account that this key acts for. CommandError where it has none."""
        account = self.contracts.vault.account_of(self.address)
        if account == ZERO_ADDRESS:
            raise CommandError(
                f"{hex_of(self.address)} has no stake here: see `verdraft stake --help`, or name "
                "the right --keystore"
            )
        return account

    def require_balance(self, amount: int) -> None:
        """CommandError unless the key holds so much of the stake token."""
        balance = self.contracts.token.balance_of(self.address)
        if balance < amount:
            raise CommandError(
                f"{hex_of(self.address)} holds {self.show(balance)}, {self.show(amount)} are "
                "needed: send it tokens first"
            )

    def report_out(self, transaction: bytes, amount: int, to: bytes) -> None:
        """Says what left the contracts, and where it went."""
        self.console.result(
            {"amount": str(amount), "to": hex_of(to), "transaction": hex_of(transaction)},
            [f"{self.show(amount)} went to {hex_of(to)}"],
        )

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
    from settlement.chain.send_journal import SqliteSendJournal, send_journal_path
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
