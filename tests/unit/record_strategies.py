"""Hypothesis strategies for every record, built from the records' own field types."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from settlement.records import (
    BUCKETS,
    LEAF_RECORDS,
    MAX_LANE_COUNT,
    NO_TOKEN,
    SIGNED_RECORDS,
    Claim,
    Lane,
    Mode,
    Order,
    RoundRecord,
    SeedPolicy,
    Sums,
    Voucher,
)
from settlement.schema import FieldSpec, Record

ALL_RECORDS: tuple[type[Record], ...] = (Lane, *SIGNED_RECORDS, *LEAF_RECORDS)

words = st.binary(min_size=32, max_size=32)
nonzero_words = words.filter(any)
addresses = st.binary(min_size=20, max_size=20)
token_ids = st.integers(0, NO_TOKEN - 1)
counts = st.one_of(st.integers(0, 50), st.integers(0, MAX_LANE_COUNT))


def _element(name: str) -> st.SearchStrategy[Any]:
    if name == "bool":
        return st.booleans()
    if name == "bytes32":
        return words
    if name == "address":
        return addresses
    bits = int(name.lstrip("uint"))
    if name.startswith("u"):
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _field(spec: FieldSpec) -> st.SearchStrategy[Any]:
    element = _element(spec.element.name)
    if spec.length is None:
        return element
    low, high = (0, 4) if spec.length < 0 else (spec.length, spec.length)
    return st.lists(element, min_size=low, max_size=high).map(tuple)


@st.composite
def sums(draw: st.DrawFn, each: st.SearchStrategy[int] = counts) -> Sums:
    lanes = st.lists(each, min_size=BUCKETS, max_size=BUCKETS).map(tuple)
    return Sums(draw(each), draw(each), draw(lanes), draw(lanes))


@st.composite
def orders(draw: st.DrawFn, **fixed: Any) -> Order:
    values = {
        spec.name: fixed[spec.name] if spec.name in fixed else draw(_field(spec))
        for spec in Order.specs()
    }
    mode = fixed.get("mode", draw(st.sampled_from(list(Mode))))
    rejection, first = mode == Mode.REJECTION, draw(st.booleans())
    start = 0 if first else draw(st.integers(0, 2**20))
    zero = bytes(32)
    made = {
        "mode": int(mode),
        "temperature": 0 if mode == Mode.GREEDY else draw(st.integers(1, 2**32 - 1)),
        "top_p": draw(st.integers(1, 65536)),
        "repetition_penalty": draw(st.integers(1, 2**32 - 1)),
        "stop_ids": tuple(sorted(set(values["stop_ids"]))),
        "relax_tau": 0 if rejection else values["relax_tau"],
        "noise_version": 1,
        "seed_policy": int(SeedPolicy.JOINT) if rejection else draw(st.integers(0, 1)),
        "disclosure": draw(st.integers(0, 2)),
        "parent_session": zero if first else draw(nonzero_words),
        "context_hash": zero if first else draw(nonzero_words),
        "start_position": start,
        "max_tokens": draw(st.integers(start + 1, 2**32 - 1)),
        "anchor_verifier": draw(nonzero_words) if rejection else zero,
        "anchor_drafter": draw(nonzero_words) if rejection else zero,
    }
    return Order(**(values | made | fixed))


@st.composite
def records(draw: st.DrawFn, kind: type[Record]) -> Any:
    """Any valid record of `kind`."""
    if kind is Order:
        return draw(orders())
    values = {spec.name: draw(_field(spec)) for spec in kind.specs()}
    if kind is Claim:
        rates = st.lists(st.integers(6, 99), min_size=BUCKETS, max_size=BUCKETS)
        values |= {"mode": draw(st.integers(0, 2)), "rates": tuple(draw(rates))}
    if kind in (RoundRecord, Voucher):
        lanes = draw(sums())
        values |= {"output": lanes.output, "accepted": lanes.accepted, "buckets": lanes.buckets}
    return kind(**values)


any_record: st.SearchStrategy[Any] = st.sampled_from(ALL_RECORDS).flatmap(records)
