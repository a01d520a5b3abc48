"""Where the weights of all layers lie: in one piece, in the order in which a pass reads them.

A decode step reads every weight once, and is as fast as memory is read. NumPy asks the system for
large pages above 4 MB; a layer's matrices are smaller each. In large pages the processor looks up a
page for every 2 MB instead of every 4 KB, and what it fetches ahead does not stop there: 3 % of a
step's time on a quiet core (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import torch

_ALIGNED: Final = 64  # a cache line


class Together:
    """Room for matrices of these numbers of bytes, filled one after the other."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self._room = torch.from_numpy(
            np.empty(sum(size + _ALIGNED for size in sizes), dtype=np.int8)
        )
        self._used = 0

    def keep(self, weights: torch.Tensor) -> torch.Tensor:
        """A copy of int8 `weights` in the next place. ValueError when there is no room for it."""
        start = self._used + -(self._room.data_ptr() + self._used) % _ALIGNED
        end = start + weights.numel()
        if end > len(self._room):
            raise ValueError(f"no room for {weights.numel()} bytes behind {self._used}")
        self._used = end
        return self._room[start:end].view(weights.shape).copy_(weights)
