"""Every signed struct and every leaf, one definition each.

Wire message, journal row, leaf, EIP-712 struct and Solidity struct all derive from these frozen
dataclasses (see `schema`). Field order is part of the format: never reorder, never reuse.

Units: token ids are uint32 (NO_TOKEN where there is none); masses are uint64 and the kept masses
of a distribution sum to exactly 2**64 − 1; scores are int64 in Q24 (logit ÷ temperature, plus
Gumbel noise where the mode has it); temperature, top-p and penalties are Q16; surprisals are Q16
nats; positions count output tokens from the prompt's end and stay absolute over a hand-over.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, Final, Self

from settlement.hashing import (
    TAG_CONTEXT,
    TAG_FINGERPRINT,
    TAG_KEPT,
    TAG_STOP_STRING,
    TAG_TOP,
    ZERO32,
    keccak256,
    uint,
)
from settlement.schema import (
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    U128,
    Address,
    Bool,
    Bytes32,
    Bytes32s,
    Percent16,
    Record,
    RecordError,
    U32s,
    Words8,
)
from settlement.signing import recover, sign

NO_TOKEN: Final = 2**32 - 1
MASS_TOTAL: Final = 2**64 - 1
Q16: Final = 1 << 16
SCORE_BITS: Final = 24
MAX_KEPT: Final = 64
MAX_TOP: Final = 8
BUCKETS: Final = 16
NOISE_VERSION: Final = 1
MAX_LANE_COUNT: Final = (1 << 63) - 1  # a sum's lane; the top bit stays clear so adds can't carry


class Mode(IntEnum):
    """How the target decides: see `acceptance`."""

    GREEDY = 0
    COUPLED = 1
    REJECTION = 2


class Tier(IntEnum):
    """Arithmetic of a model: `EXACT` in integers, the others in floating point."""

    EXACT = 0
    FLOAT32 = 1
    BFLOAT16 = 2


class SeedPolicy(IntEnum):
    """Who makes S: both parties by commit and reveal, or the client alone (repeatable)."""

    JOINT = 0
    CLIENT = 1


class Disclosure(IntEnum):
    """Who may read the prompt besides the parties. A value can only widen the one before."""

    DRAWN = 0
    STAKED = 1
    PUBLIC = 2


@dataclass(frozen=True)
class Domain:
    """The EIP-712 domain of every record: this protocol, this chain, this LaneEscrow."""

    chain_id: int
    escrow: bytes

    def __post_init__(self) -> None:
        if not 0 < self.chain_id < 1 << 256:
            raise RecordError("Domain", "chain_id", "outside uint256", self.chain_id)
        if len(self.escrow) != 20:
            raise RecordError("Domain", "escrow", "not a 20-byte address", self.escrow)

    @cached_property
    def separator(self) -> bytes:
        """EIP-712 domain separator, 32 bytes; equals `LaneEscrow.domainSeparator()`."""
        kind = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
        return keccak256(
            keccak256(kind),
            keccak256(b"Verdraft"),
            keccak256(b"1"),
            uint(self.chain_id, 32),
            bytes(12) + self.escrow,
        )

    def digest(self, record: Record) -> bytes:
        """What a key signs: keccak256(0x19 0x01 ‖ separator ‖ hashStruct(record))."""
        return keccak256(b"\x19\x01", self.separator, record.struct_hash)

    def sign(self, record: Record, private_key: bytes) -> bytes:
        return sign(self.digest(record), private_key)

    def signer(self, record: Record, signature: bytes) -> bytes:
        """The 20-byte address that signed; BadSignature if there is none."""
        return recover(self.digest(record), signature)


# ---------------------------------------------------------------- the order and what starts it


@dataclass(frozen=True)
class Lane(Record):
    """Who pays whom in which token, under which α claim: one escrow account on chain, so that the
    counts of a lane belong to one claim. Hashed plainly, never signed."""

    WIRE_TAG: ClassVar[int] = 1

    client: Address
    drafter: Address
    verifier: Address
    token: Address
    claim_id: Bytes32  # zero: D promises no rates and none are counted

    @cached_property
    def id(self) -> bytes:
        """keccak256(abi.encode(client, drafter, verifier, token, claimId))."""
        return keccak256(*(spec.abi_words(getattr(self, spec.name)) for spec in self.specs()))


@dataclass(frozen=True)
class Order(Record):
    """What the client buys, signed by client, drafter and verifier. `struct_hash` is the session
    id. Everything that changes which token comes out is inside it."""

    WIRE_TAG: ClassVar[int] = 2

    request_id: Bytes32
    parent_session: Bytes32  # zero for a first order
    start_position: U32  # tokens committed before this session; zero for a first order
    context_hash: Bytes32  # c at start_position; zero for a first order, which starts at c_0
    client: Address
    drafter: Address
    verifier: Address
    token: Address
    target_model: Bytes32
    draft_model: Bytes32  # zero: a drafter without a model (n-gram)
    mode: U8
    temperature: U32  # Q16; zero exactly in greedy mode
    top_k: U32  # zero: off
    top_p: U32  # Q16 in (0, 65536]; 65536: off
    repetition_penalty: U32  # Q16, 65536: off
    presence_penalty: I32  # Q16, zero: off
    frequency_penalty: I32  # Q16, zero: off
    stop_ids: U32s  # strictly ascending
    stop_string_hashes: Bytes32s
    template_hash: Bytes32
    relax_tau: U32  # Q24 score units; zero: strict
    key_target_surprisal: U32  # Q16 nats
    key_draft_surprisal: U32  # Q16 nats
    key_overlap: U32  # Q16 of 1 − overlap
    max_window: U16
    noise_version: U16
    price_accepted: U128  # to D, token units per accepted token
    price_output: U128  # to V, token units per output token
    max_tokens: U32  # of the whole request, absolute over hand-overs
    prompt_hash: Bytes32  # c_0
    claim_id: Bytes32  # α claim that D serves under; zero: none
    seed_policy: U8
    nonce_commit_client: Bytes32
    nonce_commit_verifier: Bytes32
    anchor_verifier: Bytes32  # v_0; zero outside rejection mode
    anchor_drafter: Bytes32  # d_0; zero outside rejection mode
    disclosure: U8
    deadline: U64  # unix seconds: no round is committed later
    nonce: U64  # never reused by this client

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "Order"
        for enum, attribute in ((Mode, "mode"), (SeedPolicy, "seed_policy")):
            if getattr(self, attribute) not in enum._value2member_map_:
                raise RecordError(name, attribute, "no such value", getattr(self, attribute))
        if self.disclosure not in Disclosure._value2member_map_:
            raise RecordError(name, "disclosure", "no such value", self.disclosure)
        if (self.mode == Mode.GREEDY) != (self.temperature == 0):
            raise RecordError(
                name, "temperature", "zero in greedy mode and only there", self.temperature
            )
        if not 0 < self.top_p <= Q16:
            raise RecordError(name, "top_p", "not in (0, 65536]", self.top_p)
        if self.repetition_penalty == 0:
            raise RecordError(name, "repetition_penalty", "must be positive", 0)
        if any(a >= b for a, b in zip(self.stop_ids, self.stop_ids[1:], strict=False)):
            raise RecordError(name, "stop_ids", "not strictly ascending", self.stop_ids)
        if self.max_tokens <= self.start_position:
            raise RecordError(name, "max_tokens", "nothing left to generate", self.max_tokens)
        if self.relax_tau and self.mode == Mode.REJECTION:
            raise RecordError(name, "relax_tau", "relaxed rejection does not exist", self.relax_tau)
        if self.seed_policy == SeedPolicy.CLIENT and self.mode == Mode.REJECTION:
            raise RecordError(name, "seed_policy", "rejection mode needs a joint seed")
        if self.noise_version != NOISE_VERSION:
            raise RecordError(name, "noise_version", f"only {NOISE_VERSION}", self.noise_version)
        first = self.parent_session == ZERO32
        if first != (self.context_hash == ZERO32) or (first and self.start_position):
            raise RecordError(
                name,
                "parent_session",
                "parent, position and context go together",
                self.parent_session,
            )
        anchored = self.mode == Mode.REJECTION
        for attribute in ("anchor_verifier", "anchor_drafter"):
            if (getattr(self, attribute) != ZERO32) != anchored:
                raise RecordError(
                    name,
                    attribute,
                    "set in rejection mode and only there",
                    getattr(self, attribute),
                )

    @property
    def session_id(self) -> bytes:
        return self.struct_hash

    @property
    def start_context(self) -> bytes:
        """c at the session's first position."""
        return self.prompt_hash if self.parent_session == ZERO32 else self.context_hash

    @cached_property
    def lane(self) -> Lane:
        return Lane(self.client, self.drafter, self.verifier, self.token, self.claim_id)

    @property
    def lossless(self) -> bool:
        return self.relax_tau == 0


@dataclass(frozen=True)
class SessionStart(Record):
    """The seed made known, signed by all three. Its hash (`start_hash`) is in every record."""

    WIRE_TAG: ClassVar[int] = 3

    session_id: Bytes32
    seed: Bytes32
    first_k: U16  # drafts in round 0; binding in rejection mode, a hint elsewhere


# ---------------------------------------------------------------- a round


@dataclass(frozen=True)
class DraftCommit(Record):
    """D's commitment to its window before V verifies. Two with equal (start, round, contextHash)
    and different roots are F1."""

    WIRE_TAG: ClassVar[int] = 4

    start_hash: Bytes32
    round: U32
    version: U32
    base: U32  # position of the first draft
    context_hash: Bytes32  # c at base
    prev_verdict_hash: Bytes32  # D's consent to that round's counts; zero in the first round
    draft_root: Bytes32
    k: U16  # number of drafts, at least 1
    chain_value: Bytes32  # d_r; zero outside rejection mode


@dataclass(frozen=True)
class DraftLeaf(Record):
    """One proposed token. Rejection mode fills q, qBelow and keptHash; τ > 0 fills surprisal and
    topHash; else they are zero."""

    WIRE_TAG: ClassVar[int] = 5

    position: U32
    token: U32
    q: U64
    q_below: U64
    kept_hash: Bytes32
    surprisal: U32  # Q16 nats
    top_hash: Bytes32


@dataclass(frozen=True)
class Verdict(Record):
    """V's word on a round: at most one per (session, round), whatever the version; two are F2."""

    WIRE_TAG: ClassVar[int] = 6

    start_hash: Bytes32
    round: U32
    version: U32
    draft_commit_hash: Bytes32  # zero when the round has no drafts
    base: U32
    context_hash: Bytes32  # c at base
    k: U16  # drafts accepted and emitted
    emitted: U16  # output tokens of the round; zero never
    next_context_hash: Bytes32  # c at base + emitted
    verdict_root: Bytes32
    chain_value: Bytes32  # v_r; zero outside rejection mode
    next_k: U16  # drafts in the next round; binding in rejection mode


@dataclass(frozen=True)
class VerdictLeaf(Record):
    """One output position: what was drafted, what was emitted, and the figures of the decision."""

    WIRE_TAG: ClassVar[int] = 7

    position: U32
    draft_token: U32  # NO_TOKEN: none was drafted here
    token: U32  # y, what was emitted
    accepted: Bool
    p: U64  # target's mass of the draft token (rejection mode)
    top_prob: U16  # target's largest probability × 65536, temperature 1, before filters
    cutoff: I64  # Q24 lowest kept score when filtered; the least int64 when not
    score_draft: I64  # relaxed mode: Q24 score of the draft token
    score_top: I64  # relaxed mode: Q24 largest kept score
    surprisal: U32  # relaxed mode: target's surprisal of the draft token, Q16 nats
    key: Bool  # relaxed mode: this position is strict
    fingerprint: Bytes32  # keccak256(tag ‖ salt ‖ fingerprint)


NO_CUTOFF: Final = -(2**63)


# Words of four lanes, the highest first, as big-endian bytes have them; turns them back as well.
_BIG_ENDIAN: Final = operator.itemgetter(*(n ^ 3 for n in range(2 * BUCKETS)))
_LANES: Final = struct.Struct(f">{2 * BUCKETS}Q")
_PACKED: Final = struct.Struct(f">16x2Q{2 * BUCKETS}Q")


@dataclass(frozen=True)
class Sums:
    """What a sum tree adds up: output and accepted tokens, and per bucket the positions that were
    reached with a draft and the drafts that were accepted there. Lanes are below 2**63."""

    output: int = 0
    accepted: int = 0
    proposed_by_bucket: tuple[int, ...] = (0,) * BUCKETS
    accepted_by_bucket: tuple[int, ...] = (0,) * BUCKETS

    def __post_init__(self) -> None:
        for name in ("proposed_by_bucket", "accepted_by_bucket"):
            if len(getattr(self, name)) != BUCKETS:
                raise RecordError("Sums", name, f"not {BUCKETS} buckets", getattr(self, name))
        lanes = (self.output, self.accepted, *self.proposed_by_bucket, *self.accepted_by_bucket)
        if set(map(type, lanes)) == {int} and min(lanes) >= 0 and max(lanes) <= MAX_LANE_COUNT:
            return  # every round is summed several times: the fault is looked for if there is one
        for name, value in self._lanes():
            if not isinstance(value, int) or not 0 <= value <= MAX_LANE_COUNT:
                raise RecordError("Sums", name, "outside [0, 2**63)", value)

    def _lanes(self) -> list[tuple[str, int]]:
        return [
            ("output", self.output),
            ("accepted", self.accepted),
            *(("proposed_by_bucket", value) for value in self.proposed_by_bucket),
            *(("accepted_by_bucket", value) for value in self.accepted_by_bucket),
        ]

    def __add__(self, other: Sums) -> Sums:
        """Lane by lane; RecordError on overflow, never a wrap."""
        return self._by_lane(other, operator.add)

    def __sub__(self, other: Sums) -> Sums:
        """Lane by lane; RecordError where it would be negative."""
        return self._by_lane(other, operator.sub)

    def _by_lane(self, other: Sums, of: Callable[[int, int], int]) -> Sums:
        return Sums(
            of(self.output, other.output),
            of(self.accepted, other.accepted),
            tuple(map(of, self.proposed_by_bucket, other.proposed_by_bucket)),
            tuple(map(of, self.accepted_by_bucket, other.accepted_by_bucket)),
        )

    @cached_property
    def buckets(self) -> tuple[int, ...]:
        """Eight words of four uint64 lanes, lane j of a word at bits 64·j: proposed buckets
        0–15, then accepted buckets 0–15."""
        packed = self.packed
        return tuple(int.from_bytes(packed[at : at + 32], "big") for at in range(32, 288, 32))

    @property
    def words(self) -> tuple[int, ...]:
        """The nine words of uint256[9]: output | accepted << 64, then `buckets`."""
        return (self.output | self.accepted << 64, *self.buckets)

    @cached_property
    def packed(self) -> bytes:
        """288 bytes: `words`, big-endian. Hashed in sum nodes."""
        lanes = self.proposed_by_bucket + self.accepted_by_bucket
        return _PACKED.pack(self.accepted, self.output, *_BIG_ENDIAN(lanes))

    @classmethod
    def from_words(cls, output: int, accepted: int, buckets: tuple[int, ...]) -> Self:
        """The inverse of (output, accepted, buckets)."""
        if len(buckets) != 8:
            raise RecordError("Sums", "buckets", "not 8 words", buckets)
        try:
            packed = b"".join(uint(word, 32) for word in buckets)
        except OverflowError as error:
            raise RecordError("Sums", "buckets", "outside uint256", buckets) from error
        lanes = _BIG_ENDIAN(_LANES.unpack(packed))
        return cls(output, accepted, lanes[:BUCKETS], lanes[BUCKETS:])


@dataclass(frozen=True)
class RoundRecord(Record):
    """A round as the lane's sum tree holds it: both roots, both record hashes, and its sums."""

    WIRE_TAG: ClassVar[int] = 8

    start_hash: Bytes32
    round: U32
    draft_root: Bytes32  # zero when the round has no drafts
    verdict_root: Bytes32
    draft_commit_hash: Bytes32  # zero when the round has no drafts
    verdict_hash: Bytes32
    output: U64
    accepted: U64
    buckets: Words8

    @cached_property
    def sums(self) -> Sums:
        return Sums.from_words(self.output, self.accepted, self.buckets)


# ---------------------------------------------------------------- money


@dataclass(frozen=True)
class Voucher(Record):
    """What the lane owes, cumulative over its epoch, signed by C, V and (for its own pay and the
    α counts) D. `root` covers the rounds since `base_root`; output, accepted and buckets are
    cumulative over the epoch."""

    WIRE_TAG: ClassVar[int] = 9

    lane: Bytes32
    epoch: U32
    output: U64
    accepted: U64
    due_drafter: U128
    due_verifier: U128
    base_root: Bytes32  # zero: the epoch's beginning
    root: Bytes32
    leaf_count: U32
    buckets: Words8

    @cached_property
    def sums(self) -> Sums:
        return Sums.from_words(self.output, self.accepted, self.buckets)


@dataclass(frozen=True)
class Claim(Record):
    """Sixteen acceptance rates that D promises, in percent, each in [6, 99]. `struct_hash` is the
    claim id."""

    WIRE_TAG: ClassVar[int] = 10

    drafter: Address
    target_model: Bytes32
    draft_model: Bytes32
    mode: U8
    max_temperature: U32  # Q16
    rates: Percent16
    nonce: U64

    def __post_init__(self) -> None:
        super().__post_init__()
        for rate in self.rates:
            if not 6 <= rate <= 99:
                raise RecordError("Claim", "rates", "a rate is 6 to 99 percent", rate)
        if self.mode not in Mode._value2member_map_:
            raise RecordError("Claim", "mode", "no such value", self.mode)


@dataclass(frozen=True)
class Manifest:
    """What a model is. `model_id` = keccak256(abi.encode(manifest)), as ModelRegistry computes."""

    architecture: str
    tier: Tier
    weights_root: bytes
    tokenizer_hash: bytes
    vocab_size: int
    eos_ids: tuple[int, ...] = field(default=())
    context_length: int = 0

    def __post_init__(self) -> None:
        if not 0 < len(self.architecture.encode()) <= 64:
            raise RecordError("Manifest", "architecture", "1 to 64 bytes", self.architecture)
        for name in ("weights_root", "tokenizer_hash"):
            if len(getattr(self, name)) != 32:
                raise RecordError("Manifest", name, "not 32 bytes", getattr(self, name))
        if not 0 < self.vocab_size < NO_TOKEN:
            raise RecordError("Manifest", "vocab_size", "outside (0, 2**32 − 1)", self.vocab_size)
        if not 0 < self.context_length <= NO_TOKEN:
            raise RecordError("Manifest", "context_length", "outside uint32", self.context_length)
        if len(self.eos_ids) > 64 or any(not 0 <= t < self.vocab_size for t in self.eos_ids):
            raise RecordError("Manifest", "eos_ids", "unknown token or over 64", self.eos_ids)

    def to_abi(self) -> tuple[Any, ...]:
        """Records.Manifest, as a contract call takes it."""
        return (
            self.architecture,
            int(self.tier),
            self.weights_root,
            self.tokenizer_hash,
            self.vocab_size,
            list(self.eos_ids),
            self.context_length,
        )

    @cached_property
    def model_id(self) -> bytes:
        """32 bytes, written out by hand: abi.encode of a struct with dynamic members."""
        text = self.architecture.encode()
        padded = text + bytes(-len(text) % 32)
        head_words = 7
        tail_text = uint(len(text), 32) + padded
        head = [
            uint(32 * head_words, 32),
            uint(int(self.tier), 32),
            self.weights_root,
            self.tokenizer_hash,
            uint(self.vocab_size, 32),
            uint(32 * head_words + len(tail_text), 32),
            uint(self.context_length, 32),
        ]
        tail_ids = uint(len(self.eos_ids), 32) + b"".join(uint(t, 32) for t in self.eos_ids)
        # abi.encode of a struct with dynamic members begins with the offset of its tuple.
        return keccak256(uint(32, 32), *head, tail_text, tail_ids)


# ---------------------------------------------------------------- hashes of lists and chains


def prompt_hash(salt: bytes, token_ids: list[int] | tuple[int, ...]) -> bytes:
    """c_0 = keccak256(tag ‖ salt ‖ uint32 token ids). The salt is 32 random bytes."""
    if len(salt) != 32:
        raise RecordError("prompt", "salt", "not 32 bytes", salt)
    return keccak256(TAG_CONTEXT, salt, *(uint(token, 4) for token in token_ids))


def next_context(context: bytes, token: int) -> bytes:
    """c_{n+1} = keccak256(c_n ‖ uint32 token)."""
    return keccak256(context, uint(token, 4))


def extend_context(context: bytes, tokens: list[int] | tuple[int, ...]) -> bytes:
    """c after `tokens`, one hash per token."""
    for token in tokens:
        context = next_context(context, token)
    return context


def kept_hash(kept: tuple[tuple[int, int], ...]) -> bytes:
    """keccak256(tag ‖ (uint32 id ‖ uint64 mass)*) of D's kept list, ids strictly ascending,
    masses positive with the exact total; RecordError otherwise."""
    check_kept(kept)
    return keccak256(TAG_KEPT, packed_kept(kept))


def packed_kept(kept: Sequence[tuple[int, int]]) -> bytes:
    """(uint32 id ‖ uint64 mass)*: what a leaf's keptHash hashes after its tag, unchecked."""
    return b"".join(uint(token, 4) + uint(mass, 8) for token, mass in kept)


def check_kept(kept: tuple[tuple[int, int], ...]) -> None:
    """RecordError unless `kept` is a well-formed distribution over at most 64 ids."""
    if not 0 < len(kept) <= MAX_KEPT:
        raise RecordError("kept", "length", f"not in 1..{MAX_KEPT}", len(kept))
    last = -1
    for token, mass in kept:
        if not last < token < NO_TOKEN:
            raise RecordError("kept", "id", "not strictly ascending uint32", token)
        if not 0 < mass <= MASS_TOTAL:
            raise RecordError("kept", "mass", "not in 1..2**64 − 1", mass)
        last = token
    total = sum(mass for _, mass in kept)
    if total != MASS_TOTAL:
        raise RecordError("kept", "total", "masses do not sum to 2**64 − 1", total)


def top_hash(top: tuple[int, ...]) -> bytes:
    """keccak256(tag ‖ uint32 ids) of D's most probable ids, best first, at most 8."""
    if not 0 < len(top) <= MAX_TOP or len(set(top)) != len(top):
        raise RecordError("top", "ids", f"1 to {MAX_TOP} distinct ids", top)
    return keccak256(TAG_TOP, *(uint(token, 4) for token in top))


def salted_fingerprint(salt: bytes, fingerprint: bytes) -> bytes:
    """keccak256(tag ‖ salt ‖ fingerprint), both 32 bytes: what a verdict leaf carries."""
    if len(salt) != 32 or len(fingerprint) != 32:
        raise RecordError("fingerprint", "salt", "salt and fingerprint have 32 bytes each")
    return keccak256(TAG_FINGERPRINT, salt, fingerprint)


def stop_string_hash(text: str) -> bytes:
    """keccak256(tag ‖ UTF-8): how an order names a stop string."""
    if not text:
        raise RecordError("stop string", "text", "empty")
    return keccak256(TAG_STOP_STRING, text.encode())


SIGNED_RECORDS: Final[tuple[type[Record], ...]] = (
    Order,
    SessionStart,
    DraftCommit,
    Verdict,
    Voucher,
    Claim,
)
LEAF_RECORDS: Final[tuple[type[Record], ...]] = (DraftLeaf, VerdictLeaf, RoundRecord)
