"""A drawn session as an auditor gets it: pages from a party, checked against the settled root.

What a party delivers is hostile until checked. `Broken` is a delivery that its sender has signed
and that breaks a rule; `Undelivered` is one that proves nothing against anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from node.network.messages import (
    MAX_ROUNDS_PER_ANSWER,
    CaseRequest,
    DrawnAnswer,
    DrawnRequest,
    Kind,
    PromptDelivery,
    RecordsRequest,
    RecordsResponse,
)
from node.roles.accusations import Accusation
from node.roles.auditing import DrawnLane
from node.roles.frames import FrameError, R, Round, read
from node.roles.lines import ask
from node.roles.ports import Node
from node.roles.records import proof_of, settled_of
from node.roles.session import (
    SessionFault,
    SessionState,
    StaleFrame,
    Terms,
    advance,
    check_draft,
    check_verdict,
    round_record,
)
from settlement import trees
from settlement.chain.panel_standing import Subject
from settlement.draws import target_of
from settlement.hashing import ZERO32
from settlement.records import (
    Domain,
    Order,
    RoundRecord,
    SessionStart,
    extend_context,
    prompt_hash,
    stop_string_hash,
)
from settlement.schema import RecordError

DEADLINE: Final = 10.0


class Undelivered(ValueError):
    """What was delivered is not the drawn session; the message says why."""


class Broken(ValueError):
    """The delivered records break a rule of the protocol by themselves: signed, and false.
    `accusation` is the round that does, for a proof."""

    def __init__(self, reason: str, accusation: Accusation) -> None:
        super().__init__(reason)
        self.accusation = accusation


@dataclass(frozen=True)
class Drawn:
    """The round that a sample falls on, proven under the drawn root, and the session it names."""

    order: Order
    start: SessionStart
    record: RoundRecord
    root: trees.Settled
    base: trees.Settled | None


@dataclass(frozen=True)
class Delivered:
    """A session with every round checked by the session's own rules.

    Attributes:
        outside: rounds that do not hang under the settled root (before or after it): context.
        source: who delivered it.
        root, base: the root that was named, and its base; records, proofs: each round's own, and
            where it hangs under the root (None: outside).
    """

    terms: Terms
    delivery: PromptDelivery
    rounds: tuple[Round, ...]
    outside: int
    source: bytes
    root: trees.Settled
    base: trees.Settled | None
    records: tuple[RoundRecord, ...]
    proofs: tuple[trees.SumProof | None, ...]


async def fetch_drawn(node: Node, drawn: DrawnLane, sample: int, source: bytes) -> Drawn:
    """Which round the sample falls on, as `source` shows it. Raises NetworkError, Undelivered."""
    wanted = DrawnRequest(drawn.batch_id, drawn.index, sample)
    answer = await ask(
        node.transport, source, Kind.DRAWN, wanted, DrawnAnswer, deadline=DEADLINE, attempts=1
    )
    try:
        return check_drawn(drawn, sample, answer)
    except (trees.TreeError, RecordError, FrameError) as error:
        raise Undelivered(f"0x{source.hex()} shows no drawn round: {error}") from error


def check_drawn(drawn: DrawnLane, sample: int, answer: DrawnAnswer) -> Drawn:
    """The answer, if its record is the one under the drawn root that the seed asks for, and its
    order and start are the ones that the record names.

    Raises TreeError, RecordError, FrameError, Undelivered.
    """
    root, record = settled_of(answer.root), _whole(RoundRecord, answer.record)
    base = None if answer.base is None else settled_of(answer.base)
    if root.root != drawn.root:
        raise Undelivered("the preimage is not the drawn root's")
    proof = proof_of(answer.path, root.leaf_count)
    root.verify_round(record, proof, base)
    output = root.sums.output - (0 if base is None else base.sums.output)
    # Only one leaf holds the place that the seed names.
    proof.offset_of(trees.round_leaf(record), target_of(drawn.seed, sample, output))
    order, start = _whole(Order, answer.order), _whole(SessionStart, answer.start)
    if start.struct_hash != record.start_hash or start.session_id != order.session_id:
        raise Undelivered("order and start are not the drawn round's")
    if order.lane != drawn.lane:
        raise Undelivered("the order is of another lane")
    return Drawn(order, start, record, root, base)


async def fetch_judged(
    node: Node, case: int, subject: Subject, source: bytes, *, of_draft: bool = False
) -> Delivered:
    """The session that a panel's case is about, for one of its jurors; `of_draft`: the case is
    about D's draft, and its model is the draft model. Raises NetworkError, Undelivered, Broken."""
    answer = await ask(
        node.transport,
        source,
        Kind.CASE,
        CaseRequest(case),
        DrawnAnswer,
        deadline=DEADLINE,
        attempts=1,
    )
    try:
        found = check_judged(subject, answer, of_draft=of_draft)
    except (trees.TreeError, RecordError, FrameError) as error:
        raise Undelivered(f"0x{source.hex()} shows no such round: {error}") from error
    return await fetch_session(node, found, source)


def check_judged(subject: Subject, answer: DrawnAnswer, *, of_draft: bool = False) -> Drawn:
    """The answer, if its record is the one that is asked about.

    Raises TreeError, RecordError, FrameError, Undelivered.
    """
    root, record = settled_of(answer.root), _whole(RoundRecord, answer.record)
    base = None if answer.base is None else settled_of(answer.base)
    if root.root != subject.root or record.leaf_hash != subject.record:
        raise Undelivered("root or record are not what the case is about")
    root.verify_round(record, proof_of(answer.path, root.leaf_count), base)
    order, start = _whole(Order, answer.order), _whole(SessionStart, answer.start)
    if start.struct_hash != record.start_hash or start.session_id != order.session_id:
        raise Undelivered("order and start are not that round's")
    model = order.draft_model if of_draft else order.target_model
    if order.lane.id != subject.lane or model != subject.model:
        raise Undelivered("the order is of another lane or model")
    return Drawn(order, start, record, root, base)


async def fetch_session(node: Node, found: Drawn, source: bytes) -> Delivered:
    """The whole session from `source`, page by page. Raises NetworkError, Undelivered, Broken."""
    pages: list[RecordsResponse] = []
    count = 0
    while not pages or pages[-1].more:
        page = await ask(
            node.transport,
            source,
            Kind.RECORDS,
            RecordsRequest(
                found.order.session_id, count, MAX_ROUNDS_PER_ANSWER, not pages, found.root.root
            ),
            RecordsResponse,
            deadline=DEADLINE,
        )
        if not page.rounds or page.first_round != count:
            raise Undelivered(f"0x{source.hex()} ended its delivery at round {count}")
        count += len(page.rounds)
        if count > found.order.max_tokens:  # a round has at least one token
            raise Undelivered(f"0x{source.hex()} delivers more rounds than tokens")
        pages.append(page)
    try:
        return await check_session(node.domain, found, pages, source)
    except (trees.TreeError, RecordError, FrameError, StaleFrame) as error:
        raise Undelivered(f"0x{source.hex()} delivers no session: {error}") from error


async def check_session(
    domain: Domain, found: Drawn, pages: list[RecordsResponse], source: bytes
) -> Delivered:
    """The pages as one session: terms, prompt, every round's rules, and its place under the root.
    Async only to let others run: a long session has thousands of signatures.

    Raises TreeError, RecordError, FrameError, StaleFrame, Undelivered, Broken.
    """
    first = pages[0]
    delivery, signatures = first.prompt, first.signatures
    if delivery is None or len(signatures) != 6:
        raise Undelivered("the opening lacks the prompt or signatures")
    terms = Terms(
        domain,
        found.order,
        (signatures[0], signatures[1], signatures[2]),
        found.start,
        (signatures[3], signatures[4], signatures[5]),
    )
    if (first.order, first.start) != (found.order.to_wire(), found.start.to_wire()):
        raise Undelivered("the opening is another session's")
    try:
        terms.check()
    except SessionFault as fault:
        raise Undelivered(str(fault)) from fault
    _check_prompt(found.order, delivery)
    state = SessionState.begin(terms)
    rounds: list[Round] = []
    records: list[RoundRecord] = []
    proofs: list[trees.SumProof | None] = []
    seen = False
    for page in pages:
        if len(page.proofs) != len(page.rounds):
            raise Undelivered("not one proof, or none, per round")
        for raw, path in zip(page.rounds, page.proofs, strict=True):
            await trio.lowlevel.checkpoint()
            done = Round.from_wire(raw)
            record = round_record(done)
            proof = None if path is None else proof_of(path, found.root.leaf_count)
            if proof is not None:
                found.root.verify_round(record, proof, found.base)
                seen = seen or record == found.record
            before = rounds[-1] if rounds else None
            state = _checked(terms, state, before, done, settled=proof is not None)
            rounds.append(done)
            records.append(record)
            proofs.append(proof)
    if not seen:
        raise Undelivered("the drawn round is not in the delivery")
    return Delivered(
        terms=terms,
        delivery=delivery,
        rounds=tuple(rounds),
        outside=proofs.count(None),
        source=source,
        root=found.root,
        base=found.base,
        records=tuple(records),
        proofs=tuple(proofs),
    )


def _checked(
    terms: Terms, state: SessionState, before: Round | None, done: Round, *, settled: bool
) -> SessionState:
    """The state after a round. Broken when a round that was settled breaks a rule."""
    try:
        if done.draft is not None:
            check_draft(terms, state, done.draft)
        check_verdict(terms, state, done.draft, done.verdict)
    except SessionFault as fault:
        if settled:
            accused = Accusation(terms.order, terms.start, before, done.draft, done.verdict)
            raise Broken(f"round {state.round}: {fault}", accused) from fault
        raise Undelivered(f"round {state.round}: {fault}") from fault
    return advance(terms, state, done)


def _check_prompt(order: Order, delivery: PromptDelivery) -> None:
    if prompt_hash(delivery.salt, delivery.prompt) != order.prompt_hash:
        raise Undelivered("promptHash is not the hash of this prompt")
    if tuple(map(stop_string_hash, delivery.stops)) != order.stop_string_hashes:
        raise Undelivered("the stop strings are not the order's")
    if len(delivery.output) != order.start_position:
        raise Undelivered("the output before the session is not all there")
    first = order.parent_session == ZERO32
    if not first and extend_context(order.prompt_hash, delivery.output) != order.context_hash:
        raise Undelivered("the output before the session is another one")


def _whole(kind: type[R], raw: bytes) -> R:
    record, rest = read(kind, raw)
    if rest:
        raise FrameError(f"{len(rest)} bytes after the {kind.__name__}")
    return record
