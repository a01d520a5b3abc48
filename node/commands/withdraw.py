"""`verdraft withdraw payout|stake|reserve|rewards`: money out of the contracts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from node.commands import CommandError
from node.commands._console import address_argument, hex_of, parse_amount
from node.commands._wallet import (
    add_lane,
    add_options,
    add_role,
    deployment,
    events_of,
    lane_named,
    open_wallet,
    role_named,
)
from settlement.hashing import ZERO_ADDRESS

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    withdraw = subparsers.add_parser(
        "withdraw",
        help="take out what is free",
        description="Whatever belongs to an account with stake goes to its beneficiary, whoever "
        "calls; a lane's reserve goes to the client, or where it says.",
    )
    kinds = withdraw.add_subparsers(title="what", metavar="WHAT", required=True)
    payout = kinds.add_parser(
        "payout",
        help="what was earned, to the beneficiary",
        description="Earnings of settled vouchers, in the stake token.",
    )
    payout.set_defaults(run=_payout)
    matured = kinds.add_parser(
        "stake",
        help="stake whose unbonding is over",
        description="Collects what `verdraft unstake` asked out, once it has matured.",
    )
    add_role(matured)
    matured.set_defaults(run=_stake)
    reserve = kinds.add_parser(
        "reserve",
        help="a lane's reserve: the first run starts the thaw, a later one collects",
        description="Vouchers can still take what is thawing. Run it again after the thaw to "
        "collect what is left; `verdraft lane keep` calls a thaw off.",
    )
    add_lane(reserve)
    reserve.add_argument("--amount", metavar="TOKENS", help="to thaw (default: all)")
    reserve.add_argument(
        "--to",
        type=address_argument,
        metavar="ADDRESS",
        help="who gets it (default: this key's address)",
    )
    reserve.set_defaults(run=_reserve)
    rewards = kinds.add_parser(
        "rewards",
        help="shares of slashes that have vested",
        description="What proofs, flags and expired deadlines brought this key, and what it got as "
        "a victim. Each share vests for as long as the accused's stake would have unbonded.",
    )
    rewards.set_defaults(run=_rewards)
    for parser in (payout, matured, reserve, rewards):
        add_options(parser)


def _stake(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        vault, role = wallet.contracts.vault, role_named(args.role)
        account = wallet.require_account()
        exits = vault.exits_of(account, role)
        if not exits:
            raise CommandError(
                f"no stake as {args.role} is on its way out: ask with `verdraft unstake` first"
            )
        if exits[0].mature_at > wallet.contracts.rpc.head().timestamp:
            raise CommandError(
                f"the oldest exit, {wallet.show(exits[0].amount)}, matures at "
                f"{wallet.moment(exits[0].mature_at)}: come back then"
            )
        beneficiary = vault.beneficiary_of(account)
        before = wallet.contracts.token.balance_of(beneficiary)
        mined = wallet.send("withdraw", vault.withdraw(account, role))
        wallet.report_out(
            mined.hash, wallet.contracts.token.balance_of(beneficiary) - before, beneficiary
        )


def _reserve(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        escrow = wallet.contracts.escrow
        lane = lane_named(args, wallet.contracts, args.client or wallet.address)
        if lane.client != wallet.address:
            raise CommandError(
                f"only the client takes a reserve out, and this key is {hex_of(wallet.address)}"
            )
        state = escrow.lane_state(lane.id)
        if state.reserve == 0:
            raise CommandError(f"lane {hex_of(lane.id)} holds nothing: check the lane's parties")
        now = wallet.contracts.rpc.head().timestamp
        if state.thawing and args.amount is None:
            if now < state.thawed_at:
                raise CommandError(
                    f"{wallet.show(state.thawing)} thaw until "
                    f"{wallet.moment(state.thawed_at)}: run this again then"
                )
            to = args.to or wallet.address
            before = wallet.contracts.token.balance_of(to)
            mined = wallet.send("collect", escrow.collect_thawed(lane, to))
            wallet.report_out(mined.hash, wallet.contracts.token.balance_of(to) - before, to)
            return
        free = state.reserve - state.thawing
        amount = free if args.amount is None else parse_amount(args.amount, wallet.decimals)
        if not 0 < amount <= free:
            raise CommandError(
                f"{wallet.show(free)} of the lane are not thawing yet: "
                f"{wallet.show(amount)} are too many"
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
                f"{wallet.show(state.thawing)} thaw until {wallet.moment(state.thawed_at)}",
                "vouchers can take them until then; run this again to collect what is left",
            ],
        )


def _payout(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        contracts = wallet.contracts
        account = contracts.vault.account_of(wallet.address)
        account = wallet.address if account == ZERO_ADDRESS else account
        amount = contracts.escrow.payable_to(account, contracts.token.address)
        if amount == 0:
            raise CommandError(f"nothing is payable to {hex_of(account)}: settle vouchers first")
        to = contracts.vault.payout_to(account)
        mined = wallet.send("withdraw", contracts.escrow.withdraw(account, contracts.token.address))
        wallet.report_out(mined.hash, amount, to)


def _rewards(args: argparse.Namespace) -> None:
    from settlement.chain.events import Vested

    _, book = deployment(args)
    with open_wallet(args) as wallet:
        vault = wallet.contracts.vault
        mine = {wallet.address, vault.account_of(wallet.address)}
        shares = {
            (found.event.who, found.event.slice)
            for found in events_of([vault], book.first_block, args.confirmations)
            if isinstance(found.event, Vested) and found.event.who in mine
        }
        left = {share: vault.vesting_of(*share) for share in sorted(shares)}
        held = {share: amount for share, amount in left.items() if amount}
        if not held:
            raise CommandError(f"no shares of slashes are held for {hex_of(wallet.address)}")
        now = vault.slice_of(wallet.contracts.rpc.head().timestamp)
        ripe = {share: amount for share, amount in held.items() if share[1] <= now}
        if not ripe:
            first = vault.slice_start(min(slice_ for _, slice_ in held))
            raise CommandError(
                f"{wallet.show(sum(held.values()))} are vesting, the first until "
                f"{wallet.moment(first)}: come back then"
            )
        for who in sorted({who for who, _ in ripe}):
            slices = [slice_ for owner, slice_ in ripe if owner == who]
            mined = wallet.send("rewards", vault.claim_vested(who, slices))
        to = vault.payout_to(wallet.address)
        wallet.report_out(mined.hash, sum(ripe.values()), to)
