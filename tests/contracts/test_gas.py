"""Gas is what contracts/gas.json says it is, and the report says so when it is not."""

from __future__ import annotations

import json

import pytest

from scripts.gas_report import (
    COMMITTED,
    GasReportFailed,
    Report,
    differences,
    markdown,
    measure,
)

LINES = ["gas settle_first: 1000", "gas curve 64 262144: 1677722", "unrelated", "gas flag: 200"]


def test_lines_become_figures() -> None:
    report = Report.of_lines(LINES)
    assert report.calls == {"settle_first": 1000, "flag": 200}
    assert report.per_token(64, 262144) == pytest.approx(0.1)
    assert Report.of_json(json.loads(json.dumps(report.to_json()))) == report
    assert "| 64 | 0.100 |" in markdown(report)
    assert "| `flag` | 200 |" in markdown(report)


def test_no_figures_are_a_failure() -> None:
    with pytest.raises(GasReportFailed):
        Report.of_lines(["gas curve 1 1024: 5"])


def test_a_change_is_named() -> None:
    old = Report.of_lines(LINES)
    new = Report.of_lines(["gas settle_first: 1010", "gas curve 64 262144: 1700000", "gas new: 1"])
    assert differences(old, old) == []
    assert differences(new, old) == [
        "curve 64 262144: 1,677,722 → 1,700,000 (+1.3 %)",
        "flag: not measured any more",
        "new: not committed",
    ]
    assert differences(Report({**old.calls, "flag": 203}, old.curve), old) == [
        "flag: 200 → 203 (+1.5 %)"
    ]


def test_the_committed_figures_cover_what_is_promised() -> None:
    committed = Report.of_json(json.loads(COMMITTED.read_text()))
    promised = {
        "settle_first",
        "settle_steady",
        "settle_8_lanes_per_lane",
        "settle_64_lanes_per_lane",
        "open_sample",
        "flag",
        "stake",
        "reserve_first",
        "withdraw",
        "claim_register",
        "capture",
    }
    assert promised <= committed.calls.keys()
    lanes_by_size = {(lanes, 1 << bits) for lanes in (1, 8, 32, 64) for bits in (10, 14, 18)}
    assert committed.curve.keys() == lanes_by_size


@pytest.mark.slow
def test_gas_is_what_is_committed() -> None:
    committed = Report.of_json(json.loads(COMMITTED.read_text()))
    assert differences(measure(), committed) == []
