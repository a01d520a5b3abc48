"""How often the α test flags an honest drafter, and how soon it sees a dishonest one.

    python scripts/alpha_power.py [--json FILE] [--quick] [--traces FILE]

Three measurements, all with the integer weights and thresholds of `settlement.alpha`:

* false alarms: honest drafters whose conditional acceptance is exactly what they claim (the worst
  honest case), 16 buckets, four verifiers in turn, a settlement every 64 proposals, and after each
  settlement every interval from every checkpoint tested, for the claim and for each verifier;
* delay: proposals from a fall of the rate to the flag, in one bucket, the newest state tested at
  every proposal, starts at checkpoints W apart;
* the same for several W, which is how `CHECKPOINT_PROPOSALS` was chosen.

Exits 1 when a promise is broken: more than 1 % flagged at δ = 10⁻², anyone at δ = 10⁻⁶, or a median
delay of 1,100 or more for 0.80 → 0.70 after 20,000 honest proposals at δ = 10⁻⁶.

`--traces` also writes 200 random histories with the score of every query, for a replay on chain.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from settlement import alpha
from settlement.alpha import BUCKETS, CHECKPOINT_PROPOSALS, Counts, Ledger

SETTLEMENT: Final = 64  # proposals
VERIFIERS: Final = 4
DELTAS: Final = (100, 10**6)
RATES: Final = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)
SPACINGS: Final = (128, 256, 512, 1024, 2048)
MOST_FALSE_ALARMS: Final = 0.01
LONGEST_MEDIAN: Final = 1100
_NEVER: Final = np.iinfo(np.int64).max // 4

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class FalseAlarms:
    """Honest drafters flagged by any interval, any bucket, claim or verifier."""

    inverse_delta: int
    drafters: int
    proposals: int
    flagged: int

    @property
    def rate(self) -> float:
        return self.flagged / self.drafters


@dataclass(frozen=True)
class Delay:
    """Proposals from the fall to the flag: median and 90th percentile over trials (None: more
    than `horizon`)."""

    claimed: int  # percent
    actual: int
    honest_before: int
    spacing: int
    inverse_delta: int
    trials: int
    horizon: int
    median: int | None
    ninetieth: int | None
    before_the_fall: int  # trials flagged while still honest


def _thresholds(count: int, inverse_delta: int, verifier_order: int = 0) -> Int64s:
    """Thresholds of starts k = 1 … count."""
    return np.array(
        [alpha.threshold(k + 1, inverse_delta, verifier_order) for k in range(count)],
        dtype=np.int64,
    )


def exceeds(scores: Int64s, every: int, thresholds: Int64s) -> NDArray[np.bool_]:
    """Whether each state exceeds the threshold from any earlier checkpoint.

    Args:
        scores: int64[n, T], cumulative scores after states 1 … T of n histories; every history
            has a checkpoint at state 0 (score 0) and at each multiple of `every`, which divides T.
        thresholds: int64[T / every], of starts k = 1, 2, ….

    Returns:
        bool[n, T].
    """
    rows, states = scores.shape
    blocks = scores.reshape(rows, states // every, every)
    starts = np.concatenate([np.zeros((rows, 1), np.int64), blocks[:, :-1, -1]], axis=1)
    # The lowest of score-at-start + threshold over all starts so far is the one to exceed.
    lowest = np.minimum.accumulate(starts + thresholds, axis=1)
    return (blocks > lowest[:, :, None]).reshape(rows, states)


def _sampled_rates(rng: np.random.Generator, shape: tuple[int, ...]) -> Int64s:
    return rng.integers(alpha.LOWEST_RATE, alpha.HIGHEST_RATE + 1, shape)


def measure_false_alarms(drafters: int, proposals: int, seed: int) -> list[FalseAlarms]:
    """Rates, and how often each bucket occurs, are drawn anew for each drafter."""
    rng = np.random.default_rng(seed)
    every = CHECKPOINT_PROPOSALS // SETTLEMENT
    group = every * VERIFIERS
    settlements = -(-proposals // (SETTLEMENT * group)) * group
    accept = np.array([0] * 6 + [alpha.weights(rate).accept for rate in range(6, 100)])
    reject = np.array([0] * 6 + [alpha.weights(rate).reject for rate in range(6, 100)])
    flagged = dict.fromkeys(DELTAS, 0)
    done = 0
    while done < drafters:
        rows = min(50, drafters - done)
        done += rows
        rates = _sampled_rates(rng, (rows, 1, BUCKETS))
        shares = rng.dirichlet(np.full(BUCKETS, 0.7), size=rows)
        proposed = np.stack([rng.multinomial(SETTLEMENT, share, settlements) for share in shares])
        accepted = rng.binomial(proposed, rates / 100)
        gains = accepted * accept[rates] + (proposed - accepted) * reject[rates]
        # [drafter, bucket, settlement], a history a row.
        gains = gains.transpose(0, 2, 1).reshape(rows * BUCKETS, settlements)
        for inverse_delta in DELTAS:
            hit = _any_flag(gains, every, inverse_delta).reshape(rows, BUCKETS)
            flagged[inverse_delta] += int(hit.any(axis=1).sum())
    return [
        FalseAlarms(inverse_delta, drafters, settlements * SETTLEMENT, flagged[inverse_delta])
        for inverse_delta in DELTAS
    ]


def _any_flag(gains: Int64s, every: int, inverse_delta: int) -> NDArray[np.bool_]:
    """Whether each history (a row of gains by settlement) is ever flagged, as a whole or in one
    of the verifiers' shares, which take turns."""
    length = gains.shape[1]
    whole = exceeds(gains.cumsum(axis=1), every, _thresholds(length // every, inverse_delta))
    hit = whole.any(axis=1)
    for verifier in range(VERIFIERS):
        own = gains[:, verifier::VERIFIERS].cumsum(axis=1)
        limits = _thresholds(own.shape[1] // every, inverse_delta, verifier + 1)
        hit |= exceeds(own, every, limits).any(axis=1)
    return hit


def measure_delay(
    claimed: int,
    actual: int,
    honest_before: int,
    trials: int,
    seed: int,
    spacing: int = CHECKPOINT_PROPOSALS,
    inverse_delta: int = alpha.INVERSE_DELTA,
    horizon: int = 16384,
) -> Delay:
    rng = np.random.default_rng(seed)
    weight = alpha.weights(claimed)
    length = -(-(honest_before + horizon) // spacing) * spacing
    limits = _thresholds(length // spacing, inverse_delta)
    delays: list[int] = []
    early = 0
    rate = np.full(length, actual / 100)
    rate[:honest_before] = claimed / 100
    while len(delays) < trials:
        rows = min(100, trials - len(delays))
        hits = rng.random((rows, length), dtype=np.float32) < rate.astype(np.float32)
        scores = np.where(hits, weight.accept, weight.reject).cumsum(axis=1)
        over = exceeds(scores, spacing, limits)
        early += int(over[:, :honest_before].any(axis=1).sum())
        after = over[:, honest_before:]
        first = np.where(after.any(axis=1), after.argmax(axis=1) + 1, _NEVER)
        delays.extend(int(value) for value in first)
    delays.sort()

    def quantile(part: float) -> int | None:
        value = delays[int(part * (len(delays) - 1))]
        return None if value == _NEVER else value

    return Delay(
        claimed, actual, honest_before, spacing, inverse_delta, trials, horizon,
        quantile(0.5), quantile(0.9), early,
    )  # fmt: skip


# ---------------------------------------------------------------- traces


def make_trace(rng: Random, settlements: int = 24) -> dict[str, Any]:
    """A random history under one claim and every kind of query on it.

    JSON: rates; every (W); settlements: {verifier (a small number), proposed[16], accepted[16]} in
    order; queries: {verifier (null: the claim's own), order, bucket, from, to, score, threshold,
    flagged}. Checkpoints are numbered as in `alpha.Ledger`.
    """
    rates = [rng.randint(alpha.LOWEST_RATE, alpha.HIGHEST_RATE) for _ in range(BUCKETS)]
    falls = rng.random() < 0.5  # a dishonest half, so that some queries flag
    claim, own, order = Ledger(), dict[int, Ledger](), dict[int, int]()
    steps = []
    for _ in range(settlements):
        verifier = rng.randrange(3)
        proposed = [rng.choice((0, rng.randrange(60))) for _ in range(BUCKETS)]
        accepted = [
            sum(rng.random() < rate / (200 if falls else 100) for _ in range(count))
            for rate, count in zip(rates, proposed, strict=True)
        ]
        delta = Counts(tuple(proposed), tuple(accepted))
        claim = claim.add(delta)
        order.setdefault(verifier, len(order) + 1)
        own[verifier] = own.get(verifier, Ledger()).add(delta)
        steps.append({"verifier": verifier, "proposed": proposed, "accepted": accepted})
    queries = []
    for verifier in (None, *own):
        ledger = claim if verifier is None else own[verifier]
        for _ in range(6):
            start = rng.randrange(ledger.newest_number)
            end = rng.choice((ledger.newest_number, rng.randint(start + 1, ledger.newest_number)))
            bucket, place = rng.randrange(BUCKETS), 0 if verifier is None else order[verifier]
            result = alpha.evaluate(ledger, rates, bucket, start, end, verifier_order=place)
            queries.append(
                {
                    "verifier": verifier,
                    "order": place,
                    "bucket": bucket,
                    "from": start,
                    "to": end,
                    "score": result.score,
                    "threshold": result.threshold,
                    "flagged": result.flagged,
                }
            )
    return {
        "rates": rates,
        "every": CHECKPOINT_PROPOSALS,
        "settlements": steps,
        "queries": queries,
    }


def make_traces(count: int = 200, seed: str = "verdraft alpha traces") -> list[dict[str, Any]]:
    rng = Random(seed)
    return [make_trace(rng) for _ in range(count)]


# ---------------------------------------------------------------- the report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, noisier")
    parser.add_argument("--traces", type=Path, metavar="FILE", help="write 200 traces there")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    if options.traces:
        options.traces.write_text(json.dumps(make_traces()) + "\n", encoding="utf-8")
        print(f"200 traces in {options.traces}")

    drafters, proposals, trials = (200, 20_000, 100) if options.quick else (2000, 50_000, 1000)
    alarms = measure_false_alarms(drafters, proposals, options.seed)
    print("honest drafters flagged (16 buckets, claim and 4 verifiers, every interval)")
    for item in alarms:
        print(
            f"  δ = 1/{item.inverse_delta:<8,} {item.flagged} of {item.drafters:,} × "
            f"{item.proposals:,} proposals = {item.rate:.2%}"
        )

    print("\nproposals from a fall to the flag, δ = 1e-6, after 20,000 honest ones")
    print("  claimed  actual  median    90 %")
    delays = [
        measure_delay(rate, actual, 20_000, trials, options.seed)
        for rate in RATES
        for actual in sorted({max(rate - fall, rate // 2) for fall in (5, 10, 20)}, reverse=True)
    ]
    for delay in delays:
        print(
            f"  {delay.claimed / 100:7.2f} {delay.actual / 100:7.2f}"
            f" {_shown(delay.median, delay.horizon)} {_shown(delay.ninetieth, delay.horizon)}"
        )

    print("\n0.80 → 0.70 by checkpoint spacing W, medians after 0 / 20,000 / 200,000 honest ones")
    spacings = [
        measure_delay(80, 70, before, max(trials // 4, 50), options.seed, spacing)
        for spacing in SPACINGS
        for before in (0, 20_000, 200_000)
    ]
    for spacing in SPACINGS:
        medians = [str(item.median) for item in spacings if item.spacing == spacing]
        chosen = "  ← W" if spacing == CHECKPOINT_PROPOSALS else ""
        print(f"  {spacing:5} {' / '.join(medians)}{chosen}")

    promised = next(d for d in delays if (d.claimed, d.actual) == (80, 70))
    broken = []
    if alarms[0].rate > MOST_FALSE_ALARMS:
        broken.append(f"{alarms[0].rate:.2%} of honest drafters flagged at δ = 1/100")
    if alarms[1].flagged or any(delay.before_the_fall for delay in delays + spacings):
        broken.append("an honest drafter was flagged at δ = 1e-6")
    if promised.median is None or promised.median >= LONGEST_MEDIAN:
        broken.append(f"median delay {promised.median} for 0.80 → 0.70")
    print(f"\n{'; '.join(broken) or 'all promises hold'} ({time.monotonic() - began:.0f} s)")
    if options.json:
        figures = {
            "spacing": CHECKPOINT_PROPOSALS,
            "falseAlarms": [asdict(item) | {"rate": item.rate} for item in alarms],
            "delays": [asdict(item) for item in delays],
            "bySpacing": [asdict(item) for item in spacings],
            "broken": broken,
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if broken else 0


def _shown(value: int | None, horizon: int) -> str:
    return f"{value:7,}" if value is not None else f">{horizon:6,}"


if __name__ == "__main__":
    sys.exit(main())
