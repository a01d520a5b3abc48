"""Sampling and distilling: what is labelled is what was drawn, and the losses are what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.draft import distil, lens
from scripts.draft.llama import Shape, Weights, forward, rotary_table
from scripts.draft.samples import Job, Sample, Sampler, draw
from scripts.draft.shards import Sequence, read_shard, write_shard

SHAPE = Shape(
    vocab=50, hidden=32, mlp=48, layers=2, heads=4, kv_heads=2, head_dim=8, eps=1e-5, rope_theta=1e4
)
EOS = 2


def _tensors(seed: int = 0, spread: float = 0.3) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    s = SHAPE

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=g) * spread

    out = {"model.norm.weight": torch.ones(s.hidden), "model.embed_tokens.weight": random(50, 32)}
    for i in range(s.layers):
        p = f"model.layers.{i}."
        for name, rows, columns in (
            ("self_attn.q_proj", 32, 32),
            ("self_attn.k_proj", 16, 32),
            ("self_attn.v_proj", 16, 32),
            ("self_attn.o_proj", 32, 32),
            ("mlp.gate_proj", 48, 32),
            ("mlp.up_proj", 48, 32),
            ("mlp.down_proj", 32, 48),
        ):
            out[f"{p}{name}.weight"] = random(rows, columns)
        out[p + "input_layernorm.weight"] = torch.ones(32)
        out[p + "post_attention_layernorm.weight"] = torch.ones(32)
    return out


def _sampler(slots: int, length: int = 40, k: int = 6, seed: int = 0) -> tuple[Sampler, Weights]:
    tensors = _tensors()
    weights = Weights(tensors, SHAPE)
    sampler = Sampler(
        weights,
        tensors["model.embed_tokens.weight"],
        slots=slots,
        length=length,
        eos=EOS,
        rng=np.random.default_rng(seed),
        k=k,
    )
    return sampler, weights


def _log_probabilities(weights: Weights, embedding: torch.Tensor, tokens: np.ndarray) -> np.ndarray:
    x = embedding[torch.from_numpy(tokens.astype(np.int64))][None]
    hidden = forward(weights, x, *rotary_table(SHAPE, len(tokens), x.device))[0]
    return (hidden @ embedding.T).log_softmax(-1).numpy()


def test_our_forward_pass_is_the_one_of_transformers() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4}, tie_word_embeddings=True,
    )  # fmt: skip
    tensors = _tensors()
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]})
    tokens = np.arange(3, 23) * 7 % 50
    with torch.no_grad():
        want = model(torch.from_numpy(tokens)[None]).logits[0].log_softmax(-1).numpy()
    got = _log_probabilities(Weights(tensors, SHAPE), tensors["model.embed_tokens.weight"], tokens)
    np.testing.assert_allclose(got, want, atol=2e-4)


def test_labels_are_the_distribution_of_the_token_beside_them() -> None:
    """Slots of different lengths, refilled as others end, against one pass over each result."""
    sampler, weights = _sampler(slots=3)
    jobs = [Job([5 + i] * (1 + 3 * i), [0.0, 1.0][i % 2], 9, tag=i) for i in range(8)]
    samples = list(sampler.run(iter(jobs)))
    assert sorted(s.job.tag for s in samples) == list(range(8))
    for sample in samples:
        logp = _log_probabilities(weights, sampler.embedding, sample.tokens)
        at = np.flatnonzero(sample.labelled)
        assert at[0] == len(sample.job.prompt)
        for row, i in enumerate(at):
            ids = sample.top_ids[row].astype(int)
            np.testing.assert_allclose(sample.top_logp[row], logp[i - 1][ids], atol=5e-3)
            if sample.job.temperature == 0:
                assert sample.tokens[i] == ids[0]
        ended = sample.tokens[-1] == EOS
        assert ended or len(at) == 9


def test_a_sampled_user_turn_is_followed_by_the_opening_of_the_answer() -> None:
    sampler, _ = _sampler(slots=2)
    logits_to_eos = sampler.embedding.clone()
    sampler.embedding = logits_to_eos
    job = Job([7], 1.0, 200, then=(11, 12, 13), tag="x")
    sample = next(s for s in sampler.run([job] * 40) if EOS in s.tokens[:-4])
    at = int(np.flatnonzero(sample.tokens == EOS)[0])
    assert sample.tokens[at + 1 : at + 4].tolist() == [11, 12, 13]
    assert sample.labelled[at]
    assert not sample.labelled[at + 1 : at + 4].any()


def test_draw_follows_the_distribution_inside_and_beyond_the_top() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, -1.0, 0.5])
    top = logits.topk(2).indices
    rng = np.random.default_rng(0)
    for temperature in (1.0, 0.5):
        want = (logits / temperature).softmax(0).numpy()
        n = 3_000
        got = np.bincount([draw(logits, top, temperature, rng) for _ in range(n)], minlength=5) / n
        assert np.abs(got - want).max() < 5 * np.sqrt(0.25 / n)
    assert draw(logits, top, 0.0, rng) == 1


def test_prompt_without_room_is_refused() -> None:
    sampler, _ = _sampler(slots=1, length=8)
    with pytest.raises(ValueError, match="8 ids leaves no room in 8"):
        list(sampler.run([Job([3] * 8, 0.0, 4)]))


def _sequences(seed: int = 0) -> list[Sequence]:
    rng = np.random.default_rng(seed)
    out = []
    for n in (5, 9, 6, 12, 7):
        labelled = np.arange(n) >= 3
        count = int(labelled.sum())
        p = np.sort(rng.dirichlet(np.ones(5), count)[:, :4], axis=1)[:, ::-1]
        ids = np.stack([rng.permutation(50)[:4] for _ in range(count)])
        tokens = rng.integers(3, 50, n)
        out.append(
            Sequence(
                tokens.astype(np.uint16),
                labelled,
                ids.astype(np.uint16),
                np.log(p).astype(np.float16),
                1.0,
                n,
            )
        )
    return out


def test_shards_come_back_as_they_went(tmp_path: Path) -> None:
    sampler, _ = _sampler(slots=2)
    samples = list(sampler.run([Job([4, 5], 1.0, 7, tag=[i, "chat"]) for i in range(5)]))
    path = write_shard(tmp_path, samples)
    again = list(read_shard(path))
    assert [s.tag for s in again] == [s.job.tag for s in samples]
    for a, b in zip(again, samples, strict=True):
        for name in ("tokens", "labelled", "top_ids", "top_logp"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert write_shard(tmp_path, samples).name == "shard-00001.npz"
    assert not list(tmp_path.glob("*.part"))


def test_batches_hold_each_label_once_before_its_token() -> None:
    corpus = _sequences()
    index = np.arange(50)
    index[::2] = -1
    seen = []
    for batch in distil.batches(
        corpus, index, tokens_per_batch=24, rng=np.random.default_rng(0), device="cpu"
    ):
        assert batch.tokens.numel() <= 24
        flat = batch.tokens.reshape(-1)
        # The hidden state at w predicts the token at w + 1, in the same row.
        assert torch.equal(flat[batch.where + 1], batch.truth)
        assert torch.all(
            batch.where // batch.tokens.shape[1] == (batch.where + 1) // batch.tokens.shape[1]
        )
        assert torch.all((batch.ids == -1) | (batch.ids % 2 == 1))
        seen += batch.truth.tolist()
    want = [int(t) for s in corpus for t in s.tokens[s.labelled]]
    assert sorted(seen) == sorted(want)


def test_losses_against_the_definition() -> None:
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(size=(6, 10)).astype(np.float32))
    full = rng.dirichlet(np.ones(10), 6)
    ids = np.stack([rng.permutation(10)[:4] for _ in range(6)])
    p = np.take_along_axis(full, ids, 1)
    kl, tv = distil.losses(logits, torch.from_numpy(ids), torch.from_numpy(p).float())
    q_full = logits.softmax(-1).numpy().astype(np.float64)
    q = np.take_along_axis(q_full, ids, 1)
    p5 = np.concatenate([p, 1 - p.sum(1, keepdims=True)], 1)
    q5 = np.concatenate([q, 1 - q.sum(1, keepdims=True)], 1)
    np.testing.assert_allclose(kl.numpy(), (p5 * np.log(p5 / q5)).sum(1), atol=1e-4)
    np.testing.assert_allclose(tv.numpy(), 0.5 * np.abs(p5 - q5).sum(1), atol=1e-5)


def test_ids_outside_the_head_cost_their_mass() -> None:
    logits = torch.zeros(1, 3)
    p = torch.tensor([[0.6, 0.4]])
    _, inside = distil.losses(logits, torch.tensor([[0, 1]]), p)
    _, outside = distil.losses(logits, torch.tensor([[0, -1]]), p)
    assert float(inside[0]) == pytest.approx(0.5 * (abs(0.6 - 1 / 3) + abs(0.4 - 1 / 3) + 1 / 3))
    assert float(outside[0]) == pytest.approx(0.5 * (abs(0.6 - 1 / 3) + 0.4 + 2 / 3))


def test_head_ids_are_those_with_mass_and_always_ascend() -> None:
    corpus = _sequences()
    ids = distil.choose_head_ids(corpus, 50, 12, always=[0, 49])
    mass = np.zeros(50)
    for s in corpus:
        np.add.at(mass, s.top_ids.ravel(), np.exp(s.top_logp.ravel().astype(float)))
    mass[[0, 49]] = np.inf
    assert set(ids) == set(np.argsort(-mass)[:12])
    assert np.all(np.diff(ids.astype(int)) > 0)


def test_a_draft_learns_what_it_is_shown() -> None:
    """Ten steps on one batch must lower both losses; the frozen embedding must not move."""
    torch.manual_seed(0)
    teacher, embedding = _tensors(), _tensors()["model.embed_tokens.weight"]
    weights = Weights(teacher, SHAPE)
    sampler = Sampler(
        weights, embedding, slots=4, length=24, eos=EOS, rng=np.random.default_rng(0), k=20
    )
    samples: list[Sample] = list(sampler.run([Job([i + 3], 1.0, 20) for i in range(8)]))
    corpus = [Sequence(s.tokens, s.labelled, s.top_ids, s.top_logp, 1.0, None) for s in samples]
    config = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 1e4},
    }  # fmt: skip
    before = embedding.clone()
    draft = distil.Draft(
        config,
        distil.initial_layers(config, teacher, [1]),
        embedding,
        np.arange(50, dtype=np.uint32),
    )
    tables = rotary_table(SHAPE, 64, embedding.device)
    (batch,) = distil.batches(
        corpus,
        draft.head_index,
        tokens_per_batch=10_000,
        rng=np.random.default_rng(0),
        device="cpu",
    )
    steppers = distil.optimisers(draft, 5e-3)
    curve = []
    for _ in range(11):
        kl, tv = distil.losses(draft.logits(batch, *tables), batch.ids, batch.p)
        curve.append((kl.mean().item(), tv.mean().item()))
        for stepper in steppers:
            stepper.zero_grad()
        (kl.mean() + tv.mean()).backward()
        for stepper in steppers:
            stepper.step()
    assert curve[-1][0] < 0.8 * curve[0][0]
    assert curve[-1][1] < curve[0][1]
    assert torch.equal(embedding, before)


def test_lens_finds_the_map_between_hidden_states() -> None:
    g = torch.Generator().manual_seed(0)
    source, turn = torch.randn(500, 16, generator=g), torch.randn(16, 16, generator=g)
    found = lens.fit(source, source @ turn.T, ridge=1e-6)
    torch.testing.assert_close(found, turn, atol=1e-3, rtol=0)


def test_lens_makes_a_shortened_target_predict_better() -> None:
    """One of two layers, mapped by least squares, must be nearer to the target than unmapped."""
    tensors = _tensors(spread=0.15)
    embedding, whole = tensors["model.embed_tokens.weight"], Weights(tensors, SHAPE)
    config = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 1e4},
    }  # fmt: skip
    short = Weights(distil.initial_layers(config, tensors, [0]), Shape.of(config))
    rng = np.random.default_rng(0)
    empty = np.zeros((0, 4))

    def rows(count: int) -> list[Sequence]:
        tokens = [rng.integers(0, 50, 30).astype(np.uint16) for _ in range(count)]
        return [Sequence(t, np.zeros(30, dtype=bool), empty, empty, 1.0, None) for t in tokens]

    turn = lens.head_map(short, whole, embedding, rows(40), positions=1000, seed=0)
    fresh = rows(10)
    wanted = lens.hidden_states(whole, embedding, fresh)
    source = lens.hidden_states(short, embedding, fresh)
    mapped, bare = ((x - wanted).pow(2).mean().item() for x in (source @ turn.T, source))
    assert mapped < 0.8 * bare


def test_held_out_prompts_are_many_kinds_and_share_no_opening_with_the_templates() -> None:
    from scripts.draft import prompts

    rows = [
        json.loads(line)
        for line in (Path(prompts.__file__).parent / "heldout.jsonl").read_text().splitlines()
    ]
    assert {row["kind"] for row in rows} == set(prompts.KINDS)
    assert len({row["prompt"] for row in rows}) == len(rows) >= 80
    templates = [
        t
        for group in (
            prompts._QUESTION, prompts._CHAT, prompts._CODE, prompts._SUMMARY, prompts._MATHS
        )
        for t in group
    ]  # fmt: skip

    def opening(text: str) -> str:
        return " ".join(text.lower().replace("{p}\n\n", "").split()[:4])

    fixed = {opening(t) for t in templates if "{" not in opening(t)}
    assert not fixed & {opening(row["prompt"]) for row in rows}
