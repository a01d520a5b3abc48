"""The distilling run: passes over the shards, the learning rate, checkpoints and the curve."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from node.inference.shipped_draft import HEAD_MAP
from scripts.draft.distil import (
    Draft,
    batches,
    choose_head_ids,
    initial_layers,
    losses,
    optimisers,
)
from scripts.draft.lens import head_map
from scripts.draft.llama import Shape, Weights, rotary_table
from scripts.draft.shards import Sequence, read_shard, shard_paths
from scripts.draft.target import Target

RESUME_FILE, RESULT_FILE, CURVE_FILE = "stable.pt", "draft.pt", "curve.json"


@dataclass(frozen=True)
class Recipe:
    """What distilling depends on, apart from data and time.

    Attributes:
        take: the target's layers that the draft's layers start from.
        head: ids in the reduced head.
        lens: positions on which the head map is fitted at the start.
        lr: peak learning rate, in AdamW's scale.
        tokens: tokens per batch, padding included.
        kl_labels: positions seen before the weight of KL falls from 1 to ``kl_later``.
        decay: last share of the time, in which the learning rate falls to zero.
    """

    take: tuple[int, ...] = (0, 1)
    head: int = 12_288
    lens: int = 24_000
    lr: float = 5e-3
    tokens: int = 4096
    warmup: int = 10
    kl_labels: int = 1_500_000
    kl_later: float = 0.3
    decay: float = 0.35
    seed: int = 0


def load_corpus(folder: Path) -> list[Sequence]:
    """All sequences of a folder of shards."""
    return [sequence for path in shard_paths(folder) for sequence in read_shard(path)]


@torch.no_grad()
def measure(draft: Draft, heldout: list[Sequence], device: str) -> dict[str, float]:
    """A quick look on held-out answers: agreement on greedy text, overlap at temperature 1.

    The overlap is taken over the kept ids and a bucket for the rest, so it is a slight
    over-estimate; ``eval_draft.py`` measures over the whole vocabulary.
    """
    cos, sin = rotary_table(draft.shape, 1024, draft.embedding.device)
    rates = {}
    for name, temperature in (("greedy", 0.0), ("overlap", 1.0)):
        rows = [s for s in heldout if s.temperature == temperature]
        hit, seen = 0.0, 0
        for batch in batches(
            rows,
            draft.head_index,
            tokens_per_batch=4096,
            rng=np.random.default_rng(0),
            device=device,
        ):
            logits = draft.logits(batch, cos, sin)
            if temperature == 0:
                ids = torch.from_numpy(draft.head_ids.astype(np.int64)).to(device)
                hit += float((ids[logits.argmax(1)] == batch.truth).sum())
            else:
                hit += float((1 - losses(logits, batch.ids, batch.p)[1]).sum())
            seen += len(batch.truth)
        rates[name] = hit / max(seen, 1)
    return rates


def _save(path: Path, state: dict[str, object]) -> None:
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def distil(
    work: Path,
    target: Target,
    recipe: Recipe,
    *,
    hours: float,
    device: str,
    resume: bool,
    every: int = 50_000,
) -> None:
    """Train until the time is up; writes ``stable.pt``, ``draft.pt`` and ``curve.json``.

    ``stable.pt`` is the state before the learning rate falls, and what ``resume`` goes on from;
    ``draft.pt`` holds the newest weights. Each pass reads the shards anew, so that a run uses what
    is sampled beside it. Both are written, and the curve gets a point, after ``every`` positions.
    """
    torch.manual_seed(recipe.seed)
    corpus, heldout = load_corpus(work / "samples"), load_corpus(work / "heldout")
    state = None
    if resume and (work / RESUME_FILE).exists():
        state = torch.load(work / RESUME_FILE, map_location=device, weights_only=False)
    config = dict(target.config, num_hidden_layers=len(recipe.take))
    # The head's rows are the target's and frozen, so more data may choose them better at a resume.
    head_ids = choose_head_ids(
        corpus, target.embedding.shape[0], recipe.head, always=list(range(17))
    )
    if state is None:
        tensors = initial_layers(config, target.tensors, list(recipe.take))
        tensors[HEAD_MAP] = head_map(
            Weights(tensors, Shape.of(config)),
            target.weights,
            target.embedding,
            corpus,
            positions=recipe.lens,
            seed=recipe.seed,
        )
        curve: list[dict[str, float]] = []
        seen, step, passes = 0, 0, 0
    else:
        tensors, curve = state["tensors"], state["curve"]
        seen, step, passes = state["seen"], state["step"], state["passes"]
    draft = Draft(config, tensors, target.embedding, head_ids)
    steppers = optimisers(draft, recipe.lr)
    if state is not None:
        for stepper, saved in zip(steppers, state["optimisers"], strict=True):
            stepper.load_state_dict(saved)
    cos, sin = rotary_table(draft.shape, 1024, draft.embedding.device)
    start, looked = time.monotonic(), seen
    first_step, running = step, {"kl": 0.0, "tv": 0.0, "n": 0.0}

    def keep(file: str) -> None:
        _save(
            work / file,
            {
                "config": config,
                "head_ids": head_ids,
                "tensors": {k: v.detach() for k, v in draft.tensors.items()},
                "optimisers": [s.state_dict() for s in steppers],
                "seen": seen,
                "step": step,
                "passes": passes,
                "curve": curve,
                "recipe": vars(recipe),
            },
        )
        (work / CURVE_FILE).write_text(json.dumps(curve, indent=1) + "\n")

    while True:
        corpus = load_corpus(work / "samples")
        labels = int(sum(s.labelled.sum() for s in corpus))
        for batch in batches(
            corpus,
            draft.head_index,
            tokens_per_batch=recipe.tokens,
            rng=np.random.default_rng([recipe.seed, passes]),
            device=device,
        ):
            part = (time.monotonic() - start) / (hours * 3600)
            falling = min(1.0, max(0.0, (1.0 - part) / recipe.decay))
            rate = recipe.lr * min(1.0, (step - first_step + 1) / recipe.warmup) * falling
            kl, tv = losses(draft.logits(batch, cos, sin), batch.ids, batch.p)
            weight = 1.0 if seen < recipe.kl_labels else recipe.kl_later
            loss = weight * kl.mean() + tv.mean()
            for stepper in steppers:
                stepper.zero_grad(set_to_none=True)
            loss.backward()
            for stepper in steppers:
                for group in stepper.param_groups:
                    group["lr"] = rate
                stepper.step()
            seen, step = seen + len(kl), step + 1
            for key, value in (("kl", kl), ("tv", tv)):
                running[key] += float(value.detach().sum())
            running["n"] += len(kl)
            now = time.monotonic()
            if part >= 1.0 or seen - looked >= every:
                looked = seen
                spent = (now - start) / 60
                point = {"labels": seen, "corpus": labels, "minutes": spent, "rate": rate}
                point |= {k: running[k] / running["n"] for k in ("kl", "tv")}
                point |= measure(draft, heldout, device)
                curve.append(point)
                running = dict.fromkeys(running, 0.0)
                print(
                    f"step {step}: {seen / 1e6:.2f} M positions (of {labels / 1e6:.2f} M), "
                    f"KL {point['kl']:.3f}, TV {point['tv']:.3f}, held-out greedy "
                    f"{point['greedy']:.3f}, overlap {point['overlap']:.3f}, "
                    f"{max(0.0, hours * 60 - spent):.0f} min left",
                    flush=True,
                )
                keep(RESULT_FILE)
                if falling == 1.0:
                    keep(RESUME_FILE)
            if part >= 1.0:
                return
        passes += 1
