"""A process that carries out intents and kills itself at a chosen step, as no handler can catch.

    python sender_child.py URL KEY JOURNAL CALLS STEP NTH

CALLS is a JSON file of [intent, call] pairs. STEP "never" lets it live; it then prints "done" when
every intent is final.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import Call, SqliteSendJournal
from settlement.chain.sender import Sender


def run_child(
    url: str, key: bytes, folder: Path, calls: dict[str, Call], step: str, nth: int
) -> subprocess.CompletedProcess[str]:
    """The process, run to its end; its journal is `folder`/sends.sqlite."""
    listed = folder / "calls.json"
    listed.write_text(json.dumps([[intent, call.to_json()] for intent, call in calls.items()]))
    arguments = [url, key.hex(), str(folder / "sends.sqlite"), str(listed), step, str(nth)]
    return subprocess.run(
        [sys.executable, "-W", "ignore", __file__, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def main() -> None:
    url, key, journal, listed, step, nth = sys.argv[1:]
    calls = {intent: Call.from_json(call) for intent, call in json.loads(Path(listed).read_text())}
    left = int(nth)

    def at_step(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    rpc = Rpc.connect(url)
    with SqliteSendJournal(Path(journal)) as kept:
        sender = Sender(
            rpc, bytes.fromhex(key), kept, finality=1, poll_seconds=0.01, at_step=at_step
        )
        for intent, call in calls.items():
            sender.submit(intent, call)
        for intent in calls:
            sender.wait(intent, timeout=60)
        while sender.tend():
            pass
    print("done")


if __name__ == "__main__":
    main()
