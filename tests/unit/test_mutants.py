"""The list of planted faults fits the sources, and (slow) every one of them is found."""

from __future__ import annotations

import pytest

from scripts import mutants


def test_every_fault_fits_its_source_once():
    for mutant in mutants.MUTANTS:
        assert (mutants.ROOT / mutant.path).read_text().count(mutant.old) == 1, mutant.name
        assert mutant.old != mutant.new
        file, _, name = mutant.test.partition("::")
        assert f"def {name}(" in (mutants.ROOT / mutants.UNIT / file).read_text(), mutant.test
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual-without-clamp", "kv-not-cropped"])
def test_planted_faults_are_found(name, capsys):
    """A sample; `make prove` plants all."""
    assert mutants.main(["--only", name]) == 0
    assert "1 of 1 mutants killed" in capsys.readouterr().out
