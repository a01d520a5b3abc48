"""An address book gives back what was written, and a damaged one is named as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from settlement.chain.address_book import AddressBook, Entry
from settlement.chain.errors import ConfigError

BOOK = AddressBook(
    7,
    b"\x01" * 32,
    "devnet",
    contracts={
        "A": Entry(b"\x0a" * 20, b"\x0b" * 32, b"\x0c" * 32, 9),
        "B": Entry(b"\x0d" * 20, b"\x0e" * 32, bytes(32), 4),
    },
)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    BOOK.write(tmp_path / "book.json")
    assert AddressBook.read(tmp_path / "book.json") == BOOK
    assert BOOK.first_block == 4
    assert BOOK.addresses == {"A": b"\x0a" * 20, "B": b"\x0d" * 20}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("version",), 2),
        (("chainId",), "seven"),
        (("genesis",), "0x" + "01" * 31),
        (("contracts",), []),
        (("contracts", "A"), None),
        (("contracts", "A", "address"), "0x" + "0a" * 19),
        (("contracts", "A", "address"), "0x" + "zz" * 20),
        (("contracts", "A", "codeHash"), "0x"),
        (("contracts", "A", "block"), None),
    ],
)
def test_a_damaged_book_is_named(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    path = tmp_path / "book.json"
    BOOK.write(path)
    data = json.loads(path.read_text())
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"book\.json"):
        AddressBook.read(path)


def test_a_book_of_another_shape_is_named(tmp_path: Path) -> None:
    path = tmp_path / "book.json"
    for text in ("[]", "{}", "not JSON", "7"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"book\.json"):
            AddressBook.read(path)


def test_no_book_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scripts/deploy\.py"):
        AddressBook.read(tmp_path / "none.json")
