"""What an order says about sampling, and what penalties look at. No tensors: a drafter without a
model needs these and nothing heavier (`sampling` applies them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from settlement.records import Q16, SCORE_BITS, Mode, Order

Q24: Final = 1 << SCORE_BITS
# Where relaxed acceptance is strict, unless an order says otherwise: the target's surprisal of the
# draft over 3 nats, the draft model's over 4, or fewer than half of its eight best shared.
KEY_THRESHOLDS: Final = {
    "key_target_surprisal": 3 * Q16,
    "key_draft_surprisal": 4 * Q16,
    "key_overlap": Q16 // 2,
}


class SamplingError(ValueError):
    """A sampling parameter is out of range."""


@dataclass(frozen=True)
class SamplingParams:
    """What decides, with prompt, model and seed, which tokens come out. Integers, as in an order.

    Attributes:
        mode: acceptance rule.
        temperature: times 2**16, in (0, 16 * 2**16]; 0 exactly in greedy mode.
        top_k: keep the k best scores; 0 keeps all.
        top_p: times 2**16; keep the smallest set of best scores with this mass; 2**16 keeps all.
        repetition_penalty: times 2**16; 2**16 is none.
        presence_penalty: times 2**16, subtracted from a logit already in the output.
        frequency_penalty: times 2**16, subtracted once per occurrence in the output.
        relax_tau: Q24 score units (protocol: "Relaxed acceptance"); 0 is strict.
        key_target_surprisal, key_draft_surprisal: Q16 nats; above, a position is strict.
        key_overlap: Q16 of 1 - overlap with the draft's top-8; above, a position is strict.

    Raises:
        SamplingError: a value is out of range; the message names it.
    """

    mode: Mode = Mode.COUPLED
    temperature: int = Q16
    top_k: int = 0
    top_p: int = Q16
    repetition_penalty: int = Q16
    presence_penalty: int = 0
    frequency_penalty: int = 0
    relax_tau: int = 0
    key_target_surprisal: int = 0
    key_draft_surprisal: int = 0
    key_overlap: int = 0

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, advice: str) -> None:
            if not ok:
                raise SamplingError(f"{name} = {getattr(self, name)}: {advice}")

        if self.mode == Mode.GREEDY:
            need(self.temperature == 0, "temperature", "must be 0 in greedy mode")
        else:
            need(
                0 < self.temperature <= 16 * Q16,
                "temperature",
                "must be in (0, 2**20]; for temperature 0 use greedy mode",
            )
        need(self.top_k >= 0, "top_k", "must be at least 0 (0 keeps all)")
        need(0 < self.top_p <= Q16, "top_p", "must be in (0, 2**16]")
        need(
            Q16 // 16 <= self.repetition_penalty <= 16 * Q16,
            "repetition_penalty",
            "must be 1/16 to 16, times 2**16",
        )
        need(abs(self.presence_penalty) <= 16 * Q16, "presence_penalty", "must be within +-16")
        need(abs(self.frequency_penalty) <= 16 * Q16, "frequency_penalty", "must be within +-16")
        need(0 <= self.relax_tau < 1 << 32, "relax_tau", "must be a uint32")
        if self.relax_tau and self.mode == Mode.REJECTION:
            raise SamplingError(f"relax_tau = {self.relax_tau}: needs greedy or coupled mode")

    @property
    def has_penalties(self) -> bool:
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (Q16, 0, 0)

    @property
    def has_filters(self) -> bool:
        """Whether a cut-off can differ from NO_CUTOFF."""
        return self.mode != Mode.GREEDY and (self.top_k > 0 or self.top_p < Q16)

    @property
    def score_temperature(self) -> int:
        """The divisor of the score grid, Q16."""
        return Q16 if self.mode == Mode.GREEDY else self.temperature

    @classmethod
    def from_order(cls, order: Order) -> SamplingParams:
        return cls(
            mode=Mode(order.mode),
            **{f.name: getattr(order, f.name) for f in fields(cls) if f.name != "mode"},
        )

    @classmethod
    def from_floats(
        cls,
        mode: Mode | str = Mode.COUPLED,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        repetition: float = 1.0,
        presence: float = 0.0,
        frequency: float = 0.0,
    ) -> SamplingParams:
        """From the units people use. Temperature 0 means greedy, and greedy temperature 0."""
        if isinstance(mode, str):
            if mode.upper() not in Mode.__members__:
                names = ", ".join(name.lower() for name in Mode.__members__)
                raise SamplingError(f"mode = {mode!r}: must be one of {names}")
            mode = Mode[mode.upper()]
        if temperature == 0 or mode == Mode.GREEDY:
            mode, temperature = Mode.GREEDY, 0.0
        return cls(
            mode=mode,
            temperature=round(temperature * Q16),
            top_k=top_k,
            top_p=round(top_p * Q16),
            repetition_penalty=round(repetition * Q16),
            presence_penalty=round(presence * Q16),
            frequency_penalty=round(frequency * Q16),
        )


class History:
    """The tokens that penalties look at: the prompt's as a set, the output's with counts."""

    def __init__(self, prompt_ids: Sequence[int], output_ids: Sequence[int] = ()) -> None:
        self._prompt = frozenset(prompt_ids)
        self._output = Counter(output_ids)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append emitted tokens."""
        self._output.update(tokens)

    def window(
        self, drafts: Sequence[int], rows: int, first: int = 0
    ) -> tuple[list[int], np.ndarray, np.ndarray]:
        """What row i sees: the committed tokens and drafts[:first + i].

        Returns:
            ids: the token ids seen by any row (m of them).
            seen: bool[rows, m], in prompt or output as that row sees it.
            counts: int64[rows, m], times in the output as that row sees it.
        """
        ids = sorted(self._prompt | self._output.keys() | set(drafts))
        index = {token: i for i, token in enumerate(ids)}
        counts = np.zeros((rows, len(ids)), dtype=np.int64)
        counts[:] = [self._output[token] for token in ids]
        for i, token in enumerate(drafts[: first + rows - 1]):
            counts[max(i + 1 - first, 0) :, index[token]] += 1
        in_prompt = np.fromiter((token in self._prompt for token in ids), bool, len(ids))
        return ids, (counts > 0) | in_prompt, counts
