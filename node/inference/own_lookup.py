"""Rounds without drafts, several to a pass: the verifier's own guesses by lookup.

Where no drafter is asked, a pass has one row and the machine mostly waits for memory. Text that
repeats what stands in the prompt or the output can be guessed from it for nothing. So the verifier
runs its guess in further rows of the same pass: while the text goes as guessed, the rounds that
follow find their row already there. Every round still emits one token, the target's own by its own
row, and a wrong guess is forgotten as a rejected draft is.

How far to guess is chosen as the window is (`window`): from how often guesses came true, by the
length of what matched, and from what passes of more rows take. Pure but for what it learns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from node.inference.lookup import NgramIndex, followed
from node.inference.model import Rows
from node.inference.window import VerifyCost

_SIZES: Final = (4, 3, 2, 1)
#: Tokens guessed in one pass, at most.
MOST: Final = 8
# First guesses of how often a guess is right after so many tokens that matched, and of how often
# the next one is when one was; each worth so many trials.
_PRIOR: Final = {4: 0.5, 3: 0.4, 2: 0.25, 1: 0.1}
_PRIOR_ON: Final = 0.6
_PRIOR_WEIGHT: Final = 8.0
_FORGETTING: Final = 0.99


class _Share:
    """How often something came true, with forgetting and a prior."""

    def __init__(self, prior: float) -> None:
        self._hits, self._trials = prior * _PRIOR_WEIGHT, _PRIOR_WEIGHT

    def count(self, right: bool) -> None:
        self._hits = _FORGETTING * self._hits + right
        self._trials = _FORGETTING * self._trials + 1.0

    @property
    def value(self) -> float:
        return self._hits / self._trials


class OwnLookup:
    """What a verifier has learnt about its guesses, over all its sessions.

    Args:
        costs: measured seconds of a pass by its rows, from a calibration.
    """

    def __init__(self, costs: Mapping[int, float] | None = None) -> None:
        self.cost = VerifyCost()
        self.cost.calibrate(costs or {})
        self._first = {size: _Share(prior) for size, prior in _PRIOR.items()}
        self._on = _Share(_PRIOR_ON)
        #: tokens guessed, and of these those that came true
        self.guessed = self.right = 0

    def length(self, size: int, most: int) -> int:
        """How many tokens to guess where `size` tokens matched: the most tokens per second."""
        alone = self.cost.seconds(1)
        if alone <= 0:
            return 0
        best, rate = 0, 1 / alone
        tokens, chance = 1.0, self._first[size].value
        for count in range(1, min(most, MOST) + 1):
            tokens += chance
            chance *= self._on.value
            seconds = self.cost.seconds(count + 1)
            if seconds > 0 and tokens / seconds > rate:
                best, rate = count, tokens / seconds
        return best

    def count_first(self, size: int, right: bool) -> None:
        self._first[size].count(right)

    def count_on(self, right: bool) -> None:
        self._on.count(right)


@dataclass
class Ahead:
    """What one session has ahead of its text.

    Attributes:
        ready: the row after the text, where a pass has run it already.
        rows: guesses after that, each with the row behind it.
    """

    lookup: OwnLookup
    ready: Rows | None = None
    rows: deque[tuple[int, Rows]] = field(default_factory=deque)
    _index: NgramIndex = field(default_factory=lambda: NgramIndex(_SIZES))
    _scored: tuple[int, int, int] | None = None  # position, size and token of the last lookup
    _going: bool = False  # the guess before this one came true

    def guess(self, tokens: Sequence[int], most: int) -> tuple[int, ...]:
        """How the text goes on, as far as it pays to run; `most` tokens at most."""
        self._index.grow(tokens)
        found = self._index.find(tokens[-_SIZES[0] :])
        if found is None:
            return ()
        source, size = found
        self._scored = (len(tokens), size, tokens[source])
        count = self.lookup.length(size, most)
        self.lookup.guessed += count
        return followed(tokens, source, count)

    def ran(self, guess: Sequence[int], rows: Rows) -> None:
        """The rows behind each token of a guess; rows: of the pass, the text's own first."""
        for at, token in enumerate(guess, 1):
            self.rows.append((token, Rows(rows.hidden[at : at + 1], rows.logits[at : at + 1])))

    def commit(self, position: int, emitted: Sequence[int]) -> bool:
        """The text got longer by `emitted` at `position`. Whether what is ahead still stands."""
        if self._scored is not None and self._scored[0] == position:
            self.lookup.count_first(self._scored[1], self._scored[2] == emitted[0])
        elif self._going and self.rows:
            self.lookup.count_on(self.rows[0][0] == emitted[0])
        self.ready, self._scored = None, None
        self._going = len(emitted) == 1 and bool(self.rows) and self.rows[0][0] == emitted[0]
        if not self._going:
            self.rows.clear()
            return False
        self.lookup.right += 1
        _, self.ready = self.rows.popleft()
        return True

    def forget(self) -> None:
        """The text was cut, or is about to be drafted on."""
        self.ready, self._scored, self._going = None, None, False
        self.rows.clear()
