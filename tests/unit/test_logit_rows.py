"""The compiled work on rows of logits against torch, which says what the result is."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from node.inference import compiled, logit_rows
from settlement.noise import SCORE_LIMIT

finite = st.floats(-1e6, 1e6, width=32)
anything = st.floats(width=32)


@pytest.fixture
def made() -> object:
    found = logit_rows.library()
    if found is None:
        pytest.skip("no C compiler here")
    return found


@given(
    st.lists(st.one_of(finite, anything), min_size=1, max_size=70),
    st.integers(1, 1 << 20),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_scores_have_torchs_bits(values: list[float], temperature: int, dtype: torch.dtype) -> None:
    found = logit_rows.library()
    if found is None:
        pytest.skip("no C compiler here")
    z = torch.tensor([values, values[::-1]], dtype=dtype)
    for rows in (z, z[:, : max(1, len(values) - 3)], z[1:]):  # rows that lie apart, too
        want = logit_rows._plain_scores(rows, temperature)
        assert torch.equal(logit_rows._compiled_scores(found, rows, temperature), want)
        assert torch.equal(logit_rows.fixed_point(rows, temperature), want)


@given(st.lists(st.integers(-(1 << 56), 1 << 56), min_size=1, max_size=70), st.integers(0, 40))
def test_top_probabilities_have_torchs_bits(values: list[int], closer: int) -> None:
    found = logit_rows.library()
    if found is None:
        pytest.skip("no C compiler here")
    z = torch.tensor([[v >> closer for v in values]] * 2, dtype=torch.float64) * 2.0**-24
    want = logit_rows._plain_tops(z)
    assert torch.equal(logit_rows._compiled_tops(found, z), want)
    assert torch.equal(logit_rows.top_probabilities(z), want)


def test_a_real_vocabulary_has_torchs_bits(made: object) -> None:
    generator = torch.Generator().manual_seed(3)
    z = torch.randn((3, 49152), generator=generator, dtype=torch.float64) * 6
    z = (z * 2.0**24).round() * 2.0**-24
    assert torch.equal(logit_rows.fixed_point(z, 45_875), logit_rows._plain_scores(z, 45_875))
    assert torch.equal(logit_rows.top_probabilities(z), logit_rows._plain_tops(z))


def test_what_a_row_of_floats_cannot_be_is_the_lowest_score(made: object) -> None:
    z = torch.tensor([[math.nan, math.inf, -math.inf]])
    assert logit_rows.fixed_point(z, 1 << 16)[0].tolist() == [
        -SCORE_LIMIT,
        SCORE_LIMIT,
        -SCORE_LIMIT,
    ]


def test_torch_answers_where_the_library_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(2, 9, dtype=torch.float64)
    across = z.t()  # no row in one piece
    assert torch.equal(
        logit_rows.fixed_point(across, 1 << 16), logit_rows._plain_scores(across, 1 << 16)
    )
    assert logit_rows.fixed_point(torch.empty(0, 4), 1 << 16).shape == (0, 4)
    half = z.bfloat16()
    assert torch.equal(logit_rows.fixed_point(half, 9), logit_rows._plain_scores(half, 9))

    def none(_source: object) -> None:
        raise compiled.NoCompiler("none here")

    monkeypatch.setattr(compiled, "build", none)
    logit_rows.library.cache_clear()
    try:
        assert logit_rows.library() is None
        assert torch.equal(logit_rows.fixed_point(z, 7), logit_rows._plain_scores(z, 7))
        assert torch.equal(logit_rows.top_probabilities(z), logit_rows._plain_tops(z))
    finally:
        monkeypatch.undo()
        logit_rows.library.cache_clear()


def test_a_library_that_differs_by_one_bit_is_refused(made: object) -> None:
    class Off:
        def __getattr__(self, name: str) -> object:
            right = getattr(made, name)

            def wrong(*args: object) -> None:
                right(*args)
                if name == "top_probabilities":
                    tops = logit_rows.ctypes.c_int64.from_address(args[-1])  # type: ignore[arg-type]
                    tops.value ^= 1

            return wrong

    assert logit_rows._agrees(made)
    assert not logit_rows._agrees(Off())
