"""Imports point one way: the money knows nothing of how tokens are made and moved.

* settlement imports nothing of node; its pure modules import neither chain, settler nor watcher,
  and no library but NumPy, one keccak and one secp256k1;
* node.inference and node.network do not import each other, and neither imports the roles;
* the shell (SHELL: settler, watchers, challenges and settlement.chain) is imported only by roles,
  daemon, cli, devnet and scripts (and by itself).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELL = (
    "settlement.chain",
    "settlement.settler",
    "settlement.watcher",
    "settlement.challenges",
    "settlement.claim_watch",
    "settlement.duties",
    "settlement.panel_watch",
    "settlement.panel_dues",
    "settlement.audit_watch",
    "settlement.ticket_watch",
)
# Named one by one, so that a new user of the chain has to be argued for here.
SHELL_USERS = (
    "node.roles",
    "node.daemon",
    "node.chainwatch",  # the daemon's hands on the chain: what it reads, …
    "node.settling",  # … what it sends, …
    "node.watching",  # … what it defends and proves, …
    "node.defence",  # … with what bids, …
    "node.acquaintances",  # whom its stakes and lanes say are no strangers, …
    "node.holdings",  # … by what it holds, …
    "node.serving",  # … and the roles it starts over both
    "node.receiptkeeper",  # what it adds to receipts
    "node.checkup",  # the check before the daemon starts
    "node.cli",
    "node.commands",  # the cli, one file a command
    "node.devnet",
    "scripts",
)
PURE_LIBRARIES = {"numpy", "sha3", "coincurve"}


@dataclass(frozen=True)
class Import:
    """`module` imports `target` at `line`."""

    module: str
    target: str
    line: int


def imports_of(module: str, source: str, is_package: bool = False) -> Iterator[Import]:
    """Every import anywhere in the source, also inside functions and under TYPE_CHECKING, with
    relative ones resolved. `from a import b` counts as a and as a.b."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                stem = parts[: len(parts) - node.level + 1]
                base = ".".join([*stem, base] if base else stem)
            yield Import(module, base, node.lineno)
            for alias in node.names:
                yield Import(module, f"{base}.{alias.name}", node.lineno)


def under(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def is_shell(module: str) -> bool:
    return under(module, *SHELL)


def broken_rule(edge: Import) -> str | None:
    """Which rule an import breaks, or None."""
    module, target = edge.module, edge.target
    if under(module, "settlement"):
        if under(target, "node", "scripts"):
            return "settlement imports nothing of node"
        if not is_shell(module):
            if is_shell(target):
                return "a pure settlement module imports no shell"
            root = target.split(".")[0]
            allowed = root in sys.stdlib_module_names or root in PURE_LIBRARIES
            if not allowed and root != "settlement":
                return f"a pure settlement module needs no {root}"
    if under(target, "torch", "libp2p") and under(module, "settlement"):
        return "settlement needs neither torch nor libp2p"
    if under(module, "node.inference") and under(target, "node.network"):
        return "inference does not import network"
    if under(module, "node.network") and under(target, "node.inference"):
        return "network does not import inference"
    if under(module, "node.inference", "node.network") and under(target, "node.roles"):
        return "roles tie inference and network together, not the reverse"
    may_use_shell = is_shell(module) or under(module, *SHELL_USERS)
    if is_shell(target) and not may_use_shell:
        return "settler, watcher and chain are for roles, daemon, cli, devnet and scripts"
    return None


def module_name(path: Path) -> tuple[str, bool]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return (".".join(parts[:-1]), True) if parts[-1] == "__init__" else (".".join(parts), False)


SOURCES = sorted(
    path for folder in ("settlement", "node", "scripts") for path in (ROOT / folder).rglob("*.py")
)


def test_no_module_breaks_a_rule() -> None:
    broken = []
    for path in SOURCES:
        name, is_package = module_name(path)
        for edge in imports_of(name, path.read_text(encoding="utf-8"), is_package):
            rule = broken_rule(edge)
            if rule:
                broken.append(f"{path.relative_to(ROOT)}:{edge.line} imports {edge.target}: {rule}")
    assert broken == []


def test_the_packages_are_there() -> None:
    names = {module_name(path)[0] for path in SOURCES}
    assert {"settlement.records", "settlement.chain", "node.inference", "node.network"} <= names


@pytest.mark.parametrize(
    ("module", "source", "breaks"),
    [
        ("settlement.coins", "import node", True),
        ("settlement.chain.sender", "from node.journal import Journal", True),
        ("settlement.trees", "from settlement import chain", True),
        ("settlement.trees", "from .chain import sender", True),
        ("settlement.trees", "def f():\n    import torch", True),
        ("settlement.trees", "import web3", True),
        ("settlement.trees", "import numpy as np\nimport hashlib", False),
        ("settlement.trees", "from settlement.records import Sums", False),
        ("settlement.chain.sender", "import web3\nfrom settlement.records import Sums", False),
        ("settlement.settler", "from settlement.chain import sender", False),
        ("node.inference.model", "from node.network import link", True),
        ("node.inference.model", "from ..network import link", True),
        ("node.network.link", "from node.inference.model import Model", True),
        ("node.network.link", "import node.roles.client", True),
        ("node.network.link", "from settlement.chain import sender", True),
        ("node.inference.model", "from settlement.watcher import Watch", True),
        ("node.journal", "import settlement.settler", True),
        ("node.roles.client", "from settlement.chain import sender", False),
        ("node.roles.client", "from node.network import link\nimport node.inference", False),
        ("node.daemon", "from settlement import settler", False),
        ("node.cli", "from settlement import chain", False),
        ("node.commands.status", "from settlement.chain import contracts", False),
        ("scripts.deploy", "from settlement.chain import sender", False),
    ],
)
def test_the_rules_see_what_they_forbid(module: str, source: str, breaks: bool) -> None:
    found = [edge for edge in imports_of(module, source) if broken_rule(edge)]
    assert bool(found) == breaks
