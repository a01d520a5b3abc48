"""The forward pass of a Llama-family model: one path for prompts, windows and batches of sessions.

A pass takes any number of *spans*: some tokens to append to some session's cache. The matrix
products run over all spans' tokens at once, attention runs span by span over that span's own cache,
so nothing is padded and sessions of any length join and leave between passes.

What a model must offer to draft or to verify is `LanguageModel`: `new_cache` for one session by
itself, `forward` over spans, and, where many sessions are to share a bounded memory, `new_pool`
(`cache.CachePool`; `paged.BlockPool` here). A pool's caches are passed to `forward` like any other.
A model without `new_pool` is verified with too: its sessions' tokens are then only counted
(`cache.CountedPool`). The forward here asks of its caches `reserve(n)` before a pass (all or
nothing), `append(layer, keys, values)`, which returns the *runs* to attend over, `advance(n)` after
the last layer, and `truncate(length)`; other models may ask something else of theirs.

Three rearrangements keep Python and memory traffic low and change no result beyond rounding: query,
key and value (and gate and up) projections are one matrix each; rotary pairs are stored next to
each other, so that the rotation is one complex product; weights are packed (`linear`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from node.inference.architecture import Architecture, ModelError
from node.inference.cache import Cache, KVCache, Run
from node.inference.linear import Linear
from node.inference.paged import BlockPool, PagedCache

# A pass is cut into pieces of at most this many rows: bounds the memory that attention scores need.
PREFILL_CHUNK = 512


@dataclass
class Span:
    """Tokens to append to one session, and how many of the last rows to return.

    Attributes:
        cache: made by the same model's `new_cache` or by a pool of its `new_pool`.
        tokens: at least one id below the vocabulary size.
        rows: 1 <= rows <= len(tokens).
    """

    cache: Cache
    tokens: Sequence[int]
    rows: int = 1


@dataclass(frozen=True)
class Rows:
    """The last rows of a span. Row i predicts the token that follows the span's (rows - i)-th last.

    Attributes:
        hidden: float32[rows, hidden_size], what the output head reads (after the final norm).
        logits: float32[rows, V], V the vocabulary, or the columns of a reduced head.
    """

    hidden: torch.Tensor
    logits: torch.Tensor


class LanguageModel(Protocol):
    """What verifiers and drafters need of a model. Not thread-safe: one worker per device.

    Attributes:
        vocab_size: of the embedding; ids at or above it are refused.
        head_ids: int64[V], ascending token ids of the logits' columns, or None for all ids.
        eos_ids: ids that end an output.
        context_length: most tokens of one session, prompt and output.
        tier: "float32" or "bfloat16" (later "exact").
    """

    vocab_size: int
    hidden_size: int
    context_length: int
    head_ids: np.ndarray | None
    eos_ids: frozenset[int]
    tier: str
    device: torch.device

    def new_cache(self) -> Cache:
        """An empty cache for one session by itself, which grows up to the context length."""
        ...

    def forward(self, spans: Sequence[Span]) -> list[Rows]:
        """Append every span to its cache and return its last rows.

        Raises:
            ContextOverflow: a span does not fit its context; no cache has changed.
            ModelError: an id outside the vocabulary; no cache has changed.
        """
        ...


@dataclass
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


def check_tokens(tokens: Sequence[int], vocab_size: int) -> None:
    """ModelError unless there is at least one token and all are below `vocab_size`."""
    if not tokens:
        raise ModelError("no tokens: an empty prompt cannot be continued")
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        bad = next(t for t in tokens if not 0 <= t < vocab_size)
        raise ModelError(f"token id {bad} is outside the vocabulary of {vocab_size}")


class LlamaModel:
    """A Llama-family model in memory (see `LanguageModel`)."""

    def __init__(
        self,
        arch: Architecture,
        embedding: torch.Tensor,
        layers: list[_Layer],
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

    def new_cache(self) -> KVCache:
        a = self.arch
        return KVCache(a.layers, a.kv_heads, a.head_dim, a.context_length, self.dtype, self.device)

    def new_pool(self, tokens: int) -> BlockPool:
        """Memory for sessions of `tokens` together, in blocks that they can share."""
        a = self.arch
        return BlockPool(
            a.layers, a.kv_heads, a.head_dim, a.context_length, self.dtype, self.device, tokens
        )

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> list[Rows]:
        for span in spans:
            check_tokens(span.tokens, self.vocab_size)
            if not 1 <= span.rows <= len(span.tokens):
                raise ModelError(f"{span.rows} rows asked of {len(span.tokens)} tokens")
        lengths = [span.cache.length for span in spans]
        for span in spans:
            span.cache.reserve(len(span.tokens))
        try:
            return self._run(spans)
        except BaseException:
            for span, length in zip(spans, lengths, strict=True):
                span.cache.truncate(length)
            raise

    def _run(self, spans: Sequence[Span]) -> list[Rows]:
        outputs: list[list[torch.Tensor]] = [[] for _ in spans]
        for chunk in _chunks(spans):
            x = self._decode(chunk)
            for index, piece in zip(
                (p.index for p in chunk), x.split([len(p.tokens) for p in chunk]), strict=True
            ):
                outputs[index].append(piece)
            for piece in chunk:
                piece.cache.advance(len(piece.tokens))
        last = [torch.cat(parts)[-s.rows :] for s, parts in zip(spans, outputs, strict=True)]
        hidden = F.rms_norm(torch.cat(last), (self.hidden_size,), self._norm, self.arch.norm_eps)
        sizes = [span.rows for span in spans]
        logits = self._head(hidden).float().split(sizes)
        return [Rows(h, z) for h, z in zip(hidden.float().split(sizes), logits, strict=True)]

    def _decode(self, chunk: Sequence[_Piece]) -> torch.Tensor:
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

    def _normed_heads(self, qk: torch.Tensor, layer: _Layer) -> torch.Tensor:
        a = self.arch
        q = F.rms_norm(qk[:, : a.heads], (a.head_dim,), layer.query_norm, a.norm_eps)
        k = F.rms_norm(qk[:, a.heads :], (a.head_dim,), layer.key_norm, a.norm_eps)
        return torch.cat([q, k], dim=1)


@dataclass
class _Piece:
    """The part of span number `index` that goes into one chunk."""

    index: int
    cache: KVCache | PagedCache
    tokens: Sequence[int]


def _chunks(spans: Sequence[Span]) -> list[list[_Piece]]:
    """Cut the spans into chunks of at most PREFILL_CHUNK rows, in order, no span twice in one."""
    chunks: list[list[_Piece]] = [[]]
    room = PREFILL_CHUNK
    for index, span in enumerate(spans):
        start = 0
        while start < len(span.tokens):
            take = min(room, len(span.tokens) - start)
            chunks[-1].append(_Piece(index, span.cache, span.tokens[start : start + take]))
            start, room = start + take, room - take
            if room == 0:
                chunks.append([])
                room = PREFILL_CHUNK
    return [chunk for chunk in chunks if chunk]


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
