"""The noise on a torch device has the bits of the NumPy noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from node.inference.noise_torch import _gumbel_q24, noise_rows
from settlement.noise import NoiseError, gumbel_q24, noise_row

SEED = bytes(range(32))
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_the_same_bits(device: str) -> None:
    positions = [0, 1, 77, 2**32, 2**64 - 1]
    for vocab_size in (1, 2, 7, 49152):
        rows = noise_rows(SEED, positions, vocab_size, device)
        assert rows.dtype == torch.int64
        assert rows.shape == (len(positions), vocab_size)
        for row, position in zip(rows.cpu().numpy(), positions, strict=True):
            assert np.array_equal(row, noise_row(SEED, position, vocab_size))


@pytest.mark.parametrize("device", DEVICES)
@given(
    st.lists(
        st.one_of(
            st.integers(0, 2**64 - 1),
            st.integers(0, 63).map(lambda bit: 1 << bit),
            st.integers(0, 63).map(lambda bit: 2**64 - (1 << bit)),
            st.integers(2**63 - 3, 2**63 + 3),
        ),
        min_size=1,
    )
)
def test_every_step_has_the_same_bits_at_the_edges(device: str, values: list[int]) -> None:
    high = torch.tensor([r >> 32 for r in values], device=device)
    low = torch.tensor([r & 0xFFFFFFFF for r in values], device=device)
    expected = gumbel_q24(np.array(values, dtype=np.uint64)).tolist()
    assert _gumbel_q24(high, low).tolist() == expected


def test_seeds_and_positions_are_checked() -> None:
    with pytest.raises(NoiseError):
        noise_rows(bytes(31), [0], 4)
    with pytest.raises(NoiseError):
        noise_rows(SEED, [-1], 4)
