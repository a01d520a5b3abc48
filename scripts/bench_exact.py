"""What the exact tier costs and loses, against transformers on the same weights, in one run.

    python scripts/bench_exact.py [--json FILE] [--clock cpu] [--text FILE]

Speed: medians over alternating turns, so that a busy machine is busy for all of them. `--clock cpu`
counts the thread's own processor time, which is what can be compared on a machine shared with other
work. Loss: perplexity and top-1 agreement over the given text, teacher-forced, of the exact tier
against transformers in float32 on the de-quantised checkpoint. By default the text is prose of the
Python documentation (a Debian package, fetched once as the draft's training does).

`exact` is what a node runs: with the native kernel, where there is a C compiler. `torch_alone` has
the same ratios without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from node.inference import catalog
from node.inference.exact.model import ExactModel, load_exact
from node.inference.exact.quantise import load_integers
from node.inference.loading import load_model
from node.inference.model import LanguageModel, Span
from node.inference.tokens import Tokenizer

WIDTHS = (1, 2, 4, 8, 16)
PROMPT = 128
PREFILL = 512
BLOCK = 512  # tokens of text that see each other in the loss
Clock = Callable[[], float]


@dataclass(frozen=True)
class Width:
    """Milliseconds of one pass of so many rows after 128 tokens: exact, without the kernel, our
    float32 engine."""

    rows: int
    exact_ms: float
    torch_ms: float
    float32_ms: float


class Peer:
    """transformers with a KV cache, one token at a time."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self.bytes = sum(p.numel() * p.element_size() for p in self.model.parameters())

    @torch.inference_mode()
    def start(self, ids: Sequence[int]) -> Any:
        return self.model(torch.tensor([list(ids)]), use_cache=True, logits_to_keep=1)

    @torch.inference_mode()
    def step(self, token: int, state: Any) -> Any:
        return self.model(
            torch.tensor([[token]]), past_key_values=state.past_key_values, use_cache=True
        )

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        return self.model(torch.tensor([list(ids)]), use_cache=False).logits[0].float()


def speeds(
    engines: dict[str, LanguageModel],
    peers: dict[str, Peer],
    ids: list[int],
    turns: int,
    clock: Clock,
) -> dict[str, Any]:
    """Medians in seconds: decode, prefill per engine, passes per width.

    Args:
        engines: "exact", "torch" (the same without the kernel) and "ours" (float32).
    """
    times: dict[tuple[str, str], list[float]] = {}

    def timed(engine: str, what: str, work: Callable[[], Any]) -> Any:
        started = clock()
        out = work()
        times.setdefault((engine, what), []).append(clock() - started)
        return out

    caches = {name: model.new_cache() for name, model in engines.items()}
    for name, model in engines.items():
        model.forward([Span(caches[name], ids[:PROMPT])])
    states = {name: peer.start(ids[:PROMPT]) for name, peer in peers.items()}
    for turn in range(turns):
        token = ids[PROMPT + turn]
        for name, peer in peers.items():
            states[name] = timed(
                name, "decode", lambda p=peer, n=name, t=token: p.step(t, states[n])
            )
        for name, model in engines.items():
            cache = caches[name]
            cache.truncate(PROMPT + turn)
            timed(name, "decode", lambda m=model, c=cache, t=token: m.forward([Span(c, [t])]))
    for turn in range(max(turns // 4, 3)):
        for name, model in engines.items():
            cache = caches[name]
            for rows in WIDTHS:
                cache.truncate(PROMPT)
                part = ids[PROMPT + turn : PROMPT + turn + rows]
                what = f"width {rows}"
                timed(name, what, lambda m=model, c=cache, p=part: m.forward([Span(c, p, len(p))]))
    for _ in range(3):
        for name, peer in peers.items():
            timed(name, "prefill", lambda p=peer: p.start(ids[:PREFILL]))
        for name, model in engines.items():
            timed(
                name,
                "prefill",
                lambda m=model: m.forward([Span(m.new_cache(), ids[:PREFILL])]),
            )
    middle = {key: statistics.median(values) for key, values in times.items()}

    def ratios(engine: str) -> dict[str, float]:
        against = {"float32": "float32", "bfloat16": "bfloat16", "our_float32": "ours"}
        found = {
            f"decode_vs_{name}": middle[other, "decode"] / middle[engine, "decode"]
            for name, other in against.items()
        }
        whole = middle["float32", "prefill"] / middle[engine, "prefill"]
        return {**found, "prefill_vs_float32": whole}

    return {
        **ratios("exact"),
        "torch_alone": ratios("torch"),
        "milliseconds": {
            f"{engine}, {what}": round(1e3 * seconds, 2)
            for (engine, what), seconds in sorted(middle.items())
            if not what.startswith("width")
        },
        "widths": [
            asdict(
                Width(
                    rows,
                    *(
                        round(1e3 * middle[engine, f"width {rows}"], 2)
                        for engine in ("exact", "torch", "ours")
                    ),
                )
            )
            for rows in WIDTHS
        ],
    }


def loss(exact: ExactModel, peer: Peer, ids: list[int]) -> dict[str, Any]:
    """Perplexities over the text in blocks, their ratio, and how often the best token agrees."""
    nats = {"exact": 0.0, "float32": 0.0}
    agree = positions = 0
    for at in range(0, len(ids) - 1, BLOCK):
        block = ids[at : at + BLOCK + 1]
        if len(block) < 2:
            break
        inputs, targets = block[:-1], torch.tensor(block[1:])[:, None]
        mine = exact.forward([Span(exact.new_cache(), inputs, len(inputs))])[0].logits
        theirs = peer.logits(inputs)
        for name, logits in (("exact", mine), ("float32", theirs)):
            nats[name] -= float(torch.log_softmax(logits.double(), 1).gather(1, targets).sum())
        agree += int((mine.argmax(1) == theirs.argmax(1)).sum())
        positions += len(inputs)
    perplexity = {name: float(torch.tensor(n / positions).exp()) for name, n in nats.items()}
    return {
        "text_tokens": positions,
        "perplexity": perplexity,
        "perplexity_ratio": perplexity["exact"] / perplexity["float32"],
        "top1_agreement": agree / positions,
    }


def documentation() -> str:
    """Prose of the Python documentation."""
    from scripts.draft.texts import prose, python_docs

    pages = python_docs(catalog.default_cache_dir() / "train")
    tutorial = [text for name, text in pages if "tutorial" in name or "howto" in name]
    return "\n\n".join(part for text in tutorial for part in prose(text))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=catalog.DEFAULT_TARGET)
    parser.add_argument("--tokens", type=int, default=4096, help="of text; default: %(default)s")
    parser.add_argument("--turns", type=int, default=24, help="default: %(default)s")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--text", type=Path, help="a file in place of the Python documentation")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    folder = catalog.resolve(options.model).path
    text = options.text.read_text(encoding="utf-8") if options.text else documentation()
    ids = Tokenizer.load(folder).encode(text)[: options.tokens + 1]
    if len(ids) < PREFILL:
        raise SystemExit(f"the text has {len(ids)} tokens; at least {PREFILL} are needed")
    exact = load_exact(folder)
    engines: dict[str, LanguageModel] = {
        "exact": exact,
        "torch": ExactModel(load_integers(folder)),
        "ours": load_model(folder, "float32", "cpu"),
    }
    peers = {n: Peer(folder, getattr(torch, n)) for n in ("float32", "bfloat16")}
    clock = time.thread_time if options.clock == "cpu" else time.perf_counter
    a = exact.arch
    elements = 2 * a.layers * a.kv_heads * a.head_dim * PREFILL
    found = {
        "model": options.model,
        "backend": exact.backend,
        "text": str(options.text or "Python documentation, tutorial and HOWTOs"),
        "clock": options.clock,
        "load": os.getloadavg()[0],
        "memory_vs_float32": (exact.weight_bytes + 2 * elements)
        / (peers["float32"].bytes + 4 * elements),
        **speeds(engines, peers, ids, options.turns, clock),
        **loss(exact, peers["float32"], ids),
    }
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
