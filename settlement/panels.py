"""Juries in Python: who is drawn, what seals an answer, what answers come to, and how often a jury
errs. Pure.

Mirrors `AuditorPool.drawAt`, `Juries` and `JuryVerdict`; the vectors in tests/vectors/panels.json
hold both to the same values. Figures: margins are int Q24 score units (uint64 on chain),
fingerprints 32 bytes of sixteen big-endian int16 in units of 2**-12 standard deviations, in the
exact tier one hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from math import comb
from typing import Any, Final

from settlement import trees
from settlement.draws import BatchEvidence, CannotOpen, RoundEvidence, blank, root_words, sum_words
from settlement.hashing import TAG_AUDIT, TAG_AUDITORS, TAG_TICKET, keccak256, uint
from settlement.records import DraftCommit, DraftLeaf, VerdictLeaf

MAX_MARGIN: Final = (1 << 64) - 1
_PRINT_BYTES: Final = 32
_SKIPPED: Final = 16  # Juries.MAX_SKIPPED


class Result(IntEnum):
    """What a jury's answers come to (JuryVerdict.Result)."""

    NONE = 0
    GUILTY = 1
    CLEARED = 2
    WITHHELD = 3
    VOID = 4


@dataclass(frozen=True)
class Answer:
    """IJuries.Answer: one member's, zeros where it was silent."""

    commitment: bytes = bytes(32)
    print: bytes = bytes(32)
    margin: int = 0
    withheld: bool = False
    revealed: bool = False


@dataclass(frozen=True)
class Measure:
    """What answers are held against (JuryVerdict.Measure).

    Attributes:
        exact: one hash counts, else margin and distance.
        printed: fingerprints count; not where D is asked about.
        margin, distance: the most that honest runs differ by, float tier.
        print: V's opened fingerprint.
        expected: the one hash of what was said, exact tier (`exact_hash`).
    """

    exact: bool
    printed: bool
    margin: int
    distance: int
    print: bytes
    expected: bytes


# ---------------------------------------------------------------- verdicts


def distance(one: bytes, other: bytes) -> int:
    """Sum of absolute differences of two fingerprints (Fingerprints.distance)."""
    if len(one) != _PRINT_BYTES or len(other) != _PRINT_BYTES:
        raise ValueError(f"a fingerprint has 32 bytes, not {len(one)} and {len(other)}")
    pairs = ((one[i : i + 2], other[i : i + 2]) for i in range(0, _PRINT_BYTES, 2))
    return sum(
        abs(int.from_bytes(a, "big", signed=True) - int.from_bytes(b, "big", signed=True))
        for a, b in pairs
    )


def lower_median(values: Sequence[int]) -> int:
    """The lower of the middle values: of an even number, doubt is the accused's."""
    return sorted(values)[(len(values) - 1) // 2]


def passes(answer: Answer, measure: Measure) -> bool:
    """Whether one answer finds the place right."""
    if measure.exact:
        return answer.print == measure.expected
    if answer.margin > measure.margin:
        return False
    return not measure.printed or distance(answer.print, measure.print) <= measure.distance


def agrees(answer: Answer, others: Sequence[Answer], measure: Measure) -> bool:
    """Whether an auditor's fingerprint lies near V's, or near another auditor's: nobody had seen it
    before (SampleAudits.pay)."""

    def given(one: Answer) -> bool:
        return one.revealed and not one.withheld

    def near(print_: bytes) -> bool:
        if measure.exact:
            return answer.print == print_
        return distance(answer.print, print_) <= measure.distance

    if not given(answer):
        return False
    shown = measure.expected if measure.exact else measure.print
    return near(shown) or any(given(other) and near(other.print) for other in others)


def result_of(answers: Sequence[Answer], measure: Measure) -> Result:
    """The result of a jury of `len(answers)` seats. Every quorum is of all seats."""
    seats = len(answers)
    given = [answer for answer in answers if answer.revealed]
    judged = [answer for answer in given if not answer.withheld]
    if 2 * (len(given) - len(judged)) > seats:
        return Result.WITHHELD
    if 2 * len(judged) <= seats:
        return Result.VOID
    if measure.exact:
        prints = [answer.print for answer in judged]
        most = max(set(prints), key=prints.count)
        if 2 * prints.count(most) <= seats:
            return Result.VOID
        return Result.CLEARED if most == measure.expected else Result.GUILTY
    if lower_median([answer.margin for answer in judged]) > measure.margin:
        return Result.GUILTY
    if not measure.printed:
        return Result.CLEARED
    far = lower_median([distance(answer.print, measure.print) for answer in judged])
    return Result.GUILTY if far > measure.distance else Result.CLEARED


# ---------------------------------------------------------------- the draw


def draw_seat(weights: Sequence[int], taken: Sequence[int], word: int) -> int | None:
    """The seat that `word` falls on: word mod the weight left, walking the seats upwards past those
    taken. None where nothing is left. `AuditorPool.drawAt` finds the same down a sum tree."""
    out = set(taken)
    left = sum(weight for seat, weight in enumerate(weights) if seat not in out)
    if left == 0:
        return None
    place = word % left
    for seat, weight in enumerate(weights):
        if seat in out:
            continue
        if place < weight:
            return seat
        place -= weight
    raise AssertionError("the walk ends before its own sum")


def draw_word(seed: bytes, number: int) -> int:
    """Draw `number` of a jury's seed: keccak256(seed ‖ uint8 number)."""
    return int.from_bytes(keccak256(seed, uint(number, 1)), "big")


def jury_seed(block_hash: bytes, chain_id: int, juries: bytes, jury: int) -> bytes:
    """keccak256(tag ‖ block hash ‖ uint256 chain id ‖ contract ‖ uint64 jury)."""
    return keccak256(TAG_AUDITORS, block_hash, uint(chain_id, 32), juries, uint(jury, 8))


def draw_jury(
    seed: bytes,
    weights: Sequence[int],
    size: int,
    *,
    parties: int = 0,
    is_out: Callable[[int], bool] = lambda seat: False,
    is_late: Callable[[int], bool] = lambda seat: False,
    late: int = 0,
) -> tuple[int, ...]:
    """The seats that make up a jury, in the order of the draw (Juries._draw).

    Args:
        weights: by seat, as of the jury's anchor block.
        parties: how many parties the court has named.
        is_out: seats of parties, and those whose stake is gone.
        is_late: seats of the jury before, which come last; `late` is how many members that had.
    """
    drawn: list[int] = []
    later: list[int] = []
    taken: list[int] = []
    for number in range(size + 2 * parties + _SKIPPED + late):
        if len(drawn) == size:
            break
        seat = draw_seat(weights, taken, draw_word(seed, number))
        if seat is None:
            break
        taken.append(seat)
        if not is_out(seat):
            (later if is_late(seat) else drawn).append(seat)
    return tuple((drawn + later)[:size])


# ---------------------------------------------------------------- seals


def commitment(
    chain_id: int,
    juries: bytes,
    jury: int,
    member: bytes,
    answer: Answer,
    salt: bytes,
) -> bytes:
    """What a member commits to (Juries.commitmentOf): of no use to another or for another."""
    head = (
        uint(chain_id, 32),
        _address(juries),
        uint(jury, 32),
        _address(member),
        salt,
        uint(int(answer.withheld), 32),
        uint(answer.margin, 32),
        answer.print,
    )
    return _tagged(TAG_AUDIT, *head)


def ticket(kind: int, content: bytes, salt: bytes) -> bytes:
    """What a ticket seals (SampleAudits.ticketOf); kind 0 a drawn token, 1 a canary."""
    return _tagged(TAG_TICKET, uint(kind, 32), content, salt)


def drawn_content(batch_id: int, index: int, sample: int) -> bytes:
    """A drawn token, by the batch, its entry and the sample."""
    return keccak256(uint(batch_id, 32), uint(index, 32), uint(sample, 32))


def canary_content(canary: Sequence[Any]) -> bytes:
    """ISampleAudits.Canary: start hash, round, within, figures, print, text."""
    start, round_, within, figures, print_, text = canary
    return keccak256(start, uint(round_, 32), uint(within, 32), figures, print_, text)


def verdict_figures(leaf: VerdictLeaf) -> bytes:
    """One hash of all that a verdict leaf says, but for place and fingerprint."""
    signed = (leaf.cutoff, leaf.score_draft, leaf.score_top)
    return keccak256(
        uint(leaf.token, 32),
        uint(int(leaf.accepted), 32),
        uint(leaf.p, 32),
        uint(leaf.top_prob, 32),
        *(value.to_bytes(32, "big", signed=True) for value in signed),
        uint(leaf.surprisal, 32),
        uint(int(leaf.key), 32),
    )


def exact_hash(figures: bytes, fingerprint: bytes) -> bytes:
    """The exact tier's answer about V: keccak256(abi.encode(figures, fingerprint))."""
    return keccak256(figures, fingerprint)


def _address(value: bytes) -> bytes:
    return bytes(12) + value


def _tagged(tag: bytes, *words: bytes) -> bytes:
    """keccak256(abi.encode(string tag, words...))."""
    padded = tag + bytes(-len(tag) % 32)
    return keccak256(uint(32 * (1 + len(words)), 32), *words, uint(len(tag), 32), padded)


# ---------------------------------------------------------------- places


def place_words(
    batch: BatchEvidence, start_hash: bytes, round_: int, within: int
) -> tuple[Any, ...]:
    """IPlaceRule.Place of one output token of a settled round, in the ABI's order.

    D's commitment and leaf are filled in where the round has a draft at that place. Raises
    CannotOpen when the round is not among the batch's, or has no such token.
    """
    tree, settled = batch.settled()
    index = next((i for i, e in enumerate(batch.rounds) if e.key == (start_hash, round_)), None)
    if index is None:
        raise CannotOpen(f"round {round_} of 0x{start_hash.hex()} is not in this batch")
    return place_of(settled, tree.proof(index), batch.rounds[index], within)


def place_of(
    settled: trees.Settled, proof: trees.SumProof, evidence: RoundEvidence, within: int
) -> tuple[Any, ...]:
    """The same from one round and its proof under the root: what an auditor holds of a batch.

    Raises CannotOpen when the round has no such token.
    """
    if not 0 <= within < len(evidence.verdict_leaves):
        raise CannotOpen(f"the round has {len(evidence.verdict_leaves)} tokens, none at {within}")
    verdicts = trees.MerkleTree(leaf.leaf_hash for leaf in evidence.verdict_leaves)
    return (
        root_words(settled),
        evidence.record.to_abi(),
        proof.index,
        [(node.hash, sum_words(node.sums)) for node in proof.siblings],
        evidence.order.to_abi(),
        evidence.start.to_abi(),
        evidence.verdict.to_abi(),
        within,
        evidence.verdict_leaves[within].to_abi(),
        list(verdicts.siblings(within)),
        *_draft_words(evidence, within),
    )


def _draft_words(evidence: RoundEvidence, within: int) -> tuple[Any, ...]:
    if evidence.commit is None or within >= len(evidence.draft_leaves):
        return (blank(DraftCommit), b"", blank(DraftLeaf), [])
    drafts = trees.MerkleTree(leaf.leaf_hash for leaf in evidence.draft_leaves)
    return (
        evidence.commit.to_abi(),
        evidence.commit_signature,
        evidence.draft_leaves[within].to_abi(),
        list(drafts.siblings(within)),
    )


# ---------------------------------------------------------------- how often juries err


def bad_jury(size: int, share: Fraction) -> Fraction:
    """The chance that more than half of `size` seats fall to hands that hold `share` of a stake so
    finely divided that drawing without replacement changes nothing: a binomial tail."""
    return sum(
        (
            comb(size, bad) * share**bad * (1 - share) ** (size - bad)
            for bad in range(size // 2 + 1, size + 1)
        ),
        Fraction(0),
    )


def least_bond(
    panel: int, appeal: int, share: Fraction, returns: Fraction = Fraction(1)
) -> Fraction:
    """The bond, in accusers' rewards, from which a false accusation does not pay one that has
    `share` of the auditors' stake behind it, whether or not it appeals a clearance. The accused
    appeals every conviction.

    A jury of `size` errs with `bad_jury`. Where the last one errs the accuser gets its reward, and
    of the bond of the accused's lost appeal, twice its own, half and what its jurors share of the
    other half. Else it loses its bond, and twice that where it has appealed, but for what its
    jurors share of a half.

    Args:
        panel, appeal: seats.
        returns: what a ruling brings the coalition, in accusers' rewards: 2 where it gets all that
            victims may be paid as well.
    """
    first, last = bad_jury(panel, share), bad_jury(appeal, share)
    kept = 1 - share / 2  # of a bond lost
    won = first * last * 2 * (1 + share) / 2  # of the accused's appeal
    at_once = first * last * returns, (1 - first * last) * kept - won
    appealed = last * returns, (1 - last) * (1 + 2 * (1 - first)) * kept - won
    return max(
        gain / bonds if bonds > 0 else Fraction(10**9) for gain, bonds in (at_once, appealed)
    )


def bad_jury_of(size: int, bad: int, auditors: int) -> Fraction:
    """The same for `bad` of `auditors` with equal stakes: a hypergeometric tail."""
    size = min(size, auditors)
    whole = comb(auditors, size)
    return sum(
        (
            Fraction(comb(bad, seats) * comb(auditors - bad, size - seats), whole)
            for seats in range(size // 2 + 1, min(size, bad) + 1)
        ),
        Fraction(0),
    )
