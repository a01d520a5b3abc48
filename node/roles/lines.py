"""A channel used both ways at once: one task reads, one writes, and either's end ends the line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from node.network.errors import NetworkError


async def both_ways(
    reader: Callable[[], Awaitable[None]], writer: Callable[[], Awaitable[None]]
) -> None:
    """Runs both until one returns or the peer is gone; the other is cancelled.

    A closed or failed line ends it without an exception: the caller looks at its own state to see
    how far it came. Other exceptions come through bare, not in a group of one.
    """
    failure: list[BaseException] = []

    async def run(side: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await side()
        except NetworkError:
            pass
        except Exception as error:
            failure.append(error)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, reader, nursery.cancel_scope)
        nursery.start_soon(run, writer, nursery.cancel_scope)
    if failure:
        raise failure[0]
