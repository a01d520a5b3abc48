"""Teach a small Llama the target's distribution at every step of the target's own text.

The draft borrows the target's embedding, frozen, at both ends. It learns its layers, its last norm
and a square matrix before the head (``lens``).
Per position the loss is over the target's k most probable ids and one bucket for all the others:

    L = w · KL(p ‖ q) + TV(p, q),   w large at first, 0.3 later

KL finds the way from afar; total variation is what is measured, since rejection accepts with
probability 1 - TV and coupling with at least (1 - TV) / (1 + TV).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from node.inference.shipped_draft import HEAD_MAP
from scripts.draft.llama import Shape, Weights, forward
from scripts.draft.shards import Sequence

Tensor = torch.Tensor


@dataclass(frozen=True)
class Batch:
    """Padded sequences with the labels of those positions where the target is known.

    Attributes:
        tokens: (rows, length) long, padded at the right (causal attention never looks there).
        where: (labels,) long, flat index row · length + position of the hidden state that predicts.
        ids: (labels, k) long, indices *into the reduced head*; -1 for ids that it lacks.
        p: (labels, k) float32, the target's probabilities.
        truth: (labels,) long, the token that followed, as target id.
    """

    tokens: Tensor
    where: Tensor
    ids: Tensor
    p: Tensor
    truth: Tensor


def choose_head_ids(corpus: list[Sequence], vocab: int, size: int, always: list[int]) -> np.ndarray:
    """The ids to which the target gives most mass over a corpus: uint32 (size,), ascending.

    Ids never seen are filled in from the lowest up: byte-level BPE numbers frequent merges first.
    """
    mass = np.zeros(vocab)
    for sequence in corpus:
        np.add.at(
            mass,
            sequence.top_ids.ravel().astype(np.int64),
            np.exp(sequence.top_logp.ravel().astype(np.float64)),
        )
    # An id that lies deep in many tails is worth less than one that was certain once.
    score = mass + np.linspace(1e-9, 0.0, vocab)
    score[always] = np.inf
    best = np.argsort(-score, kind="stable")[:size]
    return np.sort(best).astype(np.uint32)


def batches(
    corpus: list[Sequence],
    head_index: np.ndarray,
    *,
    tokens_per_batch: int,
    rng: np.random.Generator,
    device: str,
) -> Iterator[Batch]:
    """One pass over a corpus in random order, sequences of like length together.

    Args:
        head_index: (vocabulary,) int64, place of an id in the reduced head or -1.
    """
    lengths = np.array([len(s.tokens) for s in corpus]) + rng.uniform(0, 24, len(corpus))
    order = np.argsort(lengths)
    groups: list[list[int]] = []
    group: list[int] = []
    longest = 0
    for i in order:
        longest = max(longest, len(corpus[i].tokens))
        if group and longest * (len(group) + 1) > tokens_per_batch:
            groups.append(group)
            group, longest = [], len(corpus[i].tokens)
        group.append(int(i))
    if group:
        groups.append(group)
    for g in rng.permutation(len(groups)):
        yield _batch([corpus[i] for i in groups[g]], head_index, device)


def _batch(rows: list[Sequence], head_index: np.ndarray, device: str) -> Batch:
    length = max(len(r.tokens) for r in rows)
    tokens = np.zeros((len(rows), length), dtype=np.int64)
    where, truth = [], []
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens)] = row.tokens
        at = np.flatnonzero(row.labelled)
        where.append(i * length + at - 1)
        truth.append(row.tokens[at].astype(np.int64))
    ids = head_index[np.concatenate([r.top_ids for r in rows]).astype(np.int64)]
    p = np.exp(np.concatenate([r.top_logp for r in rows]).astype(np.float32))
    return Batch(
        *(
            torch.from_numpy(a).to(device)
            for a in (tokens, np.concatenate(where), ids, p, np.concatenate(truth))
        )
    )


def losses(logits: Tensor, ids: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """KL and total variation per position, over the given ids and one bucket for the rest.

    Args:
        logits: (n, head) float32 of the draft; ids: (n, k) indices into the head, -1 where the
            head lacks the id (the draft then gives it no mass); p: (n, k) of the target.

    Returns:
        Two (n,) float32. KL leaves ids out that the draft cannot propose (it would be infinite);
        total variation counts them in full.
    """
    known = ids >= 0
    logq = logits.gather(1, ids.clamp(min=0)) - torch.logsumexp(logits, 1, keepdim=True)
    logq = torch.where(known, logq, torch.full_like(logq, -1e4))
    q = logq.exp()
    p_rest = (1.0 - p.sum(1)).clamp(min=0.0)
    q_rest = (1.0 - q.sum(1)).clamp(min=1e-6)
    inside = torch.where(known, p, torch.zeros_like(p))
    kl = (inside * (inside.clamp(min=1e-9).log() - logq.clamp(min=-30.0))).sum(1)
    kl = kl + p_rest * (p_rest.clamp(min=1e-9).log() - q_rest.log())
    tv = 0.5 * ((p - q).abs().sum(1) + (p_rest - q_rest).abs())
    return kl, tv


class Draft:
    """A draft in training: float32 master weights, forward in bfloat16.

    Args:
        config: the draft's ``LlamaConfig`` as a dict.
        tensors: initial layers and last norm by Hugging Face name, and under ``HEAD_MAP`` the
            (hidden, hidden) matrix between last norm and head.
        embedding: the target's, (vocabulary, hidden), frozen.
        head_ids: uint32 (head,) ids that the draft can propose.
    """

    def __init__(
        self,
        config: dict[str, Any],
        tensors: dict[str, Tensor],
        embedding: Tensor,
        head_ids: np.ndarray,
    ) -> None:
        self.config, self.shape, self.embedding = config, Shape.of(config), embedding
        self.tensors = {
            name: t.detach().to(embedding.device, torch.float32).clone().requires_grad_()
            for name, t in tensors.items()
        }
        self.head_ids = head_ids
        self.head = embedding[torch.from_numpy(head_ids.astype(np.int64)).to(embedding.device)]
        self.head_index = np.full(embedding.shape[0], -1, dtype=np.int64)
        self.head_index[head_ids] = np.arange(len(head_ids))

    def logits(self, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        """(labels, head) float32 at the labelled positions of a batch."""
        low = {name: t.to(self.embedding.dtype) for name, t in self.tensors.items()}
        hidden = forward(
            Weights(low, self.shape), F.embedding(batch.tokens, self.embedding), cos, sin
        )
        flat = hidden.reshape(-1, hidden.shape[-1])[batch.where]
        return F.linear(F.linear(flat, low[HEAD_MAP]), self.head).float()


def initial_layers(
    config: dict[str, Any], target: dict[str, Tensor], take: list[int]
) -> dict[str, Tensor]:
    """Layers copied from the target: draft layer i is the target's layer ``take[i]``. The head map
    is the identity."""
    norm = target["model.norm.weight"]
    tensors = {"model.norm.weight": norm, HEAD_MAP: torch.eye(len(norm), dtype=norm.dtype)}
    for i, source in enumerate(take):
        prefix = f"model.layers.{source}."
        for name, tensor in target.items():
            if name.startswith(prefix):
                tensors[f"model.layers.{i}." + name.removeprefix(prefix)] = tensor
    if len(take) != config["num_hidden_layers"]:
        raise ValueError(f"{len(take)} layers taken for {config['num_hidden_layers']}")
    return tensors


def optimisers(draft: Draft, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for matrices, AdamW for norms; ``lr`` in AdamW's scale for both."""
    matrices = [t for t in draft.tensors.values() if t.ndim == 2]
    vectors = [t for t in draft.tensors.values() if t.ndim != 2]
    return [
        torch.optim.Muon(
            matrices, lr=lr, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(vectors, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
