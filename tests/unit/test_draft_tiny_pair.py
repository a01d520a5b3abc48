"""The script that makes the tiny pair, run from text to evaluation at a very small size."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from node.inference.catalog import resolve
from scripts import eval_draft, make_tiny_pair
from scripts.make_tiny_pair import Sizes

SIZES = Sizes(
    vocab=300,
    target=(32, 2, 4, 2, 48),
    draft=(16, 1, 2, 1, 24),
    context=256,
    batch_tokens=256,
    length=32,
    target_steps=60,
    draft_steps=30,
    mix_steps=10,
    samples=8,
)


def _corpus() -> list[make_tiny_pair.Document]:
    rng = random.Random(0)
    words = (
        "the",
        "cat",
        "sat",
        "on",
        "a",
        "mat",
        "saw",
        "one",
        "dog",
        "run",
        "two",
        "red",
        "hens",
    )
    return [("made", " ".join(rng.choice(words) for _ in range(150)) + ".") for _ in range(40)]


@pytest.mark.slow
def test_pair_from_text_to_evaluation(tmp_path: Path) -> None:
    made = make_tiny_pair.make(_corpus(), tmp_path, SIZES, hours=0.05, seed=1, device="cpu")
    # 13 words: knowing them alone gives ln 13 = 2.6 nats, over the few tokens each may take.
    assert made["target"]["loss"] < 4.0 < np.log(SIZES.vocab)
    target, draft = resolve(tmp_path / "target"), resolve(tmp_path / "draft")
    assert json.loads((draft.path / "config.json").read_text())["dtype"] == "bfloat16"
    report = tmp_path / "alpha.json"
    status = eval_draft.main(
        [
            "--target", str(target.path), "--draft", str(draft.path),
            "--prompts", str(tmp_path / "heldout.jsonl"), "--answer", "12",
            "--temperatures", "0", "1", "--window", "2", "--json", str(report),
        ]
    )  # fmt: skip
    assert status == 0
    rates = {(r["temperature"], r["rule"]): r for r in json.loads(report.read_text())["rates"]}
    assert set(rates) == {(0.0, "greedy"), (1.0, "rejection"), (1.0, "coupled")}
    rejection, coupled = (rates[1.0, rule]["alpha"]["value"] for rule in ("rejection", "coupled"))
    assert 0.2 < coupled <= rejection < 1.0
    for row in rates.values():
        parts = row["position"].values()
        total = sum(p["value"] * p["positions"] for p in parts if p["positions"])
        count = sum(p["positions"] for p in parts)
        assert count == row["alpha"]["positions"]
        assert total / count == pytest.approx(row["alpha"]["value"])


def test_hours_end_a_stage_before_its_steps() -> None:
    model = make_tiny_pair.make_model(SIZES.draft, SIZES, 0)
    row = np.random.default_rng(0).integers(0, 300, 2000)
    done = make_tiny_pair.fit(
        model,
        make_tiny_pair.windows(row, SIZES, np.random.default_rng(0)),
        lambda logits, batch: logits.logsumexp(-1).mean(),
        steps=10**9,
        hours=1e-7,
        lr=1e-3,
        name="x",
    )
    assert done["steps"] == 1


def test_held_out_documents_are_not_learnt() -> None:
    corpus = _corpus()
    learn, held = make_tiny_pair.split(corpus, 0)
    assert len(held) == 1
    assert sorted(learn + held) == sorted(corpus)
    assert make_tiny_pair.split(corpus, 0) == (learn, held)
    assert make_tiny_pair.split(corpus, 1)[1] != held


def test_corpus_too_short_for_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="40 tokens"):
        next(make_tiny_pair.windows(np.zeros(40, dtype=np.int64), SIZES, np.random.default_rng(0)))
