"""`verdraft ask`: one prompt through a running client node."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from node.commands import CommandError
from node.commands._api import add_api, require_api
from node.commands._console import Console, add_json


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "ask",
        help="send a prompt through a running client node",
        description="Streams the target model's text as rounds commit, then says what it cost and "
        "where the receipt lies.",
    )
    parser.add_argument("prompt", help='the prompt; "-" reads it from standard input')
    add_api(parser)
    parser.add_argument(
        "--mode",
        choices=("coupled", "greedy", "rejection"),
        default="coupled",
        help="how drafts are accepted. Coupled and greedy: one text, whatever is drafted; "
        "rejection: the target's distribution (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="default: 0.7, and 0 in greedy mode"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="keep the k best; 0 is off"
    )
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="nucleus; 1 is off")
    parser.add_argument(
        "--repetition-penalty", type=float, metavar="X", help="over prompt and output; 1 is off"
    )
    parser.add_argument(
        "--presence-penalty", type=float, metavar="X", help="of what was said; 0 is off"
    )
    parser.add_argument(
        "--frequency-penalty", type=float, metavar="X", help="once per occurrence; 0 is off"
    )
    parser.add_argument(
        "--relax",
        type=float,
        metavar="TAU",
        help="accept drafts within TAU of the best score where nothing hangs on it; the text is "
        "then not the target's own, and the receipt says so",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="your own seed: the same text every time (not in rejection mode)",
    )
    parser.add_argument("--max-tokens", type=int, metavar="N", help="default: 128")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="a stop string; repeatable"
    )
    parser.add_argument("--raw", action="store_true", help="no chat template around the prompt")
    parser.add_argument("--drafter", metavar="ADDRESS", help="insist on this operator")
    parser.add_argument("--verifier", metavar="ADDRESS", help="insist on this operator")
    parser.add_argument("--rounds", action="store_true", help="show each round, not only text")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from node.devnet.sessions import GenerationFailed, generate, round_line

    api, console = require_api(args), Console(args.json)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    wanted: dict[str, Any] = {
        "prompt": prompt,
        "mode": args.mode,
        "top_k": args.top_k,
        "top_p": args.top_p,
        "raw": args.raw,
    }
    penalties = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    for name in ("temperature", "seed", "max_tokens", "drafter", "verifier", "relax", *penalties):
        if getattr(args, name) is not None:
            wanted[name] = getattr(args, name)
    if args.stop:
        wanted["stop"] = args.stop

    def on_round(event: dict[str, Any]) -> None:
        if args.json:
            return
        if args.rounds and event["type"] == "round":
            print(round_line(event), flush=True)
        elif not args.rounds:
            print(event["text"], end="", flush=True)

    try:
        done = generate(api, wanted, on_round=on_round, on_note=console.progress)
    except GenerationFailed as error:
        raise CommandError(str(error)) from error
    speed = done["output_tokens"] / done["seconds"] if done["seconds"] else 0.0
    lines = [
        "",
        f"  {done['output_tokens']} tokens in {done['rounds']} rounds, {done['accepted']} of "
        f"{done['proposed']} drafts accepted, {speed:.1f} tokens/s",
        f"  receipt: {done['receipt_path']}"
        + ("" if done["signed_by_all"] else "  (not signed by all yet)"),
    ]
    console.result(done, lines)
    return 0
