"""One inference worker per device: torch runs in one thread at a time, the event loop never waits.

Requests that come while a pass is running are verified together in the next one. A task of its own
runs passes as long as somebody waits for one; there is nothing to start or stop. Prompts are run
piece by piece in the same passes. Sessions that wait for drafts share a draft model's passes in the
same way.

A request may be named before the pass in front of it is over (`foresee`). If nobody else waits, the
thread goes on to it by itself: between two passes lies no turn of the event loop.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import trio

from node.inference.cores import Cores
from node.inference.drafter import DraftSession, Want, draft_together
from node.inference.proposal import Draft, DraftCoin, VerifyOutcome, VerifyRequest

if TYPE_CHECKING:
    from node.inference.verifier import TargetSession, Verifier

# Rows of prompts in a pass that nobody else waits for (as `model.PREFILL_CHUNK`; no torch here).
PREFILL_CHUNK: Final = 512

#: Seconds from a pass's beginning until it needs Python's lock no more, about.
HEAD_START: Final = 0.0005

P = ParamSpec("P")
T = TypeVar("T")


class WorkerBusy(RuntimeError):
    """Too many requests wait for this device already; try again later or elsewhere."""


class _Ticket:
    """One waiting request: a window to verify, drafts, or (None) a piece of a session's prompt.
    `taken` once it is part of a pass, which cannot be undone, or withdrawn. `result` is raised if
    it can be."""

    def __init__(self, owner: Any, session: Any, request: VerifyRequest | Want | None) -> None:
        self.owner = owner  # the verifier that is asked, or _DRAFTS
        self.session = session
        self.request = request
        self.taken = False
        self.done = trio.Event()
        self.result: Any = None


def _tell(
    cores: Cores | None,
    token: trio.lowlevel.TrioToken,
    function: Callable[..., None],
    *args: Any,
) -> None:
    """Has the event loop run `function`, from a thread of its own and not at once: to wake the loop
    is a system call, in which the worker's thread would lose Python's lock to it, and until its
    next pass is in the kernel it needs that lock."""
    if cores is not None:
        cores.keep_off()  # as a new thread it is where the worker is
    time.sleep(HEAD_START)
    token.run_sync_soon(function, *args)


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
        cores: one of them is left to its thread; None: all threads run anywhere.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        max_batch: int = 16,
        max_waiting: int = 256,
        prefill_rows: int = 64,
        cores: Cores | None = None,
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
        self._cores = cores
        self._device = trio.CapacityLimiter(1)
        self._thread = trio.CapacityLimiter(1)
        self._waiting: list[_Ticket] = []
        self._driving = False
        # By id of the session: requests named ahead, and the sessions that are in the pass running.
        self._foreseen: dict[int, list[_Ticket]] = {}
        self._running: set[int] = set()
        self._lock = threading.Lock()  # around `taken`, which the worker's thread sets as well
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
        if len(self._waiting) + self._device.statistics().tasks_waiting >= self.max_waiting:
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
            last: so many tokens are left to run with the first window, a pass less before the
                first token: at most as many as a piece has, and where others have sessions at most
                as many as may hold them up.

        Raises:
            WorkerBusy: too many wait already. Otherwise as `Verifier.admit`.
        """
        session = await self.call(verifier.admit, *args, **kwargs)
        try:
            while session.prefilling > min(
                last, PREFILL_CHUNK if verifier.sessions == 1 else self.prefill_rows
            ):
                await self._queued(_Ticket(verifier, session, None))
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
        named = self._foreseen.get(id(session), ())
        ticket = next((t for t in named if t.request == request), None)
        if ticket is None:
            if any(t.request.draft.base <= request.draft.base for t in named):
                self.forget(session)
            outcome = await self._queued(_Ticket(verifier, session, request))
        else:
            try:
                outcome = await self._done(ticket)
            finally:
                self._strike(ticket)
        assert isinstance(outcome, VerifyOutcome)
        return outcome

    def foresee(self, verifier: Verifier, session: TargetSession, request: VerifyRequest) -> None:
        """Says that `verify` will be called with this request after those before it, so that its
        pass may begin as soon as the session's pass under way is over, or now. The session moves
        on by it whether it is then asked for or not."""
        if session.ended:  # by a pass whose outcome the caller has not seen yet
            return
        ticket = _Ticket(verifier, session, request)
        self._foreseen.setdefault(id(session), []).append(ticket)
        if id(session) not in self._running and session.position == request.draft.base:
            self._enqueue(ticket)

    def forget(self, session: object) -> None:
        """Withdraws what was foreseen of the session, but for passes that have begun."""
        for ticket in self._foreseen.pop(id(session), ()):
            if self._take(ticket) and ticket in self._waiting:
                self._waiting.remove(ticket)

    def _strike(self, ticket: _Ticket) -> None:
        """What was foreseen has come true, or never will."""
        named = self._foreseen.get(id(ticket.session), [])
        if ticket in named:
            named.remove(ticket)
        if not named:
            self._foreseen.pop(id(ticket.session), None)

    async def propose(
        self,
        session: DraftSession,
        k: int,
        coin: DraftCoin | None = None,
        owed: Sequence[int] = (),
    ) -> Draft:
        """`DraftSession.propose`, after a `commit` of what is owed, sharing passes with other
        sessions that wait for drafts.

        One request of a session at a time. Cancelled once begun, it is finished first, as `verify`.

        Raises:
            WorkerBusy: too many wait already. Otherwise as `DraftSession.propose`.
        """
        want = Want(session, k, coin, owed=tuple(owed))
        draft = await self._queued(_Ticket(_DRAFTS, session, want))
        assert isinstance(draft, Draft)
        return draft

    async def draft_ahead(self, session: DraftSession, n: int) -> int:
        """`DraftSession.draft_ahead`, as `propose`."""
        return int(await self._queued(_Ticket(_DRAFTS, session, Want(session, n, ahead=True))))

    async def _queued(self, ticket: _Ticket) -> Any:
        """The ticket's result, once a pass has taken it."""
        if len(self._waiting) >= self.max_waiting:
            raise WorkerBusy(f"{self.max_waiting} requests wait for this device")
        self._enqueue(ticket)
        return await self._done(ticket)

    def _enqueue(self, ticket: _Ticket) -> None:
        self._waiting.append(ticket)
        if not self._driving:
            self._driving = True
            trio.lowlevel.spawn_system_task(self._drive)

    async def _done(self, ticket: _Ticket) -> Any:
        try:
            await ticket.done.wait()
        except trio.Cancelled:
            if self._take(ticket):
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                raise
            with trio.CancelScope(shield=True):
                await ticket.done.wait()
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    def _take(self, ticket: _Ticket) -> bool:
        """Whether nobody has taken it before."""
        with self._lock:
            if ticket.taken:
                return False
            ticket.taken = True
            return True

    async def _drive(self) -> None:
        """Runs passes as long as somebody waits for one. Never raises: what goes wrong in a pass is
        for those who asked for it."""
        try:
            while self._waiting:
                async with self._device:
                    if not self._waiting:  # withdrawn meanwhile
                        break
                    leader = self._waiting[0]
                    if leader.owner is _DRAFTS:
                        await self._run_drafts()
                    else:
                        await self._run_pass(leader.owner)
        finally:
            self._driving = False

    async def _run_pass(self, verifier: Verifier) -> None:
        """Take the first who waits and who else fits, verify, and hand out the results."""
        batch: list[_Ticket] = []
        pieces: list[_Ticket] = []
        sessions: set[int] = set()
        mine = [ticket for ticket in self._waiting if ticket.owner is verifier]
        windows = any(ticket.request is not None for ticket in mine)
        room = rows = self.prefill_rows if windows else PREFILL_CHUNK
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
        self._waiting = [ticket for ticket in self._waiting if not ticket.taken]
        work: list[Any] = [(t.session, t.request) for t in batch if t.request is not None]
        prefill = [ticket.session for ticket in pieces]
        tickets = [*batch, *pieces]
        token = trio.lowlevel.current_trio_token()

        def passes() -> list[VerifyOutcome | ValueError]:
            nonlocal tickets
            results = verifier.verify_batch(work, prefill, rows)
            while (after := self._after(tickets, results)) is not None:
                if after.session.has_row:
                    # What follows is no pass: nothing is held up by saying so at once.
                    token.run_sync_soon(self._hand_out, tickets, results)
                else:
                    tell = partial(_tell, self._cores, token, self._hand_out, tickets, results)
                    trio.lowlevel.start_thread_soon(tell, lambda told: None, "outcome of a pass")
                tickets = [after]
                results = verifier.verify_batch([(after.session, after.request)])  # type: ignore[list-item]
            return results

        self._running = sessions
        results: list[VerifyOutcome | ValueError] | BaseException
        try:
            with trio.CancelScope(shield=True):
                results = await self._in_thread(passes)
        except BaseException as error:  # out of memory, a device error: everyone here learns it
            results = error
        self._running = set()
        self._hand_out(tickets, results)
        for key in sessions:
            for named in tuple(self._foreseen.get(key, ())):
                if named.taken or named in self._waiting:
                    continue
                if named.session.ended or named.session.closed:
                    self.forget(named.session)
                else:
                    self._enqueue(named)

    def _after(self, tickets: Sequence[_Ticket], results: Sequence[Any]) -> _Ticket | None:
        """In the worker's thread: what to verify next without asking, if that holds up nobody."""
        if len(tickets) != 1 or self._waiting or self._device.statistics().tasks_waiting:
            return None
        session = tickets[0].session
        if session.ended or not results or not isinstance(results[0], VerifyOutcome):
            return None
        for named in tuple(self._foreseen.get(id(session), ())):
            if not named.done.is_set() and self._take(named):
                return named
        return None

    def _hand_out(self, tickets: Sequence[_Ticket], results: Sequence[Any] | BaseException) -> None:
        """Results of one pass to those whose windows, and then pieces of prompts, were in it."""
        self.passes += 1
        for index, ticket in enumerate(tickets):
            if isinstance(results, BaseException):
                ticket.result = results
            elif index < len(results):
                ticket.result = results[index]
            self.pass_sessions += ticket.request is not None
            ticket.done.set()

    async def _run_drafts(self) -> None:
        """Draft for all who wait for drafts, as many as fit."""
        batch: list[_Ticket] = []
        sessions: set[int] = set()
        for ticket in self._waiting:
            fits = ticket.owner is _DRAFTS and len(batch) < self.max_batch
            if fits and id(ticket.session) not in sessions:
                sessions.add(id(ticket.session))
                ticket.taken = True
                batch.append(ticket)
        self._waiting = [ticket for ticket in self._waiting if not ticket.taken]
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
            with nullcontext() if self._cores is None else self._cores.inference():
                return function()

        return await trio.to_thread.run_sync(run, limiter=self._thread)
