"""`verdraft stake|unstake|deposit|withdraw`: money into the contracts and out of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from node.commands import CommandError
from node.commands._console import (
    address_argument,
    hash_argument,
    hex_of,
    parse_amount,
    show_amount,
    show_time,
)
from node.commands._wallet import Wallet, add_options, open_wallet
from settlement.hashing import ZERO32, ZERO_ADDRESS
from settlement.records import Lane

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from settlement.chain.contracts import Role

ROLES = ("drafter", "verifier", "auditor")


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    stake = subparsers.add_parser("stake", help="put stake behind a role")
    _add_role(stake)
    stake.add_argument("--amount", required=True, help="tokens, e.g. 1000 or 0.5")
    stake.add_argument(
        "--beneficiary",
        type=address_argument,
        help="where all money of this account will go; fixed by the first stake",
    )
    stake.add_argument(
        "--model",
        type=hash_argument,
        action="append",
        default=[],
        help="id of a registered model that is served; may be repeated",
    )
    stake.set_defaults(run=_stake)

    unstake = subparsers.add_parser("unstake", help="ask stake out; it leaves after unbonding")
    _add_role(unstake)
    amount = unstake.add_mutually_exclusive_group(required=True)
    amount.add_argument("--amount", help="tokens")
    amount.add_argument("--all", action="store_true", help="all that serves")
    unstake.set_defaults(run=_unstake)

    deposit = subparsers.add_parser("deposit", help="reserve money for a drafter and a verifier")
    _add_lane(deposit)
    deposit.add_argument("--client", type=address_argument, help="for another client's lane")
    deposit.add_argument("--amount", required=True, help="tokens")
    deposit.set_defaults(run=_deposit)

    withdraw = subparsers.add_parser("withdraw", help="take out what is free")
    kinds = withdraw.add_subparsers(title="what", metavar="WHAT", required=True)
    payout = kinds.add_parser("payout", help="what was earned, to the beneficiary")
    payout.set_defaults(run=_withdraw_payout)
    matured = kinds.add_parser("stake", help="stake whose unbonding is over")
    _add_role(matured)
    matured.set_defaults(run=_withdraw_stake)
    reserve = kinds.add_parser(
        "reserve", help="a lane's reserve: the first run starts the thaw, a later one collects"
    )
    _add_lane(reserve)
    reserve.add_argument("--amount", help="tokens to thaw (default: all)")
    reserve.add_argument("--to", type=address_argument, help="recipient (default: this account)")
    reserve.set_defaults(run=_withdraw_reserve)

    for parser in (stake, unstake, deposit, payout, matured, reserve):
        add_options(parser)


def _add_role(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", choices=ROLES, required=True)


def _add_lane(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drafter", type=address_argument, required=True)
    parser.add_argument("--verifier", type=address_argument, required=True)
    parser.add_argument(
        "--claim",
        type=hash_argument,
        default=ZERO32,
        help="the drafter's claim of acceptance rates that the lane counts for (default: none)",
    )


def role_named(name: str) -> Role:
    from settlement.chain.contracts import Role

    return Role[name.upper()]


# ---------------------------------------------------------------- stake


def _stake(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault, role = wallet.contracts.vault, role_named(args.role)
        amount = parse_amount(args.amount, wallet.decimals)
        account, beneficiary = _account(wallet, args.beneficiary)
        _require_balance(wallet, amount)
        wallet.allow(vault.address, amount)
        mined = wallet.send("stake", vault.stake(account, beneficiary, role, amount, args.model))
        stake = vault.stake_of(account, role)
        wallet.console.result(
            {
                "account": hex_of(account),
                "beneficiary": hex_of(beneficiary),
                "role": args.role,
                "staked": str(amount),
                "active": str(stake.active),
                "transaction": hex_of(mined.hash),
                "gasUsed": mined.gas_used,
            },
            [
                f"staked {_show(wallet, amount)} as {args.role}; "
                f"{_show(wallet, stake.active)} serve now",
                f"payouts and stake go to {hex_of(beneficiary)}",
            ],
        )


def _account(wallet: Wallet, beneficiary: bytes | None) -> tuple[bytes, bytes]:
    """The key's account, or the one it is about to open, and its beneficiary."""
    vault = wallet.contracts.vault
    account = vault.account_of(wallet.address)
    if account != ZERO_ADDRESS:
        fixed = vault.beneficiary_of(account)
        if beneficiary not in (None, fixed):
            raise CommandError(
                f"the beneficiary was fixed as {hex_of(fixed)} by the first stake; leave out "
                "--beneficiary"
            )
        return account, fixed
    if beneficiary is None:
        raise CommandError(
            "the first stake fixes where this account's money goes, for ever: name an address "
            "whose key is kept offline with --beneficiary"
        )
    return wallet.address, beneficiary


def _unstake(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault, role = wallet.contracts.vault, role_named(args.role)
        account = _known_account(wallet)
        active = vault.stake_of(account, role).active
        amount = active if args.all else parse_amount(args.amount, wallet.decimals)
        if amount == 0 or amount > active:
            raise CommandError(
                f"{_show(wallet, active)} serve as {args.role}: "
                f"{_show(wallet, amount)} cannot be asked out"
            )
        mined = wallet.send("unstake", vault.unstake(account, role, amount))
        mature_at = vault.exits_of(account, role)[-1].mature_at
        wallet.console.result(
            {
                "account": hex_of(account),
                "role": args.role,
                "unbonding": str(amount),
                "matureAt": mature_at,
                "transaction": hex_of(mined.hash),
            },
            [
                f"{_show(wallet, amount)} can be withdrawn from {_moment(wallet, mature_at)}",
                f"then: verdraft withdraw stake --role {args.role}",
            ],
        )


def _withdraw_stake(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault, role = wallet.contracts.vault, role_named(args.role)
        account = _known_account(wallet)
        exits = vault.exits_of(account, role)
        if not exits:
            raise CommandError(
                f"no stake as {args.role} is on its way out: ask with `verdraft unstake` first"
            )
        if exits[0].mature_at > wallet.contracts.rpc.head().timestamp:
            raise CommandError(
                f"the oldest exit, {_show(wallet, exits[0].amount)}, matures at "
                f"{_moment(wallet, exits[0].mature_at)}: come back then"
            )
        beneficiary = vault.beneficiary_of(account)
        before = wallet.contracts.token.balance_of(beneficiary)
        mined = wallet.send("withdraw", vault.withdraw(account, role))
        _report_out(
            wallet, mined.hash, wallet.contracts.token.balance_of(beneficiary) - before, beneficiary
        )


# ---------------------------------------------------------------- lanes and payouts


def _lane(args: argparse.Namespace, wallet: Wallet, client: bytes) -> Lane:
    return Lane(client, args.drafter, args.verifier, wallet.contracts.token.address, args.claim)


def _deposit(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        escrow = wallet.contracts.escrow
        lane = _lane(args, wallet, args.client or wallet.address)
        amount = parse_amount(args.amount, wallet.decimals)
        _require_balance(wallet, amount)
        wallet.allow(escrow.address, amount)
        mined = wallet.send("deposit", escrow.reserve(lane, amount))
        state = escrow.lane_state(lane.id)
        wallet.console.result(
            {
                "lane": hex_of(lane.id),
                "deposited": str(amount),
                "reserve": str(state.reserve),
                "epoch": state.epoch,
                "transaction": hex_of(mined.hash),
                "gasUsed": mined.gas_used,
            },
            [f"lane {hex_of(lane.id)}", f"holds {_show(wallet, state.reserve)}"],
        )


def _withdraw_reserve(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        escrow = wallet.contracts.escrow
        lane = _lane(args, wallet, wallet.address)
        state = escrow.lane_state(lane.id)
        if state.reserve == 0:
            raise CommandError(f"lane {hex_of(lane.id)} holds nothing: check the lane's parties")
        now = wallet.contracts.rpc.head().timestamp
        if state.thawing and args.amount is None:
            if now < state.thawed_at:
                raise CommandError(
                    f"{_show(wallet, state.thawing)} thaw until "
                    f"{_moment(wallet, state.thawed_at)}: run this again then"
                )
            to = args.to or wallet.address
            before = wallet.contracts.token.balance_of(to)
            mined = wallet.send("collect", escrow.collect_thawed(lane, to))
            _report_out(wallet, mined.hash, wallet.contracts.token.balance_of(to) - before, to)
            return
        free = state.reserve - state.thawing
        amount = free if args.amount is None else parse_amount(args.amount, wallet.decimals)
        if not 0 < amount <= free:
            raise CommandError(
                f"{_show(wallet, free)} of the lane are not thawing yet: "
                f"{_show(wallet, amount)} are too many"
            )
        mined = wallet.send("thaw", escrow.thaw(lane, amount))
        state = escrow.lane_state(lane.id)
        wallet.console.result(
            {
                "lane": hex_of(lane.id),
                "thawing": str(state.thawing),
                "thawedAt": state.thawed_at,
                "transaction": hex_of(mined.hash),
            },
            [
                f"{_show(wallet, state.thawing)} thaw until {_moment(wallet, state.thawed_at)}",
                "vouchers can take them until then; run this again to collect what is left",
            ],
        )


def _withdraw_payout(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        contracts = wallet.contracts
        account = contracts.vault.account_of(wallet.address)
        account = wallet.address if account == ZERO_ADDRESS else account
        amount = contracts.escrow.payable_to(account, contracts.token.address)
        if amount == 0:
            raise CommandError(f"nothing is payable to {hex_of(account)}: settle vouchers first")
        to = contracts.vault.payout_to(account)
        mined = wallet.send("withdraw", contracts.escrow.withdraw(account, contracts.token.address))
        _report_out(wallet, mined.hash, amount, to)


# ---------------------------------------------------------------- words


def _show(wallet: Wallet, units: int) -> str:
    return show_amount(units, wallet.decimals, wallet.symbol)


def _moment(wallet: Wallet, timestamp: int) -> str:
    return show_time(timestamp, wallet.contracts.rpc.head().timestamp)


def _report_out(wallet: Wallet, transaction: bytes, amount: int, to: bytes) -> None:
    wallet.console.result(
        {"amount": str(amount), "to": hex_of(to), "transaction": hex_of(transaction)},
        [f"{_show(wallet, amount)} went to {hex_of(to)}"],
    )


def _known_account(wallet: Wallet) -> bytes:
    account = wallet.contracts.vault.account_of(wallet.address)
    if account == ZERO_ADDRESS:
        raise CommandError(
            f"{hex_of(wallet.address)} has no stake here: see `verdraft stake --help`, or name "
            "the right --keystore"
        )
    return account


def _require_balance(wallet: Wallet, amount: int) -> None:
    balance = wallet.contracts.token.balance_of(wallet.address)
    if balance < amount:
        raise CommandError(
            f"{hex_of(wallet.address)} holds {_show(wallet, balance)}, "
            f"{_show(wallet, amount)} are needed: send it tokens first"
        )
