"""The target's word at one position, worked out from logits as far as the rule asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from node.inference import choice, sampling
from node.inference.params import History, SamplingParams
from settlement import noise
from settlement.acceptance import ScoreRow
from settlement.masses import UInt64s, masses_from_probabilities
from settlement.records import NO_CUTOFF, Mode


@dataclass(frozen=True)
class ModelRow(ScoreRow):
    """A `TargetRow` over one row of logits; masses and surprisals are computed on demand.

    Attributes:
        logits: float32[V], as the model gave them; float64 in the exact tier.
    """

    logits: torch.Tensor | None = None

    def choose(self, mode: Mode, seed: bytes, position: int) -> tuple[int, int]:
        if mode == Mode.GREEDY:
            return super().choose(mode, seed, position)
        return choice.coupled_argmax(self.scores, seed, position, self.cutoff)

    def masses(self) -> UInt64s:
        scores = torch.from_numpy(self.scores)[None]
        cutoff = torch.tensor([self.cutoff])
        if self.logits is not None and self.logits.dtype == torch.float64:
            # Integers, whose sum is the same in any order: not normalised before the masses are.
            p = sampling.weights(scores, cutoff, exact=True)
        else:
            p = sampling.probabilities(scores, cutoff)
        return masses_from_probabilities(p[0].numpy())

    def surprisal(self, token: int) -> int:
        assert self.logits is not None
        return sampling.surprisals(self.logits[None], [token])[0]

    def margin(self, seed: bytes, position: int, mode: Mode, token: int) -> int:
        """How far the best other token's (perturbed) score stays below `token`'s, Q24.

        Negative when `token` is not the rule's choice. In a vocabulary of one kept token: 2**62.
        """
        best, score = self.choose(mode, seed, position)
        if token != best:
            return self.score(mode, seed, position, token) - score
        others = self.scores >= self.cutoff
        others[best] = False
        if not others.any():
            return 1 << 62
        if mode == Mode.GREEDY:
            return score - int(self.scores[others].max())
        return score - noise.coupled_argmax(self.scores, seed, position, others)[1]


def target_rows(
    logits: torch.Tensor, params: SamplingParams, history: History, drafts: Sequence[int] = ()
) -> list[ModelRow]:
    """The rows that `acceptance.decide_round` takes.

    Args:
        logits: float32[n, V], or float64 in the exact tier; row i predicts the token after
            drafts[:i].
        history: the session's tokens before the drafts.
    """
    z = sampling.penalised(logits, params, history, drafts)
    scores = sampling.fixed_point(z, params.score_temperature)
    if params.has_filters:
        cutoffs = sampling.cutoffs(scores, params, logits.dtype == torch.float64).tolist()
    else:
        cutoffs = [NO_CUTOFF] * len(logits)
    tops = sampling.top_probabilities(logits).tolist()
    table: np.ndarray = scores.cpu().numpy()
    return [
        ModelRow(scores=row, cutoff=cutoff, top_prob=top, logits=z_row)
        for row, cutoff, top, z_row in zip(table, cutoffs, tops, logits, strict=True)
    ]
