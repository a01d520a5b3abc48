"""Counts and timings of one node, under the names that vLLM's users know where they exist.

`draft_acceptance` figures are conditional: accepts ÷ (accepts + rejections) per position.
"""

from __future__ import annotations

from collections import Counter, deque
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


@dataclass
class Metrics:
    """Counters by name, timings by stage, and accepts per draft position."""

    counters: Counter[str] = field(default_factory=Counter)
    timings: dict[str, Timing] = field(default_factory=dict)
    reached: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)

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
        if self.reached:
            lines.append("# TYPE verdraft_spec_decode_accepted_per_pos_total counter")
            for position, reached in sorted(self.reached.items()):
                label = f'{{position="{position}"}}'
                accepted = self.accepted[position]
                lines.append(f"verdraft_spec_decode_accepted_per_pos_total{label} {accepted}")
                lines.append(f"verdraft_spec_decode_reached_per_pos_total{label} {reached}")
        if self.timings:
            lines.append("# TYPE verdraft_stage_seconds summary")
        for stage, timing in sorted(self.timings.items()):
            for q in (0.5, 0.9, 0.99):
                value = timing.quantile(q)
                lines.append(f'verdraft_stage_seconds{{stage="{stage}",quantile="{q}"}} {value}')
            lines.append(f'verdraft_stage_seconds_sum{{stage="{stage}"}} {timing.total}')
            lines.append(f'verdraft_stage_seconds_count{{stage="{stage}"}} {timing.count}')
        return "\n".join(lines) + "\n"
