"""Anvil as a child process: started from `anvil.toml`, ready when entered, gone when left.

Anvil reads no configuration file of its own; this module is the reader. The native binary is run,
never npm's launcher: killing the launcher would leave the real one behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from settlement.chain.errors import ConfigError, NodeUnreachable, RpcFailed, ToolFailed, ToolMissing
from settlement.chain.paths import ROOT

_LISTENING: Final = re.compile(r"Listening on ([0-9A-Fa-f.:\[\]]+:\d+)")
_KEY: Final = re.compile(r"[a-z][a-z0-9-]*")
_PLATFORM: Final = {"linux": "linux", "darwin": "darwin", "win32": "win32"}
_MACHINE: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_PR_SET_PDEATHSIG: Final = 1
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0

Setting = str | int | bool


def read_settings(path: Path) -> dict[str, Setting]:
    """The flat `key = value` table of an anvil.toml. ConfigError on anything else."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    for key, value in table.items():
        if _KEY.fullmatch(key) is None:
            raise ConfigError(f"{path}: {key!r} is no anvil flag", "Write it as after `--`")
        if not isinstance(value, str | int | bool):
            raise ConfigError(
                f"{path}: {key} is a {type(value).__name__}",
                "Strings, integers and booleans can be flags",
            )
    return table


def flags(settings: Mapping[str, Setting]) -> list[str]:
    """Command-line flags: `key = value` → `--key value`, true → the bare flag, false → nothing."""
    out: list[str] = []
    for key, value in settings.items():
        if value is True:
            out.append(f"--{key}")
        elif value is not False:
            out += [f"--{key}", str(value)]
    return out


def native_binary(tool: str = "anvil", root: Path = ROOT) -> Path:
    """The platform's own `anvil`, `forge` or `cast` from node_modules; $ANVIL etc. overrides."""
    named = os.environ.get(tool.upper())
    if named:
        return Path(named)
    system = _PLATFORM.get(sys.platform)
    machine = _MACHINE.get(platform.machine().lower())
    if system is None or machine is None:
        raise ToolMissing(
            f"no packaged {tool} for {sys.platform} on {platform.machine()}",
            f"Install Foundry and set {tool.upper()} to the binary",
        )
    name = f"{tool}.exe" if system == "win32" else tool
    path = root / "node_modules" / "@foundry-rs" / f"{tool}-{system}-{machine}" / "bin" / name
    if not path.is_file():
        raise ToolMissing(f"{path} does not exist", "Run `make setup`")
    return path


def die_with_parent() -> Callable[[], None] | None:
    """What a forked child runs (`preexec_fn`) to ask Linux to end it when its parent dies, however
    it dies. The parent is the thread that forks, so fork from one that lives long enough."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork: a child of a threaded process may do little but call it.
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Anvil:
    """One running anvil, as a context manager.

    `overrides` are settings over those of the file (`{"port": 8545, "block-time": 1}`; False
    removes one). `url` is known once entered. Every helper below is one RPC call.

    The kernel ends the child with the *thread* that started it, so start it from one that lives as
    long as the chain should: the main thread, usually.
    """

    def __init__(
        self,
        settings_file: Path | None = ROOT / "anvil.toml",
        overrides: Mapping[str, Setting] | None = None,
        binary: Path | None = None,
    ) -> None:
        settings = read_settings(settings_file) if settings_file is not None else {"port": 0}
        self.settings: dict[str, Setting] = {**settings, **(overrides or {})}
        self.binary = binary or native_binary()
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self._output: deque[str] = deque(maxlen=40)
        self._request_id = 0

    # ------------------------------------------------------------------ life

    def start(self) -> Self:
        """Start and wait until it answers. ToolFailed carries anvil's last words."""
        if self._process is not None:
            raise ToolFailed("this anvil is already running")
        self._process = subprocess.Popen(
            [str(self.binary), *flags(self.settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            # A ^C in the terminal is for us: we stop the child in order.
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        ready = threading.Event()
        reader = threading.Thread(target=self._read_output, args=(ready,), daemon=True)
        reader.start()
        try:
            if not ready.wait(_START_SECONDS) or not self.url:
                raise ToolFailed(f"anvil did not start: {self._last_words()}")
            self._wait_until_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it: SIGTERM, then SIGKILL after 5 s. Twice is once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ToolFailed("this anvil is not running")
        return self._process.pid

    def _read_output(self, ready: threading.Event) -> None:
        # Keeps reading to the end: a full pipe would stop the child.
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed by stop()
            for line in process.stdout:
                self._output.append(line.rstrip())
                match = _LISTENING.search(line)
                if match is not None and not self.url:
                    self.url = f"http://{match[1]}"
                    ready.set()
        ready.set()

    def _wait_until_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.rpc("eth_chainId")
                return
            except NodeUnreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _last_words(self) -> str:
        lines = [line for line in list(self._output) if line]
        faults = [at for at, line in enumerate(lines) if line.lower().startswith("error")]
        words = lines[faults[0] :] if faults else lines[-4:]
        return " / ".join(words) or "it said nothing"

    # ------------------------------------------------------------------ calls

    def rpc(self, method: str, *params: Any) -> Any:
        """One JSON-RPC call, for what a web3 client has no name for."""
        self._request_id += 1
        body = json.dumps(
            {"jsonrpc": "2.0", "id": self._request_id, "method": method, "params": list(params)}
        ).encode()
        request = urllib.request.Request(
            self.url, body, {"content-type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                reply = json.load(answer)
        except OSError as error:
            raise NodeUnreachable(self.url, str(error)) from error
        if "error" in reply:
            fault = reply["error"]
            raise RpcFailed(method, fault.get("code"), fault.get("message", ""))
        return reply["result"]

    def save_state(self, folder: Path) -> Path:
        """The whole state in a file of `folder`, for `overrides={"load-state": str(path)}`.

        By file, for `anvil_loadState` takes it in one request, and anvil refuses requests over
        2 MB: a chain of a few hundred blocks is past that.
        """
        path = folder / "anvil-state.json"
        path.write_bytes(gzip.decompress(bytes.fromhex(self.rpc("anvil_dumpState")[2:])))
        return path

    @property
    def block_number(self) -> int:
        return int(self.rpc("eth_blockNumber"), 16)

    @property
    def timestamp(self) -> int:
        """Seconds since 1970 of the latest block: the chain's clock, not the machine's."""
        return int(self.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)

    def mine(self, blocks: int = 1) -> None:
        self.rpc("anvil_mine", hex(blocks))

    def warp(self, seconds: int) -> None:
        """Mine one block `seconds` after the latest. The time is set outright: an offset would
        drift over snapshots."""
        self.rpc("evm_setNextBlockTimestamp", hex(self.timestamp + seconds))
        self.mine()

    def snapshot(self) -> str:
        return str(self.rpc("evm_snapshot"))

    def revert(self, snapshot: str) -> None:
        """Back to a snapshot, which is used up, with an empty pool. ToolFailed if it is not
        known."""
        # Anvil keeps the pool over a revert; its transactions belong to the future undone.
        self.rpc("anvil_dropAllTransactions")
        if self.rpc("evm_revert", snapshot) is not True:
            raise ToolFailed(f"anvil knows no snapshot {snapshot}", "Each can be used once")

    @contextlib.contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Whatever happens on the chain inside is undone on leaving: a test's isolation."""
        mark = self.snapshot()
        try:
            yield
        finally:
            self.revert(mark)

    def reorg(self, depth: int, transactions: list[tuple[str, int]] | None = None) -> None:
        """Replace the last `depth` blocks by empty ones, or by blocks that hold raw signed
        `transactions` as (0x… bytes, block index). What was in them falls out and is forgotten."""
        self.rpc("anvil_reorg", depth, [list(pair) for pair in transactions or []])

    def set_balance(self, address: bytes, wei: int) -> None:
        self.rpc("anvil_setBalance", "0x" + address.hex(), hex(wei))

    def every_second(self, on: bool) -> None:
        """On: a block a second, whatever is in the pool. Off: a block per transaction."""
        self.rpc("evm_setIntervalMining", int(on))
        self.rpc("evm_setAutomine", not on)

    def automine(self, on: bool) -> None:
        """Off: transactions wait in the pool until `mine`."""
        self.rpc("evm_setAutomine", on)
