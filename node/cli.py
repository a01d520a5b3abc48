"""`verdraft`: the command line. Subcommands live in `node.commands`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from importlib import metadata

import node.commands
from node.commands import CommandError
from node.config import ConfigError
from node.keys import KeyFault

_INTERRUPTED = 130
# Errors that tell a person what to do, by module. A module that nobody has imported has raised
# none of its own, so looking for it loads nothing.
_EXPECTED = (
    ("settlement.chain.errors", "ChainError"),
    ("node.inference.architecture", "ModelError"),
    ("node.inference.catalog", "CatalogError"),
    ("node.journal", "JournalError"),
    ("node.network.libp2p_transport", "ListenError"),
    ("node.roles.ports", "ChainUnavailable"),
)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, from the modules of `node.commands` in alphabetical order."""
    parser = argparse.ArgumentParser(
        prog="verdraft",
        description="Speculative decoding between operators who do not trust each other.",
        epilog="Try `verdraft devnet --tiny` first: a chain, contracts and all nodes on this "
        "machine, from an order to a settled answer. Each command explains itself with --help; the "
        "operator's guide is docs/operator.md.",
    )
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in sorted(pkgutil.iter_modules(node.commands.__path__), key=lambda info: info.name):
        if not module.name.startswith("_"):
            found = importlib.import_module(f"node.commands.{module.name}")
            found.add_parser(subparsers)
    return parser


def _version() -> str:
    try:
        return f"verdraft {metadata.version('verdraft')}"
    except metadata.PackageNotFoundError:
        return "verdraft, not installed"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0, 1 for a refusal, 2 for wrong usage."""
    args: argparse.Namespace | None = None
    try:
        args = build_parser().parse_args(argv)
        status = args.run(args)
    except KeyboardInterrupt:
        print("verdraft: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        told = _sole(error)
        if not is_expected(told):
            raise
        if getattr(args, "json", False):
            print(json.dumps({"error": type(told).__name__, "message": str(told)}))
        print(f"verdraft: {told}", file=sys.stderr)
        return 1
    return 0 if status is None else int(status)


def _sole(error: Exception) -> Exception:
    """What a nursery wrapped: the one exception in a group of one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_expected(error: Exception) -> bool:
    """Whether an error tells a person what to do, so that a traceback would only hide it."""
    if isinstance(error, CommandError | ConfigError | KeyFault):
        return True
    for module, name in _EXPECTED:
        found = sys.modules.get(module)
        if found is not None and isinstance(error, getattr(found, name)):
            return True
    return False
