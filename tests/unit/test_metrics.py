"""What /metrics says of speculation: vLLM's names, survival and conditional rates kept apart."""

from __future__ import annotations

import random

import pytest

from node.roles.metrics import Metrics, wilson


def values(text: str) -> dict[str, float]:
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if not line.startswith("#")
    }


def test_names_are_vllms_and_the_rate_is_conditional():
    metrics = Metrics()
    for _ in range(10):  # four drafts, two accepted, the third rejected, the fourth never reached
        metrics.round(4, 2, 3, 3)
    metrics.round(0, 0, 0, 1)
    found = values(metrics.prometheus())
    assert found["verdraft_spec_decode_num_drafts_total"] == 10
    assert found["verdraft_spec_decode_num_draft_tokens_total"] == 40
    assert found["verdraft_spec_decode_num_accepted_tokens_total"] == 20
    per_pos = "verdraft_spec_decode_num_accepted_tokens_per_pos_total"
    assert [found[f'{per_pos}{{position="{i}"}}'] for i in range(3)] == [10, 10, 0]
    rate = "verdraft_spec_decode_acceptance_rate"
    assert found[f'{rate}{{position="all",bound="estimate"}}'] == pytest.approx(2 / 3, abs=1e-6)
    assert found[f'{rate}{{position="all",bound="low"}}'] < 0.6
    assert found[f'{rate}{{position="all",bound="high"}}'] > 0.73
    assert found[f'{rate}{{position="2",bound="estimate"}}'] == 0
    assert found[f'{rate}{{position="2",bound="high"}}'] > 0.2
    assert not any('position="3"' in name for name in found)


def test_a_rates_interval_covers_as_often_as_it_says():
    rng = random.Random(2)
    for rate in (0.05, 0.5, 0.9):
        covered = 0
        for _ in range(400):
            accepts = sum(rng.random() < rate for _ in range(40))
            low, high = wilson(accepts, 40)
            covered += low <= rate <= high
        assert covered / 400 >= 0.92
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(5, 5)[1] == pytest.approx(1.0)


def test_gauges_are_read_when_asked():
    metrics, now = Metrics(), [0.25]
    metrics.gauges["kv_cache_usage_perc"] = lambda: now[0]
    assert values(metrics.prometheus())["verdraft_kv_cache_usage_perc"] == 0.25
    now[0] = 1.0
    text = metrics.prometheus()
    assert values(text)["verdraft_kv_cache_usage_perc"] == 1.0
    assert "# TYPE verdraft_kv_cache_usage_perc gauge" in text
