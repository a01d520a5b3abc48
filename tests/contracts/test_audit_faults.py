"""Every fault that audits have found elsewhere is pinned by a test that exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[2] / "contracts" / "test"
LIST: Final = TESTS / "AuditFaults.tree"
FAULTS: Final = 28


def pinned() -> dict[int, list[tuple[str, str]]]:
    """(file, test) by the number of the fault."""
    found: dict[int, list[tuple[str, str]]] = {}
    number = 0
    for line in LIST.read_text().splitlines():
        if match := re.match(r"(\d+) \S", line):
            number = int(match[1])
            assert number not in found, f"fault {number} stands twice"
            found[number] = []
        elif match := re.match(r"[├└]── (\S+): (\w+)$", line):
            found[number].append((match[1], match[2]))
        else:
            assert number == 0, f"neither a fault nor a test: {line!r}"
    return found


def test_every_fault_has_a_test() -> None:
    found = pinned()
    assert sorted(found) == list(range(1, FAULTS + 1))
    assert all(found.values())


def test_every_test_named_exists() -> None:
    sources = {path.name: path.read_text() for path in TESTS.rglob("*.t.sol")}
    for number, tests in pinned().items():
        for file, name in tests:
            assert re.search(rf"^    function {name}\(", sources[file], re.MULTILINE), (
                f"fault {number}: {file} has no test {name}"
            )
