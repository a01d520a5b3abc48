"""Who does what: the drafters and verifiers of the game, as data.

A strategy says how it changes a session's counts (`Conduct`), what it does to the operator's own
costs, what the other parties refuse to pay for, and what evidence it leaves. Figures that no run of
this project has measured are marked *assumed* in `basis`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from node.economics.market import Acceptance, Floats
from settlement.alpha import BUCKETS

COUPLED: Final = "coupled"
REJECTION: Final = "rejection"
MODES: Final = (COUPLED, REJECTION)
BOTH: Final = frozenset(MODES)
ONLY_REJECTION: Final = frozenset({REJECTION})
HONEST: Final = "honest"

# A near-tie within the registered tolerance hides a false token: *assumed* for one in fifty.
VISIBLE: Final = 0.98
# Model swaps show in projected hidden states within two tokens, and four-bit weights in the tokens
# alone within three hundred (DiFR; see docs/economics.md).
BY_FINGERPRINT: Final = 0.5
BY_TOKENS: Final = 1 / 300


class Trace(StrEnum):
    """How a strategy is found out."""

    NOTHING = "—"
    REFUSED = "refused"  # the others see it at once and neither serve nor sign
    HELD = "held"  # two signed records in honest hands: FaultCourt, certainly
    OPENING = "opening"  # a drawn position breaks a rule before the contract
    RERUN = "re-run"  # drawn auditors run the model and a panel judges
    SILENCE = "silence"  # deadlines pass
    LEDGER = "ledger"  # the α test opens a case


def _none(_: Acceptance) -> Floats:
    return np.zeros(BUCKETS)


def _own(pair: Acceptance) -> Floats:
    return pair.rates


def ambiguous(share: float) -> Callable[[Acceptance], Floats]:
    """That share of the positions at which the target gives no token 0.6."""

    def steer(_: Acceptance) -> Floats:
        return np.where(np.arange(BUCKETS) % 4 >= 2, share, 0.0)

    return steer


@dataclass(frozen=True)
class Drafter:
    """A drafter's strategy.

    Attributes:
        rates, steer: as `Conduct`'s, given the pair.
        steer_passes: chance that a steered draft is accepted.
        cost: its drafting, in units of the honest one's; `target_rows` of the target on top, each
            per drafted token.
        registered: whether the registered model made the drafts; if not, F12 is true.
        delivers: share of the order that it serves.
        paid: share of what it delivered that is signed for.
        traces: what it leaves behind.
        fault: under which the vault is asked.
        basis: where the figures come from.
    """

    name: str
    what: str
    rates: Callable[[Acceptance], Floats] = _own
    steer: Callable[[Acceptance], Floats] = _none
    steer_passes: float = 0.0
    cost: float = 1.0
    target_rows: float = 0.0
    registered: bool = True
    delivers: float = 1.0
    paid: float = 1.0
    traces: tuple[Trace, ...] = ()
    fault: str = ""
    modes: frozenset[str] = BOTH
    basis: str = ""


@dataclass(frozen=True)
class Verifier:
    """A verifier's strategy.

    Attributes:
        false_reject, accept_all: as `Conduct`'s.
        cost: of its target passes, in units of honest ones; `prefill` adds one honest pass over
            each session.
        shows: chance per output token that a re-run sees another model, besides false tokens.
        faulty: share of output tokens whose opening breaks a rule before the contract.
        paid: share of its own work that the others sign for.
        traces, fault, modes, basis: as a drafter's.
    """

    name: str
    what: str
    false_reject: float = 0.0
    accept_all: bool = False
    cost: float = 1.0
    prefill: bool = False
    shows: float = 0.0
    faulty: float = 0.0
    paid: float = 1.0
    traces: tuple[Trace, ...] = ()
    fault: str = ""
    modes: frozenset[str] = BOTH
    basis: str = ""


DRAFTERS: Final = (
    Drafter(HONEST, "the registered model's drafts"),
    Drafter(
        "biased",
        "puts its own choice at half of the ambiguous positions",
        steer=ambiguous(0.5),
        registered=False,
        traces=(Trace.LEDGER, Trace.RERUN),
        fault="F12",
        basis="coupled: a choice passes only where the target says it anyway; rejection: declared "
        "with an honest q the draw lies outside it and V refuses the frame, so q is of another "
        "model and the text stays the target's",
    ),
    Drafter(
        "lying q",
        "states a tiny q for the token it wants",
        rates=lambda _: np.full(BUCKETS, 1.0),
        steer=ambiguous(0.5),
        steer_passes=1.0,
        registered=False,
        traces=(Trace.RERUN,),
        fault="F12",
        modes=ONLY_REJECTION,
        basis="u·q < p·2⁶⁴ holds for any token with p ≥ q",
    ),
    Drafter(
        "copycat",
        "runs the target and states q = p",
        rates=lambda _: np.full(BUCKETS, 1.0),
        target_rows=1.0,
        registered=False,
        traces=(Trace.RERUN,),
        fault="F12",
        modes=ONLY_REJECTION,
        basis="p/q = 1: everything is accepted, at the price of a target pass a token",
    ),
    Drafter(
        "lazy",
        "sells prompt lookup as the model",
        rates=lambda pair: pair.ngram,
        cost=0.01,
        registered=False,
        traces=(Trace.LEDGER, Trace.RERUN),
        fault="F12",
        basis="acceptance measured; cost assumed",
    ),
    Drafter(
        "random",
        "random ids",
        rates=lambda pair: np.full(BUCKETS, 1 / pair.vocab),
        cost=0.0,
        registered=False,
        traces=(Trace.LEDGER, Trace.RERUN),
        fault="F12",
    ),
    Drafter(
        "swapped",
        "a smaller model under the registered one's name",
        rates=lambda pair: 0.85 * pair.rates,
        cost=0.5,
        registered=False,
        traces=(Trace.LEDGER, Trace.RERUN),
        fault="F12",
        basis="half the cost for 0.85 of the acceptance, assumed",
    ),
    Drafter(
        "equivocating",
        "signs a second proposal once a session",
        traces=(Trace.HELD,),
        fault="F1",
        basis="V acts on the first signed root, so the second changes nothing",
    ),
    Drafter(
        "selective",
        "signs only vouchers of batches with a high acceptance",
        paid=0.5,
        traces=(Trace.REFUSED,),
        basis="unsigned batches pay V only, and a later signature counts them all; half assumed",
    ),
    Drafter(
        "stalling",
        "stops answering half way",
        delivers=0.5,
        traces=(Trace.REFUSED,),
        basis="what it drafted is paid, the rest goes to another drafter",
    ),
    Drafter(
        "flooding",
        "sends every frame many times",
        cost=1.1,
        traces=(Trace.REFUSED,),
        basis="a repeated frame changes nothing; traffic assumed to cost a tenth of drafting",
    ),
)

VERIFIERS: Final = (
    Verifier(HONEST, "the target's own words"),
    Verifier(
        "retaliating",
        "rejects valid drafts, twice as many rejections in all at α = .85",
        false_reject=0.15 / 0.85,
        traces=(Trace.RERUN,),
        fault="F9",
        basis="15 → 30 % rejections: 0.15 / 0.85 of valid drafts",
    ),
    Verifier(
        "shading",
        "rejects two percent of valid drafts",
        false_reject=0.02,
        traces=(Trace.RERUN,),
        fault="F9",
        basis="in rejection mode with a p that is 2 % too low, so that its own figures agree",
    ),
    Verifier(
        "accept all",
        "lets every draft pass",
        accept_all=True,
        traces=(Trace.RERUN,),
        fault="F9",
    ),
    Verifier(
        "24 of 30 layers",
        "leaves out a fifth of the model",
        cost=0.8,
        shows=BY_FINGERPRINT,
        traces=(Trace.RERUN,),
        fault="F9",
        basis="cost by layers; seen by fingerprints",
    ),
    Verifier(
        "3 bits",
        "runs requantised weights",
        cost=0.6,
        shows=BY_FINGERPRINT,
        traces=(Trace.RERUN,),
        fault="F9",
        basis="cost assumed; seen by fingerprints",
    ),
    Verifier(
        "cheap + prefill",
        "tokens of 3-bit weights, one honest pass for the fingerprints",
        cost=0.6,
        prefill=True,
        shows=BY_TOKENS,
        traces=(Trace.RERUN,),
        fault="F9",
        basis="only the tokens show it",
    ),
    Verifier(
        "second verdict",
        "signs another verdict once a session",
        traces=(Trace.HELD,),
        fault="F2",
    ),
    Verifier(
        "coin reuse",
        "takes a chain value twice",
        paid=0.0,
        traces=(Trace.REFUSED,),
        modes=ONLY_REJECTION,
        basis="the value does not hash to the one before: D and C stop",
    ),
    Verifier(
        "bucket misreport",
        "states another confidence at a fifth of the positions",
        shows=0.2,
        traces=(Trace.RERUN,),
        fault="F9",
        basis="topProb lies outside the tolerance where it changes the bucket",
    ),
    Verifier(
        "stop overrun",
        "goes on past the end and bills it",
        cost=1.05,
        traces=(Trace.REFUSED,),
        fault="F5",
        basis="C sees the stop and signs nothing after it; a twentieth more assumed",
    ),
    Verifier(
        "inflated sums",
        "bills twice the tokens",
        traces=(Trace.REFUSED,),
        fault="F5",
        basis="every party adds up the records itself and signs only its own sum",
    ),
    Verifier(
        "accept all, silent",
        "lets every draft pass and opens nothing when drawn",
        accept_all=True,
        traces=(Trace.SILENCE,),
        fault="F7",
        basis="withheld openings and withheld sessions cost the same",
    ),
    Verifier(
        "silent at audit",
        "honest, but opens nothing when drawn",
        traces=(Trace.SILENCE,),
        fault="F7",
    ),
    Verifier(
        "old voucher",
        "settles an old voucher again",
        traces=(Trace.REFUSED,),
        basis="dues are cumulative: what is below the watermark pays nothing",
    ),
)


def drafters(mode: str) -> tuple[Drafter, ...]:
    """Those that the mode knows, the honest one first."""
    return tuple(one for one in DRAFTERS if mode in one.modes)


def verifiers(mode: str) -> tuple[Verifier, ...]:
    """Those that the mode knows, the honest one first."""
    return tuple(one for one in VERIFIERS if mode in one.modes)
