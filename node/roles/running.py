"""A session on the verifier: where it stands, who listens, and what the drafter has sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from node.inference import window
from node.roles.frames import DraftFrame, Round
from node.roles.party import Live
from node.roles.refusals import No

#: Seconds that the drafter has for a trial. Rounds are withheld from it as long, and vouchers over
#: them cannot be signed.
TRIAL_SECONDS: Final = 0.5


class WindowPolicy(Protocol):
    """Chooses the next window from past rounds only (see `inference.window`)."""

    @property
    def trying(self) -> bool: ...

    def choose(self, remaining: int | None = None) -> int: ...

    def observe(self, done: window.Round) -> None: ...

    def compare(self, done: window.Round) -> None: ...


@dataclass(frozen=True)
class Drafted:
    """A window as it came: the frame (None: nothing to propose this time), and what the drafter
    says it cost (unsigned)."""

    round: int
    frame: DraftFrame | None
    made: int
    seconds: float
    reading: float = 0.0  # seconds more, for what had been emitted before
    waited: float = 0.0  # how long the verifier had nothing to do


@dataclass
class Trial:
    """A window that is asked for only to learn what its drafter would have been worth: its round
    goes on without it, and what comes is compared with the text.

    Attributes:
        round, base, k: what is asked for.
        asked: when (trio's clock).
        drafted: what came, and after how many seconds; None until then.
    """

    round: int
    base: int
    k: int
    asked: float
    drafted: Drafted | None = None
    seconds: float = 0.0


def compared(tokens: Sequence[int], text: Sequence[int]) -> tuple[int, bool]:
    """How many drafts a text that goes on from their base confirms, and whether it then says
    another than the next; False where it has not come as far."""
    both = min(len(tokens), len(text))
    right = next((n for n in range(both) if tokens[n] != text[n]), both)
    return right, right < both


@dataclass
class Running:
    """A session on the verifier: where it stands, who listens, and the drafter's inbox."""

    live: Live
    window: WindowPolicy
    values: tuple[bytes, ...] = ()  # hash chain, rejection mode
    rounds: list[Round] = field(default_factory=list)
    committed: float = -math.inf  # when the last of them was (trio's clock),
    took: float = math.inf  # and how long after the one before
    inbox: list[Drafted] = field(default_factory=list)  # newest only
    drafter_channels: int = 0
    began: float = field(default_factory=trio.current_time)
    drafter_seen: bool = False  # it has come, so it has read the prompt
    late: int = 0
    blocked: tuple[No, str] | None = None  # why no round is made at the moment
    awaited: int = -1  # the round that others hold up, or held up last,
    since: float = 0.0  # from when on (trio's clock),
    patience: float = math.inf  # and until when this node has patience, whatever they send
    at_work: bool = True  # no more wanted of others
    entered: float = 0.0  # when this wait began; several, where one led to no round
    waited: float = 0.0  # seconds in all, the one that goes on apart
    foreseen: int = -1  # position of a round without drafts whose pass was begun ahead
    wished: tuple[int, int] = (-1, 0)  # position and size of a window to ask for as a trial
    trial: Trial | None = None  # the one that was asked for
    turned: float | None = None  # when the last pass was over (perf_counter), and how long
    held_up: float = 0.0  # others have held the session up since
    ended: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)  # around its task
    changed: trio.Event = field(default_factory=trio.Event)

    def drop_trial(self) -> None:
        """Ends a trial whose drafter has not answered: it had no guess in time."""
        trial, self.trial = self.trial, None
        if trial is not None and trial.drafted is None:
            waited = trio.current_time() - trial.asked
            self.window.compare(window.Round(0, 0, False, network_seconds=waited, asked=1))
        self.notify()

    def notify(self) -> None:
        """Wakes everybody who waits for this session to change."""
        self.changed.set()
        self.changed = trio.Event()
