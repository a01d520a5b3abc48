"""`verdraft journal backup`: a consistent copy of a node's journal, while it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from node.commands import CommandError
from node.commands._console import Console, add_json


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    family = subparsers.add_parser("journal", help="keep a node's journal safe")
    actions = family.add_subparsers(title="actions", metavar="ACTION", required=True)
    backup = actions.add_parser(
        "backup",
        help="copy the journal while the node runs",
        description="The copy is consistent, and old from the moment it is made: a node started "
        "on it could sign a second time what it has signed since. Use it to read, or after the "
        "original is lost and every session since has ended.",
    )
    backup.add_argument("--config", type=Path, required=True, help="the node's TOML file")
    backup.add_argument("target", type=Path, help="a new file")
    add_json(backup)
    backup.set_defaults(run=_backup)


def _backup(args: argparse.Namespace) -> None:
    from node.config import load
    from node.journal import Journal, JournalError

    path = load(args.config).data_dir / "journal.sqlite"
    if not path.exists():
        raise CommandError(f"there is no journal at {path} yet")
    try:
        journal = Journal(path)
        try:
            journal.backup(args.target)
        finally:
            journal.close()
    except JournalError as error:
        raise CommandError(str(error)) from error
    size = args.target.stat().st_size
    facts = {"journal": str(path), "backup": str(args.target), "bytes": size}
    Console(args.json).result(facts, [f"{size} bytes from {path} to {args.target}"])
