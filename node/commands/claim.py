"""`verdraft claim publish|show`: acceptance rates that a drafter promises."""

from __future__ import annotations

import argparse
import secrets
from typing import TYPE_CHECKING

from node.commands import CommandError
from node.commands._console import Console, add_json, hash_argument, hex_of
from node.commands._wallet import add_chain_options, add_options, connect, open_wallet
from settlement.hashing import ZERO32, ZERO_ADDRESS
from settlement.records import BUCKETS, Q16, Claim, Mode

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_POSITIONS = ("<16", "<64", "<256", "≥256")
_PROBABILITIES = ("≥0.9", "≥0.6", "≥0.3", "<0.3")


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    family = subparsers.add_parser(
        "claim",
        help="promise acceptance rates, or look at a promise",
        description="A drafter's promise of how often its drafts are accepted, in sixteen buckets. "
        "Everybody's watcher tests it after each settlement, for ever: promise less than you "
        "measured.",
    )
    actions = family.add_subparsers(title="actions", metavar="ACTION", required=True)
    publish = actions.add_parser(
        "publish",
        help="publish a claim of this drafter",
        description="Puts the claim on chain; its id goes into `model.claim` of the drafter's "
        "configuration, and clients deposit for it.",
        epilog="example: verdraft claim publish --target 0xTARGETID --draft 0xDRAFTID --rates 60",
    )
    publish.add_argument(
        "--target",
        type=hash_argument,
        required=True,
        metavar="ID",
        help="target model id (`verdraft model id`)",
    )
    publish.add_argument(
        "--draft",
        type=hash_argument,
        default=ZERO32,
        metavar="ID",
        help="draft model id (default: no model, n-grams)",
    )
    publish.add_argument(
        "--mode",
        choices=[mode.name.lower() for mode in Mode],
        default=Mode.COUPLED.name.lower(),
        help="acceptance rule that is promised for (default: %(default)s)",
    )
    publish.add_argument(
        "--max-temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="served up to (default: %(default)g)",
    )
    publish.add_argument(
        "--rates",
        required=True,
        metavar="PERCENT[,…]",
        help="percent, 6 to 99: one for all buckets, or sixteen separated by commas "
        "(output position <16, <64, <256, ≥256; in each the target's top probability "
        "≥0.9, ≥0.6, ≥0.3, <0.3)",
    )
    publish.set_defaults(run=_publish)
    add_options(publish)
    show = actions.add_parser("show", help="show a claim as it stands on chain")
    show.add_argument("claim", type=hash_argument, metavar="ID", help="claim id")
    show.set_defaults(run=_show)
    add_chain_options(show)
    add_json(show)


def parse_rates(text: str) -> tuple[int, ...]:
    """Sixteen percentages from one or sixteen. CommandError says what is wrong."""
    try:
        rates = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise CommandError(f"rates are whole percents, not {text!r}") from error
    if len(rates) == 1:
        rates *= BUCKETS
    if len(rates) != BUCKETS:
        raise CommandError(f"rates are one or {BUCKETS} numbers, not {len(rates)}")
    outside = [rate for rate in rates if not 6 <= rate <= 99]
    if outside:
        raise CommandError(f"a rate is 6 to 99 percent, not {outside[0]}")
    return rates


def _publish(args: argparse.Namespace) -> None:
    rates = parse_rates(args.rates)
    mode = Mode[args.mode.upper()]
    temperature = round(args.max_temperature * Q16)
    if not 0 <= temperature < 2**32:
        raise CommandError(f"a temperature is 0 to 65535, not {args.max_temperature}")
    with open_wallet(args) as wallet:
        registry = wallet.contracts.registry
        for name, model in (("--target", args.target), ("--draft", args.draft)):
            if model != ZERO32 and not registry.is_registered(model):
                raise CommandError(
                    f"{name} {hex_of(model)} is not registered: `verdraft model register` does it"
                )
        claim = Claim(
            wallet.address, args.target, args.draft, mode, temperature, rates, secrets.randbits(64)
        )
        mined = wallet.send("claim", wallet.contracts.ledger.register(claim))
        wallet.console.result(
            {
                "claim": hex_of(claim.struct_hash),
                "record": claim.to_json(),
                "transaction": hex_of(mined.hash),
            },
            [f"claim {hex_of(claim.struct_hash)}", *_table(rates)],
        )


def _show(args: argparse.Namespace) -> None:
    state = connect(args).ledger.claim_of(args.claim)
    if state.drafter == ZERO_ADDRESS:
        raise CommandError(f"no claim {hex_of(args.claim)} was published here")
    Console(args.json).result(
        {
            "claim": hex_of(args.claim),
            "drafter": hex_of(state.drafter),
            "status": state.status.name.lower(),
            "mode": Mode(state.mode).name.lower(),
            "maxTemperature": state.max_temperature / Q16,
            "rates": list(state.rates),
            "openCase": state.open_case or None,
            "targetModel": hex_of(state.target_model),
            "draftModel": hex_of(state.draft_model),
            "verifiers": state.verifiers,
        },
        [
            f"drafter  {hex_of(state.drafter)}",
            f"status   {state.status.name.lower()}"
            + (f", case {state.open_case}" if state.open_case else ""),
            f"serves   {Mode(state.mode).name.lower()} up to temperature "
            f"{state.max_temperature / Q16:g}",
            *_table(state.rates),
        ],
    )


def _table(rates: tuple[int, ...]) -> list[str]:
    rows = ["position   " + "".join(f"{name:>7}" for name in _PROBABILITIES)]
    for row, name in enumerate(_POSITIONS):
        cells = "".join(f"{rate:>6}%" for rate in rates[4 * row : 4 * row + 4])
        rows.append(f"{name:<11}{cells}")
    return rows
