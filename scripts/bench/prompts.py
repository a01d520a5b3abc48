"""What the benchmarks let the target answer: the held-out prompts by kind, and texts to copy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HELDOUT: Final = Path(__file__).resolve().parents[1] / "draft" / "heldout.jsonl"
CLASSES: Final = ("code", "chat", "maths", "summary", "copy")

# Written for this file. The answer that they ask for stands in the prompt.
_PASSAGES: Final = (
    "The ferry leaves the northern pier at seven in the morning and again at noon. Tickets are "
    "sold on board, and bicycles travel free of charge except on the last Sunday of each month.",
    "def total(prices, rate):\n    result = 0.0\n    for price in prices:\n        if price < 0:"
    "\n            raise ValueError(price)\n        result += price * (1 + rate)\n"
    "    return result\n",
    "Ingredients: two cups of flour, one cup of sugar, three eggs, a pinch of salt, half a cup of "
    "melted butter, one teaspoon of vanilla, and the grated peel of a lemon.",
    "Dear neighbours, the water will be turned off on Tuesday from nine until one. Please fill a "
    "few bottles beforehand. The work is done by the city and costs us nothing.",
    "<table>\n  <tr><th>Name</th><th>Age</th></tr>\n  <tr><td>Olga</td><td>41</td></tr>\n"
    "  <tr><td>Ravi</td><td>35</td></tr>\n  <tr><td>Chen</td><td>29</td></tr>\n</table>\n",
    "Old Tom had three dogs. The first dog guarded the house, the second dog guarded the sheep, "
    "and the third dog slept by the fire and guarded nothing at all.",
)


@dataclass(frozen=True)
class Prompt:
    """One user turn."""

    kind: str
    number: int
    text: str


def prompts(kind: str, count: int) -> list[Prompt]:
    """The first `count` of a kind; fewer where there are fewer."""
    if kind == "copy":
        asks = [f"Repeat the following text exactly:\n\n{text}\n\n{text}" for text in _PASSAGES]
        return [Prompt(kind, i, text) for i, text in enumerate(asks[:count])]
    rows = [json.loads(line) for line in HELDOUT.read_text().splitlines()]
    texts: Sequence[str] = [row["prompt"] for row in rows if row["kind"] == kind]
    return [Prompt(kind, i, text) for i, text in enumerate(texts[:count])]
