"""The target as sampling and training see it: weights, embedding, chat template."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from scripts.draft.llama import Shape, Weights

Tensor = torch.Tensor


@dataclass(frozen=True)
class Target:
    """A target with a tied embedding.

    Attributes:
        config: its config.json.
        tensors: by Hugging Face name, on the device and in the dtype asked for.
        tokenizer: a Hugging Face tokenizer with a chat template.
        user_opening: ids up to where a user's turn begins, the default system turn included.
        assistant_opening: ids between the end-of-sequence id of a user's turn and the answer; None
            for a model without a chat template.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    weights: Weights
    tokenizer: Any
    user_opening: list[int]
    assistant_opening: tuple[int, ...] | None

    @property
    def embedding(self) -> Tensor:
        """(vocabulary, hidden)."""
        return self.tensors["model.embed_tokens.weight"]

    @property
    def eos(self) -> int:
        """The id that ends a turn."""
        return int(self.config["eos_token_id"])

    @staticmethod
    def load(folder: Path, *, device: str = "cpu", dtype: torch.dtype = torch.bfloat16) -> Target:
        """Load from a folder of safetensors."""
        from transformers import AutoTokenizer

        config = json.loads((folder / "config.json").read_text())
        stored = load_file(folder / "model.safetensors")
        tensors = {name: t.to(device=device, dtype=dtype) for name, t in stored.items()}
        tokenizer = AutoTokenizer.from_pretrained(folder)
        weights = Weights(tensors, Shape.of(config))
        if tokenizer.chat_template is None:  # a plain language model: text goes on from text
            return Target(config, tensors, weights, tokenizer, [int(config["bos_token_id"])], None)
        mark = "\x00"
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
        )
        before, after = text.split(mark)
        eos = tokenizer.convert_ids_to_tokens(int(config["eos_token_id"]))
        if not after.startswith(eos):
            raise ValueError(f"the chat template does not end a user's turn with {eos!r}: {text!r}")
        encode = lambda piece: tokenizer.encode(piece, add_special_tokens=False)  # noqa: E731
        return Target(
            config,
            tensors,
            weights,
            tokenizer,
            encode(before),
            tuple(encode(after.removeprefix(eos))),
        )

    def chat(self, prompt: str) -> list[int]:
        """Ids of one user's turn, up to where the answer begins; of the bare text for a model
        without a chat template."""
        turn = self.tokenizer.encode(prompt, add_special_tokens=False)
        if self.assistant_opening is None:
            return [*self.user_opening, *turn]
        return [*self.user_opening, *turn, self.eos, *self.assistant_opening]
