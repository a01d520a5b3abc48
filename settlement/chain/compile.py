"""Solidity to artifacts through py-solc-x, remembered by content.

The compiler's settings are those of foundry.toml, so that forge tests what is deployed. Imports
are read here and handed over inline: what the compiler sees is what the cache key covers.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import solcx

from settlement.chain.errors import ConfigError, ToolFailed, ToolMissing
from settlement.chain.paths import CACHE, CONTRACTS, ROOT
from settlement.durable import write_atomic
from settlement.hashing import keccak256

SOLC_VERSION: Final = "0.8.37"
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IMPORT: Final = re.compile(r"""(?:^|[;}])\s*import\b[^"';]*["']([^"'\n]+)["']""", re.MULTILINE)
_VERSION: Final = re.compile(r"Version: ((\d+\.\d+\.\d+)\S*)")
_OUTPUTS: Final = [
    "abi",
    "evm.bytecode.object",
    "evm.bytecode.linkReferences",
    "evm.deployedBytecode.object",
]


class CompileFailed(ToolFailed):
    """The compiler's errors, formatted by the compiler."""


@dataclass(frozen=True)
class Artifact:
    """One compiled contract. `bytecode` is creation code without constructor arguments (empty for
    an interface); `runtime` is deployed code with immutables left zero."""

    name: str
    source: str
    abi: list[dict[str, Any]]
    bytecode: str
    runtime: str

    @cached_property
    def initcode_hash(self) -> bytes:
        return keccak256(bytes.fromhex(self.bytecode))


class Artifacts(Mapping[str, Artifact]):
    """Artifacts by contract name. KeyError would say little: ToolFailed names what there is."""

    def __init__(self, artifacts: Iterable[Artifact]) -> None:
        self._by_name: dict[str, Artifact] = {}
        for artifact in artifacts:
            twin = self._by_name.setdefault(artifact.name, artifact)
            if twin is not artifact:
                raise CompileFailed(
                    f"two contracts are named {artifact.name}: {twin.source}, {artifact.source}"
                )

    def __getitem__(self, name: str) -> Artifact:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def require(self, name: str) -> Artifact:
        if name not in self._by_name:
            raise ToolFailed(f"no contract {name} among {', '.join(sorted(self._by_name))}")
        return self._by_name[name]


# ---------------------------------------------------------------- compiler


def _version_of(binary: Path) -> str | None:
    """`0.8.37+commit…` of a compiler, or None where it does not run. Remembered by the binary's
    (and, for tools/solc, the Node package's) size and time: asking costs half a second."""
    package = ROOT / "node_modules" / "solc" / "package.json"
    stats = [path.stat() for path in (binary, package) if path.exists()]
    mark = f"{binary} {[(stat.st_size, stat.st_mtime_ns) for stat in stats]}"
    memo = CACHE / "solc" / f"version-{hashlib.sha256(mark.encode()).hexdigest()[:16]}"
    if memo.exists():
        return memo.read_text()
    try:
        said = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stdout)
    if match is None:
        return None
    write_atomic(memo, match[1])
    return match[1]


@cache
def find_compiler() -> tuple[Path, str]:
    """The compiler and its full version: $SOLC, tools/solc, a `solc` on PATH, py-solc-x's own.

    Only the pinned version is taken, save from $SOLC, where the caller chose. ToolMissing if none.
    """
    named = os.environ.get("SOLC")
    if named:
        version = _version_of(Path(named))
        if version is None:
            raise ToolMissing(f"$SOLC={named} does not run", "Unset it to use tools/solc")
        return Path(named), version
    on_path = shutil.which("solc")
    for binary in (ROOT / "tools" / "solc", *([Path(on_path)] if on_path else [])):
        version = _version_of(binary) if binary.exists() else None
        if version is not None and version.startswith(SOLC_VERSION):
            return binary, version
    try:
        solcx.install_solc(SOLC_VERSION)
        binary = solcx.install.get_executable(SOLC_VERSION)
    except Exception as error:  # py-solc-x raises requests' and its own errors alike
        raise ToolMissing(
            f"no Solidity compiler {SOLC_VERSION}: tools/solc does not run ({error})",
            "Run `make setup`, or set SOLC to a compiler",
        ) from error
    return binary, _version_of(binary) or SOLC_VERSION


@dataclass(frozen=True)
class CompilerSettings:
    """What of foundry.toml reaches the bytecode, and where imports are found."""

    standard_json: dict[str, Any]
    remappings: tuple[tuple[str, Path], ...]

    @classmethod
    def from_foundry(cls, path: Path = ROOT / "foundry.toml") -> CompilerSettings:
        """From the default profile. ConfigError when there is none to read."""
        try:
            profile = tomllib.loads(path.read_text())["profile"]["default"]
        except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
            raise ConfigError(f"{path}: no [profile.default] to read: {error}") from error
        settings: dict[str, Any] = {
            "optimizer": {
                "enabled": profile.get("optimizer", True),
                "runs": profile.get("optimizer_runs", 200),
            },
            "viaIR": profile.get("via_ir", False),
            "metadata": {
                "bytecodeHash": profile.get("bytecode_hash", "ipfs"),
                "appendCBOR": profile.get("cbor_metadata", True),
            },
        }
        if "evm_version" in profile:
            settings["evmVersion"] = profile["evm_version"]
        pairs = []
        for line in profile.get("remappings", []):
            prefix, _, target = line.partition("=")
            pairs.append((prefix, path.parent / target))
        # The longest prefix wins, as in the compiler.
        pairs.sort(key=lambda pair: -len(pair[0]))
        return cls(settings, tuple(pairs))

    def locate(self, unit: str) -> Path:
        """The file of a source unit name (`contracts/A.sol`, `@openzeppelin/…`)."""
        for prefix, target in self.remappings:
            if unit.startswith(prefix):
                return target / unit[len(prefix) :]
        return ROOT / unit


def _gather(roots: Mapping[str, str], settings: CompilerSettings) -> dict[str, str]:
    """The roots and everything they import, by source unit name."""
    sources = dict(roots)
    waiting = list(roots)
    while waiting:
        unit = waiting.pop()
        for target in _IMPORT.findall(_COMMENT.sub("", sources[unit])):
            name = target
            if target.startswith("."):
                name = posixpath.normpath(posixpath.join(posixpath.dirname(unit), target))
            if name in sources:
                continue
            path = settings.locate(name)
            try:
                sources[name] = path.read_text()
            except OSError as error:
                raise CompileFailed(
                    f"{unit} imports {target}, but {path} cannot be read",
                    "Run `make setup`, or correct the import or foundry.toml's remappings",
                ) from error
            waiting.append(name)
    return sources


def compile_sources(
    roots: Mapping[str, str],
    settings: CompilerSettings | None = None,
    cache_folder: Path = CACHE / "solc",
) -> Artifacts:
    """Compile the source units `roots` (name → text) with what they import.

    The result is kept under sha256(compiler version + canonical input); a second call reads it.
    CompileFailed carries the compiler's errors.
    """
    settings = settings or CompilerSettings.from_foundry()
    binary, version = find_compiler()
    sources = _gather(roots, settings)
    request = {
        "language": "Solidity",
        "sources": {name: {"content": text} for name, text in sources.items()},
        "settings": {
            **settings.standard_json,
            "outputSelection": {name: {"*": _OUTPUTS} for name in roots},
        },
    }
    canonical = json.dumps(request, sort_keys=True)
    key = hashlib.sha256(f"{version}\n{canonical}".encode()).hexdigest()
    kept = cache_folder / f"{key}.json"
    if kept.exists():
        return _read(kept)
    cache_folder.mkdir(parents=True, exist_ok=True)
    with (cache_folder / "lock").open("a") as lock:
        # One compiler at a time: whoever wants the same waits for it instead of doing it again.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            artifacts = list(_run(binary, request))
            write_atomic(kept, json.dumps([asdict(artifact) for artifact in artifacts]))
    return _read(kept)


def _read(kept: Path) -> Artifacts:
    return Artifacts(Artifact(**entry) for entry in json.loads(kept.read_text()))


def _run(binary: Path, request: dict[str, Any]) -> Iterator[Artifact]:
    try:
        answer = solcx.compile_standard(request, solc_binary=str(binary), allow_empty=True)
    except solcx.exceptions.SolcError as error:
        raise CompileFailed(f"the compiler refused: {error.message}") from error
    faults = [
        entry.get("formattedMessage", entry.get("message", ""))
        for entry in answer.get("errors", [])
        if entry["severity"] == "error"
    ]
    if faults:
        raise CompileFailed("\n".join(faults))
    for source, contracts in sorted(answer.get("contracts", {}).items()):
        for name, output in sorted(contracts.items()):
            if output["evm"]["bytecode"].get("linkReferences"):
                raise CompileFailed(f"{name} needs linking", "Make its libraries internal")
            yield Artifact(
                name,
                source,
                output["abi"],
                output["evm"]["bytecode"]["object"],
                output["evm"]["deployedBytecode"]["object"],
            )


def compile_contracts(cache_folder: Path = CACHE / "solc") -> Artifacts:
    """Every contract of the repository, tests left out."""
    test_folder = CONTRACTS / "test"
    roots = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in sorted(CONTRACTS.rglob("*.sol"))
        if test_folder not in path.parents
    }
    return compile_sources(roots, cache_folder=cache_folder)


if __name__ == "__main__":
    print(f"{len(compile_contracts())} contracts compiled")
