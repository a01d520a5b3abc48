"""What a model must offer to draft or to verify, and the run over ragged spans that ours share.

A pass takes any number of *spans*: some tokens to append to some session's cache. Matrix products
run over all spans' tokens at once, attention runs span by span over that span's own cache, so
nothing is padded and sessions of any length join and leave between passes.

`LanguageModel` is the interface: `new_cache` for one session by itself, `forward` over spans, and,
where many sessions are to share a bounded memory, `new_pool` (`cache.CachePool`; `paged.BlockPool`
here). A pool's caches are passed to `forward` like any other. A model without `new_pool` is
verified with too: its sessions' tokens are then only counted (`cache.CountedPool`).

`RaggedModel` is what the float and the exact forward have in common. It asks of its caches
`reserve(n)` before a pass (all or nothing), `append(layer, keys, values)`, which returns the *runs*
to attend over, `advance(n)` after the last layer, and `truncate(length)`; other models may ask
something else of theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from node.inference.architecture import Architecture, ModelError
from node.inference.cache import Cache, KVCache
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
        tier: "float32", "bfloat16" or "exact".
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


def check_tokens(tokens: Sequence[int], vocab_size: int) -> None:
    """ModelError unless there is at least one token and all are below `vocab_size`."""
    if not tokens:
        raise ModelError("no tokens: an empty prompt cannot be continued")
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        bad = next(t for t in tokens if not 0 <= t < vocab_size)
        raise ModelError(f"token id {bad} is outside the vocabulary of {vocab_size}")


@dataclass
class Piece:
    """The part of span number `index` that goes into one chunk."""

    index: int
    cache: KVCache | PagedCache
    tokens: Sequence[int]


def chunks(spans: Sequence[Span]) -> list[list[Piece]]:
    """Cut the spans into chunks of at most PREFILL_CHUNK rows, in order, no span twice in one."""
    chunks: list[list[Piece]] = [[]]
    room = PREFILL_CHUNK
    for index, span in enumerate(spans):
        start = 0
        while start < len(span.tokens):
            take = min(room, len(span.tokens) - start)
            chunks[-1].append(Piece(index, span.cache, span.tokens[start : start + take]))
            start, room = start + take, room - take
            if room == 0:
                chunks.append([])
                room = PREFILL_CHUNK
    return [chunk for chunk in chunks if chunk]


class RaggedModel(ABC):
    """What the models of our own forward share: caches, checks, and the run over spans.

    A model brings its layers (`_decode`) and its output head (`_read`).

    Attributes:
        arch: the checkpoint's shape.
        dtype: of the cached keys and values.
    """

    arch: Architecture
    vocab_size: int
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def _decode(self, chunk: Sequence[Piece]) -> torch.Tensor:
        """All layers over the rows of one chunk: [n, hidden_size], before the final norm."""

    @abstractmethod
    def _read(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states and logits, as in `Rows`, of what `_decode` made."""

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
        """As `LanguageModel.forward`."""
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
        for chunk in chunks(spans):
            x = self._decode(chunk)
            for index, piece in zip(
                (p.index for p in chunk), x.split([len(p.tokens) for p in chunk]), strict=True
            ):
                outputs[index].append(piece)
            for piece in chunk:
                piece.cache.advance(len(piece.tokens))
        last = [torch.cat(parts)[-s.rows :] for s, parts in zip(spans, outputs, strict=True)]
        hidden, logits = self._read(torch.cat(last))
        sizes = [span.rows for span in spans]
        return [Rows(h, z) for h, z in zip(hidden.split(sizes), logits.split(sizes), strict=True)]
