"""From a plan to a started session: parties are asked in order of preference, and quote, order,
seed and start are agreed with them, each step signed and journalled before it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import trio

from node.journal import StoredSession
from node.network.codec import Message
from node.network.errors import NetworkError, Refused
from node.network.messages import (
    Kind,
    OrderAccept,
    OrderOffer,
    PromptDelivery,
    Quote,
    QuoteRequest,
    Role,
    StartAccept,
    StartOffer,
)
from node.roles.frames import Round
from node.roles.lines import A, ask
from node.roles.plan import Directory, NoParties, Party, Plan
from node.roles.ports import ChainUnavailable, Node
from node.roles.purse import Payment
from node.roles.refusals import NO_SIGNATURE, No
from node.roles.session import SessionFault, SessionState, Terms, check_signature
from node.roles.stored import pack_prompt
from settlement import coins
from settlement.hashing import ZERO32
from settlement.records import Mode, Order, SeedPolicy, SessionStart

OPENING_PASSES: Final = 3
PRICED: Final = {"drafter": "accepted", "verifier": "output"}
STAKED: Final = {"drafter": Role.DRAFTER, "verifier": Role.VERIFIER}
Emit = Callable[[Mapping[str, Any]], Awaitable[None]]


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
    first: float = 0.0  # when its first round came (perf_counter),
    moved: float = 0.0  # and its last


class SessionOpener:
    """Opens sessions for one client. Parties that failed it are not asked again for a while."""

    def __init__(self, node: Node, directory: Directory) -> None:
        self.node = node
        self.directory = directory
        self._avoid: dict[bytes, float] = {}  # operator → unix time until which it is not asked

    def _fresh(self, plan: Plan) -> Plan:
        """The same request under a new id: the old one's nonces are spent."""
        return replace(plan, template=replace(plan.template, request_id=self.node.entropy(32)))

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
            named = [
                f"{role} 0x{who.hex()}"
                for role, who in (("drafter", plan.drafter), ("verifier", plan.verifier))
                if who is not None
            ]
            found = (
                f"no offer for this target of {' and '.join(named)}"
                if named
                else ("no drafter and verifier for this target")
            )
            reasons.append(f"{found} is known; check `verdraft peers` and the bootstrap address")
        raise NoParties("; ".join(reasons[-4:]))

    def _avoided(self, operator: bytes) -> bool:
        return self._avoid.get(operator, 0.0) > self.node.clock()

    def _pairs(self, plan: Plan) -> list[tuple[Party, Party]]:
        """Drafter and verifier pairs, cheapest verifier first, then cheapest drafter, at one price
        one that has a model before one that looks up, which a verifier does by itself; equal ones
        in a random order, so that clients spread over them."""
        target = plan.template.target_model

        def ranked(found: list[Party], only: bytes | None) -> list[Party]:
            if only is not None:
                return [p for p in found if p.operator == only]
            chosen = [p for p in found if not self._avoided(p.operator)]

            def place(party: Party) -> tuple[int, bool, bytes]:
                offer = party.offer
                return offer.price, offer.draft_model_id == ZERO32, self.node.entropy(8)

            return sorted(chosen, key=place)

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
