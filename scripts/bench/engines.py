"""The engines that `bench_decode` compares, each as a function from a prompt to timed tokens.

All run the same target weights in the same dtype on the same threads, make the same number of
tokens (no stop id ends an output), and count prompt and output in their time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from node.inference import own_lookup
from node.inference.calibrate import pass_seconds
from node.inference.drafter import Drafter
from node.inference.early_exit import early_exit
from node.inference.exact.model import load_exact
from node.inference.generate import generate
from node.inference.loading import DTYPES, load_model
from node.inference.lookup import LookupDrafter
from node.inference.mixed_drafter import MixedDrafter
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import Draft, VerifyRequest
from node.inference.stops import StopRules
from node.inference.verifier import Verifier
from node.inference.window import WindowMemory

MAX_WINDOW: Final = 12
ROWS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 13)
Clock = Callable[[], float]


@dataclass(frozen=True)
class Timed:
    """One output and what it took."""

    tokens: tuple[int, ...]
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)


class Ours:
    """This package's loop, with a drafter and window control, or (drafter None) without either."""

    name = "verdraft"

    def __init__(
        self,
        target: Any,
        drafter: Drafter | None,
        clock: Clock,
        costs: Mapping[int, float] | None = None,
    ) -> None:
        self.drafter_name = "none" if drafter is None else drafter.name
        self._target = target
        self._drafter = drafter
        self._verifier = Verifier(target, max_tokens=4096, clock=clock)
        # As in a node: passes are timed at the start, sessions begin with what earlier ones taught.
        self._windows = WindowMemory(costs)
        self._clock = clock

    def run(self, prompt: Sequence[int], temperature: float, tokens: int, number: int) -> Timed:
        params = SamplingParams.from_floats("coupled", temperature)
        seed, stops = number.to_bytes(32, "big"), StopRules(tokens)
        start = self._clock()
        if self._drafter is None:
            plain = decode_plain(self._target, prompt, params, stops, seed=seed, margins=False)
            return Timed(tuple(plain.tokens), self._clock() - start)
        window = self._windows.control(temperature, MAX_WINDOW)
        made = generate(
            self._verifier,
            self._drafter,
            prompt,
            params,
            stops,
            window,
            seed=seed,
            # A prompt that was answered before would else be shared, and not computed again.
            salt=time.monotonic_ns().to_bytes(8, "big"),
            clock=self._clock,
        )
        seconds = self._clock() - start
        facts = {"alpha": made.alpha, "rounds": len(made.rounds), "proposed": made.proposed}
        return Timed(tuple(made.tokens), seconds, facts)


class OwnLookup:
    """This package's verifier without a drafter, as a node's: rounds of its own guesses by lookup
    share passes."""

    name = "verdraft"
    drafter_name = "own-lookup"

    def __init__(self, target: Any, clock: Clock, costs: Mapping[int, float]) -> None:
        self._verifier = Verifier(
            target, max_tokens=4096, lookup=own_lookup.OwnLookup(costs), clock=clock
        )
        self._clock = clock

    def run(self, prompt: Sequence[int], temperature: float, tokens: int, number: int) -> Timed:
        params = SamplingParams.from_floats("coupled", temperature)
        seed, start = number.to_bytes(32, "big"), self._clock()
        salt = time.monotonic_ns().to_bytes(8, "big")
        session = self._verifier.admit(
            seed, prompt, params, StopRules(tokens), seed=seed, salt=salt
        )
        out: list[int] = []
        passes = 0
        while not session.ended:
            request = VerifyRequest(Draft(session.position), fingerprints=False)
            done = self._verifier.verify(session, request)
            out += done.emitted
            passes += done.rows > 0
        self._verifier.close(session)
        return Timed(tuple(out), self._clock() - start, {"passes": passes})


class Peer:
    """transformers' `generate`: plain, with an assistant model, or with prompt lookup."""

    name = "transformers"

    def __init__(self, kind: str, model: Any, clock: Clock, **settings: Any) -> None:
        self.drafter_name = kind
        self._model = model
        self._settings = settings
        self._clock = clock

    @torch.inference_mode()
    def run(self, prompt: Sequence[int], temperature: float, tokens: int, number: int) -> Timed:
        torch.manual_seed(number)
        ids = torch.tensor([list(prompt)], device=self._model.device)
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        start = self._clock()
        out = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            **sampling,
            **self._settings,
        )
        seconds = self._clock() - start
        return Timed(tuple(out[0, len(prompt) :].tolist()), seconds)


class ReducedHead(torch.nn.Module):
    """A draft's head over some ids as a head over all: −∞ outside them. So transformers' assisted
    generation gets exactly the draft that ours has, as cheap a head included."""

    def __init__(self, weight: torch.Tensor, ids: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("ids", torch.from_numpy(ids.astype(np.int64)))
        self.register_buffer("weight", weight[self.ids].contiguous())
        self._vocab = len(weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        scores = torch.nn.functional.linear(hidden, self.weight)
        out = scores.new_full((*scores.shape[:-1], self._vocab), -torch.inf)
        out[..., self.ids] = scores
        return out


def load_peer(folder: Path, dtype: str, device: str = "cpu") -> Any:
    """A transformers model that ends no output early; a draft's reduced head as `ReducedHead`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).eval().to(device)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    ids = folder / "draft_vocab.npy"
    if ids.exists():
        head = model.get_output_embeddings().weight.detach()
        model.lm_head = ReducedHead(head, np.load(ids, allow_pickle=False)).to(device)
    return model


def load_any(folder: Path, dtype: str, device: str) -> Any:
    return load_exact(folder, device) if dtype == "exact" else load_model(folder, dtype, device)


def engines(
    target: Path,
    draft: Path,
    dtype: str,
    clock: Clock,
    *,
    device: str = "cpu",
    exits: Sequence[int] = (),
) -> list[Ours | OwnLookup | Peer]:
    """All that are compared, plain decoding first. "exact" is ours alone: peers run float32."""
    model, draft_model = (load_any(folder, dtype, device) for folder in (target, draft))
    floats = "float32" if dtype == "exact" else dtype
    peer, assistant = load_peer(target, floats, device), load_peer(draft, floats, device)
    drafters: list[Drafter] = [
        ModelDrafter(draft_model, clock=clock),
        MixedDrafter(draft_model, clock=clock),
        LookupDrafter(clock=clock),
        *(ModelDrafter(early_exit(model, n), name=f"exit-{n}", clock=clock) for n in exits),
    ]
    costs = pass_seconds(model, ROWS, clock=clock)
    return [
        Ours(model, None, clock),
        *(Ours(model, drafter, clock, costs) for drafter in drafters),
        OwnLookup(model, clock, costs),
        Peer("none", peer, clock),
        Peer("assistant", peer, clock, assistant_model=assistant),
        Peer("prompt-lookup", peer, clock, prompt_lookup_num_tokens=10),
    ]
