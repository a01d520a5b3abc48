"""A draft model with the target's tokenizer, its head over all ids or over frequent ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from node.inference import sampling
from node.inference.choice import Columns
from node.inference.drafter import DraftSession, Feed, Step
from node.inference.model import LanguageModel, Rows, Span, check_tokens
from node.inference.params import History, SamplingParams
from node.inference.proposal import DraftCoin
from settlement.acceptance import greedy_argmax
from settlement.coins import draw_coin
from settlement.masses import kept_list, masses_from_probabilities
from settlement.records import MAX_KEPT, MAX_TOP, Mode


class ModelDrafter:
    """Drafts with a causal model.

    Args:
        model: ids mean what they mean to the target (`tokens.require_same_tokens`).
        vocab_size: of the target; columns at or above it are never proposed.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocab_size: int | None = None,
        *,
        name: str = "model",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self.model = model
        self.vocab_size = vocab_size or model.vocab_size
        self._clock = clock
        ids = np.arange(model.vocab_size) if model.head_ids is None else model.head_ids
        #: token id of each usable column, ascending
        self.ids = ids[ids < self.vocab_size]
        self.columns: np.ndarray | None = None
        if model.head_ids is not None:
            self.columns = np.full(max(model.vocab_size, self.vocab_size), -1, np.int64)
            self.columns[self.ids] = np.arange(len(self.ids))
        self.choice = Columns(self.ids, self.vocab_size)

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
        return ModelDraftSession(
            self,
            prompt_ids,
            params,
            seed=seed,
            output_ids=output_ids,
            stop_ids=stop_ids,
            clock=self._clock,
        )


class ModelDraftSession(DraftSession):
    """Keeps a cache over tokens + ahead; whatever it lacks is fed with the next token asked for.

    So after a full accept, where the last draft was never fed, it is fed together with the
    verifier's own token: the cache is never one short.
    """

    #: whether steps carry a confidence
    confident = False

    def __init__(
        self,
        drafter: ModelDrafter,
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
        check_tokens(self.tokens, drafter.model.vocab_size)
        self._drafter = drafter
        self._cache = drafter.model.new_cache()
        self._history = History(prompt_ids, output_ids)

    @property
    def cached(self) -> int:
        """Tokens in the draft model's cache."""
        return self._cache.length

    def _next(self, coin: DraftCoin | None) -> Step | Feed | None:
        drafter = self._drafter
        if self.params.mode != Mode.REJECTION:
            full = len(self.tokens) + len(self._ahead) >= drafter.model.context_length
            if full:  # a target's context can be longer than the draft's
                return None
        ahead = [step.token for step in self._ahead]
        missing = [*self.tokens, *ahead][self._cache.length :]
        return Feed(drafter.model, Span(self._cache, missing))

    def _chosen(self, rows: Rows, coin: DraftCoin | None) -> Step:
        drafter, params = self._drafter, self.params
        ahead = [step.token for step in self._ahead]
        logits = rows.logits[:, : len(drafter.ids)]
        z = sampling.penalised(
            logits, params, self._history, ahead, first=len(ahead), columns=drafter.columns
        )
        scores = sampling.fixed_point(z, params.score_temperature)
        cutoff = sampling.cutoffs(scores, params)
        position = self.position + len(ahead)
        kept: tuple[tuple[int, int], ...] = ()
        if params.mode == Mode.GREEDY:
            token = int(drafter.ids[greedy_argmax(scores[0].cpu().numpy())])
        elif params.mode == Mode.COUPLED:
            # The target's rule on the draft's scores: same noise, by token id.
            table = scores[0].cpu().numpy()
            token = drafter.choice.argmax(table, self.seed, position, int(cutoff[0]))
        else:
            assert coin is not None
            kept, token = self._draw(scores, cutoff, position, coin)
        if not params.relax_tau:
            confidence = int(sampling.top_probabilities(logits)[0]) if self.confident else 0
            return Step(token, kept, confidence=confidence)
        column = int(np.searchsorted(drafter.ids, token))
        surprisal = sampling.surprisals(logits, [column])[0]
        order = np.argsort(-scores[0].cpu().numpy(), kind="stable")[:MAX_TOP]
        return Step(token, kept, surprisal, tuple(int(t) for t in drafter.ids[order]))

    def _draw(
        self, scores: torch.Tensor, cutoff: torch.Tensor, position: int, coin: DraftCoin
    ) -> tuple[tuple[tuple[int, int], ...], int]:
        """Keep the best tokens, at most 64, and draw one of them with the committed coin."""
        p = sampling.probabilities(scores, cutoff)[0].cpu().numpy()
        best = np.argsort(-p, kind="stable")[:MAX_KEPT]
        columns = np.sort(best[p[best] > 0])
        masses = masses_from_probabilities(p, columns)
        kept = kept_list(self._drafter.ids[columns], masses)
        w = draw_coin(coin.chain_value, self.seed, coin.context_hash, position)
        return kept, token_at(kept, w)

    def _rewind(self, length: int) -> None:
        self._cache.truncate(min(self._cache.length, length))

    def _committed(self, emitted: Sequence[int]) -> None:
        self._history.commit(emitted)

    def close(self) -> None:
        self._cache = self._drafter.model.new_cache()


def token_at(kept: tuple[tuple[int, int], ...], w: int) -> int:
    """The token whose interval of a kept list holds w: below <= w < below + mass."""
    below = 0
    for token, mass in kept:
        below += mass
        if w < below:
            return token
    raise ValueError(f"coin {w} is past the list's total mass {below}")
