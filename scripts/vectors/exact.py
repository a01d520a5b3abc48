"""Golden vectors of the exact tier's arithmetic, commitments and proofs."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from eth_abi import encode

from settlement import exact, trees
from settlement.exact import HEAD, Opening, Row
from settlement.exact_trace import CHUNK, Position, Trace, Vector
from settlement.hashing import TAG_EXACT_HEADER, keccak256, uint

_LENGTHS: Final = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70, 96)


def exact_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: exact")
    return {
        "dots": _dots(rng),
        "scaled": _scaled(rng),
        "scores": _scores(rng),
        "head": _head(rng),
        "vectors": [_vector(rng, elements) for elements in (1, 63, 64, 65, 130, 200)],
        "trace": _trace(rng),
    }


def _dots(rng: Random) -> list[dict[str, Any]]:
    pairs = [(rng.randbytes(2 * n), rng.randbytes(n)) for n in _LENGTHS]
    for activation in (b"\x80\x00", b"\x7f\xff"):
        pairs += [(activation * 40, weight * 40) for weight in (b"\x80", b"\x81", b"\x7f")]
    return [{"activations": a, "weights": w, "dot": exact.dot(a, w)} for a, w in pairs]


def _scaled(rng: Random) -> list[dict[str, Any]]:
    cases = [
        (acc, 3, shift, 10, exponent)
        for acc in (-5, -2, -1, 0, 1, 2, 5)
        for shift, exponent in ((2, 0), (0, 0), (2, 2), (2, 4))
    ]
    for _ in range(24):
        acc = rng.randrange(-(1 << 36), 1 << 36)
        bias = rng.randrange(-(1 << 30), 1 << 30)
        cases.append((acc, rng.randrange(1 << 22), rng.randrange(1, 63), bias, rng.randrange(39)))
    out = []
    for acc, multiplier, shift, bias, exponent in cases:
        row = Row(HEAD, 0, multiplier, shift, bias, b"")
        out.append(
            {
                "acc": acc,
                "multiplier": multiplier,
                "shift": shift,
                "bias": bias,
                "exponent": exponent,
                "value": exact.scaled(acc, row, exponent),
            }
        )
    return out


def _scores(rng: Random) -> list[dict[str, Any]]:
    pairs = [(z, t) for z in (-7, -3, -1, 0, 1, 3, 7) for t in (1, 65_536, 131_072, 196_608)]
    limit = exact.LOGIT_LIMIT
    pairs += [(z, t) for z in (-limit, limit) for t in (1, 3, 65_535, 2**32 - 1)]
    pairs += [(rng.randrange(-limit, limit), rng.randrange(1, 1 << 18)) for _ in range(24)]
    return [{"z": z, "temperature": t, "score": exact.score(z, t)} for z, t in pairs]


def _head(rng: Random) -> dict[str, Any]:
    """A header, a head of nine rows under a weights root, and the logits of a hidden state."""
    width = 45
    sizes = (1, 9, 9, width, 2 * width, 2, 3, 1, 16, 512)
    header = TAG_EXACT_HEADER + b"".join(uint(size, 4) for size in sizes)
    header += uint(1024, 8) + rng.randbytes(8 * 8) + rng.randbytes(32) + bytes(32)
    rows = []
    for row in range(9):
        figures = (rng.randrange(1 << 21, 1 << 22), 19, rng.randrange(-9, 9))
        rows.append(Row(HEAD, row, *figures, rng.randbytes(width)))
    tree = trees.MerkleTree(row.leaf for row in rows)
    hidden = rng.randbytes(2 * width)
    opening = Opening(rows[0], tree.proof(0), header)
    return {
        "header": header,
        "leafCount": len(tree),
        "treeRoot": tree.top(),
        "weightsRoot": opening.weights_root,
        "hidden": hidden,
        "fingerprint": exact.fingerprint(hidden),
        "rows": [
            {
                "tensor": row.tensor,
                "row": row.row,
                "multiplier": row.multiplier,
                "shift": row.shift,
                "bias": row.bias,
                "weights": row.weights,
                "leaf": row.leaf,
                "path": list(tree.siblings(row.row)),
                "logit": exact.logit(hidden, row),
            }
            for row in rows
        ],
    }


def _vector(rng: Random, elements: int) -> dict[str, Any]:
    width = rng.choice((2, 4))
    vector = Vector(rng.randbytes(elements * width), width, rng.randrange(0, 39))
    return {
        "data": vector.data,
        "width": width,
        "exponent": vector.exponent,
        "firstChunk": vector.data[: CHUNK * width],
        "chunksRoot": vector.chunks.top(),
        "leaf": vector.leaf,
    }


def _trace(rng: Random) -> dict[str, Any]:
    position = Position([Vector(rng.randbytes(8), 2), Vector(rng.randbytes(12), 4, 3)])
    trace = Trace(rng.randbytes(32), 7, 3, 1_000, rng.randbytes(32))
    fields = ["bytes32", "uint32", "uint32", "uint32", "bytes32"]
    return {
        "vectorsRoot": position.root,
        "positionLeaf": position.leaf,
        "typeString": Trace.type_string(),
        "encoded": encode(fields, list(trace.to_abi())),
        "structHash": trace.struct_hash,
        "typeHash": keccak256(Trace.type_string().encode()),
    }
