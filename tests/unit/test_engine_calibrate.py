"""Calibration keeps the best of several passes; both floating tiers load."""

from __future__ import annotations

import torch
from engine_models import TINY, TableModel, tiny_target

from node.inference.calibrate import pass_seconds
from node.inference.loading import load_model
from node.inference.model import Span


def test_the_best_time_of_each_row_count_is_kept():
    model = TableModel(8, 1)
    now, slow = [0.0], [0]

    def forward(spans, inner=model.forward):
        slow[0] += 1
        now[0] += len(spans[0].tokens) * 0.5 + (10.0 if slow[0] % 3 else 0.0)
        return inner(spans)

    model.forward = forward
    got = pass_seconds(model, (1, 4, 300), context=32, repeats=6, clock=lambda: now[0])
    assert got == {1: 0.5, 4: 2.0}  # 300 rows do not fit the context of 256


def test_bfloat16_is_close_to_float32():
    exact, model = tiny_target(), load_model(TINY / "target", dtype="bfloat16")
    assert (exact.tier, model.tier) == ("float32", "bfloat16")
    text = list(range(100, 140))
    a, b = (m.forward([Span(m.new_cache(), text, 40)])[0] for m in (exact, model))
    assert b.logits.dtype == b.hidden.dtype == torch.float32
    difference = (torch.softmax(a.logits, 1) - torch.softmax(b.logits, 1)).abs().sum(1) / 2
    assert 1e-5 < difference.max() < 0.05
    assert model.new_cache().bytes * 2 == exact.new_cache().bytes
