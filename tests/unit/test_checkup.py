"""What `node check` finds without a chain: each fault with a way out, and none that raises."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from node.checkup import Finding, _clock, _retention, examine
from node.config import (
    ApiConfig,
    ChainConfig,
    ConfigError,
    IdentityConfig,
    ModelConfig,
    NetworkConfig,
    NodeConfig,
)
from node.daemon import bootstrap_of
from settlement.chain.parameters import PRODUCTION


def config(folder: Path, *listen: str, role: str = "bootstrap") -> NodeConfig:
    return NodeConfig(
        role=role,
        data_dir=folder / "data",
        identity=IdentityConfig(folder / "operator.json", folder / "password"),
        chain=ChainConfig("http://127.0.0.1:1", folder / "addresses.json"),
        network=NetworkConfig(listen=listen or ("/ip4/127.0.0.1/tcp/0",)),
        model=ModelConfig(target="no-such-model"),
    )


def found(of: NodeConfig) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(of, progress=lambda line: None)}


def test_nothing_that_is_missing_raises_and_each_has_advice(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    findings = found(config(tmp_path, role="verifier"))
    assert [what for what, finding in findings.items() if not finding.ok] == [
        "key",
        "chain",
        "models",
    ]
    assert "there is no keystore at" in findings["key"].found
    assert "there is no address book at" in findings["chain"].found
    assert "no-such-model" in findings["models"].found
    assert all(finding.advice for finding in findings.values() if not finding.ok)
    assert findings["journal"].ok


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        text = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        ports = found(config(tmp_path, text))["ports"]
    assert not ports.ok
    assert text in ports.found


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = found(replace(config(tmp_path), data_dir=tmp_path / "file" / "data"))["journal"]
    assert not journal.ok
    assert "cannot be written" in journal.found


def test_a_private_port_that_is_taken_or_elsewhere_is_named(tmp_path: Path) -> None:
    good = config(tmp_path)
    assert found(good)["private port"].ok
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        private = found(replace(good, api=ApiConfig(port=port)))["private port"]
    assert not private.ok
    assert f"api.port = {port}" in private.found
    elsewhere = found(replace(good, api=ApiConfig(host="203.0.113.1")))["private port"]
    assert not elsewhere.ok


def test_a_bootstrap_address_that_is_none_is_named(tmp_path: Path) -> None:
    network = NetworkConfig(bootstrap=("/ip4/1.2.3.4/tcp/4600",))
    with pytest.raises(ConfigError, match=r"network\.bootstrap names '/ip4/1\.2\.3\.4/tcp/4600'"):
        bootstrap_of(replace(config(tmp_path), network=network))


def test_a_node_that_only_listens_on_wildcards_is_told_that_nobody_finds_it(
    tmp_path: Path,
) -> None:
    assert not found(config(tmp_path, "/ip4/0.0.0.0/tcp/0"))["announce"].ok
    assert found(config(tmp_path))["announce"].ok


def test_rounds_are_kept_as_long_as_stake_is_locked_for_them() -> None:
    """15 days in production: evidence 7, two deadlines 2, panel 2, appeal 4."""
    assert _retention(360.0, PRODUCTION.times).ok
    short = _retention(359.0, PRODUCTION.times)
    assert not short.ok
    assert "359 h" in short.found
    assert "360 h" in short.found


def test_only_a_clock_behind_the_chains_is_surely_wrong() -> None:
    assert _clock(1_000, 1_000 + 86_400).ok
    assert _clock(1_000, 980).ok
    assert not _clock(1_000, 960).ok
