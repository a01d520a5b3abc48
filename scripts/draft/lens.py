"""A start for the draft: its hidden states mapped onto the target's last ones by least squares.

A draft's few layers stop where the target's residual stream still says what was read, not what
comes next, and the head, the target's own, is frozen. One square matrix between the two, fitted in
closed form (a "tuned lens", arXiv 2303.08112), already predicts better than an hour of training
without it; it then learns on with the layers, and is multiplied into the head when a draft is
materialised, so that it costs nothing at run time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from scripts.draft.llama import Weights, forward, rotary_table
from scripts.draft.shards import Sequence

Tensor = torch.Tensor


@torch.no_grad()
def hidden_states(weights: Weights, embedding: Tensor, rows: list[Sequence]) -> Tensor:
    """Last hidden states of all positions of all rows, float32 (positions, hidden)."""
    cos, sin = rotary_table(weights.shape, max(len(r.tokens) for r in rows), embedding.device)
    out = []
    for row in rows:
        ids = torch.from_numpy(row.tokens.astype(np.int64)).to(embedding.device)
        out.append(forward(weights, F.embedding(ids, embedding)[None], cos, sin)[0].float())
    return torch.cat(out)


def fit(source: Tensor, wanted: Tensor, ridge: float = 0.03) -> Tensor:
    """The matrix A, (hidden, hidden), with ``source @ A.T`` nearest to ``wanted``.

    Args:
        source, wanted: (positions, hidden) float32.
        ridge: penalty on A, in parts of the mean square of the source.
    """
    square = source.T @ source
    penalty = ridge * square.diagonal().mean() * torch.eye(len(square), device=square.device)
    return torch.linalg.solve(square + penalty, source.T @ wanted).T.contiguous()


def head_map(
    draft: Weights,
    target: Weights,
    embedding: Tensor,
    corpus: list[Sequence],
    *,
    positions: int,
    seed: int,
) -> Tensor:
    """Fit on sequences picked by seed until they hold ``positions`` tokens."""
    rows: list[Sequence] = []
    total = 0
    for i in np.random.default_rng([seed, 4]).permutation(len(corpus)):
        rows.append(corpus[i])
        total += len(corpus[i].tokens)
        if total >= positions:
            break
    return fit(hidden_states(draft, embedding, rows), hidden_states(target, embedding, rows))
