"""Who is there: a table of signed announcements. Pure; `gossip.py` moves them.

An announcement counts when its operator signed it for this deployment, it has not expired and does
not claim to live longer than `MAX_LIFETIME_MS`. The table holds one per operator, the one with the
highest sequence: a node that restarts five times is still one entry, with its newest addresses.
Leaving is an announcement too. It stays as a tombstone until everything older has expired by
itself, so that a copy that still travels cannot bring the node back; for the same reason an entry
is dropped at its expiry and never re-admitted, because any copy of it expires at the same moment.

What is not known stays unknown: a round trip that nobody measured is None, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from node.network.codec import decode
from node.network.errors import MalformedFrame
from node.network.messages import Announcement, Held, Offer, Role, SignedAnnouncement
from settlement.hashing import TAG_ANNOUNCE, keccak256
from settlement.signing import BadSignature, recover, sign

MAX_LIFETIME_MS = 10 * 60 * 1000
CLOCK_SKEW_MS = 60 * 1000


class Intake(Enum):
    """What became of an announcement that was offered to the table."""

    ADDED = "added"
    REPLACED = "replaced"
    KNOWN = "known"
    STALE = "stale"
    EXPIRED = "expired"
    TOO_LONG = "lives too long"
    FORGED = "not signed by its operator"
    MALFORMED = "malformed"
    RATE = "too many in a short time"
    FULL = "table full"

    @property
    def news(self) -> bool:
        """Whether it is worth passing on."""
        return self in (Intake.ADDED, Intake.REPLACED)

    @property
    def offence(self) -> bool:
        """Whether no honest node would have passed it on."""
        return self in (Intake.FORGED, Intake.MALFORMED, Intake.TOO_LONG)


def announcement_digest(body: bytes, deployment: bytes) -> bytes:
    """What the operator signs: keccak256(tag ‖ deployment ‖ body)."""
    return keccak256(TAG_ANNOUNCE, deployment, body)


def sign_announcement(
    announcement: Announcement, private_key: bytes, deployment: bytes
) -> SignedAnnouncement:
    """Signs with the operator's key, which must be that of `announcement.operator`."""
    body = announcement.encode()
    return SignedAnnouncement(body, sign(announcement_digest(body, deployment), private_key))


@dataclass(frozen=True)
class Entry:
    """One operator as the table knows it."""

    announcement: Announcement
    signed: SignedAnnouncement

    @property
    def operator(self) -> bytes:
        return self.announcement.operator

    def offers(self, role: Role, model_id: bytes | None = None) -> tuple[Offer, ...]:
        """Its offers in `role`, for one model if given."""
        return tuple(
            o
            for o in self.announcement.offers
            if o.role == role and (model_id is None or o.model_id == model_id)
        )


@dataclass
class _Slot:
    """An operator's newest announcement and its allowance of new ones."""

    entry: Entry
    keep_until_ms: int
    allowance: float
    refilled_ms: int


@dataclass
class PeerTable:
    """All announcements this node holds.

    Args:
        deployment: 32 bytes naming chain and contracts; others' announcements do not verify.
        vouched: whether an operator stands out from keys anybody can make by the thousand (say,
            it has a stake on chain).
        capacity: operators held at once. A full table takes no strangers until somebody expires,
            so a flood of new keys cannot push out who is known; a vouched operator always finds
            room, in the place of the stranger soonest to expire.
        burst, refill_ms: an operator may replace its announcement `burst` times at once and once
            more every `refill_ms`.
    """

    deployment: bytes
    vouched: Callable[[bytes], bool] = lambda operator: False
    capacity: int = 1024
    burst: int = 10
    refill_ms: int = 2000
    _slots: dict[bytes, _Slot] = field(default_factory=dict)

    def offer(self, signed: SignedAnnouncement, now_ms: int) -> Intake:
        """Takes an announcement from anywhere and says what became of it. Never raises."""
        self.expire(now_ms)
        try:
            announcement = decode(signed.body, Announcement)
        except MalformedFrame:
            return Intake.MALFORMED
        slot = self._slots.get(announcement.operator)
        # Cheap tests first: a signature is checked only for what would change the table.
        if slot is not None:
            held = slot.entry.announcement.sequence
            if announcement.sequence == held:
                return Intake.KNOWN
            if announcement.sequence < held:
                return Intake.STALE
        if announcement.expires_ms <= now_ms:
            return Intake.EXPIRED
        if announcement.expires_ms > now_ms + MAX_LIFETIME_MS + CLOCK_SKEW_MS:
            return Intake.TOO_LONG
        full = slot is None and len(self._slots) >= self.capacity
        if full and not self.vouched(announcement.operator):
            return Intake.FULL
        if not self._signed_by_operator(signed, announcement):
            return Intake.FORGED
        if full and not self._make_room():
            return Intake.FULL
        if slot is not None and not self._allow(slot, now_ms):
            return Intake.RATE
        entry = Entry(announcement, signed)
        if slot is None:
            self._slots[announcement.operator] = _Slot(
                entry, announcement.expires_ms, self.burst - 1, now_ms
            )
            return Intake.ADDED
        slot.entry = entry
        # INVARIANT: a replacement is kept at least until what it replaces has expired everywhere.
        slot.keep_until_ms = max(slot.keep_until_ms, announcement.expires_ms)
        return Intake.REPLACED

    def _signed_by_operator(self, signed: SignedAnnouncement, announcement: Announcement) -> bool:
        digest = announcement_digest(signed.body, self.deployment)
        try:
            return recover(digest, signed.signature) == announcement.operator
        except BadSignature:
            return False

    def _make_room(self) -> bool:
        """Drops the stranger soonest to expire; False if everybody is vouched for."""
        strangers = [(s.keep_until_ms, o) for o, s in self._slots.items() if not self.vouched(o)]
        if not strangers:
            return False
        del self._slots[min(strangers)[1]]
        return True

    def _allow(self, slot: _Slot, now_ms: int) -> bool:
        grown = (now_ms - slot.refilled_ms) / self.refill_ms
        slot.allowance = min(float(self.burst), slot.allowance + max(0.0, grown))
        slot.refilled_ms = now_ms
        if slot.allowance < 1:
            return False
        slot.allowance -= 1
        return True

    def expire(self, now_ms: int) -> None:
        """Forgets what has expired."""
        gone = [o for o, slot in self._slots.items() if slot.keep_until_ms <= now_ms]
        for operator in gone:
            del self._slots[operator]

    def _is_live(self, slot: _Slot, now_ms: int) -> bool:
        announcement = slot.entry.announcement
        return not announcement.left and announcement.expires_ms > now_ms

    def entries(
        self, now_ms: int, role: Role | None = None, model_id: bytes | None = None
    ) -> tuple[Entry, ...]:
        """Those who are there now; with `role`, those who offer it (for `model_id` if given)."""
        live = (s.entry for s in self._slots.values() if self._is_live(s, now_ms))
        if role is None:
            return tuple(live)
        return tuple(entry for entry in live if entry.offers(role, model_id))

    def find(self, operator: bytes, now_ms: int) -> Entry | None:
        """One operator's entry, if it is there now."""
        slot = self._slots.get(operator)
        return slot.entry if slot is not None and self._is_live(slot, now_ms) else None

    def sequence_of(self, operator: bytes) -> int | None:
        """The newest sequence held, tombstones included; None if there is none."""
        slot = self._slots.get(operator)
        return None if slot is None else slot.entry.announcement.sequence

    def held(self) -> tuple[Held, ...]:
        """What is held, tombstones included, for a digest."""
        return tuple(Held(o, s.entry.announcement.sequence) for o, s in self._slots.items())

    def news_for(self, held: Iterable[Held], now_ms: int) -> tuple[SignedAnnouncement, ...]:
        """What a peer that holds `held` lacks, newest expiry last."""
        theirs = {h.operator: h.sequence for h in held}
        lacking = [
            slot
            for operator, slot in self._slots.items()
            if slot.entry.announcement.expires_ms > now_ms
            and slot.entry.announcement.sequence > theirs.get(operator, -1)
        ]
        lacking.sort(key=lambda slot: slot.entry.announcement.expires_ms)
        return tuple(slot.entry.signed for slot in lacking)

    def wanted_from(self, held: Iterable[Held]) -> tuple[bytes, ...]:
        """Operators of whom a peer that holds `held` has something newer."""
        return tuple(
            h.operator
            for h in held
            if (mine := self.sequence_of(h.operator)) is None or h.sequence > mine
        )

    def __len__(self) -> int:
        return len(self._slots)
