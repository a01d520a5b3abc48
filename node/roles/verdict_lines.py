"""A verifier's lines: drafts in, verdicts out to the drafter, committed rounds to the client.

Subscribers read at their own pace what is committed and journalled, so a slow reader stalls nobody,
and one that comes back names how many rounds it holds and gets the same bytes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import trio

from node.network.errors import NetworkError, Refused
from node.network.exchange import MessageChannel
from node.network.messages import (
    DraftRound,
    Notice,
    Resume,
    RoundCommitted,
    VerdictRound,
)
from node.network.messages import (
    SessionState as StateMessage,
)
from node.roles.accusations import accuse, accuse_twice, is_second
from node.roles.frames import DraftFrame, FrameError, Round
from node.roles.lines import both_ways
from node.roles.party import Party
from node.roles.refusals import No
from node.roles.running import Drafted, Running
from settlement.records import Order

#: Rounds that nobody acts on are sent so many at a time: what a message costs its sender and both
#: its readers beside its content (system calls, encryption, tasks woken) is more than that content.
TOGETHER: Final = 8
#: Seconds for which such a round waits for the next. Where the last took longer, none waits.
HELD_SECONDS: Final = 0.04


def held_until(running: Running, unsent: Sequence[Round]) -> float:
    """Until when (trio's clock) these rounds wait for the next, to be sent with it. Never such as
    somebody acts on: a session's first, one that asks for drafts, the last, and what is there when
    the session stands still for others."""
    if not 0 < len(unsent) < TOGETHER or running.ended or running.blocked is not None:
        return -math.inf
    if running.foreseen < running.live.state.position or running.took > HELD_SECONDS:
        return -math.inf
    if any(done.verdict.verdict.next_k for done in unsent):
        return -math.inf
    return running.committed + HELD_SECONDS


def shown_to_drafter(running: Running) -> int:
    """How many rounds the drafter may see: none behind a window that is awaited of it, or its guess
    could be what it has read."""
    trial = running.trial
    if trial is None or trial.drafted is not None or running.ended:
        return len(running.rounds)
    return min(trial.round, len(running.rounds))


class VerdictLines(Party):
    """The part of a verifier that talks: everything but the rounds themselves."""

    running: dict[bytes, Running]  # by session id

    async def on_drafter(self, channel: MessageChannel) -> None:
        """The drafter's line: verdicts out, drafts in."""
        attached = await self._attach(channel, lambda order: order.drafter)
        if attached is None:
            return
        running, held = attached
        running.drafter_channels += 1
        running.drafter_seen = True
        running.notify()
        try:
            await both_ways(
                lambda: self._read_drafts(running, channel),
                lambda: self._publish(
                    running,
                    channel,
                    held,
                    lambda _, done: VerdictRound(done.verdict.to_wire()),
                    shown_to_drafter,
                ),
            )
        finally:
            running.drafter_channels -= 1
            running.notify()

    async def on_client(self, channel: MessageChannel) -> None:
        """The client's line: committed rounds and notices out."""
        attached = await self._attach(channel, lambda order: order.client)
        if attached is None:
            return
        running, held = attached
        session_id = running.live.terms.order.session_id
        await both_ways(
            lambda: self._drain(channel),
            lambda: self._publish(
                running,
                channel,
                held,
                lambda number, done: RoundCommitted(session_id, number, done.to_wire()),
            ),
        )

    async def _attach(
        self, channel: MessageChannel, who: Callable[[Order], bytes]
    ) -> tuple[Running, int] | None:
        """The first message names the session and how many rounds its sender holds. None when
        there is nothing to attach to; a line that stays silent is closed."""
        try:
            with trio.move_on_after(self.node.limits.resume_seconds) as waited:
                first = await channel.receive()
            if waited.cancelled_caught or not isinstance(first, StateMessage):
                channel.channel.fail("a session's line begins with its state")
                return None
            running = self.running.get(first.session_id)
            if running is None or who(running.live.terms.order) != channel.peer:
                reason = "no such session of yours runs here"
                await channel.send(Notice(first.session_id, No.UNKNOWN, reason))
                return None
        except NetworkError:
            return None
        return running, min(first.rounds, len(running.rounds))

    async def _publish(
        self,
        running: Running,
        channel: MessageChannel,
        held: int,
        message: Callable[[int, Round], VerdictRound | RoundCommitted],
        shown: Callable[[Running], int] = lambda running: len(running.rounds),
    ) -> None:
        """Sends rounds from `held` on as they commit, notices as they arise, and the end. `shown`:
        how many rounds this reader may see now."""
        told: tuple[No, str] | None = None
        session_id = running.live.terms.order.session_id
        while True:
            await self._hold(running, held, shown)
            changed = running.changed
            while held < shown(running):
                await channel.send(message(held, running.rounds[held]))
                held += 1
            if running.blocked != told:
                told = running.blocked
                if told is not None:
                    reason = told[1].encode()[:400].decode(errors="ignore")
                    await channel.send(Notice(session_id, told[0], reason))
            if running.ended and held == len(running.rounds):
                await channel.send(self._state_message(running))
                return
            if changed is running.changed:
                await changed.wait()

    async def _hold(self, running: Running, held: int, shown: Callable[[Running], int]) -> None:
        """Returns when the rounds from `held` on that this reader may see wait for no more."""
        with trio.CancelScope() as scope:
            while True:
                changed = running.changed
                until = held_until(running, running.rounds[held : shown(running)])
                if until <= trio.current_time():
                    return
                scope.deadline = until
                await changed.wait()

    def _state_message(self, running: Running) -> StateMessage:
        terms, state = running.live.terms, running.live.state
        return StateMessage(
            session_id=terms.order.session_id,
            start_hash=terms.start_hash,
            rounds=state.round,
            position=state.position,
            context_hash=state.context,
            ended=state.stopped,
        )

    async def _read_drafts(self, running: Running, channel: MessageChannel) -> None:
        """Keeps the newest draft; older ones are stale by then. Ends the line's task when the
        drafter goes away."""
        while True:
            message = await channel.receive()
            if not isinstance(message, DraftRound):
                continue
            try:
                frame = DraftFrame.from_wire(message.frame) if message.frame else None
            except FrameError as error:
                channel.channel.fail(str(error))
                return
            if frame is not None:
                self._compare(running, frame)
            drafted = Drafted(
                message.round,
                frame,
                message.made,
                message.microseconds / 1e6,
                message.reading / 1e6,
            )
            trial = running.trial
            if trial is None or trial.round != message.round:
                running.inbox[:] = [drafted]
            elif trial.drafted is None:
                trial.drafted, trial.seconds = drafted, trio.current_time() - trial.asked
            running.notify()

    def _compare(self, running: Running, frame: DraftFrame) -> None:
        """Keeps a window that is not the one that came for the same place before (F1)."""
        terms = running.live.terms
        accuse_twice(self.node, terms, frame, b"")
        trial = running.trial.drafted if running.trial is not None else None
        for waiting in (*running.inbox, *([trial] if trial is not None else [])):
            if waiting.frame is None:
                continue
            accuse_twice(self.node, terms, waiting.frame, b"")
            if is_second(waiting.frame, frame):
                accuse(self.node, terms, waiting.frame, None)
                accuse(self.node, terms, frame, None)

    async def _drain(self, channel: MessageChannel) -> None:
        """Reads and drops, so that a closed line is noticed."""
        while True:
            await channel.receive()

    async def on_resume(self, peer: bytes, ask: Resume) -> StateMessage:
        """Where a session stands, for a party that wants to know before it hands over."""
        running = self.running.get(ask.session_id)
        if running is None or peer not in running.live.terms.parties:
            raise Refused(No.UNKNOWN, "no such session of yours runs here")
        if peer == running.live.terms.order.drafter and shown_to_drafter(running) < len(
            running.rounds
        ):
            running.drop_trial()  # what it asks for is what it was to guess
        state = self._state_message(running)
        if not running.rounds:
            return state
        last = running.rounds[-1]
        return replace(
            state,
            draft=b"" if last.draft is None else last.draft.to_wire(),
            verdict=last.verdict.to_wire(),
        )
