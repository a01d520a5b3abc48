"""The shipped form of a draft: int8 layers out, an ordinary Hugging Face folder back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from node.inference import shipped_draft
from node.inference.shipped_draft import ShippedDraftError

VOCAB, HIDDEN = 64, 32


def _config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }


def _model(seed: int = 0) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**_config())).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.1)
    return model


def _layers(model: Any) -> dict[str, torch.Tensor]:
    return {k: v for k, v in model.state_dict().items() if "embed" not in k and "lm_head" not in k}


@pytest.fixture
def shipped(tmp_path: Path) -> tuple[Any, Path, Path]:
    """A random model, its shipped form, and a target folder with its embedding."""
    model = _model()
    draft, target = tmp_path / "draft", tmp_path / "target"
    ids = np.array([0, 2, 5, 33, 63], dtype=np.uint32)
    shipped_draft.pack(draft, _layers(model), _config(), ids, {"target": "some-target"})
    target.mkdir()
    embedding = model.get_input_embeddings().weight.detach().to(torch.bfloat16)
    save_file({"model.embed_tokens.weight": embedding}, target / "model.safetensors")
    (target / "tokenizer.json").write_text("{}")
    return model, draft, target


def test_round_trip_computes_what_the_model_did(
    shipped: tuple[Any, Path, Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    model, draft, target = shipped
    shipped_draft.materialise(draft, target, tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    tokens = torch.arange(20)[None] % VOCAB
    with torch.no_grad():
        want, got = model(tokens).logits, again(tokens).logits
    # int8 per row keeps logits to about a percent of their spread; a wrong scale or a swapped
    # projection would be off by the spread itself.
    assert (want - got).abs().max() < 0.05 * want.std()
    np.testing.assert_array_equal(np.load(tmp_path / "out/draft_vocab.npy"), [0, 2, 5, 33, 63])


def test_head_map_is_multiplied_into_the_head(
    shipped: tuple[Any, Path, Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    model, _, target = shipped
    turn = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(3)) * 0.2
    layers = {**_layers(model), shipped_draft.HEAD_MAP: turn}
    shipped_draft.pack(tmp_path / "mapped", layers, _config(), None, {})
    shipped_draft.materialise(tmp_path / "mapped", target, tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    tokens = torch.arange(20)[None] % VOCAB
    with torch.no_grad():
        hidden = model.model(tokens).last_hidden_state
        want = hidden @ turn.T @ model.get_input_embeddings().weight.T
        got = again(tokens).logits
    assert (want - got).abs().max() < 0.05 * want.std()
    # The embedding that reads tokens stays the target's own.
    torch.testing.assert_close(
        again.get_input_embeddings().weight, model.get_input_embeddings().weight, atol=0.01, rtol=0
    )


def test_quantising_errs_by_half_a_step_at_most() -> None:
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(0))
    weight[3] = 0.0
    ints, scale = shipped_draft.quantise_rows(weight)
    assert ints.dtype == torch.int8
    error = (ints.float() * scale - weight).abs()
    assert torch.all(error <= scale / 2 * (1 + 1e-5))
    assert torch.all(ints[3] == 0)
    assert int(ints.abs().max()) == 127


def test_layers_ship_in_int8_alone(shipped: tuple[Any, Path, Path]) -> None:
    _, draft, _ = shipped
    stored = load_file(draft / "layers.safetensors")
    matrices = [n for n, t in stored.items() if t.ndim == 2 and not n.endswith(".scale")]
    assert len(matrices) == 2 * 7
    assert all(stored[n].dtype == torch.int8 for n in matrices)
    assert not any("embed" in n for n in stored)


def test_embedding_must_not_ship(tmp_path: Path) -> None:
    layers = {"model.embed_tokens.weight": torch.zeros(VOCAB, HIDDEN)}
    with pytest.raises(ShippedDraftError, match="embed_tokens"):
        shipped_draft.pack(tmp_path / "d", layers, _config(), None, {})


def test_another_targets_embedding_is_refused(
    shipped: tuple[Any, Path, Path], tmp_path: Path
) -> None:
    _, draft, target = shipped
    save_file(
        {"model.embed_tokens.weight": torch.zeros(VOCAB + 1, HIDDEN)},
        target / "model.safetensors",
    )
    with pytest.raises(ShippedDraftError, match=r"\(64, 32\).*\(65, 32\).*some-target"):
        shipped_draft.materialise(draft, target, tmp_path / "out")


@pytest.mark.parametrize(
    "ids", [[3, 3], [5, 4], [0, VOCAB], [-1, 2], [], [[1, 2]]], ids=lambda v: str(v)
)
def test_head_ids_out_of_order_or_range_are_refused(tmp_path: Path, ids: list[Any]) -> None:
    np.save(tmp_path / "draft_vocab.npy", np.array(ids, dtype=np.int64))
    with pytest.raises(ShippedDraftError, match="head ids"):
        shipped_draft.load_head_ids(tmp_path / "draft_vocab.npy", VOCAB)


def test_head_ids_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "draft_vocab.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ShippedDraftError, match="cannot be read"):
        shipped_draft.load_head_ids(tmp_path / "draft_vocab.npy", VOCAB)


def test_a_matrix_without_scale_is_refused(shipped: tuple[Any, Path, Path]) -> None:
    _, draft, _ = shipped
    stored = load_file(draft / "layers.safetensors")
    del stored["model.layers.1.mlp.up_proj.weight.scale"]
    save_file(stored, draft / "layers.safetensors")
    with pytest.raises(ShippedDraftError, match="up_proj"):
        shipped_draft.unpack_layers(draft)


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', "null"])
def test_a_damaged_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "draft.json").write_text(content)
    with pytest.raises(ShippedDraftError):
        shipped_draft.read_record(tmp_path)


def test_record_keeps_what_it_was_given(shipped: tuple[Any, Path, Path]) -> None:
    _, draft, _ = shipped
    record = json.loads((draft / "draft.json").read_text())
    assert record["target"] == "some-target"
    assert record["config"]["hidden_size"] == HIDDEN
