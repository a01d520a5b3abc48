"""Subcommands of `verdraft`, one module each (or one per family).

A module here whose name has no leading underscore offers

    def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None

and sets `run` on its parsers (`parser.set_defaults(run=function)`); `run(args)` returns an exit
status, or None for 0. Import heavy things (torch, libp2p, web3) inside `run`: every invocation,
`--help` included, imports all modules here. What goes wrong is raised, not printed: errors of
`CommandError`, `node.keys`, `node.config` and `settlement.chain` are shown as one line that says
the way out.
"""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot do what was asked; the message says why and what would."""
