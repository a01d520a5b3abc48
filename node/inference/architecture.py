"""What a Hugging Face folder says about its model, checked, and refused where our forward differs.

Our forward covers the Llama family: Llama, SmolLM2, Mistral, Qwen2 and 2.5, Qwen3. A model is
refused here, with the reason, as soon as one of its settings would change the arithmetic; such a
model can still run through transformers (`adapter`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FAMILY = ("llama", "mistral", "qwen2", "qwen3")


class ModelError(ValueError):
    """A model folder cannot be used; the message says what is wrong with which file or setting."""


class UnsupportedModel(ModelError):
    """Our forward does not cover this architecture or setting."""


@dataclass(frozen=True)
class Architecture:
    """The sizes and constants of a Llama-family decoder.

    Attributes:
        inv_freq: float32[head_dim / 2], radians per position of each rotary pair.
        query_key_norm: RMSNorm over each head's query and key (Qwen3).
        tied: the output head is the embedding.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    context_length: int
    inv_freq: torch.Tensor
    query_key_norm: bool
    tied: bool


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder; ModelError when it is missing or not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: not a Hugging Face model folder") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}, not an object")
    return value


def read_architecture(folder: Path) -> Architecture:
    """The architecture of the model in `folder`.

    Raises:
        ModelError: config.json is missing, malformed or inconsistent.
        UnsupportedModel: a setting that our forward does not implement.
    """
    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in FAMILY:
        raise UnsupportedModel(f"model_type {kind!r}: our forward covers {', '.join(FAMILY)}")
    _refuse_variants(config)

    def size(name: str, default: int | None = None) -> int:
        value = config.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
            raise ModelError(f"{folder}/config.json: {name} = {value!r} is not a positive size")
        return value

    heads, hidden = size("num_attention_heads"), size("hidden_size")
    kv_heads = size("num_key_value_heads", heads)
    head_dim = size("head_dim", hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise ModelError(f"{heads} heads, {kv_heads} KV heads, head size {head_dim} do not fit")
    eps = config.get("rms_norm_eps", 1e-6)
    if not isinstance(eps, int | float) or not 0 < eps < 1:
        raise ModelError(f"{folder}/config.json: rms_norm_eps = {eps!r}")
    return Architecture(
        model_type=kind,
        vocab_size=size("vocab_size"),
        hidden_size=hidden,
        intermediate_size=size("intermediate_size"),
        layers=size("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=float(eps),
        context_length=size("max_position_embeddings", 2048),
        inv_freq=inverse_frequencies(config, head_dim),
        query_key_norm=kind == "qwen3",
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _refuse_variants(config: dict[str, Any]) -> None:
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModel(f"hidden_act {activation!r}: only silu")
    if config.get("quantization_config"):
        raise UnsupportedModel("quantization_config: only plain weights; de-quantise them first")
    if config.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel("partial_rotary_factor: only rotation of the whole head")
    sliding = config.get("sliding_window")
    in_use = config.get("use_sliding_window", config["model_type"] == "mistral")
    if sliding and in_use and sliding < config.get("max_position_embeddings", 0):
        raise UnsupportedModel(f"sliding_window {sliding}: a cache of full length only")
    if any(kind != "full_attention" for kind in config.get("layer_types") or ()):
        raise UnsupportedModel("layer_types: only full_attention")


def inverse_frequencies(config: dict[str, Any], head_dim: int) -> torch.Tensor:
    """Rotary frequencies, float32[head_dim / 2].

    Plain (arXiv 2104.09864), position interpolation ("linear", arXiv 2306.15595) and Llama 3.1's
    blend by wavelength ("llama3"). Others depend on the sequence's length or scale the attention.
    """
    import torch  # seconds to load, and only who builds a model needs it

    # transformers 5 writes rope_parameters, earlier versions rope_theta and rope_scaling.
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = rope.get("rope_type", rope.get("type", "default")) or "default"
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel("partial_rotary_factor: only rotation of the whole head")
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    freq = 1.0 / (float(theta) ** exponents)
    if kind == "default":
        return freq
    if kind == "linear":
        return freq / float(rope["factor"])
    if kind == "llama3":
        factor, low, high, old = (
            float(rope[name])
            for name in (
                "factor",
                "low_freq_factor",
                "high_freq_factor",
                "original_max_position_embeddings",
            )
        )
        wavelength = 2 * math.pi / freq
        blend = (old / wavelength - low) / (high - low)
        blended = (1 - blend) * freq / factor + blend * freq
        scaled = torch.where(wavelength > old / low, freq / factor, freq)
        medium = (wavelength <= old / low) & (wavelength >= old / high)
        return torch.where(medium, blended, scaled)
    raise UnsupportedModel(f"rope type {kind!r}: our forward covers default, linear, llama3")


def read_eos_ids(folder: Path) -> frozenset[int]:
    """End-of-sequence ids: generation_config.json's, else config.json's; empty when neither has."""
    for name in ("generation_config.json", "config.json"):
        if (folder / name).exists():
            value = read_json(folder / name).get("eos_token_id")
            if value is not None:
                ids = value if isinstance(value, list) else [value]
                if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
                    raise ModelError(f"{folder / name}: eos_token_id = {value!r}")
                return frozenset(ids)
    return frozenset()
