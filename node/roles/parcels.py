"""What the auditors of a ticket are given: one session up to one round, and which token of it they
are asked about. Nothing in it says whose session it is, so that a canary looks like any other.

Left out are the parties and everything that they have signed, the prices and the claim, and all
hashes that lead to settled records. What is left is all that decides which token comes out: terms,
seed, prompt, text, drafts, coins, and V's own figures there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from node.network.codec import decode
from node.network.errors import MalformedFrame
from node.network.messages import PromptDelivery
from node.roles.delivery import Delivered
from node.roles.frames import DraftFrame, FrameError, Round, VerdictFrame, read, take
from node.roles.rerun import Case
from settlement.hashing import ZERO32, keccak256
from settlement.panels import verdict_figures
from settlement.records import NO_TOKEN, Mode, Order, VerdictLeaf, kept_hash, top_hash
from settlement.schema import RecordError

MOST_BYTES: Final = 1 << 25  # of a parcel: 1,024 rounds with full lists fit twice over
_NOBODY: Final = bytes(20)
_UNSIGNED: Final = bytes(65)
_SOME: Final = b"\x01" * 32  # where a record must have a hash


@dataclass(frozen=True)
class Parcel:
    """A session to run again, and the token of its last round that is asked about.

    Attributes:
        salt: 32 random bytes, so that the parcel's hash, which is public, tells nobody its text.
        within: the token's number in the last round.
    """

    salt: bytes
    case: Case
    within: int

    @classmethod
    def of(cls, salt: bytes, delivered: Delivered, index: int, within: int) -> Parcel:
        """Of a delivered session and one of its tokens."""
        terms = delivered.terms
        rounds = tuple(_bare_round(done) for done in delivered.rounds[: index + 1])
        delivery = replace(delivered.delivery, salt=ZERO32)
        return cls(salt, Case(_bare_order(terms.order), terms.seed, delivery, rounds), within)

    @property
    def leaf(self) -> VerdictLeaf:
        """What was said there."""
        return self.case.rounds[-1].verdict.leaves[self.within]

    @property
    def index(self) -> int:
        """Of the round that is asked about."""
        return len(self.case.rounds) - 1

    @property
    def figures(self) -> bytes:
        """One hash of it (`panels.verdict_figures`)."""
        return verdict_figures(self.leaf)

    def with_token(self, token: int) -> Parcel:
        """The same with another token in that place; where a draft was accepted there, it is of
        that token too (outside rejection and relaxed mode, whose lists say which it may be)."""
        last = self.case.rounds[-1]
        leaves, draft = list(last.verdict.leaves), last.draft
        leaf = replace(self.leaf, token=token)
        if leaf.accepted:
            assert draft is not None
            leaf = replace(leaf, draft_token=token)
            drafts = list(draft.leaves)
            drafts[self.within] = replace(drafts[self.within], token=token)
            draft = DraftFrame(draft.commit, draft.signature, tuple(drafts), draft.kept, draft.tops)
        leaves[self.within] = leaf
        verdict = VerdictFrame(last.verdict.verdict, last.verdict.signature, tuple(leaves))
        rounds = (*self.case.rounds[:-1], Round(draft, verdict))
        return replace(self, case=replace(self.case, rounds=rounds))

    def to_wire(self) -> bytes:
        case = self.case
        parts = [case.order.to_wire(), case.delivery.encode(), *(r.to_wire() for r in case.rounds)]
        sized = b"".join(struct.pack(">I", len(part)) + part for part in parts)
        return self.salt + case.seed + struct.pack(">I", self.within) + sized

    @classmethod
    def from_wire(cls, raw: bytes) -> Parcel:
        """The inverse of `to_wire`; FrameError otherwise. The text is whatever its sender wrote:
        nobody has signed it."""
        head, _ = take(raw[:68], 68, "salt, seed and place")
        salt, seed, (within,) = head[:32], head[32:64], struct.unpack(">I", head[64:])
        parts = _parts(raw, 68)
        order, rest = read(Order, next(parts, b""))
        if rest:
            raise FrameError(f"{len(rest)} bytes after the order")
        try:
            delivery = decode(next(parts, b""), PromptDelivery)
        except MalformedFrame as error:
            raise FrameError(f"no prompt: {error}") from error
        rounds: list[Round] = []
        for part in parts:
            if len(rounds) == order.max_tokens:
                raise FrameError(f"more rounds than the {order.max_tokens} tokens ordered")
            rounds.append(Round.from_wire(part))
        if not rounds or within >= len(rounds[-1].verdict.leaves):
            raise FrameError(f"the last of {len(rounds)} rounds has no token {within}")
        _check(order, rounds)
        return cls(salt, Case(order, seed, delivery, tuple(rounds)), within)

    @property
    def text(self) -> bytes:
        """keccak256 of all that is delivered: what a ticket's transaction and a canary name."""
        return text_of(self.to_wire())


def text_of(raw: bytes) -> bytes:
    """The hash of a parcel as it travels."""
    return keccak256(raw)


def _parts(raw: bytes, at: int) -> Iterator[bytes]:
    """The sized parts from `at` on, one by one: what the first says may refuse the rest."""
    while at < len(raw):
        (size,) = struct.unpack(">I", take(raw[at : at + 4], 4, "size")[0])
        at += 4 + size
        if at > len(raw):
            raise FrameError(f"truncated: a part ends at {at} of {len(raw)} bytes")
        yield raw[at - size : at]


def _check(order: Order, rounds: Sequence[Round]) -> None:
    """That a second run finds what it reads, lists included: nobody has checked a stranger's parcel
    as the parties of a session check each other's frames. FrameError otherwise."""
    position = order.start_position
    for number, done in enumerate(rounds):
        verdict, draft = done.verdict.verdict, done.draft
        leaves, drafts = done.verdict.leaves, draft.leaves if draft else ()
        if (verdict.base, verdict.emitted) != (position, len(leaves)):
            raise FrameError(f"round {number} does not go on at position {position}")
        for place, leaf in enumerate(leaves):
            drafted = drafts[place].token if place < len(drafts) else None
            if leaf.position != position + place:
                raise FrameError(f"round {number} leaves position {position + place} out")
            if leaf.draft_token not in (drafted, NO_TOKEN) or (leaf.accepted and drafted is None):
                raise FrameError(f"round {number} names a draft that is not there")
        if draft is not None:
            wanted = len(drafts) if order.mode == Mode.REJECTION else 0
            if len(draft.kept) != wanted or len(draft.tops) != len(drafts) * bool(order.relax_tau):
                raise FrameError(f"round {number} lacks its drafts' lists")
            try:
                _check_lists(draft)
            except RecordError as error:
                raise FrameError(f"round {number}: {error}") from error
        position += len(leaves)


def _check_lists(draft: DraftFrame) -> None:
    """As `session.check_draft`, but for what is signed or follows from the chains. FrameError,
    RecordError."""
    for index, leaf in enumerate(draft.leaves):
        if leaf.token == NO_TOKEN:
            raise FrameError("a draft without a token")
        if draft.kept:
            kept = draft.kept[index]
            below = sum(mass for token, mass in kept if token < leaf.token)
            mass = dict(kept).get(leaf.token, 0)
            if leaf.kept_hash != kept_hash(kept) or not mass:
                raise FrameError("a kept list is not the draft's")
            if (leaf.q, leaf.q_below) != (mass, below):
                raise FrameError("q or qBelow is not the kept list's")
        if draft.tops and leaf.top_hash != top_hash(draft.tops[index]):
            raise FrameError("a top list is not the draft's")


def _bare_order(order: Order) -> Order:
    """The order's terms without anybody's name on them."""
    first = order.parent_session == ZERO32
    anchor = _SOME if order.mode == Mode.REJECTION else ZERO32
    return replace(
        order,
        request_id=ZERO32,
        parent_session=ZERO32 if first else _SOME,
        context_hash=ZERO32 if first else _SOME,
        client=_NOBODY,
        drafter=_NOBODY,
        verifier=_NOBODY,
        token=_NOBODY,
        price_accepted=0,
        price_output=0,
        prompt_hash=ZERO32,
        claim_id=ZERO32,
        nonce_commit_client=ZERO32,
        nonce_commit_verifier=ZERO32,
        anchor_verifier=anchor,
        anchor_drafter=anchor,
        deadline=0,
        nonce=0,
    )


def _bare_round(done: Round) -> Round:
    draft = None
    if done.draft is not None:
        commit = replace(
            done.draft.commit,
            start_hash=ZERO32,
            context_hash=ZERO32,
            prev_verdict_hash=ZERO32,
            draft_root=ZERO32,
            chain_value=ZERO32,
        )
        lists = done.draft.kept, done.draft.tops
        draft = DraftFrame(commit, _UNSIGNED, done.draft.leaves, *lists)
    verdict = replace(
        done.verdict.verdict,
        start_hash=ZERO32,
        draft_commit_hash=ZERO32,
        context_hash=ZERO32,
        next_context_hash=ZERO32,
        verdict_root=ZERO32,
    )
    leaves = tuple(replace(leaf, fingerprint=ZERO32) for leaf in done.verdict.leaves)
    return Round(draft, VerdictFrame(verdict, _UNSIGNED, leaves))
