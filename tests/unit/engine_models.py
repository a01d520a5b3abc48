"""Models and shortcuts that the engine's tests share: the tiny pair, and models that are tables."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import node.inference
from node.inference.loading import load_model
from node.inference.model import Rows, Span
from node.inference.model_drafter import ModelDrafter
from node.inference.tokens import Tokenizer
from node.inference.verifier import Verifier

torch.set_num_threads(1)
TINY = Path(node.inference.__file__).parent / "models" / "tiny"

TEXT = [
    "It is a truth universally acknowledged, that a single man in possession of",
    "In the beginning God created the heavens and the earth. And the",
    "def __init__(self, name):\n    self.name = name\n\n    def",
    "Emma could not but",
    "The following example shows how to use the module:\n\n>>> import",
    "And he said unto them,",
    "1, 2, 3, 4, 5,",
    "x",
]


@functools.cache
def tiny_target():
    return load_model(TINY / "target")


@functools.cache
def tiny_draft():
    return load_model(TINY / "draft")


@functools.cache
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer.load(TINY / "target")


def tiny_verifier() -> Verifier:
    return Verifier(tiny_target(), tiny_tokenizer())


def tiny_drafter() -> ModelDrafter:
    return ModelDrafter(tiny_draft())


def prompts(count: int) -> list[list[int]]:
    """Prompts of the tiny pair's kinds of text, of 1 to about 20 tokens."""
    rng = np.random.default_rng(11)
    out = []
    for i in range(count):
        ids = tiny_tokenizer().encode(TEXT[i % len(TEXT)])
        cut = int(rng.integers(1, len(ids) + 1))
        extra = rng.integers(2, 3072, size=int(rng.integers(0, 3))).tolist() if i >= 8 else []
        out.append(ids[:cut] + extra)
    return out


def seed(number: int) -> bytes:
    return number.to_bytes(32, "big")


class TableCache:
    bytes = 0

    def __init__(self) -> None:
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        assert 0 <= length <= len(self.tokens)
        del self.tokens[length:]


class TableModel:
    """A model whose logits are a table over the last two tokens: its law can be written down.

    The hidden state is the one-hot of the last two tokens, so that fingerprints tell rows apart.
    """

    def __init__(self, vocab_size: int, number: int, spread: float = 1.5) -> None:
        rng = np.random.default_rng(number)
        # Multiples of 2**-10: exact on the score grid, so the law below is the model's own.
        logits = np.rint(rng.normal(size=(vocab_size + 1, vocab_size, vocab_size)) * spread * 1024)
        self.table = torch.from_numpy((logits / 1024).astype(np.float32))
        self.vocab_size = vocab_size
        self.hidden_size = 2 * vocab_size
        self.context_length = 256
        self.head_ids = None
        self.eos_ids: frozenset[int] = frozenset()
        self.tier = "float32"
        self.device = torch.device("cpu")
        self.rows_run = 0

    def new_cache(self) -> TableCache:
        return TableCache()

    def logits_after(self, text: Sequence[int]) -> torch.Tensor:
        before = text[-2] if len(text) > 1 else self.vocab_size
        return self.table[before, text[-1]]

    def law_after(self, text: Sequence[int]) -> np.ndarray:
        """float64[V] at temperature 1."""
        return torch.softmax(self.logits_after(text).double(), 0).numpy()

    def forward(self, spans: Sequence[Span]) -> list[Rows]:
        out = []
        for span in spans:
            start = span.cache.length
            span.cache.tokens.extend(span.tokens)
            text = span.cache.tokens
            first = start + len(span.tokens) - span.rows
            hidden = torch.zeros(span.rows, self.hidden_size)
            for i in range(span.rows):
                hidden[i, text[first + i]] = 1.0
            logits = torch.stack(
                [self.logits_after(text[: first + i + 1]) for i in range(span.rows)]
            )
            out.append(Rows(hidden, logits))
            self.rows_run += len(span.tokens)
        return out
