"""The weights root of an integer model, and proofs of its rows.

See docs/exact.md, "Weight commitment" and "Header".

The root commits to every integer the forward pass reads: rows with their multipliers, gains, layer
constants, and by the header sizes, rotary phases and tables. One row with its path is enough to
check one output element of any matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from node.inference.exact import quantise
from node.inference.exact.quantise import IntegerModel, Matrix
from node.inference.exact.tables import tables_hash
from settlement.exact import Opening, Row, weights_root
from settlement.hashing import TAG_EXACT_HEADER, ZERO32, keccak256, uint
from settlement.trees import MerkleTree

VERSION = 1


class Commitment:
    """The tree over a model's rows: seconds to build for a hundred million weights."""

    def __init__(self, model: IntegerModel) -> None:
        self._model = model
        self._starts: dict[int, int] = {}

    @cached_property
    def tree(self) -> MerkleTree:
        tree = MerkleTree()
        for row in rows(self._model):
            self._starts.setdefault(row.tensor, len(tree))
            tree.append(row.leaf)
        return tree

    @cached_property
    def header(self) -> bytes:
        return header(self._model)

    @property
    def root(self) -> bytes:
        """The manifest's weights root, 32 bytes."""
        return weights_root(keccak256(self.header), len(self.tree), self.tree.top())

    def opening(self, tensor: int, row: int) -> Opening:
        """A row with its path. KeyError or IndexError where the model has no such row."""
        tree = self.tree
        found = _row_at(self._model, tensor, row)
        return Opening(found, tree.proof(self._starts[tensor] + row), self.header)


def header(model: IntegerModel) -> bytes:
    """Sizes, E, rotary phases, the hash of the tables, and of a reduced head's ids."""
    a, ids = model.arch, model.head_ids
    sizes = (
        VERSION,
        a.vocab_size,
        len(model.head.weights),
        a.hidden_size,
        a.intermediate_size,
        a.layers,
        a.heads,
        a.kv_heads,
        a.head_dim,
        a.context_length,
    )
    return b"".join(
        (
            TAG_EXACT_HEADER,
            *(uint(size, 4) for size in sizes),
            uint(model.epsilon, 8),
            *(uint(phase, 8) for phase in model.phases),
            tables_hash(),
            ZERO32 if ids is None else keccak256(ids.astype(">u4").tobytes()),
        )
    )


def rows(model: IntegerModel) -> Iterator[Row]:
    """Every row in the order of the tree: by tensor, then row."""
    yield from _matrix_rows(model.embedding)
    yield from _matrix_rows(model.head)
    yield _vector(quantise.FINAL_NORM, model.final_gains)
    for number in range(len(model.layers)):
        for part in _layer_parts(model, number):
            if isinstance(part, Matrix):
                yield from _matrix_rows(part)
            else:
                yield part


def _layer_parts(model: IntegerModel, number: int) -> list[Matrix | Row]:
    layer = model.layers[number]
    constants = np.array([*layer.score_shifts, layer.gate_bits, layer.up_bits])
    return [
        layer.query,
        layer.key,
        layer.value,
        layer.out,
        layer.gate,
        layer.up,
        layer.down,
        _vector(quantise.tensor_id(number, quantise.ATTENTION_NORM), layer.attention_gains),
        _vector(quantise.tensor_id(number, quantise.MLP_NORM), layer.mlp_gains),
        _vector(quantise.tensor_id(number, quantise.CONSTANTS), constants),
    ]


def _row_at(model: IntegerModel, tensor: int, row: int) -> Row:
    parts: list[Matrix | Row]
    if tensor < 16:
        parts = [model.embedding, model.head, _vector(quantise.FINAL_NORM, model.final_gains)]
    else:
        parts = _layer_parts(model, tensor // 16 - 1)
    part = next((p for p in parts if p.tensor == tensor), None)
    if part is None:
        raise KeyError(f"the model has no tensor {tensor}")
    if isinstance(part, Matrix):
        if not 0 <= row < len(part.weights):
            raise IndexError(f"tensor {tensor} has {len(part.weights)} rows, not row {row}")
        return _matrix_row(part, row)
    if row:
        raise IndexError(f"tensor {tensor} is a vector: row 0 only, not {row}")
    return part


def _matrix_rows(matrix: Matrix) -> Iterator[Row]:
    return (_matrix_row(matrix, row) for row in range(len(matrix.weights)))


def _matrix_row(matrix: Matrix, row: int) -> Row:
    return Row(
        matrix.tensor,
        row,
        int(matrix.multipliers[row]),
        matrix.shift,
        int(matrix.bias[row]),
        matrix.weights[row].tobytes(),
    )


def _vector(tensor: int, values: NDArray[np.int64]) -> Row:
    return Row(tensor, 0, 0, 0, 0, values.astype(">i4").tobytes())
