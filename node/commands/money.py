"""`verdraft stake|unstake|deposit`: money into the contracts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from node.commands import CommandError
from node.commands._console import address_argument, hash_argument, hex_of, parse_amount
from node.commands._wallet import (
    Wallet,
    add_lane,
    add_options,
    add_role,
    lane_named,
    open_wallet,
    role_named,
)
from settlement.hashing import ZERO_ADDRESS

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    stake = subparsers.add_parser(
        "stake",
        help="put stake behind a role",
        description="Moves stake tokens from the key into the vault. What serves limits what can "
        "be earned: each payment locks several times its worth until it can no longer be judged. "
        "The first stake of a key opens its account, and fixes for ever where its money goes.",
        epilog="example: verdraft stake --role verifier --amount 1000 --beneficiary 0xCOLD "
        "--model 0xTARGETID",
    )
    add_role(stake)
    stake.add_argument("--amount", required=True, metavar="TOKENS", help="for example 1000 or 0.5")
    stake.add_argument(
        "--beneficiary",
        type=address_argument,
        metavar="ADDRESS",
        help="where all money of this account will go; name one whose key is kept offline",
    )
    stake.add_argument(
        "--model",
        type=hash_argument,
        action="append",
        default=[],
        metavar="ID",
        help="a registered model that is served; repeatable. Later: `verdraft model serve`",
    )
    stake.set_defaults(run=_stake)

    unstake = subparsers.add_parser(
        "unstake",
        help="ask stake out; it leaves after unbonding",
        description="The stake serves no more from now on, can still be slashed while it unbonds, "
        "and is then collected with `verdraft withdraw stake`.",
    )
    add_role(unstake)
    amount = unstake.add_mutually_exclusive_group(required=True)
    amount.add_argument("--amount", metavar="TOKENS")
    amount.add_argument("--all", action="store_true", help="all that serves")
    unstake.set_defaults(run=_unstake)

    deposit = subparsers.add_parser(
        "deposit",
        help="reserve money for a drafter and a verifier",
        description="Moves stake tokens from the key into the reserve of one lane: client, "
        "drafter, verifier and the drafter's claim. Orders to these two under that claim are paid "
        "from it alone; what is left comes back with `verdraft withdraw reserve`.",
        epilog="`verdraft peers` shows operators and their claims.",
    )
    add_lane(deposit)
    deposit.add_argument("--amount", required=True, metavar="TOKENS")
    deposit.set_defaults(run=_deposit)

    for parser in (stake, unstake, deposit):
        add_options(parser)


# ---------------------------------------------------------------- stake


def _stake(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault, role = wallet.contracts.vault, role_named(args.role)
        amount = parse_amount(args.amount, wallet.decimals)
        account, beneficiary = _account(wallet, args.beneficiary)
        wallet.require_balance(amount)
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
                f"staked {wallet.show(amount)} as {args.role}; "
                f"{wallet.show(stake.active)} serve now",
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
        account = wallet.require_account()
        active = vault.stake_of(account, role).active
        amount = active if args.all else parse_amount(args.amount, wallet.decimals)
        if amount == 0 or amount > active:
            raise CommandError(
                f"{wallet.show(active)} serve as {args.role}: "
                f"{wallet.show(amount)} cannot be asked out"
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
                f"{wallet.show(amount)} can be withdrawn from {wallet.moment(mature_at)}",
                f"then: verdraft withdraw stake --role {args.role}",
            ],
        )


# ---------------------------------------------------------------- lanes


def _deposit(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        escrow = wallet.contracts.escrow
        lane = lane_named(args, wallet.contracts, args.client or wallet.address)
        amount = parse_amount(args.amount, wallet.decimals)
        wallet.require_balance(amount)
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
            [f"lane {hex_of(lane.id)}", f"holds {wallet.show(state.reserve)}"],
        )
