"""Records in, proven faults out: what FaultCourt judges, found and cut to its evidence. Pure.

A test runs the contracts on the same altered records. A fault is only reported where the guilty's
own signature stands under what it is judged by, so that everything here holds on chain as well.
That a settled root is its verifier's is shown beside the proof (IFaultCourt.Source), and not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from settlement import trees
from settlement.draws import BatchEvidence, RoundEvidence
from settlement.fault_proofs import (
    Code,
    Fault,
    Kind,
    by_verifier,
    is_by,
    session_of,
    with_signature,
)
from settlement.records import Domain, DraftCommit, Lane, Verdict
from settlement.round_faults import round_faults
from settlement.signing import BadSignature
from settlement.tree_faults import duplicates, record_faults, sum_faults


def find_faults(
    domain: Domain, lane: Lane, *batches: BatchEvidence, roots: Sequence[trees.Settled] = ()
) -> tuple[Fault, ...]:
    """Every fault in the batches of one lane, one for each thing punishable (`Fault.key`).

    Args:
        batches: from old to new. Earlier rounds of the same sessions are taken into account.
        roots: preimages of the settled roots as the verifier published them, one for each batch;
            by default what the rounds add up to, in which no sums can be false.
    """
    found: list[Fault] = []
    seen: dict[tuple[bytes, int], list[RoundEvidence]] = {}
    for batch in batches:
        for evidence in (*batch.earlier.values(), *batch.rounds):
            here = seen.setdefault(evidence.key, [])
            for other in here:
                found.extend(equivocations(domain, evidence, other))
            if evidence not in here:
                here.append(evidence)
    for (start_hash, index), several in seen.items():
        before = seen.get((start_hash, index - 1), [None])[0]
        after = seen.get((start_hash, index + 1), [None])[0]
        for evidence in several:
            found.extend(round_faults(domain, evidence, before, after))
    preimages = list(roots) or [batch.settled()[1] for batch in batches]
    for batch, settled in zip(batches, preimages, strict=True):
        found.extend(record_faults(lane, batch, settled))
        found.extend(sum_faults(lane, batch, settled))
    found.extend(duplicates(lane, batches, preimages))
    unique = {fault.key: fault for fault in reversed(found)}
    return tuple(fault for fault in found if unique[fault.key] is fault)


# ---------------------------------------------------------------- F1, F2


def equivocations(domain: Domain, one: RoundEvidence, other: RoundEvidence) -> Iterator[Fault]:
    """F1 and F2 between two accounts of one round."""
    if one.commit is not None and other.commit is not None:
        yield from draft_twice(
            domain, one.commit, one.commit_signature, other.commit, other.commit_signature
        )
    if one.verdict != other.verdict and _same_round(one.verdict, other.verdict):
        both = (one.verdict, one.verdict_signature), (other.verdict, other.verdict_signature)
        if all(is_by(domain, *signed, one.order.verifier) for signed in both):
            yield by_verifier(
                one,
                2,
                Code.VERDICT_TWICE,
                Kind.VERDICT_TWICE,
                (*session_of(one), *with_signature(*both[0]), *with_signature(*both[1])),
            )


def draft_twice(
    domain: Domain,
    one: DraftCommit,
    one_signature: bytes,
    other: DraftCommit,
    other_signature: bytes,
) -> Iterator[Fault]:
    """F1: two windows by one key with equal session, round and context and different roots."""
    place = (one.start_hash, one.round, one.context_hash)
    if place != (other.start_hash, other.round, other.context_hash):
        return
    if one.draft_root == other.draft_root:
        return
    try:
        guilty = domain.signer(one, one_signature)
    except BadSignature:
        return
    if is_by(domain, other, other_signature, guilty):
        yield Fault(
            1,
            Code.DRAFT_TWICE,
            guilty,
            True,
            one.start_hash,
            one.round,
            Kind.DRAFT_TWICE,
            (*with_signature(one, one_signature), *with_signature(other, other_signature)),
        )


def _same_round(one: Verdict, other: Verdict) -> bool:
    return (one.start_hash, one.round) == (other.start_hash, other.round)
