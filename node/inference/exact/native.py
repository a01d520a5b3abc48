"""The native kernel: the same integers for a few rows in a third of the time.

    python -m node.inference.exact.native        # build it now, or hear why it cannot be

Decoding is bound by reading weights and by the overhead of some sixty small tensor operations a
layer; `kernel.c` reads every weight once and has no such overhead. It is built when an exact model
is first loaded on a machine with a C compiler (`compiled`). Nothing needs it: without a build, or
with one that differs from the torch path in one bit on this machine, the torch path runs. Passes of
many rows, such as prompts, take torch's matrix products and attention.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from node.inference import compiled
from node.inference.architecture import Architecture, ModelError
from node.inference.cache import Run
from node.inference.compiled import NoCompiler
from node.inference.exact.model import ExactModel, Layer, Requantised, clamped_logits
from node.inference.exact.products import InexactBackend
from node.inference.exact.quantise import IntegerModel
from node.inference.exact.tables import EXP_LIMIT
from node.inference.model import Piece, Span

SOURCE: Final = Path(__file__).with_name("kernel.c")
#: Rows of a pass up to which the kernel is the faster path.
MOST_ROWS: Final = 32
PIECE: Final = 512  # 32639 · 127 · 512 < 2**31
_P, _N, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_SIGNATURES: Final = {
    "exact_norm": (_P, _N, _N, _P, _N, _N, _P),
    "exact_product": (_P, _N, _N, _P, _N, _N, _P, _P, _P, ctypes.c_int, _P),
    "exact_rotate": (_P, _N, _N, _N, _N, _P, _P),
    "exact_attend": (_P, _N, _N, _N, _N, _N, _N, _P, _P, _P, _P, _P, _P, _N, _P, _P, _P),
    "exact_activate": (_P, _N, _N, _D, _P, _P, _P, _P),
}


def load(cache: Path | None = None) -> Any:
    """The kernel, built first where it was not.

    Raises:
        NoCompiler: it cannot be built or loaded; the message says why.
    """
    return compiled.load(compiled.build(SOURCE, cache), _SIGNATURES)


class NativeModel(ExactModel):
    """An `ExactModel` whose passes of a few rows run in the kernel.

    Args:
        library: from `load`; the rest as `ExactModel`.

    Attributes:
        kernel_rows: passes of at most so many rows run wholly in the kernel; 0: torch alone.

    Raises:
        ModelError: not on a CPU, or a bias too large to be folded (the torch path has it apart).
        InexactBackend: the kernel differs from the torch path by one bit.
    """

    def __init__(self, integers: IntegerModel, library: Any, folder: Path | None = None) -> None:
        super().__init__(integers, "cpu", None, folder)
        parts = [self._head]
        for layer in self._layers:
            parts += [layer.qkv, layer.out, layer.gate_up, layer.down]
        if any(part.bias is not None for part in parts):
            raise ModelError("a bias of this model is too large for the kernel")
        self._library = library
        self.backend += " + kernel"
        self.kernel_rows = MOST_ROWS
        a = self.arch
        self._scores = torch.empty(a.context_length, dtype=torch.int64)
        self._sums = torch.empty(a.head_dim, dtype=torch.int64)
        self._act = torch.empty(a.intermediate_size, dtype=torch.int64)
        self._exp_table = self._exp.long()
        self._sigmoid_table = self._sigmoid.long()
        self._check_kernel()

    def truncated(self, arch: Architecture) -> ExactModel:
        return NativeModel(self._first_layers(arch), self._library, self.folder)

    def _check_kernel(self) -> None:
        """Both paths over a text in windows, compared."""
        ids = [(37 * i + 11) % self.vocab_size for i in range(12)]
        self.kernel_rows = 0
        want = self.forward([Span(self.new_cache(), ids, len(ids))])[0]
        self.kernel_rows = MOST_ROWS
        kernel, at = self.new_cache(), 0
        for rows in (1, 2, 4, 5):
            # The last piece as a prompt's: norm and activation in the kernel, products in torch.
            self.kernel_rows = MOST_ROWS if rows < 5 else 1
            got = self.forward([Span(kernel, ids[at : at + rows], rows)])[0]
            if not (
                torch.equal(got.hidden, want.hidden[at : at + rows])
                and torch.equal(got.logits, want.logits[at : at + rows])
            ):
                raise InexactBackend(
                    "the native kernel differs from the torch path on this machine"
                )
            at += rows
        self.kernel_rows = MOST_ROWS

    def _decode(self, chunk: Sequence[Piece]) -> torch.Tensor:
        rows = [len(piece.tokens) for piece in chunk]
        if sum(rows) > self.kernel_rows:
            return super()._decode(chunk)
        a, lib, n = self.arch, self._library, sum(rows)
        d, f, c = a.hidden_size, a.intermediate_size, a.head_dim
        x = self._embed(chunk)
        past = [piece.cache.length for piece in chunk]
        rotation = torch.cat([self._rotation[m : m + k] for m, k in zip(past, rows, strict=True)])
        turned = rotation.data_ptr()
        width = (a.heads + 2 * a.kv_heads) * c
        wide = max(width, 2 * f)
        y = torch.empty((n, wide), dtype=torch.float64)
        normed = torch.empty((n, d), dtype=torch.int16)
        mixed = torch.empty((n, a.heads * c), dtype=torch.int16)
        inner = torch.empty((n, f), dtype=torch.int16)
        q = torch.empty((n, a.heads, c), dtype=torch.int16)
        k = torch.empty((n, a.kv_heads, c), dtype=torch.int16)
        exponents = torch.empty(n, dtype=torch.float64)
        at_x, at_y, at_a, at_q = x.data_ptr(), y.data_ptr(), normed.data_ptr(), q.data_ptr()
        at_mixed, at_inner, at_e = mixed.data_ptr(), inner.data_ptr(), exponents.data_ptr()
        flat = y.view(-1)
        v = flat[: n * width].view(n, width)[:, (a.heads + a.kv_heads) * c :]
        v = v.unflatten(1, (a.kv_heads, c))
        t, epsilon = self._norm_shift, self._epsilon
        for number, layer in enumerate(self._layers):
            lib.exact_norm(at_x, n, d, layer.attention_gains.data_ptr(), t, epsilon, at_a)
            self._product(layer.qkv, at_a, n, at_y)
            lib.exact_rotate(at_y, n, width, a.heads, c, turned, at_q)
            lib.exact_rotate(at_y + 8 * a.heads * c, n, width, a.kv_heads, c, turned, k.data_ptr())
            at = 0
            for piece, m, count in zip(chunk, past, rows, strict=True):
                runs = piece.cache.append(number, k[at : at + count], v[at : at + count])
                self._attend_native(
                    at_q + 2 * at * a.heads * c,
                    count,
                    runs,
                    m,
                    layer.score_scale.data_ptr(),
                    at_mixed + 2 * at * a.heads * c,
                )
                at += count
            self._product(layer.out, at_mixed, n, at_x, add=1)
            lib.exact_norm(at_x, n, d, layer.mlp_gains.data_ptr(), t, epsilon, at_a)
            self._product(layer.gate_up, at_a, n, at_y)
            lib.exact_activate(
                at_y,
                n,
                f,
                layer.gate_step,
                self._sigmoid_table.data_ptr(),
                self._act.data_ptr(),
                at_e,
                at_inner,
            )
            self._product(layer.down, at_inner, n, at_x, add=1, exponents=at_e)
        return x

    def _norm(self, x: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
        """As in torch, for passes of any size: int16[n, d]."""
        if not self.kernel_rows:
            return super()._norm(x, gains)
        x = x.contiguous()
        a = torch.empty(x.shape, dtype=torch.int16)
        self._library.exact_norm(
            x.data_ptr(), *x.shape, gains.data_ptr(), self._norm_shift, self._epsilon, a.data_ptr()
        )
        return a

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        if not self.kernel_rows:
            return super()._mlp(layer, x)
        n, f = len(x), self.arch.intermediate_size
        both = layer.gate_up(self._norm(x, layer.mlp_gains))
        inner = torch.empty((n, f), dtype=torch.int16)
        exponents = torch.empty((n, 1), dtype=torch.float64)
        self._library.exact_activate(
            both.data_ptr(),
            n,
            f,
            layer.gate_step,
            self._sigmoid_table.data_ptr(),
            self._act.data_ptr(),
            exponents.data_ptr(),
            inner.data_ptr(),
        )
        return layer.down(inner, exponents)

    def _product(
        self, part: Requantised, a: int, n: int, out: int, add: int = 0, exponents: int = 0
    ) -> None:
        """One product; a and out are addresses of int16[n, in] and float64[n, out]."""
        product = part.product
        self._library.exact_product(
            a,
            n,
            product.in_features,
            product.weight.data_ptr(),
            product.out_features,
            product.in_features if product.narrow else PIECE,
            part.scale.data_ptr(),
            part.half.data_ptr(),
            exponents,
            add,
            out,
        )

    def _attend_native(
        self, q: int, n: int, runs: Sequence[Run], past: int, score_scale: int, out: int
    ) -> None:
        a, count = self.arch, len(runs)
        pointers, integers = ctypes.c_void_p * count, ctypes.c_int64 * count
        self._library.exact_attend(
            q,
            n,
            a.heads,
            a.kv_heads,
            a.head_dim,
            past,
            count,
            pointers(*(keys.data_ptr() for keys, _ in runs)),
            pointers(*(values.data_ptr() for _, values in runs)),
            integers(*(keys.stride(0) for keys, _ in runs)),
            integers(*(keys.shape[1] for keys, _ in runs)),
            score_scale,
            self._exp_table.data_ptr(),
            EXP_LIMIT,
            self._scores.data_ptr(),
            self._sums.data_ptr(),
            out,
        )

    def _read(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = len(x)
        if n > self.kernel_rows:
            return super()._read(x)
        hidden = self._norm(x, self._final_gains)
        logits = torch.empty((n, self._head.product.out_features), dtype=torch.float64)
        self._product(self._head, hidden.data_ptr(), n, logits.data_ptr())
        return hidden, clamped_logits(logits)


def main() -> int:
    """Build the kernel. Exit status 0, or 1 with the reason on stderr."""
    try:
        print(compiled.build(SOURCE))
    except NoCompiler as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
