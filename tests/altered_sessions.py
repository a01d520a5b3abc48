"""One lie each, put into an honest session and signed again by whoever tells it.

`LIES` maps a name to a function of (domain, play, random) that gives the altered play and the
faults that must be found: pairs of the fault's number and the guilty's key. None where this play
has no place for that lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from played_sessions import DRAFTER, VERIFIER, Play, record_of, sealed

from settlement import coins, trees
from settlement.draws import RoundEvidence
from settlement.records import MASS_TOTAL, Domain, DraftLeaf, Mode, VerdictLeaf
from settlement.signing import address_of_key

Expected = frozenset[tuple[int, bytes]]
Lie = Callable[[Domain, Play, Random], "tuple[Play, Expected] | None"]
D, V = address_of_key(DRAFTER), address_of_key(VERIFIER)
BY_D: Final[Expected] = frozenset({(4, D)})


def by_v(*numbers: int) -> Expected:
    return frozenset((number, V) for number in numbers)


def _put(play: Play, index: int, evidence: RoundEvidence) -> Play:
    """With that round signed as it now stands, and its record drawn up from it."""
    evidence = sealed(play.domain, evidence, play.keys)
    record = record_of(evidence.verdict, evidence.commit, evidence.verdict_leaves)
    evidence = replace(evidence, record=record)
    return replace(play, rounds=(*play.rounds[:index], evidence, *play.rounds[index + 1 :]))


def with_verdict(play: Play, index: int, **changes: Any) -> Play:
    evidence = play.rounds[index]
    return _put(play, index, replace(evidence, verdict=replace(evidence.verdict, **changes)))


def with_leaves(play: Play, index: int, leaves: tuple[VerdictLeaf, ...]) -> Play:
    evidence = play.rounds[index]
    root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
    verdict = replace(evidence.verdict, verdict_root=root)
    return _put(play, index, replace(evidence, verdict=verdict, verdict_leaves=leaves))


def with_leaf(play: Play, index: int, at: int, **changes: Any) -> Play:
    leaves = list(play.rounds[index].verdict_leaves)
    leaves[at] = replace(leaves[at], **changes)
    return with_leaves(play, index, tuple(leaves))


def with_drafts(play: Play, index: int, drafts: tuple[DraftLeaf, ...], **changes: Any) -> Play:
    """D signs these, and V its verdict on them."""
    evidence = play.rounds[index]
    assert evidence.commit is not None
    root = trees.merkle_root([leaf.leaf_hash for leaf in drafts])
    commit = replace(evidence.commit, draft_root=root, **changes)
    verdict = replace(evidence.verdict, draft_commit_hash=commit.struct_hash)
    return _put(
        play,
        index,
        replace(evidence, commit=commit, draft_leaves=drafts, verdict=verdict),
    )


def _a_round(play: Play, rng: Random, *, drafted: bool = False) -> int | None:
    fit = [i for i, e in enumerate(play.rounds) if e.commit is not None or not drafted]
    return rng.choice(fit) if fit else None


def _mode(play: Play) -> Mode:
    return Mode(play.rounds[0].order.mode)


# ---------------------------------------------------------------- V's lies


def misname_draft(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    index = _a_round(play, rng, drafted=True)
    if index is None:
        return None
    evidence = play.rounds[index]
    drafted = range(min(evidence.commit.k, len(evidence.verdict_leaves)))  # type: ignore[union-attr]
    at = rng.choice(drafted)
    return with_leaf(play, index, at, draft_token=777), by_v(3)


def emit_another(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    """An accepted draft, and another token in the text, contexts to fit."""
    places = [
        (i, j)
        for i, evidence in enumerate(play.rounds)
        for j, leaf in enumerate(evidence.verdict_leaves)
        if leaf.accepted
    ]
    if not places:
        return None
    index, at = rng.choice(places)
    altered = with_leaf(play, index, at, token=888)
    # The context is left as it was, which is a lie of its own.
    return altered, by_v(4, 5)


def false_coin(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    if _mode(play) != Mode.REJECTION:
        return None
    index = _a_round(play, rng, drafted=True)
    if index is None:
        return None
    evidence = play.rounds[index]
    at = rng.randrange(min(evidence.commit.k, len(evidence.verdict_leaves)))  # type: ignore[union-attr]
    accepted = evidence.verdict_leaves[at].accepted
    return with_leaf(play, index, at, p=0 if accepted else MASS_TOTAL), by_v(4)


def better_coin(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    if _mode(play) != Mode.REJECTION:
        return None
    index = rng.randrange(len(play.rounds))
    return with_verdict(play, index, chain_value=rng.randbytes(32)), by_v(4)


def move_leaf(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected]:
    index = rng.randrange(len(play.rounds))
    at = rng.randrange(len(play.rounds[index].verdict_leaves))
    position = play.rounds[index].verdict_leaves[at].position
    return with_leaf(play, index, at, position=position ^ 0x100), by_v(5)


def miscount(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected]:
    index = rng.randrange(len(play.rounds))
    k = play.rounds[index].verdict.k
    return with_verdict(play, index, k=k + 1 if k == 0 else k - 1), by_v(5)


def break_context(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected]:
    index = rng.randrange(len(play.rounds))
    return with_verdict(play, index, next_context_hash=rng.randbytes(32)), by_v(5)


def start_elsewhere(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected]:
    index = rng.randrange(len(play.rounds))
    return with_verdict(play, index, context_hash=rng.randbytes(32)), by_v(5)


def judge_another_version(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    index = _a_round(play, rng, drafted=True)
    return None if index is None else (with_verdict(play, index, version=3), by_v(5))


def shift_bucket(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    """An accepted draft counted in another bucket: only the leaves tell."""
    for index, evidence in enumerate(play.rounds):
        sums = evidence.record.sums
        full = [b for b in range(16) if sums.proposed_by_bucket[b]]
        if not full:
            continue
        proposed = list(sums.proposed_by_bucket)
        proposed[full[0]] -= 1
        proposed[(full[0] + 1) % 16] += 1
        altered = replace(sums, proposed_by_bucket=tuple(proposed))
        record = replace(evidence.record, buckets=altered.buckets)
        rounds = list(play.rounds)
        rounds[index] = replace(evidence, record=record)
        return replace(play, rounds=tuple(rounds)), by_v(5)
    return None


def inflate_record(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected]:
    index = rng.randrange(len(play.rounds))
    evidence = play.rounds[index]
    record = replace(evidence.record, output=evidence.record.output + 1)
    rounds = list(play.rounds)
    rounds[index] = replace(evidence, record=record)
    return replace(play, rounds=tuple(rounds)), by_v(5)


def count_twice(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected]:
    return replace(play, rounds=(*play.rounds, rng.choice(play.rounds))), by_v(5)


# ---------------------------------------------------------------- D's lies


def shift_draw(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    """The mass lies elsewhere than where the coin fell."""
    if _mode(play) != Mode.REJECTION:
        return None
    index = _a_round(play, rng, drafted=True)
    if index is None:
        return None
    evidence = play.rounds[index]
    at = rng.randrange(len(evidence.draft_leaves))
    leaf = evidence.draft_leaves[at]
    w = coins.draw_coin(
        evidence.commit.chain_value,  # type: ignore[union-attr]
        evidence.start.seed,
        evidence.verdict.context_hash,
        leaf.position,
    )
    drafts = list(evidence.draft_leaves)
    drafts[at] = replace(leaf, q_below=w + 1)
    return with_drafts(play, index, tuple(drafts)), BY_D


def misplace_draft(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    index = _a_round(play, rng, drafted=True)
    if index is None:
        return None
    drafts = list(play.rounds[index].draft_leaves)
    at = rng.randrange(len(drafts))
    drafts[at] = replace(drafts[at], position=drafts[at].position + 1)
    return with_drafts(play, index, tuple(drafts)), BY_D


def better_draw(domain: Domain, play: Play, rng: Random) -> tuple[Play, Expected] | None:
    if _mode(play) != Mode.REJECTION:
        return None
    index = _a_round(play, rng, drafted=True)
    if index is None:
        return None
    drafts = play.rounds[index].draft_leaves
    return with_drafts(play, index, drafts, chain_value=rng.randbytes(32)), BY_D


LIES: Final[dict[str, Lie]] = {
    lie.__name__: lie
    for lie in (
        misname_draft,
        emit_another,
        false_coin,
        better_coin,
        move_leaf,
        miscount,
        break_context,
        start_elsewhere,
        judge_another_version,
        shift_bucket,
        inflate_record,
        count_twice,
        shift_draw,
        misplace_draft,
        better_draw,
    )
}
