"""Compiled once, remembered by content; what does not compile says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from settlement.chain import compile as compiler
from settlement.chain.compile import (
    SOLC_VERSION,
    Artifact,
    CompileFailed,
    CompilerSettings,
    compile_sources,
    find_compiler,
)
from settlement.chain.errors import ConfigError, ToolFailed, ToolMissing
from settlement.hashing import keccak256

HEAD = "// SPDX-License-Identifier: Apache-2.0\npragma solidity ^0.8.30;\n"
ONE = {"tests/One.sol": HEAD + "contract One { function f() external pure returns (uint256) {}}"}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every run of the compiler, which is left out: what is remembered when is the question."""
    seen: list[dict[str, Any]] = []

    def counted(_binary: Path, request: dict[str, Any]) -> Iterator[Artifact]:
        seen.append(request)
        for unit, outputs in request["settings"]["outputSelection"].items():
            assert outputs
            text = request["sources"][unit]["content"]
            name = re.search(r"contract (\w+)", text)
            assert name is not None
            yield Artifact(name[1], unit, [], text.encode().hex(), "")

    monkeypatch.setattr(compiler, "_run", counted)
    return seen


def test_the_real_compiler_gives_artifacts_and_they_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_sources(ONE, cache_folder=tmp_path)
    assert [entry["name"] for entry in first["One"].abi] == ["f"]
    assert first["One"].initcode_hash == keccak256(bytes.fromhex(first["One"].bytecode))
    assert first["One"].runtime in first["One"].bytecode
    monkeypatch.setattr(compiler, "_run", None)  # a second run would fail
    assert compile_sources(dict(ONE), cache_folder=tmp_path)["One"] == first["One"]


def test_any_change_is_compiled_anew(
    tmp_path: Path, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        compile_sources(ONE, cache_folder=tmp_path)
    assert len(runs) == 1
    compile_sources({"tests/One.sol": ONE["tests/One.sol"] + "\n"}, cache_folder=tmp_path)
    assert len(runs) == 2
    settings = CompilerSettings.from_foundry()
    fewer = {**settings.standard_json, "optimizer": {"enabled": True, "runs": 1}}
    compile_sources(ONE, CompilerSettings(fewer, settings.remappings), cache_folder=tmp_path)
    assert len(runs) == 3
    binary, version = find_compiler()
    monkeypatch.setattr(compiler, "find_compiler", lambda: (binary, version + "-other"))
    compile_sources(ONE, cache_folder=tmp_path)
    assert len(runs) == 4


def test_a_change_in_an_import_counts(tmp_path: Path, runs: list[dict[str, Any]]) -> None:
    library = tmp_path / "Lib.sol"
    root = {"tests/A.sol": HEAD + 'import {\n  L\n} from "./lib/Lib.sol"; contract A is L {}'}
    settings = CompilerSettings(
        CompilerSettings.from_foundry().standard_json, (("tests/lib/", tmp_path),)
    )
    for body in ("", "uint256 public x;"):
        library.write_text(HEAD + f"contract L {{ {body} }}")
        artifacts = compile_sources(root, settings, cache_folder=tmp_path / "cache")
        assert set(artifacts) == {"A"}  # what is imported is no output of its own
    assert len(runs) == 2
    assert set(runs[0]["sources"]) == {"tests/A.sol", "tests/lib/Lib.sol"}


def test_settings_are_those_forge_compiles_with() -> None:
    settings = CompilerSettings.from_foundry().standard_json
    assert settings["evmVersion"] == "prague"
    assert settings["optimizer"] == {"enabled": True, "runs": 800}
    assert settings["metadata"] == {"bytecodeHash": "none", "appendCBOR": False}


def test_what_does_not_compile_is_shown_as_the_compiler_says(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed, match=r"undeclared|Undeclared"):
        compile_sources({"tests/B.sol": HEAD + "contract B { uint256 x = y; }"}, None, tmp_path)
    with pytest.raises(CompileFailed, match=r"imports nowhere/N\.sol"):
        compile_sources({"tests/C.sol": HEAD + 'import "nowhere/N.sol";'}, None, tmp_path)
    assert not list(tmp_path.glob(".new-*"))


def test_names_are_told_apart(tmp_path: Path, runs: list[dict[str, Any]]) -> None:
    twins = {f"tests/{n}.sol": HEAD + "contract Same {}" for n in "DE"}
    with pytest.raises(CompileFailed, match="two contracts are named Same"):
        compile_sources(twins, None, tmp_path)
    with pytest.raises(ToolFailed, match="no contract Two among One"):
        compile_sources(ONE, None, tmp_path).require("Two")


def test_an_import_in_a_comment_is_none(tmp_path: Path, runs: list[dict[str, Any]]) -> None:
    text = HEAD + '// import "nowhere/A.sol";\n/* import "nowhere/B.sol"; */ contract F {}'
    assert set(compile_sources({"tests/F.sol": text}, None, tmp_path)) == {"F"}


def test_the_compiler_is_the_pinned_one_unless_the_caller_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find_compiler.cache_clear()
    monkeypatch.delenv("SOLC", raising=False)
    binary, version = find_compiler()
    assert binary.name == "solc"
    assert version.startswith(SOLC_VERSION)
    other = tmp_path / "solc"
    other.write_text("#!/bin/sh\necho 'Version: 0.8.36+commit.00000000'\n")
    other.chmod(0o755)
    monkeypatch.setenv("SOLC", str(other))
    find_compiler.cache_clear()
    assert find_compiler() == (other, "0.8.36+commit.00000000")
    monkeypatch.setenv("SOLC", str(tmp_path / "none"))
    find_compiler.cache_clear()
    with pytest.raises(ToolMissing, match="SOLC"):
        find_compiler()
    find_compiler.cache_clear()


def test_a_broken_foundry_toml_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        CompilerSettings.from_foundry(tmp_path / "none.toml")
