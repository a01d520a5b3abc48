"""What every row of logits is turned into: scores in fixed point, and the exact tier's topProb.

Where a C compiler is (`compiled`), `logit_rows.c` goes over a row once or twice; torch, which says
what the result is, goes over it six to ten times. Elsewhere, on another device, or where the two
differ by one bit on this machine, torch works it out.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, Final

import torch

from node.inference import compiled
from node.inference.exact.tables import EXP_LIMIT, exp_table
from settlement.noise import SCORE_LIMIT

SOURCE: Final = Path(__file__).with_suffix(".c")
#: 2**34 / 2**24 · 1024 · log2(e), to the nearest: 1/1024 octaves per unit of Z.
COARSE: Final = 1_512_775
_P, _N, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_SIGNATURES: Final = {
    "scores_of_doubles": (_P, _N, _N, _N, _D, _D, _P),
    "scores_of_floats": (_P, _N, _N, _N, _D, _D, _P),
    "top_probabilities": (_P, _N, _N, _N, _P, _N, _N, _P),
}


def fixed_point(z: torch.Tensor, temperature: int) -> torch.Tensor:
    """``rint(float64(z) * 2**40 / temperature)``, clamped to ±SCORE_LIMIT; a NaN is −SCORE_LIMIT.

    Args:
        z: float32 or float64[n, V]; other floats are widened first.

    Returns:
        int64[n, V].
    """
    if _in_rows(z) and z.dtype in (torch.float64, torch.float32):
        made = library()
        if made is not None:
            return _compiled_scores(made, z, temperature)
    return _plain_scores(z, temperature)


def top_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """topProb of the exact tier (docs/exact.md): int64[n] in [0, 65535].

    Args:
        logits: float64[n, V], Z / 2**24, each below 2**38 in size.
    """
    if _in_rows(logits):
        made = library()
        if made is not None:
            return _compiled_tops(made, logits)
    return _plain_tops(logits)


def _in_rows(z: torch.Tensor) -> bool:
    """Whether these are rows in this machine's memory, each in one piece."""
    return z.device.type == "cpu" and z.dim() == 2 and z.numel() > 0 and z.stride(1) == 1


def _plain_scores(z: torch.Tensor, temperature: int) -> torch.Tensor:
    scaled = (z.double() * float(1 << 40)) / float(temperature)
    scaled = torch.nan_to_num(scaled, nan=-float(SCORE_LIMIT))
    return scaled.clamp_(-float(SCORE_LIMIT), float(SCORE_LIMIT)).round_().to(torch.int64)


def _compiled_scores(made: Any, z: torch.Tensor, temperature: int) -> torch.Tensor:
    scores = torch.empty(z.shape, dtype=torch.int64)
    double = z.dtype == torch.float64
    (made.scores_of_doubles if double else made.scores_of_floats)(
        z.data_ptr(),
        *z.shape,
        z.stride(0),
        float(temperature),
        float(SCORE_LIMIT),
        scores.data_ptr(),
    )
    return scores


def _plain_tops(logits: torch.Tensor) -> torch.Tensor:
    scores = (logits * 2.0**24).long()
    below = (scores.amax(1, keepdim=True) - scores).clamp_(max=1 << 29)
    delta = ((below * COARSE) >> 34).clamp_(max=EXP_LIMIT)
    table = _table().to(logits.device)
    total = table.index_select(0, delta.flatten()).view_as(delta).sum(1)
    return ((1 << 35) // total).clamp_(max=65535)


def _compiled_tops(made: Any, logits: torch.Tensor) -> torch.Tensor:
    tops = torch.empty(len(logits), dtype=torch.int64)
    made.top_probabilities(
        logits.data_ptr(),
        *logits.shape,
        logits.stride(0),
        _table().data_ptr(),
        EXP_LIMIT,
        COARSE,
        tops.data_ptr(),
    )
    return tops


@functools.cache
def _table() -> torch.Tensor:
    """p(δ) for δ = 0 … EXP_LIMIT: int32."""
    return torch.from_numpy(exp_table()).int()


@functools.cache
def library() -> Any | None:
    """The compiled functions; None where they cannot be had or differ from torch."""
    try:
        made = compiled.load(compiled.build(SOURCE), _SIGNATURES)
    except compiled.NoCompiler:
        return None
    return made if _agrees(made) else None


def _agrees(made: Any) -> bool:
    """Whether both ways have the same bits, over values of every size and the halves between."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randn((4, 1031), generator=generator, dtype=torch.float64)
    z *= torch.tensor([[1.0], [30.0], [1e4], [2.0**60]], dtype=torch.float64)
    z[0, :4] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0])
    z[1, :64] = (torch.arange(64, dtype=torch.float64) - 31.5) * 2.0**-24
    for values in (z, z.float(), z[:, 1:-2]):
        for temperature in (1, 45_875, 1 << 16, 1 << 20):
            if not torch.equal(
                _plain_scores(values, temperature), _compiled_scores(made, values, temperature)
            ):
                return False
    logits = (z[1:3] * 2.0**24).round_() * 2.0**-24
    return torch.equal(_plain_tops(logits), _compiled_tops(made, logits))
