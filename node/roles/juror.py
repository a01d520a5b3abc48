"""The juror: is drawn for a case, fetches its session, runs the model again, journals an answer.

What it computes goes into the journal with its salt, once, before anything is committed on chain;
the node's watcher (`settlement.panel_watch`) commits and reveals what is journalled. So a juror
that is killed anywhere reveals the answer that it has committed to, and never gives a second one.

A session that nobody delivers is answered as withheld when the time to commit runs out, and not
before: the accused has that long. So is a question about a draft model that this node does not
have, or about drafts of a mode that commits to no distribution: against D that convicts nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import trio

from node.network.errors import NetworkError, Refused
from node.roles.answering import NotThere
from node.roles.deadlines import finish_by, passed
from node.roles.delivery import Broken, Delivered, Undelivered, fetch_judged
from node.roles.parcels import Parcel
from node.roles.ports import Node
from node.roles.rerun import Case, OtherModel
from node.roles.suspicions import answer_name, wire_of
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel_standing import JuryView, PanelCase, PanelStanding, fold_panel
from settlement.chain.standing import Standing, fold
from settlement.panel_watch import Sealed
from settlement.panels import Answer

PAUSE: Final = 1.0  # seconds between attempts to be given a session


class JuryEngine(Protocol):
    """Runs the target over one session, up to one token; or its draft model over one window.
    Raises OtherModel for models that it does not have."""

    async def answer(self, case: Case, index: int, within: int) -> Answer: ...

    async def answer_draft(self, case: Case, index: int, within: int) -> Answer: ...


class JuryBoard:
    """Who judges what, from the confirmed events; worked out again only when those have changed."""

    def __init__(self, events: Callable[[], Sequence[ChainEvent]]) -> None:
        self._events = events
        self._seen: tuple[Sequence[ChainEvent], int] | None = None
        self._panel, self._accounts = PanelStanding(), Standing()

    def standing(self) -> PanelStanding:
        events = self._events()
        # A reorganisation replaces the list: another object, kept alive here, is another history.
        if self._seen is None or self._seen[0] is not events or self._seen[1] != len(events):
            self._panel, self._accounts = fold_panel(events), fold(events)
            self._seen = (events, len(events))
        return self._panel

    def keys_of(self, key: bytes) -> frozenset[bytes]:
        """All keys so far of the account that `key` belongs to."""
        self.standing()
        return self._accounts.keys_of(key)

    def judges(self, peer: bytes, start_hash: bytes, root: bytes) -> bool:
        """Whether the peer sits on a jury whose case is about that session under that root, and
        may read it: consent to that is in every order."""
        return any(
            case.subject.start_hash == start_hash and case.subject.root == root
            for case, _, _ in self.standing().sitting(self.keys_of(peer))
        )

    def case_of(self, peer: bytes, case_id: int) -> PanelCase | None:
        """The case, if the peer sits on its jury."""
        for case, _, _ in self.standing().sitting(self.keys_of(peer)):
            if case.id == case_id:
                return case
        return None


class JurorRole:
    """Answers on `engine` whatever this node is drawn for. `look` is to be called when the chain
    has moved.

    Args:
        chain_time: unix seconds by the chain's own clock, which deadlines are counted by.
        canaries: what a canary shows (`tickets.CanaryReader`).
    """

    def __init__(
        self,
        node: Node,
        board: JuryBoard,
        engine: JuryEngine,
        chain_time: Callable[[], Awaitable[int]],
        *,
        canaries: Callable[[PanelCase], Awaitable[Parcel]] | None = None,
        pause: float = PAUSE,
    ) -> None:
        self.node, self.board, self.engine = node, board, engine
        self._chain_time, self._canaries, self._pause = chain_time, canaries, pause
        self._begun: set[str] = set()
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Judges until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.look()
            task_status.started()
            await trio.sleep_forever()

    def look(self) -> None:
        """Begins with every question to this node that has no answer yet."""
        assert self._nursery is not None
        for case, jury, _member in self._sitting():
            question = case.question(jury.id)
            if question in self._begun or self._answered(question):
                continue
            self._begun.add(question)
            self._nursery.start_soon(self._judge, case, jury)

    def _sitting(self) -> list[tuple[PanelCase, JuryView, bytes]]:
        mine = self.board.keys_of(self.node.address)
        return list(self.board.standing().sitting(mine))

    def _answered(self, question: str) -> bool:
        return self.node.journal.secret(answer_name(question)) is not None

    async def _judge(self, case: PanelCase, jury: JuryView) -> None:
        question = case.question(jury.id)
        log = self.node.log.bind(case=case.id, jury=jury.id)
        log.info("drawn for a jury", accused="0x" + case.accused.hex())
        try:
            answer = await self._answer(case, jury)
        except (OtherModel, NotThere) as error:
            log.error("cannot judge, and silence costs stake", reason=str(error))
            return
        except Exception:
            # One case's failure (out of memory, a fault of ours) must not end the others.
            log.exception("judging failed, and silence costs stake")
            self._begun.discard(question)  # the next look tries again
            return
        if answer is None:
            self._begun.discard(question)
            return
        salt = self.node.entropy(32)
        # Journalled before it is committed to: what is there already is what counts.
        self.node.journal.secret_once(answer_name(question), lambda: wire_of(Sealed(answer, salt)))
        self.node.metrics.count("jury_answers")
        log.info("judged", withheld=answer.withheld, margin=answer.margin)

    async def _answer(self, case: PanelCase, jury: JuryView) -> Answer | None:
        """The answer; None where the question is not this node's any more."""
        subject = case.subject
        question = case.question(jury.id)
        until = jury.summoned.commit_until - case.commit_span // 3
        sources = dict.fromkeys((subject.verifier, subject.drafter, subject.client, case.accuser))
        reason, able = "it is not delivered", case.of_target or case.of_draft
        if case.of_canary and self._canaries is not None:
            return await self._answer_canary(case, self._canaries, until)
        while True:
            if able:
                found = await finish_by(
                    *(until, self._chain_time, self._pause),
                    lambda: self._delivered(case, list(sources)),
                )
                delivered, reason = found or (None, reason)
                if delivered is not None:
                    terms = delivered.terms
                    run = Case(terms.order, terms.seed, delivered.delivery, delivered.rounds)
                    engine = self.engine
                    ask = engine.answer if case.of_target else engine.answer_draft
                    try:
                        return await ask(run, subject.round, subject.within)
                    except (OtherModel, NotThere) as error:
                        if case.of_target:
                            raise
                        able, reason = False, str(error)
            if await self._chain_time() >= until:
                self.node.log.warning("answered as withheld", case=case.id, reason=reason)
                return Answer(withheld=True)
            await trio.sleep(self._pause)
            if question not in {c.question(j.id) for c, j, _ in self._sitting()}:
                return None

    async def _answer_canary(
        self, case: PanelCase, canaries: Callable[[PanelCase], Awaitable[Parcel]], until: float
    ) -> Answer:
        """Of a text that nobody but its planter vouches for: withheld, whatever it does to hold
        this node up or to make it fail. That convicts nobody."""

        async def run() -> Answer:
            while True:
                try:
                    parcel = await canaries(case)
                    return await self.engine.answer(parcel.case, parcel.index, parcel.within)
                except (Undelivered, Refused, NetworkError) as error:
                    reasons.append(str(error))
                await trio.sleep(self._pause)

        reasons = ["it is not delivered"]
        try:
            answer = await finish_by(until, self._chain_time, self._pause, run)
            if answer is not None:
                return answer
        except Exception as error:
            if await passed(self._chain_time, until) or isinstance(error, (OtherModel, ValueError)):
                reasons.append(str(error))
            else:
                raise
        self.node.log.warning("answered as withheld", case=case.id, reason=reasons[-1])
        return Answer(withheld=True)

    async def _delivered(
        self, case: PanelCase, sources: list[bytes]
    ) -> tuple[Delivered | None, str]:
        """The session from whoever gives it; or why nobody did."""
        reason = ""
        for source in sources:
            if source == self.node.address:
                continue
            try:
                found = await fetch_judged(
                    self.node, case.id, case.subject, source, of_draft=case.of_draft
                )
                return found, ""
            except (Undelivered, Broken, Refused, NetworkError) as error:
                reason = f"0x{source.hex()[:12]}: {error}"
        return None, reason
