"""Commands that need no chain: a model's id, and a copy of the journal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from node.cli import main
from node.inference import catalog
from node.inference.architecture import ModelError
from node.inference.manifest import manifest_of
from node.journal import Journal

CONFIG = """
role = "verifier"
data_dir = "data"
[identity]
keystore = "key.json"
[chain]
rpc_url = "http://127.0.0.1:1"
address_book = "book.json"
"""


def test_a_models_id_is_its_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "id", "tiny-target", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    manifest = manifest_of(catalog.resolve("tiny-target").path, "float32")
    assert shown["model_id"] == "0x" + manifest.model_id.hex()
    assert main(["model", "id", "tiny-target", "--json", "--dtype", "bfloat16"]) == 0
    assert json.loads(capsys.readouterr().out)["model_id"] != shown["model_id"]


def test_an_unknown_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "id", "no-such-model"]) == 1
    assert "no-such-model" in capsys.readouterr().err


def test_a_running_journal_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "node.toml"
    config.write_text(CONFIG)
    target = tmp_path / "copy.sqlite"
    assert main(["journal", "backup", "--config", str(config), str(target)]) == 1
    assert "no journal" in capsys.readouterr().err
    (tmp_path / "data").mkdir()
    running = Journal(tmp_path / "data" / "journal.sqlite")
    running.set_fact("cursor", "9")
    assert main(["journal", "backup", "--config", str(config), str(target)]) == 0
    assert Journal(target).fact("cursor") == "9"
    assert main(["journal", "backup", "--config", str(config), str(target)]) == 1
    assert "exists" in capsys.readouterr().err
    running.close()


def test_decoding_on_this_machine_explains_its_windows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The text is the same with and without a draft; every round says what it was chosen from."""
    asked = ["local", "In the beginning", "--target", "tiny-target", "--max-tokens", "8"]
    texts = set()
    for draft in ("tiny-draft", "ngram", "exit-2", "none"):
        assert main([*asked, "--draft", draft, "--explain", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        texts.add((shown["text"], tuple(shown["token_ids"])))
        assert sum(w["emitted"] for w in shown["windows"]) == len(shown["token_ids"])
        if draft == "none":
            assert all(w["k"] == 0 for w in shown["windows"])
        else:
            assert all({"alpha", "reason"} <= set(w["control"]) for w in shown["windows"])
    assert len(texts) == 1
    assert main([*asked, "--draft", "tiny-draft", "--explain"]) == 0
    told = capsys.readouterr().out
    assert "best K=" in told
    assert "tokens/s" in told


def test_decoding_refuses_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["local", "x", "--target", "tiny-target", "--draft"]
    assert main([*asked, "exit-6"]) == 1
    assert "6 layers" in capsys.readouterr().err
    assert main([*asked, "ngram", "--max-tokens", "4000"]) == 1
    assert "context" in capsys.readouterr().err
    assert main([*asked, "ngram", "--top-p", "2"]) == 1
    assert "top_p" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"vocab_size": "many"}, "vocab_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"eos_token_id": ["</s>"]}, "eos_token_id"),
        ({"eos_token_id": -1}, "eos_token_id"),
    ],
)
def test_a_config_that_counts_nothing_is_refused(
    tmp_path: Path, config: dict[str, object], says: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(catalog.SHIPPED / "tiny" / "draft", folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    whole = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(whole | config))
    with pytest.raises(ModelError, match=says):
        manifest_of(folder, "float32", cache_dir=tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [-99, 4]}}',
    ],
)
def test_a_header_that_is_none_is_refused(tmp_path: Path, header: bytes) -> None:
    folder = tmp_path / "model"
    shutil.copytree(catalog.SHIPPED / "tiny" / "draft", folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="header"):
        manifest_of(folder, "float32", cache_dir=tmp_path)
