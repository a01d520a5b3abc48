"""The instruments that float tolerances are measured with."""

from __future__ import annotations

import numpy as np
import pytest
from engine_models import TINY, tiny_target, tiny_tokenizer

from node.inference.fingerprint import Projection, distance
from node.inference.loading import load_model
from scripts import cheap_models, float_tolerance, toploc
from scripts.tolerance_report import interval, report


def states(seed: int = 0, rows: int = 32, width: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


def test_toplocs_polynomial_goes_through_what_it_was_made_of() -> None:
    hidden = states()
    proof = toploc.Proof.of(hidden)
    at, bits = toploc.largest(hidden)
    assert (proof.at(at) == bits % toploc.PRIME).all()
    assert proof.check(hidden) == toploc.Distance(0, 0, 0)


def test_toploc_refuses_other_states_and_takes_rounding() -> None:
    hidden = states()
    proof = toploc.Proof.of(hidden)
    assert proof.check(hidden * np.float32(1 + 1e-6)).accepted()
    near = proof.check(hidden + 0.001 * states(1))
    assert near.accepted()
    assert near.exponents < 10
    other = proof.check(states(2))
    assert not other.accepted()
    assert other.exponents > 90


def test_the_last_proof_is_of_what_is_left() -> None:
    hidden = states(rows=40)
    made = toploc.proofs(hidden)
    assert len(made) == 2
    assert all(found == toploc.Distance(0, 0, 0) for found in toploc.checks(made, hidden))


def test_intervals_are_clopper_and_pearsons() -> None:
    # 1 − 0.025^(1/n) for no hit in n, and its mirror.
    assert interval(0, 3000)[1] == pytest.approx(1 - 0.025 ** (1 / 3000))
    assert interval(3000, 3000)[0] == pytest.approx(0.025 ** (1 / 3000))
    assert interval(5, 10) == pytest.approx((0.18709, 0.81291), abs=1e-5)


def test_three_bits_leave_seven_levels() -> None:
    import torch

    weight = torch.randn(4, 128, generator=torch.Generator().manual_seed(1))
    made = cheap_models.rounded(weight, 3)
    for group in made.reshape(4, 2, 64).flatten(0, 1):
        assert len(group.unique()) <= 7
    assert (made - weight).abs().max() <= weight.abs().max() / 6 + 1e-6


def test_a_requantised_copy_loads_and_lies_far_from_the_target(tmp_path) -> None:
    cheap = load_model(cheap_models.requantised(TINY / "target", tmp_path, 3))
    item = float_tolerance.work(3, ["In the beginning God created"], tiny_tokenizer())
    (row,) = float_tolerance.cheap_rows("3 bits", tiny_target(), cheap, [item])
    assert row["first"] == 0
    assert row["records"]["print"][-1][1] > 100 * 64


def test_an_honest_session_is_flagged_by_nothing_however_it_is_run() -> None:
    model = tiny_target()
    item = float_tolerance.work(2, ["In the beginning God created"], tiny_tokenizer())
    decoding = float_tolerance.Decoding(model, [item])
    decoding.go_on(20)
    text = decoding.served[0].tokens
    for served in (decoding.served[0], float_tolerance.in_windows(model, item, text)):
        hidden = np.stack(served.hidden)
        prints = Projection(item.seed, model.hidden_size).fingerprints(hidden)
        told = (served.words, prints, toploc.proofs(hidden))
        figures, checks = float_tolerance.rerun(model, item, text, told, 7)
        assert figures.flags == {}
        assert figures.print <= 4
        assert all(check.accepted() for check in checks)
    far = Projection(bytes(32), model.hidden_size).fingerprints(hidden)
    assert max(map(distance, prints, far)) > 1000, "another session's directions"


def test_a_flagged_session_counts_once_and_fails_the_run() -> None:
    run = {"token": 9, "mass": 0, "top_prob": 0, "cutoff": 0, "print": 3, "exponents": 0}
    good, bad = (
        {**run, "flags": {}, "toploc": True},
        {
            **run,
            "flags": {"token": 2, "topProb": 1},
            "toploc": False,
        },
    )
    rows = [
        {"kind": "honest", "number": number, "runs": {"chunks": found}}
        for number, found in enumerate((good, good, bad))
    ]
    found = report({"model": "tiny", "dtype": "float32", "tokens": 32}, rows)
    assert (found.flagged.hits, found.flagged.trials) == (1, 3)
    assert found.flags == {"token": 1, "topProb": 1}
    assert found.toploc_flagged.hits == 1
    assert found.failed
    assert not report(found.settings, rows[:2]).failed


def test_bfloat16_is_judged_by_tolerances_of_its_own(monkeypatch) -> None:
    model = load_model(TINY / "target", "bfloat16")
    item = float_tolerance.work(2, ["In the beginning God created"], tiny_tokenizer())
    decoding = float_tolerance.Decoding(model, [item])
    decoding.go_on(20)
    served = decoding.served[0]
    hidden = np.stack(served.hidden)
    told = (served.words, Projection(item.seed, model.hidden_size).fingerprints(hidden), [])
    found = {}
    for dtype in ("bfloat16", "float32"):
        monkeypatch.setattr(float_tolerance, "TOLERANCE", None)
        float_tolerance.judge_by(dtype)
        found[dtype], _ = float_tolerance.rerun(model, item, served.tokens, told, 7)
    assert found["bfloat16"].flags == {}
    assert found["float32"].flags["fingerprint"] > 10
