"""A short run of what `scripts/honest_parties.py` does at length: nobody honest is accused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from crowd import run_of_sessions

from scripts import honest_parties as honest


def test_records_of_honest_parties_show_no_fault_and_are_paid_in_full() -> None:
    rows = [honest.chunk_of_rounds(number, 90) for number in range(3)]
    assert {row["mode"] for row in rows} == {"greedy", "coupled", "rejection"}
    assert sum(row["rounds"] for row in rows) >= 270
    assert [row["faults"] for row in rows] == [[], [], []]
    assert sum(row["underpaid"] for row in rows) == 0
    claims = honest.flagged(rows)
    assert all(claim["flag"] is None and claim["proposals"] > 50 for claim in claims.values())


def test_one_false_record_would_have_been_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import played_sessions

    real = played_sessions.play

    def crooked(domain: Any, *arguments: Any, **terms: Any) -> Any:
        session = real(domain, *arguments, **terms)
        first = session.rounds[0]
        verdict = replace(first.verdict, k=first.verdict.k + 1)
        record = replace(first.record, verdict_hash=verdict.struct_hash)
        false = played_sessions.sealed(
            domain, replace(first, verdict=verdict, record=record), session.keys
        )
        return replace(session, rounds=(false, *session.rounds[1:]))

    monkeypatch.setattr(played_sessions, "play", crooked)
    row = honest.chunk_of_rounds(0, 10)
    assert "F5" in row["faults"]
    assert honest.failed({"records": {"faults": row["faults"]}})


def test_honest_operators_among_hostile_clients_on_bad_links() -> None:
    row = run_of_sessions(0, "sessions", requests=1)
    assert row["sessions"] >= 4, row
    assert row["against_honest"] == row["twice"] == row["wrong_texts"] == 0, row
    assert row["honest_answered"] == row["honest_asked"], row
    assert row["ended"]["refused"] >= 1, row  # the hostile were there
