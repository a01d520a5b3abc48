"""What commands that ask a running node share: the option that names it, and one request."""

from __future__ import annotations

import argparse
import os
from typing import Any
from urllib.parse import urlsplit

from node.commands import CommandError

API_VARIABLE = "VERDRAFT_API"
EXAMPLE = "http://127.0.0.1:8080"


def add_api(parser: argparse.ArgumentParser) -> None:
    """The option that names a node's private HTTP port."""
    parser.add_argument(
        "--api",
        default=os.environ.get(API_VARIABLE),
        metavar="URL",
        help=f"the node's private port, e.g. {EXAMPLE} (default: ${API_VARIABLE})",
    )


def require_api(args: argparse.Namespace) -> str:
    if not args.api:
        raise CommandError(
            f"which node? Give --api URL or set {API_VARIABLE}; the node logs its API when it is "
            "ready, and `devnet --serve` prints it"
        )
    api = str(args.api) if "://" in args.api else f"http://{args.api}"
    try:
        place = urlsplit(api)
        fits = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise CommandError(f"{args.api} is no address of a node; it is one like {EXAMPLE}")
    return api.rstrip("/")


def read_view(api: str, path: str) -> Any:
    """A view of the node at `api` as JSON (`/v1/peers`). CommandError where there is none."""
    import httpx

    try:
        return httpx.get(f"{api.rstrip('/')}{path}", timeout=10.0).raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"the node at {api} does not answer: {error}") from error
    except ValueError as error:
        raise CommandError(f"what answers at {api} is no node: {path} is not JSON") from error
