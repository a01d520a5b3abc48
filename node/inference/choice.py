"""The coupled mode's choice, faster: the same token and score as `settlement.noise.coupled_argmax`.

Where a C compiler is (`compiled`), `choice.c` goes through the vocabulary once. It keeps the best
sum of score and noise so far, and works a token's noise out only if a bound on it can reach that
sum. The bound: G never falls as r grows (`settlement.noise`), so among all r whose complement
2**64 − 1 − r has the same number of leading zeros and the same next bits, the largest r has the
largest G. That value, for each such class of r, is a table of 33 × 8 numbers made by
`settlement.noise` itself. A token is skipped only if score + table value stays below the sum of
another token, so it is neither the argmax nor equal to it.

Nothing is decided by floats, and elsewhere `settlement.noise` decides.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from node.inference import compiled
from settlement import noise
from settlement.logarithm import ARTANH_Q31, LN2_Q40
from settlement.noise import H_Q31, MAX_VOCAB, SCORE_LIMIT, PositionKey, gumbel_q24
from settlement.records import NO_CUTOFF

Int64s = NDArray[np.int64]

SOURCE: Final = Path(__file__).with_suffix(".c")
BINS: Final = 8  # as in choice.c
_P, _N = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: Final = {
    "choice_gumbel": (_P, _P, _N, _P),
    "choice_argmax": (_P, _P, _P, _P, _N, _N, _N, _P),
}


def coupled_argmax(
    scores: Int64s, seed: bytes, position: int, cutoff: int = NO_CUTOFF
) -> tuple[int, int]:
    """argmax of score + G over the tokens with `cutoff` or more, ties to the lowest id.

    Args:
        scores: int64[V] in Q24, each within ±2**61.

    Returns:
        (token id, its score + G in Q24), as `settlement.noise.coupled_argmax`.

    Raises:
        NoiseError: as there: no token reaches the cut-off, a score out of range, a wrong shape.
    """
    found = _compiled_argmax(scores, None, seed, position, cutoff)
    if found is not None:
        return found
    kept = None if cutoff == NO_CUTOFF else scores >= cutoff
    return noise.coupled_argmax(scores, seed, position, kept)


class Columns:
    """A choice over some of a vocabulary's tokens: the columns of a draft's reduced head.

    Args:
        ids: int64[n], the columns' token ids, ascending.
        vocab_size: above every id.
    """

    def __init__(self, ids: NDArray[Any], vocab_size: int) -> None:
        self.ids: Int64s = np.ascontiguousarray(ids, dtype=np.int64)
        self._vocab_size = vocab_size
        self._covered = np.zeros(vocab_size, dtype=np.bool_)
        self._covered[self.ids] = True

    def argmax(self, scores: Int64s, seed: bytes, position: int, cutoff: int = NO_CUTOFF) -> int:
        """The token of `coupled_argmax` over these tokens alone; scores int64[n], by column."""
        found = _compiled_argmax(scores, self.ids, seed, position, cutoff)
        if found is not None:
            return int(self.ids[found[0]])
        spread = np.full(self._vocab_size, -SCORE_LIMIT, np.int64)
        spread[self.ids] = scores
        kept = self._covered
        if cutoff != NO_CUTOFF:
            kept = self._covered & (spread >= cutoff)
        return noise.coupled_argmax(spread, seed, position, kept)[0]


def _compiled_argmax(
    scores: Int64s, ids: Int64s | None, seed: bytes, position: int, cutoff: int
) -> tuple[int, int] | None:
    """(index, sum), or None where there is no library, or an input is not what it takes."""
    fast = library()
    proper = scores.ndim == 1 and scores.dtype == np.int64 and 0 < len(scores) <= MAX_VOCAB
    if fast is None or not proper or (ids is not None and len(ids) != len(scores)):
        return None
    scores = np.ascontiguousarray(scores)
    at = PositionKey.of(seed, position)
    words = np.array([*at.key, *at.counter], dtype=np.uint32)
    best = np.empty(2, dtype=np.int64)
    found = fast.choice_argmax(
        _constants().ctypes.data,
        words.ctypes.data,
        scores.ctypes.data,
        None if ids is None else ids.ctypes.data,
        len(scores),
        cutoff,
        SCORE_LIMIT,
        best.ctypes.data,
    )
    return (int(best[0]), int(best[1])) if found else None


def bounds() -> Int64s:
    """int64[33 · BINS]: the largest G by class of r: zeros in front of 2**64 − 1 − r, counted in
    its upper half (32: none is set there), and the BINS-th parts of a power of two."""
    largest = []
    for zeros in range(33):
        for part in range(BINS):
            least = 0  # of the upper half of the complement, within the class
            if zeros <= 28:
                least = (BINS + part) << (28 - zeros)
            elif zeros < 32:
                least = 1 << (31 - zeros)
            largest.append((1 << 64) - 1 - (least << 32))
    return gumbel_q24(np.array(largest, dtype=np.uint64))


@functools.cache
def _constants() -> Int64s:
    return np.concatenate([np.array([LN2_Q40, *ARTANH_Q31, *H_Q31], dtype=np.int64), bounds()])


@functools.cache
def library() -> Any | None:
    """The compiled choice; None where it cannot be had or differs from `settlement.noise`."""
    try:
        made = compiled.load(compiled.build(SOURCE), _SIGNATURES, ctypes.c_int)
    except compiled.NoCompiler:
        return None
    return made if _agrees(made) else None


def _agrees(made: Any) -> bool:
    """Whether the compiled noise has the bits of `settlement.noise`, for r of every length."""
    rng = np.random.default_rng(1)
    r = rng.integers(0, 1 << 64, (64, 65), dtype=np.uint64, endpoint=False)
    r[:, :64] >>= np.arange(64, dtype=np.uint64)
    r = np.concatenate([r.ravel(), ~r.ravel(), np.array([0, 1 << 63, (1 << 63) - 1], np.uint64)])
    got = np.empty(len(r), dtype=np.int64)
    made.choice_gumbel(_constants().ctypes.data, r.ctypes.data, len(r), got.ctypes.data)
    return bool(np.array_equal(got, gumbel_q24(r)))
