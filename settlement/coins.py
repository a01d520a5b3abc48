"""Where a session's randomness comes from: nonces, seeds, hash chains and the coins cut from them.

Everything is Keccak-256 over a domain tag and fixed-width big-endian fields, so a contract repeats
it with `abi.encodePacked`. The noise of coupled mode is in `noise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from settlement.hashing import (
    TAG_CHAIN,
    TAG_CLIENT_SEED,
    TAG_COIN,
    TAG_DRAW,
    TAG_NONCE,
    TAG_SEED,
    keccak256,
    uint,
)
from settlement.records import MASS_TOTAL

MAX_CHAIN: Final = 1 << 16  # links; more rounds than any session has


class CoinError(ValueError):
    """A nonce, seed, chain value or position of the wrong size, or a chain that does not verify."""


class Purpose(IntEnum):
    """What a rejection coin of V decides. One coin for each, so that none is used twice."""

    ACCEPT = 0
    RESIDUAL = 1
    BONUS = 2


def _word(name: str, value: bytes) -> bytes:
    if len(value) != 32:
        raise CoinError(f"{name} has 32 bytes, not {len(value)}: 0x{value.hex()}")
    return value


def _position(position: int) -> bytes:
    if not 0 <= position < 1 << 64:
        raise CoinError(f"a position is a uint64, not {position}")
    return uint(position, 8)


# ---------------------------------------------------------------- the seed


def nonce_commitment(nonce: bytes) -> bytes:
    """keccak256(TAG_NONCE ‖ nonce): what an order carries until the nonce is revealed."""
    return keccak256(TAG_NONCE, _word("nonce", nonce))


def joint_seed(request_id: bytes, nonce_client: bytes, nonce_verifier: bytes) -> bytes:
    """S = keccak256(TAG_SEED ‖ requestId ‖ nonceC ‖ nonceV), all 32 bytes (seed policy joint)."""
    return keccak256(
        TAG_SEED,
        _word("request id", request_id),
        _word("client's nonce", nonce_client),
        _word("verifier's nonce", nonce_verifier),
    )


def client_seed(seed: int, target_model: bytes, prompt_ids: Sequence[int]) -> bytes:
    """S under seed policy client: keccak256(TAG_CLIENT_SEED ‖ int64 seed ‖ targetModel ‖
    keccak256(uint32 prompt ids)).

    Only what a repeated request has in common goes in: neither the request id, nor the salted
    prompt hash, nor the draft model, which must not change the text.
    """
    if not -(1 << 63) <= seed < 1 << 63:
        raise CoinError(f"a seed is an int64, not {seed}")
    if any(not 0 <= token < 1 << 32 for token in prompt_ids):
        raise CoinError("prompt ids are uint32")
    return keccak256(
        TAG_CLIENT_SEED,
        seed.to_bytes(8, "big", signed=True),
        _word("target model id", target_model),
        keccak256(*(uint(token, 4) for token in prompt_ids)),
    )


# ---------------------------------------------------------------- hash chains


def chain_step(value: bytes) -> bytes:
    """v_{i−1} = keccak256(TAG_CHAIN ‖ v_i)."""
    return keccak256(TAG_CHAIN, _word("chain value", value))


def chain(secret: bytes, length: int) -> tuple[bytes, ...]:
    """(v_0, …, v_length) with v_length = `secret`. v_0 is the anchor that the order names.

    Round r (from 0) uses v_{r+1}, so a chain of `length` serves `length` rounds: v_0 is public
    before the first draft and must never be a coin.
    """
    if not 0 < length <= MAX_CHAIN:
        raise CoinError(f"a chain has 1 to {MAX_CHAIN} links, not {length}")
    values = [_word("secret", secret)]
    for _ in range(length):
        values.append(chain_step(values[-1]))
    return tuple(reversed(values))


def round_value(values: Sequence[bytes], round_index: int) -> bytes:
    """The chain value that travels in round `round_index` (from 0): values[round_index + 1].
    CoinError when the chain is used up; open a successor session then."""
    if not 0 <= round_index < len(values) - 1:
        raise CoinError(
            f"round {round_index} is past a chain of {len(values) - 1} rounds: hand over to a "
            "successor session with fresh chains"
        )
    return values[round_index + 1]


def anchor_of(value: bytes, round_index: int) -> bytes:
    """The anchor that `value` leads to if it is round `round_index`'s: round_index + 1 steps. With
    the value of the round before at hand, one `chain_step` to that says the same."""
    if not 0 <= round_index < MAX_CHAIN:
        raise CoinError(f"a round is in [0, {MAX_CHAIN}), not {round_index}")
    for _ in range(round_index + 1):
        value = chain_step(value)
    return value


# ---------------------------------------------------------------- coins


def coin(chain_value: bytes, seed: bytes, position: int, purpose: Purpose) -> int:
    """V's coin: the first 64 bits of keccak256(TAG_COIN ‖ v_r ‖ S ‖ uint64 position ‖ uint8
    purpose), big-endian, uniform in [0, 2**64)."""
    digest = keccak256(
        TAG_COIN,
        _word("chain value", chain_value),
        _word("seed", seed),
        _position(position),
        uint(Purpose(purpose), 1),
    )
    return int.from_bytes(digest[:8], "big")


def draw_coin(chain_value: bytes, seed: bytes, context_hash: bytes, position: int) -> int:
    """D's w′ = (w · (2**64 − 1)) >> 64, w the first 64 bits of keccak256(TAG_DRAW ‖ d_r ‖ S ‖
    contextHash ‖ uint64 position). contextHash is c at the round's base. w′ is in [0, 2**64 − 2];
    D's token is the one with qBelow ≤ w′ < qBelow + q."""
    digest = keccak256(
        TAG_DRAW,
        _word("chain value", chain_value),
        _word("seed", seed),
        _word("context hash", context_hash),
        _position(position),
    )
    return int.from_bytes(digest[:8], "big") * MASS_TOTAL >> 64
