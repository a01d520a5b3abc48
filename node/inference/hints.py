"""What a drafter says unasked: how it thinks that the text goes on.

A lookup knows when it has something to go on, and asking it at any other time costs an exchange for
nothing. So in the strict modes a drafter that is not asked may hint at the next tokens, unsigned.
The verifier watches whether the text goes that way; where it does, and the hint goes further, that
is grounds to ask for a window. Only past tokens are compared, and the text is the target's whatever
is asked for. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Tokens in a hint, at most.
MOST: Final = 16
#: Tokens of a hint that must have come true, the newest ones of the text, before a window is worth
#: its exchange.
ENOUGH: Final = 2
#: Tokens that a hint should still have in front of it, or it is time for another.
_LEFT: Final = 4
_REMEMBERED: Final = 64


class Hints:
    """The verifier's side: whether a session's hints come true.

    What a level is worth is learnt by `WindowControl`; a drafter that hints at random is soon not
    listened to.

    Attributes:
        heard: whether there were any hints.
        level: 0: no grounds to ask; 1: a hint has come true so far; 2: all of a window has that
            was asked for on such grounds.
    """

    def __init__(self, position: int = 0) -> None:
        self.heard = False
        self.level = 0
        self._position = position  # of the next output token
        self._recent: list[int] = []  # the output's end
        self._base = 0
        self._hint: tuple[int, ...] = ()
        self._right = 0

    @property
    def promising(self) -> bool:
        """Whether the next token may be grounds to ask."""
        return self.level > 0 or self._right > 0

    def hear(self, base: int, tokens: Sequence[int]) -> None:
        """A hint: the output from position `base` on. It may be late: the text has gone on."""
        self.heard = True
        self._base, self._hint = base, tuple(tokens[:MOST])
        self._compare()

    def observe(self, emitted: Sequence[int], drafts: int, accepted: int, level: int) -> None:
        """A round: what it emitted, the size of its window, what was accepted of that, and the
        level that it was asked for on."""
        self._position += len(emitted)
        self._recent = [*self._recent, *emitted][-_REMEMBERED:]
        if drafts:
            self._hint, self._right = (), 0
            self.level = 2 if level and accepted == drafts else 0
        else:
            self.level = 0
            self._compare()

    def _compare(self) -> None:
        since = self._position - self._base
        goes_on = 0 < since < len(self._hint) and since <= len(self._recent)
        right = goes_on and tuple(self._recent[-since:]) == self._hint[:since]
        self._right = since if right else 0
        if self.level < 2:
            self.level = int(self._right >= ENOUGH)


def still_good(base: int, hint: Sequence[int], position: int, text: Sequence[int]) -> bool:
    """The drafter's side: whether a hint says of the output at `position` what is to be said.

    Args:
        text: the output from `base` to `position`.
    """
    since = position - base
    return since + _LEFT <= len(hint) and list(hint[:since]) == list(text)
