"""The devnet from beginning to end, in the order a person sees it."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node.commands import CommandError
from node.devnet.options import DevnetOptions
from node.devnet.processes import Fleet, NodeDied
from node.devnet.sessions import GenerationFailed, generate, request_of, round_line
from node.devnet.world import build


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show(line: str = "") -> None:
    print(line, flush=True)


@contextmanager
def _folder(options: DevnetOptions) -> Iterator[Path]:
    """Where the run's files lie: kept where asked for, else gone afterwards."""
    if options.keep is not None:
        if options.keep.exists() and any(options.keep.iterdir()):
            raise CommandError(f"{options.keep} is not empty; name a new folder for --keep")
        options.keep.mkdir(parents=True, exist_ok=True)
        yield options.keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="verdraft-devnet-") as name:
        yield Path(name)


def _on_terminate(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def run(options: DevnetOptions) -> int:
    """Runs a devnet. Returns the exit code; whatever happens, nothing is left running."""
    signal.signal(signal.SIGTERM, _on_terminate)
    started = time.monotonic()
    with _folder(options) as folder:
        world = build(options, folder, say)
        fleet = Fleet(world, options)
        try:
            fleet.start_all(say)
            say(f"all nodes are up after {time.monotonic() - started:.1f} s")
            results = run_sessions(fleet, options)
            if options.serve:
                serve(fleet)
        except (NodeDied, GenerationFailed) as error:
            say(f"verdraft devnet: {error}")
            return 1
        finally:
            stubborn = fleet.stop_all()
            if stubborn:
                say(f"had to kill {', '.join(stubborn)}")
            world.anvil.stop()
    return 0


def run_sessions(fleet: Fleet, options: DevnetOptions) -> list[dict[str, Any]]:
    """Every prompt through the client, one line per round; the `done` events."""
    results = []
    client = fleet.client()
    for number in range(options.runs):
        wanted = request_of(options, number)
        show(f"\n[{number + 1}/{options.runs}] {wanted['prompt']}")
        done = generate(
            client.api,
            wanted,
            on_round=lambda event: show(round_line(event)) if event["type"] == "round" else None,
            on_note=lambda note: show(f"  · {note}"),
        )
        fleet.check_alive()
        show(f"  → {done['text']!r}")
        results.append({"prompt": wanted["prompt"], **done})
    return results


def serve(fleet: Fleet) -> None:
    """Stays up until ^C."""
    show(f"\nserving; ask with: verdraft ask 'your prompt' --api {fleet.client().api}")
    show("stop with ^C")
    try:
        while True:
            time.sleep(1.0)
            fleet.check_alive()
    except KeyboardInterrupt:
        say("stopping")
