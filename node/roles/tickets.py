"""An auditor's part in tickets of `SampleAudits`: it gives out what it has sealed, and answers for
what others have.

What a ticket seals, its holder delivers as a parcel; its hash stands in the transaction that
entered the ticket. The answer goes into the journal with its salt, once, before anything is
committed on chain; the node's watcher commits and reveals what is journalled. What nobody delivers,
or what the model is not through with when the time to commit runs out, is answered as withheld:
that pays nothing and costs nothing, and silence would cost stake.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from node.network import exchange
from node.network.errors import NetworkError, Refused
from node.network.messages import MAX_PARCEL_PAGE, Kind, ParcelPage, ParcelRequest
from node.roles.allowance import Allowance
from node.roles.deadlines import finish_by
from node.roles.delivery import DEADLINE, Undelivered
from node.roles.frames import FrameError
from node.roles.lines import ask
from node.roles.parcels import MOST_BYTES, Parcel, text_of
from node.roles.ports import Node
from node.roles.refusals import No
from node.roles.rerun import Case, OtherModel
from node.roles.suspicions import answer_name, wire_of
from settlement.chain.panel_standing import JuryView, PanelCase, PanelStanding, TicketView
from settlement.panel_watch import Sealed
from settlement.panels import Answer

PAUSE: Final = 1.0  # seconds between attempts to be given a parcel
DELIVERY: Final = 120.0  # seconds that one delivery may take in all
SMALL: Final = 1 << 16  # bytes that are read at once: some milliseconds
TRIES: Final = 3  # of a parcel on which this node fails
# One stranger's parcel at a time: they are large, and reading them takes Python's lock.
_READING: Final = trio.CapacityLimiter(1)
TextOf = Callable[[bytes], Awaitable[bytes | None]]  # `SampleAudits.text_of`


class TokenEngine(Protocol):
    """Runs the target over one session, up to one token. Raises OtherModel for models that it does
    not have."""

    async def answer(self, case: Case, index: int, within: int) -> Answer: ...


class Board(Protocol):
    """Who answers what (`juror.JuryBoard`)."""

    def standing(self) -> PanelStanding: ...

    def keys_of(self, key: bytes) -> frozenset[bytes]: ...


def parcel_name(text: bytes) -> str:
    """What the journal calls the parcel of that hash."""
    return f"parcel:{text.hex()}"


async def fetch_parcel(node: Node, audit: int, text: bytes, source: bytes) -> Parcel:
    """What the holder of a ticket has sealed, if it is what the chain says. Raises NetworkError,
    Undelivered: also where it comes in drops."""
    raw, total = bytearray(), None
    with trio.move_on_after(DELIVERY):
        while total is None or len(raw) < total:
            wanted = ParcelRequest(audit, len(raw))
            page = await ask(
                *(node.transport, source, Kind.PARCEL, wanted, ParcelPage),
                deadline=DEADLINE,
                attempts=1,
            )
            total = page.total if total is None else total
            due = min(MAX_PARCEL_PAGE, total - len(raw))
            if page.total != total or not 0 < total <= MOST_BYTES or len(page.data) != due:
                raise Undelivered(f"0x{source.hex()} delivers no whole pages of a parcel")
            raw += page.data
    if total is None or len(raw) < total:
        raise Undelivered(f"0x{source.hex()} took over {DELIVERY:.0f} s to deliver a parcel")

    def open_it() -> Parcel:
        if text_of(bytes(raw)) != text:
            raise Undelivered(f"0x{source.hex()} delivers another parcel than its ticket is for")
        return Parcel.from_wire(bytes(raw))

    try:
        if len(raw) <= SMALL:
            return open_it()
        return await trio.to_thread.run_sync(open_it, limiter=_READING)
    except FrameError as error:
        raise Undelivered(f"0x{source.hex()} delivers no session: {error}") from error


class TicketRole:
    """Serves this node's parcels, and answers on `engine` for the tickets that it is drawn for.
    `look` is to be called when the chain has moved.

    Args:
        chain_time: unix seconds by the chain's own clock, which deadlines are counted by.
        text_of_ticket: the hash that a transaction gives with its ticket.
    """

    def __init__(
        self,
        node: Node,
        board: Board,
        engine: TokenEngine,
        chain_time: Callable[[], Awaitable[int]],
        text_of_ticket: TextOf,
        *,
        pause: float = PAUSE,
    ) -> None:
        self.node, self.board, self.engine = node, board, engine
        self._chain_time, self._text, self._pause = chain_time, text_of_ticket, pause
        self._begun: set[str] = set()
        self._allowance = Allowance(what="requests for parcels")
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves and answers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            exchange.serve(self.node.transport, Kind.PARCEL, self.on_parcel)
            self.look()
            task_status.started()
            await trio.sleep_forever()

    def look(self) -> None:
        """Begins with every ticket that this node is drawn for and has no answer to yet."""
        assert self._nursery is not None
        mine = self.board.keys_of(self.node.address)
        for ticket, jury, member in self.board.standing().auditing(mine):
            question = ticket.question
            if question in self._begun or member in jury.committed or jury.opened:
                continue
            self._begun.add(question)
            if self.node.journal.secret(answer_name(question)) is None:
                self._nursery.start_soon(self._answer, ticket, jury)

    # ------------------------------------------------------------ giving

    async def on_parcel(self, peer: bytes, wanted: ParcelRequest) -> ParcelPage:
        """A page of what this node has sealed, for the auditors of that ticket, and for the jury of
        a canary that it has taken to the panel."""
        self._allowance.take(peer, self.node.clock())
        standing = self.board.standing()
        ticket = standing.tickets.get(wanted.audit_id)
        if ticket is None:
            # It may be a block ahead of this node.
            raise Refused(No.UNKNOWN, "no such ticket is confirmed here yet", 1.0)
        readers = set(standing.juries[ticket.jury].members)
        case = standing.cases.get(ticket.case)
        if case is not None and case.running:
            readers |= set(standing.jury_of(case).members)
        if ticket.by not in self.board.keys_of(self.node.address):
            raise Refused(No.NOT_YOURS, "this node does not hold that ticket")
        if not readers & self.board.keys_of(peer):
            raise Refused(No.NOT_YOURS, "for that ticket's auditors only")
        text = await self._text(ticket.transaction)
        raw = None if text is None else self.node.journal.secret(parcel_name(text))
        if raw is None:
            raise Refused(No.UNKNOWN, "that ticket's parcel is not held here")
        end = wanted.offset + MAX_PARCEL_PAGE
        return ParcelPage(len(raw), raw[wanted.offset : end])

    # ------------------------------------------------------------ answering

    async def _answer(self, ticket: TicketView, jury: JuryView) -> None:
        try:
            await self._answer_once(ticket, jury)
        except Exception:
            # One ticket's failure (a chain that does not answer, a fault of ours) must not end the
            # others; the watcher abstains if nothing comes of the next look either.
            self.node.log.exception("a ticket was not answered", audit=ticket.id)
            self._begun.discard(ticket.question)

    async def _answer_once(self, ticket: TicketView, jury: JuryView) -> None:
        log = self.node.log.bind(audit=ticket.id, jury=jury.id)
        until = jury.summoned.commit_until - ticket.commit_span // 4
        reasons = ["it was not delivered"]
        answer = await finish_by(
            until, self._chain_time, self._pause, lambda: self._try(ticket, reasons)
        ) or Answer(withheld=True)
        salt, name = self.node.entropy(32), answer_name(ticket.question)
        # Journalled before it is committed to: what is there already is what counts.
        self.node.journal.secret_once(name, lambda: wire_of(Sealed(answer, salt)))
        self.node.metrics.count("tickets_withheld" if answer.withheld else "tickets_answered")
        if answer.withheld:
            log.warning("answered as withheld", reason=reasons[-1])
        else:
            log.info("answered a ticket", margin=answer.margin)

    async def _try(self, ticket: TicketView, reasons: list[str]) -> Answer | None:
        """Fetches until it is given something, and runs it; None where that leads nowhere."""
        failed = 0
        while True:
            try:
                text = await self._text(ticket.transaction)
                if text is None:
                    # Then anything could be shown for it later.
                    raise Undelivered("its transaction says nothing of what is delivered")
                parcel = await fetch_parcel(self.node, ticket.id, text, ticket.by)
                if parcel.case.order.target_model != ticket.model:
                    reasons.append("it is of another model than the ticket")
                    return None
                return await self.engine.answer(parcel.case, parcel.index, parcel.within)
            except (Undelivered, Refused, NetworkError) as error:
                reasons.append(str(error))
            except (OtherModel, ValueError) as error:  # of this parcel, whenever it is run
                reasons.append(str(error))
                return None
            except Exception:
                # Memory, a chain that does not answer, a fault of ours: the time to answer runs.
                self.node.log.exception("a ticket was not answered", audit=ticket.id)
                reasons.append("see this node's log")
                failed += 1
                if failed == TRIES:
                    return None
            await trio.sleep(self._pause * 3**failed)


class CanaryReader:
    """Canaries for jurors of the panel: what its planter delivers, if that is what it sealed."""

    def __init__(self, node: Node, board: Board, text_of_ticket: TextOf) -> None:
        self._node, self._board, self._text = node, board, text_of_ticket

    async def __call__(self, case: PanelCase) -> Parcel:
        """The parcel that a case is about. Raises NetworkError, Undelivered."""
        tickets = self._board.standing().tickets.values()
        ticket = next((ticket for ticket in tickets if ticket.case == case.id), None)
        if ticket is None or ticket.canary is None:
            raise Undelivered("no opened canary is confirmed here that the case is about")
        _start, _round, _within, figures, _print, text = ticket.canary
        said = await self._text(ticket.transaction)
        if said != bytes(text):
            # Its auditors may have been shown another text, and been right about that.
            raise Undelivered("the canary is not what its ticket was for")
        parcel = await fetch_parcel(self._node, ticket.id, said, ticket.by)
        if parcel.figures != bytes(figures) or parcel.case.order.target_model != ticket.model:
            raise Undelivered("the canary's figures are not what it shows")
        return parcel
