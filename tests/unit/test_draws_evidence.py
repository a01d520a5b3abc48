"""Evidence that lacks: a watcher is told so, whatever lacks, and goes on with other draws."""

from __future__ import annotations

import pytest

from settlement.draws import BatchEvidence, CannotOpen, opening_of


def test_no_rounds_at_all_open_nothing() -> None:
    with pytest.raises(CannotOpen, match="no rounds"):
        opening_of(BatchEvidence((), None, {}), b"\x01" * 32, b"\x02" * 32, 0)
