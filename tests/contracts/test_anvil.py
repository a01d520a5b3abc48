"""Anvil as a child: flags from TOML, readiness, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from settlement.chain.anvil import Anvil, flags, native_binary, read_settings
from settlement.chain.errors import ConfigError, NodeUnreachable, RpcFailed, ToolFailed, ToolMissing
from settlement.chain.paths import ROOT


def test_settings_become_flags() -> None:
    settings = {"port": 0, "ipc": True, "no-mining": False, "mnemonic": "a b c"}
    assert flags(settings) == ["--port", "0", "--ipc", "--mnemonic", "a b c"]


def test_the_repositorys_own_settings_are_read() -> None:
    settings = read_settings(ROOT / "anvil.toml")
    assert settings["port"] == 0
    assert settings["chain-id"] == 31337
    # Code compiled for one EVM is run on the same.
    assert f'evm_version = "{settings["hardfork"]}"' in (ROOT / "foundry.toml").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = ", "Invalid value"),
        ("[chain]\nid = 1", "dict"),
        ("port = 1.5", "float"),
        ('"--port" = 1', "no anvil flag"),
        ('"port 1; rm" = 1', "no anvil flag"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "anvil.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_settings(path)
    with pytest.raises(ConfigError, match="does not exist"):
        read_settings(tmp_path / "none.toml")


def test_a_missing_binary_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="make setup"):
        native_binary("anvil", tmp_path)


def test_a_setting_anvil_does_not_know_is_told_in_its_words() -> None:
    with pytest.raises(ToolFailed, match="no-such-flag"):
        Anvil(overrides={"no-such-flag": 1}).start()


def test_two_devnets_do_not_clash_and_both_end() -> None:
    with Anvil() as first, Anvil() as second:
        assert first.url != second.url
        first.mine(3)
        assert (first.block_number, second.block_number) == (3, 0)
        pids = [first.pid, second.pid]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(NodeUnreachable):
        first.rpc("eth_chainId")


def test_time_snapshots_and_reorganisations() -> None:
    with Anvil() as anvil:
        start = anvil.timestamp
        anvil.warp(1000)
        assert anvil.timestamp == start + 1000
        with anvil.rolled_back():
            anvil.mine(5)
            assert anvil.block_number == 6
        assert anvil.block_number == 1
        anvil.mine(3)
        before = anvil.rpc("eth_getBlockByNumber", "latest", False)["hash"]
        anvil.reorg(2)
        assert anvil.block_number == 4
        assert anvil.rpc("eth_getBlockByNumber", "latest", False)["hash"] != before
        with pytest.raises(ToolFailed, match="no snapshot"):
            anvil.revert("0x99")
        with pytest.raises(RpcFailed, match="no_such_method"):
            anvil.rpc("no_such_method")


def test_a_killed_parent_leaves_no_chain_behind() -> None:
    code = (
        "import sys, time\n"
        "from settlement.chain.anvil import Anvil\n"
        "anvil = Anvil().start()\n"
        "print(anvil.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _runs(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline, "anvil outlived its parent"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_a_saved_state_larger_than_a_request_may_be_is_started_from(tmp_path: Path) -> None:
    noise = random.Random(1)
    codes = {f"0x{at:040x}": "0x" + noise.randbytes(700_000).hex() for at in range(1000, 1003)}
    with Anvil() as chain:
        for account, code in codes.items():
            chain.rpc("anvil_setCode", account, code)
        chain.rpc("anvil_mine", "0x3")
        # Why there is a file at all: refused, or cut off while it is still being sent.
        with pytest.raises((RpcFailed, NodeUnreachable)):
            chain.rpc("anvil_loadState", chain.rpc("anvil_dumpState"))
        state, height = chain.save_state(tmp_path), chain.block_number
        tip = chain.rpc("eth_getBlockByNumber", hex(height), False)["hash"]
    with Anvil(overrides={"load-state": str(state)}) as chain:
        assert chain.block_number == height
        assert chain.rpc("eth_getBlockByNumber", hex(height), False)["hash"] == tip
        for account, code in codes.items():
            assert chain.rpc("eth_getCode", account, "latest") == code


@pytest.mark.slow
def test_a_block_a_second_and_back_to_one_a_transaction() -> None:
    with Anvil() as chain:
        chain.every_second(True)
        begun, deadline = chain.block_number, time.monotonic() + 20.0
        while chain.block_number < begun + 2:
            assert time.monotonic() < deadline, "no block came by itself"
            time.sleep(0.1)
        chain.every_second(False)
        rich, poor = (chain.rpc("eth_accounts")[at] for at in (0, 1))
        before = chain.block_number
        chain.rpc("eth_sendTransaction", {"from": rich, "to": poor, "value": "0x1"})
        deadline = time.monotonic() + 20.0
        while chain.block_number == before:
            assert time.monotonic() < deadline, "a transaction mined no block"
            time.sleep(0.05)
        time.sleep(2.2)
        assert chain.block_number == before + 1
