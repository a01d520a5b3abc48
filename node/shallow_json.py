"""JSON from strangers: nested no deeper than anything of ours is."""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_DEPTH: Final = 32
# Possessive, and without need of the closing quote: no text makes it look at a byte twice.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?')


def loads(raw: bytes) -> Any:
    """The value of a JSON text. ValueError where it is none, or nested deeper than `MAX_DEPTH`: the
    parser recurses in C, and where some library has raised the recursion limit a deep text would
    end the process instead of raising."""
    if _depth(raw) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _depth(raw: bytes) -> int:
    """How deep brackets nest outside strings."""
    depth = most = 0
    for byte in _STRINGS.sub(b"", raw):
        if byte in b"[{":
            depth += 1
            most = max(most, depth)
        elif byte in b"]}":
            depth -= 1
    return most
