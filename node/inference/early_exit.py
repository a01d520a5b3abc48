"""Early exit: the target's own first layers as its drafter (after LayerSkip, arXiv 2404.16710).

Shares the target's weights, so it needs no memory but a cache. Without training for it, the hidden
states of a middle layer are not what the head reads, and the drafts are poor: `docs/results.md` has
the figures. It pays only for targets that were trained with early-exit losses.
"""

from __future__ import annotations

from dataclasses import replace

from node.inference.architecture import ModelError
from node.inference.exact.model import ExactModel
from node.inference.llama import LlamaModel


def early_exit(target: LlamaModel | ExactModel, layers: int) -> LlamaModel | ExactModel:
    """The first `layers` layers of a target under its own norm and head, as a model.

    Raises:
        ModelError: `layers` is not in 1 … the target's number less one, or the model does not run
            through our forward.
    """
    if not isinstance(target, LlamaModel | ExactModel):
        raise ModelError(f"{type(target).__name__}: only models of our own forward can exit early")
    if not 1 <= layers < target.arch.layers:
        raise ModelError(f"{layers} layers: the target has {target.arch.layers}; take fewer")
    return target.truncated(replace(target.arch, layers=layers))
