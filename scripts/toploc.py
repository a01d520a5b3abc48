"""TOPLOC's proof of activations and its check, to be measured beside our fingerprints.

After Ong et al., "TopLoc: A Locality Sensitive Hashing Scheme for Trustless Verifiable Inference"
(arXiv 2501.16007), algorithms 1 and 2: of every 32 tokens' final hidden states, laid end to end in
bfloat16, the 128 entries of largest magnitude; a polynomial over GF(65497) goes through their
(index, bits). 258 bytes. Whoever checks takes the 128 largest of its own states, evaluates the
polynomial there, and counts exponents that differ; where they agree it looks at how far mantissas
lie apart. An index that is not in the proof evaluates to something arbitrary.

A measuring instrument: nothing in a node uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import mean, median
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

PRIME: Final = 65497
TOP: Final = 128
TOKENS: Final = 32
_MANTISSA: Final = 7
_NOTHING_AGREES: Final = 2.0**64

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Distance:
    """What a check comes to: exponents of TOP that differ, and mantissa errors of the others."""

    exponents: int
    mean: float
    median: float

    def accepted(self) -> bool:
        """By the thresholds published for bfloat16: at least 38 exponents agree, mean at most 10,
        median at most 8."""
        return self.exponents <= TOP - 38 and self.mean <= 10 and self.median <= 8


def largest(hidden: NDArray[np.float32]) -> tuple[Ints, Ints]:
    """Indices and bfloat16 bits of the TOP entries of largest magnitude of float[n, d]."""
    flat = torch.from_numpy(np.ascontiguousarray(hidden)).to(torch.bfloat16).flatten()
    if len(flat) < TOP:
        raise ValueError(f"{len(flat)} activations: a proof needs {TOP}")
    at = flat.abs().topk(TOP).indices
    bits = flat[at].view(torch.int16).to(torch.int64) & 0xFFFF
    return at.numpy(), bits.numpy()


@lru_cache(maxsize=1)
def _inverses() -> Ints:
    """Of 1 … PRIME − 1, at their own place."""
    out = np.ones(PRIME, np.int64)
    for value in range(2, PRIME):
        out[value] = (PRIME - (PRIME // value) * out[PRIME % value] % PRIME) % PRIME
    return out


@dataclass(frozen=True)
class Proof:
    """A polynomial in Newton's form: nodes and divided differences, int64[TOP] each.

    The published encoding keeps coefficients and a modulus for indices (2 + 2·TOP bytes); what the
    polynomial gives at an index is the same.
    """

    nodes: Ints
    differences: Ints

    @classmethod
    def of(cls, hidden: NDArray[np.float32]) -> Proof:
        """Of at most TOKENS final hidden states, float[n, d] with n·d below PRIME."""
        if hidden.size >= PRIME:
            raise ValueError(f"{hidden.size} activations: indices must stay below {PRIME}")
        nodes, values = largest(hidden)
        differences = values % PRIME
        for step in range(1, TOP):
            rise = (differences[step:] - differences[step - 1 : -1]) % PRIME
            run = (nodes[step:] - nodes[:-step]) % PRIME
            differences = differences.copy()
            differences[step:] = rise * _inverses()[run] % PRIME
        return cls(nodes, differences)

    def at(self, indices: Ints) -> Ints:
        """The polynomial's values, by Horner's rule."""
        out = np.full(len(indices), self.differences[-1], np.int64)
        for node, difference in zip(self.nodes[-2::-1], self.differences[-2::-1], strict=True):
            out = (out * ((indices - node) % PRIME) + difference) % PRIME
        return out

    def check(self, hidden: NDArray[np.float32]) -> Distance:
        """Against the checker's own states for the same tokens."""
        indices, ours = largest(hidden)
        theirs = self.at(indices)
        agree = (ours >> _MANTISSA & 0xFF) == (theirs >> _MANTISSA & 0xFF)
        low = (1 << _MANTISSA) - 1
        errors = np.abs((ours & low) - (theirs & low))[agree].tolist()
        if not errors:
            return Distance(TOP, _NOTHING_AGREES, _NOTHING_AGREES)
        return Distance(TOP - len(errors), mean(errors), median(errors))


def proofs(hidden: NDArray[np.float32]) -> list[Proof]:
    """One for every TOKENS states, the last for what is left."""
    return [Proof.of(hidden[at : at + TOKENS]) for at in range(0, len(hidden), TOKENS)]


def checks(made: list[Proof], hidden: NDArray[np.float32]) -> list[Distance]:
    """Every proof against the checker's states."""
    return [p.check(hidden[TOKENS * n : TOKENS * (n + 1)]) for n, p in enumerate(made)]
