"""Acceptance that was measured: counts by bucket of the pair that ships with the package.

    python scripts/bucket_rates.py --mode coupled    (and rejection; --drafter ngram)

Forty-eight held-out prompts, 384 tokens each, T = 1, four drafts a round.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from node.economics.market import Acceptance, Floats
from node.economics.strategies import COUPLED, REJECTION

VOCABULARY: Final = 3_072
# Prompt lookup in coupled mode, over the 7,311 positions at which it proposed anything.
_LOOKUP: Final = (
    (0, 1, 7, 68, 10, 17, 98, 405, 70, 232, 617, 2772, 71, 170, 523, 2250),
    (0, 0, 2, 2, 1, 3, 9, 9, 31, 66, 90, 93, 40, 49, 76, 72),
)
_FEW: Final = 10  # proposals in a bucket; with fewer the mean over all stands for it
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


def lookup() -> Floats:
    """(16,) acceptance of prompt lookup on the tiny target."""
    n, k = (np.array(counts, dtype=float) for counts in _LOOKUP)
    mean = k.sum() / n.sum()
    return np.where(n >= _FEW, k / np.maximum(n, 1), mean)


def pairs() -> dict[str, Acceptance]:
    """By mode."""
    return {
        mode: Acceptance.of_counts(_SOURCE.format(mode=mode), *counts, lookup(), VOCABULARY)
        for mode, counts in _COUNTS.items()
    }
