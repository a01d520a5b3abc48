"""Processors and filters, against definitions written out the slow way; fingerprints; rows."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from node.inference import sampling
from node.inference.fingerprint import Projection, distance
from node.inference.params import Q24, History, SamplingError, SamplingParams
from node.inference.rows import target_rows
from settlement.records import NO_CUTOFF, Q16, Mode

logit = st.floats(-40, 40, width=32)


@given(st.lists(logit, min_size=1, max_size=8), st.integers(1, 16 * Q16))
@settings(max_examples=80, deadline=None)
def test_scores_are_the_stated_grid(z, temperature):
    got = sampling.fixed_point(torch.tensor([z], dtype=torch.float32), temperature)[0].tolist()
    for score, value in zip(got, z, strict=True):
        # rint of the float64 quotient; the quotient itself is within one rounding of the fraction.
        exact = Fraction(float(np.float32(value))) * 2**40 / temperature
        assert abs(score - exact) <= Fraction(1, 2) + abs(exact) / 2**53


def test_scores_at_temperature_one_are_exact_and_never_wrap():
    z = torch.tensor([[1.5, -2.25, 0.0, 3e38, -3e38, math.inf, -math.inf, math.nan]])
    limit = 1 << 61
    assert sampling.fixed_point(z, Q16)[0].tolist() == [
        3 * Q24 // 2, -9 * Q24 // 4, 0, limit, -limit, limit, -limit, -limit,
    ]  # fmt: skip


def slow_penalised(z, params, prompt, output):
    counts, out = Counter(output), [float(x) for x in z]
    for token in set(prompt) | set(output):
        r = params.repetition_penalty / Q16
        out[token] = out[token] / r if out[token] > 0 else out[token] * r
    for token, count in counts.items():
        out[token] -= params.presence_penalty / Q16
        out[token] -= count * (params.frequency_penalty / Q16)
    return out


@given(
    st.lists(st.integers(0, 11), min_size=1, max_size=6),
    st.lists(st.integers(0, 11), max_size=6),
    st.lists(st.integers(0, 11), max_size=5),
    st.integers(0, 3),
    st.tuples(st.integers(Q16 // 2, 2 * Q16), st.integers(-Q16, Q16), st.integers(-Q16, Q16)),
)
@settings(max_examples=80, deadline=None)
def test_penalties_see_exactly_the_text_before_each_row(prompt, output, drafts, first, penalty):
    params = SamplingParams(
        repetition_penalty=penalty[0], presence_penalty=penalty[1], frequency_penalty=penalty[2]
    )
    first = min(first, len(drafts))
    rows = len(drafts) - first + 1
    z = torch.linspace(-2, 3, 12 * rows, dtype=torch.float64).reshape(rows, 12)
    got = sampling.penalised(z, params, History(prompt, output), drafts, first=first)
    for i in range(rows):
        want = slow_penalised(z[i].tolist(), params, prompt, output + drafts[: first + i])
        assert got[i].tolist() == pytest.approx(want, abs=1e-12)
    committed = History(prompt)
    committed.commit(output)
    again = sampling.penalised(z, params, committed, drafts, first=first)
    assert torch.equal(got, again)


def slow_kept(scores, top_k, top_p):
    """Ids kept: k best with ties, then the smallest best set of mass >= top_p with ties."""
    ids = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if 0 < top_k < len(ids):
        edge = scores[ids[top_k - 1]]
        ids = [i for i in ids if scores[i] >= edge]
    if top_p < 1:
        w = [math.exp((scores[i] - scores[ids[0]]) / Q24) for i in ids]
        total, mass = math.fsum(w), 0.0
        for place, weight in enumerate(w):
            mass += weight / total
            if mass >= top_p:
                edge = scores[ids[place]]
                ids = [i for i in ids if scores[i] >= edge]
                break
    return sorted(ids)


@given(
    st.one_of(
        st.lists(st.integers(-6, 6).map(lambda x: x * Q24 // 3), min_size=1, max_size=40),
        st.lists(st.integers(-2000, 2000).map(lambda x: x * Q24 // 1000), min_size=1, max_size=40),
    ),
    st.integers(0, 12),
    st.sampled_from([1.0, 0.97, 0.8, 0.33, 0.01]),
)
@settings(max_examples=100, deadline=None)
def test_filters_keep_what_they_should(scores, top_k, top_p):
    params = SamplingParams.from_floats("coupled", 1.0, top_k=top_k, top_p=top_p)
    table = torch.tensor([scores, scores[::-1]])
    cut = sampling.cutoffs(table, params)
    for row, cutoff in zip(table.tolist(), cut.tolist(), strict=True):
        kept = [i for i, s in enumerate(row) if s >= cutoff]
        assert kept == slow_kept(row, top_k, params.top_p / Q16)


def test_top_p_counts_what_top_k_left():
    scores = torch.arange(100)[None] * 1000  # nearly flat, no ties
    params = SamplingParams.from_floats("coupled", 1.0, top_k=10, top_p=0.45)
    cutoff = int(sampling.cutoffs(scores, params)[0])
    assert int((scores >= cutoff).sum()) == 5  # of ten, not of a hundred


def test_top_p_over_a_flat_vocabulary_looks_past_its_head():
    scores = torch.zeros((2, 3000), dtype=torch.int64)
    scores[0] = torch.arange(3000) * 100
    params = SamplingParams.from_floats("coupled", 1.0, top_p=0.5)
    cut = sampling.cutoffs(scores, params).tolist()
    assert int((scores[0] >= cut[0]).sum()) == len(
        slow_kept(scores[0].tolist(), 0, params.top_p / Q16)
    )
    assert cut[1] == 0


def test_probabilities_follow_the_kept_scores():
    scores = torch.tensor([[0, Q24, 2 * Q24, -Q24]])
    p = sampling.probabilities(scores, torch.tensor([0]))[0].tolist()
    w = [1, math.e, math.e**2, 0]
    assert p == pytest.approx([x / sum(w) for x in w], abs=1e-15)


def test_top_probability_and_surprisal_are_taken_before_temperature_penalties_and_filters():
    z = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0], [100.0, 0.0, 0.0]])
    params = SamplingParams.from_floats("coupled", 0.3, top_k=1, repetition=2.0)
    rows = target_rows(z, params, History([0]), [0, 0])
    p = math.exp(2) / (math.exp(2) + math.e + 1)
    assert [r.top_prob for r in rows] == [int(p * 65536), 65536 // 3, 65535]
    assert rows[0].surprisal(0) == round(-math.log(p) * Q16)
    assert rows[2].surprisal(1) == 100 * Q16
    assert rows[0].cutoff == max(rows[0].scores)
    greedy = target_rows(z, SamplingParams.from_floats("greedy"), History([0]))
    assert {r.cutoff for r in greedy} == {NO_CUTOFF}


def test_margins_are_distances_to_the_runner_up():
    z = torch.tensor([[2.0, 1.5, 0.0]])
    row = target_rows(z, SamplingParams.from_floats("greedy"), History([0]))[0]
    assert row.margin(bytes(32), 0, Mode.GREEDY, 0) == Q24 // 2
    assert row.margin(bytes(32), 0, Mode.GREEDY, 1) == -Q24 // 2
    only = target_rows(z, SamplingParams.from_floats("coupled", top_k=1), History([0]))[0]
    assert only.margin(bytes(32), 0, Mode.COUPLED, 0) == 1 << 62


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0}, "use greedy"),
        ({"temperature": 1 << 21}, "temperature"),
        ({"mode": Mode.GREEDY}, "must be 0 in greedy"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": Q16 + 1}, "top_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 1 << 30}, "presence_penalty"),
        ({"mode": Mode.REJECTION, "relax_tau": 1}, "relax_tau"),
    ],
)
def test_parameters_out_of_range_are_refused(change, message):
    with pytest.raises(SamplingError, match=message):
        SamplingParams(**change)


def test_units_people_use():
    assert SamplingParams.from_floats("coupled", 0.0).mode == Mode.GREEDY
    assert SamplingParams.from_floats("coupled", 0.7).temperature == 45875
    with pytest.raises(SamplingError, match="typical"):
        SamplingParams.from_floats("typical")


def test_fingerprints_tell_directions_apart_and_ignore_size():
    rng = np.random.default_rng(1)
    projection = Projection(bytes(32), 576)
    h = rng.normal(size=(2, 576))
    a, b = projection.fingerprints(h)
    assert distance(a, b) > 16 * 2000
    scaled, near = projection.fingerprints(
        np.stack([h[0] * 37, h[0] * (1 + rng.normal(size=576) * 1e-4)])
    )
    assert distance(a, scaled) <= 16
    assert distance(a, near) < 200
    assert projection.fingerprints(h) == [a, b]
    other = Projection(b"\x01" * 32, 576).fingerprints(h[:1])[0]
    assert distance(a, other) > 16 * 2000
    values = np.frombuffer(b"".join(projection.fingerprints(rng.normal(size=(400, 576)))), ">i2")
    assert abs(values.mean()) < 200
    assert abs(values.std() / 4096 - 1) < 0.05


def test_a_state_without_direction_has_the_zero_fingerprint():
    projection = Projection(bytes(32), 8)
    assert (
        projection.fingerprints(np.array([[0.0] * 8, [np.nan] * 8, [np.inf] * 8]))
        == [bytes(32)] * 3
    )
    with pytest.raises(ValueError, match="32 bytes"):
        distance(b"", bytes(32))
