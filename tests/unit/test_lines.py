"""Asking a peer that is busy, or a line that breaks: again, but not for ever and not at once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from node.network.errors import Busy, PeerClosed, Refused
from node.network.messages import AuditCommit, Done, Kind
from node.roles.lines import BUSY_SECONDS, ask

PEER = b"\x01" * 20
COMMIT = AuditCommit(1, 0, bytes(32), PEER, bytes(32), bytes(65))


class Scripted:
    """A transport that answers each request with the next of `answers`, the last one for ever."""

    def __init__(self, *answers: Exception | bytes) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []

    async def request(self, *_: Any, **__: Any) -> bytes:
        self.asked.append(trio.current_time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pauses(self) -> list[float]:
        return [b - a for a, b in zip(self.asked, self.asked[1:], strict=False)]


async def asked(line: Scripted, **how: Any) -> Any:
    return await ask(line, PEER, Kind.COMMIT, COMMIT, Done, **how)  # type: ignore[arg-type]


async def test_a_busy_peer_is_asked_again_when_it_says(autojump_clock: MockClock) -> None:
    line = Scripted(Busy("full", 2.0), Busy("full", 0.5), Done(bytes(32)).encode())
    assert await asked(line) == Done(bytes(32))
    first, second = line.pauses()
    assert 2.0 <= first <= 4.0
    assert 0.5 <= second <= 1.0


@pytest.mark.parametrize("after", [None, 0.0, 1e-9])
async def test_one_that_is_busy_for_ever_is_given_up(
    autojump_clock: MockClock, after: float | None
) -> None:
    line = Scripted(Busy("full", after))
    with pytest.raises(Busy):
        await asked(line, deadline=1.0, attempts=3)
    assert 2.5 <= trio.current_time() - line.asked[0] <= 3.0
    assert min(line.pauses()) >= BUSY_SECONDS
    assert len(line.asked) <= 30


async def test_a_wait_beyond_patience_is_no_wait(autojump_clock: MockClock) -> None:
    line = Scripted(Busy("full", 1e9))
    with pytest.raises(Busy):
        await asked(line)
    assert len(line.asked) == 1


async def test_a_broken_line_is_tried_again_and_a_refusal_is_not(autojump_clock: MockClock) -> None:
    line = Scripted(PeerClosed(PEER, "gone"))
    with pytest.raises(PeerClosed):
        await asked(line, attempts=3)
    assert len(line.asked) == 3
    line = Scripted(Refused(70, "no", 1.0))
    with pytest.raises(Refused):
        await asked(line)
    assert len(line.asked) == 1
