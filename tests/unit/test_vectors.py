"""The committed golden vectors are what the code gives, and what it gave when they were frozen."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from scripts.make_vectors import FILES, FOLDER, rendered
from settlement.accept_rule import LeafFault
from settlement.hashing import keccak256


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_code_gives(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == rendered(name), f"{name} is stale: run scripts/make_vectors.py, and ask why"


def test_no_other_file_lies_there() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.suffix == ".json"} == set(FILES)


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_every_fault_code_occurs() -> None:
    vectors = load("accept.json")
    seen = Counter(
        case["fault"]
        for group in ("leafPairs", "draftLeaves", "draftLists")
        for case in vectors[group]
    )
    chains = {LeafFault.CHAIN_VERIFIER, LeafFault.CHAIN_DRAFTER}  # see coins.json
    assert set(seen) == {0, *(int(fault) for fault in LeafFault if fault not in chains)}


def test_type_hashes_are_frozen() -> None:
    """One digest over all type strings: a changed field, name or order shows here."""
    strings = load("records.json")["typeStrings"]
    digest = keccak256("\n".join(f"{k}={strings[k]}" for k in sorted(strings)).encode())
    assert digest.hex() == "5d6d4ab90a756234ad4816ea04e24c4cf59b0c1f4430aedcb9cd52835739d1f3"
