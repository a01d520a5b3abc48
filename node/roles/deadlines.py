"""Work that must be over by a time on the chain's clock, whatever others do to hold it up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

ChainTime = Callable[[], Awaitable[int]]
T = TypeVar("T")


async def passed(chain_time: ChainTime, until: float) -> bool:
    """Whether the chain's clock says so; where it says nothing, the local one has to."""
    try:
        return await chain_time() >= until
    except Exception:
        return False


async def finish_by(
    until: float, chain_time: ChainTime, pause: float, work: Callable[[], Awaitable[T]]
) -> T | None:
    """What `work` returns, or None where it was cancelled at `until`.

    By the chain's clock or by the local one, set by it once, whichever is first: a chain without
    blocks stands still, and its deadlines do not. Raises what `work` raises.
    """
    local = trio.current_time() + until - await chain_time()
    done: list[T] = []
    failed: list[Exception] = []

    async def run() -> None:
        try:
            done.append(await work())
        except Exception as error:
            failed.append(error)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        while trio.current_time() < local and not await passed(chain_time, until):
            await trio.sleep(pause)
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return done[0] if done else None
