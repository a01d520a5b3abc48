"""Pseudo-random valid records, and the JSON form of what a vector holds."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from settlement import records
from settlement.records import MASS_TOTAL, NO_CUTOFF, Mode
from settlement.schema import Record


def shown(value: Any) -> Any:
    """The JSON form of bytes, integers, tuples and records."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value) if abs(int(value)) < 1 << 32 else str(int(value))
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value]


def wide(rng: Random, bits: int) -> int:
    """An integer of up to `bits` bits, small ones as likely as large ones."""
    return rng.getrandbits(bits) >> rng.randrange(bits)


def order_of(rng: Random, mode: Mode, **changes: Any) -> records.Order:
    """A valid order with pseudo-random fields; `changes` replace some."""
    rejection = mode == Mode.REJECTION
    values: dict[str, Any] = {
        "request_id": rng.randbytes(32),
        "parent_session": bytes(32),
        "start_position": 0,
        "context_hash": bytes(32),
        "client": rng.randbytes(20),
        "drafter": rng.randbytes(20),
        "verifier": rng.randbytes(20),
        "token": rng.randbytes(20),
        "target_model": rng.randbytes(32),
        "draft_model": rng.randbytes(32),
        "mode": int(mode),
        "temperature": 0 if mode == Mode.GREEDY else rng.randint(1, 2**18),
        "top_k": rng.choice((0, 40)),
        "top_p": rng.choice((65536, 62259)),
        "repetition_penalty": 65536,
        "presence_penalty": rng.choice((0, -6554, 2**31 - 1, -(2**31))),
        "frequency_penalty": 0,
        "stop_ids": tuple(sorted(rng.sample(range(2**17), rng.randrange(4)))),
        "stop_string_hashes": tuple(rng.randbytes(32) for _ in range(rng.randrange(3))),
        "template_hash": rng.randbytes(32),
        "relax_tau": 0,
        "key_target_surprisal": rng.randint(0, 2**18),
        "key_draft_surprisal": rng.randint(0, 2**18),
        "key_overlap": rng.randint(0, 65536),
        "max_window": rng.randint(1, 32),
        "noise_version": 1,
        "price_accepted": wide(rng, 96),
        "price_output": wide(rng, 96),
        "max_tokens": rng.randint(300, 2**20),
        "prompt_hash": rng.randbytes(32),
        "claim_id": rng.choice((bytes(32), rng.randbytes(32))),
        "seed_policy": 0,
        "nonce_commit_client": rng.randbytes(32),
        "nonce_commit_verifier": rng.randbytes(32),
        "anchor_verifier": rng.randbytes(32) if rejection else bytes(32),
        "anchor_drafter": rng.randbytes(32) if rejection else bytes(32),
        "disclosure": rng.randrange(3),
        "deadline": rng.randint(2**30, 2**34),
        "nonce": rng.getrandbits(64),
    }
    return records.Order(**(values | changes))


def successor_of(rng: Random) -> records.Order:
    return order_of(
        rng,
        Mode.COUPLED,
        parent_session=rng.randbytes(32),
        context_hash=rng.randbytes(32),
        start_position=17,
        relax_tau=3 << 22,
    )


def round_of(rng: Random, **changes: Any) -> records.RoundRecord:
    """A round record whose sums fit together."""
    proposed = [rng.choice((0, 0, rng.randrange(9))) for _ in range(records.BUCKETS)]
    accepted = [rng.randint(0, count) for count in proposed]
    sums = records.Sums(sum(accepted) + 1, sum(accepted), tuple(proposed), tuple(accepted))
    values: dict[str, Any] = {
        name: rng.randbytes(32)
        for name in ("start_hash", "draft_root", "verdict_root", "draft_commit_hash")
    }
    return records.RoundRecord(
        **values
        | {"round": rng.getrandbits(16), "verdict_hash": rng.randbytes(32)}
        | {"output": sums.output, "accepted": sums.accepted, "buckets": sums.buckets}
        | changes
    )


def voucher_of(rng: Random) -> records.Voucher:
    sums = records.Sums(
        wide(rng, 63),
        wide(rng, 63),
        tuple(wide(rng, 63) for _ in range(16)),
        tuple(wide(rng, 63) for _ in range(16)),
    )
    return records.Voucher(
        rng.randbytes(32), rng.getrandbits(32), sums.output, sums.accepted, wide(rng, 128),
        wide(rng, 128), rng.randbytes(32), rng.randbytes(32), wide(rng, 32), sums.buckets,
    )  # fmt: skip


def draft_leaf_of(rng: Random, **changes: Any) -> records.DraftLeaf:
    q = wide(rng, 63)
    values: dict[str, Any] = {
        "position": rng.randrange(300),
        "token": rng.randrange(2**17),
        "q": q,
        "q_below": rng.randint(0, MASS_TOTAL - q),
        "kept_hash": rng.randbytes(32),
        "surprisal": wide(rng, 20),
        "top_hash": rng.randbytes(32),
    }
    return records.DraftLeaf(**(values | changes))


def verdict_leaf_of(rng: Random, **changes: Any) -> records.VerdictLeaf:
    values: dict[str, Any] = {
        "position": rng.randrange(300),
        "draft_token": rng.randrange(2**17),
        "token": rng.randrange(2**17),
        "accepted": False,
        "p": wide(rng, 64),
        "top_prob": rng.getrandbits(16),
        "cutoff": rng.choice((NO_CUTOFF, -wide(rng, 40), wide(rng, 40))),
        "score_draft": 0,
        "score_top": 0,
        "surprisal": 0,
        "key": False,
        "fingerprint": rng.randbytes(32),
    }
    return records.VerdictLeaf(**(values | changes))
