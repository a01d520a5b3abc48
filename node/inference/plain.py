"""Decoding without speculation: what the target alone says, and how a text compares with it.

The baseline of every benchmark and the yardstick of `lossless_check`. It shares the processors and
the integer rule with the verifier, but none of its windows, rollbacks or stops inside a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from node.inference.fingerprint import fingerprints_for
from node.inference.model import LanguageModel, Span
from node.inference.params import Q24, History, SamplingParams
from node.inference.rows import ModelRow, target_rows
from node.inference.stops import StopHit, StopRules, StopScanner
from settlement.coins import Purpose, coin
from settlement.hashing import ZERO32
from settlement.masses import sample_masses
from settlement.records import Mode

# Where the two best (perturbed) scores are closer than this, float32 arithmetic in another order
# of summation may pick the other one. Q24; 1e-3 in units of scaled logits.
NEAR_TIE_FLOAT32 = round(1e-3 * Q24)


@dataclass
class PlainOutput:
    """An output of plain decoding.

    Attributes:
        margins: per token, the Q24 distance to the runner-up; empty when not asked for or in
            rejection mode.
        first_seconds: to the first token, the prompt's pass included.
    """

    tokens: list[int] = field(default_factory=list)
    margins: list[int] = field(default_factory=list)
    stop: StopHit | None = None
    seconds: float = 0.0
    first_seconds: float = 0.0


def decode_plain(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    stops: StopRules,
    *,
    seed: bytes = ZERO32,
    token_bytes: Callable[[int], bytes] | None = None,
    margins: bool = True,
    chain_value: bytes = ZERO32,
    clock: Callable[[], float] = time.perf_counter,
) -> PlainOutput:
    """One token per pass. In rejection mode: independent draws; `chain_value` is their secret."""
    out, start = PlainOutput(), clock()
    cache, history = model.new_cache(), History(prompt_ids)
    scanner = StopScanner(stops, token_bytes)
    missing = list(prompt_ids)
    while out.stop is None:
        rows = model.forward([Span(cache, missing)])[0]
        row = target_rows(rows.logits, params, history)[0]
        position = len(out.tokens)
        if params.mode == Mode.REJECTION:
            w = coin(chain_value, seed, position, Purpose.BONUS)
            token = sample_masses(row.masses(), w)
        else:
            token = row.choose(params.mode, seed, position)[0]
            if margins:
                out.margins.append(row.margin(seed, position, params.mode, token))
        out.stop = scanner.scan([token])
        scanner.commit([token])
        history.commit([token])
        out.tokens.append(token)
        out.first_seconds = out.first_seconds or clock() - start
        missing = [token]
    out.seconds = clock() - start
    return out


@dataclass(frozen=True)
class Comparison:
    """How a speculative text relates to the plain one.

    Attributes:
        lossless: the texts are equal, or first differ at a near-tie.
        near_ties: 0 or 1: whether they part at a near-tie (after it they are different texts).
        position: where they first differ, or None.
        margin: Q24 distance of the two best scores there, or None.
    """

    lossless: bool
    near_ties: int = 0
    position: int | None = None
    margin: int | None = None

    @property
    def words(self) -> str:
        """For people."""
        if self.position is None:
            return "the same"
        apart = "" if self.margin is None else f", the best two {self.margin / 2**24:.3g} apart"
        return f"from output position {self.position} on{apart}"


def compare(
    tokens: Sequence[int], plain: PlainOutput, near_tie: int = NEAR_TIE_FLOAT32
) -> Comparison:
    """Compare an output of a strict mode with plain decoding under the same order and seed.

    Args:
        plain: decoded with margins.
        near_tie: margins below this may fall either way (Q24); 0 for the exact tier.
    """
    for position, (ours, theirs) in enumerate(zip(tokens, plain.tokens, strict=False)):
        if ours != theirs:
            margin = plain.margins[position]
            close = margin < near_tie
            return Comparison(close, int(close), position, margin)
    if len(tokens) != len(plain.tokens):
        return Comparison(False, position=min(len(tokens), len(plain.tokens)))
    return Comparison(True)


@dataclass(frozen=True)
class Replayed:
    """The target's word at one position of a finished output. `hidden`: in the exact tier the state
    behind the fingerprint, int16 each, big-endian; empty in the float tiers."""

    position: int
    row: ModelRow
    fingerprint: bytes
    hidden: bytes = b""


def replay(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    params: SamplingParams,
    seed: bytes,
    *,
    first: int = 0,
    chunk: int = 64,
) -> Iterator[Replayed]:
    """Teacher-forced pass over a finished output: what an auditor needs to judge every position.

    Row n is the target's word after prompt and output[:n], whatever was drafted there, so accept
    decisions can be repeated with `acceptance` on top.

    Args:
        first: positions before this are read but not reported.
        chunk: rows per pass, which bounds memory.

    Raises:
        ContextOverflow, ModelError: the text does not fit this model.
    """
    cache = model.new_cache()
    projection = fingerprints_for(model.tier, seed, model.hidden_size)
    text = [*prompt_ids, *output_ids]
    start = len(prompt_ids) + first - 1
    if start > 0:
        model.forward([Span(cache, text[:start])])
    while start < len(text) - 1:
        window = text[start : min(start + chunk, len(text) - 1)]
        rows = model.forward([Span(cache, window, len(window))])[0]
        position = start + 1 - len(prompt_ids)
        history = History(prompt_ids, output_ids[:position])
        words = target_rows(rows.logits, params, history, output_ids[position:])
        states = rows.hidden.cpu().numpy()
        prints = projection.fingerprints(states)
        for offset, (row, fingerprint) in enumerate(zip(words, prints, strict=True)):
            exact = states[offset].astype(">i2").tobytes() if model.tier == "exact" else b""
            yield Replayed(position + offset, row, fingerprint, exact)
        start += len(window)
