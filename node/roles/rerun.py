"""An auditor's second run of a session: the target's own word at every position, beside V's.

`judge` is pure: one position's row against one leaf. `rerun` feeds it from a teacher-forced pass,
and `WorkerRerun` does that in the one worker thread of this machine, loading the model at the first
audit (a node that is never drawn never loads one).

In rejection mode the *draft* model is run again too, where this node has it (`redraft`); in relaxed
mode D's figures (surprisal and top list) are taken as D committed them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from node.inference.stops import StopScanner
from node.network.messages import PromptDelivery
from node.roles.convert import stop_rules
from node.roles.frames import Round
from settlement import acceptance, masses
from settlement.acceptance import ScoreRow
from settlement.coins import Purpose, coin
from settlement.hashing import ZERO32
from settlement.panels import Answer
from settlement.records import (
    MASS_TOTAL,
    NO_CUTOFF,
    NO_TOKEN,
    Q16,
    SCORE_BITS,
    DraftLeaf,
    Mode,
    Order,
    Tier,
    VerdictLeaf,
)

T = TypeVar("T")
# `inference.plain.NEAR_TIE_FLOAT32`, without loading torch: a node that is never drawn has no use
# for it.
NEAR_TIE: Final = round(1e-3 * (1 << SCORE_BITS))


@dataclass(frozen=True)
class Tolerance:
    """How far honest float32 runs may lie apart; all zero in the exact tier.

    Measured by `scripts/float_tolerance.py` (docs/results.md): float32 runs stay a good deal below
    these, those in bfloat16 lie five hundred times as far apart.

    Attributes:
        score: Q24 units of scaled logits.
        top_prob: units of 2**-16.
        mass: share of one, for p and the coin's place in rejection mode.
        surprisal: Q16 nats, for the relaxed rule's key bit.
        fingerprint: as `inference.fingerprint.distance` counts.
        cutoff: Q24 units, of the lowest kept score: where another token is the last one kept, it
            jumps by the gap between two scores.
    """

    score: int = NEAR_TIE
    top_prob: int = 16
    mass: float = 1e-4
    surprisal: int = 66
    fingerprint: int = 64
    cutoff: int = NEAR_TIE

    @classmethod
    def of(cls, tier: Tier) -> Tolerance:
        """What honest runs of a tier may differ by: nothing in the exact one; in bfloat16 twice as
        much as any two of 83 sessions did."""
        if tier == Tier.EXACT:
            return cls(0, 0, 0.0, 0, 0, 0)
        if tier == Tier.BFLOAT16:
            return cls(10_000_000, 14_000, 0.12, 1 << 14, 5_000, 1 << 26)
        return cls()


@dataclass(frozen=True)
class Difference:
    """A position where V's word is not the auditor's. `margin` in the units of what differs."""

    position: int
    what: str
    margin: float
    theirs: int
    ours: int


@dataclass(frozen=True)
class Case:
    """A session as it was delivered and checked, ready to be run again."""

    order: Order
    seed: bytes
    delivery: PromptDelivery
    rounds: tuple[Round, ...]

    @property
    def output(self) -> tuple[int, ...]:
        """Output tokens of this session."""
        return tuple(token for done in self.rounds for token in done.verdict.tokens)


@dataclass(frozen=True)
class Findings:
    """What the second run says of a case.

    Attributes:
        tokens: output tokens compared.
        mismatches: differences beyond tolerance; near_ties: other tokens within it.
        fingerprints: the auditor's own, per output token, 32 bytes each.
        seconds: of the run, model loading apart.
        hidden: in the exact tier the auditor's own final states where something differs, by output
            position: what a dispute over that token begins with.
        drafts: rejection mode: where D's lists are not its registered model's (F12); None where
            the draft model was not run.
    """

    tokens: int
    mismatches: tuple[Difference, ...]
    near_ties: int
    fingerprints: tuple[bytes, ...]
    seconds: float
    hidden: Mapping[int, bytes] = field(default_factory=dict)
    drafts: tuple[Difference, ...] | None = None


class Worker(Protocol):
    """Runs a function where torch may run (`inference.worker.InferenceWorker`)."""

    async def call(self, function: Callable[..., T], *args: Any) -> T: ...


class AuditEngine(Protocol):
    """Runs a case again."""

    async def rerun(self, case: Case, tolerance: Tolerance) -> Findings: ...


# ---------------------------------------------------------------- one position


@dataclass(frozen=True)
class Placed:
    """A verdict leaf with what its judgement needs: D's leaf and kept list, top list, v_r."""

    leaf: VerdictLeaf
    draft: DraftLeaf | None
    kept: tuple[tuple[int, int], ...]
    top: tuple[int, ...]
    chain_value: bytes


def judge(
    order: Order, seed: bytes, at: Placed, row: ScoreRow, tolerance: Tolerance
) -> tuple[list[Difference], bool]:
    """What differs at one position beyond tolerance, and whether its token is a near-tie: another
    one than the row's own choice, but within tolerance of it."""
    leaf, found = at.leaf, []

    def differ(what: str, margin: float, theirs: int, ours: int) -> None:
        found.append(Difference(leaf.position, what, float(margin), int(theirs), int(ours)))

    if abs(leaf.top_prob - row.top_prob) > tolerance.top_prob:
        differ("topProb", abs(leaf.top_prob - row.top_prob), leaf.top_prob, row.top_prob)
    apart, aligned = align(order, leaf, row, tolerance)
    if apart > tolerance.cutoff:
        differ("cutoff", apart, leaf.cutoff, row.cutoff)
    else:
        row = aligned
    if order.mode == Mode.REJECTION:
        margin, ours, what = coin_margin(order, seed, at, row)
        if margin > tolerance.mass:
            differ(what, margin, leaf.token, ours)
        return found, leaf.token != ours and margin <= tolerance.mass
    margin, ours = score_margin(order, seed, at, row, tolerance)
    if margin > tolerance.score:
        differ("token", margin, leaf.token, ours)
    if order.relax_tau and leaf.draft_token != NO_TOKEN:
        _check_key(order, at, row, tolerance, differ)
    return found, leaf.token != ours and margin <= tolerance.score


def align(
    order: Order, leaf: VerdictLeaf, row: ScoreRow, tolerance: Tolerance
) -> tuple[int, ScoreRow]:
    """How far V's cut-off lies from any that our own row allows (Q24), and the row to judge by:
    under V's cut-off, where that is another token's score than ours.

    Where the mass of the best tokens comes to top_p by a hair, one honest run keeps one token more
    than another, and the cut-off jumps by the gap between two scores: 1 in 800 sessions with top_p
    0.9 has such a place. So every cut-off counts as ours that `tolerance.mass` more or less of
    top_p would give, and what V keeps under it is judged by what V has kept.
    """
    if NO_CUTOFF in (leaf.cutoff, row.cutoff):
        return (0 if leaf.cutoff == row.cutoff else 1 << 62), row
    apart = abs(leaf.cutoff - row.cutoff)
    if apart <= tolerance.score:
        return apart, row
    low = high = row.cutoff
    if order.top_p < Q16 and tolerance.mass:
        low, high = _cutoffs_near(order, row, tolerance.mass)
    nearest = int(row.scores[np.abs(row.scores - leaf.cutoff).argmin()])
    return max(leaf.cutoff - high, low - leaf.cutoff, 0), replace(row, cutoff=nearest)


def _cutoffs_near(order: Order, row: ScoreRow, share: float) -> tuple[int, int]:
    """The cut-offs under top_p + share and top_p − share (`inference.sampling.cutoffs`)."""
    best = np.sort(row.scores)[::-1]
    if order.top_k:
        best = best[: order.top_k]
    mass = np.exp((best - best[0]) / (1 << SCORE_BITS)).cumsum()
    edges = (order.top_p / Q16 + share, order.top_p / Q16 - share)
    low, high = (min(int(np.searchsorted(mass / mass[-1], p)), len(best) - 1) for p in edges)
    return int(best[low]), int(best[high])


def score_margin(
    order: Order, seed: bytes, at: Placed, row: ScoreRow, tolerance: Tolerance
) -> tuple[int, int]:
    """How far the token's score lies below what the rule asks for (Q24, ≤ 0: not at all), and the
    row's own choice. Near the cut-off, V's token counts as kept and its rivals as left out."""
    mode, leaf = Mode(order.mode), at.leaf
    best, top = row.choose(mode, seed, leaf.position)
    if leaf.token == best:
        return 0, best
    if row.cutoff != NO_CUTOFF:
        strict = min(row.cutoff + tolerance.score, int(row.scores.max()))
        _, top = replace(row, cutoff=strict).choose(mode, seed, leaf.position)
        row = replace(row, cutoff=row.cutoff - tolerance.score)
    score = row.score(mode, seed, leaf.position, leaf.token)
    # The relaxed rule takes a draft within τ where the position is not key.
    tau = order.relax_tau if leaf.accepted and not leaf.key else 0
    return top - tau - score, best


def _check_key(
    order: Order,
    at: Placed,
    row: ScoreRow,
    tolerance: Tolerance,
    differ: Callable[[str, float, int, int], None],
) -> None:
    """The relaxed rule's figures: the target's surprisal of x, and the key bit that follows."""
    leaf, draft = at.leaf, at.draft
    assert draft is not None  # the leaf names a draft token, and the records were checked
    ours = row.surprisal(leaf.draft_token)
    apart = abs(ours - leaf.surprisal)
    if apart > tolerance.surprisal:
        differ("surprisal", apart, leaf.surprisal, ours)
    terms = acceptance.Terms.of(order)
    overlap = acceptance.one_minus_overlap(at.top, row.top())
    sides = {
        acceptance.is_key(terms, max(0, ours + shift), draft.surprisal, overlap)
        for shift in (-tolerance.surprisal, tolerance.surprisal)
    }
    if leaf.key not in sides:
        differ("key", 1, leaf.key, not leaf.key)


def coin_margin(order: Order, seed: bytes, at: Placed, row: ScoreRow) -> tuple[float, int, str]:
    """Rejection mode: how far p lies from ours, or the coin from the interval that the token has in
    our distribution, as a share of one; what we would have emitted; and which of the two it is.

    That V's draft is accepted or not follows from V's p by a rule that was checked on the leaf.
    """
    leaf, p = at.leaf, row.masses()
    if any(token >= len(p) for token, _mass in at.kept):
        return 1.0, NO_TOKEN, "token"  # no honest verifier answers a draft from such a list
    apart, rest, purpose = 0.0, p, Purpose.BONUS
    passes = False
    if leaf.draft_token != NO_TOKEN:
        assert at.draft is not None  # the leaf names a draft token, and the records were checked
        x, q = leaf.draft_token, at.draft.q
        mass = int(p[x]) if x < len(p) else 0
        apart = abs(mass - leaf.p) / MASS_TOTAL
        u = coin(at.chain_value, seed, leaf.position, Purpose.ACCEPT)
        passes = masses.accept_rejection(u, q, mass)
        rest = masses.residual_masses(p, masses.dense(at.kept, len(p)))
        purpose = Purpose.RESIDUAL
    w = coin(at.chain_value, seed, leaf.position, purpose)
    ours = leaf.draft_token if passes else masses.sample_masses(rest, w)
    if leaf.accepted:
        # Which side of p the accept coin falls on is all there is to compare.
        return apart, ours, "p"
    below = np.cumsum(rest, dtype=np.uint64)
    total = int(below[-1])
    if leaf.token >= len(rest):
        return 1.0, ours, "token"
    place = w * total >> 64
    high = int(below[leaf.token])
    low = high - int(rest[leaf.token])
    outside = max(low - place, place - high + 1, 0) / total
    return (apart, ours, "p") if apart >= outside else (outside, ours, "token")


# ---------------------------------------------------------------- one session


def placed(rounds: Sequence[Round]) -> list[Placed]:
    """Every leaf of the rounds, in order of position."""
    out = []
    for done in rounds:
        draft, verdict = done.draft, done.verdict
        for index, leaf in enumerate(verdict.leaves):
            drafted = draft is not None and index < len(draft.leaves)
            out.append(
                Placed(
                    leaf,
                    draft.leaves[index] if draft and drafted else None,
                    draft.kept[index] if draft and drafted and draft.kept else (),
                    draft.tops[index] if draft and drafted and draft.tops else (),
                    verdict.verdict.chain_value,
                )
            )
    return out


def check_stops(case: Case, token_bytes: Callable[[int], bytes] | None) -> list[Difference]:
    """Output that passes a stop string, or a round cut short where nothing stops the output."""
    order, found = case.order, []
    before = case.delivery.output
    scanner = StopScanner(stop_rules(order, case.delivery.stops), token_bytes)
    if before and scanner.scan(before) is not None:
        return [Difference(order.start_position - 1, "goes on after a stop", 1.0, before[-1], 0)]
    scanner.commit(before)
    for number, done in enumerate(case.rounds):
        tokens, verdict = done.verdict.tokens, done.verdict.verdict
        hit = scanner.scan(tokens)
        last = number == len(case.rounds) - 1
        if hit is not None and (hit.count < len(tokens) or not last):
            at = verdict.base + hit.count - 1
            found.append(Difference(at, "goes on after a stop", 1.0, tokens[hit.count - 1], 0))
            break
        if hit is None and verdict.emitted != verdict.k + 1:
            found.append(Difference(verdict.base, "stops without a stop", 1.0, tokens[-1], 0))
            break
        scanner.commit(tokens)
    return found


def known(model: Any, output: Sequence[int]) -> tuple[int, ...]:
    """The output with a token of the vocabulary in its last place, on which no row depends."""
    last = min(output[-1], model.vocab_size - 1)
    return (*output[:-1], last)


def rerun(
    model: Any,
    case: Case,
    tolerance: Tolerance,
    token_bytes: Callable[[int], bytes] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Findings:
    """Runs the target over prompt and output once, teacher-forced, and judges every position.

    Where it cannot be run over what comes before (`sayable`), the first such leaf is false; what
    follows is not looked at, and has fingerprints of zeros.
    """
    from node.inference.params import SamplingParams
    from node.inference.plain import replay
    from node.roles.sayable import sayable

    started = clock()
    order, said = case.order, sayable(model, case)
    leaves = placed(case.rounds)
    mismatches = check_stops(case, token_bytes) if said else []
    near_ties, fingerprints, hidden = 0, [], {}
    words = (
        replay(
            model,
            case.delivery.prompt,
            known(model, case.delivery.output + case.output[:said]),
            SamplingParams.from_order(order),
            case.seed,
            first=order.start_position,
        )
        if said
        else ()
    )
    for at, word in zip(leaves[:said], words, strict=True):
        found, near = judge(order, case.seed, at, word.row, tolerance)
        mismatches += found
        near_ties += near
        if found and word.hidden:
            hidden[word.position] = word.hidden
        fingerprints.append(word.fingerprint)
    for at in leaves[said : said + 1]:
        mismatches.append(Difference(at.leaf.position, "no word", 1.0, at.leaf.token, NO_TOKEN))
    seconds = clock() - started
    prints = (*fingerprints, *[ZERO32] * (len(leaves) - said))
    return Findings(len(leaves), tuple(mismatches), near_ties, prints, seconds, hidden)


class OtherModel(RuntimeError):
    """A session of a model that this auditor has staked for and does not run."""


@dataclass(frozen=True)
class Loaded:
    """A target model in memory: its id by manifest, itself, and the text of one token."""

    model_id: bytes
    model: Any
    token_bytes: Callable[[int], bytes] | None


@dataclass(frozen=True)
class LoadedDraft:
    """A draft model in memory: its id by manifest, and an `inference.drafter.Drafter` over it."""

    model_id: bytes
    drafter: Any


class WorkerRerun:
    """An `AuditEngine`, and a `juror.JuryEngine`, that loads its models when they are first needed.

    Args:
        load: runs in the worker's thread, as `load_draft`.
        load_draft: the draft model's id and a drafter that runs it; None where this node has none.
    """

    def __init__(
        self,
        worker: Worker,
        load: Callable[[], Loaded],
        load_draft: Callable[[], LoadedDraft] | None = None,
    ) -> None:
        self._worker = worker
        self._load, self._load_draft = load, load_draft
        self._loaded: Loaded | None = None
        self._draft: LoadedDraft | None = None

    async def rerun(self, case: Case, tolerance: Tolerance) -> Findings:
        return await self._worker.call(self._run, case, tolerance)

    async def answer(self, case: Case, index: int, within: int) -> Answer:
        """A juror's word on one token (`answering.answer`)."""
        return await self._worker.call(self._answer, case, index, within)

    def _answer(self, case: Case, index: int, within: int) -> Answer:
        from node.roles.answering import answer

        loaded = self._loaded_for(case)
        return answer(loaded.model, case, index, within, loaded.token_bytes)

    async def answer_draft(self, case: Case, index: int, within: int) -> Answer:
        """A juror's word on one draft (`draft_answers.draft_answer`). Raises OtherModel where this
        node does not have the draft model."""
        return await self._worker.call(self._answer_draft, case, index, within)

    def _answer_draft(self, case: Case, index: int, within: int) -> Answer:
        from node.roles.draft_answers import draft_answer

        loaded = self._draft_for(case)
        if loaded is None:
            raise OtherModel(f"0x{case.order.draft_model.hex()} is not the draft model here")
        tier = Tier[self._loaded_for(case).model.tier.upper()]
        return draft_answer(loaded.drafter, case, index, within, tier)

    def _run(self, case: Case, tolerance: Tolerance) -> Findings:
        loaded = self._loaded_for(case)
        findings = rerun(loaded.model, case, tolerance, loaded.token_bytes)
        return replace(findings, drafts=self._redraft(case, tolerance))

    def _redraft(self, case: Case, tolerance: Tolerance) -> tuple[Difference, ...] | None:
        """F12, in rejection mode and for the draft model that this node has."""
        if case.order.mode != Mode.REJECTION:
            return None
        loaded = self._draft_for(case)
        if loaded is None:
            return None
        from node.roles.redraft import redraft

        return redraft(loaded.drafter, case, tolerance)

    def _draft_for(self, case: Case) -> LoadedDraft | None:
        """The order's draft model, if this node has it."""
        if self._load_draft is None:
            return None
        if self._draft is None:
            self._draft = self._load_draft()
        return self._draft if case.order.draft_model == self._draft.model_id else None

    def _loaded_for(self, case: Case) -> Loaded:
        if self._loaded is None:
            self._loaded = self._load()
        loaded = self._loaded
        if case.order.target_model != loaded.model_id:
            raise OtherModel(
                f"0x{case.order.target_model.hex()} is to be audited, model.target is "
                f"0x{loaded.model_id.hex()}; configure it, or stop serving it in the vault"
            )
        return loaded
