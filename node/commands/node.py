"""`verdraft node run` and `verdraft node check`: the operator's daemon."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from node.commands._console import Console, add_json
from settlement.durable import write_atomic


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "node",
        help="run a node, or check that it could run",
        description="The operator's daemon: drafter, verifier, auditor, client or bootstrap.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="run the daemon until it is stopped",
        description="Runs one node. SIGINT or SIGTERM end it in order; a crash loses nothing: "
        "start it again with the same configuration.",
    )
    run.add_argument("--config", type=Path, required=True, help="the node's TOML file")
    run.add_argument(
        "--ready-file",
        type=Path,
        help="write a JSON object with operator, endpoints and API url here once serving",
    )
    run.set_defaults(run=_run)
    check = commands.add_parser(
        "check",
        help="check keys, chain, contracts, stake, ports, models and clock",
        description="Checks everything that would stop the node, each with what to do about it. "
        "Exit code 1 if anything would.",
    )
    check.add_argument("--config", type=Path, required=True, help="the node's TOML file")
    add_json(check)
    check.set_defaults(run=_check)


def _run(args: argparse.Namespace) -> None:
    from node.config import load
    from node.daemon import main

    def ready(facts: dict[str, Any]) -> None:
        if args.ready_file is not None:
            write_atomic(args.ready_file, json.dumps(facts))

    main(load(args.config), on_ready=ready)


def _check(args: argparse.Namespace) -> int:
    from node.checkup import examine
    from node.config import load

    console = Console(args.json)
    findings = examine(load(args.config), progress=console.progress)
    good = all(finding.ok for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{'ok  ' if finding.ok else 'FAIL'} {finding.what}: {finding.found}")
        if not finding.ok:
            lines.append(f"     → {finding.advice}")
    lines.append("this node can run" if good else "fix what fails, then check again")
    console.result(
        {
            "ok": good,
            "findings": [
                {"what": f.what, "ok": f.ok, "found": f.found, "advice": f.advice} for f in findings
            ],
        },
        lines,
    )
    return 0 if good else 1
