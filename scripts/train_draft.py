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
from scripts.draft.prompts import Material, training_prompt
from scripts.draft.samples import Job, Sample, Sampler
from scripts.draft.shards import shard_paths, write_shard
from scripts.draft.target import Target

# Longest sequence; prompts that leave under a third of it for the answer are passed over.
LENGTH, LONGEST_PROMPT, LONGEST_ANSWER = 400, 260, 256
TEMPERATURES, SHARES = (0.0, 0.7, 1.0), (0.4, 0.3, 0.3)
SHARD_LABELS = 20_000


def jobs(target: Target, material: Material, seed: int, first: int) -> Iterator[Job]:
    """Endless sampling jobs from index ``first`` on; the tag is [index, kind]."""
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
    """Add shards of the target's own text to ``work/samples`` until the time is up."""
    start = time.monotonic()
    target = Target.load(resolve(DEFAULT_TARGET, progress=print).path, device=device)
    material = Material.load(work)
    folder, state = work / "samples", work / "sampling.json"
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
            state.write_text(json.dumps({"next": last + 1, "seed": seed}))
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


def main(arguments: list[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("all", "sample", "distil", "export"), default="all")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--work", type=Path, default=default_cache_dir() / "train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.stage in ("all", "sample"):
        sample(
            options.work,
            hours=options.hours,
            seed=options.seed,
            device=options.device,
            slots=options.slots,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
