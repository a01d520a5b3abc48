"""The form in which a distilled draft ships: its layers in int8, everything else from the target.

A draft of a small target is mostly embedding (56 MB of 70 MB in bfloat16 here), and that part is
the target's own. So a shipped draft holds only its decoder layers and last norm, linear weights as
int8 with one scale per output row, and the ids of its reduced head. ``materialise`` puts target and
layers together into an ordinary Hugging Face Llama folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

LAYERS_FILE = "layers.safetensors"
RECORD_FILE = "draft.json"
HEAD_IDS_FILE = "draft_vocab.npy"
# Between last norm and head; (hidden, hidden). Multiplied into the head by ``materialise``.
HEAD_MAP = "head_map.weight"
FORMAT = 1
_SCALE = ".scale"


class ShippedDraftError(ValueError):
    """A shipped draft is damaged or does not belong to the target it was put together with."""


def quantise_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int8 with one float32 scale per row.

    Args:
        weight: (rows, columns), any float dtype.

    Returns:
        int8 (rows, columns) in [-127, 127] and float32 (rows, 1) with weight ≈ int8 · scale.
        A row of zeros gets scale 1, so that no division by zero can follow.
    """
    import torch

    wide = weight.detach().to(torch.float32)
    scale = wide.abs().amax(dim=1, keepdim=True) / 127.0
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return torch.round(wide / scale).clamp(-127, 127).to(torch.int8), scale


def pack(
    folder: Path,
    layers: dict[str, torch.Tensor],
    config: dict[str, Any],
    head_ids: np.ndarray | None,
    record: dict[str, Any],
) -> None:
    """Write a shipped draft.

    Args:
        folder: where to; made if it is not there.
        layers: Hugging Face names to tensors, without embedding and head, and ``HEAD_MAP`` where
            there is one. Matrices are quantised, vectors (norms) kept in float32.
        config: the draft's ``LlamaConfig`` as a dict.
        head_ids: uint32 (n,), strictly ascending target ids that the draft can propose; None for
            the whole vocabulary.
        record: what the card says in numbers (target, training tokens, ...).

    Raises:
        ShippedDraftError: an embedding or head among the layers, or ids out of order or range.
    """
    import torch
    from safetensors.torch import save_file

    stray = [name for name in layers if "embed_tokens" in name or name.startswith("lm_head")]
    if stray:
        raise ShippedDraftError(f"{stray} belong to the target and must not ship with the layers")
    tensors: dict[str, torch.Tensor] = {}
    for name in sorted(layers):
        if layers[name].ndim == 2:
            tensors[name], tensors[name + _SCALE] = quantise_rows(layers[name])
        else:
            tensors[name] = layers[name].detach().to(torch.float32).contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / LAYERS_FILE)
    (folder / LAYERS_FILE).chmod(0o644)  # safetensors writes for the owner alone
    if head_ids is not None:
        ids = _checked_head_ids(head_ids, int(config["vocab_size"]))
        np.save(folder / HEAD_IDS_FILE, ids, allow_pickle=False)
    full = {"format": FORMAT, **record, "config": config}
    (folder / RECORD_FILE).write_text(json.dumps(full, indent=2, sort_keys=True) + "\n")


def read_record(folder: Path) -> dict[str, Any]:
    """``draft.json`` of a shipped draft.

    Raises:
        ShippedDraftError: absent, not JSON, or of another format.
    """
    try:
        record = json.loads((folder / RECORD_FILE).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ShippedDraftError(f"{folder / RECORD_FILE} cannot be read: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise ShippedDraftError(f"{folder} has draft format {found!r}; this code reads {FORMAT}")
    return record


def unpack_layers(folder: Path) -> dict[str, torch.Tensor]:
    """Layers of a shipped draft, de-quantised to float32, by Hugging Face name.

    Raises:
        ShippedDraftError: an int8 matrix without its scale, or of the wrong shape.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        stored = load_file(folder / LAYERS_FILE)
    except (OSError, SafetensorError) as error:
        raise ShippedDraftError(f"{folder / LAYERS_FILE} cannot be read: {error}") from error
    layers: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith(_SCALE):
            continue
        if tensor.dtype == torch.int8:
            scale = stored.get(name + _SCALE)
            if scale is None or scale.shape != (tensor.shape[0], 1):
                raise ShippedDraftError(f"{name} in {folder} has no scale for each of its rows")
            layers[name] = tensor.to(torch.float32) * scale
        else:
            layers[name] = tensor.to(torch.float32)
    return layers


def materialise(draft: Path, target: Path, destination: Path) -> None:
    """Join a shipped draft and its target's embedding into a Hugging Face Llama folder.

    The folder loads with ``AutoModelForCausalLM``; its head is the target's whole embedding, times
    the head map where the draft has one.
    An engine that wants the cheaper reduced head reads ``draft_vocab.npy`` beside it and keeps only
    those rows: row i of the reduced head proposes target id ``draft_vocab[i]``.

    Raises:
        ShippedDraftError: embedding and draft differ in width or vocabulary.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    record = read_record(draft)
    config = record["config"]
    with safe_open(target / "model.safetensors", framework="pt") as weights:
        embedding = weights.get_tensor("model.embed_tokens.weight")
    wanted = (config["vocab_size"], config["hidden_size"])
    if tuple(embedding.shape) != wanted:
        raise ShippedDraftError(
            f"the draft in {draft} wants an embedding of {wanted}, but the target in {target} has "
            f"{tuple(embedding.shape)}; it was distilled from {record.get('target')!r}"
        )
    layers = unpack_layers(draft)
    tensors = {name: t.to(torch.bfloat16) for name, t in layers.items() if name != HEAD_MAP}
    tensors["model.embed_tokens.weight"] = embedding.to(torch.bfloat16)
    if HEAD_MAP in layers:
        head = embedding.to(torch.float32) @ layers[HEAD_MAP]
        tensors["lm_head.weight"] = head.to(torch.bfloat16)
        config = {**config, "tie_word_embeddings": False}
    destination.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensors[name].contiguous() for name in sorted(tensors)},
        destination / "model.safetensors",
        metadata={"format": "pt"},
    )
    (destination / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (target / name).exists():
            (destination / name).write_bytes((target / name).read_bytes())
    if (draft / HEAD_IDS_FILE).exists():
        ids = load_head_ids(draft / HEAD_IDS_FILE, config["vocab_size"])
        np.save(destination / HEAD_IDS_FILE, ids, allow_pickle=False)


def load_head_ids(path: Path, vocab_size: int) -> np.ndarray:
    """Target ids of a reduced head: uint32 (n,), strictly ascending, all below ``vocab_size``.

    Raises:
        ShippedDraftError: unreadable, out of order, or out of range.
    """
    try:
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ShippedDraftError(f"{path} cannot be read: {error}") from error
    return _checked_head_ids(ids, vocab_size)


def _checked_head_ids(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    if ids.ndim != 1 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
        raise ShippedDraftError(f"head ids must be a row of integers, not {ids.dtype} {ids.shape}")
    wide = ids.astype(np.int64)
    if wide[0] < 0 or wide[-1] >= vocab_size or np.any(np.diff(wide) <= 0):
        raise ShippedDraftError(
            f"head ids must rise strictly within [0, {vocab_size}); "
            f"found first {wide[0]}, last {wide[-1]}"
        )
    return wide.astype(np.uint32)
