"""Samples on disk: numbered npz files, written whole or not at all, read back as one corpus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scripts.draft.samples import Sample


def write_shard(folder: Path, samples: list[Sample]) -> Path:
    """Write the next shard of ``folder``, which no other process may write to."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"shard-{len(list(folder.glob('shard-*.npz'))):05d}.npz"
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(
            file,
            tokens=np.concatenate([s.tokens for s in samples]),
            lengths=np.array([len(s.tokens) for s in samples], dtype=np.int32),
            labelled=np.concatenate([s.labelled for s in samples]),
            top_ids=np.concatenate([s.top_ids for s in samples]),
            top_logp=np.concatenate([s.top_logp for s in samples]),
            temperature=np.array([s.job.temperature for s in samples], dtype=np.float32),
            tags=np.array([json.dumps(s.job.tag) for s in samples]),
        )
    os.replace(part, path)
    return path


def shard_paths(folder: Path) -> list[Path]:
    """Shards of a folder and of those in it, by path."""
    return sorted(folder.rglob("shard-*.npz"))


@dataclass(frozen=True)
class Sequence:
    """One sample as read back: see ``Sample`` for shapes."""

    tokens: np.ndarray
    labelled: np.ndarray
    top_ids: np.ndarray
    top_logp: np.ndarray
    temperature: float
    tag: object


def read_shard(path: Path) -> Iterator[Sequence]:
    """Sequences of one shard, as views on its arrays."""
    with np.load(path, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    ends = np.cumsum(arrays["lengths"])
    counts = np.concatenate([[0], np.cumsum(arrays["labelled"])])
    start = 0
    for i, end in enumerate(ends):
        rows = slice(int(counts[start]), int(counts[end]))
        yield Sequence(
            arrays["tokens"][start:end],
            arrays["labelled"][start:end],
            arrays["top_ids"][rows],
            arrays["top_logp"][rows],
            float(arrays["temperature"][i]),
            json.loads(str(arrays["tags"][i])),
        )
        start = int(end)
