"""The forward pass of a Llama-family model in floating point (`exact.model` has the integers').

Three rearrangements keep Python and memory traffic low and change no result beyond rounding: query,
key and value (and gate and up) projections are one matrix each; rotary pairs are stored next to
each other, so that the rotation is one complex product; weights are packed (`linear`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from node.inference.architecture import Architecture
from node.inference.cache import Run
from node.inference.linear import Linear
from node.inference.model import Piece, RaggedModel


@dataclass
class Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class LlamaModel(RaggedModel):
    """A Llama-family model in memory (see `LanguageModel`)."""

    def __init__(
        self,
        arch: Architecture,
        embedding: torch.Tensor,
        layers: list[Layer],
        norm: torch.Tensor,
        head: Linear,
        head_ids: np.ndarray | None,
        eos_ids: frozenset[int],
        folder: Path | None = None,
    ) -> None:
        self.arch = arch
        self.folder = folder
        self.vocab_size = arch.vocab_size
        self.hidden_size = arch.hidden_size
        self.context_length = arch.context_length
        self.head_ids = head_ids
        self.eos_ids = eos_ids
        self.device = embedding.device
        self.dtype = embedding.dtype
        self.tier = str(embedding.dtype).removeprefix("torch.")
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        angles = torch.outer(torch.arange(arch.context_length).float(), arch.inv_freq)
        self._rotation = torch.polar(torch.ones_like(angles), angles).to(self.device)

    def truncated(self, arch: Architecture) -> LlamaModel:
        """This model with the first `arch.layers` layers only; weights are shared."""
        return LlamaModel(
            arch,
            self._embedding,
            self._layers[: arch.layers],
            self._norm,
            self._head,
            self.head_ids,
            self.eos_ids,
            self.folder,
        )

    def _read(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = F.rms_norm(x, (self.hidden_size,), self._norm, self.arch.norm_eps)
        return hidden.float(), self._head(hidden).float()

    def _decode(self, chunk: Sequence[Piece]) -> torch.Tensor:
        """All layers over the rows of one chunk: [n, hidden_size], before the final norm."""
        a = self.arch
        ids = [token for piece in chunk for token in piece.tokens]
        x = self._embedding[torch.tensor(ids, device=self.device)]
        rows = [len(piece.tokens) for piece in chunk]
        past = [piece.cache.length for piece in chunk]
        rotation = torch.cat([self._rotation[m : m + n] for m, n in zip(past, rows, strict=True)])[
            :, None, :
        ]
        group = a.heads // a.kv_heads
        masks = [_causal_mask(m, n, group, x) for m, n in zip(past, rows, strict=True)]
        rotated = (a.heads + a.kv_heads) * a.head_dim
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv(F.rms_norm(x, (a.hidden_size,), layer.attention_norm, a.norm_eps))
            qk = qkv[:, :rotated].unflatten(1, (a.heads + a.kv_heads, a.head_dim))
            if layer.query_norm is not None:
                qk = self._normed_heads(qk, layer)
            qk = _rotate(qk, rotation)
            q, k = qk[:, : a.heads], qk[:, a.heads :]
            v = qkv[:, rotated:].unflatten(1, (a.kv_heads, a.head_dim))
            mixed = [
                _attend(qp, p.cache.append(number, kp, vp), mask)
                for p, qp, kp, vp, mask in zip(
                    chunk, q.split(rows), k.split(rows), v.split(rows), masks, strict=True
                )
            ]
            x = x + layer.out(mixed[0] if len(mixed) == 1 else torch.cat(mixed))
            gate_up = layer.gate_up(F.rms_norm(x, (a.hidden_size,), layer.mlp_norm, a.norm_eps))
            gate, up = gate_up.split(a.intermediate_size, dim=1)
            x = x + layer.down(F.silu(gate) * up)
        return x

    def _normed_heads(self, qk: torch.Tensor, layer: Layer) -> torch.Tensor:
        a = self.arch
        q = F.rms_norm(qk[:, : a.heads], (a.head_dim,), layer.query_norm, a.norm_eps)
        k = F.rms_norm(qk[:, a.heads :], (a.head_dim,), layer.key_norm, a.norm_eps)
        return torch.cat([q, k], dim=1)


def _rotate(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of [n, heads, head_dim], pairs adjacent; rotation complex64[n, 1, dim/2]."""
    pairs = torch.view_as_complex(heads.float().unflatten(2, (-1, 2)))
    return torch.view_as_real(pairs * rotation).flatten(2).to(heads.dtype)


def _causal_mask(past: int, rows: int, group: int, like: torch.Tensor) -> torch.Tensor | None:
    """Additive mask [group * rows, past + rows], or None for one row, which sees everything."""
    if rows == 1:
        return None
    mask = torch.full((rows, past + rows), -torch.inf, dtype=like.dtype, device=like.device)
    return mask.triu_(past + 1).repeat(group, 1)


def _attend(q: torch.Tensor, runs: Sequence[Run], mask: torch.Tensor | None) -> torch.Tensor:
    """Grouped-query attention of one span over its keys and values, wherever they lie.

    The queries of a group share their keys, so they are stacked as rows against one matrix instead
    of copying keys per head. Several runs are multiplied one by one and normalised together, so
    that a table of scattered blocks is not gathered first.

    Args:
        q: [n, heads, dim]; runs: keys and values, [kv_heads, tokens, dim]; mask as `_causal_mask`.

    Returns:
        [n, heads * dim].
    """
    n, heads, dim = q.shape
    kv_heads = len(runs[0][0])
    grouped = q.unflatten(1, (kv_heads, heads // kv_heads)).permute(1, 2, 0, 3).flatten(1, 2)
    if len(runs) == 1:
        k, v = runs[0]
        out = F.scaled_dot_product_attention(grouped[None], k[None], v[None], attn_mask=mask)[0]
    else:
        scores = torch.cat([grouped @ k.transpose(1, 2) for k, _ in runs], dim=2) * dim**-0.5
        if mask is not None:
            scores += mask
        weights = scores.float().softmax(dim=2).to(q.dtype).split([k.shape[1] for k, _ in runs], 2)
        out = torch.stack([w @ v for w, (_, v) in zip(weights, runs, strict=True)]).sum(dim=0)
    return out.unflatten(1, (heads // kv_heads, n)).permute(2, 0, 1, 3).reshape(n, heads * dim)
