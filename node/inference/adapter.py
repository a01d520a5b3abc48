"""Any other causal model, through transformers, behind the same interface.

Slower than our forward, and admitted only if it passes a probe at load: text fed in pieces, with a
wrong turn rolled back, must give the logits of the same text fed at once. Recurrent and compressed
states fail it and are refused. Attention with a sliding window passes, because the cache used here
keeps every token and the model masks what lies outside the window.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from node.inference.architecture import UnsupportedModel, read_eos_ids
from node.inference.cache import ContextOverflow
from node.inference.model import PREFILL_CHUNK, Rows, Span, check_tokens

# Largest difference of two logits in the probe; only rounding may differ.
_PROBE_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 2.0}


class TransformersCache:
    """A transformers cache that can be cut by length.

    Raises:
        UnsupportedModel: on truncation, when the model put another kind of state into it.
    """

    def __init__(self) -> None:
        from transformers import DynamicCache

        # Without a config every layer keeps all tokens.
        self.inner: Any = DynamicCache()
        self.length = 0

    @property
    def bytes(self) -> int:
        return sum(2 * x.keys.numel() * x.keys.element_size() for x in self._layers())

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate a cache of {self.length} tokens to {length}")
        if length < self.length:
            for layer in self._layers():
                layer.keys = layer.keys[..., :length, :]
                layer.values = layer.values[..., :length, :]
        self.length = length

    def _layers(self) -> list[Any]:
        for layer in self.inner.layers:
            keys = getattr(layer, "keys", None)
            if keys is None or keys.ndim != 4 or keys.shape[-2] != self.length:
                raise UnsupportedModel(f"{type(layer).__name__} does not keep one row per token")
        return list(self.inner.layers)


class TransformersModel:
    """A transformers causal model as a `LanguageModel`."""

    def __init__(self, inner: Any, eos_ids: frozenset[int], folder: Path | None = None) -> None:
        config = inner.config.get_text_config()
        self.folder = folder
        self.inner = inner
        self.vocab_size = int(inner.get_input_embeddings().weight.shape[0])
        self.hidden_size = int(config.hidden_size)
        self.context_length = int(getattr(config, "max_position_embeddings", 2048))
        self.head_ids = None
        self.eos_ids = eos_ids
        self.device = inner.device
        self.dtype = inner.dtype
        self.tier = str(inner.dtype).removeprefix("torch.")
        # Newer releases call the argument `cache`.
        names = inspect.signature(inner.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._keeps = "logits_to_keep" in names

    def new_cache(self) -> TransformersCache:
        return TransformersCache()

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> list[Rows]:
        for span in spans:
            check_tokens(span.tokens, self.vocab_size)
            need = span.cache.length + len(span.tokens)
            if need > self.context_length:
                raise ContextOverflow(f"{need} tokens exceed the context of {self.context_length}")
        lengths = [span.cache.length for span in spans]
        try:
            return [self._run(span) for span in spans]
        except BaseException:
            for span, length in zip(spans, lengths, strict=True):
                span.cache.truncate(min(length, span.cache.length))
            raise

    def _run(self, span: Span) -> Rows:
        hidden: list[torch.Tensor] = []
        logits: list[torch.Tensor] = []
        for start in range(0, len(span.tokens), PREFILL_CHUNK):
            piece = list(span.tokens[start : start + PREFILL_CHUNK])
            # Of this piece, the rows among the span's last `rows`.
            wanted = min(len(piece), start + len(piece) - (len(span.tokens) - span.rows))
            extra: dict[str, Any] = {self._cache_name: span.cache.inner}
            if self._keeps:
                extra["logits_to_keep"] = max(wanted, 1)
            out = self.inner(
                input_ids=torch.tensor([piece], device=self.device),
                use_cache=True,
                output_hidden_states=True,
                **extra,
            )
            span.cache.length += len(piece)
            if wanted > 0:
                hidden.append(out.hidden_states[-1][0, -wanted:].float())
                logits.append(out.logits[0, -wanted:].float())
        return Rows(torch.cat(hidden), torch.cat(logits))


def load_through_transformers(
    folder: Path, dtype: torch.dtype, device: torch.device, reason: Exception
) -> TransformersModel:
    """Load and probe a model that our forward refused for `reason`.

    Raises:
        UnsupportedModel: transformers does not load it either, or it cannot be rolled back.
    """
    from transformers import AutoModelForCausalLM

    try:
        inner = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UnsupportedModel(f"{reason}; and transformers says: {error}") from error
    model = TransformersModel(inner.to(device).eval(), read_eos_ids(folder), folder)
    try:
        worst = probe(model)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UnsupportedModel(f"{reason}; through transformers it fails: {error}") from error
    if not worst <= _PROBE_TOLERANCE[dtype]:
        raise UnsupportedModel(
            f"{reason}; through transformers its cache cannot be rolled back: logits differ by "
            f"{worst:.3g} from those of the same text without rollback"
        )
    return model


def probe(model: TransformersModel) -> float:
    """Largest difference of logits between a text at once and in pieces with a rollback."""
    text = [(7 * i + 3) % model.vocab_size for i in range(12)]
    whole = model.forward([Span(model.new_cache(), text, 6)])[0].logits
    cache = model.new_cache()
    model.forward([Span(cache, text[:8])])
    model.forward([Span(cache, [t ^ 1 for t in text[8:10]], 2)])
    cache.truncate(6)
    pieces = [model.forward([Span(cache, text[a:b], b - a)])[0] for a, b in ((6, 7), (7, 12))]
    return float((torch.cat([p.logits for p in pieces]) - whole).abs().max())
