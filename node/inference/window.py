"""How many tokens to draft: the window that maximises expected tokens per second.

With conditional acceptance rate a, a window of K drafts emits (1 - a**(K+1)) / (1 - a) tokens in
expectation (Leviathan et al. 2023) and takes K drafts, one pass of K + 1 rows and one exchange
with the drafter. Each cost is measured. K = 0 needs no drafter and is chosen when it is the
fastest; from time to time a small window then probes whether that still holds. Nobody need wait
for such a window (`trying`): a verifier that goes on without it can compare it with the text
(`compare`).

A choice depends on past rounds only, never on the drafts it is for: a window that is cut where the
drafter feels unsure would change which tokens are reached and, in rejection mode, the output's law.
Pure: no clock, no randomness; the caller passes measured times in.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Evidence that stays in force over a pause, in trials.
_STALE_WEIGHT = 4.0
# A session drafts until it has seen one of these, even where the first guess says it does not pay,
# as long as it still might.
_FIRST_TRIALS = 16
_FIRST_ROUNDS = 8
# Share of a text's time that learning whether drafts pay may cost in one session; what is then not
# known yet is learnt in later ones.
_LEARNING_SHARE = 0.01
# What a draft is guessed to cost, in passes of the target, until one was timed.
_DRAFT_SHARE = 0.1
# How fast the level of all pass costs follows the machine's load, and the shape of the curve.
_LEVEL_RATE = 0.1
# A pass that took longer than this many times what was expected counts as so long: what else ran
# for a moment says little about the next pass, and one in six is such.
_LEVEL_MOST = 1.15
_SHAPE_RATE = 0.02
# Passes that a calibrated time counts for.
_CALIBRATED = 20
# Most that one row is believed to cost, in times of the next larger pass.
_ALONE_MOST = 1.3
# Rounds before one row is timed again when its time is not known or not believed.
_RETIME = 12
# Weight of the newest window in the share that came back empty.
_SILENCE_RATE = 0.05
# Least weight of the newest round in what rounds are taken to wait for, with drafts and without. Of
# the second kind there are many, and one that was disturbed must not make drafting look fast.
_RTT_RATE, _ALONE_RATE = 0.2, 0.05
# The same of a round's share of a pass where several without drafts may share one.
_ALONE_PASS_RATE = 0.1
# Trials that earlier sessions count for in a new one, at most: few, for texts differ more than
# a drafter's record says, and one that it guesses badly should soon be decoded without it.
_KNOWN_WEIGHT = 6.0


@dataclass(frozen=True)
class Round:
    """What happened in one round.

    Attributes:
        drafts: K.
        accepted: drafts accepted.
        rejected: whether a draft was reached and not accepted.
        draft_seconds, drafted: drafting time, and the number of tokens it made (ahead included).
        verify_seconds: target pass and rule; None when not known.
        network_seconds: round wall time spent neither drafting nor verifying; None when not known.
        bytes: sent and received for this round's draft.
        rows: of the pass, where it is not drafts + 1: rounds without drafts may share one.
        asked: the window that the drafter was asked for; it may have had no guess.
        reading_seconds: spent before drafting on what had been emitted without drafts; in none of
            the others.
    """

    drafts: int
    accepted: int
    rejected: bool
    draft_seconds: float = 0.0
    drafted: int = 0
    verify_seconds: float | None = None
    network_seconds: float | None = None
    bytes: int = 0
    rows: int | None = None
    asked: int = 0
    reading_seconds: float = 0.0


@dataclass
class VerifyCost:
    """Seconds of a pass as a function of its rows.

    A line a + b * rows, fitted with forgetting, says what has not been tried. Where row counts have
    been timed, their own times count, for on a CPU the cost is no line: one row is another kernel
    than two, and packed products make four rows cheaper than two. What changes with the machine's
    load changes all of them, so a common level follows every pass, and the shape only slowly.
    """

    forgetting: float = 0.95
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # w, n, n*n, t, n*t
    _shape: dict[int, tuple[float, int]] = field(default_factory=dict)  # at level 1; times seen
    _level: float = 1.0
    _expected: dict[int, float] = field(default_factory=dict)  # by rows, until the next pass

    def observe(self, rows: int, seconds: float) -> None:
        """One pass. A time over 3 times the estimate counts as 3 times: the machine was busy."""
        if seconds <= 0 or rows < 1:
            return
        if self.known(rows):
            seconds = min(seconds, 3 * self.seconds(rows))
        self._expected.clear()
        if rows > 1:
            fresh = (1.0, rows, rows * rows, seconds, rows * seconds)
            self._sums = [self.forgetting * s + x for s, x in zip(self._sums, fresh, strict=True)]
        if rows not in self._shape or not self.known(rows):
            self._shape[rows] = (seconds / self._level, 1)
            return
        old, seen = self._shape[rows]
        seconds = min(seconds, _LEVEL_MOST * old * self._level)
        self._level *= (seconds / (old * self._level)) ** _LEVEL_RATE
        rate = max(_SHAPE_RATE, 1 / (seen + 1))
        self._shape[rows] = (old + rate * (seconds / self._level - old), seen + 1)

    def calibrate(self, costs: Mapping[int, float]) -> None:
        """Take in times that are each the best of several, by rows."""
        for rows, seconds in sorted(costs.items()):
            self.observe(rows, seconds)
            self._shape[rows] = (self._shape[rows][0], _CALIBRATED)
            self._expected.clear()

    def known(self, rows: int) -> bool:
        """Whether there is a measurement to believe. One row costs hardly more than two: a time
        that says so was taken while the machine was busy, and would rule out K = 0 for good."""
        if rows > 1:
            return self._sums[0] > 0
        if 1 not in self._shape:
            return False
        return len(self._shape) == 1 or self._shape[1][0] <= _ALONE_MOST * self._next_to_one

    @property
    def _next_to_one(self) -> float:
        return self._shape[min(n for n in self._shape if n > 1)][0]

    def line(self) -> tuple[float, float]:
        """(a, b) in seconds; (0, 0) before any observation. b is not negative."""
        weight, n, nn, t, nt = self._sums
        if weight == 0:
            # Only single rows so far: assume that a row adds a tenth of a pass.
            single = self.seconds(1) if 1 in self._shape else 0.0
            return 0.9 * single, 0.1 * single
        mean_n, mean_t = n / weight, t / weight
        variance = nn / weight - mean_n**2
        slope = (nt / weight - mean_n * mean_t) / variance if variance > 0.05 else 0.03 * mean_t
        slope = min(max(slope, 0.0), mean_t / mean_n)
        return mean_t - slope * mean_n, slope

    def seconds(self, rows: int) -> float:
        """What a pass of so many rows is expected to take; 0 before any observation."""
        found = self._expected.get(rows)
        if found is None:
            found = self._expected[rows] = self._estimate(rows)
        return found

    def _estimate(self, rows: int) -> float:
        if rows in self._shape:
            own = self._shape[rows][0]
            if not self.known(rows):
                own = _ALONE_MOST * self._next_to_one
            return own * self._level
        below = max((n for n in self._shape if 1 < n < rows), default=None)
        above = min((n for n in self._shape if n > rows), default=None)
        a, b = self.line()
        if below is None:
            return a + b * rows
        start = self._shape[below][0] * self._level
        if above is None:
            return start + b * (rows - below)
        end = self._shape[above][0] * self._level
        return start + (end - start) * (rows - below) / (above - below)


@dataclass
class Experience:
    """What earlier sessions taught about one drafter; new sessions begin with it.

    A session of fifty tokens is over before it has learnt what pays, so without this a drafter
    that does not pay would be tried again in each.

    Attributes:
        accepts, rejects: of positions reached, each later trial taking 1/200 of the weight.
        draft_cost: seconds per drafted token.
        rtt, rtt_alone: seconds of waiting in rounds with drafts, and in rounds without.
        asked: rounds for which drafts were asked.
        silence: share of those that came back empty.
        opening: seconds by which a text's first drafts come later than others.
        idle: rounds since drafts were last asked for.
        waited: whether a window has ever been waited for, which alone tells what that takes.
    """

    accepts: float = 0.0
    rejects: float = 0.0
    draft_cost: float | None = None
    rtt: float | None = None
    rtt_alone: float | None = None
    asked: int = 0
    silence: float = 0.0
    opening: float = 0.0
    idle: int = 0
    waited: bool = False

    @property
    def trials(self) -> float:
        return self.accepts + self.rejects

    def count(self, accepted: int, rejected: bool) -> None:
        decay = 0.995 ** (accepted + rejected)
        self.accepts = decay * self.accepts + accepted
        self.rejects = decay * self.rejects + rejected


class WindowMemory:
    """The windows of many sessions on one device: pass costs shared by all, experience by drafter.

    Args:
        costs: measured seconds of a pass per number of rows, from a calibration.
        most: drafters (or whatever the keys tell apart) remembered; the longest unused is dropped.
    """

    def __init__(self, costs: Mapping[int, float] | None = None, most: int = 256) -> None:
        self.cost = VerifyCost()
        self.cost.calibrate(costs or {})
        self._most = most
        self._known: dict[Hashable, Experience] = {}

    def control(self, key: Hashable, max_window: int, **settings: Any) -> WindowControl:
        """A new session's control; `settings` as of `WindowControl`."""
        known = self._known.pop(key, None) or Experience()
        self._known[key] = known  # the newest last
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return WindowControl(max_window, cost=self.cost, experience=known, **settings)


class WindowControl:
    """Chooses the window of each round from the rounds before it.

    Args:
        max_window: largest K.
        first: K of the first round; the cap then grows by `growth` a round.
        prior: (rate, weight) of acceptance before anything is known.
        forgetting: weight that a trial keeps per later trial; 0.98 looks back about 50 trials.
        costs: measured seconds of a pass per number of rows, from a calibration.
        draft_cost: seconds per drafted token, from a calibration.
        exchange: seconds that a window is guessed to take on its way, until that is measured.
        bandwidth: bytes per second to the drafter; None leaves bytes out.
        overlap: the drafter drafts on while the verifier works (strict modes).
        lookup: the drafter has no model, and the verifier guesses by lookup itself (`own_lookup`):
            it is not asked just to learn what it can do.
        cost: what passes cost, shared with other sessions on the device.
        experience: what earlier sessions with this drafter taught; goes on learning here.
    """

    def __init__(
        self,
        max_window: int = 16,
        *,
        first: int = 2,
        growth: float = 1.5,
        prior: tuple[float, float] = (0.7, 4.0),
        forgetting: float = 0.98,
        costs: Mapping[int, float] | None = None,
        draft_cost: float | None = None,
        exchange: float = 0.0,
        bandwidth: float | None = None,
        overlap: bool = False,
        lookup: bool = False,
        cost: VerifyCost | None = None,
        experience: Experience | None = None,
    ) -> None:
        if max_window < 0 or first < 0 or growth < 1:
            raise ValueError(f"window {max_window}, first {first}, growth {growth}: out of range")
        self.max_window = max_window
        self.cost = cost or VerifyCost()
        self.cost.calibrate(costs or {})
        self._cap = float(max(first, 1))
        self._growth = growth
        self._prior = prior
        self._forgetting = forgetting
        self._accepts = 0.0
        self._rejects = 0.0
        self._draft_cost = draft_cost
        self._exchange = exchange
        # Of rounds with drafts, and of rounds without, where the drafter need not be waited for.
        self._rtt: float | None = None
        self._rtt_alone: float | None = None
        # Seconds of a pass per round without drafts, where such rounds may share one.
        self._alone_pass: float | None = None
        self._bytes_per_draft = 0.0
        self._bandwidth = bandwidth
        self._overlap = overlap
        self._lookup = lookup
        self._waits = [0, 0]  # rounds whose wait was taken in, without drafts and with
        self._silence = 0.0  # share of windows asked for that came back empty
        self._idle = 0  # rounds in a row for which nothing was asked
        self._rounds = 0
        self._alone_ago = _RETIME  # rounds since one row was timed
        self._drafted_rounds = 0
        self._tried = 0
        self._tokens = 0
        self._lost = 0.0  # seconds that drafts which did not pay have cost
        self._asked = 0  # the last window
        self._first = True  # no drafts have been asked for in this session
        self._in_full = False  # all of the last window was accepted
        self._trying = False
        self._after_drafts = False  # the last round had a window, or was to have one
        self._why = "first round"
        self._experience = known = experience or Experience()
        if known.asked:
            self._silence, self._drafted_rounds = known.silence, known.asked
            rate, weight = prior
            trials = known.trials + weight
            # Enough to begin with, little enough for this text to overrule it soon.
            self._prior = ((known.accepts + rate * weight) / trials, min(trials, _KNOWN_WEIGHT))
            self._tried = int(known.trials)
            if self._tried >= _FIRST_TRIALS:
                self._cap = float(max(max_window, 1))  # what pays is known: no need to grow into it
            self._draft_cost = known.draft_cost if draft_cost is None else draft_cost
            self._rtt, self._rtt_alone = known.rtt, known.rtt_alone
            self._idle = known.idle

    # ------------------------------------------------------------ estimates

    @property
    def alpha(self) -> float:
        """Conditional acceptance rate: accepts / (accepts + rejections), with the prior."""
        rate, weight = self._prior
        trials = self._accepts + self._rejects + weight
        return min((self._accepts + rate * weight) / trials, 0.999)

    @property
    def hopeful_alpha(self) -> float:
        """Two standard errors above `alpha`: what it might still be."""
        trials = self._accepts + self._rejects + self._prior[1]
        return min(self.alpha + 2 * math.sqrt(self.alpha * (1 - self.alpha) / trials), 0.999)

    def expected_tokens(self, k: int, alpha: float | None = None) -> float:
        return _tokens(k, self.alpha if alpha is None else alpha)

    def expected_seconds(self, k: int, own_alpha: float | None = None) -> float:
        """Wall time of a round of k drafts. K = 0 needs no drafts, nor an exchange if none is
        seen to be waited for in such rounds. `own_alpha`: `alpha`, for who asks of many windows."""
        if k == 0:
            alone = self.cost.seconds(1) if self._alone_pass is None else self._alone_pass
            return alone + (self._rtt_alone or 0.0)
        verify = self.cost.seconds(k + 1)
        exchange = self._exchange if self._rtt is None else self._rtt
        if self._bandwidth:
            exchange += k * self._bytes_per_draft / self._bandwidth
        each = _DRAFT_SHARE * self.cost.seconds(1) if self._draft_cost is None else self._draft_cost
        drafting = k * each
        if self._overlap:
            # The next window is ready if all k are accepted and the token after them was guessed.
            alpha = self.alpha if own_alpha is None else own_alpha
            drafting -= alpha ** (k + 1) * min(drafting, verify + exchange)
        return drafting + verify + exchange

    def rate(self, k: int, alpha: float | None = None) -> float:
        """Expected tokens per second of windows of k, at the estimated or a given alpha. A drafter
        without a guess costs the exchange, and the round gives one token."""
        a = self.alpha if alpha is None else alpha
        return self._rates([(k, self.expected_seconds(k))], a)[0]

    def _rates(self, windows: Iterable[tuple[int, float]], alpha: float) -> list[float]:
        """`rate` of windows of which is known what they take."""
        silence, rates = self._silence, []
        empty = self.cost.seconds(1) + (self._exchange if self._rtt is None else self._rtt)
        for k, seconds in windows:
            tokens = _tokens(k, alpha)
            if k and silence:
                tokens = (1 - silence) * tokens + silence
                seconds = (1 - silence) * seconds + silence * empty
            rates.append(tokens / seconds if seconds > 0 else 0.0)
        return rates

    def _fastest(self, limit: int) -> tuple[int, int]:
        """The fastest window as far as is known, and the one that might be."""
        own = self.alpha
        # Twice the same seconds, and asked for in every round: told once.
        windows = [(k, self.expected_seconds(k, own)) for k in range(limit + 1)]
        known, hopeful = (self._rates(windows, a) for a in (own, self.hopeful_alpha))
        return known.index(max(known)), hopeful.index(max(hopeful))

    # ------------------------------------------------------------ choice

    def choose(self, remaining: int | None = None) -> int:
        """K for the next round. Asking twice gives the same answer.

        Args:
            remaining: tokens to max_tokens; the last of them needs no draft.
        """
        limit = self.max_window if remaining is None else min(self.max_window, remaining - 1)
        limit = max(limit, 0)
        # A drafter of which nothing is known is not waited for.
        self._trying = not self._experience.asked
        if limit == 0:
            self._why = "no room for a draft"
            return 0
        if not (self.cost.known(1) or self.cost.known(2)):
            self._why = "first round"
            return min(int(self._cap), limit)
        best, hope = self._fastest(limit)
        if best == 0 and self._learning and hope:
            window = min(int(self._cap), hope)
            # One that is waited for, behind a trial for which the drafter has read all there was.
            once = not self._trying and not self._experience.waited and not self._first
            if once or remaining is None or self._affordable(window, remaining):
                self._why = "learning: too few drafts seen to give them up"
                self._trying = not once
                return window
        if best == 0:
            # As large as might pay, for a short probe tells little about a long window.
            probe = hope or min(2, limit)
            if self._idle >= self._patience(probe):
                self._why = "probe: not drafting was faster"
                self._trying = True
                return probe
            # One window that came true says little about a much longer one.
            longer = hope if self._first else min(hope, 2 * self._asked)
            if remaining is not None and longer and self._may_copy(longer, remaining):
                self._why = "probe: this text may be another than those before"
                # After one that came true the next may well pay.
                self._trying = self._trying or self._first
                return longer
            self._why = "not drafting is faster"
            return 0
        untimed = not self.cost.known(1) and self._alone_ago >= _RETIME
        if untimed and self._rounds >= 3 and self.rate(best) < 2 * self.rate(0):
            self._why = "probe: one row was never timed"
            return 0
        if best > int(self._cap):
            self._why = "growing"
            return int(self._cap)
        self._why = "fastest"
        return best

    @property
    def trying(self) -> bool:
        """Whether the last choice is there to learn: believed not to pay, or a drafter's first."""
        return self._trying

    def _affordable(self, window: int, remaining: int) -> bool:
        """Whether one more round that is believed not to pay stays within what a text of this
        length may spend on learning."""
        alone = self.rate(0)
        if alone <= 0 or not self._experience.asked:  # or nothing would ever be learnt
            return True
        return (
            self._lost + self._loss(window, alone)
            <= _LEARNING_SHARE * (self._tokens + remaining) / alone
        )

    def _may_copy(self, window: int, remaining: int) -> bool:
        """Whether to find out if this text is one that the drafter guesses well, as one that copies
        its prompt is: by its first window, where that costs little of the text, and by more as long
        as all of the last one came true."""
        alone = self.rate(0)
        if not self._first:
            return self._in_full
        if self._lookup:  # the verifier finds out by itself
            return False
        return self._loss(window, alone) <= _LEARNING_SHARE * remaining / alone

    @property
    def _learning(self) -> bool:
        few = self._tried < _FIRST_TRIALS and self._drafted_rounds < _FIRST_ROUNDS
        return few and not self._lookup

    def _patience(self, probe: int) -> float:
        """Rounds without drafts before a probe, so that probes cost about 1/50 of the time, and
        1/150 once much is known."""
        alone = self.rate(0)
        if alone <= 0:
            return 8
        seldom = 50 if self._experience.trials < 2 * _FIRST_TRIALS else 150
        if self._lookup:
            return math.inf
        return max(8.0, seldom * self._loss(probe, alone) * alone)

    def _loss(self, window: int, alone: float) -> float:
        """Seconds that a window is expected to cost beyond the same tokens without drafts."""
        opening = self._experience.opening if self._first else 0.0
        return opening + self.expected_seconds(window) - self.expected_tokens(window) / alone

    def observe(self, done: Round) -> None:
        """Learn from a finished round."""
        self._rounds += 1
        self._alone_ago = self._alone_ago + 1 if done.drafts else 0
        known, asked = self._experience, max(done.asked, done.drafts)
        # Before its first drafts of a text a drafter runs the prompt: no measure of later ones.
        timed = not (asked and self._first)
        self._count(done, timed)
        if done.verify_seconds is not None:
            rows = done.drafts + 1 if done.rows is None else done.rows
            if rows:
                self.cost.observe(rows, done.verify_seconds)
            if done.drafts == 0 and (rows != 1 or self._alone_pass is not None):
                old = self.cost.seconds(1) if self._alone_pass is None else self._alone_pass
                self._alone_pass = _blend(old, done.verify_seconds, 2 * old, _ALONE_PASS_RATE)
        self._tokens += done.accepted + 1
        self._after_drafts = self._after_drafts or asked > 0
        if asked:
            known.waited = True
            alone = self.rate(0)
            if alone > 0:
                self._lost += max(_seconds(done) - (done.accepted + 1) / alone, 0.0)
            self._count_asked(done, timed)
            return
        if done.drafts == 0:
            self._idle = known.idle = self._idle + 1
            # The first one after drafts still pays for what only those need.
            after_drafts, self._after_drafts = self._after_drafts, False
            if done.network_seconds is not None and not after_drafts:
                self._rtt_alone = self._waited(self._rtt_alone, done.network_seconds, 0)
                known.rtt_alone = self._rtt_alone

    def compare(self, done: Round) -> None:
        """Learn from a window that no round had (`trying`): `accepted` and `rejected` as the text
        has it, `network_seconds` what it took beside its drafting, and no pass."""
        timed = not self._first
        self._count(done, timed)
        # As if it had been waited for, though only its drafter's time is gone.
        self._lost += _seconds(done)
        self._count_asked(done, timed)

    def _count(self, done: Round, timed: bool) -> None:
        """What was accepted, and what drafting took."""
        trials, known = done.accepted + done.rejected, self._experience
        if trials:
            known.count(done.accepted, done.rejected)
            decay = self._forgetting**trials
            if self._idle and self._accepts + self._rejects > _STALE_WEIGHT:
                # What was known before a pause is old: let a probe count for something.
                old = self._forgetting**self._idle
                decay *= max(old, _STALE_WEIGHT / (self._accepts + self._rejects))
            self._accepts = decay * self._accepts + done.accepted
            self._rejects = decay * self._rejects + done.rejected
        self._tried += trials
        if done.drafted > 0 and timed:
            each = done.draft_seconds / done.drafted
            self._draft_cost = _blend(self._draft_cost, each, self.cost.seconds(1))
            known.draft_cost = self._draft_cost

    def _count_asked(self, done: Round, timed: bool) -> None:
        """That a window was asked for, and how long it was on its way."""
        known = self._experience
        self._asked = max(done.asked, done.drafts)
        self._in_full = 0 < done.drafts == done.accepted
        if self._first and self._rtt is not None:
            late = done.reading_seconds + done.draft_seconds + (done.network_seconds or 0.0)
            late -= self._rtt + done.drafts * (self._draft_cost or 0.0)
            known.opening = _blend(known.opening or None, max(late, 0.0), 0.0)
        self._first = False
        self._silence += _SILENCE_RATE * ((done.drafts == 0) - self._silence)
        self._idle = known.idle = 0
        self._drafted_rounds += 1
        known.asked, known.silence = self._drafted_rounds, self._silence
        sent = 0.0
        if done.drafts:
            self._cap = min(self._cap * self._growth, float(max(self.max_window, 1)))
        if done.drafts and done.bytes:
            each = done.bytes / done.drafts
            self._bytes_per_draft = _blend(self._bytes_per_draft or None, each, 0.0)
            sent = done.bytes / self._bandwidth if self._bandwidth else 0.0
        if done.network_seconds is not None and timed:
            self._rtt = self._waited(self._rtt, max(done.network_seconds - sent, 0.0), 1)
            known.rtt = self._rtt

    def _waited(self, old: float | None, new: float, drafts: int) -> float:
        """The mean wait of rounds of a kind: of the first ones alike, then of the newest."""
        self._waits[drafts] += 1
        rate = max((_ALONE_RATE, _RTT_RATE)[drafts], 1 / (self._waits[drafts] + 1))
        return _blend(old, new, self.cost.seconds(1), rate)

    def explain(self) -> dict[str, Any]:
        """What the choice rests on, for people: estimates, and expected tokens/s per window."""
        a, b = self.cost.line()
        return {
            "reason": self._why,
            "alpha": self.alpha,
            "trials": self._accepts + self._rejects,
            "draft_seconds_per_token": self._draft_cost,
            "verify_seconds": {"a": a, "b": b, "one_row": self.cost.seconds(1)},
            "rtt_seconds": self._rtt,
            "no_guess": self._silence,
            "bytes_per_draft": self._bytes_per_draft,
            "cap": int(self._cap),
            "tokens_per_second": {k: self.rate(k) for k in range(self.max_window + 1)},
        }


def _tokens(k: int, alpha: float) -> float:
    """Expected tokens of a round of k drafts (Leviathan et al. 2023)."""
    return (1 - alpha ** (k + 1)) / (1 - alpha)


def _seconds(done: Round) -> float:
    """What a round with a window took."""
    beside = done.reading_seconds + (done.network_seconds or 0.0)
    return done.draft_seconds + (done.verify_seconds or 0.0) + beside


def _blend(old: float | None, new: float, usual: float, rate: float = 0.3) -> float:
    """Exponential average that starts at the first value and clips one-off spikes: values over 3
    times the average and over `usual`, or an average of nothing would never learn of something. It
    aims at the mean, for that is what a round will take: a wait that varies is not the shortest it
    ever was."""
    if not math.isfinite(new) or old is None:
        return new if math.isfinite(new) else 0.0
    return (1 - rate) * old + rate * min(new, max(3 * old, usual))


class FixedWindow:
    """The same K always: for benchmarks and tests. Same interface as `WindowControl`."""

    def __init__(self, k: int) -> None:
        self.k = k

    def choose(self, remaining: int | None = None) -> int:
        return self.k if remaining is None else max(min(self.k, remaining - 1), 0)

    @property
    def trying(self) -> bool:
        return False

    def observe(self, done: Round) -> None:
        pass

    def compare(self, done: Round) -> None:
        pass

    def explain(self) -> dict[str, Any]:
        return {"reason": "fixed", "window": self.k}
