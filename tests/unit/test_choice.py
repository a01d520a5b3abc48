"""The compiled choice against `settlement.noise`, which says what the choice is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inference import choice
from settlement import noise
from settlement.noise import SCORE_LIMIT, NoiseError, gumbel_q24
from settlement.records import NO_CUTOFF

SEED = bytes(range(32))
words = st.binary(min_size=32, max_size=32)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    if choice.library() is None:
        pytest.skip("no C compiler here")


def class_of(r: int) -> int:
    """Index in `bounds` of r's class, written another way than in C."""
    upper = ((1 << 64) - 1 - r) >> 32
    zeros = 32 - upper.bit_length()
    part = int(f"{upper:b}"[1:4], 2) if zeros <= 28 else 0
    return zeros * choice.BINS + part


@given(st.integers(0, 63), st.integers(0, (1 << 64) - 1), st.booleans())
def test_no_noise_of_a_class_exceeds_its_bound(zeros: int, word: int, low: bool) -> None:
    """With r near both ends of the range, for there the classes are small."""
    r = word >> zeros if low else (1 << 64) - 1 - (word >> zeros)
    assert gumbel_q24(np.array([r], np.uint64))[0] <= choice.bounds()[class_of(r)]


def test_the_bound_of_a_class_is_its_largest_noise() -> None:
    largest = [(1 << 64) - 1 - ((8 + part) << 50) for part in range(8)]  # 10 zeros in front
    found = gumbel_q24(np.array(largest, np.uint64))
    assert found.tolist() == [int(choice.bounds()[class_of(r)]) for r in largest]


@given(
    words,
    st.integers(0, 2**40),
    st.lists(st.integers(-(2**28), 2**28), min_size=1, max_size=40),
    st.integers(-(2**28), 2**28),
)
def test_the_compiled_choice_is_the_plain_one(
    seed: bytes, position: int, scores: list[int], cutoff: int
) -> None:
    vector = np.array(scores, dtype=np.int64)
    found = choice.coupled_argmax(vector, seed, position)
    assert found == noise.coupled_argmax(vector, seed, position)
    kept = vector >= cutoff
    if not kept.any():
        with pytest.raises(NoiseError, match="no token"):
            choice.coupled_argmax(vector, seed, position, cutoff)
        return
    found = choice.coupled_argmax(vector, seed, position, cutoff)
    assert found == noise.coupled_argmax(vector, seed, position, kept)


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0, 100.0, 2.0**34])
@pytest.mark.parametrize("vocab", [49152, 49151, 3072, 513])
def test_it_is_exact_over_a_real_vocabulary(spread: float, vocab: int) -> None:
    rng = np.random.default_rng(int(spread))
    ids = np.flatnonzero(rng.random(vocab) < 0.3)
    columns = choice.Columns(ids, vocab)
    for position in range(4):
        scores = np.rint(rng.normal(0, spread, vocab) * 2**24).astype(np.int64)
        perturbed = scores + noise.noise_row(SEED, position, vocab)
        token = int(perturbed.argmax())
        assert choice.coupled_argmax(scores, SEED, position) == (token, int(perturbed[token]))
        cutoff = int(np.sort(scores)[vocab // 2])
        masked = np.where(scores >= cutoff, perturbed, -(2**63))
        assert choice.coupled_argmax(scores, SEED, position, cutoff)[0] == int(masked.argmax())
        best = int(ids[perturbed[ids].argmax()])
        assert columns.argmax(scores[ids], SEED, position) == best
        cutoff = int(np.sort(scores[ids])[len(ids) // 2])
        best = int(ids[np.where(scores[ids] >= cutoff, perturbed[ids], -(2**63)).argmax()])
        assert columns.argmax(scores[ids], SEED, position, cutoff) == best


def test_ties_go_to_the_lowest_id() -> None:
    level = 1 << 40
    tied = level - noise.noise_row(SEED, 0, 4096)  # every sum is `level`
    assert choice.coupled_argmax(tied, SEED, 0) == (0, level)
    columns = choice.Columns(np.array([17, 18, 4000]), 4096)
    assert columns.argmax(tied[[17, 18, 4000]], SEED, 0) == 17


@pytest.mark.parametrize("count", [2, 4, 4096])
def test_a_score_for_each_column_is_needed(count: int) -> None:
    columns = choice.Columns(np.array([17, 18, 4000]), 4096)
    with pytest.raises(ValueError, match="shape"):
        columns.argmax(np.zeros(count, dtype=np.int64), SEED, 0)


def test_extreme_scores_do_not_wrap() -> None:
    scores = np.array([SCORE_LIMIT, -SCORE_LIMIT, SCORE_LIMIT])
    assert choice.coupled_argmax(scores, SEED, 0) == noise.coupled_argmax(scores, SEED, 0)


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros(0, np.int64),
        np.zeros((2, 2), np.int64),
        np.zeros(4),
        np.array([SCORE_LIMIT + 1]),
        np.array([0, -SCORE_LIMIT - 1]),
    ],
)
def test_inputs_outside_the_definition_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(NoiseError):
        choice.coupled_argmax(scores, SEED, 0)


def test_strided_scores_are_read_as_they_are() -> None:
    scores = np.rint(np.random.default_rng(3).normal(0, 2, 900) * 2**24).astype(np.int64)[::3]
    assert choice.coupled_argmax(scores, SEED, 4) == noise.coupled_argmax(scores, SEED, 4)


def test_a_library_that_differs_in_one_bit_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = choice.library()

    class Off:
        choice_argmax = real.choice_argmax  # type: ignore[union-attr]

        @staticmethod
        def choice_gumbel(constants: int, r: int, n: int, out: int) -> None:
            real.choice_gumbel(constants, r, n, out)  # type: ignore[union-attr]
            import ctypes

            ctypes.cast(out, ctypes.POINTER(ctypes.c_int64))[n - 1] += 1

    monkeypatch.setattr("node.inference.compiled.load", lambda *_: Off())
    assert choice.library.__wrapped__() is None


def test_without_a_compiler_settlement_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.rint(np.random.default_rng(4).normal(0, 2, 600) * 2**24).astype(np.int64)
    ids = np.arange(1, 600, 2)
    columns = choice.Columns(ids, 600)
    cutoff = int(np.median(scores))

    def all_of() -> list[Any]:
        return [
            (
                choice.coupled_argmax(scores, SEED, position, limit),
                columns.argmax(scores[ids], SEED, position, limit),
            )
            for position in range(5)
            for limit in (NO_CUTOFF, cutoff)
        ]

    with_library = all_of()
    monkeypatch.setattr(choice, "library", lambda: None)
    assert all_of() == with_library
