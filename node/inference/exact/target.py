"""A target model of the exact tier as disputes need it: its manifest, rows with paths, logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from node.inference.exact.commitment import Commitment
from node.inference.exact.quantise import IntegerModel, load_integers
from node.inference.manifest import manifest_of
from settlement.exact import LOGIT_LIMIT, ExactError, Opening
from settlement.records import Manifest

_ROWS = 4096  # of the head at a time: int64 of them all would take eight times the weights


class ExactTarget:
    """`settlement.exact.Target` over the integers of a checkpoint.

    Args:
        manifest: of the same model; ExactError where its weights root is another.
    """

    def __init__(self, integers: IntegerModel, manifest: Manifest) -> None:
        self.manifest = manifest
        self._integers = integers
        self._commitment = Commitment(integers)
        if self._commitment.root != manifest.weights_root:
            raise ExactError(
                f"the manifest names weights 0x{manifest.weights_root.hex()}, "
                f"these are 0x{self._commitment.root.hex()}"
            )

    @classmethod
    def load(cls, folder: Path) -> ExactTarget:
        """From a Hugging Face folder. Hashes every row: seconds for a hundred million weights."""
        return cls(load_integers(folder), manifest_of(folder, "exact"))

    def opening(self, tensor: int, row: int) -> Opening:
        """A row with its path. KeyError or IndexError where there is none."""
        return self._commitment.opening(tensor, row)

    def logits(self, hidden: bytes) -> NDArray[np.int64]:
        """int64[V] in Q24 of a final hidden state (int16 each, big-endian)."""
        head = self._integers.head
        h = np.frombuffer(hidden, ">i2").astype(np.int64)
        if len(h) != head.weights.shape[1]:
            raise ExactError(f"a hidden state of {len(h)}, not {head.weights.shape[1]}")
        acc = np.concatenate(
            [
                head.weights[at : at + _ROWS].astype(np.int64) @ h
                for at in range(0, len(head.weights), _ROWS)
            ]
        )
        half = 1 << head.shift >> 1
        z = ((acc * head.multipliers + half) >> head.shift) + head.bias
        return np.clip(z, -LOGIT_LIMIT, LOGIT_LIMIT)
