"""`verdraft simulate`: what lying pays, under the textbook payment models and under this one."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.commands import CommandError
from node.commands._console import (
    Console,
    add_json,
    count_argument,
    number_argument,
    positive_argument,
)

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from node.economics.market import Acceptance
    from node.economics.terms import Terms
    from settlement.chain.parameters import Parameters

_DAY = 86_400
_TEXT = """\
Agents with honest and dishonest strategies trade sessions, and are paid and punished by the
functions that nodes and contracts use: the sharing rule, settlement, draws, the division of slashes
and the sequential test of acceptance rates. Four payment models are compared:

  per-forward-pass     D paid per proposed draft, V per pass of the target
  per-proposed         both paid per proposed draft
  per-accepted         both paid per accepted draft
  accepted-and-output  this protocol: D per accepted draft, V per output token, with stakes,
                       draws, openings, re-runs and α claims behind it

The first three are played with nothing behind them. Printed are the gain of each lie where nobody
looks, the payoff matrix of drafters and verifiers, best replies of all five roles, break-even audit
rates and stakes, the inequality of detection and slash, a drafter that steers ambiguous positions,
and the parameters at which honest play stops being the best reply.
"""
_MORE = """\
examples:
  verdraft simulate
  verdraft simulate --flat-rate 0                  nobody is drawn: which lies pay?
  verdraft simulate --settle-days 15 --corrupt 0.45
  verdraft simulate --mode rejection --plot game.png
  python scripts/bucket_rates.py --json r.json && verdraft simulate --rates r.json

docs/economics.md explains the model, its assumptions and the figures.
"""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="show what lying pays under each payment model",
        description=_TEXT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--profile", default="production", help="parameters of a deployment (production, devnet)"
    )
    rules.add_argument(
        "--base-rate", type=_share, metavar="SHARE", help="least chance of a draw, ρ"
    )
    rules.add_argument(
        "--flat-rate",
        type=_share,
        metavar="SHARE",
        help="draw every lane with this chance, instead of by V's cover",
    )
    rules.add_argument("--samples", type=count_argument, help="positions opened of a drawn lane, s")
    rules.add_argument("--slash", type=_share, metavar="SHARE", help="of the stake, for a fault")
    rules.add_argument("--corrupt", type=_share, metavar="SHARE", help="of the auditors' stake")
    rules.add_argument("--canaries", type=_share, metavar="SHARE", help="of an auditor's cases")
    rules.add_argument(
        "--settle-days", type=positive_argument, help="between two settlements of a lane"
    )
    rules.add_argument("--lanes", type=count_argument, help="that one stake answers for")
    market = parser.add_argument_group("market")
    market.add_argument(
        "--rates", type=Path, metavar="FILE", help="acceptance from scripts/bucket_rates.py --json"
    )
    market.add_argument(
        "--length", type=count_argument, default=256, help="output tokens of a session"
    )
    market.add_argument("--sessions", type=count_argument, default=16, help="in a batch")
    market.add_argument("--window", type=count_argument, default=4, help="drafts in a round")
    market.add_argument(
        "--margin", type=positive_argument, default=0.25, help="of prices over costs"
    )
    market.add_argument(
        "--steer-value",
        type=positive_argument,
        default=1.0,
        help="of a steered token to who steers it, in prices of an output token",
    )
    run = parser.add_argument_group("run")
    run.add_argument("--batches", type=count_argument, default=150, help="played for each pairing")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument(
        "--mode", choices=("coupled", "rejection"), default="coupled", help="matrix to print"
    )
    run.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (PNG) there")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from node.economics.market import MarketError
    from node.economics.plots import PlotsMissing, draw
    from node.economics.report import Options, study, to_json
    from node.economics.tables import lines
    from node.economics.terms import TermsError

    console = Console(args.json)
    try:
        options = Options(
            pairs=_pairs(args.rates),
            terms=_terms(args),
            market={
                "length": args.length,
                "sessions": args.sessions,
                "window": args.window,
                "margin": args.margin,
            },
            steer_value=args.steer_value,
            batches=args.batches,
            seed=args.seed,
        )
        found = study(options, console.progress)
        if args.plot is not None:
            draw(found, args.plot)
            console.progress(f"picture in {args.plot}")
    except (MarketError, TermsError, PlotsMissing) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"cannot write {args.plot}: {error}") from error
    console.result(to_json(found) if args.json else {}, lines(found, args.mode))


def terms_of(parameters: Parameters) -> Terms:
    """The rules of a deployment, as the simulation takes them."""
    from node.economics.terms import Terms
    from settlement.draws import DrawTerms

    beacon, ledger, times = parameters.beacon, parameters.ledger, parameters.times
    panel, audits = parameters.panel, parameters.audits
    return Terms(
        fee_bps=parameters.escrow.fee_bps,
        lock_factor=parameters.escrow.lock_factor,
        draw=DrawTerms(beacon.base_rate, beacon.fault_bps, beacon.samples),
        late_bps=beacon.late_bps,
        silent_bps=beacon.silent_bps,
        silent_reward_bps=beacon.reward_bps,
        reward_bps=panel.reward_bps,
        victim_bps=panel.victim_bps,
        refuted_bps=ledger.refuted_bps,
        case_reward_bps=ledger.reward_bps,
        case_bond=ledger.bond,
        accusing_bond=panel.bond,
        accusing_bond_bps=panel.bond_bps,
        panel_size=panel.panel_size,
        appeal_size=panel.appeal_size,
        auditors=audits.size,
        auditor_silent_bps=audits.passed_bps,
        # StakeVault.lockWindow
        lock_seconds=times.evidence
        + times.first_deadline
        + times.second_deadline
        + times.panel
        + times.appeal,
    )


def _terms(args: argparse.Namespace) -> Terms:
    from settlement.chain.parameters import PROFILES

    if args.profile not in PROFILES:
        raise CommandError(f"profiles are {', '.join(sorted(PROFILES))}, not {args.profile!r}")
    terms = terms_of(PROFILES[args.profile])
    draw = terms.draw
    if args.base_rate is not None:
        draw = replace(draw, base_rate=min(int(args.base_rate * 2**32), 2**32 - 1))
    if args.samples is not None:
        draw = replace(draw, samples=args.samples)
    changes: dict[str, Any] = {}
    if args.slash is not None:
        share = int(args.slash * 10_000)
        draw = replace(draw, fault_bps=max(share, 1))
        changes |= {"refuted_bps": share}
    if args.settle_days is not None:
        changes["settle_seconds"] = max(int(args.settle_days * _DAY), 1)
    for name in ("flat_rate", "corrupt", "canaries", "lanes"):
        if getattr(args, name) is not None:
            changes[name] = getattr(args, name)
    return replace(terms, draw=draw, **changes)


def _pairs(path: Path | None) -> dict[str, Acceptance]:
    """Acceptance by mode: the measured tables, or one file's for both."""
    from node.economics import measured
    from node.economics.market import Acceptance, MarketError

    if path is None:
        return measured.pairs()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as JSON: {error}") from error
    try:
        pair = Acceptance.of_json(data, measured.lookup(), measured.VOCABULARY)
    except MarketError as error:
        raise CommandError(f"{path}: {error}") from error
    return {"coupled": pair, "rejection": pair}


def _share(text: str) -> float:
    value = number_argument(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"a share is 0 to 1, not {text}")
    return value
