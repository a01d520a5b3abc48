"""A process that carries out intents and kills itself at a chosen step, as no handler can catch.

    python sender_child.py URL JOURNAL COUNTER_ADDRESS STEP NTH INTENT...

STEP "never" lets it live; it then prints "done" when every intent is final.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from counter_contract import KEYS, Counter

from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import SqliteSendJournal
from settlement.chain.sender import Sender


def main() -> None:
    url, journal, address, step, nth, *intents = sys.argv[1:]
    left = int(nth)

    def at_step(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    rpc = Rpc.connect(url)
    counter = Counter(rpc, bytes.fromhex(address))
    with SqliteSendJournal(Path(journal)) as kept:
        sender = Sender(
            rpc,
            KEYS[1],
            kept,
            errors=counter.errors,
            finality=1,
            poll_seconds=0.01,
            at_step=at_step,
        )
        for intent in intents:
            sender.submit(intent, counter.hit(intent))
        for intent in intents:
            sender.wait(intent, timeout=20)
        while sender.tend():
            pass
    print("done")


if __name__ == "__main__":
    main()
