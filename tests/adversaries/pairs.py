"""The honest models of a scene: tables whose law can be written down, or the tiny pair."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cast_drafters
import engine_models
from arena import Letters
from engine_models import TINY, TableModel

from node.inference.loading import load_model
from scripts import cheap_models


@dataclass(frozen=True)
class Pair:
    """What both operators have registered.

    Attributes:
        target, drafter: make the honest ones.
        tokenizer: has `token_bytes`.
        prompt: token ids.
    """

    target: Callable[[], Any]
    drafter: Callable[[], Any]
    tokenizer: Callable[[], Any]
    prompt: Callable[[], tuple[int, ...]]


def _table() -> TableModel:
    return TableModel(cast_drafters.VOCAB, 1)


def _tiny_prompt() -> tuple[int, ...]:
    return tuple(engine_models.tiny_tokenizer().encode(engine_models.TEXT[0]))


TABLES = Pair(_table, cast_drafters.honest, Letters, lambda: (1, 2, 3))
TINY_PAIR = Pair(
    engine_models.tiny_target,
    engine_models.tiny_drafter,
    engine_models.tiny_tokenizer,
    _tiny_prompt,
)


@cache
def fewer_layers() -> Any:
    """The tiny target without its last layers: of 30, 24 would be left."""
    return cheap_models.fewer_layers(engine_models.tiny_target())


@cache
def three_bits() -> Any:
    """The tiny target with projections of three bits."""
    with tempfile.TemporaryDirectory() as folder:
        return load_model(cheap_models.requantised(TINY / "target", Path(folder), 3))
