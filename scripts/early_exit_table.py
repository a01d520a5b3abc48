"""How often the target's own first layers, under its own head, guess what the target says.

    python scripts/early_exit_table.py

Greedy answers to held-out prompts; every exit is asked for each position after the true text. The
last column is the most that speculation with that exit could gain if a pass over several rows cost
no more than over one: the best over windows K of (1 − α^(K+1)) / (1 − α) / (1 + K · cost), the cost
of a draft being its share of the target's layers and its head. Below 1 it cannot pay.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from node.inference import catalog
from node.inference.architecture import ModelError
from node.inference.early_exit import early_exit
from node.inference.llama import LlamaModel
from node.inference.loading import load_model
from node.inference.model import Span
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.stops import StopRules
from node.inference.tokens import Tokenizer
from scripts.bench.prompts import CLASSES, prompts

EXITS: Final = (5, 10, 15, 20, 25, 28)


def cost(model: LlamaModel, layers: int) -> float:
    """Weights read for a draft, as a share of those read for a token of the target."""
    a = model.arch
    layer = a.hidden_size * (2 * (a.heads + a.kv_heads) * a.head_dim + 3 * a.intermediate_size)
    head = a.vocab_size * a.hidden_size
    return (layers * layer + head) / (a.layers * layer + head)


def best_gain(alpha: float, share: float) -> float:
    """Largest over windows of 1 to 16."""
    alpha = min(alpha, 1 - 1e-9)
    return max((1 - alpha ** (k + 1)) / (1 - alpha) / (1 + k * share) for k in range(1, 17))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default=catalog.DEFAULT_TARGET)
    parser.add_argument("--prompts", type=int, default=2, help="a class; default %(default)s")
    parser.add_argument("--tokens", type=int, default=48, help="an output; default %(default)s")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    folder = catalog.resolve(args.target).path
    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    if not isinstance(model, LlamaModel):
        raise ModelError(f"{args.target} runs through transformers; it cannot exit early")
    exits = [n for n in EXITS if n < model.arch.layers]
    right = dict.fromkeys(exits, 0)
    positions = 0
    params, stops = SamplingParams.from_floats("greedy"), StopRules(args.tokens, model.eos_ids)
    for kind in CLASSES[:4]:
        for prompt in prompts(kind, args.prompts):
            ids = tokenizer.chat([{"role": "user", "content": prompt.text}])
            text = decode_plain(model, ids, params, stops, margins=False).tokens
            positions += len(text)
            for layers in exits:
                short = early_exit(model, layers)
                span = Span(short.new_cache(), [*ids, *text[:-1]], len(text))
                guesses = short.forward([span])[0].logits.argmax(1).tolist()
                right[layers] += sum(g == t for g, t in zip(guesses, text, strict=True))
    print(f"{positions} positions\n{'layers':>6} {'α':>6} {'cost':>6} {'most gain':>10}")
    for layers in exits:
        alpha, share = right[layers] / positions, cost(model, layers)
        print(f"{layers:6} {alpha:6.3f} {share:6.2f} {best_gain(alpha, share):9.2f}x")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
