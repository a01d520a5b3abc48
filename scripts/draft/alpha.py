"""Chance that a draft token is accepted, exactly, from two distributions; and what follows from it.

p is the target's distribution, q the draft's, both over the target's vocabulary (q zero where the
draft cannot propose). Nothing is sampled here but bootstrap indices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def rejection(p: Array, q: Array) -> Array:
    """Rejection sampling's acceptance, Σ min(p, q) = 1 - TV(p, q).

    Args:
        p, q: (..., vocabulary), each row summing to 1.

    Source: Leviathan et al., arXiv 2211.17192, Corollary 3.6.
    """
    return np.minimum(p, q).sum(-1)


def coupled_joint(p: Array, q: Array) -> Array:
    """Chance that Gumbel-max with shared noise gives id j for p *and* for q, for each j.

    Equal to 1 / Σ_i max(p_i/p_j, q_i/q_j) and 0 where p_j or q_j is 0 (arXiv 2408.07978). Sorted by
    q_i/p_i, the maximum is the first term up to j and the second after it, so cumulative sums do.

    Args:
        p, q: (vocabulary,) float64, each summing to 1.

    Returns:
        (vocabulary,) float64; its sum is the acceptance.
    """
    both = (p > 0) & (q > 0)
    ratio = np.full(p.shape, np.inf)
    np.divide(q, p, out=ratio, where=p > 0)
    order = np.argsort(ratio, kind="stable")
    below = np.cumsum(p[order])
    above = q.sum() - np.cumsum(q[order])
    p_sorted, q_sorted, keep = p[order], q[order], both[order]
    total = np.full(p.shape, np.inf)
    np.divide(below, p_sorted, out=total, where=keep)
    rest = np.zeros(p.shape)
    np.divide(np.maximum(above, 0.0), q_sorted, out=rest, where=keep)
    out = np.zeros(p.shape)
    out[order] = np.where(keep, 1.0 / (total + rest), 0.0)
    return out


def coupled(p: Array, q: Array) -> float:
    """Acceptance under coupling; at least (1 - TV) / (1 + TV)."""
    return float(coupled_joint(p, q).sum())


def given_token(p: Array, q: Array, token: int, rule: str) -> float:
    """Chance that the draft was accepted, given that the target put out ``token``.

    Needed where rounds are followed along a text that is already there: acceptance and the token
    are not independent.

    Args:
        rule: "rejection" (min(1, q/p)) or "coupled" (joint chance / p).
    """
    if p[token] <= 0:
        raise ValueError(f"token {token} has no mass under the target and cannot have been put out")
    if rule == "rejection":
        return float(min(1.0, q[token] / p[token]))
    return float(coupled_joint(p, q)[token] / p[token])


def by_draft_position(accept: Array, window: int) -> tuple[Array, Array]:
    """Follow rounds of ``window`` drafts along one text, exactly.

    A round ends at a rejection, whose place the target's own token takes, or after ``window``
    acceptances, which are followed by one token of the target alone (bonus).

    Args:
        accept: (n,) chance that a draft at output position i is accepted, given the text.
        window: drafts per round, at least 1.

    Returns:
        (window,) expected drafts judged at draft position k and (window,) expected acceptances.
    """
    judged, accepted = np.zeros(window), np.zeros(window)
    state = np.zeros(window)  # chance that the next position is judged as draft k
    state[0] = 1.0
    bonus = 0.0  # chance that the next position is a bonus token
    for a in accept:
        judged += state
        accepted += state * a
        following = np.zeros(window)
        following[1:] = state[:-1] * a
        following[0] = state.sum() * (1.0 - a) + bonus
        bonus = state[-1] * a
        state = following
    return judged, accepted


def tokens_per_round(judged: Array, accepted: Array) -> float:
    """Tokens that one verification yields: accepted drafts and one of the target's own."""
    rounds = judged[0]
    return float((accepted.sum() + rounds) / rounds) if rounds else float("nan")


@dataclass(frozen=True)
class Rate:
    """A rate with a 95 % interval and the number of positions behind it."""

    value: float
    low: float
    high: float
    positions: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def clustered(sums: Array, counts: Array, rng: np.random.Generator, draws: int = 2000) -> Rate:
    """Mean over positions with a bootstrap interval over prompts.

    Positions of one answer hang together, so whole prompts are resampled; a Wilson interval over
    positions would be too narrow.

    Args:
        sums: (prompts,) sum of acceptances of a prompt; counts: (prompts,) its positions.
    """
    total = int(counts.sum())
    if total == 0:
        return Rate(float("nan"), float("nan"), float("nan"), 0)
    picks = rng.integers(0, len(sums), (draws, len(sums)))
    below = counts[picks].sum(1)
    means = sums[picks].sum(1)[below > 0] / below[below > 0]
    low, high = np.quantile(means, [0.025, 0.975])
    return Rate(float(sums.sum() / total), float(low), float(high), total)


def lookup(context: list[int], longest: int = 3) -> int | None:
    """The n-gram drafter's next token: what followed the latest earlier occurrence of the longest
    suffix (up to ``longest`` ids) of the context; None where no suffix occurred before.

    The same rule as transformers' prompt lookup, one token at a time.
    """
    for n in range(min(longest, len(context) - 1), 0, -1):
        suffix = context[-n:]
        for start in range(len(context) - n - 1, -1, -1):
            if context[start : start + n] == suffix:
                return context[start + n]
    return None
