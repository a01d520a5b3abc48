"""Drafters: their caches after accepts and rejects, what they carry over, what they declare."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from engine_models import (
    TINY,
    TableModel,
    prompts,
    seed,
    tiny_draft,
    tiny_drafter,
    tiny_target,
    tiny_verifier,
)

from node.inference import sampling
from node.inference.architecture import ModelError
from node.inference.early_exit import early_exit
from node.inference.generate import generate
from node.inference.loading import load_model
from node.inference.lookup import LookupDrafter
from node.inference.mixed_drafter import MixedDrafter
from node.inference.model import Span
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import DraftCoin
from node.inference.scripted import fixed
from node.inference.stops import StopRules
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from settlement.noise import coupled_argmax
from settlement.records import MASS_TOTAL, Mode

GREEDY = SamplingParams.from_floats("greedy")
COUPLED = SamplingParams.from_floats("coupled")
REJECTION = SamplingParams.from_floats("rejection")


def fresh_proposal(text, params, number, k, coin=None):
    """What a new session proposes for the same text: no cache to get wrong."""
    prompt, output = text
    session = tiny_drafter().open(prompt, params, seed=seed(number), output_ids=output)
    return session.propose(k, coin)


@pytest.mark.parametrize(
    "params", [GREEDY, COUPLED, REJECTION], ids=["greedy", "coupled", "rejection"]
)
def test_proposals_after_any_history_equal_a_fresh_sessions(params):
    """Full accepts (the cache would be one short), rejects anywhere, surplus kept and dropped."""
    rng = np.random.default_rng(1)
    prompt = prompts(1)[0]
    session = tiny_drafter().open(prompt, params, seed=seed(2))
    output: list[int] = []
    for step in range(14):
        k = int(rng.integers(1, 6))
        coin = DraftCoin(seed(step), seed(step + 1)) if params.mode == Mode.REJECTION else None
        draft = session.propose(k, coin)
        want = fresh_proposal((prompt, output), params, 2, k, coin)
        assert draft.tokens == want.tokens
        assert draft.base == len(output) == session.position
        if rng.random() < 0.3:
            session.draft_ahead(k + int(rng.integers(0, 4)))
        accepted = int(rng.integers(0, k + 1))
        full = accepted == k and session.surplus > k and rng.random() < 0.7
        own = session._ahead[k].token if full else int(rng.integers(2, 3072))
        emitted = [*draft.tokens[:accepted], own]
        session.commit(emitted)
        output += emitted
        assert session.surplus == 0 or full
        assert session.cached <= len(prompt) + len(output) + session.surplus


def test_surplus_opens_the_next_window_without_a_pass():
    prompt = prompts(1)[0]
    session = tiny_drafter().open(prompt, COUPLED, seed=seed(1))
    draft = session.propose(3)
    assert session.draft_ahead(8) == 8
    ahead = [s.token for s in session._ahead]
    session.commit([*draft.tokens, ahead[3]])
    assert session.surplus == 4
    nxt = session.propose(4)
    assert nxt.tokens == tuple(ahead[4:8])
    assert nxt.made == 5  # only what draft_ahead made: nothing was computed twice
    session.commit([(nxt.tokens[0] + 1) % 3072])
    assert session.surplus == 0


def test_nothing_is_drafted_ahead_in_rejection_mode():
    session = tiny_drafter().open([5, 6], REJECTION, seed=seed(1))
    assert session.draft_ahead(5) == 0


def test_alpha_does_not_fall_with_position():
    """A draft cache one short after full accepts would lower acceptance in later rounds."""
    target = TableModel(32, 4, 2.0)
    near = TableModel(32, 4, 2.0)
    near.table = (
        near.table + torch.randn(near.table.shape, generator=torch.Generator().manual_seed(1)) * 0.3
    )
    got = generate(
        Verifier(target),
        ModelDrafter(near),
        [1, 2],
        COUPLED,
        StopRules(200),
        FixedWindow(4),
        seed=seed(1),
    )
    accepted = [r.accepted for _, r in got.rounds]
    half = len(accepted) // 2
    assert got.alpha > 0.7
    assert sum(accepted[half:]) / (len(accepted) - half) > 0.75 * sum(accepted[:half]) / half


def test_the_targets_processors_apply_to_the_draft():
    """With the target as its own drafter every draft is accepted, whatever the processors."""
    for params in (
        SamplingParams.from_floats("greedy", repetition=1.4, frequency=0.3, presence=0.2),
        SamplingParams.from_floats(
            "coupled", 0.7, top_k=9, top_p=0.8, repetition=1.2, presence=0.3
        ),
        dataclasses.replace(REJECTION, temperature=40000, top_k=40, frequency_penalty=9000),
    ):
        got = generate(
            tiny_verifier(),
            ModelDrafter(tiny_target()),
            prompts(1)[0],
            params,
            StopRules(20),
            FixedWindow(4),
            seed=seed(3),
        )
        assert got.accepted == got.proposed > 10


def test_rejection_lists_are_what_was_sampled_from():
    session = tiny_drafter().open(prompts(1)[0], REJECTION, seed=seed(1))
    draft = session.propose(2, DraftCoin(seed(1), seed(2)))
    draft.check(3072, rejection=True, relaxed=False)
    assert len(draft.kept[0]) == 64
    model = tiny_draft()
    row = model.forward([Span(model.new_cache(), prompts(1)[0])])[0].logits
    scores = sampling.fixed_point(row, REJECTION.temperature)
    p = sampling.probabilities(scores, sampling.cutoffs(scores, REJECTION))[0].numpy()
    best = sorted(np.argsort(-p, kind="stable")[:64])
    assert [token for token, _ in draft.kept[0]] == best
    masses = np.array([mass / MASS_TOTAL for _, mass in draft.kept[0]])
    assert np.abs(masses - p[best] / p[best].sum()).max() < 1e-12


@pytest.fixture(scope="module")
def reduced(tmp_path_factory):
    """The tiny draft with a head over 900 of its ids."""
    folder = tmp_path_factory.mktemp("reduced") / "draft"
    shutil.copytree(TINY / "draft", folder)
    ids = np.sort(np.random.default_rng(2).permutation(3072)[:900])
    np.save(folder / "draft_vocab.npy", ids.astype(np.uint32))
    return folder, ids


def test_a_reduced_head_drafts_as_the_whole_one_would_within_its_ids(reduced):
    folder, ids = reduced
    model = load_model(folder)
    prompt = prompts(1)[0]
    rows = model.forward([Span(model.new_cache(), prompt)])[0].logits
    whole = tiny_draft().forward([Span(tiny_draft().new_cache(), prompt)])[0].logits[:, ids]
    assert (rows - whole).abs().max() < 1e-4
    for params in (COUPLED, SamplingParams.from_floats("coupled", 0.7, top_k=30, repetition=1.3)):
        session = ModelDrafter(model).open(prompt, params, seed=seed(4))
        token = session.propose(1).tokens[0]
        columns = np.full(3072, -1)
        columns[ids] = np.arange(900)
        z = sampling.penalised(whole, params, sampling.History(prompt), columns=columns)
        scores = sampling.fixed_point(z, params.score_temperature)[0].numpy()
        if params.top_k:
            scores[scores < np.sort(scores)[-params.top_k]] = -(1 << 60)
        full = np.full(3072, -(1 << 60), np.int64)
        full[ids] = scores
        assert token == coupled_argmax(full, seed(4), 0)[0]
    for params in (GREEDY, COUPLED, REJECTION):
        got = generate(
            tiny_verifier(),
            ModelDrafter(model),
            prompt,
            params,
            StopRules(14),
            FixedWindow(3),
            seed=seed(1),
        )
        assert got.proposed > 8
        assert all(t in set(ids.tolist()) for d, _ in got.rounds for t in d.tokens)
        if params.mode != Mode.REJECTION:
            plain = decode_plain(tiny_target(), prompt, params, StopRules(14), seed=seed(1))
            assert got.tokens == plain.tokens


def test_a_reduced_head_cannot_verify(reduced):
    with pytest.raises(ModelError, match="reduced head"):
        Verifier(load_model(reduced[0]))


@pytest.mark.parametrize("bad", [[3, 2], [1, 1], [-1, 4], [5, 3072], [[1, 2]], []])
def test_malformed_head_ids_are_refused(tmp_path, bad):
    shutil.copytree(TINY / "draft", tmp_path / "d")
    np.save(tmp_path / "d" / "draft_vocab.npy", np.array(bad, dtype=np.int64))
    with pytest.raises(ModelError, match="draft_vocab"):
        load_model(tmp_path / "d")


def test_pickled_head_ids_are_refused(tmp_path):
    shutil.copytree(TINY / "draft", tmp_path / "d")
    np.save(
        tmp_path / "d" / "draft_vocab.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True
    )
    with pytest.raises(ModelError, match="draft_vocab"):
        load_model(tmp_path / "d")


def test_lookup_continues_the_longest_last_occurrence():
    drafter = LookupDrafter(longest=3, shortest=1)

    def guess(text, k, params=GREEDY, coin=None):
        return list(drafter.open(text, params, seed=seed(0)).propose(k, coin).tokens)

    assert guess([1, 2, 3, 4, 9, 1, 2, 3], 2) == [4, 9]
    assert guess([1, 2, 5, 9, 2, 6, 7, 1, 2], 1) == [5]  # the longer match, though it is older
    assert guess([2, 5, 9, 2, 6, 9, 2], 1) == [6]  # of two bigrams the later
    assert guess([7, 8, 7, 8], 5) == [7, 8, 7, 8, 7]  # goes on in its own proposal
    assert guess([1, 2, 3], 4) == []
    coin = DraftCoin(seed(1), seed(2))
    assert guess([1, 2, 3], 2, REJECTION, coin) == [3, 3]  # the round's K is fixed there


def test_lookup_keeps_its_place_when_the_verifier_agrees():
    session = LookupDrafter().open([1, 2, 3, 4, 5, 6, 7, 8, 1, 2], GREEDY, seed=seed(0))
    assert session.propose(2).tokens == (3, 4)
    session.draft_ahead(5)
    session.commit([3, 4, 5])
    assert session.surplus == 2
    assert session.propose(3).tokens == (6, 7, 8)
    session.commit([6, 1])
    assert session.propose(2).tokens == (2, 3)


def test_drafting_ends_at_a_stop_id_in_the_strict_modes_only():
    eos = frozenset({9})
    session = fixed([4, 9, 5]).open([1], COUPLED, seed=seed(0), stop_ids=eos)
    assert session.propose(3).tokens == (4, 9)
    session = fixed([4, 9, 5]).open([1], REJECTION, seed=seed(0), stop_ids=eos)
    assert session.propose(3, DraftCoin(seed(0), seed(0))).tokens == (4, 9, 5)


@pytest.mark.parametrize("k", [0, 1, 2, 40])
def test_any_window_gives_the_same_text(k):
    """K = 0, and drafters that give fewer tokens than asked or would give more."""
    prompt, stops = prompts(1)[0], StopRules(12)
    plain = decode_plain(tiny_target(), prompt, COUPLED, stops, seed=seed(6))
    for drafter in (fixed(plain.tokens[:7]), tiny_drafter()):
        got = generate(
            tiny_verifier(), drafter, prompt, COUPLED, stops, FixedWindow(k), seed=seed(6)
        )
        assert got.tokens == plain.tokens
        if k == 0:
            assert got.proposed == 0
            assert len(got.rounds) == 12


def test_a_drafts_context_can_be_shorter_than_the_targets(tmp_path):
    shutil.copytree(TINY / "draft", tmp_path / "d")
    config = json.loads((tmp_path / "d" / "config.json").read_text())
    config["max_position_embeddings"] = 20
    (tmp_path / "d" / "config.json").write_text(json.dumps(config))
    prompt, stops = prompts(1)[0], StopRules(16)
    assert len(prompt) < 20
    plain = decode_plain(tiny_target(), prompt, COUPLED, stops, seed=seed(6))
    drafter = ModelDrafter(load_model(tmp_path / "d"))
    got = generate(tiny_verifier(), drafter, prompt, COUPLED, stops, FixedWindow(4), seed=seed(6))
    assert got.tokens == plain.tokens
    assert got.proposed > 0
    assert all(len(prompt) + d.base + len(d) <= 20 for d, _ in got.rounds if len(d))


def test_an_early_exit_is_the_targets_first_layers_under_its_own_head(tmp_path):
    """Compared with a folder whose config simply names fewer layers; the weights are shared."""
    target = tiny_target()
    shutil.copytree(TINY / "target", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    short, want = early_exit(target, 2), load_model(tmp_path / "m")
    text = prompts(1)[0]
    got = short.forward([Span(short.new_cache(), text, 3)])[0].logits
    assert torch.equal(got, want.forward([Span(want.new_cache(), text, 3)])[0].logits)
    assert short._embedding is target._embedding
    for layers in (0, target.arch.layers):
        with pytest.raises(ModelError, match="layers"):
            early_exit(target, layers)
    params = SamplingParams.from_floats("coupled")
    plain = decode_plain(target, text, params, StopRules(16), seed=seed(3))
    drafter = ModelDrafter(early_exit(target, 4), name="exit-4")
    made = generate(
        Verifier(target), drafter, text, params, StopRules(16), FixedWindow(3), seed=seed(3)
    )
    assert made.tokens == plain.tokens
    assert 0 < made.accepted < made.proposed


@pytest.mark.parametrize("params", [GREEDY, COUPLED])
def test_a_mixed_drafter_changes_nothing_but_speed(params):
    """Texts equal plain decoding's; where the text repeats itself it takes lookups."""
    target, drafter = tiny_target(), MixedDrafter(tiny_draft())
    for number, text in enumerate(prompts(3)):
        plain = decode_plain(target, text, params, StopRules(24), seed=seed(number))
        made = generate(
            tiny_verifier(), drafter, text, params, StopRules(24), FixedWindow(5), seed=seed(number)
        )
        assert made.tokens == plain.tokens
        assert made.accepted > 0


def test_a_mixed_drafter_is_the_model_where_every_figure_must_be():
    text, coin = prompts(1)[0], DraftCoin(seed(1), seed(2))
    relaxed = dataclasses.replace(COUPLED, relax_tau=1 << 20)
    for params in (REJECTION, relaxed):
        both = [
            d.open(text, params, seed=seed(4)).propose(5, coin)
            for d in (MixedDrafter(tiny_draft()), tiny_drafter())
        ]
        assert both[0] == both[1]


def test_lookups_are_taken_while_they_are_right():
    """A text that repeats, then one in which what followed before says nothing."""
    model = TableModel(40, 4)
    model.context_length = 4000
    drafter = MixedDrafter(model, worth=0.0)
    session = drafter.open([0], GREEDY, seed=seed(1))
    loop = [7, 8, 9, 10, 11, 12] * 8
    for token in loop:
        session.commit([token])
    ran = model.rows_run
    assert session.propose(6).tokens == (7, 8, 9, 10, 11, 12)
    assert model.rows_run == ran  # for nothing
    rng = np.random.default_rng(1)
    misled = drafter.open([0], GREEDY, seed=seed(1))
    for token in rng.integers(4, 7, size=2500):
        misled.commit([int(token)])
    assert misled._index.find(misled.tokens)[1] == 5
    beliefs = drafter.beliefs(GREEDY)
    assert beliefs.chance(("ngram", 5)) < 0.42
    misled.propose(1)
    assert model.rows_run > ran


def test_drafting_stops_where_it_no_longer_pays():
    model = TableModel(40, 4, spread=0.1)  # knows nothing: confidence 1/40
    sure = MixedDrafter(TableModel(40, 4, spread=40.0))
    doubtful, text = MixedDrafter(model), [5, 6]
    session = doubtful.open(text, GREEDY, seed=seed(1))
    assert 1 <= len(session.propose(12)) <= 2
    assert len(sure.open(text, GREEDY, seed=seed(1)).propose(12)) > 4
    # What comes true is believed: these doubtful guesses are right again and again.
    for _ in range(200):
        session.commit(session.propose(1).tokens)
    assert len(session.propose(12)) > 6


def test_asking_again_and_committing_less_leaves_a_mixed_session_as_a_new_one_would_be():
    """After any history of accepts and rejects, tokens and sources stay in step."""
    drafter, rng = MixedDrafter(tiny_draft()), np.random.default_rng(2)
    prompt = prompts(1)[0]
    session = drafter.open(prompt, COUPLED, seed=seed(4))
    for _ in range(25):
        draft = session.propose(int(rng.integers(1, 7)))
        session.draft_ahead(len(draft) + 2)
        keep = int(rng.integers(0, len(draft) + 1))
        session.commit([*draft.tokens[:keep], int(rng.integers(2, 3000))])
        assert len(session._sources) == session.surplus
        fresh = drafter.open(
            prompt, COUPLED, seed=seed(4), output_ids=session.tokens[len(prompt) :]
        )
        want, got = fresh.propose(4).tokens, session.propose(4).tokens
        short = min(len(want), len(got))
        assert got[:short] == want[:short]


def test_a_vocabulary_is_no_length_of_n_grams():
    """The index would grow with the square of the text, as it once did on every drafter's node."""
    with pytest.raises(ValueError, match="49152"):
        LookupDrafter(49152)
    with pytest.raises(ValueError, match="2 to 1"):
        LookupDrafter(1, 2)
