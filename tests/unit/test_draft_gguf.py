"""The GGUF reader on files written by the gguf package, the q/k row order undone."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from node.inference.catalog import DEFAULT_DRAFT, DEFAULT_TARGET, SHIPPED, resolve
from node.inference.gguf_llama import GgufError, read_gguf_llama

HEADS, KV_HEADS, HIDDEN, MLP, VOCAB = 4, 2, 32, 32, 12


def _llama_cpp_order(weight: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter permutes queries and keys."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _write(path: Path, **changes: object) -> dict[str, np.ndarray]:
    """A one-layer Llama; gives back its tensors by Hugging Face name."""
    rng = np.random.default_rng(0)

    def random(*size: int) -> np.ndarray:
        return rng.normal(size=size).astype(np.float32)

    p = "model.layers.0."
    weights = {
        "model.embed_tokens.weight": random(VOCAB, HIDDEN),
        "model.norm.weight": random(HIDDEN),
        p + "input_layernorm.weight": random(HIDDEN),
        p + "post_attention_layernorm.weight": random(HIDDEN),
        p + "self_attn.q_proj.weight": random(HIDDEN, HIDDEN),
        p + "self_attn.k_proj.weight": random(HIDDEN // 2, HIDDEN),
        p + "self_attn.v_proj.weight": random(HIDDEN // 2, HIDDEN),
        p + "self_attn.o_proj.weight": random(HIDDEN, HIDDEN),
        p + "mlp.gate_proj.weight": random(MLP, HIDDEN),
        p + "mlp.up_proj.weight": random(MLP, HIDDEN),
        p + "mlp.down_proj.weight": random(HIDDEN, MLP),
    }
    names = dict(
        zip(
            weights,
            (
                "token_embd", "output_norm", "blk.0.attn_norm", "blk.0.ffn_norm", "blk.0.attn_q",
                "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output", "blk.0.ffn_gate",
                "blk.0.ffn_up", "blk.0.ffn_down",
            ),
            strict=True,
        )
    )  # fmt: skip
    writer = gguf.GGUFWriter(path, str(changes.get("architecture", "llama")))
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model(str(changes.get("tokenizer", "gpt2")))
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<s>", "<e>", "<u>", "a", "b", "ab", "1", "2", "c", "d", "e", "Ġ"])
    writer.add_token_types([3, 3, 3] + [1] * 9)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for name, weight in weights.items():
        stored = weight
        if "q_proj" in name:
            stored = _llama_cpp_order(weight, HEADS)
        elif "k_proj" in name:
            stored = _llama_cpp_order(weight, KV_HEADS)
        if name == changes.get("quantised"):
            kind = gguf.GGMLQuantizationType.Q8_0
            blocks = gguf.quants.quantize(stored, kind)
            writer.add_tensor(names[name] + ".weight", blocks, raw_dtype=kind)
            weights[name] = gguf.quants.dequantize(blocks, kind)
        else:
            writer.add_tensor(names[name] + ".weight", stored)
    if "stray" in changes:
        writer.add_tensor("blk.0.attn_q.bias", random(HIDDEN))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def test_tensors_config_and_tokenizer_come_back(tmp_path: Path) -> None:
    weights = _write(tmp_path / "m.gguf", quantised="model.layers.0.mlp.down_proj.weight")
    model = read_gguf_llama(tmp_path / "m.gguf")
    assert set(model.tensors) == set(weights)
    for name, weight in weights.items():
        np.testing.assert_array_equal(model.tensors[name], weight, err_msg=name)
    assert model.config["rms_norm_eps"] == 1e-5
    assert model.config["tie_word_embeddings"] is True
    assert (model.config["head_dim"], model.config["vocab_size"]) == (8, VOCAB)
    tokenizer = Tokenizer.from_str(json.dumps(model.tokenizer))
    assert tokenizer.encode("ab12<e>").ids == [5, 6, 7, 1]
    assert model.tokenizer_config["eos_token"] == "<e>"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architecture": "falcon"}, "falcon"),
        ({"tokenizer": "llama"}, "tokenizer 'llama'"),
        ({"stray": True}, "attn_q.bias"),
    ],
)
def test_what_it_does_not_know_is_refused(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    _write(tmp_path / "m.gguf", **changes)
    with pytest.raises(GgufError, match=says):
        read_gguf_llama(tmp_path / "m.gguf")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"not a model at all, but long enough to have a header")
    with pytest.raises(GgufError, match="not a readable GGUF"):
        read_gguf_llama(tmp_path / "m.gguf")


@pytest.mark.slow
def test_the_embedded_target_converts_and_makes_sense(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = resolve(DEFAULT_TARGET, cache_dir=tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(source.path)
    # Digits stand alone, as in the tokenizer that the model was trained with.
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("in 2024<|im_end|>")) == [
        "in", "Ġ", "2", "0", "2", "4", "<|im_end|>",
    ]  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Why is the sky blue?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0]
    text = tokenizer.decode(out[prompt["input_ids"].shape[1] :])
    assert text.startswith("The answer to this question lies in the intricate dance of light")
    assert resolve(DEFAULT_TARGET, cache_dir=tmp_path).path == source.path


@pytest.mark.slow
def test_the_draft_that_ships_joins_its_target(tmp_path: Path) -> None:
    """Agreement with the target on a plain sentence: a wrong head map or a swapped layer gives
    none."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    draft = resolve(DEFAULT_DRAFT, cache_dir=tmp_path)
    target = resolve(DEFAULT_TARGET, cache_dir=tmp_path)
    assert draft.target == DEFAULT_TARGET
    assert draft.draft_vocab is not None
    shipped = sum(p.stat().st_size for p in (SHIPPED / DEFAULT_DRAFT).iterdir())
    assert shipped < 15_000_000
    text = "The sky is blue because of the way that the light of the sun is scattered in the air."
    tokens = AutoTokenizer.from_pretrained(target.path)(text, return_tensors="pt")["input_ids"]
    loss = {}
    for name, source in (("draft", draft), ("target", target)):
        model = AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32)
        with torch.no_grad():
            loss[name] = float(model(tokens, labels=tokens).loss)
    assert loss["target"] < loss["draft"] < 7.0 < np.log(49_152)
