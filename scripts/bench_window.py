"""Window control against the best fixed window, at round trips of 0, 20, 100 and 300 ms.

    python scripts/bench_window.py --json window.json
    python scripts/bench_window.py --traces traces.jsonl --json window.json

Sessions of the default target are recorded once (text, and what each drafter proposes at each
position; `--traces` keeps them), with the times of passes and drafts on this machine. They are then
played through on a virtual clock, under every fixed window and under window control, which begins
with the best time of each number of rows, as a node does. Drafter and verifier are on two machines,
the round trip between them, the drafter drafting on meanwhile (`scripts/bench/traces.py`).
Deterministic but for the measured times.

A row's oracle is the fixed window that does best over all its sessions; `by_class` gives each
prompt class and temperature its own, which is harder to come close to. `loss` is 1 − ours ÷ oracle,
negative where control is faster.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from node.inference import catalog
from node.inference.loading import load_model
from node.inference.model import LanguageModel, Span
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.stops import StopRules
from node.inference.tokens import Tokenizer
from node.inference.window import FixedWindow, WindowMemory
from scripts.bench.pairs import Rows
from scripts.bench.prompts import CLASSES, prompts
from scripts.bench.traces import Costs, Trace, as_json, from_json, guesses_of, play

RTTS: Final = (0.0, 0.020, 0.100, 0.300)
TEMPERATURES: Final = (0.0, 0.7)
MAX_WINDOW: Final = 16
ROWS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17)
DRAFTERS: Final = ("model", "ngram")
# How often the sessions are played: each time the passes draw other measured times.
PLAYS: Final = 2


def record(
    target: LanguageModel,
    drafter: ModelDrafter,
    tokenizer: Tokenizer,
    count: int,
    tokens: int,
    rows: Rows,
) -> list[Trace]:
    """Decode `count` prompts of every class at both temperatures, or take them from the file."""
    for kind in CLASSES:
        for prompt in prompts(kind, count):
            for temperature in TEMPERATURES:
                head = {"kind": kind, "temperature": temperature, "number": prompt.number}
                if rows.has(head):
                    continue
                ids = tokenizer.chat([{"role": "user", "content": prompt.text}])
                params = SamplingParams.from_floats("coupled", temperature)
                seed = prompt.number.to_bytes(32, "big")
                stops = StopRules(tokens, target.eos_ids)
                plain = decode_plain(target, ids, params, stops, seed=seed, margins=False)
                guesses = guesses_of(drafter, ids, plain.tokens, params, seed)
                trace = Trace(kind, temperature, tuple(ids), tuple(plain.tokens), guesses)
                rows.add(head | as_json(trace))
                print(f"recorded {kind} {prompt.number} T={temperature:g}", file=sys.stderr)
    return [from_json(row) for row in rows.rows]


def measure(target: LanguageModel, draft: ModelDrafter, repeats: int) -> Costs:
    """Times of passes behind 200 tokens, all row counts in turn, and of drafting a token."""
    text = [i % target.vocab_size for i in range(200 + max(ROWS))]
    cache = target.new_cache()
    target.forward([Span(cache, text[:200])])
    passes: dict[int, list[float]] = {rows: [] for rows in ROWS}
    params = SamplingParams.from_floats("coupled", 0.7)
    session = draft.open(text[:200], params, seed=bytes(32))
    session.propose(1)
    drafts = []
    for _ in range(repeats):
        for rows in ROWS:
            cache.truncate(200)
            start = time.process_time()
            target.forward([Span(cache, text[200 : 200 + rows], rows)])
            passes[rows].append(time.process_time() - start)
        start = time.process_time()
        session.draft_ahead(session.surplus + 4)
        drafts.append((time.process_time() - start) / 4)
    return Costs(passes, drafts)


def speeds(
    traces: Sequence[Trace], costs: Costs, rtt: float, lookup: bool, fixed: int | None
) -> dict[tuple[str, float], tuple[int, float]]:
    """Tokens and seconds by prompt class and temperature; under control where `fixed` is None."""
    out: dict[tuple[str, float], tuple[int, float]] = {}
    memory = WindowMemory({n: min(times) for n, times in costs.passes.items()})
    rng = random.Random(f"{rtt}/{lookup}/{fixed}")
    for number in range(PLAYS):
        order = list(traces)
        random.Random(number).shuffle(order)
        for trace in order:
            if fixed is None:
                window = memory.control(trace.temperature, MAX_WINDOW, overlap=True)
            else:
                window = FixedWindow(fixed)
            seconds = play(trace, window, costs, rtt, rng, lookup)
            tokens, total = out.get((trace.kind, trace.temperature), (0, 0.0))
            out[trace.kind, trace.temperature] = (tokens + len(trace.text), total + seconds)
    return out


def total(found: dict[tuple[str, float], tuple[int, float]]) -> float:
    return sum(n for n, _ in found.values()) / sum(s for _, s in found.values())


def compare(traces: Sequence[Trace], costs: Costs, rtt: float, drafter: str) -> dict[str, Any]:
    """One row of the result."""
    lookup = drafter == "ngram"
    ours = speeds(traces, costs, rtt, lookup, None)
    fixed = {k: speeds(traces, costs, rtt, lookup, k) for k in range(MAX_WINDOW + 1)}
    best = max(fixed, key=lambda k: total(fixed[k]))
    by_class = {}
    for where, (tokens, seconds) in ours.items():
        rates = {k: found[where][0] / found[where][1] for k, found in fixed.items()}
        k = max(rates, key=rates.__getitem__)
        by_class[f"{where[0]} T={where[1]:g}"] = {
            "oracle_k": k,
            "oracle_tps": round(rates[k], 3),
            "ours_tps": round(tokens / seconds, 3),
            "loss": round(1 - tokens / seconds / rates[k], 4),
        }
    return {
        "rtt_ms": round(1000 * rtt),
        "drafter": drafter,
        "oracle_k": best,
        "oracle_tps": round(total(fixed[best]), 3),
        "ours_tps": round(total(ours), 3),
        "loss": round(1 - total(ours) / total(fixed[best]), 4),
        "fixed_tps": {k: round(total(found), 3) for k, found in fixed.items()},
        "by_class": by_class,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default=catalog.DEFAULT_TARGET)
    parser.add_argument("--draft", default=catalog.DEFAULT_DRAFT)
    parser.add_argument("--prompts", type=int, default=3, help="a class; default %(default)s")
    parser.add_argument("--tokens", type=int, default=96, help="an output; default %(default)s")
    parser.add_argument("--repeats", type=int, default=12, help="timings of each number of rows")
    parser.add_argument("--traces", type=Path, metavar="FILE", help="keep recordings here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    draft_folder = catalog.resolve(args.draft).path
    settings = {"target": args.target, "draft": draft_folder.name, "tokens": args.tokens}
    kept = Rows(args.traces, settings, lambda r: (r["kind"], r["temperature"], r["number"]))
    folder = catalog.resolve(args.target).path
    target = load_model(folder)
    drafter = ModelDrafter(load_model(draft_folder), target.vocab_size)
    traces = record(target, drafter, Tokenizer.load(folder), args.prompts, args.tokens, kept)
    costs = measure(target, drafter, args.repeats)
    rows = []
    print(f"{'rtt ms':>6} {'drafter':8} {'best K':>6} {'tokens/s':>9} {'ours':>7} {'loss':>7}")
    for rtt in RTTS:
        for name in DRAFTERS:
            row = compare(traces, costs, rtt, name)
            rows.append(row)
            print(
                f"{row['rtt_ms']:6} {name:8} {row['oracle_k']:6} {row['oracle_tps']:9.2f} "
                f"{row['ours_tps']:7.2f} {row['loss']:7.1%}",
                flush=True,
            )
    if args.json is not None:
        medians = {n: round(sorted(t)[len(t) // 2] * 1e3, 2) for n, t in costs.passes.items()}
        draft_ms = round(sorted(costs.draft)[len(costs.draft) // 2] * 1e3, 2)
        found = {"settings": settings, "pass_ms": medians, "draft_ms": draft_ms, "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
