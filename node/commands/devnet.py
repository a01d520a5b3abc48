"""`verdraft devnet`: the whole thing on one machine, from an empty folder to a settled answer."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "devnet",
        help="run a chain, contracts and all nodes here, serve prompts and settle them",
        description="Starts Anvil, deploys the contracts, makes keys and stakes for two drafters, "
        "two verifiers, three auditors and a client, starts each as its own process, runs prompts "
        "through them, settles on chain, opens the drawn samples, withdraws, and shows everything. "
        "Ends with exit code 0 and nothing left running.",
    )
    parser.add_argument(
        "--prompt",
        action="append",
        default=[],
        metavar="P",
        help="a prompt; may be repeated (default: built-in ones)",
    )
    parser.add_argument("--sessions", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument(
        "--mode",
        choices=("coupled", "greedy", "rejection"),
        default="coupled",
        help="acceptance rule (default: %(default)s)",
    )
    parser.add_argument("--temperature", type=float, help="default: 0.7, and 0 in greedy mode")
    parser.add_argument("--top-k", type=int, default=0, help="keep the k best; 0 is off")
    parser.add_argument("--top-p", type=float, default=1.0, help="nucleus; 1 is off")
    parser.add_argument("--seed", type=int, help="a client's own seed: the same text every time")
    parser.add_argument(
        "--max-tokens", type=int, default=64, help="per session (default: %(default)s)"
    )
    parser.add_argument(
        "--min-window",
        type=int,
        default=0,
        help="draft at least so many tokens a round, even where none would be faster "
        "(default: %(default)s, which leaves the choice to the engine)",
    )
    parser.add_argument(
        "--tier",
        choices=("exact", "float"),
        default="exact",
        help="arithmetic of all models: integers, the same on every machine, or float32 "
        "(default: %(default)s)",
    )
    parser.add_argument("--tiny", action="store_true", help="use the tiny model pair")
    parser.add_argument("--draft", help='model of the first drafter: a name, folder, or "ngram"')
    parser.add_argument(
        "--panel",
        action="store_true",
        help="six auditors and a block a second, so that a jury of five can be drawn, and seen at "
        "work (default: three auditors, of whom two judge what the third accuses)",
    )
    parser.add_argument("--serve", action="store_true", help="stay up after the sessions")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep keys, journals, logs here")
    parser.add_argument(
        "--latency", type=float, default=0.0, metavar="MS", help="add this to every message"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured here")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from node.commands import CommandError
    from node.devnet.options import DevnetOptions
    from node.devnet.run import run
    from node.inference import catalog

    if args.sessions < 0 or args.max_tokens < 1:
        raise CommandError("--sessions is at least 0 and --max-tokens at least 1")
    # Said at once, and not by the client's node when everything is up.
    if args.temperature is not None:
        if args.mode == "greedy" and args.temperature:
            raise CommandError("--mode greedy has no temperature")
        if args.mode != "greedy" and not 1e-3 <= args.temperature <= 16:
            raise CommandError(f"--temperature {args.temperature}: 0.001 to 16, or --mode greedy")
    if not 0 < args.top_p <= 1 or args.top_k < 0:
        raise CommandError(
            f"--top-p {args.top_p}, --top-k {args.top_k}: above 0 up to 1; 0 or more"
        )
    if not all(prompt.strip() for prompt in args.prompt):
        raise CommandError("--prompt is empty")
    if args.json is not None and not os.access(args.json.absolute().parent, os.W_OK):
        raise CommandError(f"--json {args.json}: its folder is not there or cannot be written")
    if args.draft not in (None, "ngram"):
        catalog.resolve(args.draft, progress=lambda line: print(line, file=sys.stderr))
    options = DevnetOptions(
        prompts=tuple(args.prompt),
        sessions=args.sessions,
        mode=args.mode,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        max_tokens=args.max_tokens,
        min_window=args.min_window,
        tiny=args.tiny,
        serve=args.serve,
        keep=args.keep,
        latency_ms=args.latency,
        json=args.json,
        draft=args.draft,
        tier=args.tier,
        panel=args.panel,
        settle_at_end=True,
    )
    return run(options)
