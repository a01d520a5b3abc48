"""C sources compiled once per machine, into the cache.

Nothing needs them: whoever uses one has a path without it, which it takes where there is no C
compiler, where the build fails, where VERDRAFT_COMPILE is "off", or where the result differs by one
bit from that path.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from node.inference.architecture import ModelError
from node.inference.catalog import default_cache_dir

#: No option that lets a compiler reorder or approximate: values are exact, but floor must be floor.
FLAGS: Final = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fwrapv")
_PATIENCE: Final = 120  # seconds


class NoCompiler(ModelError):
    """A source cannot be built or loaded here; the message says why."""


def library_path(source: Path, cache: Path | None = None) -> Path:
    """Where a build of this source, with these flags, for this processor lies."""
    cpu = ""
    info = Path("/proc/cpuinfo")
    if info.exists():  # -march=native code of one machine may not run on another
        lines = info.read_text(errors="replace").splitlines()
        cpu = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    key = "\0".join((source.read_text(), *FLAGS, platform.machine(), platform.system(), cpu))
    name = f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    return (cache or default_cache_dir()) / "native" / name


def build(source: Path, cache: Path | None = None) -> Path:
    """Compile into the cache, unless that was done before; of several processes, one does it.

    Raises:
        NoCompiler: no C compiler, or it fails, or compiling is off; the message says which.
    """
    if os.environ.get("VERDRAFT_COMPILE") == "off":
        raise NoCompiler(f"VERDRAFT_COMPILE=off: {source.name} is not compiled")
    path = library_path(source, cache)
    if path.exists():
        return path
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        raise NoCompiler(f"no C compiler (cc, gcc or clang) for {source.name}: it is done without")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _compile(compiler, source, path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompiler(f"{source.name} cannot be compiled into {path.parent}: {error}") from error
    return path


def _compile(compiler: str, source: Path, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        out = Path(scratch) / "library.so"
        command = [compiler, *FLAGS, "-shared", "-fPIC", str(source), "-o", str(out), "-lm"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
        if done.returncode:
            raise NoCompiler(f"{' '.join(command)} failed: {done.stderr[-500:]}")
        out.replace(path)


def load(path: Path, signatures: Mapping[str, tuple[Any, ...]], returns: Any = None) -> Any:
    """A built library, with its functions' argument types, all returning `returns`.

    Raises:
        NoCompiler: it is not there or cannot be loaded.
    """
    return _load(path, tuple(signatures.items()), returns)


@functools.cache
def _load(path: Path, signatures: tuple[tuple[str, tuple[Any, ...]], ...], returns: Any) -> Any:
    try:
        library = ctypes.CDLL(str(path))
        for name, types in signatures:
            function = getattr(library, name)
            function.argtypes, function.restype = types, returns
    except (OSError, AttributeError) as error:
        raise NoCompiler(f"{path} cannot be used: {error}") from error
    return library
