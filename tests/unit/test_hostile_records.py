"""Whatever a counterparty signs, looking for its faults ends in faults or in none: never in an
exception, which would end the watcher that has to defend this node's stake."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played_sessions import DRAFTER, play, sealed

from settlement import trees
from settlement.draws import RoundEvidence
from settlement.faults import equivocations, find_faults
from settlement.records import Domain, Mode
from settlement.round_faults import round_faults
from settlement.schema import Record, RecordError

DOMAIN = Domain(31337, b"\x0e" * 20)
EXTREMES = (0, 1, 2, 7, 255, 65_535, 65_536, 2**31, 2**32 - 2, 2**32 - 1, 2**63, 2**64 - 1)


def _wild(rng: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*EXTREMES, value + 1, max(0, value - 1)))
    if isinstance(value, bytes):
        return rng.choice((rng.randbytes(len(value)), bytes(len(value))))
    if isinstance(value, tuple) and value:
        return rng.choice((value[:-1], (*value, value[-1])))
    return value


def _altered(rng: Random, record: Any) -> Any:
    """The record with one field that is somewhere between odd and impossible, as far as the record
    can carry it."""
    for _ in range(20):
        field = rng.choice(fields(record))
        try:
            return replace(record, **{field.name: _wild(rng, getattr(record, field.name))})
        except RecordError:
            continue
    return record


def _one_of(rng: Random, records: tuple[Record, ...]) -> tuple[Any, ...]:
    at = rng.randrange(len(records))
    return (*records[:at], _altered(rng, records[at]), *records[at + 1 :])


def _hostile(rng: Random, evidence: RoundEvidence) -> RoundEvidence:
    """Some parts altered, roots and names made to fit again most of the time, all of it signed."""
    for kind in rng.sample(("order", "commit", "verdict", "drafts", "leaves", "length"), 2):
        commit, leaves = evidence.commit, evidence.verdict_leaves
        if kind == "order":
            evidence = replace(evidence, order=_altered(rng, evidence.order))
        elif kind == "verdict":
            evidence = replace(evidence, verdict=_altered(rng, evidence.verdict))
        elif kind == "commit" and commit is not None:
            evidence = replace(evidence, commit=_altered(rng, commit))
        elif kind == "drafts" and commit is not None and evidence.draft_leaves:
            drafts = _one_of(rng, evidence.draft_leaves)
            root = trees.merkle_root([leaf.leaf_hash for leaf in drafts])
            commit = replace(commit, draft_root=root)
            evidence = replace(evidence, commit=commit, draft_leaves=drafts)
        elif kind in ("leaves", "length"):
            changed = _one_of(rng, leaves) if kind == "leaves" else _wild(rng, leaves)
            if changed:
                root = trees.merkle_root([leaf.leaf_hash for leaf in changed])
                verdict = replace(evidence.verdict, verdict_root=root)
                evidence = replace(evidence, verdict=verdict, verdict_leaves=changed)
    if rng.random() < 0.9:
        start = replace(evidence.start, session_id=evidence.order.session_id)
        verdict = replace(evidence.verdict, start_hash=start.struct_hash)
        commit = evidence.commit
        if commit is not None:
            commit = replace(commit, start_hash=start.struct_hash)
            verdict = replace(verdict, draft_commit_hash=commit.struct_hash)
        evidence = replace(evidence, start=start, verdict=verdict, commit=commit)
    return evidence


@given(st.integers(0, 2**32 - 1))
def test_nothing_that_is_signed_ends_the_search(seed: int) -> None:
    rng, mode = Random(seed), Mode(seed % 3)
    session = play(DOMAIN, rng, mode, relaxed=mode != Mode.REJECTION and seed % 2 == 0)
    at = rng.randrange(len(session.rounds))
    honest = session.rounds[at]
    lying = sealed(DOMAIN, _hostile(rng, honest), session.keys)
    before = session.rounds[at - 1] if at else None
    after = session.rounds[at + 1] if at + 1 < len(session.rounds) else None
    found = [*round_faults(DOMAIN, lying, before, after), *round_faults(DOMAIN, lying)]
    found += equivocations(DOMAIN, lying, honest)
    rounds = (*session.rounds[:at], lying, *session.rounds[at + 1 :])
    found += find_faults(DOMAIN, honest.order.lane, replace(session, rounds=rounds).batch())
    order = honest.order
    assert {fault.guilty for fault in found} <= {
        order.drafter,
        order.verifier,
        lying.order.drafter,
        lying.order.verifier,
    }


@pytest.mark.parametrize("number", [65_536, 70_000, 2**32 - 1])
def test_a_round_past_every_chain_accuses_nobody_of_its_coin(number: int) -> None:
    """The contract judges no such round either (RoundPastChain)."""
    session = play(DOMAIN, Random(1), Mode.REJECTION)
    honest = next(found for found in session.rounds if found.commit is not None)
    assert honest.commit is not None
    commit = replace(honest.commit, round=number)
    alone = replace(honest, commit=commit, commit_signature=DOMAIN.sign(commit, DRAFTER))
    assert list(round_faults(DOMAIN, alone)) == []
    verdict = replace(honest.verdict, round=number, draft_commit_hash=commit.struct_hash)
    both = sealed(DOMAIN, replace(alone, verdict=verdict), session.keys)
    assert {fault.number for fault in round_faults(DOMAIN, both)} <= {4, 5}
