"""Logs go to standard error as it is when a line is written."""

from __future__ import annotations

import io
import json
import sys

import pytest
import structlog

from node import logs


def test_a_logger_outlives_a_closed_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    before = structlog.get_config()
    try:
        first, second = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "stderr", first)
        logs.configure("info", role="verifier", address=b"\x01" * 20)
        log = logs.get("test").bind(session="s")
        log.info("one")
        assert json.loads(first.getvalue())["event"] == "one"
        monkeypatch.setattr(sys, "stderr", second)
        first.close()
        log.info("two")
        line = json.loads(second.getvalue())
        assert (line["event"], line["role"], line["session"]) == ("two", "verifier", "s")
        log.debug("three")
        assert len(second.getvalue().splitlines()) == 1
    finally:
        structlog.configure(**before)
        structlog.contextvars.clear_contextvars()
