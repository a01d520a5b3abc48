"""Counts and timings of one node, under the names that vLLM's users know where they exist.

`spec_decode_num_accepted_tokens_per_pos` divided by `spec_decode_num_drafts` is survival: how often
a draft's position was accepted at all, as engines print it. `spec_decode_acceptance_rate` is
conditional: accepts ÷ (accepts + rejections) of the drafts that were reached, with a 95 % interval
(Wilson's), over all and by position.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_KEEP: Final = 4096


@dataclass
class Timing:
    """The last few thousand durations of one stage, in seconds."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_KEEP))
    total: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        self.recent.append(seconds)
        self.total += seconds
        self.count += 1

    def quantile(self, q: float) -> float | None:
        """The q-quantile of what is kept, or None when nothing was measured."""
        if not self.recent:
            return None
        ordered = sorted(self.recent)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def wilson(accepts: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a rate after `accepts` of `trials`; (0, 1) after none.

    Source: Wilson (1927), without continuity correction.
    """
    if not trials:
        return 0.0, 1.0
    rate = accepts / trials
    centre = rate + z * z / (2 * trials)
    half = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(centre - half, 0.0) / scale, min((centre + half) / scale, 1.0)


@dataclass
class Metrics:
    """Counters by name, timings by stage, accepts per draft position; gauges are asked for."""

    counters: Counter[str] = field(default_factory=Counter)
    timings: dict[str, Timing] = field(default_factory=dict)
    reached: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)
    gauges: dict[str, Callable[[], float]] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def time(self, stage: str, seconds: float) -> None:
        self.timings.setdefault(stage, Timing()).add(seconds)

    def round(self, drafted: int, accepted: int, reached: int, output: int) -> None:
        """One committed round, for the speculative-decoding counters."""
        self.count("spec_decode_num_drafts", bool(drafted))
        self.count("spec_decode_num_draft_tokens", drafted)
        self.count("spec_decode_num_accepted_tokens", accepted)
        self.count("generation_tokens", output)
        for position in range(reached):
            self.reached[position] += 1
        for position in range(accepted):
            self.accepted[position] += 1

    def prometheus(self) -> str:
        """The text exposition format, version 0.0.4."""
        lines: list[str] = []
        for name, value in sorted(self.counters.items()):
            lines += [f"# TYPE verdraft_{name}_total counter", f"verdraft_{name}_total {value}"]
        for name, value_of in sorted(self.gauges.items()):
            lines += [f"# TYPE verdraft_{name} gauge", f"verdraft_{name} {value_of():g}"]
        if self.reached:
            lines += self._by_position()
        if self.timings:
            lines.append("# TYPE verdraft_stage_seconds summary")
        for stage, timing in sorted(self.timings.items()):
            for q in (0.5, 0.9, 0.99):
                value = timing.quantile(q)
                lines.append(f'verdraft_stage_seconds{{stage="{stage}",quantile="{q}"}} {value}')
            lines.append(f'verdraft_stage_seconds_sum{{stage="{stage}"}} {timing.total}')
            lines.append(f'verdraft_stage_seconds_count{{stage="{stage}"}} {timing.count}')
        return "\n".join(lines) + "\n"

    def _by_position(self) -> list[str]:
        """Accepts by draft position, and the conditional rate with its interval."""
        per_pos = "verdraft_spec_decode_num_accepted_tokens_per_pos_total"
        reached = "verdraft_spec_decode_num_reached_tokens_per_pos_total"
        lines = [f"# TYPE {per_pos} counter", f"# TYPE {reached} counter"]
        for position, trials in sorted(self.reached.items()):
            label = f'{{position="{position}"}}'
            lines.append(f"{per_pos}{label} {self.accepted[position]}")
            lines.append(f"{reached}{label} {trials}")
        rate = "verdraft_spec_decode_acceptance_rate"
        lines.append(f"# TYPE {rate} gauge")
        whole = ("all", self.accepted.total(), self.reached.total())
        for where, accepts, trials in (
            whole,
            *((str(p), self.accepted[p], n) for p, n in sorted(self.reached.items())),
        ):
            low, high = wilson(accepts, trials)
            for bound, value in (("low", low), ("estimate", accepts / trials), ("high", high)):
                lines.append(f'{rate}{{position="{where}",bound="{bound}"}} {value:.6f}')
        return lines
