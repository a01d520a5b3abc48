"""Whatever a program asks of a contract's wrapper is there: `contracts` is passed about untyped in
places, and what is called only once a verifier has lied fails only then."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from settlement.chain.contracts import Contracts

ROOT = Path(__file__).resolve().parents[2]
WRAPPERS = {name: kind for name, kind in get_type_hints(Contracts).items() if kind is not int}
ATTRIBUTES = {"rpc", "address", "interface", "errors"}


def asked(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, wrapper, attribute) of every `…contracts.WRAPPER.ATTRIBUTE`."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)):
            continue
        held = node.value.value
        name = held.attr if isinstance(held, ast.Attribute) else getattr(held, "id", "")
        if name in ("contracts", "_contracts") and node.value.attr in WRAPPERS:
            yield node.lineno, node.value.attr, node.attr


def test_every_wrapper_has_what_is_asked_of_it() -> None:
    missing, found = [], 0
    for path in (*ROOT.glob("node/**/*.py"), *ROOT.glob("settlement/**/*.py")):
        for line, wrapper, attribute in asked(path.read_text(encoding="utf-8")):
            found += 1
            if attribute not in ATTRIBUTES and not hasattr(WRAPPERS[wrapper], attribute):
                missing.append(f"{path.relative_to(ROOT)}:{line}: {wrapper}.{attribute}")
    assert found > 100
    assert missing == []


def test_it_sees_what_is_missing() -> None:
    assert list(asked("at = self._contracts.registry.tolerance_of\n")) == [
        (1, "registry", "tolerance_of")
    ]
    assert not hasattr(WRAPPERS["registry"], "tolerance_of")
