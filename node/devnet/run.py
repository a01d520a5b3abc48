"""The devnet from beginning to end, in the order a person sees it."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from node.commands import CommandError
from node.devnet import books
from node.devnet.options import DevnetOptions
from node.devnet.processes import Fleet, NodeDied
from node.devnet.report import (
    Report,
    audit_cost,
    overhead,
    print_report,
    session_entry,
    stages_since,
    sums_of,
)
from node.devnet.sessions import GenerationFailed, generate, one_line, request_of, round_line
from node.devnet.world import World, build
from node.roles.auditing import drawn_lanes
from node.roles.frames import Round
from node.roles.receipt import ReceiptError, verify
from settlement.chain.standing import Stage, fold
from settlement.draws import DrawTerms, is_drawn

SETTLE_SECONDS: Final = 60.0
OPEN_SECONDS: Final = 60.0
SERVED_BLOCK_SECONDS: Final = 5.0  # a block on a chain that serves people
AUDIT_SECONDS: Final = 240.0


def say(line: str) -> None:
    """Progress: standard error."""
    print(line, file=sys.stderr, flush=True)


def show(line: str = "") -> None:
    """Results: standard output."""
    print(line, flush=True)


@contextmanager
def _folder(options: DevnetOptions) -> Iterator[Path]:
    """Where the run's files lie: kept where asked for, else gone afterwards."""
    if options.keep is not None:
        if options.keep.exists() and any(options.keep.iterdir()):
            raise CommandError(f"{options.keep} is not empty; name a new folder for --keep")
        options.keep.mkdir(parents=True, exist_ok=True, mode=0o700)  # keys and passwords lie there
        yield options.keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="verdraft-devnet-") as name:
        yield Path(name)


def _on_terminate(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def run(options: DevnetOptions) -> int:
    """Runs a devnet. Returns the exit code; whatever happens, nothing is left running."""
    ends = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in ends}
    signal.signal(signal.SIGTERM, _on_terminate)
    with _folder(options) as folder:
        world = build(options, folder, say)
        fleet = Fleet(world, options)
        try:
            return _run_in(world, fleet, options)
        except (NodeDied, GenerationFailed, ReceiptError) as error:
            say(f"verdraft devnet: {error}")
            return 1
        finally:
            # An impatient second ^C must not leave half of the nodes running.
            for number in ends:
                signal.signal(number, signal.SIG_IGN)
            stop(fleet)
            world.anvil.stop()
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_in(world: World, fleet: Fleet, options: DevnetOptions) -> int:
    started = time.monotonic()
    fleet.start_all(say)
    say(f"all nodes are up after {time.monotonic() - started:.1f} s")
    if options.panel:
        # Juries have deadlines, and deadlines pass by blocks.
        world.anvil.every_second(True)
        say(f"{await_seated(fleet)} auditors hold seats: juries can be drawn")
    report = Report(contracts={k: "0x" + v.hex() for k, v in addresses(world).items()})
    results = run_sessions(fleet, options, report)
    if options.serve:
        serve(fleet)
    chain = books.ChainReader(world)
    say("settling")
    await_settled(fleet, chain)
    say("opening what is drawn")
    await_opened(fleet, chain)
    say("waiting for the auditors")
    await_audited(fleet, chain)
    await_paid(fleet, chain)
    audits = gather_audits(world, fleet)
    timings, wire = gather_timings(fleet)
    client = fleet.client().operator
    stop(fleet)
    if options.panel:
        world.anvil.every_second(False)  # what follows waits for nothing but its own blocks
    say("withdrawing")
    earned = books.accounts(world)
    books.withdraw_all(world, world.operators)
    fill(report, world, results, chain, client.folder / "data" / "journal.sqlite")
    bonds = chain.bonds_back()
    for name, account in books.accounts(world).items():
        back = bonds.get(bytes.fromhex(account["address"][2:]), 0)
        report.accounts[name] = {
            **account,
            "earned": earned[name]["payable"],
            "withdrawn": str(int(account["withdrawn"]) - back),
            "bonds_back": str(back),
        }
    report.conservation = books.conservation(world)
    report.overhead = overhead(timings, wire)
    report.audits = audits["audits"]
    report.audit_cost = audit_cost(**audits["seconds"])
    print_report(report, show)
    if options.json is not None:
        options.json.write_text(json.dumps(report.to_json(), indent=1) + "\n")
        say(f"wrote {options.json}")
    return 0 if healthy(report) else 1


def stop(fleet: Fleet) -> None:
    """Ends every node, and says who did not end in order."""
    untidy = fleet.stop_all()
    if untidy:
        say(f"not ended in order: {', '.join(untidy)}")


def addresses(world: World) -> dict[str, bytes]:
    contracts = world.contracts
    return {
        "token": contracts.token.address,
        "registry": contracts.registry.address,
        "vault": contracts.vault.address,
        "escrow": contracts.escrow.address,
        "ledger": contracts.ledger.address,
        "beacon": contracts.beacon.address,
    }


def run_sessions(fleet: Fleet, options: DevnetOptions, report: Report) -> list[dict[str, Any]]:
    """Every prompt through the client, one line per round, and then by the target alone, so that
    both meet the same machine; the `done` events."""
    results: list[dict[str, Any]] = []
    if not options.runs:
        return results
    from node.devnet.plain import PlainTarget

    say("loading the target here too, to decode each prompt plainly beside the network")
    client, target = fleet.client(), PlainTarget(options.target, options.dtype)
    report.arithmetic = target.arithmetic
    for number in range(options.runs):
        wanted = request_of(options, number)
        show(f"\n[{number + 1}/{options.runs}] {one_line(wanted['prompt'])}")
        before, tried = verifiers_stages(fleet), trials(fleet)
        done = generate(
            client.api,
            wanted,
            on_round=lambda event: show(round_line(event)) if event["type"] == "round" else None,
            on_note=lambda note: show(f"  · {note}"),
        )
        fleet.check_alive()
        show(f"  → {done['text']}")
        stages = stages_since(before, verifiers_stages(fleet))
        tried = [now - then for now, then in zip(trials(fleet), tried, strict=True)]
        plain = target.run(verify(json.loads(Path(done["receipt_path"]).read_text())))
        results.append(
            {"prompt": wanted["prompt"], **done, "stages": stages, "tried": tried, "plain": plain}
        )
    return results


def verifiers_stages(fleet: Fleet) -> list[dict[str, Any]]:
    """Every verifier's stage timings so far."""
    return [running.get("/v1/timings") for running in fleet.of_role("verifier")]


def trials(fleet: Fleet) -> list[int]:
    """Drafts that verifiers have asked for only to learn from, so far, and how many were right."""
    looks = [running.get("/v1/trials") for running in fleet.of_role("verifier")]
    return [sum(look[name] for look in looks) for name in ("drafts", "right")]


def serve(fleet: Fleet) -> None:
    """Stays up until ^C; then the run goes on to settle."""
    world = fleet.world
    show(f"\nserving; in another terminal: verdraft ask 'your prompt' --api {fleet.client().api}")
    show(
        f"or look at the chain: verdraft disputes --rpc-url {world.anvil.url} "
        f"--address-book {world.book}"
    )
    show("^C settles, shows the books and ends everything (--keep DIR keeps the files)")
    mined = time.monotonic()
    try:
        while True:
            time.sleep(0.5)
            fleet.check_alive()
            if time.monotonic() - mined >= SERVED_BLOCK_SECONDS:
                # A chain without blocks stands still in time, and what is settled would never be
                # drawn before its evidence is over.
                world.anvil.mine()
                mined = time.monotonic()
    except KeyboardInterrupt:
        say("no more prompts")


def await_settled(fleet: Fleet, chain: books.ChainReader) -> None:
    """Waits until the chain has paid the newest voucher of every lane in full, whoever asked."""
    journal = fleet.client().operator.folder / "data" / "journal.sqlite"
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        owed, paid = books.owed(journal), chain.paid()
        open_lanes = [lane for lane, dues in owed.items() if paid.get(lane) != dues]
        if not open_lanes:
            return
        for verifier in fleet.of_role("verifier"):
            verifier.settle()
        if time.monotonic() > deadline:
            shown = ", ".join(
                f"0x{lane.hex()} (owed {owed[lane]}, paid {paid.get(lane, (0, 0))})"
                for lane in open_lanes
            )
            raise NodeDied(f"lanes are not settled after {SETTLE_SECONDS:.0f} s: {shown}")
        fleet.check_alive()
        time.sleep(1.0)


def await_seated(fleet: Fleet) -> int:
    """Waits until every auditor has taken its seat, and says how many there are."""
    world, auditors = fleet.world, fleet.of_role("auditor")
    pool, model = world.contracts.pool, world.target.model_id
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        seated = [r for r in auditors if pool.seat_of(r.operator.beneficiary, model)[0]]
        if len(seated) == len(auditors):
            return len(seated)
        if time.monotonic() > deadline:
            raise NodeDied(f"{len(seated)} of {len(auditors)} auditors have taken their seats")
        fleet.check_alive()
        time.sleep(0.25)


def await_opened(fleet: Fleet, chain: books.ChainReader) -> None:
    """Waits until every batch has its randomness and every drawn position is opened."""
    deadline = time.monotonic() + OPEN_SECONDS
    while True:
        standing = fold(chain.read())
        now = fleet.world.contracts.rpc.head().timestamp
        captured = all(any(batch.randomness) for batch in standing.batches.values())
        waiting = [d for d in standing.draws.values() if d.stage in (Stage.OPEN, Stage.LATE)]
        called = all(
            (batch.id, index) in standing.draws
            for batch in standing.batches.values()
            for index, entry in enumerate(batch.entries)
            if any(batch.randomness)
            and now <= batch.evidence_until  # later it cannot be drawn
            and is_drawn(batch.randomness, index, DrawTerms.of(batch.batch[9]), entry.coverage)
        )
        if captured and called and not waiting:
            return
        if time.monotonic() > deadline:
            raise NodeDied(
                f"after {OPEN_SECONDS:.0f} s {len(waiting)} drawn lanes are not opened, all "
                f"randomness is captured: {captured}, all draws are called: {called}. Is the "
                "machine too busy? --keep DIR keeps the logs"
            )
        fleet.check_alive()
        fleet.world.anvil.mine()  # an idle devnet makes no blocks, and draws need later ones
        time.sleep(0.25)


class Waited:
    """Says now and then what is waited for."""

    def __init__(self, every: float = 15.0) -> None:
        self._every = every
        self._next = time.monotonic() + every

    def tell(self, what: str, waiting: Sequence[str]) -> None:
        """Once `every` seconds."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            print(f"  {what}: {', '.join(waiting)}", flush=True)


def await_audited(fleet: Fleet, chain: books.ChainReader) -> None:
    """Waits until every auditor has ended every audit that it is drawn for. Who is drawn follows
    from the same events that the auditors read."""
    model = fleet.world.target.model_id
    deadline, waited = time.monotonic() + AUDIT_SECONDS, Waited()
    while True:
        drawn = drawn_lanes(chain.read())
        waiting = []
        for running in fleet.of_role("auditor"):
            done = {
                (a["batch_id"], a["index"])
                for a in running.get("/v1/audits")
                if a["state"] == "done"
            }
            waiting += [
                f"{running.operator.name}: draw {lane.key[0]}/{lane.key[1]}"
                for lane in drawn
                if running.operator.address in lane.auditors(model) and lane.key not in done
            ]
        if not waiting:
            return
        waited.tell("still audited", waiting)
        if time.monotonic() > deadline:
            raise NodeDied(f"audits not done after {AUDIT_SECONDS:.0f} s: {', '.join(waiting)}")
        fleet.check_alive()
        time.sleep(0.25)


def await_paid(fleet: Fleet, chain: books.ChainReader) -> None:
    """Waits until one token of every drawn lane was audited on chain, and its auditors are paid."""
    deadline, waited = time.monotonic() + AUDIT_SECONDS, Waited()
    while waiting := chain.tickets_open():
        waited.tell("still audited on chain", waiting)
        if time.monotonic() > deadline:
            raise NodeDied(
                f"auditors are not paid after {AUDIT_SECONDS:.0f} s: {', '.join(waiting)}"
            )
        fleet.check_alive()
        fleet.world.anvil.mine()  # juries are drawn by later blocks, and deadlines pass by them
        time.sleep(0.25)


def gather_audits(world: World, fleet: Fleet) -> dict[str, Any]:
    """Every auditor's reports, and what auditing cost beside the verifiers' own passes."""
    audits: list[dict[str, Any]] = []
    seconds = {"rerun": 0.0, "verify": 0.0}
    for stage, role in (("rerun", "auditor"), ("verify", "verifier")):
        for running in fleet.of_role(role):
            seconds[stage] += running.get("/v1/timings").get(stage, {}).get("total", 0.0)
    for running in fleet.of_role("auditor"):
        for audit in running.get("/v1/audits"):
            for session in audit["sessions"]:
                verifier = world.named(bytes.fromhex(session["verifier"].removeprefix("0x")))
                named = {"auditor": running.operator.name, "verifier_name": verifier}
                audits.append({**named, **session})
    return {"audits": audits, "seconds": seconds}


def gather_timings(fleet: Fleet) -> tuple[dict[str, dict[str, Any]], list[float]]:
    """Per role the stage timings of the node that worked most; round trips in seconds."""
    timings: dict[str, dict[str, Any]] = {}
    wire: list[float] = []
    for role in ("client", "drafter", "verifier"):
        found = [running.get("/v1/timings") for running in fleet.of_role(role)]
        timings[role] = max(found, key=lambda t: t.get("check", t.get("round", {})).get("count", 0))
        for running in fleet.of_role(role):
            for peer in running.get("/v1/peers"):
                if peer["round_trip_ms"] is not None:
                    wire.append(peer["round_trip_ms"] / 1e3)
    return timings, wire


def fill(
    report: Report,
    world: World,
    results: list[dict[str, Any]],
    chain: books.ChainReader,
    journal: Path,
) -> None:
    """Receipts verified as they are now, and the chain's books read."""
    rounds: list[Round] = []
    for done in results:
        data = json.loads(Path(done["receipt_path"]).read_text())
        report.sessions.append(session_entry(done, verify(data)))
        rounds += [
            Round.from_wire(bytes.fromhex(entry["frames"]))
            for session in data["sessions"]
            for entry in session["rounds"]
        ]
    report.sums = sums_of(rounds)
    report.settlements = chain.settlements(books.vouchers_of(journal))
    report.draws = chain.draws()
    report.tickets = chain.tickets()
    report.faults = chain.faults()


def healthy(report: Report) -> bool:
    """Whether everything that must hold did: text, receipts, money, draws, audits."""
    return (
        all(entry["lossless_check"] is not False and entry["paid"] for entry in report.sessions)
        and bool(report.conservation["ok"])
        and report.draws["opened"] == report.draws["samples"]
        and all(audit["verdict"] == "clean" for audit in report.audits)
        and report.tickets["cleared"] == report.tickets["named"]
        and not report.faults
    )
