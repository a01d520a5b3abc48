"""`verdraft lane show|epoch|keep`: one client's account with one drafter and one verifier."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from node.commands import CommandError
from node.commands._console import Console, add_json, hex_of, show_amount, show_time
from node.commands._wallet import (
    add_chain_options,
    add_key_options,
    add_lane,
    add_options,
    connect,
    lane_named,
    open_wallet,
)
from node.keys import keystore_address
from settlement.records import Lane

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from settlement.chain.contracts import Contracts, LaneState


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    family = subparsers.add_parser(
        "lane",
        help="look at a lane, open a new epoch, or call a thaw off",
        description="A lane is client, drafter, verifier, token and claim: one reserve on chain. "
        "`deposit` fills it, `withdraw reserve` empties it.",
    )
    actions = family.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="reserve, thaw and epoch",
        description="The lane as it stands on chain. Needs no password.",
    )
    show.set_defaults(run=_show)
    epoch = actions.add_parser(
        "epoch",
        help="open a new epoch",
        description="For when a lane cannot go on from where it stands: a settlement by a voucher "
        "that this node has not got (`cannot follow a lane`), or a round that parties do not agree "
        "on. New vouchers begin at nothing; those of older epochs stay collectable. Client, "
        "drafter or verifier may do it, with their own key.",
    )
    epoch.set_defaults(run=_epoch)
    keep = actions.add_parser(
        "keep",
        help="call a thaw off",
        description="The client takes back what `withdraw reserve` began: all of the reserve "
        "counts again.",
    )
    keep.set_defaults(run=_keep)
    for parser in (show, epoch, keep):
        add_lane(parser)
    add_chain_options(show)
    add_key_options(show)
    add_json(show)
    for parser in (epoch, keep):
        add_options(parser)


def _facts(lane: Lane, state: LaneState) -> dict[str, Any]:
    return {
        "lane": hex_of(lane.id),
        "reserve": str(state.reserve),
        "thawing": str(state.thawing),
        "thawedAt": state.thawed_at or None,
        "soloFrom": state.solo_from or None,
        "epoch": state.epoch,
    }


def _opened(contracts: Contracts, lane: Lane) -> LaneState:
    state = contracts.escrow.lane_state(lane.id)
    if not state.position:
        raise CommandError(
            f"lane {hex_of(lane.id)} was never opened: `verdraft deposit` does it, with the claim "
            "that the drafter serves under"
        )
    return state


def _show(args: argparse.Namespace) -> None:
    contracts = connect(args)
    lane = lane_named(args, contracts, args.client or keystore_address(args.keystore))
    state, now = _opened(contracts, lane), contracts.rpc.head().timestamp
    decimals, symbol = contracts.token.decimals(), contracts.token.symbol()
    lines = [
        f"lane      {hex_of(lane.id)}",
        f"reserve   {show_amount(state.reserve, decimals, symbol)}",
        f"epoch     {state.epoch}",
    ]
    if state.thawing:
        thawing = show_amount(state.thawing, decimals, symbol)
        lines.append(f"thawing   {thawing} until {show_time(state.thawed_at, now)}")
    if state.solo_from:
        lines.append(f"solo      without the drafter from {show_time(state.solo_from, now)}")
    Console(args.json).result(_facts(lane, state), lines)


def _epoch(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        lane = lane_named(args, wallet.contracts, args.client or wallet.address)
        if wallet.address not in (lane.client, lane.drafter, lane.verifier):
            raise CommandError(
                f"{hex_of(wallet.address)} is no party of this lane: name the client with "
                "--client, or use the right --keystore"
            )
        before = _opened(wallet.contracts, lane)
        mined = wallet.send("epoch", wallet.contracts.escrow.open_epoch(lane))
        state = wallet.contracts.escrow.lane_state(lane.id)
        wallet.console.result(
            {**_facts(lane, state), "before": before.epoch, "transaction": hex_of(mined.hash)},
            [f"epoch {state.epoch} is open; what epoch {before.epoch} owes stays collectable"],
        )


def _keep(args: argparse.Namespace) -> None:
    with open_wallet(args) as wallet:
        lane = lane_named(args, wallet.contracts, args.client or wallet.address)
        if not _opened(wallet.contracts, lane).thawing:
            raise CommandError(f"nothing of lane {hex_of(lane.id)} is thawing")
        mined = wallet.send("keep", wallet.contracts.escrow.cancel_thaw(lane))
        state = wallet.contracts.escrow.lane_state(lane.id)
        wallet.console.result(
            {**_facts(lane, state), "transaction": hex_of(mined.hash)},
            [f"the whole reserve, {wallet.show(state.reserve)}, counts again"],
        )
