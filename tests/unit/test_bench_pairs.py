"""The statistics that benchmarks report, and that an interrupted run goes on where it ended."""

from __future__ import annotations

import json
import math
import random

import pytest

from scripts.bench.pairs import Rows, geometric_mean, ratio
from scripts.bench.prompts import CLASSES, prompts
from scripts.bench_decode import Table, key, ratios


def test_intervals_cover_the_true_ratio_as_often_as_they_say():
    rng = random.Random(1)
    covered = 0
    for trial in range(60):
        pairs = [math.exp(rng.gauss(math.log(1.3), 0.3)) for _ in range(20)]
        found = ratio(pairs, trial)
        assert found.low <= found.mean <= found.high
        assert found.mean == pytest.approx(geometric_mean(pairs))
        covered += found.low <= 1.3 <= found.high
    assert 0.85 <= covered / 60 <= 0.99


def row(engine, drafter, speed, prompt=0, kind="code", temperature=0.0):
    return {
        "engine": engine,
        "drafter": drafter,
        "temperature": temperature,
        "prompt_class": kind,
        "prompt": prompt,
        "tokens_per_s": speed,
    }


def test_ratios_are_taken_prompt_by_prompt():
    rows = []
    for prompt, slow in ((0, 1.0), (1, 10.0)):  # the machine was ten times slower for one of them
        rows.append(row("verdraft", "model", 30.0 / slow, prompt))
        rows.append(row("verdraft", "mixed", 45.0 / slow, prompt))
        rows.append(row("verdraft", "none", 20.0 / slow, prompt))
        rows.append(row("transformers", "assistant", 15.0 / slow, prompt))
    rows.append(row("verdraft", "model", 1.0, 2))  # without its partner: left out
    found = ratios(Table(rows))
    assert found["vs_assisted"]["all"] == {"mean": 3.0, "low": 3.0, "high": 3.0, "pairs": 2}
    assert found["vs_assisted_model"]["all"]["mean"] == 2.0
    assert found["vs_plain"]["model/code"]["mean"] == 1.5
    assert found["vs_plain_min"] == 1.5
    assert found["vs_prompt_lookup"] == {}


def test_a_run_goes_on_after_a_torn_line_and_refuses_rows_of_another(tmp_path):
    path = tmp_path / "rows.jsonl"
    first = Rows(path, {"tokens": 64}, key)
    first.add(row("verdraft", "none", 20.0))
    with path.open("a") as out:
        out.write('{"engine": "verd')
    second = Rows(path, {"tokens": 64}, key)
    assert second.has(row("verdraft", "none", 99.0))
    assert not second.has(row("verdraft", "none", 20.0, temperature=0.7))
    second.add(row("verdraft", "model", 30.0))
    assert [json.loads(x).get("drafter") for x in path.read_text().splitlines()] == [
        None,
        "none",
        "model",
    ]
    with pytest.raises(SystemExit, match="another run"):
        Rows(path, {"tokens": 32}, key)


def test_every_class_has_prompts():
    for kind in CLASSES:
        found = prompts(kind, 6)
        assert len({p.text for p in found}) == 6
    assert all(p.text.count(p.text.split("\n\n")[1]) == 2 for p in prompts("copy", 6))
