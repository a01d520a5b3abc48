"""`verdraft peers`: who a running node knows."""

from __future__ import annotations

import argparse
from typing import Any

from node.commands import CommandError
from node.commands._console import Console, add_json
from node.commands.ask import add_api, require_api


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "peers",
        help="show whom a running node knows",
        description="The discovery table of a running node: operators, what they offer, at what "
        "price, and the measured round trip (a dash where nothing was measured).",
    )
    add_api(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    import httpx

    api = require_api(args)
    try:
        peers = httpx.get(f"{api}/v1/peers", timeout=10.0).raise_for_status().json()
    except httpx.HTTPError as error:
        raise CommandError(f"the node at {api} does not answer: {error}") from error
    lines = []
    for peer in sorted(peers, key=_by_role):
        trip = "-" if peer["round_trip_ms"] is None else f"{peer['round_trip_ms']:.1f} ms"
        for offer in peer["offers"]:
            price = f"{offer['price']} units/token" if offer["price"] != "0" else ""
            lines.append(f"{peer['operator']}  {offer['role']:<10} {trip:>9}  {price}".rstrip())
    Console(args.json).result({"peers": peers}, lines or ["nobody yet"])


def _by_role(peer: dict[str, Any]) -> tuple[str, str]:
    return (peer["offers"][0]["role"] if peer["offers"] else "", peer["operator"])
