"""The study as one picture of four parts. Needs matplotlib, which is not installed by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from node.economics.expected import When
from node.economics.report import OURS, TEXTBOOK, Study
from node.economics.strategies import COUPLED, HONEST, MODES
from node.economics.terms import inequality

_SHOWN = (
    ("drafter", "random"),
    ("drafter", "lazy"),
    ("verifier", "retaliating"),
    ("verifier", "accept all"),
    ("verifier", "3 bits"),
)
_RATES = np.geomspace(1e-4, 1.0, 120)


class PlotsMissing(RuntimeError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "pictures need matplotlib, which is not installed: run "
            "`pip install 'verdraft[plot]'`, or leave out --plot"
        )


def draw(found: Study, path: Path) -> None:
    """Write the picture to `path` (PNG, or what its ending says). PlotsMissing, OSError."""
    try:
        import matplotlib
    except ImportError as error:
        raise PlotsMissing from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(13, 9), constrained_layout=True)
    _rules(axes[0, 0], found)
    _break_even(axes[0, 1], found)
    _cover(axes[1, 0], found)
    _bias(axes[1, 1], found)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _rules(axis: Any, found: Study) -> None:
    models = (*TEXTBOOK, OURS)
    width = 0.8 / len(models)
    for index, model in enumerate(models):
        matrix = found.matrices[model, COUPLED]
        honest, heights = matrix.cells[HONEST, HONEST], []
        for role, name in _SHOWN:
            played = matrix.cells[(name, HONEST) if role == "drafter" else (HONEST, name)]
            heights.append(getattr(played, f"earned_{role}") - getattr(honest, f"earned_{role}"))
        axis.bar(np.arange(len(_SHOWN)) + index * width, heights, width, label=model.value)
    axis.set_xticks(np.arange(len(_SHOWN)) + 0.3, [f"{r[0].upper()} {n}" for r, n in _SHOWN])
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_ylabel("gain over honest play, passes per 1,000 tokens")
    axis.set_title("What each payment rule rewards when nobody looks")
    axis.legend(fontsize=8)


def _break_even(axis: Any, found: Study) -> None:
    for mode in MODES:
        matrix = found.ours(mode)
        table = matrix.table
        for lie in matrix.lies:
            drawn = any(exposure.when is When.DRAWN for exposure in lie.exposures)
            if not (lie.tempts and drawn) or (mode != COUPLED and lie.name != "lying q"):
                continue
            nets = [
                lie.net(replace(table.terms, flat_rate=float(rate)), table.stakes) / lie.revenue
                for rate in _RATES
            ]
            axis.plot(_RATES, nets, label=f"{lie.role[0].upper()} {lie.name}")
    axis.axhline(0, color="black", linewidth=0.8)
    least = found.options.terms.draw.base_rate / 2**32
    axis.axvline(least, color="grey", linestyle=":", label=f"deployed least rate {least:.0%}")
    axis.set_xscale("log")
    axis.set_ylim(-5, 1)
    axis.set_xlabel("share of lanes drawn, all alike")
    axis.set_ylabel("expected net, in a batch's dues")
    axis.set_title("Where a lie stops paying")
    axis.legend(fontsize=7)


def _cover(axis: Any, found: Study) -> None:
    covers = tuple(float(x) for x in np.geomspace(1, 1000, 200))
    rows = inequality(found.options.terms, covers)
    axis.plot(covers, [row.ratio for row in rows], label="chance × slash / revenue")
    axis.plot(covers, [row.judged for row in rows], label="with corrupt auditors and juries")
    axis.axhline(2, color="grey", linestyle=":", label="asked for")
    axis.axvline(found.options.terms.lock_factor, color="grey", linewidth=0.8, label="lock factor")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("a stake over what it answers for")
    axis.set_title("Detection × slash over the worst revenue of a batch")
    axis.legend(fontsize=8)


def _bias(axis: Any, found: Study) -> None:
    shares = [one.share for one in found.biases]
    horizon = found.biases[0].horizon
    for name, medians in (
        ("sixteen rates", [one.median for one in found.biases]),
        ("one average rate", [one.median_by_average for one in found.biases]),
    ):
        axis.plot(shares, [horizon if m is None else m for m in medians], "o-", label=name)
    axis.axhline(horizon, color="grey", linestyle=":", label="horizon: not flagged")
    axis.set_yscale("log")
    axis.set_xlabel("share of ambiguous drafts that are the drafter's own choice")
    axis.set_ylabel("proposals until the first flag, median")
    axis.set_title("A biased drafter before the α test")
    axis.legend(fontsize=8)
