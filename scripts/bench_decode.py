"""Tokens a second: ours with each drafter, and what people use today on the same weights.

    python scripts/bench_decode.py --quick --json bench.json
    python scripts/bench_decode.py --resume bench.jsonl --json bench.json

Every prompt is answered by every engine in turn, in another order each time, so that what else the
machine does meets all alike; ratios are taken prompt by prompt. An output has a fixed number of
tokens and no stop id ends it. Temperatures 0 (where all engines must say the same text, up to
near-ties) and 0.7. Intervals are 95 %, by bootstrap over prompts. The clock is the process's CPU
time by default: one thread does all the work, so on an idle core it is wall time, and on a busy one
it does not count the time others had.

Drafters: `model` the shipped draft, in transformers as the assistant with −∞ outside its ids;
`mixed` the same model with prompt lookup where that does as well, as a node drafts; `ngram` prompt
lookup alone; `exit-N` the target's first N layers; `own-lookup` no drafter: the verifier's own
guesses, run in the rows of rounds without drafts. Ratios:
  vs_assisted       ours mixed, against transformers with the same model as its assistant
  vs_assisted_model the same with the model alone on our side too
  vs_prompt_lookup  ours with n-gram, against transformers' prompt lookup
  vs_plain_min      lowest lower bound, over prompt classes and drafters, against our plain
  vs_plain_min_mixed  the same of mixed alone
  vs_generate       ours mixed, against transformers' plain generate
  own_lookup        the verifier's own lookups, without a drafter, against our plain
  copy_ngram        ours with n-gram against our plain, where the prompt is copied
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from node.inference import catalog
from node.inference.tokens import Tokenizer
from scripts.bench.engines import Ours, OwnLookup, Peer, engines
from scripts.bench.pairs import Ratio, Rows, geometric_mean, ratio
from scripts.bench.prompts import CLASSES, Prompt, prompts

TEMPERATURES: Final = (0.0, 0.7)
PLAIN: Final = ("verdraft", "none")
MODEL: Final = ("verdraft", "model")
MIXED: Final = ("verdraft", "mixed")
NGRAM: Final = ("verdraft", "ngram")
OWN_LOOKUP: Final = ("verdraft", "own-lookup")
GENERATE: Final = ("transformers", "none")
ASSISTED: Final = ("transformers", "assistant")
LOOKUP: Final = ("transformers", "prompt-lookup")
Key = tuple[str, str]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["engine"], row["drafter"], row["temperature"], row["prompt_class"], row["prompt"]


class Table:
    """The rows by engine, and ratios between engines over the prompts that both have answered."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._speed = {key(row): row["tokens_per_s"] for row in rows}
        self.engines = list(dict.fromkeys((row["engine"], row["drafter"]) for row in rows))
        self._prompts = sorted({(r["temperature"], r["prompt_class"], r["prompt"]) for r in rows})

    def speeds(self, engine: Key, temperature: float | None, kind: str | None) -> list[float]:
        return [self._speed[engine + p] for p in self._over([engine], temperature, kind)]

    def against(
        self, ours: Key, other: Key, temperature: float | None = None, kind: str | None = None
    ) -> Ratio:
        both = self._over([ours, other], temperature, kind)
        return ratio([self._speed[ours + p] / self._speed[other + p] for p in both])

    def _over(
        self, engines: Sequence[Key], temperature: float | None, kind: str | None
    ) -> list[tuple[float, str, int]]:
        return [
            p
            for p in self._prompts
            if temperature in (None, p[0])
            and kind in (None, p[1])
            and all(engine + p in self._speed for engine in engines)
        ]


def ratios(table: Table) -> dict[str, Any]:
    """The figures that the module's text names, over all and by temperature."""
    named: dict[str, Callable[[float | None], Ratio]] = {
        "vs_assisted": lambda t: table.against(MIXED, ASSISTED, t),
        "vs_assisted_model": lambda t: table.against(MODEL, ASSISTED, t),
        "vs_prompt_lookup": lambda t: table.against(NGRAM, LOOKUP, t),
        "vs_generate": lambda t: table.against(MIXED, GENERATE, t),
        "copy_ngram": lambda t: table.against(NGRAM, PLAIN, t, "copy"),
        "own_lookup": lambda t: table.against(OWN_LOOKUP, PLAIN, t),
    }
    out: dict[str, Any] = {}
    for name, of in named.items():
        found = {"all" if t is None else str(t): of(t) for t in (None, *TEMPERATURES)}
        out[name] = {where: r.as_json() for where, r in found.items() if r.pairs}
    against = {
        f"{engine[1]}/{kind}": table.against(engine, PLAIN, None, kind)
        for engine in (MODEL, MIXED, NGRAM, OWN_LOOKUP)
        for kind in CLASSES
    }
    out["vs_plain"] = {where: r.as_json() for where, r in against.items() if r.pairs}
    lows = {where: r["low"] for where, r in out["vs_plain"].items()}
    out["vs_plain_min"] = min(lows.values(), default=None)
    mixed = [low for where, low in lows.items() if where.startswith(f"{MIXED[1]}/")]
    out["vs_plain_min_mixed"] = min(mixed, default=None)
    return out


def summary(table: Table) -> list[dict[str, Any]]:
    """One row per engine, temperature and class: geometric mean of tokens a second, interval."""
    out = []
    for engine in table.engines:
        for temperature in TEMPERATURES:
            for kind in CLASSES:
                speeds = table.speeds(engine, temperature, kind)
                if speeds:
                    found = ratio(speeds)
                    out.append(
                        {
                            "engine": engine[0],
                            "drafter": engine[1],
                            "temperature": temperature,
                            "prompt_class": kind,
                            "tokens_per_s": round(found.mean, 3),
                            "low": round(found.low, 3),
                            "high": round(found.high, 3),
                            "prompts": found.pairs,
                        }
                    )
    return out


def show(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{'tokens/s':28}" + "".join(f"{kind:>10}" for kind in CLASSES) + f"{'all':>10}")
    for temperature in TEMPERATURES:
        for engine in table.engines:
            cells = [geometric_mean(table.speeds(engine, temperature, kind)) for kind in CLASSES]
            whole = geometric_mean(table.speeds(engine, temperature, None))
            name = f"T={temperature:g} {engine[0]} {engine[1]}"
            print(f"{name:28}" + "".join(f"{cell:10.2f}" for cell in [*cells, whole]))
    found = ratios(table)
    for name in (name for name in found if not name.startswith("vs_plain")):
        for where, r in found[name].items():
            r = Ratio(**r)
            print(f"{name:18} {'T=' + where if where != 'all' else where:8} {r}")
    for name, r in found["vs_plain"].items():
        print(f"vs plain {name:18} {Ratio(**r)}")
    print(f"lowest bound: {found['vs_plain_min']}, of mixed alone {found['vs_plain_min_mixed']}")
    same = [row["same_text"] for row in rows if row["temperature"] == 0 and "same_text" in row]
    print(f"T=0: {sum(same)} of {len(same)} texts equal to our plain text")


def device_name(device: str) -> str:
    """What the rows were measured on."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def measure(
    compared: Sequence[Ours | OwnLookup | Peer],
    todo: Sequence[tuple[Prompt, float]],
    tokenizer: Tokenizer,
    tokens: int,
    done: Rows,
) -> None:
    began = time.monotonic()
    plain_text: dict[Any, tuple[int, ...]] = {}
    for count, (prompt, temperature) in enumerate(todo):
        ids = tokenizer.chat([{"role": "user", "content": prompt.text}])
        order = list(compared)
        random.Random(count).shuffle(order)
        number = CLASSES.index(prompt.kind) * 100 + prompt.number
        fresh = []
        for engine in order:
            row: dict[str, Any] = {
                "engine": engine.name,
                "drafter": engine.drafter_name,
                "temperature": temperature,
                "prompt_class": prompt.kind,
                "prompt": prompt.number,
            }
            if done.has(row):
                continue
            made = engine.run(ids, temperature, tokens, number)
            if len(made.tokens) != tokens:
                raise SystemExit(f"{key(row)}: {len(made.tokens)} tokens, not {tokens}")
            row |= {
                "tokens_per_s": round(tokens / made.seconds, 4),
                "seconds": round(made.seconds, 4),
                **made.facts,
            }
            if (engine.name, engine.drafter_name) == PLAIN:
                plain_text[prompt, temperature] = made.tokens
            fresh.append((row, made.tokens))
        for row, text in fresh:
            want = plain_text.get((prompt, temperature))
            comparable = done.settings["dtype"] != "exact" or row["engine"] == PLAIN[0]
            if want is not None and temperature == 0 and comparable:
                row["same_text"] = text == want
            done.add(row)
        each = (time.monotonic() - began) / (count + 1)
        print(
            f"{count + 1}/{len(todo)} {prompt.kind} {prompt.number} T={temperature:g}, "
            f"{each:.0f} s each",
            file=sys.stderr,
            flush=True,
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2 prompts a class, 32 tokens")
    parser.add_argument("--prompts", type=int, help="a class; default 6, quick 2")
    parser.add_argument("--tokens", type=int, help="an output; default 64, quick 32")
    parser.add_argument("--target", default=catalog.DEFAULT_TARGET)
    parser.add_argument("--draft", default=catalog.DEFAULT_DRAFT)
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16", "exact"),
        help="exact: ours in integers, transformers in float32",
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda; cuda wants --clock wall")
    parser.add_argument("--exit", type=int, action="append", default=[], metavar="LAYERS")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and ratios here")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep rows here; go on from it")
    args = parser.parse_args(argv)
    if args.device != "cpu" and args.clock == "cpu":
        parser.error("--device cuda: the processor's time says nothing; give --clock wall")
    torch.set_num_threads(1)
    count = args.prompts or (2 if args.quick else 6)
    tokens = args.tokens or (32 if args.quick else 64)
    draft = catalog.resolve(args.draft)
    settings = {
        "target": args.target,
        "draft": args.draft,
        "draft_folder": draft.path.name,  # names the draft's version
        "dtype": args.dtype,
        "tokens": tokens,
        "clock": args.clock,
        "device": device_name(args.device),
    }
    rows = Rows(args.resume, settings, key)
    target = catalog.resolve(args.target).path
    tokenizer = Tokenizer.load(target)
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    compared = engines(target, draft.path, args.dtype, clock, device=args.device, exits=args.exit)
    warm = tokenizer.chat([{"role": "user", "content": "Good morning"}])
    for engine in compared:
        for temperature in TEMPERATURES:
            engine.run(warm, temperature, 12, 0)
    todo = [
        (prompt, temperature)
        for group in zip(*(prompts(kind, count) for kind in CLASSES), strict=True)
        for prompt in group
        for temperature in TEMPERATURES
    ]
    measure(compared, todo, tokenizer, tokens, rows)
    table = Table(rows.rows)
    show(table, rows.rows)
    if args.json is not None:
        found = {"settings": settings, "rows": summary(table), "ratios": ratios(table)}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
