"""Sessions of the exact tier over a small made-up target: weights, hidden states and traces of
random integers, tokens decided by the rules that an honest verifier runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from played_sessions import DRAFTER, VERIFIER, Play, play, record_of, sealed

from settlement import exact, trees
from settlement.acceptance import Draft, ScoreRow, Terms, decide_round
from settlement.draws import RoundEvidence
from settlement.exact import HEAD, Opening, Row, Sizes
from settlement.exact_faults import Disclosed
from settlement.exact_trace import (
    VECTORS,
    Matrix,
    Pass,
    Place,
    Position,
    Vector,
    shape_of,
    vectors_of,
)
from settlement.hashing import TAG_EXACT_HEADER, ZERO32, uint
from settlement.records import (
    NO_CUTOFF,
    Domain,
    DraftCommit,
    DraftLeaf,
    Manifest,
    Mode,
    Order,
    SessionStart,
    Tier,
    Verdict,
    extend_context,
    top_hash,
)

SIZES = Sizes(
    vocabulary=23,
    head_rows=23,
    hidden=70,  # no multiple of a block of the dot product, nor of a chunk
    mlp=150,
    layers=2,
    heads=3,
    key_heads=1,
    head_size=26,
    context=512,
)
Q16 = 1 << 16


class SmallTarget:
    """A target of random integers, with every row of head and layers under its manifest."""

    def __init__(self, rng: Random, sizes: Sizes = SIZES, head_ids: bytes = ZERO32) -> None:
        self.sizes, self._head_ids = sizes, head_ids
        numbers = np.random.default_rng(rng.getrandbits(32))
        self.matrices: dict[int, NDArray[np.int64]] = {}
        self.figures: dict[int, tuple[NDArray[np.int64], int, NDArray[np.int64]]] = {}
        shapes = {HEAD: (sizes.head_rows, sizes.hidden)}
        for layer in range(sizes.layers):
            for matrix in Matrix:
                source, output, _ = matrix.ends
                rows, width = shape_of(sizes, output)[0], shape_of(sizes, source)[0]
                shapes[16 * (layer + 1) + matrix] = (rows, width)
        for tensor, (rows, width) in shapes.items():
            self.matrices[tensor] = numbers.integers(-127, 128, (rows, width))
            multipliers = numbers.integers(1 << 21, 1 << 22, rows)
            biases = numbers.integers(-900, 900, rows) if tensor != HEAD else np.zeros(rows, int)
            # Logits of a few units; int16 elsewhere, from sums of about 2**26.
            shift = {HEAD: 19}.get(tensor, 35)
            self.figures[tensor] = (multipliers, shift, biases)

    @property
    def header(self) -> bytes:
        s = self.sizes
        words = (1, s.vocabulary, s.head_rows, s.hidden, s.mlp, s.layers, s.heads, s.key_heads)
        sizes = b"".join(uint(word, 4) for word in (*words, s.head_size, s.context))
        phases = b"".join(uint(1 << 40 + i, 8) for i in range(s.head_size // 2))
        return TAG_EXACT_HEADER + sizes + uint(1024, 8) + phases + b"\x07" * 32 + self._head_ids

    def row(self, tensor: int, row: int) -> Row:
        multipliers, shift, biases = self.figures[tensor]
        weights = self.matrices[tensor][row].astype(np.int8).tobytes()
        return Row(tensor, row, int(multipliers[row]), shift, int(biases[row]), weights)

    @cached_property
    def _tree(self) -> tuple[trees.MerkleTree, dict[int, int]]:
        tree, starts = trees.MerkleTree(), {}
        for tensor, matrix in sorted(self.matrices.items()):
            starts[tensor] = len(tree)
            for row in range(len(matrix)):
                tree.append(self.row(tensor, row).leaf)
        return tree, starts

    def opening(self, tensor: int, row: int) -> Opening:
        if not 0 <= row < len(self.matrices[tensor]):
            raise IndexError(f"no row {row} in tensor {tensor}")
        tree, starts = self._tree
        return Opening(self.row(tensor, row), tree.proof(starts[tensor] + row), self.header)

    @cached_property
    def manifest(self) -> Manifest:
        root = self.opening(HEAD, 0).weights_root
        return Manifest("small", Tier.EXACT, root, b"\x05" * 32, self.sizes.vocabulary, (2,), 512)

    def logits(self, hidden: bytes) -> NDArray[np.int64]:
        rows = (exact.logit(hidden, self.row(HEAD, row)) for row in range(self.sizes.vocabulary))
        return np.array(list(rows), dtype=np.int64)


@dataclass(frozen=True)
class ExactPlay:
    """An honest session, and what V opens of each of its leaves."""

    play: Play
    target: SmallTarget
    disclosed: dict[tuple[int, int], Disclosed]

    @property
    def rounds(self) -> tuple[RoundEvidence, ...]:
        return self.play.rounds

    def places(self) -> list[tuple[int, int]]:
        return [(i, j) for i, r in enumerate(self.rounds) for j in range(len(r.verdict_leaves))]

    def changed(self, index: int, at: int, **changes: Any) -> RoundEvidence:
        """That round with one leaf said otherwise, and signed so."""
        evidence = self.rounds[index]
        leaves = list(evidence.verdict_leaves)
        leaves[at] = replace(leaves[at], **changes)
        root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
        verdict = replace(evidence.verdict, verdict_root=root)
        changed = replace(evidence, verdict=verdict, verdict_leaves=tuple(leaves))
        changed = sealed(self.play.domain, changed, self.play.keys)
        return replace(changed, record=record_of(verdict, changed.commit, tuple(leaves)))


def row_of(target: SmallTarget, order: Order, rng: Random, hidden: bytes) -> ScoreRow:
    """What the target says at a position, with the figures that relaxed leaves carry made up."""
    temperature = order.temperature if order.mode == Mode.COUPLED else Q16
    scores = exact.scores(target.logits(hidden), temperature)
    cutoff = NO_CUTOFF
    if order.mode == Mode.COUPLED and order.top_k:
        cutoff = int(np.sort(scores)[-order.top_k])
    surprisals = np.array([rng.randrange(0, 1500) for _ in scores])
    return ScoreRow(scores, cutoff, rng.randrange(0, Q16), surprisals=surprisals)


def exact_play(
    domain: Domain, rng: Random, mode: Mode, target: SmallTarget | None = None, **terms: Any
) -> ExactPlay:
    """Four rounds of up to four drafts, most of them the target's own tokens."""
    target = target or SmallTarget(rng)
    fields: dict[str, Any] = {
        "target_model": target.manifest.model_id,
        "max_tokens": 40,
        "temperature": 0 if mode == Mode.GREEDY else rng.choice((Q16, 45_000, 90_000)),
        **terms,
    }
    first = play(domain, rng, mode, **fields).rounds[0]
    order, start = first.order, first.start
    position, context, previous = order.start_position, order.start_context, ZERO32
    rounds: list[RoundEvidence] = []
    disclosed: dict[tuple[int, int], Disclosed] = {}
    for index in range(4):
        window = rng.randrange(0, 5)
        opened = [
            Disclosed(rng.randbytes(32), rng.randbytes(2 * target.sizes.hidden))
            for _ in range(window + 1)
        ]
        rows = [row_of(target, order, rng, each.hidden) for each in opened]
        drafts, leaves = _drafts(order, start, rng, rows, position, window)
        commit = None
        if window:
            root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
            place = (start.struct_hash, index, 0, position, context, previous)
            commit = DraftCommit(*place, root, window, ZERO32)
        decided = decide_round(Terms.of(order), position, drafts, rows, start.seed)
        shown = tuple(
            outcome.leaf(each.commitment)
            for outcome, each in zip(decided.outcomes, opened, strict=False)
        )
        disclosed |= {(index, at): opened[at] for at in range(len(shown))}
        after = extend_context(context, [leaf.token for leaf in shown])
        verdict = Verdict(
            start.struct_hash,
            index,
            0,
            commit.struct_hash if commit else ZERO32,
            position,
            context,
            decided.accepted,
            len(shown),
            after,
            trees.merkle_root([leaf.leaf_hash for leaf in shown]),
            ZERO32,
            rng.randrange(0, 7),
        )
        record = record_of(verdict, commit, shown)
        evidence = RoundEvidence(order, start, commit, b"", leaves, (), verdict, b"", shown, record)
        rounds.append(sealed(domain, evidence, (DRAFTER, VERIFIER)))
        position, context, previous = position + len(shown), after, verdict.struct_hash
        if decided.stopped:
            break
    return ExactPlay(Play(domain, tuple(rounds)), target, disclosed)


def _drafts(
    order: Order,
    start: SessionStart,
    rng: Random,
    rows: list[ScoreRow],
    position: int,
    window: int,
) -> tuple[list[Draft], tuple[DraftLeaf, ...]]:
    drafts, leaves = [], []
    for at in range(window):
        own = rows[at].choose(Mode(order.mode), start.seed, position + at)[0]
        token = own if rng.random() < 0.6 else rng.randrange(len(rows[at].scores))
        surprisal, top = 0, ()
        if order.relax_tau:
            surprisal, top = rng.randrange(0, 1500), tuple(rng.sample(range(20), 8))
        drafts.append(Draft(token, None, surprisal, top))
        digest = top_hash(top) if top else ZERO32
        leaves.append(DraftLeaf(position + at, token, 0, 0, ZERO32, surprisal, digest))
    return drafts, tuple(leaves)


# ---------------------------------------------------------------- traces


def traced(target: SmallTarget, rng: Random, positions: int = 3) -> Pass:
    """A pass in which every matrix product is right, and all else is anything."""
    return Pass([_position(target, rng) for _ in range(positions)])


def _position(target: SmallTarget, rng: Random) -> Position:
    sizes, numbers = target.sizes, np.random.default_rng(rng.getrandbits(32))
    vectors: list[Vector] = []
    for index in range(vectors_of(sizes)):
        elements, width = shape_of(sizes, index)
        values = numbers.integers(-32_639, 32_640, elements)
        if width == 4:
            # At the residual's limits, so that many sums are cut there.
            near = exact.RESIDUAL_LIMIT - numbers.integers(0, 3_000, elements)
            values = np.where(values > 0, near, -near)
        exponent = rng.randrange(0, 39) if index % VECTORS == Place.ACTIVATION else 0
        vectors.append(Vector.of(values, width, exponent))
    for layer in range(sizes.layers):
        for matrix in Matrix:
            vectors = _computed(target, vectors, layer, matrix)
    return Position(vectors)


def _computed(
    target: SmallTarget, vectors: list[Vector], layer: int, matrix: Matrix
) -> list[Vector]:
    source, output, residual = matrix.ends
    first = VECTORS * layer
    given = vectors[first + source]
    elements, width = shape_of(target.sizes, output)
    values = []
    for row in range(elements):
        opened = target.row(16 * (layer + 1) + matrix, row)
        due = exact.scaled(exact.dot(given.data, opened.weights), opened, given.exponent)
        if residual is not None:
            before = vectors[first + residual].element(row)
            due = exact.clamp(before + due, exact.RESIDUAL_LIMIT)
        values.append(due)
    vectors = list(vectors)
    vectors[first + output] = Vector.of(np.array(values, dtype=np.int64), width)
    return vectors


def disturbed(run: Pass, at: int, vector: int, element: int, by: int) -> Pass:
    """The same pass with one element of one vector off by so much."""
    positions = list(run.positions)
    vectors = list(positions[at].vectors)
    shown = vectors[vector]
    value = shown.element(element) + by
    start = element * shown.width
    data = (
        shown.data[:start]
        + value.to_bytes(shown.width, "big", signed=True)
        + shown.data[start + shown.width :]
    )
    vectors[vector] = replace(shown, data=data)
    positions[at] = Position(vectors)
    return Pass(positions)
