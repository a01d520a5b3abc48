"""Configuration files: what is written comes back; what is wrong is named."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from node.config import (
    ApiConfig,
    ChainConfig,
    ConfigError,
    IdentityConfig,
    NetworkConfig,
    NodeConfig,
    dump,
    load,
)

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
role = "verifier"
data_dir = "data"
[identity]
keystore = "key.json"
[chain]
rpc_url = "http://127.0.0.1:8545"
address_book = "book.json"
"""


def test_dump_and_load_are_inverse(tmp_path: Path) -> None:
    config = NodeConfig(
        role="drafter",
        data_dir=tmp_path / 'a "quoted" folder',
        identity=IdentityConfig(tmp_path / "key.json", tmp_path / "password"),
        chain=ChainConfig("http://127.0.0.1:8545", tmp_path / "book.json", poll_seconds=0.25),
        network=NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",), bootstrap=("/ip4/1.2.3.4/tcp/1",)),
        api=ApiConfig(port=8080),
    )
    (tmp_path / "node.toml").write_text(dump(config))
    assert load(tmp_path / "node.toml") == config


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(GOOD)
    config = load(tmp_path / "node.toml")
    assert config.data_dir == (tmp_path / "data").resolve()
    assert config.limit.voucher_every == 32


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("role", "roll", "unknown key roll"),
        ('"verifier"', '"oracle"', "one of client"),
        ("http://", "ftp://", "an http:// or https:// address"),
        ('data_dir = "data"', "", "missing"),
        ('data_dir = "data"', "data_dir = 3", "a path in quotes"),
        ("[identity]", "[identity]\npassword = 'x'", "unknown key identity.password"),
        ("[chain]", "[limit]\nmax_window = 65\n[chain]", "max_window"),
        ("[chain]", "[limit]\nmax_sessions = true\n[chain]", "expected int"),
        ("[chain]", "[model]\ndraft_dtype = 'int4'\n[chain]", "model.draft_dtype = 'int4'"),
        ("[chain]", "[network]\nlisten = 'x'\n[chain]", "a list of strings"),
        ("[chain]", "[chain", "not TOML"),
        ("[chain]", "[chain]\nconfirmations = 0", "chain.confirmations = 0: 1 or more"),
        ("[chain]", "[chain]\npoll_seconds = 0", "chain.poll_seconds = 0.0: above 0"),
        ("[chain]", "[chain]\npoll_seconds = nan", "chain.poll_seconds = nan: a number within"),
        ("[chain]", "[chain]\ntoken_per_wei = inf", "chain.token_per_wei = inf: a number within"),
        ("[chain]", "[chain]\nmax_fee_gwei = -1", "chain.max_fee_gwei = -1.0: above 0"),
        ("[chain]", "[chain]\ndraw_patience_seconds = -1", "0 or more seconds"),
        ("[chain]", "[network]\nadded_latency_ms = -1\n[chain]", "network.added_latency_ms = -1.0"),
        ("[chain]", "[model]\nthreads = 0\n[chain]", "model.threads = 0: 1 or more"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "node.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=says.replace("[", r"\[")):
        load(tmp_path / "node.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.toml")


def test_the_guide_shows_every_setting_with_its_default() -> None:
    """`docs/operator.md` calls its first file complete; [panel] has a section of its own."""
    guide = (ROOT / "docs" / "operator.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    whole = next(block for block in blocks if block.startswith("role ="))
    panel = next(block for block in blocks if block.startswith("[panel]"))
    shown = {**tomllib.loads(whole), **tomllib.loads(panel)}
    optional = set(re.findall(r"^# (\w+) = ", whole, re.MULTILINE))
    given = {"keystore", "password_file", "rpc_url", "address_book"}
    for table in fields(NodeConfig):
        hint = get_type_hints(NodeConfig)[table.name]
        if not is_dataclass(hint):
            continue
        for item in fields(hint):
            name = f"{table.name}.{item.name}"
            if item.name in optional:
                assert item.default is None, name
            else:
                assert item.name in shown[table.name], f"{name} is not in the guide"
                if item.name not in given:
                    value = shown[table.name][item.name]
                    default = tuple(value) if isinstance(value, list) else value
                    assert default == item.default, name
        known = {item.name for item in fields(hint)}
        assert set(shown[table.name]) <= known, f"the guide names what [{table.name}] has not"
