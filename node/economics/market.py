"""A market of sessions: what they cost, how often drafts are accepted, and sampling many of them.

Acceptance is that of a pair of models, counted in the sixteen buckets of the α ledger
(`scripts/bucket_rates.py`). Where a position lies gives how the target's confidence is spread
there, and the two together the chance that the honest draft is accepted. Positions are independent:
real ones are not, but every quantity here is a sum of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from settlement.alpha import BUCKETS, HIGHEST_RATE, LOWEST_RATE, POSITION_EDGES
from settlement.payments import Tally

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_CLASSES: Final = 4  # of confidence, in each class of positions


class MarketError(ValueError):
    """Counts, rates or sizes that no market has."""


@dataclass(frozen=True)
class Acceptance:
    """How often an honest draft is accepted.

    Attributes:
        source: where the figures come from.
        rates: (16,) conditional acceptance by bucket.
        shares: (4, 4) how often each class of confidence occurs, by class of position.
        ngram: (16,) acceptance of prompt lookup on the same target: what a lazy drafter has.
        vocab: ids, for a drafter that guesses.
    """

    source: str
    rates: Floats
    shares: Floats
    ngram: Floats
    vocab: int

    @classmethod
    def of_counts(
        cls,
        source: str,
        proposed: Sequence[int],
        accepted: Sequence[int],
        ngram: float | Floats,
        vocab: int,
    ) -> Acceptance:
        """From bucket counts. A rate is (accepted + 1) / (proposed + 2), so that a bucket that was
        hardly seen is neither certain nor impossible; a class of positions without trials takes the
        spread of the class before it."""
        n, k = np.array(proposed, dtype=float), np.array(accepted, dtype=float)
        if n.shape != (BUCKETS,) or k.shape != (BUCKETS,) or (k > n).any() or (k < 0).any():
            raise MarketError(f"sixteen counts, accepted at most proposed: {proposed}, {accepted}")
        lookup = np.full(BUCKETS, ngram) if isinstance(ngram, float) else ngram
        if (lookup < 0).any() or (lookup > 1).any() or vocab < 2:
            raise MarketError(f"acceptance {ngram} of lookup or a vocabulary of {vocab} ids")
        table = n.reshape(_CLASSES, _CLASSES)
        if table[0].sum() == 0:
            raise MarketError("no trial at the first sixteen positions")
        shares = np.empty_like(table)
        for row in range(_CLASSES):
            total = table[row].sum()
            shares[row] = table[row] / total if total else shares[row - 1]
        return cls(source, (k + 1) / (n + 2), shares, lookup, vocab)

    @classmethod
    def of_json(cls, data: dict[str, Any], ngram: float | Floats, vocab: int) -> Acceptance:
        """From what `scripts/bucket_rates.py --json` writes. MarketError when it is not that."""
        try:
            source = f"{data['pair']} pair, {data['mode']}, T = {data['temperature']:g}"
            return cls.of_counts(source, data["proposed"], data["accepted"], ngram, vocab)
        except (KeyError, TypeError, ValueError) as error:
            raise MarketError(f"not figures of scripts/bucket_rates.py: {error}") from error

    def mean(self, length: int, rates: Floats | None = None) -> float:
        """Acceptance over a text of so many tokens."""
        rates = self.rates if rates is None else rates
        by_place = (self.shares * rates.reshape(_CLASSES, _CLASSES)).sum(axis=1)
        return float(by_place[place_classes(length)].mean())

    def claim(self, slack: int) -> tuple[int, ...]:
        """What an honest drafter promises: its rates less `slack` points, in whole percent."""
        percents = np.floor(self.rates * 100).astype(int) - slack
        return tuple(int(rate) for rate in percents.clip(LOWEST_RATE, HIGHEST_RATE))


def place_classes(length: int) -> Ints:
    """int64[length]: the class of each output position, 0 to 3."""
    return np.searchsorted(POSITION_EDGES, np.arange(length), side="right").astype(np.int64)


@dataclass(frozen=True)
class Costs:
    """What work costs its operator, in units of the stake token.

    The default relations are the literature's: a draft token costs a tenth of a target pass (a
    draft model of a tenth of the target's size), and decoding is bound by memory, so that a further
    row adds little to a pass.
    """

    target_pass: int = 10**16
    target_row: int = 3 * 10**14  # each row of a pass after the first
    draft_token: int = 10**15

    def verify(self, passes: float, drafted: float) -> float:
        """Passes over so many drafts in all: a pass has one row more than drafts."""
        return passes * self.target_pass + drafted * self.target_row

    def prefill(self, tokens: float) -> float:
        """One teacher-forced pass: what an audit of so many tokens costs."""
        return self.target_pass + max(tokens - 1, 0) * self.target_row


@dataclass(frozen=True)
class Market:
    """What is bought. `length`: output tokens a session; `sessions`: of a lane between settlements;
    `prompt`: tokens before the output, which an audit reads too."""

    acceptance: Acceptance
    costs: Costs = Costs()
    length: int = 256
    prompt: int = 128
    window: int = 4
    sessions: int = 16
    margin: float = 0.25  # of prices over the costs of honest play

    def __post_init__(self) -> None:
        if min(self.length, self.window, self.sessions) < 1 or self.prompt < 0:
            raise MarketError(f"sizes are positive: {self.length}, {self.window}, {self.sessions}")

    @property
    def batch_tokens(self) -> int:
        """Output of a lane between two settlements."""
        return self.length * self.sessions


@dataclass(frozen=True)
class Sessions:
    """Sampled sessions, one a row. Counts as in a lane's sums.

    Attributes:
        passes, drafted, accepted, output: int64[n].
        false: int64[n], output tokens that the target would not have said.
        steered: int64[n], accepted drafts that the drafter chose for its own ends.
        altered: int64[n], output tokens that are false, steered or both.
        proposed_by, accepted_by: int64[n, 16].
    """

    passes: Ints
    drafted: Ints
    accepted: Ints
    output: Ints
    false: Ints
    steered: Ints
    altered: Ints
    proposed_by: Ints
    accepted_by: Ints

    def __len__(self) -> int:
        return len(self.output)

    def pick(self, rows: Ints) -> Sessions:
        """Those sessions, repeated as asked."""
        return Sessions(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def tally(self) -> Tally:
        """All of them together, as `payments.dues_under` takes it."""
        return Tally(
            int(self.passes.sum()),
            int(self.drafted.sum()),
            int(self.accepted.sum()),
            int(self.output.sum()),
        )


@dataclass(frozen=True)
class Conduct:
    """What decides a session's counts, however honest.

    Attributes:
        rates: (16,) chance that the draft is what the target says (coupled) or passes (rejection).
        steer: (16,) chance that the drafter puts its own choice in the draft's place.
        steer_passes: chance that such a choice is accepted; its text is then steered.
        false_reject: share of good drafts that the verifier turns down.
        accept_all: whether it lets every draft pass.
    """

    rates: Floats
    steer: Floats
    steer_passes: float = 0.0
    false_reject: float = 0.0
    accept_all: bool = False


def sample(market: Market, conduct: Conduct, count: int, rng: np.random.Generator) -> Sessions:
    """`count` sessions of `market.length` tokens in rounds of `market.window` drafts.

    A round emits the accepted beginning of its window and one token of the target's own, fewer at
    the end of the text (protocol, section 4).
    """
    length, window = market.length, market.window
    places = place_classes(length)
    edges = market.acceptance.shares.cumsum(axis=1)[places]
    drawn = rng.random((count, length))
    classes = (drawn[:, :, None] > edges[None, :, :-1]).sum(axis=2)
    buckets = _CLASSES * places[None, :] + classes

    steered = rng.random((count, length)) < conduct.steer[buckets]
    good = rng.random((count, length)) < conduct.rates[buckets]
    good = np.where(steered, rng.random((count, length)) < conduct.steer_passes, good)
    turned_down = good & (rng.random((count, length)) < conduct.false_reject)
    passes_rule = np.ones_like(good) if conduct.accept_all else good & ~turned_down

    passes, own = _rounds(passes_rule, window)
    drafted = passes * window
    reached = ~own
    accepted = passes_rule & reached
    false = (accepted & ~good) | (turned_down & reached)
    return Sessions(
        passes=passes,
        drafted=drafted,
        accepted=accepted.sum(axis=1),
        output=np.full(count, length, dtype=np.int64),
        false=false.sum(axis=1),
        steered=(accepted & steered).sum(axis=1),
        altered=(false | (accepted & steered)).sum(axis=1),
        proposed_by=_by_bucket(buckets, reached),
        accepted_by=_by_bucket(buckets, accepted),
    )


def _rounds(accepts: Bools, window: int) -> tuple[Ints, Bools]:
    """(passes of each session, which positions were filled by the target without a draft)."""
    count, length = accepts.shape
    # The next position at or after each one at which a draft fails; `length` where none does.
    fails = np.where(accepts, length, np.arange(length))
    following = np.minimum.accumulate(fails[:, ::-1], axis=1)[:, ::-1]
    base, passes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    own = np.zeros((count, length), dtype=bool)
    rows = np.arange(count)
    while True:
        running = rows[base < length]
        if not len(running):
            return passes, own
        at = base[running]
        taken = np.minimum(following[running, at] - at, window)
        end = at + taken
        bonus = (taken == window) & (end < length)
        own[running[bonus], end[bonus]] = True
        passes[running] += 1
        base[running] = end + 1


def _by_bucket(buckets: Ints, mask: Bools) -> Ints:
    """int64[n, 16]: how many marked positions of each row are in each bucket."""
    rows = np.broadcast_to(np.arange(len(buckets))[:, None], buckets.shape)
    flat = (rows * BUCKETS + buckets)[mask]
    return np.bincount(flat, minlength=len(buckets) * BUCKETS).reshape(-1, BUCKETS)
