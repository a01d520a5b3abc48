"""Which drafts are accepted and what is emitted instead: the round, decided in integers.

`decide_round` is what an honest verifier runs. It asks for the target's rows only as far as the
round goes, and returns the figures that the verdict leaves carry. What a contract can check of
those figures afterwards is in `accept_rule`.

The rules (x the draft, y the target's own token at the same position):

* greedy: y = lowest id among the maximal scores; accept while x = y.
* coupled: y = argmax over kept tokens of score + G, ties to the lowest id; accept while x = y.
* relaxed (τ > 0, on top of either): a position is key when the target's or D's surprisal of x, or
  1 − the overlap of the two top lists, exceeds its threshold. Key positions are strict. Elsewhere
  x is accepted when its score (+ G in coupled mode) is at least the maximum − τ; a token that the
  filters leave out has the least int64 for a score.
* rejection: accept iff q > 0 and u · q < p · 2**64; on a reject draw from max(p − q, 0), after a
  full accept from p, each by its own coin.
* stop: the output ends at the first token that is a stop id, completes a stop string or is the
  last of max tokens, wherever in the window it falls.

Sources: Leviathan et al. (2023) for rejection; Daliri et al. (arXiv 2408.07978) for coupling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from settlement.coins import Purpose, coin
from settlement.logarithm import Int64s
from settlement.masses import (
    UInt64s,
    accept_rejection,
    masses_from_probabilities,
    residual_token,
    sample_masses,
)
from settlement.noise import coupled_argmax, noise_for
from settlement.records import MAX_TOP, NO_CUTOFF, NO_TOKEN, Q16, Mode, Order, VerdictLeaf

__all__ = [
    "NO_SCORE",
    "AcceptanceError",
    "Draft",
    "Outcome",
    "RoundDecision",
    "ScoreRow",
    "TargetRow",
    "Terms",
    "accept_rejection",
    "decide_round",
    "greedy_argmax",
    "is_key",
    "masses_from_probabilities",
    "one_minus_overlap",
    "relaxed_accepts",
    "residual_token",
    "sample_masses",
]

NO_SCORE: Final = -(1 << 63)  # no τ reaches a token that the filters or the vocabulary leave out


class AcceptanceError(ValueError):
    """A round that cannot be decided: missing rows, masses or coins, or drafts out of range."""


@dataclass(frozen=True)
class Terms:
    """The part of an order that decides a round. Thresholds are Q16 nats and Q16, τ is Q24."""

    mode: Mode
    tau: int = 0
    key_target_surprisal: int = 0
    key_draft_surprisal: int = 0
    key_overlap: int = 0
    stop_ids: frozenset[int] = frozenset()
    max_tokens: int = NO_TOKEN

    @classmethod
    def of(cls, order: Order) -> Terms:
        """The terms of an order. Stop strings are not among them: see `decide_round`."""
        return cls(
            Mode(order.mode),
            order.relax_tau,
            order.key_target_surprisal,
            order.key_draft_surprisal,
            order.key_overlap,
            frozenset(order.stop_ids),
            order.max_tokens,
        )


@dataclass(frozen=True)
class Draft:
    """A draft as V has it from D's frame. Rejection mode needs `q`, the dense uint64[V] masses of
    D's kept list; τ > 0 needs `surprisal` (Q16 nats) and `top` (ids, best first, 1 to 8)."""

    token: int
    q: UInt64s | None = None
    surprisal: int = 0
    top: tuple[int, ...] = ()


class TargetRow(Protocol):
    """What the target says at one position. An engine may answer from its own device, as long as
    the integers are those of `ScoreRow`."""

    @property
    def cutoff(self) -> int:
        """Lowest kept score, Q24; NO_CUTOFF when nothing is filtered."""

    @property
    def top_prob(self) -> int:
        """⌊65536 · largest probability⌋ at temperature 1 before filters, at most 65535."""

    def choose(self, mode: Mode, seed: bytes, position: int) -> tuple[int, int]:
        """(y, its score, with G in coupled mode), of the greedy or coupled rule."""

    def score(self, mode: Mode, seed: bytes, position: int, token: int) -> int:
        """The score of one token, with G in coupled mode, Q24; the least int64 when the token is
        filtered out or not in the vocabulary."""

    def masses(self) -> UInt64s:
        """The filtered distribution, dense uint64[V] summing to 2**64 − 1 (rejection mode)."""

    def surprisal(self, token: int) -> int:
        """−ln of the token's probability at temperature 1 before filters, Q16 nats, cut to uint32;
        2**32 − 1 for a token that is not in the vocabulary."""

    def top(self) -> tuple[int, ...]:
        """The most probable ids, best first, as many as D's list may have (8)."""


@dataclass(frozen=True)
class ScoreRow:
    """A `TargetRow` held as NumPy vectors.

    Attributes:
        scores: int64[V], Q24 scaled logits.
        cutoff: lowest kept score.
        top_prob: 16 bits.
        mass: uint64[V], only in rejection mode.
        surprisals: int[V] in Q16 nats, only when τ > 0.
    """

    scores: Int64s
    cutoff: int = NO_CUTOFF
    top_prob: int = 0
    mass: UInt64s | None = None
    surprisals: NDArray[np.int64] | None = None

    def choose(self, mode: Mode, seed: bytes, position: int) -> tuple[int, int]:
        if mode == Mode.GREEDY:
            token = greedy_argmax(self.scores)
            return token, int(self.scores[token])
        kept = None if self.cutoff == NO_CUTOFF else self.scores >= self.cutoff
        return coupled_argmax(self.scores, seed, position, kept)

    def score(self, mode: Mode, seed: bytes, position: int, token: int) -> int:
        plain = int(self.scores[token]) if token < len(self.scores) else NO_SCORE
        if plain < self.cutoff or plain == NO_SCORE:
            return NO_SCORE
        return plain if mode == Mode.GREEDY else plain + int(noise_for(seed, position, [token])[0])

    def masses(self) -> UInt64s:
        if self.mass is None:
            raise AcceptanceError("rejection mode needs the target's masses in each row")
        return self.mass

    def surprisal(self, token: int) -> int:
        if self.surprisals is None:
            raise AcceptanceError("relaxed acceptance needs the target's surprisals in each row")
        return int(self.surprisals[token]) if token < len(self.surprisals) else NO_TOKEN

    def top(self) -> tuple[int, ...]:
        # Stable: the lower id first among equal scores, as everywhere.
        order = np.argsort(-self.scores, kind="stable")[:MAX_TOP]
        return tuple(int(token) for token in order)


@dataclass(frozen=True)
class Outcome:
    """One output position: a verdict leaf but for the fingerprint. Figures that the mode does not
    use are zero."""

    position: int
    draft_token: int  # NO_TOKEN: none was drafted here
    token: int
    accepted: bool
    top_prob: int
    cutoff: int
    p: int = 0
    score_draft: int = 0
    score_top: int = 0
    surprisal: int = 0
    key: bool = False

    def leaf(self, salted_fingerprint: bytes) -> VerdictLeaf:
        """The leaf, given `records.salted_fingerprint(salt, fingerprint)`."""
        return VerdictLeaf(
            position=self.position,
            draft_token=self.draft_token,
            token=self.token,
            accepted=self.accepted,
            p=self.p,
            top_prob=self.top_prob,
            cutoff=self.cutoff,
            score_draft=self.score_draft,
            score_top=self.score_top,
            surprisal=self.surprisal,
            key=self.key,
            fingerprint=salted_fingerprint,
        )


@dataclass(frozen=True)
class RoundDecision:
    """A round decided: at least one outcome, in order of position."""

    outcomes: tuple[Outcome, ...]
    stopped: bool  # the output ends with the last outcome

    @property
    def accepted(self) -> int:
        """Drafts accepted and emitted: the verdict's k."""
        return sum(outcome.accepted for outcome in self.outcomes)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The emitted tokens; their number is the verdict's `emitted`."""
        return tuple(outcome.token for outcome in self.outcomes)


def greedy_argmax(scores: Int64s) -> int:
    """The lowest id among the maximal scores (int64[V])."""
    return int(scores.argmax())


def one_minus_overlap(draft_top: tuple[int, ...], target_top: tuple[int, ...]) -> int:
    """1 − |A ∩ B| / |A| in Q16, rounded down: A is D's list (n ids), B the target's first n."""
    count = len(draft_top)
    if count == 0:
        raise AcceptanceError("relaxed acceptance needs D's top list with each draft")
    shared = len(set(draft_top) & set(target_top[:count]))
    return (count - shared) * Q16 // count


def is_key(terms: Terms, target_surprisal: int, draft_surprisal: int, distance: int) -> bool:
    """Whether a position is strict: any of the three figures exceeds its threshold. `distance` is
    `one_minus_overlap`."""
    return (
        target_surprisal > terms.key_target_surprisal
        or draft_surprisal > terms.key_draft_surprisal
        or distance > terms.key_overlap
    )


def relaxed_accepts(tau: int, key: bool, score_draft: int, score_top: int) -> bool:
    """Whether a draft that is not the target's own token passes: τ > 0, the position is not key,
    and score_draft ≥ score_top − τ. Scores carry G in coupled mode."""
    return tau > 0 and not key and score_draft >= score_top - tau


def decide_round(
    terms: Terms,
    base: int,
    drafts: Sequence[Draft],
    rows: Sequence[TargetRow],
    seed: bytes,
    chain_value: bytes | None = None,
    completes_stop_string: Callable[[tuple[int, ...]], bool] | None = None,
) -> RoundDecision:
    """Decide a round of K drafts with the K + 1 rows that the target gave for it.

    Args:
        base: position of the first draft, below max_tokens.
        drafts: K drafts, K ≥ 0.
        rows: K + 1 rows; rows[i] is the target's word at position base + i. A row is only asked
            when the round reaches it.
        seed: S, 32 bytes.
        chain_value: v_r, 32 bytes; needed in rejection mode and only there.
        completes_stop_string: given the round's tokens so far, whether the last one completes a
            stop string. None: the order names none.

    Raises:
        AcceptanceError: a number of rows other than K + 1, a base past max tokens, or a figure
            that the mode needs and the row or draft lacks.
    """
    if len(rows) != len(drafts) + 1:
        raise AcceptanceError(f"{len(drafts)} drafts need {len(drafts) + 1} rows, got {len(rows)}")
    if not 0 <= base < terms.max_tokens:
        raise AcceptanceError(f"base {base} is not below max tokens {terms.max_tokens}")
    if (chain_value is not None) != (terms.mode == Mode.REJECTION):
        raise AcceptanceError("v_r is needed in rejection mode and only there")

    outcomes: list[Outcome] = []
    for index in range(len(drafts) + 1):
        draft = drafts[index] if index < len(drafts) else None
        position, row = base + index, rows[index]
        if chain_value is not None:
            outcome = _decide_by_coin(position, draft, row, seed, chain_value)
        else:
            outcome = _decide_by_score(terms, position, draft, row, seed)
        outcomes.append(outcome)
        if (
            outcome.token in terms.stop_ids
            or position + 1 >= terms.max_tokens
            or (
                completes_stop_string is not None
                and completes_stop_string(tuple(o.token for o in outcomes))
            )
        ):
            return RoundDecision(tuple(outcomes), stopped=True)
        if not outcome.accepted:
            break
    return RoundDecision(tuple(outcomes), stopped=False)


def _decide_by_score(
    terms: Terms, position: int, draft: Draft | None, row: TargetRow, seed: bytes
) -> Outcome:
    """Greedy and coupled mode, strict or relaxed."""
    y, best = row.choose(terms.mode, seed, position)
    if draft is None:
        return Outcome(position, NO_TOKEN, y, False, row.top_prob, row.cutoff)
    x = draft.token
    if terms.tau == 0:
        return Outcome(position, x, y, x == y, row.top_prob, row.cutoff)
    surprisal = row.surprisal(x)
    key = is_key(terms, surprisal, draft.surprisal, one_minus_overlap(draft.top, row.top()))
    score = row.score(terms.mode, seed, position, x)
    passes = x == y or relaxed_accepts(terms.tau, key, score, best)
    return Outcome(
        position,
        x,
        x if passes else y,
        passes,
        row.top_prob,
        row.cutoff,
        score_draft=score,
        score_top=best,
        surprisal=surprisal,
        key=key,
    )


def _decide_by_coin(
    position: int, draft: Draft | None, row: TargetRow, seed: bytes, chain_value: bytes
) -> Outcome:
    """Rejection mode."""
    p = row.masses()
    if draft is None:
        bonus = sample_masses(p, coin(chain_value, seed, position, Purpose.BONUS))
        return Outcome(position, NO_TOKEN, bonus, False, row.top_prob, row.cutoff)
    if draft.q is None:
        raise AcceptanceError("rejection mode needs D's masses with each draft")
    x = draft.token
    if x >= len(p) or len(draft.q) != len(p):
        raise AcceptanceError(f"draft {x} or its masses do not fit a vocabulary of {len(p)}")
    mass = int(p[x])
    if accept_rejection(coin(chain_value, seed, position, Purpose.ACCEPT), int(draft.q[x]), mass):
        return Outcome(position, x, x, True, row.top_prob, row.cutoff, p=mass)
    y = residual_token(p, draft.q, coin(chain_value, seed, position, Purpose.RESIDUAL))
    return Outcome(position, x, y, False, row.top_prob, row.cutoff, p=mass)
