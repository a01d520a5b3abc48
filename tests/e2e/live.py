"""A devnet that tests keep running: real processes, ports and chain, and ways to disturb them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.devnet.books import ChainReader
from node.devnet.options import DevnetOptions, Operator
from node.devnet.processes import Fleet, Running
from node.devnet.sessions import generate
from node.devnet.world import World, build
from node.inference import catalog
from node.inference.loading import load_model
from node.inference.plain import decode_plain
from node.inference.sampling import SamplingParams
from node.roles.convert import stop_rules
from node.roles.receipt import Checked, verify
from node.roles.session import Terms
from settlement.chain.events import LaneSettled
from settlement.records import Order, Voucher

PATIENCE = 120.0
PROMPT = "In the beginning God created"


def eventually(
    what: str, good: Callable[[], Any], seconds: float = PATIENCE, pause: float = 0.25
) -> Any:
    """The first true value of `good`; fails by name after `seconds`, which bound a hang and
    measure nothing."""
    deadline = time.monotonic() + seconds
    while True:
        value = good()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not after {seconds:.0f} s"
        time.sleep(pause)


def descendants(pid: int) -> set[int]:
    """Every living process below `pid`, by way of their parents."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name may hold blanks and brackets; the fields after it do not.
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while True:
        more = {p for p, parent in parents.items() if parent == pid or parent in found} - found
        if not more:
            return found
        found |= more


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def resident(running: Running) -> int:
    """Bytes of memory that a node's process holds."""
    for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@dataclass
class Live:
    """A running devnet with tiny models."""

    world: World
    fleet: Fleet
    chain: ChainReader
    _target: list[Any] = field(default_factory=list)

    def ask(self, on_round: Callable[[dict[str, Any]], None] | None = None, **wanted: Any) -> dict:
        """One request through the client; the `done` event. GenerationFailed as `generate`."""
        request = {"prompt": PROMPT, "max_tokens": 24, **wanted}
        return generate(self.fleet.client().api, request, on_round=on_round or (lambda event: None))

    def operator(self, name: str) -> Operator:
        return next(o for o in self.world.operators if o.name == name)

    def running(self, name: str) -> Running:
        return self.fleet.running[name]

    def revive(self) -> None:
        """Starts whoever is dead, on its old ports, and waits until the client knows everybody."""
        for operator in self.world.operators:
            running = self.fleet.running[operator.name]
            if running.process.poll() is not None:
                self.fleet.restart(operator)
        everybody = {"0x" + o.address.hex() for o in self.world.operators}
        for name in ("client-1", "verifier-1", "drafter-1"):
            me = "0x" + self.operator(name).address.hex()
            eventually(
                f"{name} knows everybody",
                lambda name=name, me=me: self.peers(name) >= everybody - {me},
            )

    def peers(self, name: str) -> set[str]:
        return {peer["operator"] for peer in self.running(name).get("/v1/peers")}

    # ------------------------------------------------------------ what was said and signed

    def current_order(self) -> Order:
        """The order of the client's newest session, as its journal holds it on disk."""
        path = self.operator("client-1").folder / "data" / "journal.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
            (terms,) = journal.execute(
                "SELECT terms FROM sessions ORDER BY made DESC LIMIT 1"
            ).fetchone()
        return Terms.from_wire(terms, self.world.contracts.domain).order

    def name_of(self, address: bytes | str) -> str:
        raw = bytes.fromhex(address[2:]) if isinstance(address, str) else address
        return self.world.named(raw)

    def checked(self, done: dict[str, Any]) -> Checked:
        """The receipt of a finished request, verified."""
        return verify(json.loads(Path(done["receipt_path"]).read_text()))

    def plain(self, checked: Checked) -> list[int]:
        """What the target alone says under a receipt's own order and seed."""
        if not self._target:
            self._target.append(load_model(catalog.resolve("tiny-target").path, "float32"))
        order = checked.orders[0]
        output = decode_plain(
            self._target[0],
            checked.prompt,
            SamplingParams.from_order(order),
            stop_rules(order, checked.stops),
            seed=checked.seeds[0],
        )
        return list(output.tokens)

    # ------------------------------------------------------------ money

    def vouchers(self, name: str = "client-1") -> list[tuple[Voucher, bool]]:
        """Every voucher in a node's journal, and whether all three have signed it."""
        path = self.operator(name).folder / "data" / "journal.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
            rows = journal.execute(
                "SELECT voucher, client, drafter, verifier FROM vouchers ORDER BY made, leaf_count"
            ).fetchall()
        return [(Voucher.from_wire(row[0]), all(row[1:])) for row in rows]

    def owed(self) -> dict[bytes, tuple[int, int]]:
        """By lane: (drafter, verifier) dues of its newest voucher in the client's journal."""
        out: dict[bytes, tuple[int, int]] = {}
        for voucher, _ in self.vouchers():
            before = out.get(voucher.lane, (0, 0))
            dues = (voucher.due_drafter, voucher.due_verifier)
            out[voucher.lane] = (max(before[0], dues[0]), max(before[1], dues[1]))
        return out

    def paid(self) -> dict[bytes, tuple[int, int]]:
        """By lane: what the chain has paid, (drafter, verifier)."""
        return self.chain.paid()

    def await_paid(self) -> None:
        """Waits until the chain has paid every voucher of the client's in full, no unit more, and
        each root once."""
        eventually("every voucher is settled", lambda: self.paid() == self.owed())
        roots = [item.event.root for item in self.chain.of(LaneSettled)]
        assert len(roots) == len(set(roots)), "a voucher settled twice"
        for operator in self.world.operators:
            if operator.role in ("drafter", "verifier"):
                index = ("drafter", "verifier").index(operator.role)
                due = sum(
                    self.owed().get(lane.id, (0, 0))[index]
                    for lane in self.world.lanes
                    if operator.address in (lane.drafter, lane.verifier)
                )
                token = self.world.contracts.token.address
                assert self.world.contracts.escrow.payable_to(operator.address, token) == due


@contextmanager
def live(folder: Path) -> Iterator[Live]:
    """A devnet that is up; whatever the tests did to it, nothing is left behind."""
    options = DevnetOptions(tiny=True, tier="float", min_window=1)
    world = build(options, folder, lambda line: None)
    fleet = Fleet(world, options)
    try:
        fleet.start_all(lambda line: None)
        yield Live(world, fleet, ChainReader(world))
        assert fleet.stop_all() == []
    finally:
        os.kill(world.anvil.pid, signal.SIGCONT)
        fleet.stop_all()
        world.anvil.stop()
