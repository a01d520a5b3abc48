"""Matrix products in the layout that is fastest for a few rows.

A verify pass has 1 to 16 rows. There torch's float32 product on a CPU re-packs the whole weight
matrix on every call, so that two rows cost twice one row. oneDNN takes a weight packed once:
on an EPYC core, 49152 x 576 in float32 takes 9.6 ms for 1 row and 18.7 ms for 5 unpacked, 6.6 and
5.1 ms packed. The packed operator is torch's own (its compiler uses it) but not public, so it is
tried against the plain product at load and left out where it is missing or differs.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

# The row count the packed layout is chosen for; fewer are filled up to it, more work with it too.
_PACK_ROWS = 4


class Linear:
    """y = x W^T + b with W fixed. Weight [out, in]; input [n, in]; output [n, out]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias = None if bias is None else bias.contiguous()
        self._weight = weight.contiguous()
        self._packed = False
        if weight.device.type == "cpu" and can_pack(weight.dtype):
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, _PACK_ROWS)
            self._packed = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed:
            rows = len(x)
            if rows < _PACK_ROWS:
                x = F.pad(x, (0, 0, 0, _PACK_ROWS - rows))
            y = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return y[:rows] if rows < _PACK_ROWS else y
        return F.linear(x, self._weight, self._bias)


@functools.cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN's packed product exists here for `dtype` and agrees with the plain one."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(96, 64, generator=generator).to(dtype)
    bias = torch.randn(96, generator=generator).to(dtype)
    try:
        with torch.inference_mode():
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)
            for rows in (1, 5):
                x = torch.randn(rows, 64, generator=generator).to(dtype)
                got = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
                want = F.linear(x.double(), weight.double(), bias.double())
                tolerance = 1e-4 if dtype is torch.float32 else 0.2
                if not torch.allclose(got.double(), want, atol=tolerance, rtol=0):
                    return False
    except (RuntimeError, AttributeError):
        return False
    return True
