"""`verdraft peers`: who a running node knows."""

from __future__ import annotations

import argparse
from typing import Any

from node.commands._api import add_api, read_view, require_api
from node.commands._console import Console, add_json


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "peers",
        help="show whom a running node knows",
        description="The discovery table of a running node: operators, what they offer, at what "
        "price and under which claim, and the measured round trip (a dash where nothing was "
        "measured).",
    )
    add_api(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    peers = read_view(require_api(args), "/v1/peers")
    lines = []
    for peer in sorted(peers, key=_by_role):
        trip = "-" if peer["round_trip_ms"] is None else f"{peer['round_trip_ms']:.1f} ms"
        for offer in peer["offers"]:
            price = f"{offer['price']} units/token" if offer["price"] != "0" else ""
            lines.append(f"{peer['operator']}  {offer['role']:<10} {trip:>9}  {price}".rstrip())
            if int(offer["claim"], 16):
                lines.append(f"    under claim {offer['claim']}")
    Console(args.json).result({"peers": peers}, lines or ["nobody yet"])


def _by_role(peer: dict[str, Any]) -> tuple[str, str]:
    return (peer["offers"][0]["role"] if peer["offers"] else "", peer["operator"])
