"""The integer logarithm, Philox and the Gumbel noise: bits, bounds, order and law."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import words
from scipy import stats

from settlement.logarithm import (
    LN_ERROR_Q31,
    bit_lengths,
    ln_mantissa_q31,
    ln_q31,
    ln_up_q20,
    ln_vector_q31,
)
from settlement.noise import (
    GUMBEL_MAX_Q24,
    GUMBEL_MIN_Q24,
    SCORE_LIMIT,
    NoiseError,
    PositionKey,
    coupled_argmax,
    gumbel_q24,
    noise_for,
    noise_row,
    philox4x32,
    uniform_bits,
)

mpmath.mp.dps = 50
SEED = bytes(range(32))
EULER = 0.5772156649015329

uint64s = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 63).map(lambda bit: 1 << bit),
    st.integers(0, 2**20),
    st.integers(0, 2**20).map(lambda low: 2**64 - 1 - low),
    st.integers(-3, 3).map(lambda step: 2**63 + step),
)


def gumbel(values: list[int]) -> list[int]:
    return gumbel_q24(np.array(values, dtype=np.uint64)).tolist()


# ---------------------------------------------------------------- the logarithm


@given(st.integers(0, 63).flatmap(lambda bits: st.integers(1 << bits, (2 << bits) - 1)))
def test_the_logarithm_is_below_the_true_one_by_at_most_its_bound(x: int) -> None:
    true = mpmath.ln(x)
    assert 0 <= true * 2**31 - ln_q31(x) <= LN_ERROR_Q31
    assert 0 <= ln_up_q20(x) - true * 2**20 < 1.01
    if x < 2**63:
        assert ln_vector_q31(np.array([x])).tolist() == [ln_q31(x)]


def test_the_upper_bound_is_one() -> None:
    # Close to an integer only the error's own allowance keeps the bound above.
    tight = [x for x in range(1, 60_000) if 0 < (math.log(x) * 2**20) % 1 < 1 / 512]
    assert len(tight) > 50
    for x in tight:
        assert ln_up_q20(x) >= mpmath.ln(x) * 2**20


def test_the_logarithm_never_falls() -> None:
    for bit in range(1, 64):
        around = range(max(1, (1 << bit) - 40), (1 << bit) + 40)
        values = [ln_q31(x) for x in around]
        assert values == sorted(values)
    rng = np.random.default_rng(0)
    start = rng.integers(2**31, 2**32 - 2000, 200)
    runs = ln_mantissa_q31(start[:, None] + np.arange(2000))
    assert (np.diff(runs, axis=1) >= 0).all()


def test_every_intermediate_fits_int64() -> None:
    # Python integers do not wrap: equal results at the ends mean that NumPy's did not either.
    ends = [2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
    assert ln_mantissa_q31(np.array(ends)).tolist() == [ln_mantissa_q31(m) for m in ends]


@pytest.mark.parametrize("x", [0, -1, 2**64])
def test_the_logarithm_has_a_range(x: int) -> None:
    with pytest.raises(ValueError, match=str(x)):
        ln_q31(x)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_bit_lengths_are_pythons(values: list[int]) -> None:
    assert bit_lengths(np.array(values)).tolist() == [value.bit_length() for value in values]


# ---------------------------------------------------------------- Philox


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: str
) -> None:
    """The known answers of Random123 1.14, kat_vectors, philox4x32 with 10 rounds."""
    words_in = tuple(np.uint64(word) for word in counter)
    assert " ".join(f"{int(word):08x}" for word in philox4x32(words_in, key)) == expected


@pytest.mark.parametrize("position", [0, 7, 2**32 + 7, 2**64 - 1])
def test_key_and_counter_are_laid_out_as_specified(position: int) -> None:
    digest = keccak(b"verdraft/noise/1" + SEED + position.to_bytes(8, "big"))
    be = [int.from_bytes(digest[4 * i : 4 * i + 4], "big") for i in range(5)]
    at = PositionKey.of(SEED, position)
    assert at.key == (be[0], be[1])
    assert at.counter == (be[2], be[3], be[4])
    for token in (0, 1, 6, 7, 2**32 - 1):
        counter = tuple(np.uint64(word) for word in (token >> 1, *be[2:]))
        x = [int(word) for word in philox4x32(counter, at.key)]
        half = 2 * (token & 1)
        assert uniform_bits(SEED, position, [token]).tolist() == [x[half] << 32 | x[half + 1]]


# ---------------------------------------------------------------- the noise


def true_gumbel(r: int) -> mpmath.mpf:
    u, v = mpmath.mpf(2 * r + 1) / 2**65, mpmath.mpf(2 * (2**64 - 1 - r) + 1) / 2**65
    return -mpmath.log(-mpmath.log1p(-v)) if v < 0.5 else -mpmath.log(-mpmath.log(u))


@given(uint64s)
def test_the_noise_is_the_gumbel_quantile_to_half_a_unit_and_a_bit(r: int) -> None:
    assert abs(gumbel([r])[0] - true_gumbel(r) * 2**24) < 0.6


@given(uint64s, uint64s)
def test_the_noise_never_falls_as_r_rises(a: int, b: int) -> None:
    low, high = gumbel(sorted((a, b)))
    assert low <= high


def test_the_noise_is_monotone_across_every_seam() -> None:
    edges = [1 << bit for bit in range(64)] + [2**64 - (1 << bit) for bit in range(64)]
    near = sorted({min(max(e + d, 0), 2**64 - 1) for e in edges for d in range(-20, 21)})
    values = gumbel(near)
    assert values == sorted(values)
    assert (values[0], values[-1]) == (GUMBEL_MIN_Q24, GUMBEL_MAX_Q24)


def test_mean_and_variance_are_a_gumbels() -> None:
    count = 1 << 18
    g = noise_row(SEED, 3, count) / 2**24
    assert abs(g.mean() - EULER) < 5 * np.pi / np.sqrt(6 * count)
    assert abs(g.var() - np.pi**2 / 6) < 0.03
    assert stats.kstest(g[:20000], "gumbel_r").pvalue > 1e-3


def test_neighbouring_tokens_and_positions_are_uncorrelated() -> None:
    rows = np.stack([noise_row(SEED, position, 1 << 15) for position in range(4)]) / 2**24
    pairs = [(rows[:, :-1].ravel(), rows[:, 1:].ravel()), (rows[:-1].ravel(), rows[1:].ravel())]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(len(a))


@given(words, st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**12 - 1), min_size=1))
def test_a_token_has_one_noise_however_it_is_asked_for(
    seed: bytes, position: int, tokens: list[int]
) -> None:
    row = noise_row(seed, position, 2**12)
    assert noise_for(seed, position, tokens).tolist() == row[tokens].tolist()
    assert noise_row(seed, position, 17).tolist() == row[:17].tolist()


# ---------------------------------------------------------------- argmax


@given(
    words,
    st.integers(0, 2**20),
    st.lists(st.integers(-(2**28), 2**28), min_size=1, max_size=40),
    st.data(),
)
def test_the_fast_argmax_is_the_plain_one(
    seed: bytes, position: int, scores: list[int], data: st.DataObject
) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    vector = np.array(scores, dtype=np.int64)
    perturbed = vector + noise_row(seed, position, len(scores))
    token = int(perturbed.argmax())
    assert coupled_argmax(vector, seed, position) == (token, int(perturbed[token]))
    mask = np.array(kept)
    if not mask.any():
        with pytest.raises(NoiseError, match="no token"):
            coupled_argmax(vector, seed, position, mask)
        return
    masked = np.where(mask, perturbed, -(2**63))
    token = int(masked.argmax())
    assert coupled_argmax(vector, seed, position, mask) == (token, int(masked[token]))


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0, 100.0, 2.0**34])
def test_the_fast_argmax_is_exact_over_a_real_vocabulary(spread: float) -> None:
    rng = np.random.default_rng(int(spread))
    for position in range(5):
        scores = np.rint(rng.normal(0, spread, 49152) * 2**24).astype(np.int64)
        perturbed = scores + noise_row(SEED, position, len(scores))
        token = int(perturbed.argmax())
        assert coupled_argmax(scores, SEED, position) == (token, int(perturbed[token]))
        mask = rng.random(len(scores)) < 0.5
        token = int(np.where(mask, perturbed, -(2**63)).argmax())
        assert coupled_argmax(scores, SEED, position, mask)[0] == token


def test_tokens_left_out_do_not_blunt_the_comparison() -> None:
    """A huge score that is not kept must not set the scale of the float bound."""
    rng = np.random.default_rng(5)
    for position in range(20):
        scores = np.rint(rng.normal(0, 1, 512) * 2**24).astype(np.int64)
        mask = np.ones(512, dtype=bool)
        scores[7], mask[7] = 1_500_000 << 24, False
        masked = np.where(mask, scores + noise_row(SEED, position, 512), -(2**63))
        assert coupled_argmax(scores, SEED, position, mask)[0] == int(masked.argmax())


def test_ties_go_to_the_lowest_id() -> None:
    noise = noise_row(SEED, 0, 4096)
    level = 1 << 40
    tied = level - noise  # every perturbed score is `level`
    assert coupled_argmax(tied, SEED, 0) == (0, level)
    mask = np.zeros(4096, dtype=bool)
    mask[[17, 4000]] = True
    assert coupled_argmax(tied, SEED, 0, mask) == (17, level)
    mask[100:] = True
    assert coupled_argmax(tied, SEED, 0, mask) == (17, level)


def test_argmax_frequencies_are_the_softmax() -> None:
    groups, width = 20_000, 6
    scores = np.array([0.0, 1.0, -2.0, 0.5, 2.0, -0.3])
    fixed = np.rint(scores * 2**24).astype(np.int64)
    row = noise_row(SEED, 11, groups * width).reshape(groups, width)
    counts = np.bincount((fixed + row).argmax(axis=1), minlength=width)
    expected = np.exp(scores) / np.exp(scores).sum() * groups
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    # The function itself, position by position.
    chosen = [coupled_argmax(fixed, SEED, position)[0] for position in range(700)]
    counts = np.bincount(chosen, minlength=width)
    assert stats.chisquare(counts, expected / groups * 700).pvalue > 1e-4


def test_agreement_under_shared_noise_is_the_formula() -> None:
    """Daliri et al. (arXiv 2408.07978): P(same) = Σ_j 1/Σ_i max(p_i/p_j, q_i/q_j)."""
    groups, width = 20_000, 5
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    q = np.array([0.3, 0.4, 0.1, 0.1, 0.1])
    row = noise_row(SEED, 12, groups * width).reshape(groups, width)
    choices = [(np.rint(np.log(x) * 2**24).astype(np.int64) + row).argmax(axis=1) for x in (p, q)]
    same = (choices[0] == choices[1]).mean()
    expected = sum(1 / np.maximum(p / p[j], q / q[j]).sum() for j in range(width))
    assert abs(same - expected) < 5 * np.sqrt(expected * (1 - expected) / groups)
    distance = np.abs(p - q).sum() / 2
    assert same > (1 - distance) / (1 + distance)


@pytest.mark.parametrize(
    "call",
    [
        lambda: noise_row(bytes(31), 0, 5),
        lambda: noise_row(SEED, -1, 5),
        lambda: noise_row(SEED, 2**64, 5),
        lambda: noise_row(SEED, 0, 0),
        lambda: noise_row(SEED, 0, 2**24 + 1),
        lambda: noise_for(SEED, 0, [-1]),
        lambda: noise_for(SEED, 0, [2**32]),
        lambda: noise_for(SEED, 0, [0.5]),
        lambda: noise_for(SEED, 0, [[1]]),
        lambda: coupled_argmax(np.zeros(0, dtype=np.int64), SEED, 0),
        lambda: coupled_argmax(np.zeros((2, 2), dtype=np.int64), SEED, 0),
        lambda: coupled_argmax(np.zeros(4, dtype=np.float64), SEED, 0),
        lambda: coupled_argmax(np.array([SCORE_LIMIT + 1]), SEED, 0),
        lambda: coupled_argmax(np.array([0, -SCORE_LIMIT - 1]), SEED, 0),
        lambda: coupled_argmax(np.zeros(4, dtype=np.int64), SEED, 0, np.ones(3, dtype=bool)),
        lambda: coupled_argmax(np.zeros(4, dtype=np.int64), SEED, 0, np.ones(4, dtype=np.int64)),
    ],
)
def test_inputs_outside_the_definition_are_refused(call) -> None:
    with pytest.raises(NoiseError):
        call()


def test_extreme_scores_do_not_wrap() -> None:
    scores = np.array([SCORE_LIMIT, -SCORE_LIMIT, SCORE_LIMIT])
    noise = noise_row(SEED, 0, 3)
    token = 0 if noise[0] >= noise[2] else 2
    assert coupled_argmax(scores, SEED, 0) == (token, SCORE_LIMIT + int(noise[token]))
