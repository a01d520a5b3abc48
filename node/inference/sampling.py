"""From logits to integer scores: the processors both sides of a session apply, in one order.

The order, which is part of what an order's parameters mean:

1. repetition penalty over prompt and output (a positive logit is divided by it, a negative one
   multiplied: CTRL, arXiv 1909.05858), then presence and frequency penalties over the output;
2. temperature and the fixed-point grid in one step: ``rint(float64(z) * 2**40 / t)`` with the
   temperature t in Q16, giving scores in Q24 (protocol section 4). Everything after is integers,
   but for the probabilities that top-p and rejection mode need;
3. top-k, then top-p over what top-k left. A filter is one number, the *cut-off*: a token is kept
   iff its score is at least that, so ties at the cut-off stay together.

Greedy mode has temperature 1 for its scores and ignores the filters: they never remove a maximum.

The exact tier's logits are float64 (multiples of 2**-24): for them, and where `exact` is asked for,
exponentials come from integer tables, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from node.inference import logit_rows
from node.inference.exact import weights as integer_weights
from node.inference.params import Q24, History, SamplingParams
from node.inference.proposal import Logprob
from settlement.records import NO_CUTOFF, Q16

# How many of the best tokens top-p looks at before it sorts the whole vocabulary.
_TOP_P_HEAD: Final = 256


def penalised(
    logits: torch.Tensor,
    params: SamplingParams,
    history: History,
    drafts: Sequence[int] = (),
    first: int = 0,
    columns: np.ndarray | None = None,
) -> torch.Tensor:
    """Step 1 of the module's order, in float64.

    Args:
        logits: float[n, V]; row i predicts the token after drafts[:first + i].
        columns: int64[vocabulary] mapping a token id to its column, -1 where it has none; for a
            head over part of the vocabulary.

    Returns:
        float64[n, V]; `logits` is not changed.
    """
    if not params.has_penalties:
        return logits.double()
    z = logits.to(torch.float64, copy=True)
    ids, seen, counts = history.window(drafts, len(logits), first)
    if not ids:
        return z
    at = np.asarray(ids, dtype=np.int64)
    if columns is not None:
        at = columns[at]
        seen, counts, at = seen[:, at >= 0], counts[:, at >= 0], at[at >= 0]
    where = torch.from_numpy(at).to(z.device)
    old = z[:, where]
    repetition = params.repetition_penalty / Q16
    repeated = torch.where(old > 0, old / repetition, old * repetition)
    new = torch.where(torch.from_numpy(seen).to(z.device), repeated, old)
    times = torch.from_numpy(counts).to(z.device)
    new = (
        new
        - (times > 0) * (params.presence_penalty / Q16)
        - times * (params.frequency_penalty / Q16)
    )
    z[:, where] = new
    return z


def fixed_point(z: torch.Tensor, temperature: int) -> torch.Tensor:
    """Scores in Q24: ``rint(z * 2**40 / temperature)`` as int64, clamped to +-2**61.

    The product is by a power of two and so exact; the quotient rounds once, the same on every
    IEEE machine. A NaN counts as the lowest score: a broken model must not pick tokens by accident.
    """
    return logit_rows.fixed_point(z, temperature)


def cutoffs(scores: torch.Tensor, params: SamplingParams, exact: bool = False) -> torch.Tensor:
    """Step 3: the lowest kept score of each row, int64[n]; NO_CUTOFF where nothing is filtered.

    Args:
        scores: int64[n, V], Q24.
    """
    rows, width = scores.shape
    out = torch.full((rows,), NO_CUTOFF, dtype=torch.int64, device=scores.device)
    if not params.has_filters:
        return out
    if 0 < params.top_k < width:
        out = torch.topk(scores, params.top_k, dim=1).values[:, -1]
    if params.top_p < Q16:
        out = torch.maximum(out, _top_p_cutoffs(scores, out, params.top_p / Q16, exact))
    return out


def _top_p_cutoffs(
    scores: torch.Tensor, floor: torch.Tensor, top_p: float, exact: bool
) -> torch.Tensor:
    width = scores.shape[1]
    total = weights(scores, floor, exact).sum(dim=1, keepdim=True)
    for head in (min(_TOP_P_HEAD, width), width):
        best = torch.topk(scores, head, dim=1).values
        mass = weights(best, floor, exact).cumsum(dim=1) / total
        reached = mass >= top_p
        if head == width or bool(reached[:, -1].all()):
            break
    # Rounding can leave the last sum a hair under a top_p close to 1: then all is kept.
    first = torch.where(reached.any(dim=1), reached.int().argmax(dim=1), head - 1)
    return best.gather(1, first[:, None])[:, 0]


def weights(scores: torch.Tensor, cutoff: torch.Tensor, exact: bool = False) -> torch.Tensor:
    """Unnormalised probabilities, float64[n, V]: exp(score - row maximum), 0 below the cut-off;
    2**32 times that and rounded down to integers where `exact`."""
    if exact:
        return integer_weights.weights(scores, cutoff)
    relative = (scores - scores.max(dim=1, keepdim=True).values).double() / float(Q24)
    return torch.where(scores >= cutoff[:, None], relative.exp(), 0.0)


def probabilities(scores: torch.Tensor, cutoff: torch.Tensor) -> torch.Tensor:
    """The distribution that rejection mode works on: float64[n, V], rows sum to 1."""
    w = weights(scores, cutoff)
    return w / w.sum(dim=1, keepdim=True)


def top_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """The largest probability at temperature 1, before penalties and filters, in 16 bits.

    Returns:
        int64[n] in [0, 65535]: min(floor(p * 2**16), 65535). The alpha buckets are cut from it.
    """
    if logits.dtype == torch.float64:
        return logit_rows.top_probabilities(logits)
    z = logits.float()
    p = torch.exp(z.max(dim=1).values.double() - torch.logsumexp(z, dim=1).double())
    return (p * 65536.0).floor().clamp(0, 65535).to(torch.int64)


def logprobs(logits: torch.Tensor, tokens: Sequence[int], top: int = 0) -> tuple[Logprob, ...]:
    """Log-probabilities of tokens as the model gave them: of row i, tokens[i] and the `top` best.

    Args:
        logits: float[n, V], n at least the number of tokens; further rows are not looked at.
    """
    if not tokens:
        return ()
    nats = torch.log_softmax(logits[: len(tokens)].double(), dim=1)
    best = torch.topk(nats, min(top, nats.shape[1]), dim=1)
    return tuple(
        Logprob(token, float(row[token]), tuple(zip(ids, values, strict=True)))
        for token, row, ids, values in zip(
            tokens, nats, best.indices.tolist(), best.values.tolist(), strict=True
        )
    )


def surprisals(logits: torch.Tensor, tokens: Sequence[int]) -> list[int]:
    """-ln of each token's probability at temperature 1, before penalties and filters: Q16 nats.

    Args:
        logits: float[n, V]; row i is asked about column tokens[i].

    Returns:
        n ints in [0, 2**32 - 1], rounded to the nearest.
    """
    if logits.dtype == torch.float64:
        return integer_weights.surprisals(logits, tokens)
    z = logits.float().double()
    at = torch.as_tensor(tokens, device=z.device)[:, None]
    nats = torch.logsumexp(z, dim=1) - z.gather(1, at)[:, 0]
    return [min(max(round(x * Q16), 0), (1 << 32) - 1) for x in nats.tolist()]
