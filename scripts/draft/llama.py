"""A small Llama forward pass for making samples and training a draft.

Not the engine of the node: it holds many sequences of different lengths in one batch, which is what
makes sampling cheap on a CPU, and lets gradients through. Weights keep their Hugging Face names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shape:
    """The numbers of a ``LlamaConfig`` that the forward pass needs."""

    vocab: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float

    @staticmethod
    def of(config: dict[str, Any]) -> Shape:
        """Read a config.json dict of a plain Llama (default rotary embedding, no biases)."""
        rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 1e4)}
        heads = config["num_attention_heads"]
        return Shape(
            vocab=config["vocab_size"],
            hidden=config["hidden_size"],
            mlp=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            eps=config["rms_norm_eps"],
            rope_theta=float(rope["rope_theta"]),
        )


def rotary_table(shape: Shape, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each float32 (length, head_dim), for positions 0 … length-1."""
    half = torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float32)
    angles = torch.outer(
        torch.arange(length, device=device, dtype=torch.float32),
        1.0 / shape.rope_theta ** (half / shape.head_dim),
    )
    both = torch.cat([angles, angles], dim=-1)
    return both.cos(), both.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to the last dimension; ``cos``/``sin`` broadcast to ``x``."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm computed in float32 and given back in the dtype of ``x``."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * weight.float()).to(x.dtype)


class Weights:
    """Parameters of a Llama, with the projections that share an input joined for speed.

    Args:
        tensors: by Hugging Face name; embedding optional for a draft that borrows its target's.
    """

    def __init__(self, tensors: dict[str, Tensor], shape: Shape) -> None:
        self.shape = shape
        self.norm = tensors["model.norm.weight"]
        self.layers: list[dict[str, Tensor]] = []
        for i in range(shape.layers):
            p = f"model.layers.{i}."
            attn, mlp = p + "self_attn.", p + "mlp."
            self.layers.append(
                {
                    "in": tensors[p + "input_layernorm.weight"],
                    "post": tensors[p + "post_attention_layernorm.weight"],
                    "qkv": torch.cat([tensors[f"{attn}{n}_proj.weight"] for n in "qkv"]),
                    "o": tensors[attn + "o_proj.weight"],
                    "gate_up": torch.cat(
                        [tensors[f"{mlp}{n}_proj.weight"] for n in ("gate", "up")]
                    ),
                    "down": tensors[mlp + "down_proj.weight"],
                }
            )

    def parameters(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        return [layer[k] for layer in self.layers for k in sorted(layer)] + [self.norm]

    def named(self) -> dict[str, Tensor]:
        """Back to Hugging Face names (joined projections split again)."""
        s, out = self.shape, {"model.norm.weight": self.norm}
        widths = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
        for i, layer in enumerate(self.layers):
            p = f"model.layers.{i}."
            out[p + "input_layernorm.weight"] = layer["in"]
            out[p + "post_attention_layernorm.weight"] = layer["post"]
            for n, part in zip("qkv", layer["qkv"].split(widths), strict=True):
                out[f"{p}self_attn.{n}_proj.weight"] = part
            out[p + "self_attn.o_proj.weight"] = layer["o"]
            for n, part in zip(("gate", "up"), layer["gate_up"].chunk(2), strict=True):
                out[f"{p}mlp.{n}_proj.weight"] = part
            out[p + "mlp.down_proj.weight"] = layer["down"]
        return out


def mlp(layer: dict[str, Tensor], x: Tensor) -> Tensor:
    """SwiGLU."""
    gate, up = F.linear(x, layer["gate_up"]).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, layer["down"])


def forward(weights: Weights, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Hidden states after the last norm, causal over whole sequences.

    Args:
        x: (batch, length, hidden) embedded tokens; ``cos``/``sin`` (length, head_dim).

    Returns:
        (batch, length, hidden) in the dtype of ``x``.
    """
    s = weights.shape
    batch, length, _ = x.shape
    widths = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
    cos, sin = cos[:length].to(x.dtype), sin[:length].to(x.dtype)
    for layer in weights.layers:
        q, k, v = (
            t.view(batch, length, -1, s.head_dim).transpose(1, 2)
            for t in F.linear(rms_norm(x, layer["in"], s.eps), layer["qkv"]).split(widths, dim=-1)
        )
        group = s.heads // s.kv_heads
        k = rotate(k, cos, sin).repeat_interleave(group, dim=1)
        v = v.repeat_interleave(group, dim=1)
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(batch, length, -1), layer["o"])
        x = x + mlp(layer, rms_norm(x, layer["post"], s.eps))
    return rms_norm(x, weights.norm, s.eps)


class SlotCache:
    """Keys and values of many sequences that start and end at different times.

    Every slot has a length of its own; a step feeds one token to every slot.
    """

    def __init__(self, weights: Weights, slots: int, length: int, dtype: torch.dtype) -> None:
        s = weights.shape
        device = weights.norm.device
        self.weights, self.length = weights, length
        # Keys lie transposed: one query row against them is then a plain matrix product, which the
        # CPU does twice as fast as scaled_dot_product_attention with a mask.
        tall = (slots, s.kv_heads, s.head_dim, length)
        wide = (slots, s.kv_heads, length, s.head_dim)
        self.keys = [torch.zeros(tall, dtype=dtype, device=device) for _ in range(s.layers)]
        self.values = [torch.zeros(wide, dtype=dtype, device=device) for _ in range(s.layers)]
        cos, sin = rotary_table(s, length, device)
        self.cos, self.sin = cos.to(dtype), sin.to(dtype)
        self.lengths = torch.zeros(slots, dtype=torch.long, device=device)

    @torch.no_grad()
    def prefill(self, slot: int, x: Tensor) -> Tensor:
        """Fill a slot from (length, hidden) embedded tokens; hidden states (length, hidden)."""
        w, s = self.weights, self.weights.shape
        n = x.shape[0]
        widths = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
        cos, sin, group = self.cos[:n], self.sin[:n], s.heads // s.kv_heads
        for i, layer in enumerate(w.layers):
            q, k, v = (
                t.view(n, -1, s.head_dim).transpose(0, 1)
                for t in F.linear(rms_norm(x, layer["in"], s.eps), layer["qkv"]).split(widths, -1)
            )
            k = rotate(k, cos, sin)
            self.keys[i][slot, :, :, :n] = k.transpose(1, 2)
            self.values[i][slot, :, :n] = v
            a = F.scaled_dot_product_attention(
                rotate(q, cos, sin)[None],
                k.repeat_interleave(group, 0)[None],
                v.repeat_interleave(group, 0)[None],
                is_causal=True,
            )[0]
            x = x + F.linear(a.transpose(0, 1).reshape(n, -1), layer["o"])
            x = x + mlp(layer, rms_norm(x, layer["post"], s.eps))
        self.lengths[slot] = n
        return rms_norm(x, w.norm, s.eps)

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """One token in every slot: (slots, hidden) embedded to (slots, hidden) after the norm."""
        w, s = self.weights, self.weights.shape
        slots = x.shape[0]
        widths = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
        position, rows = self.lengths, torch.arange(slots, device=x.device)
        cos, sin = self.cos[position][:, None], self.sin[position][:, None]
        upto = int(position.max()) + 1
        absent = (torch.arange(upto, device=x.device) > position[:, None])[:, None, None]
        for i, layer in enumerate(w.layers):
            q, k, v = (
                t.view(slots, -1, s.head_dim)
                for t in F.linear(rms_norm(x, layer["in"], s.eps), layer["qkv"]).split(widths, -1)
            )
            self.keys[i][rows, :, :, position] = rotate(k, cos, sin)
            self.values[i][rows, :, position] = v
            # Query heads of one group stand as rows against their shared keys.
            q = rotate(q, cos, sin).view(slots, s.kv_heads, -1, s.head_dim)
            scores = (q @ self.keys[i][..., :upto]).float() * s.head_dim**-0.5
            share = scores.masked_fill_(absent, -torch.inf).softmax(-1).to(x.dtype)
            a = share @ self.values[i][:, :, :upto]
            x = x + F.linear(a.reshape(slots, -1), layer["o"])
            x = x + mlp(layer, rms_norm(x, layer["post"], s.eps))
        self.lengths = position + 1
        return rms_norm(x, w.norm, s.eps)
