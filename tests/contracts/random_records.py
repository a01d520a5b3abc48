"""Random valid records, a fifth of whose fields sit at the ends of their ranges."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from settlement.records import (
    BUCKETS,
    MASS_TOTAL,
    MAX_LANE_COUNT,
    NO_TOKEN,
    Claim,
    Manifest,
    Mode,
    Order,
    RoundRecord,
    SeedPolicy,
    Sums,
    Tier,
    Voucher,
)
from settlement.schema import FieldSpec, Record

ZERO = bytes(32)


def value_of(rng: Random, kind: str) -> Any:
    """A value of a static Solidity type; every fifth at an end of its range."""
    edge = rng.random() < 0.2
    if kind == "bool":
        return rng.random() < 0.5
    if kind in ("bytes32", "address"):
        size = 32 if kind == "bytes32" else 20
        return rng.choice((bytes(size), b"\xff" * size)) if edge else rng.randbytes(size)
    bits = int(kind.lstrip("uint"))
    low, high = (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice((low, high)) if edge else rng.randint(low, high)


def field_of(rng: Random, spec: FieldSpec) -> Any:
    if spec.length is None:
        return value_of(rng, spec.element.name)
    count = spec.length if spec.length >= 0 else rng.choice((0, 1, 2, 5, 17))
    return tuple(value_of(rng, spec.element.name) for _ in range(count))


def sums_of(rng: Random, limit: int = MAX_LANE_COUNT) -> Sums:
    """Lanes of every size up to `limit`."""

    def lane() -> int:
        return rng.choice((0, limit)) if rng.random() < 0.2 else rng.randint(0, limit)

    return Sums(
        lane(),
        lane(),
        tuple(lane() for _ in range(BUCKETS)),
        tuple(lane() for _ in range(BUCKETS)),
    )


def record_of(rng: Random, kind: type[Record]) -> Any:
    """A record that its own constructor takes."""
    values = {spec.name: field_of(rng, spec) for spec in kind.specs()}
    if kind is Order:
        _make_order_valid(rng, values)
    if kind is Claim:
        values["mode"] = int(rng.choice(list(Mode)))
        values["rates"] = tuple(rng.randint(6, 99) for _ in range(BUCKETS))
    if kind in (RoundRecord, Voucher):
        sums = sums_of(rng)
        values.update(output=sums.output, accepted=sums.accepted, buckets=sums.buckets)
    return kind(**values)


def _make_order_valid(rng: Random, values: dict[str, Any]) -> None:
    mode = rng.choice(list(Mode))
    rejection = mode == Mode.REJECTION
    first = rng.random() < 0.5
    values.update(
        mode=int(mode),
        temperature=0 if mode == Mode.GREEDY else rng.randint(1, 2**32 - 1),
        top_p=rng.randint(1, 65536),
        repetition_penalty=rng.randint(1, 2**32 - 1),
        stop_ids=tuple(sorted(set(values["stop_ids"]))),
        relax_tau=0 if rejection else values["relax_tau"],
        noise_version=1,
        seed_policy=int(SeedPolicy.JOINT if rejection else rng.choice(list(SeedPolicy))),
        disclosure=rng.randrange(3),
        parent_session=ZERO if first else rng.randbytes(32),
        context_hash=ZERO if first else rng.randbytes(32),
        start_position=0 if first else rng.randint(0, 2**31),
        max_tokens=rng.randint(2**31 + 1, 2**32 - 1),
        anchor_verifier=rng.randbytes(32) if rejection else ZERO,
        anchor_drafter=rng.randbytes(32) if rejection else ZERO,
    )


def manifest_of(rng: Random) -> Manifest:
    vocabulary = rng.randint(1, NO_TOKEN - 1)
    name = "".join(rng.choice("abcdeλτ-0") for _ in range(rng.randint(1, 32)))
    return Manifest(
        architecture=name,
        tier=rng.choice(list(Tier)),
        weights_root=rng.randbytes(32),
        tokenizer_hash=rng.randbytes(32),
        vocab_size=vocabulary,
        eos_ids=tuple(rng.randrange(vocabulary) for _ in range(rng.choice((0, 1, 3, 64)))),
        context_length=rng.randint(1, NO_TOKEN),
    )


def kept_of(rng: Random, count: int | None = None) -> tuple[tuple[int, int], ...]:
    """A kept list whose masses sum to 2**64 − 1 exactly."""
    count = count or rng.choice((1, 2, 3, 8, 63, 64))
    ids = sorted([*rng.sample(range(1 << 17), count - 1), rng.choice((1 << 17, NO_TOKEN - 1))])
    cuts: set[int] = set()
    while len(cuts) < count - 1:
        # Shifted, so that small masses occur too.
        cuts.add(1 + rng.randrange(MASS_TOTAL - 1) >> rng.choice((0, 0, 0, 40)))
        cuts.discard(0)
    masses = [after - before for before, after in pairwise([0, *sorted(cuts), MASS_TOTAL])]
    return tuple(zip(ids, masses, strict=True))


def pack_kept(kept: tuple[tuple[int, int], ...]) -> bytes:
    """The preimage of `records.kept_hash` behind its tag."""
    return b"".join(t.to_bytes(4, "big") + m.to_bytes(8, "big") for t, m in kept)


def pack_ids(ids: tuple[int, ...] | list[int]) -> bytes:
    return b"".join(token.to_bytes(4, "big") for token in ids)
