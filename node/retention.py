"""How long a journal keeps what it holds: closed sessions, until nobody may ask for them any more.

A session stays while a voucher of these days covers one of its rounds, whatever its own age: the
voucher's whole tree is needed to settle it and to answer a draw. What a drop takes away no lane
needs: books go on from the figures of their settled vouchers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from node.journal import Journal
from node.roles.stored import unpack_runs

EVERY: Final = 3600.0
# Tickets and what was delivered for them: an audit and the panel after it are over by then.
TICKETS: Final = ("parcel", "ticket")
TICKETS_KEPT: Final = 30 * 24 * 3600.0
AT_ONCE: Final = 32  # sessions dropped in one commit: others wait for the journal meanwhile


async def keep_short(journal: Journal, seconds: float, clock: Callable[[], float]) -> None:
    """Drops what is older than that, now and every hour, until cancelled. `clock`: unix seconds,
    the journal's own."""
    while True:
        before = clock() - seconds
        covered = {
            run.start_hash
            for row in journal.vouchers()
            if row.made >= before
            for run in unpack_runs(row.leaves)
        }
        journal.prune_vouchers(before)
        for done_with in TICKETS:
            journal.prune_secrets(done_with, min(before, clock() - TICKETS_KEPT))
        while journal.prune(before, covered, AT_ONCE):
            await trio.sleep(0.01)
        await trio.sleep(EVERY)
