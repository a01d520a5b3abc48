"""What passes between a drafter, a verifier and the roles that carry it: values, no machinery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from node.inference.stops import StopHit
from settlement.records import MASS_TOTAL, MAX_KEPT, MAX_TOP, NO_TOKEN


class ProposalError(ValueError):
    """A draft is malformed: lengths differ, an id is outside the vocabulary, masses do not add up.

    A draft comes from another operator, so the verifying side refuses it before any forward pass.
    """


@dataclass(frozen=True)
class Kept:
    """A drafter's distribution for one position in rejection mode: the tokens it kept.

    Attributes:
        ids: uint32[m], strictly ascending, 1 <= m <= 64.
        masses: uint64[m], summing to exactly 2**64 - 1.
    """

    ids: np.ndarray
    masses: np.ndarray

    @classmethod
    def point(cls, token: int) -> Kept:
        """All mass on one token: what a drafter without a distribution declares."""
        return cls(np.array([token], np.uint32), np.array([MASS_TOTAL], np.uint64))

    def mass(self, token: int) -> int:
        """q of `token`; 0 if it was not kept."""
        at = int(np.searchsorted(self.ids, token))
        return int(self.masses[at]) if at < len(self.ids) and self.ids[at] == token else 0

    def below(self, token: int) -> int:
        """The mass of the kept ids below `token`."""
        at = int(np.searchsorted(self.ids, token))
        return sum(int(m) for m in self.masses[:at])

    def check(self, vocab_size: int) -> None:
        """ProposalError unless the list has the protocol's form."""
        ids = [int(i) for i in self.ids]
        if not 1 <= len(ids) <= MAX_KEPT or len(ids) != len(self.masses):
            raise ProposalError(f"{len(ids)} kept ids with {len(self.masses)} masses: 1 to 64 each")
        if any(a >= b for a, b in zip(ids, ids[1:], strict=False)) or ids[-1] >= vocab_size:
            raise ProposalError(f"kept ids not strictly ascending below {vocab_size}: {ids[:8]}...")
        total = sum(int(m) for m in self.masses)
        if total != MASS_TOTAL:
            raise ProposalError(f"kept masses add up to {total}, not 2**64 - 1")


@dataclass(frozen=True)
class Draft:
    """A window of proposed tokens for the positions base, base + 1, ...

    Attributes:
        base: position of the first token (output tokens before it, absolute over hand-overs).
        tokens: target vocabulary ids.
        kept: rejection mode: one Kept per token; else empty.
        surprisals: relaxed mode: the draft model's surprisal of each token, Q16 nats; else empty.
        tops: relaxed mode: the draft model's (at most) eight best ids per position; else empty.
        seconds: time the drafter took for the tokens it made in this call (not carried over).
        made: how many tokens that time paid for.
    """

    base: int
    tokens: tuple[int, ...] = ()
    kept: tuple[Kept, ...] = ()
    surprisals: tuple[int, ...] = ()
    tops: tuple[tuple[int, ...], ...] = ()
    seconds: float = field(default=0.0, compare=False)
    made: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def check(self, vocab_size: int, *, rejection: bool, relaxed: bool) -> None:
        """ProposalError unless every list has the length and range that the mode asks for."""
        k = len(self.tokens)
        if bad := [t for t in self.tokens if not 0 <= t < vocab_size]:
            raise ProposalError(f"draft token {bad[0]} is outside the vocabulary of {vocab_size}")
        if len(self.kept) != (k if rejection else 0):
            raise ProposalError(
                f"{len(self.kept)} kept lists for {k} drafts, rejection={rejection}"
            )
        if not len(self.surprisals) == len(self.tops) == (k if relaxed else 0):
            raise ProposalError(f"{len(self.tops)} top lists for {k} drafts, relaxed={relaxed}")
        for kept in self.kept:
            kept.check(vocab_size)
        for top in self.tops:
            if len(top) > MAX_TOP or any(not 0 <= t < vocab_size for t in top):
                raise ProposalError(f"top list {top} has over {MAX_TOP} ids or one out of range")


@dataclass(frozen=True)
class DraftCoin:
    """What D draws a round's tokens with in rejection mode.

    Attributes:
        chain_value: d_r, 32 bytes.
        context_hash: c at the round's base, 32 bytes.
    """

    chain_value: bytes
    context_hash: bytes


@dataclass(frozen=True)
class PositionOutcome:
    """One emitted position: the figures of its verdict leaf, and its margin.

    Attributes:
        position: absolute.
        draft_token: what was drafted here, or NO_TOKEN.
        token: y, what was emitted.
        accepted: the draft was accepted (then token == draft_token).
        p: target's mass of the draft token (of `token` where none was drafted); rejection mode,
            else 0.
        top_prob: 16 bits, temperature 1, before penalties and filters.
        cutoff: Q24 lowest kept score; NO_CUTOFF when nothing is filtered.
        score_draft, score_top, surprisal, key: relaxed mode, as in `VerdictLeaf`; else 0, False.
        fingerprint: 32 bytes, unsalted; empty when the request asked for none.
        margin: Q24 distance between the two best perturbed scores (greedy, coupled); rejection
            mode: distance of the coin from the edge of the chosen interval, in 2**-24 of the
            unit interval. A small one is where other hardware may differ.
    """

    position: int
    draft_token: int
    token: int
    accepted: bool
    p: int = 0
    top_prob: int = 0
    cutoff: int = 0
    score_draft: int = 0
    score_top: int = 0
    surprisal: int = 0
    key: bool = False
    fingerprint: bytes = b""
    margin: int = 0


@dataclass(frozen=True)
class VerifyOutcome:
    """What one round emitted. `positions` has one entry per emitted token, in order.

    Attributes:
        base: position of the first.
        positions: figures, never past a stop.
        accepted: drafts accepted and emitted.
        rejected: a draft that was reached was not accepted (False when all were, or when a stop
            ended the window first).
        stop: why the output ended here, or None.
        seconds: forward pass and rule, excluding waiting.
        rows: rows of the forward pass (drafts + 1).
    """

    base: int
    positions: tuple[PositionOutcome, ...]
    accepted: int
    rejected: bool
    stop: StopHit | None = None
    seconds: float = field(default=0.0, compare=False)
    rows: int = field(default=0, compare=False)

    @property
    def emitted(self) -> tuple[int, ...]:
        return tuple(p.token for p in self.positions)


def window_of(tokens: Sequence[int], index: int) -> int:
    """The draft at `index`, or NO_TOKEN past the window."""
    return tokens[index] if index < len(tokens) else NO_TOKEN
