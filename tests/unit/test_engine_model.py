"""Our forward pass against transformers, and against itself after rollbacks and in batches."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from engine_models import TINY, tiny_draft, tiny_target
from safetensors import safe_open
from safetensors.torch import save_file

from node.inference.architecture import ModelError, UnsupportedModel, read_architecture
from node.inference.cache import ContextOverflow
from node.inference.linear import Linear, can_pack
from node.inference.loading import load_model
from node.inference.model import PREFILL_CHUNK, Span


def random_ids(count: int, vocab: int, number: int = 0) -> list[int]:
    return torch.randint(
        0, vocab, (count,), generator=torch.Generator().manual_seed(number)
    ).tolist()


def reference(folder, ids):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


def textbook_llama(folder, ids):
    """A Llama in float64, written down as in the papers: the logits of every position."""
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads, dim = (
        config[n] for n in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        w = {name: file.get_tensor(name).double() for name in file.keys()}  # noqa: SIM118

    def norm(x, name):
        return x * (x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]).rsqrt() * w[name]

    def rotate(x):
        angle = torch.arange(len(ids))[:, None] / 10000.0 ** (torch.arange(0, dim, 2) / dim)
        cos, sin = angle.cos().double(), angle.sin().double()
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def split(x, count):
        return x.view(len(ids), count, dim).transpose(0, 1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = (
            h @ w[f"{at}self_attn.{n}_proj.weight"].T + w.get(f"{at}self_attn.{n}_proj.bias", 0.0)
            for n in "qkv"
        )
        q, k = rotate(split(q, heads)), rotate(split(k, kv_heads))
        k, v = (t.repeat_interleave(heads // kv_heads, 0) for t in (k, split(v, kv_heads)))
        scores = (q @ k.transpose(1, 2) / dim**0.5).masked_fill(
            torch.ones(len(ids), len(ids)).triu(1).bool(), -torch.inf
        )
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), -1)
        x = x + mixed @ w[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm.weight")
        gate, up = (h @ w[f"{at}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        x = x + (torch.nn.functional.silu(gate) * up) @ w[at + "mlp.down_proj.weight"].T
    return (norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T).float()


def check_against(model, ids, want, tolerance=1e-4):
    """Prefill over chunks, then windows of many sizes: all within `tolerance`."""
    got = model.forward([Span(model.new_cache(), ids, len(ids))])[0].logits
    assert (got - want).abs().max() < tolerance
    cache, parts, at = model.new_cache(), [], len(ids) - 60
    model.forward([Span(cache, ids[:at])])
    for rows in (1, 5, 2, 8, 1, 4, 16, 1, 9, 13):
        parts.append(model.forward([Span(cache, ids[at : at + rows], rows)])[0].logits)
        at += rows
    assert (torch.cat(parts) - want[len(ids) - 60 : at]).abs().max() < tolerance


@pytest.mark.parametrize("which", ["target", "draft"])
def test_logits_equal_the_textbook(which):
    ids = random_ids(PREFILL_CHUNK + 60, 3072)
    model = tiny_target() if which == "target" else tiny_draft()
    check_against(model, ids, textbook_llama(TINY / which, ids))


def test_biases_of_queries_keys_and_values_are_theirs(tmp_path):
    """As in Qwen2: the tiny draft with biases added."""
    shutil.copytree(TINY / "draft", tmp_path / "m")
    with safe_open(TINY / "draft" / "model.safetensors", framework="pt") as file:
        w = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    generator = torch.Generator().manual_seed(1)
    for name in [n for n in w if n.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        bias = torch.randn(len(w[name]), generator=generator).to(w[name].dtype)
        w[name.replace("weight", "bias")] = bias
    save_file(w, tmp_path / "m" / "model.safetensors")
    ids = random_ids(80, 3072)
    check_against(load_model(tmp_path / "m"), ids, textbook_llama(tmp_path / "m", ids))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["target", "draft"])
def test_logits_equal_transformers(which):
    ids = random_ids(PREFILL_CHUNK + 60, 3072)
    model = tiny_target() if which == "target" else tiny_draft()
    check_against(model, ids, reference(TINY / which, ids))


@pytest.mark.slow
def test_the_default_targets_logits_equal_transformers():
    """Logits of 30 layers around +-25: rounding alone puts transformers' float32 6e-5 from float64.

    The packed product rounds a little more (1.2e-4 seen); near-ties are counted from 1e-3 on.
    """
    from node.inference.catalog import CatalogError, resolve
    from node.inference.tokens import Tokenizer

    try:
        folder = resolve("smollm2-135m-instruct").path
    except CatalogError as error:
        pytest.skip(str(error))
    text = "The tower is 330 metres tall, about the same height as an 81-storey building. " * 6
    ids = Tokenizer.load(folder).encode(text)
    model, want = load_model(folder), reference(folder, ids)
    check_against(model, ids, want, tolerance=2e-4)
    got = model.forward([Span(model.new_cache(), ids, len(ids))])[0].logits
    worst = (got - want).abs().amax(1)
    assert worst.median() < 1e-4
    assert (worst < 1e-4).float().mean() > 0.9
    assert (got.argmax(1) == want.argmax(1)).all()


SMALL = {
    "vocab_size": 160,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 10000.0,
}
FAMILY = {
    "llama-untied": ("LlamaConfig", {"tie_word_embeddings": False}),
    "llama-attention-bias": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "linear-rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
    ),
    "head-dim": ("LlamaConfig", {"head_dim": 16, "tie_word_embeddings": True}),
    "all-heads": ("LlamaConfig", {"num_key_value_heads": 6}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_family_equals_transformers(name, tmp_path):
    import transformers

    kind, extra = FAMILY[name]
    torch.manual_seed(3)
    config = getattr(transformers, kind)(**{**SMALL, **extra})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start at constants: make them tell
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path)
    ids = random_ids(70, 160)
    with torch.inference_mode():
        want = model(torch.tensor([ids])).logits[0]
    ours = load_model(tmp_path)
    assert type(ours).__name__ == "LlamaModel"
    cache = ours.new_cache()
    first = ours.forward([Span(cache, ids[:40], 40)])[0].logits
    rest = ours.forward([Span(cache, ids[40:], 30)])[0].logits
    assert (torch.cat([first, rest]) - want).abs().max() < 1e-4


def test_after_any_rollback_logits_equal_a_fresh_prefill():
    model = tiny_target()
    rng = np.random.default_rng(5)
    text = random_ids(20, model.vocab_size)
    cache = model.new_cache()
    model.forward([Span(cache, text)])
    for step in range(30):
        keep = int(rng.integers(0, len(text)))
        cache.truncate(keep)
        fresh = random_ids(int(rng.integers(1, 9)), model.vocab_size, step)
        text = text[:keep] + fresh
        got = model.forward([Span(cache, fresh, len(fresh))])[0]
        want = model.forward([Span(model.new_cache(), text, len(fresh))])[0]
        assert (got.logits - want.logits).abs().max() < 1e-4
        assert (got.hidden - want.hidden).abs().max() < 1e-3


def test_a_batch_of_ragged_spans_equals_each_alone():
    model = tiny_target()
    texts = [random_ids(n, model.vocab_size, n) for n in (3, 17, 40, 1, PREFILL_CHUNK)]
    tails = [random_ids(n, model.vocab_size, 90 + n) for n in (5, 1, 2, 9, 30)]
    together = [model.new_cache() for _ in texts]
    model.forward([Span(c, t) for c, t in zip(together, texts, strict=True)])
    got = model.forward([Span(c, t, len(t)) for c, t in zip(together, tails, strict=True)])
    for text, tail, rows in zip(texts, tails, got, strict=True):
        alone = model.new_cache()
        model.forward([Span(alone, text)])
        want = model.forward([Span(alone, tail, len(tail))])[0]
        assert (rows.logits - want.logits).abs().max() < 1e-4


def test_refused_spans_change_no_cache():
    model = tiny_target()
    good, bad = model.new_cache(), model.new_cache()
    model.forward([Span(good, [5, 6, 7])])
    with pytest.raises(ModelError, match="3072"):
        model.forward([Span(good, [1]), Span(bad, [3072])])
    with pytest.raises(ModelError, match="empty"):
        model.forward([Span(good, [])])
    with pytest.raises(ContextOverflow, match="1024"):
        model.forward([Span(good, [1]), Span(bad, [1] * 1025)])
    assert (good.length, bad.length) == (3, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"quantization_config": {"bits": 4}}, "quantization"),
        ({"model_type": "gpt2"}, "gpt2"),
        ({"model_type": "mistral", "sliding_window": 64}, "sliding_window"),
        ({"layer_types": ["sliding_attention"]}, "layer_types"),
    ],
)
def test_settings_that_change_the_arithmetic_are_refused(tmp_path, change, message):
    config = {"model_type": "llama", **SMALL, **change}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=message):
        read_architecture(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "list"), ('{"model_type": "llama"}', "num_attention_heads")],
)
def test_malformed_folders_are_refused_with_the_reason(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path)


def test_missing_and_misshapen_tensors_are_refused(tmp_path):
    config = {"model_type": "llama", **SMALL}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_model(tmp_path)
    save_file({"model.embed_tokens.weight": torch.zeros(160, 47)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"\(160, 47\)"):
        load_model(tmp_path)
    save_file({"model.embed_tokens.weight": torch.zeros(160, 48)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="no tensor"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x80\x04not a tensor file")
    with pytest.raises(ModelError, match="safetensors"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="float16"):
        load_model(tmp_path, dtype="float16")
    with pytest.raises(ModelError, match="tpu"):
        load_model(tmp_path, device="tpu-or-so")


def test_up_to_four_rows_are_the_same_bits_in_any_company() -> None:
    """They are one kernel, so a window's size does not move the sums of its rows."""
    if not can_pack(torch.float32):
        pytest.skip("no packed product here")
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(576, 1536, generator=generator)
    x = torch.randn(4, 1536, generator=generator)
    with torch.inference_mode():
        product = Linear(weight, torch.randn(576, generator=generator))
        whole = product(x)
        for rows in (1, 2, 3):
            for first in range(4 - rows + 1):
                part = product(x[first : first + rows])
                assert torch.equal(part, whole[first : first + rows])
