"""Prompt lookup: propose what followed the last few tokens when they occurred before.

Costs microseconds and pays where the output copies its prompt or repeats itself (code edits,
summaries, extraction). After "prompt lookup decoding" (Saxena 2023).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from node.inference.drafter import DraftSession, Step
from node.inference.params import SamplingParams
from node.inference.proposal import DraftCoin
from settlement.records import Mode

_LONGEST = 16


class NgramIndex:
    """Where each n-gram of a growing text last occurred with something behind it.

    Args:
        sizes: lengths of n-gram, longest first.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        # n-gram -> index of the token after its last occurrence that has one
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def grow(self, tokens: Sequence[int], length: int | None = None) -> None:
        """Take in what tokens[:length] has more than last time."""
        length = len(tokens) if length is None else length
        for end in range(max(self._indexed, 1), length):
            for size in self.sizes:
                if size <= end:
                    self._after[tuple(tokens[end - size : end])] = end
        self._indexed = length

    def find(self, context: Sequence[int]) -> tuple[int, int] | None:
        """For the longest n-gram that ends the context and occurred before: (the index of the
        token that followed it, its length)."""
        for size in self.sizes:
            if size <= len(context):
                found = self._after.get(tuple(context[len(context) - size :]))
                if found is not None:
                    return found, size
        return None


def followed(tokens: Sequence[int], source: int, count: int) -> tuple[int, ...]:
    """What stands from `source` on; past the end it is what was taken before: a repetition."""
    taken: list[int] = []
    for at in range(source, source + count):
        taken.append(_token_at(tokens, taken, at))
    return tuple(taken)


def _token_at(tokens: Sequence[int], taken: Sequence[int], at: int) -> int:
    """Of a text and what was proposed behind it."""
    return tokens[at] if at < len(tokens) else taken[at - len(tokens)]


class LookupDrafter:
    """Drafts by the longest recent n-gram that occurred earlier in prompt or output.

    Args:
        longest, shortest: lengths of n-gram tried, longest first.
    """

    def __init__(
        self,
        longest: int = 3,
        shortest: int = 1,
        *,
        name: str = "ngram",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not 1 <= shortest <= longest <= _LONGEST:
            raise ValueError(
                f"n-grams of {shortest} to {longest} tokens: need 1 <= shortest <= longest "
                f"<= {_LONGEST}, for every token of the text is indexed once per length"
            )
        self.name = name
        self.sizes = range(longest, shortest - 1, -1)
        self._clock = clock

    def open(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        stop_ids: frozenset[int] = frozenset(),
    ) -> LookupSession:
        return LookupSession(
            self.sizes,
            prompt_ids,
            params,
            seed=seed,
            output_ids=output_ids,
            stop_ids=stop_ids,
            clock=self._clock,
        )


class LookupSession(DraftSession):
    """Indexes the committed text as it grows; a proposal follows one earlier occurrence."""

    quick = True

    def __init__(
        self,
        sizes: Sequence[int],
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: bytes,
        output_ids: Sequence[int],
        stop_ids: frozenset[int],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            prompt_ids,
            params,
            seed=seed,
            output_ids=output_ids,
            stop_ids=stop_ids,
            clock=clock,
        )
        self._index = NgramIndex(sizes)
        self._index.grow(self.tokens)
        self._source: int | None = None

    def _next(self, coin: DraftCoin | None) -> Step | None:
        if not self._ahead:
            found = self._index.find(self.tokens)
            self._source = None if found is None else found[0]
        source = None if self._source is None else self._source + len(self._ahead)
        if source is None:
            if self.params.mode != Mode.REJECTION:
                return None
            # The round's K is fixed in rejection mode, so something must be proposed.
            return Step.certain(self.tokens[-1])
        return Step.certain(_token_at(self.tokens, [step.token for step in self._ahead], source))

    def _rewind(self, length: int) -> None:
        if length <= len(self.tokens):
            self._source = None

    def _committed(self, emitted: Sequence[int]) -> None:
        # A kept surplus goes on from the same occurrence; `_source` counts from the new base.
        if self._ahead and self._source is not None:
            self._source += len(emitted)
        self._index.grow(self.tokens)
