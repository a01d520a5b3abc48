"""What drafter and verifier have in common: quoting, signing orders and starts, and vouchers.

Every signature goes through the journal's slots, so a repeated request gets the bytes it got
before and a contradicting one is refused. Nothing here waits on a model.
"""

from __future__ import annotations

import abc
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from node.journal import SlotTaken, StoredSession
from node.network import exchange
from node.network.codec import Message
from node.network.errors import Refused
from node.network.messages import (
    Kind,
    OrderAccept,
    OrderOffer,
    PromptDelivery,
    Quote,
    QuoteRequest,
    StartAccept,
    StartOffer,
    VoucherRequest,
    VoucherSignature,
)
from node.roles.allowance import Allowance, Gate, Rate
from node.roles.frames import FrameError, R, read
from node.roles.places import Place, make_room
from node.roles.ports import Node
from node.roles.refusals import NO_SIGNATURE, No
from node.roles.session import (
    PARTIES,
    SessionFault,
    SessionState,
    Terms,
    advance,
    check_signature,
)
from node.roles.stored import pack_prompt, stored_round, unpack_prompt
from node.roles.tills import Till
from settlement import coins
from settlement.hashing import ZERO32, keccak256, uint
from settlement.records import (
    Lane,
    Mode,
    Order,
    SeedPolicy,
    SessionStart,
    Voucher,
    extend_context,
    prompt_hash,
    stop_string_hash,
)

Q = TypeVar("Q", bound=Message)
MAX_PENDING: Final = 256
MAX_PENDING_PER_CLIENT: Final = 16
ENDED_KEPT: Final = 64  # ended sessions held in memory, for peers that missed their end
# An order that reads the chain holds one of the few that may do so at once: never those that
# rounds and vouchers of running sessions need.
RATES: Final = {
    Kind.QUOTE: Rate(burst=64, per_second=8, each=8, together=64),
    Kind.ORDER: Rate(burst=32, per_second=8, each=2, together=4),
    Kind.START: Rate(burst=32, per_second=8, each=4, together=8),
    Kind.VOUCHER: Rate(burst=64, per_second=16, each=2, together=64),
}
# Of a client, each with its marks in the journal: after a pause, and a second for ever.
UNSTARTED: Final = 64
UNSTARTED_PER_SECOND: Final = 0.2
CHAINS_PER_PARENT: Final = 8  # sessions in rejection mode that may go on from the same one


@dataclass
class Pending:
    """An order this party signed, before its session starts."""

    order: Order
    delivery: PromptDelivery
    signatures: tuple[bytes, bytes, bytes]


@dataclass
class Live:
    """A session that runs here: its terms and where it stands. One task moves it."""

    terms: Terms
    delivery: PromptDelivery
    state: SessionState


class Party(abc.ABC):
    """Drafter or verifier towards the client. `role` is "drafter" or "verifier"."""

    def __init__(self, node: Node, role: str) -> None:
        self.node = node
        self.role = role
        self.index = PARTIES.index(role)
        self.pending: OrderedDict[bytes, Pending] = OrderedDict()
        self.sessions: dict[bytes, Live] = {}  # by session id, oldest first
        self.lanes: dict[bytes, Lane] = {}  # by lane id, of all sessions in the journal
        self.till = Till(node, role, self.voucher_signed)
        self._unstarted = Allowance(UNSTARTED, UNSTARTED_PER_SECOND, "orders that never start")
        self._master = node.journal.secret_once("master", lambda: node.entropy(32))
        self._restore()

    def serve(self) -> None:
        """Registers the request handlers with the transport."""
        transport = self.node.transport
        exchange.serve(transport, Kind.QUOTE, self._gated(Kind.QUOTE, self.on_quote))
        exchange.serve(transport, Kind.ORDER, self._gated(Kind.ORDER, self.on_order))
        exchange.serve(transport, Kind.START, self._gated(Kind.START, self.on_start))
        exchange.serve(transport, Kind.VOUCHER, self._gated(Kind.VOUCHER, self.on_voucher))

    def _gated(
        self, kind: Kind, handler: Callable[[bytes, Q], Awaitable[Message]]
    ) -> Callable[[bytes, Q], Awaitable[Message]]:
        """The handler behind its kind's gate."""
        gate = Gate(RATES[kind], f"{kind.name} requests")

        async def handle(peer: bytes, message: Q) -> Message:
            with gate.admit(peer, self.node.clock()):
                return await handler(peer, message)

        return handle

    # ------------------------------------------------------------ what subclasses decide

    @abc.abstractmethod
    def check_models(self, order: Order, delivery: PromptDelivery) -> None:
        """Raises Refused for models, modes or prompts that this party does not serve."""

    @abc.abstractmethod
    def price(self, order: Order) -> tuple[int, int]:
        """(offered, asked) token units per unit of this party's work."""

    @abc.abstractmethod
    async def begin(self, live: Live) -> None:
        """A session has all its signatures: run it."""

    @abc.abstractmethod
    def waiting(self, live: Live) -> float:
        """Seconds for which the session has been held up by its other parties; 0 while this party
        works on it."""

    @abc.abstractmethod
    def give_up(self, live: Live, reason: str) -> None:
        """Ends a session that waits, at once."""

    def retire(self, session_id: bytes) -> None:
        """An ended session leaves memory; the journal keeps it."""
        del self.sessions[session_id]

    def partners(self) -> frozenset[bytes]:
        """The others in sessions that run now."""
        running = (live.terms for live in self.sessions.values() if not live.state.stopped)
        return frozenset(party for terms in running for party in terms.parties) - {
            self.node.address
        }

    # ------------------------------------------------------------ secrets, derived not stored

    def nonce(self, client: bytes, request_id: bytes) -> bytes:
        """This party's seed nonce for a request: the same whenever it is asked for."""
        return keccak256(self._master, b"nonce", client, request_id)

    def chain_of(self, order: Order) -> tuple[bytes, ...]:
        """The hash chain behind this party's anchor in the order. Refused (CONFLICT) for an anchor
        that it never quoted, or whose chain another session uses: a chain value that does not lead
        to the order's anchor is a fault, and one that is known before its round is no coin."""
        anchor = order.anchor_drafter if self.role == "drafter" else order.anchor_verifier
        session_id = order.session_id
        chains = self._chains(
            order.client, order.request_id, order.parent_session, order.max_tokens
        )
        for values in chains:
            user = self.node.journal.secret(_chain_name(values[0]))
            if values[0] == anchor:
                if user not in (None, session_id):
                    raise Refused(No.CONFLICT, "another session uses this anchor's chain")
                return values
            if user is None:
                break
        raise Refused(No.CONFLICT, "the order's anchor is not the one quoted: ask for a quote")

    def _chains(
        self, client: bytes, request_id: bytes, parent: bytes, rounds: int
    ) -> Iterator[tuple[bytes, ...]]:
        """The hash chains for sessions after `parent`, in the order in which they are used. Their
        length is the order's own, so that a changed limit changes no chain that is in use."""
        for number in range(CHAINS_PER_PARENT):
            secret = keccak256(self._master, b"chain", client, request_id, parent, uint(number, 4))
            yield coins.chain(secret, rounds)

    # ------------------------------------------------------------ quote

    async def on_quote(self, peer: bytes, ask: QuoteRequest) -> Quote:
        commitment = ZERO32
        if self.role == "verifier":
            commitment = coins.nonce_commitment(self.nonce(peer, ask.request_id))
        rounds = min(max(ask.rounds, 1), self.node.limits.max_new_tokens)
        for values in self._chains(peer, ask.request_id, ask.parent_session, rounds):
            if self.node.journal.secret(_chain_name(values[0])) is None:
                return Quote(commitment, values[0])
        raise Refused(No.CONFLICT, f"{CHAINS_PER_PARENT} sessions went on from there already")

    # ------------------------------------------------------------ order

    async def on_order(self, peer: bytes, offer: OrderOffer) -> OrderAccept:
        order = self._read(Order, offer.order)
        signatures = self._signatures(offer.signatures)
        session_id = order.session_id
        if order.client != peer or self._me(order) != self.node.address:
            raise Refused(No.ORDER, "this order is not between us")
        self._check_signed(order, signatures, needed=("client",))
        pending = self.pending.get(session_id)
        if pending is None:
            if offer.delivery is None:
                raise Refused(No.ORDER, "send the prompt with the order")
            self._check_order(order, offer.delivery)
            self._unstarted.take(peer, self.node.clock())
            await self.till.require_reserve(order)
            self._bind(order)
            pending = Pending(order, offer.delivery, signatures)
        mine = self._sign(f"order:{session_id.hex()}", order)
        pending.signatures = self._merge(pending.signatures, signatures, mine)
        self._keep(session_id, pending)
        nonce = None
        first = order.parent_session == ZERO32 and order.seed_policy == SeedPolicy.JOINT
        if self.role == "verifier" and first and NO_SIGNATURE not in pending.signatures:
            # A successor goes on with nonces that its client has; only a first order gets one.
            self._check_signed(order, pending.signatures, needed=PARTIES)
            nonce = self.nonce(order.client, order.request_id)
        return OrderAccept(session_id, mine, nonce)

    def _keep(self, session_id: bytes, pending: Pending) -> None:
        """Holds the order until it starts; a client has room for its own only."""
        self.pending[session_id] = pending
        client = pending.order.client
        own = [key for key, held in self.pending.items() if held.order.client == client]
        for key in own[:-MAX_PENDING_PER_CLIENT]:
            del self.pending[key]
        while len(self.pending) > MAX_PENDING:
            self.pending.popitem(last=False)

    def _check_order(self, order: Order, delivery: PromptDelivery) -> None:
        """Raises Refused unless this party wants the order: pure but for the clock."""
        limits, now = self.node.limits, self.node.clock()

        def need(good: bool, reason: str) -> None:
            if not good:
                raise Refused(No.ORDER, reason)

        need(bool(delivery.prompt), "the prompt is empty")
        need(
            len(delivery.prompt) <= limits.max_prompt_tokens,
            f"the prompt has {len(delivery.prompt)} tokens, at most {limits.max_prompt_tokens}",
        )
        need(
            prompt_hash(delivery.salt, delivery.prompt) == order.prompt_hash,
            "promptHash is not the hash of this prompt",
        )
        need(
            tuple(stop_string_hash(text) for text in delivery.stops) == order.stop_string_hashes,
            "stopStringHashes are not the hashes of these stop strings",
        )
        need(
            order.max_tokens <= limits.max_new_tokens,
            f"maxTokens is {order.max_tokens}, at most {limits.max_new_tokens}",
        )
        need(
            len(delivery.output) == order.start_position,
            "send exactly the output committed before startPosition",
        )
        need(
            order.parent_session == ZERO32
            or extend_context(order.prompt_hash, delivery.output) == order.context_hash,
            "contextHash does not follow from prompt and output",
        )
        need(
            now < order.deadline <= now + limits.order_seconds,
            f"the deadline is {order.deadline}, this clock says {int(now)}; at most "
            f"{limits.order_seconds} s ahead",
        )
        need(
            (order.mode == Mode.REJECTION or order.max_window >= limits.min_window)
            and order.max_window <= limits.max_window,
            f"maxWindow is {order.max_window}, {limits.min_window} to {limits.max_window}",
        )
        offered, asked = self.price(order)
        need(offered >= asked, f"the price is {offered}, asked {asked} token units per token")
        self.check_models(order, delivery)
        own = self.node.token
        need(own is None or order.token == own, f"token 0x{order.token.hex()} is not taken here")
        if order.mode == Mode.REJECTION:
            self.chain_of(order)
        if self.role == "verifier":
            self._check_nonce(order)

    def _check_nonce(self, order: Order) -> None:
        """A first order under a joint seed commits to this verifier's own nonce: else its client
        would know both, and choose the seed."""
        if order.parent_session != ZERO32 or order.seed_policy != SeedPolicy.JOINT:
            return
        mine = coins.nonce_commitment(self.nonce(order.client, order.request_id))
        if order.nonce_commit_verifier != mine:
            raise Refused(No.CONFLICT, "nonceCommitVerifier is not the one quoted: ask for a quote")

    def _bind(self, order: Order) -> None:
        """Takes the order's nonce, and its request for a first order, for this order alone: who
        has seen V's nonce must not choose its own anew. Called once the lane's reserve is known to
        cover the order, for it writes."""
        client, session_id, journal = order.client.hex(), order.session_id, self.node.journal
        name = f"order-nonce:{client}:{order.nonce}"
        names = {name: f"order nonce {order.nonce} was used before"}
        if order.parent_session == ZERO32:
            name = f"request:{client}:{order.request_id.hex()}"
            names[name] = "this request belongs to another order: take a new request id"
        for name, reason in names.items():
            if journal.secret_once(name, lambda: session_id) != session_id:
                raise Refused(No.CONFLICT, reason)

    # ------------------------------------------------------------ start

    async def on_start(self, peer: bytes, offer: StartOffer) -> StartAccept:
        start = self._read(SessionStart, offer.start)
        signatures = self._signatures(offer.signatures)
        live = self.sessions.get(offer.session_id)
        if live is not None:
            if live.terms.order.client != peer or live.terms.start != start:
                raise Refused(No.CONFLICT, "the session has started otherwise")
            return StartAccept(offer.session_id, live.terms.start_signatures[self.index])
        pending = self.pending.get(offer.session_id)
        if pending is None or pending.order.client != peer:
            raise Refused(No.UNKNOWN, "send the order again, with its prompt")
        order = pending.order
        if start.session_id != offer.session_id:
            raise Refused(No.ORDER, "the start names another session")
        self._check_signed(order, pending.signatures, needed=PARTIES)
        self._check_seed(pending, start, offer.nonces)
        self._check_signed(start, signatures, needed=("client",), order=order)
        if order.mode == Mode.REJECTION:
            anchor = self.chain_of(order)[0]
            self.node.journal.secret_once(_chain_name(anchor), lambda: order.session_id)
        mine = self._sign(f"start:{offer.session_id.hex()}", start)
        signatures = self._merge(signatures, signatures, mine)
        if all(signature != NO_SIGNATURE for signature in signatures):
            self._check_signed(start, signatures, needed=PARTIES, order=order)
            terms = Terms(self.node.domain, order, pending.signatures, start, signatures)
            await self._admit(terms, pending.delivery)
        return StartAccept(offer.session_id, mine)

    def _check_seed(self, pending: Pending, start: SessionStart, nonces: Sequence[bytes]) -> None:
        order = pending.order
        if len(nonces) != 2:
            raise Refused(No.ORDER, "two nonces, the client's and the verifier's")
        if order.seed_policy == SeedPolicy.CLIENT:
            seed = int.from_bytes(nonces[0], "big", signed=True)
            if not -(2**63) <= seed < 2**63:
                raise Refused(No.ORDER, "under seed policy client the first nonce is an int64")
            if start.seed != coins.client_seed(seed, order.target_model, pending.delivery.prompt):
                raise Refused(No.ORDER, "the seed does not follow from the client's seed")
            return
        commitments = (order.nonce_commit_client, order.nonce_commit_verifier)
        if tuple(coins.nonce_commitment(nonce) for nonce in nonces) != commitments:
            raise Refused(No.ORDER, "a nonce is not the one committed to in the order")
        if start.seed != coins.joint_seed(order.request_id, nonces[0], nonces[1]):
            raise Refused(No.ORDER, "the seed does not follow from the nonces")

    async def _admit(self, terms: Terms, delivery: PromptDelivery) -> None:
        if self.node.journal.session(terms.start_hash) is not None:
            raise Refused(No.CONFLICT, "this session has run already")
        # Of many orders that one reserve was enough for, each by itself, all may start. The lane as
        # it was read last will do, unless that is too little.
        try:
            self.till.require_room(terms.order, self.node.chain.lane(terms.order.lane))
        except Refused:
            await self.till.require_reserve(terms.order)
            if terms.order.session_id in self.sessions:
                return  # the same start, sent again meanwhile
        # INVARIANT: from that look to the session's entry nothing is waited for.
        self._make_room(terms.order)
        self.node.journal.put_session(
            StoredSession(
                terms.start_hash,
                terms.order.session_id,
                terms.order.request_id,
                terms.order.lane.id,
                self.role,
                terms.to_wire(),
                delivery.salt,
                pack_prompt(delivery),
                "open",
            )
        )
        live = Live(terms, delivery, SessionState.begin(terms))
        self.till.open_session(terms)
        self.sessions[terms.order.session_id] = live
        self.lanes[terms.order.lane.id] = terms.order.lane
        self.pending.pop(terms.order.session_id, None)
        self._unstarted.give(terms.order.client, self.node.clock())
        ended = [key for key, held in self.sessions.items() if held.state.stopped]
        for session_id in ended[:-ENDED_KEPT]:
            self.retire(session_id)
        await self.begin(live)

    def _make_room(self, order: Order) -> None:
        """Gives up a session that only waits, if this order's needs its place. Refused (RESERVE)
        when all are at work. The order's parent does not count: it is handed over."""
        places = [
            Place(session_id, live.terms.order.client, self.waiting(live))
            for session_id, live in self.sessions.items()
            if not live.state.stopped and session_id != order.parent_session
        ]
        loser = make_room(places, order.client, self.node.limits)
        if loser is not None:
            self.node.metrics.count("sessions_given_up")
            reason = f"waited {loser.waiting:.0f} s for its parties, and others need the place"
            self.give_up(self.sessions[loser.session_id], reason)

    # ------------------------------------------------------------ vouchers

    async def must_stop(self, terms: Terms) -> tuple[No, str] | None:
        """Why no round of the session may begin now; the lane is read again before its reserve is
        called too small."""
        why = self.till.must_stop(terms)
        if why is not None and why[0] == No.RESERVE:
            try:
                await self.till.view(terms.order.lane)
            except Refused as no:
                return No.CHAIN, str(no)
            why = self.till.must_stop(terms)
        return why

    async def on_voucher(self, peer: bytes, ask: VoucherRequest) -> VoucherSignature:
        lane = self.lanes.get(self._read(Voucher, ask.voucher).lane)
        if lane is None or lane.client != peer:
            raise Refused(No.UNKNOWN, "no session of yours runs on that lane here")
        return await self.till.on_voucher(lane, ask)

    def voucher_signed(self, lane: Lane) -> None:  # noqa: B027 - a hook
        """Told after each voucher: work that waited for payment may go on."""

    # ------------------------------------------------------------ restart

    def _restore(self) -> None:
        """Rebuilds sessions, rounds and lane books from the journal. Frames in it were checked
        before they were written."""
        journal = self.node.journal
        rows = [row for row in journal.sessions() if row.role == self.role]
        ended = [row.start_hash for row in rows if row.state == "closed"]
        gone = set(ended[:-ENDED_KEPT])
        for row in rows:
            terms = Terms.from_wire(row.terms, self.node.domain)
            delivery = unpack_prompt(row.prompt)
            state = SessionState.begin(terms)
            for stored in journal.rounds(row.start_hash):
                done = stored_round(stored.draft, stored.verdict)
                state = advance(terms, state, done)
                self.till.count_round(terms, done)
            if row.state == "closed":
                state = replace(state, stopped=True)
            if not state.stopped:
                self.till.open_session(terms)
            if row.start_hash not in gone:
                self.sessions[terms.order.session_id] = Live(terms, delivery, state)
            self.lanes[row.lane] = terms.order.lane
        for lane in self.lanes.values():
            self.till.restore_lane(lane)

    # ------------------------------------------------------------ small checks

    def _me(self, order: Order) -> bytes:
        return order.drafter if self.role == "drafter" else order.verifier

    def _read(self, kind: type[R], raw: bytes) -> R:
        try:
            record, rest = read(kind, raw)
        except FrameError as error:
            raise Refused(No.ORDER, str(error)) from error
        if rest:
            raise Refused(No.ORDER, f"{len(rest)} bytes after the {kind.__name__}")
        return record

    def _signatures(self, given: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
        if len(given) != 3:
            raise Refused(No.ORDER, f"three signatures (zeros where missing), not {len(given)}")
        return given[0], given[1], given[2]

    def _check_signed(
        self,
        record: Order | SessionStart,
        signatures: Sequence[bytes],
        *,
        needed: Sequence[str],
        order: Order | None = None,
    ) -> None:
        """Raises Refused unless every signature given is by its party, and the needed are there."""
        parties = order if order is not None else record
        assert isinstance(parties, Order)
        addresses = (parties.client, parties.drafter, parties.verifier)
        for role, address, signature in zip(PARTIES, addresses, signatures, strict=True):
            if signature == NO_SIGNATURE:
                if role in needed:
                    raise Refused(No.ORDER, f"the {role}'s signature is missing")
                continue
            try:
                check_signature(self.node.domain, role, address, record, signature)
            except SessionFault as fault:
                raise Refused(No.ORDER, str(fault)) from fault

    def _merge(
        self, held: Sequence[bytes], given: Sequence[bytes], mine: bytes
    ) -> tuple[bytes, bytes, bytes]:
        merged = [b if a == NO_SIGNATURE else a for a, b in zip(held, given, strict=True)]
        merged[self.index] = mine
        return merged[0], merged[1], merged[2]

    def _sign(self, slot: str, record: Order | SessionStart | Voucher) -> bytes:
        try:
            return self.node.journal.sign_once(slot, record, self.node.domain, self.node.key)
        except SlotTaken as error:
            raise Refused(No.CONFLICT, str(error)) from error


def _chain_name(anchor: bytes) -> str:
    """Where the journal names the session that uses the chain with that anchor."""
    return f"chain:{anchor.hex()}"
