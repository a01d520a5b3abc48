"""The α test: buckets, weights that keep the honest expectation at most 1, checkpoints, flags."""

from __future__ import annotations

import importlib
from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.alpha_power import exceeds, make_trace, measure_delay, measure_false_alarms
from settlement import alpha
from settlement.alpha import (
    AlphaError,
    Counts,
    Ledger,
    bucket,
    evaluate,
    find_flag,
    llr,
    packed_weights,
    round_sums,
    threshold,
    weights,
)
from settlement.records import BUCKETS, NO_TOKEN, Sums, VerdictLeaf

mpmath.mp.dps = 40
RATES = range(6, 100)


# ---------------------------------------------------------------- buckets


@given(st.integers(0, 2**32 - 1), st.integers(0, 65535))
def test_buckets_cut_at_the_stated_shares(position: int, top_prob: int) -> None:
    by_position = 0 if position < 16 else 1 if position < 64 else 2 if position < 256 else 3
    share = Fraction(top_prob, 65536)
    by_share = next((i for i, edge in enumerate((90, 60, 30)) if share >= Fraction(edge, 100)), 3)
    assert bucket(position, top_prob) == 4 * by_position + by_share


@pytest.mark.parametrize(
    ("top_prob", "expected"),
    [(65535, 0), (58983, 0), (58982, 1), (39322, 1), (39321, 2), (19661, 2), (19660, 3), (0, 3)],
)
def test_probability_edges(top_prob: int, expected: int) -> None:
    assert bucket(0, top_prob) == expected


@pytest.mark.parametrize(("position", "top_prob"), [(-1, 0), (0, -1), (0, 65536)])
def test_figures_outside_their_fields_have_no_bucket(position: int, top_prob: int) -> None:
    with pytest.raises(AlphaError):
        bucket(position, top_prob)


def test_a_rounds_sums_count_reached_positions_only() -> None:
    def leaf(position: int, drafted: bool, accepted: bool, top_prob: int) -> VerdictLeaf:
        token = 5 if drafted else NO_TOKEN
        return VerdictLeaf(position, token, 5, accepted, 0, top_prob, 0, 0, 0, 0, False, bytes(32))

    sums = round_sums(
        [leaf(15, True, True, 60000), leaf(16, True, True, 60000), leaf(17, True, False, 100)]
    )
    assert (sums.output, sums.accepted) == (3, 2)
    assert {i: n for i, n in enumerate(sums.proposed_by_bucket) if n} == {0: 1, 4: 1, 7: 1}
    assert {i: n for i, n in enumerate(sums.accepted_by_bucket) if n} == {0: 1, 4: 1}
    # The target's own token after a full accept was drafted by nobody.
    assert round_sums([leaf(0, False, False, 9)]) == Sums(1, 0)


# ---------------------------------------------------------------- weights and thresholds


@pytest.mark.parametrize("rate", RATES)
def test_weights_are_floors_and_the_honest_expectation_is_at_most_1(rate: int) -> None:
    a0 = mpmath.mpf(rate) / 100
    a1 = max(a0 - mpmath.mpf(1) / 10, a0 / 2)
    w, one = weights(rate), mpmath.mpf(1 << 20)
    assert w.accept == int(mpmath.floor(one * mpmath.ln(a1 / a0)))
    assert w.reject == int(mpmath.floor(one * mpmath.ln((1 - a1) / (1 - a0))))
    assert w.accept < 0 < w.reject
    for true in (a0, (a0 + 1) / 2, mpmath.mpf(1)):
        mean = true * mpmath.exp(w.accept / one) + (1 - true) * mpmath.exp(w.reject / one)
        assert mean <= 1
    # And no weaker than it must be: one unit more on either would pass 1 + 2**-20.
    assert a0 * mpmath.exp(w.accept / one) + (1 - a0) * mpmath.exp(w.reject / one) > 1 - 2 / one


def test_the_packed_table_is_the_weights() -> None:
    table = packed_weights()
    assert len(table) == 6 * len(RATES)
    for index, rate in enumerate(RATES):
        entry = table[6 * index :][:6]
        assert -int.from_bytes(entry[:3], "big") == weights(rate).accept
        assert int.from_bytes(entry[3:], "big") == weights(rate).reject


@pytest.mark.parametrize("rate", [5, 100, -1, 0])
def test_rates_no_claim_can_name_have_no_weights(rate: int) -> None:
    with pytest.raises(AlphaError, match=str(rate)):
        weights(rate)


@given(st.integers(1, 2**40), st.integers(2, 10**9), st.integers(0, 2**32))
def test_thresholds_are_rounded_up_and_hardly_more(start: int, inverse: int, order: int) -> None:
    pi_term = mpmath.ln(mpmath.pi**2 / 6)
    true = mpmath.ln(inverse) + mpmath.ln(2) + pi_term + 2 * mpmath.ln(start) + mpmath.ln(16)
    if order:
        true += pi_term + 2 * mpmath.ln(order)
    assert 0 <= threshold(start, inverse, order) - true * 2**20 < 10


def test_the_spending_sums_to_at_most_delta() -> None:
    """Union bound over halves, starts, buckets and verifiers, as far as it is summed here."""

    def chance(start: int, order: int = 0) -> float:
        return float(mpmath.exp(mpmath.mpf(-threshold(start, 10**6, order)) / 2**20))

    claim = sum(chance(k) for k in range(1, 3000)) * BUCKETS
    single = sum(chance(k, 1) for k in range(1, 3000)) * BUCKETS
    per_verifier = single * sum(1 / j**2 for j in range(1, 3000))
    assert claim < 0.5e-6
    assert per_verifier < 0.5e-6
    assert claim + per_verifier > 0.99e-6  # and little of it is wasted
    assert chance(1, 3) == pytest.approx(chance(1, 1) / 9, rel=1e-5)


@pytest.mark.parametrize("given_values", [(0, 100, 0), (1, 1, 0), (1, 100, -1)])
def test_thresholds_outside_their_range_are_refused(given_values: tuple[int, int, int]) -> None:
    with pytest.raises(AlphaError):
        threshold(*given_values)


def test_more_accepted_than_proposed_is_refused() -> None:
    assert llr(80, 10, 7) == 7 * weights(80).accept + 3 * weights(80).reject
    for proposed, accepted in ((1, 2), (1, -1)):
        with pytest.raises(AlphaError):
            llr(80, proposed, accepted)
        with pytest.raises(AlphaError):
            Counts((proposed,) + (0,) * 15, (accepted,) + (0,) * 15)
    with pytest.raises(AlphaError):
        Counts((0,), (0,))


# ---------------------------------------------------------------- the ledger


def one_bucket(proposed: int, accepted: int, at: int = 3) -> Counts:
    def lanes(value: int) -> tuple[int, ...]:
        return tuple(value if i == at else 0 for i in range(BUCKETS))

    return Counts(lanes(proposed), lanes(accepted))


deltas = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 15), st.floats(0, 1)), min_size=1, max_size=12
).map(lambda items: [one_bucket(n, int(n * share), at) for n, at, share in items])


@given(deltas, st.integers(1, 500))
def test_checkpoints_follow_after_enough_proposals(steps: list[Counts], every: int) -> None:
    ledger, states, fixed = Ledger(every), [Counts()], [Counts()]
    for delta in steps:
        ledger = ledger.add(delta)
        states.append(states[-1] + delta)
        if states[-1].total - fixed[-1].total >= every:
            fixed.append(states[-1])
    assert list(ledger.fixed) == fixed
    assert ledger.newest == states[-1]
    assert ledger.checkpoint(0) == Counts()
    assert ledger.checkpoint(ledger.newest_number) == states[-1]
    open_state = states[-1] != fixed[-1]
    assert ledger.newest_number == len(fixed) - 1 + open_state
    for number in (-1, ledger.newest_number + 1):
        with pytest.raises(AlphaError):
            ledger.checkpoint(number)


@given(deltas, st.data())
def test_an_evaluation_is_the_score_of_the_difference(
    steps: list[Counts], data: st.DataObject
) -> None:
    ledger = Ledger(100)
    for delta in steps:
        ledger = ledger.add(delta)
    rates = data.draw(st.lists(st.integers(6, 99), min_size=16, max_size=16))
    if ledger.newest_number == 0:
        return
    start = data.draw(st.integers(0, ledger.newest_number - 1))
    end = data.draw(st.integers(start + 1, ledger.newest_number))
    at, order = data.draw(st.integers(0, 15)), data.draw(st.integers(0, 3))
    result = evaluate(ledger, rates, at, start, end, 100, order)
    low, high = ledger.checkpoint(start), ledger.checkpoint(end)
    accepted = high.accepted[at] - low.accepted[at]
    rejected = high.proposed[at] - low.proposed[at] - accepted
    w = weights(rates[at])
    assert result.score == accepted * w.accept + rejected * w.reject
    assert result.threshold == threshold(start + 1, 100, order)
    assert result.flagged == (result.score > result.threshold)


def test_intervals_that_do_not_run_forward_are_refused() -> None:
    ledger = Ledger(10).add(one_bucket(10, 5)).add(one_bucket(3, 1))
    assert ledger.newest_number == 2
    for at, start, end in ((3, 1, 1), (3, 2, 1), (3, -1, 1), (3, 0, 3), (-1, 0, 1), (16, 0, 1)):
        with pytest.raises(AlphaError):
            evaluate(ledger, [80] * 16, at, start, end)


def test_the_threshold_itself_is_not_flagged() -> None:
    limit = threshold(1)
    assert not alpha.Evaluation(limit, limit).flagged
    assert alpha.Evaluation(limit + 1, limit).flagged


def test_a_fall_is_found_in_its_bucket_from_the_best_start() -> None:
    rates = [80] * 16
    ledger = Ledger()
    for _ in range(8):
        ledger = ledger.add(one_bucket(512, 420)).add(one_bucket(64, 52, at=9))
    assert find_flag(ledger, rates) is None
    for _ in range(4):
        ledger = ledger.add(one_bucket(512, 365))
    found = find_flag(ledger, rates)
    assert found is not None
    at, start, evaluation = found
    # Only an interval that leaves the good beginning out can see it.
    assert (at, start) == (3, 8)
    assert evaluation.flagged
    assert not evaluate(ledger, rates, 3, 0, ledger.newest_number).flagged
    # As a verifier's own record it must stand out further.
    assert find_flag(ledger, rates, verifier_order=10**9) is None


# ---------------------------------------------------------------- the measurement


@given(
    st.lists(st.lists(st.integers(-50, 60), min_size=12, max_size=12), min_size=1, max_size=4),
    st.sampled_from((1, 2, 3, 4, 12)),
)
def test_the_vectorised_scan_is_every_interval(gains: list[list[int]], every: int) -> None:
    limits = np.array([30 + 2 * k for k in range(12 // every)])
    scores = np.array(gains).cumsum(axis=1)
    expected = []
    for row in scores.tolist():
        states = [0, *row]
        expected.append(
            [
                any(
                    states[end] - states[k * every] > limits[k]
                    for k in range(len(limits))
                    if k * every < end
                )
                for end in range(1, 13)
            ]
        )
    assert exceeds(scores, every, limits).tolist() == expected


def test_honest_drafters_are_not_flagged_and_dishonest_ones_soon() -> None:
    alarms = measure_false_alarms(40, 20_000, seed=5)
    assert [item.inverse_delta for item in alarms] == [100, 10**6]
    assert alarms[0].flagged <= 1  # 2 of 40 at δ = 1/100 would be a chance of 1 in 20
    assert alarms[1].flagged == 0
    delay = measure_delay(80, 70, 20_000, trials=40, seed=5)
    assert delay.before_the_fall == 0
    assert delay.median is not None
    assert 300 < delay.median < 1100


@pytest.mark.slow
def test_the_promises_hold_at_full_size() -> None:
    alarms = measure_false_alarms(2000, 50_000, seed=7)
    assert alarms[0].rate <= 0.01
    assert alarms[1].flagged == 0
    delay = measure_delay(80, 70, 20_000, trials=1000, seed=7)
    assert delay.median is not None
    assert delay.median < 1100


def test_weights_that_round_up_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The false-alarm measurement can fail: with a tenth of the threshold it does."""
    power = importlib.import_module("scripts.alpha_power")
    real = alpha.threshold
    monkeypatch.setattr(power.alpha, "threshold", lambda *a, **k: real(*a, **k) // 10)
    assert measure_false_alarms(20, 20_000, seed=5)[1].flagged > 10


def test_traces_replay_to_the_same_scores() -> None:
    trace = make_trace(Random(4))
    claim = Ledger(trace["every"])
    own: dict[int, Ledger] = {}
    for step in trace["settlements"]:
        delta = Counts(tuple(step["proposed"]), tuple(step["accepted"]))
        claim = claim.add(delta)
        own[step["verifier"]] = own.get(step["verifier"], Ledger(trace["every"])).add(delta)
    assert trace["queries"]
    for query in trace["queries"]:
        ledger = claim if query["verifier"] is None else own[query["verifier"]]
        result = evaluate(
            ledger,
            trace["rates"],
            query["bucket"],
            query["from"],
            query["to"],
            verifier_order=query["order"],
        )
        assert (result.score, result.threshold) == (query["score"], query["threshold"])
        assert result.flagged == query["flagged"]
