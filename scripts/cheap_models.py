"""Targets that cost less than the registered one, as a dishonest verifier would run them.

`fewer_layers` leaves out the last fifth of the layers; `requantised` rounds the projections'
weights to a few bits in groups of 64 (symmetric, to nearest); `finetuned` is another checkpoint of
the same family: a few steps of AdamW on other text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from node.inference.early_exit import early_exit
from node.inference.llama import LlamaModel

GROUP = 64


def fewer_layers(target: LlamaModel) -> Any:
    """The first four fifths of the layers: 24 of 30."""
    return early_exit(target, max(1, round(target.arch.layers * 0.8)))


def _copy(folder: Path, out: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> Path:
    """A model folder with every tensor changed; float32."""
    out.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".json", ".jinja", ".model") and "index" not in path.name:
            shutil.copyfile(path, out / path.name)
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= {name: tensor.float() for name, tensor in load_file(path).items()}
    changed = {name: change(name, tensor).contiguous() for name, tensor in tensors.items()}
    save_file(changed, out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())
    config["dtype"] = "float32"
    (out / "config.json").write_text(json.dumps(config))
    return out


def rounded(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """[out, in] to 2**bits − 1 symmetric levels in groups of GROUP inputs."""
    most = 2 ** (bits - 1) - 1
    rows, inputs = weight.shape
    groups = weight.reshape(rows, -1, GROUP if inputs % GROUP == 0 else inputs)
    scale = groups.abs().amax(2, keepdim=True).clamp_min(1e-12) / most
    return ((groups / scale).round().clamp(-most, most) * scale).reshape(rows, inputs)


def requantised(folder: Path, out: Path, bits: int) -> Path:
    """A copy of the folder whose projections hold `bits`-bit values."""

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return rounded(tensor, bits) if "_proj" in name and tensor.ndim == 2 else tensor

    return _copy(folder, out, change)


def finetuned(folder: Path, out: Path, texts: Sequence[Sequence[int]], steps: int = 10) -> Path:
    """A copy after `steps` steps of AdamW (1e-4) on the texts, token ids."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    for step in range(steps):
        ids = torch.tensor([list(texts[step % len(texts)])])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    trained = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    return _copy(folder, out, lambda name, _tensor: trained[name].clone())
