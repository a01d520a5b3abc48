"""Who audits a drawn lane, and what an auditor commits to. Pure.

The draw is a function of confirmed events alone, so every node arrives at the same auditors: the
lane's seed (from the batch's randomness), the vault's stakes *as they stood when the batch was
registered* (nobody can stake into a draw whose randomness is known), the target model, and the
lane's parties, who are left out.

This draw is of the nodes' own, over whole sessions: the juries of the contracts
(`settlement.panels`), who answer for one token and are paid, are drawn by another seed
(`roles.tickets`, `roles.juror`). Commitments and reveals travel as signed messages between V and
the drawn auditors: a silent or careless auditor is seen and reported by them, and loses nothing.
What these auditors hold they also enter tickets from (`sealing_tickets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from node.network.messages import AuditCommit, AuditReveal
from settlement.chain.contracts import Role
from settlement.chain.events import (
    AccountOpened,
    BatchRegistered,
    KeyRotated,
    ModelServed,
    Staked,
    StakeSlashed,
    UnstakeStarted,
    Withdrawn,
)
from settlement.chain.indexer import ChainEvent
from settlement.chain.standing import fold
from settlement.hashing import TAG_AUDIT, TAG_AUDITORS, keccak256, uint
from settlement.records import Domain, Lane
from settlement.signing import BadSignature, recover, sign

AUDITORS_DRAWN: Final = 3  # per drawn lane and model; all of them where fewer are eligible
NO_SIGNATURE: Final = bytes(65)
_SETTLED_AT, _TERMS, _EVIDENCE = 5, 9, 0  # places in IDrawBeacon.Batch, and in its Terms
M = TypeVar("M", AuditCommit, AuditReveal)


class Verdict(IntEnum):
    """What an audit of one session found; the worst that applies."""

    CLEAN = 0
    UNOPENED = 1  # tokens are the target's; V did not open the fingerprints' salts
    FINGERPRINT = 2  # fingerprints lie too far from the auditor's
    MISMATCH = 3  # a token or figure is not the target's, beyond tolerance
    FAULT = 4  # the records break a rule of the protocol by themselves
    SILENT = 5  # nobody delivered the session


# ---------------------------------------------------------------- stakes


@dataclass(frozen=True)
class Auditor:
    """An account with stake in the auditor role. `keys` are all its operator keys so far."""

    key: bytes
    keys: frozenset[bytes]
    stake: int = 0
    unbonding: int = 0
    models: frozenset[bytes] = frozenset()


def after(accounts: Mapping[bytes, Auditor], event: object) -> Mapping[bytes, Auditor]:
    """The auditors after one event of the vault; other events change nothing."""
    if isinstance(event, AccountOpened):
        fresh = Auditor(event.account, frozenset([event.account]))
        return {**accounts, event.account: accounts.get(event.account, fresh)}
    if isinstance(event, KeyRotated):
        held = accounts[event.account]
        return {
            **accounts,
            event.account: replace(held, key=event.key, keys=held.keys | {event.key}),
        }
    if getattr(event, "role", None) != Role.AUDITOR:
        return accounts
    held = accounts[event.account]  # type: ignore[attr-defined]
    if isinstance(event, Staked):
        held = replace(held, stake=held.stake + event.amount)
    elif isinstance(event, ModelServed):
        models = held.models | {event.model} if event.served else held.models - {event.model}
        held = replace(held, models=models)
    elif isinstance(event, UnstakeStarted):
        held = replace(
            held, stake=held.stake - event.amount, unbonding=held.unbonding + event.amount
        )
    elif isinstance(event, Withdrawn):
        held = replace(held, unbonding=held.unbonding - event.amount)
    elif isinstance(event, StakeSlashed):
        # The vault takes from exits first.
        exits = min(held.unbonding, event.slashed[0])
        held = replace(
            held,
            unbonding=held.unbonding - exits,
            stake=held.stake - (event.slashed[0] - exits),
        )
    else:
        return accounts
    return {**accounts, event.account: held}


# ---------------------------------------------------------------- the draw


def draw_auditors(
    seed: bytes, model: bytes, stakes: Mapping[bytes, int], count: int
) -> tuple[bytes, ...]:
    """`count` of the operators in `stakes`, without repetition, each drawn by its share of the
    stake that is left.

    Draw i takes r = keccak256(TAG_AUDITORS ‖ seed ‖ model ‖ uint8 i) mod the stake left, and walks
    the operators in ascending order of address. The remainder's bias is below 2**-128.
    """
    left = {operator: stake for operator, stake in sorted(stakes.items()) if stake > 0}
    drawn: list[bytes] = []
    for number in range(min(count, len(left))):
        word = keccak256(TAG_AUDITORS, seed, model, uint(number, 1))
        place = int.from_bytes(word, "big") % sum(left.values())
        for operator, stake in left.items():
            if place < stake:
                drawn.append(operator)
                break
            place -= stake
        del left[drawn[-1]]
    return tuple(drawn)


@dataclass(frozen=True)
class DrawnLane:
    """A drawn lane with the auditors' stakes that count for it.

    Attributes:
        batch_id, index: the draw's name.
        root, seed, samples: as `settlement.draws` uses them.
        until: unix seconds by the chain's clock; after it nobody has to have the records.
        accounts: auditors at the batch's registration, by account.
    """

    batch_id: int
    index: int
    lane: Lane
    root: bytes
    seed: bytes
    samples: int
    until: int
    accounts: Mapping[bytes, Auditor] = field(repr=False)
    count: int = AUDITORS_DRAWN

    @property
    def key(self) -> tuple[int, int]:
        return (self.batch_id, self.index)

    def auditors(self, model: bytes) -> tuple[bytes, ...]:
        """Operator keys of the auditors drawn for sessions of that target model."""
        parties = {self.lane.client, self.lane.drafter, self.lane.verifier}
        stakes = {
            auditor.key: auditor.stake
            for auditor in self.accounts.values()
            if model in auditor.models and not auditor.keys & parties
        }
        return draw_auditors(self.seed, model, stakes, self.count)

    def models_of(self, operator: bytes) -> frozenset[bytes]:
        """The models for which that operator is drawn here."""
        served: set[bytes] = set()
        for auditor in self.accounts.values():
            if auditor.key == operator:
                served |= auditor.models
        return frozenset(model for model in served if operator in self.auditors(model))


class Draws(Protocol):
    """The drawn lanes that are confirmed now."""

    def lanes(self) -> Sequence[DrawnLane]: ...


def drawn_lanes(events: Iterable[ChainEvent], count: int = AUDITORS_DRAWN) -> tuple[DrawnLane, ...]:
    """Every drawn lane in `events` (chain order), with the stakes of its batch's registration."""
    events = tuple(events)
    accounts: Mapping[bytes, Auditor] = {}
    at: dict[int, Mapping[bytes, Auditor]] = {}
    for found in events:
        if isinstance(found.event, BatchRegistered):
            at[found.event.batch_id] = accounts
        accounts = after(accounts, found.event)
    standing = fold(events)

    def until(batch_id: int) -> int:
        batch = standing.batches[batch_id].batch
        return int(batch[_SETTLED_AT]) + int(batch[_TERMS][_EVIDENCE])

    return tuple(
        DrawnLane(
            batch_id=drawn.key[0],
            index=drawn.key[1],
            lane=Lane(*drawn.draw[4]),
            root=drawn.root,
            seed=drawn.seed,
            samples=drawn.samples,
            until=until(drawn.key[0]),
            accounts=at[drawn.key[0]],
            count=count,
        )
        for drawn in standing.draws.values()
    )


class DrawBoard:
    """`Draws` over a growing list of events, worked out again only when it has changed."""

    def __init__(self, events: Callable[[], Sequence[ChainEvent]]) -> None:
        self._events = events
        self._seen: tuple[Sequence[ChainEvent], int] | None = None
        self._lanes: tuple[DrawnLane, ...] = ()

    def lanes(self) -> Sequence[DrawnLane]:
        events = self._events()
        # A reorganisation replaces the list: another object, kept alive here, is another history.
        if self._seen is None or self._seen[0] is not events or self._seen[1] != len(events):
            self._lanes = drawn_lanes(events)
            self._seen = (events, len(events))
        return self._lanes


# ---------------------------------------------------------------- commit and reveal


def fingerprint_digest(session_id: bytes, fingerprints: Sequence[bytes]) -> bytes:
    """What an auditor commits to: the fingerprints of every position, 32 bytes each, in order."""
    return keccak256(TAG_AUDIT, b"digest", session_id, *fingerprints)


def commitment(auditor: bytes, salt: bytes, digest: bytes) -> bytes:
    """keccak256(tag ‖ auditor ‖ salt ‖ digest): bound to its author, so a copied one opens for
    nobody else."""
    return keccak256(TAG_AUDIT, b"commit", auditor, salt, digest)


def signing_digest(domain: Domain, message: AuditCommit | AuditReveal) -> bytes:
    """keccak256(tag ‖ domain separator ‖ the message with a signature of zeros): 32 bytes."""
    body = replace(message, signature=NO_SIGNATURE).encode()
    return keccak256(TAG_AUDIT, b"signed", domain.separator, body)


def signed(domain: Domain, message: M, private_key: bytes) -> M:
    """The message with its author's signature."""
    return replace(message, signature=sign(signing_digest(domain, message), private_key))


def is_signed(domain: Domain, message: AuditCommit | AuditReveal) -> bool:
    """Whether the auditor that the message names has signed it."""
    try:
        return recover(signing_digest(domain, message), message.signature) == message.auditor
    except BadSignature:
        return False


def opens(commit: AuditCommit, reveal: AuditReveal) -> bool:
    """Whether the reveal is about that commitment and opens it."""
    same = (commit.batch_id, commit.index, commit.session_id, commit.auditor) == (
        reveal.batch_id,
        reveal.index,
        reveal.session_id,
        reveal.auditor,
    )
    return same and commitment(reveal.auditor, reveal.salt, reveal.digest) == commit.commitment
