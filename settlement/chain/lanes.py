"""A lane's standing on chain, and vouchers in the form that `LaneEscrow.settle` takes. Pure.

The escrow keeps 160 bits of a hash per epoch and expects the rest, the *position*, back with each
settlement. Whoever holds the vouchers can follow it by events: a settlement's event names the root,
and the voucher of that root holds everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

from settlement.chain.abi import AbiMismatch, Interface
from settlement.chain.errors import ChainError
from settlement.chain.events import LaneSettled
from settlement.hashing import ZERO32, keccak256, uint
from settlement.records import Domain, Lane, Sums, Voucher
from settlement.schema import RecordError
from settlement.signing import require_signer
from settlement.trees import TreeError, settled_root

MAX_LANES: Final = 64  # LaneEscrow.MAX_LANES
_LOW_64: Final = (1 << 64) - 1
_LOW_128: Final = (1 << 128) - 1


class VoucherUnknown(ChainError):
    """A lane was settled by a voucher that is not at hand, so its position cannot be followed."""

    hint = "Read it from the settling transaction's data, or open a new epoch"


class Link(IntEnum):
    """ILaneEscrow.Link: where a voucher's tree begins."""

    EXTENDS = 0
    REPLACES = 1
    BEHIND = 2


@dataclass(frozen=True)
class SignedVoucher:
    """A voucher with its lane, the top of its tree (32 bytes) and signatures (65 bytes each).

    `drafter` is empty while D has not signed: then it pays V only. A signature of the account that
    sends the transaction may be empty. `client` may be what an ERC-1271 contract accepts.
    """

    lane: Lane
    voucher: Voucher
    top: bytes
    client: bytes = b""
    verifier: bytes = b""
    drafter: bytes = b""

    def check(self, domain: Domain, *, sender: bytes = b"") -> None:
        """BadSignature or ValueError unless the escrow would take it from `sender`, but for an
        ERC-1271 client, whom only the chain can ask."""
        if self.voucher.lane != self.lane.id:
            raise ValueError(f"the voucher is of lane 0x{self.voucher.lane.hex()}")
        root = settled_root(
            self.top, self.voucher.sums, self.voucher.leaf_count, self.voucher.base_root
        )
        if root != self.voucher.root:
            raise ValueError("the voucher's root is not that of its top, sums and base")
        digest = domain.digest(self.voucher)
        if sender != self.lane.verifier:
            require_signer(digest, self.verifier, self.lane.verifier, "voucher, verifier")
        if self.drafter:
            require_signer(digest, self.drafter, self.lane.drafter, "voucher, drafter")
        if sender != self.lane.client and len(self.client) == 65:
            require_signer(digest, self.client, self.lane.client, "voucher, client")


@dataclass(frozen=True)
class Position:
    """ILaneEscrow.Position: where one epoch of a lane stands. Amounts in token units."""

    epoch: int
    fee_bps: int
    head_root: bytes = ZERO32
    head_base: bytes = ZERO32
    leaves: int = 0
    paid_drafter: int = 0
    paid_verifier: int = 0
    counted: Sums = field(default_factory=Sums)

    @property
    def terms(self) -> int:
        return self.epoch | self.fee_bps << 32 | self.leaves << 48

    @property
    def paid(self) -> int:
        return self.paid_drafter | self.paid_verifier << 128

    @property
    def digest(self) -> int:
        """The 160 bits that the escrow keeps: LanePositions.hash."""
        raw = keccak256(
            self.head_root,
            self.head_base,
            uint(self.paid, 32),
            uint(self.terms, 32),
            self.counted.packed,
        )
        return int.from_bytes(raw[12:], "big")

    def to_abi(self) -> tuple[Any, ...]:
        return (self.head_root, self.head_base, self.paid, self.terms, list(self.counted.words))

    def link(self, voucher: Voucher) -> Link:
        """How a voucher of this epoch ties on to the head."""
        if voucher.base_root == self.head_root:
            return Link.EXTENDS
        return Link.REPLACES if voucher.base_root == self.head_base else Link.BEHIND

    def owed(self, voucher: Voucher) -> tuple[int, int]:
        """What a voucher is due beyond what was paid: (drafter, verifier)."""
        return (
            max(voucher.due_drafter - self.paid_drafter, 0),
            max(voucher.due_verifier - self.paid_verifier, 0),
        )

    def after(self, settled: LaneSettled, voucher: Voucher) -> Position:
        """The position after the settlement that `settled` tells of, by the voucher of its root."""
        position = replace(
            self,
            paid_drafter=settled.paid_drafter,
            paid_verifier=settled.paid_verifier,
            counted=voucher.sums if settled.counted else self.counted,
        )
        if settled.moves_head:
            position = replace(
                position,
                head_root=settled.root,
                head_base=voucher.base_root,
                leaves=voucher.leaf_count,
            )
        return position


def lane_voucher(signed: SignedVoucher, position: Position) -> tuple[Any, ...]:
    """ILaneEscrow.LaneVoucher, in the ABI's order."""
    voucher, link = signed.voucher, position.link(signed.voucher)
    return (
        signed.lane.client,
        position.to_abi(),
        voucher.due_drafter | voucher.due_verifier << 128,
        list(voucher.sums.words),
        signed.top,
        voucher.leaf_count,
        int(link),
        voucher.base_root if link is Link.BEHIND else ZERO32,
        *_compact(signed.drafter),
        *_compact(signed.verifier),
        signed.client,
    )


def groups_of(items: Iterable[tuple[SignedVoucher, Position]]) -> list[tuple[Any, ...]]:
    """ILaneEscrow.Group[] of vouchers in one token: lanes of one drafter, verifier and claim stand
    together, since they are locked, paid and counted together. ValueError on more than 64 lanes,
    a lane twice, or two tokens."""
    grouped: dict[tuple[bytes, bytes, bytes], list[tuple[Any, ...]]] = {}
    seen: set[bytes] = set()
    tokens: set[bytes] = set()
    for signed, position in items:
        lane = signed.lane
        if lane.id in seen:
            raise ValueError(f"lane 0x{lane.id.hex()} stands in the batch twice")
        seen.add(lane.id)
        tokens.add(lane.token)
        key = (lane.drafter, lane.verifier, lane.claim_id)
        grouped.setdefault(key, []).append(lane_voucher(signed, position))
    if len(tokens) > 1:
        raise ValueError(f"one settlement is in one token, not {len(tokens)}")
    if len(seen) > MAX_LANES:
        raise ValueError(f"one settlement has at most {MAX_LANES} lanes, not {len(seen)}")
    return [(*key, vouchers) for key, vouchers in grouped.items()]


def vouchers_in(escrow: Interface, data: bytes) -> list[tuple[Lane, Voucher]]:
    """The vouchers in a `settle` call's data, for lanes settled by vouchers one does not hold.
    Without those that no party could have signed, or that tie on in no way there is: the escrow
    skips them, and so does this. AbiMismatch for another call's data.

    Words are read where the escrow reads them and no others, past the end as zeros: a decoder of
    the whole call would refuse it for one voucher's bytes that the escrow never looks at, and hide
    the lanes beside it.
    """
    escrow.require_call("settle", data)
    words = _Words(data[4:])
    token = words[0]
    found = []
    for group in words.tails(words[32], MAX_LANES):
        drafter, verifier, claim_id = words[group], words[group + 32], words.raw(group + 64)
        for at in words.tails(group + words[group + 96], MAX_LANES):
            with suppress(RecordError, TreeError, IndexError, OverflowError):
                client, *voucher = _voucher_words(words, at)
                lane = Lane(
                    uint(client, 20),
                    uint(drafter, 20),
                    uint(verifier, 20),
                    uint(token, 20),
                    claim_id,
                )
                found.append((lane, _voucher_of(lane, voucher)))
    return found


class _Words:
    """Call data behind the selector as the machine reads it: the 32-byte word at any byte, modulo
    2**256, with zeros past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def raw(self, at: int) -> bytes:
        at %= 1 << 256
        return self._data[at : at + 32].ljust(32, b"\0")

    def __getitem__(self, at: int) -> int:
        return int.from_bytes(self.raw(at), "big")

    def tails(self, at: int, most: int) -> list[int]:
        """Where the dynamic elements of the array at `at` begin; AbiMismatch for more than `most`,
        with which the escrow reverts."""
        count, first = self[at], at + 32
        if count > most:
            raise AbiMismatch(
                f"a settlement of {count} groups or lanes, of which {most} is the most"
            )
        return [first + self[first + 32 * index] for index in range(count)]


def _voucher_words(words: _Words, at: int) -> tuple[Any, ...]:
    """ILaneEscrow.LaneVoucher at a place: its members up to `baseRoot`, in the ABI's order."""
    position = (
        words.raw(at + 32),
        words.raw(at + 64),
        words[at + 96],
        words[at + 128],
        [words[at + 160 + 32 * index] for index in range(9)],
    )
    sums = [words[at + 480 + 32 * index] for index in range(9)]
    top, leaves, link, base = words.raw(at + 768), words[at + 800], words[at + 832], at + 864
    return words[at], position, words[at + 448], sums, top, leaves, link, words.raw(base)


def _voucher_of(lane: Lane, fields: Sequence[Any]) -> Voucher:
    """From ILaneEscrow.LaneVoucher without its client."""
    position, due, sums, top, leaves, link, base = fields
    head_root, head_base, _paid, terms, _counted = position
    base_root = (head_root, head_base, base)[link]
    output, accepted, buckets = sums[0] & _LOW_64, sums[0] >> 64, tuple(sums[1:])
    counts = Sums.from_words(output, accepted, buckets)
    return Voucher(
        lane=lane.id,
        epoch=terms & 0xFFFFFFFF,
        output=output,
        accepted=accepted,
        due_drafter=due & _LOW_128,
        due_verifier=due >> 128,
        base_root=base_root,
        root=settled_root(top, counts, leaves, base_root),
        leaf_count=leaves,
        buckets=buckets,
    )


def _compact(signature: bytes) -> Sequence[bytes]:
    """EIP-2098: r, and s with v − 27 in its top bit; zeros for no signature."""
    if not signature:
        return ZERO32, ZERO32
    s = int.from_bytes(signature[32:64], "big") | (signature[64] - 27) << 255
    return signature[:32], uint(s, 32)
