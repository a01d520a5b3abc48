"""Acceptance that was measured: counts by bucket of the pair that ships with the package.

    python scripts/bucket_rates.py --mode coupled    (and rejection; --drafter ngram)

Forty-eight held-out prompts, 384 tokens each, T = 1, four drafts a round.
"""

from __future__ import annotations

from typing import Final

from node.economics.market import Acceptance
from node.economics.strategies import COUPLED, REJECTION

VOCABULARY: Final = 3_072
# Of prompt lookup, over all positions at which it proposed anything; coupled mode.
NGRAM: Final = 0.2
_SOURCE: Final = "tiny pair, {mode}, T = 1 (measured)"
_COUNTS: Final = {
    COUPLED: (
        (7, 50, 127, 532, 58, 130, 445, 1467, 260, 665, 1758, 5654, 175, 417, 1194, 3765),
        (7, 34, 90, 337, 50, 97, 317, 1010, 244, 509, 1252, 4026, 156, 315, 830, 2556),
    ),
    REJECTION: (
        (10, 38, 145, 531, 53, 157, 468, 1445, 266, 719, 1895, 5567, 185, 449, 1243, 3726),
        (8, 31, 104, 338, 49, 132, 330, 919, 245, 580, 1370, 3562, 167, 337, 890, 2334),
    ),
}


def pairs() -> dict[str, Acceptance]:
    """By mode."""
    return {
        mode: Acceptance.of_counts(_SOURCE.format(mode=mode), *counts, NGRAM, VOCABULARY)
        for mode, counts in _COUNTS.items()
    }
