"""What the target alone says and how fast: the same request, on the same machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from node.heap import keep_what_is_loaded
from node.inference import catalog
from node.inference.calibrate import pass_seconds
from node.inference.loading import load_model
from node.inference.params import SamplingParams
from node.inference.plain import NEAR_TIE_FLOAT32, PlainOutput, compare, decode_plain
from node.inference.tokens import Tokenizer, final_text
from node.roles.convert import stop_rules
from node.roles.receipt import Checked
from settlement.records import Mode


@dataclass(frozen=True)
class PlainRun:
    """The same request decoded by the target alone.

    Attributes:
        seconds, first_seconds: to the last and to the first token, the prompt's pass in both.
        lossless: equal, or (in a float tier) the first difference lies at a near-tie; None in
            rejection mode, where only the distribution is promised.
        near_ties: positions whose two best scores lie within 1e-3.
    """

    tokens: tuple[int, ...]
    seconds: float
    first_seconds: float
    lossless: bool | None
    near_ties: int
    difference: str


class PlainTarget:
    """The target model, loaded once, one thread.

    Args:
        name: of the catalogue, a folder or hub id.
        dtype: arithmetic, as `load_model` takes it.
    """

    def __init__(self, name: str, dtype: str = "float32") -> None:
        import torch

        torch.set_num_threads(1)
        folder = catalog.resolve(name).path
        self._model = load_model(folder, dtype)
        self._tokenizer = Tokenizer.load(folder)
        # The nodes have done both before the first session as well.
        pass_seconds(self._model, (1,), repeats=2)
        keep_what_is_loaded()

    @property
    def arithmetic(self) -> str:
        """What the products run on, for people."""
        return str(getattr(self._model, "backend", "")) or str(self._model.dtype)

    def text(self, checked: Checked) -> str:
        """What the receipt's tokens say in this model's vocabulary, up to a stop string."""
        return final_text(self._tokenizer, checked.tokens, checked.stops)

    def run(self, checked: Checked) -> PlainRun:
        """Decodes what the receipt's first order asked for, under its seed."""
        order = checked.orders[0]
        started = time.perf_counter()
        output = self._decode(checked, margins=False)
        seconds, first = time.perf_counter() - started, output.first_seconds
        if order.mode == Mode.REJECTION:
            return PlainRun(tuple(output.tokens), seconds, first, None, 0, "")
        near_tie = 0 if self._model.tier == "exact" else NEAR_TIE_FLOAT32
        if tuple(output.tokens) != checked.tokens:
            # How near a tie was costs as much as a choice: asked after the clock has stopped.
            output = self._decode(checked, margins=True)
        found: Any = compare(checked.tokens, output, near_tie)
        return PlainRun(
            tuple(output.tokens), seconds, first, found.lossless, found.near_ties, found.words
        )

    def _decode(self, checked: Checked, *, margins: bool) -> PlainOutput:
        order = checked.orders[0]
        return decode_plain(
            self._model,
            checked.prompt,
            SamplingParams.from_order(order),
            stop_rules(order, checked.stops),
            seed=checked.seeds[0],
            token_bytes=self._tokenizer.token_bytes,
            margins=margins,
        )
