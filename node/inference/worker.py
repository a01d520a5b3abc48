"""One inference worker per device: torch runs in one thread at a time, the event loop never waits.

Requests that come while a pass is running are verified together in the next one: whoever gets the
device first takes along everyone who waits. There is no background task to start or stop. Prompts
are run piece by piece in the same passes. Sessions that wait for drafts share a draft model's
passes in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import trio

from node.inference.drafter import DraftSession, Want, draft_together
from node.inference.proposal import Draft, DraftCoin, VerifyOutcome, VerifyRequest

if TYPE_CHECKING:
    from node.inference.verifier import TargetSession, Verifier

# Rows of prompts in a pass that nobody else waits for (as `model.PREFILL_CHUNK`; no torch here).
PREFILL_CHUNK: Final = 512

P = ParamSpec("P")
T = TypeVar("T")


class WorkerBusy(RuntimeError):
    """Too many requests wait for this device already; try again later or elsewhere."""


class _Ticket:
    """One waiting request: a window to verify, drafts, or (None) a piece of a session's prompt.
    `taken` once it is part of a pass, which cannot be undone. `result` is raised if it can be."""

    def __init__(self, session: Any, request: VerifyRequest | Want | None) -> None:
        self.session = session
        self.request = request
        self.taken = False
        self.done = trio.Event()
        self.result: Any = None


# Stands for the verifier among those who wait for drafts.
_DRAFTS: Final = object()


class InferenceWorker:
    """Owns a device. All use of its models goes through `call` or `verify`.

    Args:
        threads: torch's threads for one operation; 1 unless the machine is idle otherwise.
        max_batch: sessions verified in one pass.
        max_waiting: requests waiting before more are refused.
        prefill_rows: rows of prompts in a pass that others wait for. More fill a prompt sooner and
            hold the others' tokens up longer.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        max_batch: int = 16,
        max_waiting: int = 256,
        prefill_rows: int = 64,
    ) -> None:
        if min(threads, max_batch, max_waiting, prefill_rows) < 1:
            raise ValueError(
                f"threads {threads}, batch {max_batch}, waiting {max_waiting}, prefill rows "
                f"{prefill_rows}: at least 1"
            )
        self.threads = threads
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self.prefill_rows = prefill_rows
        self._device = trio.CapacityLimiter(1)
        self._thread = trio.CapacityLimiter(1)
        self._waiting: list[tuple[object, _Ticket]] = []
        #: passes run, and sessions that had a window in them
        self.passes = self.pass_sessions = 0
        #: times that drafts were made, and sessions for which
        self.draftings = self.drafting_sessions = 0

    @property
    def waiting(self) -> int:
        """Requests and pieces of prompts not yet in a pass."""
        return len(self._waiting)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in the worker's thread: opening sessions, drafting, loading models.

        A call that has begun is not abandoned on cancellation, for it changes state.

        Raises:
            WorkerBusy: too many wait already. Otherwise what `function` raises.
        """
        if self._device.statistics().tasks_waiting >= self.max_waiting:
            raise WorkerBusy(f"{self.max_waiting} requests wait for this device")
        return await self.finish(function, *args, **kwargs)

    async def finish(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `call`, but never refused: for what frees memory when all is busy, such as closing."""
        async with self._device:
            with trio.CancelScope(shield=True):
                return await self._in_thread(lambda: function(*args, **kwargs))

    async def open(
        self, verifier: Verifier, *args: Any, last: int = 0, **kwargs: Any
    ) -> TargetSession:
        """`Verifier.admit`, then its prompt, in pieces and together with others' windows.

        Cancelled or failing on the way, the session is closed.

        Args:
            last: so many tokens, and at most a piece, are left to run with the first window: a
                pass less before the first token.

        Raises:
            WorkerBusy: too many wait already. Otherwise as `Verifier.admit`.
        """
        session = await self.call(verifier.admit, *args, **kwargs)
        try:
            while session.prefilling > min(last, self.prefill_rows):
                await self._verified(verifier, _Ticket(session, None))
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.finish(verifier.close, session)
            raise
        return session

    async def verify(
        self, verifier: Verifier, session: TargetSession, request: VerifyRequest
    ) -> VerifyOutcome:
        """Verify one round, together with others that wait for the same verifier.

        Cancelled while waiting, the request is withdrawn and the session is unchanged. Once in a
        pass it is finished and the outcome returned, because the session has moved on; the
        cancellation then arrives at the caller's next checkpoint.

        Raises:
            WorkerBusy: too many wait already. Otherwise as `Verifier.verify`.
        """
        outcome = await self._verified(verifier, _Ticket(session, request))
        assert isinstance(outcome, VerifyOutcome)
        return outcome

    async def propose(self, session: DraftSession, k: int, coin: DraftCoin | None = None) -> Draft:
        """`DraftSession.propose`, sharing passes with other sessions that wait for drafts.

        One request of a session at a time. Cancelled once begun, it is finished first, as `verify`.

        Raises:
            WorkerBusy: too many wait already. Otherwise as `DraftSession.propose`.
        """
        ticket = _Ticket(session, Want(session, k, coin))
        draft = await self._queued(_DRAFTS, ticket, lambda: self._run_drafts(ticket))
        assert isinstance(draft, Draft)
        return draft

    async def draft_ahead(self, session: DraftSession, n: int) -> int:
        """`DraftSession.draft_ahead`, as `propose`."""
        ticket = _Ticket(session, Want(session, n, ahead=True))
        return int(await self._queued(_DRAFTS, ticket, lambda: self._run_drafts(ticket)))

    async def _verified(self, verifier: Verifier, ticket: _Ticket) -> Any:
        return await self._queued(verifier, ticket, lambda: self._run_pass(verifier, ticket))

    async def _queued(
        self, owner: object, ticket: _Ticket, run: Callable[[], Awaitable[None]]
    ) -> Any:
        """Wait for a pass that takes the ticket, or `run` one; its result."""
        if len(self._waiting) >= self.max_waiting:
            raise WorkerBusy(f"{self.max_waiting} requests wait for this device")
        entry = (owner, ticket)
        self._waiting.append(entry)
        try:
            async with self._device:
                if not ticket.taken:
                    await run()
        except trio.Cancelled:
            if not ticket.taken:
                self._waiting.remove(entry)
                raise
            with trio.CancelScope(shield=True):
                await ticket.done.wait()
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    async def _run_pass(self, verifier: Verifier, leader: _Ticket) -> None:
        """Take the leader and who else fits, verify, and hand out the results."""
        batch: list[_Ticket] = []
        pieces: list[_Ticket] = []
        sessions: set[int] = set()
        mine = [leader, *(t for v, t in self._waiting if v is verifier and t is not leader)]
        windows = any(ticket.request is not None for ticket in mine)
        room = self.prefill_rows if windows else PREFILL_CHUNK
        for ticket in mine:
            if id(ticket.session) in sessions:
                continue
            if ticket.request is not None and len(batch) < self.max_batch:
                batch.append(ticket)
            elif ticket.request is None and room > 0:
                room -= ticket.session.prefilling
                pieces.append(ticket)
            else:
                continue
            sessions.add(id(ticket.session))
            ticket.taken = True
        self._waiting = [(v, t) for v, t in self._waiting if not t.taken]
        work: list[Any] = [(t.session, t.request) for t in batch if t.request is not None]
        prefill = [ticket.session for ticket in pieces]
        rows = self.prefill_rows if windows else PREFILL_CHUNK
        results: list[VerifyOutcome | ValueError] | BaseException
        try:
            with trio.CancelScope(shield=True):
                results = await self._in_thread(lambda: verifier.verify_batch(work, prefill, rows))
        except BaseException as error:  # out of memory, a device error: everyone here learns it
            results = error
        self.passes += 1
        self.pass_sessions += len(batch)
        for index, ticket in enumerate([*batch, *pieces]):
            if isinstance(results, BaseException):
                ticket.result = results
            elif index < len(batch):
                ticket.result = results[index]
            ticket.done.set()

    async def _run_drafts(self, leader: _Ticket) -> None:
        """Draft for the leader and who else waits for drafts."""
        batch: list[_Ticket] = []
        sessions: set[int] = set()
        for ticket in (leader, *(t for owner, t in self._waiting if owner is _DRAFTS)):
            if id(ticket.session) not in sessions and len(batch) < self.max_batch:
                sessions.add(id(ticket.session))
                ticket.taken = True
                batch.append(ticket)
        self._waiting = [(v, t) for v, t in self._waiting if not t.taken]
        wants = [ticket.request for ticket in batch if isinstance(ticket.request, Want)]
        results: list[Draft | int | Exception] | BaseException
        try:
            with trio.CancelScope(shield=True):
                results = await self._in_thread(lambda: draft_together(wants))
        except BaseException as error:
            results = error
        self.draftings += 1
        self.drafting_sessions += len(batch)
        for index, ticket in enumerate(batch):
            ticket.result = results if isinstance(results, BaseException) else results[index]
            ticket.done.set()

    async def _in_thread(self, function: Callable[[], T]) -> T:
        def run() -> T:
            # OpenMP keeps the number per thread, and the thread is not always the same.
            torch = sys.modules.get("torch")  # a drafter without a model never loads it
            if torch is not None and torch.get_num_threads() != self.threads:
                torch.set_num_threads(self.threads)
            return function()

        return await trio.to_thread.run_sync(run, limiter=self._thread)
