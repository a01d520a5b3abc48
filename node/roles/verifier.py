"""The verifier: runs the target over each window, signs one verdict a round, streams it.

A session is one task. It takes the newest draft frame of the current base, or none when the
window is 0, the drafter is late, or (strict modes) gone for the moment; asks the engine; writes
verdict, leaves and salts to the journal in one commit; and only then lets them be seen. Subscribers
(the drafter's channel, the client's stream) read committed rounds at their own pace, so a slow
reader stalls nobody, and a reader that comes back gets the same bytes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from time import perf_counter
from typing import Final

import trio

from node.inference import window
from node.inference.proposal import ProposalError, VerifyOutcome
from node.inference.worker import HEAD_START
from node.journal import StoredRound
from node.network import exchange
from node.network.errors import Refused
from node.network.messages import (
    Kind,
    PromptDelivery,
)
from node.roles import convert
from node.roles.accusations import accuse, accuse_twice
from node.roles.frames import DraftFrame, Round, VerdictFrame
from node.roles.party import Live
from node.roles.places import held_up
from node.roles.ports import Node, TargetEngine
from node.roles.refusals import No
from node.roles.running import TRIAL_SECONDS, Drafted, Running, Trial, WindowPolicy, compared
from node.roles.session import SessionFault, StaleFrame, advance, check_draft, window_limit
from node.roles.stored import Private, stored_round
from node.roles.verdict_lines import VerdictLines
from settlement import coins
from settlement.hashing import ZERO32
from settlement.records import Lane, Mode, Order

#: Rounds without drafts that are begun before the one under way is signed and journalled. Such as
#: share a pass take less time than their records.
FORESEEN: Final = 4
MAX_LATE: Final = 3  # windows in a row that came too late before the drafter counts as gone


class VerifierRole(VerdictLines):
    """Serves sessions on `engine`. Run `run` in a nursery; requests are served from then on."""

    def __init__(
        self,
        node: Node,
        engine: TargetEngine,
        models: frozenset[bytes],
        make_window: Callable[[Order], WindowPolicy],
        check_prompt: Callable[[Order, PromptDelivery], None],
    ) -> None:
        """
        Args:
            models: model ids of the target that the engine runs.
            make_window: makes the window policy of a session.
            check_prompt: raises ValueError for a prompt, stop set or parameter that the engine
                would refuse (outside the vocabulary, past the context).
        """
        self.engine = engine
        self.models = models
        self.make_window = make_window
        self.check_prompt = check_prompt
        self.running: dict[bytes, Running] = {}  # by session id
        self._nursery: trio.Nursery | None = None
        super().__init__(node, "verifier")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; sessions left open by an earlier run go on."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.serve()
            transport = self.node.transport
            exchange.serve(transport, Kind.RESUME, self.on_resume)
            exchange.serve_channel(transport, Kind.SESSION, self.on_drafter)
            exchange.serve_channel(transport, Kind.STREAM, self.on_client)
            for live in list(self.sessions.values()):
                await self.begin(live)
            task_status.started()
            await trio.sleep_forever()

    # ------------------------------------------------------------ Party's questions

    def price(self, order: Order) -> tuple[int, int]:
        return order.price_output, self.node.prices.output

    def check_models(self, order: Order, delivery: PromptDelivery) -> None:
        if order.target_model not in self.models:
            raise Refused(No.ORDER, f"target 0x{order.target_model.hex()} does not run here")
        most = Fraction(self.node.limits.accepted_price) * max(order.price_output, 1)
        if order.price_accepted > most:
            raise Refused(
                No.ORDER,
                f"priceAccepted is {order.price_accepted}, at most {int(most)}: this verifier's "
                "stake is locked for the drafter's pay too",
            )
        try:
            self.check_prompt(order, delivery)
        except ValueError as error:
            raise Refused(No.ORDER, str(error)) from error

    async def begin(self, live: Live) -> None:
        terms, order = live.terms, live.terms.order
        values: tuple[bytes, ...] = ()
        if order.mode == Mode.REJECTION and not live.state.stopped:
            values = self.chain_of(order)
        before = self.running.get(order.parent_session)
        if before is not None and before.live.terms.order.client == order.client:
            before.blocked = before.blocked or (No.LEFT, "the client has handed over")
            before.scope.cancel()
        running = Running(live, self.make_window(order), values)
        running.rounds = [
            stored_round(row.draft, row.verdict)
            for row in self.node.journal.rounds(terms.start_hash)
        ]
        running.ended = live.state.stopped
        self.running[order.session_id] = running
        assert self._nursery is not None
        if not running.ended:
            self._nursery.start_soon(self._session, running)

    def retire(self, session_id: bytes) -> None:
        super().retire(session_id)
        del self.running[session_id]

    def waiting(self, live: Live) -> float:
        running = self.running.get(live.terms.order.session_id)
        if running is None or running.at_work:
            return 0.0
        now = trio.current_time() - running.entered
        return held_up(now, running.waited, len(live.state.tokens))

    def give_up(self, live: Live, reason: str) -> None:
        running = self.running[live.terms.order.session_id]
        self._end(running, *(running.blocked or (No.LEFT, reason)))
        self.till.end_session(live.terms)
        running.scope.cancel()

    def voucher_signed(self, lane: Lane) -> None:
        for running in self.running.values():
            if running.live.terms.order.lane == lane:
                running.notify()

    # ------------------------------------------------------------ one session

    async def _session(self, running: Running) -> None:
        """Runs the session to its end: the output's, its deadline's, or that of this node's
        patience with parties that do not draft or pay. What ends here frees its place."""
        live = running.live
        log = self.node.log.bind(session=live.terms.order.session_id.hex()[:12])
        self._unblock(running)
        try:
            with running.scope:
                await self._rounds(running)
            if running.scope.cancelled_caught:
                self._end(running, *(running.blocked or self._run_out(live)))
        except ValueError as error:
            log.error("the engine refuses the session", reason=str(error))
            self._end(running, No.FAILED, str(error))
        except Exception:
            # One session's failure (out of memory, a fault of ours) must not end the others.
            log.exception("session failed")
            self._end(running, No.FAILED, "the verifier failed; continue with another")
        finally:
            self.till.end_session(live.terms)
            running.ended = live.state.stopped
            running.notify()

    async def _rounds(self, running: Running) -> None:
        live, order = running.live, running.live.terms.order
        time, at = self.node.metrics.time, perf_counter()
        handle = await self.engine.open(
            order.session_id,
            order,
            live.terms.seed,
            live.delivery.prompt,
            live.delivery.stops,
            live.delivery.output + live.state.tokens,
        )
        time("prompt", perf_counter() - at)
        try:
            while not live.state.stopped:
                at = perf_counter()
                self._await_others(running)
                await self._paid(running)
                started = perf_counter()
                time("payment", started - at)
                running.held_up = started - at
                drafted = await self._draft(running)
                waited = perf_counter() - started
                time("draft_wait", waited)
                if drafted is not None:
                    drafted = replace(drafted, waited=waited)
                self._work(running)
                await self._round(running, handle, drafted)
                self._compare_trial(running)
                time("round", perf_counter() - started)
        finally:
            with trio.CancelScope(shield=True):
                await self.engine.close(handle)

    def _run_out(self, live: Live) -> tuple[No, str]:
        """Why a session's time is up of which nothing else is known."""
        if self.node.clock() >= live.terms.order.deadline:
            return No.ORDER, "the order's deadline has passed"
        return No.LEFT, "no draft has come that fits"

    def _await_others(self, running: Running) -> None:
        """From here on others can hold the round up: what they send that leads to no round buys
        them no more time."""
        limits, now = self.node.limits, trio.current_time()
        if running.awaited != running.live.state.round:
            running.awaited, running.since = running.live.state.round, now
        running.patience = running.since + 2 * (limits.round_seconds + limits.resume_seconds)
        if running.at_work:
            running.at_work, running.entered = False, now
        running.scope.deadline = min(running.scope.deadline, running.patience)

    def _work(self, running: Running) -> None:
        """All is there for the round: its pass may take as long as it takes."""
        running.waited += trio.current_time() - running.entered
        running.at_work, running.patience = True, math.inf
        if running.blocked is None:
            self._unblock(running)

    def _block(self, running: Running, code: No, reason: str) -> None:
        """No round can be made now. Whoever holds it up has as long again as it had before."""
        limits = self.node.limits
        if running.blocked is None:
            patience = trio.current_time() + limits.round_seconds + limits.resume_seconds
            running.scope.deadline = min(running.scope.deadline, patience)
        running.blocked = (code, reason)
        running.trial = None  # the drafter is told of all rounds now
        running.notify()

    def _unblock(self, running: Running) -> None:
        running.blocked = None
        left = running.live.terms.order.deadline - self.node.clock()
        running.scope.deadline = min(trio.current_time() + left, running.patience)

    def _end(self, running: Running, code: No, reason: str) -> None:
        """Ends the session before its output has."""
        live = running.live
        running.blocked = (code, reason)
        if not live.state.stopped:
            live.state = replace(live.state, stopped=True)
            self.node.journal.set_session_state(live.terms.start_hash, "closed")

    async def _paid(self, running: Running) -> None:
        """Waits until the lane may owe another round."""
        terms = running.live.terms
        while (why := await self.must_stop(terms)) is not None:
            changed = running.changed
            if running.blocked != why:
                self._block(running, *why)
                changed = running.changed
            # The reserve may grow without a word to this node.
            with trio.move_on_after(1.0):
                await changed.wait()
        if running.blocked and running.blocked[0] in (No.UNPAID, No.RESERVE, No.CHAIN):
            self._unblock(running)
        self.till.begin_round(terms)

    async def _draft(self, running: Running) -> Drafted | None:
        """The drafter's frame for the current base, or None for a round without drafts.

        In rejection mode the announced window must come, so a missing drafter blocks the session
        until it is back or the client hands over.
        """
        terms, state = running.live.terms, running.live.state
        must = terms.order.mode == Mode.REJECTION
        k = min(state.announced, window_limit(terms.order, state.position))
        if k == 0 or running.foreseen >= state.position:  # its pass was begun: it was a trial
            return None
        if running.trial is not None:
            running.drop_trial()  # the drafter must see what it is asked to go on from
        patience = self.node.limits.round_seconds
        while True:
            drafted = self._take_inbox(running)
            if drafted is not None and (drafted.frame is not None or not must):
                running.late = 0
                self._unblock(running)
                return drafted
            if running.drafter_channels == 0:
                await self._await_drafter(running)
                continue
            with trio.move_on_after(patience) as waited:
                await running.changed.wait()
            if waited.cancelled_caught:
                self.node.metrics.count("late_drafts")
                running.late += 1
                if must or running.late > MAX_LATE:
                    self._block(running, No.LEFT, "the drafter does not draft")
                    await running.changed.wait()
                    continue
                return None

    async def _await_drafter(self, running: Running) -> None:
        """Waits for the drafter's channel; past the limit the client is told."""
        with trio.move_on_after(self.node.limits.resume_seconds):
            while running.drafter_channels == 0:
                await running.changed.wait()
        if running.drafter_channels:
            return
        self._block(running, No.LEFT, "the drafter is gone")
        while running.drafter_channels == 0:
            await running.changed.wait()
        self._unblock(running)

    def _take_inbox(self, running: Running) -> Drafted | None:
        """The newest frame if it is about the current base and keeps every rule."""
        while running.inbox:
            drafted = running.inbox.pop()
            if drafted.round != running.live.state.round:
                self.node.metrics.count("stale_drafts")
                # It may have come while another window of its round was being verified.
                if drafted.frame is not None:
                    accuse_twice(self.node, running.live.terms, drafted.frame, b"")
                continue
            if drafted.frame is None:
                return drafted
            try:
                check_draft(running.live.terms, running.live.state, drafted.frame)
                return drafted
            except StaleFrame:
                self.node.metrics.count("stale_drafts")
            except SessionFault as fault:
                self.node.metrics.count("refused_drafts")
                self.node.log.warning("draft refused", rule=fault.rule)
                accuse(self.node, running.live.terms, drafted.frame, None)
                self._block(running, No.LEFT, f"the drafter broke a rule: {fault.rule}")
        return None

    async def _round(self, running: Running, handle: object, drafted: Drafted | None) -> None:
        """One target pass, one verdict, one commit, then everybody may see it."""
        live = running.live
        state, frame = live.state, drafted.frame if drafted else None
        value = coins.round_value(running.values, state.round) if running.values else ZERO32
        at = perf_counter()
        if frame is None:
            for further in range(1, FORESEEN + 1):
                if not self._foresee(running, handle, state.position + further):
                    break
        try:
            draft = convert.engine_draft(frame, state.position)
            outcome = await self.engine.verify(handle, draft, value)
        except ProposalError as error:
            # Well signed, but no draft: a token outside the vocabulary, say.
            self.node.metrics.count("refused_drafts")
            self._block(running, No.LEFT, f"the drafter broke a rule: {error}")
            return
        verified = perf_counter()
        self.node.metrics.time("queue", max(0.0, verified - at - outcome.seconds))
        self._observe(running, drafted, outcome, self._besides(running, verified, outcome))
        next_k = 0
        if outcome.stop is None:
            position = state.position + len(outcome.emitted)
            if running.foreseen < position:
                if self._foresee(running, handle, position):
                    # What follows holds Python's lock, and a pass still on its way to the worker's
                    # thread would wait for it. The round that is made already is committed anyway.
                    with trio.CancelScope(shield=True):
                        await trio.sleep(HEAD_START)
                else:
                    next_k, _ = self._next_k(running, position)
            if running.wished[0] == position:
                next_k = running.wished[1]
                running.trial = Trial(state.round + 1, position, next_k, trio.current_time())
        running.rounds.append(self._commit(running, frame, outcome, value, next_k))
        now = trio.current_time()
        running.committed, running.took = now, now - running.committed
        self.node.metrics.time("commit", perf_counter() - verified)
        running.ended = live.state.stopped
        running.notify()

    def _foresee(self, running: Running, handle: object, position: int) -> bool:
        """Where no draft will be asked for the round at `position`, lets its pass begin as soon as
        the one under way is over: the round before is not yet signed and journalled then. Nobody
        sees of it before its own commit; a session that ends first, or is not paid for, has cost
        these passes in vain. Whether it is, or was, let begin."""
        order = running.live.terms.order
        if running.foreseen >= position:
            return True
        if running.values or position >= order.max_tokens:
            return False
        k, waits = self._next_k(running, position)
        if waits:
            return False
        if k:
            running.wished = (position, k)
        running.foreseen = position
        self.engine.foresee(handle, convert.engine_draft(None, position))
        return True

    def _besides(self, running: Running, now: float, outcome: VerifyOutcome) -> float | None:
        """What the round took beside its pass, unless a client held it up: signing, keeping,
        sending, and waiting for a draft. None where it is not known."""
        before, running.turned = running.turned, now
        if before is None:
            return None
        return max(0.0, now - before - running.held_up - outcome.seconds)

    def _observe(
        self,
        running: Running,
        drafted: Drafted | None,
        outcome: VerifyOutcome,
        besides: float | None,
    ) -> None:
        """Counts and timings, and what the next window is chosen from."""
        asked, reading = 0, 0.0
        if drafted is not None:
            # Right behind a window there is nothing else to read, whatever it says.
            last = running.rounds[-1] if running.rounds else None
            reading = drafted.reading if last is None or last.draft is None else 0.0
            # Of the wait, what the drafter did not need for drafting.
            hidden = min(drafted.waited, drafted.seconds + reading)
            besides = max(drafted.waited if besides is None else besides, drafted.waited) - hidden
            asked = running.live.state.announced
            if drafted.frame is None:
                drafted = None  # it had no guess, which took as long to say
        count = len(drafted.frame.leaves) if drafted and drafted.frame else 0
        reached = outcome.accepted + outcome.rejected
        self.node.metrics.round(count, outcome.accepted, reached, len(outcome.emitted))
        self.node.metrics.time("prompt" if outcome.prompt_rows else "verify", outcome.seconds)
        size = len(drafted.frame.to_wire()) if drafted and drafted.frame else 0
        self.node.metrics.count("spec_decode_draft_bytes", size)
        running.window.observe(
            window.Round(
                drafts=count,
                accepted=outcome.accepted,
                rejected=outcome.rejected,
                draft_seconds=drafted.seconds if drafted else 0.0,
                reading_seconds=reading if drafted else 0.0,
                drafted=drafted.made if drafted else 0,
                verify_seconds=None if outcome.prompt_rows else outcome.seconds,
                network_seconds=besides,
                bytes=size,
                rows=outcome.rows,
                asked=asked,
            )
        )

    def _next_k(self, running: Running, position: int) -> tuple[int, bool]:
        """Drafts to ask for in the next round: what the policy says, within what this node insists
        on; and whether the round waits for them. One that does not is a trial, of which there is
        one at a time."""
        order = running.live.terms.order
        remaining = order.max_tokens - position
        least = min(self.node.limits.min_window, order.max_window, remaining - 1)
        wanted = 0 if self._drafter_reads(running) else running.window.choose(remaining)
        k = min(max(wanted, least), order.max_window)
        # In relaxed mode more is accepted than is the same.
        strict = not running.values and not order.relax_tau
        if not strict or least > 0 or not running.window.trying:
            return k, k > 0
        busy = running.trial is not None or running.wished[0] > running.live.state.position
        return 0 if busy else k, False

    def _compare_trial(self, running: Running) -> None:
        """Compares a trial's window with the text, once that has come as far, and tells the policy.
        A drafter that is slow to answer is no use, and not waited for in vain."""
        trial, live = running.trial, running.live
        if trial is None:
            return
        drafted = trial.drafted
        if drafted is None:
            if trio.current_time() - trial.asked > TRIAL_SECONDS:
                self.node.metrics.count("late_drafts")
                running.drop_trial()
            return
        leaves = drafted.frame.leaves[: trial.k] if drafted.frame else ()
        tokens = [leaf.token for leaf in leaves]
        text = live.state.tokens[trial.base - live.terms.order.start_position :]
        accepted, rejected = compared(tokens, text)
        if not rejected and len(text) < len(tokens) and not live.state.stopped:
            return
        running.trial = None
        size = len(drafted.frame.to_wire()) if drafted.frame else 0
        self.node.metrics.count("trial_drafts", len(tokens))
        self.node.metrics.count("trial_drafts_right", accepted)
        running.window.compare(
            window.Round(
                drafts=len(tokens),
                accepted=accepted,
                rejected=rejected,
                draft_seconds=drafted.seconds,
                reading_seconds=drafted.reading,
                drafted=drafted.made if tokens else 0,
                network_seconds=max(0.0, trial.seconds - drafted.seconds - drafted.reading),
                bytes=size,
                asked=len(tokens) or 1,
            )
        )

    def _drafter_reads(self, running: Running) -> bool:
        """Whether the drafter has not come yet, for it is still at the prompt: a round that waits
        for its first window would stand still meanwhile. Not for ever, and not in rejection mode,
        where the window is not this node's alone to choose."""
        if running.drafter_seen or running.values:
            return False
        return trio.current_time() - running.began < self.node.limits.resume_seconds

    def _commit(
        self,
        running: Running,
        frame: DraftFrame | None,
        outcome: VerifyOutcome,
        value: bytes,
        next_k: int,
    ) -> Round:
        """Signs and journals the round; the journal's slot makes it the only one."""
        live, node = running.live, self.node
        terms, state = live.terms, live.state
        at = perf_counter()
        salts = [node.entropy(32) for _ in outcome.emitted]
        leaves = convert.verdict_leaves(outcome, salts)
        ended = outcome.stop is not None
        record = convert.verdict(terms, state, frame, leaves, value, next_k)
        node.metrics.time("hash", perf_counter() - at)
        slot = f"verdict:{terms.start_hash.hex()}:{state.round}"
        with node.journal.batch("verdict"):
            at = perf_counter()
            signature = node.journal.sign_once(slot, record, node.domain, node.key)
            node.metrics.time("sign", perf_counter() - at)
            done = Round(frame, VerdictFrame(record, signature, leaves))
            wire = done.verdict.to_wire()
            node.metrics.count("spec_decode_verdict_bytes", len(wire))
            node.journal.put_round(
                StoredRound(
                    terms.start_hash,
                    state.round,
                    None if frame is None else frame.to_wire(),
                    wire,
                    Private(tuple(salts), outcome.fingerprints).to_wire(),
                )
            )
            if ended:
                node.journal.set_session_state(terms.start_hash, "closed")
            at = perf_counter()
        node.metrics.time("journal", perf_counter() - at)
        live.state = advance(terms, state, done, stop_string=ended)
        self.till.count_round(terms, done)
        return done
