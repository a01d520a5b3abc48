"""The sixteen acceptance rates of a pair, by output position and the target's confidence.

    python scripts/bucket_rates.py --model tiny --drafter model --json rates.json

Held-out prompts are decoded by the speculative loop and every position that was reached with a
draft is counted in its bucket, as a lane's sums do (`settlement.alpha.bucket`). This is what a
drafter looks at before it publishes a claim, and what `verdraft simulate --rates FILE` takes.

The text runs on past a stop id, so that late positions have enough trials. A position at which
`--drafter ngram` proposes nothing counts nowhere.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.inference.generate import rounds
from node.inference.params import SamplingParams
from node.inference.stops import StopRules
from node.inference.window import FixedWindow
from scripts.check_lossless import PAIRS, Pair, texts
from settlement.alpha import POSITION_EDGES, bucket
from settlement.hashing import keccak256
from settlement.records import BUCKETS, NO_TOKEN, Q16, Mode

MODES: Final = {"greedy": Mode.GREEDY, "coupled": Mode.COUPLED, "rejection": Mode.REJECTION}
CONFIDENCE: Final = ("≥0.9", "≥0.6", "≥0.3", "<0.3")
PLACES: Final = (*(f"<{edge}" for edge in POSITION_EDGES), f"≥{POSITION_EDGES[-1]}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Counts by bucket: {proposed[16], accepted[16], output, drafted, rounds} and how they came."""
    pair = Pair(options.model, options.drafter, "cpu")
    mode = MODES[options.mode]
    temperature = 0 if mode == Mode.GREEDY else round(options.temperature * Q16)
    params = SamplingParams(mode, temperature)
    stops = StopRules(options.max_tokens, frozenset())
    proposed, accepted, output, drafted, count = [0] * BUCKETS, [0] * BUCKETS, 0, 0, 0
    for number, text in enumerate(texts()[: options.prompts]):
        assert pair.drafter != "noisy"
        drafter = pair.drafter_for(_Numbered(number), None)  # type: ignore[arg-type]
        seed = keccak256(b"bucket rates", str(number).encode())
        window = FixedWindow(options.window)
        prompt = pair.prompt(text)[: options.longest_prompt]
        for draft, made in rounds(pair.verifier, drafter, prompt, params, stops, window, seed=seed):
            count += 1
            drafted += len(draft)
            output += len(made.emitted)
            for outcome in made.decision.outcomes:
                if outcome.draft_token != NO_TOKEN:
                    index = bucket(outcome.position, outcome.top_prob)
                    proposed[index] += 1
                    accepted[index] += outcome.accepted
        print(f"{number + 1} prompts, {output} tokens", file=sys.stderr)
    return {
        "pair": options.model,
        "drafter": options.drafter,
        "mode": options.mode,
        "temperature": options.temperature,
        "window": options.window,
        "prompts": number + 1,
        "rounds": count,
        "output": output,
        "drafted": drafted,
        "proposed": proposed,
        "accepted": accepted,
    }


class _Numbered:
    """What `Pair.drafter_for` asks of a case when it needs no text."""

    def __init__(self, number: int) -> None:
        self.number = number


def table(figures: dict[str, Any]) -> list[str]:
    """The rates with the half width of a 95 % interval (normal), and how often each occurs."""
    total, hits = sum(figures["proposed"]), sum(figures["accepted"])
    lines = [
        f"{figures['drafter']} drafter of the {figures['pair']} pair, {figures['mode']}, "
        f"T = {figures['temperature']:g}: {hits:,} of {total:,} accepted = {hits / total:.3f}",
        "position " + "".join(f"{name:>22}" for name in CONFIDENCE),
    ]
    for row, place in enumerate(PLACES):
        cells = ""
        for index in range(4 * row, 4 * row + 4):
            n, k = figures["proposed"][index], figures["accepted"][index]
            rate = k / n if n else math.nan
            half = 1.96 * math.sqrt(rate * (1 - rate) / n) if n else math.nan
            cells += f"{rate:8.3f} ±{half:.3f} {n:>6,}"
        lines.append(f"{place:<9}{cells}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(PAIRS), default="tiny")
    parser.add_argument("--drafter", choices=("model", "ngram", "random"), default="model")
    parser.add_argument("--mode", choices=sorted(MODES), default="coupled")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--window", type=int, default=4, help="drafts in each round")
    parser.add_argument("--prompts", type=int, default=48, help="of the held-out ones")
    parser.add_argument("--longest-prompt", type=int, default=256, help="cut there, in tokens")
    parser.add_argument("--max-tokens", type=int, default=384)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts there")
    options = parser.parse_args()
    figures = measure(options)
    print("\n".join(table(figures)))
    if options.json:
        options.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
