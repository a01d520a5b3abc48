"""`verdraft`: the command line. Subcommands live in `node.commands`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence

import node.commands
from node.commands import CommandError
from node.config import ConfigError
from node.keys import KeyFault

_INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, from the modules of `node.commands` in alphabetical order."""
    parser = argparse.ArgumentParser(
        prog="verdraft",
        description="Speculative decoding between operators who do not trust each other.",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in sorted(pkgutil.iter_modules(node.commands.__path__), key=lambda info: info.name):
        if not module.name.startswith("_"):
            found = importlib.import_module(f"node.commands.{module.name}")
            found.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0, 1 for a refusal, 2 for wrong usage."""
    args = build_parser().parse_args(argv)
    try:
        status = args.run(args)
    except KeyboardInterrupt:
        print("verdraft: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        if not is_expected(error):
            raise
        if getattr(args, "json", False):
            print(json.dumps({"error": type(error).__name__, "message": str(error)}))
        print(f"verdraft: {error}", file=sys.stderr)
        return 1
    return 0 if status is None else int(status)


def is_expected(error: Exception) -> bool:
    """Whether an error tells a person what to do, so that a traceback would only hide it."""
    if isinstance(error, CommandError | ConfigError | KeyFault):
        return True
    # Imported only now: without it no chain was talked to, and nothing of it can have failed.
    chain_errors = sys.modules.get("settlement.chain.errors")
    return chain_errors is not None and isinstance(error, chain_errors.ChainError)
