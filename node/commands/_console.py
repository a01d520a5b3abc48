"""What a command says: results on standard output, progress on standard error."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from node.commands import CommandError


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


class Console:
    """One command's output. With `--json` exactly one JSON object goes to standard output."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json

    def progress(self, line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    def result(self, data: Mapping[str, Any], lines: Sequence[str]) -> None:
        """`data` under `--json`, else `lines` for a person."""
        print(json.dumps(data) if self._json else "\n".join(lines))


def hex_of(raw: bytes) -> str:
    return "0x" + raw.hex()


def address_argument(text: str) -> bytes:
    """argparse type: a 20-byte address as 0x…"""
    return _bytes_argument(text, 20, "an address is 0x and 40 hex digits")


def hash_argument(text: str) -> bytes:
    """argparse type: 32 bytes as 0x…"""
    return _bytes_argument(text, 32, "an id is 0x and 64 hex digits")


def _bytes_argument(text: str, size: int, rule: str) -> bytes:
    try:
        raw = bytes.fromhex(text[2:]) if text.startswith("0x") else b""
    except ValueError:
        raw = b""
    if len(raw) != size or len(text) != 2 + 2 * size:
        raise argparse.ArgumentTypeError(f"{rule}, not {text!r}")
    return raw


def number_argument(text: str) -> float:
    """argparse type: any finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"a number, not {text!r}")
    return value


def positive_argument(text: str) -> float:
    """argparse type: a number above zero."""
    value = number_argument(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"a number above zero, not {text}")
    return value


def count_argument(text: str) -> int:
    """argparse type: a whole number above zero."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number above zero, not {text!r}")
    return int(text)


def parse_amount(text: str, decimals: int) -> int:
    """Tokens as people write them ("1.5") to smallest units. CommandError if it does not fit."""
    try:
        units = Decimal(text).scaleb(decimals)
        if not units.is_finite() or units <= 0 or units != units.to_integral_value():
            raise InvalidOperation
        if units >= 2**96:
            raise CommandError(f"an amount is below 2**96 smallest units, not {text}")
        return int(units)
    except InvalidOperation as error:
        raise CommandError(
            f"an amount is a positive number with at most {decimals} decimals, not {text!r}"
        ) from error


def show_amount(units: int, decimals: int, symbol: str) -> str:
    """Smallest units as people read them, exact."""
    whole, part = divmod(units, 10**decimals)
    tail = f".{part:0{decimals}d}".rstrip("0") if part else ""
    return f"{whole}{tail} {symbol}"


def show_time(timestamp: int, now: int | None = None) -> str:
    """A moment of the chain in UTC, and how far off it is."""
    left = timestamp - (int(time.time()) if now is None else now)
    moment = datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if left <= 0:
        return f"{moment} (passed)"
    days, rest = divmod(left, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [
        f"{n} {unit}"
        for n, unit in zip((days, hours, minutes, seconds), ("d", "h", "min", "s"), strict=True)
        if n
    ]
    return f"{moment} (in {' '.join(parts[:2])})"
