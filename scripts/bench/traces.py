"""Recorded sessions, and how long they would take under another window and another network.

In the strict modes the text does not depend on what is drafted, and what a model drafts for a
position depends on the text before it alone. So one recording of both answers, for every window,
how many drafts each round would have accepted. Only time has to be modelled: passes and drafts take
times measured on this machine, drawn anew for every pass, and messages take half a round trip.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from node.inference.drafter import Drafter, DraftSession
from node.inference.lookup import LookupDrafter
from node.inference.params import SamplingParams
from node.inference.window import Round


@dataclass(frozen=True)
class Trace:
    """One recorded session.

    Attributes:
        kind: prompt class.
        temperature: of the text.
        prompt, text: token ids.
        guesses: what the draft model proposes for each position after the true text before it.
    """

    kind: str
    temperature: float
    prompt: tuple[int, ...]
    text: tuple[int, ...]
    guesses: tuple[int, ...]


def guesses_of(
    drafter: Drafter,
    prompt: Sequence[int],
    text: Sequence[int],
    params: SamplingParams,
    seed: bytes,
) -> tuple[int, ...]:
    """What the drafter proposes for every position of a text, each after the true text."""
    session = drafter.open(prompt, params, seed=seed)
    out = []
    for token in text:
        out += session.propose(1).tokens
        session.commit([token])
    return tuple(out)


@dataclass(frozen=True)
class Costs:
    """Seconds measured on this machine.

    Attributes:
        passes: by rows of a pass, several samples each.
        draft: of one drafted token, several samples.
    """

    passes: Mapping[int, Sequence[float]]
    draft: Sequence[float]

    def verify(self, rows: int, rng: random.Random) -> float:
        """A sample of the nearest measured number of rows, scaled along the line between two."""
        if rows in self.passes:
            return rng.choice(self.passes[rows])
        low = max(n for n in self.passes if n < rows)
        high = min(n for n in self.passes if n > rows)
        a, b = rng.choice(self.passes[low]), rng.choice(self.passes[high])
        return a + (b - a) * (rows - low) / (high - low)


class Window(Protocol):
    def choose(self, remaining: int | None = None) -> int: ...

    def observe(self, done: Round) -> None: ...


class _Proposals:
    """What a drafter has ahead: recorded guesses, or prompt lookup run for real."""

    def __init__(self, trace: Trace, lookup: bool) -> None:
        self._trace = trace
        self._session: DraftSession | None = None
        if lookup:
            params = SamplingParams.from_floats("greedy")
            self._session = LookupDrafter().open(trace.prompt, params, seed=bytes(32))

    def take(self, base: int, k: int) -> Sequence[int]:
        if self._session is not None:
            return self._session.propose(k).tokens
        return self._trace.guesses[base : base + k]

    def guessed(self, position: int) -> bool:
        """Whether the token that V adds was what D had drafted on with (models only)."""
        return self._session is None and self._trace.guesses[position] == self._trace.text[position]

    def commit(self, emitted: Sequence[int]) -> None:
        if self._session is not None:
            self._session.commit(emitted)


def play(
    trace: Trace, window: Window, costs: Costs, rtt: float, rng: random.Random, lookup: bool
) -> float:
    """Seconds that the session would take, from the first window to the last verdict.

    As the roles do it: D sends a window, drafts on until it has as many tokens again and one for
    V's own, and takes the verdict when it has both arrived and that is done. A window that is ready
    by then goes out at once. Rounds without drafts wait for nobody.
    """
    text, proposals = trace.text, _Proposals(trace, lookup)
    now = 0.0  # at the verifier
    drafter_free = 0.0  # when D has done what it began
    ready = 0  # tokens D has drafted beyond the committed text
    base = 0
    while base < len(text):
        k = window.choose(len(text) - base)
        began, spent, made = now, 0.0, 0
        drafts: Sequence[int] = ()
        if k:
            drafts = proposals.take(base, k)
            start = max(drafter_free, now + rtt / 2 if base else 0.0)
            made = max(len(drafts) - ready, 0)
            spent = 0.0 if lookup else sum(rng.choice(costs.draft) for _ in range(made))
            sent = start + spent
            ahead = len(drafts) + 1
            drafter_free = sent
            if not lookup:
                drafter_free += sum(rng.choice(costs.draft) for _ in range(ahead))
            now = max(now, sent + rtt / 2)
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == text[base + accepted]:
            accepted += 1
        waited = now - began
        seconds = costs.verify(len(drafts) + 1, rng)
        now += seconds
        emitted = text[base : base + accepted + 1]
        full = accepted == len(drafts) and len(emitted) == accepted + 1
        ready = len(drafts) if k and full and proposals.guessed(base + accepted) else 0
        if not k:
            drafter_free = max(drafter_free, now)
        proposals.commit(emitted)
        window.observe(
            Round(
                len(drafts),
                accepted,
                accepted < len(drafts),
                spent,
                made if not lookup else len(drafts),
                seconds,
                max(waited - spent, 0.0) if k else None,
                asked=k,
            )
        )
        base += len(emitted)
    return now


def as_json(trace: Trace) -> dict[str, Any]:
    return {
        "kind": trace.kind,
        "temperature": trace.temperature,
        "prompt": list(trace.prompt),
        "text": list(trace.text),
        "guesses": list(trace.guesses),
    }


def from_json(row: Mapping[str, Any]) -> Trace:
    return Trace(
        row["kind"],
        row["temperature"],
        tuple(row["prompt"]),
        tuple(row["text"]),
        tuple(row["guesses"]),
    )
