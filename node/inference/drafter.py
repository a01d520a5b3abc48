"""Drafters: one small interface, and what every kind of drafter shares.

A drafter runs ahead of the committed text. Tokens it has made beyond it are its *ahead*; `propose`
hands out the first of them and makes what is missing, `commit` keeps those that the verifier's
tokens confirm and drops the rest. So drafting on while the verifier works, a full accept, a reject
and a stale proposal need no cases of their own.

In rejection mode every token must be drawn with the coin of its own round, so nothing is drafted
ahead and nothing carried over.

A guess that needs a model is asked for as a `Feed`, so that one pass can serve many sessions
(`draft_together`): a draft model reads all its weights for one row as for eight.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from node.inference.params import SamplingParams
from node.inference.proposal import Draft, DraftCoin, KeptList, ProposalError
from settlement.masses import point_mass
from settlement.records import Mode

if TYPE_CHECKING:
    from node.inference.model import LanguageModel, Rows, Span


@dataclass(frozen=True)
class Step:
    """One drafted token; the other fields as in `Draft`, empty where the mode has no use.

    Attributes:
        confidence: the drafter's largest probability at temperature 1, in 16 bits; for its own use.
    """

    token: int
    kept: KeptList = ()
    surprisal: int = 0
    top: tuple[int, ...] = ()
    confidence: int = 0

    @classmethod
    def certain(cls, token: int) -> Step:
        """A token from a drafter without a distribution: all mass on it."""
        return cls(token, point_mass(token), 0, (token,))


# Tokens of one feed that drafting alone never leaves behind.
_READING = 16


@dataclass(frozen=True)
class Feed:
    """What a session's next guess needs: this span run by this model. Its last row is then chosen
    from (`DraftSession.chosen`)."""

    model: LanguageModel
    span: Span

    @property
    def reads(self) -> bool:
        """Whether it is a text to read rather than a draft to make: the prompt, or what was
        emitted while nothing was drafted. Its time says nothing of what the next draft costs."""
        return len(self.span.tokens) > _READING


class DraftSession(ABC):
    """One session's state on the draft side.

    Args:
        prompt_ids, output_ids: as the verifier has them.
        params: as the verifier has them: the same processors and noise apply to the draft.
        seed: S, 32 bytes.
        stop_ids: in the strict modes nothing is drafted after one of these.
        clock: seconds.
    """

    #: whether it runs no model: what it does takes microseconds, and no thread is worth it
    quick = False

    def __init__(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        stop_ids: frozenset[int] = frozenset(),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.tokens = [*prompt_ids, *output_ids]
        self.prompt_length = len(prompt_ids)
        self.params = params
        self.seed = seed
        self.stop_ids = stop_ids
        self._clock = clock
        self._ahead: list[Step] = []
        self._spent = self._read = 0.0
        self._made = 0

    @property
    def position(self) -> int:
        """Output tokens committed so far: the base of the next draft."""
        return len(self.tokens) - self.prompt_length

    @property
    def surplus(self) -> int:
        """Tokens drafted beyond the committed text."""
        return len(self._ahead)

    def propose(self, k: int, coin: DraftCoin | None = None) -> Draft:
        """The window for the current position: k tokens, or fewer.

        Fewer only in the strict modes, when the drafter has no guess or drafted a stop id; in
        rejection mode exactly k, drawn afresh with `coin`. Asking again in a strict mode returns
        the same tokens.

        Raises:
            ProposalError: rejection mode without a coin.
        """
        self.begin(coin)
        self._extend(k, coin)
        return self.window(k)

    def begin(self, coin: DraftCoin | None) -> None:
        """Make ready for a window; errors as `propose`."""
        if self.params.mode == Mode.REJECTION:
            if coin is None:
                raise ProposalError("rejection mode: propose needs the round's coin")
            self._drop(0)

    def window(self, k: int) -> Draft:
        """The first k of what is drafted, for the verifier."""
        rejection = self.params.mode == Mode.REJECTION
        steps = self._ahead[:k]
        relaxed = self.params.relax_tau > 0
        draft = Draft(
            self.position,
            tuple(s.token for s in steps),
            tuple(s.kept for s in steps) if rejection else (),
            tuple(s.surprisal for s in steps) if relaxed else (),
            tuple(s.top for s in steps) if relaxed else (),
            self._spent,
            self._made,
            self._read,
        )
        self._spent, self._made, self._read = 0.0, 0, 0.0
        return draft

    def draft_ahead(self, n: int) -> int:
        """While the verifier works: have n tokens beyond the committed text; returns the surplus.

        Does nothing in rejection mode.
        """
        if self.params.mode != Mode.REJECTION:
            self._extend(n, None)
        return self.surplus

    def commit(self, emitted: Sequence[int]) -> None:
        """Append the verifier's tokens; keep the surplus if they confirm all of it so far."""
        match = 0
        while match < min(len(emitted), len(self._ahead)):
            if self._ahead[match].token != emitted[match]:
                break
            match += 1
        kept = self._ahead[match:] if match == len(emitted) else []
        if self.params.mode == Mode.REJECTION:
            kept = []
        self._rewind(len(self.tokens) + match + len(kept))
        self.tokens.extend(emitted)
        self._ahead = kept
        self._committed(emitted)

    def close(self) -> None:  # noqa: B027  most kinds hold nothing
        """Free what the session holds."""

    def _extend(self, n: int, coin: DraftCoin | None) -> None:
        start = self._clock()
        while (feed := self.lacking(n, coin)) is not None:
            begun = self._clock()
            rows = feed.model.forward([feed.span])[0]
            if feed.reads:
                read = self._clock() - begun
                start += read
                self._read += read
            self.take(rows, coin)
        self._spent += self._clock() - start

    def lacking(self, n: int, coin: DraftCoin | None) -> Feed | None:
        """Draft towards n tokens ahead as far as that needs no model.

        Returns:
            What to run for the next one, its rows then for `take`; None when n are there, or as
            many as there will be.
        """
        while len(self._ahead) < n:
            strict = self.params.mode != Mode.REJECTION
            if strict and self._ahead and self._ahead[-1].token in self.stop_ids:
                return None
            step = self._next(coin)
            if step is None or isinstance(step, Feed):
                return step
            self._append(step)
        return None

    def take(self, rows: Rows, coin: DraftCoin | None) -> None:
        """Draft one token from what a model said of the `Feed` asked for."""
        self._append(self._chosen(rows, coin))

    def spend(self, seconds: float, reading: float = 0.0) -> None:
        """Count time as this session's drafting, and reading, that others ran for it."""
        self._spent += seconds
        self._read += reading

    def _append(self, step: Step) -> None:
        self._ahead.append(step)
        self._made += 1

    def _drop(self, keep: int) -> None:
        del self._ahead[keep:]
        self._rewind(len(self.tokens) + keep)

    @abstractmethod
    def _next(self, coin: DraftCoin | None) -> Step | Feed | None:
        """The token after `tokens` and the ahead, at position `position + surplus`, or what a model
        must be fed for it.

        None when there is no guess; in rejection mode there must be one.
        """

    def _chosen(self, rows: Rows, coin: DraftCoin | None) -> Step:
        """The token that a fed model's last row says. Sessions whose `_next` never asks for a model
        have none."""
        raise TypeError(f"{type(self).__name__} asks for a model's rows: it must define _chosen")

    def _rewind(self, length: int) -> None:  # noqa: B027  stateless kinds have nothing to undo
        """Of tokens + ahead only the first `length` stay as they are."""

    def _committed(self, emitted: Sequence[int]) -> None:  # noqa: B027
        """`emitted` is now at the end of `tokens`."""


class Drafter(Protocol):
    """Makes draft sessions.

    Attributes:
        name: for logs and metrics.
    """

    name: str

    def open(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        stop_ids: frozenset[int] = frozenset(),
    ) -> DraftSession: ...


@dataclass(frozen=True)
class Want:
    """A `propose` of one session, or (ahead) a `draft_ahead`, to be done with others'.

    Attributes:
        count: tokens, as `k` and `n` there.
        coin: in rejection mode, the round's.
        owed: what was committed since, to be taken in first.
    """

    session: DraftSession
    count: int
    coin: DraftCoin | None = None
    ahead: bool = False
    owed: tuple[int, ...] = ()


def draft_together(
    wants: Sequence[Want], clock: Callable[[], float] = time.perf_counter
) -> list[Draft | int | Exception]:
    """Each session's `propose` or `draft_ahead`, a model's passes shared by all that wait for it.

    Args:
        wants: no session twice.

    Returns:
        In order, what each would have returned, or raised. A pass that fails is run again session
        by session, so that only the one at fault fails.
    """
    failed: dict[int, Exception] = {}
    going: list[int] = []
    for index, want in enumerate(wants):
        if want.ahead and want.session.params.mode == Mode.REJECTION:
            continue  # nothing is drafted ahead there
        try:
            if want.owed:
                want.session.commit(want.owed)
            if not want.ahead:
                want.session.begin(want.coin)
            going.append(index)
        except Exception as error:
            failed[index] = error
    while going:
        feeds: dict[int, Feed] = {}
        for index in going:
            feed = wants[index].session.lacking(wants[index].count, wants[index].coin)
            if feed is not None:
                feeds[index] = feed
        for model in {id(feed.model): feed.model for feed in feeds.values()}.values():
            group = [index for index, feed in feeds.items() if feed.model is model]
            failed |= _share(model, {i: (wants[i], feeds[i]) for i in group}, clock)
        going = [index for index in feeds if index not in failed]
    results: list[Draft | int | Exception] = []
    for index, want in enumerate(wants):
        if index in failed:
            results.append(failed[index])
        elif want.ahead:
            results.append(want.session.surplus)
        else:
            results.append(want.session.window(want.count))
    return results


def _share(
    model: LanguageModel, group: dict[int, tuple[Want, Feed]], clock: Callable[[], float]
) -> dict[int, Exception]:
    """One pass for all, and each session's token from it; what failed, by index."""
    start = clock()
    try:
        rows = model.forward([feed.span for _, feed in group.values()])
    except Exception as error:
        if len(group) == 1:
            return dict.fromkeys(group, error)
        alone = [_share(model, {index: pair}, clock) for index, pair in group.items()]
        return {index: error for found in alone for index, error in found.items()}
    shared = clock() - start
    failed: dict[int, Exception] = {}
    for (index, (want, feed)), row in zip(group.items(), rows, strict=True):
        start = clock()
        try:
            want.session.take(row, want.coin)
        except Exception as error:
            failed[index] = error
        taken = clock() - start
        if feed.reads:
            want.session.spend(taken, reading=shared)
        else:
            want.session.spend(taken + shared)
    return failed
