"""Seeds, chains and coins: every input is bound, and no value is known too early."""

from __future__ import annotations

from collections import Counter

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import words

from settlement.coins import (
    MAX_CHAIN,
    CoinError,
    Purpose,
    anchor_of,
    chain,
    chain_step,
    client_seed,
    coin,
    draw_coin,
    joint_seed,
    nonce_commitment,
    round_value,
)

A, B, C = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32


def test_hashes_are_over_tag_and_fields_in_order() -> None:
    assert nonce_commitment(A) == keccak(b"verdraft/nonce/1" + A)
    assert joint_seed(A, B, C) == keccak(b"verdraft/seed/1" + A + B + C)
    prompt = keccak(bytes([0, 0, 0, 7, 0, 0, 1, 0]))
    assert client_seed(-2, B, [7, 256]) == keccak(
        b"verdraft/client-seed/1" + b"\xff" * 7 + b"\xfe" + B + prompt
    )
    digest = keccak(b"verdraft/coin/1" + A + B + (9).to_bytes(8, "big") + b"\x02")
    assert coin(A, B, 9, Purpose.BONUS) == int.from_bytes(digest[:8], "big")
    digest = keccak(b"verdraft/draw/1" + A + B + C + (9).to_bytes(8, "big"))
    assert draw_coin(A, B, C, 9) == int.from_bytes(digest[:8], "big") * (2**64 - 1) >> 64


@given(words, words, st.integers(0, 2**64 - 1), st.sampled_from(Purpose))
def test_coins_are_64_bits_and_draws_stay_below_the_total(
    value: bytes, seed: bytes, position: int, purpose: Purpose
) -> None:
    assert 0 <= coin(value, seed, position, purpose) < 2**64
    assert 0 <= draw_coin(value, seed, seed, position) < 2**64 - 1


def test_no_two_coins_are_the_same() -> None:
    seen = Counter(
        coin(value, seed, position, purpose)
        for value in (A, B)
        for seed in (A, B)
        for position in (0, 1, 256)
        for purpose in Purpose
    )
    assert max(seen.values()) == 1
    draws = {
        draw_coin(value, seed, context, position)
        for value in (A, B)
        for seed in (A, B)
        for context in (A, B)
        for position in (0, 1)
    }
    assert len(draws) == 16


@given(words, st.integers(1, 12))
def test_a_chain_verifies_in_its_round_and_in_no_other(secret: bytes, length: int) -> None:
    values = chain(secret, length)
    assert len(values) == length + 1
    assert values[-1] == secret
    anchor = values[0]
    for index in range(length):
        value = round_value(values, index)
        assert anchor_of(value, index) == anchor
        # One step from the round before is the same check.
        assert chain_step(value) == (anchor if index == 0 else round_value(values, index - 1))
        assert anchor_of(value, index + 1) != anchor


def test_the_first_round_does_not_use_the_public_anchor() -> None:
    values = chain(A, 3)
    assert round_value(values, 0) != values[0]
    assert anchor_of(values[0], 0) != values[0]


def test_a_used_up_chain_says_what_to_do() -> None:
    values = chain(A, 3)
    with pytest.raises(CoinError, match="successor session"):
        round_value(values, 3)
    with pytest.raises(CoinError):
        round_value(values, -1)
    for length in (0, MAX_CHAIN + 1):
        with pytest.raises(CoinError):
            chain(A, length)
    for index in (-1, MAX_CHAIN):
        with pytest.raises(CoinError):
            anchor_of(A, index)


def test_a_clients_seed_repeats_for_the_same_request_only() -> None:
    base = client_seed(1, A, (5, 6))
    assert base == client_seed(1, A, [5, 6])
    for other in ((2, A, (5, 6)), (1, B, (5, 6)), (1, A, (5,)), (1, A, (6, 5))):
        assert client_seed(*other) != base


@pytest.mark.parametrize(
    "call",
    [
        lambda: nonce_commitment(bytes(31)),
        lambda: joint_seed(A, B, bytes(33)),
        lambda: joint_seed(b"", B, C),
        lambda: client_seed(2**63, A, ()),
        lambda: client_seed(0, b"", ()),
        lambda: client_seed(0, A, (2**32,)),
        lambda: client_seed(0, A, (-1,)),
        lambda: chain_step(b""),
        lambda: chain(bytes(31), 2),
        lambda: coin(A, B, -1, Purpose.ACCEPT),
        lambda: coin(A, B, 2**64, Purpose.ACCEPT),
        lambda: coin(A, bytes(31), 0, Purpose.ACCEPT),
        lambda: draw_coin(A, B, bytes(31), 0),
    ],
)
def test_values_of_the_wrong_size_are_refused(call) -> None:
    with pytest.raises(CoinError):
        call()


def test_an_unknown_purpose_is_refused() -> None:
    with pytest.raises(ValueError, match="3"):
        coin(A, B, 0, 3)  # type: ignore[arg-type]
