"""The native kernel: the same integers in a fraction of the time.

    python -m node.inference.exact.native        # build it now, or hear why it cannot be

Decoding is bound by reading weights and by the overhead of some sixty small tensor operations a
layer; `kernel.c` reads every weight once for up to sixty rows, and runs all layers in one call that
leaves Python's lock to whoever signs and sends meanwhile. It is built when an exact model is first
loaded on a machine with a C compiler (`compiled`). Nothing needs it: without a build, or with one
that differs from the torch path in one bit on this machine, the torch path runs. The kernel is of
one thread: where torch has more than two, passes of many rows, such as prompts, take its products
and attention.
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
from node.inference.compiled import NoCompiler
from node.inference.exact.model import ExactModel, Layer, Requantised, clamped_logits
from node.inference.exact.products import InexactBackend, Int8Linear
from node.inference.exact.quantise import IntegerModel
from node.inference.exact.tables import EXP_LIMIT
from node.inference.model import Piece, Span

SOURCE: Final = Path(__file__).with_name("kernel.c")
#: Rows of a pass up to which the kernel is the faster path, where torch has more than two threads.
MOST_ROWS: Final = 32
_EVERY: Final = 1 << 62
BLOCK: Final = 60  # as in kernel.c
PIECE: Final = 512  # 32639 · 127 · 512 < 2**31
_P, _N, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_SIGNATURES: Final = {
    "exact_norm": (_P, _N, _N, _P, _N, _N, _P),
    "exact_product": (_P, _N, _N, _P, _N, _N, _P, _P, _P, ctypes.c_int, _P),
    "exact_activate": (_P, _N, _N, _D, _P, _P, _P, _P),
    "exact_layers": (_P, _N, _P, _P, _N, _P, _P, _P, _P),
}


class _Run(ctypes.Structure):
    _fields_ = (("store", _P), ("capacity", _N), ("start", _N), ("tokens", _N))


class _SpanRows(ctypes.Structure):
    _fields_ = (("rows", _N), ("past", _N), ("runs", _N))


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, _N) for name in ("hidden", "heads", "kv_heads", "head_dim", "inner")),
        *((name, _N) for name in ("norm_shift", "epsilon", "exp_limit")),
        *((name, _P) for name in ("exp_table", "sigmoid_table")),
    )


class _Product(ctypes.Structure):
    _fields_ = (
        *((name, _P) for name in ("weights", "scale", "half")),
        *((name, _N) for name in ("inputs", "outputs", "piece")),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _P) for name in ("attention_gains", "mlp_gains", "score_scale")),
        ("gate_step", _D),
        *((name, _Product) for name in ("qkv", "out", "gate_up", "down")),
    )


class _Scratch(ctypes.Structure):
    _fields_ = tuple(
        (name, _P)
        for name in (
            *("y", "exponents", "sums", "a", "q", "k", "mixed", "inner"),
            *("scores", "act", "p", "high", "low"),
        )
    )


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
        self.kernel_rows = MOST_ROWS if torch.get_num_threads() > 2 else _EVERY
        a = self.arch
        self._sums = torch.empty(a.head_dim, dtype=torch.float64)
        self._act = torch.empty(a.intermediate_size, dtype=torch.float64)
        places = a.context_length + 4
        self._scores = torch.empty(places, dtype=torch.int64)
        self._p = torch.empty(places, dtype=torch.int32)
        self._parts = torch.empty((2, places), dtype=torch.int16)
        # The entry at the limit, like all that lie further down, is 0.
        self._exp_table = self._exp.int()
        self._sigmoid_table = self._sigmoid.int()
        self._shape = _Shape(
            *(a.hidden_size, a.heads, a.kv_heads, a.head_dim, a.intermediate_size),
            *(self._norm_shift, self._epsilon, EXP_LIMIT),
            *(self._exp_table.data_ptr(), self._sigmoid_table.data_ptr()),
        )
        self._table = (_Layer * a.layers)(*map(_layer, self._layers))
        self._check_kernel()

    def truncated(self, arch: Architecture) -> ExactModel:
        return NativeModel(self._first_layers(arch), self._library, self.folder)

    def _check_kernel(self) -> None:
        """Both paths over a text in windows of every height of a tile, compared."""
        ids = [(37 * i + 11) % self.vocab_size for i in range(min(27, self.context_length))]
        whole, self.kernel_rows = self.kernel_rows, 0
        want = self.forward([Span(self.new_cache(), ids, len(ids))])[0]
        kernel, at = self.new_cache(), 0
        for most in (1, 2, 4, 3, 5, 7, 5):
            rows = min(most, len(ids) - at)
            # The last piece as a prompt's beside many threads: norm and activation in the kernel,
            # products in torch.
            self.kernel_rows = whole if at + rows < len(ids) else 1
            got = self.forward([Span(kernel, ids[at : at + rows], rows)])[0]
            if not (
                torch.equal(got.hidden, want.hidden[at : at + rows])
                and torch.equal(got.logits, want.logits[at : at + rows])
            ):
                raise InexactBackend(
                    "the native kernel differs from the torch path on this machine"
                )
            at += rows
        self.kernel_rows = whole

    def _decode(self, chunk: Sequence[Piece]) -> torch.Tensor:
        rows = [len(piece.tokens) for piece in chunk]
        if sum(rows) > self.kernel_rows:
            return super()._decode(chunk)
        a, n = self.arch, sum(rows)
        x = self._embed(chunk)
        past = [piece.cache.length for piece in chunk]
        rotation = torch.cat([self._rotation[m : m + k] for m, k in zip(past, rows, strict=True)])
        places = [
            piece.cache.places(count)  # type: ignore[attr-defined]
            for piece, count in zip(chunk, rows, strict=True)
        ]
        spans = zip(rows, past, map(len, places), strict=True)
        runs = [
            _Run(store.data_ptr(), store.shape[3], start, end - start)
            for found in places
            for store, start, end in found
        ]
        block = min(n, BLOCK)
        wide = max(n * (a.heads + 2 * a.kv_heads) * a.head_dim, block * 2 * a.intermediate_size)
        doubles = torch.empty(wide + block, dtype=torch.float64)
        heads = (a.heads, a.kv_heads, a.heads)
        sizes = [n * a.hidden_size, *(n * h * a.head_dim for h in heads)]
        sizes.append(block * a.intermediate_size)
        words = torch.empty(sum(sizes), dtype=torch.int16)
        at, addresses = words.data_ptr(), []
        for size in sizes:
            addresses.append(at)
            at += 2 * size
        y = doubles.data_ptr()
        kept = (self._scores, self._act, self._p, *self._parts)
        scratch = _Scratch(
            *(y, y + 8 * wide, self._sums.data_ptr(), *addresses),
            *(part.data_ptr() for part in kept),
        )
        self._library.exact_layers(
            self._table,
            len(self._table),
            ctypes.byref(self._shape),
            (_SpanRows * len(chunk))(*(_SpanRows(*span) for span in spans)),
            len(chunk),
            (_Run * len(runs))(*runs),
            rotation.data_ptr(),
            ctypes.byref(scratch),
            x.data_ptr(),
        )
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

    def _read(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = len(x)
        if n > self.kernel_rows:
            return super()._read(x)
        hidden = self._norm(x, self._final_gains)
        logits = torch.empty((n, self._head.product.out_features), dtype=torch.float64)
        head = self._head.product
        self._library.exact_product(
            hidden.data_ptr(),
            n,
            head.in_features,
            head.weight.data_ptr(),
            head.out_features,
            _piece(head),
            self._head.scale.data_ptr(),
            self._head.half.data_ptr(),
            None,
            0,
            logits.data_ptr(),
        )
        return hidden, clamped_logits(logits)


def _piece(product: Int8Linear) -> int:
    """How many inputs are summed in 32 bits."""
    return product.in_features if product.narrow else PIECE


def _product(part: Requantised) -> _Product:
    found = part.product
    addresses = (t.data_ptr() for t in (found.weight, part.scale, part.half))
    return _Product(*addresses, found.in_features, found.out_features, _piece(found))


def _layer(layer: Layer) -> _Layer:
    """A layer by the addresses of its tensors, which its model keeps."""
    gains = (layer.attention_gains, layer.mlp_gains, layer.score_scale)
    return _Layer(
        *(tensor.data_ptr() for tensor in gains),
        layer.gate_step,
        *map(_product, (layer.qkv, layer.out, layer.gate_up, layer.down)),
    )


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
