"""How often a draft is accepted, on prompts that it never saw.

    python scripts/eval_draft.py --json alpha.json

The target answers the prompts of ``scripts/draft/heldout.jsonl`` by plain decoding at each
temperature; then target and draft are run once over prompt and answer, and acceptance is computed
from their two distributions, not sampled:

- rejection: 1 - TV(p, q) at every position;
- coupled: Σ_j 1 / Σ_i max(p_i/p_j, q_i/q_j) at every position, exact as well;
- greedy: agreement of the two arg max on the target's own greedy text.

By output position and by the target's entropy (temperature 1) these are plain means. By draft
position, rounds of ``--window`` drafts are followed along the answer, with the chance of
acceptance given the token that was put out. Intervals are 95 %, by bootstrap over prompts. The
n-gram drafter (prompt lookup, suffixes up to three ids) is measured on the same answers: its
proposal x is accepted with chance p(x), under either rule; where it proposes nothing, nothing is
judged.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.inference.catalog import DEFAULT_DRAFT, DEFAULT_TARGET, resolve
from node.inference.loading import load_model as load_for_node
from node.inference.model import Span
from scripts.draft import alpha
from scripts.draft.llama import Weights, forward, rotary_table
from scripts.draft.samples import Job, Sampler
from scripts.draft.target import Target

HELDOUT = Path(__file__).parent / "draft" / "heldout.jsonl"
POSITIONS = (0, 8, 32, 64, 128, 256)
ENTROPIES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, np.inf)
LENGTH, LONGEST_ANSWER = 512, 256


@dataclass
class Answer:
    """What is known of one answer: arrays over its n output positions.

    ``alpha`` and ``given`` map a rule to (n,) acceptance, overall and given the token put out;
    ``ngram`` is NaN where the n-gram drafter proposed nothing.
    """

    prompt: int
    kind: str
    tokens: list[int]
    entropy: np.ndarray
    alpha: dict[str, np.ndarray]
    given: dict[str, np.ndarray]
    ngram: np.ndarray


@dataclass(frozen=True)
class Model:
    """Weights, embedding, head and the ids of the head's rows."""

    weights: Weights
    embedding: torch.Tensor
    head: torch.Tensor
    ids: np.ndarray | None

    def logits(self, tokens: list[int], first: int) -> torch.Tensor:
        """(len(tokens) - first, head) float64: for each token from ``first`` on, what came
        before it."""
        x = F.embedding(torch.tensor([tokens[:-1]]), self.embedding)
        tables = rotary_table(self.weights.shape, len(tokens), x.device)
        with torch.no_grad():
            hidden = forward(self.weights, x, *tables)[0, first - 1 :]
            return F.linear(hidden, self.head).double()


def load_model(folder: Path, draft_vocab: Path | None, dtype: torch.dtype) -> Model:
    """A Llama from a folder, with its reduced head where it has one."""
    target = Target.load(folder, dtype=dtype)
    ids = None if draft_vocab is None else np.load(draft_vocab, allow_pickle=False)
    head = target.tensors.get("lm_head.weight", target.embedding)
    if ids is not None:
        head = head[torch.from_numpy(ids.astype(np.int64))]
    return Model(target.weights, target.embedding, head, ids)


def target_answers(
    target: Model, chat: Target, prompts: list[dict[str, str]], options: argparse.Namespace
) -> dict[str, list[list[int]]]:
    """By temperature, the ids of the target's own answer to each prompt.

    Read from ``--answers`` if that file is there and was made for the same prompts, else sampled
    and written there.
    """
    made_for = {
        "target": str(options.target),
        "dtype": options.dtype,
        "seed": options.seed,
        "answer": options.answer,
        "prompts": [p["prompt"] for p in prompts],
        "temperatures": options.temperatures,
    }
    if options.answers and options.answers.exists():
        stored = json.loads(options.answers.read_text())
        if stored["made_for"] == made_for:
            return stored["tokens"]
        raise SystemExit(f"{options.answers} was made with other prompts or options; remove it")
    tokens: dict[str, list[list[int]]] = {}
    for temperature in options.temperatures:
        sampler = Sampler(
            target.weights,
            target.embedding,
            slots=min(64, len(prompts)),
            length=LENGTH,
            eos=chat.eos,
            rng=np.random.default_rng([options.seed, int(temperature * 1000)]),
            k=8,
        )
        jobs = (
            Job(chat.chat(p["prompt"]), temperature, options.answer, tag=i)
            for i, p in enumerate(prompts)
        )
        samples = sorted(sampler.run(jobs), key=lambda s: s.job.tag)
        tokens[f"{temperature:g}"] = [s.tokens[len(s.job.prompt) :].tolist() for s in samples]
    if options.answers:
        options.answers.write_text(json.dumps({"made_for": made_for, "tokens": tokens}) + "\n")
    return tokens


def judge(
    target: Model, draft: Model, prompt: list[int], tokens: list[int], temperature: float
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Entropy, acceptance by rule, acceptance given the token, and the n-gram drafter's."""
    whole, first = prompt + tokens, len(prompt)
    wanted, drafted = target.logits(whole, first), draft.logits(whole, first)
    log_p = wanted.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1).numpy()
    guesses = [alpha.lookup(whole[: first + i]) for i in range(len(tokens))]
    ids = np.arange(wanted.shape[1]) if draft.ids is None else draft.ids.astype(np.int64)
    if temperature == 0:
        best = ids[drafted.argmax(-1).numpy()]
        agree = (wanted.argmax(-1).numpy() == best).astype(float)
        # Follows the text that was put out, so a near-tie that fell otherwise counts as a miss.
        given = (best == np.array(tokens)).astype(float)
        ngram = np.array(
            [np.nan if g is None else float(g == t) for g, t in zip(guesses, tokens, strict=True)]
        )
        return entropy, {"greedy": agree}, {"greedy": given}, ngram
    whole_p = (wanted / temperature).softmax(-1).numpy()
    # Ids that the draft cannot propose only count by their mass, under either rule: they are taken
    # together in one last column, where q is 0.
    inside = whole_p[:, ids]
    p = np.concatenate([inside, np.maximum(1.0 - inside.sum(1, keepdims=True), 0.0)], axis=1)
    q = np.pad((drafted / temperature).softmax(-1).numpy(), ((0, 0), (0, 1)))
    joint = np.stack([alpha.coupled_joint(a, b) for a, b in zip(p, q, strict=True)])
    column = np.full(whole_p.shape[1], len(ids))
    column[ids] = np.arange(len(ids))
    row, out = np.arange(len(tokens)), column[np.array(tokens)]
    mass = np.maximum(p[row, out], 1e-300)
    rules = {"rejection": alpha.rejection(p, q), "coupled": joint.sum(-1)}
    given = {
        "rejection": np.minimum(1.0, q[row, out] / mass),
        "coupled": np.minimum(1.0, joint[row, out] / mass),
    }
    ngram = np.array([np.nan if g is None else whole_p[i, g] for i, g in enumerate(guesses)])
    return entropy, rules, given, ngram


def table(
    answers: list[Answer], rule: str, window: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Rates of one temperature and rule: overall, by kind, position, entropy, draft position."""

    def rate(pick: Any) -> dict[str, float]:
        chosen = [a.alpha[rule][pick(a)] for a in answers]
        return asdict(
            alpha.clustered(
                np.array([c.sum() for c in chosen]), np.array([len(c) for c in chosen]), rng
            )
        )

    rows: dict[str, Any] = {"alpha": rate(lambda a: slice(None)), "position": {}, "entropy": {}}
    for low, high in itertools.pairwise(POSITIONS):
        rows["position"][f"{low}-{high - 1}"] = rate(lambda a, lo=low, hi=high: slice(lo, hi))
    for low, high in itertools.pairwise(ENTROPIES):
        rows["entropy"][f"{low:g}-{high:g}"] = rate(
            lambda a, lo=low, hi=high: (a.entropy >= lo) & (a.entropy < hi)
        )
    rows["kind"] = {
        kind: rate(lambda a, k=kind: slice(None) if a.kind == k else slice(0, 0))
        for kind in sorted({a.kind for a in answers})
    }
    rounds = [alpha.by_draft_position(a.given[rule], window) for a in answers]
    judged, accepted = np.array([r[0] for r in rounds]), np.array([r[1] for r in rounds])
    rows["draft_position"] = {
        str(k + 1): asdict(alpha.clustered(accepted[:, k], judged[:, k], rng))
        for k in range(window)
    }
    rows["tokens_per_round"] = alpha.tokens_per_round(judged.sum(0), accepted.sum(0))
    return rows


def ngram_rows(answers: list[Answer], rng: np.random.Generator) -> dict[str, Any]:
    """The n-gram drafter: acceptance of its proposals, and tokens it gets right per position."""
    hits = np.array([np.nansum(a.ngram) for a in answers])
    proposed = np.array([np.sum(~np.isnan(a.ngram)) for a in answers])
    positions = np.array([len(a.ngram) for a in answers])
    return {
        "alpha": asdict(alpha.clustered(hits, proposed, rng)),
        "right_per_position": asdict(alpha.clustered(hits, positions, rng)),
        "proposes": float(proposed.sum() / positions.sum()),
    }


def forward_times(target: Path, draft: Path, runs: int = 21) -> dict[str, dict[str, float]]:
    """Median milliseconds of the node's own forward pass for one token after 128, by dtype.

    Target and draft take turns, so that what else the machine does falls on both.
    """
    out: dict[str, dict[str, float]] = {}
    for dtype in ("bfloat16", "float32"):
        models = {"target": load_for_node(target, dtype), "draft": load_for_node(draft, dtype)}
        caches = {name: model.new_cache() for name, model in models.items()}
        times: dict[str, list[float]] = {name: [] for name in models}
        for name, model in models.items():
            model.forward([Span(caches[name], list(range(100, 228)))])
        for _ in range(runs):
            for name, model in models.items():
                begin = time.perf_counter()
                model.forward([Span(caches[name], [100])])
                times[name].append(time.perf_counter() - begin)
                caches[name].truncate(128)
        out[dtype] = {name: float(np.median(t) * 1e3) for name, t in times.items()}
        out[dtype]["ratio"] = out[dtype]["target"] / out[dtype]["draft"]
    return out


def show(report: dict[str, Any]) -> None:
    """Print the report as Markdown tables."""

    def cell(rate: dict[str, float]) -> str:
        return f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}] ({rate['positions']})"

    print("| T | rule | α [95 %] (positions) | tokens per round |\n|---|---|---|---|")
    for row in report["rates"]:
        line = f"| {row['temperature']:g} | {row['rule']} | {cell(row['alpha'])}"
        print(f"{line} | {row['tokens_per_round']:.2f} |")
    for row in report["ngram"]:
        line = f"| {row['temperature']:g} | n-gram, where it proposes ({row['proposes']:.0%})"
        print(f"{line} | {cell(row['alpha'])} | |")
    for part in ("kind", "position", "draft_position", "entropy"):
        keys = list(report["rates"][0][part])
        print(f"\n| {part.replace('_', ' ')} | " + " | ".join(keys) + " |")
        print("|---" * (len(keys) + 1) + "|")
        for row in report["rates"]:
            cells = (
                f"{row[part][k]['value']:.3f}" if row[part][k]["positions"] else "–" for k in keys
            )
            print(f"| T={row['temperature']:g} {row['rule']} | " + " | ".join(cells) + " |")
    print()
    for dtype, times in report["milliseconds"].items():
        print(
            f"one token, {dtype}: target {times['target']:.1f} ms, draft {times['draft']:.1f} ms, "
            f"1/{times['ratio']:.1f}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--draft", default=DEFAULT_DRAFT)
    parser.add_argument("--prompts", type=Path, default=HELDOUT, help="JSON lines: kind, prompt")
    parser.add_argument("--limit", type=int, help="only so many prompts, spread over the file")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--answer", type=int, default=LONGEST_ANSWER, help="longest answer")
    parser.add_argument("--window", type=int, default=4)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--answers", type=Path, help="keep the target's answers there for reuse")
    parser.add_argument("--json", type=Path, help="write everything there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    source, drafted = resolve(options.target), resolve(options.draft)
    chat = Target.load(source.path, dtype=dtype)
    target = load_model(source.path, None, dtype)
    draft = load_model(drafted.path, drafted.draft_vocab, dtype)
    prompts = [json.loads(line) for line in options.prompts.read_text().splitlines()]
    if options.limit:
        prompts = [prompts[i] for i in np.linspace(0, len(prompts) - 1, options.limit).astype(int)]
    report: dict[str, Any] = {
        "target": options.target,
        "draft": options.draft,
        "draft_revision": drafted.revision,
        "dtype": options.dtype,
        "prompts": len(prompts),
        "window": options.window,
        "seed": options.seed,
        "rates": [],
        "ngram": [],
        "milliseconds": forward_times(source.path, drafted.path),
    }
    texts = target_answers(target, chat, prompts, options)
    for temperature in options.temperatures:
        rng = np.random.default_rng([options.seed, int(temperature * 1000), 1])
        answers = []
        for i, tokens in enumerate(texts[f"{temperature:g}"]):
            ids = chat.chat(prompts[i]["prompt"])
            judged = judge(target, draft, ids, tokens, temperature)
            answers.append(Answer(i, prompts[i]["kind"], tokens, *judged))
        for rule in answers[0].alpha:
            row = table(answers, rule, options.window, rng)
            report["rates"].append({"temperature": temperature, "rule": rule, **row})
        report["ngram"].append({"temperature": temperature, **ngram_rows(answers, rng)})
        print(f"T = {temperature:g} done", file=sys.stderr, flush=True)
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
