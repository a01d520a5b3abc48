"""Weights, scores and thresholds of the α test are the same in Python and in Solidity."""

from __future__ import annotations

from random import Random

import pytest

from settlement.alpha import (
    HIGHEST_RATE,
    LOWEST_RATE,
    AlphaError,
    bucket,
    llr,
    threshold,
    weights,
)

RUNS = [300, pytest.param(10_000, marks=pytest.mark.slow)]
RATES = range(LOWEST_RATE, HIGHEST_RATE + 1)


def test_every_rate_has_the_same_weights(harness) -> None:
    h = harness("SequentialTestHarness")
    answers = h.batch([h.calldata("weights", rate) for rate in RATES])
    for rate, answer in zip(RATES, answers, strict=True):
        expected = weights(rate)
        assert h.decode("weights", answer.data) == (expected.accept, expected.reject), rate
    for rate in (0, LOWEST_RATE - 1, HIGHEST_RATE + 1, 2**256 - 1):
        assert h.failure("weights", rate) == ("RateOutsideRange", (rate,))


@pytest.mark.parametrize("runs", RUNS)
def test_scores_agree(harness, runs: int) -> None:
    h, rng = harness("SequentialTestHarness"), Random(runs)
    cases = []
    for _ in range(runs):
        proposed = rng.getrandbits(64) >> rng.randrange(64)
        accepted = rng.choice((0, proposed, rng.randint(0, proposed)))
        cases.append((rng.choice(RATES), proposed, accepted))
    answers = h.batch([h.calldata("llr", *case) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        assert answer.signed == llr(*case), case
    assert h.failure("llr", 80, 3, 4) == ("MoreAcceptedThanProposed", (4, 3))
    with pytest.raises(AlphaError):
        llr(80, 3, 4)


@pytest.mark.parametrize("runs", RUNS)
def test_thresholds_agree(harness, runs: int) -> None:
    h, rng = harness("SequentialTestHarness"), Random(runs)
    cases = [(1, 2, 0), (1, 10**6, 0), (1, 10**6, 1), (2**64 - 1, 2**64 - 1, 2**64 - 1)]
    while len(cases) < runs:
        start = max(1, rng.getrandbits(64) >> rng.randrange(64))
        order = rng.choice((0, 1, 2, rng.getrandbits(64) >> rng.randrange(64)))
        cases.append((start, rng.choice((2, 100, 10**6, rng.getrandbits(60) + 2)), order))
    answers = h.batch([h.calldata("threshold", *case) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        assert answer.number == threshold(*case), case
    for start, inverse in ((0, 10**6), (1, 1), (1, 0)):
        assert h.failure("threshold", start, inverse, 0) == (
            "ThresholdUndefined",
            (start, inverse),
        )


def test_a_flag_needs_more_than_the_threshold(harness) -> None:
    h = harness("SequentialTestHarness")
    limit = threshold(1)
    for score, flagged in ((limit, False), (limit + 1, True), (0, False), (-(2**255), False)):
        assert h.call("flags", score, limit) == (flagged,)
    assert h.call("flags", -1, 0) == (False,)


@pytest.mark.parametrize("traces", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_whole_traces_score_alike(harness, traces: int) -> None:
    """Outcome by outcome through the EVM, against the closed form over counts."""
    h, rng = harness("SequentialTestHarness"), Random(traces)
    for _ in range(traces):
        rate, length = rng.choice(RATES), rng.randrange(1, 3000)
        truth = min(1.0, max(0.0, rate / 100 + rng.uniform(-0.2, 0.1)))
        outcomes = [rng.random() < truth for _ in range(length)]
        bits = int("".join("1" if o else "0" for o in outcomes).ljust(-length % 8 + length, "0"), 2)
        packed = bits.to_bytes((length + 7) // 8, "big")
        assert h.call("scoreTrace", rate, length, packed) == (llr(rate, length, sum(outcomes)),)


@pytest.mark.parametrize("runs", RUNS)
def test_buckets_agree(harness, runs: int) -> None:
    h, rng = harness("CoinsHarness"), Random(runs)
    cases = []
    for _ in range(runs):
        position = rng.choice((14, 15, 16, 63, 64, 255, 256, rng.getrandbits(32)))
        edge = rng.choice((0, 19661, 39322, 58983, 65535, rng.randrange(1 << 16)))
        cases.append((position, max(0, min(65535, edge + rng.choice((-1, 0, 1))))))
    answers = h.batch([h.calldata("bucket", *case) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        assert answer.number == bucket(*case), case
