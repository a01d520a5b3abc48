"""A draft model, prompt lookup where that does as well for nothing, and no draft past hope.

In the strict modes the text is the target's whatever is drafted, so a drafter may choose freely how
each token is guessed and where it stops. Both choices are made from what came true before: how
often lookups of each length were right (they are scored at every token, used or not), and how often
the model was, by its own confidence. Drafting ends where the chance that a further token is even
looked at no longer pays for making it. In rejection mode every token must be drawn from the model,
in relaxed mode every draft declares the model's figures: there this is the model alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from node.inference.drafter import Feed, Step
from node.inference.lookup import NgramIndex
from node.inference.model import LanguageModel, Rows
from node.inference.model_drafter import ModelDrafter, ModelDraftSession
from node.inference.params import SamplingParams
from node.inference.proposal import DraftCoin
from settlement.records import Mode

_SIZES: Final = (5, 4, 3, 2)
# First guesses of how often a lookup by so many tokens is right, each worth so many trials.
_PRIOR: Final = {5: 0.7, 4: 0.65, 3: 0.5, 2: 0.35}
_PRIOR_WEIGHT: Final = 8.0
# Weight that a trial keeps per later one of its kind.
_FORGETTING: Final = 0.99
# A lookup costs nothing: it is taken where it is right so often as the model is.
_FREE: Final = 0.9
_BINS: Final = 8

# How a token was guessed: by a lookup of so many tokens, or by the model in a bin of confidence.
Source = tuple[str, int]


class Beliefs:
    """How often guesses of each source came true, with forgetting. Shared by a drafter's
    sessions of one mode."""

    def __init__(self) -> None:
        self._seen: dict[Source, tuple[float, float]] = {}

    def record(self, source: Source, right: bool) -> None:
        hits, trials = self._seen.get(source, (0.0, 0.0))
        self._seen[source] = (_FORGETTING * hits + right, _FORGETTING * trials + 1.0)

    def chance(self, source: Source) -> float:
        """Of the source's next guess, with its prior."""
        kind, number = source
        # Distilled models are roughly calibrated; the bins correct what they are not.
        prior = _PRIOR[number] if kind == "ngram" else 0.15 + 0.75 * (number + 0.5) / _BINS
        hits, trials = self._seen.get(source, (0.0, 0.0))
        return (hits + prior * _PRIOR_WEIGHT) / (trials + _PRIOR_WEIGHT)

    def model_chance(self) -> float:
        """Of the model's guesses over all its bins."""
        bins = [seen for (kind, _), seen in self._seen.items() if kind == "model"]
        hits, trials = (sum(column) for column in zip(*bins, strict=True)) if bins else (0.0, 0.0)
        return (hits + 0.5 * _PRIOR_WEIGHT) / (trials + _PRIOR_WEIGHT)


class MixedDrafter(ModelDrafter):
    """Drafts with a model and with lookups.

    Args:
        model, vocab_size: as of `ModelDrafter`.
        worth: a token is not drafted when it would be looked at with less than this chance: about
            what drafting one costs, in units of what one more token is worth.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocab_size: int | None = None,
        *,
        name: str = "mixed",
        worth: float = 0.2,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(model, vocab_size, name=name, clock=clock)
        self.worth = worth
        self._beliefs: dict[tuple[Mode, int], Beliefs] = {}

    def open(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        stop_ids: frozenset[int] = frozenset(),
    ) -> ModelDraftSession:
        """ModelError for an empty prompt or an id the draft model does not have."""
        kind: Any = MixedSession
        if params.mode == Mode.REJECTION or params.relax_tau:
            kind = ModelDraftSession
        return kind(
            self,
            prompt_ids,
            params,
            seed=seed,
            output_ids=output_ids,
            stop_ids=stop_ids,
            clock=self._clock,
        )

    def beliefs(self, params: SamplingParams) -> Beliefs:
        """Of the mode and temperature, to the nearest tenth; few, for orders choose them."""
        tenth = round(10 * params.temperature / 65536)
        return self._beliefs.setdefault((params.mode, min(tenth, 20)), Beliefs())


class MixedSession(ModelDraftSession):
    confident = True

    def __init__(self, drafter: MixedDrafter, *args: Any, **kwargs: Any) -> None:
        super().__init__(drafter, *args, **kwargs)
        self._worth = drafter.worth
        self._beliefs = drafter.beliefs(self.params)
        self._index = NgramIndex(_SIZES)
        self._index.grow(self.tokens)
        # of each token ahead
        self._sources: list[Source] = []

    def _next(self, coin: DraftCoin | None) -> Step | Feed | None:
        hope = 1.0
        for source in self._sources:
            hope *= self._beliefs.chance(source)
        if hope < self._worth:
            return None
        found = self._looked_up()
        if found is not None:
            self._sources.append(("ngram", found[1]))
            return found[0]
        return super()._next(coin)

    def _chosen(self, rows: Rows, coin: DraftCoin | None) -> Step:
        made = super()._chosen(rows, coin)
        self._sources.append(("model", made.confidence * _BINS >> 16))
        return made

    def _looked_up(self) -> tuple[Step, int] | None:
        """What followed the last tokens before, if such guesses are right often enough."""
        size = _SIZES[0]
        context = [*self.tokens[-size:], *(step.token for step in self._ahead[-size:])]
        found = self._index.find(context)
        if found is None:
            return None
        if self._beliefs.chance(("ngram", found[1])) < _FREE * self._beliefs.model_chance():
            return None
        return Step.certain(self.tokens[found[0]]), found[1]

    def commit(self, emitted: Sequence[int]) -> None:
        for step, source, token in zip(self._ahead, self._sources, emitted, strict=False):
            right = step.token == token
            if source[0] == "model":
                self._beliefs.record(source, right)
            if not right:
                break
        before = len(self._ahead)
        super().commit(emitted)
        kept = len(self._ahead)
        self._sources = self._sources[before - kept :] if kept else []

    def _committed(self, emitted: Sequence[int]) -> None:
        super()._committed(emitted)
        first = len(self.tokens) - len(emitted)
        for at in range(first, len(self.tokens)):
            self._index.grow(self.tokens, at)
            found = self._index.find(self.tokens[max(at - _SIZES[0], 0) : at])
            if found is not None:
                right = self.tokens[found[0]] == self.tokens[at]
                self._beliefs.record(("ngram", found[1]), right)
        self._index.grow(self.tokens)

    def _drop(self, keep: int) -> None:
        super()._drop(keep)
        del self._sources[keep:]
