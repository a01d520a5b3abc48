"""The exact tier as a contract computes it: rows of weights under a manifest, logits, scores. Pure.

`docs/exact.md` specifies all of it ("Weight commitment", "Header", "Fingerprint", "Logits");
ExactModel.sol and IntDot.sol give the same bits. Python's integers do not wrap, so this module is
the oracle that both are held to.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from settlement.hashing import (
    TAG_EXACT_HEADER,
    TAG_EXACT_ROW,
    TAG_EXACT_WEIGHTS,
    TAG_HIDDEN,
    ZERO32,
    keccak256,
    uint,
)
from settlement.records import Manifest
from settlement.trees import MerkleProof

HEAD: Final = 1  # the output head's tensor
LOGIT_LIMIT: Final = (1 << 36) - 1  # Q24
RESIDUAL_LIMIT: Final = (1 << 31) - 1  # Q16
_SIZES: Final = 10  # uint32 at the beginning of a header, after its tag


class ExactError(ValueError):
    """A header, row or hidden state that the exact tier is not defined for."""


@dataclass(frozen=True)
class Sizes:
    """The sizes in a header. d = `hidden`, f = `mlp`, H = `heads`, Hk = `key_heads`,
    c = `head_size`; `head_ids` is zero for a head over the whole vocabulary, row by row."""

    vocabulary: int
    head_rows: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    context: int
    head_ids: bytes = ZERO32

    @classmethod
    def of(cls, header: bytes) -> Sizes:
        """Read from a header. ExactError for bytes that are none."""
        tag = len(TAG_EXACT_HEADER)
        fixed = tag + 4 * _SIZES + 8 + 64
        if len(header) < fixed or header[:tag] != TAG_EXACT_HEADER:
            raise ExactError(f"not a header of the exact tier: {len(header)} bytes")
        version, *sizes = struct.unpack_from(f">{_SIZES}I", header, tag)
        if version != 1:
            raise ExactError(f"a header of version {version}, not 1")
        return replace(cls(*sizes), head_ids=header[-32:])


@dataclass(frozen=True)
class Row:
    """What a leaf of the weights' tree commits to. `weights`: int8 of a matrix's row, or int32 of
    a vector, big-endian.

    Attributes:
        tensor, row: which one.
        multiplier, shift, bias: from the products' sum to the output's units; 0 for a vector.
    """

    tensor: int
    row: int
    multiplier: int
    shift: int
    bias: int
    weights: bytes

    @cached_property
    def leaf(self) -> bytes:
        """The leaf hash, 32 bytes."""
        return keccak256(
            b"\x00",
            TAG_EXACT_ROW,
            uint(self.tensor, 4),
            uint(self.row, 4),
            uint(self.multiplier, 4),
            uint(self.shift, 1),
            self.bias.to_bytes(8, "big", signed=True),
            self.weights,
        )


def weights_root(header_hash: bytes, leaf_count: int, tree_root: bytes) -> bytes:
    """keccak256(tag ‖ headerHash ‖ uint32 leafCount ‖ treeRoot)."""
    return keccak256(TAG_EXACT_WEIGHTS, header_hash, uint(leaf_count, 4), tree_root)


@dataclass(frozen=True)
class Opening:
    """A row and its way to the weights root, with the header that stands beside the tree."""

    row: Row
    proof: MerkleProof
    header: bytes

    @cached_property
    def tree_root(self) -> bytes:
        """TreeError when the path is malformed."""
        return self.proof.root_of(self.row.leaf)

    @property
    def weights_root(self) -> bytes:
        """The manifest's root that this leads to. TreeError when the path is malformed."""
        return weights_root(keccak256(self.header), self.proof.count, self.tree_root)

    def row_words(self) -> tuple[Any, ...]:
        """ExactModel.Row."""
        row, proof = self.row, self.proof
        figures = (proof.index, row.multiplier, row.shift, row.bias)
        return (*figures, row.weights, list(proof.siblings))

    def weights_words(self) -> tuple[Any, ...]:
        """ExactModel.Weights."""
        return (self.header, self.proof.count, self.tree_root)


NO_ROW: Final[tuple[Any, ...]] = (0, 0, 0, 0, b"", [])  # ExactModel.Row where there is none


class Target(Protocol):
    """A target model of the exact tier, as far as disputes need it."""

    @property
    def manifest(self) -> Manifest:
        """What the order's targetModel is the hash of."""

    def opening(self, tensor: int, row: int) -> Opening:
        """A row with its path. KeyError or IndexError where there is none."""

    def logits(self, hidden: bytes) -> NDArray[np.int64]:
        """int64[V] in Q24 of a final hidden state (int16 each, big-endian)."""


# ---------------------------------------------------------------- arithmetic


def fingerprint(hidden: bytes) -> bytes:
    """keccak256(tag ‖ int16 each, big-endian), 32 bytes."""
    return keccak256(TAG_HIDDEN, hidden)


def dot(activations: bytes, weights: bytes) -> int:
    """Σ a_i w_i of int16 (big-endian) and int8; ExactError when the lengths do not pair up."""
    if len(activations) != 2 * len(weights):
        raise ExactError(f"{len(activations)} bytes of int16 beside {len(weights)} of int8")
    a = np.frombuffer(activations, ">i2").astype(np.int64)
    w = np.frombuffer(weights, np.int8).astype(np.int64)
    return int(a @ w)


def rshift(value: int, bits: int) -> int:
    """To the nearest, halves up; a negative `bits` multiplies by a power of two."""
    if bits <= 0:
        return value << -bits
    return (value + (1 << (bits - 1))) >> bits


def scaled(acc: int, row: Row, exponent: int = 0) -> int:
    """rshift(acc · multiplier, shift − exponent) + bias: from the sum of a row's products to the
    output's units. `exponent` is the activation vector's own, of the MLP's second half only."""
    return rshift(acc * row.multiplier, row.shift - exponent) + row.bias


def clamp(value: int, limit: int) -> int:
    """`value` within ±limit."""
    return max(-limit, min(limit, value))


def logit(hidden: bytes, row: Row) -> int:
    """The logit that a row of the head gives, Q24."""
    return clamp(scaled(dot(hidden, row.weights), row), LOGIT_LIMIT)


def score(z: int, temperature: int) -> int:
    """z · 2**16 / temperature (Q16, positive), to the nearest, halves to even: Q24."""
    quotient, rest = divmod(z << 16, temperature)
    up = 2 * rest > temperature or (2 * rest == temperature and quotient & 1)
    return quotient + 1 if up else quotient


def scores(z: NDArray[np.int64], temperature: int) -> NDArray[np.int64]:
    """`score` of each element of int64[V]: float64 rounds these quotients rightly, by the bound
    that stands under "Logits"."""
    result: NDArray[np.int64] = np.rint((z << 16) / float(temperature)).astype(np.int64)
    return result
