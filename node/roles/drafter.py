"""The drafter: proposes a window a round, signed before the verifier sees it, and drafts on.

One task per session, one line to the verifier. The signed frame is journalled with its leaves
before it is sent, under the round's and context's slot, so a restart sends the same bytes and a
second window for the same place is never signed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Final

import trio

from node.inference.proposal import Draft, DraftCoin
from node.journal import SlotTaken, StoredRound
from node.network import exchange
from node.network.codec import Message
from node.network.errors import NetworkError, PeerClosed, Refused
from node.network.exchange import MessageChannel
from node.network.messages import (
    DraftRound,
    Kind,
    Notice,
    PromptDelivery,
    VerdictRound,
)
from node.network.messages import (
    SessionState as StateMessage,
)
from node.roles import convert
from node.roles.accusations import accuse, accuse_twice
from node.roles.frames import DraftFrame, FrameError, Round, VerdictFrame
from node.roles.party import Live, Party
from node.roles.places import held_up
from node.roles.ports import DraftEngine, Node
from node.roles.refusals import No
from node.roles.session import SessionFault, StaleFrame, advance, check_verdict, window_limit
from settlement import coins
from settlement.hashing import ZERO32
from settlement.records import NO_TOKEN, DraftCommit, DraftLeaf, Lane, Mode, Order

BACKOFF_FIRST: Final = 0.1
BACKOFF_MOST: Final = 2.0


def no_claim(order: Order) -> None:
    """Of a drafter that serves under no α claim."""
    if order.claim_id != ZERO32:
        raise ValueError(f"claim 0x{order.claim_id.hex()} is not one that drafts are made under")


class DrafterRole(Party):
    """Drafts with `engine` for orders whose draft model is one of `models` (zero: none, n-gram)
    and whose target it shares a tokenizer with."""

    def __init__(
        self,
        node: Node,
        engine: DraftEngine,
        models: frozenset[bytes],
        targets: frozenset[bytes],
        check_claim: Callable[[Order], None] = no_claim,
    ) -> None:
        """
        Args:
            check_claim: raises ValueError for an order under an α claim that does not cover it:
                its counts would be held against a promise that was never made for them.
        """
        self.engine = engine
        self.models = models
        self.targets = targets
        self.check_claim = check_claim
        self._nursery: trio.Nursery | None = None
        self._moved: dict[bytes, float] = {}  # start hash → when its last round came, or it began
        self._waited: dict[bytes, float] = {}  # start hash → seconds that its rounds took to come
        self._scopes: dict[bytes, trio.CancelScope] = {}  # start hash → around its task
        self._waiting: dict[bytes, set[trio.CancelScope]] = {}  # by lane id: for a voucher
        super().__init__(node, "drafter")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; sessions left open by an earlier run go on."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.serve()
            for live in list(self.sessions.values()):
                await self.begin(live)
            task_status.started()
            await trio.sleep_forever()

    # ------------------------------------------------------------ Party's questions

    def price(self, order: Order) -> tuple[int, int]:
        return order.price_accepted, self.node.prices.accepted

    def check_models(self, order: Order, delivery: PromptDelivery) -> None:
        if order.draft_model not in self.models:
            raise Refused(No.ORDER, f"draft 0x{order.draft_model.hex()} does not run here")
        if order.target_model not in self.targets:
            raise Refused(
                No.ORDER,
                f"target 0x{order.target_model.hex()} has another tokenizer, or is unknown",
            )
        try:
            self.check_claim(order)
        except ValueError as error:
            raise Refused(No.ORDER, str(error)) from error

    async def begin(self, live: Live) -> None:
        assert self._nursery is not None
        if not live.state.stopped:
            self._scopes[live.terms.start_hash] = trio.CancelScope()
            self._nursery.start_soon(self._session, live)

    def waiting(self, live: Live) -> float:
        start_hash = live.terms.start_hash
        return held_up(self._since(live), self._waited.get(start_hash, 0.0), len(live.state.tokens))

    def _since(self, live: Live) -> float:
        """Seconds since its last round came, or it began here."""
        now = trio.current_time()
        return now - self._moved.get(live.terms.start_hash, now)

    def give_up(self, live: Live, reason: str) -> None:
        self.node.log.info("session given up", reason=reason)
        self._end(live)
        self.till.end_session(live.terms)
        if (scope := self._scopes.get(live.terms.start_hash)) is not None:
            scope.cancel()

    def voucher_signed(self, lane: Lane) -> None:
        for scope in self._waiting.get(lane.id, ()):
            scope.cancel()

    # ------------------------------------------------------------ one session

    async def _session(self, live: Live) -> None:
        """Runs until it ends, or is given up."""
        try:
            with self._scopes[live.terms.start_hash]:
                await self._keep_line(live)
        finally:
            del self._scopes[live.terms.start_hash]

    async def _keep_line(self, live: Live) -> None:
        """Keeps a line to the verifier until the output ends or the order's deadline passes."""
        terms = live.terms
        order, log = terms.order, self.node.log.bind(session=terms.order.session_id.hex()[:12])
        values: tuple[bytes, ...] = ()
        handle = None
        pause = BACKOFF_FIRST
        try:
            if order.mode == Mode.REJECTION:
                values = self.chain_of(order)
            output = live.delivery.output + live.state.tokens
            handle = await self.engine.open(order, terms.seed, live.delivery.prompt, output)
            self._moved[terms.start_hash] = trio.current_time()
            while not live.state.stopped and self._hopeful(live):
                try:
                    line = await exchange.open_channel(
                        self.node.transport,
                        order.verifier,
                        Kind.SESSION,
                        deadline=self.node.limits.resume_seconds,
                    )
                    pause = BACKOFF_FIRST
                    try:
                        await self._draft_along(live, handle, line, values)
                    finally:
                        line.close()
                except NetworkError as error:
                    log.debug("line to the verifier lost", reason=str(error))
                if not live.state.stopped:
                    await trio.sleep(pause)
                    pause = min(2 * pause, BACKOFF_MOST)
            self._end(live)
        except SessionFault as fault:
            log.warning("leaving the session", guilty=fault.guilty, rule=fault.rule)
            self.node.metrics.count("faults_seen")
            self._end(live)
        except Exception:
            # One session's failure must not end the others.
            log.exception("session failed")
            self._end(live)
        finally:
            # Not closed in the journal when merely cancelled: a restart takes the session up again.
            self._moved.pop(terms.start_hash, None)
            self._waited.pop(terms.start_hash, None)
            self.till.end_session(terms)
            if handle is not None:
                with trio.CancelScope(shield=True):
                    await self.engine.close(handle)

    def _hopeful(self, live: Live) -> bool:
        """Whether the session may still come to something: its deadline has not passed, and its
        last round, or its beginning here, is not too long ago."""
        limits = self.node.limits
        patience = 2 * (limits.round_seconds + limits.resume_seconds)
        return self.node.clock() < live.terms.order.deadline and self._since(live) < patience

    def _end(self, live: Live) -> None:
        live.state = replace(live.state, stopped=True)
        self.node.journal.set_session_state(live.terms.start_hash, "closed")

    async def _draft_along(
        self, live: Live, handle: object, line: MessageChannel, values: tuple[bytes, ...]
    ) -> None:
        """Drafts and takes verdicts on one line until it ends. Raises NetworkError when it breaks,
        SessionFault when the verifier breaks a rule."""
        terms = live.terms
        await line.send(
            StateMessage(
                session_id=terms.order.session_id,
                start_hash=terms.start_hash,
                rounds=live.state.round,
                position=live.state.position,
                context_hash=live.state.context,
                ended=False,
            )
        )
        sent: DraftFrame | None = None
        asked = -1  # the last round that a window, or none, was sent for
        while not live.state.stopped:
            if asked != live.state.round and await self.must_stop(terms) is None:
                asked = live.state.round
                self.till.begin_round(terms)
                sent = await self._send_window(live, handle, line, values)
            message = await self._receive(live, line, unpaid=asked != live.state.round)
            if message is None:
                if not self._hopeful(live):
                    return
                continue
            if isinstance(message, VerdictRound):
                await self._take_verdict(live, handle, sent, message)
            elif isinstance(message, StateMessage) and message.ended:
                if message.rounds > live.state.round:
                    raise PeerClosed(line.peer, "the last verdicts were lost on the way")
                # The verifier saw a stop string, which only it and the client look for.
                live.state = replace(live.state, stopped=True)
            elif isinstance(message, Notice) and message.code == No.UNKNOWN:
                raise PeerClosed(line.peer, message.reason)

    async def _receive(self, live: Live, line: MessageChannel, *, unpaid: bool) -> Message | None:
        """The verifier's next message. None, when no window was sent because the lane owes too
        much, as soon as that may have changed. PeerClosed when nothing comes for a window sent."""
        if not unpaid:
            with trio.move_on_after(self.node.limits.round_seconds):
                return await line.receive()
            # A frame may have been lost on the way: attach again and see what was committed.
            raise PeerClosed(line.peer, "no verdict")
        waiting = self._waiting.setdefault(live.terms.order.lane.id, set())
        with trio.move_on_after(1.0) as scope:  # the reserve may grow without a word to this node
            waiting.add(scope)
            try:
                return await line.receive()
            finally:
                waiting.discard(scope)
        return None

    async def _send_window(
        self, live: Live, handle: object, line: MessageChannel, values: tuple[bytes, ...]
    ) -> DraftFrame | None:
        """Signs, journals and sends this round's window; None when it has no drafts."""
        terms, state, node = live.terms, live.state, self.node
        order = terms.order
        k = min(state.announced, window_limit(order, state.position))
        if order.mode != Mode.REJECTION:
            k = min(k, node.limits.max_window)
        if k == 0:
            return None
        slot = f"draft:{terms.start_hash.hex()}:{state.round}:{state.context.hex()}"
        stored = node.journal.secret(slot)
        if stored is not None:
            frame = DraftFrame.from_wire(stored)
            await line.send(DraftRound(state.round, stored))
            return frame
        value = coins.round_value(values, state.round) if values else ZERO32
        coin = DraftCoin(value, state.context) if values else None
        draft = await self.engine.propose(handle, k, coin)
        if not draft.tokens:
            await line.send(DraftRound(state.round, b""))
            return None
        at = perf_counter()
        leaves = convert.draft_leaves(terms, draft)
        commit = convert.draft_commit(terms, state, leaves, value)
        node.metrics.time("hash", perf_counter() - at)
        frame = self._journalled(slot, commit, leaves, draft)
        node.metrics.time("draft", draft.seconds)
        wire = frame.to_wire()
        node.metrics.count("spec_decode_draft_bytes", len(wire))
        await line.send(
            DraftRound(
                state.round,
                wire,
                min(draft.made, 65535),
                _microseconds(draft.seconds),
                _microseconds(draft.reading),
            )
        )
        await self.engine.draft_ahead(handle, len(leaves) + 1)
        return frame

    def _journalled(
        self, slot: str, commit: DraftCommit, leaves: tuple[DraftLeaf, ...], draft: Draft
    ) -> DraftFrame:
        """Signs the commitment and keeps the whole frame, in one commit."""
        node = self.node
        at = perf_counter()
        with node.journal.batch("draft"):
            try:
                signature = node.journal.sign_once(slot, commit, node.domain, node.key)
            except SlotTaken as error:
                raise SessionFault("drafter", "this round's window is signed already") from error
            node.metrics.time("sign", perf_counter() - at)
            frame = DraftFrame(commit, signature, leaves, draft.kept, draft.tops)
            node.journal.secret_once(slot, frame.to_wire)
            at = perf_counter()
        node.metrics.time("journal", perf_counter() - at)
        return frame

    async def _take_verdict(
        self, live: Live, handle: object, sent: DraftFrame | None, message: VerdictRound
    ) -> None:
        """Checks a verdict against what was sent, and moves on by it."""
        terms, state = live.terms, live.state
        try:
            frame = VerdictFrame.from_wire(message.frame)
        except FrameError as error:
            self.node.metrics.count("malformed")
            raise PeerClosed(terms.order.verifier, f"a malformed verdict: {error}") from error
        if frame.verdict.round > state.round:
            raise PeerClosed(terms.order.verifier, "a verdict was lost on the way")
        # A window that came too late is not in the round: the verdict then names no draft.
        draft = None if frame.verdict.draft_commit_hash == ZERO32 else sent
        if draft is None and frame.verdict.draft_commit_hash != ZERO32:
            draft = self._sent_before(live)
        at = perf_counter()
        try:
            check_verdict(terms, state, draft, frame)
        except StaleFrame:
            accuse_twice(self.node, terms, None, message.frame)
            return
        except SessionFault:
            accuse(self.node, terms, draft, frame)
            raise
        self.node.metrics.time("check", perf_counter() - at)
        done = Round(draft, frame)
        self.node.journal.put_round(
            StoredRound(
                terms.start_hash,
                state.round,
                None if draft is None else draft.to_wire(),
                message.frame,
                b"",
            )
        )
        live.state = advance(terms, state, done)
        waited = self._waited.get(terms.start_hash, 0.0) + self._since(live)
        self._waited[terms.start_hash] = waited
        self._moved[terms.start_hash] = trio.current_time()
        self.till.count_round(terms, done)
        last = frame.leaves[-1]
        reached = frame.verdict.k + (last.draft_token != NO_TOKEN and not last.accepted)
        self.node.metrics.round(
            len(draft.leaves) if draft else 0, frame.verdict.k, reached, len(frame.leaves)
        )
        await self.engine.commit(handle, frame.tokens)

    def _sent_before(self, live: Live) -> DraftFrame | None:
        """The window of the current round from before a restart."""
        slot = f"draft:{live.terms.start_hash.hex()}:{live.state.round}:{live.state.context.hex()}"
        stored = self.node.journal.secret(slot)
        return None if stored is None else DraftFrame.from_wire(stored)


def _microseconds(seconds: float) -> int:
    """As a message says it, at most 71 minutes."""
    return min(int(seconds * 1e6), 0xFFFFFFFF)
