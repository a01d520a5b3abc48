"""The target's own text with its distribution at every step, made many sequences at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from scripts.draft.llama import SlotCache, Weights

Tensor = torch.Tensor


@dataclass(frozen=True)
class Job:
    """One sequence to be sampled.

    Attributes:
        prompt: ids up to where sampling starts.
        temperature: 0 for greedy.
        limit: sampled ids at most.
        then: ids to be put in after the first end-of-sequence id; with them, sampling goes on (the
            opening of the assistant's turn, where the user's turn was sampled too).
        first_temperature: temperature up to that point.
        tag: handed back with the sample.
    """

    prompt: list[int]
    temperature: float
    limit: int
    then: tuple[int, ...] = ()
    first_temperature: float = 0.8
    tag: Any = None


@dataclass(frozen=True)
class Sample:
    """A finished sequence of n ids.

    Attributes:
        tokens: (n,) uint16.
        labelled: (n,) bool; true at i where the target's distribution of the id at i is known.
        top_ids: (labelled, k) uint16, the k most probable ids there, most probable first.
        top_logp: (labelled, k) float16, their natural log-probabilities at temperature 1.
    """

    job: Job
    tokens: np.ndarray
    labelled: np.ndarray
    top_ids: np.ndarray
    top_logp: np.ndarray


class _Running:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.tokens = list(job.prompt)
        self.labelled = [False] * len(job.prompt)
        self.ids: list[np.ndarray] = []
        self.logp: list[np.ndarray] = []
        self.forced: list[int] = []
        self.then = list(job.then)

    def finished(self) -> Sample:
        k = self.ids[0].shape[0]
        return Sample(
            self.job,
            np.array(self.tokens, dtype=np.uint16),
            np.array(self.labelled, dtype=bool),
            np.stack(self.ids).astype(np.uint16).reshape(-1, k),
            np.stack(self.logp).astype(np.float16).reshape(-1, k),
        )


def draw(logits: Tensor, top_ids: Tensor, temperature: float, rng: np.random.Generator) -> int:
    """One id from softmax(logits / temperature), exactly.

    Args:
        logits: (vocabulary,) float32; top_ids: (k,) its largest, descending.

    The k largest nearly always decide; only a coin beyond their mass touches the whole row.
    """
    if temperature == 0:
        return int(top_ids[0])
    scaled = logits / temperature
    top = torch.exp(scaled[top_ids] - torch.logsumexp(scaled, 0)).double().cumsum(0)
    coin = rng.random()
    if coin < float(top[-1]):
        return int(top_ids[int(torch.searchsorted(top, coin, right=True))])
    rest = scaled.double().softmax(0)
    rest[top_ids] = 0.0
    total = rest.cumsum(0)
    coin = rng.random() * float(total[-1])
    return int(torch.searchsorted(total, coin, right=True).clamp(max=rest.shape[0] - 1))


class Sampler:
    """Keeps ``slots`` sequences going; a slot that finishes takes the next job at once.

    Args:
        embedding: (vocabulary, hidden), used as head too (tied).
        length: longest sequence, prompt included.
        k: how many of the most probable ids are kept per position.
    """

    def __init__(
        self,
        weights: Weights,
        embedding: Tensor,
        *,
        slots: int,
        length: int,
        eos: int,
        rng: np.random.Generator,
        k: int = 48,
    ) -> None:
        self.cache = SlotCache(weights, slots, length, embedding.dtype)
        self.embedding, self.length, self.eos, self.rng, self.k = embedding, length, eos, rng, k
        self.running: list[_Running | None] = [None] * slots
        self.hidden = torch.zeros(
            slots, embedding.shape[1], dtype=embedding.dtype, device=embedding.device
        )

    @torch.no_grad()
    def run(self, jobs: Iterable[Job]) -> Iterator[Sample]:
        """Sample until the jobs are done; with endless jobs, until the caller stops asking."""
        queue = iter(jobs)
        while True:
            for slot, running in enumerate(self.running):
                if running is None and (job := next(queue, None)) is not None:
                    self._start(slot, job)
            if not any(self.running):
                return
            yield from self._step()

    def _start(self, slot: int, job: Job) -> None:
        if len(job.prompt) >= self.length:
            raise ValueError(f"a prompt of {len(job.prompt)} ids leaves no room in {self.length}")
        ids = torch.tensor(job.prompt, device=self.embedding.device)
        self.hidden[slot] = self.cache.prefill(slot, self.embedding[ids])[-1]
        self.running[slot] = _Running(job)

    def _step(self) -> Iterator[Sample]:
        logits = F.linear(self.hidden, self.embedding).float()
        top = logits.topk(self.k, dim=-1)
        logp = (top.values - torch.logsumexp(logits, -1, keepdim=True)).half().cpu().numpy()
        ids = top.indices.to(torch.int32).cpu().numpy().astype(np.uint16)
        nexts = [self.eos] * len(self.running)
        for slot, running in enumerate(self.running):
            if running is None:
                self.cache.lengths[slot] = 0
                continue
            if running.forced:
                token = running.forced.pop(0)
                running.labelled.append(False)
            else:
                job = running.job
                temperature = job.first_temperature if running.then else job.temperature
                token = draw(logits[slot], top.indices[slot], temperature, self.rng)
                running.labelled.append(True)
                running.ids.append(ids[slot])
                running.logp.append(logp[slot])
            running.tokens.append(token)
            nexts[slot] = token
            ended = token == self.eos and running.labelled[-1]
            if ended and running.then:
                running.forced, running.then, ended = running.then, [], False
            if ended or len(running.ids) >= running.job.limit or len(running.tokens) >= self.length:
                yield running.finished()
                self.running[slot] = None
                self.cache.lengths[slot] = 0
        self.hidden = self.cache.step(
            self.embedding[torch.tensor(nexts, device=self.embedding.device)]
        )
