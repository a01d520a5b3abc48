"""Distil a two-layer draft from the default target, from texts to a file that ships.

    python scripts/train_draft.py --hours 2            # sample, distil, export into --work
    python scripts/train_draft.py --stage sample --hours 1 --resume

Stages: ``sample`` (the target answers training prompts; its distribution is kept at every step),
``distil`` (the draft learns these distributions), ``export`` (layers in int8, and the curve).
Without ``--stage`` all three run, sampling and distilling each for half of ``--hours``. Everything
lies under ``--work``; ``--resume`` goes on from what is there. The seed fixes the prompts and their
order; how many fit into the hours depends on the machine. ``--device cuda`` changes nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.inference.catalog import DEFAULT_TARGET, default_cache_dir, resolve
from node.inference.shipped_draft import pack
from scripts.draft.prompts import Material, training_prompt
from scripts.draft.run import RESULT_FILE, Recipe, distil
from scripts.draft.samples import Job, Sample, Sampler
from scripts.draft.shards import shard_paths, write_shard
from scripts.draft.target import Target

# Longest sequence; prompts that leave under a third of it for the answer are passed over.
LENGTH, LONGEST_PROMPT, LONGEST_ANSWER = 400, 260, 256
TEMPERATURES, SHARES = (0.0, 0.7, 1.0), (0.4, 0.3, 0.3)
SHARD_LABELS = 20_000
HELDOUT = Path(__file__).parent / "draft" / "heldout.jsonl"


def jobs(target: Target, material: Material, seed: int, first: int) -> Iterator[Job]:
    """Endless sampling jobs from index ``first`` on; the tag is [index, kind]."""
    if target.assistant_opening is None:
        raise ValueError("the target has no chat template, so it cannot answer prompts")
    index = first
    while True:
        rng = np.random.default_rng([seed, index])
        temperature = float(rng.choice(TEMPERATURES, p=SHARES))
        prompt = training_prompt(index, material, seed)
        if prompt is None:
            yield Job(
                target.user_opening,
                temperature,
                LONGEST_ANSWER + 64,
                target.assistant_opening,
                tag=[index, "self"],
            )
        else:
            ids = target.chat(prompt[1])
            if len(ids) <= LONGEST_PROMPT:
                yield Job(ids, temperature, LONGEST_ANSWER, tag=[index, prompt[0]])
        index += 1


def sample(work: Path, *, hours: float, seed: int, device: str, slots: int) -> None:
    """Add shards of the target's own text to ``work/samples`` until the time is up.

    Each seed has a folder of its own, so that samplers with different seeds can run side by side.
    """
    start = time.monotonic()
    target = Target.load(resolve(DEFAULT_TARGET, progress=print).path, device=device)
    material = Material.load(work)
    folder, state = work / "samples" / f"seed-{seed}", work / f"sampling-{seed}.json"
    first = json.loads(state.read_text())["next"] if state.exists() else 0
    sampler = Sampler(
        target.weights,
        target.embedding,
        slots=slots,
        length=LENGTH,
        eos=target.eos,
        rng=np.random.default_rng([seed, first, 1]),
    )
    pending: list[Sample] = []
    labels, total, last = 0, 0, first
    for finished in sampler.run(jobs(target, material, seed, first)):
        pending.append(finished)
        labels += int(finished.labelled.sum())
        last = max(last, int(finished.job.tag[0]))
        elapsed = time.monotonic() - start
        done = elapsed >= hours * 3600
        if labels >= SHARD_LABELS or (done and pending):
            write_shard(folder, pending)
            state.write_text(json.dumps({"next": last + 1}))
            total += labels
            left = max(0.0, hours * 60 - elapsed / 60)
            print(
                f"sampled {total} positions in {elapsed / 60:.1f} min, "
                f"{total / elapsed:.0f}/s, {len(shard_paths(folder))} shards, {left:.0f} min left",
                flush=True,
            )
            pending, labels = [], 0
        if done:
            return


def sample_heldout(work: Path, target: Target, *, seed: int, slots: int) -> None:
    """The target's answers to every other held-out prompt, for the curve; made once."""
    if shard_paths(work / "heldout"):
        return
    prompts = [json.loads(line)["prompt"] for line in HELDOUT.read_text().splitlines()[::2]]
    sampler = Sampler(
        target.weights,
        target.embedding,
        slots=slots,
        length=LENGTH,
        eos=target.eos,
        rng=np.random.default_rng([seed, 2]),
    )
    queue = (
        Job(target.chat(prompt), temperature, LONGEST_ANSWER // 2, tag=i)
        for temperature in (0.0, 1.0)
        for i, prompt in enumerate(prompts)
    )
    write_shard(work / "heldout", list(sampler.run(queue)))


def export(work: Path, destination: Path) -> None:
    """Write the newest draft of ``work`` in its shipped form."""
    state = torch.load(work / RESULT_FILE, map_location="cpu", weights_only=False)
    record = {
        "target": DEFAULT_TARGET,
        "licence": "Apache-2.0",
        "positions_seen": state["seen"],
        "steps": state["step"],
        "recipe": state["recipe"],
        "curve": [
            {k: float(f"{v:.4g}") for k, v in point.items() if k != "rate"}
            for point in state["curve"]
        ],
    }
    config = {k: v for k, v in state["config"].items() if k != "transformers_version"}
    pack(destination, state["tensors"], config, state["head_ids"], record)
    size = sum(f.stat().st_size for f in destination.iterdir() if f.suffix != ".md")
    print(f"wrote {destination}: {size / 1e6:.2f} MB")


def main(arguments: list[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("all", "sample", "distil", "export"), default="all")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--work", type=Path, default=default_cache_dir() / "train")
    parser.add_argument("--out", type=Path, help="where to export; default WORK/shipped")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--take", type=int, nargs="+", default=[0, 1], metavar="LAYER")
    parser.add_argument("--head", type=int, default=Recipe.head)
    parser.add_argument("--lr", type=float, default=Recipe.lr)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    work, device = options.work, options.device
    hours = options.hours / 2 if options.stage == "all" else options.hours
    work.mkdir(parents=True, exist_ok=True)
    if not options.resume and shard_paths(work / "samples"):
        parser.error(f"{work} holds an earlier run: pass --resume, or another --work")
    if options.stage in ("all", "sample"):
        sample(work, hours=hours, seed=options.seed, device=device, slots=options.slots)
    if options.stage in ("all", "distil"):
        target = Target.load(resolve(DEFAULT_TARGET, progress=print).path, device=device)
        sample_heldout(work, target, seed=options.seed, slots=options.slots)
        recipe = Recipe(
            take=tuple(options.take), head=options.head, lr=options.lr, seed=options.seed
        )
        distil(work, target, recipe, hours=hours, device=device, resume=options.resume)
    if options.stage in ("all", "export"):
        export(work, options.out if options.out is not None else work / "shipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
