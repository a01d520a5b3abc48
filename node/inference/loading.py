"""From a folder of safetensors to a model in memory, every name and shape checked.

Only safetensors are read: other weight files are pickles, which can run code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from node.inference.architecture import (
    Architecture,
    ModelError,
    UnsupportedModel,
    read_architecture,
    read_eos_ids,
    read_json,
)
from node.inference.linear import Linear
from node.inference.llama import Layer, LlamaModel
from node.inference.model import LanguageModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EXACT = "exact"
# Ids (int array, ascending) of the head's rows, for a drafter with a head over frequent tokens.
HEAD_IDS_FILE = "draft_vocab.npy"


def load_model(folder: str | Path, dtype: str = "float32", device: str = "auto") -> LanguageModel:
    """Load the causal model in `folder`: through our forward, else through transformers.

    Args:
        folder: a Hugging Face model folder with safetensors.
        dtype: "float32" (strict modes hold up to near-ties), "bfloat16", or "exact" (integers, the
            same bits on every machine; our forward only).
        device: "cpu", "cuda", "cuda:N", or "auto" (cuda when there is one).

    Raises:
        ModelError: a file is missing, malformed, or does not fit the config.
        UnsupportedModel: neither way can run it losslessly with rollback.
    """
    folder = Path(folder)
    if dtype not in DTYPES and dtype != EXACT:
        raise ModelError(f"dtype {dtype!r}: must be one of {', '.join((*DTYPES, EXACT))}")
    place = choose_device(device)
    if dtype == EXACT:
        from node.inference.exact.model import load_exact

        return load_exact(folder, place)
    try:
        arch = read_architecture(folder)
    except UnsupportedModel as reason:
        from node.inference.adapter import load_through_transformers

        return load_through_transformers(folder, DTYPES[dtype], place, reason)
    return load_llama(folder, arch, DTYPES[dtype], place)


def choose_device(device: str) -> torch.device:
    """The torch device for a configured name; ModelError when it is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r}: {error}") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r}: no CUDA device is visible; use auto or cpu")
    return place


class Weights:
    """The tensors of a folder by name, with their shapes checked as they are taken."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        self._folder, self._dtype, self._device = folder, dtype, device
        index = folder / "model.safetensors.index.json"
        if index.exists():
            names = read_json(index).get("weight_map")
            if not isinstance(names, dict):
                raise ModelError(f"{index} has no weight_map")
            files = sorted({str(name) for name in names.values()})
        else:
            files = ["model.safetensors"]
        self._where: dict[str, Path] = {}
        for name in files:
            path = folder / name
            if path.parent != folder or not path.is_file():
                raise ModelError(f"{path} is missing or outside the model folder")
            with self._open(path) as tensors:
                self._where.update(dict.fromkeys(tensors.keys(), path))

    @staticmethod
    @contextlib.contextmanager
    def _open(path: Path) -> Iterator[safe_open]:
        try:
            with safe_open(path, framework="pt") as tensors:
                yield tensors
        except SafetensorError as error:
            raise ModelError(f"{path} is not a safetensors file: {error}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def shape(self, name: str) -> tuple[int, ...]:
        with self._open(self._where[name]) as tensors:
            return tuple(tensors.get_slice(name).get_shape())

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor in the model's dtype and device.

        Raises:
            ModelError: it is missing, or its shape is not `shape`.
        """
        if name not in self._where:
            raise ModelError(f"{self._folder} has no tensor {name}")
        with self._open(self._where[name]) as tensors:
            tensor = tensors.get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self._folder}: {name} has shape {tuple(tensor.shape)}, the config says {shape}"
            )
        if not tensor.dtype.is_floating_point:
            raise UnsupportedModel(f"{self._folder}: {name} is {tensor.dtype}, not floating point")
        return tensor.to(device=self._device, dtype=self._dtype)

    def stack(self, names: list[str], sizes: list[int], inputs: int) -> torch.Tensor:
        return torch.cat([self.take(n, size, inputs) for n, size in zip(names, sizes, strict=True)])


def load_llama(
    folder: Path, arch: Architecture, dtype: torch.dtype, device: torch.device
) -> LlamaModel:
    """Load a Llama-family folder into our forward; errors as `load_model`."""
    weights = Weights(folder, dtype, device)
    embedding = weights.take("model.embed_tokens.weight", arch.vocab_size, arch.hidden_size)
    head_ids = read_head_ids(folder, arch.vocab_size)
    head = embedding
    if not arch.tied and "lm_head.weight" in weights:
        # A drafter's head may ship cut to its own ids already.
        rows = weights.shape("lm_head.weight")[0] if head_ids is not None else arch.vocab_size
        head = weights.take("lm_head.weight", rows, arch.hidden_size)
    if head_ids is not None and len(head) == arch.vocab_size:
        head = head[torch.from_numpy(head_ids).to(device)]
    if len(head) != (arch.vocab_size if head_ids is None else len(head_ids)):
        raise ModelError(f"{folder}: head of {len(head)} rows, {HEAD_IDS_FILE} of {len(head_ids)}")
    return LlamaModel(
        arch,
        embedding,
        [_load_layer(weights, arch, number) for number in range(arch.layers)],
        weights.take("model.norm.weight", arch.hidden_size),
        Linear(head),
        head_ids,
        read_eos_ids(folder),
        folder,
    )


def _load_layer(weights: Weights, arch: Architecture, number: int) -> Layer:
    prefix = f"model.layers.{number}."
    d, f, hd = arch.hidden_size, arch.intermediate_size, arch.head_dim
    sizes = {"q": arch.heads * hd, "k": arch.kv_heads * hd, "v": arch.kv_heads * hd}

    def projection(name: str) -> str:
        return f"{prefix}self_attn.{name}_proj"

    def adjacent(tensor: torch.Tensor) -> torch.Tensor:
        return _pairs_adjacent(tensor, hd)

    qkv = [weights.take(projection(n) + ".weight", size, d) for n, size in sizes.items()]
    qkv[:2] = map(adjacent, qkv[:2])
    bias = None
    if projection("q") + ".bias" in weights:
        parts = [weights.take(projection(n) + ".bias", size) for n, size in sizes.items()]
        parts[:2] = map(adjacent, parts[:2])
        bias = torch.cat(parts)
    norms: list[torch.Tensor | None] = [None, None]
    if arch.query_key_norm:
        norms = [
            adjacent(weights.take(f"{prefix}self_attn.{n}_norm.weight", hd)) for n in ("q", "k")
        ]
    return Layer(
        attention_norm=weights.take(prefix + "input_layernorm.weight", d),
        qkv=Linear(torch.cat(qkv), bias),
        query_norm=norms[0],
        key_norm=norms[1],
        out=Linear(
            weights.take(projection("o") + ".weight", d, sizes["q"]),
            _optional(weights, projection("o") + ".bias", d),
        ),
        mlp_norm=weights.take(prefix + "post_attention_layernorm.weight", d),
        gate_up=Linear(
            weights.stack([f"{prefix}mlp.{n}_proj.weight" for n in ("gate", "up")], [f, f], d),
            _optional_stack(weights, [f"{prefix}mlp.{n}_proj.bias" for n in ("gate", "up")], f),
        ),
        down=Linear(
            weights.take(prefix + "mlp.down_proj.weight", d, f),
            _optional(weights, prefix + "mlp.down_proj.bias", d),
        ),
    )


def _optional(weights: Weights, name: str, size: int) -> torch.Tensor | None:
    return weights.take(name, size) if name in weights else None


def _optional_stack(weights: Weights, names: list[str], size: int) -> torch.Tensor | None:
    if names[0] not in weights:
        return None
    return torch.cat([weights.take(name, size) for name in names])


def _pairs_adjacent(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Reorder each head's channels from (i, i + dim/2) pairs to (2i, 2i + 1) pairs.

    Done to queries and keys alike, so their products do not change.
    """
    heads = rows.shape[0] // head_dim
    halves = rows.view(heads, 2, head_dim // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def read_head_ids(folder: Path, vocab_size: int) -> np.ndarray | None:
    """Ids of a reduced head, int64 ascending; None when the head has every id. ModelError when
    the file is malformed."""
    path = folder / HEAD_IDS_FILE
    if not path.exists():
        return None
    try:
        ids = np.load(path, allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} is not an array: {error}") from None
    if ids.ndim != 1 or not len(ids) or not np.issubdtype(ids.dtype, np.integer):
        raise ModelError(f"{path} has shape {ids.shape} and dtype {ids.dtype}: a list of ids")
    ids = ids.astype(np.int64)
    if (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= vocab_size:
        raise ModelError(f"{path}: ids must ascend strictly within [0, {vocab_size})")
    return ids
