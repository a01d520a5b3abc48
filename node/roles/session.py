"""One session as all three parties see it: fixed terms, and a state that only checked rounds move.

Everything here is pure. `check_draft` and `check_verdict` are what a party runs on a frame from
another before it acts on it; `advance` is the only way the state changes. A frame that is merely
old raises `StaleFrame` and is dropped; one that no honest peer sends raises `SessionFault` and says
which rule it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from node.roles.frames import DraftFrame, FrameError, Round, VerdictFrame, read, take
from settlement import accept_rule, alpha, coins, trees
from settlement.hashing import ZERO32
from settlement.records import (
    NO_TOKEN,
    Domain,
    Mode,
    Order,
    RoundRecord,
    SessionStart,
    extend_context,
    kept_hash,
    top_hash,
)
from settlement.schema import RecordError
from settlement.signing import BadSignature

PARTIES: Final = ("client", "drafter", "verifier")


class SessionFault(ValueError):
    """A frame breaks a rule of the protocol; `guilty` is the role that sent it."""

    def __init__(self, guilty: str, rule: str, value: object = None) -> None:
        shown = "" if value is None else f" (got {value!r:.120})"
        super().__init__(f"{guilty}: {rule}{shown}")
        self.guilty, self.rule, self.value = guilty, rule, value


class StaleFrame(ValueError):
    """A frame for a base or context that is not the current one: dropped, no fault."""


@dataclass(frozen=True)
class Terms:
    """An order and its start with all six signatures: what a session runs under.

    Signatures are in the order client, drafter, verifier.
    """

    domain: Domain
    order: Order
    order_signatures: tuple[bytes, bytes, bytes]
    start: SessionStart
    start_signatures: tuple[bytes, bytes, bytes]

    @cached_property
    def start_hash(self) -> bytes:
        return self.start.struct_hash

    @property
    def seed(self) -> bytes:
        return self.start.seed

    @property
    def parties(self) -> tuple[bytes, bytes, bytes]:
        return (self.order.client, self.order.drafter, self.order.verifier)

    def check(self) -> None:
        """SessionFault unless every signature is by its party and the start belongs to the
        order."""
        if self.start.session_id != self.order.session_id:
            raise SessionFault("client", "the start names another session", self.start.session_id)
        for signatures, record in (
            (self.order_signatures, self.order),
            (self.start_signatures, self.start),
        ):
            for role, party, signature in zip(PARTIES, self.parties, signatures, strict=True):
                check_signature(self.domain, role, party, record, signature)

    def to_wire(self) -> bytes:
        return b"".join(
            [
                self.order.to_wire(),
                *self.order_signatures,
                self.start.to_wire(),
                *self.start_signatures,
            ]
        )

    @classmethod
    def from_wire(cls, raw: bytes, domain: Domain) -> Terms:
        """The inverse of `to_wire`; FrameError otherwise. Signatures are not yet checked."""
        order, raw = read(Order, raw)
        first, raw = take(raw, 195, "order signatures")
        start, raw = read(SessionStart, raw)
        second, raw = take(raw, 195, "start signatures")
        if raw:
            raise FrameError(f"{len(raw)} bytes after the terms")

        def split(block: bytes) -> tuple[bytes, bytes, bytes]:
            return block[:65], block[65:130], block[130:]

        return cls(domain, order, split(first), start, split(second))


@dataclass(frozen=True)
class SessionState:
    """Where a session stands after its committed rounds.

    Attributes:
        round: number of the next round.
        position: absolute position of the next output token (the next base).
        context: c at that position.
        verdict_hash: struct hash of the last verdict, zero before the first.
        chain_drafter, chain_verifier: last revealed chain values (the anchors before round 0).
        chain_drafter_round: the round that revealed D's (−1: none); a round without drafts
            reveals none, so the next one may lie several steps up the chain.
        announced: drafts that the next round must have (rejection mode) or is advised to have.
        stopped: the output has ended.
        tokens: output tokens of this session.
    """

    round: int
    position: int
    context: bytes
    verdict_hash: bytes
    chain_drafter: bytes
    chain_verifier: bytes
    announced: int
    chain_drafter_round: int = -1
    stopped: bool = False
    tokens: tuple[int, ...] = field(default=())

    @classmethod
    def begin(cls, terms: Terms) -> SessionState:
        order = terms.order
        return cls(
            round=0,
            position=order.start_position,
            context=order.start_context,
            verdict_hash=ZERO32,
            chain_drafter=order.anchor_drafter,
            chain_verifier=order.anchor_verifier,
            announced=terms.start.first_k,
        )


def check_signature(
    domain: Domain, role: str, party: bytes, record: object, signature: bytes
) -> None:
    """SessionFault unless `party` signed `record`."""
    name = type(record).__name__
    try:
        signer = domain.signer(record, signature)  # type: ignore[arg-type]
    except BadSignature as error:
        raise SessionFault(role, f"{name}: {error}") from error
    if signer != party:
        raise SessionFault(role, f"{name} is not signed by this party", signer.hex())


def window_limit(order: Order, position: int) -> int:
    """The most drafts a round at `position` may have: V adds one token after a full accept, and
    nothing passes max tokens."""
    return min(order.max_window, order.max_tokens - position)


def check_draft(terms: Terms, state: SessionState, frame: DraftFrame) -> None:
    """What V (and C) must check before a draft is acted on.

    Raises StaleFrame for a frame that is not about the current base and context, SessionFault for
    one that breaks a rule.
    """
    order, commit = terms.order, frame.commit
    fail = "drafter"
    if commit.start_hash != terms.start_hash:
        raise StaleFrame("a draft of another session")
    if state.stopped or commit.round != state.round or commit.base != state.position:
        raise StaleFrame(f"draft for round {commit.round}, base {commit.base}")
    if commit.context_hash != state.context:
        raise StaleFrame("a draft on another context")
    if commit.prev_verdict_hash != state.verdict_hash:
        raise SessionFault(fail, "prevVerdictHash is not the last verdict's", commit.round)
    check_signature(terms.domain, fail, order.drafter, commit, frame.signature)
    limit = window_limit(order, state.position)
    if not 1 <= commit.k <= limit or commit.k != len(frame.leaves):
        raise SessionFault(fail, f"k is 1 to {limit} and counts the leaves", commit.k)
    rejection, relaxed = order.mode == Mode.REJECTION, order.relax_tau > 0
    if rejection and commit.k != min(state.announced, limit):
        raise SessionFault(fail, f"rejection mode: exactly {state.announced} drafts", commit.k)
    steps = state.round - state.chain_drafter_round
    _check_chain(fail, order, commit.chain_value, state.chain_drafter, steps)
    if len(frame.kept) != (commit.k if rejection else 0):
        raise SessionFault(fail, "one kept list per leaf in rejection mode, none elsewhere")
    if len(frame.tops) != (commit.k if relaxed else 0):
        raise SessionFault(fail, "one top list per leaf in relaxed mode, none elsewhere")
    for index, leaf in enumerate(frame.leaves):
        if leaf.position != commit.base + index or leaf.token == NO_TOKEN:
            raise SessionFault(fail, "leaf positions run from the base", leaf.position)
        try:
            if leaf.kept_hash != (kept_hash(frame.kept[index]) if rejection else ZERO32):
                raise SessionFault(fail, "kept list is not the committed one", index)
            if leaf.top_hash != (top_hash(frame.tops[index]) if relaxed else ZERO32):
                raise SessionFault(fail, "top list is not the committed one", index)
        except RecordError as error:
            raise SessionFault(fail, str(error)) from error
        if rejection:
            _check_drawn(terms, state, frame, index)
    if trees.merkle_root([leaf.leaf_hash for leaf in frame.leaves]) != commit.draft_root:
        raise SessionFault(fail, "draftRoot is not the root of the leaves")


def _check_chain(guilty: str, order: Order, value: bytes, previous: bytes, steps: int) -> None:
    """A chain value leads in `steps` to the one revealed before; none is sent outside rejection
    mode."""
    if order.mode != Mode.REJECTION:
        if value != ZERO32:
            raise SessionFault(guilty, "a chain value outside rejection mode", value.hex())
    elif coins.anchor_of(value, steps - 1) != previous:
        raise SessionFault(guilty, "chain value does not hash to the last one", value.hex())


def _check_drawn(terms: Terms, state: SessionState, frame: DraftFrame, index: int) -> None:
    """D's token is the one its committed coin draws from its committed list (protocol §4)."""
    leaf, kept = frame.leaves[index], frame.kept[index]
    below = sum(mass for token, mass in kept if token < leaf.token)
    mass = dict(kept).get(leaf.token, 0)
    if (leaf.q, leaf.q_below) != (mass, below) or mass == 0:
        raise SessionFault("drafter", "q or qBelow is not the kept list's", leaf.position)
    coin = coins.draw_coin(
        frame.commit.chain_value, terms.seed, frame.commit.context_hash, leaf.position
    )
    if not below <= coin < below + mass:
        raise SessionFault("drafter", "the token is not the one its coin draws", leaf.position)


def check_verdict(
    terms: Terms, state: SessionState, draft: DraftFrame | None, frame: VerdictFrame
) -> None:
    """What D and C must check before a round counts: signature, draft, root, context, counts,
    stops, coin, and the accept rule on the leaves' own figures. Only a stop cuts a window short;
    where it may be a stop string, whoever has the tokenizer must see that it is one.

    Raises StaleFrame for a verdict on another round, SessionFault for one that breaks a rule.
    """
    order, verdict, fail = terms.order, frame.verdict, "verifier"
    if verdict.start_hash != terms.start_hash:
        raise StaleFrame("a verdict of another session")
    if state.stopped or verdict.round != state.round:
        raise StaleFrame(f"verdict for round {verdict.round}")
    check_signature(terms.domain, fail, order.verifier, verdict, frame.signature)
    if (verdict.base, verdict.context_hash) != (state.position, state.context):
        raise SessionFault(fail, "base or context is not the current one", verdict.base)
    commit = None if draft is None else draft.commit
    if verdict.draft_commit_hash != (ZERO32 if commit is None else commit.struct_hash):
        raise SessionFault(fail, "the verdict is about another draft", verdict.round)
    if (
        order.mode == Mode.REJECTION
        and commit is None
        and min(state.announced, window_limit(order, state.position))
    ):
        raise SessionFault(fail, "rejection mode: the announced drafts were not used")
    drafted = 0 if commit is None else commit.k
    if not 1 <= verdict.emitted <= drafted + 1 or verdict.emitted != len(frame.leaves):
        raise SessionFault(fail, "emitted counts the leaves, 1 to k + 1", verdict.emitted)
    if verdict.base + verdict.emitted > order.max_tokens:
        raise SessionFault(fail, "passes max tokens", verdict.base + verdict.emitted)
    _check_chain(fail, order, verdict.chain_value, state.chain_verifier, 1)
    for index, leaf in enumerate(frame.leaves):
        last = index == len(frame.leaves) - 1
        proposed = draft.leaves[index].token if draft and index < drafted else NO_TOKEN
        if leaf.position != verdict.base + index or leaf.draft_token != proposed:
            raise SessionFault(fail, "leaf does not name the committed draft", leaf.position)
        if not leaf.accepted and not last:
            raise SessionFault(fail, "output goes on after a reject", leaf.position)
        if leaf.token in order.stop_ids and not last:
            raise SessionFault(fail, "output goes on after a stop id", leaf.position)
        fault = accept_rule.check_leaf_pair(
            order,
            terms.seed,
            verdict.base + index,
            draft.leaves[index] if draft and index < drafted else None,
            leaf,
            verdict.chain_value,
        )
        if fault is not None:
            raise SessionFault(fail, f"accept rule: {fault.name}", leaf.position)
    last = frame.leaves[-1]
    ends = verdict.base + verdict.emitted >= order.max_tokens or last.token in order.stop_ids
    if last.accepted and not ends and not order.stop_string_hashes:
        raise SessionFault(fail, "the window is cut short without a stop", last.position)
    if verdict.k != sum(leaf.accepted for leaf in frame.leaves):
        raise SessionFault(fail, "k counts the accepted leaves", verdict.k)
    if trees.merkle_root([leaf.leaf_hash for leaf in frame.leaves]) != verdict.verdict_root:
        raise SessionFault(fail, "verdictRoot is not the root of the leaves")
    if extend_context(state.context, frame.tokens) != verdict.next_context_hash:
        raise SessionFault(fail, "nextContextHash does not follow from the tokens")


def output_ended(terms: Terms, frame: VerdictFrame, *, stop_string: bool) -> bool:
    """Whether the output ends with this verdict: at a stop id, at max tokens, or (`stop_string`,
    which only a party with the tokenizer can tell) at a stop string."""
    order, verdict = terms.order, frame.verdict
    return (
        frame.leaves[-1].token in order.stop_ids
        or verdict.base + verdict.emitted >= order.max_tokens
        or stop_string
    )


def advance(
    terms: Terms, state: SessionState, done: Round, *, stop_string: bool = False
) -> SessionState:
    """The state after a checked round."""
    verdict = done.verdict.verdict
    commit = None if done.draft is None else done.draft.commit
    return replace(
        state,
        round=state.round + 1,
        position=verdict.base + verdict.emitted,
        context=verdict.next_context_hash,
        verdict_hash=verdict.struct_hash,
        chain_drafter=commit.chain_value if commit else state.chain_drafter,
        chain_drafter_round=state.round if commit else state.chain_drafter_round,
        chain_verifier=verdict.chain_value,
        announced=verdict.next_k,
        stopped=output_ended(terms, done.verdict, stop_string=stop_string),
        tokens=state.tokens + done.verdict.tokens,
    )


def round_record(done: Round) -> RoundRecord:
    """The round as the lane's sum tree holds it."""
    verdict = done.verdict.verdict
    commit = None if done.draft is None else done.draft.commit
    sums = alpha.round_sums(done.verdict.leaves)
    return RoundRecord(
        start_hash=verdict.start_hash,
        round=verdict.round,
        draft_root=commit.draft_root if commit else ZERO32,
        verdict_root=verdict.verdict_root,
        draft_commit_hash=commit.struct_hash if commit else ZERO32,
        verdict_hash=verdict.struct_hash,
        output=sums.output,
        accepted=sums.accepted,
        buckets=sums.buckets,
    )
