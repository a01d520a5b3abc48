"""The comparison script in small: it finds nothing in the engine, and finds a planted fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from node.inference.exact.model import ExactModel
from scripts import check_exact

pytestmark = pytest.mark.slow


def test_every_way_gives_the_same_bits(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    arguments = ["--positions", "72", "--oracle", "1", "--model", "tiny-draft"]
    assert check_exact.main([*arguments, "--json", str(found)]) == 0
    report = json.loads(found.read_text())
    assert report["differing"] == 0
    names = {case["name"] for case in report["cases"]}
    assert {"one token at a time", "windows 1 to 16", "after rollbacks", "batch 8"} <= names
    assert {"oracle", "2 threads, windows"} <= names
    limited = {f"held to {name}" for name in check_exact.ISAS}
    assert limited <= names | {case.removeprefix("tiny-draft: ") for case in report["left_out"]}
    assert all(case["positions"] >= 1 for case in report["cases"])


@pytest.mark.parametrize("widest", ["DEFAULT", "AVX2", "AVX512"])
def test_only_what_the_processor_has_is_run(monkeypatch: pytest.MonkeyPatch, widest: str) -> None:
    """torch, told to use instructions that are not there, dies of it."""
    said: list[str] = []
    check = check_exact.Check("tiny-draft", 8, 8, said.append)
    asked: list[str] = []

    def run(*_: object, env: dict[str, str], **__: object) -> object:
        asked.append(env["ATEN_CPU_CAPABILITY"])
        raise InterruptedError

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: widest)
    monkeypatch.setattr(check_exact.subprocess, "run", run)
    if widest == "DEFAULT":
        check.instruction_sets()
        assert not asked
        assert len(check.left_out) == len(check_exact.ISAS) == sum("not run" in s for s in said)
    else:
        with pytest.raises(InterruptedError):
            check.instruction_sets()
        assert asked == ["avx2"]


def test_a_last_bit_that_depends_on_the_window_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    honest = ExactModel._mlp

    def off_in_windows(self: ExactModel, layer: object, x: torch.Tensor) -> torch.Tensor:
        out = honest(self, layer, x)  # type: ignore[arg-type]
        return out + (len(x) == 5)

    check = check_exact.Check("tiny-draft", 40, 40, lambda line: None)
    monkeypatch.setattr(ExactModel, "_mlp", off_in_windows)
    check.run(
        "windows", lambda t: check_exact.pieces(check.model, t, check_exact.windows), check.few, ""
    )
    assert check.cases[-1].differing > 0
