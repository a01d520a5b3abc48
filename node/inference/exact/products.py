"""Exact products of 16-bit activations with int8 weights, on whatever the machine has.

A sum of integers is the same in any order, so any kernel that does not saturate or round gives the
same bits. Three do, and `choose` takes the fastest that passes a self-test on this machine:

- "int8": `torch._int_mm` on the two int8 halves of an activation, two rows of one product. Fast
  where there is VNNI, AMX or a tensor core. Held to older instructions it saturates a 16-bit
  intermediate and fails the test; on an older CPU it is exact, but runs a plain loop.
- "float64": integers below 2**53 multiply and add without rounding in float64: 15 bits of
  activation, 7 of weight and at most 16 of length.
- "float32": halves again, in pieces of at most 1024 inputs: 2**14 · 1024 = 2**24. For devices
  that are slow in float64 and have no int8.

Weights stay int8 in memory; the float kernels widen a block at a time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Final

import torch

from node.inference.architecture import ModelError

BACKENDS: Final = ("int8", "float64", "float32")
_PIECE: Final = 1024  # inputs of an exact float32 sum
# Weights beyond this size are taken in blocks of it for one token, so that the second half finds
# them in the cache: of no use for a layer's matrices, a third less time for a head.
_BLOCK_BYTES: Final = 1 << 20
_WHOLE_BYTES: Final = 4 << 20
_WIDEN_ROWS: Final = 1024


class InexactBackend(ModelError):
    """A kernel of this machine rounds or saturates: it must not compute in the exact tier."""


class Int8Linear:
    """acc = a Wᵀ over integers: a [n, in] of 16-bit integers in any dtype, float64[n, out] back.

    Args:
        weight: int8[out, in] in [−127, 127].
        backend: one of `BACKENDS`.
    """

    def __init__(self, weight: torch.Tensor, backend: str) -> None:
        if backend not in BACKENDS:
            raise ModelError(f"backend {backend!r}: must be one of {', '.join(BACKENDS)}")
        self.out_features, self.in_features = weight.shape
        self.weight = weight.contiguous()
        # torch._int_mm reads a matrix of one input with the wrong stride (torch 2.13).
        self._backend = "float64" if self.in_features == 1 else backend
        self._cuda = weight.device.type == "cuda"
        widest = int(weight.abs().sum(1, dtype=torch.int64).max()) if weight.numel() else 0
        #: every sum of 16-bit activations fits int32
        self.narrow = widest << 15 < 1 << 31
        block = self.out_features
        if weight.numel() > _WHOLE_BYTES:
            block = max(_BLOCK_BYTES // self.in_features, 1)
        self._blocks = [
            (a, min(a + block, self.out_features)) for a in range(0, self.out_features, block)
        ]
        self._columns = [self.weight[a:b].t() for a, b in self._blocks]
        if backend == "int8" and self._cuda:
            # Tensor cores want multiples of 8 both ways.
            padded = torch.nn.functional.pad(
                self.weight, (0, -self.in_features % 8, 0, -self.out_features % 8)
            )
            self._columns = [padded.t()]

    @property
    def bytes(self) -> int:
        return self.weight.numel()

    def check(self) -> None:
        """Compare with int64 on these very weights, some outputs of each shape of product.

        Raises:
            InexactBackend: one integer differs.
        """
        generator = torch.Generator().manual_seed(11)
        picked = torch.randint(0, self.out_features, (64,), generator=generator)
        columns = self.weight.cpu()[picked].long().t()
        for rows in (1, 2, 9, 40):
            a = torch.randint(-32639, 32640, (rows, self.in_features), generator=generator)
            a[-1] = torch.where(a[-1] < 0, -32639, 32639)
            got = self(a.double().to(self.weight.device))[:, picked.to(self.weight.device)]
            if not torch.equal(got.cpu().long(), a @ columns):
                raise InexactBackend(
                    f"{self._backend} with {rows} rows of {self.in_features} inputs differs from "
                    f"integer arithmetic on this machine: choose another backend"
                )

    def __call__(self, a: torch.Tensor) -> torch.Tensor:
        if self._backend == "int8":
            if self._cuda:
                return self._int8_cuda(a)
            return self._int8_one(a) if len(a) == 1 else self._int8_many(a)
        if self._backend == "float64":
            parts = [a.double() @ block.double().t() for block in self._widened()]
        else:
            parts = [self._float32(a, block) for block in self._widened()]
        return torch.cat(parts, dim=1)

    def _widened(self) -> Iterator[torch.Tensor]:
        for at in range(0, self.out_features, _WIDEN_ROWS):
            yield self.weight[at : at + _WIDEN_ROWS]

    def _int8_one(self, a: torch.Tensor) -> torch.Tensor:
        """One row: two matrix-vector products per block beat one product of two rows, because
        torch's kernel for one row does not re-pack the weights."""
        high, low = halves(a)
        if len(self._columns) == 1:
            upper, lower = (
                torch._int_mm(high, self._columns[0]),
                torch._int_mm(low, self._columns[0]),
            )
        else:
            upper, lower = torch.empty((2, 1, self.out_features), dtype=torch.int32).unbind(0)
            for (start, stop), columns in zip(self._blocks, self._columns, strict=True):
                torch._int_mm(high, columns, out=upper[:, start:stop])
                torch._int_mm(low, columns, out=lower[:, start:stop])
        return self._joined(upper, lower)

    def _int8_many(self, a: torch.Tensor) -> torch.Tensor:
        rows = torch.cat(halves(a))
        both = torch._int_mm(rows, self.weight.t())
        return self._joined(both[: len(a)], both[len(a) :])

    def _int8_cuda(self, a: torch.Tensor) -> torch.Tensor:
        rows = torch.cat(halves(a))
        # _int_mm on CUDA needs more than 16 rows.
        extra = max(32, -(-len(rows) // 8) * 8) - len(rows)
        rows = torch.nn.functional.pad(rows, (0, -self.in_features % 8, 0, extra))
        both = torch._int_mm(rows, self._columns[0])[:, : self.out_features]
        return self._joined(both[: len(a)], both[len(a) : 2 * len(a)])

    def _joined(self, upper: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
        if self.narrow:
            return torch.add(lower, upper, alpha=256).double()
        return torch.add(lower.double(), upper.double(), alpha=256)

    def _float32(self, a: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        rows = torch.cat(halves(a)).float()
        both = torch.zeros((len(rows), len(block)), dtype=torch.float64, device=a.device)
        for at in range(0, self.in_features, _PIECE):
            piece = block[:, at : at + _PIECE].float()
            both += rows[:, at : at + _PIECE] @ piece.t()
        return torch.add(both[len(a) :], both[: len(a)], alpha=256)


def halves(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(hi, lo) int8 with a = 256·hi + lo, for integers in [−32639, 32639] of any dtype."""
    narrow = a.to(torch.int16)
    return ((narrow + 128) >> 8).to(torch.int8), narrow.to(torch.int8)


# ---------------------------------------------------------------- what this machine can do


@functools.cache
def works(backend: str, device: str, threads: int = 0) -> bool:
    """Whether a backend gives the integers of an int64 product here, at the extremes that make
    kernels saturate and over the row counts that select different kernels. `threads` only keys the
    cache: another number can mean another kernel."""
    generator = torch.Generator().manual_seed(7)
    try:
        with torch.inference_mode():
            return all(
                _agrees(backend, device, rows, outputs, inputs, extreme, generator)
                for outputs, inputs in ((48, 64), (200, 576), (33, 1536), (1100, 1048))
                for rows in (1, 2, 5, 16, 33)
                for extreme in (True, False)
            )
    except (RuntimeError, AttributeError):  # this torch or this device has no such product
        return False


def _agrees(
    backend: str,
    device: str,
    rows: int,
    outputs: int,
    inputs: int,
    extreme: bool,
    generator: torch.Generator,
) -> bool:
    if extreme:
        a = torch.full((rows, inputs), 32639, dtype=torch.int64)
        w = torch.full((outputs, inputs), 127, dtype=torch.int8)
        a[1::2], w[1::2] = -32639, -127
        a[:, ::7] = -a[:, ::7]
        w[:, ::5] = -w[:, ::5]
    else:
        a = torch.randint(-32639, 32640, (rows, inputs), generator=generator)
        w = torch.randint(-127, 128, (outputs, inputs), generator=generator).to(torch.int8)
    want = a @ w.long().t()
    got = Int8Linear(w.to(device), backend)(a.double().to(device))
    return bool((got.cpu().long() == want).all())


@functools.cache
def _seconds(backend: str, threads: int) -> float:
    """What a decode step's and a prompt's products take on a CPU, the best of three. `threads` only
    keys the cache."""
    generator = torch.Generator().manual_seed(3)
    weights = torch.randint(-127, 128, (1024, 512), generator=generator).to(torch.int8)
    product = Int8Linear(weights, backend)
    steps = [torch.full((rows, 512), 32639.0, dtype=torch.float64) for rows in (1, 1, 1, 1, 32)]
    took = []
    with torch.inference_mode():
        for _ in range(3):
            began = time.perf_counter()
            for a in steps:
                product(a)
            took.append(time.perf_counter() - began)
    return min(took)


def choose(device: torch.device, wanted: str | None = None) -> str:
    """The backend to compute with.

    Args:
        wanted: one of `BACKENDS`, or None for the fastest that works on a CPU, the
            first that works on another device.

    Raises:
        InexactBackend: the wanted one, or all of them, differ from integer arithmetic here.
    """
    names = BACKENDS if wanted is None else (wanted,)
    for name in names:
        if name not in BACKENDS:
            raise ModelError(f"backend {name!r}: must be one of {', '.join(BACKENDS)}")
    place = (str(device), torch.get_num_threads())
    exact = [name for name in names if works(name, *place)]
    if exact and (device.type != "cpu" or len(exact) == 1):
        return exact[0]  # the order of `BACKENDS`: on a device a short product measures its launch
    if exact:
        return min(exact, key=lambda name: _seconds(name, torch.get_num_threads()))
    raise InexactBackend(
        f"{' and '.join(names)} on {device} differ from integer arithmetic: this machine cannot "
        f"run the exact tier with them"
    )
