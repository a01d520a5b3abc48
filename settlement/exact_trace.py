"""A trace: every vector of an exact forward pass under one signed root, and one element of it
against the row and the input it comes from. Pure.

`docs/exact.md`, "Disputes", specifies the format; Traces.sol and ExactFaults.sol mirror this.
Four trees, one in the other, all as `settlement.trees` has them: chunks of 64 elements make a
vector, 13 vectors a layer (and two past the last) make a position, positions make the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from settlement import exact, trees
from settlement.exact import Opening, Sizes, Target
from settlement.exact_faults import ExactCode, OtherEvidence
from settlement.fault_proofs import MODEL_FAULT, Fault, Kind
from settlement.hashing import (
    TAG_TRACE_CHUNK,
    TAG_TRACE_POSITION,
    TAG_TRACE_VECTOR,
    keccak256,
    uint,
)
from settlement.records import Domain, Order, SessionStart
from settlement.schema import U32, Bytes32, Record
from settlement.signing import BadSignature

CHUNK: Final = 64  # elements
VECTORS: Final = 13  # of a layer
LAST_VECTORS: Final = 2  # past the last layer: RESIDUAL and NORM
MAX_EXPONENT: Final = 38
_NO_VECTOR: Final[tuple[Any, ...]] = (0, b"", [], [])  # ExactEvidence.Vector


class Place(IntEnum):
    """The vectors of a layer, in the order of its tree."""

    RESIDUAL = 0  # int32, d: x as it enters the layer
    NORM = 1  # int16, d; past the last layer: the final hidden state
    QUERY = 2  # int16, H·c
    KEY = 3  # int16, Hk·c
    VALUE = 4  # int16, Hk·c
    QUERY_ROTATED = 5  # int16, H·c
    KEY_ROTATED = 6  # int16, Hk·c
    MIXED = 7  # int16, H·c: what the heads bring together
    RESIDUAL_MID = 8  # int32, d: x after attention
    NORM_MID = 9  # int16, d
    GATE = 10  # int32, f
    UP = 11  # int32, f
    ACTIVATION = 12  # int16, f, with its exponent


_WIDE: Final = (Place.RESIDUAL, Place.RESIDUAL_MID, Place.GATE, Place.UP)


class Matrix(IntEnum):
    """A layer's matrices: tensor 16 · (layer + 1) + this."""

    QUERY = 0
    KEY = 1
    VALUE = 2
    OUT = 3
    GATE = 4
    UP = 5
    DOWN = 6

    @property
    def ends(self) -> tuple[int, int, int | None]:
        """Which vector it reads, which it makes, and which it is added to; counted from the
        layer's first, so that the next layer's x is number 13."""
        return _ENDS[self]


_ENDS: Final[dict[int, tuple[int, int, int | None]]] = {
    Matrix.QUERY: (Place.NORM, Place.QUERY, None),
    Matrix.KEY: (Place.NORM, Place.KEY, None),
    Matrix.VALUE: (Place.NORM, Place.VALUE, None),
    Matrix.OUT: (Place.MIXED, Place.RESIDUAL_MID, Place.RESIDUAL),
    Matrix.GATE: (Place.NORM_MID, Place.GATE, None),
    Matrix.UP: (Place.NORM_MID, Place.UP, None),
    Matrix.DOWN: (Place.ACTIVATION, VECTORS + Place.RESIDUAL, Place.RESIDUAL_MID),
}


@dataclass(frozen=True)
class Trace(Record):
    """V's word on the forward pass that ends at leaf `index` of a round. Signed by V alone."""

    WIRE_TAG: ClassVar[int] = 11

    start_hash: Bytes32
    round: U32
    index: U32
    positions: U32  # tokens of prompt and output that the pass read
    root: Bytes32


def shape_of(sizes: Sizes, vector: int) -> tuple[int, int]:
    """(elements, bytes of each) of vector number `vector`, counted from any layer's first."""
    kind = Place(vector % VECTORS)
    width = 4 if kind in _WIDE else 2
    if kind in (Place.QUERY, Place.QUERY_ROTATED, Place.MIXED):
        return sizes.heads * sizes.head_size, width
    if kind in (Place.KEY, Place.KEY_ROTATED, Place.VALUE):
        return sizes.key_heads * sizes.head_size, width
    return (sizes.hidden if kind < Place.GATE else sizes.mlp), width


def vectors_of(sizes: Sizes) -> int:
    """Vectors of one position."""
    return VECTORS * sizes.layers + LAST_VECTORS


# ---------------------------------------------------------------- what is committed


@dataclass(frozen=True)
class Vector:
    """One vector: big-endian elements of `width` bytes, and an activation's exponent."""

    data: bytes
    width: int
    exponent: int = 0

    @classmethod
    def of(cls, values: NDArray[np.int64], width: int, exponent: int = 0) -> Vector:
        """From integers that fit `width` bytes (2 or 4); ExactError where one does not."""
        kind = np.dtype(f">i{width}")
        if values.size and (
            int(values.min()) < np.iinfo(kind).min or int(values.max()) > np.iinfo(kind).max
        ):
            raise exact.ExactError(f"values from {values.min()} to {values.max()} in {width} bytes")
        return cls(values.astype(kind).tobytes(), width, exponent)

    @cached_property
    def chunks(self) -> trees.MerkleTree:
        """The tree over chunks of 64 elements."""
        size = CHUNK * self.width
        return trees.MerkleTree(
            keccak256(b"\x00", TAG_TRACE_CHUNK, self.data[at : at + size])
            for at in range(0, len(self.data), size)
        )

    @cached_property
    def leaf(self) -> bytes:
        """keccak256(0x00 ‖ tag ‖ uint8 exponent ‖ root of the chunks)."""
        return keccak256(b"\x00", TAG_TRACE_VECTOR, uint(self.exponent, 1), self.chunks.top())

    def element(self, index: int) -> int:
        return int.from_bytes(
            self.data[index * self.width : (index + 1) * self.width], "big", signed=True
        )


class Position:
    """A position's vectors: 13 a layer in the order of `Place`, and two past the last."""

    def __init__(self, vectors: Sequence[Vector]) -> None:
        self.vectors = tuple(vectors)
        self.tree = trees.MerkleTree(vector.leaf for vector in self.vectors)

    @property
    def root(self) -> bytes:
        return self.tree.top()

    @property
    def leaf(self) -> bytes:
        """keccak256(0x00 ‖ tag ‖ root of the vectors)."""
        return keccak256(b"\x00", TAG_TRACE_POSITION, self.root)


class Pass:
    """A whole forward pass, position by position."""

    def __init__(self, positions: Sequence[Position]) -> None:
        self.positions = tuple(positions)
        self.tree = trees.MerkleTree(position.leaf for position in self.positions)

    def trace(self, start_hash: bytes, round: int, index: int) -> Trace:
        """What V signs."""
        return Trace(start_hash, round, index, len(self.positions), self.tree.top())


# ---------------------------------------------------------------- one element


def element_code(
    sizes: Sizes, position: Position, layer: int, matrix: Matrix, element: int, row: Opening
) -> ExactCode | None:
    """What is wrong with one element of a matrix product (ExactFaults._byElement); None where it
    holds. OtherEvidence for a place that the model does not have or the row of another."""
    if not 0 <= layer < sizes.layers:
        raise OtherEvidence(f"layer {layer} of {sizes.layers}")
    source, output, residual = matrix.ends
    first = VECTORS * layer
    count, _ = shape_of(sizes, output)
    if not 0 <= element < count:
        raise OtherEvidence(f"element {element} of {count}")
    if (row.row.tensor, row.row.row) != (16 * (layer + 1) + matrix, element):
        raise OtherEvidence(f"row {row.row.row} of tensor {row.row.tensor} is another one")
    given = position.vectors[first + source]
    most = MAX_EXPONENT if source == Place.ACTIVATION else 0
    elements, _ = shape_of(sizes, source)
    if len(given.data) != 2 * elements or given.exponent > most:
        return ExactCode.TRACE_SHAPE
    shown = _element(sizes, position, first + output, element)
    if shown is None:
        return ExactCode.TRACE_SHAPE
    due = exact.scaled(exact.dot(given.data, row.row.weights), row.row, given.exponent)
    if residual is not None:
        before = _element(sizes, position, first + residual, element)
        if before is None:
            return ExactCode.TRACE_SHAPE
        due = exact.clamp(before + due, exact.RESIDUAL_LIMIT)
    return None if shown == due else ExactCode.ELEMENT


def _element(sizes: Sizes, position: Position, vector: int, element: int) -> int | None:
    """The element, or None where its chunk is not as long as the model has it. OtherEvidence where
    the vector has another number of chunks: it opens to nothing, and V owes an opening."""
    elements, width = shape_of(sizes, vector)
    start = element - element % CHUNK
    shown = position.vectors[vector]
    if len(shown.chunks) != -(-elements // CHUNK):
        raise OtherEvidence(f"vector {vector} has {len(shown.chunks)} chunks")
    chunk = shown.data[start * shown.width : (start + CHUNK) * shown.width]
    if len(chunk) != width * min(CHUNK, elements - start):
        return None
    return int.from_bytes(chunk[(element - start) * width :][:width], "big", signed=True)


def element_fault(
    domain: Domain,
    order: Order,
    start: SessionStart,
    trace: Trace,
    signature: bytes,
    run: Pass,
    target: Target,
    place: tuple[int, int, Matrix, int],
) -> Fault | None:
    """The proof that an element of a signed trace is not what its row and input give; None where
    it is.

    Args:
        run: the vectors under the trace, as V has posted them.
        place: position, layer, matrix, element.

    Raises:
        OtherEvidence: the trace is not V's or not over `run`, or there is no such place.
    """
    at, layer, matrix, element = place
    try:
        signer = domain.signer(trace, signature)
    except BadSignature as error:
        raise OtherEvidence("the trace is not signed") from error
    if signer != order.verifier or trace.start_hash != start.struct_hash:
        raise OtherEvidence("the trace is not of this session's verifier")
    if (trace.root, trace.positions) != (run.tree.top(), len(run.positions)):
        raise OtherEvidence("these vectors are not those under the trace")
    if target.manifest.model_id != order.target_model:
        raise OtherEvidence("the order names another target")
    position = run.positions[at]
    row = target.opening(16 * (layer + 1) + matrix, element)
    sizes = Sizes.of(row.header)
    code = element_code(sizes, position, layer, matrix, element, row)
    if code is None:
        return None
    source, output, residual = matrix.ends
    first = VECTORS * layer
    proof = (
        target.manifest.to_abi(),
        order.to_abi(),
        start.to_abi(),
        trace.to_abi(),
        signature,
        row.weights_words(),
        at,
        position.root,
        list(run.tree.siblings(at)),
        layer,
        int(matrix),
        element,
        row.row_words(),
        _opened(position, first + source, None),
        _opened(position, first + output, element),
        _NO_VECTOR if residual is None else _opened(position, first + residual, element),
    )
    return Fault(
        MODEL_FAULT,
        code,
        order.verifier,
        False,
        trace.start_hash,
        trace.round,
        Kind.EXACT_ELEMENT,
        proof,
    )


def _opened(position: Position, index: int, element: int | None) -> tuple[Any, ...]:
    """ExactEvidence.Vector: whole, or the chunk that `element` stands in."""
    vector = position.vectors[index]
    path = list(position.tree.siblings(index))
    if element is None:
        return (vector.exponent, vector.data, [], path)
    chunk, size = element // CHUNK, CHUNK * vector.width
    data = vector.data[chunk * size : (chunk + 1) * size]
    return (vector.exponent, data, list(vector.chunks.siblings(chunk)), path)
