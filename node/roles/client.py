"""The client: orders text, checks every round, pays for it, and hands over when a party leaves.

`generate` is one request from prompt to receipt. It may take several sessions: when drafter or
verifier leaves, a successor order goes on from the committed tokens with the same request id and
seed, so in the strict modes the text is the same whoever served it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from time import perf_counter
from typing import Any, Final, Protocol

import trio

from node.inference.stops import StopScanner
from node.journal import StoredRound, StoredSession
from node.network import exchange
from node.network.codec import Message
from node.network.errors import NetworkError, PeerClosed, Refused
from node.network.exchange import MessageChannel
from node.network.messages import (
    Kind,
    Notice,
    Offer,
    OrderAccept,
    OrderOffer,
    PromptDelivery,
    Quote,
    QuoteRequest,
    Role,
    RoundCommitted,
    StartAccept,
    StartOffer,
)
from node.network.messages import (
    SessionState as StateMessage,
)
from node.roles.accusations import accuse, accuse_twice
from node.roles.convert import stop_rules
from node.roles.frames import FrameError, Round
from node.roles.lines import A, ask
from node.roles.ports import ChainUnavailable, Node
from node.roles.purse import Payment, Purse
from node.roles.refusals import NO_SIGNATURE, No
from node.roles.session import (
    SessionFault,
    SessionState,
    StaleFrame,
    Terms,
    advance,
    check_draft,
    check_signature,
    check_verdict,
    output_ended,
)
from node.roles.stored import pack_prompt, stored_round
from settlement import coins
from settlement.hashing import ZERO32
from settlement.records import (
    Lane,
    Mode,
    Order,
    SeedPolicy,
    SessionStart,
    prompt_hash,
    stop_string_hash,
)

FIRST_WINDOW: Final = 2
MAX_SESSIONS_A_REQUEST: Final = 8
OPENING_PASSES: Final = 3
GIVING_UP: Final = 2.0  # seconds for the last voucher of a request that is broken off
PRICED: Final = {"drafter": "accepted", "verifier": "output"}
STAKED: Final = {"drafter": Role.DRAFTER, "verifier": Role.VERIFIER}
Emit = Callable[[Mapping[str, Any]], Awaitable[None]]


class ClientError(RuntimeError):
    """A request that cannot be served: why, and what to do."""


class NoParties(ClientError):
    """No drafter or verifier for this request is known, reachable and willing."""


@dataclass(frozen=True)
class Plan:
    """What the client wants, already in the units of an order.

    Attributes:
        template: an Order with everything that does not depend on the parties; its party fields,
            prices and commitments are filled in per session.
        prompt: token ids. salt: 32 random bytes behind promptHash. stops: texts behind the hashes.
        client_seed: int64 under seed policy client, else None.
        drafter, verifier: insist on these operators; None: choose.
    """

    template: Order
    prompt: tuple[int, ...]
    salt: bytes
    stops: tuple[str, ...]
    client_seed: int | None = None
    drafter: bytes | None = None
    verifier: bytes | None = None
    first_k: int = FIRST_WINDOW


@dataclass(frozen=True)
class Party:
    """A drafter or verifier that can be asked, with its offer."""

    operator: bytes
    offer: Offer


class Directory(Protocol):
    """Who is there now (see `network.discovery`)."""

    def drafters(self, target_model: bytes) -> list[Party]: ...

    def verifiers(self, target_model: bytes) -> list[Party]: ...


@dataclass
class Served:
    """One session of a request, as it went."""

    terms: Terms
    delivery: PromptDelivery
    state: SessionState
    rounds: list[Round] = field(default_factory=list)
    payment: Payment | None = None
    paying: bool = False  # a task of this session collects signatures
    owing: bool = False  # and must do so once more


@dataclass
class Outcome:
    """A finished request."""

    sessions: list[Served]
    seconds: float  # from the first session's start to its last round
    nonces: tuple[bytes, bytes]

    @property
    def tokens(self) -> tuple[int, ...]:
        first = self.sessions[0].delivery.output
        return first + tuple(t for served in self.sessions for t in served.state.tokens)


class ClientRole:
    """Generates through the network. `token_bytes` gives the text of one token of the target."""

    def __init__(
        self, node: Node, directory: Directory, token_bytes: Callable[[int], bytes]
    ) -> None:
        self.node = node
        self.directory = directory
        self.purse = Purse(node)
        self._token_bytes = token_bytes
        self._avoid: dict[bytes, float] = {}  # operator → unix time until which it is not asked
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
            finished = perf_counter()
            await self._settle_up(served, patience=5.0)
            if why is None:
                return Outcome(sessions, finished - started, nonces)
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

    def _fresh(self, plan: Plan) -> Plan:
        """The same request under a new id: the old one's nonces are spent."""
        return replace(plan, template=replace(plan.template, request_id=self.node.entropy(32)))

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

    # ------------------------------------------------------------ opening a session

    async def _open(
        self, plan: Plan, before: Served | None, nonces: tuple[bytes, bytes] | None, emit: Emit
    ) -> tuple[Served, tuple[bytes, bytes], Plan]:
        """A started session with some drafter and verifier, tried in order of preference, and the
        plan it runs under: a first order that fails is tried again under a new request id."""
        reasons: list[str] = []
        for attempt in range(OPENING_PASSES):
            if attempt:
                await trio.sleep(0.5)
            for drafter, verifier in self._pairs(plan):
                try:
                    served, nonces = await self._agree(plan, drafter, verifier, before, nonces)
                    return served, nonces, plan
                except (NetworkError, SessionFault) as error:
                    reasons.append(str(error))
                    await emit({"type": "note", "note": f"asked in vain: {error}"})
                    if isinstance(error, Refused) and error.code in (No.RESERVE, No.ORDER):
                        # Asking the same again would be refused again; others may not.
                        self._avoid[error.peer] = self.node.clock() + 5
                    if before is None:
                        plan = self._fresh(plan)
        if not reasons:
            reasons.append(
                "no drafter and verifier for this target are known; check `verdraft peers` and "
                "the bootstrap address"
            )
        raise NoParties("; ".join(reasons[-4:]))

    def _avoided(self, operator: bytes) -> bool:
        return self._avoid.get(operator, 0.0) > self.node.clock()

    def _pairs(self, plan: Plan) -> list[tuple[Party, Party]]:
        """Drafter and verifier pairs, cheapest verifier first, then cheapest drafter; equal ones in
        a random order, so that clients spread over them."""
        target = plan.template.target_model

        def ranked(found: list[Party], only: bytes | None) -> list[Party]:
            if only is not None:
                return [p for p in found if p.operator == only]
            chosen = [p for p in found if not self._avoided(p.operator)]
            return sorted(chosen, key=lambda p: (p.offer.price, self.node.entropy(8)))

        verifiers = ranked(self.directory.verifiers(target), plan.verifier)
        drafters = ranked(self.directory.drafters(target), plan.drafter)
        return [(d, v) for v in verifiers for d in drafters]

    async def _check_party(
        self, role: str, party: Party, answers: int, tokens: int, token: bytes
    ) -> None:
        """SessionFault for one that asks too much, or that a lie about `tokens` tokens of output
        would cost less than what the contracts hold against what the lie can bring by them.
        `answers`: the price of a token that its stake is locked for; V's is for D's pay too."""
        limits, highest = self.node.limits, getattr(self.node.prices, PRICED[role])
        if party.offer.price > highest:
            raise SessionFault(
                role, f"asks a price above price.{PRICED[role]} = {highest}", party.offer.price
            )
        try:
            cover = await self.node.chain.cover(party.operator, STAKED[role], token)
        except ChainUnavailable as error:
            raise SessionFault(role, f"its stake cannot be read: {error}") from error
        if cover <= 0:
            self._avoid[party.operator] = self.node.clock() + 60
            raise SessionFault(role, "has no stake that is free", party.operator.hex())
        earns = answers * tokens
        if cover < earns * Fraction(limits.stake_cover):
            raise SessionFault(
                role,
                f"its free stake covers payments of {cover} token units, the order can come to "
                f"{earns} and limit.stake_cover is {limits.stake_cover:g}: ask for fewer tokens, "
                "or for a party with more stake",
                party.operator.hex(),
            )

    async def _agree(
        self,
        plan: Plan,
        drafter: Party,
        verifier: Party,
        before: Served | None,
        nonces: tuple[bytes, bytes] | None,
    ) -> tuple[Served, tuple[bytes, bytes]]:
        """Quote, order, seed, start: each step signed and journalled before it is sent."""
        node, d, v = self.node, drafter.operator, verifier.operator
        tokens = plan.template.max_tokens - (before.state.position if before else 0)
        (to_v, to_d), token = (verifier.offer.price, drafter.offer.price), plan.template.token
        for role, party, answers in (
            ("verifier", verifier, to_v + to_d),
            ("drafter", drafter, to_d),
        ):
            await self._check_party(role, party, answers, tokens, token)
        request_id = plan.template.request_id
        parent = before.terms.order.session_id if before else ZERO32
        wanted = QuoteRequest(request_id, parent, plan.template.max_tokens)
        quotes: dict[bytes, Quote] = {}
        for peer in (v, d):
            quotes[peer] = await self._ask(peer, Kind.QUOTE, wanted, Quote)
        mine = self._nonce(plan)
        order = self._order(plan, drafter, verifier, before, quotes[d], quotes[v], mine, nonces)
        output = before.delivery.output + before.state.tokens if before else ()
        delivery = PromptDelivery(plan.salt, plan.prompt, plan.stops, output)
        slot = f"order:{order.session_id.hex()}"
        signatures = [
            node.journal.sign_once(slot, order, node.domain, node.key),
            NO_SIGNATURE,
            NO_SIGNATURE,
        ]
        wire = order.to_wire()
        for index, peer in ((2, v), (1, d)):
            accept = await self._ask(
                peer, Kind.ORDER, OrderOffer(wire, tuple(signatures), delivery), OrderAccept
            )
            self._check("drafter" if index == 1 else "verifier", peer, order, accept.signature)
            signatures[index] = accept.signature
        accept = await self._ask(
            v, Kind.ORDER, OrderOffer(wire, tuple(signatures), delivery), OrderAccept
        )
        nonces, seed = self._seed(plan, order, mine, nonces, accept.nonce)
        start = SessionStart(order.session_id, seed, min(plan.first_k, order.max_window))
        starts = [
            node.journal.sign_once(f"start:{order.session_id.hex()}", start, node.domain, node.key),
            NO_SIGNATURE,
            NO_SIGNATURE,
        ]
        # D last but one: with V's and C's it holds all three, and may open its line at once.
        for index, peer in ((2, v), (1, d), (2, v)):
            begun = await self._ask(
                peer,
                Kind.START,
                StartOffer(order.session_id, start.to_wire(), tuple(starts), nonces),
                StartAccept,
            )
            self._check("drafter" if index == 1 else "verifier", peer, start, begun.signature)
            starts[index] = begun.signature
        terms = Terms(
            node.domain,
            order,
            (signatures[0], signatures[1], signatures[2]),
            start,
            (starts[0], starts[1], starts[2]),
        )
        node.journal.put_session(
            StoredSession(
                terms.start_hash,
                order.session_id,
                order.request_id,
                order.lane.id,
                "client",
                terms.to_wire(),
                plan.salt,
                pack_prompt(delivery),
                "open",
            )
        )
        return Served(terms, delivery, SessionState.begin(terms)), nonces

    async def _ask(self, peer: bytes, kind: Kind, message: Message, expected: type[A]) -> A:
        return await ask(self.node.transport, peer, kind, message, expected)

    def _check(self, role: str, peer: bytes, record: Any, signature: bytes) -> None:
        check_signature(self.node.domain, role, peer, record, signature)

    def _nonce(self, plan: Plan) -> bytes:
        """This client's nonce for the request, or its seed under seed policy client."""
        if plan.client_seed is not None:
            return plan.client_seed.to_bytes(32, "big", signed=True)
        name = f"nonce:{plan.template.request_id.hex()}"
        return self.node.journal.secret_once(name, lambda: self.node.entropy(32))

    def _order(
        self,
        plan: Plan,
        drafter: Party,
        verifier: Party,
        before: Served | None,
        quote_d: Quote,
        quote_v: Quote,
        nonce: bytes,
        nonces: tuple[bytes, bytes] | None,
    ) -> Order:
        """The order with these parties; a successor repeats the first one's nonce commitments."""
        rejection = plan.template.mode == Mode.REJECTION
        joint = plan.template.seed_policy == SeedPolicy.JOINT
        commit_c = commit_v = ZERO32
        if joint and before:
            first = before.terms.order
            commit_c, commit_v = first.nonce_commit_client, first.nonce_commit_verifier
        elif joint:
            commit_c, commit_v = coins.nonce_commitment(nonce), quote_v.nonce_commitment
        position, context, parent = 0, ZERO32, ZERO32
        if before:
            position, context = before.state.position, before.state.context
            parent = before.terms.order.session_id
        counter = int(self.node.journal.fact("order-nonce") or "0") + 1
        self.node.journal.set_fact("order-nonce", str(counter))
        return replace(
            plan.template,
            parent_session=parent,
            start_position=position,
            context_hash=context,
            client=self.node.address,
            drafter=drafter.operator,
            verifier=verifier.operator,
            draft_model=drafter.offer.draft_model_id,
            price_accepted=drafter.offer.price,
            price_output=verifier.offer.price,
            claim_id=drafter.offer.claim_id,
            nonce_commit_client=commit_c,
            nonce_commit_verifier=commit_v,
            anchor_verifier=quote_v.anchor if rejection else ZERO32,
            anchor_drafter=quote_d.anchor if rejection else ZERO32,
            nonce=counter,
        )

    def _seed(
        self,
        plan: Plan,
        order: Order,
        mine: bytes,
        nonces: tuple[bytes, bytes] | None,
        revealed: bytes | None,
    ) -> tuple[tuple[bytes, bytes], bytes]:
        """(nonces, S). V reveals first; a successor keeps the first session's nonces."""
        if plan.client_seed is not None:
            seed = coins.client_seed(plan.client_seed, order.target_model, plan.prompt)
            return (mine, ZERO32), seed
        if nonces is None:
            if revealed is None:
                raise SessionFault("verifier", "did not reveal its nonce")
            if coins.nonce_commitment(revealed) != order.nonce_commit_verifier:
                raise SessionFault("verifier", "revealed another nonce than it committed to")
            nonces = (mine, revealed)
        return nonces, coins.joint_seed(order.request_id, *nonces)

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


def plan_for(
    *,
    request_id: bytes,
    salt: bytes,
    client: bytes,
    token: bytes,
    target_model: bytes,
    prompt: tuple[int, ...],
    stops: tuple[str, ...],
    stop_ids: tuple[int, ...],
    template_hash: bytes,
    mode: Mode,
    temperature: int,
    top_k: int,
    top_p: int,
    max_tokens: int,
    max_window: int,
    deadline: int,
    client_seed: int | None = None,
    relax_tau: int = 0,
    key_target_surprisal: int = 0,
    key_draft_surprisal: int = 0,
    key_overlap: int = 0,
    repetition_penalty: int = 1 << 16,
    presence_penalty: int = 0,
    frequency_penalty: int = 0,
    drafter: bytes | None = None,
    verifier: bytes | None = None,
    first_k: int = FIRST_WINDOW,
) -> Plan:
    """A plan from a request in order units. Party fields hold placeholders until `_agree`.

    Raises RecordError for a value that no order can carry.
    """
    placeholder = b"\xff" * 32 if mode == Mode.REJECTION else ZERO32
    template = Order(
        request_id=request_id,
        parent_session=ZERO32,
        start_position=0,
        context_hash=ZERO32,
        client=client,
        drafter=bytes(20),
        verifier=bytes(20),
        token=token,
        target_model=target_model,
        draft_model=ZERO32,
        mode=mode,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        stop_ids=tuple(sorted(set(stop_ids))),
        stop_string_hashes=tuple(stop_string_hash(text) for text in stops),
        template_hash=template_hash,
        relax_tau=relax_tau,
        key_target_surprisal=key_target_surprisal,
        key_draft_surprisal=key_draft_surprisal,
        key_overlap=key_overlap,
        max_window=max_window,
        noise_version=1,
        price_accepted=0,
        price_output=0,
        max_tokens=max_tokens,
        prompt_hash=prompt_hash(salt, prompt),
        claim_id=ZERO32,
        seed_policy=SeedPolicy.JOINT if client_seed is None else SeedPolicy.CLIENT,
        nonce_commit_client=ZERO32,
        nonce_commit_verifier=ZERO32,
        anchor_verifier=placeholder,
        anchor_drafter=placeholder,
        disclosure=0,
        deadline=deadline,
        nonce=0,
    )
    return Plan(template, prompt, salt, stops, client_seed, drafter, verifier, first_k)
