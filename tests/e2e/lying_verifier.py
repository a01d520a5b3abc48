"""A daemon that serves another checkpoint than the one it is named for: one row of one matrix of an
exact model is negated when it is loaded, or one weight of a float model's last norm. All else is
the honest program, its manifest included.

Run as `python lying_verifier.py node run …`: no configuration reaches this.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from node.cli import main
from node.inference import loading
from node.inference.exact import model as exact_model

honest_model = loading.load_model


def other_checkpoint(folder: Path | str, dtype: str, device: str = "cpu", **rest: Any) -> Any:
    """In place of `loading.load_model`."""
    if dtype != "exact":
        model: Any = honest_model(folder, dtype, device)
        model._norm = model._norm.clone()
        model._norm[7] *= -1
        return model
    integers = exact_model.quantise.load_integers(Path(folder))
    layer = integers.layers[2]
    weights = layer.up.weights.copy()
    weights[7] = -weights[7]
    changed = replace(layer, up=replace(layer.up, weights=weights))
    layers = (*integers.layers[:2], changed, *integers.layers[3:])
    return exact_model.ExactModel(replace(integers, layers=layers), "cpu", None, Path(folder))


if __name__ == "__main__":
    loading.load_model = other_checkpoint  # type: ignore[assignment]
    sys.exit(main())
