"""Random tiny checkpoints for the exact tier: every shape and scale that the bounds allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Checkpoint = tuple[dict[str, Any], dict[str, np.ndarray]]


def random_checkpoint(seed: int, **fixed: Any) -> Checkpoint:
    """A config and float32 tensors. Sizes, biases, tying and the scale of every tensor vary;
    `fixed` overrides the config."""
    rng = np.random.default_rng(seed)
    kv = int(rng.choice([1, 2, 3]))
    heads = kv * int(rng.choice([1, 2, 3]))
    config: dict[str, Any] = {
        "model_type": str(rng.choice(["llama", "qwen2"])),
        "vocab_size": int(rng.integers(5, 40)),
        "hidden_size": int(rng.integers(1, 20)) * 2,
        "intermediate_size": int(rng.integers(1, 40)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": int(rng.choice([2, 4, 8, 16])),
        "max_position_embeddings": int(rng.choice([32, 64, 1000])),
        "rms_norm_eps": float(rng.choice([1e-6, 1e-5, 0.01])),
        "rope_theta": float(rng.choice([10_000.0, 1e6, 123.4])),
        "tie_word_embeddings": bool(rng.integers(2)),
    } | fixed
    spread = float(rng.choice([0.02, 0.3, 3.0]))
    d, f, c = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    tensors: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int, mean: float = 0.0) -> None:
        scale = spread * 10.0 ** rng.uniform(-1.5, 1.0)
        values = mean + scale * rng.standard_normal(shape)
        if len(shape) == 2 and rng.random() < 0.2:
            values[rng.integers(shape[0])] = 0.0
        if rng.random() < 0.2:
            values *= rng.random(shape) < 0.3
        tensors[name] = values.astype(np.float32)

    add("model.embed_tokens.weight", config["vocab_size"], d)
    add("model.norm.weight", d, mean=1.0)
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", config["vocab_size"], d)
    biased = config["model_type"] == "qwen2"
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for name, out in (("q", heads * c), ("k", kv * c), ("v", kv * c)):
            add(f"{p}self_attn.{name}_proj.weight", out, d)
            if biased:
                add(f"{p}self_attn.{name}_proj.bias", out)
        add(f"{p}self_attn.o_proj.weight", d, heads * c)
        add(f"{p}mlp.gate_proj.weight", f, d)
        add(f"{p}mlp.up_proj.weight", f, d)
        add(f"{p}mlp.down_proj.weight", d, f)
        add(f"{p}input_layernorm.weight", d, mean=1.0)
        add(f"{p}post_attention_layernorm.weight", d, mean=1.0)
    return config, tensors


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    from safetensors.numpy import save_file

    config, tensors = checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
