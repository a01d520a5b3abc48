"""The devnet's nodes: configurations written, processes started, watched and ended in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from node.config import (
    ApiConfig,
    ChainConfig,
    IdentityConfig,
    JournalConfig,
    LimitConfig,
    ModelConfig,
    NetworkConfig,
    NodeConfig,
    PanelConfig,
    dump,
)
from node.devnet.options import DevnetOptions, Operator
from node.devnet.world import World
from node.serving import NGRAM
from settlement.chain.anvil import die_with_parent
from settlement.hashing import ZERO32

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 10.0
Say = Callable[[str], None]


class NodeDied(RuntimeError):
    """A node ended by itself; its log's last lines say why."""


@dataclass
class Running:
    """A node's process and what it said when it was ready."""

    operator: Operator
    process: subprocess.Popen[bytes]
    facts: dict[str, Any]

    @property
    def api(self) -> str:
        return str(self.facts["api"])

    def get(self, path: str) -> Any:
        """One of the node's JSON views."""
        return httpx.get(self.api + path, timeout=10.0).raise_for_status().json()

    def settle(self) -> None:
        """Has a drafter or verifier settle what it is owed, now."""
        httpx.post(self.api + "/v1/settle", timeout=10.0).raise_for_status()

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()
        self.process.wait()


class Fleet:
    """All node processes of a devnet."""

    def __init__(self, world: World, options: DevnetOptions) -> None:
        self.world = world
        self.options = options
        self.running: dict[str, Running] = {}
        self._ports: dict[str, tuple[int, int]] = {}  # by name: p2p and API, kept over restarts
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start_all(self, say: Say) -> None:
        """Starts everybody, the bootstrap node first, and waits until all are ready."""
        operators = self.world.operators
        first = next(o for o in operators if o.role == "bootstrap")
        self.launch(first)
        self.await_ready(first)
        for operator in operators:
            if operator is not first:
                self.launch(operator)
        for operator in operators:
            self.await_ready(operator)
            say(f"{operator.name} ready ({self.running[operator.name].facts['operator']})")

    def launch(self, operator: Operator) -> None:
        """Writes the configuration and starts the process."""
        operator.config_file.write_text(dump(self._config(operator)))
        operator.ready_file.unlink(missing_ok=True)
        command = [*self.program(operator), "node", "run"]
        command += ["--config", str(operator.config_file)]
        command += ["--ready-file", str(operator.ready_file)]
        with operator.log_file.open("ab") as log:
            self._started[operator.name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A ^C in the terminal is for the devnet, which ends its nodes in order; whoever
                # kills the devnet leaves no nodes behind either.
                start_new_session=True,
                preexec_fn=die_with_parent(),
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def program(self, operator: Operator) -> list[str]:
        """What a node of the devnet runs; a test may put a dishonest one in its place."""
        return [sys.executable, "-m", "node"]

    def await_ready(self, operator: Operator, seconds: float = START_SECONDS) -> Running:
        """Waits until the node serves. Raises NodeDied with the end of its log."""
        process = self._started[operator.name]
        deadline = time.monotonic() + seconds
        while not operator.ready_file.exists():
            if process.poll() is not None:
                raise NodeDied(f"{operator.name} ended ({process.returncode}): {_tail(operator)}")
            if time.monotonic() > deadline:
                raise NodeDied(f"{operator.name} is not ready after {seconds:.0f} s")
            time.sleep(0.02)
        facts = json.loads(operator.ready_file.read_text())
        p2p = int(facts["endpoints"][0].split("/")[4])
        self._ports[operator.name] = (p2p, int(facts["api"].rsplit(":", 1)[1]))
        self.running[operator.name] = Running(operator, process, facts)
        return self.running[operator.name]

    def restart(self, operator: Operator) -> Running:
        """Starts a node again from its journal."""
        self.launch(operator)
        return self.await_ready(operator)

    def check_alive(self) -> None:
        """Raises NodeDied if a node ended by itself."""
        for running in self.running.values():
            if running.process.poll() is not None:
                raise NodeDied(f"{running.operator.name} ended: {_tail(running.operator)}")

    def stop_all(self) -> list[str]:
        """Ends everybody; returns who did not end in order: had to be killed, or failed in it."""
        untidy = []
        asked = {n: p for n, p in self._started.items() if p.poll() is None}
        for process in asked.values():
            process.send_signal(signal.SIGTERM)
        for name, process in asked.items():
            try:
                # One that was still starting ends by the signal itself.
                if process.wait(STOP_SECONDS) not in (0, -signal.SIGTERM):
                    untidy.append(f"{name} (exit code {process.returncode})")
            except subprocess.TimeoutExpired:
                untidy.append(f"{name} (killed)")
                process.kill()
                process.wait()
        self._started.clear()
        self.running.clear()
        return untidy

    def client(self) -> Running:
        return next(r for r in self.running.values() if r.operator.role == "client")

    def of_role(self, role: str) -> list[Running]:
        return [r for r in self.running.values() if r.operator.role == role]

    def _config(self, operator: Operator) -> NodeConfig:
        options, world = self.options, self.world
        first = self.running.get("bootstrap")
        bootstrap: Sequence[str] = [] if first is None else first.facts["endpoints"]
        claim = world.claims.get(operator.name, ZERO32)
        p2p, private = self._ports.get(operator.name, (0, 0))
        return NodeConfig(
            role=operator.role,
            data_dir=operator.folder / "data",
            identity=IdentityConfig(operator.keystore, operator.password_file),
            chain=ChainConfig(
                rpc_url=world.anvil.url,
                address_book=world.book,
                confirmations=1,
                poll_seconds=1.0 if options.settle_at_end else 0.25,
                # What is settled is drawn and audited, by the cores that the prompts run on.
                settle_idle_seconds=60.0 if options.settle_at_end else 1.0,
                settle_gas_multiple=10**9 if options.settle_at_end else 20,
                draw_patience_seconds=2.0,
                token_per_wei=1e-6,
            ),
            network=NetworkConfig(
                listen=(f"/ip4/127.0.0.1/tcp/{p2p}",),
                bootstrap=tuple(bootstrap),
                added_latency_ms=options.latency_ms,
            ),
            api=ApiConfig(port=private),
            model=ModelConfig(
                target=options.target,
                draft=operator.draft or NGRAM,
                draft_dtype=options.draft_dtype,
                dtype=options.dtype,
                # Where drafter and verifier share cores, a draft that may be of no use is no gift.
                draft_ahead=(os.cpu_count() or 1) > 4,
                own_core=options.settle_at_end,  # where tokens are timed, beside eight other nodes
                claim="" if claim == ZERO32 else "0x" + claim.hex(),
            ),
            limit=LimitConfig(
                min_window=options.min_window, round_seconds=20.0, resume_seconds=3.0
            ),
            # Every lane is drawn here, so that one token each is what its audit fee pays for.
            panel=PanelConfig(tickets=1),
            journal=JournalConfig(durability="normal"),
        )


def _tail(operator: Operator, lines: int = 15) -> str:
    try:
        return "\n".join(operator.log_file.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
