"""What relaxed acceptance buys, and what it costs the text.

    python scripts/relaxed_table.py --json relaxed.json --resume relaxed.jsonl

The default pair, windows of four drafts, greedy and coupled at T = 0.7, τ = 0, 0.1, 0.2 and 0.3 in
units of (perturbed) scaled logits. A position is key, and so strict, where the target's surprisal
of the draft exceeds 3 nats, the draft's own 4, or fewer than half of the draft's eight best are
among the target's. Per τ: accepted drafts a round, tokens a second (CPU time), share of tokens that
are not what the target would have said after the same text, and the target's perplexity of the
output (temperature 1, each token after the true text before it).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from node.inference import catalog
from node.inference.generate import generate
from node.inference.loading import load_model
from node.inference.model import LanguageModel, Span
from node.inference.model_drafter import ModelDrafter
from node.inference.params import KEY_THRESHOLDS, Q24, SamplingParams
from node.inference.sampling import logprobs
from node.inference.stops import StopRules
from node.inference.tokens import Tokenizer
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from scripts.bench.pairs import Rows
from scripts.bench.prompts import CLASSES, prompts
from settlement.records import Q16, Mode

TAUS: Final = (0.0, 0.1, 0.2, 0.3)
TEMPERATURES: Final = (0.0, 0.7)
WINDOW: Final = 4


def params_of(tau: float, temperature: float) -> SamplingParams:
    return SamplingParams(
        Mode.COUPLED if temperature else Mode.GREEDY,
        round(temperature * Q16),
        relax_tau=round(tau * Q24),
        **(KEY_THRESHOLDS if tau else {}),
    )


def surprisal(model: LanguageModel, prompt: Sequence[int], output: Sequence[int]) -> float:
    """Nats of a whole output."""
    text = [*prompt, *output]
    rows = model.forward([Span(model.new_cache(), text[:-1], len(output))])[0]
    return -sum(p.logprob for p in logprobs(rows.logits, output))


def run(
    verifier: Verifier,
    drafter: ModelDrafter,
    prompt: Sequence[int],
    tau: float,
    temperature: float,
    tokens: int,
    number: int,
) -> dict[str, Any]:
    params = params_of(tau, temperature)
    start = time.process_time()
    made = generate(
        verifier,
        drafter,
        prompt,
        params,
        StopRules(tokens, verifier.model.eos_ids),
        FixedWindow(WINDOW),
        seed=number.to_bytes(32, "big"),
        salt=time.monotonic_ns().to_bytes(8, "big"),
    )
    seconds = time.process_time() - start
    outcomes = [o for _, r in made.rounds for o in r.decision.outcomes]
    changed = sum(o.accepted and o.score_draft < o.score_top for o in outcomes) if tau else 0
    return {
        "tokens": len(made.tokens),
        "rounds": len(made.rounds),
        "accepted": made.accepted,
        "changed": changed,
        "seconds": round(seconds, 3),
        "nats": round(surprisal(verifier.model, prompt, made.tokens), 3),
    }


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for temperature in TEMPERATURES:
        for tau in TAUS:
            found = [r for r in rows if (r["temperature"], r["tau"]) == (temperature, tau)]
            if not found:
                continue
            total = {
                name: sum(r[name] for r in found)
                for name in ("tokens", "rounds", "accepted", "changed", "seconds", "nats")
            }
            out.append(
                {
                    "temperature": temperature,
                    "tau": tau,
                    "accepted_length": round(total["accepted"] / total["rounds"], 3),
                    "tokens_per_s": round(total["tokens"] / total["seconds"], 2),
                    "changed_share": round(total["changed"] / total["tokens"], 4),
                    "perplexity": round(math.exp(total["nats"] / total["tokens"]), 3),
                    "tokens": total["tokens"],
                }
            )
    return out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default=catalog.DEFAULT_TARGET)
    parser.add_argument("--draft", default=catalog.DEFAULT_DRAFT)
    parser.add_argument("--prompts", type=int, default=2, help="a class; default %(default)s")
    parser.add_argument("--tokens", type=int, default=64, help="an output; default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table here")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep rows here; go on from it")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    draft_folder = catalog.resolve(args.draft).path
    settings = {"target": args.target, "draft": draft_folder.name, "tokens": args.tokens}
    names = ("kind", "number", "temperature", "tau")
    rows = Rows(args.resume, settings, lambda r: tuple(r[name] for name in names))
    folder = catalog.resolve(args.target).path
    tokenizer, target = Tokenizer.load(folder), load_model(folder)
    verifier = Verifier(target, tokenizer, max_tokens=4096)
    drafter = ModelDrafter(load_model(draft_folder), target.vocab_size)
    for kind in CLASSES[:4]:
        for prompt in prompts(kind, args.prompts):
            ids = tokenizer.chat([{"role": "user", "content": prompt.text}])
            for temperature in TEMPERATURES:
                for tau in TAUS:
                    case = (kind, prompt.number, temperature, tau)
                    row: dict[str, Any] = dict(zip(names, case, strict=True))
                    if not rows.has(row):
                        made = run(
                            verifier, drafter, ids, tau, temperature, args.tokens, prompt.number
                        )
                        rows.add(row | made)
            print(f"{kind} {prompt.number}", file=sys.stderr, flush=True)
    table = summary(rows.rows)
    print(f"{'T':>4} {'tau':>4} {'accepted':>9} {'tokens/s':>9} {'changed':>8} {'perplexity':>11}")
    for row in table:
        print(
            f"{row['temperature']:4} {row['tau']:4} {row['accepted_length']:9.2f} "
            f"{row['tokens_per_s']:9.2f} {row['changed_share']:8.1%} {row['perplexity']:11.2f}"
        )
    if args.json is not None:
        args.json.write_text(json.dumps({"settings": settings, "rows": table}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
