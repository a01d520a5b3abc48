"""What a model's passes cost on this machine: the first guess of window control, and what a node
announces as its speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from node.inference.model import LanguageModel, Span


def pass_seconds(
    model: LanguageModel,
    rows: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    context: int = 128,
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Seconds of one pass with each number of rows behind `context` tokens, the best of `repeats`.

    The best, because everything else that runs can only make a pass look slower. Row counts that
    do not fit the model's context are left out.
    """
    context = min(context, model.context_length // 2)
    counts = [n for n in rows if context + n <= model.context_length]
    text = [i % model.vocab_size for i in range(context + max(counts))]
    cache = model.new_cache()
    model.forward([Span(cache, text[:context])])
    best: dict[int, float] = {}
    for attempt in range(repeats + 1):
        for n in counts:
            start = clock()
            model.forward([Span(cache, text[context : context + n], n)])
            seconds = clock() - start
            cache.truncate(context)
            if attempt:  # the first time a shape is seen, kernels are set up
                best[n] = min(best.get(n, seconds), seconds)
    return best
