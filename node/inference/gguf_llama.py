"""Read a GGUF file of a Llama-architecture model into Hugging Face names, without llama.cpp.

transformers can do this too, but needs ``accelerate`` for it, takes 14-20 s and leaves the
quantisation config behind. The format is public: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
Only what one Llama model with a byte-level BPE tokenizer needs is read; anything else is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_BLOCK_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL_TOKEN = 3  # GGUF token_type of tokens such as <|im_start|>


class GgufError(ValueError):
    """The GGUF file is not one this reader can turn into a Llama folder."""


@dataclass(frozen=True)
class GgufLlama:
    """A Llama model read from GGUF.

    Attributes:
        config: a Hugging Face ``LlamaConfig`` as a JSON-ready dict.
        tensors: Hugging Face parameter names to float32 arrays, de-quantised.
        tokenizer: the content of ``tokenizer.json``.
        tokenizer_config: the content of ``tokenizer_config.json``, chat template included.
    """

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    tokenizer: dict[str, Any]
    tokenizer_config: dict[str, Any]


def _interleave_undone(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's row order of the query and key projections.

    llama.cpp pairs rotary dimensions (2i, 2i+1); Hugging Face pairs (i, i + d/2).
    """
    rows, columns = weight.shape
    return (
        weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def read_gguf_llama(path: Path) -> GgufLlama:
    """Read ``path``.

    Raises:
        GgufError: not GGUF, not a Llama, an unknown tensor, or no byte-level BPE tokenizer.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize

    try:
        reader = GGUFReader(str(path))
    except (ValueError, IndexError) as error:
        raise GgufError(f"{path} is not a readable GGUF file: {error}") from error

    def field(name: str) -> Any:
        if name not in reader.fields:
            raise GgufError(f"{path} lacks the metadata field {name!r}")
        return reader.fields[name].contents()

    if field("general.architecture") != "llama":
        raise GgufError(f"{path} holds a {field('general.architecture')!r} model, not a llama")
    heads = int(field("llama.attention.head_count"))
    kv_heads = int(field("llama.attention.head_count_kv"))
    hidden = int(field("llama.embedding_length"))

    tensors: dict[str, np.ndarray] = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if tensor.name in _TOP_NAMES:
            tensors[_TOP_NAMES[tensor.name]] = weight
            continue
        prefix, _, rest = tensor.name.partition(".")
        index, _, part = rest.partition(".")
        if prefix != "blk" or part not in _BLOCK_NAMES:
            raise GgufError(f"{path} has a tensor this reader does not know: {tensor.name!r}")
        if part == "attn_q.weight":
            weight = _interleave_undone(weight, heads)
        elif part == "attn_k.weight":
            weight = _interleave_undone(weight, kv_heads)
        tensors[f"model.layers.{int(index)}.{_BLOCK_NAMES[part]}"] = weight

    bos, eos = int(field("tokenizer.ggml.bos_token_id")), int(field("tokenizer.ggml.eos_token_id"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(tensors["model.embed_tokens.weight"].shape[0]),
        "hidden_size": hidden,
        "intermediate_size": int(field("llama.feed_forward_length")),
        "num_hidden_layers": int(field("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": int(field("llama.context_length")),
        # GGUF keeps a float32; seven digits give back the decimal the model was trained with.
        "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.7g}"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(field("llama.rope.freq_base")),
        },
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": eos,
        "dtype": "bfloat16",
        "use_cache": True,
    }
    tokenizer, tokenizer_config = _tokenizer(path, field, bos, eos, config)
    return GgufLlama(config, tensors, tokenizer, tokenizer_config)


def _tokenizer(
    path: Path, field: Any, bos: int, eos: int, config: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The byte-level BPE tokenizer as tokenizer.json and tokenizer_config.json."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, splitting = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre")
    if kind != "gpt2" or splitting != "smollm":
        raise GgufError(
            f"{path} has tokenizer {kind!r} with splitting {splitting!r}; only 'gpt2' with "
            "'smollm' is read. Convert the model with transformers and pass the folder instead."
        )
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in field("tokenizer.ggml.merges")]
    bpe = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    # As in SmolLM2's own tokenizer.json: every digit alone, then GPT-2's split into words.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    bpe.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[bos],
        "eos_token": tokens[eos],
        "pad_token": tokens[eos],
        "unk_token": tokens[int(field("tokenizer.ggml.unknown_token_id"))],
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "chat_template": field("tokenizer.chat_template"),
    }
    return json.loads(bpe.to_str()), tokenizer_config
