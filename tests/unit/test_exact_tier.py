"""The exact tier behind the engine's interfaces: sessions, audits, manifests. No tolerance."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from node.inference import sampling
from node.inference.catalog import SHIPPED
from node.inference.early_exit import early_exit
from node.inference.exact import weights as integer_weights
from node.inference.exact.commitment import Commitment
from node.inference.exact.quantise import load_integers
from node.inference.generate import generate
from node.inference.loading import load_model
from node.inference.manifest import manifest_of
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import compare, decode_plain, replay
from node.inference.stops import StopRules
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from node.roles.rerun import Tolerance
from settlement.hashing import keccak256
from settlement.masses import masses_from_probabilities
from settlement.records import NO_TOKEN, Mode, Tier

PAIR = SHIPPED / "tiny"
PROMPT = [40, 812, 77, 1500, 9]
SETTINGS = {
    "greedy": SamplingParams.from_floats("greedy"),
    "coupled": SamplingParams.from_floats("coupled", 0.8),
    "coupled-filters": SamplingParams.from_floats(
        "coupled", 1.0, top_k=50, top_p=0.9, repetition=1.2
    ),
    "rejection": SamplingParams.from_floats("rejection", 1.0, top_p=0.95),
}


@functools.cache
def target():
    return load_model(PAIR / "target", "exact", "cpu")


@functools.cache
def draft():
    return load_model(PAIR / "draft", "exact", "cpu")


def session(name: str, window: int, tokens: int = 20):
    seed = keccak256(name.encode())
    params, stops = SETTINGS[name], StopRules(tokens, target().eos_ids)
    made = generate(
        Verifier(target()),
        ModelDrafter(draft()),
        PROMPT,
        params,
        stops,
        FixedWindow(window),
        seed=seed,
        fingerprints=True,
    )
    return made, params, stops, seed


@pytest.mark.parametrize("name", ["greedy", "coupled", "coupled-filters"])
def test_text_is_plain_decodings_without_any_tolerance(name: str) -> None:
    for window in (1, 5):
        made, params, stops, seed = session(name, window)
        plain = decode_plain(target(), PROMPT, params, stops, seed=seed)
        assert compare(made.tokens, plain, near_tie=0).lossless
        assert made.accepted > 0


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_second_run_finds_every_figure_equal(name: str) -> None:
    """What a verifier commits in windows of 5 is what an auditor's one pass gives: bit for bit."""
    made, params, _, seed = session(name, 5)
    words = list(replay(target(), PROMPT, made.tokens, params, seed, chunk=9))
    theirs = [f for _, outcome in made.rounds for f in outcome.fingerprints]
    assert [w.fingerprint for w in words] == theirs
    leaves = [o for _, outcome in made.rounds for o in outcome.decision.outcomes]
    for word, leaf in zip(words, leaves, strict=True):
        assert leaf.top_prob == word.row.top_prob
        assert leaf.cutoff == word.row.cutoff
        if params.mode == Mode.REJECTION and leaf.draft_token != NO_TOKEN:
            assert leaf.p == word.row.masses()[leaf.draft_token]


def test_the_exact_tier_tolerates_nothing() -> None:
    assert Tolerance.of(Tier.EXACT) == Tolerance(0, 0, 0.0, 0, 0, 0)
    assert Tolerance.of(Tier.FLOAT32) == Tolerance()


def test_the_manifest_names_the_tier_and_the_root_over_rows(tmp_path: Path) -> None:
    folder = PAIR / "draft"
    manifest = manifest_of(folder, "exact", cache_dir=tmp_path)
    assert manifest.tier == Tier.EXACT
    assert manifest.weights_root == Commitment(load_integers(folder)).root
    assert manifest_of(folder, "exact", cache_dir=tmp_path) == manifest  # kept beside the cache
    other = manifest_of(folder, "float32", cache_dir=tmp_path)
    assert other.weights_root != manifest.weights_root
    assert other.model_id != manifest.model_id


def test_early_exit_drafts_and_changes_no_text() -> None:
    params, stops = SETTINGS["greedy"], StopRules(12, target().eos_ids)
    drafter = ModelDrafter(early_exit(target(), 4))
    made = generate(Verifier(target()), drafter, PROMPT, params, stops, FixedWindow(3))
    plain = decode_plain(target(), PROMPT, params, stops)
    assert compare(made.tokens, plain, near_tie=0).lossless
    assert drafter.model.arch.layers == 4


# ---------------------------------------------------------------- probabilities


def scores(seed: int, n: int = 4, width: int = 999) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.rint(rng.normal(0, 4, (n, width)) * 2**24).astype(np.int64))


def test_integer_weights_are_exponentials() -> None:
    z = scores(1)
    none = torch.full((4,), -(2**63), dtype=torch.int64)
    got = integer_weights.weights(z, none)
    want = sampling.weights(z, none) * 2.0**32
    assert torch.equal(got, got.floor())
    assert float((got - want).abs().max()) < 2.0**32 * 1e-7
    assert float(got.max()) == 2.0**32
    # Down to the grid's end, far scores and ranges beyond any model's.
    far = torch.tensor([[0, -(2**24) * 22, -(2**24) * 23, -(2**61)]])
    assert integer_weights.weights(far, none[:1])[0].tolist()[1:] == [1.0, 0.0, 0.0]
    cut = integer_weights.weights(z, z.amax(1))
    assert cut.sum(1).tolist() == [2.0**32] * 4


def test_masses_do_not_depend_on_the_order_of_summation() -> None:
    z = scores(2, 1, 5000)
    none = torch.full((1,), -(2**63), dtype=torch.int64)
    weight = integer_weights.weights(z, none)[0].numpy()
    order = np.random.default_rng(3).permutation(len(weight))
    shuffled = masses_from_probabilities(weight[order])
    again = np.empty_like(shuffled)
    again[order] = shuffled
    assert (masses_from_probabilities(weight) == again).all()


def test_top_probabilities_and_surprisals_are_close_to_the_real_ones() -> None:
    logits = scores(4, 6).double() * 2.0**-24
    tokens = [0, 5, 9, 100, 500, 998]
    near = logits.float()
    for ours, real in zip(
        sampling.top_probabilities(logits).tolist(),
        sampling.top_probabilities(near).tolist(),
        strict=True,
    ):
        assert abs(ours - real) <= 60  # the coarse table: 1e-3 of one
    for ours, real in zip(
        sampling.surprisals(logits, tokens), sampling.surprisals(near, tokens), strict=True
    ):
        assert abs(ours - real) <= 2
    sure = torch.zeros(1, 9, dtype=torch.float64)
    sure[0, 3] = 100.0
    assert sampling.top_probabilities(sure).tolist() == [65535]
    assert sampling.surprisals(sure, [3]) == [0]
    even = torch.zeros(1, 8, dtype=torch.float64)
    assert sampling.top_probabilities(even).tolist() == [1 << 13]
    assert sampling.surprisals(even, [7]) == [round(math.log(8) * 65536)]


def test_top_p_cuts_where_the_integers_say() -> None:
    z = scores(6)
    params = SamplingParams.from_floats("coupled", 1.0, top_p=0.9)
    got = sampling.cutoffs(z, params, exact=True)
    for row, cutoff in zip(z, got.tolist(), strict=True):
        best = torch.sort(row, descending=True).values[None]
        mass = integer_weights.weights(best, torch.tensor([-(2**63)]))[0].tolist()
        kept = int((row >= cutoff).sum())
        assert sum(mass[:kept]) >= 0.9 * sum(mass) * (1 - 1e-5)
        assert sum(mass[: kept - 1]) < 0.9 * sum(mass)
