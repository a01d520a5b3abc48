"""A channel used both ways at once: one task reads, one writes, and either's end ends the line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from node.network import exchange
from node.network.codec import Message
from node.network.errors import Busy, NetworkError, Refused
from node.network.messages import Kind
from node.network.transport import Transport

A = TypeVar("A", bound=Message)
BUSY_SECONDS: Final = 0.1  # at least, before a peer is asked again that is busy


async def ask(
    transport: Transport,
    peer: bytes,
    kind: Kind,
    message: Message,
    expected: type[A],
    *,
    deadline: float = 5.0,
    attempts: int = 3,
) -> A:
    """Asks, and asks again when the line broke or the answer did not come, or, when the peer says
    so, after a while: every request of the roles is idempotent. Raises what the last attempt
    raised; a refusal of another kind at once.
    """
    give_up = trio.current_time() + attempts * deadline
    attempt = busy_for = 0
    while True:
        try:
            answer = await exchange.ask(transport, peer, kind, message, deadline=deadline)
            assert isinstance(answer, expected)  # `exchange.ask` decodes no other
            return answer
        except Busy as busy:
            # More than it says, and never at once: of many who were told the same time not all get
            # through, and a peer that says "now" for ever must not keep this node asking.
            busy_for += 1
            pause = max(busy.retry_after or 0.0, BUSY_SECONDS) * (1.0 + min(busy_for, 8) / 8)
            if trio.current_time() + pause > give_up:
                raise
            await trio.sleep(pause)
        except Refused:
            raise
        except NetworkError:
            attempt += 1
            if attempt == attempts:
                raise


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
