"""The client: orders text, checks every round, pays for it, and hands over when a party leaves.

`generate` is one request from prompt to receipt. It may take several sessions: when drafter or
verifier leaves, a successor order goes on from the committed tokens with the same request id and
seed, so in the strict modes the text is the same whoever served it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import trio

from node.inference.stops import StopScanner
from node.journal import StoredRound
from node.network import exchange
from node.network.errors import NetworkError, PeerClosed, Refused
from node.network.exchange import MessageChannel
from node.network.messages import (
    Kind,
    Notice,
    RoundCommitted,
)
from node.network.messages import (
    SessionState as StateMessage,
)
from node.roles.accusations import accuse, accuse_twice
from node.roles.convert import stop_rules
from node.roles.frames import FrameError, Round
from node.roles.opening import Emit, Served, SessionOpener
from node.roles.plan import ClientError, Directory, Plan
from node.roles.ports import Node
from node.roles.purse import Purse
from node.roles.refusals import No
from node.roles.session import (
    SessionFault,
    StaleFrame,
    Terms,
    advance,
    check_draft,
    check_verdict,
    output_ended,
)
from node.roles.stored import stored_round
from settlement.records import (
    Lane,
)

MAX_SESSIONS_A_REQUEST: Final = 8
GIVING_UP: Final = 2.0  # seconds for the last voucher of a request that is broken off


@dataclass
class Outcome:
    """A finished request."""

    sessions: list[Served]
    seconds: float  # from the first session's start to the last round,
    first_seconds: float  # and to the first
    nonces: tuple[bytes, bytes]

    @property
    def tokens(self) -> tuple[int, ...]:
        first = self.sessions[0].delivery.output
        return first + tuple(t for served in self.sessions for t in served.state.tokens)


class ClientRole(SessionOpener):
    """Generates through the network. `token_bytes` gives the text of one token of the target."""

    def __init__(
        self, node: Node, directory: Directory, token_bytes: Callable[[int], bytes]
    ) -> None:
        super().__init__(node, directory)
        self.purse = Purse(node)
        self._token_bytes = token_bytes
        self._restore()

    def _restore(self) -> None:
        """Rounds and vouchers of earlier runs, from the journal."""
        lanes: dict[bytes, Lane] = {}
        for row in self.node.journal.sessions():
            if row.role != "client":
                continue
            terms = Terms.from_wire(row.terms, self.node.domain)
            for stored in self.node.journal.rounds(row.start_hash):
                done = stored_round(stored.draft, stored.verdict)
                self.purse.till.count_round(terms, done)
            lanes[row.lane] = terms.order.lane
        for lane in lanes.values():
            self.purse.till.restore_lane(lane)

    async def recover(self, patience: float) -> None:
        """After a crash: pays for what was received and not yet signed for, and closes the
        requests that were cut short (their text can be asked for again, under the same seed policy
        with the same result)."""
        for row in self.node.journal.sessions("open"):
            if row.role != "client":
                continue
            terms = Terms.from_wire(row.terms, self.node.domain)
            if self.purse.till.unsigned_tokens(terms.order.lane):
                try:
                    await self.purse.pay(terms.order.lane, patience=patience)
                except Refused as no:
                    self.node.log.warning("not paid yet", reason=str(no))
                    continue
            self.node.journal.set_session_state(row.start_hash, "closed")

    # ------------------------------------------------------------ one request

    async def generate(self, plan: Plan, emit: Emit) -> Outcome:
        """Serves the plan to its end. `emit` gets a `round` event per committed round and a
        `note` for everything a person would want to know meanwhile.

        Raises NoParties or ClientError; what was committed until then is paid for and journalled.
        """
        sessions: list[Served] = []
        nonces: tuple[bytes, bytes] | None = None
        started = finished = perf_counter()
        for _ in range(MAX_SESSIONS_A_REQUEST):
            before = sessions[-1] if sessions else None
            served, nonces, plan = await self._open(plan, before, nonces, emit)
            if not sessions:
                started = perf_counter()
            sessions.append(served)
            followed = False
            try:
                why = await self._follow(served, emit)
                followed = True
            finally:
                if not followed:  # given up, by a reader that went away most often
                    await self._give_up(served)
            finished = served.moved or perf_counter()
            await self._settle_up(served, patience=5.0)
            if why is None:
                first = sessions[0].first or finished
                return Outcome(sessions, finished - started, first - started, nonces)
            self.node.journal.set_session_state(served.terms.start_hash, "closed")
            if self.node.clock() >= served.terms.order.deadline:
                count = len(served.delivery.output + served.state.tokens)
                raise ClientError(f"the order's deadline has passed after {count} tokens")
            role, reason = why
            gone = served.terms.order.drafter if role == "drafter" else served.terms.order.verifier
            self._avoid[gone] = self.node.clock() + 60
            await emit({"type": "note", "note": f"handing over: {reason}", "left": role})
            if not served.state.tokens:
                # Nothing committed under it: the successor goes on from the one before, if any.
                sessions.pop()
                if before is None:
                    plan, nonces = self._fresh(plan), None
        raise ClientError(f"gave up after {MAX_SESSIONS_A_REQUEST} sessions")

    async def _give_up(self, served: Served) -> None:
        """What came of a request that is broken off is paid for."""
        with trio.CancelScope(shield=True):
            await self._settle_up(served, patience=GIVING_UP)
        self.node.journal.set_session_state(served.terms.start_hash, "closed")

    def _pay_along(self, served: Served, payers: trio.Nursery) -> None:
        """Pays for what has come so far, while rounds go on. One task at a time: a payee that does
        not answer must not leave a wait behind for each round."""
        served.owing = True
        if not served.paying:
            served.paying = True
            payers.start_soon(self._keep_paying, served)

    async def _keep_paying(self, served: Served) -> None:
        while served.owing:
            served.owing = False
            await self._settle_up(served, 5.0)
        served.paying = False

    async def _settle_up(self, served: Served, patience: float) -> None:
        try:
            served.payment = await self.purse.pay(served.terms.order.lane, patience=patience)
        except Refused as no:
            self.node.log.warning("voucher not signed yet", reason=str(no))

    # ------------------------------------------------------------ following a session

    async def _follow(self, served: Served, emit: Emit) -> tuple[str, str] | None:
        """Takes rounds until the output ends (None), or until a party has left: (role, reason)."""
        order = served.terms.order
        scanner = StopScanner(
            stop_rules(order, served.delivery.stops), self._token_bytes, served.delivery.output
        )
        limits = self.node.limits
        progress, committed = trio.current_time(), served.state.round
        async with trio.open_nursery() as payers:
            while not served.state.stopped:
                try:
                    line = await exchange.open_channel(
                        self.node.transport, order.verifier, Kind.STREAM, deadline=5.0
                    )
                    try:
                        why = await self._take(served, line, scanner, payers, emit)
                    finally:
                        line.close()
                    if why is not None:
                        return why
                except SessionFault as fault:
                    self.node.metrics.count("faults_seen")
                    return fault.guilty, str(fault)
                except NetworkError as error:
                    self.node.log.info("line to the verifier lost", reason=str(error))
                if self._left(served) <= 0:
                    return "verifier", "the order's deadline has passed"
                if served.state.round > committed:
                    progress, committed = trio.current_time(), served.state.round
                elif trio.current_time() - progress > limits.round_seconds + limits.resume_seconds:
                    paid = served.payment
                    if paid is not None and paid.verifier and not paid.drafter:
                        return "drafter", "the drafter signs no voucher, so no round can be made"
                    return "verifier", "the verifier makes no rounds"
                if not served.state.stopped:
                    await trio.sleep(0.1)
        self.node.journal.set_session_state(served.terms.start_hash, "closed")
        return None

    def _left(self, served: Served) -> float:
        """Seconds until the order's deadline."""
        return max(0.0, served.terms.order.deadline - self.node.clock())

    async def _take(
        self,
        served: Served,
        line: MessageChannel,
        scanner: StopScanner,
        payers: trio.Nursery,
        emit: Emit,
    ) -> tuple[str, str] | None:
        """Reads one line. Returns who left, or None at the output's end."""
        terms, limits = served.terms, self.node.limits
        await line.send(
            StateMessage(
                session_id=terms.order.session_id,
                start_hash=terms.start_hash,
                rounds=served.state.round,
                position=served.state.position,
                context_hash=served.state.context,
                ended=False,
            )
        )
        began = perf_counter()
        while True:
            with trio.move_on_after(min(limits.round_seconds, self._left(served))) as waited:
                message = await line.receive()
            if waited.cancelled_caught:
                # A frame may have been lost on the way: attach again and see what was committed.
                raise PeerClosed(line.peer, "no round")
            if isinstance(message, RoundCommitted):
                done = self._checked(served, message, scanner)
                if done is None:
                    continue
                now = perf_counter()
                await self._committed(served, done, now - began, emit)
                began = now
                if self.purse.till.unsigned_tokens(terms.order.lane) >= limits.voucher_every:
                    self._pay_along(served, payers)
                if not served.state.stopped and self._left(served) <= 0:
                    return "verifier", "the order's deadline has passed"
            elif isinstance(message, Notice):
                if message.code == No.UNPAID:
                    self._pay_along(served, payers)
                elif message.code == No.LEFT:
                    return "drafter", message.reason
                elif message.code == No.UNKNOWN:
                    raise PeerClosed(line.peer, message.reason)
                else:
                    return "verifier", message.reason
            elif isinstance(message, StateMessage) and message.ended:
                if served.state.stopped:
                    return None
                if message.rounds > served.state.round:
                    raise PeerClosed(line.peer, "the last rounds were lost on the way")
                return "verifier", "the verifier ended the output without a stop"

    def _checked(
        self, served: Served, message: RoundCommitted, scanner: StopScanner
    ) -> Round | None:
        """A round after every check of the protocol, journalled; None for one that is stale."""
        terms, state = served.terms, served.state
        at = perf_counter()
        if message.round > state.round:
            raise PeerClosed(terms.order.verifier, "a round was lost on the way")
        done: Round | None = None
        try:
            done = Round.from_wire(message.frames)
            if done.draft is not None:
                check_draft(terms, state, done.draft)
            check_verdict(terms, state, done.draft, done.verdict)
        except FrameError as error:
            self.node.metrics.count("malformed")
            raise PeerClosed(terms.order.verifier, f"a malformed round: {error}") from error
        except StaleFrame:
            assert done is not None
            accuse_twice(self.node, terms, done.draft, done.verdict.to_wire())
            return None
        except SessionFault:
            assert done is not None
            accuse(self.node, terms, done.draft, done.verdict)
            raise
        self.node.metrics.time("check", perf_counter() - at)
        tokens = done.verdict.tokens
        hit = scanner.scan(tokens)
        if hit is not None and hit.count != len(tokens):
            raise SessionFault("verifier", "output goes on after a stop", hit.reason)
        scanner.commit(tokens)
        stopped = output_ended(terms, done.verdict, stop_string=hit is not None)
        if done.verdict.leaves[-1].accepted and not stopped:
            raise SessionFault("verifier", "the window is cut short without a stop", state.round)
        at = perf_counter()
        self.node.journal.put_round(
            StoredRound(
                terms.start_hash,
                state.round,
                None if done.draft is None else done.draft.to_wire(),
                done.verdict.to_wire(),
                b"",
            )
        )
        self.node.metrics.time("journal", perf_counter() - at)
        served.state = advance(terms, state, done, stop_string=stopped)
        served.rounds.append(done)
        served.moved = perf_counter()
        served.first = served.first or served.moved
        self.purse.till.count_round(terms, done)
        return done

    async def _committed(self, served: Served, done: Round, seconds: float, emit: Emit) -> None:
        drafted = len(done.draft.leaves) if done.draft else 0
        verdict = done.verdict.verdict
        last = done.verdict.leaves[-1]
        reached = verdict.k + (not last.accepted and verdict.k < drafted)
        self.node.metrics.round(drafted, verdict.k, reached, verdict.emitted)
        await emit(
            {
                "type": "round",
                "session": served.terms.order.session_id.hex(),
                "round": verdict.round,
                "window": drafted,
                "accepted": verdict.k,
                "tokens": list(done.verdict.tokens),
                "ms": round(seconds * 1e3, 2),
            }
        )
