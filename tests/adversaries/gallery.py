"""The scenes of the gallery, and what each must come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import cast_clients as clients
import cast_drafters as drafters
import cast_verifiers as verifiers
from arena import TableChain
from pairs import TINY_PAIR, fewer_layers, three_bits
from stage import Played, Row, Scene

from node.roles.rerun import Tolerance
from settlement.payments import MAX_UNSIGNED_TOKENS
from settlement.records import Mode

_GREEDY = {"temperature": 0}
_WINDOW = 3  # of every verifier on the stage
_LONG = {"max_tokens": 120}
_SHORT = {"max_tokens": 24}
_SEEDS = (5, 6, 7)


@dataclass(frozen=True)
class Finding:
    """What was seen: how, what came of it, and the fault's number if any."""

    caught: str
    outcome: str
    fault: str = ""


Judge = Callable[[Played, Scene], Finding]
NOTHING = Finding("", "")


def by_proof(number: int) -> Judge:
    """The honest parties' journals prove that fault against the dishonest party."""

    def judge(played: Played, scene: Scene) -> Finding:
        (guilty,) = (played.nodes[seat].address for seat in scene.crooked)
        if (number, guilty) not in played.faults:
            return NOTHING
        left = [note for note in played.notes if note.startswith("handing over")]
        how = f"proof of F{number} in the others' journals"
        return Finding(how, "refused" if left else "found", f"F{number}")

    return judge


def by_rerun(played: Played, scene: Scene) -> Finding:
    """A second run of the target differs, in tokens or in hidden states."""
    if played.mismatches:
        how = f"re-run: {played.mismatches} of {played.seen} tokens"
    elif played.farthest > Tolerance().fingerprint:
        how = f"re-run: fingerprints {played.farthest} apart, tolerance {Tolerance().fingerprint}"
    else:
        return NOTHING
    return Finding(how, "found", "F9")


def by_redraft(played: Played, scene: Scene) -> Finding:
    """A second run of the draft model gives other distributions than D has committed to."""
    if not played.redrafted:
        return NOTHING
    drafts = sum(
        len(done.draft.leaves)
        for run in played.reruns
        for done in run.served.rounds
        if done.draft is not None
    )
    how = f"re-run of the draft model: {played.redrafted} of {drafts} distributions"
    return Finding(how, "found", "F12")


def by_pay(played: Played, scene: Scene) -> Finding:
    """It earns less than honest drafting does on the same order."""
    mine = played.paid(scene.role) // (played.arena.prices.accepted - 1)
    usual = _honest_accepted(scene.mode)
    if mine >= usual:
        return NOTHING
    return Finding(f"paid for {mine} accepted drafts, honest {usual}", "unprofitable")


def by_leaving(text: str) -> Judge:
    """The client goes on with another."""

    def judge(played: Played, scene: Scene) -> Finding:
        if not any(text in note for note in played.notes) or len(played.sessions) < 2:
            return NOTHING
        return Finding(f"handed over: {text}", "unprofitable")

    return judge


def by_dropping(played: Played, scene: Scene) -> Finding:
    if not played.stale:
        return NOTHING
    return Finding(f"{played.stale} frames dropped as stale", "refused")


def by_silence(played: Played, scene: Scene) -> Finding:
    """Without its signature it is paid nothing."""
    served = played.sessions[-1]
    order, payment = served.terms.order, served.payment
    if order.drafter != played.nodes["drafter"].address or (payment and payment.drafter):
        return NOTHING
    return Finding("paid nothing without its signature", "unprofitable")


def by_bound(played: Played, scene: Scene) -> Finding:
    """Served no further than the bound on unsigned work."""
    if not played.error or played.seen > MAX_UNSIGNED_TOKENS + _WINDOW + 1:
        return NOTHING
    return Finding(f"served {played.seen} tokens and no more", "refused")


def by_bound_again(played: Played, scene: Scene) -> Finding:
    """Served as far beyond the last signature as the bound allows."""
    beyond, most = played.seen - played.signed, MAX_UNSIGNED_TOKENS + _WINDOW + 1
    if played.outcome is not None or not played.signed or beyond > most:
        return NOTHING
    return Finding(f"served {beyond} tokens beyond its last signature and no more", "refused")


def by_reserve(played: Played, scene: Scene) -> Finding:
    """Served no further than the reserve covers, fee included."""
    if played.outcome is not None or not any("reserve" in note for note in played.notes):
        return NOTHING
    owed, reserve = played.served_cost, played.arena.chain.reserve
    if owed > reserve:
        return NOTHING
    return Finding(f"served {played.seen} tokens, which the reserve covers", "refused")


def by_refusal(text: str) -> Judge:
    """An honest payee does not sign."""

    def judge(played: Played, scene: Scene) -> Finding:
        if text not in played.error:
            return NOTHING
        return Finding(f"refused: {text}", "refused")

    return judge


@cache
def _honest_accepted(mode: Mode) -> int:
    """Accepted drafts of an honest drafter on the stage, the least over three seeds."""
    runs = [Scene("honest", "nobody", mode).play(seed) for seed in _SEEDS]
    return min(run.paid("drafter") // run.arena.prices.accepted for run in runs)


REJ = Mode.REJECTION
SCENES: tuple[tuple[Scene, Judge], ...] = (
    (Scene("biased", "drafter", drafter=drafters.biased), by_pay),
    (Scene("lazy", "drafter", drafter=drafters.lazy), by_pay),
    (Scene("random", "drafter", drafter=drafters.guessing), by_pay),
    (Scene("swapped model", "drafter", drafter=drafters.swapped), by_pay),
    (Scene("equivocating", "drafter", drafter_role=drafters.Equivocating), by_proof(1)),
    (
        Scene("honest q, other token", "drafter", REJ, drafter_role=drafters.OtherDraw),
        by_proof(4),
    ),
    (Scene("short window", "drafter", REJ, drafter_role=drafters.ShortWindow), by_proof(4)),
    (Scene("biased, q committed", "drafter", REJ, drafter=drafters.biased), by_redraft),
    (Scene("lying q", "drafter", REJ, drafter=drafters.lying_q), by_redraft),
    (Scene("q = p copycat", "drafter", REJ, drafter=drafters.copycat_q), by_redraft),
    (
        Scene("stalling", "drafter", drafter_role=drafters.Stalling),
        by_leaving("the drafter does not draft"),
    ),
    (Scene("flooding", "drafter", drafter_role=drafters.Flooding), by_dropping),
    (Scene("selective consent", "drafter", drafter_role=drafters.Selective), by_silence),
    (
        Scene("retaliating", "verifier", Mode.GREEDY, target=verifiers.retaliating, wishes=_GREEDY),
        by_rerun,
    ),
    (
        Scene("shading by 2 %", "verifier", Mode.GREEDY, target=verifiers.shading, wishes=_GREEDY),
        by_rerun,
    ),
    (Scene("accepts everything", "verifier", target=verifiers.accepts_all), by_rerun),
    (Scene("smaller model", "verifier", target=verifiers.smaller), by_rerun),
    (
        Scene("24 of 30 layers", "verifier", pair=TINY_PAIR, target=fewer_layers, wishes=_SHORT),
        by_rerun,
    ),
    (
        Scene("3-bit weights", "verifier", pair=TINY_PAIR, target=three_bits, wishes=_SHORT),
        by_rerun,
    ),
    (
        Scene(
            "cheap tokens, honest prefill",
            "verifier",
            pair=TINY_PAIR,
            target=lambda: verifiers.CheapTokens(three_bits(), TINY_PAIR.target()),
            verifier_role=verifiers.HonestPrefill,
            wishes=_SHORT,
        ),
        by_rerun,
    ),
    (
        Scene("bucket misreport", "verifier", verifier_role=verifiers.OtherBucket, wishes=_SHORT),
        by_rerun,
    ),
    (Scene("other hidden states", "verifier", target=verifiers.other_states), by_rerun),
    (Scene("other draft named", "verifier", verifier_role=verifiers.OtherDraft), by_proof(3)),
    (Scene("false p", "verifier", REJ, verifier_role=verifiers.FalseP), by_proof(4)),
    (Scene("coin reuse", "verifier", REJ, verifier_role=verifiers.CoinReuse), by_proof(4)),
    (Scene("inflated counts", "verifier", verifier_role=verifiers.InflatedCounts), by_proof(5)),
    (Scene("second verdict", "verifier", verifier_role=verifiers.SecondVerdict), by_proof(2)),
    (
        Scene(
            "stop overrun",
            "verifier",
            verifier_role=verifiers.StopOverrun,
            wishes={"stop_ids": (0, 1, 2)},
        ),
        by_proof(5),
    ),
    (
        Scene("unpaid exposure", "client", client_role=clients.NeverSigns, requests=3),
        by_bound,
    ),
    (
        Scene("refusing to sign", "client", client_role=clients.SignsOnce, wishes=_LONG),
        by_bound_again,
    ),
    (
        Scene("over-committed reserve", "client", chain=lambda: TableChain(1500), wishes=_LONG),
        by_reserve,
    ),
    (
        Scene("withdraws while owing", "client", chain=lambda: clients.Thawing(12), wishes=_LONG),
        by_reserve,
    ),
    (
        Scene("forged seed", "client", client_role=clients.ForgedSeed),
        by_refusal("the seed does not follow from the nonces"),
    ),
    (
        Scene("reused nonce", "client", client_role=clients.ReusedNonce, requests=2),
        by_refusal("was used before"),
    ),
    (
        Scene("seed grinding", "client", client_role=clients.SeedGrinding),
        by_refusal("belongs to another order"),
    ),
    (
        Scene(
            "steering text",
            "drafter and verifier",
            drafter=drafters.biased,
            target=drafters.steered,
            wishes=_SHORT,
        ),
        by_rerun,
    ),
    (
        Scene(
            "sinking the drafter",
            "client and verifier",
            Mode.GREEDY,
            target=verifiers.retaliating,
            wishes=_GREEDY,
        ),
        by_rerun,
    ),
)
# Whose faults FaultCourt itself judges.
BEFORE_THE_COURT = tuple(
    (scene, judge) for scene, judge in SCENES if judge.__qualname__.startswith("by_proof")
)
# Whose faults a panel judges.
BEFORE_A_PANEL = tuple((scene, judge) for scene, judge in SCENES if judge in (by_rerun, by_redraft))
NAMES = tuple(scene.name for scene, _ in SCENES)


def show(scene: Scene, judge: Judge, seed: int = 5) -> tuple[Row, Played]:
    """Plays one scene and says what came of it."""
    played = scene.play(seed)
    finding = judge(played, scene)
    crooked = {played.nodes[seat].address for seat in scene.crooked}
    innocent = {guilty for _, guilty in played.faults if guilty not in crooked}
    row = Row(
        adversary=scene.name,
        role=scene.role,
        mode=scene.mode.name.lower(),
        caught=finding.caught,
        outcome=finding.outcome,
        fault=finding.fault,
        sessions=max(len(played.sessions), 1),
        slashed=0,
        victim_recovered=0,
        text_intact=played.text_is_the_targets(),
        honest_slashed=len(innocent),
    )
    return row, played
