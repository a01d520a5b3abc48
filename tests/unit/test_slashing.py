"""The division of a slash: nothing is made, a quarter is lost, no friend brings half of it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settlement.slashing import BPS, MAX_VICTIMS, SlashError, Split, court_losses, slash

amounts = st.one_of(st.integers(0, 50), st.integers(0, 2**96))
losses = st.lists(amounts, max_size=MAX_VICTIMS + 2)
shares = st.integers(0, BPS + 50)


@given(amounts, shares, losses, shares, st.booleans())
def test_what_is_taken_is_what_is_given_and_burned(
    stake: int, bps: int, lost: list[int], reward: int, challenged: bool
) -> None:
    got = slash(stake, bps, lost, reward, challenged)
    assert 0 <= got.total <= stake
    assert got.burned * 4 >= got.total
    assert got.to_challenger * 2 <= got.total
    assert challenged or got.to_challenger == 0
    assert len(got.to_victims) == len(lost)
    for to, loss in zip(got.to_victims, lost, strict=True):
        assert 0 <= to <= loss
    assert got.total == got.burned + got.returned


@given(st.integers(1, 2**96), st.integers(1, BPS))
def test_no_stake_is_too_small_to_be_punished(stake: int, bps: int) -> None:
    assert slash(stake, bps).total >= 1
    assert slash(stake, bps).burned == slash(stake, bps).total


@given(amounts, shares, shares, amounts, amounts)
def test_a_court_gives_victims_no_more_than_its_share(
    stake: int, fault_bps: int, victim_bps: int, client: int, harmed: int
) -> None:
    cut = court_losses(stake, fault_bps, victim_bps, client, harmed)
    assert sum(cut) <= stake * fault_bps // BPS * victim_bps // BPS
    assert cut[0] <= client
    assert cut[1] <= harmed


def test_figures_by_hand() -> None:
    # 50 % of 1,000: 125 burned first, the client's 40 and D's 20, a quarter of 500 to the accuser.
    assert slash(1_000, 5_000, (40, 20), 2_500) == Split(500, (40, 20), 125)
    assert slash(1_000, 5_000, (40, 20), 2_500).burned == 315
    # More is asked than there is: victims share 375, and nothing is left for the accuser.
    assert slash(1_000, 5_000, (300, 900), 5_000) == Split(500, (93, 281), 1)
    assert court_losses(1_000, 5_000, 2_500, 300, 900) == (31, 93)


def test_impossible_figures_are_refused() -> None:
    for arguments in ((-1, 1), (1, -1), (1, 1, (-1,)), (1, 1, (), -1)):
        with pytest.raises(SlashError):
            slash(*arguments)
    with pytest.raises(SlashError):
        court_losses(1, 1, 1, -1, 0)
