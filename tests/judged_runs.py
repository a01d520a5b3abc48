"""Every fault that contracts judge, put into records of a real run: one variant for each code.

A run's session is taken as it was signed; one thing in it is altered, and the guilty's key signs
what follows from that. `CRIMES` gives for each variant the altered rounds and which fault they are.
`honest_proofs` builds, for every honest record, the proof that would accuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from altered_sessions import with_drafts, with_leaf, with_verdict
from played_sessions import Play, record_of, sealed

from settlement import coins, trees
from settlement.accept_rule import LeafFault
from settlement.draws import BatchEvidence, RoundEvidence, blank, root_words
from settlement.fault_proofs import Code, Fault, Kind, session_of, step_words, with_signature
from settlement.faults import equivocations, find_faults
from settlement.hashing import ZERO32
from settlement.records import (
    MASS_TOTAL,
    NO_TOKEN,
    DraftCommit,
    DraftLeaf,
    Lane,
    Mode,
    Sums,
    Verdict,
    VerdictLeaf,
    kept_hash,
    packed_kept,
)
from settlement.round_faults import round_faults
from settlement.tree_faults import false_sums


@dataclass(frozen=True)
class Crime:
    """Altered rounds, and which of the faults in them is meant.

    Attributes:
        second: another account of a round of the session (F1, F2).
        older: rounds of a batch that was settled before these.
        settled: what V published as the root's preimage, where that is not what the rounds add up
            to.
        fault: given, where nothing in the rounds alone shows it.
    """

    number: int
    code: int
    rounds: tuple[RoundEvidence, ...]
    second: RoundEvidence | None = None
    older: tuple[RoundEvidence, ...] = ()
    settled: trees.Settled | None = None
    fault: Fault | None = None
    lane: Lane | None = None

    def find(self, play: Play) -> Fault:
        """The fault, as the watcher finds it in these records."""
        if self.fault is not None:
            return self.fault
        lane = self.lane or play.rounds[0].order.lane
        batches = [BatchEvidence(self.rounds, None, {})]
        roots = [] if self.settled is None else [self.settled]
        if self.older:
            first = BatchEvidence(self.older, None, {})
            batches = [first, BatchEvidence(self.rounds, first.settled()[1], {})]
        found = list(find_faults(play.domain, lane, *batches, roots=roots))
        if self.second is not None:
            own = next(e for e in self.rounds if e.key == self.second.key)
            found += equivocations(play.domain, own, self.second)
        # Of one round only the first fault of a number is a matter of its own; each holds.
        found += (f for e in self.rounds for f in round_faults(play.domain, e))
        meant = [f for f in found if (f.number, int(f.code)) == (self.number, int(self.code))]
        assert meant, (self.number, int(self.code), [(f.number, int(f.code)) for f in found])
        return meant[0]


Runs = Mapping[Mode, Play]
CRIMES: Final[dict[str, Callable[[Runs], Crime]]] = {}


def _crime(make: Callable[[Runs], Crime]) -> Callable[[Runs], Crime]:
    CRIMES[make.__name__] = make
    return make


# ---------------------------------------------------------------- places


def _drafted(play: Play, want: Callable[[RoundEvidence], bool] = lambda _e: True) -> int:
    """A round with drafts of which that holds."""
    return next(i for i, e in enumerate(play.rounds) if e.commit is not None and want(e))


def _leaf_where(play: Play, want: Callable[[RoundEvidence, int], bool]) -> tuple[int, int]:
    return next(
        (i, j)
        for i, e in enumerate(play.rounds)
        for j in range(len(e.verdict_leaves))
        if want(e, j)
    )


def _accepted(e: RoundEvidence, j: int) -> bool:
    return e.verdict_leaves[j].accepted


def _rejected(e: RoundEvidence, j: int) -> bool:
    leaf = e.verdict_leaves[j]
    return leaf.draft_token != NO_TOKEN and not leaf.accepted


def under_order(play: Play, leaf: Callable[[VerdictLeaf], VerdictLeaf], **terms: Any) -> Play:
    """The session as it would have been signed under other terms: order, start, drafts and verdicts
    named anew, every figure in them as it was but for `leaf`'s."""
    first = play.rounds[0]
    order = replace(first.order, **terms)
    start = replace(first.start, session_id=order.session_id)
    previous, rounds = ZERO32, []
    for evidence in play.rounds:
        commit = evidence.commit
        if commit is not None:
            commit = replace(commit, start_hash=start.struct_hash, prev_verdict_hash=previous)
        leaves = tuple(map(leaf, evidence.verdict_leaves))
        verdict = replace(
            evidence.verdict,
            start_hash=start.struct_hash,
            draft_commit_hash=commit.struct_hash if commit else ZERO32,
            verdict_root=trees.merkle_root([leaf.leaf_hash for leaf in leaves]),
        )
        previous = verdict.struct_hash
        evidence = replace(
            evidence,
            order=order,
            start=start,
            commit=commit,
            verdict=verdict,
            verdict_leaves=leaves,
            record=record_of(verdict, commit, leaves),
        )
        rounds.append(sealed(play.domain, evidence, play.keys))
    return replace(play, rounds=tuple(rounds))


def _as_it_was(leaf: VerdictLeaf) -> VerdictLeaf:
    return leaf


def _relaxed(runs: Runs) -> Play:
    """The greedy session under τ = 1000, with scores that keep the rule: the API has no relaxed
    mode, so that no run is one."""

    def scored(leaf: VerdictLeaf) -> VerdictLeaf:
        return leaf if leaf.accepted else replace(leaf, score_top=5000, score_draft=0)

    terms = {"relax_tau": 1000, "key_target_surprisal": 1000, "key_draft_surprisal": 1000}
    return under_order(runs[Mode.GREEDY], scored, **terms)


# ---------------------------------------------------------------- F1, F2


@_crime
def two_windows(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at = _drafted(play)
    drafts = list(play.rounds[at].draft_leaves)
    drafts[0] = replace(drafts[0], token=drafts[0].token ^ 1)
    second = with_drafts(play, at, tuple(drafts)).rounds[at]
    return Crime(1, Code.DRAFT_TWICE, play.rounds, second)


@_crime
def two_verdicts(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    next_k = play.rounds[1].verdict.next_k ^ 1
    return Crime(2, Code.VERDICT_TWICE, play.rounds, with_verdict(play, 1, next_k=next_k).rounds[1])


@_crime
def a_second_verdict_under_another_version(runs: Runs) -> Crime:
    play = runs[Mode.GREEDY]
    second = with_verdict(play, 1, version=1).rounds[1]
    return Crime(2, Code.VERDICT_TWICE, play.rounds, second)


# ---------------------------------------------------------------- F3, F4 by V


@_crime
def another_draft_named(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at = _drafted(play)
    token = play.rounds[at].verdict_leaves[0].draft_token ^ 1
    altered = with_leaf(play, at, 0, draft_token=token)
    return Crime(3, LeafFault.OTHER_DRAFT, altered.rounds)


@_crime
def nothing_accepted(runs: Runs) -> Crime:
    play = runs[Mode.GREEDY]
    at, index = _leaf_where(play, lambda e, j: e.verdict_leaves[j].draft_token == NO_TOKEN)
    altered = with_leaf(play, at, index, accepted=True)
    return Crime(4, LeafFault.ACCEPTED_NOTHING, altered.rounds)


@_crime
def another_accepted(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at, index = _leaf_where(play, _accepted)
    token = play.rounds[at].verdict_leaves[index].token ^ 1
    return Crime(4, LeafFault.ACCEPTED_OTHER, with_leaf(play, at, index, token=token).rounds)


@_crime
def its_own_token_rejected(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at, index = _leaf_where(play, _accepted)
    altered = with_leaf(play, at, index, accepted=False)
    return Crime(4, LeafFault.REJECTED_OWN_TOKEN, altered.rounds)


@_crime
def against_the_coin(runs: Runs) -> Crime:
    play = runs[Mode.REJECTION]
    at = _drafted(play)
    p = 0 if _accepted(play.rounds[at], 0) else MASS_TOTAL
    altered = with_leaf(play, at, 0, p=p)
    return Crime(4, LeafFault.COIN_SAYS_OTHERWISE, altered.rounds)


@_crime
def the_key_bit_left_out(runs: Runs) -> Crime:
    play = _relaxed(runs)
    at, index = _leaf_where(play, _accepted)
    altered = with_leaf(play, at, index, surprisal=2000, key=False)
    return Crime(4, LeafFault.KEY_BIT, altered.rounds)


@_crime
def above_the_maximum(runs: Runs) -> Crime:
    play = _relaxed(runs)
    at, index = _leaf_where(play, _accepted)
    altered = with_leaf(play, at, index, score_draft=7, score_top=6)
    return Crime(4, LeafFault.SCORES_CROSSED, altered.rounds)


@_crime
def accepted_too_far_below(runs: Runs) -> Crime:
    play = _relaxed(runs)
    at, index = _leaf_where(play, _accepted)
    altered = with_leaf(play, at, index, score_draft=0, score_top=5000)
    return Crime(4, LeafFault.RELAXED_ACCEPT, altered.rounds)


@_crime
def rejected_within_reach(runs: Runs) -> Crime:
    play = _relaxed(runs)
    at, index = _leaf_where(play, _rejected)
    altered = with_leaf(play, at, index, score_draft=0, score_top=500)
    return Crime(4, LeafFault.RELAXED_REJECT, altered.rounds)


@_crime
def a_coin_of_vs_own(runs: Runs) -> Crime:
    altered = with_verdict(runs[Mode.REJECTION], 1, chain_value=b"\x5a" * 32)
    return Crime(4, LeafFault.CHAIN_VERIFIER, altered.rounds)


@_crime
def the_announced_window_left_out(runs: Runs) -> Crime:
    play = runs[Mode.REJECTION]
    at = _drafted(play, lambda e: e.record.round > 0)
    evidence = replace(play.rounds[at], commit=None, draft_leaves=(), kept=())
    rounds = (*play.rounds[:at], evidence, *play.rounds[at + 1 :])
    altered = with_verdict(replace(play, rounds=rounds), at, draft_commit_hash=ZERO32)
    return Crime(4, Code.WINDOW_VERIFIER, altered.rounds)


@_crime
def a_window_over_the_orders_limit(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at = _drafted(play, lambda e: e.commit is not None and e.commit.k > 1)
    assert at >= 0
    return Crime(4, Code.WINDOW_VERIFIER, under_order(play, _as_it_was, max_window=1).rounds)


# ---------------------------------------------------------------- F4 by D


@_crime
def a_draft_out_of_place(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at = _drafted(play)
    drafts = list(play.rounds[at].draft_leaves)
    drafts[0] = replace(drafts[0], position=drafts[0].position + 1)
    altered = with_drafts(play, at, tuple(drafts))
    return Crime(4, LeafFault.DRAFT_WRONG_POSITION, altered.rounds)


@_crime
def a_draft_of_no_token(runs: Runs) -> Crime:
    play = runs[Mode.GREEDY]
    at = _drafted(play)
    drafts = list(play.rounds[at].draft_leaves)
    drafts[0] = replace(drafts[0], token=NO_TOKEN)
    altered = with_drafts(play, at, tuple(drafts))
    return Crime(4, LeafFault.DRAFT_NO_TOKEN, altered.rounds)


@_crime
def outside_its_draw(runs: Runs) -> Crime:
    play = runs[Mode.REJECTION]
    at = _drafted(play)
    evidence = play.rounds[at]
    assert evidence.commit is not None
    leaf = evidence.draft_leaves[0]
    coin = coins.draw_coin(
        evidence.commit.chain_value,
        evidence.start.seed,
        evidence.commit.context_hash,
        leaf.position,
    )
    drafts = (replace(leaf, q_below=coin + 1), *evidence.draft_leaves[1:])
    return Crime(4, LeafFault.DRAW, with_drafts(play, at, drafts).rounds)


def _with_list(play: Play, kept: tuple[tuple[int, int], ...], **leaf: Any) -> Play:
    """The first drafted round with another kept list behind its first leaf."""
    at = _drafted(play)
    evidence = play.rounds[at]
    first = replace(evidence.draft_leaves[0], kept_hash=kept_hash_of(kept), **leaf)
    lists = (kept, *evidence.kept[1:])
    rounds = list(play.rounds)
    rounds[at] = replace(evidence, kept=lists)
    drafts = (first, *evidence.draft_leaves[1:])
    return with_drafts(replace(play, rounds=tuple(rounds)), at, drafts)


def kept_hash_of(kept: tuple[tuple[int, int], ...]) -> bytes:
    """Also of lists that `records.kept_hash` refuses."""
    from settlement.hashing import TAG_KEPT, keccak256

    digest = keccak256(TAG_KEPT, packed_kept(kept))
    good = [(1, MASS_TOTAL)]
    assert kept_hash(tuple(good)) == keccak256(TAG_KEPT, packed_kept(good))
    return digest


@_crime
def a_list_that_does_not_sum_up(runs: Runs) -> Crime:
    play = runs[Mode.REJECTION]
    kept = play.rounds[_drafted(play)].kept[0]
    token, mass = kept[-1]
    more = (*kept[:-1], (token, mass - 1)) if mass > 1 else (*kept, (token + 1, 1))
    return Crime(4, LeafFault.LIST_MALFORMED, _with_list(play, more).rounds)


@_crime
def a_list_of_other_figures(runs: Runs) -> Crime:
    """D's own list gives its token another mass than the leaf does; the draw still holds."""
    play = runs[Mode.REJECTION]
    evidence = play.rounds[_drafted(play)]
    leaf, kept = evidence.draft_leaves[0], evidence.kept[0]
    other = next((t for t, _m in kept if t != leaf.token), leaf.token + 1)
    masses = {other: 1, leaf.token: MASS_TOTAL - 1}
    altered = _with_list(play, tuple(sorted(masses.items())))
    return Crime(4, LeafFault.LIST_NOT_LEAF, altered.rounds)


@_crime
def a_coin_of_ds_own(runs: Runs) -> Crime:
    play = runs[Mode.REJECTION]
    at = _drafted(play)
    altered = with_drafts(play, at, play.rounds[at].draft_leaves, chain_value=b"\x5a" * 32)
    return Crime(4, LeafFault.CHAIN_DRAFTER, altered.rounds)


@_crime
def another_number_of_drafts(runs: Runs) -> Crime:
    play = runs[Mode.REJECTION]
    at = _drafted(play, lambda e: e.commit is not None and e.commit.k > 1)
    drafts = play.rounds[at].draft_leaves[:-1]
    return Crime(4, Code.WINDOW_DRAFTER, with_drafts(play, at, drafts, k=len(drafts)).rounds)


# ---------------------------------------------------------------- F5 of rounds


@_crime
def past_max_tokens(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    last = play.rounds[-1].verdict
    short = under_order(play, _as_it_was, max_tokens=last.base + last.emitted - 1)
    return Crime(5, LeafFault.OUTSIDE_SESSION, short.rounds)


@_crime
def a_leaf_out_of_place(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    position = play.rounds[1].verdict_leaves[0].position + 1
    altered = with_leaf(play, 1, 0, position=position)
    return Crime(5, LeafFault.WRONG_POSITION, altered.rounds)


@_crime
def a_verdict_on_another_version(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    return Crime(5, Code.RECORD, with_verdict(play, _drafted(play), version=3).rounds)


@_crime
def a_false_count(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    k = play.rounds[1].verdict.k
    return Crime(5, Code.COUNTS, with_verdict(play, 1, k=k - 1 if k else 1).rounds)


@_crime
def a_context_that_does_not_follow(runs: Runs) -> Crime:
    altered = with_verdict(runs[Mode.COUPLED], 1, next_context_hash=b"\x5a" * 32)
    return Crime(5, Code.CONTEXT, altered.rounds)


@_crime
def a_start_elsewhere(runs: Runs) -> Crime:
    altered = with_verdict(runs[Mode.GREEDY], 1, context_hash=b"\x5a" * 32)
    return Crime(5, Code.CONTEXT, altered.rounds)


@_crime
def output_past_a_stop(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at, _ = _leaf_where(play, lambda e, j: j == 0 and len(e.verdict_leaves) > 1)
    stop = play.rounds[at].verdict_leaves[0].token
    return Crime(5, Code.STOP_PASSED, under_order(play, _as_it_was, stop_ids=(stop,)).rounds)


@_crime
def a_round_past_a_stop(runs: Runs) -> Crime:
    play = runs[Mode.GREEDY]
    stop = play.rounds[0].verdict_leaves[-1].token
    rounds = under_order(play, _as_it_was, stop_ids=(stop,)).rounds
    return Crime(5, Code.STOP_PASSED, rounds[:2])


# ---------------------------------------------------------------- F5 of trees


def _with_record(play: Play, at: int, **changes: Any) -> tuple[RoundEvidence, ...]:
    evidence = play.rounds[at]
    altered = replace(evidence, record=replace(evidence.record, **changes))
    return (*play.rounds[:at], altered, *play.rounds[at + 1 :])


@_crime
def a_record_of_more_output(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    output = play.rounds[0].record.output + 1
    return Crime(5, Code.RECORD, _with_record(play, 0, output=output))


@_crime
def a_record_of_other_buckets(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    at = _drafted(play)
    sums = play.rounds[at].record.sums
    full = next(b for b in range(16) if sums.proposed_by_bucket[b])
    proposed = list(sums.proposed_by_bucket)
    accepted = list(sums.accepted_by_bucket)
    for counts in (proposed, accepted):
        moved = counts[full]
        counts[full] -= moved
        counts[(full + 1) % 16] += moved
    altered = replace(sums, proposed_by_bucket=tuple(proposed), accepted_by_bucket=tuple(accepted))
    return Crime(5, Code.COUNTS, _with_record(play, at, buckets=altered.buckets))


@_crime
def false_sums_in_the_root(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    _tree, right = play.batch().settled()
    false = replace(right, sums=right.sums + Sums(output=5))
    return Crime(5, Code.SUMS, play.rounds, settled=false)


@_crime
def false_sums_over_a_node(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    rounds = play.rounds[:3]
    nodes = [trees.round_leaf(evidence.record) for evidence in rounds]
    pair = trees.sum_node(nodes[0], nodes[1])
    claimed = pair.sums + Sums(output=7)
    top = trees.sum_node(trees.SumNode(pair.hash, claimed), nodes[2])
    settled = trees.Settled(top.hash, top.sums, 3, ZERO32)
    lane = rounds[0].order.lane
    below = (nodes[0], nodes[1])
    fault = false_sums(lane, settled, None, (1, 0), below, claimed, [nodes[2]])
    return Crime(5, Code.SUMS, rounds, settled=settled, fault=fault)


@_crime
def a_round_twice_in_a_tree(runs: Runs) -> Crime:
    play = runs[Mode.COUPLED]
    return Crime(5, Code.ROUND_TWICE, (*play.rounds, play.rounds[0]))


@_crime
def a_round_in_two_batches(runs: Runs) -> Crime:
    play = runs[Mode.GREEDY]
    return Crime(5, Code.ROUND_TWICE, play.rounds[1:4], older=play.rounds[:2])


# ---------------------------------------------------------------- the honest


def honest_proofs(play: Play, batch: BatchEvidence, settled: trees.Settled) -> Iterator[Fault]:
    """Accusations of everything in an honest session that lies in that settled batch: each kind of
    proof, of every record that it can be of."""
    lane, tree = play.rounds[0].order.lane, batch.settled()[0]
    places = {evidence.key: index for index, evidence in enumerate(batch.rounds)}

    def against(kind: Kind, evidence: tuple[Any, ...], *, drafter: bool = False) -> Fault:
        order = play.rounds[0].order
        guilty = order.drafter if drafter else order.verifier
        root = settled.root if kind.of_tree else ZERO32
        return Fault(5, 0, guilty, drafter, ZERO32, 0, kind, evidence, lane.id, root)

    for number, e in enumerate(play.rounds):
        before = play.rounds[number - 1] if number else None
        after = play.rounds[number + 1] if number + 1 < len(play.rounds) else None
        signed = (*session_of(e), *with_signature(e.verdict, e.verdict_signature))
        previous = (
            with_signature(before.verdict, before.verdict_signature)
            if before
            else (blank(Verdict), b"")
        )
        commit_abi = e.commit.to_abi() if e.commit else blank(DraftCommit)
        verdict = with_signature(e.verdict, e.verdict_signature)
        yield against(Kind.VERDICT_TWICE, (*signed, *verdict))
        whole = (*session_of(e), commit_abi, *verdict, *previous)
        yield against(Kind.VERDICT_ROUND, whole)
        yield against(Kind.ROUND_FIT, whole)
        yield against(Kind.ALL_LEAVES, (*signed, [leaf.to_abi() for leaf in e.verdict_leaves]))
        leaves = trees.MerkleTree(leaf.leaf_hash for leaf in e.verdict_leaves)
        drafts = None
        if e.commit is not None:
            drafts = trees.MerkleTree(leaf.leaf_hash for leaf in e.draft_leaves)
            window = with_signature(e.commit, e.commit_signature)
            yield against(Kind.DRAFT_TWICE, (*window, *window), drafter=True)
            yield against(Kind.DRAFT_ROUND, (*session_of(e), *window, *previous), drafter=True)
            for index, draft in enumerate(e.draft_leaves):
                kept = packed_kept(e.kept[index]) if e.kept else b""
                place = (index, draft.to_abi(), list(drafts.siblings(index)), kept)
                yield against(Kind.DRAFT_LEAF, (*session_of(e), *window, *place), drafter=True)
        for index, leaf in enumerate(e.verdict_leaves):
            here = (index, leaf.to_abi(), list(leaves.siblings(index)))
            pair: tuple[Any, ...] = (blank(DraftLeaf), [])
            if drafts is not None and index < len(e.draft_leaves):
                pair = (e.draft_leaves[index].to_abi(), list(drafts.siblings(index)))
            for kind in (Kind.OTHER_DRAFT, Kind.ACCEPT_RULE):
                yield against(kind, (*session_of(e), commit_abi, *verdict, *here, *pair))
            later = (blank(Verdict), b"")
            yield against(Kind.LEAF_PLACE, (*signed, *here, *later))
            if after is not None:
                later = with_signature(after.verdict, after.verdict_signature)
                yield against(Kind.LEAF_PLACE, (*signed, *here, *later))
        at = places.get(e.key)
        if at is None:
            continue
        steps = step_words(tree.siblings(at))
        shown = [leaf.to_abi() for leaf in e.verdict_leaves]
        records = (*session_of(e), commit_abi, e.verdict.to_abi(), shown)
        in_tree = (e.record.to_abi(), at, steps)
        root = root_words(settled)
        yield against(Kind.RECORD, (lane.to_abi(), root, *in_tree, *records))
        sums = (e.record, e.record.sums, tree.siblings(at))
        yield false_sums(lane, settled, batch.base, (0, at), *sums)
        yield against(Kind.ROUND_TWICE, (lane.to_abi(), root, *in_tree, [], *in_tree))
        other = (at + 1) % len(batch.rounds)
        if other != at:
            neighbour = (
                batch.rounds[other].record.to_abi(),
                other,
                step_words(tree.siblings(other)),
            )
            yield against(Kind.ROUND_TWICE, (lane.to_abi(), root, *in_tree, [], *neighbour))
