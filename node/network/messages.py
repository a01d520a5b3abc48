"""Every message between two nodes, its kind and its bounds.

`Kind` is what the transport routes by: a request kind has one handler, a channel kind one line of
tagged messages. `BOUNDS` gives the transport the largest payload of each, so that an oversized
frame is refused by its header. Settlement records (orders, draft commits, verdicts, vouchers) and
round frames are opaque bytes here; their own modules read and check them.

Requests, with their answers:

    PING      Ping            → Pong
    REACH     ReachRequest    → Reached
    GOSSIP    GossipDigest    → GossipNews
    QUOTE     QuoteRequest    → Quote
    ORDER     OrderOffer      → OrderAccept
    START     StartOffer      → StartAccept
    VOUCHER   VoucherRequest  → VoucherSignature
    RESUME    Resume          → SessionState
    RECORDS   RecordsRequest  → RecordsResponse
    DRAWN     DrawnRequest    → DrawnAnswer
    COMMIT    AuditCommit     → Done
    SALTS     SaltsRequest    → SaltsAnswer
    REVEAL    AuditReveal     → Done
    CASE      CaseRequest     → DrawnAnswer
    PARCEL    ParcelRequest   → ParcelPage

Channels: SESSION between drafter and verifier (DraftRound, VerdictRound, SessionState, Notice),
STREAM from verifier to client (RoundCommitted, SessionState, Notice; vouchers go as requests).
A "no" to a request is the transport's `Refused`; on a channel it is a `Notice`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from node.network.codec import (
    U8,
    U16,
    U32,
    U64,
    U128,
    Address,
    Fixed,
    Flag,
    Hash,
    Many,
    Maybe,
    Message,
    Nested,
    Signature,
    TokenIds,
    Unsigned,
    Utf8,
    Variable,
    registry,
)
from node.network.transport import SizeBounds

# Largest prompt, in tokens, that a request may carry; a model's own context length is less or more.
MAX_PROMPT: Final = 1 << 17
MAX_ORDER: Final = 4096
# 64 drafts with full kept and top lists take 57,500 bytes, 65 verdict leaves 7,500.
MAX_DRAFT_FRAME: Final = 60 * 1024
MAX_VERDICT_FRAME: Final = 12 * 1024
MAX_ROUND: Final = MAX_DRAFT_FRAME + MAX_VERDICT_FRAME + 4
MAX_ROUNDS_PER_ANSWER: Final = 8
MAX_OFFERS: Final = 16
MAX_ENDPOINTS: Final = 8
MAX_DIGEST: Final = 1024
MAX_NEWS: Final = 64
MAX_SIGNATURES: Final = 3
MAX_STOPS: Final = 16
MAX_RUNS: Final = 4096
MAX_PATH: Final = 32
MAX_SALTED_ROUNDS: Final = 64
MAX_PARCEL_PAGE: Final = 1 << 18


class Kind(IntEnum):
    """What the transport routes by."""

    PING = 1
    GOSSIP = 2
    ORDER = 3
    QUOTE = 4
    START = 5
    VOUCHER = 7
    RESUME = 8
    RECORDS = 9
    REACH = 10
    DRAWN = 11
    COMMIT = 12
    SALTS = 13
    REVEAL = 14
    CASE = 15
    PARCEL = 16
    SESSION = 32
    STREAM = 33


class Role(IntEnum):
    """What a node offers to do."""

    BOOTSTRAP = 0
    CLIENT = 1
    DRAFTER = 2
    VERIFIER = 3
    AUDITOR = 4


# ---------------------------------------------------------------- small ones


@dataclass(frozen=True)
class Ping(Message):
    """Is anybody there, and what time is it? `nonce` comes back."""

    TAG: ClassVar[int] = 1
    nonce: U64


@dataclass(frozen=True)
class Pong(Message):
    TAG: ClassVar[int] = 2
    nonce: U64
    unix_ms: U64


@dataclass(frozen=True)
class Done(Message):
    """Taken. `token` names what was done, so that a repeated request gets the same answer."""

    TAG: ClassVar[int] = 3
    token: Hash


@dataclass(frozen=True)
class ReachRequest(Message):
    """Can you dial me at these endpoints? All of them must name the asker's own peer id."""

    TAG: ClassVar[int] = 5
    endpoints: Annotated[tuple[str, ...], Many(Utf8(160), MAX_ENDPOINTS)]


@dataclass(frozen=True)
class Reached(Message):
    """Per endpoint: empty when it was reached, else why not."""

    TAG: ClassVar[int] = 6
    failures: Annotated[tuple[str, ...], Many(Utf8(200), MAX_ENDPOINTS)]


@dataclass(frozen=True)
class Notice(Message):
    """Why a channel's session pauses or ends. `code` is the role's own."""

    TAG: ClassVar[int] = 4
    session_id: Hash
    code: U16
    reason: Annotated[str, Utf8(400)]
    retry_after_ms: Annotated[int | None, Maybe(Unsigned(4))] = None


# ---------------------------------------------------------------- discovery


@dataclass(frozen=True)
class Offer(Message):
    """One service at one price. Prices are in the token's smallest unit per token of output
    (verifier) or per accepted token (drafter); `model_id` is the target's, `draft_model_id` the
    drafter's own (zero: none, n-gram, or not a drafter); `speed` is measured, in thousandths of a
    token per second, None until measured."""

    TAG: ClassVar[int] = 16
    role: U8
    model_id: Hash
    price: U128
    token: Address
    claim_id: Hash
    speed: Annotated[int | None, Maybe(Unsigned(8))] = None
    draft_model_id: Hash = bytes(32)


@dataclass(frozen=True)
class Announcement(Message):
    """What a node says about itself; see `discovery` for what makes one valid.

    sequence: rises with every announcement of this operator, over restarts too.
    expires_ms: unix milliseconds after which it counts for nothing.
    left: the node says goodbye; its older announcements must not come back.
    """

    TAG: ClassVar[int] = 17
    operator: Address
    sequence: U64
    expires_ms: U64
    left: Flag
    endpoints: Annotated[tuple[str, ...], Many(Utf8(160), MAX_ENDPOINTS)]
    offers: Annotated[tuple[Offer, ...], Many(Nested(Offer), MAX_OFFERS)]
    aborts: U32 = 0  # sessions this node broke off after a seed was revealed, by its own count


MAX_ANNOUNCEMENT: Final = Announcement.bound()


@dataclass(frozen=True)
class SignedAnnouncement(Message):
    """`body` is an encoded Announcement, kept as it was signed."""

    TAG: ClassVar[int] = 18
    body: Annotated[bytes, Variable(MAX_ANNOUNCEMENT)]
    signature: Signature


@dataclass(frozen=True)
class Held(Message):
    """The newest sequence of one operator that the sender holds."""

    TAG: ClassVar[int] = 19
    operator: Address
    sequence: U64


@dataclass(frozen=True)
class GossipDigest(Message):
    """What the sender holds, and what it thinks is news to the receiver."""

    TAG: ClassVar[int] = 20
    held: Annotated[tuple[Held, ...], Many(Nested(Held), MAX_DIGEST)]
    news: Annotated[tuple[SignedAnnouncement, ...], Many(Nested(SignedAnnouncement), MAX_NEWS)] = ()


@dataclass(frozen=True)
class GossipNews(Message):
    """Announcements newer than the digest, and operators of whom the digest had newer ones."""

    TAG: ClassVar[int] = 21
    news: Annotated[tuple[SignedAnnouncement, ...], Many(Nested(SignedAnnouncement), MAX_NEWS)]
    wanted: Annotated[tuple[bytes, ...], Many(Fixed(20), MAX_NEWS)] = ()


# ---------------------------------------------------------------- opening a session


@dataclass(frozen=True)
class PromptDelivery(Message):
    """The prompt behind c_0, the stop strings behind their hashes, and the output committed so far
    after a hand-over."""

    TAG: ClassVar[int] = 37
    salt: Hash
    prompt: Annotated[tuple[int, ...], TokenIds(MAX_PROMPT)]
    stops: Annotated[tuple[str, ...], Many(Utf8(128), MAX_STOPS)] = ()
    output: Annotated[tuple[int, ...], TokenIds(MAX_PROMPT)] = ()


@dataclass(frozen=True)
class QuoteRequest(Message):
    """What would D or V put into an order for this request? Nothing is promised by asking."""

    TAG: ClassVar[int] = 34
    request_id: Hash
    parent_session: Hash
    rounds: U32  # the most rounds the session may have: the length of a hash chain


@dataclass(frozen=True)
class Quote(Message):
    """The answerer's own fields of the order: V's nonce commitment (zero from D) and the anchor of
    its hash chain for this request and parent."""

    TAG: ClassVar[int] = 38
    nonce_commitment: Hash
    anchor: Hash


@dataclass(frozen=True)
class OrderOffer(Message):
    """C asks D or V to sign this order. `signatures` are those already given, by party order
    client, drafter, verifier (65 zero bytes where one is missing)."""

    TAG: ClassVar[int] = 32
    order: Annotated[bytes, Variable(MAX_ORDER)]
    signatures: Annotated[tuple[bytes, ...], Many(Fixed(65), MAX_SIGNATURES)]
    delivery: Annotated[PromptDelivery | None, Maybe(Nested(PromptDelivery))] = None


@dataclass(frozen=True)
class OrderAccept(Message):
    """A signature under the order; from V, once all three are there, also its nonce."""

    TAG: ClassVar[int] = 33
    session_id: Hash
    signature: Signature
    nonce: Annotated[bytes | None, Maybe(Fixed(32))] = None


@dataclass(frozen=True)
class StartOffer(Message):
    """A SessionStart record with the signatures so far, as in OrderOffer, and the nonces behind
    the order's commitments (client, verifier; zeros under seed policy client)."""

    TAG: ClassVar[int] = 35
    session_id: Hash
    start: Annotated[bytes, Variable(256)]
    signatures: Annotated[tuple[bytes, ...], Many(Fixed(65), MAX_SIGNATURES)]
    nonces: Annotated[tuple[bytes, ...], Many(Fixed(32), 2)]


@dataclass(frozen=True)
class StartAccept(Message):
    TAG: ClassVar[int] = 36
    session_id: Hash
    signature: Signature


# ---------------------------------------------------------------- rounds


@dataclass(frozen=True)
class DraftRound(Message):
    """D's window for a round: signed commit, leaves and kept lists, as one opaque frame, or empty
    when D has nothing to propose; and, unsigned, what it cost, so that V can choose the next."""

    TAG: ClassVar[int] = 48
    round: U32
    frame: Annotated[bytes, Variable(MAX_DRAFT_FRAME)]
    made: U16 = 0  # tokens that the time below was spent on
    microseconds: U32 = 0
    reading: U32 = 0  # microseconds more, for what had been emitted before


@dataclass(frozen=True)
class VerdictRound(Message):
    """V's signed verdict with its leaves, as one opaque frame."""

    TAG: ClassVar[int] = 49
    frame: Annotated[bytes, Variable(MAX_VERDICT_FRAME)]


@dataclass(frozen=True)
class RoundCommitted(Message):
    """A committed round on its way to C: both frames in one, opaque."""

    TAG: ClassVar[int] = 50
    session_id: Hash
    round: U32
    frames: Annotated[bytes, Variable(MAX_ROUND)]


@dataclass(frozen=True)
class Resume(Message):
    """Where does the session stand? `rounds` is what the sender holds."""

    TAG: ClassVar[int] = 51
    session_id: Hash
    rounds: U32


@dataclass(frozen=True)
class SessionState(Message):
    """What a party holds of a session: rounds committed, position and context after them, and the
    last signed draft and verdict frames, which a restart re-sends byte for byte."""

    TAG: ClassVar[int] = 52
    session_id: Hash
    start_hash: Hash
    rounds: U32
    position: U32
    context_hash: Hash
    ended: Flag
    draft: Annotated[bytes, Variable(MAX_DRAFT_FRAME)] = b""
    verdict: Annotated[bytes, Variable(MAX_VERDICT_FRAME)] = b""


# ---------------------------------------------------------------- payment and records


@dataclass(frozen=True)
class RoundRun(Message):
    """Consecutive rounds of one session: leaves of a lane's tree, in order."""

    TAG: ClassVar[int] = 68
    start_hash: Hash
    first: U32
    count: U32


@dataclass(frozen=True)
class VoucherRequest(Message):
    """Sign this voucher over these rounds. `signatures` as in OrderOffer."""

    TAG: ClassVar[int] = 64
    voucher: Annotated[bytes, Variable(1024)]
    signatures: Annotated[tuple[bytes, ...], Many(Fixed(65), MAX_SIGNATURES)]
    runs: Annotated[tuple[RoundRun, ...], Many(Nested(RoundRun), MAX_RUNS)]


@dataclass(frozen=True)
class VoucherSignature(Message):
    TAG: ClassVar[int] = 65
    voucher_hash: Hash
    signature: Signature


@dataclass(frozen=True)
class SumPath(Message):
    """A sum-tree proof: the leaf's index, and the siblings from the leaf up, each hash ‖ sums."""

    TAG: ClassVar[int] = 69
    index: U32
    siblings: Annotated[tuple[bytes, ...], Many(Fixed(32 + 288), MAX_PATH)]


@dataclass(frozen=True)
class RootPreimage(Message):
    """What a settled root hashes: the tree's top, cumulative sums, its rounds, the base root."""

    TAG: ClassVar[int] = 70
    top: Hash
    sums: Annotated[bytes, Fixed(288)]
    leaf_count: U32
    base_root: Hash


@dataclass(frozen=True)
class RecordsRequest(Message):
    """A page of a session's rounds; with `opening` also its order, start and prompt; with a root
    also each round's proof under it. Served to the session's parties, and to auditors who are
    drawn for a root that covers the session: they must name it."""

    TAG: ClassVar[int] = 66
    session_id: Hash
    first_round: U32
    rounds: U8
    opening: Flag
    root: Hash = bytes(32)


@dataclass(frozen=True)
class RecordsResponse(Message):
    """`rounds` from the first asked for; `more` when others follow. Empty `order` and `start`
    and a None prompt unless the opening was asked for. With a root, one proof per round: None for
    rounds that are not under it."""

    TAG: ClassVar[int] = 67
    session_id: Hash
    first_round: U32
    rounds: Annotated[tuple[bytes, ...], Many(Variable(MAX_ROUND), MAX_ROUNDS_PER_ANSWER)]
    more: Flag
    order: Annotated[bytes, Variable(MAX_ORDER)] = b""
    start: Annotated[bytes, Variable(256)] = b""
    signatures: Annotated[tuple[bytes, ...], Many(Fixed(65), 2 * MAX_SIGNATURES)] = ()
    prompt: Annotated[PromptDelivery | None, Maybe(Nested(PromptDelivery))] = None
    proofs: Annotated[
        tuple[SumPath | None, ...], Many(Maybe(Nested(SumPath)), MAX_ROUNDS_PER_ANSWER)
    ] = ()


# ---------------------------------------------------------------- audits


@dataclass(frozen=True)
class DrawnRequest(Message):
    """Which round does this sample of a drawn lane fall on? Asked by auditors drawn for it."""

    TAG: ClassVar[int] = 80
    batch_id: U64
    index: U32
    sample: U8


@dataclass(frozen=True)
class DrawnAnswer(Message):
    """The drawn round's record with its path, the root it hangs under opened (and that root's base,
    None at the epoch's start), and the order and start that name the session and its model."""

    TAG: ClassVar[int] = 81
    root: Annotated[RootPreimage, Nested(RootPreimage)]
    base: Annotated[RootPreimage | None, Maybe(Nested(RootPreimage))]
    record: Annotated[bytes, Variable(1024)]
    path: Annotated[SumPath, Nested(SumPath)]
    order: Annotated[bytes, Variable(MAX_ORDER)]
    start: Annotated[bytes, Variable(256)]


@dataclass(frozen=True)
class CaseRequest(Message):
    """Which round is a case before the panel about? Asked by its jurors; answered as for a draw."""

    TAG: ClassVar[int] = 86
    case_id: U64


@dataclass(frozen=True)
class ParcelRequest(Message):
    """What has the holder of a ticket sealed for its auditors to run again? Asked by them, page by
    page; `offset` in bytes."""

    TAG: ClassVar[int] = 87
    audit_id: U64
    offset: U32


@dataclass(frozen=True)
class ParcelPage(Message):
    """Part of a parcel (`roles.parcels`) of `total` bytes."""

    TAG: ClassVar[int] = 88
    total: U32
    data: Annotated[bytes, Variable(MAX_PARCEL_PAGE)]


@dataclass(frozen=True)
class AuditCommit(Message):
    """A drawn auditor's commitment to the fingerprints it computed, before V's salts are opened.
    `signature` is the auditor's own, over the message with zeros in its place (`auditing`)."""

    TAG: ClassVar[int] = 82
    batch_id: U64
    index: U32
    session_id: Hash
    auditor: Address
    commitment: Hash
    signature: Signature


@dataclass(frozen=True)
class SaltsRequest(Message):
    """V's salts and fingerprints of a page of rounds; answered once the drawn auditors have
    committed. `rounds` of at most 64."""

    TAG: ClassVar[int] = 83
    batch_id: U64
    index: U32
    session_id: Hash
    first_round: U32
    rounds: U8


@dataclass(frozen=True)
class SaltsAnswer(Message):
    """Per round the pairs salt ‖ fingerprint, 64 bytes an output token."""

    TAG: ClassVar[int] = 84
    session_id: Hash
    first_round: U32
    rounds: Annotated[tuple[bytes, ...], Many(Variable(64 * 65), MAX_SALTED_ROUNDS)]


@dataclass(frozen=True)
class AuditReveal(Message):
    """What stood behind a commitment, and what the auditor found. `verdict` is `auditing.Verdict`;
    `distance` the largest fingerprint distance, None when V opened no salts."""

    TAG: ClassVar[int] = 85
    batch_id: U64
    index: U32
    session_id: Hash
    auditor: Address
    salt: Hash
    digest: Hash
    verdict: U8
    tokens: U32
    mismatches: U32
    near_ties: U32
    distance: Annotated[int | None, Maybe(Unsigned(4))]
    signature: Signature


MESSAGES: Final = registry(
    *(Ping, Pong, Done, ReachRequest, Reached, Notice),
    *(Offer, Announcement, SignedAnnouncement, Held, GossipDigest, GossipNews),
    *(PromptDelivery, QuoteRequest, Quote, OrderOffer, OrderAccept, StartOffer, StartAccept),
    *(DraftRound, VerdictRound, RoundCommitted, Resume, SessionState),
    *(RoundRun, VoucherRequest, VoucherSignature, RecordsRequest, RecordsResponse),
    *(SumPath, RootPreimage, DrawnRequest, DrawnAnswer),
    *(AuditCommit, SaltsRequest, SaltsAnswer, AuditReveal, CaseRequest),
    *(ParcelRequest, ParcelPage),
)

EXCHANGES: Final[dict[Kind, tuple[type[Message], type[Message]]]] = {
    Kind.PING: (Ping, Pong),
    Kind.REACH: (ReachRequest, Reached),
    Kind.GOSSIP: (GossipDigest, GossipNews),
    Kind.QUOTE: (QuoteRequest, Quote),
    Kind.ORDER: (OrderOffer, OrderAccept),
    Kind.START: (StartOffer, StartAccept),
    Kind.VOUCHER: (VoucherRequest, VoucherSignature),
    Kind.RESUME: (Resume, SessionState),
    Kind.RECORDS: (RecordsRequest, RecordsResponse),
    Kind.DRAWN: (DrawnRequest, DrawnAnswer),
    Kind.COMMIT: (AuditCommit, Done),
    Kind.SALTS: (SaltsRequest, SaltsAnswer),
    Kind.REVEAL: (AuditReveal, Done),
    Kind.CASE: (CaseRequest, DrawnAnswer),
    Kind.PARCEL: (ParcelRequest, ParcelPage),
}

LINES: Final[dict[Kind, tuple[type[Message], ...]]] = {
    Kind.SESSION: (DraftRound, VerdictRound, SessionState, Notice),
    Kind.STREAM: (RoundCommitted, SessionState, Notice),
}

BOUNDS: Final[dict[int, SizeBounds]] = {
    **{kind: SizeBounds(ask.bound(), answer.bound()) for kind, (ask, answer) in EXCHANGES.items()},
    **{kind: SizeBounds(max(m.bound() for m in line)) for kind, line in LINES.items()},
}
"""Largest payload per kind, for the transport."""
