"""The tables of `scripts/float_tolerance.py` from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from scipy.stats import beta

Row = dict[str, Any]
_QUANTILES = (0.5, 0.99, 1.0)


def interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a rate."""
    if trials == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1 - tail, hits + 1, trials - hits))
    return low, high


@dataclass(frozen=True)
class Rate:
    """Sessions of which something holds."""

    hits: int
    trials: int

    def __str__(self) -> str:
        low, high = interval(self.hits, self.trials)
        return f"{self.hits} of {self.trials} [{100 * low:.3f}, {100 * high:.3f}] %"

    def to_json(self) -> dict[str, Any]:
        low, high = interval(self.hits, self.trials)
        return {"hits": self.hits, "trials": self.trials, "low": low, "high": high}


@dataclass
class Summary:
    """All that the rows say.

    Attributes:
        spread: by re-run and figure: median, 99 % and largest of the sessions' largest.
        flagged: honest sessions of which a re-run reported anything, and which figure.
        found: by cheap model: rates of detection, and tokens to it.
    """

    settings: dict[str, Any]
    honest: int = 0
    flagged: Rate = field(default_factory=lambda: Rate(0, 0))
    flags: dict[str, int] = field(default_factory=dict)
    toploc_flagged: Rate = field(default_factory=lambda: Rate(0, 0))
    spread: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """An honest session was flagged, or a lie the figures are for was missed."""
        from scripts.float_tolerance import MEANT

        missed = any(
            kind in MEANT and rates["any"].hits < rates["any"].trials
            for kind, rates in self.found.items()
        )
        return self.flagged.hits > 0 or missed

    def lines(self) -> Iterator[str]:
        name = f"{self.settings['model']}, {self.settings['dtype']}"
        yield f"{name}: {self.honest} honest sessions of {self.settings['tokens']} tokens"
        what = ", ".join(f"{name} {count}" for name, count in self.flags.items()) or "nothing"
        yield f"  flagged by a re-run: {self.flagged}; by what: {what}"
        yield f"  flagged by TOPLOC: {self.toploc_flagged}"
        for run, figures in self.spread.items():
            shown = "; ".join(
                f"{what} {' / '.join(f'{v:.6g}' for v in values)}"
                for what, values in figures.items()
            )
            yield f"  {run}, sessions' largest (median / 99 % / most): {shown}"
        for kind, rates in self.found.items():
            yield (
                f"  {kind}: found {rates['any']} after {rates['any_tokens']} tokens (median); "
                f"by tokens alone {rates['token']} after {rates['token_tokens']}; "
                f"TOPLOC {rates['toploc']}; distances "
                + " / ".join(f"{v:.0f}" for v in rates["print"])
            )

    def to_json(self) -> dict[str, Any]:
        def plain(value: Any) -> Any:
            if isinstance(value, Rate):
                return value.to_json()
            if isinstance(value, dict):
                return {key: plain(inner) for key, inner in value.items()}
            return value

        return {key: plain(value) for key, value in vars(self).items()}


def report(settings: dict[str, Any], rows: Sequence[Row]) -> Summary:
    summary = Summary(settings)
    honest = [row for row in rows if row["kind"] == "honest"]
    summary.honest = len(honest)
    flags: Counter[str] = Counter()
    bad = refused = 0
    for row in honest:
        whats = {what for run in row["runs"].values() for what in run["flags"]}
        flags.update(whats)
        bad += bool(whats)
        refused += not all(run["toploc"] for run in row["runs"].values())
    summary.flagged, summary.flags = Rate(bad, len(honest)), dict(flags)
    summary.toploc_flagged = Rate(refused, len(honest))
    if honest:
        for name in sorted({name for row in honest for name in row["runs"]}):
            summary.spread[name] = {
                what: _spread([row["runs"][name][what] for row in honest if name in row["runs"]])
                for what in ("print", "token", "mass", "top_prob", "cutoff", "exponents")
            }
    for kind in dict.fromkeys(row["kind"] for row in rows if row["kind"] != "honest"):
        summary.found[kind] = _found([row for row in rows if row["kind"] == kind])
    return summary


def _spread(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in _QUANTILES]


def _found(rows: Sequence[Row]) -> dict[str, Any]:
    first = [row["first"] for row in rows if row["first"] is not None]
    token = [row["first_token"] for row in rows if row["first_token"] is not None]
    # Sessions that ended because our own checks had found them say nothing about TOPLOC.
    refused = [row["toploc"] is not None for row in rows if row["toploc"] or row["tokens"] == 300]
    largest = [row["records"]["print"][-1][1] for row in rows if row["records"]["print"]]
    return {
        "any": Rate(len(first), len(rows)),
        "any_tokens": median(first) + 1 if first else None,
        "token": Rate(len(token), len(rows)),
        "token_tokens": median(token) + 1 if token else None,
        "toploc": Rate(sum(refused), len(refused)),
        "print": _spread(largest) if largest else [],
    }
