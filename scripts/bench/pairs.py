"""Ratios of paired runs: geometric means with intervals, and rows kept so that a run can go on."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_RESAMPLES: Final = 4000


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of ratios with its 95 % interval over `pairs` pairs."""

    mean: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}x [{self.low:.2f}, {self.high:.2f}] ({self.pairs})"

    def as_json(self) -> dict[str, float | int]:
        return {
            "mean": round(self.mean, 4),
            "low": round(self.low, 4),
            "high": round(self.high, 4),
            "pairs": self.pairs,
        }


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ratio(values: Sequence[float], seed: int = 0) -> Ratio:
    """The geometric mean of paired ratios; its interval by bootstrap over the pairs.

    Args:
        values: positive, one per pair (the same prompt, timed one engine after the other).
    """
    rng = random.Random(seed)
    logs = [math.log(v) for v in values]
    if not logs:
        return Ratio(math.nan, math.nan, math.nan, 0)
    means = sorted(sum(rng.choices(logs, k=len(logs))) / len(logs) for _ in range(_RESAMPLES))
    low, high = means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES) - 1]
    return Ratio(geometric_mean(values), math.exp(low), math.exp(high), len(values))


class Rows:
    """Rows measured so far, in a file of JSON lines where one is named. Its first line says of
    which run they are; rows of another run are refused, not mixed in.

    Args:
        key: what a row is known by, so that it is not measured twice.
    """

    def __init__(
        self, path: Path | None, settings: dict[str, Any], key: Callable[[dict[str, Any]], Any]
    ) -> None:
        self.settings = settings
        self.rows: list[dict[str, Any]] = []
        self._key = key
        self._path = path
        if path is None:
            return
        if path.exists() and path.read_text().strip():
            head, *lines = path.read_text().splitlines()
            if json.loads(head) != settings:
                raise SystemExit(
                    f"{path} is of another run ({head}); name a new file, or the same settings"
                )
            for line in lines:
                try:
                    self.rows.append(json.loads(line))
                except ValueError:
                    break  # the line at which the run before was killed
        path.write_text("\n".join([json.dumps(settings), *map(json.dumps, self.rows)]) + "\n")

    def has(self, row: dict[str, Any]) -> bool:
        """Whether a row with this one's key is there."""
        return any(self._key(row) == self._key(other) for other in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(row) + "\n")
