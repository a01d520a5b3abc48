"""Models that our forward does not cover: run through transformers exactly, or refused."""

from __future__ import annotations

import pytest
import torch
from engine_models import seed

from node.inference.adapter import TransformersModel
from node.inference.architecture import UnsupportedModel
from node.inference.generate import generate
from node.inference.loading import load_model
from node.inference.lookup import LookupDrafter
from node.inference.model import Span
from node.inference.params import SamplingParams
from node.inference.plain import compare, decode_plain
from node.inference.scripted import random_tokens
from node.inference.stops import StopRules
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow

# Everything here imports transformers' model code, which takes seconds.
pytestmark = pytest.mark.slow

COMMON = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
MAMBA = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}


def saved(tmp_path, kind, options):
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, kind)(**options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(tmp_path)
    return model


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("GPT2Config", GPT2),
        ("Gemma3TextConfig", {**COMMON, "sliding_window": 8, "sliding_window_pattern": 2}),
    ],
)
def test_other_models_decode_losslessly_through_transformers(tmp_path, kind, options):
    theirs = saved(tmp_path, kind, options)
    model = load_model(tmp_path)
    assert isinstance(model, TransformersModel)
    text = [(5 * i + 1) % 96 for i in range(40)]  # well past the sliding window
    with torch.inference_mode():
        want = theirs(torch.tensor([text])).logits[0]
    cache = model.new_cache()
    model.forward([Span(cache, text[:20])])
    model.forward([Span(cache, [1, 2, 3, 4], 4)])
    cache.truncate(18)
    got = model.forward([Span(cache, text[18:], 22)])[0].logits
    assert (got - want[18:]).abs().max() < 1e-3
    for params in (SamplingParams.from_floats("greedy"), SamplingParams.from_floats("coupled")):
        plain = decode_plain(model, [1, 2, 3], params, StopRules(30), seed=seed(1))
        for drafter in (LookupDrafter(), random_tokens(96, 1)):
            out = generate(
                Verifier(model),
                drafter,
                [1, 2, 3],
                params,
                StopRules(30),
                FixedWindow(3),
                seed=seed(1),
            )
            assert compare(out.tokens, plain).lossless


def test_a_state_that_cannot_be_rolled_back_is_refused(tmp_path):
    saved(tmp_path, "MambaConfig", MAMBA)
    with pytest.raises(UnsupportedModel, match="mamba"):
        load_model(tmp_path)
