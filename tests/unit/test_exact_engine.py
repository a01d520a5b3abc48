"""The exact engine against its oracle, and against itself in every shape of pass."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any

import exact_models
import numpy as np
import pytest
import torch
from exact_oracle import Oracle
from exact_oracle import fingerprint as oracle_fingerprint

from node.inference.architecture import ModelError, UnsupportedModel
from node.inference.catalog import SHIPPED
from node.inference.exact import products, quantise
from node.inference.exact.commitment import Commitment
from node.inference.exact.memory import Together
from node.inference.exact.model import ExactModel, load_exact
from node.inference.fingerprint import hidden_hash
from node.inference.model import Span

TINY = SHIPPED / "tiny" / "target"


def run_oracle(oracle: Oracle, ids: list[int]) -> list[tuple[list[int], list[int]]]:
    return [oracle.step(token) for token in ids]


def integers(model: ExactModel, ids: list[int]) -> list[tuple[list[int], list[int]]]:
    rows = model.forward([Span(model.new_cache(), ids, len(ids))])[0]
    scores = (rows.logits * 2.0**24).long()
    assert torch.equal(scores.double() * 2.0**-24, rows.logits)
    return list(zip(rows.hidden.tolist(), scores.tolist(), strict=True))


@pytest.mark.parametrize(
    "seeds", [range(16), pytest.param(range(16, 200), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_engine_equals_oracle_on_random_architectures(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        checkpoint = exact_models.random_checkpoint(seed)
        folder = exact_models.write_checkpoint(tmp_path / str(seed), checkpoint)
        whole = quantise.load_integers(folder)
        oracle = Oracle(*checkpoint)
        ids = np.random.default_rng(seed).integers(0, whole.arch.vocab_size, 7).tolist()
        assert integers(ExactModel(whole), ids) == run_oracle(oracle, ids), seed
        assert Commitment(whole).root == oracle.weights_root(), seed


def test_engine_equals_oracle_at_the_extremes(tmp_path: Path) -> None:
    """Weights at both ends of what floats hold: saturated residuals and logits, and dead layers."""
    refused = 0
    for seed in range(16):
        config, tensors = exact_models.random_checkpoint(seed, intermediate_size=9)
        rng = np.random.default_rng(seed)
        for name, values in tensors.items():
            factor = np.float32(
                10.0 ** rng.uniform(-30, 3) if seed % 3 else 10.0 ** rng.uniform(0, 3)
            )
            signs = np.sign(values) if seed % 2 else values
            tensors[name] = (signs * factor).astype(np.float32)
            if seed % 5 == 0 and "norm" in name:
                tensors[name] = np.zeros_like(values)
        folder = exact_models.write_checkpoint(tmp_path / str(seed), (config, tensors))
        try:
            model = load_exact(folder)
        except UnsupportedModel:
            refused += 1  # a scale beyond what the formats hold is refused, never wrapped
            continue
        ids = rng.integers(0, config["vocab_size"], 5).tolist()
        assert integers(model, ids) == run_oracle(Oracle(config, tensors), ids), seed
    assert refused < 8


def test_a_reduced_head_is_the_same_integers(tmp_path: Path) -> None:
    checkpoint = exact_models.random_checkpoint(3, vocab_size=30)
    folder = exact_models.write_checkpoint(tmp_path, checkpoint)
    ids = np.array([2, 3, 11, 29], dtype=np.uint32)
    np.save(folder / "draft_vocab.npy", ids)
    oracle = Oracle(*checkpoint, head_ids=ids.tolist())
    whole = quantise.load_integers(folder)
    model = ExactModel(whole)
    assert integers(model, [1, 2, 3]) == run_oracle(oracle, [1, 2, 3])
    assert Commitment(whole).root == oracle.weights_root()
    assert model.head_ids is not None


@pytest.fixture(scope="module")
def whole() -> quantise.IntegerModel:
    return quantise.load_integers(TINY)


@pytest.fixture(scope="module")
def model(whole: quantise.IntegerModel) -> ExactModel:
    return ExactModel(whole)


@pytest.fixture(scope="module")
def text() -> list[int]:
    return np.random.default_rng(5).integers(0, 3072, 150).tolist()


def test_pieces_windows_and_rollbacks_change_nothing(model: ExactModel, text: list[int]) -> None:
    expected = model.forward([Span(model.new_cache(), text, len(text))])[0]
    cache = model.new_cache()
    at = 0
    for window in (70, 1, 2, 3, 4, 5, 8, 16, 1, 33):
        wrong = [(t + 1) % 3072 for t in text[at : at + 4]]
        model.forward([Span(cache, wrong, 4)])
        cache.truncate(at)
        rows = model.forward([Span(cache, text[at : at + window], window)])[0]
        assert torch.equal(rows.hidden, expected.hidden[at : at + window]), window
        assert torch.equal(rows.logits, expected.logits[at : at + window]), window
        at += window


def test_batches_and_pools_change_nothing(model: ExactModel, text: list[int]) -> None:
    texts = [text[i : i + 20 + 7 * i] for i in range(6)]
    alone = [model.forward([Span(model.new_cache(), t, 5)])[0].logits for t in texts]
    pool = model.new_pool(1 << 10)
    caches = [pool.open(t, 90) for t in texts]
    # Interleaved growth scatters a session's blocks, so its cache comes in several runs.
    for start in range(0, 50, 10):
        spans = [
            Span(c, t[start : min(start + 10, len(t) - 5)])
            for c, t in zip(caches, texts, strict=True)
            if start < len(t) - 5
        ]
        model.forward(spans)
    last = [Span(c, t[c.length :], 5) for c, t in zip(caches, texts, strict=True)]
    for rows, expected in zip(model.forward(last), alone, strict=True):
        assert torch.equal(rows.logits, expected)


@pytest.mark.parametrize("backend", products.BACKENDS)
def test_every_backend_gives_the_same_bits(
    whole: quantise.IntegerModel, model: ExactModel, text: list[int], backend: str
) -> None:
    if not products.works(backend, "cpu", torch.get_num_threads()):
        pytest.skip(f"{backend} is not exact here")
    other = ExactModel(whole, backend=backend)
    got = other.forward([Span(other.new_cache(), text[:40], 40)])[0]
    want = model.forward([Span(model.new_cache(), text[:40], 40)])[0]
    assert torch.equal(got.logits, want.logits)
    assert torch.equal(got.hidden, want.hidden)


@pytest.mark.slow
def test_the_tiny_target_equals_the_oracle(model: ExactModel, text: list[int]) -> None:
    import json

    from safetensors.torch import load_file

    tensors = {k: v.float().numpy() for k, v in load_file(TINY / "model.safetensors").items()}
    oracle = Oracle(json.loads((TINY / "config.json").read_text()), tensors)
    assert integers(model, text[:3]) == run_oracle(oracle, text[:3])


def test_weights_lie_in_one_piece_in_the_order_of_a_pass(model: ExactModel) -> None:
    at = 0
    for layer in model._layers:
        for part in (layer.qkv, layer.out, layer.gate_up, layer.down):
            weights = part.product.weight
            assert weights.data_ptr() % 64 == 0
            assert at == 0 or 0 <= weights.data_ptr() - at < 64
            at = weights.data_ptr() + weights.numel()


def test_room_for_weights_is_not_exceeded() -> None:
    room = Together([6, 4])
    first = room.keep(torch.arange(6, dtype=torch.int8).view(2, 3))
    second = room.keep(torch.full((2, 2), -3, dtype=torch.int8))
    with pytest.raises(ValueError, match="no room"):
        room.keep(torch.zeros(200, dtype=torch.int8))
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second.tolist() == [[-3, -3], [-3, -3]]


def test_a_backend_that_is_off_by_one_bit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    products.works.cache_clear()
    honest = torch._int_mm

    def saturating(a: torch.Tensor, b: torch.Tensor, **rest: torch.Tensor) -> torch.Tensor:
        return honest(a, b, **rest).clamp_(-(1 << 23), (1 << 23) - 1)

    monkeypatch.setattr(torch, "_int_mm", saturating)
    try:
        assert products.choose(torch.device("cpu")) != "int8"
        with pytest.raises(products.InexactBackend, match="int8"):
            products.choose(torch.device("cpu"), "int8")
    finally:
        products.works.cache_clear()


@pytest.mark.parametrize("fastest", products.BACKENDS)
def test_of_exact_backends_the_fastest_is_taken(
    monkeypatch: pytest.MonkeyPatch, fastest: str
) -> None:
    monkeypatch.setattr(products, "works", lambda *_: True)
    monkeypatch.setattr(products, "_seconds", lambda name, *_: 1.0 - (name == fastest))
    assert products.choose(torch.device("cpu")) == fastest
    assert products.choose(torch.device("meta")) == products.BACKENDS[0]
    assert products.choose(torch.device("cpu"), "float64") == "float64"


def test_a_kernel_that_errs_on_the_models_own_shape_is_refused(
    whole: quantise.IntegerModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = torch._int_mm

    def wrong_when_wide(a: torch.Tensor, b: torch.Tensor, **rest: torch.Tensor) -> torch.Tensor:
        got = honest(a, b, **rest)
        return got + 1 if a.shape[1] == whole.arch.intermediate_size else got

    assert products.works("int8", "cpu", torch.get_num_threads())
    monkeypatch.setattr(torch, "_int_mm", wrong_when_wide)
    with pytest.raises(products.InexactBackend):
        ExactModel(whole, backend="int8")


def test_every_single_weight_changes_the_root(tmp_path: Path) -> None:
    config, tensors = exact_models.random_checkpoint(8)
    root = Commitment(quantise.load_integers(write(tmp_path / "a", config, tensors))).root
    name = "model.layers.0.mlp.down_proj.weight"
    changed = dict(tensors, **{name: tensors[name].copy()})
    row = int(np.abs(tensors[name]).max(axis=1).argmax())
    changed[name][row, int(np.abs(tensors[name][row]).argmin())] += (
        np.abs(tensors[name][row]).max() / 50
    )
    other = Commitment(quantise.load_integers(write(tmp_path / "b", config, changed))).root
    assert other != root


def write(folder: Path, config: dict, tensors: dict) -> Path:
    return exact_models.write_checkpoint(folder, (config, tensors))


def test_every_row_opens_to_the_root_and_recomputes_its_output(
    model: ExactModel, whole: quantise.IntegerModel, text: list[int]
) -> None:
    """What a challenger shows: h, a head row with its path, and the logit that follows."""
    commitment = Commitment(whole)
    rows = model.forward([Span(model.new_cache(), text[:9])])[0]
    h = rows.hidden[0].numpy()
    for token in (0, 17, 3071):
        opening = commitment.opening(quantise.HEAD, token)
        assert opening.weights_root == commitment.root
        w = np.frombuffer(opening.row.weights, np.int8).astype(np.int64)
        acc = int(h.astype(np.int64) @ w)
        z = (acc * opening.row.multiplier + (1 << (opening.row.shift - 1))) >> opening.row.shift
        assert z + opening.row.bias == int(rows.logits[0, token] * 2.0**24)
    for tensor in (quantise.EMBEDDING, quantise.FINAL_NORM, 16 + quantise.DOWN, 16 + 12, 96 + 8):
        assert commitment.opening(tensor, 0).weights_root == commitment.root
    with pytest.raises(IndexError):
        commitment.opening(quantise.HEAD, 3072)
    with pytest.raises(KeyError):
        commitment.opening(3, 0)


def test_fingerprints_are_of_the_big_endian_state() -> None:
    h = np.array([1, -2, 32639, -32639], dtype=np.int16)
    assert hidden_hash(h) == oracle_fingerprint(h.tolist())
    assert hidden_hash(h) != hidden_hash(h[::-1].copy())


@pytest.mark.parametrize(
    ("change", "match"),
    [({"max_position_embeddings": 1 << 19}, "context"), ({"head_dim": 512}, "head_dim")],
)
def test_sizes_beyond_the_proofs_are_refused(
    tmp_path: Path, change: dict[str, int], match: str
) -> None:
    folder = exact_models.write_checkpoint(tmp_path, exact_models.random_checkpoint(1, **change))
    with pytest.raises(UnsupportedModel, match=match):
        load_exact(folder)


def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    config, tensors = exact_models.random_checkpoint(2)
    tensors["model.layers.0.mlp.up_proj.weight"][0, 0] = np.inf
    with pytest.raises(ModelError, match="finite"):
        load_exact(write(tmp_path, config, tensors))


def test_the_exponent_of_a_row_leaves_sixteen_bits_and_no_more() -> None:
    from node.inference.exact.model import _exponent

    for bits in range(53):
        for top in {(1 << bits) - 1, 1 << bits, (32639 << bits >> 15), (32640 << bits >> 15)}:
            e = _exponent(top)
            assert (top + (1 << e >> 1)) >> e <= 32639
            assert e == 0 or (top + (1 << e >> 2)) >> (e - 1) > 32639


# ---------------------------------------------------------------- the optional kernel


BUILDS = {
    "native": (),
    "no VNNI": ("-mno-avx512vnni",),
    "no AVX-512": ("-mno-avx512f",),
    "no AVX": ("-mno-avx",),
}


@pytest.fixture(scope="module", params=BUILDS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kernel as this machine builds it, and as lesser ones of its kind do."""
    from node.inference import compiled
    from node.inference.exact import native

    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    if request.param != "native" and platform.machine() != "x86_64":
        pytest.skip("flags of another processor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "FLAGS", (*compiled.FLAGS, *BUILDS[request.param]))
        return native.load(tmp_path_factory.mktemp("kernel"))


@pytest.mark.parametrize("inputs", [1, 31, 64, 512, 1100])
def test_products_of_every_height_are_exact_at_the_extremes(library: Any, inputs: int) -> None:
    """No sum wraps where all weights and activations are as large as they get."""
    rng = np.random.default_rng(inputs)
    for rows in (*range(1, 12), 60, 61, 123):
        outputs = (1, 3, 37, 64)[rows % 4]
        a = np.full((rows, inputs), 32639, dtype=np.int16)
        w = np.full((outputs, inputs), 127, dtype=np.int8)
        if rows % 3:
            a[rng.random(a.shape) < 0.5] *= -1
            w[:] = rng.integers(-127, 128, w.shape)
        scale, half = np.full(outputs, 2.0**-3), np.full(outputs, 0.5)
        y = np.empty((rows, outputs))
        library.exact_product(
            *(a.ctypes.data, rows, inputs, w.ctypes.data, outputs, 512),
            *(scale.ctypes.data, half.ctypes.data, None, 0, y.ctypes.data),
        )
        want = (a.astype(np.int64) @ w.T.astype(np.int64) + 4) >> 3
        assert np.array_equal(y.astype(np.int64), want), rows


@pytest.mark.parametrize("head_dim", [6, 32, 40, 64, 96, 128, 160, 256])
def test_attention_of_every_width_is_exact_over_scattered_tokens(
    tmp_path: Path, library: Any, head_dim: int
) -> None:
    """Contexts beyond what is summed at once, in runs of odd lengths."""
    from node.inference.exact.native import NativeModel

    config, tensors = exact_models.random_checkpoint(
        head_dim, head_dim=head_dim, num_hidden_layers=1, max_position_embeddings=1000
    )
    for name, values in tensors.items():  # sharp and flat attention, saturated heads
        if "q_proj" in name or "k_proj" in name:
            values *= np.float32(0.05 if head_dim % 64 else 20.0)
    folder = exact_models.write_checkpoint(tmp_path, (config, tensors))
    whole = quantise.load_integers(folder)
    model, kernel = ExactModel(whole), NativeModel(whole, library)
    ids = np.random.default_rng(head_dim).integers(0, config["vocab_size"], 190).tolist()
    want = model.forward([Span(model.new_cache(), ids, len(ids))])[0]
    pool = kernel.new_pool(1 << 10)
    caches = [pool.open(ids, len(ids)) for _ in range(2)]
    at = 0
    for window in (33, 1, 31, 2, 64, 3, 56):  # in turns, so that their blocks lie scattered
        for rows in (
            kernel.forward([Span(cache, ids[at : at + window], window)])[0] for cache in caches
        ):
            assert torch.equal(rows.hidden, want.hidden[at : at + window]), at
            assert torch.equal(rows.logits, want.logits[at : at + window]), at
        at += window


def test_the_kernel_gives_the_oracles_bits(tmp_path: Path, library: Any) -> None:
    from node.inference.exact.native import NativeModel

    for seed in range(12):
        config, tensors = exact_models.random_checkpoint(seed)
        if seed % 3 == 0:
            tensors = {name: values * np.float32(4) for name, values in tensors.items()}
        folder = exact_models.write_checkpoint(tmp_path / str(seed), (config, tensors))
        model = NativeModel(quantise.load_integers(folder), library)
        ids = np.random.default_rng(seed).integers(0, config["vocab_size"], 6).tolist()
        assert integers(model, ids) == run_oracle(Oracle(config, tensors), ids), seed


def test_the_kernel_agrees_in_windows_batches_and_scattered_caches(
    whole: quantise.IntegerModel, model: ExactModel, text: list[int], library: Any
) -> None:
    from node.inference.exact.native import NativeModel

    kernel = NativeModel(whole, library)
    expected = model.forward([Span(model.new_cache(), text, len(text))])[0]
    pool = kernel.new_pool(1 << 10)
    caches = [pool.open(text, len(text)) for _ in range(2)]
    other = kernel.new_cache()
    at = 0
    for window in (40, 1, 2, 3, 4, 5, 8, 10):
        part = text[at : at + window]
        spans = [Span(cache, part, window) for cache in (*caches, other)]
        for rows in kernel.forward(spans):
            assert torch.equal(rows.hidden, expected.hidden[at : at + window]), window
            assert torch.equal(rows.logits, expected.logits[at : at + window]), window
        at += window
        caches[0].truncate(at - 1)
        kernel.forward([Span(caches[0], [text[at - 1]])])


def test_a_kernel_that_differs_is_refused(
    whole: quantise.IntegerModel, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from node.inference.exact import native

    class Off:
        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

        def exact_norm(self, x: int, n: int, d: int, gains: int, t: int, e: int, a: int) -> None:
            library.exact_norm(x, n, d, gains, t, e + 2000, a)

    with pytest.raises(products.InexactBackend, match="kernel"):
        native.NativeModel(whole, Off())


def test_the_kernel_is_built_when_a_model_is_first_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_exact(SHIPPED / "tiny" / "draft").backend.endswith("+ kernel")
    assert len(list((tmp_path / "verdraft" / "native").glob("kernel-*.so"))) == 1


@pytest.mark.parametrize("why", ["off", "no compiler", "broken compiler", "no room"])
def test_where_the_kernel_cannot_be_built_torch_computes(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from node.inference.exact import native

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if why == "off":
        monkeypatch.setenv("VERDRAFT_COMPILE", "off")
    elif why == "no compiler":
        monkeypatch.setattr("shutil.which", lambda name: None)
    elif why == "broken compiler":
        monkeypatch.setattr("shutil.which", lambda name: name)
        broken = tmp_path / "cc"
        broken.write_text("#!/bin/sh\necho no such target >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    else:
        (tmp_path / "verdraft").write_text("a file where the cache should be")
    said = {"off": "off", "no compiler": "no C compiler", "broken compiler": "no such target"}
    with pytest.raises(native.NoCompiler, match=said.get(why, "cannot be compiled")):
        native.load()
    assert type(load_exact(SHIPPED / "tiny" / "draft")) is ExactModel
